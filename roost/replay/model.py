"""A pool under virtual time: recorded slots and jobs, the real negotiator. No I/O, no clock: equal arguments, equal
results.

What is the pool's own code: who gets what in a cycle (engine.match.cycle), how priorities follow use
(engine.fairshare.priorities), how a partitionable slot is carved (engine.slots.carving), which job is next
on a claim (engine.queue.claim_reuse). What is a model: cycles come when something has changed, `step` apart at least; a
job starts `start_s` after its match; whom it preempts leaves at once, and begins anew; a claim takes the next job that
fits for CLAIM_WORKLIFE.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from engine.fairshare.group_tree import SubmitterDemand, group_demand
from engine.fairshare.priorities import Record, choose_factor, effective, settle
from engine.match.cycle import negotiate
from engine.match.model import Matched, Preempted, Request
from engine.policy import Policy, read_policy
from engine.queue.claim_reuse import fits, limits_of
from roost.replay.machines import Machines, spares
from roost.replay.recorded import Recording, Work
from shared.classad import ClassAd
from shared.config import Config

#: A claim takes no further job after this long (s): CLAIM_WORKLIFE by default.
WORKLIFE_S: Final = 1200.0
#: Kinds of jobs that are tried on a claim that has become free.
_TRIED: Final = 100
#: Virtual moments between two words about how far a replay is.
_TOLD: Final = 50
#: Virtual moments by what happens first at equal times.
_SLOT, _END, _GONE, _ARRIVAL, _CYCLE = range(5)


@dataclass(slots=True)
class Outcome:
    """What became of a submitter in the interval. Jobs, seconds, weight x seconds."""

    submitter: str
    group: str = ""
    offered: int = 0
    started: int = 0
    finished: int = 0
    waiting: int = 0  # at the end
    preempted: int = 0
    waited_s: float = 0.0  # of all its jobs
    used: float = 0.0
    priority: float = 0.0  # effective, at the end


@dataclass(slots=True)
class Replayed:
    """By submitter; how many cycles and matches there were; jobs that no slot could take as it was recorded."""

    outcomes: dict[str, Outcome]
    cycles: int = 0
    matches: int = 0
    strays: int = 0
    first_starts: dict[tuple[str, str], float] = field(default_factory=dict)  # (schedd, job) -> time


@dataclass(frozen=True, slots=True)
class _Slot:
    """What a slot offers from a moment on; None: it is gone."""

    name: str
    ad: ClassAd | None


@dataclass(slots=True)
class _Run:
    """A job on a slot."""

    work: Work
    slot: str
    began: float
    ends: float
    weight: float
    claimed: float  # since when the claim is the submitter's
    limits: str  # what the claim takes of concurrency limits


class Pool:
    """See the module."""

    def __init__(self, recording: Recording, config: Config, *, step: float, recorded: Policy | None = None) -> None:
        """config: with subsystem NEGOTIATOR. step: seconds between cycles, at least. recorded: the policy that was in
        force, by which factors of users were chosen that no administrator set."""
        self.recording = recording
        self.policy = read_policy(config, lambda: 0.0)
        self.cycle_config = replace(self.policy.cycle, monotonic=None)
        self.half_life = float(self.policy.settings.priority_halflife)
        self.step = step
        ads = [ad for offers in recording.slots.values() for _, ad in offers if ad is not None]
        self.machines = Machines(self.cycle_config, spared=spares(self.cycle_config, ads))
        self.now = recording.start
        self.records: dict[str, Record] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.runs: dict[str, _Run] = {}  # by slot
        self.waiting: dict[
            str, dict[str, list[tuple[int, int, Work, float]]]
        ] = {}  # submitter -> kind -> jobs in order
        self.replayed = Replayed(self.outcomes)
        self._numbers: dict[str, int] = {}  # of kinds: their autoclusters here
        self._kinds: dict[int, str] = {}
        self._agenda: list[tuple[float, int, int, object]] = []
        self._order = count()
        self._next_cycle: float | None = None
        self._last_cycle = float("-inf")
        self._fits: dict[tuple[str, str], bool] = {}
        self._remainder: dict[str, float] = {}
        self._preempted: list[Preempted] = []
        self._books(recorded)

    # --- the whole of it

    def run(self, progress: Callable[[float], None] = lambda _: None) -> Replayed:
        """The whole interval. progress: told now and then which part of it is done, 0 to 1."""
        recording = self.recording
        whole = recording.end - recording.start
        for name, offers in recording.slots.items():
            for at, ad in offers:
                self._at(max(at, recording.start), _SLOT, _Slot(name, ad))
        for work in recording.work:
            self._at(work.at, _ARRIVAL, work)
        happened = 0
        while self._agenda and self._agenda[0][0] < recording.end:
            at, kind, _, what = heapq.heappop(self._agenda)
            self.now = at
            self._happen(kind, what)
            happened += 1
            if kind == _CYCLE or happened % _TOLD == 0:
                progress((at - recording.start) / whole)
        self._finish()
        return self.replayed

    def _at(self, time: float, kind: int, what: object) -> None:
        heapq.heappush(self._agenda, (time, kind, next(self._order), what))

    def _happen(self, kind: int, what: object) -> None:
        if kind == _SLOT:
            assert isinstance(what, _Slot)
            for lost in self.machines.offer(what.name, what.ad):
                self._evict(lost)
            self._wake()
        elif kind == _ARRIVAL:
            assert isinstance(what, Work)
            self._arrive(what)
        elif kind == _GONE:
            assert isinstance(what, Work)
            self._withdraw(what)
        elif kind == _END:
            assert isinstance(what, _Run)
            if self.runs.get(what.slot) is what:
                self._end(what)
        else:
            self._cycle()

    # --- jobs

    def _outcome(self, name: str) -> Outcome:
        found = self.outcomes.get(name)
        if found is None:
            found = self.outcomes[name] = Outcome(name, self.policy.tree.group_of(name))
        return found

    def _arrive(self, work: Work) -> None:
        self._outcome(work.submitter).offered += 1
        if work.slot and self._continue(work):
            return
        self._wait(work)
        if work.until is not None:
            self._at(work.until, _GONE, work)

    def _continue(self, work: Work) -> bool:
        """It ran as the interval began. False where its slot is not recorded."""
        whole = self.machines.parent_of(work.slot)
        if whole in self.runs:
            whole = ""
        job = self.recording.kinds[work.kind]
        slot, limits = None, ""
        if whole:
            limits = limits_of(job, self.machines.ad(whole) or ClassAd(), self.now)
            slot = self.machines.claim(whole, job, work.submitter, self.now, limits)
        if slot is None:
            self.replayed.strays += 1
            return False
        self._begin(work, slot, self.now, self.now + work.runs_s, self.now, limits)
        return True

    def _wait(self, work: Work) -> None:
        kinds = self.waiting.setdefault(work.submitter, {})
        jobs = kinds.setdefault(work.kind, [])
        heapq.heappush(jobs, (work.cluster, work.proc, work, self.now))
        self._wake()

    def _withdraw(self, work: Work) -> None:
        """It was held or removed, if it waits still."""
        jobs = self.waiting.get(work.submitter, {}).get(work.kind, [])
        for place, entry in enumerate(jobs):
            if entry[2] is work:
                self._waited(entry[2], entry[3])
                jobs.pop(place)
                heapq.heapify(jobs)
                return

    def _waited(self, work: Work, since: float) -> None:
        self._outcome(work.submitter).waited_s += max(0.0, min(self.now, self.recording.end) - since)

    def _begin(self, work: Work, slot: str, began: float, ends: float, claimed: float, limits: str) -> None:
        run = _Run(work, slot, began, ends, self.machines.weight(slot), claimed, limits)
        self.runs[slot] = run
        self._outcome(work.submitter).started += 1
        self.replayed.first_starts.setdefault((work.schedd, work.name), began)
        self._at(ends, _END, run)

    def _start(self, submitter: str, kind: str, slot: str, claimed: float, limits: str) -> None:
        """The first waiting job of a kind runs on this slot from now on."""
        _, _, work, since = heapq.heappop(self.waiting[submitter][kind])
        begins = self.now + self.recording.start_s
        self._outcome(submitter).waited_s += max(0.0, min(self.now, self.recording.end) - since)
        self._begin(work, slot, self.now, begins + work.runs_s, claimed, limits)

    def _over(self, run: _Run) -> None:
        del self.runs[run.slot]
        self._outcome(run.work.submitter).used += run.weight * (min(self.now, self.recording.end) - run.began)

    def _end(self, run: _Run) -> None:
        self._over(run)
        outcome = self._outcome(run.work.submitter)
        outcome.finished += 1
        if self.now - run.claimed < WORKLIFE_S and (kind := self._next_on(run)) is not None:
            self._start(run.work.submitter, kind, run.slot, run.claimed, run.limits)
            return
        self.machines.release(run.slot)
        self._charge()
        self._wake()

    def _next_on(self, run: _Run) -> str | None:
        """The kind of the next job on this claim: the schedd's own choice (NEG-42)."""
        kinds = self.waiting.get(run.work.submitter, {})
        heads = sorted(
            (jobs[0][:2], kind) for kind, jobs in kinds.items() if jobs and jobs[0][2].schedd == run.work.schedd
        )
        slot = None
        for _, kind in heads[:_TRIED]:
            if kind == run.work.kind:
                return kind
            known = self._fits.get((kind, run.slot))
            if known is None:
                slot = slot if slot is not None else self.machines.ad(run.slot)
                known = slot is not None and fits(self.recording.kinds[kind], slot, self.now, run.limits)
                self._fits[kind, run.slot] = known
            if known:
                return kind
        return None

    def _evict(self, slot: str, by: str = "") -> None:
        """Its job waits again, from the beginning."""
        run = self.runs.get(slot)
        if run is None:
            return
        self._over(run)
        self._outcome(run.work.submitter).preempted += bool(by)
        if by:
            self._preempted.append(Preempted(slot, run.work.submitter, by, self.now))
            self.machines.release(slot)
        self._wait(run.work)

    # --- cycles

    def _wake(self) -> None:
        """Something has changed that a cycle should see."""
        if self._next_cycle is None:
            self._next_cycle = max(self.now, self._last_cycle + self.step)
            self._at(self._next_cycle, _CYCLE, None)

    def _cycle(self) -> None:
        self._next_cycle, self._last_cycle = None, self.now
        requests = dict(self._requests())
        self._charge()
        if not requests:
            return
        config = self.cycle_config
        in_use = self.machines.in_use()
        records = {name: self._record(name) for name in sorted({*requests, *in_use})}
        window = self.now - config.thrash_window_s
        self._preempted = [one for one in self._preempted if one.at >= window]
        demand = self._demand(requests, in_use)
        snapshot = self.machines.snapshot(requests, records, demand, tuple(self._preempted), dict(self._remainder))
        result = negotiate(snapshot, config, self.now, why=False)
        self._remainder.update((plan.group, self.now) for plan in result.groups if plan.remainder)
        self.replayed.cycles += 1
        for match in result.matches:
            self._give(match)
        self._charge()

    def _requests(self) -> Iterator[tuple[str, list[Request]]]:
        """In the order in which each schedd lists them."""
        for submitter in sorted(self.waiting):
            kinds = self.waiting[submitter]
            heads = sorted((jobs[0][2].schedd, jobs[0][:2], kind) for kind, jobs in kinds.items() if jobs)
            listed = [
                Request(f"schedd.{schedd}", self._number(kind), len(kinds[kind]), self.recording.kinds[kind])
                for schedd, _, kind in heads
            ]
            if listed:
                yield submitter, listed

    def _number(self, kind: str) -> int:
        known = self._numbers.get(kind)
        if known is None:
            known = self._numbers[kind] = len(self._numbers) + 1
            self._kinds[known] = kind
        return known

    def _give(self, match: Matched) -> None:
        kind = self._kinds[match.request.autocluster]
        for slot in match.preempts:
            self._evict(slot, match.submitter)
        ad = self.recording.kinds[kind]
        slot = self.machines.parent_of(match.slot)  # what a preempted dynamic slot had is its parent's again
        for _ in range(match.count):
            if not self.waiting[match.submitter][kind]:
                return
            got = self.machines.claim(slot, ad, match.submitter, self.now, match.limits)
            if got is None:
                return
            self.replayed.matches += 1
            self._start(match.submitter, kind, got, self.now, match.limits)

    def _demand(
        self, requests: Mapping[str, list[Request]], in_use: Mapping[str, tuple[float, int]]
    ) -> dict[str, float]:
        """By submitter: what it runs and asks for (GRP-17)."""
        if not self.policy.groups.names:
            return {}
        found: dict[str, float] = {}
        for name, listed in requests.items():
            weight, slots = in_use.get(name, (0.0, 0))
            idle = sum(one.count for one in listed)
            weighted = sum(one.count * _cpus(one) for one in listed)
            waiting = SubmitterDemand(name, idle, slots, weighted, weight)
            found[name] = sum(group_demand(self.policy.tree, self.policy.groups, [waiting]).values())
        return found

    # --- the accounting records

    def _books(self, recorded: Policy | None) -> None:
        for name, told in self.recording.standings.items():
            factor = float(told["factor"])
            if recorded is not None:
                usual = choose_factor(name, recorded.factors, recorded.tree.group_of(name))
                if factor == usual:  # nobody set it: what the changed configuration says counts
                    factor = choose_factor(name, self.policy.factors, self.policy.tree.group_of(name))
            self.records[name] = Record(
                priority=max(0.5, float(told["priority"])),
                factor=factor,
                in_use=float(told["in_use"]),
                slots_in_use=int(told["slots"]),
                updated=min(self.recording.start, float(told["at"])),
                floor=float(told["floor"]),
                ceiling=float(told["ceiling"]),
            )
            self.records[name] = settle(self.records[name], self.recording.start, self.half_life)

    def _record(self, name: str) -> Record:
        known = self.records.get(name)
        if known is None:
            factor = choose_factor(name, self.policy.factors, self.policy.tree.group_of(name))
            known = Record(factor=factor, updated=self.now)
        known = self.records[name] = settle(known, self.now, self.half_life)
        return known

    def _charge(self) -> None:
        """Everybody is charged for what was used until now, and from now on for what is in use now."""
        use = self.machines.in_use()
        for name in {*use, *(name for name, record in self.records.items() if record.slots_in_use or record.in_use)}:
            weight, slots = use.get(name, (0.0, 0))
            record = self.records.get(name)
            if record is None or (record.in_use, record.slots_in_use) != (weight, slots):
                self.records[name] = replace(self._record(name), in_use=weight, slots_in_use=slots)

    def _finish(self) -> None:
        self.now = self.recording.end
        for run in list(self.runs.values()):
            self._over(run)
        for submitter, kinds in self.waiting.items():
            for jobs in kinds.values():
                for _, _, work, since in jobs:
                    self._waited(work, since)
                self._outcome(submitter).waiting += len(jobs)
        for name, outcome in self.outcomes.items():
            outcome.priority = effective(self._record(name))


def _cpus(request: Request) -> float:
    value = request.ad.eval("RequestCpus")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6 else 1.0


def recorded_outcomes(recording: Recording, groups: Iterable[tuple[str, str]] = ()) -> dict[str, Outcome]:
    """What really became of everybody; used is in jobs x seconds, as weights of those runs are not recorded."""
    group = dict(groups)
    found: dict[str, Outcome] = {}
    for work in recording.work:
        one = found.setdefault(work.submitter, Outcome(work.submitter, group.get(work.submitter, "")))
        one.offered += 1
        one.started += work.started > 0
        one.finished += work.ended
        one.waited_s += work.waited_s
        one.used += work.ran_s
        one.waiting += not work.started and work.until is None
    return found
