"""Worked examples with numbers: how a machine is divided and carved, and policies that except somebody or go by the
time of day."""

from __future__ import annotations

import pytest

from services.startd.core.machine.detected import Detected
from services.startd.core.machine.slot_plan import plan_slots
from services.startd.core.machine.slot_types import Partition
from services.startd.core.slots.requests import Granted, Refused
from shared.classad import ClassAd, evaluate, parse_expr
from shared.config import load_config
from tests.spec import spec
from tests.unit.startd.test_policy_templates import Desk, owned
from tests.unit.startd.test_slots import Machine

DISK_KIB = 100_000


def divided(tmp_path, text, cores=4, memory=256):
    """The slots' amounts of a machine under a configuration."""
    path = tmp_path / "condor_config"
    path.write_text(f"LOCAL_DIR = {tmp_path}\nNUM_CPUS = {cores}\nMEMORY = {memory}\n{text}\n")
    config = load_config([path], subsystem="STARTD", env={})
    detected = Detected("node1", cores, cores, memory, 1_000_000, "X86_64")
    found = plan_slots(config, detected, lambda where: Partition(where, DISK_KIB)).slots
    return [slot.amounts for slot in found]


@spec("SLT-04", "W-38")
@pytest.mark.parametrize("share", ["mem=64", "mem=1/2", "mem=50%", "mem=auto", "auto"])
def test_half_of_the_memory_in_every_form(tmp_path, share):
    found = divided(tmp_path, f"NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = {share}", cores=2, memory=128)
    assert [amounts["Memory"] for amounts in found] == [64, 64]


@spec("SLT-04", "SLT-05", "W-39")
@pytest.mark.parametrize(
    ("shares", "cores", "memory", "disk"),
    [
        ("cpus=2, ram=128, swap=25%, disk=1/2", 2, 128, 50_000),
        ("cpus=1/2, memory=128, virt=25%, disk=50%", 2, 128, 50_000),
        ("c=1/2, m=50%, v=1/4, disk=1/2", 2, 128, 50_000),
        ("c=25%, m=64, v=1/4, d=25%", 1, 64, 25_000),
        ("25%", 1, 64, 25_000),
        ("1/4", 1, 64, 25_000),
    ],
)
def test_six_ways_to_write_two_sizes(tmp_path, shares, cores, memory, disk):
    (amounts,) = divided(tmp_path, f"NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = {shares}")
    assert (amounts["Cpus"], amounts["Memory"], amounts["Disk"]) == (cores, memory, disk)


@spec("SLT-07", "W-40")
def test_a_share_without_a_name_is_for_all_that_is_not_named(tmp_path):
    first = divided(tmp_path, "NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = cpus=1, ram=1/2, swap=50%")
    second = divided(tmp_path, "NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = cpus=1, disk=auto, 50%")
    assert first == second


@spec("SLT-06", "W-41")
def test_what_is_left_is_shared_evenly(tmp_path):
    types = "NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = mem=10%\nNUM_SLOTS_TYPE_2 = 3\nSLOT_TYPE_2 = auto"
    assert [amounts["Memory"] for amounts in divided(tmp_path, types, memory=1000)] == [100, 300, 300, 300]


@spec("SLT-16", "W-44")
def test_three_of_ten_cores_leave_seven(tmp_path):
    machine = Machine(tmp_path, "NUM_CPUS = 10\nMEMORY = 10240")
    assert isinstance(machine.claim(RequestCpus=3, RequestMemory=1024, RequestDisk=10240), Granted)
    ads = machine.ads()
    part, left = ads["slot1_1@node1"], ads["slot1@node1"]
    assert (part["Cpus"], part["Memory"], part["Disk"]) == (3, 1024, 10240 + 1024)
    assert (left["Cpus"], left["Memory"]) == (7, 9216)


@spec("SLT-18", "W-45")
@pytest.mark.parametrize(("asked", "given"), [(1000, 1024), (1024, 1024), (1025, 1152)])
@pytest.mark.parametrize("kind", ["", "NUM_SLOTS = 1\nSLOT_TYPE_1 = 100%"])
def test_memory_is_rounded_up(tmp_path, kind, asked, given):
    machine = Machine(tmp_path, kind)
    assert isinstance(machine.claim(RequestMemory=asked, RequestDisk=1), Granted)
    part = machine.ads()["slot1_1@node1"]
    assert (part["Cpus"], part["Memory"], part["Disk"]) == (1, given, 1024 + 1024)


EXCEPTED = """
use POLICY : Desktop
START = ($(START)) || TARGET.Owner == "coltrane"
SUSPEND = ($(SUSPEND)) && TARGET.Owner =!= "coltrane"
PREEMPT = ($(PREEMPT)) && TARGET.Owner =!= "coltrane"
"""


@spec("W-53")
def test_a_policy_may_except_the_jobs_of_one_owner(tmp_path, monkeypatch):
    slots = Desk(EXCEPTED, tmp_path, monkeypatch)
    slots.sees(1, KeyboardIdle=1)
    assert slots.at() == "Unclaimed/Idle"  # START is undefined without a job, not false
    assert isinstance(slots.ask(ad=owned(Owner="tyner")), Refused)
    slots.run(ad=owned(Owner="coltrane"))
    slots.sees(10_000, KeyboardIdle=0, LoadAvg=2.0)
    assert slots.at() == "Claimed/Busy"


HOURS = """
WorkHours = ( (ClockMin >= 480 && ClockMin < 1020) && (ClockDay > 0 && ClockDay < 6) )
AfterHours = ( (ClockMin < 480 || ClockMin >= 1020) || (ClockDay == 0 || ClockDay == 6) )
"""


@spec("SLT-24", "W-54")
@pytest.mark.parametrize(
    ("day", "minute", "works"),
    [(3, 479, False), (3, 480, True), (3, 1019, True), (3, 1020, False), (0, 600, False), (6, 600, False)],
)
def test_working_hours_by_the_clock_of_the_slot(tmp_path, day, minute, works):
    path = tmp_path / "condor_config"
    path.write_text(HOURS)
    config = load_config([path], subsystem="STARTD", env={})
    slot = ClassAd({"ClockDay": day, "ClockMin": minute})
    assert evaluate(parse_expr(config.get("WorkHours")), slot) is works
    assert evaluate(parse_expr(config.get("AfterHours")), slot) is not works
