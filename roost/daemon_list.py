"""The daemons that a personal pool runs: those that every pool needs, and those that DAEMON_LIST names besides. Pure.

A daemon that is not for every pool is a line in OPTIONAL. Its module is imported only where it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shared.daemon.base import Daemon

#: Subsystem -> module and class of each daemon that runs only where DAEMON_LIST names it.
OPTIONAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DEFRAG": "services.defrag.daemon:Defrag",
        "ROOSTER": "services.rooster.daemon:Rooster",
        "GANGLIAD": "services.monitor.daemon:Monitor",
        "ADSTASH": "services.adstash.daemon:Adstash",
    }
)

#: Names that HTCondor's files list, and that nothing has to be started for here.
_QUIET: Final = frozenset({"MASTER", "SHARED_PORT", "REPLICATION", "PROCD", "KBDD"})


@dataclass(frozen=True, slots=True)
class Chosen:
    """What DAEMON_LIST comes to."""

    optional: tuple[str, ...]  # subsystems to start besides the standing ones, in the order of the list
    warnings: tuple[str, ...]  # for a person: names that nothing is started for, with the mend


def choose(
    listed: Iterable[str],
    standing: Iterable[str],
    programs: Mapping[str, str],
    optional: Mapping[str, str],
) -> Chosen:
    """Read DAEMON_LIST (CFG-06, CFG-13, CFG-20). Standing daemons run in a personal pool whether it names them or not.

    listed: its items. standing: subsystems that run anyway. programs: what each listed name is defined as, where it is
    (`VIEW_SERVER = $(COLLECTOR)`): a second daemon of one kind does not run in a personal pool. optional: see
    OPTIONAL."""
    there = {name.upper() for name in standing}
    chosen: dict[str, None] = {}
    warnings = []
    for word in dict.fromkeys(item.upper() for item in listed):
        if word in optional:
            chosen[word] = None
        elif word not in there and word not in _QUIET:
            warnings.append(_unknown(word, programs, there, optional))
    return Chosen(tuple(chosen), tuple(warnings))


def load(place: str) -> type[Daemon]:
    """The class at this place, as OPTIONAL has it."""
    module, _, name = place.partition(":")
    found: type[Daemon] = getattr(importlib.import_module(module), name)
    return found


def _unknown(word: str, programs: Mapping[str, str], standing: set[str], optional: Mapping[str, str]) -> str:
    kind = programs.get(word, "").rpartition("/")[2].removeprefix("condor_").upper()
    if kind != word and (kind in standing or kind in optional):
        return (
            f"DAEMON_LIST names {word}, a second {kind.lower()}, which a personal pool does not run: start it with "
            f"`python -m services.{kind.lower()} -local-name {word}`, in a pool with a broker of its own"
        )
    besides = f" and of choice {', '.join(sorted(optional))}" if optional else ""
    return (
        f"DAEMON_LIST names {word[:80]}, which is no daemon here, so nothing is started for it; "
        f"there are {', '.join(sorted(standing))}{besides}"
    )
