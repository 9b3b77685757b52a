"""What can be wrong in a configuration although each knob by itself is usable: knobs that do not fit each other, paths
that can not be used, knobs that nothing goes by. Warnings, each with its place and its mend, never errors: somebody may
mean it.

    for problem in cross_checks(config): ...      # as the daemon of config.subsystem sees it

A daemon tells them when it starts and when it is reconfigured; `roost config-val -check` tells those of all daemons.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from shared.classad import ParseError, unparse
from shared.classad.expr import Literal
from shared.classad.flatten import flatten
from shared.config import daemon_attributes
from shared.config.config import Config
from shared.config.errors import ConfigError, Problem
from shared.config.evaluate import number, parse_whole
from shared.config.knobs import KNOBS

Check = Callable[[Config], Iterator[Problem]]

#: Subsystem -> knobs that say how often its daemons tell the pool of themselves, in seconds.
_UPDATES: Final = {
    "": ("MASTER_UPDATE_INTERVAL",),
    "DEFRAG": ("DEFRAG_UPDATE_INTERVAL",),
    "HAD": ("HAD_UPDATE_INTERVAL",),
    "NEGOTIATOR": ("NEGOTIATOR_UPDATE_INTERVAL",),
    "SCHEDD": ("SCHEDD_INTERVAL",),
    "STARTD": ("UPDATE_INTERVAL",),
}
_PROGRAMS: Final = {
    "STARTD": re.compile(
        r"user_job_wrapper|startd_cron_.+_executable|benchmarks_.+_executable|.+_hook_(?!keyword)[a-z_]+"
    ),
    "SCHEDD": re.compile(r"schedd_cron_.+_executable"),
}
_GROUP_KNOB: Final = re.compile(r"group_(quota_dynamic|quota|prio_factor|accept_surplus|autoregroup)_(.+)")
_ATTRIBUTE_LIST: Final = re.compile(r"slot(_type_)?\d+_startd_attrs")
_OF_SLOTS: Final = re.compile(r"slot(_type_)?\d+_")
_DIRECTORIES: Final = {"": ("SPOOL",), "STARTD": ("EXECUTE",)}


def cross_checks(config: Config) -> list[Problem]:
    """All warnings for the daemon of `config.subsystem`, in the order of CHECKS. A value that can not be read is passed
    over: whoever reads the settings tells of it."""
    return [problem for check in CHECKS for problem in check(config)]


# ---------------------------------------------------------------- knobs that nothing goes by


def idle_knobs(config: Config) -> Iterator[Problem]:
    """Knobs of HTCondor's that somebody wrote down, and that do nothing."""
    from shared.config.effects import in_vain  # commands, which are told nothing, do without the table

    yield from in_vain(config)


def empty_values(config: Config) -> Iterator[Problem]:
    """Knobs that are set to nothing, and need a value."""
    for name in config.names():
        knob = KNOBS.get(name)
        if knob is None or knob.may_be_empty or config.subsystem not in (knob.daemons or (config.subsystem,)):
            continue
        origin = config.origin(name)
        if origin is None or origin.template or not origin.line:
            continue  # POLICY:Desktop and compose files mean the default by nothing
        if not _text(config, name) and _expands(config, name):
            yield Problem(
                f"{knob.name} is set to nothing, and can not be: its default, {knob.default}, is in force",
                origin,
                "give a value, or take the line out",
            )


# ---------------------------------------------------------------- times


def lifetimes(config: Config) -> Iterator[Problem]:
    """An ad that ends before its next update: its daemon comes and goes in the pool's eyes."""
    lifetime = _number(config, "CLASSAD_LIFETIME")
    for name in (*_UPDATES[""], *_UPDATES.get(config.subsystem, ())):
        interval = _number(config, name)
        if lifetime is not None and interval is not None and lifetime <= interval:
            source = next((config.origin(knob) for knob in ("CLASSAD_LIFETIME", name) if config.is_written(knob)), None)
            yield Problem(
                f"CLASSAD_LIFETIME ({lifetime:g} s) is not above {name} ({interval:g} s): ads end before they are "
                "renewed, and daemons vanish from the pool",
                source,
                f"make CLASSAD_LIFETIME at least {3 * interval:g}, so that two updates may be lost",
            )


def cycles(config: Config) -> Iterator[Problem]:
    least, most = _number(config, "NEGOTIATOR_MIN_INTERVAL"), _number(config, "NEGOTIATOR_INTERVAL")
    if config.subsystem == "NEGOTIATOR" and least is not None and most is not None and least > most:
        yield Problem(
            f"NEGOTIATOR_INTERVAL ({most:g} s) has no effect: NEGOTIATOR_MIN_INTERVAL ({least:g} s) is longer",
            config.origin("NEGOTIATOR_MIN_INTERVAL"),
            "make NEGOTIATOR_MIN_INTERVAL the smaller one",
        )


# ---------------------------------------------------------------- groups


def quotas(config: Config) -> Iterator[Problem]:
    """Shares above the whole, and quotas of groups that are not there."""
    if config.subsystem != "NEGOTIATOR":
        return
    groups = {name.lower() for name in re.split(r"[\s,]+", _text(config, "GROUP_NAMES")) if name}
    dynamic: dict[str, float] = {}
    for name in config.names():
        match = _GROUP_KNOB.fullmatch(name)
        if match is None or name in KNOBS:
            continue
        group = match[2]
        if group not in groups:
            yield Problem(
                f"{name.upper()} has no effect: GROUP_NAMES has no {group}", config.origin(name), "add it there"
            )
        elif match[1] == "quota_dynamic":
            dynamic[group] = _number(config, name) or 0.0
    for group in sorted(groups):
        parent = group.rpartition(".")[0]
        if parent and parent not in groups:
            yield Problem(
                f"GROUP_NAMES has {group} without {parent}",
                config.origin("GROUP_NAMES"),
                f"add {parent} in front of it",
            )
    for parent in sorted({group.rpartition(".")[0] for group in dynamic}):
        children = {group: share for group, share in sorted(dynamic.items()) if group.rpartition(".")[0] == parent}
        if (whole := sum(children.values())) > 1.0 + 1e-9:
            yield Problem(
                f"the dynamic quotas of {', '.join(children)} come to {whole:g} of {parent or 'the pool'}, and are "
                "scaled down to 1",
                config.origin(f"GROUP_QUOTA_DYNAMIC_{next(iter(children))}"),
                "make them 1 at most",
            )


# ---------------------------------------------------------------- slots


def slots_of_types(config: Config) -> Iterator[Problem]:
    """SLOT_TYPE_<N> without a number makes no slot."""
    if config.subsystem != "STARTD":
        return
    for name in config.names():
        if re.fullmatch(r"slot_type_\d+", name) and _text(config, name) and not _text(config, f"NUM_SLOTS_{name[5:]}"):
            yield Problem(
                f"{name.upper()} makes no slot: NUM_SLOTS_{name[5:].upper()} is not set", config.origin(name), "set it"
            )


def published_attributes(config: Config) -> Iterator[Problem]:
    """What STARTD_ATTRS and its sisters name, and is no expression: it is left out of the ads."""
    if config.subsystem != "STARTD":
        return
    names = config.names()
    lists = ("startd_attrs", "startd_exprs", *filter(_ATTRIBUTE_LIST.fullmatch, names))
    published = {name.lower() for one in lists for name in re.split(r"[\s,]+", _text(config, one)) if name}
    for name in names:
        plain = _OF_SLOTS.sub("", name)
        if plain not in published:
            continue
        text = _text(config, name)
        try:
            parse_whole(text or "true")
        except ParseError as error:
            yield Problem(
                f"{name.upper()} = {text} is no ClassAd expression, and is left out of the ads: {error}",
                config.origin(name),
                "correct it; strings stand in double quotes",
            )


def unreadable_attributes_of_daemons(config: Config) -> Iterator[Problem]:
    """What SCHEDD_ATTRS and its sisters name that is no expression."""
    try:
        yield from daemon_attributes.problems(config)
    except ConfigError:
        return


def unreachable_start(config: Config) -> Iterator[Problem]:
    """A START that is not true whatever the job is."""
    if config.subsystem != "STARTD":
        return
    for name in ("START", *(name for name in config.names() if re.fullmatch(r"slot_type_\d+_start", name))):
        try:
            left = flatten(parse_whole(_text(config, name) or "true"))
        except (ParseError, ValueError, RecursionError):
            continue  # told where it is read
        if isinstance(left, Literal) and left.value is not True and left.value != 1:
            yield Problem(
                f"{name.upper()} is {unparse(left).upper()} for every job: these slots never take one",
                config.origin(name),
                "let it be true for the jobs that may run here",
            )


def overlapping_negotiators(config: Config) -> Iterator[Problem]:
    """Negotiators of one pool that look at the same slots give them away twice."""
    if config.subsystem != "NEGOTIATOR":
        return
    scopes = {macro.name.lower().partition(".")[0] for macro in config.macros() if ".negotiator_" in macro.name.lower()}
    looks: dict[str, tuple[str, str]] = {}  # NEGOTIATOR_NAME -> local name, constraint; those of one name stand by
    for local in sorted(scopes - {"negotiator"}):
        named, text = (
            _text(config, f"{local}.{knob}") or _text(config, knob)
            for knob in ("NEGOTIATOR_NAME", "NEGOTIATOR_SLOT_CONSTRAINT")
        )
        try:
            looks.setdefault(named, (local.upper(), unparse(parse_whole(text or "true"))))
        except ParseError:
            continue  # told where it is read
    for one, other in itertools.combinations(looks.values(), 2):
        whole = [local for local, constraint in (one, other) if constraint.lower() == "true"]
        if not whole and one[1] != other[1]:
            continue
        why = (
            f"{whole[0]} has no NEGOTIATOR_SLOT_CONSTRAINT"
            if whole
            else f"NEGOTIATOR_SLOT_CONSTRAINT is {one[1]} for both"
        )
        yield Problem(
            f"the negotiators {one[0]} and {other[0]} look at the same slots: {why}",
            config.origin(f"{(whole or [one[0]])[0]}.NEGOTIATOR_SLOT_CONSTRAINT")
            or config.origin("NEGOTIATOR_SLOT_CONSTRAINT"),
            "give each a constraint that no slot of the other one meets",
        )


# ---------------------------------------------------------------- paths


def directories(config: Config) -> Iterator[Problem]:
    """Directories that this account can not make or write to."""
    for name in (*_DIRECTORIES[""], *_DIRECTORIES.get(config.subsystem, ())):
        text = _text(config, name)
        if text and (trouble := _unwritable(Path(text))):
            yield Problem(
                f"{name} = {text}: {trouble}", config.origin(name), "give a directory that its account may use"
            )


def programs(config: Config) -> Iterator[Problem]:
    """Programs that are to be run, and can not be."""
    pattern = _PROGRAMS.get(config.subsystem)
    if pattern is None:
        return
    for name in filter(pattern.fullmatch, config.names()):
        text = _text(config, name)
        if not os.path.isabs(text):
            continue
        if not os.path.isfile(text):
            yield Problem(f"{name.upper()} = {text}: there is no such file", config.origin(name))
        elif not os.access(text, os.X_OK):
            yield Problem(f"{name.upper()} = {text}: it is not executable", config.origin(name), f"chmod +x {text}")


def _unwritable(path: Path) -> str:
    """Why a directory can not be used; empty if it can, or could be made."""
    try:
        there = next(one for one in (path, *path.absolute().parents) if one.exists())
        if not there.is_dir():
            return f"{there} is no directory"
        return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} can not be written to"
    except OSError as error:
        return error.strerror or str(error)


def _text(config: Config, name: str) -> str:
    """The expanded value; empty where there is none, or none that can be expanded (which is told elsewhere)."""
    try:
        return (config.get(name) or "").strip()
    except ConfigError:
        return ""


def _expands(config: Config, name: str) -> bool:
    try:
        config.get(name)
    except ConfigError:
        return False  # told where it is read
    return True


def _number(config: Config, name: str) -> float | None:
    found = number(_text(config, name))
    return None if found is None else float(found)


#: In the order in which they are told.
CHECKS: Final[tuple[Check, ...]] = (
    idle_knobs,
    empty_values,
    lifetimes,
    cycles,
    quotas,
    slots_of_types,
    published_attributes,
    unreadable_attributes_of_daemons,
    unreachable_start,
    overlapping_negotiators,
    directories,
    programs,
)
