"""Custom resources, and the programs that take their inventory: SLT-11 to SLT-13, GPU-01."""

from __future__ import annotations

import asyncio
import sys

import pytest
import structlog

from services.startd.core.machine.detected import Detected
from services.startd.core.machine.resources import Output, take_stock
from services.startd.core.machine.slot_plan import execute_directories, plan_slots
from services.startd.core.machine.slot_types import ImpossiblePartition, Partition
from services.startd.machine.detection import command, take_inventory
from shared.config import load_config
from tests.spec import spec

DETECTED = Detected(hostname="node1", cpus=8, cores=4, memory_mib=16000, swap_kib=0, arch="X86_64")
LOG = structlog.get_logger()


def config_of(tmp_path, text):
    path = tmp_path / "condor_config"
    path.write_text(f"LOCAL_DIR = {tmp_path}\nNUM_CPUS = 8\nMEMORY = 16000\n{text}\n")
    return load_config([path], subsystem="STARTD", env={})


def look(tmp_path, text, **outputs):
    said = {name: Output(one) for name, one in outputs.items()}
    return plan_slots(config_of(tmp_path, text), DETECTED, lambda path: Partition(path, 100_000), said)


def script(tmp_path, text):
    path = tmp_path / "inventory"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def ask(tmp_path, knobs, environment=None):
    return asyncio.run(take_inventory(config_of(tmp_path, knobs), LOG, environment or {"PATH": "/usr/bin:/bin"}))


@spec("SLT-13")
def test_names_switch_resources_on(tmp_path):
    text = "MACHINE_RESOURCE_Cogs = 16\nMACHINE_RESOURCE_actuator = 8\n"
    assert list(look(tmp_path, text).stock.resources) == ["actuator", "Cogs"]
    assert list(look(tmp_path, text + "MACHINE_RESOURCE_NAMES = COGS").stock.resources) == ["Cogs"]


@spec("SLT-12", "SLT-23", "W-42")
def test_the_manual_divides_cogs_and_actuators_like_this(tmp_path):
    """A partitionable slot and static ones with local resources."""
    found = look(
        tmp_path,
        """
        MACHINE_RESOURCE_Cogs = 16
        MACHINE_RESOURCE_actuator = 8
        SLOT_TYPE_1 = cogs=50%,actuator=6,50%
        SLOT_TYPE_1_PARTITIONABLE = TRUE
        NUM_SLOTS_TYPE_1 = 1
        SLOT_TYPE_2 = cogs=25%,actuator=1,25%
        SLOT_TYPE_2_PARTITIONABLE = FALSE
        NUM_SLOTS_TYPE_2 = 2
        """,
    )
    assert [slot.amounts["Cogs"] for slot in found.slots] == [8, 4, 4]
    assert [slot.amounts["actuator"] for slot in found.slots] == [6, 1, 1]
    assert [str(slot.kind) for slot in found.slots] == ["Partitionable", "Static", "Static"]


GPUS = """DetectedGPUs="GPU-6a96bd13, GPU-0b, GPU-0c, GPU-0d"
GPU_6a96bd13=[ Capability=7.0; ]
GPU_0b=[ Capability=8.0; ]
GPU_0c=[ Capability=8.0; ]
GPU_0d=[ Capability=7.0; ]
"""


@spec("SLT-14", "GPU-03", "W-46")
def test_the_manual_gives_gpus_to_slots_like_this(tmp_path):
    """By properties, by id, and the rest to the others."""
    found = look(
        tmp_path,
        """
MACHINE_RESOURCE_INVENTORY_GPUs = /discover
SLOT_TYPE_1 @=slot
   GPUs = 2 : Capability >= 8.0
   60%
@slot
SLOT_TYPE_1_PARTITIONABLE = TRUE
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_2 @=slot
   GPUs = 1 : "GPU-6a96bd13"
   CPUs = 1
   Memory = 10
@slot
NUM_SLOTS_TYPE_2 = 1
SLOT_TYPE_3 = auto
NUM_SLOTS_TYPE_3 = 2
""",
        GPUs=GPUS,
    )
    assert [slot.amounts.ids["GPUs"] for slot in found.slots] == [
        ("GPU-0b", "GPU-0c"),
        ("GPU-6a96bd13",),
        ("GPU-0d",),
        (),
    ]
    assert [slot.amounts["Memory"] for slot in found.slots] == [9600, 10, 3195, 3195]


@spec("SLT-08")
def test_each_execute_has_its_own_disk(tmp_path):
    config = config_of(tmp_path, "SLOT1_EXECUTE = /a\nSLOT2_EXECUTE = /b\nNUM_SLOTS_TYPE_1 = 3\nEXECUTE = /a")
    assert execute_directories(config) == {0: "/a", 1: "/a", 2: "/b"}
    sizes = {"/a": 1000, "/b": 500}
    found = plan_slots(config, DETECTED, lambda path: Partition(path, sizes[path]))
    assert [(slot.partition, slot.amounts["Disk"]) for slot in found.slots] == [("/a", 500), ("/b", 500), ("/a", 500)]


@spec("SLT-09")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("NUM_CPUS = 0", "NUM_CPUS"),
        ("MEMORY = -5", "MEMORY"),
        ("RESERVED_MEMORY = 16000", "RESERVED_MEMORY"),
        ("NUM_SLOTS_TYPE_1 = 9", "NUM_SLOTS_TYPE_1"),
        ("NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = mem=9000", "SLOT_TYPE_1"),
        ("NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = disk=60%", "SLOT_TYPE_1"),
        ("NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = swap=10", "SLOT_TYPE_1"),
        ("NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = gears=2", "gears"),
        ("SLOT_TYPE_0 = 1/2", "SLOT_TYPE_0"),
        ("MACHINE_RESOURCE_Memory = 3", "MACHINE_RESOURCE_Memory"),
        ("MACHINE_RESOURCE_Cogs = 3\nOFFLINE_MACHINE_RESOURCE_Cogs = 4", "OFFLINE_MACHINE_RESOURCE_Cogs"),
    ],
)
def test_what_can_not_be_is_refused_with_the_knob(tmp_path, text, names):
    with pytest.raises(ImpossiblePartition, match=names):
        look(tmp_path, text)


@pytest.mark.parametrize("text", ["garbage", "DetectedCogs={1,2}", 'DetectedCogs=[ a="b"; ]', "DetectedGears=4", ""])
def test_output_that_says_nothing_costs_only_that_resource(tmp_path, text):
    config = config_of(tmp_path, "MACHINE_RESOURCE_INVENTORY_Cogs = /inventory 1\nMACHINE_RESOURCE_Gears = 2")
    stock = take_stock(config, {"Cogs": Output(text)})
    assert (stock.resources["Cogs"].total, stock.resources["Gears"].total) == (0, 2)
    assert any("MACHINE_RESOURCE_INVENTORY_Cogs (/inventory)" in one for one in stock.problems)


def test_absurd_amounts_are_bounded(tmp_path):
    config = config_of(tmp_path, "MACHINE_RESOURCE_INVENTORY_Cogs = /inventory")
    for text in ("DetectedCogs=1e300", 'DetectedCogs=real("INF")', 'DetectedCogs=real("NaN")', "DetectedCogs=-7"):
        assert 0 <= take_stock(config, {"Cogs": Output(text)}).resources["Cogs"].total <= 10**12


def test_an_inventory_program_is_run_with_its_words(tmp_path):
    path = script(tmp_path, 'echo "Detected$1=$#"; echo noise >&2; test -z "$MY_SECRET" || echo DetectedCogs=99')
    found = ask(tmp_path, f"MACHINE_RESOURCE_INVENTORY_Cogs = {path} Cogs 'a b'", {"PATH": "/bin", "MY_SECRET": "x"})
    assert found == {"Cogs": Output("DetectedCogs=3\n")}


def test_a_program_that_fails_hangs_or_floods_is_told(tmp_path):
    path = script(tmp_path, "exit 3")
    assert "exit status 3" in ask(tmp_path, f"MACHINE_RESOURCE_INVENTORY_Cogs = {path}")["Cogs"].trouble
    script(tmp_path, "exec sleep 1000")
    knobs = f"MACHINE_RESOURCE_INVENTORY_Cogs = {path}\nROOST_INVENTORY_TIMEOUT = 1"
    assert "ROOST_INVENTORY_TIMEOUT" in ask(tmp_path, knobs)["Cogs"].trouble
    script(tmp_path, "head -c 2000000 /dev/zero | tr '\\0' x")
    knobs = f"MACHINE_RESOURCE_INVENTORY_Cogs = {path}\nROOST_INVENTORY_TIMEOUT = 60"
    assert "more than" in ask(tmp_path, knobs)["Cogs"].trouble


def test_a_program_that_is_not_there_is_refused_with_the_knob(tmp_path):
    with pytest.raises(ImpossiblePartition, match="MACHINE_RESOURCE_INVENTORY_Cogs = /nowhere/inventory"):
        ask(tmp_path, "MACHINE_RESOURCE_INVENTORY_Cogs = /nowhere/inventory")


@spec("GPU-01", "GPU-02")
def test_the_feature_for_gpus_runs_our_discovery(tmp_path):
    """Wherever the template says that the program lies, and with the extra arguments."""
    assert command(["/usr/libexec/condor/condor_gpu_discovery", "-extra"]) == [
        sys.executable,
        "-m",
        "shared.gpus",
        "-extra",
    ]
    knobs = "LIBEXEC = /nowhere\nuse feature : GPUs\nGPU_DISCOVERY_EXTRA = -extra -simulate:4,2"
    found = ask(tmp_path, knobs)
    stock = take_stock(config_of(tmp_path, knobs), found)
    gpus = stock.resources["GPUs"]
    assert (gpus.total, gpus.ids) == (2, ("GPU-a0223334", "GPU-b1223334"))
    ad = gpus.properties["GPU-a0223334"]
    assert (ad.eval("DeviceName"), ad.eval("Capability"), ad.eval("ComputeUnits")) == ("A100-SXM4-40GB", 8.0, 42)
    flat = ask(tmp_path, knobs + " -not-nested")["GPUs"].text
    assert "CUDACapability=8.0" in flat
