"""Consumption policies at the startd: CON-01 to CON-07, worked examples W-48 and W-49."""

import pytest

from services.startd import settings
from services.startd.ads import slot_ads as ads
from services.startd.core.machine.detected import Detected, Sample
from services.startd.core.machine.slot_plan import plan_slots
from services.startd.core.machine.slot_types import Partition
from services.startd.core.slots.requests import ClaimRequest, Granted, Refused
from shared.classad import ClassAd, is_true
from shared.config import load_config
from shared.consumption import Shortage, as_consumed, consumption, has_policy
from tests.spec import spec
from tests.unit.startd.recording import RecordedSlots

NOW = 1_000_000.0
DETECTED = Detected(
    hostname="node1",
    cpus=8,
    cores=8,
    memory_mib=16_384,
    swap_kib=0,
    arch="X86_64",
    opsys_name="Debian",
    opsys_major=12,
    opsys_version=1200,
)
W_48 = """
    SLOT_TYPE_1 = cpus=8
    SLOT_TYPE_1_PARTITIONABLE = True
    NUM_SLOTS_TYPE_1 = 1
    SLOT_TYPE_1_CONSUMPTION_POLICY = True
    SLOT_TYPE_1_CONSUMPTION_CPUS = TARGET.RequestCpus
    SLOT_WEIGHT = Cpus
"""
GPUS = """
    MACHINE_RESOURCE_NAMES = gpus
    MACHINE_RESOURCE_gpus = 4
    SLOT_TYPE_1 = cpus=8, gpus=4
    SLOT_TYPE_1_PARTITIONABLE = True
    NUM_SLOTS_TYPE_1 = 1
    SLOT_TYPE_1_CONSUMPTION_POLICY = True
"""


class Machine:
    """A startd's book with the ads of its slots, without a daemon."""

    def __init__(self, text, tmp_path):
        path = tmp_path / "condor_config"
        path.write_text("NUM_CPUS = 8\nMEMORY = 16384\nDISK = 10000000\n" + text.replace("    ", ""))
        config = load_config([path], subsystem="STARTD", env={})
        self.settings = settings.read(config, DETECTED)
        found = plan_slots(config, DETECTED, lambda path: Partition("", 10_000_000))
        amounts, plans = found.amounts, found.slots
        self.around = ads.MachineInfo("node1", 1, DETECTED, amounts, len(plans), self.settings)
        self.base = ads.machine_ad(self.around)
        numbers = iter(range(10**6))
        self.slot_manager = RecordedSlots(
            startd="node1",
            start_time=1,
            ad_of=self.ad,
            policy_of=self.settings.policy,
            carving=self.settings.carving,
            new_secret=lambda: f"secret{next(numbers)}",
        )
        self.slot_manager.add_slots(plans, NOW)
        self.requests = 0

    def ad(self, slot):
        return ads.slot_ad(self.base, slot, Sample(disk_kib=10_000_000), self.around, ads.RelatedSlots(), NOW)

    @property
    def slot(self):
        return self.slot_manager.slots["slot1@node1"]

    def request(self, job):
        self.requests += 1
        asked = ClaimRequest(
            f"r{self.requests}", self.slot.offer, self.slot.name, "ap", "alice", job.pack(), 60.0, 300, 1
        )
        return self.slot_manager.request(asked, job, NOW)

    def weight(self):
        return self.ad(self.slot).eval("SlotWeight")


def job(cpus=1, memory=128, disk=1024, requirements="TARGET.Cpus >= RequestCpus", **more):
    ad = ClassAd({"RequestCpus": cpus, "RequestMemory": memory, "RequestDisk": disk} | more)
    ad.set_text("Requirements", requirements)
    return ad


@spec("CON-01", "CON-03", "CON-06", "W-48")
def test_jobs_take_cores_as_they_ask_until_none_is_left(tmp_path):
    machine = Machine(W_48, tmp_path)
    charges = []
    for cpus in (2, 2, 4):
        before = machine.weight()
        answer = machine.request(job(cpus))
        assert isinstance(answer, Granted)
        assert answer.slot.total["Cpus"] == cpus
        charges.append(before - machine.weight())
    assert charges == [2, 2, 4]
    refused = machine.request(job(1))
    assert isinstance(refused, Refused)
    assert refused.code == "resources"


@spec("CON-05", "W-48")
def test_four_jobs_of_a_gpu_and_a_core(tmp_path):
    machine = Machine(GPUS + "SLOT_TYPE_1_CONSUMPTION_gpus = TARGET.RequestGPUs\n", tmp_path)
    given = [machine.request(job(RequestGPUs=1)) for _ in range(5)]
    assert [isinstance(answer, Granted) for answer in given] == [True] * 4 + [False]
    assert "gpus" in given[4].reason
    assert (machine.slot.free["gpus"], machine.slot.free["Cpus"]) == (0, 4)


@spec("CON-02", "W-49")
def test_default_consumption(tmp_path):
    machine = Machine(GPUS, tmp_path)
    answer = machine.request(job(1, memory=100, disk=500))
    assert dict(answer.slot.total) == {"Cpus": 1, "Memory": 128, "Disk": 1024, "gpus": 0}


@spec("CON-01")
def test_the_ad_of_a_partitionable_slot_tells_the_policy(tmp_path):
    machine = Machine(W_48, tmp_path)
    ad = machine.ad(machine.slot)
    assert ad.text("ConsumptionCpus") == "TARGET.RequestCpus"
    assert ad.text("ConsumptionMemory") == "quantize(target.RequestMemory,{ 128 })"
    assert ad.text("ConsumptionDisk") == "quantize(target.RequestDisk,{ 1024 })"


@spec("CON-01")
@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("CONSUMPTION_POLICY = True", True),
        ("", False),
        ("CONSUMPTION_POLICY = True\nSLOT_TYPE_1_CONSUMPTION_POLICY = False", False),
        ("CONSUMPTION_POLICY = False\nSLOT_TYPE_1_CONSUMPTION_POLICY = True", True),
        ("SLOT_TYPE_2_CONSUMPTION_POLICY = True", False),
    ],
)
def test_the_policy_of_a_slot_type_beats_the_plain_one(tmp_path, text, has):
    types = "SLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = True\nNUM_SLOTS_TYPE_1 = 1\n"
    machine = Machine(types + text + "\n", tmp_path)
    assert has_policy(machine.ad(machine.slot)) is has


def test_static_slots_have_no_policy(tmp_path):
    machine = Machine("CONSUMPTION_POLICY = True\nSLOT_TYPE_1 = 50%\nNUM_SLOTS_TYPE_1 = 2\n", tmp_path)
    assert not has_policy(machine.ad(machine.slot))
    assert isinstance(machine.request(job(1)), Granted)


@spec("CON-05")
@pytest.mark.parametrize(
    ("text", "cpus", "gpus"),
    [
        ("", 1, 2),
        ("CONSUMPTION_CPUS = 3\nCONSUMPTION_gpus = 1", 3, 1),
        ("CONSUMPTION_CPUS = 3\nSLOT_TYPE_1_CONSUMPTION_CPUS = 2 * TARGET.RequestCpus", 2, 2),
        ("SLOT_TYPE_1_CONSUMPTION_gpus = quantize(TARGET.RequestGPUs, {4})", 1, 4),
    ],
)
def test_the_expressions_of_a_slot_type_beat_the_plain_ones(tmp_path, text, cpus, gpus):
    machine = Machine(GPUS + text + "\n", tmp_path)
    answer = machine.request(job(1, RequestGPUs=2))
    assert (answer.slot.total["Cpus"], answer.slot.total["gpus"]) == (cpus, gpus)


@spec("CON-04")
def test_every_asset_must_be_there(tmp_path):
    machine = Machine(GPUS, tmp_path)
    ad = machine.ad(machine.slot)
    for asset, asking in (("Cpus", job(9)), ("Memory", job(memory=17_000)), ("gpus", job(RequestGPUs=5))):
        answer = consumption(asking, ad)
        assert isinstance(answer, Shortage)
        assert answer.resource == asset
        assert isinstance(machine.request(asking), Refused)


@pytest.mark.parametrize("cpus", ["-1", '"two"', "TARGET.nothing", 'real("INF")', "0 / 0"])
def test_an_expression_that_is_no_amount_gives_no_slot_and_says_so(tmp_path, cpus):
    machine = Machine(W_48.replace("TARGET.RequestCpus", cpus), tmp_path)
    refused = machine.request(job(1))
    assert isinstance(refused, Refused)
    assert "ConsumptionCpus" in refused.reason


def test_a_policy_that_takes_nothing_gives_nothing(tmp_path):
    text = "".join(f"CONSUMPTION_{name} = 0\n" for name in ("CPUS", "MEMORY", "DISK"))
    machine = Machine(GPUS + text, tmp_path)
    assert isinstance(machine.request(job(1)), Refused)
    assert isinstance(machine.request(job(1, RequestGPUs=1)), Granted)


@spec("CON-07")
def test_requirements_see_what_is_consumed_as_requested(tmp_path):
    machine = Machine(W_48.replace("TARGET.RequestCpus", "quantize(TARGET.RequestCpus, {4})"), tmp_path)
    asking = job(1, requirements="RequestCpus == 4 && TARGET.Cpus >= RequestCpus")
    answer = machine.request(asking)
    assert isinstance(answer, Granted)
    assert answer.slot.total["Cpus"] == 4
    assert asking["RequestCpus"] == 1
    # The job is activated on what it got, which its own request alone would not tell.
    claim = machine.slot_manager.activate(answer.claim.claim_id, "1.0/1", asking.pack(), asking, NOW)
    assert not isinstance(claim, Refused), claim


@spec("CON-07")
def test_within_resource_limits_holds_for_jobs_as_they_are_and_as_consumed(tmp_path):
    # 2 * x is not the same when it is applied twice.
    machine = Machine(W_48.replace("TARGET.RequestCpus", "2 * TARGET.RequestCpus"), tmp_path)
    ad = machine.ad(machine.slot)
    for cpus, fits in ((4, True), (5, False)):
        asking = job(cpus)
        seen = as_consumed(asking, {"Cpus": 2 * cpus, "Memory": 128, "Disk": 1024})
        assert is_true(ad.eval("WithinResourceLimits", asking)) is fits
        assert is_true(ad.eval("WithinResourceLimits", seen)) is fits


def test_an_expression_that_can_not_be_read_names_its_knob(tmp_path):
    with pytest.raises(settings.BadSetting, match="SLOT_TYPE_1_CONSUMPTION_CPUS"):
        Machine(W_48.replace("= TARGET.RequestCpus", "= 1 +"), tmp_path)


def test_a_job_that_asks_for_nothing_special_keeps_its_ad(tmp_path):
    asking = job(1)
    seen = as_consumed(asking, {"Cpus": 2, "gpus": 1})
    assert "Requestgpus" not in seen
    assert (seen["RequestCpus"], asking["RequestCpus"]) == (2, 1)
    assert seen["_cp_orig_RequestCpus"] == 1
