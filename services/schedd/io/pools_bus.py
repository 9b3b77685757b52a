"""The bus of a schedd whose jobs flock: a call goes to the pool that its inbox is in (`core.flocking`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from services.schedd.core.flocking import as_there, pool_of, there
from shared.bus.api import Bus, BusUnavailable, NobodyThere
from shared.messages.base import Message


class PoolsBus:
    """Is a Bus: what is not written here is `home`'s. pools: connections to other pools by name; None until there is
    one."""

    def __init__(self, home: Bus) -> None:
        self.home = home
        self.pools: dict[str, Bus | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.home, name)

    async def call(self, inbox: str, request: Message, **options: Any) -> Message:
        """As Bus.call. Raises NobodyThere for an inbox of a pool that FLOCK_TO does not name (any more)."""
        if not (pool := pool_of(inbox)):
            return await self.home.call(inbox, request, **options)
        return await self._to(pool).call(there(inbox), as_there(request), **options)

    async def served(self, inboxes: Sequence[str]) -> dict[str, bool]:
        """As Bus.served; the inboxes of a pool that can not be asked are left out."""
        by_pool: dict[str, list[str]] = {}
        for inbox in inboxes:
            by_pool.setdefault(pool_of(inbox), []).append(inbox)
        answers = await asyncio.gather(*(self._served(pool, some) for pool, some in by_pool.items()))
        return {inbox: served for answer in answers for inbox, served in answer.items()}

    async def _served(self, pool: str, inboxes: list[str]) -> dict[str, bool]:
        if not pool:
            return await self.home.served(inboxes)
        bare = {there(inbox): inbox for inbox in inboxes}
        try:
            answer = await self._to(pool).served(list(bare))
        except BusUnavailable:
            return {}
        return {bare[inbox]: served for inbox, served in answer.items()}

    async def stop_consuming(self) -> None:
        await asyncio.gather(self.home.stop_consuming(), *(bus.stop_consuming() for bus in self._open()))

    async def stop(self) -> None:
        await asyncio.gather(self.home.stop(), *(bus.stop() for bus in self._open()))

    def _open(self) -> list[Bus]:
        return [bus for bus in self.pools.values() if bus is not None]

    def _to(self, pool: str) -> Bus:
        if pool not in self.pools:
            raise NobodyThere(f"pool {pool} is not in FLOCK_TO")
        bus = self.pools[pool]
        if bus is None:
            raise BusUnavailable(f"pool {pool} was not reached yet")
        return bus


def with_pools(bus: Bus) -> PoolsBus:
    """The bus itself where it is one already, as of a daemon that is made a second time."""
    return bus if isinstance(bus, PoolsBus) else PoolsBus(bus)


def as_bus(bus: PoolsBus) -> Bus:
    """Type checkers do not see what `__getattr__` gives."""
    return cast(Bus, bus)
