"""The ads of one type as columns, which answer queries with a constraint over many ads (spec row COL-05).

A query that reads each ad whole takes 50 us an ad, so 5 s for 100,000 of them. Here the attributes that queries name
stand in columns (shared.classad.columnar), and a constraint becomes a few array operations. The columns follow the ads:
changes are noted by name, and read before the next query. An answer of a few attributes is made from the columns too:
five attributes of all slots cost 3 us an ad, less where they travel as columns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from services.collector.core.overlay import LISTED, OVERLAID, OfGroups, parted
from services.collector.core.sorting import Position, SortOrder, position_of, rows
from shared.classad import Expr
from shared.classad.cells import PackedError
from shared.classad.columnar import Matching, Table, keeping
from shared.classad.columnar.column import ABSENT, BOOL, INT, OTHER, REAL, STRING, UNDEF, WRONG, Codes, Column
from shared.classad.columnar.table import Source
from shared.classad.quick import learn, spellings
from shared.daemon.ad_table import AdTable

#: Kinds of cells that columns do not keep as they came: the text of an expression may have other spaces.
ODD: Final = (1 << OTHER) | (1 << UNDEF) | (1 << WRONG)
#: So many texts are looked at to see whether all differ, as names do.
LOOKED_AT: Final = 64


def bodies(
    columns: Sequence[tuple[str, Column]], rows: NDArray[np.intp], codes: Codes, more: int
) -> list[bytes | None]:
    """Of each of these rows a packed ad that lacks its end: `more` further attributes, which the caller adds. Columns
    come with the names of their attributes. None where a value is an expression, or none: to be read from the ad."""
    size = len(rows)
    count = np.full(size, more, np.intp)
    odd = np.zeros(size, np.bool_)
    parts: list[list[bytes]] = []
    for name, column in columns:
        if column.tags == 1 << ABSENT:
            continue
        taken = column.taken(rows)
        count += taken.tag != ABSENT
        if taken.tags & ODD:
            odd |= np.isin(taken.tag, (OTHER, UNDEF, WRONG))
        parts.append(_parts(_pack(name), taken, codes))
    counts = count.tolist()
    heads = {number: _head(number) for number in set(counts)}
    made: list[bytes | None] = list(map(b"".join, zip([heads[number] for number in counts], *parts, strict=True)))
    for row in np.flatnonzero(odd).tolist():
        made[row] = None
    return made


@dataclass(slots=True)
class Listing:
    """Attributes of some ads in columns. `odd`: rows with a value that is an expression, or none: to be read from the
    ad."""

    columns: list[tuple[str, list[Any]]]
    odd: list[int]


def listed(columns: Sequence[tuple[str, Column]], rows: NDArray[np.intp], codes: Codes) -> Listing:
    """The cells of these rows by attribute: None where there is no such attribute."""
    odd = np.zeros(len(rows), np.bool_)
    found = []
    for name, column in columns:
        taken = column.taken(rows)
        if taken.tags & ODD:
            odd |= np.isin(taken.tag, (OTHER, UNDEF, WRONG))
        found.append((name, _cells(taken, codes)))
    return Listing(found, np.flatnonzero(odd).tolist())


def _cells(column: Column, codes: Codes) -> list[Any]:
    if column.tags == 1 << REAL:
        return list(column.number.tolist())
    if column.tags == 1 << INT and column.exact is None:
        return list(column.number.astype(np.int64).tolist())
    if column.tags == 1 << STRING:
        texts = codes.texts
        return [texts[code] for code in column.code.tolist()]
    _, first, which = np.unique(column.identities(), return_index=True, return_inverse=True)
    cells = [column.cell(row, codes) for row in first.tolist()]
    table = [cell if isinstance(cell, str | int | float) else None for cell in cells]
    return [table[number] for number in which.tolist()]


def _parts(name: bytes, column: Column, codes: Codes) -> list[bytes]:
    """Name and value of each row; nothing where there is none."""
    if column.tags == 1 << REAL:
        return [name + _pack(number) for number in column.number.tolist()]
    if column.tags == 1 << STRING:
        texts, used = codes.texts, column.code.tolist()
        if len(set(used[:LOOKED_AT])) == min(len(used), LOOKED_AT):
            return [name + _pack(texts[code]) for code in used]
        known = {code: name + _pack(texts[code]) for code in set(used)}
        return [known[code] for code in used]
    _, first, which = np.unique(column.identities(), return_index=True, return_inverse=True)
    cells = [column.cell(row, codes) for row in first.tolist()]
    table = [name + _pack(cell) if isinstance(cell, str | int | float) else b"" for cell in cells]
    return [table[number] for number in which.tolist()]


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return packed


def _head(attributes: int) -> bytes:
    """The beginning of a packed ad of so many attributes."""
    return bytes((0x80 | attributes,)) if attributes < 16 else b"\xde" + attributes.to_bytes(2, "big")


#: Fewer ads are looked at one by one: columns cost more to keep than they save.
LEAST_ADS = 200
#: Attributes that people ask for most, read when the columns are made: each one that is new reads all ads again.
USUAL = (
    *("Name", "Machine", "State", "Activity", "Cpus", "Memory", "Disk", "GPUs", "OpSys", "Arch"),
    *("Owner", "RemoteOwner", "AccountingGroup", "JobId", "Offline", "Absent"),
    *("SlotType", "PartitionableSlot", "DynamicSlot", "SlotID", "TotalCpus", "TotalMemory", "LoadAvg"),
    *("EnteredCurrentActivity",),
    # What `roost status` shows of slots besides, but for lists: these are no columns (listing.ODD).
    *("CondorLoadAvg", "MyCurrentTime", "EnteredCurrentState", "KeyboardIdle", "Mips", "KFlops"),
    *("RemoteUser", "ClientMachine", "OpSysAndVer", "OpSysShortName"),
    *("SlotTypeId", "NumDynamicSlots", "SlotBackfill", "BackfillSlot", "RecentJobStarts"),
    *("TotalSlotCpus", "TotalSlotMemory", "TotalSlotGPUs", "TotalLoadAvg"),
    # What the dashboard's first page looks at (GET /v1/attention).
    *("RoostVersion", "TotalDisk"),
)
_SPELT = {name.lower(): name for name in USUAL}
#: Lists that only partitionable slots have, and that change with every claim. They are read from the ads of these,
#: never from all ads as a column is.
LISTS = frozenset(
    ("childstate", "childactivity", "childmemory", "childremoteuser", "childcpus", "childdisk", "childname")
)
#: What is asked for in few ads only is read from these: a column is read from all. So many columns at most are made for
#: what is listed.
LISTED_SHARE, MOST_COLUMNS = 0.25, 300
#: Changes taken from the ads in one go.
SLICE = 2_000
_SEPARATOR = "\0"
#: In every answer, whatever the projection (COL-10).
ALWAYS = ("mytype", "lastheardfrom")

Plain: TypeAlias = "str | int | float | None"


@dataclass(slots=True)
class Found:
    """`keys`: (daemon NUL name) of ads; `more`: whether there are more behind them; `packed`: what was asked of each,
    without what the collector adds (see listing); `listed`: the same in columns."""

    keys: list[str]
    more: bool
    packed: list[bytes | None] | None = None
    listed: Listing | None = None


class Columns:
    """Ads of one type. `take` is for the event loop, as it reads what messages change; `find` and `ready` may run in a
    thread, one at a time, while nobody takes."""

    def __init__(self, table: AdTable, my_type: str, usual: Iterable[str] = ()) -> None:
        """`usual`: further attributes (lower case) that are asked for."""
        self.my_type = my_type
        self._unreadable = 0
        self._ads = table
        self._columns = Table(policies=())
        # From the first, so that every ad is read as it comes.
        self._columns.want([*(name.lower() for name in USUAL), *usual])
        self._matching = Matching(self._columns, 0.0)
        self._dirty: dict[str, None] = {
            _key(group.daemon, name): None for group in table.groups(my_type) for name in group.rows
        }
        self._order: NDArray[np.intp] = np.zeros(0, np.intp)
        self._sorted: list[str] = []
        self._layout = -1

    def stands(self) -> dict[str, tuple[int, int]]:
        """Daemons whose ads are read as they are now, with what orders their ads (start time, content)."""
        behind = {split(key)[0] for key in self._dirty}
        return {
            group.daemon: (group.start_time, group.content)
            for group in self._ads.groups(self.my_type)
            if group.daemon not in behind
        }

    def kept(self, stands: Mapping[str, tuple[int, int]]) -> bytes:
        """All that was read, for `restore` after a restart. `stands`: as of the same moment."""
        held = keeping.kept(self._columns)
        known = {name: list(spellings(name)) for name in held["columns"]}
        return keeping.pack(
            {**held, "stands": {daemon: list(two) for daemon, two in stands.items()}, "spellings": known}
        )

    def unchanged(self, held: Mapping[str, Any]) -> dict[str, Source]:
        """Of what was kept, the ads that have not changed since. Raises ValueError."""
        try:
            stands = dict(held["stands"])
            learn([str(name) for known in dict(held["spellings"]).values() for name in known])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no columns: {error}") from error
        return {
            _key(group.daemon, name): row
            for group in self._ads.groups(self.my_type)
            if stands.get(group.daemon) == [group.start_time, group.content]
            for name, row in group.rows.items()
        }

    def take_over(self, held: Mapping[str, Any], unchanged: Mapping[str, Source]) -> None:
        """Have these ads as they were read before the restart; for a thread. Raises ValueError."""
        keeping.restored(self._columns, held, unchanged)
        self._matching = Matching(self._columns, 0.0)

    def settle(self, held: Mapping[str, Any], unchanged: Mapping[str, Source]) -> int:
        """What was taken over and has not changed meanwhile needs no reading: for the event loop again. Returns how
        many ads."""
        again = self.unchanged(held)
        done = 0
        for key in self._columns.keys:
            if again.get(key) is unchanged[key]:
                self._dirty.pop(key, None)
                done += 1
        return done

    @property
    def version(self) -> int:
        """Changes with every ad that is read."""
        return self._columns.version

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def behind(self) -> int:
        """Ads that changed since they were read."""
        return len(self._dirty)

    def unreadable(self) -> int:
        """Ads that were left out since the last call, because they are none."""
        found, self._unreadable = self._unreadable, 0
        return found

    def note(self, daemon: str, names: Iterable[str]) -> None:
        """These ads are new, changed or gone."""
        for name in names:
            self._dirty[_key(daemon, name)] = None

    def take(self) -> Iterator[int]:
        """Queue what changed, a slice at a time: go on with the event loop in between."""
        while self._dirty:
            keys = list(islice(self._dirty, SLICE))
            for key in keys:
                del self._dirty[key]
                daemon, _, name = key.partition(_SEPARATOR)
                row = self._ads.row(self.my_type, daemon, name)
                if row is None:
                    self._columns.remove(key)
                    continue
                self._columns.put(key, row)
            yield len(keys)

    def ready(self) -> None:
        """Read what was queued."""
        while True:
            try:
                self._columns.flush()
            except PackedError:
                self._unreadable += 1
                continue
            break

    def answers(self, constraint: Expr) -> bool:
        """Whether the columns have all that it depends on: nothing that the collector adds to ads, by whatever
        detour; what asks for nothing else is told apart before (overlay.parted)."""
        todo, seen = set(self._columns.names(constraint)), set[str]()
        while todo:
            name = todo.pop()
            if name in OVERLAID:
                return False
            seen.add(name)
            if name in self._columns.columns:
                for expression in self._columns.expressions(name):
                    todo |= self._columns.names(expression) - seen
        return True

    @property
    def attributes(self) -> list[str]:
        """What is read of every ad (lower case), beside the usual."""
        usual = {name.lower() for name in USUAL}
        return sorted(name for name in self._columns.columns if name not in usual and name.isidentifier())

    def find(
        self,
        constraint: Expr | None,
        projection: frozenset[str],
        after: tuple[str, str] | None,
        most: int,
        now: float,
        *,
        in_columns: bool = False,
    ) -> Found | None:
        """Ads for which it is true, in the order of pages. None when the columns can not tell."""
        self.ready()
        if constraint is None:
            self._sort()
            rows = np.arange(len(self._sorted))
        else:
            mask = self._mask(constraint, now)
            if mask is None:
                return None
            self._sort()  # after the mask, which may put the rows in another order
            rows = np.flatnonzero(mask[self._order])
        start = bisect_right(self._sorted, _key(*after)) if after is not None else 0
        found = rows[np.searchsorted(rows, start) :]
        places = found[:most]
        answer = Found([self._sorted[place] for place in places.tolist()], len(found) > most)
        lists = projection & LISTS if self.my_type == "Machine" else frozenset()
        added = LISTED if in_columns else frozenset()  # who makes the page knows these
        asked = self._asked(projection - lists - added, len(rows), in_columns) if projection else None
        if asked is None:
            return answer
        chosen = self._order[places]
        apart = self._partitionable(chosen) if lists else []
        if in_columns:
            answer.listed = listed(asked, chosen, self._columns.codes)
            answer.listed.odd = sorted({*answer.listed.odd, *apart})
        else:
            answer.packed = bodies(asked, chosen, self._columns.codes, len(ALWAYS))
            for place in apart:
                answer.packed[place] = None
        return answer

    def _partitionable(self, rows: NDArray[np.intp]) -> list[int]:
        """Which of these rows are, or may be, partitionable slots."""
        self._columns.want(["partitionableslot"])
        column = self._columns.columns["partitionableslot"].taken(rows)
        others = (column.tag == ABSENT) | ((column.tag == BOOL) & (column.number == 0))
        return [int(place) for place in np.flatnonzero(~others)]

    def _asked(self, projection: frozenset[str], found: int, in_columns: bool) -> list[tuple[str, Column]] | None:
        """The columns of what is asked for, with the names of their attributes; None where not all are there.
        `in_columns`: one name is enough for all ads, where packed ads have each its own spelling."""
        names = sorted(projection - set(ALWAYS))
        if not OVERLAID.isdisjoint(names):
            return None
        columns = self._columns.columns
        missing = [name for name in names if name not in columns]
        if missing:
            if found < LISTED_SHARE * len(self._columns) or len(columns) + len(missing) > MOST_COLUMNS:
                return None
            self._columns.want(missing)
        pairs = []
        for name in names:
            if columns[name].tags != 1 << ABSENT:
                known = spellings(name)
                if in_columns:  # not as who came first has it, which may be any odd way
                    spelt = _SPELT.get(name) or (known[0] if known else name)
                elif len(known) == 1:
                    spelt = known[0]
                else:
                    return None
                pairs.append((spelt, columns[name]))
        return pairs

    def ordered(
        self, constraint: Expr | None, wish: SortOrder, after: Position | None, most: int, now: float
    ) -> tuple[list[Position], bool, int] | None:
        """Where the ads stand for which it is true, in the order of an attribute and from a place on, whether there are
        more, and how many fit in all. None when the columns can not tell."""
        self.ready()
        self._columns.want([wish.by])
        if wish.by in OVERLAID:
            return None
        if constraint is None:
            self._sort()
            found = np.arange(len(self._columns))
        else:
            mask = self._mask(constraint, now)
            if mask is None:
                return None
            self._sort()
            found = self._order[np.flatnonzero(mask[self._order])]
        ranks = np.empty(len(self._order), np.intp)
        ranks[self._order] = np.arange(len(self._order))
        own = 0.0
        if after is not None:
            own = bisect_left(self._sorted, after.key)
            if own == len(self._sorted) or self._sorted[int(own)] != after.key:
                own -= 0.5
        column = self._columns.columns[wish.by].taken(found)
        places = rows(column, self._columns.codes, ranks[found], own, wish, after)
        keys = self._columns.keys
        listed = [
            position_of(column.cell(row, self._columns.codes), keys[int(found[row])]) for row in places[:most].tolist()
        ]
        return listed, len(places) > most, len(found)

    def count(self, constraint: Expr | None, by: Sequence[str], now: float) -> dict[tuple[Plain, ...], int] | None:
        """How many there are of each combination of the attributes `by`, as they stand in the ads: a text, number or
        truth value; None where it is none of these. None when the columns can not tell."""
        names = [name.lower() for name in by]
        self.ready()
        self._columns.want(names)
        if not OVERLAID.isdisjoint(names):
            return None
        if constraint is None:
            rows = np.arange(len(self._columns))
        else:
            mask = self._mask(constraint, now)
            if mask is None:
                return None
            rows = np.flatnonzero(mask)
        columns = [self._columns.columns[name] for name in names]
        if not columns:
            return {(): len(rows)} if len(rows) else {}
        kinds = np.stack([column.taken(rows).identities() for column in columns])
        _, first, counts = np.unique(kinds, axis=1, return_index=True, return_counts=True)
        totals: dict[tuple[Plain, ...], int] = {}
        for row, number in zip(rows[first].tolist(), counts.tolist(), strict=True):
            values = tuple(plain(column.cell(row, self._columns.codes)) for column in columns)
            totals[values] = totals.get(values, 0) + number
        return totals

    def _mask(self, constraint: Expr, now: float) -> NDArray[np.bool_] | None:
        """Of each row whether it is true. None when the columns can not tell. Raises TooExpensive."""
        own, of_groups = parted(constraint)
        if own is None:
            mask = np.ones(len(self._columns), np.bool_)
        else:
            self._columns.want(self._columns.names(own))
            if not self.answers(own):
                return None
            self._matching.now = now
            mask = self._matching.mask(own)
        return self._of_groups(mask, OfGroups(of_groups, now)) if of_groups else mask

    def _of_groups(self, mask: NDArray[np.bool_], condition: OfGroups) -> NDArray[np.bool_]:
        """Those of these rows of whose daemons it is true as well."""
        keys = self._columns.keys
        known: dict[str, bool] = {}
        found = np.zeros_like(mask)
        for row in np.flatnonzero(mask).tolist():
            daemon = split(keys[row])[0]
            if daemon not in known:
                group = self._ads.group(self.my_type, daemon)  # it may have gone in this very moment
                known[daemon] = group is not None and condition.true_of(group)
            found[row] = known[daemon]
        return found

    def _sort(self) -> None:
        if self._layout != self._columns.layout:
            keys = self._columns.keys
            order = sorted(range(len(keys)), key=keys.__getitem__)
            self._order = np.array(order, np.intp)
            self._sorted = [keys[row] for row in order]
            self._layout = self._columns.layout


def plain(cell: object) -> Plain:
    """A value to count by; None for what is an expression, a list or not there."""
    return cell if isinstance(cell, str | int | float) else None


def _key(daemon: str, name: str) -> str:
    return daemon + _SEPARATOR + name


def split(key: str) -> tuple[str, str]:
    """Daemon and name of a key."""
    daemon, _, name = key.partition(_SEPARATOR)
    return daemon, name
