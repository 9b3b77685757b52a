"""Virtual machines: what the administrator lets them have, QEMU's command line, whose fault a failure is."""

import asyncio

import pytest

from services.startd.exec.vm import launcher
from services.startd.exec.vm.launcher import NoMonitor, _complaints, qmp_command
from services.startd.exec.vm.plan import (
    COMPLAINTS,
    BadVm,
    BadVmSetting,
    Disk,
    MonitorFound,
    Offline,
    VmSettings,
    is_machines_fault,
    make_plan,
    parse_disks,
    read_vm_settings,
    vm_attributes,
)
from shared.classad import ClassAd, parse_expr
from shared.config import load_config
from shared.config.knobs import StartdSettings
from tests.spec import spec

RULES = VmSettings("kvm", "qemu", "tcg", networks=("nat",))
FOUND = MonitorFound("7.2.22", "/usr/bin/qemu")


def job(**attrs):
    return ClassAd(
        {"Cmd": "guest", "JobVMType": "kvm", "JobVMMemory": 64, "VMPARAM_vm_Disk": "a.img:vda:w:qcow2"} | attrs
    )


def argv(rules=RULES, **attrs):
    return " ".join(make_plan(rules, job(**attrs), 2.0).argv)


def rules_of(text):
    knobs = dict(line.split(" = ", 1) for line in text.splitlines())
    env = {f"_CONDOR_{name.strip()}": value for name, value in knobs.items()}
    return read_vm_settings(StartdSettings.from_config(load_config([], subsystem="STARTD", env=env)))


def test_no_type_no_machines():
    assert rules_of("") == VmSettings()
    assert vm_attributes(VmSettings(), MonitorFound(), None, 0, 0, 100) == {"HasVM": False}


@spec("VMU-01")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("VM_TYPE = xen", "VM_TYPE = xen"),
        ("VM_TYPE = kvm\nROOST_VM_ACCELERATOR = fast", "ROOST_VM_ACCELERATOR = fast"),
        ("VM_TYPE = kvm\nVM_NETWORKING = true\nVM_NETWORKING_TYPE = nat, carrier-pigeon", "lists carrier-pigeon"),
        ("VM_TYPE = kvm\nVM_NETWORKING = true\nVM_NETWORKING_DEFAULT_TYPE = bridge", "add it"),
        ("VM_TYPE = kvm\nVM_NETWORKING = true\nVM_NETWORKING_TYPE = bridge", "VM_NETWORKING_BRIDGE_INTERFACE"),
    ],
)
def test_a_knob_that_can_not_be_carried_out_is_named(text, words):
    with pytest.raises(BadVmSetting, match=words):
        rules_of(text)


def test_the_default_network_is_the_first():
    text = """VM_TYPE = KVM
VM_NETWORKING = true
VM_NETWORKING_TYPE = nat, bridge
VM_NETWORKING_DEFAULT_TYPE = bridge
VM_NETWORKING_BRIDGE_INTERFACE = br0"""
    rules = rules_of(text)
    assert (rules.kind, rules.networks) == ("kvm", ("bridge", "nat"))
    assert "-nic bridge,model=virtio-net-pci,br=br0" in argv(rules, JobVMNetworking=True)
    assert "spawn=allow" in argv(rules, JobVMNetworking=True)
    assert "-nic user,model=virtio-net-pci" in argv(rules, JobVMNetworking=True, JobVMNetworkingType="NAT")


@spec("VMU-02")
async def test_only_root_runs_machines(monkeypatch):
    monkeypatch.setattr(launcher.os, "geteuid", lambda: 1000)
    found = await launcher.probe(RULES)
    assert "root" in found.trouble
    assert vm_attributes(RULES, found, None, 0, 0, 100)["HasVM"] is False


async def test_a_monitor_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(launcher.os, "geteuid", lambda: 0)
    assert "ROOST_VM_PROGRAM" in (await launcher.probe(VmSettings("kvm", "/no/such/qemu"))).trouble


def test_what_the_monitor_says_of_itself():
    greeting = b'{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}}, "capabilities": []}}\n'
    assert launcher.read_greeting("/usr/bin/qemu", greeting, b"") == FOUND
    said = launcher.read_greeting("/usr/bin/qemu", b"", b"qemu: failed to initialize kvm: No such file\n")
    assert (said.version, said.program) == ("", "")
    assert "failed to initialize kvm" in said.trouble


@spec("VMU-04")
def test_a_machine_at_fault_says_so_and_what_it_has():
    said = vm_attributes(RULES, FOUND, Offline("no KVM", 17.9), 64, 1, 1000)
    assert (said["HasVM"], said["VMOfflineReason"], said["VMOfflineTime"]) == (False, "no KVM", 17)
    assert said["OfflineUniverses"] == ["VM", 13]
    assert (said["VM_Memory"], said["VM_AvailNum"]) == (936, 10000)


@spec("VMU-03", "VMU-04")
@pytest.mark.parametrize(
    ("said", "machine"),
    [
        ("qemu: Could not access KVM kernel module: Permission denied", True),
        ("qemu: cannot set up guest memory 'pc.ram': Cannot allocate memory", True),
        ("qemu: -drive file=a.img: Image is not in qcow2 format", False),
        ("", False),
    ],
)
def test_whose_fault_it_is(said, machine):
    assert is_machines_fault(said) is machine


def test_the_command_line():
    text = argv(JobVM_VCPUS=3, VMPARAM_vm_Disk="a,b.img:sda:w".replace(",", "_") + ", cd.iso:hdc:r")
    assert "-m 64 -smp 3 -nodefaults" in text
    assert "-drive file=cd.iso,format=raw,id=hdc,if=ide,readonly=on,media=cdrom" in text
    assert "-drive file=a_b.img,format=raw,id=sda,if=none -device scsi-hd,drive=sda,bus=scsi0.0" in text
    assert text.count("virtio-scsi-pci") == 1
    assert "-nic none" in text
    assert "spawn=deny" in text


def test_a_processor_is_named():
    assert "-cpu" not in argv()
    assert "-cpu host" in argv(rules_of("VM_TYPE = kvm\nROOST_VM_CPU = host"))


@spec("VMU-03")
def test_an_amount_that_is_none_is_named():
    """Ends nothing but the job's start."""
    for text in ('real("INF")', 'real("NaN")', '"much"'):
        ad = job()
        ad["JobVMMemory"] = parse_expr(text)
        with pytest.raises(BadVm, match="set vm_memory"):
            make_plan(RULES, ad, 2.0)


async def test_a_monitor_that_talks_nonsense_is_none(tmp_path):
    """It runs under the user's account, and so may somebody who only says to be it."""
    answers = [b"[" * 100_000, b'"x"', b'{"QMP": 1}\n{"error": "no"}', b'{"QMP": 1}\n{"error": {"desc": "no"}}', b""]

    async def talk(reader, writer):
        writer.write(answers[0] + b"\n")
        writer.close()

    async with await asyncio.start_unix_server(talk, tmp_path / "s"):
        while answers:
            with pytest.raises(NoMonitor):
                await qmp_command(tmp_path, "s")
            answers.pop(0)


def test_what_the_monitor_complained_of_is_read_of_no_link(tmp_path):
    """Root reads it, in a directory of the user's."""
    (tmp_path / "secret").write_text("root:x\n")
    (tmp_path / COMPLAINTS).symlink_to(tmp_path / "secret")
    assert _complaints(tmp_path) == ""
    (tmp_path / COMPLAINTS).unlink()
    (tmp_path / COMPLAINTS).write_text("qemu: warning: old\nqemu: no such image\n")
    assert _complaints(tmp_path) == "qemu: no such image"


def test_a_comma_in_a_name_ends_no_option():
    assert "-name a,,b" in argv(Cmd="a,b")


def test_disks_are_read():
    assert parse_disks("a.img:vda:rw:QCOW2, b:hda:r") == (
        Disk("a.img", "vda", True, "qcow2"),
        Disk("b", "hda", False, "raw"),
    )


@spec("VMU-03")
@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"VMPARAM_vm_Disk": "json:x:y:z:q"}, "is not file:device:permission"),
        ({"VMPARAM_vm_Disk": "a:vda:w,b:vda:w"}, "vda is given twice"),
        ({"VMPARAM_vm_Disk": "a:vda;rm:w"}, "is not one like vda"),
        ({"VMPARAM_vm_Disk": "a:vda:x"}, "is not r, w or rw"),
        ({"VMPARAM_vm_Disk": "a:vda:w:floppy"}, "is not one of raw"),
        ({"VMPARAM_vm_Disk": ""}, "is not file:device:permission"),
        ({"JobVMType": "xen"}, "of type xen"),
        ({"JobVMMemory": 0}, "set vm_memory"),
        ({"JobVMNetworking": True, "JobVMNetworkingType": "bridge"}, "offers nat"),
        ({"JobVMNetworking": True, "JobVM_MACADDR": "1,script=/x"}, "is not a hardware address"),
    ],
)
def test_a_description_that_can_not_be_carried_out_is_named(attrs, words):
    with pytest.raises(BadVm, match=words):
        make_plan(RULES, job(**attrs), 1.0)
