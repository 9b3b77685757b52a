"""Samples of the pool for its history: each slot, the slots of each platform by state, and the jobs of each submitter
(spec rows VIEW-01, VIEW-09). HTCondor's view server keeps the same attributes. Beside them each machine: its load, and
what of it is claimed, as slots come and go and the machine stays.

Samples are averaged into coarser levels; `level_for` chooses the level that answers a query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

#: A row of numbers; what they are depends on the kind.
Row: TypeAlias = tuple[float, ...]
#: What is known of each name of a kind at one moment.
Rows: TypeAlias = dict[str, Row]

#: States by the number that stands for them, in HTCondor's order, which is also the order of a platform's counts.
STATES: Final = (
    "Unclaimed", "Matched", "Claimed", "Preempting", "Owner", "Shutdown", "Delete", "Backfill", "Drained",
)  # fmt: skip
_NUMBER: Final = {state.lower(): number for number, state in enumerate(STATES)}
#: The name under which all platforms, or all users, are added up.
TOTAL: Final = "Total"


class Kind(NamedTuple):
    """What is kept of one kind of thing. share: its part of the storage."""

    name: str
    columns: tuple[str, ...]
    share: float


RESOURCES: Final = Kind("resources", ("KeyboardIdle", "LoadAvg", "State"), 0.4)
MACHINES: Final = Kind("machines", ("LoadAvg", "Cpus", "ClaimedCpus", "Memory", "ClaimedMemory"), 0.2)
PLATFORMS: Final = Kind("platforms", STATES, 0.1)
SUBMITTERS: Final = Kind("submitters", ("RunningJobs", "IdleJobs"), 0.15)
USERS: Final = Kind("users", ("RunningJobs", "IdleJobs"), 0.15)
KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for kind in (RESOURCES, MACHINES, PLATFORMS, SUBMITTERS, USERS)}

#: Attributes that a sample is made of.
OF_MACHINES: Final = (
    *("Name", "State", "LoadAvg", "KeyboardIdle", "MyCurrentTime", "Arch", "OpSys"),
    *("Machine", "Cpus", "Memory", "TotalLoadAvg", "TotalCpus", "TotalMemory"),
)
OF_SUBMITTERS: Final = ("Name", "ScheddName", "Machine", "RunningJobs", "IdleJobs")
#: A longer name is cut: names are part of what is stored.
LONGEST_NAME: Final = 255
_IN_USE: Final = frozenset(("claimed", "preempting"))


class Sample:
    """One look, ad by ad."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._resources: Rows = {}
        self._machines: dict[str, list[float]] = {}
        self._submitters: Rows = {}
        self._platforms: dict[str, list[float]] = {}
        self._users: dict[str, list[float]] = {}

    def rows(self) -> dict[str, Rows]:
        """By kind."""
        return {
            RESOURCES.name: self._resources,
            MACHINES.name: {name: tuple(row) for name, row in self._machines.items()},
            PLATFORMS.name: {name: tuple(row) for name, row in self._platforms.items()},
            SUBMITTERS.name: self._submitters,
            USERS.name: {name: tuple(row) for name, row in self._users.items()},
        }

    def machine(self, ad: Mapping[str, Any]) -> None:
        """A slot. ad: its attributes by lower-case name. One that says no State is passed over."""
        number = _NUMBER.get(_text(ad, "state").lower())
        name = _text(ad, "name")
        if number is None or not name:
            return
        # When the keyboard was touched last changes less often than how long ago that was: it is kept so, in minutes.
        said = min(_number(ad, "mycurrenttime") or self._now, self._now)
        touched = (said - max(0.0, _number(ad, "keyboardidle"))) // 60
        self._resources[name] = (touched, round(_number(ad, "loadavg"), 2), number)
        platform = f"{_text(ad, 'arch') or '?'}/{_text(ad, 'opsys') or '?'}"[:LONGEST_NAME]
        for group in (platform, TOTAL):
            self._platforms.setdefault(group, [0] * len(STATES))[number] += 1
        self._part_of_machine(ad)

    def _part_of_machine(self, ad: Mapping[str, Any]) -> None:
        """What all slots of a machine say of it, and what this one adds to what is claimed of it."""
        machine = _text(ad, "machine")
        if not machine:
            return
        load, cpus, memory = (_number(ad, name) for name in ("totalloadavg", "totalcpus", "totalmemory"))
        row = self._machines.setdefault(machine, [0.0] * len(MACHINES.columns))
        row[0], row[1], row[3] = max(row[0], round(load, 2)), max(row[1], cpus), max(row[3], memory)
        if _text(ad, "state").lower() in _IN_USE:
            row[2] += _number(ad, "cpus")
            row[4] += _number(ad, "memory")

    def submitter(self, ad: Mapping[str, Any]) -> None:
        """A submitter ad of one schedd."""
        user = _text(ad, "name")
        if not user:
            return
        schedd = _text(ad, "scheddname") or _text(ad, "machine")
        running, idle = (max(0, int(_number(ad, name))) for name in ("runningjobs", "idlejobs"))
        name = f"{user}/{schedd}"[:LONGEST_NAME]
        before = self._submitters.get(name, (0, 0))
        self._submitters[name] = (before[0] + running, before[1] + idle)
        for one in (user, TOTAL):
            sums = self._users.setdefault(one, [0, 0])
            sums[0] += running
            sums[1] += idle


def shown(kind: str, at: float, row: Sequence[float]) -> list[Any]:
    """A row as people are told it, in the order of the columns of its kind."""
    if kind != RESOURCES.name:
        return list(row)
    touched, load, state = row
    number = int(state)
    return [max(0, int(at - touched * 60)), load, STATES[number] if 0 <= number < len(STATES) else "Unknown"]


def by_lower_name(attributes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name.lower(): value for name, value in attributes}


def _text(ad: Mapping[str, Any], name: str) -> str:
    value = ad.get(name)
    return value[:LONGEST_NAME] if isinstance(value, str) else ""


def _number(ad: Mapping[str, Any], name: str) -> float:
    value = ad.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if abs(value) < 1e15 else 0.0  # also not a number


#: Samples in one record of each level: with a sample every minute five minutes, and an hour.
LEVELS: Final = (1, 5, 60)
#: Records of the level that answers, for the finer ones: a week of five minutes has 2,016.
ENOUGH: Final = 3_000
#: The longest answer. Coarser than the last level there is nothing.
MOST: Final = 20_000


class TooLong(ValueError):
    """A time that would make too long an answer; the text names the mend."""


def level_for(start: float, end: float, sampled_every_s: float) -> int:
    """The finest level that tells of the time in no more than ENOUGH records. Raises TooLong."""
    for level, samples in enumerate(LEVELS):
        records = (end - start) / (sampled_every_s * samples)
        if records <= ENOUGH or (level == len(LEVELS) - 1 and records <= MOST):
            return level
    days = int(MOST * sampled_every_s * LEVELS[-1] // 86400)
    raise TooLong(f"{(end - start) / 86400:.0f} days are asked for: ask for {days} at most")


class Averaging:
    """Makes one record of all samples of an interval.

    Jobs and slots are counted on average over all samples, also those in which a name was not there. Of a slot the load
    is the average while it was there, and the state is the one it was in most often; of a machine all is the average
    while it was there."""

    def __init__(self, kind: str, interval_s: float) -> None:
        self._kind = kind
        self._interval_s = interval_s
        self._interval: int | None = None
        self._samples = 0
        self._sums: dict[str, list[float]] = {}
        self._seen: Counter[str] = Counter()  # samples in which a machine was there
        self._states: dict[str, Counter[float]] = {}

    def add(self, at: float, rows: Mapping[str, Row]) -> tuple[float, Rows] | None:
        """A sample. The record of the interval before it, with the time of its end, once a sample is beyond that."""
        interval = int(at // self._interval_s)
        done = None
        if self._interval is not None and interval != self._interval:
            done = (self._interval + 1) * self._interval_s, self._averages()
            self._samples, self._sums, self._states = 0, {}, {}
            self._seen.clear()
        self._interval = interval
        self._samples += 1
        if self._kind == RESOURCES.name:
            self._slots(rows)
        else:
            for name, row in rows.items():
                sums = self._sums.setdefault(name, [0.0] * len(row))
                for position, value in enumerate(row):
                    sums[position] += value
        if self._kind == MACHINES.name:
            self._seen.update(rows.keys())
        return done

    def _slots(self, rows: Mapping[str, Row]) -> None:
        for name, (touched, load, state) in rows.items():
            sums = self._sums.setdefault(name, [0.0, 0.0, 0.0])  # touched last, sum of loads, times seen
            sums[0], sums[1], sums[2] = max(sums[0], touched), sums[1] + load, sums[2] + 1
            self._states.setdefault(name, Counter())[state] += 1

    def _averages(self) -> Rows:
        if self._kind == RESOURCES.name:
            return {
                name: (touched, round(load / seen, 2), self._states[name].most_common(1)[0][0])
                for name, (touched, load, seen) in self._sums.items()
            }
        over = self._seen if self._kind == MACHINES.name else dict.fromkeys(self._sums, self._samples)
        return {name: tuple(round(one / over[name], 2) for one in sums) for name, sums in self._sums.items()}
