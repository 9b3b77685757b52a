"""A book with its own clock, whose slots' policies look at attributes that tests flip, and every step of its slots."""

from engine.slots.amounts import Amounts
from engine.slots.carving import Carving, PlannedSlot, SlotKind
from services.startd.core.slots.requests import Accepted, Granted, Refused
from shared.classad import ClassAd, parse_expr
from tests.unit.startd.recording import RecordedSlots
from tests.unit.startd.test_claims import job, policy, request

ONE, TWO, PARTS = "slot1@node1", "slot2@node1", "slot3@node1"
STATIC = Amounts({"Cpus": 2, "Memory": 1000, "Disk": 10_000})
MACHINE = Amounts({"Cpus": 4, "Memory": 4000, "Disk": 50_000})
LIKED = "TARGET.Liked ?: 0"


class Slots:
    """Slot 1 is static; slot 2 too, and slot 3 partitionable, if they are wanted. `flip`: attributes of all ads."""

    def __init__(self, *, more=(), now=1000.0, policies=None, static=STATIC, machine=MACHINE, **rules):
        self.now = now
        self.flip = {"Flip": 0}
        self.rules = policies or {0: policy(**{"rank": LIKED} | rules)}
        self.number = 0
        self.steps, self.stops, self.suspensions = [], [], []
        self.ended, self.ready, self.completed = [], [], []
        secrets = iter(range(10**9))
        self.slot_manager = RecordedSlots(
            startd="node1",
            start_time=1,
            ad_of=self.ad_of,
            policy_of=lambda type_id: self.rules.get(type_id, self.rules[0]),
            carving=Carving({}),
            new_secret=lambda: f"secret{next(secrets)}",
        )
        registry = self.slot_manager.table
        move = registry.move

        def moving(slot, cause, at):
            before = slot.condition
            move(slot, cause, at)
            self.steps.append((slot.name, str(before), cause, str(slot.condition)))

        registry.move = moving
        plans = [PlannedSlot(1, 1, SlotKind.STATIC, static)]
        if TWO in more:
            plans.append(PlannedSlot(2, 2, SlotKind.STATIC, static))
        if PARTS in more:
            plans.append(PlannedSlot(3, 0, SlotKind.PARTITIONABLE, machine))
        self.slot_manager.add_slots(plans, self.now)
        self.look()

    def ad_of(self, slot):
        rules = self.slot_manager.policy(slot) if hasattr(self, "slot_manager") else self.rules[0]
        refuses = str(slot.state) in ("Matched", "Preempting")
        return ClassAd(
            {
                "Name": slot.name,
                "State": str(slot.state),
                "Activity": str(slot.activity),
                "EnteredCurrentActivity": int(slot.activity_since),
                "Requirements": False if refuses else parse_expr("START && WithinResourceLimits"),
                "WithinResourceLimits": True,
                "Now": int(self.now),
                "START": rules.start,
                **rules.shown,
                **self.flip,
                **(slot.free if slot.kind is SlotKind.PARTITIONABLE else slot.total),
            }
        )

    # -- what others do

    def ask(self, slot=ONE, ad=None, **fields):
        self.number += 1
        ad = ad or job()
        answer = self.slot_manager.request(request(self.slot_manager, slot, self.number, ad, **fields), ad, self.now)
        self.look()
        return answer

    def claim(self, slot=ONE, ad=None, **fields):
        answer = self.ask(slot, ad, **fields)
        assert isinstance(answer, Granted), answer
        return answer.claim

    def wait(self, slot=ONE, ad=None, **fields):
        answer = self.ask(slot, ad, **{"submitter": "bob"} | fields)
        assert isinstance(answer, Accepted), answer
        return answer.waiting.claim

    def start(self, claim, ad=None):
        self.number += 1
        ad = ad or job()
        answer = self.slot_manager.activate(claim.claim_id, f"{self.number}.0/1", ad.pack(), ad, self.now)
        self.look()
        return answer

    def run(self, slot=ONE, ad=None, **fields):
        """A claim with a job on it."""
        claim = self.claim(slot, ad, **fields)
        started = self.start(claim, ad)
        assert not isinstance(started, Refused), started
        return claim

    def gone(self, claim):
        self.slot_manager.run_gone(claim.claim_id, claim.run, self.now)
        self.look()

    def release(self, claim, *, graceful=True):
        self.slot_manager.vacate(claim.claim_id, "released", graceful=graceful, now=self.now)
        self.look()

    def after(self, seconds=0.0, **flips):
        self.now += seconds
        self.flip |= flips
        self.slot_manager.review(self.now)
        self.look()

    def drain(self, request_id="d1", **how):
        refused = self.slot_manager.drain(request_id, now=self.now, **how)
        self.look()
        return refused

    # -- what became of it

    def look(self):
        changes = self.slot_manager.take_effects()
        self.stops += [(stop.run, "kill" if stop.fast else "ask") for stop in changes.stops]
        self.suspensions += [one.suspended for one in changes.suspensions]
        self.ended += changes.ended
        self.ready += changes.ready
        self.completed += [changes.completed] if changes.completed else []

    def at(self, slot=ONE):
        return str(self.slot_manager.slots[slot].condition)

    def way(self, slot=ONE):
        """Conditions that a slot went through since this was asked last."""
        found = [after for name, _, _, after in self.steps if name == slot]
        self.steps = [step for step in self.steps if step[0] != slot]
        return found
