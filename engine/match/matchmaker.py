"""Serving one request after the other: which slots suit it, which of them it gets, and what is left afterwards.

The cycle (cycle.py) decides who is served, in which order and within which limits. A request gets whole slots, parts of
partitionable ones, and machines for which dynamic slots are preempted, within its submitter's budget and the
concurrency limits.

Longer than most modules: what is found for a request and what it is given change the same state, one after the other.
What can be decided apart from it is elsewhere (carving.py, budget.py, concurrency_limits.py, preemption.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.fairshare.group_negotiation import GroupTurn
from engine.fairshare.group_tree import ROOT, GroupConfig, GroupTree
from engine.fairshare.priorities import Record, effective
from engine.fairshare.quotas import assign_quotas
from engine.match import cycle_attributes
from engine.match.budget import Budget, TimeLimits, affordable, spend
from engine.match.carving import Key, Lines, lines_of
from engine.match.concurrency_limits import LimitCounters, WantedBySlot
from engine.match.consumption import LEAST, Policies, Portions, fits, least_cpus, portions
from engine.match.cycle_attributes import UserState
from engine.match.model import (
    NEWCOMER,
    NO_PREEMPTION,
    PRIORITY_PREEMPTION,
    RANK_PREEMPTION,
    CycleConfig,
    Matched,
    Request,
    Snapshot,
)
from engine.match.preemption import (
    BY_PRIORITY,
    BY_RANK,
    CHARGED_NAMES,
    FREE,
    Preemption,
    PslotOffer,
    PslotPreemption,
    users_of,
)
from engine.match.slot_arrays import (
    NAMES,
    RANK,
    USER_NAMES,
    Bools,
    Floats,
    RowNumbers,
    SlotArrays,
    arrays_of,
    frame_of,
    parts_cost,
)
from engine.match.sort_orders import SortOrders, best
from shared.classad import ClassAd
from shared.classad.budget import TooExpensive
from shared.classad.columnar import OTHER_SIDE, ROW_SIDE, Meter
from shared.job_limits import Wanted, depends_on_slot, text_of, wanted

_REASONS: Final = {FREE: NO_PREEMPTION, BY_RANK: RANK_PREEMPTION, BY_PRIORITY: PRIORITY_PREEMPTION}
#: Partitionable slots looked at together first: most requests need no more.
_FEW_MACHINES: Final = 16
#: Attributes of a job that depend on whose turn it is.
_BY_TURN = frozenset(("submitternegotiatinggroup", "submitterautoregroup"))
#: Of lists of partitionable slots only, which grow old with each use, so many rows are looked up first.
_FEW_LISTED: Final = 64
#: Of slots that may be preempted one by one, so many are asked about together first.
_FEW_DOUBTS: Final = 64
#: Rows looked up at least; some of them are taken by others before the next spin.
_FEWEST: Final = 256


@dataclass(slots=True)
class MatchList:
    """The best slots for a request, best first. level: their reason by row, None: nobody uses any of them. complete:
    there are no others. epoch: of the arrays, for lists with partitionable slots, which grow old. pslot_offers: by row,
    those that take preemption of dynamic slots; None: the job may preempt none of them, now or later."""

    rows: RowNumbers
    level: Floats | None
    complete: bool
    epoch: int | None
    pslot_offers: dict[int, PslotOffer] | None = None


@dataclass(slots=True)
class OpenRequest:
    """A request and how many of its jobs still ask.

    ad: the job's ad with what only the cycle knows. wants: of concurrency limits; None: that depends on the slot.
    cause: why the rest got nothing in its last turn.
    """

    submitter: str
    request: Request
    left: int
    ad: ClassAd
    wants: Wanted | None
    match_list: MatchList | None = None
    cause: str = ""
    last: int = -1  # with NEGOTIATOR_DEPTH_FIRST the machine that is being filled
    ranks: Floats | None = None  # its Rank of each row, as its list was made; None: the same for all

    def rank_of(self, row: int) -> float:
        return float(self.ranks[row]) if self.ranks is not None and row < len(self.ranks) else 0.0


class Matchmaker:
    """The working state of one cycle that is about slots, jobs and their use."""

    def __init__(self, snapshot: Snapshot, config: CycleConfig, tree: GroupTree, now: float) -> None:
        self.snapshot, self.config, self.tree, self.now = snapshot, config, tree, now
        self.time_limits = TimeLimits(config)
        self.counters = LimitCounters(config.limits, snapshot.limits_in_use)
        self._use = {name: [weight, float(slots)] for name, (weight, slots) in snapshot.in_use.items()}
        self._group_use: dict[str, float] = {}
        for name, (weight, _) in snapshot.in_use.items():
            group = tree.group_of(name)
            self._group_use[group] = self._group_use.get(group, 0.0) + weight
        self.eup = {name: effective(self.record(name)) for name in {*snapshot.requests, *snapshot.running}}
        self.matches: dict[object, Matched] = {}
        self.given: dict[str, float] = {}
        self.preempted_users: dict[str, str] = {}  # who had a slot that is preempted, by its name
        self.considered = 0
        self.returned = 0.0  # weight that groups lost in their own turns
        self._turn: GroupTurn | None = None
        self._foreign: Bools | None = None
        frame = frame_of(snapshot.slots)
        self.requests = [request for requests in snapshot.requests.values() for request in requests]
        names = cycle_attributes.names_of(frame, config, self.requests)
        self.ephemerals = cycle_attributes.mentioned(frame, names)
        self.changing = bool(self.ephemerals & cycle_attributes.CHANGING)
        groups = config.groups or GroupConfig()
        own = assign_quotas(tree, groups, snapshot.total_weight).own
        self._quotas = {group.key: own[group.index] for group in tree.groups}
        # Without a clock nothing is measured: then a cycle is a function of its arguments.
        self.meter = Meter(snapshot.slots.owner) if config.monotonic is not None else None
        snapshot.slots.matching.meter = self.meter
        with self.time_limits.part("set-up"):
            users = (name.lower() for name in USER_NAMES)
            frame.want([*NAMES, *users, *names])
            self._set_up_slots(now)
            self._set_up_requests()
            self._prepare()

    def _set_up_slots(self, now: float) -> None:
        snapshot, config = self.snapshot, self.config
        frame = frame_of(snapshot.slots)
        self.users = users_of(frame)
        self.charged = users_of(frame, CHARGED_NAMES)
        self.remote = cycle_attributes.of_slots(
            self.ephemerals, frame, self.users.names, self.users.user, self.user_state
        )
        self.arrays: SlotArrays = arrays_of(snapshot.slots, config, now, self.remote, cycle_attributes.CHANGING)
        arrays = self.arrays
        arrays.check()
        self.preemption: Preemption | None = None
        if arrays.held.any():
            eups = [effective(self.record(name)) for name in self.users.names]
            self.preemption = Preemption.of(arrays, config, self.users, eups)
        self.pslot_preemption: PslotPreemption | None = None
        if self.preemption is not None and self.preemption.parts.any():
            self.pslot_preemption = PslotPreemption(arrays, self.preemption.parts, self.preemption.current_rank)
        self.orders: SortOrders = snapshot.slots.orders
        self.orders.begin(arrays.place)
        self.policies = Policies.of(arrays)
        self._flat: dict[int, tuple[Floats, bool]] = {}
        self._left: tuple[tuple[int, int], tuple[bool, float]] | None = None
        self._no_preemption = self.preemption is None or self.preemption.is_idle()
        # A full machine weighs nothing, but it is no slot to be had for nothing.
        self._weightless = bool(np.any((arrays.weight <= 0.0) & ~self._full()))
        self._parts_cost = not self._weightless and not self.policies and parts_cost(arrays, config)
        # Of a partitionable slot a core, at least, is handed out.
        portions = np.where(arrays.partitionable, np.minimum(arrays.weight, 1.0), arrays.weight)
        self.lightest = float(portions.min(initial=math.inf)) if len(portions) else 0.0
        arrays.check()

    def _full(self) -> Bools:
        """(n,) bool: partitionable slots of which nothing is left."""
        cpus = self.arrays.free.get("cpus")
        if cpus is None:
            return np.zeros(self.arrays.size, np.bool_)
        full: Bools = self.arrays.partitionable & ~self.policies.has & (cpus.number < LEAST["cpus"])
        return full

    def _set_up_requests(self) -> None:
        self.open_requests: dict[str, list[OpenRequest]] = {}
        for name, requests in self.snapshot.requests.items():
            self.open_requests[name] = [
                OpenRequest(name, request, request.count, self._job_ad(name, request.ad), self._wants(request.ad))
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

    # --- who asks

    def record(self, name: str) -> Record:
        record = self.snapshot.records.get(name)
        return NEWCOMER if record is None or effective(record) <= 0.0 else record

    def in_use(self, name: str) -> float:
        use = self._use.get(name)
        return 0.0 if use is None else use[0]

    def group_in_use(self, group: str) -> float:
        return max(0.0, self._group_use.get(group, 0.0))

    def all_in_use(self) -> float:
        """Weight that all users have in use."""
        return sum(use[0] for use in self._use.values())

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

    def user_state(self, name: str) -> UserState:
        group = self.tree.group_of(name)
        return UserState(
            eup=effective(self.record(name)),
            slots=int(self._use.get(name, (0.0, 0.0))[1]),
            group=group if self.tree else "",
            group_quota=self._quotas.get(group, 0.0),
            group_in_use=self.group_in_use(group),
        )

    def begin_turn(self, turn: GroupTurn) -> None:
        """Begin a group's turn."""
        self._turn = turn
        self._foreign = None
        if turn.capped and self.preemption is not None:
            own = [self.tree.group_of(name) in turn.members for name in self.charged.names]
            self._foreign = ~np.array([*own, False])[self.charged.user]

    def within_group(self, rows: RowNumbers) -> Bools:
        """(k,) bool: which of these rows, if preempted, are no more use of the group whose turn it is. What a group
        with a hard cap takes from others is, as free slots are."""
        return np.ones(len(rows), np.bool_) if self._foreign is None else ~self._foreign[rows]

    def asks_for_more(self, name: str) -> bool:
        return any(open_request.left for open_request in self.open_requests[name])

    def is_held_back(self, name: str) -> bool:
        """Whether a submitter could use more than its slice or its ceiling allows: only such ones share in what is
        left (NEG-10)."""
        return any(
            open_request.left and open_request.cause in ("share", "ceiling")
            for open_request in self.open_requests[name]
        )

    def _job_ad(self, name: str, ad: ClassAd) -> ClassAd:
        """A job's ad with the attributes that only the cycle knows."""
        if not self.ephemerals:
            return ad
        turn = self._turn
        negotiating = turn.group if turn is not None else self.tree.group_of(name)
        regrouped = turn is not None and turn.group == ROOT and self.tree.group_of(name) != ROOT
        more = cycle_attributes.of_job(self.ephemerals, self.user_state(name), negotiating, regrouped)
        if not more:
            return ad
        merged = ClassAd(more)
        merged.chain(ad)
        return merged

    def _wants(self, ad: ClassAd) -> Wanted | None:
        return None if depends_on_slot(ad) else wanted(ad, ClassAd(), self.now)

    # --- a request's turn

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
        if self.changing or not self.ephemerals.isdisjoint(_BY_TURN):
            self._refresh(open_request)
        exempt = spin == 1 and self.preemption is not None  # NEG-14
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
            if budget.is_spent(not self._no_preemption) and not self._weightless:
                if not exempt:
                    open_request.cause = "share"
                    return
                if open_request.wants is not None and self._parts_cost and not self._may_be_preferred(open_request):
                    open_request.cause = "share" if self._suits_any(open_request) else "no-match"
                    return
            if open_request.wants is not None and self._are_parts_too_heavy(open_request, budget):
                open_request.cause = "share" if self._suits_any(open_request) else "no-match"
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
                self._refresh(open_request)

    def _may_be_preferred(self, open_request: OpenRequest) -> bool:
        """Whether a slot that somebody uses may prefer the job to his: then no slice counts (NEG-14)."""
        if self.preemption is None or not self.preemption.choosy:
            return False
        if self.pslot_preemption is not None:
            return True
        with self.time_limits.part("select"), self.time_limits.part("evaluate"), self.time_limits.evaluating():
            held = self.suits(open_request) & self.arrays.held
            return bool(self.preemption.by_rank(open_request.ad, held).any())

    def _are_parts_too_heavy(self, open_request: OpenRequest, budget: Budget) -> bool:
        """Whether parts of partitionable slots are all that is left, and one of the size of a job is more than its
        submitter may take."""
        if not self._parts_cost or not self._no_preemption or self.pslot_preemption is not None or self._room()[0]:
            return False
        least = least_cpus(open_request.ad) if self.config.use_slot_weights else 1.0
        return least > budget.heaviest()

    def _suits_any(self, open_request: OpenRequest) -> bool:
        """Whether there is a slot that the request could have if its submitter's slice were not used up."""
        match_list = open_request.match_list
        if match_list is not None and (match_list.epoch is None or match_list.epoch == self.arrays.frame.epoch):
            there = bool((self.arrays.open[match_list.rows] | self.arrays.held[match_list.rows]).any())
            if there or match_list.complete:
                return there
        with self.time_limits.part("select"), self.time_limits.part("evaluate"), self.time_limits.evaluating():
            return self._is_any_left(open_request) and bool(self._candidates(open_request)[0].any())

    def _is_unsteady(self) -> bool:
        """Whether every job has to be looked at with the values of its moment (NEG-27, NEG-28)."""
        config = self.config
        if not self.changing:
            return False
        return not (
            config.matchlist_caching and config.preemption_requirements_stable and config.preemption_rank_stable
        )

    def _only_requirements_follow(self, open_request: OpenRequest) -> bool:
        """Whether PREEMPTION_REQUIREMENTS are all that can read what a job changes for the next."""
        arrays, config, ad = self.arrays, self.config, open_request.ad
        if self.preemption is None or self.preemption.requirements is None or arrays.resources or config.depth_first:
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
                match_list = self._find_slots(open_request, k, perhaps=True)
            with self.time_limits.part("hand-out"):
                took, heavy = self._allocate_with_doubts(open_request, match_list, budget, n, exempt)
            if took or match_list.complete:
                if not took:
                    open_request.cause = "share" if heavy else "no-match"
                return took
            k = len(match_list.rows) * 8 + _FEWEST

    def _allocate_with_doubts(
        self, open_request: OpenRequest, match_list: MatchList, budget: Budget, n: int, exempt: bool
    ) -> tuple[int, bool]:
        """How many jobs got a slot, and whether slots were too heavy."""
        assert open_request.wants is not None
        takes = WantedBySlot((open_request.wants,))
        rows, level = match_list.rows, match_list.level
        doubtful = np.zeros(len(rows), np.bool_) if level is None else level[rows] == BY_PRIORITY
        took, heavy = 0, False
        while took < n and len(rows):
            sure = int(doubtful.argmax()) if doubtful.any() else len(rows)
            if sure:
                chosen = self._spend_on(match_list, rows[:sure], budget, n - took, exempt)
                heavy |= len(chosen) < min(sure, n - took)
                rows, doubtful = rows[sure:], doubtful[sure:]
            else:
                chosen, too_heavy = self._first_permitted(open_request, match_list, rows, doubtful, budget, exempt)
                heavy |= too_heavy
                if not len(chosen):
                    break
                left = rows != chosen[0]
                rows, doubtful = rows[left], doubtful[left]
            if len(chosen):
                self._match_slots(open_request, chosen, match_list, takes)
                took += len(chosen)
        return took, heavy

    def _first_permitted(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        rows: RowNumbers,
        doubtful: Bools,
        budget: Budget,
        exempt: bool,
    ) -> tuple[RowNumbers, bool]:
        """The first of these rows that a job may have at this moment, paid for, or none; and whether some were too
        heavy."""
        assert self.preemption is not None
        self._refresh(open_request)
        live = {name: column for name, column in self.remote.items() if name in cycle_attributes.CHANGING}
        start, size, heavy = 0, _FEW_DOUBTS, False
        while start < len(rows):
            some, unsure = rows[start : start + size], doubtful[start : start + size]
            may = ~unsure
            may[unsure] = self.preemption.permits(open_request.ad, some[unsure], live)
            chosen = self._spend_on(match_list, some[may], budget, 1, exempt)
            if len(chosen):
                return chosen, heavy
            heavy |= bool(may.any())
            start += size
            size *= 4
        return rows[:0], heavy

    def _refresh(self, open_request: OpenRequest) -> None:
        cycle_attributes.refresh(self.remote, self.users.names, self.users.user, self.user_state)
        if self.changing:
            self.arrays.frame.changed()
        open_request.match_list = None  # it was for the values of another turn
        open_request.ad = self._job_ad(open_request.submitter, open_request.request.ad)
        self.arrays.matching.hold(open_request.ad)

    def _serve_some(self, open_request: OpenRequest, budget: Budget, n: int, exempt: bool) -> int:
        """Give some slots to up to n jobs; how many got one. 0: there is nothing more for this request now."""
        k = max(_FEWEST, 4 * n) if self._room()[0] else max(_FEW_LISTED, n)
        while True:
            with self.time_limits.part("select"):
                match_list = self._match_list(open_request, k)
            if not len(match_list.rows):
                open_request.cause = "no-match"
                return 0
            with self.time_limits.part("hand-out"):
                took = self.allocate(open_request, match_list, budget, n, exempt)
            if took or match_list.complete:
                return took
            k = len(match_list.rows) * 8 + _FEWEST  # too heavy, all of them: there may be lighter ones further down

    # --- candidates

    def _match_list(self, open_request: OpenRequest, k: int) -> MatchList:
        """The best slots that suit and are still there; at least k if there are so many, or more than none."""
        arrays, match_list = self.arrays, open_request.match_list
        if match_list is not None and (match_list.epoch is None or match_list.epoch == arrays.frame.epoch):
            rows = match_list.rows[arrays.open[match_list.rows] | arrays.held[match_list.rows]]
            if match_list.complete or len(rows) >= k or (len(rows) and k <= len(match_list.rows)):
                match_list.rows = rows
                return match_list
        open_request.match_list = match_list = self._find_slots(open_request, k)
        return match_list

    def _find_slots(self, open_request: OpenRequest, k: int, *, perhaps: bool = False) -> MatchList:
        """perhaps: with slots of which PREEMPTION_REQUIREMENTS are still to be asked."""
        arrays = self.arrays
        with self.time_limits.part("evaluate"), self.time_limits.evaluating():
            if not self._is_any_left(open_request):
                return MatchList(np.zeros(0, np.intp), None, True, None)
            free, level, has_machines, pslot_offers = self._candidates(open_request, perhaps=perhaps)
            told = self.keys(open_request.ad, level)
            open_request.ranks = next((key.now for key in told if key.side == OTHER_SIDE), None)
            arrays.check()
        self.considered += arrays.size
        if not has_machines:
            shared, own = [key.now for key in told if key.expr], [key.now for key in told if not key.expr]
            listed, complete = self.orders.best(free, shared, k, own, arrays.taken_rows, arrays.left)
        else:
            rows = np.flatnonzero(free)
            listed, complete = best(rows, [key.now for key in told], arrays.place, k), len(rows) <= k
        if open_request.last >= 0 and free[open_request.last]:
            listed = np.concatenate([[open_request.last], listed[listed != open_request.last]])
        epoch = arrays.frame.epoch if has_machines or self.changing else None
        return MatchList(listed, level, complete, epoch, pslot_offers)

    def _candidates(
        self, open_request: OpenRequest, *, perhaps: bool = False
    ) -> tuple[Bools, Floats | None, bool, dict[int, PslotOffer] | None]:
        """The slots that suit and can be given now, in any order; and as in `MatchList`: level, whether some of them
        are partitionable, pslot_offers."""
        arrays = self.arrays
        suits = self.suits(open_request)
        free = suits & arrays.open
        level: Floats | None = None
        if self.preemption is not None:
            eup = self.eup[open_request.submitter]
            by_rank, by_priority = self.preemption.offers(
                open_request.ad, open_request.submitter, eup, suits, perhaps=perhaps
            )
            used = by_rank | by_priority
            if used.any():
                free |= used
                level = np.where(by_rank, BY_RANK, np.where(by_priority, BY_PRIORITY, FREE))
        has_machines = False
        if arrays.resources:
            machines = np.flatnonzero(free & arrays.partitionable)
            has_machines = len(machines) > 0
            free[machines[~self.has_room(open_request, machines)]] = False
        pslot_offers = self._pslot_offers(open_request, free) if self.pslot_preemption else None
        if pslot_offers:
            has_machines = True
            level = np.full(arrays.size, FREE) if level is None else level
            for row, one in pslot_offers.items():
                free[row] = True
                level[row] = one.level
        return free, level, has_machines, pslot_offers

    def _is_any_left(self, open_request: OpenRequest) -> bool:
        """False where nothing is left that a job of this size could have, whatever else it wants: in a busy pool that
        is so for all who come after the last free slot was given, and they need not be matched with anything."""
        if self.policies or self.pslot_preemption is not None or not self._no_preemption:
            return True
        whole, most = self._room()
        return whole or most >= least_cpus(open_request.ad)

    def _room(self) -> tuple[bool, float]:
        """Whether a whole slot can be given away, and how many cores a partitionable one has at most."""
        arrays = self.arrays
        key = (arrays.frame.epoch, arrays.taken_rows)
        if self._left is None or self._left[0] != key:
            parts = arrays.open & arrays.partitionable
            most = 0.0
            if parts.any():
                column = arrays.free.get("cpus")
                most = math.inf if column is None else float(np.nan_to_num(column.number[parts], nan=math.inf).max())
            self._left = (key, (bool((arrays.open & ~arrays.partitionable).any()), most))
        return self._left[1]

    def _pslot_offers(self, open_request: OpenRequest, free: Bools) -> dict[int, PslotOffer] | None:
        """Machines that the job may have by preempting some of their dynamic slots; None: it may preempt none."""
        assert self.pslot_preemption is not None
        assert self.preemption is not None
        left = self.preemption.parts & ~self.arrays.taken
        by_rank, by_priority = self.preemption.preferred(
            open_request.ad, open_request.submitter, self.eup[open_request.submitter], left
        )
        allowed = by_rank | by_priority
        if not allowed.any():
            return None
        lines = self.pslot_preemption.lines(free, allowed)
        if not len(lines[0]):
            return {}
        taking = self.portions(open_request, np.unique(lines[0]), 1)
        return self.pslot_preemption.offers(open_request.ad, lines, by_priority, taking, self.policies, self.config)

    def suits(self, open_request: OpenRequest) -> Bools:
        """(n,) bool: where job and slot match, whatever the slot's state."""
        matches = self.arrays.matching.match(open_request.ad)
        return self.policies.apply(open_request.ad, matches) if self.policies else matches

    def has_room(self, open_request: OpenRequest, rows: RowNumbers) -> Bools:
        """Of these rows, where at least one job fits."""
        if self.policies:
            return self.portions(open_request, rows, 1).copies > 0
        return fits(open_request.ad, self.arrays, rows)

    def portions(self, open_request: OpenRequest, rows: RowNumbers, most: int) -> Portions:
        taking = portions(open_request.ad, self.arrays, rows, most)
        return self.policies.replace(open_request.ad, taking, most) if self.policies else taking

    def keys(self, ad: ClassAd, level: Floats | None) -> list[Key]:
        """Sort keys of the match list (NEG-21). What is the same for all slots is left out."""
        matching, config = self.arrays.matching, self.config
        keys = []
        if config.pre_job_rank is not None:
            keys.append(Key(matching.values(config.pre_job_rank, ad), config.pre_job_rank))
        if ad.find("rank") is not None:
            rank = ad.lookup("Rank")
            assert rank is not None
            keys.append(Key(matching.job_rank(ad), rank, OTHER_SIDE))
        if config.post_job_rank is not None:
            keys.append(Key(matching.values(config.post_job_rank, ad), config.post_job_rank))
        if not self.arrays.resources:  # else it may be another when a machine is used
            keys = [key for key in keys if not self._is_flat(key.now)]
        if level is not None:
            keys.append(Key(level))
            if config.preemption_rank is not None:
                keys.append(Key(np.where(level < FREE, matching.values(config.preemption_rank, ad), 0.0)))
        return keys

    def _is_flat(self, values: Floats) -> bool:
        """Whether a key is the same everywhere. Keys are shared by many requests, so this is remembered."""
        known = self._flat.get(id(values))
        if known is None or known[0] is not values:
            known = self._flat[id(values)] = (values, not len(values) or bool(values.min() == values.max()))
        return known[1]

    # --- allocating some of the slots found, within a submitter's budget and concurrency limits

    def allocate(self, open_request: OpenRequest, match_list: MatchList, budget: Budget, n: int, exempt: bool) -> int:
        """Give some slots of the match list to jobs; how many jobs got one."""
        rows = match_list.rows
        from_pslots = match_list.epoch is not None and bool(self.arrays.partitionable[rows].any())
        if match_list.pslot_offers is not None or (from_pslots and self._limits_follow_use(open_request)):
            return self._allocate_singly(open_request, match_list, budget, n, exempt)
        if open_request.wants is None:
            return self._allocate_by_limits(open_request, match_list, budget, n, exempt, from_pslots)
        takes = WantedBySlot((open_request.wants,))
        if from_pslots:
            return self._allocate_from_pslots(open_request, match_list, takes, budget, n, exempt)
        chosen = self._spend_on(match_list, rows, budget, n, exempt)
        if len(chosen):
            self._match_slots(open_request, chosen, match_list, takes)
        elif match_list.complete:
            open_request.cause = "ceiling" if budget.at_ceiling() else "share"
        return len(chosen)

    def _spend_on(self, match_list: MatchList, rows: RowNumbers, budget: Budget, n: int, exempt: bool) -> RowNumbers:
        """Pay for up to n of these whole slots of the match list; which ones."""
        spared, used = self._spared_rows(match_list, rows, exempt), self._preempted_rows(rows, match_list.level)
        return rows[spend(budget, self.arrays.weight[rows], n, exempt=spared, used=used)]

    @staticmethod
    def _spared_rows(match_list: MatchList, rows: RowNumbers, exempt: bool) -> Bools | None:
        """For which of these rows the slice does not count (NEG-14); None: for none of them."""
        return (match_list.level[rows] == BY_RANK) if exempt and match_list.level is not None else None

    def _preempted_rows(self, rows: RowNumbers, level: Floats | None) -> Bools | None:
        """Which of these rows count as preempted (`Budget`); None: none of them."""
        return None if level is None else (level[rows] < FREE) & self.within_group(rows)

    def _limits_follow_use(self, open_request: OpenRequest) -> bool:
        """Whether what a job takes of concurrency limits changes as a machine is used."""
        if open_request.wants is not None:
            return False
        expr = open_request.ad.lookup("ConcurrencyLimits")
        assert expr is not None
        return self.arrays.matching.is_live(expr, open_request.ad, OTHER_SIDE)

    def _allocate_by_limits(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        budget: Budget,
        n: int,
        exempt: bool,
        from_pslots: bool,
    ) -> int:
        """Where concurrency limits depend on the slot: a full one leaves out the slots only that it is for (LIM-08)."""
        weight, rows = self.arrays.weight, match_list.rows
        takes = WantedBySlot.of(rows, self._limits_by_row(open_request, rows), self.arrays.size)
        if from_pslots:
            room, full = takes.with_room(self.counters, rows)
            if room.any():
                part = replace(match_list, rows=rows[room])
                return self._allocate_from_pslots(open_request, part, takes, budget, n, exempt)
            open_request.cause = f"limit:{full}"
            return 0
        took, full, heavy = 0, "", False
        while took < n and len(rows):
            room, first = takes.with_room(self.counters, rows)
            full, rows = full or first, rows[room]
            spared, used = self._spared_rows(match_list, rows, exempt), self._preempted_rows(rows, match_list.level)
            fits = budget.permits(weight[rows], spared, used)
            heavy, rows = heavy or not fits.all(), rows[fits]
            # There is room for the first, so one at least, however sums are rounded: this must come to an end.
            several = max(1, takes.together(self.counters, rows[: n - took]))
            chosen = self._spend_on(match_list, rows[:several], budget, n - took, exempt)
            if len(chosen):
                self._match_slots(open_request, chosen, match_list, takes)
            took += len(chosen)
            rows = rows[several:]
        if not took:
            open_request.cause = "share" if heavy or not full else f"limit:{full}"
        return took

    def _allocate_from_pslots(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        takes: WantedBySlot,
        budget: Budget,
        n: int,
        exempt: bool,
    ) -> int:
        """Where partitionable slots are among the slots found: the best few first, and others only where all of these
        are too heavy."""
        if self._parts_cost and match_list.level is None:  # what is beyond the slice, but for the last, is not had
            n = min(n, int(min(n, budget.left)) + 2)
        few = self._enough(open_request, match_list.rows, n)
        for rows, most in ((few, n), (match_list.rows[len(few) :], 1)):
            if not len(rows):
                break
            lines, taking = self._lines_of_pslots(open_request, rows, most, match_list.level)
            if not lines.filled and len(rows) < min(most, len(match_list.rows)):
                rows = match_list.rows[:n]
                lines, taking = self._lines_of_pslots(open_request, rows, most, match_list.level)
            if not lines.filled and not match_list.complete:
                most = min(most, len(rows))  # the next may be on a slot that is not listed
            spared = self._spared_rows(match_list, lines.rows, exempt)
            used = self._preempted_rows(lines.rows, match_list.level)
            if takes.kind is not None:
                some = np.flatnonzero(affordable(budget, lines.charges, lines.rows, spared, used))
                lines = lines.some(some[: takes.together(self.counters, lines.rows[some[:most]])])
                spared = self._spared_rows(match_list, lines.rows, exempt)
                used = self._preempted_rows(lines.rows, match_list.level)
            picked = spend(budget, lines.charges, most, lines.rows, spared, used)
            if len(picked):
                self._commit_lines(open_request, match_list, lines, taking, picked, takes)
                return len(picked)
            open_request.cause = "ceiling" if budget.at_ceiling() else "share"
        return 0

    def _enough(self, open_request: OpenRequest, rows: RowNumbers, n: int) -> RowNumbers:
        """The first of these slots, in which n jobs fit as far as amounts tell."""
        rows = rows[: max(_FEW_MACHINES, n)]
        order = np.argsort(rows)
        copies = np.empty(len(rows), np.int64)
        copies[order] = self.portions(open_request, rows[order], n).copies
        return rows[: int(copies.cumsum().searchsorted(n)) + 1]

    def _lines_of_pslots(
        self, open_request: OpenRequest, rows: RowNumbers, n: int, level: Floats | None
    ) -> tuple[Lines, Portions]:
        taking = self.portions(open_request, np.sort(rows), n)
        keys = self.keys(open_request.ad, level)
        return lines_of(self.arrays, open_request.ad, rows, taking, keys, self.policies, self.config), taking

    def _commit_lines(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        lines: Lines,
        taking: Portions,
        picked: NDArray[np.intp],
        takes: WantedBySlot,
    ) -> None:
        arrays = self.arrays
        rows = lines.rows[picked]
        parts = arrays.partitionable[rows]
        if not parts.all():
            self._match_slots(open_request, rows[~parts], match_list, takes)
        if not parts.any():
            return
        picked, rows = picked[parts], rows[parts]
        slots, first, jobs = np.unique(rows, return_index=True, return_counts=True)
        charges = np.bincount(np.searchsorted(slots, rows), weights=lines.charges[picked], minlength=len(slots))
        last = np.zeros(len(slots), np.intp)
        last[np.searchsorted(slots, rows)] = picked  # the last line of each slot wins
        used = taking.used(np.searchsorted(taking.rows, slots), jobs)
        arrays.carve(slots, taking.keys, used, lines.weights[last])
        if self.config.depth_first:
            open_request.last = int(rows[-1])
        takes.take(self.counters, rows)
        order = np.argsort(first, kind="stable")
        given = zip(slots[order].tolist(), jobs[order].tolist(), charges[order].tolist(), strict=True)
        for (row, number, charge), limits in zip(given, takes.texts(slots[order]), strict=False):
            self._match_pslot(open_request, row, number, charge, limits)

    def _allocate_singly(
        self, open_request: OpenRequest, match_list: MatchList, budget: Budget, n: int, exempt: bool
    ) -> int:
        """Allocate slot by slot: where dynamic slots may be preempted, or limits follow the use of machines, each job
        changes what the next can have. A full limit skips the slots that it is for."""
        rows = match_list.rows
        takes = WantedBySlot((open_request.wants or (),))
        if open_request.wants is None:
            takes = WantedBySlot.of(rows, self._limits_by_row(open_request, rows), self.arrays.size)
        took, full, heavy = 0, "", False
        for row in rows.tolist():
            if took >= n:
                break
            if blocking := self.counters.blocking(takes.on(row)):
                full = full or blocking
                continue
            if not self._allocate_one(open_request, match_list, budget, row, exempt, takes):
                heavy = True
                continue
            took += 1
            if self.arrays.partitionable[row]:
                return took  # the list has grown old
        if not took:
            open_request.cause = "share" if heavy or not full else f"limit:{full}"
        return took

    def _limits_by_row(self, open_request: OpenRequest, rows: RowNumbers) -> list[str | None]:
        """ConcurrencyLimits of the job on each of some slots."""
        expr = open_request.ad.lookup("ConcurrencyLimits")
        assert expr is not None
        order = np.argsort(rows)
        texts: list[str | None] = [None] * len(rows)
        probe = self.arrays.matching.probe(rows[order], {})
        for index, text in zip(order.tolist(), probe.texts(expr, open_request.ad, OTHER_SIDE), strict=True):
            texts[index] = text
        return texts

    def _allocate_one(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        budget: Budget,
        row: int,
        exempt: bool,
        takes: WantedBySlot,
    ) -> bool:
        """Give a slot, or a part of it, to one job; False if the budget does not permit it."""
        arrays = self.arrays
        one = np.array([row], np.intp)
        offer = match_list.pslot_offers.get(row) if match_list.pslot_offers else None
        if offer is not None:
            within = np.array([bool(self.within_group(offer.parts).all())])
            spared = self._spared_rows(match_list, one, exempt)
            if not len(spend(budget, np.array([offer.charge]), 1, exempt=spared, used=within)):
                return False
            takes.take(self.counters, one)
            self._preempt_dynamic_slots(open_request, offer, text_of(takes.on(row)))
            return True
        if arrays.partitionable[row]:
            lines, taking = self._lines_of_pslots(open_request, one, 1, match_list.level)
            picked = spend(budget, lines.charges, 1)
            if len(picked):
                self._commit_lines(open_request, match_list, lines, taking, picked, takes)
            return len(picked) > 0
        chosen = self._spend_on(match_list, one, budget, 1, exempt)
        if len(chosen):
            self._match_slots(open_request, chosen, match_list, takes)
        return len(chosen) > 0

    def _preempt_dynamic_slots(self, open_request: OpenRequest, offer: PslotOffer, limits: str) -> None:
        """Preempt dynamic slots of a machine for a job (PRE-17)."""
        arrays = self.arrays
        names = tuple(arrays.frame.keys[row] for row in offer.parts.tolist())
        self.record_preemptions(offer.parts)
        arrays.take(offer.parts)
        used = np.array([[amount] for amount in offer.change.values()])
        arrays.carve(np.array([offer.row]), list(offer.change), used, np.array([offer.weight]))
        name = arrays.frame.keys[offer.row]
        reason = _REASONS[offer.level]
        match = Matched(
            open_request.submitter,
            open_request.request,
            name,
            1,
            offer.charge,
            reason,
            names,
            limits,
            open_request.rank_of(offer.row),
        )
        self.matches[offer.row, names] = match
        self.charge(open_request.submitter, offer.charge, 1)
        open_request.left -= 1

    def _match_slots(
        self, open_request: OpenRequest, rows: RowNumbers, match_list: MatchList, takes: WantedBySlot
    ) -> None:
        """Match whole slots, one job each."""
        arrays = self.arrays
        keys = arrays.frame.keys
        submitter, request, level = open_request.submitter, open_request.request, match_list.level
        numbers, weights = rows.tolist(), arrays.weight[rows].tolist()
        ranks = repeat(0.0) if open_request.ranks is None else open_request.ranks[rows].tolist()
        made = [
            Matched(submitter, request, keys[row], 1, weight, NO_PREEMPTION, (), limits, rank)
            for row, weight, limits, rank in zip(numbers, weights, takes.texts(rows), ranks, strict=False)
        ]
        self.matches.update(zip(numbers, made, strict=True))
        if level is not None:
            reasons = level[rows]
            preempted = np.flatnonzero(reasons < FREE)
            for index, reason in zip(preempted.tolist(), reasons[preempted].tolist(), strict=True):
                match = made[index]
                match.reason, match.preempts = _REASONS[reason], (match.slot,)
            self.record_preemptions(rows[preempted])
        arrays.take(rows)
        takes.take(self.counters, rows)
        self.charge(submitter, sum(weights), len(rows))
        open_request.left -= len(rows)

    def _match_pslot(self, open_request: OpenRequest, row: int, jobs: int, weight: float, limits: str) -> None:
        """Match some jobs with a partitionable slot."""
        key = (open_request.submitter, open_request.request.schedd, open_request.request.autocluster, row, limits)
        known = self.matches.get(key)
        if known is None:
            name = self.arrays.frame.keys[row]
            rank = open_request.rank_of(row)
            self.matches[key] = Matched(
                open_request.submitter, open_request.request, name, jobs, weight, NO_PREEMPTION, (), limits, rank
            )
        else:
            known.count += jobs
            known.weight += weight
        self.charge(open_request.submitter, weight, jobs)
        open_request.left -= jobs

    # --- use

    def charge(self, name: str, weight: float, jobs: int) -> None:
        use = self._use.setdefault(name, [0.0, 0.0])
        use[0] += weight
        use[1] += jobs
        group = self.tree.group_of(name)
        self._group_use[group] = self._group_use.get(group, 0.0) + weight
        self.given[name] = self.given.get(name, 0.0) + weight

    def record_preemptions(self, rows: RowNumbers) -> None:
        """Take the weight of preempted slots off the use of whoever had them."""
        holder = self.charged.user[rows]
        rows, holder = rows[holder >= 0], holder[holder >= 0]
        keys, names = self.arrays.frame.keys, self.charged.names
        had = zip(rows.tolist(), holder.tolist(), strict=True)
        self.preempted_users.update((keys[row], names[who]) for row, who in had)
        weights = np.bincount(holder, weights=self.arrays.weight[rows])
        numbers = np.bincount(holder)
        for who in np.flatnonzero(numbers).tolist():
            user, weight = names[who], float(weights[who])
            use = self._use.setdefault(user, [0.0, 0.0])
            use[0] = max(0.0, use[0] - weight)
            use[1] = max(0.0, use[1] - int(numbers[who]))
            group = self.tree.group_of(user)
            self._group_use[group] = max(0.0, self._group_use.get(group, 0.0) - weight)
            if self._turn is not None and group in self._turn.members:
                self.returned += weight
