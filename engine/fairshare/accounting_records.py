"""The accounting records of one negotiator in memory: a record for each submitter who used something or has a setting
of his own, one for each group, and the claims for which something was charged.

All that puts a record in place or forgets one is here, so that no way of changing one can forget the indexes, the
accounting ads or what is to be written. What a record becomes is decided in `priorities`, who is charged in
`accountant`.

A submitter who only has jobs waiting is known while he asks, and forgotten then: names cost a hostile user nothing.
"""

from __future__ import annotations

from typing import Final

from engine.fairshare.accounting_ads import AdPublication
from engine.fairshare.claim_charging import Claim, Key
from engine.fairshare.group_tree import Group, GroupTree
from engine.fairshare.priorities import Factors, Record, choose_factor, clock_set, forgettable

#: Submitters that are known without being in the accounting records.
MOST_NEWCOMERS: Final = 10_000

#: First letters of the keys by which pages of accounting ads are ordered.
GROUP_KEY: Final = "0"
SUBMITTER_KEY: Final = "1"


class AccountingRecords:
    """Records by name, with indexes of them, and what of them changed since they were written."""

    def __init__(self, factors: Factors, half_life: float, tree: GroupTree) -> None:
        """half_life: of priorities, s."""
        self.factors = factors
        self.half_life = half_life
        self.tree = tree
        self.submitters: dict[str, Record] = {}
        self.groups: dict[str, Record] = {}  # by key
        self.claims: dict[Key, Claim] = {}  # for which something was charged
        self.newcomers: dict[str, Record] = {}
        self.using: dict[str, Group] = {}  # who uses something, and the group that is charged too
        self.ending: dict[str, float] = {}  # submitter -> when a change for a while ends
        self.changed: set[str] = set()  # submitters
        self.changed_groups: set[str] = set()
        self.changed_claims: dict[Key, None] = {}
        self.publication = AdPublication()
        self._keys: list[str] | None = None

    def read(self, submitters: dict[str, Record], groups: dict[str, Record], claims: dict[Key, Claim]) -> None:
        """Hold these, which are as they were written, and nothing else."""
        self.submitters, self.groups, self.claims = submitters, groups, claims
        self.changed.clear()
        self.changed_groups.clear()
        self.changed_claims = {}
        self.newcomers.clear()
        self.using = {name: self.group(name) for name, one in submitters.items() if one.slots_in_use or one.in_use}
        self.ending = {name: first_end(record) for name, record in submitters.items() if record.temporary}
        self._keys = None

    def configure(self, factors: Factors, half_life: float, tree: GroupTree) -> None:
        """Take other settings. The records of groups are to be added up anew then."""
        self.factors, self.half_life = factors, half_life
        if tree != self.tree:
            self.tree, self._keys = tree, None
        self.newcomers.clear()
        self.using = {name: self.group(name) for name in self.using}

    def clock_set(self, seconds: float) -> None:
        """Hold all by a clock that was set by so many seconds. All is to be written, and at once: part of it by one
        clock and part by the other would be charged for what lies between them."""
        for name, record in self.submitters.items():
            self.put(name, clock_set(record, seconds), news=False)
        for key, record in self.groups.items():
            self.put_group(key, clock_set(record, seconds))
        for field, claim in self.claims.items():
            self.put_claim(field, claim.clock_set(seconds))

    def known(self, submitter: str) -> Record:
        """The record as it was last touched; of who was never seen, what it would be."""
        return self.submitters.get(submitter) or self.newcomers.get(submitter) or self.new(submitter)

    def new(self, submitter: str) -> Record:
        """What the record of who was never seen would be."""
        return Record(factor=self.factor(submitter))

    def newcomer(self, submitter: str) -> Record:
        """The record of who is not in the accounting records: known for as long as not too many others come."""
        record = self.newcomers.pop(submitter, None)
        if record is None:
            record = self.new(submitter)
            self._keys = None
            if len(self.newcomers) >= MOST_NEWCOMERS:
                forgotten = next(iter(self.newcomers))
                del self.newcomers[forgotten]
                self.publication.remove(forgotten)
        self.newcomers[submitter] = record  # the last one now
        return record

    def factor(self, submitter: str) -> float:
        return choose_factor(submitter, self.factors, self.tree.group_of(submitter))

    def group(self, submitter: str) -> Group:
        return self.tree.get(self.tree.group_of(submitter)) or self.tree.root

    def group_record(self, key: str, now: float) -> Record:
        """The record of a group as it was last touched; of one that has none, what it would be."""
        return self.groups.get(key) or self.new_group(key, now)

    def new_group(self, key: str, now: float) -> Record:
        return Record(factor=self.group_factor(key), updated=now, subtree_in_use=0.0)

    def group_factor(self, key: str) -> float:
        return dict(self.factors.groups).get(key, self.factors.default)

    def put(self, submitter: str, record: Record, *, news: bool = True) -> None:
        if submitter not in self.submitters:
            self.newcomers.pop(submitter, None)
            self._keys = None
        self.submitters[submitter] = record
        self.changed.add(submitter)
        if not record.slots_in_use and not record.in_use:
            self.using.pop(submitter, None)
        elif submitter not in self.using:
            self.using[submitter] = self.group(submitter)
        if record.temporary:
            self.ending[submitter] = first_end(record)
        else:
            self.ending.pop(submitter, None)
        if news:
            self.publication.change(submitter)

    def put_group(self, key: str, record: Record) -> None:
        self.groups[key] = record
        self.changed_groups.add(key)
        group = self.tree.get(key)
        if group is not None:
            self.publication.change(group.name)

    def forget(self, submitter: str) -> None:
        if self.submitters.pop(submitter, None) is not None:
            self.changed.add(submitter)
        self.using.pop(submitter, None)
        self.ending.pop(submitter, None)
        self._keys = None
        self.publication.remove(submitter)

    def forget_usual(self, submitter: str) -> None:
        if forgettable(self.submitters[submitter], self.factor(submitter)):
            self.forget(submitter)

    def use_by_group(self) -> tuple[dict[str, tuple[float, int]], dict[str, float]]:
        """What the submitters of each group use: weight and slots of its own; weight with all groups below it."""
        own: dict[str, tuple[float, int]] = {}
        below: dict[str, float] = {}
        for name, group in self.using.items():
            record = self.submitters[name]
            weighted, slots = own.get(group.key, (0.0, 0))
            own[group.key] = (weighted + record.in_use, slots + record.slots_in_use)
            for above in self.tree.upwards(group):
                if above.parent >= 0 or above is group:
                    below[above.key] = below.get(above.key, 0.0) + record.in_use
        return own, below

    def put_claim(self, key: Key, claim: Claim | None) -> None:
        """None: it is over, and need not be known any more."""
        self.changed_claims[key] = None
        if claim is None:
            self.claims.pop(key, None)
        else:
            self.claims[key] = claim

    def ordered_keys(self) -> list[str]:
        if self._keys is None:
            self._keys = sorted(self.unsorted_keys())
        return self._keys

    def unsorted_keys(self) -> set[str]:
        groups = {GROUP_KEY + group.key for group in self.tree.groups}
        return groups | {SUBMITTER_KEY + name for name in (*self.newcomers, *self.submitters)}

    def is_ordered(self) -> bool:
        """Whether `ordered_keys` would give what there is."""
        return self._keys is None or set(self._keys) == self.unsorted_keys()


def first_end(record: Record) -> float:
    """When the first of its changes for a while ends."""
    return min(one.until for one in record.temporary)
