"""From a job's ad to QEMU's command line. Pure (VMU-01, VMU-03)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from services.startd.launchers.vm.rules import NETWORKS, Rules
from shared.classad import ClassAd

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
class Plan:
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


def make_plan(rules: Rules, job: ClassAd, cpus: float) -> Plan:
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
    return Plan(tuple(argv), disks)


def _bridged(rules: Rules, job: ClassAd) -> bool:
    """A helper of QEMU's, a program of its own, puts it on a bridge."""
    return _network_of(rules, job) == "bridge"


def _network_of(rules: Rules, job: ClassAd) -> str:
    if job.eval("JobVMNetworking") is not True:
        return ""
    return job.eval_string("JobVMNetworkingType").lower() or (rules.networks[0] if rules.networks else "none")


def _network(rules: Rules, job: ClassAd) -> list[str]:
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
