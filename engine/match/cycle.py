"""One negotiation cycle, as a pure function: who gets which slot (spec rows NEG-04 to NEG-37).

    for each group that has a turn (fairshare/group_negotiation.py):
        for each submitter below its floor, best priority first: up to the floor
        repeat (a spin):
            divide the pool (later: what is free) among those who still ask
            for each submitter, best priority first: hand out slots, request by request, within its slice
        until a spin hands out nothing

Conditions and ranks of a request are evaluated for all slots at once, and only the best slots are sorted
(matchmaker.py, slot_arrays.py). A partitionable slot is carved as the startd will carve it, so several jobs, of several
submitters, get their part of it in one cycle (carving.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.fairshare import priorities
from engine.fairshare.group_negotiation import GroupTurn, negotiate_groups
from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.match.budget import TOLERANCE, Budget
from engine.match.matchmaker import Matchmaker
from engine.match.model import CycleConfig, Matched, Preempted, Result, Snapshot, Thrashing
from engine.match.offline_match import matched_offline
from engine.match.rejections import full_groups, rejections
from engine.match.slot_arrays import RowsMoved

#: A new question can move the rows of the table; each does so once.
_RESTARTS: Final = 50


def negotiate(snapshot: Snapshot, config: CycleConfig, now: float, *, why: bool = True) -> Result:
    """Decide one cycle. Nothing but its arguments is looked at, and equal arguments give equal results: submitters go
    by (EUP, what they have of their due, name), slots by (ranks, name). `now`: seconds since 1970, what time() gives in
    every expression. Without `why` there are no rejections, which take about as long as the matches.

    Time: about linear in slots x distinct conjuncts; some 0.2 ms a request for 100,000 slots.
    """
    for _ in range(_RESTARTS):
        try:
            return Cycle(snapshot, config, now).run(why)
        except RowsMoved:
            continue
    raise RuntimeError("the rows of the slot table do not come to rest")


class Cycle:
    """The working state of one cycle that is not about slots."""

    def __init__(self, snapshot: Snapshot, config: CycleConfig, now: float) -> None:
        self.snapshot, self.config, self.now = snapshot, config, now
        groups = config.groups or GroupConfig()
        self.groups = groups
        self.tree = GroupTree.of(groups)
        self.matchmaker = Matchmaker(snapshot, config, self.tree, now)
        self.names = sorted(name for name, requests in snapshot.requests.items() if requests)
        self.group_of = {name: self.tree.group_of(name) for name in self.names}
        #: Who asks, or only runs jobs, by group.
        self.submitters: dict[str, list[str]] = {}
        only_run = snapshot.running.difference(self.names) if config.consider_preemption else ()
        for name in (*self.names, *only_run):
            self.submitters.setdefault(self.tree.group_of(name), []).append(name)
        #: Who still takes part in a group's turns, by group: until it has all that it wants, or nothing suits it.
        self.present: dict[str, set[str]] = {}
        self.shares: dict[str, priorities.Share] = {}
        self.spins = 0
        self.given = 0.0  # weight, in the turn that is on
        self.kept = 0.0  # likewise, less what was preempted of the group's own
        self.jobs = 0  # likewise

    def run(self, why: bool) -> Result:
        matchmaker, use, matches = self.matchmaker, self.matchmaker.use, self.matchmaker.allocation.matches
        offered = int((matchmaker.arrays.open | matchmaker.arrays.held).sum())
        plans = negotiate_groups(
            self.tree,
            self.groups,
            self.snapshot.total_weight,
            self._demand(),
            use.group_in_use,
            self._serve,
            heaviest=matchmaker.heaviest(),
            last_remainder=self.snapshot.last_remainder,
        )
        return Result(
            matches=tuple(matches.values()),
            rejections=rejections(matchmaker, plans) if why else (),
            offline=matched_offline(matchmaker, full_groups(matchmaker, plans)) if why else (),
            spins=self.spins,
            considered=matchmaker.finder.considered,
            shares={
                name: priorities.Share(share.fraction, share.limit, use.given.get(name, 0.0))
                for name, share in self.shares.items()
            },
            groups=plans,
            thrashing=find_thrashing(
                self.snapshot.preempted, matches.values(), use.preempted_users, self.config, self.now
            ),
            out_of_time=tuple(matchmaker.time_limits.exhausted),
            offered=offered,
            preempted_users=use.preempted_users,
            seconds=matchmaker.time_limits.seconds,
            dear=matchmaker.meter.dear if matchmaker.meter is not None else {},
        )

    def _demand(self) -> Mapping[str, float]:
        """What the submitters of each group run and ask for (GRP-17)."""
        told = self.snapshot.demand
        demand: dict[str, float] = {}
        for name in self.names:
            asked = told.get(name)
            if asked is None:
                asked = self.matchmaker.use.in_use(name) + self.matchmaker.asked_weight(name)
            demand[self.group_of[name]] = demand.get(self.group_of[name], 0.0) + asked
        for name, asked in told.items():
            if name not in self.group_of:
                group = self.tree.group_of(name)
                demand[group] = demand.get(group, 0.0) + asked
        return demand

    def _serve(self, turn: GroupTurn) -> float:
        """Negotiate for the submitters of a group within its limit. Returns the weight handed out."""
        matchmaker = self.matchmaker
        names, others = self._taking_part(turn)
        if not names or matchmaker.time_limits.is_over():
            return 0.0
        matchmaker.begin_turn(turn)
        self.given, self.kept, self.jobs = 0.0, 0.0, 0
        below = [name for name in names if self._is_below_floor(name)]
        if below:
            self._spin(below, list(filter(self._is_below_floor, others)), turn, spin=0)
        spin = 0
        while names and not matchmaker.time_limits.is_over():
            spin += 1
            self.spins = max(self.spins, spin)
            jobs = self.jobs
            before = len(names), len(others)
            names, others = self._spin(names, others, turn, spin)
            if spin > 1 and (len(names), len(others)) == before and self.jobs == jobs:
                break  # the second spin divides otherwise than the first
        return self.given

    def _taking_part(self, turn: GroupTurn) -> tuple[list[str], list[str]]:
        """Who still takes part in a group's turns: who asks for more, and who does not, but has a part of the pool in
        this turn's first spin all the same."""
        if turn.group not in self.present:
            self.present[turn.group] = {name for key in turn.members for name in self.submitters.get(key, ())}
        present = self.present[turn.group]
        names = sorted(name for name in present if name in self.group_of and self.matchmaker.asks_for_more(name))
        return names, sorted(present.difference(names))

    def _is_below_floor(self, name: str) -> bool:
        return self.matchmaker.use.in_use(name) < self.matchmaker.use.record(name).floor

    def _spin(self, names: list[str], others: list[str], turn: GroupTurn, spin: int) -> tuple[list[str], list[str]]:
        """Divide the pie among these submitters and serve each, best first. Returns who of them still asks for more
        and could use it, in this order, and the others of the next spin. Spin 0: the floors' (NEG-11).

        others: who is not served, but has a part of the whole pool, so that those who are do not take the places of
        who has no more than its due: in the first spin who runs jobs and asks for none, or was given all that it wants
        in its own group's turn; later who had no slice left and nothing to take it from. What is free is not divided
        among them.

        In later spins a slice lighter than any slot is none, so that nobody rounds up twice. Whose ceiling leaves no
        room for the lightest slot is out, and the others' shares grow. The room of the group is that at the beginning
        of the spin, so roundings may exceed it; who comes after that gets nothing that is free. It does not bound
        preemption, as a full group's members share it among themselves, but the slices do, and what all of them come
        to: who took too much by rounding, or has more since others were preempted, leaves less.
        """
        matchmaker, use = self.matchmaker, self.matchmaker.use
        lightest = matchmaker.finder.lightest
        pie = min(self.snapshot.total_weight, turn.quota)
        room = turn.limit - self.kept
        parts = priorities.pie_fractions([*names, *others], use.eup)
        parts_of_free = priorities.pie_fractions(names, use.eup) if others else parts
        free = min(matchmaker.arrays.free_weight(), room, max(0.0, self.snapshot.total_weight - use.all_in_use()))

        def due(name: str) -> float:
            """What a submitter may still take of the whole pool."""
            return priorities.pie_slice_left(parts[name], pie, use.in_use(name), free_weight=free, spin=1)

        def of_free(name: str) -> float:
            """Of this, or besides, what it may take of slots that nobody has."""
            if spin <= 1:
                return due(name)
            return priorities.pie_slice_left(parts_of_free[name], pie, 0.0, free_weight=free, spin=spin)

        if spin <= 1:
            had = {name: (use.in_use(name), due(name)) for name in names}
            names = priorities.best_first(names, use.eup, had)
        if spin == 1:
            for name in others:
                self.shares.setdefault(name, priorities.Share(parts[name], max(0.0, min(due(name), room)), 0.0))
            self.present[turn.group].difference_update(others)
        rest = unused_rest = math.inf
        if spin:
            rest = sum(max(due(name), of_free(name)) for name in names) + sum(map(due, others))
        if spin > 1:
            unused_rest = sum(map(of_free, names))
            others = [name for name in others if due(name) < lightest - TOLERANCE]
        else:
            others = []
        still = []
        for name in names:
            at_quota = self.kept >= turn.limit - TOLERANCE
            if at_quota and spin != 1:
                return [], []
            record, in_use = use.record(name), use.in_use(name)
            unused = of_free(name)
            left = max(due(name), unused)
            if spin == 1 and name not in self.shares:
                self.shares[name] = priorities.Share(parts[name], max(0.0, min(left, room)), 0.0)
            unused = 0.0 if at_quota else max(0.0, min(unused, room, unused_rest))
            left = max(0.0, min(left, rest))
            if spin > 1:
                left, unused = (0.0 if some < lightest - TOLERANCE else some for some in (left, unused))
                if not left and not unused:
                    still.append(name)
                    continue
            cap = record.ceiling - in_use if record.ceiling >= 0.0 else math.inf
            if cap < lightest - TOLERANCE or cap <= 0.0:
                matchmaker.refuse(name, "ceiling")
                if spin:
                    self.present[turn.group].discard(name)
                continue
            if spin == 0:
                cap = min(cap, record.floor)
            budget = Budget(left, in_use, cap, unused)
            returned = use.returned
            if spin > 1 and not unused:  # of what is free it has a crumb only, and may still ask for that
                requests = matchmaker.open_requests[name]
                causes = [open_request.cause for open_request in requests]
                self._serve_one(name, budget, spin)
                for open_request, cause in zip(requests, causes, strict=True):
                    if open_request.cause == "no-match":
                        open_request.cause = cause
            else:
                self._serve_one(name, budget, spin)
            self.given += budget.got
            self.kept += budget.got - (use.returned - returned)
            rest -= budget.got
            unused_rest -= budget.got - budget.preempting
            if matchmaker.is_held_back(name):
                still.append(name)
            elif budget.left <= TOLERANCE and matchmaker.asks_for_more(name):
                others.append(name)
            elif spin:
                self.present[turn.group].discard(name)
        return still, others

    def _serve_one(self, name: str, budget: Budget, spin: int) -> None:
        """One submitter's turn: its requests in order."""
        matchmaker = self.matchmaker
        refused: set[tuple[str, int]] = set()
        with matchmaker.time_limits.turn(name):
            for open_request in matchmaker.open_requests[name]:
                request = open_request.request
                key = (request.schedd, request.autocluster)
                if not open_request.left or (key in refused and not self.config.all_jobs_in_cluster):
                    continue
                if not matchmaker.time_limits.may_go_on(name, request.schedd):
                    open_request.cause = "out-of-time"
                    continue
                wanted = open_request.left
                matchmaker.serve(open_request, budget, spin)
                self.jobs += wanted - open_request.left
                if open_request.left:
                    refused.add(key)


def find_thrashing(
    past: Sequence[Preempted],
    matches: Iterable[Matched],
    preempted_users: dict[str, str],
    config: CycleConfig,
    now: float,
) -> tuple[Thrashing, ...]:
    """Slots preempted at least `thrash_count` times within `thrash_window_s` among the same two or more users, each of
    whom took the slot and lost it. preempted_users: who had a slot that this cycle preempts, by its name."""
    if config.thrash_count <= 0 or not preempted_users:
        return ()
    recent = {
        match.slot: [Preempted(match.slot, preempted_users[match.slot], match.submitter, now)]
        for match in matches
        if match.slot in preempted_users and match.preempts
    }
    if not recent:
        return ()
    for one in past:
        if one.slot in recent and now - config.thrash_window_s <= one.at <= now:
            recent[one.slot].append(one)
    found = []
    for slot, times in sorted(recent.items()):
        both = {one.user for one in times} & {one.by for one in times}
        within = [one for one in times if one.user in both and one.by in both]
        if len(within) >= config.thrash_count:
            found.append(Thrashing(slot, tuple(sorted(both)), len(within)))
    return tuple(found)
