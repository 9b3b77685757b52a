"""The queue statement: how many jobs, and over which items (manual: condor_submit, "queue").

queue [N] [VARS] in    [SLICE] ( item, item ... )
queue [N] [VARS] from  [SLICE] FILE | ( lines ) | COMMAND |
queue [N] [VARS] matching [files | dirs | any] [SLICE] pattern ...
"""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from shared.config.errors import Source, config_error
from shared.config.evaluate import number
from shared.config.files import run_command

_HEAD = re.compile(r"(?P<before>.*?)\b(?P<word>in|from|matching)(?=[\s(]|$)(?P<after>.*)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_.]+")
_SLICE = re.compile(r"\[([^\]]*)\](?=\s|\(|$)\s*")


class Rows(Sequence[tuple[int, tuple[str | None, ...]]]):
    """The items: (index in the whole list, value of each variable). Each line is split when it is asked for."""

    def __init__(self, lines: list[str], chosen: slice, variables: int) -> None:
        self._lines, self._variables = lines, variables
        self._indexes = range(len(lines))[chosen]

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, place: int) -> tuple[int, tuple[str | None, ...]]: ...

    @overload
    def __getitem__(self, place: slice) -> list[tuple[int, tuple[str | None, ...]]]: ...

    def __getitem__(
        self, place: int | slice
    ) -> tuple[int, tuple[str | None, ...]] | list[tuple[int, tuple[str | None, ...]]]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        index = self._indexes[place]
        return index, _columns(self._lines[index], self._variables)


@dataclass(frozen=True, slots=True)
class QueueItems:
    """What a queue statement asks for. No items: `count` jobs without variables."""

    count: int
    variables: tuple[str, ...]
    rows: Rows | None
    unmatched: tuple[str, ...] = ()  # patterns that match nothing


def parse(
    text: str, source: Source, *, directory: Path, take_line: Callable[[], str | None], stdin: Callable[[], str]
) -> QueueItems:
    """Read a queue statement: its text without `queue`, macros already expanded. `take_line` gives the lines behind
    it, for inline lists. Raises ConfigError."""
    head = _HEAD.fullmatch(text)
    if head is None or _looks_like_count(text):
        return QueueItems(_count(text.strip(), source), (), None)
    count_text, names = _before(head["before"].strip())
    count = _count(count_text, source)
    kind, after = head["word"].lower(), head["after"].strip()
    options = ""
    if kind == "matching":
        match = re.match(r"(files|dirs|any)\b\s*", after, re.IGNORECASE)
        if match:
            options, after = match[1].lower(), after[match.end() :]
    if not after:
        raise config_error(f"invalid queue statement: {kind} what?", source, "list the items behind it")
    chosen = slice(None)
    match = _SLICE.match(after)
    if match:
        chosen, after = _slice(match[1], source), after[match.end() :]
    unmatched: tuple[str, ...] = ()
    if kind == "from":
        lines = _from(after, source, directory, take_line, stdin)
    else:
        lines = _words(_inline(after, source, take_line))
        if kind == "matching":
            found = {pattern: _matching(pattern, options, directory) for pattern in lines}
            lines = list(dict.fromkeys(name for names in found.values() for name in names))
            unmatched = tuple(pattern for pattern, names in found.items() if not names)
    variables = tuple(names) or ("Item",)
    wrong = next((name for name in variables if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise config_error(
            f"invalid queue statement: '{wrong}' is no name of a variable", source, "use letters and digits"
        )
    return QueueItems(count, variables, Rows(lines, chosen, len(variables)), unmatched)


def _looks_like_count(text: str) -> bool:
    return not text.strip() or text.strip().isdigit()


def _before(text: str) -> tuple[str, list[str]]:
    """Count and variable names in front of in, from or matching."""
    match = re.match(r"((?:\d|\([^)]*\))[^A-Za-z_,]*)\s*", text)
    count = match[1] if match else ""
    rest = text[match.end() :] if match else text
    return count, [name for name in re.split(r"[\s,]+", rest) if name]


def _count(text: str, source: Source) -> int:
    if not text:
        return 1
    value = number(text)
    if value is None or not math.isfinite(value) or value < 0:
        raise config_error(
            f"invalid queue statement: '{text}' is no number of jobs",
            source,
            "write queue, queue N, or queue VAR in (...)",
        )
    return int(value)


def _slice(text: str, source: Source) -> slice:
    parts = text.split(":")
    try:
        numbers = [int(part) if part.strip() else None for part in parts]
    except ValueError:
        raise config_error(f"invalid slice [{text}]", source, "write [start:end:step] with whole numbers") from None
    if len(numbers) > 3:
        raise config_error(f"invalid slice [{text}]", source, "write [start:end:step]")
    start, stop, step = (*numbers, None, None)[:3]
    return slice(start, stop, step if step is not None and step > 0 else None)


def _inline(text: str, source: Source, take_line: Callable[[], str | None]) -> list[str]:
    """The text of a list: the rest of the line, or what is in parentheses, over several lines if need be."""
    if not text.startswith("("):
        return [text]
    return _parenthesised(text[1:], source, take_line)


def _parenthesised(first: str, source: Source, take_line: Callable[[], str | None]) -> list[str]:
    """A list that ends on the line where it begins, or before a line that begins with a closing parenthesis."""
    stripped = first.strip()
    if stripped.endswith(")"):
        return [stripped[:-1].strip()] if stripped[:-1].strip() else []
    lines = [stripped] if stripped else []
    while (line := take_line()) is not None:
        line = line.strip()
        if line.startswith(")"):
            return lines
        if not line.startswith("#"):
            lines.append(line)
    raise config_error(
        "the item list of this queue statement is never closed", source, "write ) at the beginning of a line behind it"
    )


def _words(lines: list[str]) -> list[str]:
    return [word for line in lines for word in re.split(r"[\s,]+", line) if word]


def _matching(pattern: str, options: str, directory: Path) -> list[str]:
    found: list[str] = []
    for name in sorted(glob.glob(pattern, root_dir=directory)):
        is_dir = os.path.isdir(directory / name)
        if (options == "dirs" and not is_dir) or (options == "files" and is_dir):
            continue
        found.append(f"{name.rstrip('/')}/" if is_dir else name)
    return found


def _from(
    text: str, source: Source, directory: Path, take_line: Callable[[], str | None], stdin: Callable[[], str]
) -> list[str]:
    if text.startswith("("):
        return _parenthesised(text[1:], source, take_line)
    if not text:
        raise config_error("queue ... from what?", source, "name a file, or give the items in parentheses")
    if text.endswith("|"):
        printed = run_command(text[:-1].strip(), source)
        return _lines(printed.text if printed is not None else "")
    if text == "-":
        return _lines(stdin())
    try:
        return [line.strip() for line in _lines((directory / text).read_text(errors="surrogateescape"))]
    except IsADirectoryError:
        return []  # as the reference: a warning that nothing is queued
    except OSError as error:
        raise config_error(f"can't open file {text}: {error.strerror}", source, "correct the path") from None


def _lines(text: str) -> list[str]:
    """Not str.splitlines, which also cuts at form feeds and the like: names may have these."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def _columns(line: str, wanted: int) -> tuple[str | None, ...]:
    """Split a row for the variables: one separator each, the last takes the rest; missing ones are None and keep the
    value of the row before."""
    values: list[str | None] = []
    rest = line.strip()
    separated = False
    while len(values) < wanted - 1 and rest:
        match = re.match(r"[^ \t,]*", rest)
        assert match is not None  # the pattern matches the empty text
        values.append(match[0])
        separated = match.end() < len(rest)
        rest = rest[match.end() + 1 :].lstrip(" \t")  # exactly one separator: `b , 2` leaves `, 2`
    if rest or not values or (separated and len(values) < wanted):
        values.append(rest)
    return (*values, *[None] * (wanted - len(values)))
