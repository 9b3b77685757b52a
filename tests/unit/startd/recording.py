"""A slot manager for tests that look at what became of its slots after several operations: it collects the effects that
the operations return, and gives back their answers only. Every operation checks the invariants."""

from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.slot_manager import SlotManager
from services.startd.core.slots.slot_table import SlotTable

ANSWERING = {
    *("drain", "cancel_drain", "vacate_slot", "backfilled", "matched", "request", "activate", "vacate"),
    "suspend",
    *("restore", "restore_waiting"),
}
SILENT = {
    *("add_slots", "review", "off", "on", "sleep", "wake", "benchmarked", "backfill_gone", "run_gone"),
    *("restore_children", "restore_past", "restore_machine_orders", "resume"),
}


def check(find):
    assert not find()


class RecordedSlots:
    """See the module. `take_effects`: what was collected since this was asked last."""

    def __init__(self, *, ad_of, policy_of, new_secret, startd="node1", start_time=1, **more):
        self.table = SlotTable(startd, start_time, policy_of=policy_of, new_secret=new_secret)
        self.manager = SlotManager(self.table, ad_of=ad_of, check=check, **more)
        self.effects = SlotEffects()
        self.policy = self.table.policy
        self.dynamic_slots = self.table.dynamic_slots

    def __getattr__(self, name):
        found = getattr(self.manager, name)
        if name in ANSWERING:
            return lambda *args, **named: self._answer(*found(*args, **named))
        if name in SILENT:
            return lambda *args, **named: self._answer(None, found(*args, **named))
        return found

    def _answer(self, answer, effects):
        self.effects.add(effects)
        return answer

    def take_effects(self):
        effects, self.effects = self.effects, SlotEffects()
        return effects
