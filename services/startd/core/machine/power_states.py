"""Power states of a machine: which one HIBERNATE asks for, and how Linux is told to enter it. Pure.

ACPI's names: S1 standby, S3 suspended to RAM, S4 hibernating on disk, S5 switched off. Each slot's HIBERNATE is asked
(PWR-01 to PWR-03). Linux is told by pm-utils, /sys/power, /proc/acpi, or a program of the administrator's (PWR-04):
here is what their files and programs say, and what is written or run for a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from services.startd.core.machine.detected import Wol
from shared.classad import Expr, ParseError, parse_ads


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
class HibernationSettings:
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


def hindrance(level: Level, means: Means, wol: Wol | None, rules: HibernationSettings) -> str:
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
    """The states as HibernationSupportedStates lists them."""
    return ",".join(level.name for level in sorted(levels) if level)


def hibernation_attributes(
    rules: HibernationSettings, means: Means, wol: Wol | None, asleep: Level
) -> dict[str, object]:
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


PM_UTILS: Final = "pm-utils"
SYS: Final = "/sys"
PROC: Final = "/proc"
#: In the order in which they are tried.
METHODS: Final = (PM_UTILS, SYS, PROC)

SYS_STATE: Final = "sys/power/state"
SYS_DISK: Final = "sys/power/disk"
PROC_SLEEP: Final = "proc/acpi/sleep"
PM_CHECK: Final = "usr/bin/pm-is-supported"
#: The question of `pm-is-supported`, by what it asks for.
PM_QUESTIONS: Final[Mapping[Level, str]] = MappingProxyType({Level.S3: "--suspend", Level.S4: "--hibernate"})
_PM_PROGRAMS: Final = {Level.S3: "usr/sbin/pm-suspend", Level.S4: "usr/sbin/pm-hibernate"}
_SYS_WORDS: Final = {"standby": Level.S1, "mem": Level.S3, "disk": Level.S4}
POWER_OFF: Final = "sbin/poweroff"


@dataclass(frozen=True, slots=True)
class Step:
    """Part of what puts a machine to sleep: a text that is written to a file, or a program that is run; paths from the
    root of the file system."""

    path: str
    text: str = ""  # empty: it is a program


def sys_levels(state: str, disk: str) -> frozenset[Level]:
    """The states in the texts of /sys/power/state and /sys/power/disk. Words that are no state (freeze) are passed
    over."""
    found = {_SYS_WORDS[word] for word in state.split() if word in _SYS_WORDS}
    if "platform" not in _modes(disk) and disk.strip():
        found.discard(Level.S4)  # hibernating in another mode is not what HTCondor means by S4
    return frozenset(found)


def _modes(disk: str) -> set[str]:
    return {word.strip("[]") for word in disk.split()}


def proc_levels(text: str) -> frozenset[Level]:
    """The states in the text of /proc/acpi/sleep: "S0 S3 S4 S5"."""
    found = (level_of(word) for word in text.split() if word.upper() != "S0")
    return frozenset(level for level in found if level)


def steps(method: str, level: Level) -> Sequence[Step]:
    """What to do, in order. Raises ValueError where the method knows no such state."""
    if method == PROC:
        return (Step(PROC_SLEEP, str(int(level))),)
    if level is Level.S5:
        return (Step(POWER_OFF),)
    if method == SYS:
        word = next((word for word, one in _SYS_WORDS.items() if one is level), "")
        if word:
            write = Step(SYS_STATE, word)
            return (Step(SYS_DISK, "platform"), write) if level is Level.S4 else (write,)
    elif method == PM_UTILS and level in _PM_PROGRAMS:
        return (Step(_PM_PROGRAMS[level]),)
    raise ValueError(f"{method} knows no state {level.name}")


def choose(found: Mapping[str, frozenset[Level]], wish: str) -> Means:
    """The method to use: the one wished for (LINUX_HIBERNATION_METHOD), or the first that is usable. found: the usable
    ones with the states that they know."""
    wish = wish.strip()
    tried = [one for one in METHODS if not wish or one.lower() == wish.lower()]
    if not tried:
        known = ", ".join(METHODS)
        return Means(reason=f"LINUX_HIBERNATION_METHOD = {wish[:80]} is no method: want {known}, or nothing to try all")
    for method in tried:
        if found.get(method):
            return Means(method, found[method])
    where = "; it may take root" if not wish else f"; LINUX_HIBERNATION_METHOD = {wish} lets no other be tried"
    return Means(reason=f"no usable method among {', '.join(tried)}{where}")


def of_plugin(program: str, printed: str) -> Means:
    """What HIBERNATION_PLUGIN printed when it was asked for its ad: HibernationSupportedStates, a list of states."""
    try:
        ads = list(parse_ads(printed))
    except ParseError as error:
        return Means(reason=f"{program} ad: what it prints is no ad: {error}")
    states = ads[0].eval("HibernationSupportedStates") if ads else None
    if not isinstance(states, str):
        return Means(reason=f"{program} ad: it does not print HibernationSupportedStates")
    levels = {word: level_of(word) for word in states.replace(",", " ").split()}
    unknown = [word for word, level in levels.items() if level is None]
    if unknown:
        return Means(reason=f"{program} ad: {unknown[0][:40]} in HibernationSupportedStates is no state: want S1 to S5")
    known = frozenset(level for level in levels.values() if level)
    return Means(program, known, "" if known else f"{program} knows no state")
