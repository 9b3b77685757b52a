"""How a machine is divided into slots, and how a partitionable slot is carved (spec rows SLT-01 to SLT-23).

Shares are what an administrator writes in SLOT_TYPE_<N>: `cpus=2, memory=25%, disk=auto, 1/4`. Numbers are read the
way HTCondor reads them, rubbish included, because users' files depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from services.startd.book.amounts import CPUS, DISK, MEMORY, STANDARD, Amounts, Number
from shared.classad import ClassAd, Expr, evaluate
from shared.consumption import Shortage, consumption, has_policy
from shared.errors import PermanentError

#: SLOT_TYPE_<N> is read for N from 1 to this.
MAX_TYPES = 10
#: What a dynamic slot's Disk has more than the rounded request, KiB (as the reference does).
DISK_EXTRA_KIB = 1024
#: No slot has less (SLT-10), a dynamic one neither: what asks for no core, or no memory, gets the least there is.
LEAST = {CPUS: 1, MEMORY: 1}

_SWAP = "Swap"
_NAMES = {"cpus": CPUS, "ram": MEMORY, "memory": MEMORY, "disk": DISK, "swap": _SWAP, "virtualmemory": _SWAP}


class ImpossiblePartition(PermanentError):
    """The configuration asks for slots that this machine can not have (SLT-09)."""


class SlotKind(StrEnum):
    PARTITIONABLE = "Partitionable"
    DYNAMIC = "Dynamic"
    STATIC = "Static"


@dataclass(frozen=True, slots=True)
class Part:
    """Exactly one of the two is set, or neither: `auto`."""

    fraction: Fraction | None = None  # of the machine
    amount: Number | None = None


AUTO = Part()


@dataclass(frozen=True, slots=True)
class SlotType:
    number: int  # 0: slots without a SLOT_TYPE
    count: int
    partitionable: bool
    parts: Mapping[str, Part]
    default: Part = AUTO

    def part(self, resource: str) -> Part:
        return self.parts.get(resource, self.default)


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    slot_id: int
    type_id: int
    kind: SlotKind
    amounts: Amounts


# ---------------------------------------------------------------- reading


def slot_types(get: Callable[[str], str | None], cpus: int, custom: Sequence[str]) -> list[SlotType]:
    """The slot types that the configuration asks for. `get` looks a macro up. Raises ImpossiblePartition."""
    types = []
    for number in range(1, MAX_TYPES + 1):
        count = _whole(get(f"NUM_SLOTS_TYPE_{number}"), f"NUM_SLOTS_TYPE_{number}", None)
        if count is None:
            continue
        if count < 0:
            raise ImpossiblePartition(f"NUM_SLOTS_TYPE_{number} = {count}: want 0 or more slots")
        partitionable = _truth(get(f"SLOT_TYPE_{number}_PARTITIONABLE"), False)
        parts, default = read_shares(get(f"SLOT_TYPE_{number}") or "", custom, f"SLOT_TYPE_{number}")
        types.append(SlotType(number, count, partitionable, parts, default))
    if types:
        return types
    count = _whole(get("NUM_SLOTS"), "NUM_SLOTS", 1)
    if count is None or count < 0:
        raise ImpossiblePartition(f"NUM_SLOTS = {count}: want 0 or more slots")
    return [SlotType(0, min(count, cpus), True, {})]


def read_shares(text: str, custom: Sequence[str], knob: str) -> tuple[dict[str, Part], Part]:
    """Shares by resource and the blanket value for the others. Raises ImpossiblePartition."""
    parts: dict[str, Part] = {}
    default = AUTO
    for word in re.split(r"[,;\s]+", re.sub(r"[ \t]*=[ \t]*", "=", text) if "\n" in text else text):
        if not word:
            continue
        name, equals, value = word.partition("=")
        if not equals:
            default = _part(name, None, knob)
            continue
        if not name or not value:
            raise ImpossiblePartition(f"{knob}: {word!r} must be NAME=SHARE without blanks round the equals sign")
        resource = _resource(name, custom)
        if resource is None:
            known = ", ".join(("cpus", "memory", "disk", "swap", *custom))
            raise ImpossiblePartition(f"{knob}: unknown resource {name!r}; known here: {known}")
        parts[resource] = _part(value, resource, knob)
    return parts, default


def _resource(name: str, custom: Sequence[str]) -> str | None:
    folded = name.lower()
    for known in custom:
        if folded == known.lower():
            return known
    for full, resource in _NAMES.items():
        if full.startswith(folded):
            return resource
    return None


def _part(text: str, resource: str | None, knob: str) -> Part:
    folded = text.lower()
    if folded == "auto":
        return AUTO
    if folded.endswith("%"):
        return Part(fraction=Fraction(_leading_number(folded[:-1])) / 100)
    over, slash, under = folded.partition("/")
    if slash:
        below = Fraction(_leading_number(under))
        if below <= 0:
            raise ImpossiblePartition(f"{knob}: the fraction {text!r} has no positive denominator")
        return Part(fraction=Fraction(_leading_number(over)) / below)
    if resource in (DISK, _SWAP):
        raise ImpossiblePartition(f"{knob}: {text!r}: give {resource.lower()} as a fraction, a percentage or auto")
    number = _leading_number(folded)
    if number < 0:
        return AUTO
    if resource in STANDARD or resource is None:
        return Part(amount=int(number))
    return Part(amount=int(number + Fraction(1, 2)))


def _leading_number(text: str) -> Fraction:
    found = re.match(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)", text)
    return Fraction(found.group(1)) if found else Fraction(0)


def _whole(text: str | None, knob: str, default: int | None) -> int | None:
    if text is None or not text.strip():
        return default
    try:
        return int(text)
    except ValueError:
        raise ImpossiblePartition(f"{knob} = {text}: want a whole number") from None


def _truth(text: str | None, default: bool) -> bool:
    if text is None or not text.strip():
        return default
    return text.strip().lower() in ("true", "t", "yes", "1")


# ---------------------------------------------------------------- dividing


def divide(machine: Amounts, types: Sequence[SlotType]) -> list[PlannedSlot]:
    """The slots of this machine, numbered from 1. Autos share evenly what explicit shares leave (SLT-06). Raises
    ImpossiblePartition when there is not enough."""
    slots = [slot_type for slot_type in types for _ in range(slot_type.count)]
    shares: list[dict[str, Number]] = [{} for _ in slots]
    for resource in machine:
        for share, amount in zip(shares, _divide_one(resource, machine[resource], slots), strict=True):
            share[resource] = amount
    return [
        PlannedSlot(
            number,
            slot_type.number,
            SlotKind.PARTITIONABLE if slot_type.partitionable else SlotKind.STATIC,
            Amounts(share),
        )
        for number, (slot_type, share) in enumerate(zip(slots, shares, strict=True), 1)
    ]


def _divide_one(resource: str, total: Number, slots: Sequence[SlotType]) -> list[Number]:
    least = LEAST.get(resource, 0)
    given: list[Number | None] = []
    for slot_type in slots:
        part = slot_type.part(resource)
        if part.fraction is not None:
            given.append(max(least, int(part.fraction * Fraction(total))))
        elif part.amount is not None:
            given.append(max(least, part.amount))
        else:
            given.append(None)
    left = total - sum(amount for amount in given if amount is not None)
    autos = given.count(None)
    if left < 0 or (autos and left < autos * least):
        asked = ", ".join("auto" if amount is None else str(amount) for amount in given)
        raise ImpossiblePartition(
            f"the slots want more {resource} than the machine's {total}: {asked}. Lower NUM_SLOTS_TYPE_<N>, "
            f"NUM_SLOTS or the shares of SLOT_TYPE_<N>"
        )
    if not autos:
        return [amount or 0 for amount in given]
    each, rest = divmod(int(left), autos)
    # The rest of cores, memory and disk stays unused, that of custom resources goes to the first slots.
    spare = 0 if resource in STANDARD else rest
    result: list[Number] = []
    for amount in given:
        if amount is None:
            result.append(each + (1 if spare > 0 else 0))
            spare -= 1
        else:
            result.append(amount)
    return result


# ---------------------------------------------------------------- carving


@dataclass(frozen=True, slots=True)
class Carving:
    """MODIFY_REQUEST_EXPR_REQUEST<resource> by resource name, and MUST_MODIFY_REQUEST_EXPRS."""

    modify: Mapping[str, Expr]
    must_modify: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str


def requested(job: ClassAd, slot: ClassAd, resources: Sequence[str]) -> Amounts:
    """What a job asks of each resource, at least what every slot has (SLT-10). A job that does not say, or whose
    expression is no number, needs 1 core and what it is known to use."""
    amounts: dict[str, Number] = {}
    for resource in resources:
        amount = _number(job.eval(f"Request{resource}", slot))
        if amount is None and resource == CPUS:
            amount = 1
        elif amount is None and resource == MEMORY:
            amount = -(-(_number(job.eval("ImageSize", slot)) or 0) // 1024) or 1
        elif amount is None and resource == DISK:
            amount = _number(job.eval("DiskUsage", slot)) or 1
        amount = max(LEAST.get(resource, 0), amount or 0)
        if amount:
            amounts[resource] = amount
    return Amounts(amounts)


def rounded(plain: Amounts, job: ClassAd, slot: ClassAd, modify: Mapping[str, Expr]) -> Amounts:
    """The request after MODIFY_REQUEST_EXPR_*; a request without a value there stays as it is."""
    ad = ClassAd()
    for resource, amount in plain.items():
        ad[f"Request{resource}"] = amount
    ad.chain(job)
    amounts = dict(plain.of)
    for resource, expr in modify.items():
        if resource in amounts:
            value = _number(evaluate(expr, ad, slot))
            if value is not None and value >= 0:
                amounts[resource] = value
    return Amounts(amounts)


def carve(job: ClassAd, slot: ClassAd, free: Amounts, carving: Carving) -> Amounts | Refusal:
    """What a dynamic slot for this job gets out of a partitionable slot, or why it can not have it (SLT-18, SLT-19).

    Where the slot has a consumption policy, that alone decides (CON-02, CON-05): what the negotiator foresaw.
    """
    if has_policy(slot):
        consumed = consumption(job, slot)
        if isinstance(consumed, Shortage):
            return Refusal(consumed.reason)
        amounts = Amounts(consumed)
        return amounts if free.holds(amounts) else Refusal("not enough is left of the slot")
    names = (*STANDARD, *(name for name in free if name not in STANDARD))
    plain = requested(job, slot, names)
    wanted = rounded(plain, job, slot, carving.modify)
    if not free.holds(wanted):
        if carving.must_modify or not free.holds(plain):
            lacking = free.lacking(wanted if carving.must_modify else plain)
            asked = ", ".join(f"{name} {wanted[name]} of {free[name]} left" for name in lacking)
            return Refusal(f"not enough is left of the slot: {asked}")
        wanted = plain
    short = wanted.lacking(plain)
    if short:
        return Refusal(f"MODIFY_REQUEST_EXPR gives less than the job asks for: {', '.join(short)}")
    disk = min(wanted[DISK] + DISK_EXTRA_KIB, free[DISK])
    return Amounts({name: wanted[name] for name in names} | {DISK: disk})


def _number(value: object) -> Number | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value if value == value else None
    return value if isinstance(value, int) else None
