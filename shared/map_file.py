"""CERTIFICATE_MAPFILE: which user of the pool somebody is whom a method has told by another name.

A line has three fields: method, name, user. The name is a regular expression (PCRE) that has to fit somewhere in it,
and `\\1` in the user is a group of it; where CERTIFICATE_MAPFILE_ASSUME_HASH_KEYS is true only `/.../` is one, or
`/.../i` in any case, and all else is a name as it is. The first line that fits counts. `@include PATH` reads another
file, or those of a directory in their order, whose own @include lines are left out. Fields with blanks stand in double
quotes, with backslashes before quotes inside; `#` begins a comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.classad.functions.coerce import decode, encode
from shared.classad.functions.pcre import Pattern, RegexError, compile_pattern

INCLUDE: Final = "@include"
_MOST_BYTES: Final = 64 << 20
_GROUP: Final = re.compile(rb"\\([0-9])")


class MapFileError(ValueError):
    """A line that can not be used: the text names file, line and mend."""


@dataclass(frozen=True, slots=True)
class Rule:
    """method: in upper case; name: as it is, or a pattern."""

    method: str
    name: str | Pattern
    user: str

    def apply(self, method: str, name: str) -> str | None:
        """The user, where this rule fits. A pattern that takes too long fits nobody."""
        if self.method != method:
            return None
        if isinstance(self.name, str):
            return self.user if self.name == name else None
        try:
            found = self.name.search(encode(name))
        except RegexError:
            return None
        if found is None:
            return None
        return decode(_GROUP.sub(lambda digit: found.group(int(digit[1])) or b"", encode(self.user)))


@dataclass(frozen=True, slots=True)
class MapFile:
    """The rules, in their order."""

    rules: tuple[Rule, ...] = ()

    def user(self, method: str, name: str) -> str | None:
        """Who somebody is; None: no rule fits."""
        for rule in self.rules:
            found = rule.apply(method, name)
            if found is not None:
                return found
        return None


def read(path: Path, *, hash_keys: bool, excluded: str = "") -> MapFile:
    """The rules of a file and of those that it includes. excluded: a regular expression of names of files that are left
    out of directories. Raises MapFileError, OSError."""
    return MapFile(tuple(_rules(path, hash_keys=hash_keys, excluded=excluded, included=False)))


def _rules(path: Path, *, hash_keys: bool, excluded: str, included: bool) -> Iterator[Rule]:
    for number, line in enumerate(_text(path).splitlines(), start=1):
        where = f"{path}, line {number}"
        fields = _fields(line, where)
        if not fields:
            continue
        if fields[0].lower() == INCLUDE:
            if included:
                continue  # as in HTCondor
            if len(fields) != 2:
                raise MapFileError(f"{where}: want @include PATH")
            for other in _included(path.parent / fields[1], excluded):
                yield from _rules(other, hash_keys=hash_keys, excluded=excluded, included=True)
            continue
        if len(fields) != 3:
            raise MapFileError(f"{where}: want three fields, METHOD NAME USER, and found {len(fields)}")
        yield Rule(fields[0].upper(), _name(fields[1], hash_keys, where), fields[2])


def _included(path: Path, excluded: str) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [one for one in sorted(path.iterdir()) if one.is_file() and not (excluded and re.search(excluded, one.name))]


def _name(field: str, hash_keys: bool, where: str) -> str | Pattern:
    body, options = field, ""
    if hash_keys:
        inside, slash, options = field[1:].rpartition("/")
        if not field.startswith("/") or not slash or not set(options) <= {"i", "U"}:
            return field
        body = inside.replace("\\/", "/")
    made = compile_pattern(body, "i" if "i" in options else "")
    if made is None:
        raise MapFileError(f"{where}: {body} is not a regular expression; mend or remove it")
    return made


def _fields(line: str, where: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
        elif line[at] == "#" and not found:
            break
        elif line[at] == '"':
            field, at = _quoted(line, at + 1, where)
            found.append(field)
        else:
            end = at
            while end < len(line) and not line[end].isspace():
                end += 1
            found.append(line[at:end])
            at = end
    return found


def _quoted(line: str, at: int, where: str) -> tuple[str, int]:
    field = ""
    while at < len(line) and line[at] != '"':
        if line.startswith('\\"', at):
            at += 1
        field += line[at]
        at += 1
    if at >= len(line):
        raise MapFileError(f'{where}: a " is not closed')
    return field, at + 1


def _text(path: Path) -> str:
    if not path.is_file():
        raise OSError(0, "there is no such file" if not path.exists() else "it is no regular file", str(path))
    if path.stat().st_size > _MOST_BYTES:
        raise OSError(0, f"it has more than {_MOST_BYTES} bytes", str(path))
    return path.read_text(encoding="utf-8", errors="surrogateescape")
