"""Regular expressions: PCRE2 through the `pcre2` package, on bytes, within bounded time.

Why this library: the language's regular expressions are PCRE2's own, in bytes and not in characters. `regex` and
`re` differ in a hundred small places (possessive and recursive patterns, `\\K`, `\\h`, `\\Q..\\E`, options), RE2 has no
backreferences nor look-around. The `pcre2` package carries PCRE2 itself (BSD licence, wheels for Linux and macOS).

How time is bounded: PCRE2 counts the steps of each match attempt and gives up at a limit that is written in front of
the pattern (`(*LIMIT_MATCH=...)`; a pattern can lower it, not raise it). The limit shrinks with the length of the
subject, because there is one attempt for every position. A search that hits it, or whose subject is
long, is made position by position with a clock, and limits that rise at a position as long as the next is sure to
end in time: after DEADLINE_S of the thread's own processor time it is given up. What is given up is ERROR, as in the
reference, whose limit is 10,000,000 steps.
Memory is bounded by `(*LIMIT_HEAP=...)`, the pattern by MAX_PATTERN bytes. The JIT is off: it counts steps in
another way and has a small stack of its own, and a compiled pattern costs more than it gains for short subjects.

Two habits of the package are undone, since they change what patterns mean: `\\u`, `\\U` and `\\x` as in JavaScript
(an option), and no `\\C` (built in, so `(?s:.)` takes its place, which is the same on bytes). The reference has PCRE2
10.32; a later PCRE2 reads `{,3}` and blanks inside `{}` as quantifiers, so such braces are escaped.
"""

from __future__ import annotations

import re
from functools import lru_cache
from time import thread_time
from typing import Any, Final

from pcre2 import LibraryError, _cy

from shared.classad.functions.coerce import encode

MAX_PATTERN: Final = 1 << 14
"""The longest pattern, in bytes; a longer one is ERROR."""

DEADLINE_S: Final = 0.02
"""Processor seconds that one patient search may take."""

# Bytes of subject, and the steps of one attempt of a quick search: about 1,000,000 for all attempts together.
# For longer subjects not even the steps that PCRE2 does not count (the square of the length) would be few.
_QUICK_STEPS: Final = ((256, 4_000), (4_096, 250), (16_384, 60))
# Steps of one attempt of a patient search, tried in turn: each at most some eight times as long as the one before.
_PATIENT_STEPS: Final = (16, 128, 1_024, 8_192, 65_536)
_RUNG: Final = 8
# Where that begins: bytes of subject, and the rung. A single step may run over the whole subject.
_FIRST_RUNG: Final = ((10_000, 2), (80_000, 1))
_HEAP_KIB: Final = 65_536
_CLOCK_EVERY: Final = 64  # easy attempts between looks at the clock

# PCRE2's own numbers (pcre2.h), part of its stable interface.
_ANCHORED: Final = 0x80000000
_NOT_EMPTY_AT_START: Final = 0x00000008
_ALT_BSUX: Final = 0x00000002
_OPTIONS: Final = {"i": 0x00000008, "m": 0x00000400, "s": 0x00000020, "x": 0x00000080}

_NO_CONTEXT: Final[Any] = _cy.create_match_context()

_BAD_UTF_OFFSET: Final = -36

_QUANTIFIER: Final = re.compile(rb"\{[ \t]*(?:[0-9]+[ \t]*(?:,[ \t]*[0-9]*[ \t]*)?|,[ \t]*[0-9]+[ \t]*)\}")
_OLD_QUANTIFIER: Final = re.compile(rb"\{[0-9]+(?:,[0-9]*)?\}")


class RegexError(Exception):
    """A match was given up: it took too long or too much memory, or the subject is not what the pattern asks for."""


class Stopwatch:
    """Bounds a call that searches many times by DEADLINE_S of processor time, and the time of one search."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = thread_time() + DEADLINE_S

    def check(self, ahead: float = 0.0) -> None:
        """Raises RegexError when the time is up, or will be after `ahead` more seconds."""
        if thread_time() + ahead > self._end:
            raise RegexError("many matches took too long together")


class Match:
    """Where a pattern matched: `start` and `end` in bytes, and the groups."""

    __slots__ = ("_data", "_groups", "_subject", "end", "start")

    def __init__(self, data: Any, groups: int, subject: bytes) -> None:
        self._data, self._groups, self._subject = data, groups, subject
        self.start, self.end = _cy.match_substring_span_bynumber(data, subject, 0)

    def group(self, number: int) -> bytes | None:
        """The text of a group (0 is all); None behind the last group that took part in the match."""
        if number > self._groups or all(self._at(later) is None for later in range(number, self._groups + 1)):
            return None
        return self._at(number) or b""

    def _at(self, number: int) -> bytes | None:
        found: bytes | None = _cy.match_substring_bynumber(self._data, self._subject, number)
        return found


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_codes", "_groups", "_options", "_source")

    def __init__(self, source: bytes, options: int) -> None:
        """Raises LibraryError if `source` is no regular expression."""
        self._source = source
        self._options = options
        self._codes: dict[int, Any] = {}
        self._groups: int = _cy.pattern_capture_count(self._code(_QUICK_STEPS[0][1]))

    def matches(self, subject: str) -> bool:
        """Whether the pattern matches somewhere in `subject`. Raises RegexError if that is given up."""
        return self._search(encode(subject), 0) is not None

    def search(self, subject: bytes, start: int = 0, again: bool = False) -> Match | None:
        """The first match at or behind `start`; with `again` only one at `start` that is not empty.

        Raises RegexError.
        """
        if again:
            data = self._climb(subject, start, _ANCHORED | _NOT_EMPTY_AT_START, Stopwatch())
        else:
            data = self._search(subject, start)
        return None if data is None else Match(data, self._groups, subject)

    def _search(self, subject: bytes, start: int) -> Any:
        for length, steps in _QUICK_STEPS:
            if len(subject) <= length:
                try:
                    return self._attempt(steps, subject, start, 0)
                except RegexError:
                    break
        return self._patient(subject, start)

    def _patient(self, subject: bytes, start: int) -> Any:
        watch = Stopwatch()
        steps = _PATIENT_STEPS[_first_rung(subject)]
        for at in range(start, len(subject) + 1):
            try:
                data = self._attempt(steps, subject, at, _ANCHORED)
            except RegexError:
                data = self._climb(subject, at, _ANCHORED, watch)
            if data is not None:
                return data
            if at % _CLOCK_EVERY == 0:
                watch.check()
        return None

    def _climb(self, subject: bytes, start: int, options: int, watch: Stopwatch) -> Any:
        """One attempt with more and more steps, as long as the next is sure to end in time. Raises RegexError."""
        for steps in _PATIENT_STEPS[_first_rung(subject) :]:
            began = thread_time()
            try:
                return self._attempt(steps, subject, start, options)
            except RegexError:
                watch.check(ahead=(thread_time() - began) * _RUNG)
        raise RegexError("an attempt took too many steps")

    def _attempt(self, steps: int, subject: bytes, start: int, options: int) -> Any:
        try:
            return _cy.match(self._code(steps), subject, len(subject), start, _NO_CONTEXT, options)[0]
        except LibraryError as problem:
            if problem.code == _BAD_UTF_OFFSET:
                return None  # inside a character, where no match can start
            raise RegexError(str(problem)) from problem

    def _code(self, steps: int) -> Any:
        code = self._codes.get(steps)
        if code is None:
            limits = b"(*LIMIT_MATCH=%d)(*LIMIT_HEAP=%d)" % (steps, _HEAP_KIB)
            code = self._codes[steps] = _cy.compile(limits + self._source, self._options, _ALT_BSUX)
        return code


def _first_rung(subject: bytes) -> int:
    return next((rung for length, rung in _FIRST_RUNG if len(subject) <= length), 0)


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, options: str = "") -> Pattern | None:
    """The compiled pattern, or None if it is no regular expression. Options: i, m, s, x; other letters do nothing."""
    source = encode(pattern)
    if len(source) > MAX_PATTERN:
        return None
    flags = 0
    for letter in options:
        flags |= _OPTIONS.get(letter, 0)
    try:
        return Pattern(_older(source), flags)
    except LibraryError:
        return None


def _older(source: bytes) -> bytes:
    """`source` in words that this PCRE2 takes for what the reference's takes `source` for. Linear time."""
    if b"{" not in source and b"\\C" not in source:
        return source
    done = bytearray()
    at, in_class = 0, False
    while at < len(source):
        char, step = source[at : at + 1], 1
        if source.startswith(b"\\Q", at):
            end = source.find(b"\\E", at)
            step = (len(source) if end < 0 else end + 2) - at
        elif char == b"\\":
            end = source.find(b"}", at) if source[at + 1 : at + 3] in _BRACED_ESCAPES else -1
            step = 2 if end < 0 else end + 1 - at
        elif in_class:
            in_class = char != b"]"
            if source.startswith(b"[:", at) and source.find(b":]", at) > 0:
                step = source.find(b":]", at) + 2 - at
        elif char == b"[":
            in_class = True
            step += source.startswith(b"^", at + 1)
            step += source.startswith(b"]", at + step)
        elif char == b"{" and _QUANTIFIER.match(source, at) and not _OLD_QUANTIFIER.match(source, at):
            done += b"\\"
        piece = source[at : at + step]
        done += b"(?s:.)" if piece == b"\\C" and not in_class else piece
        at += step
    return bytes(done)


_BRACED_ESCAPES: Final = frozenset((b"p{", b"P{", b"N{", b"g{", b"k{", b"o{", b"x{"))

__all__ = ["DEADLINE_S", "MAX_PATTERN", "Match", "Pattern", "RegexError", "Stopwatch", "compile_pattern"]
