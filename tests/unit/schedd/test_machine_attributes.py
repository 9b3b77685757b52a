"""What a job's ad keeps of its machines."""

from services.schedd.core.machine_attributes import MachineAttributes, note_machine
from services.schedd.core.policies import stop_how
from shared.classad import UNDEFINED, parse_ad
from tests.spec import spec
from tests.unit.schedd.test_decisions import cluster_of, job_of


def kept(job):
    return {name: job.ad.eval(name) for name in job.ad if name.startswith("MachineAttr")}


@spec("SUB-05")
def test_what_is_asked_for_moves_on_with_each_run():
    job = job_of(cluster_of('JobMachineAttrs = "Name, Room,Nowhere"; JobMachineAttrsHistoryLength = 2; X = 5'))
    of_all = MachineAttributes(("Cpus", "name"), 1)
    for number in (1, 2, 3):
        slot = parse_ad(f'[Name = "slot{number}"; Cpus = {number}; Room = TARGET.X + {number}]')
        note_machine(job, slot, of_all, 9.0)
    assert kept(job) == {
        "MachineAttrname0": "slot3",
        "MachineAttrname1": "slot2",
        "MachineAttrRoom0": 8,
        "MachineAttrRoom1": 7,
        "MachineAttrNowhere0": UNDEFINED,
        "MachineAttrNowhere1": UNDEFINED,
        "MachineAttrCpus0": 3,
    }
    note_machine(job, parse_ad('[Name = "slot3_1"; Cpus = 1]'), of_all, 9.0, again=True)
    assert (job.ad.eval("MachineAttrname0"), job.ad.eval("MachineAttrname1")) == ("slot3_1", "slot2")


def test_what_names_another_attribute_has_its_value():
    job = job_of(cluster_of('JobMachineAttrs = "Weight,Room,Other,Gone"; X = 5'))
    slot = parse_ad("[Cpus = 3; Weight = cpus; Other = TARGET.X + 1; Room = Other; Gone = Nowhere]")
    note_machine(job, slot, MachineAttributes((), 1), 9.0)
    assert kept(job) == {
        "MachineAttrWeight0": 3,
        "MachineAttrRoom0": 6,
        "MachineAttrOther0": 6,
        "MachineAttrGone0": UNDEFINED,
    }


def test_secrets_and_what_is_no_name_are_left_out():
    job = job_of(cluster_of('JobMachineAttrs = "ClaimId Capability a-b"'))
    note_machine(job, parse_ad('[ClaimId = "secret"; Capability = "secret"; Cpus = 1]'), MachineAttributes((), 1), 9.0)
    assert kept(job) == {}
    job = job_of(cluster_of('JobMachineAttrs = "Cpus"; JobMachineAttrsHistoryLength = 0'))
    note_machine(job, parse_ad("[Cpus = 1]"), MachineAttributes((), 1), 9.0)
    assert kept(job) == {}


def test_a_job_tells_how_much_its_slot_has():
    job = job_of(cluster_of("RequestCpus = 1"))
    whole = parse_ad(
        '[Cpus = 8; Memory = 4096; Disk = 9; GPUs = 2; MachineResources = "Cpus Memory Disk Swap GPUs a-b"]'
    )
    note_machine(job, whole, MachineAttributes((), 0), 9.0)
    carved = parse_ad('[Cpus = 2; Memory = 128; Disk = 7; GPUs = 1; MachineResources = "Cpus Memory Disk Swap GPUs"]')
    note_machine(job, carved, MachineAttributes((), 0), 9.0, again=True)
    told = {name: job.ad.eval(name) for name in job.ad if name.endswith("Provisioned")}
    assert told == {"CpusProvisioned": 2, "MemoryProvisioned": 128, "DiskProvisioned": 7, "GPUsProvisioned": 1}


@spec("SUB-06")
def test_a_job_says_itself_how_it_is_stopped():
    for text, graceful, how in (
        ("Other = 1", True, "graceful"),
        ("Other = 1", False, "fast"),
        ("WantGracefulRemoval = true", False, "graceful"),
        ("WantGracefulRemoval = JobPrio > 1; JobPrio = 1", True, "fast"),
        ("WantGracefulRemoval = Nowhere", True, "graceful"),
        ("WantGracefulRemoval = Nowhere", False, "fast"),
    ):
        assert stop_how(parse_ad(f"[{text}]"), 9.0, graceful=graceful) == how
