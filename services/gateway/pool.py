"""What the gateway knows of the pool's daemons: which schedds there are, and how to ask them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from shared.bus.api import Bus
from shared.classad import ClassAd
from shared.daemon.clock import Clock
from shared.errors import PermanentError
from shared.messages.ads import AdPage, QueryAds
from shared.messages.queue import JobPage, QueryJobs

_SCHEDDS_FOR_S = 2.0
#: Ads in one page between the daemons and the gateway.
PAGE = 2000


class NoSuchDaemon(PermanentError):
    """Nobody of that name is in the pool."""


@dataclass(frozen=True, slots=True)
class Schedd:
    name: str
    inbox: str


class PoolView:
    """Asks the collector and the schedds, page by page."""

    def __init__(self, bus: Bus, clock: Clock, default_schedd: str = "") -> None:
        self._bus = bus
        self._clock = clock
        self._default = default_schedd
        self._schedds: list[Schedd] = []
        self._until = float("-inf")

    async def schedds(self) -> list[Schedd]:
        """All schedds, by name."""
        if self._clock.monotonic() >= self._until or not self._schedds:
            found = []
            async for page in self.ads(["Scheduler"], projection=["Name", "MyAddress"]):
                for packed in page:
                    ad = ClassAd.unpack(packed)
                    name, inbox = ad.eval("Name"), ad.eval("MyAddress")
                    if isinstance(name, str) and isinstance(inbox, str):
                        found.append(Schedd(name, inbox))
            self._schedds = sorted(found, key=lambda s: s.name)
            self._until = self._clock.monotonic() + _SCHEDDS_FOR_S
        return self._schedds

    async def schedd(self, name: str = "") -> Schedd:
        """The schedd of that name, else the configured default, else the first. Raises NoSuchDaemon."""
        known = await self.schedds()
        wanted = name or self._default
        for schedd in known:
            if not wanted or schedd.name == wanted:
                return schedd
        if not name and known:
            return known[0]
        names = ", ".join(s.name for s in known) or "none"
        raise NoSuchDaemon(f"there is no schedd {wanted or 'at all'} in the pool; known: {names}")

    async def ads(
        self,
        types: Sequence[str],
        *,
        constraint: str = "",
        projection: Sequence[str] = (),
        limit: int = 0,
        absent: bool = False,
    ) -> AsyncIterator[list[bytes]]:
        """Pages of packed ads from the collector."""
        after, left = "", limit
        while True:
            page = await self._bus.call(
                "collector",
                QueryAds(
                    my_types=list(types),
                    constraint=constraint,
                    projection=list(projection),
                    limit=min(left, PAGE) if limit else PAGE,
                    after=after,
                    absent=absent,
                ),
            )
            assert isinstance(page, AdPage)
            yield page.ads
            left -= len(page.ads)
            if not page.next or (limit and left <= 0):
                return
            after = page.next

    async def jobs(self, schedd: Schedd, question: QueryJobs) -> AsyncIterator[JobPage]:
        """Pages of job ads from one schedd, until `question.limit` (0: all)."""
        after, left = question.after, question.limit
        while True:
            page = await self._bus.call(
                schedd.inbox,
                question.model_copy(update={"after": after, "limit": min(left, PAGE) if question.limit else PAGE}),
                timeout=30.0,
            )
            assert isinstance(page, JobPage)
            yield page
            left -= len(page.ads)
            if not page.next or (question.limit and left <= 0):
                return
            after = page.next
