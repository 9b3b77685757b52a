"""What was set in a daemon's configuration over the bus: for good, in a file, or until the daemon restarts.

    condor_config_val -set   ->  PERSISTENT_CONFIG_DIR/.config.<SUBSYSTEM>[.<name>], read behind all other files
    condor_config_val -rset  ->  the memory of the daemon, on top of that

The file has lines `NAME = text` and comments, nothing else: no `include`, `use` or `if`. It is a daemon's own; what is
wrong with it is a warning, and never keeps the daemon from starting.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.config.config import Config
from shared.config.errors import ConfigError, Problem, Source
from shared.config.evaluate import number
from shared.config.files import read_text
from shared.config.knobs import settings_of
from shared.config.lines import Lines
from shared.config.macros import Macro, MacroTable
from shared.config.settable import misnamed, unusable
from shared.errors import ConfigurationError
from shared.files import beside, replace_on_disk

RUNTIME: Final = Source("<set until restart>")
REFUSED: Final = ".refused"
NO_PLACE: Final = "PERSISTENT_CONFIG_DIR is not set, so nothing can be set for good"
HEAD: Final = """\
# Set with `roost config-val -set`, and in force over restarts. Its daemon replaces this file: change it with
# `roost config-val -set` and `-unset`, or by hand while the daemon is down.
"""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What was set. Names as they are written -> texts.

    runtime: until the daemon restarts. persistent: for good; None: as the file has it. trial: nothing is in force yet,
    so what can not be used is an error and not left out.
    """

    runtime: Mapping[str, str] = field(default_factory=dict)
    persistent: Mapping[str, str] | None = None
    trial: bool = False


def file_of(directory: str, subsystem: str, instance: str) -> Path:
    """Where a daemon has what was set for good. instance: the name that it was started with, if any."""
    ending = f".{instance.replace('/', '_')}" if instance else ""
    return Path(directory) / f".config.{subsystem.upper()}{ending}"


def render(texts: Mapping[str, str]) -> str:
    """The file."""
    return HEAD + "".join(f"{name} = {text}\n" for name, text in texts.items())


def parse(text: str, name: str) -> tuple[list[Macro], list[Problem]]:
    """The definitions of a file in order, and what is wrong with other lines."""
    found: dict[str, Macro] = {}
    problems: list[Problem] = []
    lines = Lines(text, name)
    while (line := lines.logical()) is not None:
        left, equals, right = line.text.partition("=")
        wrong = "it is no assignment" if not equals else misnamed(left.strip()) or unusable(right.strip())
        if wrong:
            problems.append(Problem(f"a line is left out: {wrong}", lines.here(line), "write NAME = value"))
            continue
        found[left.strip().lower()] = Macro(left.strip(), right.strip(), lines.here(line))
    return list(found.values()), problems


def read(path: Path, *, refused_too: bool = False) -> tuple[list[Macro], list[Problem]]:
    """What a daemon's file has; nothing where there is none. What is wrong is told, also when nothing is read at all: a
    file that others may write is not believed, for it says what a daemon runs; nor one that was refused as it is."""
    place = Source(str(path))
    try:
        state = path.stat()
        if state.st_uid not in (0, os.geteuid()) or state.st_mode & stat.S_IWOTH:
            return [], [Problem("it is left out, as others may write it", place, "chown it to the daemon, chmod o-w")]
        text = read_text(str(path))
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        return [], [Problem(f"it is left out: {error.strerror}", place, "let the daemon read it")]
    if not refused_too and (why := _why_refused(path, text)):
        told = f"it is left out, as the daemon could not start with it: {why}"
        return [], [Problem(told, place, "unset what is wrong")]
    return parse(text, str(path))


def refuse(config: Config, error: ConfigurationError) -> None:
    """The daemon could not start with this: from its next start on it leaves out what was set for good, if anything
    was, until that is changed."""
    path = config.persistent_file
    if path is not None and config.persistent:
        with contextlib.suppress(OSError):
            replace_on_disk(beside(path, REFUSED), f"{_digest(read_text(str(path)))}\n{error}\n".encode())


def _why_refused(path: Path, text: str) -> str:
    """Why the file was refused as it is; empty if it was not."""
    try:
        digest, _, why = read_text(str(beside(path, REFUSED))).partition("\n")
    except OSError:
        return ""
    return (why.strip() or "it did not say why") if digest == _digest(text) else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def as_texts(macros: Iterable[Macro]) -> dict[str, str]:
    return {macro.name: macro.text for macro in macros}


def changed(texts: Mapping[str, str], new: Mapping[str, str], gone: Iterable[str]) -> dict[str, str]:
    """Texts after a change, without regard to upper and lower case of names."""
    away = {name.lower() for name in (*new, *gone)}
    return {**{name: text for name, text in texts.items() if name.lower() not in away}, **new}


def with_dynamic(
    base: Config, below: MacroTable, finished: Callable[[MacroTable], Config], dynamic: Dynamic, instance: str
) -> Config:
    """The configuration with what was set over the bus. below: the rows that this comes on top of; finished: makes a
    configuration of rows. What can not be used is left out and told of; in a trial it raises ConfigError."""
    file, problems = _place(base, instance)
    persistent: list[Macro] = []
    if file is not None and dynamic.persistent is not None:
        persistent = _rows(dynamic.persistent, Source(str(file)))
    elif file is not None:
        persistent, problems = read(file)
    runtime = _rows(dynamic.runtime, RUNTIME) if is_on(base.get("ENABLE_RUNTIME_CONFIG")) else []

    def of(kept: Sequence[Macro], also: Sequence[Problem] = ()) -> Config:
        config = base
        if kept:
            table = below.copy()
            for macro in kept:
                table.set(macro.name, macro.text, macro.source)
            config = finished(table)
            config.base = base
            config.persistent = tuple(macro for macro in kept if macro.source != RUNTIME)
            config.runtime = tuple(macro for macro in kept if macro.source == RUNTIME)
            if config.persistent:
                config.files = (*config.files, str(file))
        config.persistent_file = file
        config.warnings = (*config.warnings, *problems, *also)
        return config

    rows = [*persistent, *runtime]
    if not rows:
        return of(())
    settings = settings_of(base.subsystem)
    config = of(rows)
    try:
        settings.from_config(config)
        return config
    except ConfigError as error:
        if dynamic.trial:
            raise
        wrong = error
    try:
        settings.from_config(base)
    except ConfigError:
        return config  # the files are wrong themselves, and the daemon tells that
    kept = _without(rows, wrong)
    try:
        config = of(kept, _left_out(rows, kept, wrong))
        settings.from_config(config)
    except ConfigError:  # one is wrong through another
        config = of((), _left_out(rows, (), wrong))
    return config


def _place(base: Config, instance: str) -> tuple[Path | None, list[Problem]]:
    if not is_on(base.get("ENABLE_PERSISTENT_CONFIG")):
        return None, []
    directory = base.get("PERSISTENT_CONFIG_DIR")
    if directory:
        return file_of(directory, base.subsystem, instance), []
    return None, [Problem(NO_PLACE, base.origin("ENABLE_PERSISTENT_CONFIG"), "name a directory")]


def is_on(text: str | None) -> bool:
    """Whether the value of a boolean macro says yes; what is no boolean does not."""
    text = (text or "").strip()
    return text.lower() in ("t", "yes") or bool(number(text or "0"))


def _rows(texts: Mapping[str, str], source: Source) -> list[Macro]:
    """As definitions; of a file they have the lines that they will have there."""
    first = HEAD.count("\n") + 1
    return [
        Macro(name, text, source if source == RUNTIME else Source(source.name, first + place))
        for place, (name, text) in enumerate(texts.items())
    ]


def _without(macros: Sequence[Macro], error: ConfigError) -> list[Macro]:
    """Those that the problems are not of."""
    names = {macro.name.lower() for macro in macros if any(_is_of(problem, macro) for problem in error.problems)}
    return [macro for macro in macros if macro.name.lower() not in names]


def _is_of(problem: Problem, macro: Macro) -> bool:
    if problem.source != macro.source:
        return False
    return macro.source != RUNTIME or macro.name.upper().rpartition(".")[2] in problem.message.upper()


def _left_out(macros: Iterable[Macro], kept: Iterable[Macro], error: ConfigError) -> list[Problem]:
    """What to tell of definitions that are not in force because of this error."""
    there = {macro.name.lower() for macro in kept}
    why = "; ".join(problem.message + (f" ({problem.mend})" if problem.mend else "") for problem in error.problems)
    return [
        Problem(f"{macro.name} was set with config-val and is left out: {why}", macro.source, "set or unset it anew")
        for macro in macros
        if macro.name.lower() not in there
    ]
