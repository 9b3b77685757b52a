"""One look at the pool for its history: every slot, the slots of each platform by state, and the jobs of each submitter
(spec rows VIEW-01, VIEW-09). What is kept of each is what HTCondor's view server keeps."""

from __future__ import annotations

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


RESOURCES: Final = Kind("resources", ("KeyboardIdle", "LoadAvg", "State"), 0.5)
PLATFORMS: Final = Kind("platforms", STATES, 0.1)
SUBMITTERS: Final = Kind("submitters", ("RunningJobs", "IdleJobs"), 0.2)
USERS: Final = Kind("users", ("RunningJobs", "IdleJobs"), 0.2)
KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for kind in (RESOURCES, PLATFORMS, SUBMITTERS, USERS)}

#: Attributes that a sample is made of.
OF_MACHINES: Final = ("Name", "State", "LoadAvg", "KeyboardIdle", "MyCurrentTime", "Arch", "OpSys")
OF_SUBMITTERS: Final = ("Name", "ScheddName", "Machine", "RunningJobs", "IdleJobs")
#: A longer name is cut: names are part of what is stored.
LONGEST_NAME: Final = 255


class Sample:
    """One look, ad by ad."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._resources: Rows = {}
        self._submitters: Rows = {}
        self._platforms: dict[str, list[float]] = {}
        self._users: dict[str, list[float]] = {}

    def rows(self) -> dict[str, Rows]:
        """By kind."""
        return {
            RESOURCES.name: self._resources,
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
