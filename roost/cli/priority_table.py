"""The table of `roost userprio`: columns, order and widths are those of HTCondor 23.9.6.

Ours besides: a column for floors where somebody has one, `<never>` for a group or user that never ran anything, and
lines below the table for changes that end by themselves.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from roost.cli.output import number, text
from shared.classad import UNDEFINED, ClassAd

ROOT: Final = "<none>"
#: GROUP_SORT_EXPR of who comes last, as it is after its way through an ad.
_LAST_KEY: Final = 3.40282001e38
_LONGEST_NAME: Final = 99


@dataclass(frozen=True, slots=True)
class Line:
    """A user or a group, as its accounting ad tells it."""

    name: str
    is_group: bool
    group: str  # of a user: name of its group. Of a group: the group above
    priority: float
    factor: float
    in_use: float
    usage: float  # weighted, s
    begin: float
    last: float  # 0: never
    floor: float
    ceiling: float
    effective_quota: float | None
    config_quota: float | None
    subtree_quota: float | None
    requested: float | None
    sort_key: float | None
    surplus: str  # "", no, regroup, byquota
    updated: float

    @property
    def is_root(self) -> bool:
        return self.is_group and self.name == ROOT


@dataclass(frozen=True, slots=True)
class View:
    """What is asked for. columns: names of COLUMNS. since: who used nothing since then is left out; -1: nobody is."""

    columns: frozenset[str]
    since: float
    now: float
    hierarchical: bool | None = None  # None: where there are groups to tell apart
    groups_first: bool = False
    quotas_asked: bool = False  # shown also where no group is
    from_file: bool = False  # exactly HTCondor's words


MOST: Final = frozenset(
    ("config", "surplus", "priority", "factor", "in_use", "usage", "since", "requested", "floor", "ceiling")
)
QUOTAS: Final = frozenset(("effective", "config", "surplus", "subtree", "requested"))
PRIORITIES: Final = frozenset(("priority", "real", "factor"))
USAGE: Final = frozenset(("in_use", "usage", "begin", "last"))
ALL: Final = MOST | QUOTAS | PRIORITIES | USAGE


def read(ad: ClassAd) -> Line:
    """The line of an accounting ad."""
    is_group = ad.eval("IsAccountingGroup") is True
    policy = text(ad, "SurplusPolicy").lower()
    return Line(
        name="".join(c if c.isprintable() else " " for c in text(ad, "Name")),
        is_group=is_group,
        group=text(ad, "AccountingGroup", ROOT),
        priority=number(ad, "Priority"),
        factor=number(ad, "PriorityFactor"),
        in_use=number(ad, "WeightedResourcesUsed", number(ad, "ResourcesUsed")),
        usage=number(ad, "WeightedAccumulatedUsage", number(ad, "AccumulatedUsage")),
        begin=number(ad, "BeginUsageTime"),
        last=number(ad, "LastUsageTime"),
        floor=number(ad, "Floor"),
        ceiling=number(ad, "Ceiling", -1.0),
        effective_quota=_maybe(ad, "EffectiveQuota"),
        config_quota=_maybe(ad, "ConfigQuota"),
        subtree_quota=_maybe(ad, "SubtreeQuota") if is_group else None,
        requested=_maybe(ad, "Requested"),
        sort_key=_maybe(ad, "GroupSortKey") if is_group else None,
        surplus=policy if is_group else "",
        updated=number(ad, "LastUpdate"),
    )


def table(ads: Sequence[ClassAd], view: View) -> list[str]:
    """The lines of the table, headings and sums included."""
    lines = [read(ad) for ad in ads]
    updated = max((line.updated for line in lines), default=0.0) or view.now
    shown = _Table(lines, view, updated)
    return [f"Last Priority Update: {_date(updated)}", *shown.lines(), *_temporary(ads, view)]


def roll_up(ads: Iterable[ClassAd]) -> list[ClassAd]:
    """Accounting ads in which each group has used what all groups below it have, too (-grouprollup)."""
    ads = list(ads)
    groups = {text(ad, "Name"): ad.copy() for ad in ads if ad.eval("IsAccountingGroup") is True}
    deepest_first = sorted(groups, key=lambda name: (-name.count("."), name == ROOT))
    for name in deepest_first:
        below, parent = groups[name], groups.get(_parent(name, groups))
        if parent is None or parent is below:
            continue
        for attribute in ("ResourcesUsed", "WeightedResourcesUsed", "AccumulatedUsage", "WeightedAccumulatedUsage"):
            total = number(parent, attribute) + number(below, attribute)
            parent[attribute] = int(total) if attribute == "ResourcesUsed" else total
        begins = [begin for ad in (parent, below) if (begin := number(ad, "BeginUsageTime")) > 0]
        parent["BeginUsageTime"] = int(min(begins, default=0))
        parent["LastUsageTime"] = int(max(number(parent, "LastUsageTime"), number(below, "LastUsageTime")))
    return [groups.get(text(ad, "Name"), ad) if ad.eval("IsAccountingGroup") is True else ad for ad in ads]


@dataclass(frozen=True, slots=True)
class _Column:
    """width: of its cells, which are cut or written shorter to fit. cell: None is blank."""

    name: str
    width: int
    first: str  # heading
    second: str
    cell: Callable[[_Table, Line], str | None]
    total: Callable[[_Table], str] = field(default=lambda _: "")
    left: bool = False
    of_groups: bool = False  # a group without it shows n/d


class _Table:
    """One table in the making: which lines and columns there are, in which order."""

    def __init__(self, lines: Sequence[Line], view: View, updated: float) -> None:
        self.view, self.updated = view, updated
        self._count = len(lines)
        self.policy: str = next(
            (line.surplus for line in reversed(lines) if line.surplus in ("regroup", "byquota")), ""
        )
        # Of a file groups of nobody make no tree, as with HTCondor's tool; a pool's are worth seeing all the same.
        self.numbered = not view.from_file or any(not line.is_group and line.group != ROOT for line in lines)
        #: They count those that are not shown, too. Groups of nobody have only their places in the file, below zero.
        self.group_ids = _numbers_of_groups(lines, numbered=self.numbered)
        waiting = view.quotas_asked and not view.from_file
        lines = [line for line in lines if line.last >= view.since or (waiting and _waits(line))]
        if not view.from_file:
            known = {line.name for line in lines if line.is_group}
            lines = [line if line.is_group or line.group in known else replace(line, group=ROOT) for line in lines]
        self._wide = lines  # of a file also names that are not shown count in the width
        columns = set(view.columns)
        nested = any(self.number(line) > 0 for line in lines)
        users_only = columns <= PRIORITIES and not view.hierarchical
        if users_only or not nested:
            if not view.quotas_asked:
                columns -= QUOTAS
            if users_only:
                lines = [line for line in lines if not line.is_group]
        if view.from_file or not any(line.floor > 0.0 for line in lines):
            columns.discard("floor")
        self.columns = [column for column in COLUMNS if column.name in columns]
        self.groups_only = bool(columns) and columns <= QUOTAS
        self.nested = nested and not users_only and view.hierarchical is not False and not view.groups_first
        if not nested and not view.from_file:
            lines = [line for line in lines if not line.is_root]
        #: Users count in the sums, and in the width of the first column, also where only groups are shown.
        self.users = [line for line in lines if not line.is_group]
        self.all = lines
        self.came = list(lines)
        # Among equals: groups by name, the root last, before users as they came; in a file of groups of nobody all so.
        if self.numbered:
            self.all.sort(key=lambda line: (not line.is_group, line.is_root, line.name if line.is_group else ""))
        self.shown = sorted(
            (line for line in self.all if line.is_group or not self.groups_only), key=self._order(columns)
        )
        if not nested:  # the root is of interest only after another
            first = next((place for place, line in enumerate(self.shown) if line.is_group and not line.is_root), None)
            self.shown = [
                line
                for place, line in enumerate(self.shown)
                if not line.is_root or (first is not None and place > first)
            ]

    def number(self, line: Line) -> int:
        """The number of a line's group; 0 of the root. A group that no line tells of comes before all."""
        group = line.name if line.is_group else line.group
        return 0 if group == ROOT else self.group_ids.get(group, -2 * self._count)

    # --- order

    def _order(self, columns: set[str]) -> Callable[[Line], tuple[object, ...]]:
        def user(line: Line) -> tuple[object, ...]:  # equal ones stay as they came
            if "priority" in columns:
                return (line.priority,)
            return (line.usage if columns & {"in_use", "usage"} else line.name,)

        def nested(line: Line) -> tuple[object, ...]:
            group, number = line.name if line.is_group else line.group, self.number(line)
            last = number == 0 and self.policy == "regroup"
            key = self.display_order(group, columns) if columns & {"priority", "in_use", "usage"} else 0.0
            return (last, key, number, not line.is_group, *user(line))

        places = {id(line): place for place, line in enumerate(self.came)} if self.view.from_file else {}

        def groups_first(line: Line) -> tuple[object, ...]:
            if line.is_group and places:  # its writer put them in order
                return (False, places[id(line)])
            if line.is_group:
                return (False, not line.is_root, float(line.name.count(".")), line.name)
            return (True, True, *user(line))

        return nested if self.nested else groups_first if self.view.groups_first else user

    def display_order(self, group: str, columns: set[str] | None = None) -> float:
        """What groups are ordered by among each other, and what -order shows."""
        columns = {column.name for column in self.columns} if columns is None else columns
        found = next((line for line in self.all if line.is_group and line.name == group), None)
        number = self.group_ids.get(group, 0)
        if found is not None and "priority" in columns:
            if found.sort_key is not None:
                return found.sort_key
            return found.priority if number else _LAST_KEY
        if found is not None and columns & {"in_use", "usage"}:
            return found.usage / 3600
        return float(number) if number else 3.4e38

    # --- lines

    def lines(self) -> list[str]:
        users = f"Number of users: {len(self.users)}"
        longest = max(map(self._length, self._wide if self.view.from_file else self.all), default=0)
        width = (
            max(
                10,
                len(f"Number of users: {self._count if self.view.from_file else len(self.all)}"),
                min(longest, _LONGEST_NAME),
            )
            + 2 * self.nested
        )
        heads = (
            ("Group", "Name" if self.groups_only else "  User Name")
            if self.nested
            else (
                "",
                "Group Name" if self.groups_only else "User Name",
            )
        )
        rule = " ".join("-" * w for w in (width, *(column.width for column in self.columns)))
        return [
            *(_row(head, width, cells) for head, cells in zip(heads, self._headings(), strict=True)),
            rule,
            *(_row(self._listed(line), width, self._cells(line)) for line in self.shown),
            rule,
            _row(users, width, (_fitted(c.total(self), c) for c in self.columns)),
        ]

    def _headings(self) -> tuple[list[str], list[str]]:
        heads = [(c.first, c.second) for c in self.columns]
        if (
            self.groups_only and not self.view.from_file
        ):  # as the manual shows the table of quotas; the tool itself says Weighted Requested
            heads = [
                ("Requested", "Resources") if second == "Requested" else (first, second) for first, second in heads
            ]
        first, second = zip(*heads, strict=True) if heads else ((), ())
        widths = [column.width for column in self.columns]
        return [*map(_centred, first, widths)], [*map(_centred, second, widths)]

    def _listed(self, line: Line) -> str:
        if not self.nested or line.is_group:
            return line.name
        # The name says its group already.
        inside = line.name[len(line.group) + 1 :] if self.number(line) > 0 else line.name
        return f"  {inside}"

    def _length(self, line: Line) -> int:
        """Of a name, for the width of its column: HTCondor counts the dot behind a group's name, which it does not
        print, and takes off a group that no line tells of."""
        if not self.nested or line.is_group:
            return len(line.name)
        return len(line.name) + 2 - (len(line.group) if self.number(line) else 0)

    def _cells(self, line: Line) -> list[str]:
        cells = []
        for column in self.columns:
            cell = column.cell(self, line)
            if cell is None:
                cell = "n/d" if line.is_group and column.of_groups else ""
            cells.append(_fitted(cell, column))
        return cells


def _row(name: str, width: int, cells: Iterable[str]) -> str:
    return " ".join((name[:width].ljust(width), *cells))


def _centred(heading: str, width: int) -> str:
    return (" " * ((width - len(heading)) // 2) + heading).ljust(width)


def _fitted(cell: str, column: _Column) -> str:
    cell = cell[: column.width]
    return cell.ljust(column.width) if column.left else cell.rjust(column.width)


def _amount(value: float, width: int, decimals: int = 2) -> str:
    shown = f"{value:.{decimals}f}"
    return shown if len(shown) <= width else f"{value:.{max(1, width - 6)}g}"


def _numbers(
    name: str,
    width: int,
    first: str,
    second: str,
    value: Callable[[Line], float | None],
    *,
    decimals: int = 2,
    summed: bool = False,
    of_groups: bool = False,
) -> _Column:
    def cell(_: _Table, line: Line) -> str | None:
        amount = value(line)
        return None if amount is None else _amount(amount, width, decimals)

    def total(shown: _Table) -> str:
        return _amount(sum(value(line) or 0.0 for line in shown.users), width, decimals) if summed else ""

    return _Column(name, width, first, second, cell, total, of_groups=of_groups)


def _surplus(shown: _Table, line: Line) -> str | None:
    if not line.is_group:
        return ""
    return "yes" if line.is_root else _POLICIES.get(line.surplus, "n/a")


_POLICIES: Final = {"": "", "no": "no", "regroup": "Regroup", "byquota": "ByQuota"}


def _sort_key(_: _Table, line: Line) -> str | None:
    if line.sort_key is None:
        return None
    return "<last>" if line.sort_key >= _LAST_KEY else _amount(line.sort_key, 9)


def _since(shown: _Table, line: Line) -> str:
    if line.last <= 0.0 and not shown.view.from_file:
        return "<never>"
    return "<now>" if line.last >= int(shown.updated) else _days(shown.updated - line.last)


def _since_total(shown: _Table) -> str:
    since = shown.view.since
    return "" if since <= 0.0 else _days(shown.updated - since) if since < shown.updated else "<now>"


def _group_number(shown: _Table, line: Line) -> str:
    number = shown.number(line)
    return str(number) if number else ""


def _group_order(shown: _Table, line: Line) -> str:
    if not shown.numbered or shown.number(line) < 0:
        return ""
    return _amount(shown.display_order(line.name if line.is_group else line.group), 9)


COLUMNS: Final = (
    _Column("group_id", 5, "Group", "Id", _group_number),
    _Column("order", 9, "Group", "Order", _group_order),
    _Column("sort_key", 9, "Group", "Sort Key", _sort_key, of_groups=True),
    _numbers("effective", 9, "Effective", "Quota", lambda line: line.effective_quota, of_groups=True),
    _numbers("config", 9, "Config", "Quota", lambda line: line.config_quota, of_groups=True),
    _Column("surplus", 7, "Use", "Surplus", _surplus, lambda shown: _POLICIES.get(shown.policy, ""), left=True),
    _numbers("subtree", 9, "Subtree", "Quota", lambda line: line.subtree_quota, of_groups=True),
    # What a group's priority would be decides nothing.
    _numbers("priority", 12, "Effective", "Priority", lambda line: None if line.is_group else line.priority),
    _numbers("real", 8, "Real", "Priority", lambda line: line.priority / line.factor if line.factor > 0 else None),
    _numbers("factor", 9, "Priority", "Factor", lambda line: line.factor if line.factor > 0 else None),
    _numbers("in_use", 6, "Wghted", "In Use", lambda line: line.in_use, decimals=0, summed=True),
    _numbers("usage", 12, "Total Usage", "(wghted-hrs)", lambda line: line.usage / 3600, summed=True),
    _Column("begin", 16, "Usage", "Start Time", lambda _, line: _moment(line.begin)),
    _Column("last", 16, "Last", "Usage Time", lambda _, line: _moment(line.last), lambda t: _moment(t.view.since)),
    _Column("since", 10, "Time Since", "Last Usage", _since, _since_total),
    _numbers("requested", 10, "Weighted", "Requested", lambda line: line.requested, decimals=0, of_groups=True),
    _numbers("floor", 9, "Submitter", "Floor", lambda line: line.floor if line.floor > 0 else None),
    _numbers("ceiling", 9, "Submitter", "Ceiling", lambda line: line.ceiling if line.ceiling >= 0 else None),
)


def _numbers_of_groups(lines: Sequence[Line], *, numbered: bool) -> dict[str, int]:
    groups = {line.name: -place for place, line in enumerate(lines, 1) if line.is_group and not line.is_root}
    return {name: number for number, name in enumerate(sorted(groups), 1)} if numbered else groups


def _waits(line: Line) -> bool:
    """A group that asks for something belongs to a table of quotas, whether it ever ran anything or not."""
    return line.is_group and not line.is_root and (line.requested or 0.0) > 0.0


def _parent(name: str, groups: Iterable[str]) -> str:
    known = set(groups)
    while "." in name:
        name = name.rpartition(".")[0]
        if name in known:
            return name
    return ROOT


def _temporary(ads: Sequence[ClassAd], view: View) -> list[str]:
    """Lines about changes that end by themselves."""
    found = []
    for attribute, what in (("PriorityFactor", "priority factor"), ("Floor", "floor"), ("Ceiling", "ceiling")):
        for ad in ads:
            until = number(ad, f"{attribute}Until")
            if until > view.now:
                now, then = number(ad, attribute), number(ad, f"{attribute}After")
                found.append(f"{text(ad, 'Name')}: {what} {now:g} until {_moment(until).strip()}, then {_after(then)}")
    return sorted(found)


def _after(value: float) -> str:
    return "none" if value < 0 else f"{value:g}"


def _maybe(ad: ClassAd, name: str) -> float | None:
    return None if ad.eval(name) is UNDEFINED else number(ad, name)


def _date(seconds: float) -> str:
    at = time.localtime(seconds)
    return f"{at.tm_mon:2}/{at.tm_mday:<2} {at.tm_hour:02}:{at.tm_min:02}"


def _moment(seconds: float) -> str:
    if seconds <= 0.0:
        return ""
    at = time.localtime(seconds)
    return f"{at.tm_mon:2}/{at.tm_mday:02}/{at.tm_year:<4} {at.tm_hour:02}:{at.tm_min:02}"


def _days(seconds: float) -> str:
    days, rest = divmod(max(0, int(seconds)), 86400)
    return f"{days}+{rest // 3600:02}:{rest % 3600 // 60:02}"


# --- the form with one ad for all, whose attributes are numbered


_NUMBERED: Final = re.compile(r"(.*?[^0-9])([0-9]+)")


def from_one(ad: ClassAd) -> list[ClassAd]:
    """The accounting ads that one ad with numbered attributes (Name1, Name2, ...) stands for (-inputfile); an ad
    without them is one by itself."""
    if ad.lookup("NumSubmittors") is None:
        return [ad]
    found: dict[int, ClassAd] = {}
    for name, expr in ad.exprs():
        matched = _NUMBERED.fullmatch(name)
        if matched is not None:
            found.setdefault(int(matched[2]), ClassAd())[matched[1]] = expr
    updated = ad.lookup("LastUpdate")
    for one in found.values():
        if updated is not None:
            one["LastUpdate"] = updated
    return [one for _, one in sorted(found.items())]


def as_one(ads: Iterable[ClassAd]) -> ClassAd:
    """One ad with numbered attributes for all (-long -legacy)."""
    whole = ClassAd()
    count = 0
    for count, ad in enumerate(ads, start=1):
        for name, expr in ad.exprs():
            if name in ("MyType", "NegotiatorName"):
                continue
            whole["LastUpdate" if name == "LastUpdate" else f"{name}{count}"] = expr
    whole["NumSubmittors"] = count
    return whole
