"""How ads are shown: tables, -long, -json, -af."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

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
    references,
    to_json,
    unparse,
)
from shared.classad.old import is_definition, is_separator

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
    from roost.cli.version import run

    return run("version", [])


def chosen(parsed: Parsed) -> str:
    """Which of FORMATS was asked for, or "" for the default table."""
    asked = [name for name in ("long", "json", "af") if parsed.has(name)]
    if len(asked) > 1:
        raise UsageError(f"-{asked[0]} and -{asked[1]} exclude each other")
    return asked[0] if asked else ""


def projection(parsed: Parsed, table_needs: Sequence[str]) -> list[str]:
    """Attributes to ask for: [] (all) for -long, else only what will be shown."""
    form = chosen(parsed)
    if form == "af":
        names = ["ClusterId", "ProcId"] if "j" in parsed.letters.get("af", "") else []
        for text in parsed.all("af"):
            found = references(expression(text))
            names += sorted(found.missing | found.unscoped)
        return names
    if form:
        return attribute_names(parsed)
    return list(table_needs)


def show(parsed: Parsed, ads: Iterable[ClassAd]) -> None:
    """Print ads in the form that `chosen` named."""
    form = chosen(parsed)
    if form == "json":
        only = {name.lower() for name in attribute_names(parsed)}
        say("[")
        separator = ""
        for ad in ads:
            shown = ad
            if only:
                shown = ClassAd((name, expr) for name, expr in ad.exprs() if name.lower() in only)
            say(separator + to_json(shown))
            separator = ",\n"
        say("]")
    elif form == "long":
        only_names = attribute_names(parsed)
        for ad in ads:
            names = sorted(only_names or ad, key=str.lower)
            for name in names:
                if ad.lookup(name) is not None:
                    say(f"{name} = {ad.text(name, syntax='old')}")
            say()
    else:
        autoformat(parsed.all("af"), parsed.letters.get("af", ""), ads)


def autoformat(texts: Sequence[str], letters: str, ads: Iterable[ClassAd]) -> None:
    """HTCondor's -af: values separated by a blank, `undefined` for what is missing."""
    unknown = set(letters) - set("hjlVr,tngo")
    if unknown:
        raise UsageError(f"-af:{letters}: unknown letter {sorted(unknown)[0]!r}; known are h j l V r , t n g")
    expressions = [expression(text) for text in texts]

    def cells(ad: ClassAd) -> Iterator[str]:
        if "j" in letters:
            known = f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}"
            yield f"ID = {known}" if "l" in letters else known
        for text, expression in zip(texts, expressions, strict=True):
            if "r" not in letters:
                shown = plain(evaluate(expression, ad), quoted="V" in letters)
            elif text in ad:
                shown = ad.text(text, syntax="old") or ""
            else:
                shown = "undefined" if text.isidentifier() else unparse(expression, syntax="old")
            yield f"{text} = {shown}" if "l" in letters else shown

    if "h" in letters:
        _with_headings(texts, "j" in letters, [list(cells(ad)) for ad in ads])
        return
    comma = "," if "," in letters else ""
    before = "" if "g" in letters else "\t" if "t" in letters else " "
    between = comma + ("\n" if "n" in letters else "") + (before if before or "n" in letters else " ")
    for ad in ads:
        if "g" in letters:
            say()
        say(between.join(cells(ad)))


def _with_headings(texts: Sequence[str], ids: bool, rows: list[list[str]]) -> None:
    """Columns as wide as their longest value; `undefined` does not count."""
    headings = [" ID", *texts] if ids else list(texts)
    widths = [max([len(h), *(len(row[i]) for row in rows if row[i] != "undefined")]) for i, h in enumerate(headings)]
    if ids:  # the dots below each other
        left = max([4, *(len(row[0].partition(".")[0]) for row in rows)])
        widths[0] = left + 4
        for row in rows:
            cluster, _, proc = row[0].partition(".")
            row[0] = f"{cluster:>{left}}.{proc:<3}"
    for row in [headings, *rows]:
        say(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


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


# --- tables


@dataclass(frozen=True, slots=True)
class Column:
    """One column. HTCondor's headings stand left, with the blanks they have, whatever the side of their cells."""

    heading: str
    cell: Callable[[ClassAd], str | None]  # None: not known, shown as [????]
    right: bool = False
    least: int = 0  # width
    most: int = 0  # cells are cut there; 0: never
    joined: bool = False  # no blank before it


def table(columns: Sequence[Column], ads: Iterable[ClassAd], *, pad: bool = False, grow: bool = True) -> list[str]:
    """Lines of a table whose columns are as wide as their longest cell (`grow`, else only the rows with long cells
    are). `pad`: blanks up to the width after the last column too. The heading comes first."""
    rows = [[_cut(column.cell(ad), column.most) for column in columns] for ad in ads]
    widths = [max(c.least, len(c.heading)) for c in columns]
    if grow:
        widths = [max([w, *(len(row[i] or "") for row in rows)]) for i, w in enumerate(widths)]

    def line(cells: Sequence[str | None], right: Sequence[bool]) -> str:
        parts: list[str] = []
        for column, cell, width, to_right in zip(columns, cells, widths, right, strict=True):
            shown = f"[{'?' * (width - 2)}]" if cell is None else cell
            parts.append("" if column.joined or not parts else " ")
            parts.append(shown.rjust(width) if to_right else shown.ljust(width))
        whole = "".join(parts)
        return whole if pad else whole.rstrip()

    heading = line([c.heading for c in columns], [False] * len(columns))
    return [heading, *(line(row, [c.right for c in columns]) for row in rows)]


def _cut(cell: str | None, most: int) -> str | None:
    if cell is None:
        return None
    if not cell.isprintable():
        cell = "".join(c if c.isprintable() else " " for c in cell)
    return cell[:most] if most else cell


def lines(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], least: Sequence[int] = ()
) -> list[str]:
    """A table of our own: headings stand over their cells."""
    least = [*least, *[0] * (len(headings) - len(least))]
    widths = [max([least[i], len(headings[i]), *(len(row[i]) for row in rows)]) for i in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        parts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
        return " ".join(parts).rstrip()

    return [line(headings), *(line(row) for row in rows)]


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


def job_id_cell(ads: Sequence[ClassAd]) -> Callable[[ClassAd], str]:
    """Cells of the ID column of these jobs: the dots stand below each other."""
    width = max([4, *(len(str(int(number(ad, "ClusterId")))) for ad in ads)])
    return lambda ad: f"{int(number(ad, 'ClusterId')):>{width}}.{int(number(ad, 'ProcId')):<3}"


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
