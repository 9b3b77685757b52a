"""Real and effective user priorities, and the accounting of use (spec rows ACC-02 to ACC-15, ACC-18, ACC-22).

All functions are pure: a Record goes in, a Record comes out. Times are seconds since 1970, use is weighted slots
(sum of SlotWeight), usage is weighted slot-seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MINIMUM_PRIORITY = 0.5
LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one submitter."""

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


@dataclass(frozen=True, slots=True)
class Factors:
    """The knobs that choose a new submitter's factor."""

    default: float = 1000.0
    nice: float = 1e10
    remote: float = 1e7
    nice_group: str = "nice-user"
    local_domain: str = ""
    groups: tuple[tuple[str, float], ...] = ()  # (lower-case group, GROUP_PRIO_FACTOR_<group>)


def choose_factor(submitter: str, factors: Factors) -> float:
    """The factor of a submitter seen for the first time. Order: nice-user, its group, remote, default (ACC-09 to
    ACC-11). Group factors are not inherited by subgroups."""
    name, _, domain = submitter.partition("@")
    group = name.rpartition(".")[0].lower()
    if group == factors.nice_group.lower():
        return factors.nice
    for known, factor in factors.groups:
        if known == group:
            return factor
    if factors.local_domain and domain.lower() != factors.local_domain.lower():
        return factors.remote
    return factors.default


def effective(record: Record) -> float:
    """EUP = RUP * factor (ACC-08)."""
    return record.priority * record.factor


def advance(record: Record, now: float, half_life: float, in_use: float, slots_in_use: int) -> Record:
    """Charge what was in use since the last update, decay the priority, and note what is in use from now on.

    Splitting an interval into parts gives the same result (ACC-05). A clock that steps back charges nothing and only
    moves the time (ACC-22).
    """
    elapsed = now - record.updated if record.updated else 0.0
    if elapsed <= 0.0:
        return replace(record, updated=now, in_use=in_use, slots_in_use=slots_in_use)
    beta = 0.5 ** (elapsed / half_life) if half_life > 0 else 0.0
    priority = max(MINIMUM_PRIORITY, beta * record.priority + (1.0 - beta) * record.in_use)
    used = record.slots_in_use > 0
    return replace(
        record,
        priority=priority,
        usage=record.usage + record.slots_in_use * elapsed,
        weighted_usage=record.weighted_usage + record.in_use * elapsed,
        begin=record.begin or (record.updated if used else 0.0),
        last=now if used else record.last,
        updated=now,
        in_use=in_use,
        slots_in_use=slots_in_use,
    )


def change(record: Record, what: str, value: float | None, now: float) -> Record:
    """What an administrator may set (`roost userprio -set...`). Raises ValueError with the reason."""
    if what == "reset":
        return replace(record, usage=0.0, weighted_usage=0.0, begin=now)
    if value is None:
        raise ValueError(f"-set{what} needs a number")
    if not abs(value) <= LARGEST:
        raise ValueError(f"{what} {value:g} is too large; use at most {LARGEST:g}")
    if what == "factor":
        if value < 1.0:
            raise ValueError(f"priority factor {value:g} is below 1; use 1 or more")
        return replace(record, factor=value)
    if what == "priority":
        if value < MINIMUM_PRIORITY:
            raise ValueError(f"priority {value:g} is below {MINIMUM_PRIORITY}, the best there is")
        return replace(record, priority=value)
    fields = {"accumulated": "weighted_usage", "begin": "begin", "last": "last", "floor": "floor", "ceiling": "ceiling"}
    if what not in fields:
        raise ValueError(f"unknown change {what!r}; use one of factor, priority, {', '.join(fields)}, reset")
    if value < 0.0 and what != "ceiling":
        raise ValueError(f"{what} can not be negative")
    return replace(record, **{fields[what]: value})  # type: ignore[arg-type]  # every field listed is a float
