"""The language in which cron jobs answer: lines of `Attribute = value`, ended by a line that starts with `-`.

    Value = 1
    SlotId = 1
    - s1 update:true

What follows the dash: a name, so that a later ad of that name replaces this one, and `update:true` or `update:false`
(CRN-01, CRN-02). What is left when the program ends is an ad too. A line that is no attribute is told and passed over.
Nothing that a program prints grows without bound: a line, an ad, and the words on what is wrong have limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.classad import ClassAd, ParseError
from shared.classad.ad import PRIVATE_NAMES, PRIVATE_PREFIX
from shared.classad.cells import Table
from shared.classad.depth import with_room
from shared.classad.old import parse_line

MAX_LINE: Final = 64 * 1024  # bytes
MAX_ATTRIBUTES: Final = 2000  # of one ad
MAX_AD: Final = 256 * 1024  # bytes of one ad's lines
MAX_PROBLEMS: Final = 10  # of one ad
MAX_LEFTOVERS: Final = 2000  # bytes, for the log

#: Attributes that choose the slots of an ad, first to last (CRN-03). Never published (CRN-05).
MERGE_CONSTRAINT, SLOT_NAME, NAME, SLOT_TYPE_ID, SLOT_ID = (
    "slotmergeconstraint",
    "slotname",
    "name",
    "slottypeid",
    "slotid",
)
SELECTORS: Final = frozenset((MERGE_CONSTRAINT, SLOT_NAME, NAME, SLOT_TYPE_ID, SLOT_ID))
#: What makes an ad what it is. A program may change anything else, as in HTCondor.
_NOT_THEIRS: Final = frozenset(("mytype", "targettype")) | PRIVATE_NAMES
_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRUE, _FALSE = ("true", "t", "yes", "1"), ("false", "f", "no", "0")


@dataclass(frozen=True, slots=True)
class CronAd:
    """One ad that a program printed. `attributes` have their prefix; `selectors` have the names above."""

    name: str  # behind the dash; empty: the job's own ad
    attributes: ClassAd
    selectors: ClassAd
    update: bool | None = None  # None: as STARTD_CRON_AUTOPUBLISH says
    problems: tuple[str, ...] = ()  # lines that were passed over: what is wrong with them


class OutputReader:
    """Cuts what one run prints into ads; `take` gets each as soon as it is whole."""

    def __init__(self, take: Callable[[CronAd], object], prefix: str = "") -> None:
        self._take = take
        self._prefix = prefix
        self._buffer = bytearray()
        self._skipping = False  # within a line that is too long
        self._line = 0
        self._begin()

    def _begin(self) -> None:
        self._attributes: Table = {}
        self._selectors: Table = {}
        self._problems: list[str] = []
        self._size = 0
        self._since_dash = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while (end := self._buffer.find(b"\n", start)) >= 0:
            self._take_line(bytes(self._buffer[start:end]))
            start = end + 1
        del self._buffer[:start]
        if len(self._buffer) > MAX_LINE:
            self._skipping = True
            self._buffer.clear()

    def close(self) -> tuple[str, ...]:
        """The program has ended: what it left without a dash is an ad. Returns the problems of an ad that there was
        not."""
        if self._buffer or self._skipping:
            self._take_line(bytes(self._buffer))
            self._buffer.clear()
        return self._end("")

    def leftovers(self) -> str:
        """What no dash has followed yet, cut."""
        return (bytes(self._since_dash) + self._buffer[:MAX_LEFTOVERS]).decode("utf-8", "replace")

    def _take_line(self, raw: bytes) -> None:
        self._line += 1
        if len(self._since_dash) < MAX_LEFTOVERS:
            self._since_dash += raw[:MAX_LEFTOVERS] + b"\n"
        if self._skipping or len(raw) > MAX_LINE:
            self._skipping = False
            self._problem(f"it has more than {MAX_LINE} bytes")
            return
        try:
            line = raw.decode("utf-8").strip()
        except UnicodeDecodeError:
            self._problem("it is not UTF-8")
            return
        if line.startswith("-"):
            self._end(line[1:])
        elif line and not line.startswith("#"):
            self._attribute(line)

    def _attribute(self, line: str) -> None:
        name = line.partition("=")[0].strip()
        if not _ATTRIBUTE.fullmatch(name):
            self._problem(f"{line[:60]!r} is not Attribute = value")
            return
        self._size += len(line)
        if len(self._attributes) >= MAX_ATTRIBUTES or self._size > MAX_AD:
            self._problem(f"the ad has more than {MAX_ATTRIBUTES} attributes or {MAX_AD} characters")
            return
        try:
            key, entry = with_room(parse_line, line)
        except ParseError as error:
            self._problem(f"{line[:60]!r} can not be read: {error.message}")
            return
        if key in SELECTORS and (not self._prefix or key != NAME):
            # With a prefix, Name is data: GpuName, say.
            self._selectors[key] = entry
            return
        name = self._prefix + entry[0]
        key = name.lower()
        if key in _NOT_THEIRS or key in SELECTORS or key.startswith(PRIVATE_PREFIX):
            self._problem(f"{name} is not for programs to set")
            return
        self._attributes[key] = (name, entry[1])

    def _end(self, words: str) -> tuple[str, ...]:
        """An ad is whole."""
        name, update = "", None
        for place, word in enumerate(words.split()):
            option, colon, value = word.partition(":")
            if not colon and place == 0:
                name = word[:200]
            elif option.lower() == "update":
                if not colon or value.lower() in _TRUE:
                    update = True
                elif value.lower() in _FALSE:
                    update = False
                else:
                    self._problem(f"{word[:60]!r}: give update:true or update:false")
            else:
                self._problem(f"{word[:60]!r} behind the dash means nothing")
        problems = tuple(self._problems)
        # Nothing between two dashes means nothing. Selectors alone are an ad: it takes away what its name had before.
        if self._attributes or self._selectors:
            attributes, selectors = ClassAd.from_table(self._attributes), ClassAd.from_table(self._selectors)
            self._begin()
            self._take(CronAd(name, attributes, selectors, update, problems))
            return ()
        self._begin()
        return problems

    def _problem(self, text: str) -> None:
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(f"line {self._line}: {text}")
        elif len(self._problems) == MAX_PROBLEMS:
            self._problems.append("and more")
