"""Loads a configuration from files, the machine and the environment.

    config = load_config(subsystem="NEGOTIATOR")
    config.get("NEGOTIATOR_INTERVAL")            # "60": the expanded text, None if it is not defined
    NegotiatorSettings.from_config(config)       # typed; see shared.config.knobs

A name is looked up as LOCALNAME.X, SUBSYS.X, X, then the default ("Configuration" 11 in the spec's list of
corners). Files are read in this order, later definitions win: the first file; those of LOCAL_CONFIG_DIR;
LOCAL_CONFIG_FILE; then `_CONDOR_X` and `ROOST_X` from the environment; then what was set over the bus
(shared.config.dynamic), for good and on top of it until the daemon restarts; then the caller's overrides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shared.config.catalogue import TEMPLATES
from shared.config.config import DETECTED, OVERRIDE, Config
from shared.config.cross_checks import cross_checks
from shared.config.detected import detect
from shared.config.dynamic import Dynamic, with_dynamic
from shared.config.errors import Problem, Source, config_error
from shared.config.evaluate import evaluate_text, number
from shared.config.knobs import DEFAULTS, KNOBS
from shared.config.macros import MacroTable
from shared.config.reader import Dialect, Reader
from shared.config.spelling import misspelt

CONFIG = Dialect(colon=True, templates=TEMPLATES)
"""The configuration language."""

FIRST_FILES = ("/etc/condor/condor_config", "/usr/local/etc/condor_config")
"""Where the first file is looked for when nothing names it."""

_ENVIRONMENT_NAME = re.compile(r"(_condor_|roost_)([A-Za-z0-9_./]+)", re.IGNORECASE)
_LISTED = re.compile(r"[\s,]+")
_NO_MACROS = frozenset(("config", "output"))  # what ROOST_CONFIG and ROOST_OUTPUT mean to the programs themselves

TOOL = "TOOL"
"""The subsystem of commands, which hear of nothing that daemons are told."""

ENVIRONMENT = Source("<environment>")
POOL_DIRECTORY = Source("<pool directory>")


def load_config(
    paths: Sequence[str | Path] | None = None,
    *,
    subsystem: str = TOOL,
    local_name: str | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    instance: str | None = None,
    dynamic: Dynamic | None = None,
) -> Config:
    """Read the configuration of one daemon. Raises ConfigError.

    paths: the first files; None looks for them: $ROOST_CONFIG, $CONDOR_CONFIG (`ONLY_ENV`: none), else
    `condor_config` in the pool's directory ($ROOST_POOL_DIR), else the usual places, else none at all.
    local_name: as given with `-local-name`. overrides: macros that win over everything else. instance: as given with
    `-name` (None: the local name); it tells the files of what was set for good of several daemons from each other.
    dynamic: what was set over the bus besides.
    """
    env = os.environ if env is None else env
    overrides = {} if overrides is None else overrides
    first = _first_files(env, overrides) if paths is None else [str(path) for path in paths]
    table = MacroTable(prefixes=(local_name or "", subsystem), defaults=DEFAULTS, environment=env)
    root = str(Path(first[0]).resolve().parent) if first else ""
    for name, text in detect(subsystem=subsystem, local_name=local_name or "", config_root=root).items():
        table.set(name, text, DETECTED)
    pool = _pool_directory(env, overrides)
    if pool:
        table.set("LOCAL_DIR", pool, POOL_DIRECTORY)
    reader = Reader(table, CONFIG)
    for path in first:
        reader.read_file(path)
    _read_local_directories(table, reader)
    _read_local_files(table, reader)
    for name, text in _from_environment(env):
        table.set(name, text, ENVIRONMENT)

    def finished(table: MacroTable) -> Config:
        for name, text in overrides.items():
            table.set(name, text, OVERRIDE)
        _count_cores(table)
        _name_domain(table)
        config = Config(table, subsystem=subsystem, local_name=local_name or "", files=reader.files)
        config.warnings = (
            *reader.warnings,
            *misspelt(table, KNOBS),
            *(cross_checks(config) if subsystem != TOOL else ()),
        )
        return config

    below = table.copy()
    named = local_name if instance is None else instance
    return with_dynamic(finished(table), below, finished, dynamic or Dynamic(), named or "")


def _count_cores(table: MacroTable) -> None:
    """COUNT_HYPERTHREAD_CPUS false: the cores are counted, not their threads."""
    if evaluate_text(table.value("COUNT_HYPERTHREAD_CPUS") or "true") not in (False, 0):
        return
    cores = number(table.value("DETECTED_PHYSICAL_CPUS") or "")
    for name in ("DETECTED_CPUS", "DETECTED_CPUS_LIMIT"):
        threads = number(table.value(name) or "")
        if cores is not None and threads is not None:
            table.set(name, str(int(min(cores, threads))), DETECTED)


def _name_domain(table: MacroTable) -> None:
    """DEFAULT_DOMAIN_NAME: the domain of a machine that calls itself by a name without one."""
    host = table.value("FULL_HOSTNAME") or ""
    domain = (table.value("DEFAULT_DOMAIN_NAME") or "").strip().strip(".")
    if host and domain and "." not in host and table.origin("FULL_HOSTNAME") == DETECTED:
        table.set("FULL_HOSTNAME", f"{host}.{domain}", DETECTED)


def _pool_directory(env: Mapping[str, str], overrides: Mapping[str, str]) -> str:
    """The pool's directory as far as it is known before any file is read."""
    return overrides.get("ROOST_POOL_DIR") or env.get("ROOST_POOL_DIR") or ""


def _first_files(env: Mapping[str, str], overrides: Mapping[str, str]) -> list[str]:
    for variable in ("ROOST_CONFIG", "CONDOR_CONFIG"):
        named = env.get(variable)
        if named == "ONLY_ENV":
            return []
        if named:
            if not os.path.exists(named):
                raise config_error(f"{named} is not there", Source(f"${variable}"), f"create it, or unset {variable}")
            return [named]
    pool = _pool_directory(env, overrides)
    places = ([str(Path(pool) / "condor_config")] if pool else []) + list(FIRST_FILES)
    return next(([place] for place in places if os.path.isfile(place)), [])


def _read_local_directories(table: MacroTable, reader: Reader) -> None:
    """The files of LOCAL_CONFIG_DIR in byte order of their names; a directory that is not there is none."""
    source = table.origin("LOCAL_CONFIG_DIR")
    excluded = table.value("LOCAL_CONFIG_DIR_EXCLUDE_REGEXP")
    try:
        unwanted = re.compile(excluded) if excluded else None
    except re.error as error:
        where = table.origin("LOCAL_CONFIG_DIR_EXCLUDE_REGEXP")
        raise config_error(f"LOCAL_CONFIG_DIR_EXCLUDE_REGEXP is no pattern: {error}", where) from None
    for directory in filter(None, _LISTED.split(table.value("LOCAL_CONFIG_DIR") or "")):
        if not Path(directory).is_dir():
            reader.warnings.append(Problem(f"LOCAL_CONFIG_DIR {directory} is not there", source))
            continue
        for name in sorted(os.listdir(directory), key=os.fsencode):
            path = Path(directory) / name
            if not (unwanted is not None and unwanted.match(name)) and path.is_file():
                reader.read_file(path, source)


def _read_local_files(table: MacroTable, reader: Reader) -> None:
    """LOCAL_CONFIG_FILE: a list of files, or a command; a file that changes the list has the new one read."""
    done: set[str] = set()
    while True:
        text = (table.value("LOCAL_CONFIG_FILE") or "").strip()
        source = table.origin("LOCAL_CONFIG_FILE") or Source("<default>")
        command = text.endswith("|")
        items = [text] if command else [item for item in _LISTED.split(text) if item]
        todo = next((item for item in items if item not in done), None)
        if todo is None:
            return
        done.add(todo)
        if command:
            output = reader.output_of(todo[:-1], source)
            reader.files.append(todo)
            reader.read_text(output or "", todo)
        elif os.path.exists(todo) or _is_required(table):
            reader.read_file(todo, source)


def _is_required(table: MacroTable) -> bool:
    return (table.value("REQUIRE_LOCAL_CONFIG_FILE") or "true").strip().lower() not in ("false", "f", "no", "0")


def _from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Macros that the environment sets.

    `_CONDOR_X` sets X. `ROOST_X` sets ROOST_X if that is a declared knob, else X; it wins over `_CONDOR_X`.
    """
    ours: list[tuple[str, str]] = []
    for variable, text in env.items():
        match = _ENVIRONMENT_NAME.fullmatch(variable)
        if match is None:
            continue
        if match[1][0] == "_":
            yield match[2], text
        elif variable.lower() in KNOBS:
            ours.append((variable, text))
        elif match[2].lower() not in _NO_MACROS:
            ours.append((match[2], text))
    yield from ours
