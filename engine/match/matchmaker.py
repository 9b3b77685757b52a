"""Serving one request after the other.

The cycle (cycle.py) decides who is served, in which order and within which limits. slot_finder.py finds the slots
that suit a request, allocation.py gives it some of them, and cycle_use.py keeps what everybody has then.
"""

from __future__ import annotations

from typing import Final

from engine.fairshare.group_negotiation import GroupTurn
from engine.fairshare.group_tree import GroupTree
from engine.match import cycle_attributes
from engine.match.allocation import Allocation
from engine.match.budget import Budget, TimeLimits
from engine.match.concurrency_limits import LimitCounters
from engine.match.cycle_use import CycleUse
from engine.match.model import CycleConfig, Snapshot
from engine.match.open_request import OpenRequest
from engine.match.slot_arrays import RANK
from engine.match.slot_finder import SlotFinder
from shared.classad import ClassAd
from shared.classad.budget import TooExpensive
from shared.classad.columnar import OTHER_SIDE, ROW_SIDE, Meter
from shared.job_limits import Wanted, depends_on_slot, wanted

#: Attributes of a job that depend on whose turn it is.
_BY_TURN: Final = frozenset(("submitternegotiatinggroup", "submitterautoregroup"))
#: Of lists of partitionable slots only, which grow old with each use, so many rows are looked up first.
_FEW_LISTED: Final = 64
#: Rows looked up at least; some of them are taken by others before the next spin.
_FEWEST: Final = 256


class Matchmaker:
    """The working state of one cycle that is about slots, jobs and their use."""

    def __init__(self, snapshot: Snapshot, config: CycleConfig, tree: GroupTree, now: float) -> None:
        self.snapshot, self.config, self.tree, self.now = snapshot, config, tree, now
        self.time_limits = TimeLimits(config)
        self.counters = LimitCounters(config.limits, snapshot.limits_in_use)
        self.use = CycleUse(snapshot, config, tree)
        # Without a clock nothing is measured: then a cycle is a function of its arguments.
        self.meter = Meter(snapshot.slots.owner) if config.monotonic is not None else None
        snapshot.slots.matching.meter = self.meter
        with self.time_limits.part("set-up"):
            self.finder = SlotFinder(snapshot, config, self.use, self.time_limits, now)
            self.arrays = self.finder.arrays
            self.allocation = Allocation(self.finder, self.use, self.counters, config)
            self._set_up_requests()
            self._prepare()

    def _set_up_requests(self) -> None:
        self.open_requests: dict[str, list[OpenRequest]] = {}
        for name, requests in self.snapshot.requests.items():
            self.open_requests[name] = [
                OpenRequest(name, request, request.count, self.finder.job_ad(name, request.ad), self._wants(request.ad))
                for request in requests
            ]
        for asked in self.open_requests.values():
            for open_request in asked:
                self.arrays.matching.hold(open_request.ad)

    def _prepare(self) -> None:
        """Plan all questions that will be asked: what is new to the table may move its rows, now rather than later."""
        config, matching = self.config, self.arrays.matching
        knobs = (config.pre_job_rank, config.post_job_rank, config.preemption_rank, config.preemption_requirements)
        jobs = [open_request.ad for asked in self.open_requests.values() for open_request in asked]
        matching.prepare(jobs, [expr for expr in knobs if expr is not None])
        self.arrays.check()

    def refuse(self, name: str, cause: str) -> None:
        """Give this submitter nothing (more), for this cause."""
        for open_request in self.open_requests[name]:
            open_request.cause = cause

    def asked_weight(self, name: str) -> float:
        """What a submitter's requests come to: a core is one, a job without weights is one."""
        total = 0.0
        for open_request in self.open_requests[name]:
            cpus = open_request.request.ad.eval("RequestCpus") if self.config.use_slot_weights else 1
            fits = isinstance(cpus, int | float) and not isinstance(cpus, bool) and 0 < cpus < 1e9
            total += open_request.left * (float(cpus) if fits else 1.0)  # type: ignore[arg-type]
        return total

    def heaviest(self) -> float:
        offered = self.arrays.open | self.arrays.held
        return float(self.arrays.weight[offered].max(initial=0.0))

    def begin_turn(self, turn: GroupTurn) -> None:
        """Begin a group's turn."""
        self.use.turn = turn
        self.allocation.begin_turn(turn)

    def asks_for_more(self, name: str) -> bool:
        return any(open_request.left for open_request in self.open_requests[name])

    def is_held_back(self, name: str) -> bool:
        """Whether a submitter could use more than its slice or its ceiling allows: only such ones share in what is
        left (NEG-10)."""
        return any(
            open_request.left and open_request.cause in ("share", "ceiling")
            for open_request in self.open_requests[name]
        )

    def _wants(self, ad: ClassAd) -> Wanted | None:
        return None if depends_on_slot(ad) else wanted(ad, ClassAd(), self.now)

    def asks(self, submitter: str) -> None:
        """What is evaluated from now on is for a request of this submitter."""
        if self.meter is not None:
            self.meter.asker = submitter

    def serve(self, open_request: OpenRequest, budget: Budget, spin: int) -> None:
        """Hand out slots to one request until its jobs, the slots, the budget or a time limit are used up. Sets its
        cause."""
        self.asks(open_request.submitter)
        try:
            self._serve(open_request, budget, spin)
        except TooExpensive:  # while slots were looked for: nothing is half given
            if self.config.monotonic is None:
                raise  # no limit of the cycle's own
            open_request.match_list = None
            open_request.cause = "out-of-time"
            self.time_limits.gave_up()

    def _serve(self, open_request: OpenRequest, budget: Budget, spin: int) -> None:
        finder = self.finder
        if finder.changing or not finder.ephemerals.isdisjoint(_BY_TURN):
            finder.refresh(open_request)
        exempt = spin == 1 and finder.preemption is not None  # NEG-14
        open_request.last = -1
        if self.config.depth_first:
            open_request.match_list = None  # it begins with the machine that was packed in the last turn
        while open_request.left > 0:
            n = open_request.left
            if open_request.wants:
                name = self.counters.blocking(open_request.wants)
                if name:
                    open_request.cause = f"limit:{name}"
                    return
                n = min(n, int(min(n, self.counters.room(open_request.wants))))
            if budget.at_ceiling():
                open_request.cause = "ceiling"
                return
            if budget.is_spent(not finder.no_preemption) and not finder.weightless:
                if not exempt:
                    open_request.cause = "share"
                    return
                if open_request.wants is not None and finder.parts_cost and not finder.may_be_preferred(open_request):
                    open_request.cause = "share" if finder.suits_any(open_request) else "no-match"
                    return
            if open_request.wants is not None and finder.are_parts_too_heavy(open_request, budget):
                open_request.cause = "share" if finder.suits_any(open_request) else "no-match"
                return
            if not self._is_unsteady():
                took = self._serve_some(open_request, budget, n, exempt)
            elif self._only_requirements_follow(open_request):
                took = self._serve_with_doubts(open_request, budget, n, exempt)
            else:
                took = self._serve_some(open_request, budget, 1, exempt)
            if not took:
                return
            if self._is_unsteady():
                finder.refresh(open_request)

    def _is_unsteady(self) -> bool:
        """Whether every job has to be looked at with the values of its moment (NEG-27, NEG-28)."""
        config = self.config
        if not self.finder.changing:
            return False
        return not (
            config.matchlist_caching and config.preemption_requirements_stable and config.preemption_rank_stable
        )

    def _only_requirements_follow(self, open_request: OpenRequest) -> bool:
        """Whether PREEMPTION_REQUIREMENTS are all that can read what a job changes for the next."""
        arrays, config, ad = self.arrays, self.config, open_request.ad
        if (
            self.finder.preemption is None
            or self.finder.preemption.requirements is None
            or arrays.resources
            or config.depth_first
        ):
            return False
        if open_request.wants is None:
            return False
        knobs = (config.pre_job_rank, config.post_job_rank, config.preemption_rank, RANK)
        told = [(expr, ROW_SIDE) for expr in knobs if expr is not None]
        if (rank := ad.lookup("Rank")) is not None:
            told.append((rank, OTHER_SIDE))
        reads = arrays.matching.reads(ad, told)
        return reads is not None and reads.isdisjoint(cycle_attributes.CHANGING)

    def _serve_with_doubts(self, open_request: OpenRequest, budget: Budget, n: int, exempt: bool) -> int:
        """As `_serve_some`, where only PREEMPTION_REQUIREMENTS follow what each job changes: which slots come first
        does not, and whether one of them may be preempted for priority is asked when it is the first that is left."""
        k = max(_FEWEST, 4 * n)
        while True:
            with self.time_limits.part("select"):
                match_list = self.finder.find(open_request, k, perhaps=True)
            with self.time_limits.part("hand-out"):
                took, heavy = self.allocation.allocate_with_doubts(open_request, match_list, budget, n, exempt)
            if took or match_list.complete:
                if not took:
                    open_request.cause = "share" if heavy else "no-match"
                return took
            k = len(match_list.rows) * 8 + _FEWEST

    def _serve_some(self, open_request: OpenRequest, budget: Budget, n: int, exempt: bool) -> int:
        """Give some slots to up to n jobs; how many got one. 0: there is nothing more for this request now."""
        k = max(_FEWEST, 4 * n) if self.finder.room()[0] else max(_FEW_LISTED, n)
        while True:
            with self.time_limits.part("select"):
                match_list = self.finder.match_list(open_request, k)
            if not len(match_list.rows):
                open_request.cause = "no-match"
                return 0
            with self.time_limits.part("hand-out"):
                took = self.allocation.allocate(open_request, match_list, budget, n, exempt)
            if took or match_list.complete:
                return took
            k = len(match_list.rows) * 8 + _FEWEST  # too heavy, all of them: there may be lighter ones further down
