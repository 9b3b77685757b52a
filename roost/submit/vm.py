"""The vm universe: jobs that are virtual machines (spec row VMU-05; condor_submit's commands vm_*)."""

from __future__ import annotations

from typing import Any

from roost.submit.commands import Attributes, Commands
from shared.config.errors import config_error

UNIVERSE = 13


def is_vm(out: Attributes) -> bool:
    return bool(out.get("JobUniverse") == UNIVERSE)


def commands(c: Commands, out: Attributes) -> None:
    """What the machine is to be. Raises ConfigError."""
    kind = (c.text("vm_type") or "").lower()
    if kind != "kvm":
        raise config_error(
            f"vm_type is {kind}" if kind else "a vm universe job needs a vm_type", c.source("vm_type"), "write kvm"
        )
    memory = c.integer("vm_memory")
    if memory is None or memory <= 0:
        raise config_error("a vm universe job needs its machine's memory", c.source("vm_memory"), "vm_memory = MIB")
    disks = c.text("vm_disk")
    if not disks:
        raise config_error("a vm universe job needs a vm_disk", None, "vm_disk = FILE:DEVICE:PERMISSION[:FORMAT]")
    for disk in disks.split(","):
        if len(disk.split(":")) not in (3, 4):
            raise config_error(
                f"vm_disk has {disk.strip()}", c.source("vm_disk"), "write FILE:DEVICE:PERMISSION[:FORMAT], ..."
            )
    for name in ("input", "stdin", "output", "stdout", "error", "stderr"):
        if c.text(name):
            raise config_error(
                f"a vm universe job has no {name}", c.source(name), "what the guest writes to ttyS0 is in vm.console"
            )
    if c.boolean("vm_vnc"):
        raise config_error("there are no VNC consoles", c.source("vm_vnc"), "remove vm_vnc")
    out["JobVMType"] = kind
    out["JobVMMemory"] = memory
    cpus = c.text("request_cpus") or ""
    out["JobVM_VCPUS"] = max(1, c.integer("vm_vcpus") or (int(cpus) if cpus.isdecimal() else 1))
    out["JobVMCheckpoint"] = bool(c.boolean("vm_checkpoint"))
    out["JobVMNetworking"] = bool(c.boolean("vm_networking"))
    out["JobVMVNCConsole"] = False
    out["VMPARAM_vm_Disk"] = disks
    network, mac = c.text("vm_networking_type"), c.text("vm_macaddr")
    if network and out["JobVMNetworking"]:
        out["JobVMNetworkingType"] = network.strip('"')
    if mac:
        out["JobVM_MACADDR"] = mac
    none_back = c.boolean("vm_no_output_vm")
    if none_back is not None:
        out["VMPARAM_No_Output_VM"] = none_back
    if out["JobVMCheckpoint"] and out["JobVMNetworking"] and _when(c) != "ON_EXIT_OR_EVICT":
        raise config_error(
            "vm_checkpoint and vm_networking contradict each other: connections do not survive a move",
            c.source("vm_checkpoint"),
            "say that you want both, when_to_transfer_output = ON_EXIT_OR_EVICT",
        )


def _when(c: Commands) -> str:
    return (c.text("when_to_transfer_output") or "").upper()


def executable(c: Commands, out: Attributes) -> None:
    """A name, no file."""
    text = c.text("executable")
    if not text:
        raise config_error("No 'executable' parameter was provided", None, "add executable = NAME of the machine")
    out["Cmd"] = text
    out["TransferExecutable"] = False
    if "ExecutableSize" not in out:
        out["ExecutableSize"] = out["JobVMMemory"] * 1024
        out["ImageSize"] = c.image_kib = out["ExecutableSize"]


def when(out: Attributes) -> tuple[str, str]:
    """ShouldTransferFiles and WhenToTransferOutput: images travel always."""
    return "YES", "ON_EXIT_OR_EVICT" if out["JobVMCheckpoint"] else "ON_EXIT"


def platform(out: dict[str, Any], named: set[str]) -> list[str]:
    """Terms of Requirements."""
    terms = [] if "hasvm" in named else ["(TARGET.HasVM =?= true)"]
    if "vm_type" not in named:
        terms.append("(TARGET.VM_Type == MY.JobVMType)")
    if "vm_availnum" not in named:
        terms.append("(TARGET.VM_AvailNum > 0)")
    if out["JobVMCheckpoint"]:
        terms.append(
            "((MY.VM_CkptMac =?= undefined) || (TARGET.VM_All_Guest_Macs =?= undefined) || "
            '(stringListIMember(MY.VM_CkptMac,TARGET.VM_All_Guest_Macs,",") == false))'
        )
    return terms


def amounts(out: dict[str, Any], named: set[str]) -> list[str]:
    """Terms that come behind the disk's."""
    terms = ["(TARGET.TotalMemory >= MY.JobVMMemory)"]
    if "vm_memory" not in named:
        terms.append("(TARGET.VM_Memory >= MY.JobVMMemory)")
    if out["JobVMNetworking"]:
        if "vm_networking" not in named:
            terms.append("TARGET.VM_Networking")
        if "JobVMNetworkingType" in out:
            terms.append('stringListIMember(JobVMNetworkingType,TARGET.VM_Networking_Types,",")')
    return terms
