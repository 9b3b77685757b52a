"""One death of a broker for many tests: RabbitMQ takes five seconds of processor time to start again."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from tests.contract.bus_amqp import AmqpPool
from tests.servers import Rabbit

#: Seconds for which a story may go on, of the 300 that a fixture may take: the others end without it, and it is named.
STORY_S = 200.0


class Outage:
    """What a story waits for: `settle`, `kill` and `start` are done once all stories that have not ended want them."""

    def __init__(self, server: Rabbit, stories: set[str]) -> None:
        self._told = stories
        self._actions = {"settle": server.settle, "kill": server.kill, "start": server.start}
        self._wanted: dict[str, set[str]] = {step: set() for step in self._actions}
        self._done: dict[str, asyncio.Future[None]] = {}
        self._before: list[Callable[[], Awaitable[None]]] = []
        self._moved = asyncio.Condition()

    async def reach(self, step: str, story: str, before: Callable[[], Awaitable[None]] | None = None) -> None:
        """before: what this story does at the last moment."""
        async with self._moved:
            self._before += [before] if before else []
            self._wanted[step].add(story)
            self._moved.notify_all()
            await self._moved.wait_for(lambda: self._told <= self._wanted[step])
        if step not in self._done:
            self._done[step] = asyncio.ensure_future(self._take(step))
        await self._done[step]

    async def _take(self, step: str) -> None:
        before, self._before = self._before, []
        for one in before:
            await one()
        await asyncio.to_thread(self._actions[step])

    async def end(self, story: str) -> None:
        """Well or not: nobody waits for it any more."""
        async with self._moved:
            self._told = self._told - {story}
            self._moved.notify_all()


class Broker:
    """The broker as one story has it, in a virtual host of its own. folder: the story's."""

    def __init__(self, outage: Outage, story: str, folder: Path) -> None:
        self._outage, self._story, self.folder = outage, story, folder

    async def settle(self) -> None:
        await self._outage.reach("settle", self._story)

    async def kill(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        """As settled as it is: a story that needs more settles before. before: what is done at the last moment."""
        await self._outage.reach("kill", self._story, before)

    async def start(self) -> None:
        await self._outage.reach("start", self._story)


Story = Callable[[AmqpPool, Broker], Awaitable[None]]


class Stories(dict[str, Story]):
    """Those of a module, by name: a decorator of its stories, which are tests by that. The module has the fixture
    `ends`."""

    def __call__(self, function: Story) -> Callable[[Mapping[str, Exception | None]], None]:
        name = function.__name__
        self[name] = function

        def test(ends: Mapping[str, Exception | None]) -> None:
            if (why := ends[name]) is not None:
                raise why

        test.__name__, test.__qualname__, test.__doc__ = name, function.__qualname__, function.__doc__
        return test

    def ends(self) -> Callable[..., dict[str, Exception | None]]:
        """A fixture: why each story failed, or None."""

        @pytest.fixture(scope="module")
        def ends(_rabbit_session: Rabbit, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exception | None]:
            _rabbit_session.ensure_running()
            return asyncio.run(play(_rabbit_session, self, tmp_path_factory.mktemp("outage")))

        return ends


async def play(server: Rabbit, stories: Mapping[str, Story], folder: Path) -> dict[str, Exception | None]:
    """Why each of them failed, by its name; None: it did not."""
    outage = Outage(server, set(stories))

    async def one(name: str, url: str) -> Exception | None:
        pool, place = AmqpPool(url), folder / name
        place.mkdir()
        try:
            async with asyncio.timeout(STORY_S) as limit:
                await stories[name](pool, Broker(outage, name, place))
        except Exception as error:
            if limit.expired():
                error.add_note(f"{name} went on for more than {STORY_S:g} s")
            return error
        finally:
            await outage.end(name)
            await pool.close()
        return None

    with contextlib.ExitStack() as vhosts:
        urls = {name: vhosts.enter_context(server.vhost()) for name in stories}
        ends = await asyncio.gather(*(one(name, url) for name, url in urls.items()))
    for _ in range(10):  # those that are on their way out
        await asyncio.sleep(0)
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == [], "stories left tasks behind"
    return dict(zip(stories, ends, strict=True))
