"""Answers queries with a constraint over many ads from columns, in a thread, so that the next query need not wait (spec
row COL-05). All other queries are answered from the ads at once (core.queries).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from services.collector.core.acceptance import AbsentAd
from services.collector.core.columns import ALWAYS, LEAST_ADS, MOST_COLUMNS, Columns, Listing, Plain, plain, split
from services.collector.core.overlay import end_of, listed_of, overlay_of
from services.collector.core.queries import (
    LAST,
    PAGE_BYTES,
    SEPARATOR,
    BadQuery,
    GroupOrder,
    Page,
    Query,
    answer,
    chosen,
    fitting,
    projected,
)
from services.collector.core.sorting import Position, SortOrder, position_of
from services.collector.core.sorting import page as sort_page
from services.collector.directory import StoredColumns
from shared.classad import column_page
from shared.classad.budget import Budget
from shared.classad.columnar.keeping import unpack as unpack_columns
from shared.classad.question import Question
from shared.cooperative import Yielder
from shared.daemon.ad_rows import BadAd, unpack, with_attributes
from shared.daemon.ad_table import AdTable, Change
from shared.daemon.clock import Clock
from shared.state.api import StoreUnavailable

#: Ads of one page, and cells of one in columns, which is packed in one turn of the loop, in some 20 ms.
PAGE_ADS, PAGE_CELLS = 10_000, 400_000
#: Ads that are looked at for counts in one go.
STEP = 500
#: Seconds between looks at what changed, so that the next question finds little to read.
FOLLOW_EVERY_S = 2.0
#: Columns of so many ads are kept over a restart, as they were so long (s) ago at most; larger ones are not.
LEAST_KEPT, KEEP_EVERY_S, MOST_KEPT_BYTES = 2_000, 60.0, 512 << 20
#: A type about which nobody asked for this long (s) is not followed any more.
FORGOTTEN_AFTER_S = 3600.0


@dataclass(slots=True)
class _Kind:
    """The columns of one type, and who is at work on them."""

    columns: Columns
    asked: float  # monotonic
    kept: float = 0.0  # monotonic: when the columns were stored
    stood: int = -1  # as of which version of theirs
    at_work: asyncio.Lock = field(default_factory=asyncio.Lock)


class Search:
    """Answers queries. `table`, `order` and `absentees`: of the collector's AdIndex."""

    def __init__(
        self,
        table: AdTable,
        order: GroupOrder,
        absentees: Mapping[str, AbsentAd],
        clock: Clock,
        stored: StoredColumns | None = None,
    ) -> None:
        """stored: the columns that outlive a restart; None: none do."""
        self._table = table
        self._stored = stored
        self._order = order
        self._absentees = absentees
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        self.from_columns = 0  # questions answered so
        self.waiting = 0  # questions that wait for others about the same type
        self.taken_over = 0  # ads that were not read again after a restart

    def changed(self, change: Change) -> None:
        """A message did this."""
        kind = self._kinds.get(change.my_type)
        if kind is not None:
            kind.columns.note(change.daemon, change.updated)
            kind.columns.note(change.daemon, change.removed)

    def note(self, my_type: str, daemon: str, names: Iterable[str]) -> None:
        """These ads came, changed or went by other ways."""
        kind = self._kinds.get(my_type)
        if kind is not None:
            kind.columns.note(daemon, names)

    async def answer(self, query: Query) -> Page:
        """One page. Raises BadQuery where the order needs what the columns lack, TooExpensive."""
        async with Question(Budget("this query")) as question:
            if query.order is not None:
                return await self._in_order(question, query, query.types[0], query.order)
            page = None
            if (query.constraint is not None or query.projection) and not query.name and len(query.types) == 1:
                page = await self._page(question, query, query.types[0])
            if page is None:
                page = await self._from_ads(question, query)
            return page

    async def _from_ads(self, question: Question, query: Query) -> Page:
        """A page by looking at each ad."""
        page = Page([])
        for _ in answer(page, query, self._order, self._absentees, self._clock.now()):
            await question.yield_if_due()
        return page

    async def totals(self, query: Query, by: Sequence[str]) -> dict[tuple[Plain, ...], int]:
        """How many ads there are of each combination of values, as they stand in the ads. Raises TooExpensive."""
        async with Question(Budget("this count")) as question:
            return await self._totals(question, query, by)

    async def _totals(self, question: Question, query: Query, by: Sequence[str]) -> dict[tuple[Plain, ...], int]:
        if query.constraint is None and not by and len(query.types) == 1:
            ads = self._count(query.types[0])
            return {(): ads} if ads else {}
        kind = self._kind(query.types[0]) if len(query.types) == 1 else None
        if kind is not None:
            async with self._turn(kind):
                await self._catch_up(kind)
                found = await asyncio.to_thread(kind.columns.count, query.constraint, by, self._clock.now())
            if found is not None:
                self.from_columns += 1
                return found
        totals: dict[tuple[Plain, ...], int] = {}
        names = [name.lower() for name in by]
        wanted = replace(query, projection=frozenset(names), limit=STEP, absent=False)
        while True:
            page = await self._from_ads(question, wanted)
            for packed in page.ads:
                await question.yield_if_due()
                values = {name.lower(): value for name, value in unpack(packed).items()}
                key = tuple(plain(values.get(name)) for name in names)
                totals[key] = totals.get(key, 0) + 1
            if not page.next:
                return totals
            first, second, third = page.next.split(SEPARATOR)
            wanted = replace(wanted, after=(first, second, third))

    async def follow(self) -> None:
        """Root task: the machines' ads are in columns soon after the start, and all that is asked about stays so."""
        if self._count("Machine") >= LEAST_ADS:
            kind = self._kind("Machine")
            assert kind is not None
            async with kind.at_work:
                await self._take_over(kind)
                await self._catch_up(kind)
                await asyncio.to_thread(kind.columns.ready)
        while True:
            await self._clock.sleep(FOLLOW_EVERY_S)
            if "Machine" not in self._kinds:
                self._kind("Machine")  # followed from the first, or the first question would wait for all to be read
            for my_type, kind in list(self._kinds.items()):
                silent = self._clock.monotonic() - kind.asked > FORGOTTEN_AFTER_S
                # Machines are followed always, but not for ever in what was asked of them once.
                if silent and not kind.at_work.locked() and (my_type != "Machine" or kind.columns.attributes):
                    del self._kinds[my_type]
                elif kind.columns.behind:
                    async with kind.at_work:
                        await self._catch_up(kind)
                        await asyncio.to_thread(kind.columns.ready)
            await self.keep(KEEP_EVERY_S)

    async def keep(self, after_s: float = 0.0) -> None:
        """Store the columns of types with many ads that have changed since, if that was so long ago."""
        for my_type, kind in list(self._kinds.items()):
            now = self._clock.monotonic()
            late = now - kind.kept >= after_s and kind.columns.version != kind.stood
            if self._stored is None or len(kind.columns) < LEAST_KEPT or not late:
                continue
            async with kind.at_work:
                kind.kept, kind.stood = now, kind.columns.version
                data = await asyncio.to_thread(kind.columns.kept, kind.columns.stands())
            if len(data) <= MOST_KEPT_BYTES:
                with contextlib.suppress(StoreUnavailable):
                    await self._stored.put(my_type, data)

    # --- helpers

    @contextlib.asynccontextmanager
    async def _turn(self, kind: _Kind) -> AsyncIterator[None]:
        """Inside, a question has the columns for itself."""
        self.waiting += 1
        try:
            await kind.at_work.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            kind.at_work.release()

    async def _take_over(self, kind: _Kind) -> None:
        """Begin with the columns of the time before a restart, as far as ads have not changed since."""
        try:
            data = await self._stored.get(kind.columns.my_type) if self._stored is not None else None
            if data is None:
                return
            held = await asyncio.to_thread(unpack_columns, data)
            unchanged = kind.columns.unchanged(held)
            await asyncio.to_thread(kind.columns.take_over, held, unchanged)
            self.taken_over += kind.columns.settle(held, unchanged)
        except (StoreUnavailable, ValueError):
            return  # all are read anew

    async def _page(self, question: Question, query: Query, my_type: str) -> Page | None:
        """None when it is to be answered from the ads: few of them, or a question that columns can not answer."""
        if query.after is not None and query.after[0] != my_type:
            return None  # absent ads, which come last
        kind = self._kind(my_type)
        if kind is None:
            return None
        after = query.after[1:] if query.after is not None else None
        most = min(query.limit or PAGE_ADS, PAGE_ADS)
        now = self._clock.now()
        in_columns = query.columns and not query.absent
        if in_columns:
            most = min(most, max(1, PAGE_CELLS // (len(query.projection) + 1)))
        async with self._turn(kind):
            await self._catch_up(kind)
            found = await asyncio.to_thread(
                kind.columns.find, query.constraint, query.projection, after, most, now, in_columns=in_columns
            )
        if found is None:
            return None
        self.from_columns += 1
        keys, more = found.keys, found.more
        page = await self._sheet(query, my_type, keys, found.listed) if found.listed is not None else None
        if page is None:
            page = await self._assembled(query, my_type, keys, found.packed)
        page.unreadable += kind.columns.unreadable()
        if not page.next and more:
            page.next = SEPARATOR.join((my_type, *split(keys[-1])))
        if not page.next and query.absent:
            return await self._with_absent(question, query, my_type, page)
        return page

    async def _in_order(self, question: Question, query: Query, my_type: str, wish: SortOrder) -> Page:
        most = min(query.limit or PAGE_ADS, PAGE_ADS)
        kind = self._kind(my_type)
        if kind is None:
            places, more, fits, unreadable = await self._sorted_few(question, query, wish, most)
        else:
            async with self._turn(kind):
                await self._catch_up(kind)
                found = await asyncio.to_thread(
                    kind.columns.ordered, query.constraint, wish, query.place, most, self._clock.now()
                )
            if found is None:
                raise BadQuery(
                    "order: neither it nor the constraint may name what the collector adds to ads (LastHeardFrom, ...)"
                )
            self.from_columns += 1
            places, more, fits = found
            unreadable = kind.columns.unreadable()
        page = await self._assembled(query, my_type, [place.key for place in places])
        page.fits = fits
        page.unreadable += unreadable
        if page.next:  # full of bytes: its last ad is one of the places
            last = SEPARATOR.join(page.next.split(SEPARATOR)[1:])
            page.next = next(place.cursor() for place in places if place.key == last)
        elif more and places:
            page.next = places[-1].cursor()
        return page

    async def _sorted_few(
        self, question: Question, query: Query, wish: SortOrder, most: int
    ) -> tuple[list[Position], bool, int, int]:
        """The same by looking at each of a few ads, and how many of them can not be read."""
        places: list[Position] = []
        unreadable = 0
        wanted = replace(query, projection=frozenset(("name", wish.by)), limit=0, order=None, place=None)
        for group in self._order.groups(query.types, None):
            overlay = overlay_of(group)
            for name, row in list(group.rows.items()):
                await question.yield_if_due()
                try:
                    packed = fitting(wanted, with_attributes(row.packed(), overlay), self._clock.now())
                except ValueError:  # also BadAd
                    unreadable += 1
                    continue
                if packed is not None:
                    value = {key.lower(): cell for key, cell in unpack(packed).items()}.get(wish.by)
                    places.append(position_of(value, SEPARATOR.join((group.daemon, name))))
        listed, more = sort_page(places, wish, query.place, most)
        return listed, more, len(places), unreadable

    async def _assembled(
        self, query: Query, my_type: str, keys: Sequence[str], bodies: Sequence[bytes | None] | None = None
    ) -> Page:
        page, size = Page([]), 0
        ends: dict[str, bytes] = {}  # by daemon, what the collector adds to each ad
        turn = Yielder()
        for number, key in enumerate(keys, 1):
            await turn.yield_if_due()
            daemon, name = split(key)
            body = bodies[number - 1] if bodies is not None else None
            if body is not None:
                end = ends.get(daemon)
                if end is None:
                    end = ends[daemon] = end_of(self._table.group(my_type, daemon))
                if end:
                    page.ads.append(body + end)
                    size += len(body) + len(end)
                if size >= PAGE_BYTES and number < len(keys):
                    page.next = SEPARATOR.join((my_type, daemon, name))
                    break
                continue
            group = self._table.group(my_type, daemon)
            row = group.rows.get(name) if group is not None else None
            if group is not None and row is not None:  # it may have gone in this very moment
                try:
                    packed = projected(query, with_attributes(row.packed(), overlay_of(group)))
                except BadAd:
                    page.unreadable += 1
                    continue
                page.ads.append(packed)
                size += len(packed)
            if size >= PAGE_BYTES and number < len(keys):
                page.next = SEPARATOR.join((my_type, daemon, name))
                break
        return page

    async def _sheet(self, query: Query, my_type: str, keys: Sequence[str], listed: Listing) -> Page | None:
        """A page in columns, with what the collector adds; None where these would be too many."""
        daemons = [split(key)[0] for key in keys]
        groups = {daemon: self._table.group(my_type, daemon) for daemon in set(daemons)}
        heard = {daemon: int(group.heard) for daemon, group in groups.items() if group is not None}
        added = listed_of(groups, daemons, query.projection)
        columns = [*listed.columns, *added, ("LastHeardFrom", [heard.get(daemon) for daemon in daemons])]
        there = {*ALWAYS, *(name.lower() for name, _ in added)}
        more: dict[str, tuple[str, list[Any]]] = {}
        gone, unreadable = set[int](), 0
        if len(heard) < len(groups):
            gone.update(row for row, cell in enumerate(columns[-1][1]) if cell is None)
        turn = Yielder()
        for row in listed.odd:
            await turn.yield_if_due()
            daemon, name = split(keys[row])
            group = groups[daemon]
            found = group.rows.get(name) if group is not None else None
            if group is None or found is None:
                gone.add(row)
                continue
            try:
                ad = chosen(query.projection, unpack(with_attributes(found.packed(), overlay_of(group))))
            except BadAd:
                gone.add(row)
                unreadable += 1
                continue
            cells = {name.lower(): (name, cell) for name, cell in ad.items()}
            for attribute, column in listed.columns:
                column[row] = cells.pop(attribute.lower(), (attribute, None))[1]
            for key in cells.keys() - there:  # what expressions need
                name, cell = cells[key]
                more.setdefault(key, (name, [None] * len(keys)))[1][row] = cell
            if len(more) > MOST_COLUMNS:
                return None
        columns += more.values()
        kept = [row for row in range(len(keys)) if row not in gone] if gone else range(len(keys))
        if gone:
            columns = [(name, [column[row] for row in kept]) for name, column in columns]
        page = Page([], unreadable=unreadable)
        rows = len(kept)
        while rows:
            page.rows = rows
            cut = [(name, column[:rows]) for name, column in columns] if rows < len(kept) else columns
            page.columns = column_page.page(rows, [*cut, ("MyType", [my_type] * rows)])
            if len(page.columns) <= PAGE_BYTES or rows == 1:
                break
            rows = max(1, rows * PAGE_BYTES // len(page.columns) * 3 // 4)
        if page.rows < len(kept):
            page.next = SEPARATOR.join((my_type, *split(keys[kept[page.rows - 1]])))
        return page

    async def _with_absent(self, question: Question, query: Query, my_type: str, page: Page) -> Page:
        """The last page of the living, and what it has room for of the absent."""
        if query.limit and len(page.ads) >= query.limit:
            page.next = SEPARATOR.join((my_type, LAST, ""))
            return page
        limit = query.limit - len(page.ads) if query.limit else 0
        rest = replace(query, after=(my_type, LAST, ""), limit=limit)
        absent = await self._from_ads(question, rest)
        return Page([*page.ads, *absent.ads], absent.next, page.unreadable + absent.unreadable)

    def _kind(self, my_type: str) -> _Kind | None:
        """Columns of a type; None where there are too few ads."""
        kind = self._kinds.get(my_type)
        if kind is None:
            if self._count(my_type) < LEAST_ADS:
                return None
            kind = self._kinds[my_type] = _Kind(Columns(self._table, my_type), self._clock.monotonic())
        kind.asked = self._clock.monotonic()
        return kind

    def _count(self, my_type: str) -> int:
        return sum(len(group.rows) for group in self._table.groups(my_type))

    async def _catch_up(self, kind: _Kind) -> None:
        for _ in kind.columns.take():
            await asyncio.sleep(0)
