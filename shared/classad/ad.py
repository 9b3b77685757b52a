"""ClassAd: a mutable mapping of attributes, case-insensitive, cheap to keep and to copy.

An ad that came packed stays one bytes object until it is touched. Tables are copied when they are written to, so
copies and nested ads share theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from datetime import datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

import msgpack

from shared.classad.cells import Cell, PackedText, Table, as_expr, packable, parse_text, read_packed, simplest
from shared.classad.expr import FOLDED, AdExpr, Expr, Interval, ListExpr, Literal, fold
from shared.classad.lexer import is_text
from shared.classad.operators import wrap
from shared.classad.parser import parse_expr
from shared.classad.unparse import Syntax, unparse
from shared.classad.values import ERROR, UNDEFINED, Error, Undefined, Value

PRIVATE_NAMES: Final = frozenset(
    ("claimid", "capability", "claimids", "claimidlist", "pairedclaimid", "transferkey", "childclaimids")
)
PRIVATE_PREFIX: Final = "_condor_priv"
#: Of jobs' attributes, those that no slot's ad ever has: they often hold secrets.
PRIVATE_OF_JOBS: Final = frozenset(("environment", "env"))
_EMPTY: Final[Table] = {}
_CELL = itemgetter(1)  # of an entry of a table
#: Names (folded) that were found to be no secrets: of ads of which nothing is left out no table is made.
_PUBLIC: Final[set[str]] = set()
_MOST_PUBLIC: Final = 20_000


class ClassAd(MutableMapping[str, Any]):
    """An ad. `ad[name]` is the value of a constant, or the expression of anything else (`ad.eval(name)` evaluates).

    Names are case-insensitive: the first spelling stays, the last assignment wins. Assigning takes a Python value
    (None is UNDEFINED, a list or tuple a list, a dict or ClassAd a nested ad) or an Expr; TypeError for others.
    A string assigned is a string; `set_text` takes the text of an expression.
    """

    __slots__ = ("_chained", "_own", "_packed", "_table", "outer")

    def __init__(self, attrs: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self._table: Table | None = _EMPTY
        self._own = False  # whether this ad may write to its table
        self._packed: bytes | None = None
        self._chained: ClassAd | None = None
        self.outer: ClassAd | None = None
        self.update(attrs)

    # Making

    @classmethod
    def of(cls, node: AdExpr, outer: ClassAd | None = None) -> ClassAd:
        """The ad that a nested ad's expression stands for, inside `outer`."""
        ad = cls.__new__(cls)
        ad._table, ad._own, ad._packed, ad._chained, ad.outer = node.attrs, False, None, None, outer  # type: ignore[assignment]
        return ad

    @classmethod
    def from_table(cls, table: Table) -> ClassAd:
        """An ad that takes over `table`: folded name to (name, cell)."""
        ad = cls.__new__(cls)
        ad._table, ad._own, ad._packed, ad._chained, ad.outer = table, True, None, None, None
        return ad

    @classmethod
    def unpack(cls, packed: bytes) -> ClassAd:
        """The ad that `pack` made; nothing is read before an attribute is asked for.

        Reading raises PackedError (a ValueError) if the bytes are not a packed ad; `check` does it at once.
        """
        ad = cls.__new__(cls)
        ad._table, ad._own, ad._packed, ad._chained, ad.outer = None, True, packed, None, None
        return ad

    def copy(self) -> ClassAd:
        """An independent ad with the same attributes, the same chained parent and the same surroundings."""
        ad = ClassAd.__new__(ClassAd)
        self._own = False
        ad._table, ad._own, ad._packed = self._table, False, self._packed
        ad._chained, ad.outer = self._chained, self.outer
        return ad

    def chain(self, parent: ClassAd | None) -> None:
        """Let names that this ad lacks be found in `parent` (a cluster ad behind a job ad); None ends that.

        Lookups, `in`, `[]` and evaluation see the parent's attributes; iteration, len and printing do not.
        """
        above = parent
        while above is not None:
            if above is self:
                raise ValueError("an ad cannot be chained to itself")
            above = above._chained
        self._chained = parent

    @property
    def chained(self) -> ClassAd | None:
        return self._chained

    # Reading

    def table(self) -> Table:
        """The attributes as stored, for reading only: folded name to (name, cell)."""
        table = self._table
        return self._read() if table is None else table

    def find(self, key: str) -> Cell | None:
        """The cell of a folded name, its text parsed; None if there is none here nor in the chained parent."""
        ad: ClassAd | None = self
        while ad is not None:
            table = ad._table
            if table is None:
                table = ad._read()
            entry = table.get(key)
            if entry is not None:
                cell = entry[1]
                return ad._parse(key, entry[0], cell) if isinstance(cell, PackedText) else cell
            ad = ad._chained
        return None

    def lookup(self, name: str) -> Expr | None:
        """The expression of `name`, or None."""
        cell = self.find(fold(name))
        return None if cell is None else as_expr(cell)

    def text(self, name: str, syntax: Syntax = "new") -> str | None:
        """The text of the expression of `name`, or None."""
        cell = self.find(fold(name))
        return None if cell is None else unparse(cell, syntax)

    def eval(self, name: str, target: ClassAd | None = None, now: float | None = None) -> Value:
        """The value of `name` in this ad, with `target` as the other ad; UNDEFINED if there is no such attribute."""
        from shared.classad.evaluate import evaluate_attribute  # which needs ads

        return evaluate_attribute(self, fold(name), target, now)

    def eval_string(self, name: str) -> str:
        """The value of `name` in this ad if it is a string, else ""."""
        value = self.eval(name)
        return value if isinstance(value, str) else ""

    def plain_string(self, name: str) -> str:
        """The string that `name` is as it stands, for names and addresses of daemons: "" for an expression, which is
        not even read."""
        entry = self.table().get(fold(name))
        return entry[1] if entry is not None and isinstance(entry[1], str) else ""

    def cells(self) -> Iterator[tuple[str, Cell]]:
        """(name, cell) of every own attribute, in the order of assignment, texts parsed."""
        entries = list(self.table().values())
        if PackedText not in map(type, map(_CELL, entries)):
            return iter(entries)  # type: ignore[arg-type]  # none of them is packed
        return self._parsed_cells()

    def _parsed_cells(self) -> Iterator[tuple[str, Cell]]:
        for key, (name, cell) in list(self.table().items()):
            yield name, self._parse(key, name, cell) if isinstance(cell, PackedText) else cell

    def exprs(self) -> Iterator[tuple[str, Expr]]:
        """(name, expression) of every own attribute, in the order of assignment."""
        for name, cell in self.cells():
            yield name, as_expr(cell)

    def __getitem__(self, name: str) -> Any:
        cell = self.find(fold(name))
        if cell is None:
            raise KeyError(name)
        return _constant(cell)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(fold(name)) is not None

    def __iter__(self) -> Iterator[str]:
        for entry in list(self.table().values()):
            yield entry[0]

    def __len__(self) -> int:
        return len(self.table())

    def __eq__(self, other: object) -> bool:
        """The same attributes (names without case) with the same texts."""
        if not isinstance(other, ClassAd):
            return NotImplemented
        if self.table().keys() != other.table().keys():
            return False
        return all(unparse(self.find(key)) == unparse(other.find(key)) for key in self.table())  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return len(self.table()) > 0

    def __str__(self) -> str:
        return unparse(self)

    def __repr__(self) -> str:
        return f"<ClassAd {unparse(self)}>"

    # Writing

    def __setitem__(self, name: str, value: Any) -> None:
        self._put(_name_of(name), cell_of(value))

    def set_text(self, name: str, text: str, syntax: Syntax = "new") -> None:
        """Assign the expression that `text` is. Raises ParseError."""
        self._put(_name_of(name), simplest(parse_expr(text, syntax)))

    def set_written(self, name: str, text: str) -> None:
        """Assign an expression by its text as `unparse_exact` writes it, without reading it: that is done when somebody
        asks, and raises PackedError then."""
        table = self._writable()
        table[fold(name)] = (name, PackedText(text.encode("utf-8", "surrogateescape")))

    def overlay(self, other: ClassAd) -> None:
        """As `update`, in the spelling of the other ad, and without a look at each attribute: for ads that are put
        together from the same parts again and again."""
        self._writable().update(other.table())

    def __delitem__(self, name: str) -> None:
        table = self._writable()
        if table.pop(fold(name), None) is None:
            raise KeyError(name)

    def clear(self) -> None:
        self._table, self._own, self._packed = {}, True, None

    def update(self, other: Any = (), /, **named: Any) -> None:
        """Assign every attribute of a mapping, an ad or pairs."""
        if isinstance(other, ClassAd):
            for name, cell in other.cells():
                self._put(name, cell)
        else:
            for name, value in other.items() if isinstance(other, Mapping) else other:
                self[name] = value
        for name, value in named.items():
            self[name] = value

    # Packing

    def pack(self) -> bytes:
        """The ad as bytes: a msgpack map of name to literal (msgpack's own types) or expression text (ExtType 1)."""
        if self._packed is None:
            table = self.table()
            body = {name: packable(cell) for name, cell in table.values()}
            packed: bytes = msgpack.packb(body, unicode_errors="surrogateescape")
            return packed
        return self._packed

    def keep_packed(self) -> bytes:
        """As `pack`, and the bytes are kept: see `settle`."""
        self._packed = packed = self.pack()
        return packed

    def settle(self) -> None:
        """Keep nothing but the bytes, as long as nobody asks for an attribute, if there are bytes that say all."""
        if self._packed is not None:
            self._table, self._own = None, True

    @property
    def packed(self) -> bytes | None:
        """The bytes that this ad came from, if they say all of it: nothing was written to it, and nothing is around
        it."""
        return self._packed if self._chained is None and self.outer is None else None

    def check(self) -> ClassAd:
        """This ad, after reading all of it. Raises PackedError if it was unpacked from bytes that are no ad."""
        for _ in self.cells():
            pass
        return self

    def public(self) -> ClassAd:
        """A copy without the attributes that are secrets (claim ids, transfer keys and `_condor_priv...`)."""
        table = self.table()
        secrets = [key for key in table if key not in _PUBLIC and is_private(key)]
        if not secrets:
            return self.copy()
        ad = ClassAd.from_table({key: entry for key, entry in table.items() if key not in secrets})
        ad._chained, ad.outer = self._chained, self.outer
        return ad

    def __reduce__(self) -> tuple[Any, ...]:
        return (ClassAd.unpack, (self.pack(),))

    # Inside

    def _read(self) -> Table:
        assert self._packed is not None
        self._table = read_packed(self._packed)
        self._own = True
        return self._table

    def _writable(self) -> Table:
        table = self.table()
        if not self._own:
            table = self._table = dict(table)
            self._own = True
        self._packed = None
        return table

    def _put(self, name: str, cell: Cell) -> None:
        table = self._table
        if table is None or not self._own or self._packed is not None:
            table = self._writable()
        key = FOLDED[name] if name in FOLDED else fold(name)
        known = table.get(key)
        table[key] = (name if known is None else known[0], cell)

    def _parse(self, key: str, name: str, packed: PackedText) -> Cell:
        """Replace the packed text of an attribute by its expression."""
        cell = parse_text(packed.data)
        table = self.table()
        table[key] = (name, cell)  # the same meaning, so sharing the table with a copy does no harm
        return cell


def _name_of(name: str) -> str:
    return _known_name(name) if len(name) < 200 else _checked_name(name)


def _checked_name(name: str) -> str:
    if not name or not is_text(name):
        raise ValueError(f"an attribute can not have the name {name!r}")
    return name


#: Names come again and again; long ones, which may be anything, are not kept.
_known_name = lru_cache(maxsize=10_000)(_checked_name)


def cell_of(value: Any) -> Cell:
    """The cell of anything that can be assigned.

    Raises TypeError, OverflowError for an integer beyond 64 bits, or ValueError for a string that can not be one.
    """
    kind = type(value)
    if kind is bool or kind is float or (kind is str and value.isascii() and "\0" not in value):
        return value  # type: ignore[no-any-return]  # most of what is ever assigned
    if isinstance(value, Expr):
        return simplest(value)
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if wrap(value) != value:
            raise OverflowError(f"{value} does not fit in the 64 bits of a ClassAd integer")
        return int(value)
    if isinstance(value, str):
        if not is_text(value):
            raise ValueError(f"{value[:40]!r} has a NUL or half a character, which no ClassAd string can hold")
        return str(value)
    if value is None:
        return Literal(UNDEFINED)
    if isinstance(value, timedelta):
        return Interval(value.total_seconds())
    if isinstance(value, datetime | Undefined | Error):
        return Literal(value)
    if isinstance(value, list | tuple):
        source = getattr(value, "source", None)
        return ListExpr(tuple(as_expr(cell_of(item)) for item in (value if source is None else source)))
    if isinstance(value, ClassAd):
        return AdExpr({fold(name): (name, as_expr(cell)) for name, cell in value.cells()})
    if isinstance(value, Mapping):
        return cell_of(ClassAd(value))
    raise TypeError(f"a ClassAd attribute cannot hold a {type(value).__name__}: {value!r}")


def _constant(cell: Cell) -> Any:
    """What `ad[name]` gives: Python's value of a constant, else the expression."""
    if isinstance(cell, Literal):
        return cell.value
    if isinstance(cell, AdExpr):
        return ClassAd.of(cell)
    if isinstance(cell, ListExpr):
        return [_constant(item) for item in cell.items]
    return cell


def is_private(key: str) -> bool:
    """Whether an attribute (folded name) is a secret that must not leave the pool's own daemons."""
    if key in PRIVATE_NAMES or key.startswith(PRIVATE_PREFIX):
        return True
    if len(_PUBLIC) < _MOST_PUBLIC:
        _PUBLIC.add(key)
    return False


__all__ = ["ERROR", "Cell", "ClassAd", "Table", "as_expr", "cell_of", "is_private", "parse_text", "simplest"]
