"""Connections that fail while they are opened: nothing of them may be left, whoever collects the garbage and when."""

import asyncio
import contextlib
import gc
import sys

import pamqp.frame
import pytest
from pamqp import commands

from shared.bus.amqp.link import Link, LinkLost
from tests.servers import free_port
from tests.waiting import eventually

BLOCKED = commands.Connection.Blocked("memory")
TUNE = commands.Connection.Tune(channel_max=2047, frame_max=131072, heartbeat=60)
START = commands.Connection.Start(
    server_properties={"capabilities": {"connection.blocked": True, "publisher_confirms": True}}
)


class HalfBroker:
    """Answers the client's first messages as scripted and then says nothing; sees when the client hangs up."""

    def __init__(self, *answers: list[object]) -> None:
        self._answers = answers
        self.accepted = self.hung_up = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        with contextlib.suppress(ConnectionError):
            for frames in self._answers:
                await reader.read(65536)
                writer.write(b"".join(pamqp.frame.marshal(frame, 0) for frame in frames))
            while await reader.read(65536):
                pass
        self.hung_up += 1
        writer.close()

    @contextlib.asynccontextmanager
    async def url(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        async with server:
            yield f"amqp://guest:guest@127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.fixture
def unraisable(monkeypatch):
    """What went wrong where no exception can go, garbage collection above all."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: seen.append(repr(problem.exc_value)))
    return seen


async def open_link(url: str, timeout_s: float = 60.0) -> Link:
    return await Link.open(url, name="startd.node1", heartbeat_s=0, timeout_s=timeout_s)


async def collected(unraisable) -> None:
    """Nobody's coroutine and nobody's task comes of the garbage, in another thread or in this one."""
    before = asyncio.all_tasks()
    await asyncio.to_thread(gc.collect)
    gc.collect()
    assert unraisable == []
    assert asyncio.all_tasks() <= before


@pytest.fixture
def no_collection():
    """Garbage is collected where the test says so."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
async def test_refused_connections_leave_nothing_to_the_garbage_collector(unraisable):
    url = f"amqp://guest:guest@127.0.0.1:{free_port()}/"
    for _ in range(5):
        with pytest.raises(LinkLost, match="Connect call failed"):
            await open_link(url)
    await collected(unraisable)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([], id="silent"),
        pytest.param([[START]], id="half-way through the greeting"),
        # The library has a connection then, waits until it is unblocked, and forgets it when the wait is given up.
        pytest.param([[START], [TUNE], [commands.Connection.OpenOk(), BLOCKED]], id="blocked at once"),
        # Open, and no channel is.
        pytest.param([[START], [TUNE], [commands.Connection.OpenOk()]], id="no channel"),
    ],
)
async def test_connection_given_up_half_way_is_closed(unraisable, answers):
    broker = HalfBroker(*answers)
    async with broker.url() as url:
        with pytest.raises(TimeoutError):
            await open_link(url, timeout_s=1.0)
        await eventually(lambda: broker.hung_up == 1, 60, "the hanging up")
        assert broker.accepted == 1
    await collected(unraisable)


class FrozenConnection:
    """Never says that it is closed, unless it is dropped."""

    def __init__(self):
        self.dropped = asyncio.Event()

    def abort(self):
        self.dropped.set()

    async def close(self):
        await self.dropped.wait()


async def test_connection_is_dropped_where_its_closing_is_given_up():
    """As when the bus stops while the broker hangs: the socket must not stay."""
    connection = FrozenConnection()
    closing = asyncio.create_task(Link(connection).close())
    await asyncio.sleep(0)
    assert not connection.dropped.is_set()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert connection.dropped.is_set()
