"""What a client of asyncio asks for and does not take any more is let go of, whenever that comes to its mind."""

import asyncio
from types import SimpleNamespace

import pytest

from roost.aio_transport import AsyncTransport
from roost.protocol import Call


class Answer:
    """As aiohttp's, of 200, and empty."""

    status = 200
    content = SimpleNamespace(at_eof=lambda: True)

    def __init__(self):
        self.let_go = False

    async def read(self):
        return b""

    def close(self):
        self.let_go = True

    release = close


class Session:
    """Answers when `come` is set."""

    def __init__(self):
        self.come, self.asked, self.answer = asyncio.Event(), asyncio.Event(), None

    async def request(self, *_, **__):
        self.asked.set()
        await self.come.wait()
        self.answer = Answer()
        return self.answer


@pytest.mark.parametrize("turns", range(8))
async def test_an_answer_that_comes_as_its_reader_goes_is_let_go_of(turns):
    """Whatever turn of the loop between the two it is: a connection that nobody lets go of stays open for ever."""
    transport = AsyncTransport("http://x", "token", 60.0)
    session = transport._session = Session()
    reading = asyncio.create_task(transport.read(Call("GET", "/v1/whoami")))
    await session.asked.wait()
    session.come.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait({reading})
    assert session.answer is None or session.answer.let_go
