"""Carries out what operations of the slot manager mean: journal, leases, runs, events, ads.

Whoever calls an operation gives the effects it returns to `carry_out`, before it answers: what is written down is
written before it is answered.
"""

from __future__ import annotations

from engine.slots.carving import SlotKind
from services.startd.ads.ad_cache import AdCache
from services.startd.background import Wakeups
from services.startd.core import journal_records
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.model import Claim
from services.startd.core.slots.slot_manager import SlotManager
from services.startd.core.slots.transitions import Activity, State
from services.startd.journal_writer import JournalWriter
from services.startd.lease_keeper import LeaseKeeper
from services.startd.observers import Observer
from services.startd.publisher import Publisher
from services.startd.run_table import RunTable
from shared.daemon.context import Context

#: Activities that time ends.
_PASSING = (Activity.RETIRING, Activity.VACATING, Activity.KILLING)


class EffectsDispatcher:
    """Carries out effects. observers: they hear of every change, after it is carried out."""

    def __init__(
        self,
        context: Context,
        *,
        slot_manager: SlotManager,
        leases: LeaseKeeper,
        journal_writer: JournalWriter,
        run_table: RunTable,
        publisher: Publisher,
        ads: AdCache,
        wakeups: Wakeups,
        observers: list[Observer],
    ) -> None:
        self._context = context
        self._slot_manager = slot_manager
        self._leases = leases
        self._journal_writer = journal_writer
        self._run_table = run_table
        self._publisher = publisher
        self._ads = ads
        self._wakeups = wakeups
        self._observers = observers
        self._shown: dict[str, tuple[object, ...]] = {}  # by slot: what others act on, as last given out
        self._children: dict[str, int] = {}  # by partitionable slot: what the journal knows

    def leased(self, claim: Claim, first_s: float = 0.0) -> None:
        """Begin the lease of this claim anew. first_s: as `LeaseKeeper.grant` has it."""
        self._leases.grant(claim, first_s)
        self._wakeups.lease_granted.set()

    def carry_out(self, effects: SlotEffects) -> None:
        if not effects:
            self._journal_writer.write()
            return
        urgent = self._note(effects)
        self._journal_writer.write()
        for suspension in effects.suspensions:
            self._run_table.suspend(suspension)
        for stop in effects.stops:
            self._run_table.stop(stop)
        for ended in effects.ended:
            self._publisher.claim_ended(ended.claim, ended.reason)
            # Its schedd is told, if it does not learn it from the end of a run.
            if ended.broken and not self._run_table.of_claim(ended.claim.claim_id):
                self._publisher.lost(ended.claim.schedd, ended.claim.slot, ended.claim.claim_id, ended.reason)
        for claim in effects.ready:
            self.leased(claim)
            self._publisher.claim_made(claim)
            self._context.log.info("claim_ready", slot=claim.slot, schedd=claim.schedd)
            self._publisher.ready(claim)
        for name in effects.gone:
            self._ads.forget(name)
            self._shown.pop(name, None)
        others = self._slot_manager.slots if self._ads.siblings_changed() else ()
        self._publisher.changed({*effects.slots, *others}, effects.gone, urgent=urgent)
        for observer in self._observers:
            observer.on_changes(effects)

    def _note(self, effects: SlotEffects) -> bool:
        """Put what is to be written down, and end leases of claims that are gone. True when the pool should hear of
        the effects at once: somebody may act on them."""
        manager, put = self._slot_manager, self._journal_writer.put
        urgent = bool(effects.gone) or effects.machine_orders
        if effects.machine_orders:
            put("steering", "machine", manager.machine_orders.pack())
        for claim_id, claim in effects.claims.items():
            if claim is not None and manager.claims.get(claim_id) is claim:
                put("claims", claim_id, journal_records.pack_claim(claim, manager.slots[claim.slot]))
            else:
                self._leases.drop(claim_id)
                put("claims", claim_id, None)
        for claim_id, waiting in effects.waiting.items():
            put("waiting", claim_id, None if waiting is None else journal_records.pack_waiting(waiting))
            if waiting is None and claim_id not in manager.claims:
                self._leases.drop(claim_id)
        for name in effects.slots:
            slot = manager.slots.get(name)
            if slot is None:
                continue
            partitionable = slot.kind is SlotKind.PARTITIONABLE
            if partitionable and self._children.get(name) != slot.children:
                self._children[name] = slot.children
                put("offers", name, {"children": slot.children})
            if (effects.ended or effects.clock_set) and slot.past:
                put("past", name, journal_records.pack_past(slot.past))
            shown = (slot.state, slot.offer, slot.waiting, slot.asked, slot.free if partitionable else None)
            if self._shown.get(name) != shown:
                self._shown[name] = shown
                urgent = True
            if slot.activity in _PASSING or slot.state is State.MATCHED:
                self._wakeups.review_rescheduled.set()
        if not self._wakeups.polling and manager.in_use:
            self._wakeups.review_rescheduled.set()  # claimed slots are looked at more often (STM-42)
        return urgent
