"""The slots' ads as they are now: made when somebody asks, and kept as long as they are true.

An ad is stale when its slot has changed, when the sample of the machine's load and disk is old, or when a sibling that
it tells of (STARTD_SLOT_ATTRS) has changed. No I/O of its own: `sample` looks at the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from engine.slots.carving import SlotKind
from services.startd.ads import slot_ads
from services.startd.ads.ad_layers import AdLayers
from services.startd.ads.child_lists import ChildLists
from services.startd.ads.claim_ads import sibling_attributes
from services.startd.ads.drain_ads import drain_attributes
from services.startd.core.machine.detected import Sample
from services.startd.core.slots.drain import ExpectedDrain, expected_drain
from services.startd.core.slots.model import Slot
from services.startd.core.slots.slot_table import SlotTable
from services.startd.settings import Settings
from shared.classad import ClassAd, Expr, unparse

#: How old a sample of load and disk may be when an ad is made, seconds.
SAMPLE_S = 5.0
_NO_CHILDREN = ChildLists()


class AdCache:
    """Makes and keeps the ads. `now` is the wall clock, `monotonic` one that never steps back; seconds."""

    def __init__(
        self,
        table: SlotTable,
        machine: slot_ads.MachineInfo,
        *,
        sample: Callable[[], Sample],
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.machine = machine
        self.base = slot_ads.machine_ad(machine)
        self._table = table
        self._sample_now = sample
        self._now = now
        self._monotonic = monotonic
        self._sample = Sample()
        self._sampled = float("-inf")
        self._ads: dict[str, tuple[int, ClassAd]] = {}  # by slot, with the version it shows
        self._layers = AdLayers()
        self._children: dict[str, ChildLists] = {}  # by partitionable slot
        self._sources: dict[str, Callable[[Slot], Mapping[str, object]]] = {}
        self._on_top: dict[str, Callable[[Slot, ClassAd], Mapping[str, object]]] = {}
        self._siblings: tuple[int, dict[str, Expr]] = (-1, {})  # after which version of the table
        #: What draining would cost: after which version of the table, and when, that was looked at.
        self._expected: tuple[int, float, ExpectedDrain | None] = (-1, 0.0, None)
        self._siblings_told = self._siblings[1]  # as `siblings_changed` saw them last

    def ad_of(self, slot: Slot) -> ClassAd:
        """The ad of a slot as it is now."""
        self.refresh()
        siblings = self._sibling_attributes()
        version, ad = self._ads.get(slot.name, (-1, None))
        if ad is None or version != slot.version:
            ad = self._make(slot, siblings)
            if slot.name in self._table.slots:
                self._ads[slot.name] = (slot.version, ad)
        return ad

    @property
    def sample(self) -> Sample:
        """The machine as it was last looked at."""
        return self._sample

    def refresh(self) -> None:
        """Look at the machine again, if the last look was long ago."""
        mono = self._monotonic()
        if mono - self._sampled > SAMPLE_S:
            self._sample, self._sampled = self._sample_now(), mono
            self.renew()

    def renew(self) -> None:
        """Make all ads anew when they are asked for next."""
        self._ads.clear()

    def forget(self, slot_name: str) -> None:
        """A slot is gone, or something that its ad tells has changed."""
        self._ads.pop(slot_name, None)
        if slot_name not in self._table.slots:
            self._layers.forget(slot_name)
            self._children.pop(slot_name, None)

    def add_source(self, name: str, attributes_of: Callable[[Slot], Mapping[str, object]]) -> None:
        """What a part of the startd says of each slot, whenever an ad is made: must be quick. Sources of later names
        win. `forget` or `renew` ads whose source says something else."""
        self._sources[name] = attributes_of
        self._sources = dict(sorted(self._sources.items()))

    def add_on_top(self, name: str, attributes_of: Callable[[Slot, ClassAd], Mapping[str, object]]) -> None:
        """Like a source, but it sees the ad as it is without it, and wins over what is there."""
        self._on_top[name] = attributes_of
        self._on_top = dict(sorted(self._on_top.items()))

    def adopt(self, settings: Settings) -> None:
        """Go by these settings."""
        self.machine = replace(self.machine, settings=settings)
        self.base = slot_ads.machine_ad(self.machine)
        self._layers = AdLayers()
        self.renew()

    def siblings_changed(self) -> bool:
        """Whether what all slots show of each other is not what it was when this was asked last."""
        before, self._siblings_told = self._siblings_told, self._sibling_attributes()
        return self._siblings_told is not before

    def _sibling_attributes(self) -> dict[str, Expr]:
        names = self.machine.settings.sibling_attributes
        after, known = self._siblings
        if names and after != self._table.version:
            plain = {slot.name: self._make(slot, {}) for slot in self._table.slots.values()}
            found = sibling_attributes(plain, names)
            if {name: unparse(expr) for name, expr in found.items()} != {n: unparse(e) for n, e in known.items()}:
                known = found
                self.renew()
            self._siblings = (self._table.version, known)
        return known

    def _draining(self, slot: Slot) -> Mapping[str, object]:
        """What draining would cost is looked at once for all slots, as long as nothing changes."""
        now = self._now()
        after, looked, found = self._expected
        if found is None or after != self._table.version or abs(now - looked) > SAMPLE_S:
            aligned = self.machine.settings.drain_aligned
            found = expected_drain(self._table.slots.values(), now, aligned=aligned)
            self._expected = self._table.version, now, found
        return drain_attributes(self._table.machine_orders, found, slot)

    def _make(self, slot: Slot, siblings: dict[str, Expr]) -> ClassAd:
        waiting = self._table.waiting.get(slot.waiting)
        partitionable = slot.kind is SlotKind.PARTITIONABLE
        others = slot_ads.RelatedSlots(
            dynamic=self._table.dynamic_slots(slot.name) if partitionable else (),
            slot_count=len(self._table.slots),
            layers=self._layers,
            children=self._children.setdefault(slot.name, ChildLists()) if partitionable else _NO_CHILDREN,
            waiting=waiting.claim if waiting is not None else None,
            siblings=siblings,
            parts=[self._draining(slot), *(attributes_of(slot) for attributes_of in self._sources.values())],
            on_top=[partial(attributes_of, slot) for attributes_of in self._on_top.values()],
        )
        return slot_ads.slot_ad(
            self.base, slot, self._sample, self.machine, others, self._now(), self._table.policy(slot)
        )
