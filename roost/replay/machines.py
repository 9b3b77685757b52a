"""The slots of a replay: carved, given and freed as execution points do it, as far as a negotiator can see. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from services.negotiator.pool import CycleConfig
from services.negotiator.slot_table import SlotTable
from services.startd.book.amounts import STANDARD, Amounts
from services.startd.book.partition import Carving, Refusal, carve, show_free
from shared.classad import ClassAd, parse_expr
from shared.config.knobs import KNOBS

#: How execution points round requests by default.
CARVING: Final = Carving(
    {name: parse_expr(KNOBS[f"modify_request_expr_request{name.lower()}"].default or "undefined") for name in STANDARD}
)
_DYNAMIC: Final = re.compile(r"(slot[0-9]+)_[0-9]+(@.*)?$")


@dataclass(slots=True)
class Parent:
    """A partitionable slot: what is left of it."""

    ad: ClassAd
    free: Amounts
    next: int = 1
    children: set[str] = field(default_factory=set)


class Machines:
    """Slots by name, in the resident table of a negotiator. `free`d ones change it; a cycle takes its snapshot."""

    def __init__(self, config: CycleConfig) -> None:
        self.table = SlotTable(config)
        self.parents: dict[str, Parent] = {}
        self.static: dict[str, ClassAd] = {}
        self._given: dict[str, tuple[str, Amounts]] = {}  # dynamic slot -> its parent, what it has
        self._leaving: set[str] = set()  # parents and static slots that are gone, but in use

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
                used = _sum(self._given[child][1] for child in known.children)
                known.ad, known.free = ad, whole.minus(used) if whole.holds(used) else Amounts()
            self._show(name)
        else:
            known_static = self.static.get(name)
            self.static[name] = ad
            if known_static is None:
                self._put(name, ad)
        return []

    def claim(self, slot: str, job: ClassAd, submitter: str, rank: float = 0.0) -> str | None:
        """Give a slot, or a part of it, to a job; the name of what it got. None: it does not fit."""
        parent = self.parents.get(slot)
        if parent is None:
            ad = self.static.get(slot)
            if ad is None:
                return None
            self._put(slot, _used(ad, submitter, rank))
            return slot
        got = carve(job, parent.ad, parent.free, CARVING)
        if isinstance(got, Refusal):
            return None
        head, at, host = slot.partition("@")
        name = f"{head}_{parent.next}{at}{host}"
        parent.next += 1
        parent.free = parent.free.minus(got)
        parent.children.add(name)
        self._given[name] = (slot, got)
        child = _used(parent.ad, submitter, rank)
        child.update({"Name": name, "PartitionableSlot": False, "DynamicSlot": True, "SlotType": "Dynamic"})
        show_free(child, got)
        for resource in got:
            child[f"TotalSlot{resource}"] = got[resource]
        self._put(name, child)
        self._show(slot)
        return name

    def release(self, name: str) -> None:
        """The slot is free again; a dynamic one goes back into its parent."""
        if name in self.static:
            self._put(name, self.static[name])
            return
        found = self._given.pop(name, None)
        if found is None:
            return
        slot, got = found
        self._drop(name)
        parent = self.parents.get(slot)
        if parent is not None:
            parent.children.discard(name)
            parent.free = parent.free.plus(got)
            self._show(slot)

    def ad(self, name: str) -> ClassAd | None:
        """A slot as it is now."""
        return self.table.ads.get(name)

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
                self._given.pop(child, None)
                self._drop(child)
        else:
            lost = [name] if self.static.pop(name, None) is not None else []
        self._drop(name)
        return lost

    def _show(self, name: str) -> None:
        parent = self.parents[name]
        ad = parent.ad.copy()
        show_free(ad, parent.free)
        self._put(name, ad)

    def _put(self, name: str, ad: ClassAd) -> None:
        self.table.put(name, ad)
        self.table.claims[name] = name

    def _drop(self, name: str) -> None:
        if name in self.table.ads:
            self.table.drop(name)


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


def _used(ad: ClassAd, submitter: str, rank: float) -> ClassAd:
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
    return found
