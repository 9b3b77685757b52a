"""Dividing a machine and carving slots."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.slots.amounts import Amounts
from engine.slots.carving import Carving, Refusal, SlotKind, carve
from services.startd.core.machine.slot_types import ImpossiblePartition, divide, read_shares, slot_types
from services.startd.core.slots.model import Slot
from shared.classad import ClassAd, parse_expr
from shared.config.evaluate import number
from tests.spec import spec

MACHINE = Amounts({"Cpus": 8, "Memory": 16000, "Disk": 1_000_000})
ROUNDING = Carving(
    {
        "Cpus": parse_expr("quantize(RequestCpus, {1})"),
        "Memory": parse_expr("quantize(RequestMemory, {128})"),
        "Disk": parse_expr("quantize(RequestDisk, {1024})"),
    }
)


def slots(machine=MACHINE, **macros):
    custom = [name for name in machine if name not in ("Cpus", "Memory", "Disk")]
    return divide(machine, slot_types(macros.get, number, int(machine["Cpus"]), custom))


def column(planned, name):
    return [slot.amounts[name] for slot in planned]


def test_by_default_one_partitionable_slot_has_everything():
    (slot,) = slots()
    assert (slot.slot_id, slot.kind, slot.amounts) == (1, SlotKind.PARTITIONABLE, MACHINE)


@pytest.mark.parametrize(
    ("shares", "count", "cpus", "memory"),
    [
        ("cpus=2, memory=25%, disk=1/4", 4, 2, 4000),
        ("1/4", 4, 2, 4000),
        ("25%", 2, 2, 4000),
        ("auto", 3, 2, 5333),
        ("", 8, 1, 2000),
        ("c=2; m=1000 auto", 2, 2, 1000),
        ("ram=100", 2, 4, 100),
        ("cpus=1, disk=auto, 50%", 2, 1, 8000),
        ("cpus=1.5", 2, 1, 8000),
        ("mem=0", 2, 4, 1),
        ("cpus=0", 2, 1, 8000),
        ("cpus=many", 2, 1, 8000),
        ("cpus=-1", 2, 4, 8000),
        ("cpus = 2\nmemory = 1000\n", 2, 2, 1000),
    ],
)
def test_shares_in_all_forms(shares, count, cpus, memory):
    planned = slots(NUM_SLOTS_TYPE_1=str(count), SLOT_TYPE_1=shares)
    assert column(planned, "Cpus") == [cpus] * count
    assert column(planned, "Memory") == [memory] * count
    assert {slot.kind for slot in planned} == {SlotKind.STATIC}
    assert [slot.slot_id for slot in planned] == list(range(1, count + 1))


def test_types_may_be_mixed_and_autos_share_what_is_left():
    planned = slots(
        NUM_SLOTS_TYPE_1="1",
        SLOT_TYPE_1="cpus=2, memory=1000",
        NUM_SLOTS_TYPE_2="2",
        SLOT_TYPE_2_PARTITIONABLE="true",
    )
    assert column(planned, "Cpus") == [2, 3, 3]
    assert column(planned, "Memory") == [1000, 7500, 7500]
    assert [slot.kind for slot in planned] == [
        SlotKind.STATIC,
        SlotKind.PARTITIONABLE,
        SlotKind.PARTITIONABLE,
    ]


def test_the_rest_of_a_custom_resource_goes_to_the_first_slots():
    planned = slots(Amounts({**MACHINE.of, "Licences": 16}), NUM_SLOTS_TYPE_1="3")
    assert column(planned, "Licences") == [6, 5, 5]
    assert column(planned, "Cpus") == [2, 2, 2]


def test_more_slots_than_cores_are_not_made():
    assert len(slots(NUM_SLOTS="20")) == 8
    assert slots(NUM_SLOTS="0") == []


@pytest.mark.parametrize(
    "macros",
    [
        {"NUM_SLOTS_TYPE_1": "9"},
        {"NUM_SLOTS_TYPE_1": "2", "SLOT_TYPE_1": "cpus=5"},
        {"NUM_SLOTS_TYPE_1": "3", "SLOT_TYPE_1": "40%"},
        {"NUM_SLOTS_TYPE_1": "-1"},
        {"NUM_SLOTS_TYPE_1": "some"},
        {"NUM_SLOTS_TYPE_1": "1", "SLOT_TYPE_1": "disk=100"},
        {"NUM_SLOTS_TYPE_1": "1", "SLOT_TYPE_1": "cpus = 2"},
        {"NUM_SLOTS_TYPE_1": "1", "SLOT_TYPE_1": "bananas=2"},
        {"NUM_SLOTS_TYPE_1": "1", "SLOT_TYPE_1": "1/0"},
    ],
)
def test_impossible_configurations_are_refused(macros):
    with pytest.raises(ImpossiblePartition):
        slots(**macros)


def test_the_last_of_slots_that_were_rounded_up_has_what_is_left():
    """10 slots of 4.9 cores, which count as 5, are not 50 of 49."""
    for counts in ((4, 6), (10, 0)):
        macros = {f"NUM_SLOTS_TYPE_{n}": str(count) for n, count in enumerate(counts, 1)}
        machine = Amounts({"Cpus": 49, "Memory": 49_000, "Disk": 1000})
        planned = slots(machine, **macros, SLOT_TYPE_1="10%", SLOT_TYPE_2="10%")
        assert column(planned, "Cpus") == [5] * 9 + [4]


@example(49, 1000, [(4, "10%"), (6, "10%")])
@given(
    st.integers(1, 64),
    st.integers(1, 200_000),
    st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from(["", "auto", "1/8", "10%", "cpus=1", "mem=100"])),
        max_size=3,
    ),
)
def test_slots_never_hold_more_than_the_machine(cpus, memory, types):
    machine = Amounts({"Cpus": cpus, "Memory": memory, "Disk": 1000, "GPUs": 5})
    macros = {}
    for n, (count, shares) in enumerate(types, 1):
        macros |= {f"NUM_SLOTS_TYPE_{n}": str(count), f"SLOT_TYPE_{n}": shares}
    try:
        planned = slots(machine, **macros)
    except ImpossiblePartition:
        return
    for name in machine:
        rounded_up = len(planned) if name == "Disk" else 0  # KiB: a slot's share of the disk is
        assert sum(column(planned, name)) <= machine[name] + rounded_up
    assert all(slot.amounts["Cpus"] >= 1 and slot.amounts["Memory"] >= 1 for slot in planned)


def job(**attrs):
    return ClassAd({"RequestCpus": 1, "RequestMemory": 2048, "RequestDisk": 20_480} | attrs)


def test_requests_are_rounded_up_and_what_is_left_stays():
    free = Amounts({"Cpus": 3, "Memory": 10_240, "Disk": 102_400})
    given_ = carve(job(RequestMemory=2000), ClassAd(), free, ROUNDING)
    assert given_ == Amounts({"Cpus": 1, "Memory": 2048, "Disk": 20_480 + 1024})
    assert free.minus(given_) == Amounts({"Cpus": 2, "Memory": 8192, "Disk": 80_896})


def test_a_rounded_request_that_does_not_fit_falls_back_to_the_plain_one():
    free = Amounts({"Cpus": 1, "Memory": 2000, "Disk": 102_400})
    assert carve(job(RequestMemory=1990), ClassAd(), free, ROUNDING)["Memory"] == 1990
    must = Carving(ROUNDING.modify, must_modify=True)
    assert isinstance(carve(job(RequestMemory=1990), ClassAd(), free, must), Refusal)


@spec("SLT-10")
@pytest.mark.parametrize("asked", ["0", "-1", "-0.5", "false", "NoSuchThing", '"none"', "1/0"])
def test_a_dynamic_slot_has_a_core_and_memory_whatever_is_asked(asked):
    """A slot without a core, or without memory, accepts no job: not even the one that it was carved for."""
    free = Amounts({"Cpus": 3, "Memory": 10_240, "Disk": 102_400, "GPUs": 2})
    asking = job(**{f"Request{name}": parse_expr(asked) for name in ("Cpus", "Memory", "Disk", "GPUs")})
    slot = carve(asking, ClassAd(), free, Carving({}))
    assert (slot["Cpus"], slot["Memory"], slot["GPUs"]) == (1, 1, 0)
    rounded = carve(asking, ClassAd(), free, ROUNDING)
    assert (rounded["Cpus"], rounded["Memory"]) == (1, 128)
    full = free.minus(Amounts({"Cpus": 3}))
    assert isinstance(carve(asking, ClassAd(), full, ROUNDING), Refusal)


@pytest.mark.parametrize("name", ["Cpus", "Memory", "Disk", "GPUs"])
def test_what_does_not_fit_is_named(name):
    free = Amounts({"Cpus": 2, "Memory": 4096, "Disk": 102_400, "GPUs": 1})
    refused = carve(job(**{f"Request{name}": 1_000_000}), ClassAd(), free, ROUNDING)
    assert isinstance(refused, Refusal)
    assert name in refused.reason


def test_an_expression_that_gives_less_than_asked_is_no_slot():
    free = Amounts({"Cpus": 8, "Memory": 4096, "Disk": 102_400})
    assert isinstance(carve(job(RequestCpus=4), ClassAd(), free, Carving({"Cpus": parse_expr("1")})), Refusal)


def test_shares_are_named_by_any_prefix():
    for text in ("c=1", "CPU=1", "cpus=1"):
        parts, _ = read_shares(text, (), "SLOT_TYPE_1")
        assert parts["Cpus"].amount == 1


@pytest.mark.parametrize(
    ("macros", "names"),
    [
        ({}, ["slot1@node1"]),
        ({"STARTD_RESOURCE_PREFIX": "vm"}, ["vm1@node1"]),
        ({"STARTD_RESOURCE_PREFIX": ""}, ["slot1@node1"]),
        ({"SLOT_TYPE_0_NAME_PREFIX": "whole_"}, ["whole_1@node1"]),
        (
            {
                "STARTD_RESOURCE_PREFIX": "vm",
                "SLOT_TYPE_2_NAME_PREFIX": "big-",
                "SLOT_TYPE_1": "cpus=1",
                "NUM_SLOTS_TYPE_1": "2",
                "SLOT_TYPE_2": "cpus=6",
                "NUM_SLOTS_TYPE_2": "1",
                "SLOT_TYPE_2_PARTITIONABLE": "true",
            },
            ["vm1@node1", "vm2@node1", "big-3@node1"],
        ),
    ],
)
def test_names_of_slots_begin_with_STARTD_RESOURCE_PREFIX_or_that_of_their_type(macros, names):
    made = [Slot.planned(plan, "node1", 0.0) for plan in slots(**macros)]
    assert [slot.name for slot in made] == names
    made[-1].children = 4
    assert Slot.carved(made[-1], Amounts({"Cpus": 1}), 0.0).name == names[-1].replace("@", "_4@")


@pytest.mark.parametrize("prefix", ["3d", "node1", "a@b", "a b", "-x", "x" * 65])
def test_a_prefix_that_is_no_word_is_refused(prefix):
    """With digits nobody could tell the slot's number."""
    with pytest.raises(ImpossiblePartition, match="STARTD_RESOURCE_PREFIX"):
        slots(STARTD_RESOURCE_PREFIX=prefix)
