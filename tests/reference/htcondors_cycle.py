"""What a cycle comes to where what is ours on purpose is done as HTCondor's negotiator does it:

- Spins after the first divide the whole pool again, less what each submitter has. Ours divide what is free, as the
  manual has it (NEG-10, W-13).
- Where members of other groups negotiate in the root (GROUP_AUTOREGROUP), the whole pool counts as its own quota when
  allocations are made in later rounds, so that they come to more than there is. Ours never do.

This tells which differences are on purpose: those in which HTCondor's answer is just what comes out here. Slots and
requests are matched by the same code as ever.
"""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import patch

from engine.fairshare import group_negotiation, priorities
from engine.fairshare.group_negotiation import GroupTurn
from engine.match.budget import TOLERANCE, Budget
from engine.match.cycle import Cycle
from engine.match.model import CycleConfig, Result, Snapshot
from engine.match.slot_arrays import RowsMoved


def negotiate_as_htcondor(
    snapshot: Snapshot, config: CycleConfig, now: float, nearly: float = group_negotiation._NEARLY
) -> Result:
    """As `engine.match.cycle.negotiate`. nearly: what a group may lack of a whole slot and be given it all the same;
    0: as HTCondor has it, quotas that are less by the rounding of sums."""
    groups, most = (
        patch.object(group_negotiation, "_Cycle", _Groups),
        patch.object(group_negotiation, "_NEARLY", nearly),
    )
    while True:
        try:
            with groups, most:
                return _Spins(snapshot, config, now).run(False)
        except RowsMoved:
            continue


class _Groups(group_negotiation._Cycle):
    def _free_the_rest(self) -> None:
        super()._free_the_rest()
        if self.regrouping:
            self.quotas = replace(self.quotas, own=(self.pool_weight, *self.quotas.own[1:]))


class _Spins(Cycle):
    def _spin(self, names: list[str], others: list[str], turn: GroupTurn, spin: int) -> tuple[list[str], list[str]]:
        """Who has no idle jobs counts in the first spin only. Who took all of its limit, or was refused a slot by it,
        stays; so does who had less than a slot left, and is passed over."""
        use, lightest = self.matchmaker.use, self.matchmaker.finder.lightest
        pie = min(self.snapshot.total_weight, turn.quota)
        room = max(0.0, turn.limit - self.kept)
        parts = priorities.pie_fractions([*names, *others], use.eup)

        def due(name: str) -> float:
            left = max(0.0, parts[name] * pie - use.in_use(name))
            return left if self.config.consider_preemption else min(left, room)

        if spin == 1:
            self.present[turn.group].difference_update(others)
        left_of_pie = sum(map(due, parts))
        still = []
        for name in sorted(names, key=lambda name: use.eup[name]):
            if spin != 1 and self.kept >= turn.limit - TOLERANCE:
                return [], []
            record, in_use = use.record(name), use.in_use(name)
            limit = due(name)
            unused = min(limit, room)
            limit = min(limit, left_of_pie)
            if spin > 1 and min(limit, left_of_pie) < lightest - TOLERANCE:
                still.append(name)
                continue
            cap = record.ceiling - in_use if record.ceiling >= 0.0 else math.inf
            if cap < lightest - TOLERANCE or cap <= 0.0:
                self.matchmaker.refuse(name, "ceiling")
                if spin:
                    self.present[turn.group].discard(name)
                continue
            if spin == 0:
                limit = min(limit, record.floor)
            budget = Budget(limit, in_use, cap, unused)
            returned = use.returned
            self._serve_one(name, budget, spin)
            self.given += budget.got
            self.kept += budget.got - (use.returned - returned)
            left_of_pie -= budget.got
            if budget.left <= TOLERANCE or self.matchmaker.is_held_back(name):
                still.append(name)
            elif spin:
                self.present[turn.group].discard(name)
        return still, []
