"""What an administrator writes in SLOT_TYPE_<N>: `cpus=2, memory=25%, disk=auto, 1/4` (spec rows SLT-04 to SLT-07,
SLT-12, SLT-14).

A text of several lines has one share on each line, may have blanks round the equals sign, and may say after a colon
which devices are meant: `GPUs = 2 : Capability >= 8.0`. Numbers are read the way HTCondor reads them, rubbish included,
because users' files depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.startd.book.amounts import CPUS, DISK, MEMORY
from services.startd.machine.refusal import ImpossiblePartition

#: SLOT_TYPE_<N> is read for N from 1 to MAX_SLOT_TYPES, which is this.
MAX_TYPES = 10
SWAP = "Swap"

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
        types.append(SlotType(n, count, partitionable, shares, default))
    if types:
        return types
    asked = whole("NUM_SLOTS")
    partitionable = bool(number((get("SLOT_TYPE_0_PARTITIONABLE") or "").strip() or "true"))
    return [SlotType(0, min(1 if asked is None else asked, cpus), partitionable, {})]


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
