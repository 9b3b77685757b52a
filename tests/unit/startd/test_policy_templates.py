"""HTCondor's policies of desktops and clusters (`use POLICY : ...`), from the configuration's text to what slots do."""

import importlib
from types import SimpleNamespace

import pytest

from engine.slots.carving import PlannedSlot, SlotKind
from services.startd import settings
from services.startd.ads import slot_ads as ads
from services.startd.ads.claim_ads import put_claim, sibling_attributes
from services.startd.core.machine.detected import Detected, Sample
from services.startd.core.machine.owner_activity import Latches
from services.startd.core.slots.model import VacateReason
from services.startd.core.slots.requests import Refused
from shared.classad import ClassAd
from shared.config import load_config
from tests.spec import spec
from tests.unit.startd.states import ONE, STATIC, TWO, Slots
from tests.unit.startd.test_claims import job

DETECTED = Detected(hostname="node1", cpus=2, cores=2, memory_mib=1000, swap_kib=0, arch="X86_64")
START = 1_000_000.0


class Desk(Slots):
    """A machine with one static slot under a configuration; `seen` is what its owner and its loads are."""

    def __init__(self, text, tmp_path, monkeypatch):
        path = tmp_path / "condor_config"
        path.write_text(
            f"NUM_CPUS = 2\nMEMORY = 1000\nDISK = 10000\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = 100%\n{text}\n"
        )
        config = load_config([path], subsystem="STARTD", env={})
        self.settings = settings.read(config, DETECTED)
        self.around = ads.MachineInfo("node1", 1, DETECTED, STATIC, 1, self.settings)
        self.base = ads.machine_ad(self.around)
        self.latches = Latches()
        self.seen = {"KeyboardIdle": 10_000, "ConsoleIdle": 10_000, "LoadAvg": 0.0, "CondorLoadAvg": 0.0}
        self.now = START
        evaluation = importlib.import_module("shared.classad.evaluate")
        monkeypatch.setattr(evaluation, "time", SimpleNamespace(time=lambda: self.now))
        super().__init__(now=START, policies={0: self.settings.policy(0), 1: self.settings.policy(1)})

    def ad_of(self, slot):
        policy = self.slot_manager.policy(slot) if hasattr(self, "slot_manager") else self.settings.policy(slot.type_id)
        latched = [lambda ad: self.latches.look(slot.name, ad, self.settings.latches, self.now)]
        around = ads.RelatedSlots(parts=[self.seen], on_top=latched)
        return ads.slot_ad(self.base, slot, Sample(disk_kib=10_000), self.around, around, self.now, policy)

    def sees(self, seconds, **seen):
        self.seen |= seen
        self.after(seconds)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    return lambda text: Desk(text, tmp_path, monkeypatch)


def owned(**attributes):
    return job(2, JobUniverse=5, ImageSize=1000, **attributes)


@spec("W-55")
@pytest.mark.parametrize("name", ["Desktop", "UWCS_Desktop"])
def test_a_desktop_starts_suspends_continues_and_gives_up(desk, name):
    slots = desk(f"use POLICY : {name}")
    slots.sees(1, KeyboardIdle=100)
    assert isinstance(slots.ask(ad=owned()), Refused)
    slots.sees(1, KeyboardIdle=901)
    claim = slots.run(ad=owned())
    slots.sees(200, KeyboardIdle=5)
    assert slots.at() == "Claimed/Suspended"
    slots.sees(200, KeyboardIdle=200)
    assert slots.at() == "Claimed/Suspended"
    slots.sees(200, KeyboardIdle=400)
    assert slots.at() == "Claimed/Busy"
    # A busy processor counts once it has been busy for two minutes.
    slots.sees(1, KeyboardIdle=10_000, LoadAvg=1.5, CondorLoadAvg=0.9)
    slots.sees(110)
    assert slots.at() == "Claimed/Busy"
    slots.sees(11)
    assert slots.at() == "Claimed/Suspended"
    slots.sees(600)
    assert slots.at() == "Claimed/Suspended"
    slots.sees(1)
    assert (slots.at(), claim.for_owner) == ("Preempting/Vacating", True)
    slots.gone(claim)
    assert slots.at() == "Owner/Idle"


@spec("W-52")
def test_what_jobs_make_of_the_load_is_not_the_owners(desk):
    slots = desk("use POLICY : Desktop")
    slots.run(ad=owned())
    slots.sees(500, LoadAvg=0.9, CondorLoadAvg=0.9)
    slots.sees(500)
    assert slots.at() == "Claimed/Busy"


@spec("STM-A", "STM-B", "W-50")
def test_desktops_are_their_owners_while_start_is_locally_false(desk):
    slots = desk("use POLICY : Desktop")
    slots.sees(1, KeyboardIdle=34)
    assert slots.at() == "Owner/Idle"
    slots.sees(1, KeyboardIdle=1000)
    assert slots.at() == "Unclaimed/Idle"


def test_always_run_jobs(desk):
    slots = desk("use POLICY : Always_Run_Jobs")
    slots.run(ad=owned())
    slots.sees(10_000, KeyboardIdle=0, LoadAvg=5.0)
    assert slots.at() == "Claimed/Busy"
    slots.drain()
    slots.sees(1_000_000)
    assert slots.at() == "Claimed/Retiring"


def test_limit_job_runtimes(desk):
    slots = desk("use POLICY : Limit_Job_Runtimes(3600)\nMachineMaxVacateTime = 60")
    slots.run(ad=owned())
    slots.sees(3600)
    assert slots.at() == "Claimed/Busy"
    slots.sees(1)
    assert slots.at() == "Claimed/Retiring"
    slots.sees(60)
    assert slots.at() == "Preempting/Vacating"


@pytest.mark.parametrize(
    ("name", "measured", "seconds", "subcode"),
    [
        ("Memory_Exceeded", {"MemoryUsage": 1001}, 1, 102),
        ("Disk_Exceeded", {"DiskUsage": 20_000}, 1, 104),
        ("Runtime_Exceeds(100)", {}, 101, 103),
        ("Cpus_Exceeded", {}, 1, 101),
    ],
)
@pytest.mark.parametrize("what", ["PREEMPT_IF", "HOLD_IF"])
def test_what_exceeds_is_preempted_or_held(desk, what, name, measured, seconds, subcode):
    template = f"{what.title()}_{name}"
    if what == "PREEMPT_IF" and name.startswith("Runtime"):
        template = "Preempt_If_Runtime_Exceeds(100)"
    slots = desk(f"MAXJOBRETIREMENTTIME = 5000\nuse POLICY : {template}\nDETECTED_CORES = 64")
    claim = slots.run(ad=owned(RequestMemory=100))
    if name == "Cpus_Exceeded":
        measured, load = {"CpusUsage": 2.9}, {"TotalLoadAvg": 3.0, "CondorLoadAvg": 3.0, "LoadAvg": 3.0}
    else:
        load = {}
    slots.slot_manager.measured(claim.claim_id, claim.run, {"MemoryUsage": 900, "DiskUsage": 100})
    slots.sees(50)
    assert slots.at() == "Claimed/Busy"
    slots.slot_manager.measured(claim.claim_id, claim.run, measured)
    slots.sees(seconds, **load)
    assert slots.at() == "Preempting/Vacating"
    assert (claim.hold is not None) == (what == "HOLD_IF")
    if claim.hold is not None:
        assert claim.hold[1] == subcode
        assert "exceeded" in claim.hold[0]


@spec("STM-45")
def test_forms_for_slot_types_and_vanilla_jobs(desk):
    slots = desk(
        "PREEMPT = True\nSLOT_TYPE_1_PREEMPT = False\nSLOT_TYPE_1_PREEMPT_VANILLA = KeyboardIdle < 5\n"
        "SLOT_TYPE_1_MAXJOBRETIREMENTTIME = 700\nMachineMaxVacateTime = 10\nSLOT_TYPE_2_START = False"
    )
    claim = slots.run(ad=owned())
    assert (slots.at(), claim.retirement_s) == ("Claimed/Busy", 700)
    slots.sees(1, KeyboardIdle=1)
    assert slots.at() == "Claimed/Retiring"
    slots.gone(claim)
    slots.run(ad=job(2, JobUniverse=7))
    slots.sees(1)
    assert slots.at() == "Claimed/Busy"


def test_a_form_that_can_not_be_read_is_refused(desk):
    with pytest.raises(settings.BadSetting, match="SLOT_TYPE_1_KILL"):
        desk("SLOT_TYPE_1_KILL = ((")


@spec("STM-49")
def test_the_ad_of_a_suspended_slot_stands_still(desk):
    slots = desk(
        "WANT_SUSPEND = True\nSUSPEND = KeyboardIdle < 5\nCONTINUE = KeyboardIdle > 5\nMAXJOBRETIREMENTTIME = 1000"
    )
    claim = slots.run(ad=owned())
    slots.sees(100, KeyboardIdle=1)
    seen = []
    for _ in range(2):
        slots.sees(50)
        ad = slots.ad_of(slots.slot_manager.slots[ONE])
        seen.append([ad.eval(n) for n in ("TotalJobRunTime", "RetirementTimeRemaining", "TotalJobSuspendTime")])
    assert seen == [[100, 900, 50], [100, 900, 100]]
    slots.sees(50, KeyboardIdle=6)
    slots.sees(100)
    ad = slots.ad_of(slots.slot_manager.slots[ONE])
    assert ad.eval("TotalJobRunTime") == 200
    assert ad.eval("RetirementTimeRemaining") == 800
    put_claim(ad, claim, slots.slot_manager.slots[ONE].state, ())
    assert ad.eval("NumJobSuspensions") == 1


#: The sample of the manual for jobs that are rather suspended than evicted, on a machine of one core: slot 2 is the
#: suspendable one of the pair.
PAIR = """
NUM_SLOTS_TYPE_1 = 2
SLOT_TYPE_1 = 50%
IsSuspendableSlot = SlotID > 1
NonSuspendableSlotState = eval(strcat("slot", SlotID - 1, "_State"))
STARTD_SLOT_ATTRS = $(STARTD_SLOT_ATTRS) State
STARTD_ATTRS = $(STARTD_ATTRS) IsSuspendableSlot NonSuspendableSlotState
PartnerIsIdle = (NonSuspendableSlotState =!= "Claimed" && NonSuspendableSlotState =!= "Preempting")
START = IsSuspendableSlot != True && IsSuspendableJob =!= True \\
    || IsSuspendableSlot && IsSuspendableJob == True && $(PartnerIsIdle)
SUSPEND = IsSuspendableSlot && $(PartnerIsIdle) != True
WANT_SUSPEND = $(SUSPEND)
CONTINUE = ($(SUSPEND)) != True
"""


class Pair(Desk):
    """Two static slots, each of which sees the State of the other."""

    def __init__(self, text, tmp_path, monkeypatch):
        super().__init__(text, tmp_path, monkeypatch)
        self.slot_manager.add_slots([PlannedSlot(2, 1, SlotKind.STATIC, STATIC)], self.now)
        self.after(0)

    def ad_of(self, slot):
        ad = super().ad_of(slot)
        states = {
            name: ClassAd({"State": str(other.state)})
            for name, other in (self.slot_manager.slots.items() if hasattr(self, "slot_manager") else ())
        }
        ad.update(sibling_attributes(states, self.settings.sibling_attributes))
        return ad


@spec("W-56")
def test_a_suspendable_job_stands_still_while_the_partner_of_its_slot_is_taken(tmp_path, monkeypatch):
    slots = Pair(PAIR, tmp_path, monkeypatch)
    suspendable = owned(IsSuspendableJob=True)
    assert isinstance(slots.ask(ONE, suspendable), Refused)
    assert isinstance(slots.ask(TWO, owned()), Refused)
    slots.run(TWO, suspendable)
    slots.after(1)
    assert slots.at(TWO) == "Claimed/Busy"
    # Whatever the priorities: nothing that runs on the one slot keeps a job from the other.
    partner = slots.run(ONE, owned())
    slots.after(1)
    assert (slots.at(ONE), slots.at(TWO)) == ("Claimed/Busy", "Claimed/Suspended")
    slots.after(600)
    assert slots.at(TWO) == "Claimed/Suspended"
    slots.release(partner)
    slots.gone(partner)
    slots.after(1)
    assert slots.at(TWO) == "Claimed/Busy"


@spec("W-56")
def test_a_suspendable_job_does_not_start_beside_a_partner_that_works(tmp_path, monkeypatch):
    slots = Pair(PAIR, tmp_path, monkeypatch)
    slots.run(ONE, owned())
    slots.after(1)
    assert isinstance(slots.ask(TWO, owned(IsSuspendableJob=True)), Refused)
    assert slots.at(ONE) == "Claimed/Busy"


@spec("W-57")
def test_slot_1_prefers_interactive_jobs_and_the_others_do_not_care(tmp_path, monkeypatch):
    rank = "NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = 50%\nRANK = ( (MY.SlotID == 1) && (TARGET.InteractiveJob =?= True) )"
    slots = Pair(rank, tmp_path, monkeypatch)
    interactive = owned(InteractiveJob=True)
    assert [slots.run(slot, owned()).rank for slot in (ONE, TWO)] == [0.0, 0.0]
    taken = [slots.ask(slot, interactive, submitter="bob").waiting for slot in (ONE, TWO)]
    assert [(one.claim.rank, one.code) for one in taken] == [(1.0, VacateReason.RANK), (0.0, VacateReason.PRIORITY)]
