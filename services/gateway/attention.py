"""Collects what engine.attention judges: each part is asked for by itself, and one that can not be had is told. Shared
by all who look, and good for a while, as the queues are read through for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine.attention import DISK_SHORT_MIB, SILENT_S, Facts, Jobs, Oldest, Queue, attention
from services.gateway.core import attention_facts
from services.gateway.core.attention_facts import Lately
from services.gateway.core.batches import alike
from services.gateway.core.dashboard_rows import idle_and_alike
from services.gateway.dashboard import FIRST_SLOT, PATIENCE_S, Dashboard
from services.gateway.in_time import InTime
from services.gateway.pool_client import PoolClient, Schedd
from services.gateway.single_flight import SharesAnswers, shared
from shared.bus.api import Bus, Exchange
from shared.bus.topology import SHARED_INBOXES, WORK_QUEUES, inbox_queue
from shared.classad import ClassAd
from shared.daemon.clock import Clock
from shared.daemon.readable_ads import checked, of_each
from shared.messages.ads import AdCounts, CountAds
from shared.messages.base import Envelope
from shared.messages.events import DaemonGone, DaemonReconnected, DaemonStarted, JobEnded
from shared.messages.queue import QueryJobs

#: How long an answer is good, seconds.
FRESH_S: Final = 20.0
#: Silent machines and short disks that are listed, and kinds of jobs that can never run.
MOST_MACHINES: Final = 50
MOST_KINDS: Final = 50
#: Idle jobs of each queue, from its beginning, of which the one that is idle for longest is told.
MOST_OLD: Final = 100
#: What the parts are called where they can not be had, with the operation that shows them.
PARTS: Final = {
    "daemons": ("the daemons", "ads"),
    "machines": ("the machines", "ads"),
    "negotiation": ("the negotiation", "ads"),
    "queues": ("the broker's queues", "ads"),
    "held": ("the held jobs", "jobs.query"),
    "idle": ("the idle jobs", "jobs.query"),
    "dead_letters": ("the dead letters", "dead-letters"),
}


class Attention(SharesAnswers):
    """What needs attention, for who may see it."""

    def __init__(
        self, pool: PoolClient, bus: Bus, dashboard: Dashboard, clock: Clock, patience_s: float = PATIENCE_S
    ) -> None:
        self._pool, self._bus, self._dashboard, self._clock = pool, bus, dashboard, clock
        self._in_time = InTime(patience_s)
        self._lately = Lately()
        super().__init__(clock.monotonic)

    async def stop(self) -> None:
        """End what nobody waits for any more."""
        await self._in_time.stop()

    def on_event(self, envelope: Envelope) -> None:
        """One of roost.events."""
        body = envelope.body
        if isinstance(body, JobEnded):
            self._lately.job_ended(body)
        elif isinstance(body, DaemonGone):
            self._lately.went(body.daemon, body.since)
        elif isinstance(body, DaemonStarted | DaemonReconnected):
            self._lately.came(body.daemon)

    async def told(self, may: Callable[[str], bool]) -> dict[str, Any]:
        """{at, findings, hidden}: see engine.attention.Finding. may: whether who asks may do an operation; hidden: the
        parts that they may not see."""
        makers: dict[str, Callable[[], Coroutine[Any, Any, dict[str, Any]]]] = {
            "daemons": self.daemons,
            "machines": self.machines,
            "negotiation": self.negotiation,
            "queues": self.queues,
            "held": self.held,
            "idle": self.idle,
            "dead_letters": self.dead_letters,
        }
        asked = [part for part in makers if may(PARTS[part][1])]
        answers = await asyncio.gather(*(self._in_time.get(makers[part]()) for part in asked))
        now = self._clock.now()
        found: dict[str, Any] = {"ended": self._lately.ended(now), "gone": self._lately.gone(now)}
        unknown: dict[str, str] = {}
        for part, answer in zip(asked, answers, strict=True):
            if "error" in answer:
                unknown[PARTS[part][0]] = answer["error"]
            else:
                found |= answer
        facts = replace(_joined(found), unknown=unknown)
        # In a thread: ten thousand ends of jobs are more than a loop is held for.
        findings = await asyncio.to_thread(attention, facts, now)
        return {
            "at": now,
            "findings": [attention_facts.finding(one) for one in findings],
            "hidden": [PARTS[part][0] for part in makers if part not in asked],
        }

    @shared(FRESH_S)
    async def daemons(self) -> dict[str, Any]:
        ads = await self._pool.read_ads(attention_facts.DAEMONS, projection=attention_facts.DAEMON_FIELDS)
        return {"daemons": attention_facts.daemons(ads)}

    @shared(FRESH_S)
    async def machines(self) -> dict[str, Any]:
        """Counted by the collector; only those that something is wrong with are listed."""
        counts = await self._pool.ask(
            "collector", CountAds(my_type="Machine", constraint=FIRST_SLOT, by=["RoostVersion"]), AdCounts, timeout=30.0
        )
        late = int(self._clock.now() - SILENT_S)
        read = partial(self._pool.read_ads, ["Machine"], projection=attention_facts.MACHINE_FIELDS, limit=MOST_MACHINES)
        silent = await read(constraint=f"{FIRST_SLOT} && LastHeardFrom < {late}")
        full = await read(constraint=f"{FIRST_SLOT} && TotalDisk < {int(DISK_SHORT_MIB * 1024)}")
        return {
            "machines": attention_facts.versions(counts.values, counts.counts),
            "silent": attention_facts.machines(silent),
            "disks": attention_facts.disks(full),
        }

    async def negotiation(self) -> dict[str, Any]:
        negotiators = await self._dashboard.negotiators()
        queue = await self._dashboard.queue()
        leader = next((one for one in negotiators if one.get("NegotiatorIsActive") is True), {})
        cycle: dict[str, Any] = next(iter(leader.get("cycles", ())), {})
        return {
            "leader": str(leader.get("Name", "")),
            "cycle_ended": float(cycle.get("end", cycle.get("at", 0.0))),
            "idle": queue["idle"],
        }

    @shared(FRESH_S)
    async def queues(self) -> dict[str, Any]:
        inboxes = [*SHARED_INBOXES, *(schedd.inbox for schedd in await self._pool.schedds())]
        found = await self._bus.waiting([*WORK_QUEUES, *map(inbox_queue, inboxes)])
        return {"queues": [Queue(name, messages) for name, messages in found.items()]}

    async def held(self) -> dict[str, Any]:
        return {"held": attention_facts.held(await self._dashboard.held_jobs.by_reason())}

    @shared(FRESH_S)
    async def idle(self) -> dict[str, Any]:
        never: list[Jobs] = []
        oldest: list[tuple[ClassAd, str]] = []
        for schedd in await self._pool.schedds():
            oldest += await self._jobs(schedd, "JobStatus == 1", MOST_OLD)
            stuck = await self._jobs(schedd, attention_facts.NEVER, MOST_KINDS)
            never += attention_facts.never(stuck, await self._alike(schedd, [ad for ad, _ in stuck]))
        return {"never": never, "oldest": attention_facts.oldest(oldest)}

    @shared(FRESH_S)
    async def dead_letters(self) -> dict[str, Any]:
        waiting = await self._bus.waiting([Exchange.DEAD])
        return {"dead_letters": waiting.get(Exchange.DEAD, 0)}

    async def _alike(self, schedd: Schedd, jobs: list[ClassAd]) -> dict[tuple[str, int], int]:
        """How many idle jobs of the schedd are in the autoclusters of these."""
        kinds = {kind for ad in jobs if isinstance(kind := ad.eval("AutoClusterId"), int)}
        found: dict[tuple[str, int], int] = {}
        if not kinds:
            return found
        by = ["AutoClusterId"]
        async for sheet, ads in self._pool.job_sheets(schedd, idle_and_alike(kinds), by, by=by):
            counted: list[tuple[object, int]] = [(ad.find("autoclusterid"), 1) for ad in ads]
            counted += zip(sheet.cells("autoclusterid"), alike(sheet), strict=True)
            for number, count in counted:
                if isinstance(number, int):
                    found[schedd.name, number] = found.get((schedd.name, number), 0) + count
        return found

    async def _jobs(self, schedd: Schedd, constraint: str, limit: int) -> list[tuple[ClassAd, str]]:
        question = QueryJobs(constraint=constraint, projection=list(attention_facts.IDLE_FIELDS), limit=limit)
        found = []
        async for page in self._pool.jobs(schedd, question):
            found += [(ad, schedd.name) for ad in await of_each(page.ads, checked)]
        return found


def _joined(found: dict[str, Any]) -> Facts:
    """Facts of all parts. Daemons are judged as a whole where all that a pool has were seen."""
    oldest: Oldest | None = found.get("oldest")
    return Facts(
        daemons=found.get("daemons"),
        machines=found.get("machines"),
        silent_machines=found.get("silent", ()),
        gone=found["gone"],
        leader=found.get("leader"),
        cycle_ended=found.get("cycle_ended", 0.0),
        idle=found.get("idle", 0),
        held=found.get("held", ()),
        never=found.get("never", ()),
        oldest=oldest,
        ended=found["ended"],
        queues=found.get("queues", ()),
        dead_letters=found.get("dead_letters"),
        disks=found.get("disks", ()),
    )
