"""Ads in old syntax: one `Name = expression` a line, ads in a stream parted by empty lines or lines of dashes.

Most lines of a stream repeat (a pool's machines have the same policy, and an ad changes little from update to
update), so a line that was seen before costs one dictionary lookup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import is_, itemgetter
from typing import Final

from shared.classad.ad import ClassAd
from shared.classad.cells import Cell, Table, simplest
from shared.classad.expr import Literal, fold
from shared.classad.lexer import ParseError, is_text
from shared.classad.parser import parse_definition
from shared.classad.unparse import attribute_order, quote_name, unparse
from shared.classad.values import UNDEFINED

_CACHE_LIMIT: Final = 50_000  # lines
_LONGEST_CACHED: Final = 2_000  # characters
_FIRST, _SECOND = itemgetter(0), itemgetter(1)
#: The cell of no attribute.
_NONE: Final = Literal(UNDEFINED)
_LITERAL: Final = re.compile(
    r"""[ \t\r]*+(?:"([^"\\\0\n\ud800-\udfff]*+)"|(-?(?:0|[1-9][0-9]{0,17}+))"""
    r"""|(-?[0-9]{1,15}\.[0-9]{1,20}+))[ \t\r]*+\Z"""
)

Entry = tuple[str, tuple[str, Cell]]


class _Lines(dict[str, Entry]):
    """Lines already parsed. A long number is not kept, as it will hardly come again."""

    def __missing__(self, line: str) -> Entry:
        entry = parse_line(line)
        cell = entry[1][1]
        if len(line) <= _LONGEST_CACHED and not (isinstance(cell, int | float) and not -9999 < cell < 9999):
            if len(self) >= _CACHE_LIMIT:
                self.clear()
            self[line] = entry
        return entry


_lines: Final = _Lines()
_entry_of: Final = _lines.__getitem__


def parse_line(line: str) -> Entry:
    """One `Name = expression` as (folded name, (name, cell)). Raises ParseError with line 1."""
    name, equals, text = line.partition("=")
    stripped = name.strip(" \t\r")
    if not equals or stripped[:1] == "#":
        raise ParseError(f"{line.strip()[:40]!r} is no definition", 1, 1, "Name = expression")
    if not stripped or not is_text(stripped):
        raise ParseError("a definition without a name", 1, 1, "Name = expression")
    literal = _LITERAL.match(text)
    if literal is not None:
        string, integer, real = literal.groups()
        value = string if string is not None else int(integer) if integer is not None else float(real)
        return fold(stripped), (stripped, value)
    try:
        cell = simplest(parse_definition(text))
    except ParseError as fault:
        raise ParseError(fault.message, 1, len(name) + 1 + fault.column, fault.expected) from None
    return fold(stripped), (stripped, cell)


def parse_old_ad(text: str | Iterable[str]) -> ClassAd:
    """The ad of all definitions in `text`. Empty lines and lines that begin with # are passed over.

    Raises ParseError with the line's number.
    """
    lines = text.split("\n") if isinstance(text, str) else list(text)
    return _ad([line for line in lines if is_definition(line)], lines, 0)


def is_definition(line: str) -> bool:
    """Whether a line is neither empty nor a comment."""
    stripped = line.lstrip()
    return bool(stripped) and stripped[0] != "#"


def _table(definitions: list[str]) -> Table:
    """The table of an ad. Raises ParseError, of which only that it was raised is right."""
    table: Table = dict(map(_entry_of, definitions))
    if len(table) != len(definitions):  # a name given twice keeps its first spelling
        table = {}
        for key, (name, cell) in map(_entry_of, definitions):
            table[key] = (table[key][0] if key in table else name, cell)
    return table


def _ad(definitions: list[str], lines: list[str], offset: int) -> ClassAd:
    """The ad of `definitions`, which stand among `lines`, the first of which is number offset + 1."""
    try:
        return ClassAd.from_table(_table(definitions))
    except ParseError:
        raise _place(lines, offset) from None


def _place(lines: list[str], offset: int) -> ParseError:
    for number, line in enumerate(lines, offset + 1):
        if is_definition(line):
            try:
                parse_line(line)
            except ParseError as fault:
                return ParseError(fault.message, number, fault.column, fault.expected)
    raise AssertionError("one of the lines was wrong")


def parse_old_ads(stream: str | Iterable[str]) -> Iterator[ClassAd]:
    """The ads of a stream of lines, parted by empty lines, lines of dashes or lines of stars. Raises ParseError."""
    if isinstance(stream, str):
        return _of_text(stream)
    return _of_lines(stream, 0)


def _of_text(text: str) -> Iterator[ClassAd]:
    """Block by block, with nothing done by hand for a block of nothing but definitions."""
    start = 0
    while start < len(text):
        end = text.find("\n\n", start)
        end = len(text) if end < 0 else end
        lines = text[start:end].strip("\n").split("\n")
        try:
            table = _table(lines)
        except ParseError:  # or it has comments, blanks or dashes
            yield from _of_lines(lines, text.count("\n", 0, start) + (text[start] == "\n"))
        else:
            yield ClassAd.from_table(table)
        start = end + 2


def _of_lines(lines: Iterable[str], offset: int) -> Iterator[ClassAd]:
    block: list[str] = []
    start = offset
    for number, line in enumerate(lines, offset):
        line = line.rstrip("\r\n")
        if line and not (line[0] in " \t-*" and is_separator(line)):
            block.append(line)
            continue
        if block:
            ad = _block(block, start)
            if ad is not None:
                yield ad
            block = []
        start = number + 1
    ad = _block(block, start)
    if ad is not None:
        yield ad


def _block(block: list[str], offset: int) -> ClassAd | None:
    definitions = [line for line in block if is_definition(line)]
    return _ad(definitions, block, offset) if definitions else None


def is_separator(line: str) -> bool:
    """Whether a line parts two ads: blank, or three or more dashes or stars and nothing else."""
    stripped = line.strip()
    return not stripped or (len(stripped) >= 3 and stripped.strip(stripped[0]) == "" and stripped[0] in "-*")


def unparse_old(ad: ClassAd) -> str:
    """The ad in old syntax: a line an attribute, shorter names first, each line ended."""
    lines = sorted([(*_spelled(name), cell) for name, cell in ad.cells()], key=itemgetter(0))
    return "".join([f"{quoted} = {unparse(cell, 'old')}\n" for _, quoted, cell in lines])


class OldTexts:
    """Texts of ads in old syntax, as `unparse_old` writes them, for ads of which each says mostly what the one before
    said: the jobs of a cluster, a slot from run to run."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()  # of the last ad
        self._order: list[int] = []  # places in it, as they are written
        self._cells: list[Cell] = []  # what the last ad had there
        self._lines: list[str] = []  # and how that was written

    def of(self, ad: ClassAd) -> str:
        pairs = list(ad.cells())
        names = tuple(map(_FIRST, pairs))
        if names != self._names:
            self._adopt(names)
        pairs = list(map(pairs.__getitem__, self._order))
        cells = list(map(_SECOND, pairs))
        for place, same in enumerate(map(is_, cells, self._cells)):
            if not same and not _is_same(cells[place], self._cells[place]):
                self._lines[place] = f"{_spelled(pairs[place][0])[1]} = {unparse(cells[place], 'old')}\n"
                self._cells[place] = cells[place]  # as its line is: the next one may raise
        self._cells = cells
        return "".join(self._lines)

    def _adopt(self, names: tuple[str, ...]) -> None:
        """Begin with other names; what is known of those that were there before is kept."""
        known = {self._names[place]: number for number, place in enumerate(self._order)}
        order = sorted(range(len(names)), key=lambda place: _spelled(names[place])[0])
        kept = [known.get(names[place]) for place in order]
        self._cells = [_NONE if number is None else self._cells[number] for number in kept]
        self._lines = ["" if number is None else self._lines[number] for number in kept]
        self._names, self._order = names, order


def _is_same(cell: Cell, other: Cell) -> bool:
    """Whether two plain values are written alike. Not of numbers with a point: 0.0 and -0.0 are equal."""
    return cell.__class__ is other.__class__ and cell.__class__ in (str, int, bool) and cell == other


@lru_cache(maxsize=10_000)
def _spelled(name: str) -> tuple[tuple[int, str], str]:
    """What a name is sorted by, and how it is written: the same few hundred names again and again."""
    return attribute_order(name), quote_name(name, True)
