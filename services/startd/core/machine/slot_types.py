"""The slots of a machine: what SLOT_TYPE_<N> says, and how the machine is divided by it. Pure.

An administrator writes `cpus=2, memory=25%, disk=auto, 1/4` (spec rows SLT-04 to SLT-07, SLT-12, SLT-14). A text of
several lines has one share on each line, may have blanks round the equals sign, and may say after a colon which devices
are meant: `GPUs = 2 : Capability >= 8.0`. Numbers are read the way HTCondor reads them, rubbish included, because
users' files depend on it.

Explicit shares are taken first, in the order of the slots; what is `auto` shares evenly what they leave (SLT-01 to
SLT-14). HTCondor's rounding is kept, because files were tuned to it: a share of 1.6 cores makes a slot of 1 core and
costs 2, memory is rounded down, disk up; of a custom resource a share of 1.6 makes a slot of 1 and costs 1.6, and what
is left over goes to the first of the slots with `auto`.

A slot's Disk is a fraction of what its partition has, and follows it (SLT-08): what is free, and what the jobs of this
startd use of it, as that is theirs already. Dynamic slots keep what they were given, so a partitionable slot whose jobs
were promised more than there is left has nothing to give until they go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.slots.amounts import CPUS, DISK, MEMORY, STANDARD, Amounts, Number
from engine.slots.carving import LEAST, PlannedSlot, SlotKind
from services.startd.core.slots.model import Slot
from shared.errors import ConfigurationError


class ImpossiblePartition(ConfigurationError):
    """The configuration asks for slots that this machine can not have (SLT-09). Names the knob and the mend."""


#: SLOT_TYPE_<N> is read for N from 1 to MAX_SLOT_TYPES, which is this.
MAX_TYPES = 10
SWAP = "Swap"
SLOT = "slot"
_PREFIX = re.compile(r"[A-Za-z][A-Za-z_-]{0,63}")

#: In this order: the first name that begins with what was written is meant.
_NAMES = (
    ("cpus", CPUS),
    ("memory", MEMORY),
    ("ram", MEMORY),
    ("disk", DISK),
    ("swap", SWAP),
    ("virtualmemory", SWAP),
    ("vm", SWAP),
)
_NUMBER = re.compile(r"\s*([+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))")


@dataclass(frozen=True, slots=True)
class Share:
    """Exactly one of fraction and amount is set, or neither: `auto`."""

    fraction: float | None = None  # of the machine
    amount: float | None = None
    constraint: str = ""  # which devices: an expression over their properties, or an id in quotes

    def of(self, total: float) -> float | None:
        """How much that is of a total; None: auto."""
        return self.amount if self.fraction is None else self.fraction * total


AUTO = Share()


@dataclass(frozen=True, slots=True)
class SlotType:
    number: int  # 0: slots without a SLOT_TYPE
    count: int
    partitionable: bool
    shares: Mapping[str, Share]
    default: Share = AUTO
    prefix: str = SLOT  # of the names of its slots

    def share(self, resource: str) -> Share:
        return self.shares.get(resource, self.default)


def slot_types(
    get: Callable[[str], str | None],
    number: Callable[[str], float | int | None],
    cpus: int,
    custom: Sequence[str],
) -> list[SlotType]:
    """The slot types that the configuration asks for. `get` looks a macro up, `number` evaluates one's text (None: it
    is no number). Raises ImpossiblePartition."""

    def whole(knob: str) -> int | None:
        text = (get(knob) or "").strip()
        if not text:
            return None
        value = number(text)
        if value is None or value < 0 or value != value or value in (float("inf"),):
            raise ImpossiblePartition(f"{knob} = {text}: want a whole number, 0 or more")
        return int(value)

    for knob in ("SLOT_TYPE_0", "NUM_SLOTS_TYPE_0"):
        if (get(knob) or "").strip():
            raise ImpossiblePartition(f"{knob}: slot types are numbered from 1; slots without a type come of NUM_SLOTS")
    types = []
    for n in range(1, (whole("MAX_SLOT_TYPES") or MAX_TYPES) + 1):
        count = whole(f"NUM_SLOTS_TYPE_{n}")
        if not count:
            continue
        shares, default = read_shares(get(f"SLOT_TYPE_{n}") or "", custom, f"SLOT_TYPE_{n}")
        partitionable = bool(number((get(f"SLOT_TYPE_{n}_PARTITIONABLE") or "").strip() or "false"))
        types.append(SlotType(n, count, partitionable, shares, default, name_prefix(get, n)))
    if types:
        return types
    asked = whole("NUM_SLOTS")
    partitionable = bool(number((get("SLOT_TYPE_0_PARTITIONABLE") or "").strip() or "true"))
    return [SlotType(0, min(1 if asked is None else asked, cpus), partitionable, {}, prefix=name_prefix(get, 0))]


def name_prefix(get: Callable[[str], str | None], number: int) -> str:
    """What the names of slots of a type begin with, before their numbers. Raises ImpossiblePartition."""
    knob, prefix = f"SLOT_TYPE_{number}_NAME_PREFIX", (get(f"SLOT_TYPE_{number}_NAME_PREFIX") or "").strip()
    if not prefix:
        knob, prefix = "STARTD_RESOURCE_PREFIX", (get("STARTD_RESOURCE_PREFIX") or "").strip()
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ImpossiblePartition(f"{knob} = {prefix}: write letters, _ and -, a letter first, and no digit")
    return prefix or SLOT


def read_shares(text: str, custom: Sequence[str], knob: str) -> tuple[dict[str, Share], Share]:
    """Shares by resource and the blanket value for the others. Raises ImpossiblePartition."""
    shares: dict[str, Share] = {}
    default = AUTO
    several = "\n" in text.strip("\n")
    for word in text.split("\n") if several else re.split(r"[,;\s]+", text):
        name, equals, value = (part.strip() for part in word.strip().rstrip(",;").partition("="))
        if not name and not value:
            if equals:
                raise ImpossiblePartition(f"{knob}: '=' stands alone: write NAME=SHARE without blanks, or one a line")
            continue
        if not equals:
            default = _share(name, None, knob, word)
            continue
        if not value:
            raise ImpossiblePartition(f"{knob}: {word.strip()!r} must be NAME=SHARE, without blanks round the '='")
        resource = _resource(name, custom)
        share = _share(value, resource or name, knob, word)
        if resource is not None:
            shares[resource] = share
        elif share.amount:
            known = ", ".join(("cpus", "memory", "disk", "swap", *custom))
            raise ImpossiblePartition(f"{knob}: unknown resource {name!r}; this machine has {known}")
        # A fraction of what a machine does not have is nothing: one file may serve many machines.
    return shares, default


def _resource(name: str, custom: Sequence[str]) -> str | None:
    folded = name.lower()
    for known in custom:
        if folded == known.lower():
            return known
    for full, resource in _NAMES:
        if full.startswith(folded):
            return resource
    return None


def _share(text: str, resource: str | None, knob: str, word: str) -> Share:
    """resource: None for the blanket value."""
    value, _, constraint = (part.strip() for part in text.partition(":"))
    if value.lower() == "auto":
        return Share(constraint=constraint)
    before, percent, _ = value.partition("%")
    over, slash, under = value.partition("/")
    if percent:
        fraction = _leading(before) / 100
    elif slash:
        below = _leading(under)
        if below <= 0:
            raise ImpossiblePartition(f"{knob}: the fraction {word.strip()!r} has no positive denominator")
        fraction = _leading(over) / below
    else:
        return _amount(_leading(value), resource, knob, word, constraint)
    if fraction < 0:
        return Share(constraint=constraint)
    if fraction > 1 and resource in (None, DISK, SWAP):
        raise ImpossiblePartition(f"{knob}: {word.strip()!r} is more than all there is")
    return Share(fraction=fraction, constraint=constraint)


def _amount(amount: float, resource: str | None, knob: str, word: str, constraint: str) -> Share:
    if amount < 0:
        return Share(constraint=constraint)
    if amount and resource is None:
        raise ImpossiblePartition(
            f"{knob}: {word.strip()!r}: give a fraction (1/4) or a percentage (25%) of everything, or resources by name"
        )
    if amount and resource in (DISK, SWAP):
        raise ImpossiblePartition(f"{knob}: {word.strip()!r}: give disk and swap as a fraction, a percentage or auto")
    return Share(amount=amount, constraint=constraint)


def _leading(text: str) -> float:
    """The number that a text begins with; 0 if with none."""
    found = _NUMBER.match(text)
    if not found:
        return 0.0
    digits = found.group(1)
    if "x" in digits.lower():
        return float(int(digits, 16))
    value = float(digits)
    return min(value, 1e15)


#: Of cores, so much less than a whole one still counts as one.
_CORE_SLACK = 0.1
#: Rounding errors of sums of fractions.
_SLACK = 1e-9

#: (resource, constraint, free ids in order, how many) -> which of them. Raises ImpossiblePartition.
Pick = Callable[[str, str, Sequence[str], int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Partition:
    """A file system that slots have their EXECUTE on."""

    key: str
    total_kib: int


def first(resource: str, constraint: str, free: Sequence[str], count: int) -> tuple[str, ...]:
    """The Pick of resources without properties."""
    if constraint and count:
        raise ImpossiblePartition(f"{resource} has no properties that {constraint!r} could ask for")
    return tuple(free[:count])


def divide(
    machine: Amounts,
    types: Sequence[SlotType],
    *,
    partition_of: Callable[[int], Partition] | None = None,
    pick: Pick = first,
) -> list[PlannedSlot]:
    """The slots of this machine, numbered from 1. `partition_of` tells where a slot's EXECUTE is; by default all have
    the machine's Disk together. Raises ImpossiblePartition when there is not enough (SLT-09)."""
    slots = [slot_type for slot_type in types for _ in range(slot_type.count)]
    where = partition_of or (lambda _: Partition("", int(machine[DISK])))
    partitions = [where(number) for number in range(1, len(slots) + 1)]
    counts: dict[str, list[Number]] = {
        resource: _divide_one(resource, machine[resource], [slot.share(resource) for slot in slots], slots)
        for resource in machine
        if resource != DISK
    }
    disks = _fractions(DISK, [slot.share(DISK) for slot in slots], [one.key for one in partitions], slots)
    swaps = _fractions(SWAP, [slot.share(SWAP) for slot in slots], [""] * len(slots), slots)
    ids = _bind(machine, counts, slots, pick)
    planned = []
    for index, slot_type in enumerate(slots):
        of = {name: counts[name][index] if name != DISK else 0 for name in machine}
        if DISK in machine:
            of[DISK] = share_of_disk(disks[index], partitions[index].total_kib)
        planned.append(
            PlannedSlot(
                slot_id=index + 1,
                type_id=slot_type.number,
                kind=SlotKind.PARTITIONABLE if slot_type.partitionable else SlotKind.STATIC,
                amounts=Amounts(of, ids[index]),
                disk_share=disks[index],
                swap_share=swaps[index],
                partition=partitions[index].key,
                prefix=slot_type.prefix,
            )
        )
    return planned


def share_of_disk(share: float, total_kib: Number) -> int:
    """A slot's Disk, KiB."""
    return math.ceil(share * max(0, total_kib))


def _divide_one(resource: str, total: Number, shares: Sequence[Share], slots: Sequence[SlotType]) -> list[Number]:
    least = LEAST.get(resource, 0)
    given: list[Number | None] = []
    left: Number = total  # by what was asked for
    there: Number = total  # by what was given, which may be more: a share of 4.9 cores is a slot of 5
    for share, slot in zip(shares, slots, strict=True):
        asked = share.of(total)
        if asked is None:
            given.append(None)
            continue
        asked = max(float(least), asked)
        if resource == MEMORY:
            asked = int(asked)
        rest = int(left - asked) if resource in STANDARD else left - asked
        if rest < -_SLACK:
            raise _too_much(resource, total, slot, f"{asked:g}", left)
        left = rest
        whole_amount = max(least, int(asked + (_CORE_SLACK if resource == CPUS else _SLACK)))
        if whole_amount > there:
            # The last of them has what the others left.
            whole_amount = int(there)
            if whole_amount < least:
                raise _too_much(resource, total, slot, f"{asked:g}", there)
        there -= whole_amount
        given.append(whole_amount)
    autos = given.count(None)
    if not autos:
        return [amount or 0 for amount in given]
    left = min(left, there)
    whole = math.ceil(left - _SLACK) if left >= 1 else 0
    each = whole // autos
    if each < least:
        slot = next(slot for slot, amount in zip(slots, given, strict=True) if amount is None)
        raise _too_much(resource, total, slot, f"{least or 'a share'} for each of {autos}", left)
    # The rest of cores and memory stays unused, that of custom resources goes to the first slots.
    spare = whole - each * autos if resource not in STANDARD else 0
    result: list[Number] = []
    for amount in given:
        if amount is None:
            result.append(each + (1 if spare > 0 else 0))
            spare -= 1
        else:
            result.append(amount)
    return result


def _too_much(resource: str, total: Number, slot: SlotType, asked: str, left: Number) -> ImpossiblePartition:
    knobs = f"SLOT_TYPE_{slot.number} or NUM_SLOTS_TYPE_{slot.number}" if slot.number else "NUM_SLOTS"
    return ImpossiblePartition(
        f"the slots want more {resource} than the machine's {total}: a slot of type {slot.number} wants {asked}, "
        f"{left} left. Lower {knobs}"
    )


def _fractions(resource: str, shares: Sequence[Share], keys: Sequence[str], slots: Sequence[SlotType]) -> list[float]:
    """Disk and swap: of each partition, every slot's fraction (SLT-08)."""
    left = dict.fromkeys(keys, 1.0)
    autos = dict.fromkeys(keys, 0)
    for share, key, slot in zip(shares, keys, slots, strict=True):
        if share.fraction is not None:
            left[key] -= share.fraction
            if left[key] < -_SLACK:
                raise ImpossiblePartition(
                    f"the slots want more than 100% of the {resource.lower()}{' of ' + key if key else ''}. Lower the "
                    f"shares of SLOT_TYPE_{slot.number} or NUM_SLOTS_TYPE_{slot.number}"
                )
        elif share.amount is None:
            autos[key] += 1
    for key, slot, share in zip(keys, slots, shares, strict=True):
        if share.fraction is None and share.amount is None and left[key] <= _SLACK:
            raise ImpossiblePartition(
                f"nothing is left of the {resource.lower()}{' of ' + key if key else ''} for a slot of type "
                f"{slot.number}. Lower the shares of the other slots"
            )
    result = []
    for share, key in zip(shares, keys, strict=True):
        if share.fraction is not None:
            result.append(share.fraction)
        else:
            result.append(0.0 if share.amount is not None else left[key] / autos[key])
    return result


def _bind(
    machine: Amounts, counts: Mapping[str, Sequence[Number]], slots: Sequence[SlotType], pick: Pick
) -> list[dict[str, tuple[str, ...]]]:
    """Which devices each slot gets: slot after slot, the first that suit (SLT-14)."""
    bound: list[dict[str, tuple[str, ...]]] = [{} for _ in slots]
    for resource, ids in machine.ids.items():
        free = list(ids)
        for index, slot in enumerate(slots):
            chosen = pick(resource, slot.share(resource).constraint, free, int(counts[resource][index]))
            free = [one for one in free if one not in chosen]
            bound[index][resource] = chosen
    return bound


def rescale_disks(slots: Iterable[Slot], totals_kib: dict[str, int]) -> list[str]:
    """Give static and partitionable slots their share of these totals, by partition. Names of those that changed."""
    changed = []
    for slot in slots:
        total = totals_kib.get(slot.partition)
        if slot.kind is SlotKind.DYNAMIC or total is None:
            continue
        more = share_of_disk(slot.disk_share, total) - slot.total[DISK]
        if more:
            slot.total = slot.total.plus(Amounts({DISK: more}))
            slot.free = slot.free.plus(Amounts({DISK: more}))
            slot.version += 1
            changed.append(slot.name)
    return changed
