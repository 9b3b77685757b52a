"""Real and effective user priorities, the accounting of use, and the slices of the pool that follow from priorities
(spec rows ACC-02 to ACC-15, ACC-18, ACC-22, NEG-07 to NEG-13).

All functions are pure: a Record goes in, a Record comes out. Times are seconds since 1970, use is weighted slots
(sum of SlotWeight), usage is weighted slot-seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

import msgpack

MINIMUM_PRIORITY: Final = 0.5
LARGEST: Final = 1e30
#: Times that an administrator sets are points in time that people can read: up to the year 9999.
LATEST: Final = 253_402_300_799.0
#: Characters of a submitter's name.
_LONGEST_NAME: Final = 600
#: What may be changed for a while. Not the priority and the usage, which move by themselves: what they were before
#: would be worth nothing at the end.
TEMPORARY: Final = ("factor", "floor", "ceiling")


@dataclass(frozen=True, slots=True)
class Temporary:
    """A change that ends by itself. `before`: what comes back. `until`: when."""

    what: str  # one of TEMPORARY
    before: float
    until: float


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one submitter, or of one accounting group.

    It tells all that happens until the use changes: `settle` gives its state at any later time. So a record need be
    touched only when its use changes, however long it stays as it is.
    """

    priority: float = MINIMUM_PRIORITY  # RUP
    factor: float = 0.0  # 0: not chosen yet
    in_use: float = 0.0  # weighted, since `updated`
    slots_in_use: int = 0
    usage: float = 0.0  # slot-seconds
    weighted_usage: float = 0.0
    begin: float = 0.0  # first use ever
    last: float = 0.0  # last time anything was in use
    updated: float = 0.0
    floor: float = 0.0
    ceiling: float = -1.0  # -1: none
    subtree_in_use: float = -1.0  # of a group: weighted, with all groups below; -1: no group
    temporary: tuple[Temporary, ...] = ()
    quota: float = -1.0  # of a group: what an administrator set in place of the configuration's; -1: nothing
    dynamic_quota: float = -1.0  # likewise, as a part of the parent's; one of the two is -1


@dataclass(frozen=True, slots=True)
class Factors:
    """The knobs that choose a new submitter's factor."""

    default: float = 1000.0
    nice: float = 1e10
    remote: float = 1e7
    nice_group: str = "nice-user"
    local_domain: str = ""
    groups: tuple[tuple[str, float], ...] = ()  # (lower-case group, GROUP_PRIO_FACTOR_<group>)


def choose_factor(submitter: str, factors: Factors, group: str = "") -> float:
    """The factor of a submitter seen for the first time. Order: nice-user, its group, remote, default (ACC-09 to
    ACC-11).

    group: key of the accounting group it negotiates in, which is the nearest one in force: a member of a subgroup
    that is in force does not inherit the factor of the group above. Empty: as its name says.
    """
    name, _, domain = submitter.partition("@")
    own = group or name.rpartition(".")[0].lower()
    if name.lower().startswith(f"{factors.nice_group.lower()}."):
        return factors.nice
    for known, factor in factors.groups:
        if known == own:
            return factor
    if factors.local_domain and domain.lower() != factors.local_domain.lower():
        return factors.remote
    return factors.default


def effective(record: Record) -> float:
    """EUP = RUP * factor (ACC-08)."""
    return record.priority * record.factor


def settle(record: Record, now: float, half_life: float) -> Record:
    """Charge what was in use since the last update, and decay the priority.

    Splitting an interval into parts gives the same result (ACC-05). Nothing changes before `updated`: who notices that
    the clock stepped back moves that (ACC-22).
    """
    elapsed = now - record.updated if record.updated else 0.0
    if elapsed <= 0.0:
        return record if record.updated else replace(record, updated=now)
    beta = 0.5 ** (elapsed / half_life) if half_life > 0 else 0.0
    use = record.in_use if record.subtree_in_use < 0.0 else record.subtree_in_use
    priority = max(MINIMUM_PRIORITY, beta * record.priority + (1.0 - beta) * use)
    if not record.slots_in_use:
        return replace(record, priority=priority, updated=now)
    return replace(
        record,
        priority=priority,
        usage=record.usage + record.slots_in_use * elapsed,
        weighted_usage=record.weighted_usage + record.in_use * elapsed,
        begin=record.begin or record.updated,
        last=now,
        updated=now,
    )


def clock_set(record: Record, seconds: float) -> Record:
    """The record by a clock that was set by so many seconds: nothing is charged for that. `begin` and `last` stay what
    people were told."""
    return replace(record, updated=record.updated + seconds) if record.updated else record


def advance(
    record: Record, now: float, half_life: float, in_use: float, slots_in_use: int, subtree_in_use: float = -1.0
) -> Record:
    """Charge up to now, and note what is in use from now on. A clock that steps back charges nothing and only moves
    the time (ACC-22)."""
    settled = settle(record, now, half_life)
    return replace(
        settled, updated=now, in_use=in_use, slots_in_use=slots_in_use, subtree_in_use=max(-1.0, subtree_in_use)
    )


def backdate(record: Record, weight: float, slots: int, began: float, ended: float, half_life: float) -> Record:
    """A settled record, had this been in use from `began` to `ended` too; where it ends before it begins, had it not
    been in use from `ended` to `began`. slots: as which it counts for `usage`; a group above the submitter's has none,
    and is charged nothing, but its priority follows."""
    priority = record.priority
    if half_life > 0:
        now = record.updated
        priority += weight * (0.5 ** ((now - ended) / half_life) - 0.5 ** ((now - began) / half_life))
    priority = max(MINIMUM_PRIORITY, priority)
    if not slots:
        return replace(record, priority=priority)
    first = min(began, record.begin or began)
    return replace(
        record,
        priority=priority,
        usage=max(0.0, record.usage + slots * (ended - began)),
        weighted_usage=max(0.0, record.weighted_usage + weight * (ended - began)),
        begin=first if ended > began else record.begin,
        last=max(record.last, ended) if ended > began else record.last,
    )


def change(record: Record, what: str, value: float | None, now: float, until: float = 0.0) -> Record:
    """What an administrator may set (`roost userprio -set...`). `until`: the old value comes back then; 0: never. A
    change for good ends one for a while. Raises ValueError with the reason."""
    if what == "reset":
        if until:
            raise ValueError("a reset of usage can not be for a while only")
        return replace(record, usage=0.0, weighted_usage=0.0, begin=now)
    if what not in _FIELDS:
        raise ValueError(f"unknown change {what!r}; use one of {', '.join(_FIELDS)}, reset, reset-all, delete")
    if value is None:
        raise ValueError(f"a change of {what} needs a number")
    if until and what not in TEMPORARY:
        raise ValueError(f"{what} can not be set for a while only, {', '.join(TEMPORARY)} can")
    if until and until <= now:
        raise ValueError("a change for a while must last longer than 0 s")
    _check(what, value)
    field = _FIELDS[what]
    kept = tuple(t for t in record.temporary if t.what != what)
    if until:
        before = next((t.before for t in record.temporary if t.what == what), getattr(record, field))
        kept = (*kept, Temporary(what, before, until))
    return replace(record, temporary=kept, **{field: value})  # type: ignore[arg-type]  # all of _FIELDS are floats


def restore(record: Record, now: float) -> tuple[Record, tuple[Temporary, ...]]:
    """The record after the changes whose time is over, and which those were."""
    over = tuple(t for t in record.temporary if t.until <= now)
    if not over:
        return record, over
    left = tuple(t for t in record.temporary if t.until > now)
    back = {_FIELDS[t.what]: t.before for t in over}
    return replace(record, temporary=left, **back), over  # type: ignore[arg-type]  # all of _FIELDS are floats


@dataclass(frozen=True, slots=True)
class ImportedRecord:
    """What another pool's accountant knows of a submitter or a group (`roost import accountant`). factor 0: none was
    chosen there."""

    priority: float = MINIMUM_PRIORITY
    factor: float = 0.0
    usage: float = 0.0  # slot-seconds
    weighted_usage: float = 0.0
    begin: float = 0.0
    last: float = 0.0
    floor: float = 0.0
    ceiling: float = -1.0


def check_name(name: str) -> None:
    """Raises ValueError for what can be no submitter's name."""
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(f"{name[:80]!r} is no name of a submitter")


def check_imported(name: str, record: ImportedRecord) -> None:
    """Raises ValueError that begins with the field that can not be, as `change` calls it."""
    check_name(name)
    for what in ("priority", "floor", "ceiling", "begin", "last"):
        _check(what, getattr(record, what))
    if record.factor:
        _check("factor", record.factor)
    for field in ("usage", "weighted_usage"):
        if not 0.0 <= getattr(record, field) <= LARGEST:
            raise ValueError(f"{field.replace('_', ' ')} {getattr(record, field):g} is not from 0 to {LARGEST:g}")


def take_in(record: Record, other: ImportedRecord, until: float, now: float, half_life: float) -> Record:
    """A record with what another accountant knew, which charged last at `until` (0: just now): the priority decays from
    there. What is in use here stays so. record: settled."""
    since = min(until, now) or now
    there = settle(Record(priority=other.priority, updated=since), now, half_life)
    return replace(
        record,
        priority=there.priority,
        factor=other.factor or record.factor,
        usage=other.usage,
        weighted_usage=other.weighted_usage,
        begin=other.begin,
        last=now if record.slots_in_use else other.last,
        updated=now,
        floor=other.floor,
        ceiling=other.ceiling,
        temporary=(),
    )


def forgettable(record: Record, usual_factor: float) -> bool:
    """Whether a new record would be the same: never used, no priority to remember, nothing set."""
    return (
        record.priority <= MINIMUM_PRIORITY
        and not (record.slots_in_use or record.in_use or record.usage or record.weighted_usage or record.last)
        and (record.factor, record.floor, record.ceiling) == (usual_factor, 0.0, -1.0)
        and not record.temporary
    )


_FIELDS: Final = {
    "factor": "factor",
    "priority": "priority",
    "accumulated": "weighted_usage",
    "begin": "begin",
    "last": "last",
    "floor": "floor",
    "ceiling": "ceiling",
}


def _check(what: str, value: float) -> None:
    least = {"factor": 1.0, "priority": MINIMUM_PRIORITY}.get(what, 0.0)
    most = LATEST if what in ("begin", "last") else LARGEST
    if not value <= most:
        raise ValueError(f"{what} {value:g} is too large; use at most {most:g}")
    if what == "ceiling" and value == -1.0:
        return  # none
    if value < least:
        hint = f"use {least:g} or more" + (", or -1 for none" if what == "ceiling" else "")
        raise ValueError(f"{what} {value:g} is below {least:g}; {hint}")


# --- slices of the pool


def best_first(
    submitters: Sequence[str], eup: Mapping[str, float], use: Mapping[str, tuple[float, float]]
) -> list[str]:
    """Best (lowest) effective priority first; of equal ones who has the least of what it may have, then by name
    (NEG-07). use: by submitter: the weight that it uses, and what it may still take."""

    def had(name: str) -> float:
        in_use, left = use[name]
        return in_use / (in_use + left) if in_use + left > 0.0 else math.inf

    return sorted(submitters, key=lambda name: (eup[name], had(name), name))


@dataclass(frozen=True, slots=True)
class Share:
    """What a submitter was offered in the first spin: its part of the pie (0 to 1), and the weight that it might still
    take when its turn came. `given`: weight handed out in the whole cycle."""

    fraction: float
    limit: float
    given: float


def pie_fractions(submitters: Sequence[str], eup: Mapping[str, float]) -> dict[str, float]:
    """Each submitter's part of the whole, inverse to its EUP; they add up to 1 (NEG-08)."""
    inverse = {name: 1.0 / eup[name] for name in submitters}
    total = sum(inverse.values())
    if not total > 0.0:  # all of them have used beyond measure
        return dict.fromkeys(submitters, 1.0 / max(1, len(submitters)))
    return {name: value / total for name, value in inverse.items()}


def pie_slice_left(
    fraction: float, pool_weight: float, in_use: float, *, free_weight: float, spin: int, ceiling: float = -1.0
) -> float:
    """Weight that a submitter may still take in this spin.

    First spin: its part of the whole pool less what it uses, never below 0 (NEG-09). Later spins divide what is still
    free among those who still ask, in the same ratio (NEG-10; the manual's 40 to 20, worked example W-13). A ceiling
    bounds both (NEG-12); -1 means none.
    """
    left = fraction * pool_weight - in_use if spin == 1 else fraction * free_weight
    if ceiling >= 0.0:
        left = min(left, ceiling - in_use)
    return max(0.0, left)


# --- as bytes: what lies in Redis under a submitter's or a group's name


_RECORD_FIELDS: Final = {f.name for f in fields(Record)}


def encode_record(record: Record) -> bytes:
    values = asdict(record)
    for name in ("quota", "dynamic_quota"):  # few records have one
        if values[name] < 0.0:
            del values[name]
    packed: bytes = msgpack.packb(values)
    return packed


def encode_records(records: Mapping[str, Record]) -> dict[bytes, bytes]:
    return {name.encode(): encode_record(record) for name, record in records.items()}


def decode_record(row: bytes) -> Record:
    """A record as any version of this code wrote it: what it lacks has its default, what it has besides is left
    out. Raises ValueError, TypeError, AttributeError, KeyError, msgpack.UnpackException for what is none."""
    values: dict[str, Any] = {name: value for name, value in msgpack.unpackb(row).items() if name in _RECORD_FIELDS}
    temporary = tuple(
        Temporary(str(t["what"]), float(t["before"]), float(t["until"])) for t in values.pop("temporary", ())
    )
    slots = int(values.pop("slots_in_use", 0))
    return Record(temporary=temporary, slots_in_use=slots, **{name: float(value) for name, value in values.items()})


def decode_records(rows: Mapping[bytes, bytes]) -> tuple[dict[str, Record], dict[bytes, bytes]]:
    """The records by name, and the rows that are none."""
    found, others = {}, {}
    for raw, row in rows.items():
        try:
            found[raw.decode()] = decode_record(row)
        except (ValueError, TypeError, AttributeError, KeyError, msgpack.UnpackException):
            others[raw] = row
    return found, others
