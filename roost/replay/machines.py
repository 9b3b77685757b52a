"""The slots of a replay: carved, given and freed as execution points do it, as far as a negotiator can see. No I/O.

A replay asks for thousands of cycles, so what they cost is kept small: a partitionable slot is shown anew once before
a cycle, however many jobs came and went; and where no cycle can take a slot from its user (`spares`), the table has no
dynamic slots. What they count for is added up here then, and of each weight that is in use there is one row, as the
lightest slot of a pool decides who still takes part in a spin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from engine.fairshare.priorities import Record
from engine.match.concurrency_limits import LimitConfig, LimitCounters
from engine.match.model import CycleConfig, Preempted, Request, Snapshot
from engine.match.slot_arrays import slot_weight
from engine.match.slot_table import SlotTable
from engine.slots.amounts import STANDARD, Amounts
from engine.slots.carving import Carving, Refusal, carve, show_free
from shared.classad import ClassAd, parse_expr
from shared.classad.expr import Expr, Literal
from shared.config.knobs import KNOBS
from shared.job_limits import parse

#: How execution points round requests by default.
CARVING: Final = Carving(
    {name: parse_expr(KNOBS[f"modify_request_expr_request{name.lower()}"].default or "undefined") for name in STANDARD}
)
K = TypeVar("K", str, float)
_DYNAMIC: Final = re.compile(r"(slot[0-9]+)_[0-9]+(@.*)?$")


@dataclass(slots=True)
class Parent:
    """A partitionable slot: what is left of it."""

    ad: ClassAd
    free: Amounts
    next: int = 1
    children: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Given:
    """A dynamic slot: what it has of its parent, and for whom. rank: what the slot's RANK says of its job."""

    slot: str
    got: Amounts
    submitter: str
    rank: float
    limits: str
    weight: float


class Machines:
    """Slots by name, in the resident table of a negotiator. `free`d ones change it; a cycle takes its snapshot."""

    def __init__(self, config: CycleConfig, *, spared: bool = False) -> None:
        """spared: no cycle takes a slot from its user, see `spares`."""
        self.table = SlotTable(config)
        self.parents: dict[str, Parent] = {}
        self.static: dict[str, ClassAd] = {}
        self._config = config
        self._spared = spared
        self._given: dict[str, _Given] = {}  # by dynamic slot
        self._changed: dict[str, None] = {}  # parents that the table does not show as they are, in order
        self._use: dict[str, list[float]] = {}  # of dynamic slots that are not in the table: submitter -> weight, slots
        self._weights: dict[float, int] = {}  # likewise: weight -> how many
        self._shown: set[float] = set()  # weights of which the table has a row
        self._limits: dict[str, int] = {}  # likewise: ConcurrencyLimits -> how many

    def offer(self, name: str, ad: ClassAd | None) -> list[str]:
        """A slot comes, changes, or is gone (None). Returns the slots whose jobs lose their place."""
        if ad is None:
            return self._withdraw(name)
        ad = ad.copy()
        ad.update({"Name": name, "State": "Unclaimed", "Activity": "Idle"})
        if ad.eval("PartitionableSlot") is True:
            known = self.parents.get(name)
            whole = _whole(ad)
            if known is None:
                self.parents[name] = Parent(ad, whole)
            else:
                used = _sum(self._given[child].got for child in known.children)
                known.ad, known.free = ad, whole.minus(used) if whole.holds(used) else Amounts()
            self._changed[name] = None
        else:
            taken = name in self.static and self.table.ads[name].eval("State") == "Claimed"
            self.static[name] = ad  # shown once it is free
            if not taken:
                self._put(name, ad)
        return []

    def claim(self, slot: str, job: ClassAd, submitter: str, now: float, limits: str = "") -> str | None:
        """Give a slot, or a part of it, to a job; the name of what it got. None: it does not fit. limits: what it takes
        of concurrency limits."""
        parent = self.parents.get(slot)
        if parent is None:
            ad = self.static.get(slot)
            if ad is None:
                return None
            self._put(slot, _used(ad, submitter, _rank(ad, job, now), limits))
            return slot
        got = carve(job, parent.ad, parent.free, CARVING)
        if isinstance(got, Refusal):
            return None
        head, at, host = slot.partition("@")
        name = f"{head}_{parent.next}{at}{host}"
        parent.next += 1
        parent.free = parent.free.minus(got)
        parent.children.add(name)
        given = _Given(slot, got, submitter, _rank(parent.ad, job, now), limits, 0.0)
        child = _child(name, parent.ad, given)
        given = self._given[name] = replace(given, weight=slot_weight(child, self._config))
        if self._spared:
            self._count(given, 1)
        else:
            self._put(name, child)
        self._changed[slot] = None
        return name

    def release(self, name: str) -> None:
        """The slot is free again; a dynamic one goes back into its parent."""
        if name in self.static:
            self._put(name, self.static[name])
            return
        given = self._given.pop(name, None)
        if given is None:
            return
        self._lose(name, given)
        parent = self.parents.get(given.slot)
        if parent is not None:
            parent.children.discard(name)
            parent.free = parent.free.plus(given.got)
            self._changed[given.slot] = None

    def ad(self, name: str) -> ClassAd | None:
        """A slot as it is now."""
        given = self._given.get(name)
        if given is not None:
            return _child(name, self.parents[given.slot].ad, given)
        parent = self.parents.get(name)
        return self.table.ads.get(name) if parent is None else _shown(parent)

    def weight(self, name: str) -> float:
        """What is charged for a slot that somebody uses."""
        given = self._given.get(name)
        return given.weight if given is not None else self.table.use(name)[1]

    def in_use(self) -> dict[str, tuple[float, int]]:
        """Submitter -> (weight, slots) that it uses."""
        use = self.table.in_use(self._config)
        for name, (weight, slots) in self._use.items():
            known = use.get(name, (0.0, 0))
            use[name] = (known[0] + weight, known[1] + int(slots))
        return use

    def snapshot(
        self,
        requests: Mapping[str, list[Request]],
        records: Mapping[str, Record],
        demand: Mapping[str, float],
        preempted: tuple[Preempted, ...],
        last_remainder: Mapping[str, float],
    ) -> Snapshot:
        """This moment, for a cycle."""
        for name in self._changed:
            self._put(name, _shown(self.parents[name]))
        self._changed.clear()
        for weight in self._weights.keys() - self._shown:
            told = {"State": "Claimed", "Activity": "Busy", "DynamicSlot": True, "SlotWeight": weight}
            self._put(_row_of(weight), ClassAd(told))
        for weight in self._shown - self._weights.keys():
            self._drop(_row_of(weight))
        self._shown = set(self._weights)
        found = self.table.snapshot(
            self._config, requests, records, demand=demand, preempted=preempted, last_remainder=last_remainder
        )
        if not self._spared:
            return found
        counters = LimitCounters(LimitConfig(), found.limits_in_use)
        for text, slots in self._limits.items():
            counters.take(parse(text), slots)
        more = sum(weight * (slots - 1) for weight, slots in self._weights.items())
        return replace(
            found, in_use=self.in_use(), total_weight=found.total_weight + more, limits_in_use=counters.in_use
        )

    def parent_of(self, name: str) -> str:
        """The slot whose part a recorded slot was; itself where it is whole."""
        found = _DYNAMIC.match(name)
        whole = f"{found.group(1)}{found.group(2) or ''}" if found else name
        return whole if whole in self.parents else name

    def _withdraw(self, name: str) -> list[str]:
        parent = self.parents.pop(name, None)
        if parent is not None:
            lost = sorted(parent.children)
            for child in lost:
                self._lose(child, self._given.pop(child))
            self._changed.pop(name, None)
        else:
            lost = [name] if self.static.pop(name, None) is not None else []
        self._drop(name)
        return lost

    def _lose(self, name: str, given: _Given) -> None:
        """A dynamic slot is no more."""
        if self._spared:
            self._count(given, -1)
        else:
            self._drop(name)

    def _count(self, given: _Given, slots: int) -> None:
        use = self._use.setdefault(given.submitter, [0.0, 0.0])
        use[0] += given.weight * slots
        use[1] += slots
        if use[1] <= 0:
            del self._use[given.submitter]
        _add(self._weights, given.weight, slots)
        if given.limits:
            _add(self._limits, given.limits, slots)

    def _put(self, name: str, ad: ClassAd) -> None:
        self.table.put(name, ad)
        self.table.claims[name] = name

    def _drop(self, name: str) -> None:
        if name in self.table.ads:
            self.table.drop(name)


def spares(config: CycleConfig, ads: Iterable[ClassAd]) -> bool:
    """Whether no cycle with these knobs can take one of these slots from its user, nor asks a slot that somebody uses
    anything but its weight: preemption by priority is off, and no RANK says more of one job than of another."""
    if config.force_slot_weight or config.poolsize_constraint is not None:
        return False
    if config.consider_preemption:
        asked = config.preemption_requirements
        if asked is not None and not (isinstance(asked, Literal) and asked.value is not True):
            return False
        return not any(isinstance(ad.find("rank"), Expr) for ad in ads)
    return True


def _row_of(weight: float) -> str:
    return f"dynamic slots of weight {weight!r}"


def _add(counts: dict[K, int], key: K, number: int) -> None:
    counts[key] = counts.get(key, 0) + number
    if not counts[key]:
        del counts[key]


def _rank(slot: ClassAd, job: ClassAd, now: float) -> float:
    """What a slot's RANK says of a job."""
    value = slot.eval("Rank", job, now)
    return float(value) if isinstance(value, int | float) else 0.0


def _shown(parent: Parent) -> ClassAd:
    """A partitionable slot as it offers what is left."""
    ad = parent.ad.copy()
    show_free(ad, parent.free)
    return ad


def _child(name: str, whole: ClassAd, given: _Given) -> ClassAd:
    child = _used(whole, given.submitter, given.rank, given.limits)
    child.update({"Name": name, "PartitionableSlot": False, "DynamicSlot": True, "SlotType": "Dynamic"})
    show_free(child, given.got)
    for resource in given.got:
        child[f"TotalSlot{resource}"] = given.got[resource]
    return child


def _whole(ad: ClassAd) -> Amounts:
    """All that a partitionable slot has, used or not."""
    words = ad.eval_string("MachineResources").split() or list(STANDARD)
    amounts: dict[str, int | float] = {}
    for word in dict.fromkeys((*words, *STANDARD)):
        total, now = ad.eval(f"TotalSlot{word}"), ad.eval(word)
        value = total if isinstance(total, int | float) and not isinstance(total, bool) else now
        if isinstance(value, int | float) and not isinstance(value, bool):
            amounts[word] = value
    return Amounts(amounts)


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    total = Amounts()
    for one in amounts:
        total = total.plus(one)
    return total


def _used(ad: ClassAd, submitter: str, rank: float, limits: str) -> ClassAd:
    found = ad.copy()
    found.update(
        {
            "State": "Claimed",
            "Activity": "Busy",
            "RemoteUser": submitter,
            "AccountingGroup": submitter,
            "RemoteOwner": submitter,
            "CurrentRank": rank,
        }
    )
    if limits:
        found["ConcurrencyLimits"] = limits
    return found
