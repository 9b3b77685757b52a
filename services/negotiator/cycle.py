"""One negotiation cycle, as a pure function: who gets which slot (spec rows NEG-04 to NEG-37).

    for each group that has a turn (groups.py):
        for each submitter below its floor, best priority first: up to the floor
        repeat (a spin):
            divide the pool (later: what is free) among those still asking
            for each submitter, best priority first: hand out slots, request by request, within its slice
        until a spin hands out nothing

Conditions and ranks of a request are evaluated for all slots at once, and only the best slots are sorted
(evaluation.py, selection.py). A partitionable slot is carved as the startd will carve it, so several jobs, of several
submitters, get their part of it in one cycle (carving.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from services.negotiator import shares
from services.negotiator.board import Moved
from services.negotiator.deal import Asking, Deal
from services.negotiator.group_tree import ROOT, GroupConfig, Tree
from services.negotiator.groups import Plan, Turn, negotiate_groups
from services.negotiator.handout import TOLERANCE, Purse
from services.negotiator.pool import CycleConfig, Result, Share, Snapshot
from services.negotiator.reasons import rejections

#: A new question can move the rows of the table; each does so once.
_RESTARTS: Final = 50


def negotiate(snapshot: Snapshot, config: CycleConfig, now: float) -> Result:
    """Decide one cycle. Nothing but its arguments is looked at, and equal arguments give equal results: submitters go
    by (EUP, name), slots by (ranks, name). `now`: seconds since 1970, what time() gives in every expression.

    Time: about linear in slots x distinct conjuncts; some 0.2 ms a request for 100,000 slots.
    """
    for _ in range(_RESTARTS):
        try:
            return _Cycle(snapshot, config, now).run()
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

    def run(self) -> Result:
        deal = self.deal
        plans = negotiate_groups(
            self.tree,
            self.groups,
            self.snapshot.total_weight,
            self._demand(),
            deal.group_in_use,
            self._serve,
            heaviest=deal.heaviest(),
        )
        deal.settle(plans)
        return Result(
            matches=tuple(deal.matches.values()),
            rejections=rejections(deal),
            spins=self.spins,
            considered=deal.considered,
            shares={
                name: Share(share.fraction, share.limit, deal.given.get(name, 0.0))
                for name, share in self.shares.items()
            },
            groups=plans,
            thrashing=deal.thrashing(),
            out_of_time=tuple(deal.clock.exhausted),
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
        given = 0.0
        for name in names:
            record = deal.record(name)
            floor = shares.floor_left(record.floor, deal.in_use(name), record.ceiling)
            if floor > 0.0:
                purse = self._purse(name, min(floor, turn.limit - given))
                given += self._serve_one(name, purse, spin=0)
        pie = min(self.snapshot.total_weight, turn.quota)
        spin = 0
        while names and not deal.clock.is_over():
            spin += 1
            self.spins = max(self.spins, spin)
            parts = shares.fractions(names, deal.eup)
            free = min(deal.board.free_weight(), turn.limit - given)
            handed_out = 0.0
            held_back = []
            for name in names:
                left = shares.slice_left(parts[name], pie, deal.in_use(name), free_weight=free, spin=spin)
                left = min(left, turn.limit - given - handed_out)
                purse = self._purse(name, left)
                if spin == 1 and name not in self.shares:
                    self.shares[name] = Share(parts[name], max(0.0, left), 0.0)
                handed_out += self._serve_one(name, purse, spin)
                if deal.is_held_back(name) and not purse.at_ceiling():
                    held_back.append(name)
            given += handed_out
            names = held_back
            if handed_out <= TOLERANCE or turn.limit - given <= TOLERANCE:
                break
        return given

    def _purse(self, name: str, left: float) -> Purse:
        return Purse(max(0.0, left), self.deal.in_use(name), self.deal.record(name).ceiling)

    def _serve_one(self, name: str, purse: Purse, spin: int) -> float:
        """One submitter's turn: its requests in order."""
        deal = self.deal
        before = purse.in_use
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
                deal.serve(asking, purse, spin)
                if asking.left:
                    refused.add(key)
        return purse.in_use - before


__all__ = ["ROOT", "Asking", "Plan", "negotiate"]
