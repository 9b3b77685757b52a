"""The daemons that a personal pool runs: those that every pool needs, and those that DAEMON_LIST names besides. Pure.

    VIEW_SERVER = $(COLLECTOR)                       # another daemon of a kind, under a name of its own
    VIEW_SERVER_ARGS = -f -p 12345 -local-name VIEW  # without -local-name it is the name in DAEMON_LIST
    VIEW_SERVER_ENVIRONMENT = "_CONDOR_X=1"          # macros that win over the files'
    DAEMON_LIST = $(DAEMON_LIST) VIEW_SERVER

A daemon that is not for every pool is a line in OPTIONAL. Its module is imported only where it is asked for.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from shared.config import Config
from shared.config.daemon_list import QUIET, kind_of
from shared.config.knobs import KNOBS
from shared.config.knobs.base import to_list
from shared.daemon.base import Daemon
from shared.job_text import BadJobText, arguments, environment, quoted

#: Subsystem -> module and class of each daemon that runs only where DAEMON_LIST names it.
OPTIONAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "DEFRAG": "services.defrag.daemon:Defrag",
        "ROOSTER": "services.rooster.daemon:Rooster",
        "GANGLIAD": "services.monitor.daemon:Monitor",
        "ADSTASH": "services.adstash.daemon:Adstash",
    }
)

#: Kinds of which every pool has one, and may have more.
_SEVERAL: Final = frozenset({"COLLECTOR", "NEGOTIATOR", "SCHEDD", "STARTD"})
#: HAD: each negotiator has its own.
_QUIET: Final = QUIET | {"HAD"}

#: Options of HTCondor's daemons that mean what is so anyway.
_OF_COURSE: Final = frozenset({"-f", "-foreground", "-t", "-term", "-b", "-background"})
_LOCAL_NAME: Final = frozenset({"-local-name", "--local-name"})
_NAME: Final = frozenset({"-name", "--name", "-n"})
_PORT: Final = frozenset({"-p", "-port"})
_ONE_LOG: Final = "all daemons of a personal pool write log/pool.log"
_IN_VAIN: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(_PORT, "daemons of a pool have no ports of their own"),
        "-sock": "daemons of a pool have no sockets of their own",
        **dict.fromkeys(("-l", "-log", "-a", "-append"), _ONE_LOG),
        **dict.fromkeys(("-c", "-config"), "all daemons of a personal pool read one configuration"),
        **dict.fromkeys(("-pidfile", "-k", "-r", "-runfor"), "all daemons of a personal pool are one process"),
    }
)
_MACRO: Final = re.compile(r"(?:_condor_|roost_)([A-Za-z0-9_./]+)", re.IGNORECASE)
_OF_LOGS: Final = re.compile(r"(?:max_)?[a-z0-9_]+_log", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Member:
    """A daemon to start. word: its name in DAEMON_LIST; macros: those of <word>_ENVIRONMENT; port: behind -p."""

    word: str
    subsystem: str
    local_name: str = ""
    name: str = ""
    macros: Mapping[str, str] = field(default_factory=dict)
    port: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What DAEMON_LIST comes to."""

    members: tuple[Member, ...]  # in the order in which they start
    warnings: tuple[str, ...]  # for a person: what nothing is started for, what does nothing, with place and mend


def choose(config: Config, standing: Iterable[str], optional: Collection[str]) -> Chosen:
    """Read DAEMON_LIST (CFG-06, CFG-12, CFG-13, CFG-20). Standing daemons run in a personal pool whether it names them
    or not.

    standing: subsystems that run anyway, in the order of their starts; others come before the last one. optional: those
    of OPTIONAL."""
    first = list(standing)
    kinds = {*_SEVERAL.intersection(first), *optional}
    warnings: list[str] = []
    members = {subsystem: _member(config, subsystem, subsystem, warnings) for subsystem in first}
    for word in dict.fromkeys(item.upper() for item in to_list(config.get("DAEMON_LIST") or "")):
        if word in members or word in _QUIET:
            continue
        kind = word if word in optional else kind_of(config, word, {*kinds, *_QUIET})
        if kind in kinds:
            members[word] = _member(config, word, kind, warnings)
        elif kind not in _QUIET or kind == "HAD":
            warnings.append(f"{_place(config, 'DAEMON_LIST')}{_unknown(word, kind, first, optional)}")
    found = _with_their_hads([*members.values()])
    return Chosen(tuple(sorted(found, key=lambda one: _order(one, first))), tuple(warnings))


def views_within(members: Iterable[Member], view_hosts: str, local_hosts: Collection[str]) -> str:
    """CONDOR_VIEW_HOST without the collectors that are members of this pool, who hear of everything anyway.

    local_hosts: names and addresses of this machine, in lower case."""
    ports = {member.port for member in members if member.subsystem == "COLLECTOR" and member.port}

    def is_member(view: str) -> bool:
        host, _, port = view.rpartition(":")
        return port in ports and (host.lower() in local_hosts or host.lower().startswith("localhost"))

    return ", ".join(view for view in to_list(view_hosts) if not is_member(view))


def load(place: str) -> type[Daemon]:
    """The class at this place, as OPTIONAL has it."""
    module, _, name = place.partition(":")
    found: type[Daemon] = getattr(importlib.import_module(module), name)
    return found


def _order(member: Member, standing: list[str]) -> tuple[int, bool]:
    """Others of a kind start behind it, those of no standing kind before the last of all."""
    at = standing.index(member.subsystem) if member.subsystem in standing else len(standing) - 2
    return at, member.word != member.subsystem


def _with_their_hads(members: list[Member]) -> list[Member]:
    """Each negotiator gets a HAD of its name: a HAD lets the negotiator of its own name lead."""
    had = next((member for member in members if member.subsystem == "HAD"), None)
    if had is None:
        return members
    hads = [
        replace(had, word=_word_of_had(one), local_name=one.local_name, name=one.name)
        for one in members
        if one.subsystem == "NEGOTIATOR"
    ]
    return [*(member for member in members if member is not had), *hads]


def _word_of_had(negotiator: Member) -> str:
    return "HAD" if negotiator.word == "NEGOTIATOR" else f"HAD_{negotiator.word}"


def _member(config: Config, word: str, kind: str, warnings: list[str]) -> Member:
    member = _by_arguments(config, Member(word, kind), warnings)
    if word != kind and not member.local_name:
        member = replace(member, local_name=word)  # HTCondor's master gives it that
    return replace(member, macros=_macros(config, word, warnings))


def _by_arguments(config: Config, member: Member, warnings: list[str]) -> Member:
    knob = f"{member.word}_ARGS"
    if member.subsystem == "HAD":
        return member  # HAD_ARGS is told of as a knob that nothing goes by
    place = _place(config, knob)
    try:
        text = config.get(f"{member.word}_ARGS") or ""
        words = arguments(quoted(text), text)
    except BadJobText as error:
        warnings.append(f"{place}{knob} can not be read, and is left out: {error}")
        return member
    left = iter(words)
    for word in left:
        if word in _OF_COURSE:
            continue
        takes = word in _LOCAL_NAME or word in _NAME or word in _IN_VAIN
        value = next(left, "") if takes else ""
        if word in _LOCAL_NAME and value:
            member = replace(member, local_name=value)
        elif word in _NAME and value:
            member = replace(member, name=value)
        else:
            member = replace(member, port=value) if word in _PORT else member
            why = _IN_VAIN.get(word, "a name is missing" if takes else "no daemon here knows it")
            warnings.append(f"{place}{knob}: {' '.join(filter(None, (word, value)))} does nothing: {why}")
    return member


def _macros(config: Config, word: str, warnings: list[str]) -> Mapping[str, str]:
    knob = f"{word}_ENVIRONMENT"
    text = (config.get(f"{word}_ENVIRONMENT") or "").strip()
    place = _place(config, knob)
    try:
        variables = environment(quoted(text), text)
    except BadJobText as error:
        warnings.append(f"{place}{knob} can not be read, and is left out: {error}")
        return {}
    macros = {}
    for name, value in variables.items():
        found = _MACRO.fullmatch(name)
        if found is not None and _OF_LOGS.fullmatch(found[1]) and found[1].lower() not in KNOBS:
            warnings.append(f"{place}{knob}: {name} does nothing: {_ONE_LOG}")
        elif found is not None:
            macros[found[1]] = value
        else:
            warnings.append(
                f"{place}{knob}: {name} does nothing: all daemons of a personal pool are one process; set it where "
                "`roost up` is started"
            )
    return macros


def _unknown(word: str, kind: str, standing: list[str], optional: Collection[str]) -> str:
    if kind == "HAD":
        return (
            f"DAEMON_LIST names {word}, another HAD: each negotiator has one of its own, so nothing is started for it"
        )
    besides = f" and of choice {', '.join(sorted(optional))}" if optional else ""
    return (
        f"DAEMON_LIST names {word[:80]}, which is no daemon here, so nothing is started for it; "
        f"there are {', '.join(sorted(standing))}{besides}"
    )


def _place(config: Config, knob: str) -> str:
    origin = config.origin(knob)
    return f"{origin}: " if origin is not None and origin.line else ""
