"""The commands of a submit file as the rules read them: expanded, typed, and each reading remembered. SubmitContext
tells where and by whom the file is submitted; the functions at the end are what several rules share."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from roost.submit.template import Template, compile_text, mentioned
from shared.classad import ClassAd, Expr, ParseError, evaluate
from shared.classad import references as attributes
from shared.classad.expr import Ternary
from shared.config import load_config
from shared.config.errors import Problem, Source, config_error
from shared.config.evaluate import parse_whole
from shared.config.knobs.submit import SubmitSettings
from shared.config.macros import MacroTable

_REQUESTS = ("request_cpus", "request_memory", "request_disk", "request_gpus")


def near(name: str, known: Iterable[str], of: str = "did you mean {}?") -> str:
    """The one of these names that somebody may have meant; "" where none is like it."""
    found = difflib.get_close_matches(name.lower(), list(known), 1, 0.75)
    return of.format(found[0]) if found else ""


@dataclass(frozen=True, slots=True)
class SubmitContext:
    """knobs: what the administrator of this machine makes of every job. site_attributes: what SUBMIT_ATTRS adds.
    allow_crlf_script: whether a script whose first line ends as on DOS is only warned of."""

    directory: Path
    file: str
    user: str
    environment: Mapping[str, str]
    filesystem_domain: str
    arch: str = "X86_64"
    opsys: str = "LINUX"
    nice_group: str = "nice-user"
    knobs: SubmitSettings = field(default_factory=lambda: SubmitSettings.from_config(load_config([], env={})))
    site_attributes: Mapping[str, Expr] = field(default_factory=dict)
    allow_crlf_script: bool = False


_EMPTY = ClassAd()
VANILLA = 5
#: The command request_cpu is taken for a misspelling.
STANDARD_REQUESTS = ("", "cpus", "memory", "disk", "gpus", "cpu", "gpu")
#: Attribute names that the reference takes for commands.
ALIASES = {
    "accounting_group": "AccountingGroup",
    "accounting_group_user": "AcctGroupUser",
    "container_image": "ContainerImage",
    "disk_usage": "DiskUsage",
    "docker_image": "DockerImage",
    "image_size": "ImageSize",
    "job_lease_duration": "JobLeaseDuration",
    "kill_sig": "KillSig",
    "max_retries": "JobMaxRetries",
    "nice_user": "NiceUser",
    "notification": "JobNotification",
    "on_exit_hold": "OnExitHold",
    "on_exit_remove": "OnExitRemove",
    "priority": "JobPrio",
    "request_cpus": "RequestCpus",
    "request_disk": "RequestDisk",
    "request_gpus": "RequestGPUs",
    "request_memory": "RequestMemory",
    "should_transfer_files": "ShouldTransferFiles",
    "stream_error": "StreamErr",
    "stream_input": "StreamIn",
    "stream_output": "StreamOut",
    "transfer_executable": "TransferExecutable",
    "transfer_input_files": "TransferInputFiles",
    "transfer_output_files": "TransferOutputFiles",
    "universe": "JobUniverse",
    "when_to_transfer_output": "WhenToTransferOutput",
}


class Commands:
    """One queue statement's view of the macro table.

    `read` gathers the commands that were looked at since it was last cleared, `used` all of them ever. Between `repeat`
    and `restart` the table's definitions must not change, only its live rows: every text is then looked up once.
    """

    def __init__(self, table: MacroTable, place: SubmitContext, warnings: list[Problem]) -> None:
        self.table = table
        self.place = place
        self.read: set[str] = set()
        self.used: set[str] = set()
        self._warnings = warnings
        self._warned: set[str] = set()
        self.variables: tuple[str, ...] = ()
        self.image_kib: int | None = None  # of the first executable, which gives ImageSize to all clusters
        self._parsed: dict[str, Expr] = {}
        self._directories: dict[str, bool] = {}
        self._sizes: dict[Path, int] = {}
        self._changing: frozenset[str] = frozenset()
        self._live_names: frozenset[str] = frozenset()
        self._known: dict[str, str | Template | _Slow | None] | None = None  # while repeating
        self._origins: dict[str, Source | None] = {}

    def text(self, *names: str) -> str | None:
        """The expanded value of the first of these commands that has one; None when none has."""
        if self._known is not None:
            return self._again(names, self._known)
        for name in names:
            key = name.lower()
            self.read.add(key)
            self.used.add(key)
            value = self.table.value(name)
            if value is not None:
                return value
            alias = ALIASES.get(key)
            if alias is not None and self.table.get(name) is None:  # one that is empty hides the other name
                self.read.add(alias.lower())
                self.used.add(alias.lower())
                value = self.table.value(alias)
                if value is not None:
                    return value
        return None

    def source(self, name: str) -> Source | None:
        if self._known is None:
            return self.table.origin(name)
        if name not in self._origins:
            self._origins[name] = self.table.origin(name)
        return self._origins[name]

    def boolean(self, name: str) -> bool | None:
        """Raises ConfigError for what is neither true nor false."""
        text = self.text(name)
        if text is None:
            return None
        lowered = text.strip().lower()
        if lowered in ("true", "false"):
            return lowered == "true"
        value = evaluate(self.parsed(name, name), _EMPTY)
        if isinstance(value, bool | int | float):
            return bool(value)
        raise config_error(f"{name} = {text} is neither true nor false", self.source(name), "write true or false")

    def number(self, name: str, alias: str = "", *, strict: bool = True) -> int | float | None:
        """The value of a constant expression such as `3+4`. None when absent, or no number and not `strict`."""
        given = name if self.text(name) is not None else alias
        text = self.text(given) if given else None
        if text is None:
            return None
        # An expression's number must not begin with 0.
        if (plain := re.fullmatch(r"([-+]?)0*([0-9]{1,18})", text.strip())) is not None:
            return int(plain[1] + plain[2])
        value = evaluate(self.parsed(given, given), _EMPTY)
        if isinstance(value, bool | int | float):
            return value
        if strict:
            raise config_error(f"{given} = {text} is no number", self.source(given), "write a number")
        return None

    def integer(self, name: str, least: int | None = None) -> int | None:
        """The whole part of a constant expression's value, None when absent. Raises ConfigError, also below `least`."""
        value = self.number(name)
        if value is not None and not math.isfinite(value):
            raise config_error(f"{name} = {self.text(name)} is out of bounds", self.source(name), "write a number")
        if value is not None and least is not None and value < least:
            raise config_error(f"{name} = {self.text(name)} is out of bounds", self.source(name), f"at least {least}")
        return None if value is None else int(value)

    def constant(self, expr: Expr) -> Any:
        """The value of an expression that depends on nothing; None for any other."""
        return None if references_of(expr) else evaluate(expr, _EMPTY)

    def parsed(self, name: str, attribute: str) -> Expr:
        """The command's value as an expression. Raises ConfigError."""
        text = self.text(name)
        assert text is not None
        return self.parse_text(text, name, attribute)

    def parse_text(self, text: str, name: str, attribute: str) -> Expr:
        found = self._parsed.get(text)
        if found is None:
            try:
                found = parse_whole(text)
            except ParseError as error:
                raise config_error(
                    f"Parse error in expression: {attribute} = {text}: {error}",
                    self.source(name),
                    (near(name, _REQUESTS) if name.lower() not in _REQUESTS else "") or "correct the expression",
                ) from None
            if len(self._parsed) < 10_000:
                self._parsed[text] = found
        return found

    def is_directory(self, path: str) -> bool:
        found = self._directories.get(path)
        if found is None:
            found = self._directories[path] = os.path.isdir(path)
        return found

    def size(self, directory: str, name: str) -> int:
        """KiB of a file, or of everything in a folder; 0 for what can not be looked at (the transfer will say so).
        Looked up once for each file."""
        path = Path(directory, name)
        size = self._sizes.get(path)
        if size is None:
            size = self._sizes[path] = _size(path)
        return size

    def literal(self, value: Any) -> Any:
        """The value of a literal, None for any other expression."""
        if isinstance(value, Expr):
            value = evaluate(value, _EMPTY) if not references_of(value) else None
        return value

    def is_loose(self, text: str) -> bool:
        """Whether an expression must be put in parentheses to stand in a conjunction."""
        expr = parse_whole(text)
        return isinstance(expr, Ternary) or getattr(expr, "op", "") in ("||", "?:")

    def names(self, prefix: str) -> list[str]:
        """Commands of the file, or variables of its queue statement, whose name begins so, as first spelled there."""
        known = (*(macro.name for macro in self.table), *self.variables)
        return list({name.lower(): name for name in reversed(known) if name.lower().startswith(prefix)}.values())[::-1]

    def custom_requests(self) -> list[str]:
        """Attributes of `request_NAME` commands for other than cpus, memory, disk and gpus."""
        names = [command[len("request_") :] for command in self.names("request_")]
        names += [command[len("my.request") :] for command in self.names("my.request")]
        return [f"Request{name}" for name in dict.fromkeys(names) if name.lower() not in STANDARD_REQUESTS]

    def warn(self, message: str, name: str) -> None:
        """Once for each message, however many jobs there are."""
        if message not in self._warned:
            self._warned.add(message)
            self._warnings.append(Problem(message, self.source(name)))

    # --- what changes from job to job

    def varying(self, changing: Iterable[str]) -> set[str]:
        """Names of macros whose value depends, at any depth, on one of `changing` or on chance."""
        live = {name.lower() for name in changing}
        texts = {macro.name.lower(): macro.text for macro in self.table if "$" in macro.text}
        mentions = {name: mentioned(text) for name, text in texts.items()}
        found = {name for name, words in mentions.items() if words is None}
        while True:
            more = {
                name
                for name, words in mentions.items()
                if name not in found and words is not None and words & (live | found)
            }
            if not more:
                return found | live
            found |= more

    def repeat(self, live: Iterable[str], changing: Iterable[str]) -> None:
        """From now on only live rows change: `live` are their names, `changing` all names that depend on them."""
        self._live_names = frozenset(live)
        self._changing = frozenset(changing)
        self._known = {}
        self._origins = {}

    def restart(self) -> None:
        self._known = None

    def _again(self, names: tuple[str, ...], known: dict[str, str | Template | _Slow | None]) -> str | None:
        for name in names:
            try:
                value = known[name]
            except KeyError:
                value = known[name] = self._lookup(name)
            if value is None:
                continue
            if value.__class__ is str:
                return value
            text = value.fill(self.table.live) if isinstance(value, Template) else None
            if text is None:
                text = self.table.value(name)
            if text is not None:
                return text
        return None

    def _lookup(self, name: str) -> str | Template | _Slow | None:
        key = name.lower()
        self.used.add(key)
        alias = ALIASES.get(key)
        if alias is not None and self.table.get(name) is None and key not in self.table.live:
            return self._lookup(alias)
        if key not in self._changing:
            return self.table.value(name)
        return compile_text(self.table, name, self._live_names, self._changing) or _SLOW


def kib(size: int) -> int:
    """Bytes as KiB, rounded up."""
    return -(-size // 1024)


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return kib(sum(f.stat().st_size for f in path.rglob("*") if f.is_file()))
        return kib(path.stat().st_size)
    except OSError:
        return 0


class _Slow:
    """Stands for a text that the macro table must expand anew for every job."""


_SLOW = _Slow()


def references_of(expr: Expr) -> bool:
    """Whether the expression depends on any attribute."""
    found = attributes(expr)
    return bool(found.internal or found.external)


Attributes = dict[str, Any]
Rule = Callable[[Commands, Attributes], None]
NULL_FILE = "/dev/null"
_AMOUNT = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*([KMGT]?)(B?)", re.IGNORECASE)
_KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def iwd(c: Commands) -> str:
    """The directory that the job's file names are relative to. Raises ConfigError if there is none."""
    given = c.text("initialdir", "initial_dir", "job_iwd", "iwd")
    if not given:
        return str(c.place.directory)
    path = given if given[0] == "/" else f"{c.place.directory}/{given}"
    if not c.is_directory(path):
        raise config_error(f"No such directory: {path}", c.source("initialdir"), "make it, or correct initialdir")
    return path


def usage(c: Commands, command: str) -> int | None:
    """KiB that a command like disk_usage gives, None if it does not. Raises ConfigError below 1."""
    text = c.text(command)
    if text is None:
        return None
    kib = amount(text, "K")
    if kib is None or kib < 1:
        raise config_error(
            f"'{text}' is not valid for {command}. It must be >= 1", c.source(command), "write KiB, or 2G"
        )
    return kib


def amount(text: str, unit: str) -> int | None:
    """A literal amount with its unit, in `unit`s rounded up; None when the text is something else."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        return None
    number, letter = Fraction(match[1]), match[2].upper() or unit
    whole = math.floor(number) if number >= 0 else math.ceil(number)
    thousandths = int((number - whole) * 1000)  # further digits do not count
    in_unit = (whole + Fraction(thousandths, 1000)) * _KIB[letter]
    return math.trunc((in_unit * 1024 + _KIB[unit] * 1024 - 1) / (_KIB[unit] * 1024))


def of_universe(out: Attributes, vanilla: Expr | None, other: Expr | None) -> Expr | None:
    """What a pair of knobs says for this job: the one for vanilla jobs goes before the one for all."""
    return vanilla if vanilla is not None and out["JobUniverse"] == VANILLA else other


def is_number(text: str) -> bool:
    """Whether a text is a number, without a unit and positive."""
    return re.fullmatch(r"\s*\d+(\.\d*)?\s*", text) is not None


def leading_number(text: str) -> int:
    """The whole number that a text begins with; 0 if it does not."""
    match = re.match(r"\s*(-?\d+)", text)
    return int(match[1]) if match else 0


def unquoted(text: str) -> str:
    """A text without the double quotes around all of it."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
