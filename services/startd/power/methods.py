"""How Linux is told to sleep (spec row PWR-04): pm-utils, /sys/power, /proc/acpi, or a program of the administrator's.
What their files and programs say, and what is written or run for a state. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from services.startd.power.levels import Level, Means, level_of
from shared.classad import ParseError, parse_ads

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
    """Of the texts of /sys/power/state and /sys/power/disk. Words that are no state (freeze) are passed over."""
    found = {_SYS_WORDS[word] for word in state.split() if word in _SYS_WORDS}
    if "platform" not in _modes(disk) and disk.strip():
        found.discard(Level.S4)  # hibernating in another mode is not what HTCondor means by S4
    return frozenset(found)


def _modes(disk: str) -> set[str]:
    return {word.strip("[]") for word in disk.split()}


def proc_levels(text: str) -> frozenset[Level]:
    """Of the text of /proc/acpi/sleep: "S0 S3 S4 S5"."""
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
