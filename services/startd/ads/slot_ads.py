"""The ads of a machine's slots, with the attributes that HTCondor's users and default expressions expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services.startd.ads.children import Children
from services.startd.ads.claim_ads import put_claim, put_waiting
from services.startd.book.amounts import STANDARD, Amounts
from services.startd.book.partition import SlotKind
from services.startd.book.policy import REQUIREMENTS, WITHIN_LIMITS, Policy, start_is_false
from services.startd.book.slots import Claim, Slot
from services.startd.book.transitions import State
from services.startd.machine.detection import Detected, Sample
from services.startd.machine.devices import machine_attributes
from services.startd.machine.resources import Stock
from services.startd.machine.shares import SWAP
from services.startd.settings import Settings
from shared.classad import ClassAd, Expr, parse_expr
from shared.consumption import within_limits
from shared.version import VERSION

_WITHIN_LIMITS = parse_expr(WITHIN_LIMITS)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all slots of the machine share."""

    startd: str
    start_time: int
    detected: Detected
    total: Amounts
    slot_count: int
    settings: Settings
    stock: Stock = field(default_factory=Stock)


def machine_ad(around: Surroundings) -> ClassAd:
    """The attributes that all slot ads of this machine have alike."""
    detected, settings = around.detected, around.settings
    opsys_and_version = f"{detected.opsys_name}{detected.opsys_major}"
    ad = ClassAd(
        {
            "MyType": "Machine",
            "TargetType": "Job",
            "Machine": around.startd,
            "MyAddress": f"startd.{around.startd}",
            "StartdIpAddr": f"startd.{around.startd}",
            "RoostVersion": VERSION,
            "RoostPlatform": f"{detected.arch}-{opsys_and_version}",
            "DaemonStartTime": around.start_time,
            "Arch": detected.arch,
            "OpSys": detected.opsys,
            "OpSysAndVer": opsys_and_version,
            "OpSysName": detected.opsys_name,
            "OpSysShortName": detected.opsys_name,
            "OpSysLongName": detected.opsys_long_name,
            "OpSysMajorVer": detected.opsys_major,
            "OpSysVer": detected.opsys_major * 100,
            "OpSysLegacy": detected.opsys,
            "DetectedCpus": detected.cpus,
            "DetectedMemory": detected.memory_mib,
            "TotalSlots": around.slot_count,
            "FileSystemDomain": settings.filesystem_domain,
            "UidDomain": settings.uid_domain,
            "HasFileTransfer": True,
            "HasFileTransferPluginMethods": "",
            "HasIOProxy": False,
            "HasReconnect": True,
            "HasTDP": False,
            "HasMPI": False,
            "HasVM": False,
            "CanHibernate": False,
            "CpuModel": detected.cpu_model,
        }
    )
    for name in around.total:
        ad[f"Total{name}"] = around.total[name]
    ad["MachineResources"] = " ".join((*STANDARD, SWAP, *(name for name in around.total if name not in STANDARD)))
    ad.update(machine_attributes(around.stock))
    return ad


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What the ad of a slot tells of others. siblings: see `claim_ads.sibling_attributes`."""

    dynamic: Sequence[Slot] = ()  # slots carved from it
    children: Children = field(default_factory=Children)  # the texts about them
    waiting: Claim | None = None  # the claim that waits for it to empty
    siblings: Mapping[str, Expr] = field(default_factory=dict)
    parts: Sequence[Mapping[str, object]] = ()  # what parts of the startd say of it, later ones win
    on_top: Sequence[Callable[[ClassAd], Mapping[str, object]]] = ()  # what they say when they see the rest of it


def slot_ad(
    base: ClassAd,
    slot: Slot,
    sample: Sample,
    around: Surroundings,
    others: Neighbours,
    now: float,
    policy: Policy | None = None,
) -> ClassAd:
    """The ad of one slot. policy: as it is now, if not as configured."""
    settings = around.settings
    policy = policy or settings.policy(slot.type_id)
    ad = base.copy()
    virtual_memory = sample.free_swap_kib + around.detected.memory_mib * 1024
    ad.update(
        {
            "Name": slot.name,
            "SlotID": slot.slot_id,
            "SlotType": str(slot.kind),
            "SlotTypeID": slot.type_id if slot.kind is not SlotKind.DYNAMIC else -max(1, slot.type_id),
            "PartitionableSlot": slot.kind is SlotKind.PARTITIONABLE,
            "DynamicSlot": slot.kind is SlotKind.DYNAMIC,
            "State": str(slot.state),
            "Activity": str(slot.activity),
            # Tells the negotiator that its match has arrived, also where the job came and went between two ads.
            "RoostClaims": slot.asked,
            "EnteredCurrentState": int(slot.state_since),
            "EnteredCurrentActivity": int(slot.activity_since),
            "MyCurrentTime": int(now),
            "TotalLoadAvg": sample.load_avg,
            "ClockMin": sample.clock_min,
            "ClockDay": sample.clock_day,
            "TotalVirtualMemory": virtual_memory,
            "VirtualMemory": int(virtual_memory * slot.swap_share),
        }
    )
    if slot.kind is SlotKind.DYNAMIC:
        ad["DSlotID"] = slot.dynamic_id
        ad["ParentSlotName"] = slot.parent
    elif slot.kind is SlotKind.PARTITIONABLE:
        others.children.put(ad, others.dynamic)
    for name in slot.total:
        # Less than nothing is left where a disk filled up: nothing, to others.
        ad[name] = max(0, slot.free[name]) if slot.kind is SlotKind.PARTITIONABLE else slot.total[name]
        ad[f"TotalSlot{name}"] = slot.total[name]
    for name, expr in others.siblings.items():
        ad[name] = expr
    for attributes in others.parts:
        ad.update(attributes)
    _put_policy(ad, slot, policy)
    for name, expr in settings.attributes.items():
        ad[name] = expr
    for name, expr in settings.type_attributes.get(slot.type_id, {}).items():
        ad[name] = expr
    for name, expr in settings.slot_attributes.get(slot.slot_id, {}).items():
        ad[name] = expr
    put_claim(ad, slot.claim, slot.state, settings.job_attributes)
    if others.waiting is not None:
        put_waiting(ad, others.waiting)
    for attributes_of in others.on_top:
        ad.update(attributes_of(ad))
    # Last, as START may go by anything that the ad says.
    refuses = slot.state in (State.MATCHED, State.PREEMPTING) or start_is_false(policy, ad)
    ad["Requirements"] = False if refuses else REQUIREMENTS
    return ad


def _put_policy(ad: ClassAd, slot: Slot, policy: Policy) -> None:
    ad["Start"] = policy.start
    ad["Rank"] = policy.rank
    ad["IsOwner"] = policy.is_owner
    ad["SlotWeight"] = policy.slot_weight
    ad["MachineMaxVacateTime"] = policy.machine_max_vacate_time
    ad["WithinResourceLimits"] = _WITHIN_LIMITS
    ad.update(policy.shown)
    if policy.consumption and slot.kind is not SlotKind.STATIC:
        # Dynamic slots have it too, as in HTCondor: what fits them is what their policy says a job consumes.
        for resource, expr in policy.consumption.items():
            ad[f"Consumption{resource}"] = expr
        ad["WithinResourceLimits"] = within_limits(tuple(policy.consumption))
