"""Which server sentinels name as Redis's primary, and an end for calls to one that is the primary no more.

A primary that hangs, or whose machine is gone, resets no connection: whoever has asked it something waits for his own
time limit, and may have begun just before another took its place. So while an answer is late the sentinels are asked,
and as soon as one of them names another primary nobody waits for the old one any longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import redis.asyncio as aioredis
from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel

T = TypeVar("T")

#: After so long without an answer sentinels are asked whether there is another primary, and again as often.
SILENT_S = 0.2
#: So much longer than for the first sentinel's answer one waits for the others', of which one may know more.
MORE_S = 0.1

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Named:
    """What one sentinel says. epoch: of its configuration, which is one higher after each fail-over; up: whether it
    takes that primary to be alive."""

    address: Address
    epoch: int
    up: bool

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Named:
        """As SENTINEL MASTERS tells."""
        up = state["is_master"] and not state["is_sdown"] and not state["is_odown"]
        return cls((str(state["ip"]), int(state["port"])), int(state["config-epoch"]), bool(up))


def newest(said: Collection[Named]) -> Address | None:
    """The primary that the newest configuration names; None where there is none, or nobody says that it is up. An older
    configuration does not count, however alive its primary is said to be: that is the one which hangs."""
    epoch = max((one.epoch for one in said), default=0)
    return next((one.address for one in said if one.epoch == epoch and one.up), None)


def _heard(asked: asyncio.Future[Any]) -> None:
    """Whose answer nobody waits for any more may fail."""
    if not asked.cancelled():
        asked.exception()


class Sentinels(Sentinel):
    """All of them are asked at once, as one that is gone may be silent; and calls are ended when they name another
    primary."""

    def __init__(self, addresses: Collection[Address], service: str, *, sentinel_options: Any, **options: Any) -> None:
        super().__init__(list(addresses), sentinel_kwargs=sentinel_options, **options)  # type: ignore[no-untyped-call]
        self._service = service
        self._primary: Address | None = None
        self._client: aioredis.Redis | None = None
        self._under_way: dict[asyncio.Timeout, tuple[asyncio.Task[Any] | None, float]] = {}
        self._watching: asyncio.Task[None] | None = None

    def client(self) -> aioredis.Redis:
        """Of whatever server is the primary."""
        self._client = self.master_for(self._service)
        return self._client

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns. Raises redis.exceptions.ConnectionError when there is another primary before it does,
        and what it raises."""
        try:
            async with asyncio.timeout(None) as bound:
                self._under_way[bound] = asyncio.current_task(), asyncio.get_running_loop().time()
                if self._watching is None or self._watching.done():
                    self._watching = asyncio.create_task(self._watch(), name="store:primary")
                try:
                    return await attempt()
                finally:
                    del self._under_way[bound]
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise exceptions.ConnectionError(f"sentinels name another primary, {self._primary}") from error

    async def discover_master(self, service_name: str) -> Address:
        """Raises MasterNotFoundError."""
        said, silent = await self._ask(service_name)
        address = newest(said)
        if address is None:
            told = "; ".join([*map(str, said), *silent]) or "sentinels do not know it"
            raise MasterNotFoundError(f"No master found for {service_name!r} : {told}")
        await self._learn(address)
        return address

    async def stop(self) -> None:
        """Ask no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await asyncio.gather(*(one.aclose() for one in self.sentinels), return_exceptions=True)

    async def _ask(self, service: str) -> tuple[list[Named], list[str]]:
        """What sentinels that know the service say, and why the others do not."""
        asked: list[asyncio.Future[Any]] = [asyncio.ensure_future(one.sentinel_masters()) for one in self.sentinels]
        for one in asked:
            one.add_done_callback(_heard)
        said: list[Named] = []
        silent: list[str] = []
        waiting, patience_s = set(asked), None
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for one in done:
                    try:
                        state = one.result().get(service)
                    except (exceptions.RedisError, OSError) as error:
                        silent.append(str(error))
                    else:
                        said += [] if state is None else [Named.of(state)]
                        patience_s = MORE_S
        finally:
            for one in asked:
                one.cancel()
        return said, silent

    async def _watch(self) -> None:
        """Ask as long as an answer of the primary is late."""
        now = asyncio.get_running_loop().time
        while self._under_way:
            await asyncio.sleep(SILENT_S)
            if any(begun + SILENT_S <= now() for _, begun in self._under_way.values()):
                said, _ = await self._ask(self._service)
                address = newest(said)
                if address is not None:
                    await self._learn(address)

    async def _learn(self, address: Address) -> None:
        """This is the primary: whoever waits for another one waits no longer. The call that found it out goes on."""
        if self._primary == address:
            return
        former, self._primary = self._primary, address
        if former is None:
            return
        for bound, (task, _) in list(self._under_way.items()):
            if task is not asyncio.current_task() and not bound.expired():
                bound.reschedule(0.0)
        if self._client is not None:
            with suppress(exceptions.RedisError, OSError):
                # What lies idle there is the old one's, and would be asked next.
                await self._client.connection_pool.disconnect(inuse_connections=False)
