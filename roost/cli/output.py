"""Shows ads: tables, -long, -json, -af."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from roost.cli.options import Option, Parsed, flag, many
from roost.errors import UsageError
from shared.classad import (
    ERROR,
    UNDEFINED,
    ClassAd,
    ParseError,
    ads_from_json,
    evaluate,
    parse_ads,
    parse_expr,
    unparse,
)
from shared.classad.old import is_definition, is_separator
from shared.version import VERSION

#: Options of every command that lists ads.
FORMATS: tuple[Option, ...] = (
    flag("long", "l", help="whole ads, one attribute a line"),
    flag("json", help="whole ads (or those attributes that -attributes names) as JSON"),
    many(
        "af",
        "autoformat",
        help="values of these attributes or expressions; letters: h headings, j job id first, "
        "t tabs, n one a line, V unparsed values, l labelled, r raw expressions, g blank line between ads, , commas",
        metavar="ATTR",
        letters=True,
    ),
    many("attributes", help="only these attributes in -long and -json", metavar="ATTR"),
)


def say(text: str = "") -> None:
    """To standard output; a reader that went away (`| head`) is no error."""
    sys.stdout.write(text + "\n")


def tell(lines: Iterable[str]) -> None:
    """Prose to standard output, in lines that the terminal has room for."""
    screen = terminal_width()
    for line in lines:
        for part in wrapped(line, screen):
            say(part)


def write(text: str) -> None:
    """To standard output as it is, also half a character that a width left of one."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def terminal_width() -> int:
    """Columns of the terminal that standard output is; 0 if it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except (OSError, ValueError):
        return 0


def leading_number(text: str) -> int:
    """The number that a text begins with, or 0."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    return int(digits[:6]) if digits else 0


def version() -> int:
    """Answer -version."""
    say(f"Roost {VERSION}")
    return 0


def chosen(parsed: Parsed) -> str:
    """Which of FORMATS was asked for, or "" for the default table."""
    asked = [name for name in ("long", "json", "af") if parsed.has(name)]
    if len(asked) > 1:
        raise UsageError(f"-{asked[0]} and -{asked[1]} exclude each other")
    return asked[0] if asked else ""


def plain(value: Any, *, quoted: bool = False) -> str:
    """A value as people read it: strings bare, the special values in lower case."""
    if value is UNDEFINED:
        return "undefined"
    if value is ERROR:
        return "error"
    if isinstance(value, str) and not quoted:
        return value
    return unparse(value, syntax="old")


def expression(text: str, option: str = "af") -> Any:
    """An expression of the command line. Raises UsageError naming the option."""
    try:
        return parse_expr(text, syntax="old")
    except ParseError as error:
        raise UsageError(f"-{option} {text[:200]}: {error}") from error


def constraints(parsed: Parsed) -> list[str]:
    """The terms that -constraint gives, each an expression of its own. Raises UsageError."""
    texts = [text for text in parsed.all("constraint") if text.strip()]
    for text in texts:
        expression(text, "constraint")
    return [f"({text})" for text in texts]


def attribute_names(parsed: Parsed) -> list[str]:
    return [name for text in parsed.all("attributes") for name in text.replace(",", " ").split()]


def lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    least: Sequence[int] = (),
    *,
    screen: int = 0,
    spare: Sequence[str] = (),
) -> list[str]:
    """A table of our own: headings stand over their cells. screen: width that lines must fit in; 0: none. Where they do
    not fit, columns of the headings in `spare` go, the first one first; then the last column goes on in lines below."""
    return [line for row in table(headings, rows, right, least, screen=screen, spare=spare) for line in row]


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    least: Sequence[int] = (),
    *,
    screen: int = 0,
    spare: Sequence[str] = (),
) -> list[list[str]]:
    """The same, the lines of each row by themselves, for who paints them."""
    least = [*least, *[0] * (len(headings) - len(least))]
    widths = [max([least[i], len(headings[i]), *(len(row[i]) for row in rows)]) for i in range(len(headings))]
    shown = list(range(len(headings)))
    for name in spare:
        # A sentence in the last column goes on below: it wants no more room than it is read in.
        if not screen or sum(widths[i] + 1 for i in shown[:-1]) + min(widths[shown[-1]], _SENTENCE) <= screen:
            break
        shown.remove(headings.index(name))
    hang = sum(widths[i] + 1 for i in shown[:-1])

    def of_row(cells: Sequence[str]) -> list[str]:
        parts = [cells[i].rjust(widths[i]) if right[i] else cells[i].ljust(widths[i]) for i in shown]
        return wrapped(" ".join(parts).rstrip(), screen, hang)

    return [of_row(headings), *(of_row(row) for row in rows)]


#: Columns that a sentence is read in well, and fewer than these hold none that could be read.
_SENTENCE: Final = 32
_NARROWEST: Final = 16


def wrapped(line: str, screen: int, hang: int | None = None) -> list[str]:
    """A line as lines of at most `screen` characters (0: as it is), words whole. What goes on stands `hang` characters
    in; without it under the line's last column, which two spaces set off."""
    if not screen or len(line) <= screen:
        return [line]
    if hang is None:
        hang = line.rfind("  ", 0, screen // 2) + 2 if "  " in line[: screen // 2] else 0
    if screen - hang < _NARROWEST:
        return [line]
    return textwrap.wrap(
        line[hang:],
        screen,
        initial_indent=line[:hang],
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def text(ad: ClassAd, name: str, missing: str = "") -> str:
    value = ad.eval(name)
    return missing if value is UNDEFINED or value is ERROR else plain(value)


def number(ad: ClassAd, name: str, default: float = 0.0) -> float:
    value = ad.eval(name)
    return float(value) if isinstance(value, int | float) else default


def span(seconds: float) -> str:
    """Days+hours:minutes:seconds, as HTCondor's tables have it."""
    seconds = max(0, int(seconds))
    days, rest = divmod(seconds, 86400)
    return f"{days}+{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


def moment(seconds: float, layout: str = "%m/%d %H:%M") -> str:
    """Local time without a leading zero in the month, as HTCondor's tables have it."""
    shown = time.strftime(layout, time.localtime(seconds))
    return shown[1:].rjust(len(shown)) if shown.startswith("0") else shown


def ads_from(file: str, constraint: str = "") -> list[ClassAd]:
    """Ads of a file as -long or -json writes them, those for which the constraint is true. Raises UsageError naming
    file and line."""
    found, _ = ads_with_places(file)
    if not constraint:
        return found
    wanted = expression(constraint, "constraint")
    return [ad for ad in found if evaluate(wanted, ad) is True]


def ads_with_places(file: str) -> tuple[list[ClassAd], Callable[[int], str]]:
    """Ads of a file as -long or -json writes them, and where in it the ad of a number (from 0) begins, for messages.
    Raises UsageError naming file and line."""
    try:
        written = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    as_json = written.lstrip()[:1] in ("[", "{")
    try:
        found = list(ads_from_json(written) if as_json else parse_ads(written, "old"))
    except ParseError as error:
        raise UsageError(f"{file}: {error}") from error

    def place(number: int) -> str:
        if as_json:
            return f"{file}, ad number {number + 1}"
        return f"{file}, line {next(islice(_beginnings(written), number, None))}"

    return found, place


def _beginnings(written: str) -> Iterator[int]:
    """The line (from 1) of the first definition of each ad in old syntax."""
    inside = False
    for line, content in enumerate(written.split("\n"), 1):
        if is_separator(content):
            inside = False
        elif not inside and is_definition(content):
            inside = True
            yield line
