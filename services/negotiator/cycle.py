"""One negotiation cycle, as a pure function: who gets which slot (spec rows NEG-04 to NEG-37).

    for each group that has a turn (groups.py):
        for each submitter below its floor, best priority first: up to the floor
        repeat (a spin):
            divide the pool (later: what is free) among those still asking
            for each submitter, best priority first: hand out slots, request by request, within its slice
        until a spin hands out nothing

Conditions and ranks of a request are evaluated for all slots at once, and only the best slots are sorted
(deal.py, selection.py). A partitionable slot is carved as the startd will carve it, so several jobs, of several
submitters, get their part of it in one cycle (carving.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from services.negotiator import shares
from services.negotiator.board import Moved
from services.negotiator.deal import Deal
from services.negotiator.group_tree import GroupConfig, Tree
from services.negotiator.groups import Turn, negotiate_groups
from services.negotiator.handout import TOLERANCE, Purse
from services.negotiator.pool import CycleConfig, Result, Share, Snapshot
from services.negotiator.reasons import full_groups, rejections
from services.negotiator.wakeup import matched_offline

#: A new question can move the rows of the table; each does so once.
_RESTARTS: Final = 50


def negotiate(snapshot: Snapshot, config: CycleConfig, now: float, *, why: bool = True) -> Result:
    """Decide one cycle. Nothing but its arguments is looked at, and equal arguments give equal results: submitters go
    by (EUP, name), slots by (ranks, name). `now`: seconds since 1970, what time() gives in every expression. Without
    `why` there are no rejections, which take about as long as the matches.

    Time: about linear in slots x distinct conjuncts; some 0.2 ms a request for 100,000 slots.
    """
    for _ in range(_RESTARTS):
        try:
            return _Cycle(snapshot, config, now).run(why)
        except Moved:
            continue
    raise RuntimeError("the rows of the slot table do not come to rest")


class _Cycle:
    """The working state of one cycle that is not about slots."""

    def __init__(self, snapshot: Snapshot, config: CycleConfig, now: float) -> None:
        self.snapshot, self.config = snapshot, config
        groups = config.groups or GroupConfig()
        self.groups = groups
        self.tree = Tree.of(groups)
        self.deal = Deal(snapshot, config, self.tree, now)
        self.names = sorted(name for name, requests in snapshot.requests.items() if requests)
        self.group_of = {name: self.tree.group_of(name) for name in self.names}
        self.shares: dict[str, Share] = {}
        self.spins = 0
        self.given = 0.0  # weight, in the turn that is on
        self.kept = 0.0  # likewise, less what was preempted of the group's own
        self.jobs = 0  # likewise

    def run(self, why: bool) -> Result:
        deal = self.deal
        offered = int((deal.board.open | deal.board.held).sum())
        plans = negotiate_groups(
            self.tree,
            self.groups,
            self.snapshot.total_weight,
            self._demand(),
            deal.group_in_use,
            self._serve,
            heaviest=deal.heaviest(),
            last_remainder=self.snapshot.last_remainder,
        )
        return Result(
            matches=tuple(deal.matches.values()),
            rejections=rejections(deal, plans) if why else (),
            offline=matched_offline(deal, full_groups(deal, plans)) if why else (),
            spins=self.spins,
            considered=deal.considered,
            shares={
                name: Share(share.fraction, share.limit, deal.given.get(name, 0.0))
                for name, share in self.shares.items()
            },
            groups=plans,
            thrashing=deal.thrashing(),
            out_of_time=tuple(deal.clock.exhausted),
            offered=offered,
            losers=deal.losers,
            seconds=deal.clock.seconds,
        )

    def _demand(self) -> Mapping[str, float]:
        """What the submitters of each group run and ask for (GRP-17)."""
        told = self.snapshot.demand
        demand: dict[str, float] = {}
        for name in self.names:
            asked = told.get(name)
            if asked is None:
                asked = self.deal.in_use(name) + self.deal.asked_weight(name)
            demand[self.group_of[name]] = demand.get(self.group_of[name], 0.0) + asked
        for name, asked in told.items():
            if name not in self.group_of:
                group = self.tree.group_of(name)
                demand[group] = demand.get(group, 0.0) + asked
        return demand

    def _serve(self, turn: Turn) -> float:
        """Negotiate for the submitters of a group within its limit. Returns the weight handed out."""
        deal = self.deal
        members = frozenset(turn.members)
        names = shares.order([name for name in self.names if self.group_of[name] in members], deal.eup)
        names = [name for name in names if any(asking.left for asking in deal.asking[name])]
        if not names or deal.clock.is_over():
            return 0.0
        deal.enter(turn)
        self.given, self.kept, self.jobs = 0.0, 0.0, 0
        self._spin([name for name in names if deal.in_use(name) < deal.record(name).floor], turn, spin=0)
        spin = 0
        while names and not deal.clock.is_over():
            spin += 1
            self.spins = max(self.spins, spin)
            jobs = self.jobs
            still = self._spin(names, turn, spin)
            if len(still) == len(names) and self.jobs == jobs:
                break
            names = still
        return self.given

    def _spin(self, names: list[str], turn: Turn, spin: int) -> list[str]:
        """Divide the pie among these submitters and serve each; who still asks for more. Spin 0: the floors' (NEG-11).

        In later spins whose slice is lighter than any slot is passed over, so that nobody rounds up twice. Whose
        ceiling leaves no room for the lightest slot is out, and the others' shares grow. The room of the group is that
        at the beginning of the spin, so roundings may exceed it; who comes after that gets nothing that is free. It
        does not bound preemption, as a full group's members share it among themselves, but the slices do, and what
        all of them come to: who took too much by rounding, or has more since others were preempted, leaves less.
        """
        deal = self.deal
        pie = min(self.snapshot.total_weight, turn.quota)
        room = turn.limit - self.kept
        parts = shares.fractions(names, deal.eup)
        free = min(deal.board.free_weight(), room, max(0.0, self.snapshot.total_weight - deal.all_in_use()))
        rest = math.inf
        if spin:
            rest = sum(shares.slice_left(parts[n], pie, deal.in_use(n), free_weight=free, spin=spin) for n in names)
        still = []
        for name in names:
            at_quota = self.kept >= turn.limit - TOLERANCE
            if at_quota and spin != 1:
                return []
            record, in_use = deal.record(name), deal.in_use(name)
            left = shares.slice_left(parts[name], pie, in_use, free_weight=free, spin=max(1, spin))
            if spin == 1 and name not in self.shares:
                self.shares[name] = Share(parts[name], max(0.0, min(left, room)), 0.0)
            unused = 0.0 if at_quota else max(0.0, min(left, room))
            left = max(0.0, min(left, rest))
            if spin > 1 and left < deal.lightest - TOLERANCE:
                still.append(name)
                continue
            cap = record.ceiling - in_use if record.ceiling >= 0.0 else math.inf
            if cap < deal.lightest - TOLERANCE or cap <= 0.0:
                deal.refuse(name, "ceiling")
                continue
            if spin == 0:
                cap = min(cap, record.floor)
            purse = Purse(left, in_use, cap, unused)
            returned = deal.returned
            self._serve_one(name, purse, spin)
            self.given += purse.got
            self.kept += purse.got - (deal.returned - returned)
            rest -= purse.got
            if deal.is_held_back(name):
                still.append(name)
        return still

    def _serve_one(self, name: str, purse: Purse, spin: int) -> None:
        """One submitter's turn: its requests in order."""
        deal = self.deal
        refused: set[tuple[str, int]] = set()
        with deal.clock.turn(name):
            for asking in deal.asking[name]:
                request = asking.request
                key = (request.schedd, request.autocluster)
                if not asking.left or (key in refused and not self.config.all_jobs_in_cluster):
                    continue
                if not deal.clock.may_go_on(name, request.schedd):
                    asking.cause = "out-of-time"
                    continue
                wanted = asking.left
                deal.serve(asking, purse, spin)
                self.jobs += wanted - asking.left
                if asking.left:
                    refused.add(key)
