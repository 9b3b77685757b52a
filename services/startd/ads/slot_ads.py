"""The ads of a machine's slots, with the attributes that HTCondor's users and default expressions expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.slots.amounts import CPUS, STANDARD, Amounts
from engine.slots.carving import SlotKind
from services.startd.ads.ad_layers import AdLayers
from services.startd.ads.child_lists import ChildLists
from services.startd.ads.claim_ads import put_claim, put_waiting
from services.startd.core.machine.detected import UTSNAME, Detected, Sample, interface_attributes
from services.startd.core.machine.devices import GPUS, machine_attributes
from services.startd.core.machine.resources import Stock
from services.startd.core.machine.slot_types import SWAP
from services.startd.core.slots.model import Claim, Slot
from services.startd.core.slots.policy import WITHIN_LIMITS, Policy, requirements, start_is_false
from services.startd.core.slots.transitions import Condition, State
from services.startd.isolation.host_capabilities import can_mount
from services.startd.settings import Settings
from shared.classad import ClassAd, Expr, parse_expr
from shared.classad.expr import Binary, Literal, Parens
from shared.config.conditions import VERSION as OF_CONDOR
from shared.consumption import within_limits
from shared.version import VERSION

_WITHIN_LIMITS = parse_expr(WITHIN_LIMITS)
_TIME: Final = parse_expr("time()")


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """What all slots of the machine share."""

    startd: str
    start_time: int
    detected: Detected
    total: Amounts
    slot_count: int
    settings: Settings
    stock: Stock = field(default_factory=Stock)


#: As jobs' Requirements read it (`preserve_relative_paths`, ON_SUCCESS): the second word is the version whose rules are
#: obeyed.
_CONDOR_VERSION: Final = f"$CondorVersion: {'.'.join(map(str, OF_CONDOR))} Roost {VERSION} $"


def machine_ad(around: MachineInfo) -> ClassAd:
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
            "CondorVersion": _CONDOR_VERSION,
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
            "OpSysVer": detected.opsys_version,
            "OpSysLegacy": detected.opsys,
            "DetectedCpus": detected.cpus,
            "DetectedMemory": detected.memory_mib,
            "FileSystemDomain": settings.filesystem_domain,
            "UidDomain": settings.uid_domain,
            "HasFileTransfer": True,
            "HasFileTransferPluginMethods": "",
            "HasSelfCheckpointTransfers": True,
            "HasIOProxy": settings.chirp.enabled and settings.chirp.files,
            "HasJobDeferral": True,
            "HasReconnect": True,
            "HasUserNamespaces": detected.user_namespaces
            and (settings.isolation.user_namespaces or not settings.isolation.seccomp),
            **(
                {"HasJobCredentials": True}
                if settings.credentials_on_disk or settings.credentials_dir or can_mount()
                else {}
            ),
            "HasTDP": False,
            "HasMPI": False,
            "HasVM": False,
            "CanHibernate": False,
            **dict(zip(UTSNAME, detected.utsname, strict=False)),
            **detected.processor.attributes(detected.arch),
        }
    )
    if not any(name.lower() == GPUS.lower() for name in around.total):
        # As in HTCondor: jobs that stay away from machines with GPUs ask for `GPUs == 0`.
        ad.update({GPUS: 0, f"Total{GPUS}": 0, f"TotalSlot{GPUS}": 0, f"Detected{GPUS}": 0})
    for name in around.total:
        ad[f"Total{name}"] = around.total[name]
    ad["MachineResources"] = " ".join((*STANDARD, SWAP, *(name for name in around.total if name not in STANDARD)))
    ad.update(machine_attributes(around.stock))
    ad.update(interface_attributes(detected.interface))
    return ad


@dataclass(frozen=True, slots=True)
class RelatedSlots:
    """What the ad of a slot tells of others. siblings: see `claim_ads.sibling_attributes`."""

    dynamic: Sequence[Slot] = ()  # slots carved from it
    slot_count: int | None = None  # slots of the machine, dynamic ones too; None: as many as were planned
    children: ChildLists = field(default_factory=ChildLists)  # the texts about them
    layers: AdLayers = field(default_factory=AdLayers)
    waiting: Claim | None = None  # the claim that waits for it to empty
    siblings: Mapping[str, Expr] = field(default_factory=dict)
    parts: Sequence[Mapping[str, object]] = ()  # what parts of the startd say of it, later ones win
    on_top: Sequence[Callable[[ClassAd], Mapping[str, object]]] = ()  # what they say when they see the rest of it


def slot_ad(
    base: ClassAd,
    slot: Slot,
    sample: Sample,
    around: MachineInfo,
    others: RelatedSlots,
    now: float,
    policy: Policy | None = None,
) -> ClassAd:
    """The ad of one slot. policy: as it is now, if not as configured."""
    settings, layers = around.settings, others.layers
    policy = policy or settings.policy(slot.type_id)
    partitionable = slot.kind is SlotKind.PARTITIONABLE
    ad = layers.of("frame", slot.name, (base, slot.type_id, slot.total), lambda: _frame(base, slot)).copy()
    virtual_memory = sample.free_swap_kib + around.detected.memory_mib * 1024
    moment = {
        "MyCurrentTime": int(now),
        "TotalSlots": around.slot_count if others.slot_count is None else others.slot_count,
        "TotalLoadAvg": sample.load_avg,
        "ClockMin": sample.clock_min,
        "ClockDay": sample.clock_day,
        "TotalVirtualMemory": virtual_memory,
    }
    ad.overlay(layers.told("moment", moment))
    ad["State"], ad["Activity"] = str(slot.state), str(slot.activity)
    # Tells the negotiator that its match has arrived, also where the job came and went between two ads.
    ad["RoostClaims"] = slot.asked
    ad["EnteredCurrentState"], ad["EnteredCurrentActivity"] = int(slot.state_since), int(slot.activity_since)
    ad["VirtualMemory"] = int(virtual_memory * slot.swap_share)
    ad.overlay(layers.of("times", slot.name, (slot.condition, slot.activity_since), lambda: times_in_conditions(slot)))
    if slot.past:
        # For the negotiator: what it did not hear of in time is charged all the same, and nothing else is.
        ad["RoostPastClaims"] = "\n".join(past.text for past in slot.past)
    if partitionable:
        others.children.put(ad, others.dynamic)
        for name in slot.total:
            # Less than nothing is left where a disk filled up: nothing, to others.
            ad[name] = max(0, slot.free[name])
    for name, expr in others.siblings.items():
        ad[name] = expr
    for number, attributes in enumerate(others.parts):
        ad.overlay(layers.told(f"part {number}", attributes))
    ad.overlay(
        layers.of(
            "rules",
            f"{slot.slot_id} {slot.type_id} {slot.kind}",
            (policy, settings),
            lambda: _rules(slot, policy, settings),
        )
    )
    _put_claim(ad, slot, settings, layers)
    if others.waiting is not None:
        put_waiting(ad, others.waiting)
    for number, attributes_of in enumerate(others.on_top):
        if found := attributes_of(ad):
            ad.overlay(layers.told(f"top {number}", found))
    # Last, as START may go by anything that the ad says.
    refuses = slot.state in (State.MATCHED, State.PREEMPTING) or start_is_false(policy, ad)
    ad["Requirements"] = False if refuses else requirements(ad)
    return ad


def _frame(base: ClassAd, slot: Slot) -> ClassAd:
    """What a slot is."""
    ad = base.copy()
    ad.update(
        {
            "Name": slot.name,
            "SlotID": slot.slot_id,
            "SlotType": str(slot.kind),
            "SlotTypeID": slot.type_id,
            "PartitionableSlot": slot.kind is SlotKind.PARTITIONABLE,
            "DynamicSlot": slot.kind is SlotKind.DYNAMIC,
        }
    )
    if slot.kind is SlotKind.DYNAMIC:
        ad["DSlotID"] = slot.dynamic_id
        ad["ParentSlotId"] = slot.slot_id
        ad["ParentSlotName"] = slot.parent
    for name in slot.total:
        ad[name] = slot.total[name]
        ad[f"TotalSlot{name}"] = slot.total[name]
    return ad


def times_in_conditions(slot: Slot) -> ClassAd:
    """TotalTime<State><Activity> of each condition that the slot was in for a second or longer since the startd began,
    or the slot was carved; of the one that it is in, as an expression that stays true."""
    ad = ClassAd({_total_time(at): int(seconds) for at, seconds in slot.times.items() if seconds >= 1})
    before = int(slot.times.get(slot.condition, 0.0))
    since = Parens(Binary("-", _TIME, Literal(int(slot.activity_since))))
    ad[_total_time(slot.condition)] = Binary("+", Literal(before), since)
    return ad


def _total_time(condition: Condition) -> str:
    return f"TotalTime{condition.state}{condition.activity}"


def _rules(slot: Slot, policy: Policy, settings: Settings) -> ClassAd:
    """What the configuration says of a slot."""
    ad = ClassAd()
    _put_policy(ad, slot, policy)
    for name, expr in settings.attributes.items():
        ad[name] = expr
    for name, expr in settings.type_attributes.get(slot.type_id, {}).items():
        ad[name] = expr
    for name, expr in settings.slot_attributes.get(slot.slot_id, {}).items():
        ad[name] = expr
    return ad


def _put_claim(ad: ClassAd, slot: Slot, settings: Settings, layers: AdLayers) -> None:
    claim = slot.claim
    if claim is None:
        ad["CurrentRank"] = 0.0
        return
    layer, fixed = ClassAd(), True

    def make() -> ClassAd:
        nonlocal fixed
        fixed = put_claim(layer, claim, slot.state, settings.job_attributes, ad)
        return layer

    made_of = (slot.state, *_shown_of(claim), settings.job_attributes)
    ad.overlay(layers.of("claim", slot.name, made_of, make))
    if not fixed:
        layers.forget_claim(slot.name)


def _shown_of(claim: Claim) -> tuple[object, ...]:
    """All that `put_claim` looks at."""
    return (
        claim.claim_id,
        claim.job_ad,
        claim.submitter,
        claim.owner,
        claim.accounting_group,
        claim.schedd,
        claim.concurrency_limits,
        claim.rank,
        claim.run,
        claim.run_since,
        claim.suspended_at,
        claim.suspended_s,
        claim.suspensions,
        claim.earlier_s,
        claim.retirement_s,
    )


def _put_policy(ad: ClassAd, slot: Slot, policy: Policy) -> None:
    ad["Start"] = policy.start if policy.shown_start is None else policy.shown_start
    ad["Rank"] = policy.rank
    ad["IsOwner"] = policy.is_owner
    ad["SlotWeight"] = policy.slot_weight
    ad["MachineMaxVacateTime"] = policy.machine_max_vacate_time
    ad["MaxJobRetirementTime"] = policy.max_job_retirement_time
    ad.update(policy.shown)
    if slot.kind is not SlotKind.STATIC:
        ad["WithinResourceLimits"] = _WITHIN_LIMITS
    if policy.consumption and slot.kind is not SlotKind.STATIC:
        # Dynamic slots have it too, as in HTCondor: what fits them is what their policy says a job consumes.
        for resource, expr in policy.consumption.items():
            ad[f"Consumption{resource}"] = expr
        ad["WithinResourceLimits"] = within_limits(tuple(policy.consumption))
    if policy.consumption and slot.kind is SlotKind.PARTITIONABLE:
        ad["NumClaims"] = max(1, math.ceil(slot.total[CPUS]))
