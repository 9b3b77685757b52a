"""Which power state a machine is to take, by what HIBERNATE says of each of its slots (PWR-01 to PWR-03). Pure.

ACPI's names: S1 standby, S3 suspended to RAM, S4 hibernating on disk, S5 switched off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from services.startd.power.wol import Wol
from shared.classad import Expr


class Level(IntEnum):
    """A power state: the larger, the deeper the sleep."""

    NONE = 0
    S1 = 1
    S2 = 2
    S3 = 3
    S4 = 4
    S5 = 5


#: By small letters. HTCondor's names, those of Linux among them.
_NAMES: Final[Mapping[str, Level]] = {
    **{str(int(level)): level for level in Level},
    **{level.name.lower(): level for level in Level},
    **dict.fromkeys(("standby", "sleep"), Level.S1),
    **dict.fromkeys(("ram", "mem", "suspend"), Level.S3),
    **dict.fromkeys(("disk", "hibernate"), Level.S4),
    **dict.fromkeys(("shutdown", "off"), Level.S5),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """HIBERNATE and what goes with it. interval_s: HIBERNATE_CHECK_INTERVAL, 0: off. method: LINUX_HIBERNATION_METHOD.
    plugin: HIBERNATION_PLUGIN with its arguments, empty: none. override_wol: HIBERNATION_OVERRIDE_WOL."""

    interval_s: int = 0
    hibernate: Expr | None = None
    unhibernate: Expr | None = None
    method: str = ""
    plugin: Sequence[str] = ()
    override_wol: bool = False


@dataclass(frozen=True, slots=True)
class Means:
    """How a machine can be put to sleep. method: "" there is none; reason: why there is none, or not as was wished."""

    method: str = ""
    levels: frozenset[Level] = frozenset()
    reason: str = ""


def level_of(value: object) -> Level | None:
    """What a value of HIBERNATE stands for: a name in any case, or a number from 0 to 5. None: for nothing."""
    if isinstance(value, str):
        return _NAMES.get(value.strip().lower())
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= max(Level):
        return Level(value)
    return None


def wanted(values: Iterable[object]) -> Level:
    """The state that all slots agree to (PWR-02): NONE where one of them says NONE, or nothing that is a state; else
    the deepest of what they say. values: of HIBERNATE, one for each slot; no slots agree to nothing."""
    levels = [level_of(value) for value in values]
    if not levels or any(not level for level in levels):
        return Level.NONE
    return max(level for level in levels if level is not None)


def hindrance(level: Level, means: Means, wol: Wol | None, rules: Rules) -> str:
    """Why a machine is not put into this state though its slots agree; "": it may be. What nobody could wake stays
    awake, unless HIBERNATION_OVERRIDE_WOL says that there are other means."""
    if not means.method:
        return means.reason or "no method to do so was found"
    if level not in means.levels:
        known = names(means.levels) or "none"
        return f"{means.method} knows no state {level.name} here, only: {known}"
    if not rules.override_wol and (wol is None or not wol.wakeable):
        return (
            "its network interface can not wake it (no magic packet enabled, see `ethtool`): set "
            "HIBERNATION_OVERRIDE_WOL = true if something else can"
        )
    return ""


def names(levels: Iterable[Level]) -> str:
    """As HibernationSupportedStates lists them."""
    return ",".join(level.name for level in sorted(levels) if level)


def attributes(rules: Rules, means: Means, wol: Wol | None, asleep: Level) -> dict[str, object]:
    """What all slots of the machine show while power management is on. asleep: the state that it is in, or about to
    take: then they are Offline, which the collector keeps (PWR-07)."""
    found: dict[str, object] = {
        "CanHibernate": bool(means.method and means.levels),
        "HibernationLevel": int(asleep),
        "HibernationState": asleep.name,
        "HibernationSupportedStates": names(means.levels) or "NONE",
        **(wol or Wol()).attributes(),
    }
    if means.method:
        found["HibernationMethod"] = means.method
    if rules.unhibernate is not None:
        found["Unhibernate"] = rules.unhibernate
    if asleep:
        found["Offline"] = True
    return found
