"""Which slots suit a request, best first (spec rows NEG-18 to NEG-28)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from engine.fairshare.group_tree import ROOT
from engine.fairshare.priorities import effective
from engine.match import cycle_attributes
from engine.match.budget import Budget, TimeLimits
from engine.match.carving import Key
from engine.match.consumption import LEAST, Policies, Portions, fits, least_cpus, portions
from engine.match.cycle_use import CycleUse
from engine.match.model import CycleConfig, Snapshot
from engine.match.open_request import MatchList, OpenRequest
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
from shared.classad import ClassAd, Expr
from shared.classad.columnar import OTHER_SIDE, Matching

#: A rank of the configuration that is no number: the least one of single precision, by which HTCondor ranks.
_LAST: Final = -3.4028234663852886e38


class SlotFinder:
    """The slots of one cycle, and what each request may have of them. considered: slots looked at so far. lightest: the
    weight of the lightest part that is handed out. changing: expressions read what each job that is matched changes."""

    def __init__(
        self, snapshot: Snapshot, config: CycleConfig, use: CycleUse, time_limits: TimeLimits, now: float
    ) -> None:
        self.config, self.use, self.time_limits = config, use, time_limits
        self.considered = 0
        frame = frame_of(snapshot.slots)
        requests = [request for requests in snapshot.requests.values() for request in requests]
        names = cycle_attributes.names_of(frame, config, requests)
        self.ephemerals = cycle_attributes.mentioned(frame, names)
        self.changing = bool(self.ephemerals & cycle_attributes.CHANGING)
        frame.want([*NAMES, *(name.lower() for name in USER_NAMES), *names])
        self.users = users_of(frame)
        self.charged = users_of(frame, CHARGED_NAMES)
        self.remote = cycle_attributes.of_slots(
            self.ephemerals, frame, self.users.names, self.users.user, use.user_state
        )
        self.arrays: SlotArrays = arrays_of(snapshot.slots, config, now, self.remote, cycle_attributes.CHANGING)
        arrays = self.arrays
        arrays.check()
        self.preemption: Preemption | None = None
        if arrays.held.any():
            eups = [effective(use.record(name)) for name in self.users.names]
            self.preemption = Preemption.of(arrays, config, self.users, eups)
        self.pslot_preemption: PslotPreemption | None = None
        if self.preemption is not None and self.preemption.parts.any():
            self.pslot_preemption = PslotPreemption(arrays, self.preemption.parts, self.preemption.current_rank)
        self.orders: SortOrders = snapshot.slots.orders
        self.orders.begin(arrays.place)
        self.policies = Policies.of(arrays)
        self._flat: dict[int, tuple[Floats, bool]] = {}
        self._left: tuple[tuple[int, int], tuple[bool, float]] | None = None
        self.no_preemption = self.preemption is None or self.preemption.is_idle()
        # A full machine weighs nothing, but it is no slot to be had for nothing.
        self.weightless = bool(np.any((arrays.weight <= 0.0) & ~self._full()))
        self.parts_cost = not self.weightless and not self.policies and parts_cost(arrays, config)
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

    def job_ad(self, name: str, ad: ClassAd) -> ClassAd:
        """A job's ad with the attributes that only the cycle knows."""
        if not self.ephemerals:
            return ad
        turn = self.use.turn
        negotiating = turn.group if turn is not None else self.use.tree.group_of(name)
        regrouped = turn is not None and turn.group == ROOT and self.use.tree.group_of(name) != ROOT
        more = cycle_attributes.of_job(self.ephemerals, self.use.user_state(name), negotiating, regrouped)
        if not more:
            return ad
        merged = ClassAd(more)
        merged.chain(ad)
        return merged

    def refresh(self, open_request: OpenRequest) -> None:
        """Let slots and job say of users and groups what holds at this moment."""
        cycle_attributes.refresh(self.remote, self.users.names, self.users.user, self.use.user_state)
        if self.changing:
            self.arrays.frame.changed()
        open_request.match_list = None  # it was for the values of another turn
        open_request.ad = self.job_ad(open_request.submitter, open_request.request.ad)
        self.arrays.matching.hold(open_request.ad)

    def may_be_preferred(self, open_request: OpenRequest) -> bool:
        """Whether a slot that somebody uses may prefer the job to his: then no slice counts (NEG-14)."""
        if self.preemption is None or not self.preemption.choosy:
            return False
        if self.pslot_preemption is not None:
            return True
        with self.time_limits.part("select"), self.time_limits.part("evaluate"), self.time_limits.evaluating():
            held = self.suits(open_request) & self.arrays.held
            return bool(self.preemption.by_rank(open_request.ad, held).any())

    def are_parts_too_heavy(self, open_request: OpenRequest, budget: Budget) -> bool:
        """Whether parts of partitionable slots are all that is left, and one of the size of a job is more than its
        submitter may take."""
        if not self.parts_cost or not self.no_preemption or self.pslot_preemption is not None or self.room()[0]:
            return False
        least = least_cpus(open_request.ad) if self.config.use_slot_weights else 1.0
        return least > budget.heaviest()

    def suits_any(self, open_request: OpenRequest) -> bool:
        """Whether there is a slot that the request could have if its submitter's slice were not used up."""
        match_list = open_request.match_list
        if match_list is not None and (match_list.epoch is None or match_list.epoch == self.arrays.frame.epoch):
            there = bool((self.arrays.open[match_list.rows] | self.arrays.held[match_list.rows]).any())
            if there or match_list.complete:
                return there
        with self.time_limits.part("select"), self.time_limits.part("evaluate"), self.time_limits.evaluating():
            return self._is_any_left(open_request) and bool(self._candidates(open_request)[0].any())

    def match_list(self, open_request: OpenRequest, k: int) -> MatchList:
        """The best slots that suit and are still there; at least k if there are so many, or more than none."""
        arrays, match_list = self.arrays, open_request.match_list
        if match_list is not None and (match_list.epoch is None or match_list.epoch == arrays.frame.epoch):
            rows = match_list.rows[arrays.open[match_list.rows] | arrays.held[match_list.rows]]
            if match_list.complete or len(rows) >= k or (len(rows) and k <= len(match_list.rows)):
                match_list.rows = rows
                return match_list
        open_request.match_list = match_list = self.find(open_request, k)
        return match_list

    def find(self, open_request: OpenRequest, k: int, *, perhaps: bool = False) -> MatchList:
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
            eup = self.use.eup[open_request.submitter]
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
        if self.policies or self.pslot_preemption is not None or not self.no_preemption:
            return True
        whole, most = self.room()
        return whole or most >= least_cpus(open_request.ad)

    def room(self) -> tuple[bool, float]:
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
            open_request.ad, open_request.submitter, self.use.eup[open_request.submitter], left
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
            keys.append(_configured(matching, config.pre_job_rank, ad))
        if ad.find("rank") is not None:
            rank = ad.lookup("Rank")
            assert rank is not None
            keys.append(Key(matching.job_rank(ad), rank, OTHER_SIDE))
        if config.post_job_rank is not None:
            keys.append(_configured(matching, config.post_job_rank, ad))
        if not self.arrays.resources:  # else it may be another when a machine is used
            keys = [key for key in keys if not self._is_flat(key.now)]
        if level is not None:
            keys.append(Key(level))
            if config.preemption_rank is not None:
                ranks = matching.values(config.preemption_rank, ad, nothing=_LAST)
                keys.append(Key(np.where(level < FREE, ranks, 0.0)))
        return keys

    def _is_flat(self, values: Floats) -> bool:
        """Whether a key is the same everywhere. Keys are shared by many requests, so this is remembered."""
        known = self._flat.get(id(values))
        if known is None or known[0] is not values:
            known = self._flat[id(values)] = (values, not len(values) or bool(values.min() == values.max()))
        return known[1]


def _configured(matching: Matching, expr: Expr, job: ClassAd) -> Key:
    """A rank of the configuration: a slot of which it is no number comes after all others."""
    return Key(matching.values(expr, job, nothing=_LAST), expr, nothing=_LAST)
