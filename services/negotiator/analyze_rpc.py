"""Answers to Analyze: why jobs do not run, and what a slot would take, made of the slots that the negotiator knows.

The negotiator makes them and not the gateway, as it has all slots in hand (of 10,000 slots, 50 MB of ads would have to
come to the gateway), knows which of them it would not hand out, and what its last cycle said. The explanations
themselves are pure (engine/analyze). `Analyzer` has columns of its own, over the same packed ads: neither the cycle nor
the event loop waits for an explanation, which runs in a thread, one question at a time, with a budget; and it ends when
nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.analyze import Slots, WaitingRequest, explain_job, explain_slot, to_map
from engine.analyze.job_report import name_of
from engine.analyze.report import Rejection
from engine.analyze.slots import COLUMNS
from engine.match.model import Rejected, Request, machine_of
from shared.caller import check_caller
from shared.classad import ClassAd, PackedError
from shared.classad.budget import QUESTION_S, TooExpensive
from shared.classad.columnar import Meter, Table
from shared.classad.columnar.table import POLICIES
from shared.classad.expr import Expr
from shared.cooperative import reading
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import Clock
from shared.messages.analysis import Analysis, Analyze
from shared.messages.base import Failure, Message

#: Questions that wait for their turn; more are sent away.
MOST_WAITING = 8
#: Ads looked through at once on the event loop.
_STEP = 500


class AnalyzeRpc:
    """`ads`: the table of all ads; `owner`: whose a slot of that name is, given the daemon that says so (an ad of
    another does not count). absent: daemons that are gone, whose slots are nobody's to have."""

    def __init__(
        self, clock: Clock, ads: AdTable, owner: Callable[[str, str], str], absent: Collection[str] = ()
    ) -> None:
        self.analyzer = Analyzer()
        self._clock = clock
        self._ads = ads
        self._owner = owner
        self._absent = absent
        self._turn = asyncio.Lock()
        self._waiting = 0

    def remember(self, rejections: Sequence[Rejected]) -> None:
        """Remember the rejections of the cycle that just ended."""
        self.analyzer.remember(rejections, self._clock.now())

    async def answer(
        self,
        asked: Analyze,
        *,
        claims: Mapping[str, str],
        pending: Collection[str],
        waking: Collection[str] = (),
        constraint: Expr | None,
        requests: Callable[[], Awaitable[Mapping[str, Sequence[Request]]]],
        owner: Callable[[str], str] = machine_of,
    ) -> Message:
        """An Analysis, or a Failure. `requests` gives what waits now, and is asked only about slots."""
        try:
            questions = await reading(sum(len(job.ad) for job in asked.jobs), _questions, asked)
        except (PackedError, RecursionError) as error:
            return Failure(code="bad-request", reason=f"a job's ad can not be read: {error}")
        if not questions and not asked.machine:
            return Failure(code="bad-request", reason="name jobs, or a slot by `machine`")
        if self._waiting >= MOST_WAITING:
            return Failure(code="busy", reason=f"{MOST_WAITING} others wait for an analysis", retryable=True)
        self._waiting += 1
        try:
            async with self._turn:
                pool = PoolState(self._clock.now(), dict(claims), list(pending), constraint, list(waking), owner)
                ads = await self._slots()
                if questions:
                    work = asyncio.to_thread(self.analyzer.jobs, ads, pool, questions, asked.machine)
                    return Analysis(jobs=await work)
                waiting = await requests()
                return Analysis(slots=await asyncio.to_thread(self.analyzer.slots, ads, pool, waiting, asked.machine))
        except NoSuchSlot as error:
            return Failure(code="not-found", reason=str(error))
        except (TooSlow, TooExpensive) as error:
            return Failure(code=TooExpensive.code, reason=str(error))
        finally:
            self._waiting -= 1

    async def _slots(self) -> dict[str, bytes]:
        """Packed ads of all slots by name, each as its own startd tells it."""
        found: dict[str, bytes] = {}
        step = 0
        for group in list(self._ads.groups("Machine")):
            if group.daemon in self._absent:
                continue
            for name, row in list(group.rows.items()):
                step += 1
                if step % _STEP == 0:
                    await asyncio.sleep(0)
                try:
                    if self._owner(name, group.daemon) == group.daemon:
                        found[name] = row.packed()
                except BadAd:
                    continue  # the cycle has said so
        return found


def _questions(asked: Analyze) -> list[AnalyzedJob]:
    """Raises PackedError, RecursionError."""
    return [AnalyzedJob(ClassAd.unpack(job.ad).check(), job.schedd, job.also) for job in asked.jobs]


#: Slots looked at one by one where a machine was named.
MOST_SLOTS: Final = 100


class TooSlow(Exception):
    """The conditions take more processor time than a question may."""


class NoSuchSlot(Exception):
    """Nobody of that name is in the pool."""


@dataclass(frozen=True, slots=True)
class AnalyzedJob:
    """A job to explain: its ad, its schedd's inbox ("": not known), and how many more are like it."""

    ad: ClassAd
    schedd: str = ""
    also: int = 0


@dataclass(frozen=True, slots=True)
class PoolState:
    """What else is known at this moment. `claims`: claim ids by slot; `pending`: slots with a match on its way;
    `constraint`: NEGOTIATOR_SLOT_CONSTRAINT; `now`: seconds since 1970; `waking`: sleeping slots that jobs wait for."""

    now: float
    claims: Mapping[str, str]
    pending: Sequence[str] = ()
    constraint: Expr | None = None
    waking: Sequence[str] = ()
    owner: Callable[[str], str] = machine_of  # of a slot, by its name: the daemon whose ad it is


class Analyzer:
    """Keeps columns of the slots from one question to the next. Not for several threads at once.

    `ads` of its methods: packed ads by the name of the slot; one that is the same object as the last time is not looked
    at again. `spent`: seconds of processor time of this thread so far; one question may take `most_s` of them.
    """

    def __init__(self, spent: Callable[[], float] = time.thread_time, most_s: float = QUESTION_S) -> None:
        self._spent = spent
        self._most_s = most_s
        self._last: dict[tuple[str, int], Rejection] = {}
        self._table = _table()
        self._seen: dict[str, bytes] = {}

    def remember(self, rejections: Iterable[Rejected], at: float) -> None:
        """Remember what the cycle of that time (seconds since 1970) said, in place of what the one before did."""
        self._last = {
            (each.request.schedd, each.request.autocluster): Rejection(each.reason, each.code, at, dict(each.counts))
            for each in rejections
        }

    def jobs(
        self, ads: Mapping[str, bytes], pool: PoolState, questions: Sequence[AnalyzedJob], machine: str
    ) -> list[dict[str, Any]]:
        """A JobReport as a map for each question, against all slots or those of `machine`. Raises NoSuchSlot,
        TooSlow, CallerGone."""
        if machine:
            table = _table()
            _fill(table, {}, {name: ads[name] for name in _named(ads, machine)})
        else:
            _fill(self._table, self._seen, ads)
            table = self._table
        slots = self._slots(table, pool)
        if not machine:  # else the dear machine is what is asked about
            slots.matching.meter = Meter(pool.owner)
        reports = []
        for each in questions:
            check_caller()
            number = each.ad.eval("AutoClusterId")
            last = self._last.get((each.schedd, number)) if isinstance(number, int) else None
            try:
                reports.append(to_map(explain_job(slots, each.ad, last, each.also)))
            except TooSlow:
                raise TooSlow(f"the conditions of job {name_of(each.ad)} {self._too_slow()}") from None
        return reports

    def slots(
        self, ads: Mapping[str, bytes], pool: PoolState, requests: Mapping[str, Sequence[Request]], machine: str
    ) -> list[dict[str, Any]]:
        """A SlotReport as a map for each slot of that name, or of that machine, against the requests that wait (by
        submitter). Raises NoSuchSlot, TooSlow, CallerGone."""
        waiting = [
            WaitingRequest(name_of(request.ad), submitter, request.count, request.ad)
            for submitter, listed in sorted(requests.items())
            for request in listed
        ]
        reports = []
        for name in _named(ads, machine)[:MOST_SLOTS]:
            check_caller()
            table = _table()
            _fill(table, {}, {name: ads[name]})
            try:
                reports.append(to_map(explain_slot(self._slots(table, pool), name, waiting)))
            except TooSlow:
                raise TooSlow(f"the conditions of {name} or of the jobs that wait {self._too_slow()}") from None
        return reports

    def _slots(self, table: Table, pool: PoolState) -> Slots:
        end = self._spent() + self._most_s

        def patience() -> None:
            check_caller()
            if self._spent() > end:
                raise TooSlow

        unoffered = {name: "no-claim-id" for name in table.keys if not pool.claims.get(name)}
        unoffered.update(dict.fromkeys(pool.pending, "match-under-way"))
        return Slots(table, pool.now, unoffered, patience, pool.constraint, pool.waking)

    def _too_slow(self) -> str:
        return (
            f"take more than the {self._most_s:g} s of processor time that one question may, on the slots of this "
            "pool; ask about fewer jobs, or about one machine"
        )


def _named(ads: Mapping[str, bytes], machine: str) -> list[str]:
    """The slot of that name, or all slots of that machine. Raises NoSuchSlot."""
    if machine in ads:
        return [machine]
    found = [name for name in ads if name.partition("@")[2] == machine]
    if not found:
        raise NoSuchSlot(f"there is no slot or machine {machine[:200]!r} in the pool; `roost status` lists them")
    return found


def _table() -> Table:
    return Table((*POLICIES, *COLUMNS))


def _fill(table: Table, seen: dict[str, bytes], ads: Mapping[str, bytes]) -> None:
    """Bring a table up to date with these ads. One that can not be read is left out."""
    for name in [name for name in seen if name not in ads]:
        table.remove(name)
        del seen[name]
    for name, packed in ads.items():
        if seen.get(name) is not packed:
            seen[name] = packed
            table.put(name, packed)
    try:
        table.flush()
    except PackedError:
        table.flush()  # without the unreadable ones, which it has dropped
