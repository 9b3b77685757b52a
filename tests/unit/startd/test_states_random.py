"""Whatever happens to a machine's slots in whatever order: resources add up, a slot has one job at most, who must leave
was told so, nobody waits for what will not come, and there is a way back to an idle machine.

`python -m tests.unit.startd.test_states_random 20000 80` runs so many examples of so many steps.
"""

import sys

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from engine.slots.amounts import Amounts
from engine.slots.carving import SlotKind
from services.startd.core.slots.drain import Completion, DrainMode, OffMode
from services.startd.core.slots.model import Urgency
from services.startd.core.slots.requests import Accepted, Granted, Refused
from services.startd.core.slots.transitions import Activity, State
from tests.unit.startd.states import MACHINE, ONE, PARTS, TWO, Slots
from tests.unit.startd.test_claims import job, policy

POLICIES = (
    {},
    {"max_job_retirement_time": "TARGET.Stay ?: 0", "machine_max_vacate_time": "20"},
    {"want_vacate": "false", "claim_worklife": "30"},
    {"max_job_retirement_time": "50", "machine_max_vacate_time": "5"},
)
#: What the expressions look at; the machine flips them.
FLIPS = {
    "preempt": "Preempt",
    "want_suspend": "Suspend",
    "suspend": "Suspend",
    "continue_": "!Suspend",
    "kill": "Kill",
    "is_owner": "Owner",
    "start": "!Closed",
    "want_hold": "Kill",
    "run_benchmarks": "Benchmarks",
    "start_backfill": "Fill",
    "evict_backfill": "!Fill",
}
NAMES = ("Preempt", "Suspend", "Kill", "Owner", "Closed", "Benchmarks", "Fill")


class Machine(RuleBasedStateMachine):
    @initialize(rules=st.sampled_from(POLICIES), whole=st.booleans())
    def begin(self, rules, whole):
        flips = {**FLIPS, "rank": "TARGET.Liked ?: 0"} | rules
        self.slots = Slots(policies={0: policy(**flips)}, more=(PARTS,) if whole else (TWO, PARTS))
        self.slots.flip |= dict.fromkeys(NAMES, False)
        self.slots.after(0)
        self.told = set()
        self.number = 0
        self.drains = 0

    # -- helpers

    @property
    def slot_manager(self):
        return self.slots.slot_manager

    def pick(self, data, of):
        return data.draw(st.sampled_from(sorted(of)))

    def expect(self, answer):
        assert isinstance(answer, Granted | Accepted) or answer.code in (
            "requirements", "resources", "busy", "unknown-claim", "draining",
        )  # fmt: skip

    # -- access points

    @rule(data=st.data(), cpus=st.integers(1, 5), liked=st.integers(0, 3), who=st.sampled_from("abc"), go=st.booleans())
    def ask(self, data, cpus, liked, who, go):
        ad = job(cpus, Liked=liked, Stay=liked * 30, Late=liked == 2)
        answer = self.slots.ask(self.pick(data, self.slot_manager.slots), ad, submitter=who)
        self.expect(answer)
        if isinstance(answer, Granted) and go:
            self.slots.start(answer.claim, ad)

    @rule(data=st.data(), cpus=st.integers(1, 4))
    def ask_for_parts(self, data, cpus):
        parts = [slot.name for slot in self.slot_manager.dynamic_slots(PARTS)]
        chosen = data.draw(st.lists(st.sampled_from(parts), unique=True, max_size=3)) if parts else []
        self.expect(self.slots.ask(PARTS, job(cpus, Liked=3), submitter="d", preempts=chosen))

    @rule(data=st.data())
    def notice(self, data):
        slot = self.slot_manager.slots[self.pick(data, self.slot_manager.slots)]
        self.slot_manager.matched(slot.name, slot.offer, 1, "", self.slots.now)

    @rule(data=st.data(), stay=st.integers(0, 3))
    def start(self, data, stay):
        if self.slot_manager.claims:
            claim = self.slot_manager.claims[self.pick(data, self.slot_manager.claims)]
            before = claim.run
            started = self.slots.start(claim, job(Liked=stay, Stay=stay * 30))
            assert isinstance(started, Refused) or not before

    @rule(data=st.data())
    def gone(self, data):
        runs = [key for key, claim in self.slot_manager.claims.items() if claim.run]
        if runs:
            self.slots.gone(self.slot_manager.claims[self.pick(data, runs)])

    @rule(data=st.data(), graceful=st.booleans())
    def release(self, data, graceful):
        ids = {*self.slot_manager.claims, *self.slot_manager.waiting}
        if ids:
            self.slot_manager.vacate(self.pick(data, ids), "released", graceful=graceful, now=self.slots.now)

    # -- the machine, its owner and its administrators

    @rule(name=st.sampled_from(NAMES), value=st.booleans())
    def flip(self, name, value):
        self.slots.after(1, **{name: value})

    @rule(seconds=st.sampled_from([0.0, 1.0, 10.0, 40.0, 130.0, 700.0]))
    def time(self, seconds):
        self.slots.after(seconds)
        look = self.slot_manager.next_look(self.slots.now)
        assert look is None or look > self.slots.now, self.slot_manager.slots

    @rule(
        how=st.sampled_from(DrainMode),
        completion=st.sampled_from(Completion),
        start=st.sampled_from(["", "TARGET.Late", "(", "true"]),
    )
    def drain(self, how, completion, start):
        self.drains += 1
        before = self.slot_manager.machine_orders.drain
        refused = self.slots.drain(f"d{self.drains}", how=how, completion=completion, start=start)
        assert (refused is None) == (before is None and start != "(")

    @rule(name=st.sampled_from(["", "d1", "d2"]))
    def cancel(self, name):
        self.slot_manager.cancel_drain(name, self.slots.now)

    @rule(how=st.sampled_from(OffMode))
    def off(self, how):
        self.slot_manager.off(how, self.slots.now)

    @rule()
    def on(self):
        self.slot_manager.on(self.slots.now)

    @rule(data=st.data(), graceful=st.booleans(), everything=st.booleans())
    def vacate(self, data, graceful, everything):
        name = "" if everything else self.pick(data, self.slot_manager.slots)
        self.slot_manager.vacate_slot(name, graceful=graceful, now=self.slots.now)

    @rule(data=st.data(), what=st.sampled_from(["backfilled", "backfill_gone", "benchmarked"]))
    def chore(self, data, what):
        getattr(self.slot_manager, what)(self.pick(data, self.slot_manager.slots), self.slots.now)

    # -- what always holds

    @invariant()
    def resources_add_up(self):
        parent = self.slot_manager.slots[PARTS]
        used = Amounts()
        for slot in self.slot_manager.dynamic_slots(PARTS):
            used = used.plus(slot.total)
        for waiting in self.slot_manager.waiting.values():
            used = used.plus(waiting.reserved)
        assert parent.free.plus(used) == MACHINE
        assert all(amount >= 0 for amount in parent.free.values())

    @invariant()
    def claims_and_slots_agree(self):
        manager = self.slot_manager
        held = [slot.claim for slot in manager.slots.values() if slot.claim is not None]
        assert {id(claim) for claim in held} == {id(claim) for claim in manager.claims.values()}
        assert len(held) == len(manager.claims)
        runs = [claim.run for claim in held if claim.run]
        assert len(runs) == len(set(runs))
        for slot in manager.slots.values():
            claim = slot.claim
            assert (claim is not None) == (slot.state in (State.CLAIMED, State.PREEMPTING)), slot
            assert claim is None or slot.kind is not SlotKind.PARTITIONABLE
            assert slot.kind is not SlotKind.DYNAMIC or claim is not None
            if claim is not None:
                assert bool(claim.run) == (slot.activity is not Activity.IDLE), slot
                assert (claim.suspended_at > 0) == (slot.activity is Activity.SUSPENDED), slot
                assert slot.offer == "" or slot.state is State.CLAIMED
            else:
                assert slot.offer, slot
            if slot.state is State.PREEMPTING:
                assert claim.end_reason, slot
        ids = [*manager.offers().values(), *manager.claims, *manager.waiting]
        assert len(ids) == len(set(ids))
        assert manager.table.benchmarking == sum(s.activity is Activity.BENCHMARKING for s in manager.slots.values())
        assert manager.table.requests.keys() == {
            claim.request_id for claim in (*manager.claims.values(), *(one.claim for one in manager.waiting.values()))
        }

    @invariant()
    def who_waits_waits_for_something(self):
        waits = {name: key for key, waiting in self.slot_manager.waiting.items() for name in waiting.victims}
        assert waits == {slot.name: slot.waiting for slot in self.slot_manager.slots.values() if slot.waiting}
        for waiting in self.slot_manager.waiting.values():
            assert waiting.victims
            for slot in (self.slot_manager.slots[name] for name in waiting.victims):
                assert slot.state is State.BACKFILL or slot.claim.run, slot
            if waiting.wanted is not None:
                assert not waiting.reserved.holds(waiting.wanted)

    @invariant()
    def who_must_leave_was_told(self):
        self.slots.look()
        self.told |= set(self.slots.stops)
        for slot in self.slot_manager.slots.values():
            if slot.state is State.PREEMPTING:
                assert (slot.claim.run, "kill" if slot.activity is Activity.KILLING else "ask") in self.told

    @invariant()
    def an_emptied_machine_lends_nothing_and_another_is_not_drained(self):
        machine_orders = self.slot_manager.machine_orders
        for slot in self.slot_manager.slots.values():
            if not machine_orders.emptying:
                assert slot.state is not State.DRAINED, slot
            else:
                assert slot.state not in (State.OWNER, State.UNCLAIMED, State.MATCHED), slot
            if slot.claim is not None and slot.claim.while_draining:
                assert machine_orders.drain is not None
        if machine_orders.drained:
            assert all(str(slot.condition) == "Drained/Idle" for slot in self.slot_manager.slots.values())
        assert machine_orders.unclaimed >= 0
        assert machine_orders.badput >= 0

    @invariant()
    def suspensions_alternate(self):
        stands = sum(1 if one else -1 for one in self.slots.suspensions)
        assert stands >= sum(slot.activity is Activity.SUSPENDED for slot in self.slot_manager.slots.values())

    def teardown(self):
        """There is a way back: orders are withdrawn, jobs end, and the machine is idle again."""
        if not hasattr(self, "slots"):
            return
        slots, manager = self.slots, self.slot_manager
        slots.flip |= dict.fromkeys(NAMES, False)
        manager.on(slots.now)
        manager.cancel_drain("", slots.now)
        for claim_id in [*manager.waiting, *manager.claims]:
            manager.vacate(claim_id, "the end", graceful=False, now=slots.now)
        for claim in list(manager.claims.values()):
            assert claim.urgency is Urgency.KILL
            slots.gone(claim)
        for slot in list(manager.slots.values()):
            manager.backfill_gone(slot.name, slots.now)
            manager.benchmarked(slot.name, slots.now)
        slots.after(1000)
        assert {str(slot.condition) for slot in manager.slots.values()} == {"Unclaimed/Idle"}
        assert manager.slots[PARTS].free == MACHINE
        assert not manager.waiting
        assert not manager.claims
        assert ONE in manager.slots


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestMachine = Machine.TestCase

if __name__ == "__main__":
    examples, steps = (int(word) for word in sys.argv[1:3])
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
