"""What each submitter and group has in use, from the beginning of a cycle to its end."""

from __future__ import annotations

from engine.fairshare.group_negotiation import GroupTurn
from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.fairshare.priorities import Record, effective
from engine.fairshare.quotas import assign_quotas
from engine.match.cycle_attributes import UserState
from engine.match.model import NEWCOMER, CycleConfig, Snapshot


class CycleUse:
    """Use so far: what was running, what this cycle gave, and less what it preempted.

    given: weight by submitter. preempted_users: who had a slot that is preempted, by its name. returned: weight that
    groups lost in their own turns. turn: of the group that is served."""

    def __init__(self, snapshot: Snapshot, config: CycleConfig, tree: GroupTree) -> None:
        self.tree = tree
        self._records = snapshot.records
        self._use = {name: [weight, float(slots)] for name, (weight, slots) in snapshot.in_use.items()}
        self._group_use: dict[str, float] = {}
        for name, (weight, _) in snapshot.in_use.items():
            group = tree.group_of(name)
            self._group_use[group] = self._group_use.get(group, 0.0) + weight
        own = assign_quotas(tree, config.groups or GroupConfig(), snapshot.total_weight).own
        self._quotas = {group.key: own[group.index] for group in tree.groups}
        self.eup = {name: effective(self.record(name)) for name in {*snapshot.requests, *snapshot.running}}
        self.given: dict[str, float] = {}
        self.preempted_users: dict[str, str] = {}
        self.returned = 0.0
        self.turn: GroupTurn | None = None

    def record(self, name: str) -> Record:
        record = self._records.get(name)
        return NEWCOMER if record is None or effective(record) <= 0.0 else record

    def in_use(self, name: str) -> float:
        use = self._use.get(name)
        return 0.0 if use is None else use[0]

    def group_in_use(self, group: str) -> float:
        return max(0.0, self._group_use.get(group, 0.0))

    def all_in_use(self) -> float:
        """Weight that all users have in use."""
        return sum(use[0] for use in self._use.values())

    def user_state(self, name: str) -> UserState:
        group = self.tree.group_of(name)
        return UserState(
            eup=effective(self.record(name)),
            slots=int(self._use.get(name, (0.0, 0.0))[1]),
            group=group if self.tree else "",
            group_quota=self._quotas.get(group, 0.0),
            group_in_use=self.group_in_use(group),
        )

    def charge(self, name: str, weight: float, jobs: int) -> None:
        use = self._use.setdefault(name, [0.0, 0.0])
        use[0] += weight
        use[1] += jobs
        group = self.tree.group_of(name)
        self._group_use[group] = self._group_use.get(group, 0.0) + weight
        self.given[name] = self.given.get(name, 0.0) + weight

    def give_back(self, name: str, weight: float, slots: int) -> None:
        """Slots of a submitter are preempted."""
        use = self._use.setdefault(name, [0.0, 0.0])
        use[0] = max(0.0, use[0] - weight)
        use[1] = max(0.0, use[1] - slots)
        group = self.tree.group_of(name)
        self._group_use[group] = max(0.0, self._group_use.get(group, 0.0) - weight)
        if self.turn is not None and group in self.turn.members:
            self.returned += weight
