"""Rules of partitionable slots that no worked example shows: preemption of dynamic slots, consumption policies."""

from __future__ import annotations

from typing import Any

import pytest

from engine.match.model import NO_PREEMPTION, PRIORITY_PREEMPTION, RANK_PREEMPTION, Result
from tests.spec import spec
from tests.unit.negotiator.test_worked_examples import CONSUMES, decide, jobs, machine, slot, used


def part(number: int, user: str = "b", **attributes: str) -> dict[str, str]:
    """A dynamic slot of two cores, in use."""
    more = {"Machine": '"m"', "Cpus": "2", "Memory": "100", "Rank": "5", "DynamicSlot": "true", "SlotID": "1"}
    return used(f"slot1_{number}@m", user, **{**more, "DSlotID": str(number), **attributes})


def whole(cpus: int = 0, **attributes: str) -> dict[str, str]:
    return machine("slot1@m", cpus, **{"Rank": "5", **attributes})


def emptied(offered: list[dict[str, str]], cpus: int, eup: dict[str, float] | None = None, **config: Any) -> Result:
    """What comes of a job of so many cores, with the knob on."""
    asks = [jobs("a", 1, RequestCpus=str(cpus), Requirements="TARGET.Cpus >= RequestCpus")]
    return decide(offered, asks, eup, **{"allow_pslot_preemption": True, **config})


def preempted(result: Result) -> list[tuple[str, ...]]:
    return [match.preempts for match in result.matches]


def parts_of(*numbers: int) -> tuple[str, ...]:
    return tuple(f"slot1_{number}@m" for number in numbers)


# --- preemption of dynamic slots


@spec("PRE-11", "PRE-19")
@pytest.mark.parametrize("allowed", [True, False])
def test_a_machine_is_judged_with_its_dynamic_slots(allowed: bool) -> None:
    result = emptied([whole(), part(1, CurrentRank="1"), part(2, CurrentRank="2")], 4, allow_pslot_preemption=allowed)
    assert preempted(result) == ([parts_of(1, 2)] if allowed else [])
    assert [match.slot for match in result.matches] == (["slot1@m"] if allowed else [])


@spec("PRE-11")
def test_slots_of_another_machine_are_of_no_use() -> None:
    elsewhere = part(2) | {"Name": '"slot1_2@n"', "Machine": '"n"'}
    assert not emptied([whole(), part(1), elsewhere], 4).matches


@spec("PRE-12")
@pytest.mark.parametrize(
    ("cpus", "expected"), [(1, (3,)), (2, (3,)), (3, (3, 1)), (4, (3, 1)), (6, (3, 1, 2)), (7, None)]
)
def test_dynamic_slots_are_added_lowest_rank_first_until_the_job_fits(
    cpus: int, expected: tuple[int, ...] | None
) -> None:
    offered = [whole(), *(part(number, CurrentRank=rank) for number, rank in ((1, "2"), (2, "3"), (3, "1")))]
    assert preempted(emptied(offered, cpus)) == ([] if expected is None else [parts_of(*expected)])


@spec("PRE-12")
def test_what_the_machine_has_free_counts() -> None:
    offered = [whole(2), part(1, CurrentRank="1"), part(2, CurrentRank="0")]
    assert preempted(emptied(offered, 4)) == [parts_of(2)]
    (match,) = emptied(offered, 2).matches
    assert (match.reason, match.preempts) == (NO_PREEMPTION, ())


@spec("PRE-13")
@pytest.mark.parametrize(("attribute", "request_name"), [("Memory", "RequestMemory"), ("Disk", "RequestDisk")])
def test_memory_and_disk_are_summed_too(attribute: str, request_name: str) -> None:
    sizes = {"Cpus": "4", attribute: "0"}
    offered = [whole() | sizes, *(part(number, CurrentRank=str(number), **{attribute: "8192"}) for number in (1, 2))]
    for wanted, expected in ((8192, (1,)), (16384, (1, 2)), (24576, None)):
        ask = jobs("a", 1, **{request_name: str(wanted)})
        result = decide(offered, [ask], allow_pslot_preemption=True)
        assert preempted(result) == ([] if expected is None else [parts_of(*expected)])


@spec("PRE-13")
@pytest.mark.parametrize(("free", "expected"), [("0", []), ("1", [parts_of(1)])])
def test_custom_resources_are_not_summed(free: str, expected: list[tuple[str, ...]]) -> None:
    """What the machine has free of them must do."""
    gpus = {"MachineResources": '"Cpus Memory Disk Swap GPUs"'}
    offered = [whole(GPUs=free, **gpus), part(1, GPUs="1", **gpus)]
    ask = jobs("a", 1, RequestCpus="2", RequestGPUs="1", Requirements="TARGET.GPUs >= RequestGPUs")
    assert preempted(decide(offered, [ask], allow_pslot_preemption=True)) == expected


@spec("PRE-14")
@pytest.mark.parametrize("early", [False, True])
def test_retirement_time_spares_a_dynamic_slot_whatever_the_knob_says(early: bool) -> None:
    offered = [whole(), part(1, CurrentRank="0", RetirementTimeRemaining="9"), part(2, CurrentRank="4")]
    assert preempted(emptied(offered, 2, consider_early_preemption=early)) == [parts_of(2)]
    assert not emptied(offered[:2], 2, consider_early_preemption=early).matches


@spec("PRE-15")
@pytest.mark.parametrize("allowed", [True, False])
def test_dynamic_slots_are_not_preempted_by_themselves(allowed: bool) -> None:
    (match,) = emptied([whole(), part(1)], 2, allow_pslot_preemption=allowed).matches
    assert match.slot == ("slot1@m" if allowed else "slot1_1@m")
    assert match.preempts == parts_of(1)


@spec("PRE-16")
@pytest.mark.parametrize(
    ("requirements", "user", "expected"),
    [("true", "b", [parts_of(1)]), ("false", "b", []), ("undefined", "b", []), ("1", "b", []), ("true", "a", [])],
)
def test_equal_rank_needs_the_policy_and_another_user(
    requirements: str, user: str, expected: list[tuple[str, ...]]
) -> None:
    offered = [whole(), part(1, user, CurrentRank="5")]
    result = emptied(offered, 2, {"a": 1.0, "b": 9.0}, preemption_requirements=requirements)
    assert preempted(result) == expected
    assert {match.reason for match in result.matches} <= {PRIORITY_PREEMPTION}


@spec("PRE-16")
def test_the_policy_is_asked_of_each_dynamic_slot() -> None:
    offered = [whole(), *(part(number, CurrentRank="5", Old=str(number > 1).lower()) for number in (1, 2, 3))]
    result = emptied(offered, 4, {"a": 1.0, "b": 9.0}, preemption_requirements="MY.Old")
    assert preempted(result) == [parts_of(2, 3)]


@spec("PRE-16")
def test_a_rank_above_that_of_the_job_spares_a_dynamic_slot() -> None:
    offered = [whole(), part(1, CurrentRank="6"), part(2, CurrentRank="4")]
    assert preempted(emptied(offered, 2, {"a": 1.0, "b": 9.0}, preemption_requirements="true")) == [parts_of(2)]
    assert not emptied(offered, 4, {"a": 1.0, "b": 9.0}, preemption_requirements="true").matches


@spec("PRE-18")
def test_ranks_see_the_machine_that_nobody_has() -> None:
    """By RemoteOwner the used slot comes behind the machine, though both are taken from somebody."""
    offered = [used("busy@n", "b", Cpus="2", Rank="5"), whole(), part(1, CurrentRank="0")]
    rank = "RemoteOwner =?= undefined"
    (match,) = emptied(offered, 2, pre_job_rank=rank).matches
    assert (match.slot, match.preempts, match.reason) == ("slot1@m", parts_of(1), RANK_PREEMPTION)
    (match,) = emptied(offered, 2, pre_job_rank=f"!({rank})").matches
    assert match.slot == "busy@n"


# --- consumption policies


@spec("CON-04")
def test_a_slot_without_one_of_the_assets_is_passed_over() -> None:
    short = machine("slot1@a", 8, Memory="100", **CONSUMES)
    ample = machine("slot1@b", 8, **CONSUMES)
    result = decide([short, ample], [jobs("a", 1, RequestMemory="64")])
    assert [match.slot for match in result.matches] == ["slot1@b"]  # it consumes 128
    assert not decide([short], [jobs("a", 1, RequestMemory="64")]).matches


@spec("CON-02", "CON-03", "W-49")
@pytest.mark.parametrize(("cpus", "memory", "jobs_held"), [(8, "384", 3), (2, "8192", 2), (8, "127", 0)])
def test_several_jobs_are_carved_as_defaults_say(cpus: int, memory: str, jobs_held: int) -> None:
    """A core, 100 MiB and 500 KiB take a core, 128 and 1024."""
    offered = [machine("slot1@m", cpus, Memory=memory, Disk="100000", **CONSUMES)]
    result = decide(offered, [jobs("a", 9, RequestMemory="100", RequestDisk="500")])
    assert sum(match.count for match in result.matches) == jobs_held
    disk = [machine("slot1@m", 8, Disk="4095", **CONSUMES)]
    assert [match.count for match in decide(disk, [jobs("a", 9, RequestDisk="500")]).matches] == [3]


@spec("CON-05")
def test_an_asset_of_a_custom_resource_can_be_consumed() -> None:
    more = {
        "Cogs": "16",
        "ConsumptionCogs": "TARGET.RequestCogs + 1",
        "MachineResources": '"Cpus Memory Disk Swap Cogs"',
    }
    result = decide([machine("slot1@m", 8, **CONSUMES, **more)], [jobs("a", 9, RequestCogs="3")])
    assert [match.count for match in result.matches] == [4]


@spec("CON-06")
@pytest.mark.parametrize(
    ("weight", "charges"),
    [("Cpus", 2.0), ("Memory / 1024.0", 1.0), ("Cpus + Memory / 1024.0", 3.0), ("8", 0.0)],
)
def test_the_charge_is_the_weight_before_less_that_after(weight: str, charges: float) -> None:
    offered = [machine("slot1@m", 8, SlotWeight=weight, **CONSUMES)]
    (match,) = decide(offered, [jobs("a", 1, RequestCpus="2", RequestMemory="1000")]).matches
    assert match.weight == charges


@spec("CON-07")
def test_requirements_see_what_is_consumed_as_requested() -> None:
    """On both sides; the job's ad is as it was afterwards."""
    offered = [machine("slot1@m", 8, Requirements="TARGET.RequestMemory == 128", **CONSUMES)]
    ask = jobs("a", 1, RequestMemory="100", Requirements="RequestMemory == 128 && TARGET.Memory >= RequestMemory")
    (match,) = decide(offered, [ask]).matches
    assert match.request.ad.eval("RequestMemory") == 100
    plain = [machine("slot1@m", 8, Requirements="TARGET.RequestMemory == 128")]
    assert not decide(plain, [ask]).matches


@spec("CON-01")
def test_a_static_slot_has_no_policy() -> None:
    result = decide([slot("s@m", Cpus="8", **CONSUMES)], [jobs("a", 2, RequestCpus="2")])
    assert [match.count for match in result.matches] == [1]
