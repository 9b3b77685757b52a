"""Answers queries by type, constraint and projection, page by page (spec rows COL-05, COL-10, ABS-02).

The order is by type, daemon and name, so a page can begin where the last one ended, whatever changed in between. A page
also ends when enough ads were looked at, which bounds how long one query keeps the collector busy; a page may therefore
be empty and still name a next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.collector.core.acceptance import MACHINE, AbsentAd
from services.collector.core.columns import ALWAYS
from services.collector.core.overlay import overlay_of
from services.collector.core.sorting import BadOrder, Position, SortOrder
from shared.classad import ClassAd, Expr, ParseError, evaluate, parse_expr
from shared.classad.expr import AttrRef, Binary, Literal, Parens
from shared.classad.match import is_true
from shared.classad.references import closure, references
from shared.daemon.ad_rows import BadAd, StoredAd, check_readable, pack, unpack, with_attributes
from shared.daemon.ad_table import AdTable, Group

PAGE_BYTES = 4 << 20
#: Ads looked at for one page: with a constraint or a projection each is unpacked (50 us).
PAGE_LOOKS, PAGE_LOOKS_PACKED = 500, 10_000
LONGEST_CONSTRAINT = 100_000
#: Attributes that one question may name, and types.
MOST_NAMES = 10_000
SEPARATOR = "\0"
_PLAIN = frozenset((str, int, float, bool))
#: As the daemon of a cursor: after all of them.
LAST = "\U0010ffff"


class BadQuery(ValueError):
    """A query that can not be answered: the text names the place and the mend."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question, read and checked."""

    types: tuple[str, ...]  # sorted; empty: all
    constraint: Expr | None
    projection: frozenset[str]  # lower case; empty: whole ads
    limit: int  # ads of one page; 0: as many as fit
    after: tuple[str, str, str] | None  # type, daemon, name of the last ad of the page before
    absent: bool
    name: str = ""  # the only Name that can fit, when the constraint says so
    order: SortOrder | None = None  # of one type, in the order of an attribute; then `place` and not `after`
    place: Position | None = None
    columns: bool = False  # the page may be in columns


@dataclass(slots=True)
class Page:
    ads: list[bytes]
    next: str = ""
    unreadable: int = 0  # ads left out because they are none
    fits: int = -1  # how many there are on all pages, where the order is an attribute's
    columns: bytes = b""  # in place of `ads`: shared.classad.column_page
    rows: int = 0


def read(
    my_types: Sequence[str],
    constraint: str,
    projection: Sequence[str],
    limit: int,
    after: str,
    absent: bool,
    order: str = "",
    *,
    columns: bool = False,
) -> Query:
    """The question as it came in, checked. Raises BadQuery."""
    if len(constraint) > LONGEST_CONSTRAINT:
        raise BadQuery(f"constraint: {len(constraint)} characters, at most {LONGEST_CONSTRAINT} are taken")
    for what, names in (("projection", projection), ("types", my_types)):
        if len(names) > MOST_NAMES:
            raise BadQuery(f"{what}: {len(names)} names, at most {MOST_NAMES} are taken")
    expression: Expr | None = None
    if constraint.strip():
        try:
            expression = parse_expr(constraint)
        except ParseError as error:
            raise BadQuery(f"constraint: {error}") from error
    if limit < 0:
        raise BadQuery(f"limit {limit}: want 0 (all) or more")
    wish, stands = _order(order, after, my_types, absent)
    place: tuple[str, str, str] | None = None
    if after and wish is None:
        parts = after.split(SEPARATOR)
        if len(parts) != 3:
            raise BadQuery("after: want what the page before gave as next")
        place = (parts[0], parts[1], parts[2])
    names_absent = expression is not None and any(name.lower() == "absent" for name in _names(expression))
    return Query(
        tuple(sorted(set(my_types))),
        expression,
        frozenset(name.lower() for name in projection),
        limit,
        place,
        absent or names_absent,
        pinned_name(expression) if expression is not None else "",
        wish,
        stands,
        columns,
    )


def _order(order: str, after: str, my_types: Sequence[str], absent: bool) -> tuple[SortOrder | None, Position | None]:
    if not order:
        return None, None
    if len(set(my_types)) != 1 or absent:
        raise BadQuery("order: goes with one type, and without absent ads")
    try:
        return SortOrder.of(order), Position.of_cursor(after) if after else None
    except BadOrder as error:
        raise BadQuery(str(error)) from error


def pinned_name(constraint: Expr) -> str:
    """The Name that every ad has for which the constraint is TRUE; empty when it does not say. Finding one
    ad among many must not mean looking at all of them."""
    if isinstance(constraint, Parens):
        return pinned_name(constraint.inner)
    if not isinstance(constraint, Binary):
        return ""
    if constraint.op == "&&":
        return pinned_name(constraint.left) or pinned_name(constraint.right)
    if constraint.op == "==":
        for reference, literal in ((constraint.left, constraint.right), (constraint.right, constraint.left)):
            if (
                isinstance(reference, AttrRef)
                and reference.key == "name"
                and not reference.absolute
                and (reference.scope is None or _is_my(reference.scope))
                and isinstance(literal, Literal)
                and isinstance(literal.value, str)
            ):
                return literal.value
    return ""


def _is_my(scope: Expr) -> bool:
    return isinstance(scope, AttrRef) and scope.key == "my" and scope.scope is None


class GroupOrder:
    """Groups in the order of pages. Sorting is done again only when groups came or went."""

    def __init__(self, table: AdTable) -> None:
        self._table = table
        self._sorted: dict[str, list[str]] = {}

    def changed(self, my_type: str) -> None:
        """Groups of this type came or went."""
        self._sorted.pop(my_type, None)

    def groups(self, types: Sequence[str], after: tuple[str, str, str] | None) -> Iterator[Group]:
        """Groups of these types (none: all), from the one on that holds the cursor."""
        first_type, first_daemon, _ = after or ("", "", "")
        for my_type in sorted(types or self._table.types()):
            if my_type < first_type:
                continue
            daemons = self._sorted.get(my_type)
            if daemons is None:
                daemons = self._sorted[my_type] = sorted(group.daemon for group in self._table.groups(my_type))
            start = bisect_left(daemons, first_daemon) if my_type == first_type else 0
            for position in range(start, len(daemons)):
                group = self._table.group(my_type, daemons[position])
                if group is not None:
                    yield group

    def named(self, types: Sequence[str], name: str) -> Iterator[tuple[Group, str]]:
        """Groups that have an ad of this Name (case does not matter), with its spelling there, in the order
        of pages."""
        for my_type in sorted(types or self._table.types()):
            for daemon, spelt in sorted(self._table.named(my_type, name).items()):
                group = self._table.group(my_type, daemon)
                if group is not None:
                    yield group, spelt


def answer(
    page: Page, query: Query, order: GroupOrder, absentees: Mapping[str, AbsentAd], now: float
) -> Iterator[None]:
    """Fill an empty page, an ad at each step: others may change the table in between."""
    looks = PAGE_LOOKS if query.constraint is not None or query.projection else PAGE_LOOKS_PACKED
    size = 0
    place: tuple[str, str, str] | None = None
    for key, packed, overlay in _ads(query, order, absentees):
        if looks <= 0 or size >= PAGE_BYTES or (query.limit and len(page.ads) >= query.limit):
            page.next = SEPARATOR.join(place) if place else ""
            return
        looks -= 1
        place = key
        try:
            found = fitting(query, with_attributes(packed, overlay), now) if packed is not None else None
        except ValueError:  # also BadAd
            packed = None
        if packed is None:
            page.unreadable += 1
            yield
            continue
        if found is not None:
            page.ads.append(found)
            size += len(found)
        yield


def _ads(
    query: Query, order: GroupOrder, absentees: Mapping[str, AbsentAd]
) -> Iterator[tuple[tuple[str, str, str], bytes | None, dict[str, Any]]]:
    """(place, packed ad, attributes the collector adds) of every candidate, in order. Absent ads come
    last. The ad is None where its changes can not be put into it."""
    after = query.after
    if after is None or after[0] != "":
        if query.name:
            chosen = ((group, [name]) for group, name in order.named(query.types, query.name))
        else:
            chosen = ((group, sorted(group.rows)) for group in order.groups(query.types, after))
        for group, names in chosen:
            overlay = overlay_of(group)
            for name in names:
                key = (group.my_type, group.daemon, name)
                row = group.rows.get(name)  # it may have gone meanwhile
                if row is not None and (after is None or key > after):
                    yield key, _packed(row), overlay
    if query.absent and (not query.types or MACHINE in query.types):
        for name in sorted(absentees):
            ad = absentees.get(name)
            if ad is None:
                continue
            key = ("", ad.daemon, name)
            if after is None or after[0] != "" or (ad.daemon, name) > after[1:]:
                yield key, ad.packed, {"MyType": MACHINE, "LastHeardFrom": int(ad.last_heard)}


def _packed(row: StoredAd) -> bytes | None:
    try:
        return row.packed()
    except BadAd:
        return None


def fitting(query: Query, packed: bytes, now: float) -> bytes | None:
    """The ad as it is answered, or None when the constraint is not true for it. Raises ValueError."""
    if query.constraint is not None and not is_true(evaluate(query.constraint, ClassAd.unpack(packed), None, now)):
        return None
    return projected(query, packed)


def projected(query: Query, packed: bytes) -> bytes:
    """The attributes that are asked for, with those that these need to have their values. Raises BadAd."""
    if query.projection:
        return pack(chosen(query.projection, unpack(packed)))
    check_readable(packed)  # who asks could not read the others either
    return packed


def chosen(projection: frozenset[str], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Of an ad as it is packed what a projection (lower case) asks for, and what these attributes refer to: an
    expression without that would have another value (spec row COL-05)."""
    wanted = projection | frozenset(ALWAYS)
    found = {name: cell for name, cell in attributes.items() if name.lower() in wanted}
    if all(cell.__class__ in _PLAIN for cell in found.values()):
        return found
    cells = {name.lower(): cell for name, cell in attributes.items()}
    wanted = frozenset(closure(wanted, cells.get))
    return {name: cell for name, cell in attributes.items() if name.lower() in wanted}


def _names(expression: Expr) -> Iterable[str]:
    found = references(expression)
    return {*found.internal, *found.missing, *found.target, *found.unscoped}
