"""Claims of an earlier life find their slots again, on a machine that is not quite the same any more."""

import pytest

from engine.slots.amounts import Amounts
from services.startd.core.journal_records import pack_claim, unpack_claim
from tests.spec import spec
from tests.unit.startd.states import MACHINE, ONE, PARTS, STATIC, TWO, Slots
from tests.unit.startd.test_claims import job


def restarted(slots, **machine):
    """Another life of the same startd, from what the journal keeps; what it said to each claim, by slot."""
    other = Slots(more=(TWO, PARTS), now=slots.now + 5, **machine)
    other.number = slots.number  # its requests are others
    said = {}
    for claim in slots.slot_manager.claims.values():
        kept, slot = unpack_claim(pack_claim(claim, slots.slot_manager.slots[claim.slot]))
        said[slot.name] = other.slot_manager.restore(kept, slot, other.now)
    other.slot_manager.resume(other.now)
    other.look()
    return other, said


@spec("SLT-31")
def test_a_disk_that_is_fuller_after_a_restart_costs_no_job_its_slot():
    slots = Slots(more=(TWO, PARTS))
    static, dynamic = slots.run(ONE), slots.run(PARTS)
    other, said = restarted(slots, static=Amounts(STATIC.of | {"Disk": 50}), machine=Amounts(MACHINE.of | {"Disk": 50}))
    assert said == {static.slot: "", dynamic.slot: ""}
    assert [other.at(slot) for slot in said] == ["Claimed/Busy"] * 2
    assert other.stops == []
    # The dynamic slot keeps what it was given; the partitionable one has nothing more to give.
    assert other.slot_manager.slots[dynamic.slot].total["Disk"] == slots.slot_manager.slots[dynamic.slot].total["Disk"]
    assert other.ask(PARTS).code == "resources"
    other.gone(other.slot_manager.claims[dynamic.claim_id])
    other.release(other.slot_manager.claims[dynamic.claim_id])
    assert other.slot_manager.slots[PARTS].free["Disk"] == 50


@spec("SLT-31")
@pytest.mark.parametrize("resource", ["Cpus", "Memory"])
def test_what_a_job_holds_must_still_be_there(resource):
    slots = Slots(more=(TWO, PARTS))
    static, dynamic = slots.run(ONE), slots.run(PARTS)
    held = slots.slot_manager.slots[dynamic.slot].total[resource]
    other, said = restarted(
        slots,
        static=Amounts(STATIC.of | {resource: STATIC[resource] - 0.5}),
        machine=Amounts(MACHINE.of | {resource: held - 0.5}),
    )
    assert not other.slot_manager.claims
    for slot, words in ((static.slot, STATIC[resource]), (dynamic.slot, held)):
        assert "is too small now" in said[slot]
        assert f"{resource} {words - 0.5:g} of {words:g}" in said[slot]
    assert other.slot_manager.slots[PARTS].free == other.slot_manager.slots[PARTS].total


@spec("SLT-31")
def test_a_smaller_machine_divides_what_its_jobs_leave():
    slots = Slots(more=(TWO, PARTS))
    claim = slots.run(PARTS, job(2))
    other, said = restarted(slots, machine=Amounts(MACHINE.of | {"Cpus": 3}))
    assert said == {claim.slot: ""}
    assert other.slot_manager.slots[PARTS].free["Cpus"] == 1
    bigger, said = restarted(slots, machine=Amounts(MACHINE.of | {"Cpus": 12}))
    assert said == {claim.slot: ""}
    assert bigger.slot_manager.slots[PARTS].free["Cpus"] == 10


@spec("SLT-31")
def test_devices_that_are_not_there_any_more_end_their_job_and_others_do_not():
    def with_devices(amounts, *ids):
        return Amounts(amounts.of | {"GPUs": len(ids)}, {"GPUs": ids})

    slots = Slots(more=(TWO, PARTS), machine=with_devices(MACHINE, "GPU-a", "GPU-b"))
    first, second = slots.run(PARTS, job(1, RequestGPUs=1)), slots.run(PARTS, job(1, RequestGPUs=1))
    assert slots.slot_manager.slots[first.slot].total.ids == {"GPUs": ("GPU-a",)}
    other, said = restarted(slots, machine=with_devices(MACHINE, "GPU-b", "GPU-c"))
    assert said == {
        first.slot: f"{PARTS} is too small now, after a restart with other resources: it has other GPUs",
        second.slot: "",
    }
    assert other.slot_manager.slots[PARTS].free.ids == {"GPUs": ("GPU-c",)}
