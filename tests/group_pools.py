"""Groups written as in a configuration file, and a pool of slots to hand out to them, for the tests of group quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.fairshare.group_negotiation import GroupResult, GroupTurn, negotiate_groups
from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.policy import group_config
from shared.config import load_config
from shared.config.knobs import NegotiatorSettings


def configured(text: str) -> GroupConfig:
    """From the lines of a configuration file."""
    lines = (line.partition("=") for line in text.splitlines() if line.strip())
    config = load_config([], env={}, overrides={name.strip(): value.strip() for name, _, value in lines})
    return group_config(NegotiatorSettings.from_config(config))


@dataclass
class Pool:
    """Equal slots. Each group has jobs that each take one; `matching` bounds how many slots suit a group's jobs."""

    slots: int
    jobs: dict[str, float]
    weight: float = 1.0
    in_use: dict[str, float] = field(default_factory=dict)
    matching: Mapping[str, float] = field(default_factory=dict)
    turns: list[GroupTurn] = field(default_factory=list)

    def serve(self, turn: GroupTurn) -> float:
        self.turns.append(turn)
        given = 0.0
        for group in turn.members:
            while (
                given + self.weight <= turn.limit + 1e-9
                and sum(self.in_use.values()) + self.weight <= self.slots * self.weight + 1e-9
                and self.in_use.get(group, 0.0) + self.weight
                <= min(self.jobs.get(group, 0.0), self.matching.get(group, 1e9)) + 1e-9
            ):
                self.in_use[group] = self.in_use.get(group, 0.0) + self.weight
                given += self.weight
        return given

    def cycle(self, config: GroupConfig, **more: object) -> dict[str, GroupResult]:
        plans = negotiate_groups(
            GroupTree.of(config),
            config,
            self.slots * self.weight,
            {group: max(asked, self.in_use.get(group, 0.0)) for group, asked in self.jobs.items()},
            lambda group: self.in_use.get(group, 0.0),
            self.serve,
            **more,  # type: ignore[arg-type]
        )
        return {plan.group: plan for plan in plans}
