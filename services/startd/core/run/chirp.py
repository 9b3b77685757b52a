"""What jobs say in HTCondor's Chirp protocol, who may say what, and attributes that wait for the next report. Pure.

A request is a line: a verb, then words and numbers with blanks between them, where a backslash makes the next byte one
of the word. Its answer begins with a line that is a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal

from shared.chirp import Code, Wish, wish_of
from shared.classad import ClassAd, Expr, ParseError, parse_expr, unparse
from shared.classad.ad import is_private
from shared.classad.expr import fold

#: Bytes of a request's line, without its end.
LINE_BYTES: Final = 5120
#: Of an expression of set_job_attr_delayed.
MAX_DELAYED: Final = 993
#: What `version` answers.
VERSION: Final = 2

Group = Literal["files", "attributes", "updates", "delayed"]
#: Verb: whom it is for, and its words (s) and numbers (d).
VERBS: Final[Mapping[str, tuple[Group, str]]] = {
    "open": ("files", "ssd"),
    "close": ("files", "d"),
    "read": ("files", "dd"),
    "pread": ("files", "ddd"),
    "sread": ("files", "ddddd"),
    "write": ("files", "dd"),
    "pwrite": ("files", "ddd"),
    "swrite": ("files", "ddddd"),
    "lseek": ("files", "ddd"),
    "fsync": ("files", "d"),
    "fstat": ("files", "d"),
    "fstatfs": ("files", "d"),
    "fchown": ("files", "ddd"),
    "fchmod": ("files", "dd"),
    "ftruncate": ("files", "dd"),
    "getfile": ("files", "s"),
    "putfile": ("files", "sdd"),
    "unlink": ("files", "s"),
    "rename": ("files", "ss"),
    "mkdir": ("files", "sd"),
    "rmdir": ("files", "s"),
    "rmall": ("files", "s"),
    "getdir": ("files", "s"),
    "getlongdir": ("files", "s"),
    "link": ("files", "ss"),
    "symlink": ("files", "ss"),
    "readlink": ("files", "sd"),
    "stat": ("files", "s"),
    "lstat": ("files", "s"),
    "statfs": ("files", "s"),
    "access": ("files", "sd"),
    "chmod": ("files", "sd"),
    "chown": ("files", "sdd"),
    "lchown": ("files", "sdd"),
    "truncate": ("files", "sd"),
    "utime": ("files", "sdd"),
    "lookup": ("files", "s"),
    "whoami": ("files", "d"),
    "whoareyou": ("files", "sd"),
    "get_job_attr": ("attributes", "s"),
    "version": ("attributes", ""),
    "set_job_attr": ("updates", "ss"),
    "ulog": ("updates", "s"),
    "constrain": ("updates", "s"),
    "set_job_attr_delayed": ("delayed", "ss"),
    "get_job_attr_delayed": ("delayed", "s"),
}
#: Verbs after whose line so many bytes of content come as this one of their numbers says.
CONTENT: Final[Mapping[str, int]] = {"write": 1, "pwrite": 1, "swrite": 1, "putfile": 2}
_WORD: Final = re.compile(rb"(?:[^\s\\]|\\.)+", re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_NUMBER: Final = re.compile(rb"[+-]?\d{1,18}")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


@dataclass(frozen=True, slots=True)
class Request:
    verb: str
    words: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()

    @property
    def content(self) -> int:
        """Bytes of content that follow its line, where it is taken."""
        return self.numbers[CONTENT[self.verb] - (self.verb == "putfile")] if self.verb in CONTENT else 0


def parse(line: bytes) -> Request | None:
    """A line without its end; None: it is no request. More words than the verb has are left out, as in HTCondor."""
    found = _WORD.findall(line)
    verb = found[0].decode("ascii", "replace") if found else ""
    if verb not in VERBS or b"\0" in line:
        return None
    words: list[str] = []
    numbers: list[int] = []
    kinds = VERBS[verb][1]
    if len(found) - 1 < len(kinds):
        return None
    for kind, word in zip(kinds, found[1:], strict=False):
        if kind == "s":
            words.append(_ESCAPED.sub(rb"\1", word).decode("utf-8", "surrogateescape"))
        elif _NUMBER.fullmatch(word):
            numbers.append(int(word))
        else:
            return None
    request = Request(verb, tuple(words), tuple(numbers))
    return None if request.content < 0 else request


def cookie_of(line: bytes) -> bytes | None:
    """The cookie of the first line of a connection; None: it is none."""
    found = line.split()
    return found[1] if len(found) == 2 and found[0] == b"cookie" else None


@dataclass(frozen=True, slots=True)
class ChirpSettings:
    """ENABLE_CHIRP, ENABLE_CHIRP_IO, ENABLE_CHIRP_UPDATES, ENABLE_CHIRP_DELAYED, CHIRP_DELAYED_UPDATE_PREFIX,
    CHIRP_DELAYED_UPDATE_MAX_ATTRS."""

    enabled: bool = True
    files: bool = True
    updates: bool = True
    delayed: bool = True
    prefixes: tuple[str, ...] = ("Chirp*",)
    most_delayed: int = 100


@dataclass(frozen=True, slots=True)
class Rights:
    """Which groups of verbs a job may use. attributes: to read its ad. updates: to change it, and to write in its
    log."""

    files: bool = False
    attributes: bool = False
    updates: bool = False
    delayed: bool = False

    def __bool__(self) -> bool:
        return self.remote or self.delayed

    @property
    def remote(self) -> bool:
        """Whether the access point is asked."""
        return self.files or self.attributes

    def allow(self, request: Request) -> bool:
        return bool(getattr(self, VERBS[request.verb][0]))


def rights_of(settings: ChirpSettings, job: ClassAd) -> Rights:
    if not settings.enabled:
        return Rights()
    wish: Wish = wish_of(job, files_allowed=settings.files)
    return Rights(
        files=wish.files,
        attributes=wish.attributes,
        updates=wish.attributes and settings.updates,
        delayed=wish.delayed and settings.delayed,
    )


@dataclass(slots=True)
class DelayedUpdates:
    """Attributes that a job has set with set_job_attr_delayed."""

    settings: ChirpSettings
    values: dict[str, Expr] = field(default_factory=dict)  # by the names as they were written

    def set(self, name: str, text: str) -> Code | None:
        """None: it is set."""
        known = next((one for one in self.values if fold(one) == fold(name)), None)
        if not self._allows(name) or (known is None and len(self.values) >= self.settings.most_delayed):
            return Code.NOT_AUTHORIZED
        if len(text) > MAX_DELAYED:
            return Code.TOO_BIG
        try:
            self.values[known or name] = parse_expr(text)
        except ParseError:
            return Code.INVALID_REQUEST
        return None

    def get(self, name: str, job: ClassAd) -> str | None:
        """What was set last, or what the job began with, as text; None: neither."""
        if not self._allows(name):
            return None
        for known, expr in self.values.items():
            if fold(known) == fold(name):
                return unparse(expr)
        found = job.lookup(name)
        return None if found is None else unparse(found)

    def _allows(self, name: str) -> bool:
        if not _NAME.fullmatch(name) or is_private(fold(name)):
            return False
        return any(fnmatchcase(fold(name), fold(pattern)) for pattern in self.settings.prefixes)


@dataclass(slots=True)
class OpenFile:
    """A file that a connection has open: its place is kept here, and the access point is told it each time."""

    path: str
    flags: str
    at: int = 0

    @property
    def readable(self) -> bool:
        return "w" not in self.flags or "r" in self.flags

    @property
    def writable(self) -> bool:
        return "w" in self.flags

    @property
    def append(self) -> bool:
        return "a" in self.flags


@dataclass(slots=True)
class OpenFiles:
    """Those of one connection, by their numbers."""

    most: int = 64
    files: dict[int, OpenFile] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return len(self.files) >= self.most

    def add(self, path: str, flags: str) -> int:
        number = next(number for number in range(3, self.most + 4) if number not in self.files)
        self.files[number] = OpenFile(path, flags)
        return number


#: Requests of a job a second, in the long run, and that many at once.
PACE_PER_S: Final = 500.0
PACE_BURST: Final = 1000.0


@dataclass(slots=True)
class Pace:
    """How fast one job may ask: no job keeps a machine, or an access point, busy with questions."""

    left: float = PACE_BURST
    at: float = 0.0

    def wait_s(self, now: float) -> float:
        """One request more: how long it has to wait. now: any clock that does not step back."""
        self.left = min(PACE_BURST, self.left + (now - self.at) * PACE_PER_S if self.at else self.left) - 1
        self.at = now
        return max(0.0, -self.left / PACE_PER_S)
