"""Table: many ads, packed, with columns of the attributes that somebody asked about.

Rows lie in an order of the table's own: rows whose policies (attributes that are expressions) have the same shape are
neighbours, so that what differs between shapes is evaluated on slices. The order changes only in `flush`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.cells import PackedError, PackedText, parse_text, read_packed
from shared.classad.cells import Table as Cells
from shared.classad.columnar.column import ABSENT, OTHER, Codes, Column
from shared.classad.columnar.shapes import HIDDEN, Lifted, lifted
from shared.classad.expr import CURRENT_TIME, AttrRef, Expr, fold, walk
from shared.classad.quick import QuickAd, picks

#: Ads of a flush that are looked through for what their policies refer to, and attributes at which there are enough of
#: them; columns that are made for that.
PREVIEW: Final = 256
PREVIEW_ATTRIBUTES: Final = 20_000
MOST_FORESEEN: Final = 500
MAX_SHAPES: Final = 2_000  # of one attribute; one with more is left to the scalar gear
MAX_CHANGES: Final = 4  # changed cells for each row of the table, and some more: so many are known by flush
FEW_CHANGES: Final = 1_000
POLICIES: Final = ("requirements", "rank")
_NO_ROWS: Final = np.zeros(0, np.intp)
_SPECIAL: Final = frozenset(("my", "self", "target", "other", "parent", "root", "toplevel", CURRENT_TIME))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows start to stop, in which the attributes of `shape` are these expressions (others of the same attributes are
    plain values in all of these rows)."""

    start: int
    stop: int
    shape: dict[str, Expr]


@dataclass(slots=True)
class Queued:
    """What is put into a table at once. ads: None where one goes; picked: of whole ads, names of columns and their
    cells; patched: the cells of ads of which only these changed."""

    ads: dict[str, bytes | Source | None] = field(default_factory=dict)
    picked: dict[str, tuple[tuple[str, ...], Sequence[Any]]] = field(default_factory=dict)
    patched: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)  # of columns that are to be there

    def __bool__(self) -> bool:
        return bool(self.ads or self.names)

    def drop(self, key: str) -> None:
        """Nothing is to be done with this ad."""
        self.ads.pop(key, None)
        self.picked.pop(key, None)
        self.patched.pop(key, None)


class Source(Protocol):
    """An ad that somebody else keeps."""

    def read(self) -> bytes:
        """It packed, as it is now. Raises ValueError. Called in any thread."""


class Table:
    """Ads by key. `put`, `patch` and `remove` queue; `flush` carries out. Everything else sees the state of the last
    flush. A large flush may be a thread's work: `take` what is queued, and have it carried out there (`carry_out`)
    while others go on queueing here, and look at nothing else.

    Rows in which the attribute `leading` is true come last. `companions`: arrays of others, one item a row, that change
    places with the rows; they end with the next flush that adds or removes rows.

    Memory: the packed bytes, some 150 bytes a row, and 17 bytes a row for each column. Time: reading an ad takes some
    15 us for 100 attributes, a new column reads all of them; see `want`.
    """

    def __init__(self, policies: Iterable[str] = POLICIES, leading: str = "") -> None:
        self.codes = Codes()
        self.version = 0  # changes when any row does
        self.layout = 0  # when rows come, go or change places
        self.meaning = 0  # when plans would be others: an attribute appears, or is another expression than ever before
        self._known_exprs: dict[str, set[int]] = {}
        self.live: frozenset[str] = frozenset()  # see Frame; the columns of a table change in `flush` only
        self.live_from = self.epoch = 0
        self.replaced: frozenset[str] = frozenset()
        self.columns: dict[str, Column] = {}
        self.special = False  # whether an ad may have an attribute called MY, TARGET and the like
        self.companions: dict[str, NDArray[Any]] = {}
        self._leading = fold(leading)
        self._policies = tuple(fold(name) for name in policies)
        self._keys: list[str] = []
        self._ads: list[bytes | Source] = []
        self._rows: dict[str, int] = {}
        self._queued = Queued()
        self._taken = False  # what was queued is being carried out
        self._wanted: tuple[str, ...] = ()
        self._shapes: dict[
            str, NDArray[np.int32]
        ] = {}  # by attribute in order of importance: the shape's code, -1: plain
        self._shape_exprs: dict[str, list[Expr]] = {}
        self._unshapely: set[str] = set()
        self._stretches: dict[tuple[str, ...], list[Stretch]] = {}
        self._names: dict[int, tuple[Expr, frozenset[str]]] = {}
        # By flush: the version after it, and the rows in which a column has another cell than before.
        self._changes: deque[tuple[int, int, dict[str, NDArray[np.intp]]]] = deque()  # with how many cells
        self._changes_from = 0  # the version after which they are all there
        self._changed_cells = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    @property
    def keys(self) -> Sequence[str]:
        """The key of each row. Not to be changed."""
        return self._keys

    def row(self, key: str) -> int:
        """Where an ad is until the next flush. Raises KeyError."""
        return self._rows[key]

    def ad(self, row: int) -> ClassAd:
        """The ad of a row, as a new object."""
        return ClassAd.unpack(_packed(self._ads[row]))

    # Writing

    def put(self, key: str, ad: ClassAd | bytes | Source, read: QuickAd | None = None) -> None:
        """Queue a new ad or a new version of one; packed bytes are taken as they are, of a source nothing is kept but
        the source: whoever changes it puts it again. An ad's surroundings (`outer`, a
        chained parent) do not come along. `read`: the packed bytes, where somebody has read them already: that saves
        `flush` to do it."""
        queued = self._queued
        queued.ads[key] = ad.pack() if isinstance(ad, ClassAd) else ad
        queued.patched.pop(key, None)
        if read is None:
            queued.picked.pop(key, None)
            return
        if not self._keys and not self._taken and len(queued.ads) < PREVIEW:
            self.want(sorted(self._wanted_by([read.get])))
        names = self._plain_names()
        queued.picked[key] = (names, read.cells(names))
        if not self.special and read.has_any(_SPECIAL):
            self.special = True
            self.meaning += 1

    def patch(self, key: str, ad: Source, cells: Mapping[str, Any]) -> None:
        """Queue what changed in an ad that is here, or queued. ad: all of it, as it is now; cells: by folded name, None
        where an attribute is no more; no expressions."""
        if not self.special and not _SPECIAL.isdisjoint(cells):
            self.special = True
            self.meaning += 1
        queued = self._queued
        if key not in queued.ads:
            queued.patched[key] = dict(cells)
        elif key in queued.patched:
            queued.patched[key].update(cells)
        elif key in queued.picked:
            names, read = queued.picked[key]
            queued.picked[key] = names, [cells.get(name, cell) for name, cell in zip(names, read, strict=True)]
        queued.ads[key] = ad

    def fill(
        self,
        keys: Sequence[str],
        ads: Sequence[bytes | Source],
        columns: Mapping[str, Column],
        codes: Codes,
        *,
        special: bool,
    ) -> None:
        """Take over rows that were read before (see `keeping`), into a table that has none."""
        if self._keys or self._queued:
            raise ValueError("the table has rows")
        wanted = [name for name in self.columns if name not in columns]
        self.codes = codes
        self.columns = dict(columns)
        self._keys, self._ads = list(keys), list(ads)
        self._rows = {key: row for row, key in enumerate(self._keys)}
        self.special = special
        self._wanted = ()
        self._forget_changes()
        for name, column in self.columns.items():
            self._known_exprs[name] = set(np.unique(column.code[column.tag == OTHER]).tolist())
        self.version += 1
        self.layout += 1
        self.meaning += 1
        self.want(wanted)

    def changed_rows(self, names: Iterable[str], since: int) -> NDArray[np.intp] | None:
        """(m,) rows, ascending, in which one of these columns may hold something else than at the version `since`;
        None: that is not known, or the rows are others or have other places since then."""
        if since == self.version:
            return _NO_ROWS
        if since < self._changes_from or since > self.version:
            return None
        parts = [rows[name] for version, _, rows in self._changes if version > since for name in names if name in rows]
        return np.unique(np.concatenate(parts)) if parts else _NO_ROWS

    def _note_changes(self, written: dict[str, NDArray[np.intp]]) -> None:
        cells = 1 + sum(map(len, written.values()))
        self._changes.append((self.version, cells, written))
        self._changed_cells += cells
        while self._changed_cells > MAX_CHANGES * len(self._keys) + FEW_CHANGES:
            self._changes_from, lost, _ = self._changes.popleft()
            self._changed_cells -= lost

    def _forget_changes(self) -> None:
        """Rows come, go or change places: what is known of one is of no use any more."""
        self._changes.clear()
        self._changes_from, self._changed_cells = self.version, 0

    def _plain_names(self) -> tuple[str, ...]:
        """The wanted attributes in order: the same object while these are the same."""
        if not self._wanted:
            self._wanted = tuple(name for name in self.columns if HIDDEN not in name)
        return self._wanted

    def remove(self, key: str) -> None:
        """Queue the removal of an ad; nothing if there is none."""
        self._queued.drop(key)
        self._queued.ads[key] = None

    def foresee(self, names: Iterable[str]) -> None:
        """Have columns of these attributes (folded names) from the next flush on; in an empty table at once, so that
        what is put is read only once."""
        if self._keys or self._taken:
            self._queued.names.update((name, None) for name in names if name not in self.columns)
        else:
            self.want(names)

    def leaving(self) -> list[str]:
        """The keys of rows that leave with what is queued."""
        return [key for key, ad in self._queued.ads.items() if ad is None and key in self._rows]

    def flush(self) -> int:
        """Carry out what is queued and return how many rows changed.

        Raises PackedError if some bytes are no ad: these are dropped from the queue, nothing is changed, and another
        flush carries out the rest. Some 20 us a changed row; rows added or removed, or policies changed, cost a copy of
        all columns besides.
        """
        queued = self.take()
        try:
            return self.carry_out(queued)
        except BaseException:
            self.put_back(queued)
            raise

    def take(self) -> Queued:
        """What is queued, which is queued no more: to be carried out before more is taken."""
        queued, self._queued = self._queued, Queued()
        self._taken = bool(queued)
        return queued

    def carry_out(self, queued: Queued) -> int:
        """The same with what was taken, in any thread. Raises PackedError likewise: what is left is to be carried
        out."""
        try:
            return self._carry_out(queued)
        finally:
            self._taken = False

    def put_back(self, queued: Queued) -> None:
        """What was taken could not be carried out: it is queued again, before what came since."""
        later = self._queued
        later.names = queued.names | later.names
        for key, ad in queued.ads.items():
            if key not in later.ads:
                later.ads[key] = ad
                for former, now in ((queued.picked, later.picked), (queued.patched, later.patched)):
                    if key in former:
                        now[key] = former[key]  # type: ignore[assignment]
            elif key in later.patched:
                if key in queued.patched:
                    later.patched[key] = queued.patched[key] | later.patched[key]
                else:
                    del later.patched[key]  # all of it is read

    def _carry_out(self, queued: Queued) -> int:
        if queued.names:
            self.want(queued.names)
            queued.names.clear()
        queue = queued.ads
        known = {key: ad for key, ad in queue.items() if ad is not None and key in self._rows}
        patched = {key: cells for key, cells in queued.patched.items() if key in known}
        changed = {key: ad for key, ad in known.items() if key not in patched}
        added = {key: ad for key, ad in queue.items() if ad is not None and key not in self._rows}
        removed = [self._rows[key] for key, ad in queue.items() if ad is None and key in self._rows]
        fresh = [*changed.values(), *added.values()]
        try:
            if added:
                self.want(sorted(self._wanted_by(self._previewed(added.values()))))
            names = self._plain_names()
            new = self._read_queued([*changed, *added], fresh, queued.picked, names) if fresh else {}
        except PackedError:
            raise _without_bad(queued) from None
        parts = self._cells_patched(patched)
        for key, ad in known.items():
            self._ads[self._rows[key]] = ad
        size = len(known) + len(added) + len(removed)
        if not size:
            return 0
        self.version += 1
        self._look_at_meaning(new)
        for name, _, part in parts:
            self._look_at_meaning({name: part})
        shaped = list(self._shapes)
        reshaped = bool(added or removed)
        if reshaped:
            self._forget_shapes()
            self.companions.clear()
        if changed:
            rows = np.array([self._rows[key] for key in changed], dtype=np.intp)
            parts += [(name, rows, new[name].first(len(changed))) for name in names]
        if parts:
            reshaped = self._change(parts) or reshaped
        if added:
            tail = np.arange(len(changed), len(fresh))
            for name in names:
                self.columns[name] = self.columns[name].joined(new[name].taken(tail))
            for key, packed in added.items():
                self._rows[key] = len(self._keys)
                self._keys.append(key)
                self._ads.append(packed)
        if removed:
            keep = np.ones(len(self._keys), np.bool_)
            keep[removed] = False
            self._reorder(np.flatnonzero(keep))
        if reshaped:
            self._reshape(shaped)
            self._forget_changes()
        return size

    def _cells_patched(self, patched: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, NDArray[np.intp], Column]]:
        """What is queued as patches: columns, rows, and what is to be there."""
        found: dict[str, tuple[list[int], list[Any]]] = {}
        for key, cells in patched.items():
            row = self._rows[key]
            for name, cell in cells.items():
                if name in self.columns:
                    rows, values = found.setdefault(name, ([], []))
                    rows.append(row)
                    values.append(cell)
        return [
            (name, np.array(rows, np.intp), Column.of(values, self.codes)) for name, (rows, values) in found.items()
        ]

    def _look_at_meaning(self, new: dict[str, Column]) -> None:
        """Notice new versions of rows for which plans would be others."""
        for name, part in new.items():
            column = self.columns[name]
            if part.tags & (1 << OTHER):
                known = self._known_exprs.setdefault(name, set())
                codes = set(np.unique(part.code[part.tag == OTHER]).tolist())
                if not codes <= known or not column.tags & (1 << OTHER):
                    known |= codes
                    self.meaning += 1
            was_absent = column.tags == 1 << ABSENT and part.tags not in (0, 1 << ABSENT)
            if was_absent or (part.tags and not len(column.tag)):
                self.meaning += 1

    def _change(self, parts: Iterable[tuple[str, NDArray[np.intp], Column]]) -> bool:
        """Write new cells of columns, in these rows; whether expressions changed."""
        reshaped = False
        written: dict[str, NDArray[np.intp]] = {}
        for name, rows, part in parts:
            column = self.columns[name]
            other = column.differs(rows, part)
            if not other.any():
                continue
            if name in self._shapes or name in self._unshapely:
                reshaped = reshaped or bool(np.any(other & ((column.tag[rows] == OTHER) | (part.tag == OTHER))))
            written[name] = np.concatenate((written[name], rows[other])) if name in written else rows[other]
            column.put(rows, part)
        self._note_changes(written)
        return reshaped

    # Columns

    def want(self, names: Iterable[str]) -> None:
        """Have columns of these attributes (folded names). Each call that finds one missing reads all ads once, so ask
        for many at once; a column stays."""
        missing = [name for name in dict.fromkeys(names) if name not in self.columns]
        if missing:
            self.columns.update(self._read(self._ads, missing))
            for name in missing:
                column = self.columns[name]
                self._known_exprs[name] = set(np.unique(column.code[column.tag == OTHER]).tolist())
            self._wanted = ()

    def _read_queued(
        self,
        keys: Sequence[str],
        ads: Sequence[bytes | Source],
        picked: Mapping[str, tuple[tuple[str, ...], Sequence[Any]]],
        names: tuple[str, ...],
    ) -> dict[str, Column]:
        rows: list[Sequence[Any]] = []
        for key, packed in zip(keys, ads, strict=True):
            known, cells = picked.get(key, ((), ()))
            rows.append(cells if known is names or known == names else self._picks(_packed(packed), names))
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        return {name: Column.of(cells, self.codes) for name, cells in zip(names, columns, strict=True)}

    def _read(self, ads: Sequence[bytes | Source], names: Sequence[str]) -> dict[str, Column]:
        # Ad by ad: tables that live on, even if only a few thousand, keep the garbage collector busy (2x the time).
        rows: list[Sequence[Any]] = []
        wanted = tuple(names)
        for packed in ads:
            try:
                rows.append(self._picks(_packed(packed), wanted))
            except PackedError:  # a source that changed since: it is queued, and leaves with the next flush
                rows.append([None] * len(wanted))
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        return {name: Column.of(cells, self.codes) for name, cells in zip(names, columns, strict=True)}

    def _picks(self, packed: bytes, names: tuple[str, ...]) -> Sequence[Any]:
        """The cells of some attributes. Raises PackedError."""
        try:
            cells, special = picks(packed, names, _SPECIAL)
        except PackedError:
            # It may be an expression that nobody asks for.
            table = self._cells(packed)
            return [None if (entry := table.get(name)) is None else entry[1] for name in names]
        if special and not self.special:
            self.special = True
            self.meaning += 1
        return cells

    def _cells(self, packed: bytes) -> Cells:
        table = read_packed(packed)
        self._look_for_special(table)
        return table

    def _look_for_special(self, cells: Cells) -> None:
        if not self.special and not _SPECIAL.isdisjoint(cells):
            self.special = True
            self.meaning += 1

    def _previewed(self, ads: Iterable[bytes | Source]) -> Iterator[Callable[[str], Any]]:
        """Of some ads what each has under a folded name."""
        left = PREVIEW_ATTRIBUTES
        for packed in islice(ads, PREVIEW if self._policies else 0):
            table = self._cells(_packed(packed))
            yield partial(_cell_of, table)
            left -= len(table)
            if left < 0:
                return

    def _wanted_by(self, ads: Iterable[Callable[[str], Any]]) -> set[str]:
        """What the policies of some ads refer to, so that their columns can be read in one go."""
        wanted = {*self._policies, self._leading} - {""}
        for cell_of in ads:
            todo = list(self._policies)
            seen = set(todo)
            while todo and len(seen) < MOST_FORESEEN:
                cell = cell_of(todo.pop())
                if isinstance(cell, Expr):
                    fresh = self.names(cell) - seen
                    seen |= fresh
                    todo.extend(fresh)
            if len(wanted) + len(seen) > MOST_FORESEEN:
                break  # what one daemon's ads name would be read of all others too
            wanted |= seen
        return wanted

    def names(self, expr: Expr) -> frozenset[str]:
        """All names that occur in an expression, folded."""
        known = self._names.get(id(expr))
        if known is None:
            names = frozenset(node.key for node in walk(expr) if isinstance(node, AttrRef))
            known = self._names[id(expr)] = (expr, names)
        return known[1]

    # Shapes

    def expressions(self, name: str) -> list[Expr]:
        """The different expressions that the wanted attribute `name` is in some row."""
        column = self.columns[name]
        if not column.tags & (1 << OTHER):
            return []
        return [self.codes.exprs[code] for code in np.unique(column.code[column.tag == OTHER]).tolist()]

    def shape(self, names: Iterable[str]) -> bool:
        """Have these attributes, expressions in some rows, told apart by stretches. May reorder the rows.

        False if one of them has too many shapes.
        """
        names = [name for name in names if name not in self._shapes]
        if any(name in self._unshapely for name in names):
            return False
        if names:
            self._reshape([*self._shapes, *names])
        return not any(name in self._unshapely for name in names)

    def stretches(self, names: Iterable[str]) -> list[Stretch]:
        """The table cut into stretches in which each of the attributes `names`, all given to `shape` before, has one
        shape. In order, without gaps."""
        order = tuple(name for name in self._shapes if name in set(names))
        known = self._stretches.get(order)
        if known is None:
            known = self._stretches[order] = self._cut(order)
        return known

    def _cut(self, order: tuple[str, ...]) -> list[Stretch]:
        size = len(self._keys)
        change = np.zeros(size, np.bool_)
        change[:1] = True
        for name in order:
            codes = self._shapes[name]
            change[1:] |= codes[1:] != codes[:-1]
        starts = [*np.flatnonzero(change).tolist(), size]
        cut = []
        for start, stop in pairwise(starts):
            codes_here = {name: int(self._shapes[name][start]) for name in order}
            shape = {name: self._shape_exprs[name][code] for name, code in codes_here.items() if code >= 0}
            cut.append(Stretch(start, stop, shape))
        return cut

    def _reshape(self, names: list[str]) -> None:
        """Find the shapes of some attributes anew and bring equal ones together."""
        self._forget_shapes()
        self.layout += 1
        for name in names:
            column = self.columns[name]
            codes = np.unique(column.code[column.tag == OTHER])
            found = lifted(name, [self.codes.exprs[code] for code in codes.tolist()])
            if len(found.shapes) > MAX_SHAPES:
                self._unshapely.add(name)
                continue
            self._shape_exprs[name] = found.shapes
            self._shapes[name] = self._assign(column, codes, found)
        if self._shapes or self._leading:
            keys: list[NDArray[Any]] = list(reversed(self._shapes.values()))
            if self._leading in self.columns:
                keys.append(self.columns[self._leading].number == 1)
            order = np.lexsort(keys)
            if not np.array_equal(order, np.arange(len(order))):
                self._reorder(order)
                self.version += 1
                self._forget_changes()
        self._stretches.clear()

    def _forget_shapes(self) -> None:
        self._shapes.clear()
        self._shape_exprs.clear()
        self._unshapely.clear()
        self._stretches.clear()
        for key in [key for key in self.columns if HIDDEN in key]:
            del self.columns[key]

    def _assign(self, column: Column, codes: NDArray[Any], found: Lifted) -> NDArray[np.int32]:
        """Which shape each row has, and the hidden columns of what differs between expressions of one shape."""
        which = np.full(len(column.tag), -1, np.int32)
        rows = np.flatnonzero(column.tag == OTHER)
        index = np.searchsorted(codes, column.code[rows])
        which[rows] = np.array(found.shape_of, dtype=np.int32)[index] if len(codes) else -1
        for key, values in found.hidden.items():
            few = Column.of([*values, None], self.codes)
            place = np.full(len(column.tag), len(values), np.intp)
            place[rows] = index
            self.columns[key] = few.taken(place)
        return which

    def _reorder(self, order: NDArray[np.intp]) -> None:
        """Keep these rows in this order."""
        self.layout += 1
        for name, column in self.columns.items():
            self.columns[name] = column.taken(order)
        for name, codes in self._shapes.items():
            self._shapes[name] = codes[order]
        for name, companion in self.companions.items():
            self.companions[name] = companion[order]
        rows = order.tolist()
        self._keys = [self._keys[row] for row in rows]
        self._ads = [self._ads[row] for row in rows]
        self._rows = {key: row for row, key in enumerate(self._keys)}
        self._stretches.clear()


def _packed(ad: bytes | Source) -> bytes:
    """Raises PackedError."""
    if isinstance(ad, bytes):
        return ad
    try:
        return ad.read()
    except ValueError as error:
        raise PackedError(str(error)) from error


def _without_bad(queued: Queued) -> PackedError:
    """Drop what can not be read from what is queued and say what it was."""
    # Their texts only: a fault that is kept here holds this frame, which holds the fault. Thousands of them made one
    # collection of garbage last for 90 ms.
    bad: dict[str, str] = {}
    for key, packed in queued.ads.items():
        if packed is not None:
            try:
                ClassAd.unpack(_packed(packed)).check()
            except PackedError as fault:
                bad[key] = "" if bad else str(fault)
    for key in bad:
        queued.drop(key)
    key, first = next(iter(bad.items()))
    return PackedError(f"{len(bad)} of the ads can not be read, the first is {key}: {first}")


def _cell_of(table: Cells, name: str) -> Any:
    """What stands in a table under a folded name, read."""
    entry = table.get(name)
    cell: Any = None if entry is None else entry[1]
    return parse_text(cell.data) if isinstance(cell, PackedText) else cell
