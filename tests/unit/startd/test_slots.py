"""Slots as the manual tells of them: names, kinds, carving, and what every slot's ad has (rows SLT-*).

How machines are divided is held to the reference in `test_reference_slots`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from roost.submit import Description, SubmitContext
from services.startd import settings
from services.startd.ads import slot_ads
from services.startd.core.machine.detected import Detected, Sample, parse_cpuinfo
from services.startd.core.machine.slot_plan import plan_slots
from services.startd.core.machine.slot_types import Partition, read_shares
from services.startd.core.slots.requests import ClaimRequest, Granted, Refused
from services.startd.core.slots.transitions import State
from services.startd.machine.detection import RealMachine
from shared.classad import ClassAd, parse_expr, unparse
from shared.classad.match import half_match
from shared.config import load_config
from tests.spec import spec
from tests.unit.startd.recording import RecordedSlots

NOW = 1_800_000_000.0
DETECTED = Detected(
    "node1", 8, 4, 16384, 1_000_000, arch="X86_64", opsys="LINUX", opsys_name="Debian", opsys_major=12,
    opsys_long_name="Debian GNU/Linux 12",
)  # fmt: skip
SAMPLE = Sample(disk_kib=10_000_000, free_swap_kib=500_000, clock_min=754, clock_day=3)


class Machine:
    """A startd's book and the ads of its slots, without a daemon."""

    def __init__(self, tmp_path, text="", detected=DETECTED):
        path = tmp_path / "condor_config"
        path.write_text(f"NUM_CPUS = 8\nMEMORY = 16384\nEXECUTE = /x\n{text}\n")
        config = load_config([path], subsystem="STARTD", env={})
        self.settings = settings.read(config, detected)
        found = plan_slots(config, detected, lambda where: Partition(where, 10_000_000))
        self.around = slot_ads.MachineInfo(
            "node1", 1, detected, found.amounts, len(found.slots), self.settings, found.stock
        )
        self.base = slot_ads.machine_ad(self.around)
        secrets = iter(range(10**6))
        self.slot_manager = RecordedSlots(
            startd="node1",
            start_time=1,
            ad_of=self.ad,
            policy_of=self.settings.policy,
            carving=self.settings.carving,
            new_secret=lambda: f"secret{next(secrets)}",
        )
        self.slot_manager.add_slots(found.slots, NOW)
        self.requests = 0

    def ad(self, slot):
        slots = len(self.slot_manager.slots) if hasattr(self, "slot_manager") else None
        others = slot_ads.RelatedSlots(dynamic=self.slot_manager.dynamic_slots(slot.name), slot_count=slots)
        return slot_ads.slot_ad(self.base, slot, SAMPLE, self.around, others, NOW)

    def ads(self):
        return {name: self.ad(slot) for name, slot in self.slot_manager.slots.items()}

    def claim(self, slot="slot1@node1", **asked):
        job = ClassAd({"RequestCpus": 1, "RequestMemory": 128, "RequestDisk": 1024, "User": "alice"})
        for name, value in asked.items():
            job[name] = parse_expr(value) if isinstance(value, str) else value
        job.set_text("Requirements", "TARGET.Cpus >= RequestCpus && TARGET.Memory >= RequestMemory")
        self.requests += 1
        offer = self.slot_manager.slots[slot].offer
        request = ClaimRequest(f"r{self.requests}", offer, slot, "ap", "alice", job.pack(), 60.0, 300, 1)
        return self.slot_manager.request(request, job, NOW)


@spec("SLT-01")
def test_by_default_one_slot_has_everything(tmp_path):
    ((name, ad),) = Machine(tmp_path).ads().items()
    assert name == "slot1@node1"
    assert (ad["Cpus"], ad["Memory"], ad["Disk"]) == (8, 16384, 10_000_000)
    assert ad["TotalSlots"] == 1


@spec("SLT-02", "SLT-17", "SLT-23")
def test_names_and_kinds(tmp_path):
    types = "NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = 1/4\nSLOT_TYPE_1_PARTITIONABLE = true\n"
    machine = Machine(tmp_path, types + "NUM_SLOTS_TYPE_2 = 1\nSLOT_TYPE_2 = 1/4\n")
    for _ in range(2):
        assert isinstance(machine.claim("slot2@node1"), Granted)
    shown = {
        name: tuple(ad.eval(one) for one in ("SlotID", "SlotType", "PartitionableSlot", "DynamicSlot", "DSlotID"))
        for name, ad in machine.ads().items()
    }
    kinds = {name: values[:4] for name, values in shown.items()}
    assert kinds == {
        "slot1@node1": (1, "Partitionable", True, False),
        "slot2@node1": (2, "Partitionable", True, False),
        "slot3@node1": (3, "Static", False, False),
        "slot2_1@node1": (2, "Dynamic", False, True),
        "slot2_2@node1": (2, "Dynamic", False, True),
    }
    assert [shown[f"slot2_{n}@node1"][4] for n in (1, 2)] == [1, 2]


@spec("SLT-05")
@pytest.mark.parametrize("text", ["c", "CPU", "cpus", "Cp"])
@pytest.mark.parametrize("memory", ["m", "mem", "r", "RAM", "Memory"])
def test_any_beginning_of_a_name_will_do(text, memory):
    shares, _ = read_shares(f"{text}=1, {memory}=25%, d=1/2, virt=1/4", (), "SLOT_TYPE_1")
    assert list(shares) == ["Cpus", "Memory", "Disk", "Swap"]
    again, _ = read_shares(f"{text}=1, {memory}=25%, disk=50%, s=25%", (), "SLOT_TYPE_1")
    assert again == shares


@spec("SLT-06", "SLT-07", "SLT-08")
def test_swap_is_shared_too(tmp_path):
    """SLT-06: what is not named is auto; SLT-07: or the blanket value; SLT-08: of virtual memory as it is now."""
    machine = Machine(tmp_path, "NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = swap=10%, cpus=1, 1/4\nNUM_SLOTS_TYPE_2 = 2")
    ads = machine.ads()
    assert [ad["Cpus"] for ad in ads.values()] == [1, 3, 3]
    assert [ad["Memory"] for ad in ads.values()] == [4096, 6144, 6144]
    total = 500_000 + 16384 * 1024
    assert {ad["TotalVirtualMemory"] for ad in ads.values()} == {total}
    assert [ad["VirtualMemory"] for ad in ads.values()] == [int(total * share) for share in (0.1, 0.45, 0.45)]


@spec("SLT-16", "W-43")
def test_carving_leaves_the_rest(tmp_path):
    """3 cores, 10 GB and 100 GB less 1, 2 and 20 are 2, 8 and 80; the disk of a slot has 1 MiB over."""
    machine = Machine(tmp_path, "NUM_CPUS = 3\nMEMORY = 10240\nDISK = 104857600")
    granted = machine.claim(RequestMemory=2048, RequestDisk=20 * 1024 * 1024)
    assert isinstance(granted, Granted)
    ads = machine.ads()
    left = ads["slot1@node1"]
    assert (left["Cpus"], left["Memory"], left["Disk"] + 1024) == (2, 8192, 80 * 1024 * 1024)
    assert (left["TotalSlotCpus"], left["TotalSlotMemory"], left["ChildCpus"]) == (3, 10240, [1])


@spec("SLT-18")
@pytest.mark.parametrize(
    ("asked", "knob", "given"),
    [
        ({"RequestCpus": 2}, "", (2, 128)),
        ({"RequestMemory": 129}, "", (1, 256)),
        ({"RequestMemory": 1}, "MODIFY_REQUEST_EXPR_REQUESTMEMORY = quantize(RequestMemory, {500})", (1, 500)),
        ({"RequestCpus": 3}, "MODIFY_REQUEST_EXPR_REQUESTCPUS = quantize(RequestCpus, {4})", (4, 128)),
        ({"RequestCpus": 3}, "MODIFY_REQUEST_EXPR_REQUESTCPUS = no_such_thing", (3, 128)),
    ],
)
def test_requests_are_rounded_up(tmp_path, asked, knob, given):
    granted = Machine(tmp_path, knob).claim(**asked)
    assert isinstance(granted, Granted)
    assert (granted.slot.total["Cpus"], granted.slot.total["Memory"]) == given


@spec("SLT-19")
def test_who_does_not_fit_does_not_get_it(tmp_path):
    machine = Machine(tmp_path, "MEMORY = 300\nMUST_MODIFY_REQUEST_EXPRS = true")
    assert isinstance(machine.claim(RequestMemory=260), Refused)
    assert isinstance(machine.claim(RequestMemory=250), Granted)


@spec("SLT-20")
def test_a_dynamic_slot_takes_the_next_job_that_fits(tmp_path):
    machine = Machine(tmp_path)
    granted = machine.claim(RequestMemory=1024)
    assert isinstance(granted, Granted)
    claim_id = granted.claim.claim_id
    for number, memory, fits in ((1, 1024, True), (2, 512, True), (3, 2048, False)):
        job = ClassAd({"RequestCpus": 1, "RequestMemory": memory, "RequestDisk": 1024, "Requirements": True})
        answer = machine.slot_manager.activate(claim_id, f"{number}.0/1", job.pack(), job, NOW)
        assert isinstance(answer, Refused) is not fits
        machine.slot_manager.run_gone(claim_id, f"{number}.0/1", NOW)
    assert list(machine.slot_manager.slots) == ["slot1@node1", "slot1_1@node1"]


@spec("SLT-21")
def test_a_partitionable_slot_is_unclaimed_whatever_runs(tmp_path):
    machine = Machine(tmp_path)
    for _ in range(8):
        assert isinstance(machine.claim(), Granted)
    assert machine.slot_manager.slots["slot1@node1"].state is State.UNCLAIMED
    assert machine.ads()["slot1@node1"]["Cpus"] == 0


@spec("SLT-15")
def test_policies_look_at_the_slot_they_are_asked_for(tmp_path):
    """One START for all slots, with each one's SlotID."""
    machine = Machine(tmp_path, "NUM_SLOTS_TYPE_1 = 2\nSTART = SlotID == 2")
    assert isinstance(machine.claim("slot1@node1"), Refused)
    assert isinstance(machine.claim("slot2@node1"), Granted)


@spec("SLT-24")
def test_time_of_day_is_in_every_ad(tmp_path):
    for ad in Machine(tmp_path, "NUM_SLOTS_TYPE_1 = 2").ads().values():
        assert (ad["ClockMin"], ad["ClockDay"]) == (754, 3)
    sample = RealMachine().sample(tmp_path, NOW)
    assert 0 <= sample.clock_min < 24 * 60
    assert 0 <= sample.clock_day < 7


@spec("SLT-25", "W-63")
def test_attributes_of_the_administrator(tmp_path):
    """For all slots, for one, for a type; a slot's own value wins over its type's."""
    text = 'STARTD_ATTRS = Colour\nColour = "red"\nSLOT2_Colour = "blue"\nSLOT1_STARTD_ATTRS = Size\nSIZE = 2\n'
    types = (
        'NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = 1/4\nNUM_SLOTS_TYPE_2 = 1\nSLOT_TYPE_2 = 1/4\nSLOT_TYPE_2_Colour = "green"'
    )
    ads = list(Machine(tmp_path, text + types).ads().values())
    assert [ad.eval("Colour") for ad in ads] == ["red", "blue", "green"]
    assert [ad.get("Size") for ad in ads] == [2, None, None]


@spec("CFG-23")
def test_an_attribute_that_is_no_expression_is_left_out(tmp_path):
    text = 'STARTD_ATTRS = Colour, Shape\nColour = "red\nShape = 1\nSLOT2_Shape = 1 +\n'
    types = "NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = 1/4\n"
    ads = list(Machine(tmp_path, text + types).ads().values())
    assert [(ad.get("Colour"), ad.get("Shape")) for ad in ads] == [(None, 1), (None, 1)]


@spec("SLT-29")
def test_what_the_machine_is(tmp_path):
    """What it does, load and idle times, is shown by a part of the startd: `test_startd_slots`."""
    ad = Machine(tmp_path).ads()["slot1@node1"]
    assert (ad["OpSys"], ad["OpSysAndVer"], ad["OpSysMajorVer"], ad["Arch"]) == ("LINUX", "Debian12", 12, "X86_64")
    assert (ad["DetectedCpus"], ad["DetectedMemory"]) == (8, 16384)


@spec("SLT-29")
def test_what_its_kernel_says_of_itself(tmp_path):
    """So that jobs can ask for a kernel (UtsnameRelease)."""
    said = RealMachine().detect().utsname
    ad = Machine(tmp_path, detected=replace(DETECTED, utsname=said)).ads()["slot1@node1"]
    parts = ("Sysname", "Nodename", "Release", "Version", "Machine")
    assert tuple(ad[f"Utsname{part}"] for part in parts) == tuple(os.uname())


@spec("SLT-29")
def test_a_machine_without_gpus_says_that_it_has_none(tmp_path):
    """Jobs that leave GPUs to others ask for `GPUs == 0`; in HTCondor every slot answers that."""
    names = ("GPUs", "TotalGPUs", "TotalSlotGPUs", "DetectedGPUs")
    machine = Machine(tmp_path)
    assert isinstance(machine.claim(), Granted)
    for ad in machine.ads().values():
        assert [ad[name] for name in names] == [0, 0, 0, 0]
    with_some = Machine(tmp_path, "MACHINE_RESOURCE_gpus = CUDA0, CUDA1\n").ads()["slot1@node1"]
    assert [with_some.eval(name) for name in names[:3]] == [2, 2, 2]


@spec("SLT-03", "SLT-10")
def test_more_slots_than_cores_are_not_made(tmp_path):
    """The least there is."""
    assert len(Machine(tmp_path, "NUM_SLOTS = 20").slot_manager.slots) == 8
    machine = Machine(tmp_path, "NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = cpus=0, mem=0")
    ((_, ad),) = machine.ads().items()
    assert (ad["Cpus"], ad["Memory"]) == (1, 1)


def test_threads_need_not_count_as_cores(tmp_path):
    path = tmp_path / "condor_config"
    path.write_text("COUNT_HYPERTHREAD_CPUS = false\n")
    machine = {
        "DETECTED_CPUS": "16",
        "DETECTED_CPUS_LIMIT": "12",
        "DETECTED_PHYSICAL_CPUS": "8",
        "DETECTED_MEMORY": "1",
    }
    config = load_config([path], subsystem="STARTD", env={}, overrides=machine)
    found = plan_slots(config, replace(DETECTED, memory_mib=1000), lambda where: Partition(where, 1))
    assert found.amounts["Cpus"] == 8


@spec("SLT-25")
def test_a_type_with_a_list_of_its_own_has_no_other_values_of_its_own(tmp_path):
    text = (
        "STARTD_ATTRS = Colour, Shape\nColour = 1\nShape = 2\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = 1/2\n"
        "SLOT_TYPE_1_Colour = 11\nNUM_SLOTS_TYPE_2 = 1\nSLOT_TYPE_2 = 1/2\nSLOT_TYPE_2_Colour = 21\n"
        "SLOT_TYPE_2_STARTD_ATTRS = Shape\nSLOT_TYPE_2_Shape = 22\n"
    )
    ads = Machine(tmp_path, text).ads()
    assert [(ad.eval("Colour"), ad.eval("Shape")) for ad in ads.values()] == [(11, 2), (1, 22)]


@spec("SLT-02")
def test_dynamic_slots_tell_whose_they_are(tmp_path):
    """Their type is their parent's, and TotalSlots counts them too."""
    types = "NUM_SLOTS_TYPE_2 = 2\nSLOT_TYPE_2 = 1/2\nSLOT_TYPE_2_PARTITIONABLE = true\nMAXJOBRETIREMENTTIME = 7\n"
    machine = Machine(tmp_path, types)
    assert isinstance(machine.claim("slot2@node1"), Granted)
    ads = machine.ads()
    dynamic = ads["slot2_1@node1"]
    assert [dynamic.eval(name) for name in ("ParentSlotId", "SlotTypeID", "MaxJobRetirementTime")] == [2, 2, 7]
    assert {ad.eval("TotalSlots") for ad in ads.values()} == {3}
    assert "ParentSlotId" not in ads["slot1@node1"]


@spec("STM-43")
def test_static_slots_leave_it_to_the_job_whether_they_are_large_enough(tmp_path):
    machine = Machine(tmp_path, "NUM_SLOTS_TYPE_1 = 8\nSLOT_TYPE_1 = 1/8")
    ad = machine.ads()["slot1@node1"]
    assert (unparse(ad.lookup("Requirements")), "WithinResourceLimits" in ad) == ("START", False)
    large = {"RequestCpus": 1, "RequestMemory": 1_000_000, "User": "alice"}
    assert isinstance(machine.claim(**large), Refused)  # by the Requirements of the job
    job = ClassAd(large)
    request = ClaimRequest(
        "r", machine.slot_manager.slots["slot1@node1"].offer, "slot1@node1", "ap", "alice", job.pack(), 9, 3, 1
    )
    granted = machine.slot_manager.request(request, job, NOW)
    assert isinstance(granted, Granted)
    started = machine.slot_manager.activate(granted.claim.claim_id, "1.0/1", job.pack(), job, NOW)
    assert not isinstance(started, Refused)


@spec("CON-01")
def test_a_slot_with_a_consumption_policy_tells_how_many_claims_it_gives(tmp_path):
    text = "NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = 1/2\nSLOT_TYPE_1_PARTITIONABLE = true\n"
    assert "NumClaims" not in Machine(tmp_path, text).ads()["slot1@node1"]
    machine = Machine(tmp_path, text + "CONSUMPTION_POLICY = true")
    assert isinstance(machine.claim(), Granted)
    assert machine.ads()["slot1@node1"].eval("NumClaims") == 4


@pytest.mark.parametrize(
    ("flags", "level", "told"),
    [
        ("", None, set()),
        ("sse sse2", "x86_64-v1", set()),
        ("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3", "x86_64-v2", {"sse4_1", "sse4_2", "ssse3"}),
        ("abm avx avx2 bmi1 bmi2 f16c fma movbe xsave", "x86_64-v3", {"avx", "avx2"}),
        (
            "avx512bw avx512cd avx512dq avx512f avx512vl avx512_vnni",
            "x86_64-v4",
            {"avx512dq", "avx512f", "avx512_vnni"},
        ),
    ],
)
def test_what_the_processor_can(flags, level, told):
    text = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Some CPU\ncache size\t: 2048 KB\n"
    text += f"flags\t\t: {flags}\n"
    processor = parse_cpuinfo(f"{text}\n{text.replace('Some', 'Other')}")
    found = processor.attributes("X86_64")
    assert [found.pop(name) for name in ("CpuModel", "CpuFamily", "CpuModelNumber", "CpuCacheSize")] == [
        "Some CPU", 6, 143, 2048,
    ]  # fmt: skip
    assert found.pop("Microarch", None) == level
    assert found == {f"has_{flag}": True for flag in told}
    assert "Microarch" not in processor.attributes("aarch64")
    assert parse_cpuinfo("").attributes("X86_64") == {"CpuModel": ""}


@pytest.mark.parametrize("line", ["preserve_relative_paths = true", "when_to_transfer_output = ON_SUCCESS"])
def test_jobs_that_ask_for_a_version_of_htcondor_have_a_slot(tmp_path, line):
    place = SubmitContext(tmp_path, "job.sub", "alice", {}, "example.org")
    text = f"executable = /bin/true\nshould_transfer_files = YES\n{line}\nqueue\n"
    (cluster,) = Description(text, place).clusters()
    job = cluster.ad
    job.overlay(next(cluster.jobs()))
    assert "TARGET.CondorVersion" in job.text("Requirements")
    assert half_match(job, Machine(tmp_path).ads()["slot1@node1"])
