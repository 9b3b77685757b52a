"""Columns of one's own: -format, -af and -print-format, in the order of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from roost.cli import output
from roost.cli.options import Option, Parsed, ask
from roost.cli.print_mask import As, Column, Mask, column
from roost.cli.printf import unescape
from roost.errors import UsageError

#: Options of every tool that shows tables, in HTCondor's order.
FORMAT: Final[tuple[Option, ...]] = (
    ask("f|ormat", "the value of EXPR in this form (printf's, also %v, %V, %r, %T, %Y)", "FORM EXPR"),
    ask(
        "autof|ormat af:",
        "values of these attributes or expressions; letters: h headings, j job id first, t tabs, n one a line, "
        "V unparsed values, l labelled, r raw expressions, g blank line between ads, , commas",
        "ATTR...",
    ),
    ask("pr|int-format:", "columns, conditions and totals as this file says", "FILE"),
)
_LETTERS: Final = "hjlvVrotng,"


@dataclass(slots=True)
class Custom:
    """Columns that the command line asks for. from_file: with -print-format, whose other wishes stand here."""

    mask: Mask = field(default_factory=Mask)
    header: bool = True
    title: bool = False
    summary: str = "none"
    sums: list[Column] = field(default_factory=list)
    where: str = ""
    group_by: list[str] = field(default_factory=list)
    from_file: bool = False
    autoclusters: bool = False  # a row is an autocluster of jobs, not an ad


def columns(
    parsed: Parsed, words: Mapping[str, As] | None = None, *, status: bool = False, autoclusters: bool = False
) -> Custom | None:
    """What -format, -af and -print-format come to; None without any. words: what PRINTAS knows besides. status: the
    letter j means nothing. autoclusters: this tool can show them. Raises UsageError."""
    custom = Custom()
    for name, letters, values in parsed.order:
        if name == "format":
            output.expression(values[1], "format")
            custom.mask.columns.append(column(values[1], form=unescape(values[0]), cut=False))
        elif name in ("autoformat", "af"):
            _automatic(custom.mask, letters, values, ids=not status)
        elif name == "print-format" and values != ["!"]:
            _file(custom, values[0], words)
            if custom.autoclusters and not autoclusters:
                raise UsageError(f"-print-format {values[0]}: SELECT FROM AUTOCLUSTER is for jobs: use it with roost q")
    return custom if custom.mask.columns or custom.from_file else None


def _automatic(mask: Mask, letters: str, texts: list[str], *, ids: bool) -> None:
    unknown = next((letter for letter in letters if letter not in _LETTERS), "")
    if unknown:
        raise UsageError(f"-af:{letters}: unknown letter {unknown!r}; known are h j l v V r , t n g")
    mask.separate(
        "\n" if "g" in letters else "",
        "\t" if letters.rfind("t") > letters.rfind("g") else "" if "g" in letters else " ",
        "\n" if letters.rfind("n") > letters.rfind(",") else "," if "," in letters else "",
    )
    headings = "h" in letters
    labels = "l" in letters
    if ids and "j" in letters:
        label = "ID = " if labels else ""
        if headings or mask.headings:
            first = column("ClusterId", " ID", f"{label}%4d.", 5, auto=True, unended=True)
            second = column("ProcId", " ", "%-3d", 3, auto=True, joined=True)
            mask.headings = True
        else:
            first = column("ClusterId", "", f"{label}%d.", cut=True, unended=True)
            second = column("ProcId", "", "%d", cut=True, joined=True)
        mask.columns += [first, second]
    form = "%r" if "r" in letters or "o" in letters else "%V" if "V" in letters else "%v"
    for text in texts:
        output.expression(text, "af")
        if headings or mask.headings:
            heading = text if headings else "(expr)"
            mask.headings = True
            mask.columns.append(column(text, heading, form, -len(heading.encode()), auto=True, cut=False))
        elif labels:
            mask.columns.append(column(text, "", f"{text} = {form}", cut=True))
        else:
            mask.columns.append(column(text, "", form, cut=False))


def _file(custom: Custom, file: str, words: Mapping[str, As] | None) -> None:
    from roost.cli import printformat  # which few ask for

    found = printformat.load(file, words)
    if found.alike == "UNIQUE":
        raise UsageError(f"-print-format {file}: SELECT UNIQUE is not done here: let `sort | uniq -c` count equal rows")
    mask = custom.mask
    mask.columns += found.mask.columns
    mask.separate(found.mask.row_prefix, found.mask.prefix, found.mask.suffix, found.mask.row_suffix)
    mask.headings = found.label is None
    custom.header, custom.title, custom.summary, custom.sums = found.header, found.title, found.summary, found.sums
    custom.where, custom.group_by, custom.from_file = found.where, found.group_by, True
    custom.autoclusters = found.alike == "AUTOCLUSTER"
