"""What the administrator lets virtual machines have, and what the machine says of it. Pure (VMU-01, VMU-02, VMU-04)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shared.errors import PermanentError

if TYPE_CHECKING:
    from shared.config.knobs import StartdSettings

#: Ways to a network, and what QEMU calls them.
NETWORKS: Final = {"nat": "user", "bridge": "bridge"}
#: How QEMU may run a guest; tcg is software, and slow.
ACCELERATORS: Final = ("kvm", "tcg")
#: Number of the universe, and its name in OfflineUniverses.
UNIVERSE, UNIVERSE_NAME = 13, "VM"


class BadVmRule(PermanentError):
    """A knob says what can not be carried out: its name and the mend."""


@dataclass(frozen=True, slots=True)
class Rules:
    """kind: VM_TYPE; empty: no virtual machines. memory_mib, most: of all together; 0: the machine's, no bound."""

    kind: str = ""
    program: str = ""
    accelerator: str = "kvm"
    cpu: str = ""  # QEMU's name of a model; empty: its own choice
    networks: tuple[str, ...] = ()  # the first is for jobs that name none
    bridge: str = ""
    memory_mib: int = 0
    most: int = 0


def read_rules(knobs: StartdSettings) -> Rules:
    """Raises BadVmRule."""
    kind = (knobs.vm_type or "").strip().lower()
    if not kind:
        return Rules()
    if kind != "kvm":
        raise BadVmRule(f"VM_TYPE = {knobs.vm_type}: virtual machines run under QEMU here; write kvm, or leave it out")
    if knobs.roost_vm_accelerator not in ACCELERATORS:
        raise BadVmRule(f"ROOST_VM_ACCELERATOR = {knobs.roost_vm_accelerator}: write one of {', '.join(ACCELERATORS)}")
    networks = tuple(name.lower() for name in knobs.vm_networking_type) if knobs.vm_networking else ()
    for name in networks:
        if name not in NETWORKS:
            raise BadVmRule(f"VM_NETWORKING_TYPE lists {name}: there are {', '.join(NETWORKS)}")
    default = (knobs.vm_networking_default_type or "").lower()
    if networks and default:
        if default not in networks:
            raise BadVmRule(f"VM_NETWORKING_DEFAULT_TYPE = {default}, which VM_NETWORKING_TYPE does not list: add it")
        networks = (default, *(name for name in networks if name != default))
    if "bridge" in networks and not knobs.vm_networking_bridge_interface:
        raise BadVmRule("VM_NETWORKING_TYPE lists bridge: name it, VM_NETWORKING_BRIDGE_INTERFACE = br0")
    return Rules(
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
class Found:
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


def attributes(
    rules: Rules, found: Found | None, offline: Offline | None, used_mib: int, running: int, memory_mib: int
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
