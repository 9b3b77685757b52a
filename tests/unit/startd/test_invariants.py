"""What contradicts itself in a slot table is found, whichever way it came about."""

import pytest

from engine.slots.amounts import Amounts
from services.startd.core.slots.slot_table import SlotTable
from services.startd.core.slots.transitions import Activity, Condition, State
from tests.unit.startd.states import ONE, PARTS, TWO, Slots
from tests.unit.startd.test_claims import job


def full() -> Slots:
    """A slot with a run for which a better claim waits, an idle one, and a partitionable one with a dynamic slot."""
    slots = Slots(more=(TWO, PARTS))
    slots.run(ONE)
    slots.wait(ONE, job(Liked=1))
    slots.run(PARTS)
    assert slots.slot_manager.check_invariants() == []
    return slots


def child(table: SlotTable):
    return next(slot for slot in table.slots.values() if slot.parent)


def forget_the_claim(table):
    table.slots[ONE].claim = None


def unlist_the_claim(table):
    del table.claims[table.slots[ONE].claim.claim_id]


def claim_an_idle_slot(table):
    table.slots[TWO].claim = table.slots[ONE].claim


def lose_the_run(table):
    child(table).claim.run = ""


def offer_twice(table):
    table.slots[TWO].offer = table.slots[PARTS].offer


def give_too_much(table):
    table.slots[PARTS].free = table.slots[PARTS].free.plus(Amounts({"Cpus": 1}))


def give_what_is_not_there(table):
    parent = table.slots[PARTS]
    child(table).total = child(table).total.plus(parent.total)
    parent.free = parent.free.minus(parent.total)


def unlist_the_slot(table):
    del table.slots[child(table).name]


def orphan_the_slot(table):
    child(table).parent = TWO


def forget_the_victim(table):
    table.slots[ONE].waiting = ""


def wait_for_nothing(table):
    (waiting,) = table.waiting.values()
    waiting.victims.clear()


def unlist_the_waiting(table):
    table.waiting.clear()


def forget_an_answer(table):
    table.requests.popitem()


def count_wrongly(table):
    table.benchmarking += 1


def idle_without_end(table):
    table.slots[TWO].condition = Condition(State.CLAIMED, Activity.IDLE)


def stand_still(table):
    table.slots[ONE].condition = Condition(State.CLAIMED, Activity.SUSPENDED)


@pytest.mark.parametrize(
    "spoil",
    [
        forget_the_claim,
        unlist_the_claim,
        claim_an_idle_slot,
        lose_the_run,
        offer_twice,
        give_too_much,
        give_what_is_not_there,
        unlist_the_slot,
        orphan_the_slot,
        forget_the_victim,
        wait_for_nothing,
        unlist_the_waiting,
        forget_an_answer,
        count_wrongly,
        idle_without_end,
        stand_still,
    ],
)
def test_every_contradiction_is_found(spoil):
    slots = full()
    spoil(slots.slot_manager.table)
    assert slots.slot_manager.check_invariants()


def test_an_operation_that_leaves_a_contradiction_fails_under_tests():
    slots = full()
    forget_an_answer(slots.slot_manager.table)
    with pytest.raises(AssertionError):
        slots.slot_manager.review(slots.now)
