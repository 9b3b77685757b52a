"""Looks at how all daemons of the pool do: asks each, and sees what waits in their queues at the broker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final

from services.gateway.core.command_targets import MY_TYPES, OFF, PROJECTION, CommandTarget, read
from services.gateway.dashboard import FIRST_SLOT
from services.gateway.pool_client import COLLECTOR, PoolClient
from services.gateway.single_flight import SharesAnswers, shared
from shared.bus.api import Bus
from shared.bus.topology import SHARED_INBOXES, WORK_QUEUES, inbox_queue
from shared.classad import ClassAd
from shared.daemon.clock import Clock
from shared.errors import RoostError
from shared.messages.ads import AdCounts, CountAds
from shared.messages.orders import AskConfig, ConfigTold

#: Machines that are asked, the first by name; of the others their ads are all that is known.
MOST_MACHINES: Final = 500
#: Daemons that are asked at the same time, and how long each may take, seconds.
AT_ONCE: Final = 64
PATIENCE_S: Final = 4.0
#: Between two looks at the queues, at least, seconds.
APART_S: Final = 1.0
#: Answers are shared by all who ask within so many seconds.
FRESH_S: Final = 3.0
#: When a collector heard of a daemon last, and when it began.
_HEARD, _BEGAN = "LastHeardFrom", "DaemonStartTime"


class PoolHealth(SharesAnswers):
    """own: the inbox of this gateway."""

    def __init__(self, bus: Bus, pool: PoolClient, clock: Clock, own: str) -> None:
        super().__init__(clock.monotonic)
        self._bus, self._pool, self._clock, self._own = bus, pool, clock, own

    @shared(FRESH_S)
    async def look(self) -> dict[str, Any]:
        """{at, daemons, machines, protocols, queues}.

        at: this gateway's clock, s since 1970. daemons: {subsystem, name, queue, heard, began, off, silent, clock_s,
        unsure_s, health}, by name: queue: what waits for it waits there; heard, began: when a collector heard of it
        last and when it began, s since 1970, 0: not known; silent: why it did not answer; clock_s: its clock before
        this gateway's, give or take unsure_s; health: shared.daemon.health_told without `messages`, empty of a daemon
        of an earlier release. machines: how many there are. protocols: messages by `protocol`. queues: {name, before,
        after}: messages that waited at two moments APART_S or more apart. Raises RoostError where the collector or the
        broker does not answer."""
        targets, times, machines = await self._targets()
        inboxes = list(dict.fromkeys([*SHARED_INBOXES, *(one.inbox for one in targets)]))
        began = self._clock.monotonic()
        before = await self._bus.waiting([*WORK_QUEUES, *map(inbox_queue, inboxes)])
        served = await self._bus.served(inboxes)
        room = asyncio.Semaphore(AT_ONCE)
        answers = await asyncio.gather(*(self._ask(one, served.get(one.inbox, False), room) for one in targets))
        daemons = [
            {**told, "queue": inbox_queue(one.inbox), **times.get(one.inbox, {"heard": 0, "began": 0})}
            for one, told in zip(targets, answers, strict=True)
        ]
        if (left := APART_S - (self._clock.monotonic() - began)) > 0:
            await self._clock.sleep(left)
        after = await self._bus.waiting([name for name, messages in before.items() if messages])
        protocols: dict[str, Any] = {}
        for one in daemons:
            if messages := one["health"].pop("messages", None):
                protocols.setdefault(one["health"]["protocol"], messages)
        return {
            "at": self._clock.now(),
            "daemons": daemons,
            "machines": machines,
            "protocols": protocols,
            "queues": [
                {"name": name, "before": before[name], "after": messages}
                for name, messages in after.items()
                if messages
            ],
        }

    async def _targets(self) -> tuple[list[CommandTarget], dict[str, dict[str, int]], int]:
        """Who is asked, what their ads tell of times by inbox, and how many machines there are."""
        others = [kind for kind in MY_TYPES.values() if kind != "Machine"]
        ads = await self._ads([*others, OFF], "", 0)
        ads += await self._ads(["Machine"], FIRST_SLOT, MOST_MACHINES)
        counts = await self._pool.ask(COLLECTOR, CountAds(my_type="Machine", constraint=FIRST_SLOT), AdCounts)
        gateway = CommandTarget("GATEWAY", self._own.partition(".")[2], self._own)
        times = {
            ad.plain_string("MyAddress"): {"heard": _seconds(ad, _HEARD), "began": _seconds(ad, _BEGAN)} for ad in ads
        }
        return [*read(ads), gateway], times, sum(counts.counts)

    async def _ads(self, types: Sequence[str], constraint: str, limit: int) -> list[ClassAd]:
        names = (*PROJECTION, _HEARD, _BEGAN)
        return await self._pool.read_ads(types, constraint=constraint, projection=names, limit=limit)

    async def _ask(self, target: CommandTarget, served: bool, room: asyncio.Semaphore) -> dict[str, Any]:
        told: dict[str, Any] = {"subsystem": target.subsystem, "name": target.name, "off": target.off, "silent": ""}
        told |= {"clock_s": None, "unsure_s": 0.0, "health": {}}
        if target.off:
            return told
        if not served:
            return told | {"silent": "nobody is at its inbox: its process ended, or lost the broker"}
        async with room:
            began, at = self._clock.monotonic(), self._clock.now()
            try:
                # A name, so that a daemon of an earlier release, which tells no health, does not tell everything.
                answer = await self._bus.call(target.inbox, AskConfig(names=["SPOOL"], health=True), timeout=PATIENCE_S)
            except RoostError as error:
                return told | {"silent": str(error) or type(error).__name__}
            took = self._clock.monotonic() - began
        if isinstance(answer, ConfigTold) and answer.health:
            health = dict(answer.health)
            its = health.get("now")
            clock = {"clock_s": its - at - took / 2, "unsure_s": took / 2} if isinstance(its, int | float) else {}
            told |= {"health": health, **clock}
        return told


def _seconds(ad: ClassAd, name: str) -> int:
    """A moment that an ad tells, seconds since 1970; 0: it tells none."""
    value = ad.eval(name)
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else 0
