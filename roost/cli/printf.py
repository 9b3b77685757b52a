"""Formats of -format and of columns: C's printf with one value, and HTCondor's own conversions.

%d %i %u %o %x %X %c   whole numbers       %v %V   any value; V: strings in quotes
%e %f %g %a (E F G A)  real numbers        %r %R   the expression, not evaluated
%s                     strings             %T      seconds as days+hours:minutes:seconds; %Y a date
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_CONVERSION: Final = re.compile(
    r"%(?P<flags>[#0\- +']*)(?P<width>[0-9]*)(?P<precision>\.[0-9]*)?(?P<size>[hlLqjzt]*)(?P<letter>.)"
)
_KINDS: Final = {
    **dict.fromkeys("dioux", "int"),
    "X": "int",
    **dict.fromkeys("eEfFgGaA", "float"),
    **dict.fromkeys("cC", "char"),
    **dict.fromkeys("sS", "string"),
    **dict.fromkeys("vV", "value"),
    **dict.fromkeys("rR", "raw"),
    "T": "time",
    "Y": "date",
    "p": "int",
}
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LEAST: Final = -(1 << 63)
#: More makes no table, and a format must not fill the memory.
_MOST_WIDTH: Final = 100_000


@dataclass(frozen=True, slots=True)
class Form:
    """A format with one conversion. kind: int, float, char, string, value, raw, time or date."""

    kind: str
    letter: str
    width: int
    left: bool
    template: str  # Python's, for one value
    plain: bool  # nothing but %s, %v or the like: the value itself
    bits: int = 64  # of a whole number; C drops those above

    def number(self, value: float) -> str:
        """The text of a number (kinds int, float, char, time and date)."""
        if self.kind == "time":
            return span(_low_bits(whole(value), 32))
        if self.kind == "date":
            return moment(whole(value))
        if self.kind == "float":
            return self._hexadecimal(float(value)) if self.letter in "aA" else self.template % float(value)
        if self.kind == "char":
            return (self.template % chr(whole(value) & 0xFF)).partition("\0")[0]
        bits = _low_bits(whole(value), self.bits)
        if self.letter in "ouxXp" and bits < 0:
            bits += 1 << self.bits
        shown = self.template % bits
        return shown.replace("0o", "0", 1) if self.letter == "o" else shown

    def fits(self, numbers: Sequence[int]) -> bool:
        """Whether no whole number loses bits."""
        half = 1 << (self.bits - 1)
        return -half <= min(numbers) and max(numbers) < half

    def string(self, text: str) -> str:
        """The text of a string; widths count bytes."""
        if self.plain:
            return text
        if text.isascii() and self.template.isascii():
            return self.template % text
        return from_bytes(to_bytes(self.template) % to_bytes(text))

    def _hexadecimal(self, value: float) -> str:
        shown = re.sub(r"\.?0*p", "p", value.hex(), count=1)
        return self.template % (shown.upper() if self.letter == "A" else shown)


def parse(text: str) -> Form | None:
    """The format that a text (escapes done) is; None without a conversion: it is a constant then."""
    start = 0
    while (start := text.find("%", start)) >= 0:
        found = _CONVERSION.match(text, start)
        if found is None:
            return None
        if found["letter"] == "%":
            start = found.end()
            continue
        kind = _KINDS.get(found["letter"])
        if kind is None:
            return None
        return _form(text, found, kind)
    return None


def _form(text: str, found: re.Match[str], kind: str) -> Form:
    letter, flags = found["letter"], found["flags"].replace("'", "")
    width = min(int(found["width"] or 0), _MOST_WIDTH)
    python = "d" if letter in "iu" else "x" if letter == "p" else letter
    if letter == "p":
        flags += "#"
    if kind in ("string", "value", "raw", "char") or letter in "aA":
        python, flags = "s", flags.replace("#", "").replace("0", "")
    precision = found["precision"] or ""
    if len(precision) > 4 or (kind == "char" and precision):
        precision = ""
    # What follows has no further values to print.
    after = re.sub(r"%(?!%)", "%%", text[found.end() :].replace("%%", "\0")).replace("\0", "%%")
    template = f"{text[: found.start()]}%{flags}{width or ''}{precision}{python}{after}"
    size = found["size"]
    bits = 64 if size.strip("h") or letter == "p" else (32, 16, 8)[min(len(size), 2)]
    return Form(kind, letter, width, "-" in flags, template, template == "%s", bits)


def to_bytes(text: str) -> str:
    """A string with a character for each byte of the text."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def from_bytes(text: str) -> str:
    """The text again; half a character stays as it is."""
    return text.encode("latin-1").decode("utf-8", "surrogateescape")


def unescape(text: str) -> str:
    """The text with C's backslash escapes done."""

    def one(found: re.Match[str]) -> str:
        octal, code, letter = found.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        return chr(int(code, 16)) if code else _ESCAPES.get(letter, letter)

    return _ESCAPE.sub(one, text) if "\\" in text else text


def whole(value: float) -> int:
    """A number as an integer, cut towards zero; what is none becomes the least one, as with C."""
    try:
        number = int(value)
    except (OverflowError, ValueError):
        return _LEAST
    return number if -_LEAST > number >= _LEAST else _LEAST


def _low_bits(number: int, bits: int) -> int:
    """A number of so many bits with its sign."""
    half = 1 << (bits - 1)
    return number if -half <= number < half else (number + half) % (2 * half) - half


def span(seconds: int) -> str:
    """Days+hours:minutes:seconds."""
    if seconds < 0:
        return "[?????]"
    days, rest = divmod(seconds, 86400)
    return f"{days:3}+{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


_shown: dict[int, str] = {}


def moment(seconds: int) -> str:
    """A date as month/day hour:minute, in local time."""
    if seconds < 0:
        return "    ???    "
    minute = seconds // 60
    known = _shown.get(minute)
    if known is None:
        try:
            at = time.localtime(minute * 60)
        except (OverflowError, OSError, ValueError):
            return "    ???    "
        if len(_shown) > 10_000:
            _shown.clear()
        known = _shown[minute] = f"{at.tm_mon:2}/{at.tm_mday:<2} {at.tm_hour:02}:{at.tm_min:02}"
    return known


def bytes_shown(count: float) -> str:
    """A number of bytes with the unit that suits: 12.5 MB."""
    power = 0
    while count > 1024.0 and power < 4:
        count /= 1024.0
        power += 1
    return f"{count:.1f} {('B ', 'KB', 'MB', 'GB', 'TB')[power]}"
