"""One cycle from end to end: request lists in, a decision in a thread, matches and rejections out.

The daemon says when a cycle runs. Nothing of it is decided here: see engine/match/cycle.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.fairshare.group_tree import SubmitterDemand, group_demand
from engine.fairshare.priorities import Record
from engine.match.cycle import negotiate
from engine.match.model import Matched, Preempted, Rejected, Request, Result, Snapshot
from engine.match.offline_match import WakeCalls
from engine.match.slot_table import SlotTable
from engine.policy import Policy, told_knobs
from services.negotiator.ad_intake import Submitter, by_schedd
from services.negotiator.cycle_events import EventPublisher, JournalEvents, journal_events
from services.negotiator.metrics import CycleStatistics
from services.negotiator.schedd_client import CycleIdentity, RequestLists, ScheddClient
from services.negotiator.stored_accountant import StoredAccountant
from shared import tracing
from shared.daemon.context import Context
from shared.errors import RoostError
from shared.messages.events import CycleDone, Event, OfflineMatched, PolicyInForce, PreemptionLoop
from shared.messages.negotiation import Match, MatchNotice, NoticedSlot, Rejection

#: A match that its startd has not confirmed by now is offered again (seconds).
PENDING_S = 10.0
#: Preemptions that are remembered, to notice slots that go to and fro.
MOST_PREEMPTIONS = 100_000
#: Messages about so many matches are made in one go on the event loop.
_STEP = 500
#: What comes while the slot table is brought up to date is taken in too, so many times.
_FLUSHES = 3


@dataclass(frozen=True, slots=True)
class FinishedCycle:
    """A cycle that came to its end. `unused`: slots can be offered again, since schedds had no use for them. `served`:
    everybody got all that was asked for."""

    result: Result
    statistics: CycleStatistics
    unused: bool
    served: bool


class Phases:
    """The parts of one cycle, one after the other, each with a span of its own (docs/tracing.md). seconds: by part."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.seconds: dict[str, float] = {}
        self._read = monotonic

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = self._read()
        try:
            with tracing.span(f"cycle.{name}"):
                yield
        finally:
            self.seconds[name] = self._read() - began


class CycleRunner:
    """Runs the cycles of one negotiator. `charge` charges everybody up to now."""

    def __init__(
        self,
        context: Context,
        policy: Policy,
        table: SlotTable,
        accountant: StoredAccountant,
        schedds: ScheddClient,
        charge: Callable[[], float],
    ) -> None:
        self.context = context
        self.policy = policy
        self.table = table
        self.accountant = accountant
        self.schedd_client = schedds
        self.preempted: deque[Preempted] = deque(maxlen=MOST_PREEMPTIONS)
        self._last_remainder: dict[str, float] = {}
        self._charge = charge
        self._at_work = asyncio.Lock()  # a thread is at work on the slot table
        self._clashes: set[str] = set()
        self._journal_events = JournalEvents(policy.tree)
        self.publisher = EventPublisher(context, self._journal_events.forget)
        self.wake_calls = WakeCalls()
        self._told: tuple[int, Policy | None] = (0, None)  # epoch and policy that events are of

    async def flush_slots(self) -> None:
        """Bring the slot table up to date with what came, unless a thread is at work on it: then the next cycle
        does."""
        if not self._at_work.locked():
            async with self._at_work:
                await self._flush()

    @asynccontextmanager
    async def up_to_date(self) -> AsyncIterator[None]:
        """With the slot table as of just now, for as long as it lasts."""
        async with self._at_work:
            await self._flush()
            yield

    async def _flush(self) -> None:
        """In a thread, as rows that come or go cost a copy of all columns."""
        for _ in range(_FLUSHES):
            if not (changes := self.table.take()):
                break
            try:
                await asyncio.to_thread(self.table.carry_out, changes)
            except Exception:
                self.table.put_back(changes)
                raise

    async def requests(self, asking: Sequence[Submitter], identity: CycleIdentity) -> RequestLists:
        """What all submitters ask for at this moment. Raises StaleEpoch."""
        async with self.up_to_date():
            # In a thread, as a policy that names an attribute for the first time has all ads read.
            significant = await asyncio.to_thread(self.policy.significant.of, self.table.table)
        return await self.schedd_client.fetch_requests(by_schedd(asking), identity, significant)

    async def cycle(
        self,
        asking: Sequence[Submitter],
        identity: CycleIdentity,
        trigger: str,
        in_force: Callable[[], bool],
        triggered_at: float | None = None,
    ) -> FinishedCycle | None:
        """Run one cycle. None when the lead was lost on the way (`in_force` is false): then nothing was said to
        anybody. triggered_at: wall clock; None: nothing but time set it off. Raises StaleEpoch, StoreUnavailable."""
        phases, who = Phases(self.context.clock.monotonic), identity.negotiator
        with tracing.span("cycle", negotiator=who, epoch=identity.epoch, cycle=identity.cycle, trigger=trigger):
            if triggered_at is not None:
                now = self.context.clock.now()
                phases.seconds["trigger"] = max(0.0, now - triggered_at)
                if (span := tracing.current()) is not None:
                    tracing.told("cycle.trigger", span, min(now, triggered_at), now, {})
            return await self._cycle(asking, identity, trigger, in_force, phases)

    async def _cycle(
        self,
        asking: Sequence[Submitter],
        identity: CycleIdentity,
        trigger: str,
        in_force: Callable[[], bool],
        phases: Phases,
    ) -> FinishedCycle | None:
        clock, policy = self.context.clock, self.policy
        now, began, cpu = clock.now(), clock.monotonic(), time.process_time()
        with phases.part("requests"):
            answers = await self.requests(asking, identity)
        requests = answers.requests
        fetched = clock.monotonic()
        charged = self._charge()
        running = frozenset(submitter.name for submitter in asking if submitter.running > 0)
        records = {
            name: self.accountant.record(name, charged)
            for name in sorted({*requests, *self.table.in_use(policy.cycle), *running})
        }
        self._forget(now)
        self._report_clashes(requests)

        async with self._at_work:
            with phases.part("snapshot"):
                await self._flush()
                if not self.table.placed:
                    await asyncio.to_thread(self.table.places)
                snapshot = self.table.snapshot(
                    policy.cycle,
                    requests,
                    records,
                    demand=self._demand(asking, requests),
                    running=running,
                    preempted=tuple(self.preempted),
                    last_remainder=dict(self._last_remainder),
                    flush=False,
                )
            with phases.part("decide"):
                # In a thread, however few there are: one expression of a user may take 50 ms, and heartbeats must keep
                # flowing. The hop costs 0.1 ms.
                result = await asyncio.to_thread(negotiate, snapshot, policy.cycle, now)
                seconds = {f"{part.replace('-', '_')}_s": taken for part, taken in result.seconds.items()}
                tracing.note(**seconds, spins=result.spins, submitters=len(requests), slots=result.offered)
        decided = clock.monotonic()
        if not in_force():
            return None
        given = [match for match in result.matches if match.slot in self.table.ads]  # others went away meanwhile
        for match in given:
            self.table.matched(match, clock.monotonic() + PENDING_S)
        self._remember(result, given, snapshot.total_weight, now)
        with phases.part("charge"):
            self._charge()
            try:
                await self.accountant.commit(identity.epoch)
            except BaseException:
                # Nobody will hear of these: their slots are free, for whoever leads next, and nobody uses them.
                for match in given:
                    self.table.unmatched(match)
                raise
        with phases.part("tell"):
            unused = await self._send_decisions(given, result.rejections, identity, trigger)
        ended = clock.monotonic()
        statistics = CycleStatistics(
            began=now,
            ended=now + ended - began,
            cpu_s=time.process_time() - cpu,
            prefetch_s=fetched - began,
            filter_s=sum(result.seconds.get(part, 0.0) for part in ("set-up", "groups")),
            match_s=ended - fetched,
            idle_jobs=sum(submitter.idle for submitter in asking),
            jobs_considered=sum(request.count for listed in requests.values() for request in listed),
            schedulers=len({request.schedd for listed in requests.values() for request in listed}),
            active_submitters=len(requests),
            matches=sum(match.count for match in given),
            rejections=len(result.rejections),
            total_slots=len(self.table.ads),
            candidate_slots=result.offered,
            trimmed_slots=len(self.table.ads) - result.offered,
            pies=max(1, len(result.groups)),
            pie_spins=result.spins,
            submitters_failed=sorted({s.name for s in asking if s.idle and s.schedd in answers.silent}),
            submitters_out_of_time=[name for name in result.out_of_time if name in requests],
            submitters_share_limit=sorted({r.submitter for r in result.rejections if r.code == "share"}),
            schedds_out_of_time=[name for name in result.out_of_time if name not in requests and name != "cycle"],
            phases=phases.seconds,
        )
        tracing.note(
            slots=statistics.total_slots,
            submitters=statistics.active_submitters,
            jobs=statistics.jobs_considered,
            matches=statistics.matches,
            rejections=statistics.rejections,
        )
        self.context.log.info(
            "cycle",
            cycle=identity.cycle,
            epoch=identity.epoch,
            trigger=trigger,
            slots=len(self.table.ads),
            spins=result.spins,
            requests=sum(len(listed) for listed in requests.values()),
            matches=len(given),
            rejections=len(result.rejections),
            fetch_s=round(fetched - began, 6),
            decide_s=round(decided - fetched, 6),
            duration_s=round(ended - began, 6),
        )
        self._publish_cycle_done(result, statistics, requests.values(), identity, trigger)
        try:
            self._publish_journal(result, given, snapshot, records, asking, answers.silent, identity)
        except Exception:
            # A mistake of ours, met with something odd: what is told of a cycle must not cost the next one.
            self.context.log.exception("cycle_not_told", cycle=identity.cycle)
            self._journal_events.forget()
        some_wait = answers.silent or result.out_of_time or result.rejections or unused
        served = not some_wait and statistics.matches == statistics.jobs_considered
        return FinishedCycle(result, statistics, unused, served)

    def _demand(self, asking: Sequence[Submitter], requests: Iterable[str]) -> dict[str, float]:
        """By submitter: what it runs and asks for, as its schedds tell (GRP-17)."""
        groups = self.policy.groups
        if not groups.names:
            return {}
        found: dict[str, float] = dict.fromkeys(requests, 0.0)
        for submitter in asking:
            waiting = SubmitterDemand(
                submitter.name,
                submitter.idle,
                submitter.running,
                submitter.weighted_idle,
                submitter.weighted_running,
            )
            asked = sum(group_demand(self.policy.tree, groups, [waiting]).values())
            found[submitter.name] = found.get(submitter.name, 0.0) + asked
        return found

    def _remember(self, result: Result, given: Iterable[Matched], pool_weight: float, now: float) -> None:
        """Keep what the next cycles and the accounting records need to know."""
        self.accountant.record_cycle(result.groups, result.shares, pool_weight)
        self._last_remainder.update((plan.group, now) for plan in result.groups if plan.remainder)
        for match in given:
            for slot in match.preempts:
                if slot in result.preempted_users:
                    self.preempted.append(Preempted(slot, result.preempted_users[slot], match.submitter, now))
        for daemon, took in result.dear.items():
            reason = "its expressions take too long to evaluate; its slots were left out, for some submitters at least"
            self.context.log.warning("machine_too_dear", of=daemon, cpu_s=round(took, 3), reason=reason)
        for loop in result.thrashing:
            self.context.log.warning("preemption_loop", slot=loop.slot, users=list(loop.users), times=loop.times)

    def _forget(self, now: float) -> None:
        """Forget preemptions of long ago."""
        while self.preempted and not now - self.policy.cycle.thrash_window_s <= self.preempted[0].at <= now:
            self.preempted.popleft()

    def _report_clashes(self, submitters: Iterable[str]) -> None:
        """Report users with the name of a group: once in a negotiator's life for each."""
        if not self.policy.groups.names:
            return
        for problem in self.policy.tree.clashes(submitters):
            if problem not in self._clashes:
                self._clashes.add(problem)
                self.context.log.warning("group_named_like_user", problem=problem)

    async def _send_decisions(
        self, given: Sequence[Matched], rejected: Sequence[Rejected], identity: CycleIdentity, trigger: str
    ) -> bool:
        """Send every schedd its matches and rejections; whether slots can be offered again."""
        matches: dict[str, list[Matched]] = {}
        rejections: dict[str, list[Rejection]] = {}
        for match in given:
            matches.setdefault(match.request.schedd, []).append(match)
        for r in rejected:
            rejections.setdefault(r.request.schedd, []).append(
                Rejection(submitter=r.submitter, autocluster=r.request.autocluster, code=r.code, reason=r.reason)
            )
        if self.policy.settings.negotiator_inform_startd:
            await self._inform(given, identity)
        unused = False

        def taken(match: Matched, begun: int) -> None:
            nonlocal unused
            unused |= self.table.unmatched(match, match.count - begun)

        said: dict[str, list[Match]] = {}
        for inbox in sorted({*matches, *rejections}):
            said[inbox] = []
            for part in _parts(matches.get(inbox, [])):
                said[inbox] += [self._message(match) for match in part]
                await asyncio.sleep(0)
        await self.schedd_client.send_all(
            {
                inbox: self.schedd_client.send_decisions(
                    inbox, mine, rejections.get(inbox, []), identity, partial(_each, matches.get(inbox, []), taken)
                )
                for inbox, mine in said.items()
            }
        )
        return unused

    def _message(self, match: Matched) -> Match:
        table = self.table
        return Match(
            submitter=match.submitter,
            autocluster=match.request.autocluster,
            count=match.count,
            slot=match.slot,
            startd=table.startd(match.slot),
            claim_id=table.claims.get(match.slot, ""),
            slot_ad=table.packed(match.slot) if match.slot in table.ads else b"",
            preempts=list(match.preempts),
            preempt_claims=[table.claims.get(name, "") for name in match.preempts],
            concurrency_limits=match.limits,
        )

    async def _inform(self, given: Iterable[Matched], identity: CycleIdentity) -> None:
        """Tell startds which of their slots are matched (NEG-39). A courtesy: one that does not hear it is claimed all
        the same."""
        slots: dict[str, list[NoticedSlot]] = {}
        for match in given:
            notice = NoticedSlot(slot=match.slot, claim_id=self.table.claims.get(match.slot, ""))
            slots.setdefault(self.table.startd(match.slot), []).append(notice)

        async def tell(inbox: str, noticed: list[NoticedSlot]) -> None:
            notice = MatchNotice(
                negotiator=identity.negotiator, epoch=identity.epoch, shard=identity.shard, slots=noticed
            )
            try:
                await self.context.bus.send(inbox, notice, epoch=identity.epoch)
            except RoostError as error:
                self.context.log.info("startd_not_informed", startd=inbox, slots=len(noticed), error=str(error))

        await asyncio.gather(*(tell(inbox, noticed) for inbox, noticed in sorted(slots.items()) if inbox))

    def _publish_cycle_done(
        self,
        result: Result,
        statistics: CycleStatistics,
        requests: Iterable[Sequence[Request]],
        identity: CycleIdentity,
        trigger: str,
    ) -> None:
        events: list[Event] = [
            PreemptionLoop(
                at=statistics.began,
                negotiator=identity.negotiator,
                slot=loop.slot,
                users=list(loop.users),
                times=loop.times,
                window_s=self.policy.cycle.thrash_window_s,
            )
            for loop in result.thrashing
        ]
        done = CycleDone(
            at=statistics.began,
            negotiator=identity.negotiator,
            epoch=identity.epoch,
            cycle=identity.cycle,
            trigger=trigger,
            duration_s=statistics.ended - statistics.began,
            slots=statistics.total_slots,
            submitters=statistics.active_submitters,
            requests=sum(len(listed) for listed in requests),
            matches=statistics.matches,
            rejections=statistics.rejections,
        )
        self.publisher.publish([*events, done])

    def _publish_journal(
        self,
        result: Result,
        given: Sequence[Matched],
        snapshot: Snapshot,
        records: Mapping[str, Record],
        asking: Iterable[Submitter],
        silent: Iterable[str],
        identity: CycleIdentity,
    ) -> None:
        """Publish what the journal writes down of this cycle (services/journal)."""
        by: dict[str, Any] = {
            "at": self.context.clock.now(),
            "negotiator": identity.negotiator,
            "epoch": identity.epoch,
            "cycle": identity.cycle,
            "shard": identity.shard,
        }
        if sleeping := self.wake_calls.due(result.offline, by["at"]):
            self.context.log.info("matched_offline", slots=len(sleeping), first=sleeping[0])
            self.publisher.publish([OfflineMatched(**by, slots=sleeping)])
        if self._told != (identity.epoch, self.policy):
            self._told = (identity.epoch, self.policy)
            self._journal_events.tree = self.policy.tree
            self._journal_events.forget()
            self.publisher.publish([PolicyInForce(**by, knobs=told_knobs(self.context.config))])
        requested: dict[str, float] = {}
        for one in asking:
            requested[one.name] = requested.get(one.name, 0.0) + _wanted(one)
        self.publisher.publish(
            journal_events(
                self._journal_events,
                result,
                given,
                in_use=snapshot.in_use,
                pool=snapshot.total_weight,
                records=records,
                requested=requested,
                silent=silent,
                half_life=float(self.policy.settings.priority_halflife),
                by=by,
            )
        )


def _wanted(submitter: Submitter) -> float:
    """Weight of what a submitter runs and asks for at one schedd; a job is one where that does not tell."""
    if submitter.weighted_idle is None or submitter.weighted_running is None:
        return float(submitter.idle + submitter.running)
    return submitter.weighted_idle + submitter.weighted_running


def _each(matches: Sequence[Matched], taken: Callable[[Matched, int], None], index: int, begun: int) -> None:
    taken(matches[index], begun)


def _parts(matches: Sequence[Matched]) -> Iterator[Sequence[Matched]]:
    for start in range(0, len(matches), _STEP):
        yield matches[start : start + _STEP]
