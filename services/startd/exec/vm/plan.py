"""From the knobs and the job's ad to QEMU's command line, and what slots say of virtual machines. Pure (VMU-01 to
VMU-04).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.startd.core.run.job_launch import Choice
from shared.classad import ClassAd
from shared.config.knobs import StartdSettings
from shared.errors import PermanentError

#: Ways to a network, and what QEMU calls them.
NETWORKS: Final = {"nat": "user", "bridge": "bridge"}
#: How QEMU may run a guest; tcg is software, and slow.
ACCELERATORS: Final = ("kvm", "tcg")
#: Number of the universe, and its name in OfflineUniverses.
UNIVERSE, UNIVERSE_NAME = 13, "VM"


class BadVmSetting(PermanentError):
    """A knob says what can not be carried out: its name and the mend."""


@dataclass(frozen=True, slots=True)
class VmSettings:
    """kind: VM_TYPE; empty: no virtual machines. memory_mib, most: of all together; 0: the machine's, no bound."""

    kind: str = ""
    program: str = ""
    accelerator: str = "kvm"
    cpu: str = ""  # QEMU's name of a model; empty: its own choice
    networks: tuple[str, ...] = ()  # the first is for jobs that name none
    bridge: str = ""
    memory_mib: int = 0
    most: int = 0


def read_vm_settings(knobs: StartdSettings) -> VmSettings:
    """Raises BadVmRule."""
    kind = (knobs.vm_type or "").strip().lower()
    if not kind:
        return VmSettings()
    if kind != "kvm":
        raise BadVmSetting(
            f"VM_TYPE = {knobs.vm_type}: virtual machines run under QEMU here; write kvm, or leave it out"
        )
    if knobs.roost_vm_accelerator not in ACCELERATORS:
        raise BadVmSetting(
            f"ROOST_VM_ACCELERATOR = {knobs.roost_vm_accelerator}: write one of {', '.join(ACCELERATORS)}"
        )
    networks = tuple(name.lower() for name in knobs.vm_networking_type) if knobs.vm_networking else ()
    for name in networks:
        if name not in NETWORKS:
            raise BadVmSetting(f"VM_NETWORKING_TYPE lists {name}: there are {', '.join(NETWORKS)}")
    default = (knobs.vm_networking_default_type or "").lower()
    if networks and default:
        if default not in networks:
            raise BadVmSetting(
                f"VM_NETWORKING_DEFAULT_TYPE = {default}, which VM_NETWORKING_TYPE does not list: add it"
            )
        networks = (default, *(name for name in networks if name != default))
    if "bridge" in networks and not knobs.vm_networking_bridge_interface:
        raise BadVmSetting("VM_NETWORKING_TYPE lists bridge: name it, VM_NETWORKING_BRIDGE_INTERFACE = br0")
    return VmSettings(
        kind=kind,
        program=knobs.roost_vm_program,
        accelerator=knobs.roost_vm_accelerator,
        cpu=knobs.roost_vm_cpu or "",
        networks=networks,
        bridge=knobs.vm_networking_bridge_interface or "",
        memory_mib=knobs.vm_memory,
        most=knobs.vm_max_number,
    )


@dataclass(frozen=True, slots=True)
class MonitorFound:
    """What trying the monitor told. version: empty where there is none. program: its path. trouble: why it can not be
    used."""

    version: str = ""
    program: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Offline:
    """The machine failed a job, and takes no virtual machines until somebody says that it is mended."""

    reason: str
    at: float


def vm_attributes(
    rules: VmSettings, found: MonitorFound | None, offline: Offline | None, used_mib: int, running: int, memory_mib: int
) -> Mapping[str, object]:
    """What all slots say of it. used_mib, running: of the virtual machines that run; memory_mib: the machine's."""
    if not rules.kind or found is None or not found.version or found.trouble:
        said: dict[str, object] = {"HasVM": False}
        if rules.kind and found is not None and found.trouble:
            said["VMOfflineReason"] = found.trouble[:1000]
        return said
    ad: dict[str, object] = {
        "HasVM": offline is None,
        "VM_Type": rules.kind,
        "VM_GAHP_VERSION": found.version,
        "VM_Memory": max(0, (rules.memory_mib or memory_mib) - used_mib),
        "VM_AvailNum": max(0, rules.most - running) if rules.most else 10000,
        "VM_Networking": bool(rules.networks),
        "VM_HardwareVT": rules.accelerator == "kvm",
    }
    if rules.networks:
        ad["VM_Networking_Types"] = ",".join(rules.networks)
    if offline is not None:
        ad["VMOfflineReason"] = offline.reason[:1000]
        ad["VMOfflineTime"] = int(offline.at)
        ad["OfflineUniverses"] = [UNIVERSE_NAME, UNIVERSE]
    return ad


#: Words of QEMU that tell of the machine's fault; the job's images and amounts are behind all others (VMU-03, VMU-04).
_MACHINE_WORDS: Final = (
    "kvm kernel module",
    "failed to initialize kvm",
    "no accelerator found",
    "invalid accelerator",
    "cannot set up guest memory",
    "cannot allocate memory",
    "could not set up host network",
    "failed to get mtu of bridge",
    "bridge helper failed",
    "failed to launch bridge helper",
    "no space left on device",
    "input/output error",
    "internal-error",
    "kvm internal error",
    "failed to set msr",
    "resource temporarily unavailable",
    "too many open files",
    "error while loading shared libraries",
)


def is_machines_fault(said: str) -> bool:
    """Whether the monitor's last words speak of the machine rather than of the job."""
    return any(word in said.lower() for word in _MACHINE_WORDS)


#: In the scratch directory: where orders go, what the monitor complains of, and the guest's first serial port.
SOCKET, COMPLAINTS, CONSOLE = ".vm.qmp", ".vm.log", "vm.console"
#: Memory of the monitor beside its guest's, MiB.
OVERHEAD_MIB: Final = 256
#: By the beginning of a device's name.
_BUSES: Final = {"vd": "virtio", "hd": "ide", "sd": "scsi"}
_DEVICE = re.compile(r"[a-z]{2,3}[a-z0-9]{1,3}")
_FORMATS: Final = ("raw", "qcow2", "qcow", "vmdk", "vdi", "vhdx", "vpc", "qed")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_SCSI_CONTROLLER: Final = ("-device", "virtio-scsi-pci,id=scsi0")


class BadVm(Exception):
    """The job's description of its machine can not be carried out."""


@dataclass(frozen=True, slots=True)
class Disk:
    """One of vm_disk: file:device:permission[:format]."""

    path: str
    device: str
    writable: bool
    format: str


@dataclass(frozen=True, slots=True)
class VmPlan:
    """argv: without the program."""

    argv: tuple[str, ...]
    disks: tuple[Disk, ...]


def parse_disks(text: str) -> tuple[Disk, ...]:
    """Raises BadVm."""
    disks = []
    for entry in text.split(","):
        parts = [part.strip() for part in entry.strip().split(":")]
        if len(parts) not in (3, 4) or not all(parts):
            raise BadVm(f"vm_disk: {entry.strip()!r} is not file:device:permission, or with :format behind")
        path, device, permission = parts[:3]
        kind = parts[3].lower() if len(parts) == 4 else "raw"
        if not _DEVICE.fullmatch(device):
            raise BadVm(f"vm_disk: device {device!r} is not one like vda, hda or sda")
        if permission not in ("r", "w", "rw"):
            raise BadVm(f"vm_disk: permission {permission!r} of {path} is not r, w or rw")
        if kind not in _FORMATS:
            raise BadVm(f"vm_disk: format {kind!r} of {path} is not one of {', '.join(_FORMATS)}")
        disks.append(Disk(path, device, permission != "r", kind))
    twice = {disk.device for disk in disks if sum(disk.device == other.device for other in disks) > 1}
    if twice:
        raise BadVm(f"vm_disk: {', '.join(sorted(twice))} is given twice")
    return tuple(disks)


def make_plan(rules: VmSettings, job: ClassAd, cpus: float) -> VmPlan:
    """cpus: of the slot, for a job that names none. Raises BadVm."""
    kind = job.eval_string("JobVMType").lower()
    if kind != rules.kind:
        raise BadVm(f"the job wants a virtual machine of type {kind or 'none'}, and this machine has {rules.kind}")
    disks = parse_disks(job.eval_string("VMPARAM_vm_Disk"))
    memory = _amount(job, "JobVMMemory", 0)
    if memory <= 0:
        raise BadVm("the job does not say how much memory its machine has: set vm_memory")
    vcpus = max(1, _amount(job, "JobVM_VCPUS", int(cpus)))
    argv = [
        *("-name", _quoted(job.eval_string("Cmd") or "job")),
        *("-machine", f"pc,accel={rules.accelerator}"),
        *(("-cpu", rules.cpu) if rules.cpu else ()),
        *("-m", str(memory)),
        *("-smp", str(vcpus)),
        "-nodefaults",
        *("-display", "none"),
        *("-vga", "std"),
        *("-serial", f"file:{CONSOLE}"),
        *("-qmp", f"unix:{SOCKET},server=on,wait=off"),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=" + ("allow" if _bridged(rules, job) else "deny")),
    ]
    if any(_bus(disk) == "scsi" for disk in disks):
        argv += _SCSI_CONTROLLER
    for disk in sorted(disks, key=lambda one: one.device):
        options = [f"file={_quoted(disk.path)}", f"format={disk.format}", f"id={disk.device}", f"if={_bus(disk)}"]
        if _bus(disk) == "scsi":
            options[-1] = "if=none"
        if not disk.writable:
            options.append("readonly=on")
            if _bus(disk) == "ide":  # a hard disk on this bus can not be read-only: a CD can
                options.append("media=cdrom")
        argv += ["-drive", ",".join(options)]
        if _bus(disk) == "scsi":
            argv += ["-device", f"scsi-hd,drive={disk.device},bus=scsi0.0"]
    argv += _network(rules, job)
    return VmPlan(tuple(argv), disks)


def _bridged(rules: VmSettings, job: ClassAd) -> bool:
    """A helper of QEMU's, a program of its own, puts it on a bridge."""
    return _network_of(rules, job) == "bridge"


def _network_of(rules: VmSettings, job: ClassAd) -> str:
    if job.eval("JobVMNetworking") is not True:
        return ""
    return job.eval_string("JobVMNetworkingType").lower() or (rules.networks[0] if rules.networks else "none")


def _network(rules: VmSettings, job: ClassAd) -> list[str]:
    wanted = _network_of(rules, job)
    if not wanted:
        return ["-nic", "none"]
    if wanted not in rules.networks:
        offered = ", ".join(rules.networks) or "none"
        raise BadVm(f"the job's machine wants a network of type {wanted}, and this machine offers {offered}")
    options = [NETWORKS[wanted], "model=virtio-net-pci"]
    if wanted == "bridge":
        options.append(f"br={_quoted(rules.bridge)}")
    mac = job.eval_string("JobVM_MACADDR")
    if mac:
        if not _MAC.fullmatch(mac):
            raise BadVm(f"vm_macaddr: {mac!r} is not a hardware address like 02:16:3e:00:00:01")
        options.append(f"mac={mac}")
    return ["-nic", ",".join(options)]


def _bus(disk: Disk) -> str:
    return _BUSES.get(disk.device[:2], "virtio")


def _amount(job: ClassAd, name: str, default: int) -> int:
    value = job.eval(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return default
    return int(value)


def _quoted(text: str) -> str:
    """A comma ends an option of QEMU's, two of them are one."""
    return text.replace(",", ",,")


def choose_vm(job: ClassAd, machine: ClassAd, settings: VmSettings) -> Choice | None:
    return Choice("vm") if job.eval("JobUniverse") == UNIVERSE else None
