"""Devices of slots and jobs: which a job gets, what ads and environment say of them, and how busy they are."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.slots.amounts import Amounts
from engine.slots.carving import Carving, PlannedSlot, Refusal, SlotKind, carve, show_free
from services.startd.core.machine.devices import (
    DeviceVariables,
    device_environment,
    gpus_to_hide,
    machine_attributes,
    read_device_variables,
    slot_attributes,
)
from services.startd.core.machine.gpu_usage import Meter, monitors, uuids_of
from services.startd.core.machine.resources import Output, Resource, Stock, take_stock
from services.startd.core.machine.slot_types import rescale_disks
from services.startd.core.slots.model import Slot
from services.startd.isolation.host_capabilities import find_gpus
from shared.classad import ClassAd, parse_ad, parse_expr
from shared.config import load_config
from tests.spec import spec

OUTPUT = """DetectedGPUs="GPU-aaa, GPU-bbb, GPU-ccc"
Common=[ DriverVersion=12.2; ]
GPU_aaa=[ id="GPU-aaa"; Capability=7.5; DeviceUuid="aaa-1"; GlobalMemoryMb=15110; ]
GPU_bbb=[ id="GPU-bbb"; Capability=8.0; DeviceUuid="bbb-1"; GlobalMemoryMb=40536; ]
GPU_ccc=[ id="GPU-ccc"; Capability=8.6; DeviceUuid="ccc-1"; GlobalMemoryMb=45634; ]
"""


@pytest.fixture
def stock(tmp_path) -> Stock:
    path = tmp_path / "condor_config"
    path.write_text("MACHINE_RESOURCE_INVENTORY_GPUs = /discover\nMACHINE_RESOURCE_Cogs = c1, c2, c3\n")
    config = load_config([path], subsystem="STARTD", env={})
    return take_stock(config, {"GPUs": Output(OUTPUT)})


def partitionable(stock: Stock) -> Slot:
    of = {"Cpus": 8, "Memory": 16000, "Disk": 100_000} | dict(stock.amounts().of)
    plan = PlannedSlot(1, 1, SlotKind.PARTITIONABLE, Amounts(of, stock.amounts().ids))
    return Slot.planned(plan, "node1", 0.0)


def ad_of(slot: Slot, stock: Stock) -> ClassAd:
    ad = ClassAd({"MachineResources": "Cpus Memory Disk Swap Cogs GPUs"})
    for name in slot.total:
        ad[name] = slot.free[name]
    ad.update(machine_attributes(stock))
    ad.update(slot_attributes(slot, stock))
    return ad


def job(**attributes: object) -> ClassAd:
    ad = ClassAd({"RequestCpus": 1, "RequestMemory": 100, "RequestDisk": 1000})
    for name, value in attributes.items():
        ad[name] = parse_expr(value) if isinstance(value, str) else value
    return ad


def take(slot: Slot, stock: Stock, **attributes: object) -> Amounts | Refusal:
    """Carve a dynamic slot out of it."""
    carved = carve(job(**attributes), ad_of(slot, stock), slot.free, Carving({}))
    if not isinstance(carved, Refusal):
        slot.free = slot.free.minus(carved)
    return carved


@spec("GPU-04")
def test_a_job_gets_the_first_devices_that_suit_it(stock):
    """require_gpus chooses per job; what one job has, no other gets, and it comes back."""
    slot = partitionable(stock)
    first = take(slot, stock, RequestGPUs=1, RequireGPUs="Capability >= 8.0", RequestCogs=2)
    assert isinstance(first, Amounts)
    assert first.ids == {"GPUs": ("GPU-bbb",), "Cogs": ("c1", "c2")}
    second = take(slot, stock, RequestGPUs=1, RequireGPUs="Capability >= 8.0")
    assert isinstance(second, Amounts)
    assert second.ids["GPUs"] == ("GPU-ccc",)
    assert second.ids["Cogs"] == ()
    third = take(slot, stock, RequestGPUs=1, RequireGPUs="Capability >= 8.0")
    assert isinstance(third, Refusal)
    assert "RequireGPUs is true of 0 of 1" in third.reason
    assert isinstance(take(slot, stock, RequestGPUs=1), Amounts)  # the old one will do
    slot.free = slot.free.plus(first)
    assert take(slot, stock, RequestGPUs=1, RequireGPUs="GlobalMemoryMb > 40000 && DriverVersion > 12") == first.choose(
        "Cogs", ()
    )


@spec("GPU-04")
def test_what_matches_by_the_ad_can_be_carved(stock):
    """The words with which roost submit asks for GPUs, looked at in the slot's ad, say the same as carving does."""
    slot = partitionable(stock)
    counts = parse_expr("countMatches(MY.RequireGPUs, TARGET.AvailableGPUs) >= RequestGPUs")
    for wanted, require in ((1, "Capability > 8.5"), (2, "Capability > 8.5"), (3, "true"), (2, "Capability < 9.0")):
        asking = job(RequestGPUs=wanted, RequireGPUs=require, Requirements=True)
        asking["Fits"] = counts
        ad = ad_of(slot, stock)
        carved = carve(asking, ad, slot.free, Carving({}))
        assert asking.eval("Fits", ad) is isinstance(carved, Amounts)


@pytest.mark.parametrize("require", ["1/0", "undefined", '"GPU-bbb"', "Missing > 3", "RequireGPUs", "error"])
def test_a_requirement_that_is_no_condition_suits_no_device(stock, require):
    assert isinstance(take(partitionable(stock), stock, RequestGPUs=1, RequireGPUs=require), Refusal)


def test_room_that_preemption_makes_shows_its_devices(stock):
    slot = partitionable(stock)
    taken = take(slot, stock, RequestGPUs=3)
    assert isinstance(taken, Amounts)
    ad = ad_of(slot, stock)
    assert ad.eval("AvailableGPUs") == []
    show_free(ad, slot.free.plus(taken))
    assert len(ad.eval("AvailableGPUs")) == 3


@spec("SLT-11", "SLT-12")
def test_ads_tell_of_devices(stock):
    """Amounts under their names; ids, and what is known of each device and of all."""
    slot = partitionable(stock)
    take(slot, stock, RequestGPUs=1, RequireGPUs="Capability == 8.0")
    ad = ad_of(slot, stock)
    assert ad.eval("AssignedGPUs") == "GPU-aaa,GPU-bbb,GPU-ccc"  # of the whole slot
    assert [one.eval("Id") for one in ad.eval("AvailableGPUs")] == ["GPU-aaa", "GPU-ccc"]
    assert ad.eval("GPUs_DriverVersion") == 12.2
    assert "GPUs_Capability" not in ad
    assert ad.eval("DetectedGPUs") == "GPU-aaa, GPU-bbb, GPU-ccc"
    assert (ad.eval("DetectedCogs"), ad.eval("AssignedCogs")) == (3, "c1,c2,c3")


@spec("GPU-06")
@pytest.mark.parametrize(
    ("assigned", "cuda", "ordinal", "containers"),
    [
        ("GPU-bbb,GPU-ccc", "GPU-bbb,GPU-ccc", "GPU-bbb,GPU-ccc", "GPU-bbb-1,GPU-ccc-1"),
        ("CUDA0,CUDA2", "0,2", "0,2", "0,2"),
        ("OCL1", "OCL1", "1", "OCL1"),
        ("", "10000", "10000", "none"),
    ],
)
def test_jobs_are_told_of_their_gpus_or_of_none(assigned, cuda, ordinal, containers):
    """10000 is the number of no GPU."""
    machine = ClassAd({"MachineResources": "Cpus Memory Disk Swap Cogs GPUs", "AssignedCogs": "c1,c2"})
    if assigned:
        machine["AssignedGPUs"] = assigned
    for one in ("bbb", "ccc"):
        machine[f"GPUs_GPU_{one}"] = ClassAd({"DeviceUuid": f"{one}-1"})
    environment = device_environment(machine)
    assert environment == {
        "_CONDOR_AssignedCogs": "c1,c2",
        "_CONDOR_AssignedGPUs": assigned or "10000",
        "CUDA_VISIBLE_DEVICES": cuda,
        "GPU_DEVICE_ORDINAL": ordinal,
        "NVIDIA_VISIBLE_DEVICES": containers,
    }


@pytest.mark.parametrize(
    ("text", "unassigned", "assigned", "told"),
    [
        ("VISIBLE=/^/id:/", None, "CUDA1,CUDA2", {"VISIBLE": "id:CUDA1,id:CUDA2"}),
        ("A, B=#(CUDA)([0-9]+)#$2$1\\n#", None, "CUDA1,GPU-x", {"A": "CUDA1,GPU-x", "B": "1CUDA\\n,GPU-x"}),
        ("CUDA_VISIBLE_DEVICES, A", None, "CUDA1", {"CUDA_VISIBLE_DEVICES": "1", "A": "CUDA1"}),
        ("NVIDIA_VISIBLE_DEVICES", None, "GPU-bbb", {"NVIDIA_VISIBLE_DEVICES": "GPU-bbb-1"}),
        ("X Y", None, "", {"X": "10000", "Y": "10000"}),
        ("X", "none", "", {"X": "none"}),
        ("", None, "CUDA1", {}),
    ],
)  # fmt: skip
def test_an_administrator_says_which_variables_tell_of_devices(text, unassigned, assigned, told):
    machine = ClassAd({"MachineResources": "Cpus Memory Disk Swap GPUs"})
    machine["GPUs_GPU_bbb"] = ClassAd({"DeviceUuid": "bbb-1"})
    if assigned:
        machine["AssignedGPUs"] = assigned
    wanted = {"gpus": DeviceVariables(read_device_variables(text), unassigned)}
    assert device_environment(machine, wanted) == {"_CONDOR_AssignedGPUs": assigned or "10000"} | told


def test_variables_of_other_devices_are_not_set_where_there_are_none():
    machine = ClassAd({"MachineResources": "Cpus Memory Disk Swap Cogs"})
    named = read_device_variables("COGS")
    assert "COGS" not in device_environment(machine, {"cogs": DeviceVariables(named)})
    assert device_environment(machine, {"cogs": DeviceVariables(named, "no")})["COGS"] == "no"
    machine["AssignedCogs"] = "c1, c2"
    assert device_environment(machine, {"cogs": DeviceVariables(named)})["COGS"] == "c1,c2"


@pytest.mark.parametrize("text", ["A=/x", "A=/[/y/", "1A", "A=/x/y/z"])
def test_what_is_no_list_of_variables_is_refused(text):
    with pytest.raises(ValueError, match=r"neither a variable|no regular expression"):
        read_device_variables(text)


@spec("SLT-08")
def test_disks_that_fill_and_empty():
    """A share of a changing total, of each slot's own partition; dynamic slots keep what they have."""
    one = PlannedSlot(1, 1, SlotKind.PARTITIONABLE, Amounts({"Cpus": 4, "Disk": 500}), 0.5, 0.5, "a")
    two = PlannedSlot(2, 1, SlotKind.STATIC, Amounts({"Cpus": 4, "Disk": 500}), 1.0, 0.5, "b")
    parent, static = Slot.planned(one, "node1", 0.0), Slot.planned(two, "node1", 0.0)
    parent.children = 1
    child = Slot.carved(parent, Amounts({"Cpus": 1, "Disk": 300}), 0.0)
    parent.free = parent.free.minus(child.total)
    slots = [parent, static, child]
    assert rescale_disks(slots, {"a": 1000}) == []
    assert rescale_disks(slots, {"a": 1201, "b": 700}) == [parent.name, static.name]
    assert (parent.total["Disk"], parent.free["Disk"]) == (601, 301)
    assert (static.total["Disk"], static.free["Disk"], child.total["Disk"]) == (700, 700, 300)
    rescale_disks(slots, {"a": 400})  # less than its jobs were promised: nothing to give, until they go
    assert parent.free["Disk"] == -100
    assert not parent.free.holds(Amounts({"Disk": 1}))
    parent.free = parent.free.plus(child.total)
    assert parent.free["Disk"] == parent.total["Disk"] == 200
    assert child.swap_share == 0.125


IDS = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(IDS, st.lists(st.integers(0, 4), max_size=6), st.randoms(use_true_random=False))
def test_devices_are_with_exactly_one(ids, asked, random):
    """However they are taken and given back: numbers and ids agree, and every device is somewhere once."""
    free = Amounts({"X": len(ids)}, {"X": tuple(ids)})
    held = []
    for count in asked:
        part = free.choose("X", free.ids["X"][:count])
        assert free.holds(part)
        free = free.minus(part)
        held.append(part)
        if random.random() < 0.4:
            free = free.plus(held.pop(random.randrange(len(held))))
        everywhere = [*free.ids["X"], *(one for part in held for one in part.ids["X"])]
        assert sorted(everywhere) == sorted(ids)
        assert free["X"] == len(free.ids["X"])


def test_amounts_without_ids_take_the_last_devices():
    """A journal of an older release knows how many, not which."""
    free = Amounts({"X": 3}, {"X": ("a", "b", "c")}).minus(Amounts({"X": 2}))
    assert (free["X"], free.ids["X"]) == (1, ("a",))
    assert Amounts({"X": 1}, MappingProxyType({"X": ("b",)})).lacking(Amounts({"X": 1}, {"X": ("a",)})) == ["X"]


@spec("GPU-05")
def test_gpu_seconds_of_slots_and_jobs(stock):
    """GPU-seconds by seconds since the startd began, and the most memory; of a job since it began."""
    meter = Meter(1000.0)
    assert meter.of_slot(["aaa-1"], 1010.0) == {}
    assert meter.take("aaa-1 5.0 300")
    assert meter.take("bbb-1 1.0 700")
    assert meter.of_slot(["aaa-1", "bbb-1"], 1020.0) == {
        "DeviceGPUsAverageUsage": 0.3,
        "DeviceGPUsMemoryPeakUsage": 700,
    }
    meter.begin("1.0/0", ["aaa-1"], 1020.0)
    meter.take("aaa-1 8.0 200")
    assert meter.of_run("1.0/0", 1030.0) == {"GPUsAverageUsage": 0.8, "GPUsMemoryUsage": 200}
    meter.end("1.0/0")
    assert meter.of_run("1.0/0", 1040.0) == {}
    gpus = stock.resources["GPUs"]
    assert uuids_of(["GPU-aaa", "GPU-zzz"], gpus) == ["aaa-1"]
    assert monitors(["gpus_MONITOR"], stock.resources) is gpus
    assert monitors([], stock.resources) is None
    assert monitors(["GPUs_MONITOR"], {"GPUs": Resource("GPUs", 0, 0)}) is None


@pytest.mark.parametrize("line", ["", "-", "a b", "a b c", "a nan 1", "a -1 1", "a inf 1", "a 1 1 1", "a 1 x"])
def test_lines_that_are_no_report_count_nothing(line):
    meter = Meter(0.0)
    assert not meter.take(line)
    assert meter.of_slot(["a"], 10.0) == {}


FOUND = {"/dev/nvidia0": "GPU-aaaa1111-2222", "/dev/nvidia1": "GPU-bbbb1111-2222", "/dev/nvidia2": "GPU-cccc1111-2222"}


@pytest.mark.parametrize(
    ("ad", "hidden"),
    [
        ('[AssignedGPUs = "GPU-bbbb1111"]', [0, 2]),
        ('[AssignedGPUs = "GPU-BBBB1111, GPU-cccc1111-2222"]', [0]),
        ("[]", [0, 1, 2]),  # it has none
        ('[AssignedGPUs = "CUDA1"; GPUs_CUDA1 = [DeviceUuid = "bbbb1111-2222"]]', [0, 2]),
        ('[AssignedGPUs = "CUDA1"]', []),  # nobody knows which that is
        ('[AssignedGPUs = "MIG-dddd1111"]', []),
        ('[AssignedGPUs = "GPU-dddd1111"]', []),  # the driver does not know it
    ],
)
def test_which_gpus_a_job_must_not_use(ad, hidden):
    assert gpus_to_hide(parse_ad(ad), FOUND) == [f"/dev/nvidia{number}" for number in hidden]


def test_gpus_are_found_where_the_driver_lists_them(tmp_path):
    assert find_gpus(tmp_path / "none", tmp_path) == {}
    for number, uuid in enumerate(("GPU-aaaa", "GPU-bbbb")):
        folder = tmp_path / "driver" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t Tesla T4\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")
    (tmp_path / "nvidia1").touch()  # the other has no device
    assert find_gpus(tmp_path / "driver", tmp_path) == {str(tmp_path / "nvidia1"): "GPU-bbbb"}
