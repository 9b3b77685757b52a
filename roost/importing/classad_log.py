"""HTCondor's logs of ClassAds (job_queue.log, Accountantnew.log), read as HTCondor does when it starts:

    107 <number> CreationTimestamp <seconds>     this file's number
    101 <key> <MyType> <TargetType>              a new ad
    102 <key>                                    an ad is gone
    103 <key> <name> <expression>                an attribute is set
    104 <key> <name>                             an attribute is gone
    105                                          what follows counts together,
    106                                          once this line is there

What a transaction without its last line says does not count, and a file that ends in the middle of a line has lost
that line: both happen when a machine dies, and HTCondor passes over both. A wrong line before a committed transaction
is damage, for which HTCondor refuses the file; so is it here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from shared.classad.expr import fold
from shared.config.errors import Problem, Source, config_error

#: Bytes of one line. An access point takes ads of 1 MiB.
LONGEST_LINE: Final = 4 << 20
#: Ads that are set without having been made, in old files.
_ALWAYS_THERE: Final = ("0.0", "Accountant.")

_NEW, _DESTROY, _SET, _DELETE, _BEGIN, _END, _NUMBER = "101", "102", "103", "104", "105", "106", "107"
#: Record -> words behind its number, at least.
_WORDS: Final = {_NEW: 1, _DESTROY: 1, _SET: 3, _DELETE: 2, _BEGIN: 0, _END: 0, _NUMBER: 1}


@dataclass(frozen=True, slots=True)
class Value:
    """An attribute as the file has it. line: from 1."""

    name: str
    text: str
    line: int


@dataclass(slots=True)
class LoggedAd:
    """One ad. values: by folded name. line: where it was made; 0: nowhere."""

    key: str
    line: int = 0
    values: dict[str, Value] = field(default_factory=dict)


@dataclass(slots=True)
class Log:
    """What a file says in the end. ads: by key, in the order in which they were made. warnings: what does not count."""

    ads: dict[str, LoggedAd]
    warnings: list[Problem]


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends, of which one that is too long comes cut."""
    while line := stream.readline(LONGEST_LINE + 1):
        yield line


def read_log(lines: Iterable[bytes], file: str) -> Log:
    """Raises ConfigError naming the line, where the file is damaged or is none."""
    reader = _Reader(file)
    for number, line in enumerate(lines, 1):
        reader.take(number, line)
    return reader.end()


@dataclass(frozen=True, slots=True)
class _Record:
    line: int
    kind: str
    key: str
    name: str = ""
    text: str = ""


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._ads: dict[str, LoggedAd] = {}
        self._open: list[_Record] | None = None  # of a transaction that has begun
        self._begun = 0  # its line
        self._wrong: Problem | None = None  # damage, unless nothing that counts follows
        self._warnings: list[Problem] = []
        self._unknown: set[str] = set()

    def take(self, number: int, raw: bytes) -> None:
        """One line."""
        source = Source(self._file, number)
        if len(raw) > LONGEST_LINE:
            raise config_error(
                f"a line of more than {LONGEST_LINE} bytes", source, "this is no log of ClassAds, or it is damaged"
            )
        if not raw.endswith(b"\n"):
            self._warnings.append(Problem("the last line has no end and does not count, as in HTCondor", source))
            return
        found = self._record(number, raw[:-1].decode("utf-8", "surrogateescape"))
        if isinstance(found, Problem):
            if self._wrong is None and not self._ads and self._open is None and number == 1:
                raise config_error(found.message, source, "this is no log of ClassAds: name the right file")
            self._wrong = self._wrong or found
            return
        if self._wrong is not None:
            if self._open is None or found.kind == _END:
                raise config_error(
                    self._wrong.message,
                    self._wrong.source,
                    "lines that count follow: take an undamaged copy of the file, or mend this line",
                )
            return
        self._count(found)

    def _record(self, number: int, line: str) -> _Record | Problem:
        source = Source(self._file, number)
        kind, _, rest = line.strip(" \r").partition(" ")
        if kind not in _WORDS:
            return Problem(f"{line[:40]!r} is no record of a log of ClassAds", source)
        if "\0" in line:
            return Problem("a zero byte", source)
        words = rest.split(" ", 2)
        if len([word for word in words if word]) < _WORDS[kind]:
            return Problem(f"record {kind} lacks something: {line[:60]!r}", source)
        key, name, text = (*words, "", "", "")[:3]
        return _Record(number, kind, key, name, text)

    def _count(self, found: _Record) -> None:
        if found.kind == _BEGIN:
            if self._open is not None:
                self._wrong = Problem(
                    f"a transaction begins inside the one of line {self._begun}", Source(self._file, found.line)
                )
                return
            self._open, self._begun = [], found.line
        elif found.kind == _END:
            for one in self._open or ():
                self._apply(one)
            self._open = None
        elif found.kind != _NUMBER and self._open is not None:
            self._open.append(found)
        elif found.kind != _NUMBER:
            self._apply(found)

    def _apply(self, found: _Record) -> None:
        if found.kind == _NEW:
            self._ads.setdefault(found.key, LoggedAd(found.key, found.line))
            return
        if found.kind == _DESTROY:
            self._ads.pop(found.key, None)
            return
        ad = self._ads.get(found.key)
        if ad is None and found.key in _ALWAYS_THERE:
            ad = self._ads[found.key] = LoggedAd(found.key)
        if ad is None:
            if found.key not in self._unknown:
                self._unknown.add(found.key)
                self._warnings.append(
                    Problem(
                        f"there is no ad {found.key} here: what is said of it does not count",
                        Source(self._file, found.line),
                    )
                )
        elif found.kind == _SET:
            ad.values[fold(found.name)] = Value(found.name, found.text, found.line)
        else:
            ad.values.pop(fold(found.name), None)

    def end(self) -> Log:
        """What counts."""
        if self._wrong is not None:
            self._warnings.append(
                Problem(f"{self._wrong.message}: it and what follows does not count", self._wrong.source)
            )
        elif self._open is not None:
            self._warnings.append(
                Problem(
                    "this transaction was never committed and does not count, as in HTCondor",
                    Source(self._file, self._begun),
                )
            )
        return Log(self._ads, self._warnings)
