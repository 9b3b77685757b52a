"""Makes metrics of ads by definitions, and names the machine, address and cluster of each (spec rows MON-02 to MON-13,
MON-16).

The expressions of a definition are evaluated in the ad that it looks at. An expression that only a few attributes
decide is evaluated once for each combination of their values: of 100,000 slots a few dozen differ in State and
Activity. An ad in which Value is UNDEFINED has no such metric; an error, or a value that does not have the wanted Type,
is reported once for each definition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from services.monitor.core.definitions import ATTRIBUTES, MACHINE, NAME, VALUE, Definition
from shared.classad import ERROR, UNDEFINED, ClassAd, Expr, PackedError, ParseError, evaluate, parse_expr
from shared.classad.column_page import Cells, Sheet
from shared.classad.expr import AttrRef, Literal, Parens, attr, fold, walk
from shared.classad.functions.coerce import encode
from shared.classad.functions.pcre import Pattern, RegexError
from shared.classad.references import decided_by

#: What is read of an ad to know whose it is (folded).
IDENTITY_ATTRIBUTES: Final = ("name", "machine", "myaddress")
#: HTCondor's addresses: <10.0.0.5:9618?addrs=...>, <[fd00::1]:9618>.
_SINFUL: Final = re.compile(r"<(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):[0-9]+")


@dataclass(frozen=True, slots=True)
class Default:
    """GANGLIAD_DEFAULT_MACHINE and its like: an expression that is evaluated in the ad, or just the text."""

    text: str = ""
    expr: Expr | None = None

    @staticmethod
    def of(text: str | None) -> Default:
        try:
            return Default(text or "", parse_expr(text) if text else None)
        except ParseError:
            return Default(text or "")

    def reads(self) -> frozenset[str]:
        """The attributes (folded) that it names."""
        if self.expr is None:
            return frozenset()
        return frozenset(node.key for node in walk(self.expr) if isinstance(node, AttrRef))

    def of_ad(self, ad: ClassAd) -> str:
        """ "" where there is no default. A text that has no value as an expression is itself: `my-pool`."""
        if self.expr is None:
            return self.text
        value = evaluate(self.expr, ad)
        return value if isinstance(value, str) else self.text


@dataclass(slots=True)
class MetricIdentity:
    """Names the machine, address and cluster of a metric. collector: the host of the collector, which sums belong to;
    its address may be ""."""

    collector: str
    collector_ip: str = ""
    default_machine: Default = field(default_factory=Default)
    default_ip: Default = field(default_factory=Default)
    default_cluster: Default = field(default_factory=Default)

    def reads(self) -> frozenset[str]:
        """The attributes (folded) that are read of every ad."""
        defaults = (self.default_machine, self.default_ip, self.default_cluster)
        return frozenset(IDENTITY_ATTRIBUTES).union(*(one.reads() for one in defaults))

    def of_collector(self) -> tuple[str, str]:
        return self.collector, self.collector_ip

    def of_ad(self, my_type: str, ad: ClassAd) -> tuple[str, str]:
        """(machine, address) of a metric of this ad that names none."""
        machine = self.default_machine.of_ad(ad) or machine_of(my_type, ad)
        return machine, self.ip_of(machine, ad)

    def ip_of(self, machine: str, ad: ClassAd) -> str:
        """The address that goes with a machine: the machine itself where it is one daemon of several, since one address
        is one host to Ganglia; "" where the ad tells none."""
        if default := self.default_ip.of_ad(ad):
            return default
        return machine if "@" in machine else ip_in(ad.eval_string("MyAddress"))

    def cluster(self, ad: ClassAd) -> str:
        return self.default_cluster.of_ad(ad)


def machine_of(my_type: str, ad: ClassAd) -> str:
    """The ad's Machine; the daemon's name where that is name@host, as several of its kind may be there. Slots have
    names of that form always: what counts is the name of their startd, behind the first @."""
    name = ad.eval_string("Name")
    if fold(my_type) in (MACHINE, "slot"):
        name = name.partition("@")[2]
    if "@" in name:
        return name
    return ad.eval_string("Machine") or name


def ip_in(address: str) -> str:
    """The address in an ad's MyAddress, as HTCondor writes it; "" where there is none, as in `schedd.node1`."""
    found = _SINFUL.match(address)
    return (found[1] or found[2]) if found else ""


_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def values(sheet: Sheet, expr: Expr, now: float) -> list[Any]:
    """What the expression comes to in each of the ads, in which its names are looked up; ERROR where it can not be
    worked out. now: seconds since 1970, for expressions that ask for the time."""
    size = len(sheet)
    while isinstance(expr, Parens):
        expr = expr.inner
    if isinstance(expr, Literal):
        return [expr.value] * size
    if isinstance(expr, AttrRef) and _is_own(expr):
        plain = plain_cells(sheet.cells(expr.key))
        if plain is not None:
            return plain
    keys = decided_by(expr)
    if keys is None:
        return [_value(sheet, place, expr, now) for place in range(size)]
    narrow = sheet.narrowed(keys)
    known: dict[int, Any] = {}
    found = []
    for first in sheet.alike(sorted(keys)):
        if first not in known:
            known[first] = _value(narrow, first, expr, now)
        found.append(known[first])
    return found


def value_of(sheet: Sheet, place: int, name: str, now: float) -> Any:
    """What one of the ads has under a name."""
    cell = sheet.cell(fold(name), place)
    if cell is None:
        return UNDEFINED
    return cell if cell.__class__ in _PLAIN else _value(sheet, place, attr(name), now)


def plain_cells(cells: Cells) -> list[Any] | None:
    """The values in a column without expressions; None for one with some."""
    if not set(map(type, cells)) <= _PLAIN:
        return None
    return [UNDEFINED if cell is None else cell for cell in cells]


def _is_own(expr: AttrRef) -> bool:
    """Whether it is the name of an attribute of the ad: `Name`, or `MY.Name`."""
    scope = expr.scope
    if expr.absolute:
        return False
    return scope is None or (isinstance(scope, AttrRef) and scope.scope is None and scope.key == "my")


def _value(sheet: Sheet, place: int, expr: Expr, now: float) -> Any:
    try:
        return evaluate(expr, sheet[place], None, now)
    except (PackedError, ValueError):
        return ERROR


Number = int | float
_INTEGERS: Final[Mapping[str, tuple[int, int]]] = {
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
}
_GROUP: Final = re.compile(r"\\([0-9])")
#: Attributes that may hold \1, \2, ... of Regex.
_TEXTS: Final = ("name", "desc", "title", "group", "cluster", "units", "aggregategroup", "machine", "ip")
#: Problems that one pass tells of; further ones are most often more of the same.
MOST_PROBLEMS: Final = 1000
#: Of each ad of machines, to tell slot 1.
SLOT_ATTRIBUTES: Final = ("slotid", "dynamicslot")


@dataclass(frozen=True, slots=True)
class Metric:
    """One value, as it is published. lifetime: seconds, DMAX of Ganglia; derivative: its rise is what counts."""

    name: str
    value: Number | str
    type: str  # one of definitions.TYPES
    machine: str
    ip: str  # "" where the ad does not tell
    group: str
    title: str
    desc: str
    units: str
    cluster: str
    derivative: bool
    lifetime: int
    my_type: str  # of the ads it was made of


@dataclass(slots=True)
class Result:
    """What a pass over the pool gave. problems: for a person, the same ones in every pass."""

    metrics: list[Metric] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    def problem(self, text: str) -> None:
        # Each of 100,000 slots may have one of its own.
        if text not in self._told and len(self._told) < MOST_PROBLEMS:
            self._told.add(text)
            self.problems.append(text)


class Problem(Exception):
    """What is wrong with one metric."""


def measure(
    definitions: Sequence[Definition], ads: Mapping[str, Sheet], owners: MetricIdentity, lifetime: int, now: float
) -> Result:
    """All metrics of a pool. ads: by MyType. lifetime: of metrics that name none. now: seconds since 1970.

    Of metrics of one name and machine the first counts, and a name belongs to the group that has it first (MON-16)."""
    result = Result()
    seen: set[tuple[str, str]] = set()
    groups: dict[str, str] = {}
    slots1: dict[str, Sheet] = {}
    for definition in definitions:
        sheets = []
        for my_type, sheet in ads.items():
            if not definition.looks_at(my_type) or not len(sheet):
                continue
            if my_type == "Machine" and definition.slot1_only():
                sheet = slots1.get(my_type) or slots1.setdefault(my_type, slot1(sheet))
            sheets.append((my_type, sheet))
        for metric in _metrics(definition, sheets, owners, lifetime, now, result):
            key = (metric.machine.lower(), metric.name)
            if key in seen:
                result.problem(
                    f"{definition.where}: there is a metric {metric.name} of that machine already; the first counts. "
                    "Give it another Name, or an Aggregate, or let it look at Machine_slot1 only"
                )
            elif groups.setdefault(metric.name, metric.group) != metric.group:
                result.problem(
                    f"{definition.where}: {metric.name} is in group {groups[metric.name]!r} already, and a name "
                    f"belongs to one group; it is left out of {metric.group!r}"
                )
            else:
                seen.add(key)
                result.metrics.append(metric)
    return result


def slot1(sheet: Sheet) -> Sheet:
    """Of the slots of machines the first of each; slots that were carved of it are others."""
    ids, dynamic = (sheet.cells(key) for key in SLOT_ATTRIBUTES)
    places = [
        place for place, (number, carved) in enumerate(zip(ids, dynamic, strict=True)) if number == 1 and not carved
    ]
    return sheet.taken(places)


def _metrics(
    definition: Definition,
    sheets: Sequence[tuple[str, Sheet]],
    owners: MetricIdentity,
    lifetime: int,
    now: float,
    result: Result,
) -> Iterable[Metric]:
    sums: dict[object, _Sum] = {}
    for my_type, sheet in sheets:
        for table, groups, name in _matched(definition, sheet, result):
            work = _Work(definition, my_type, table, groups, name, owners, lifetime, now, result)
            if definition.aggregate:
                work.add_to(sums)
            else:
                yield from work.each()
    for one in sums.values():
        yield from one.metric(result)


def _matched(definition: Definition, sheet: Sheet, result: Result) -> Iterable[tuple[Sheet, tuple[str, ...], str]]:
    """(ads, groups of the regular expression, name of the matched attribute): one for each attribute that matches; all
    ads once where there is no Regex (MON-08)."""
    if definition.regex is None:
        yield sheet, (), ""
        return
    for name in sorted(sheet.names()):
        try:
            groups = _groups(definition.regex, name)
        except RegexError:
            result.problem(f"{definition.where}: Regex takes too long; write it simpler")
            return
        if groups is None:
            continue
        cells = sheet.cells(fold(name))
        table = sheet.taken([place for place, cell in enumerate(cells) if cell is not None])
        table.put("Regex", table.cells(fold(name)))
        yield table, groups, name


def _groups(pattern: Pattern, name: str) -> tuple[str, ...] | None:
    """\\0, \\1, ... of a match; None where there is none."""
    match = pattern.search(encode(name))
    if match is None:
        return None
    return tuple((match.group(number) or b"").decode(errors="replace") for number in range(10))


class _Work:
    """One definition over ads of one type, for one matched attribute if it has a Regex."""

    def __init__(
        self,
        definition: Definition,
        my_type: str,
        sheet: Sheet,
        groups: tuple[str, ...],
        matched: str,
        owners: MetricIdentity,
        lifetime: int,
        now: float,
        result: Result,
    ) -> None:
        self.definition, self.my_type, self.groups, self.matched = definition, my_type, groups, matched
        self.owners, self.lifetime, self.now, self.result = owners, lifetime, now, result
        self.sheet = sheet
        required = definition.exprs.get("requirements")
        if required is not None:
            kept = [place for place, value in enumerate(values(sheet, required, now)) if value is True]
            if len(kept) < len(sheet):
                self.sheet = sheet.taken(kept)
        self.size = len(self.sheet)

    def column(self, key: str) -> list[Any] | None:
        """The values of one of the definition's expressions; None where it has no such one."""
        expr = self.definition.exprs.get(key)
        if expr is None:
            return None
        found = values(self.sheet, expr, self.now)
        if self.groups and key in _TEXTS:
            return [self._filled(value) for value in found]
        return found

    def _filled(self, value: Any) -> Any:
        if not isinstance(value, str) or "\\" not in value:
            return value
        return _GROUP.sub(lambda place: self.groups[int(place[1])], value)

    def names(self) -> list[Any]:
        return self.column(NAME) or [self.matched] * self.size

    def scaled(self) -> list[Any]:
        """Value * Scale (MON-06) of every ad."""
        if VALUE in self.definition.exprs:
            found = values(self.sheet, self.definition.exprs[VALUE], self.now)
        elif self.definition.regex is not None:
            found = values(self.sheet, attr("Regex"), self.now)
        else:
            names = self.names()
            if len(set(map(repr, names))) <= 1:
                found = values(self.sheet, attr(str(names[0])), self.now) if names else []
            else:
                # Ad by ad: each may have another name.
                found = [
                    value_of(self.sheet, place, name, self.now) if isinstance(name, str) else ERROR
                    for place, name in enumerate(names)
                ]
        scales = self.column("scale")
        if scales is None:
            return found
        return [_times(value, scale) for value, scale in zip(found, scales, strict=True)]

    def each(self) -> Iterable[Metric]:
        """A metric for each ad."""
        if not self.size:
            return
        told = self.told()
        for place, value in enumerate(self.scaled()):
            if value is UNDEFINED:
                continue
            try:
                yield told.metric(place, value)
            except Problem as error:
                self.result.problem(f"{self.definition.where}: {error}")

    def add_to(self, sums: dict[object, _Sum]) -> None:
        """Sum up by AggregateGroup, which is the Name where there is none (MON-09)."""
        if not self.size:
            return
        keys = self.column("aggregategroup") or self.names()
        told = self.told()
        for place, (key, value) in enumerate(zip(keys, self.scaled(), strict=True)):
            if value is UNDEFINED or key is UNDEFINED:
                continue
            if key.__class__ not in _GROUPING:
                wrong = "an error" if key is ERROR else f"{key!s:.40}"
                self.result.problem(
                    f"{self.definition.where}: AggregateGroup is {wrong}, and want a string, a number or a boolean"
                )
                continue
            if value.__class__ not in _COUNTED:
                wrong = "an error" if value is ERROR else f"{value!s:.40}, which is no number"
                self.result.problem(f"{self.definition.where}: Value is {wrong}, so it is not in the {self.aggregate}")
                continue
            found = sums.get(key)
            if found is None:
                found = sums[key] = _Sum(told, place)
            found.add(value)

    @property
    def aggregate(self) -> str:
        return self.definition.aggregate

    def told(self) -> _Labels:
        return _Labels(self)


_COUNTED: Final = (int, float, bool)
#: What ads can be grouped by. A list is like no other one.
_GROUPING: Final = (str, *_COUNTED)


class _Labels:
    """What a definition says of its metrics besides their values, evaluated where it is asked for."""

    def __init__(self, work: _Work) -> None:
        self.work = work
        self._columns: dict[str, list[Any] | None] = {}
        self._owners: tuple[list[str], list[str]] | None = None

    def at(self, key: str, place: int) -> Any:
        """UNDEFINED where there is none."""
        if key not in self._columns:
            self._columns[key] = self.work.column(key)
        column = self._columns[key]
        return UNDEFINED if column is None else column[place]

    def text(self, key: str, place: int, otherwise: str) -> str:
        """Raises Problem for what is no text."""
        value = self.at(key, place)
        if value is UNDEFINED:
            return otherwise
        if isinstance(value, str):
            return value
        raise Problem(f"{ATTRIBUTES[key]} is {_shown(value)}, and want a string")

    def metric(self, place: int, value: Any) -> Metric:
        """Raises Problem."""
        work = self.work
        name = self.text(NAME, place, work.matched)
        if not name or len(name) > 500:
            raise Problem(f"Name is {name[:40]!r}: want 1 to 500 characters")
        kind = self.text("type", place, "").lower()
        value, kind = typed(value, kind, work.aggregate)
        machine = self.text("machine", place, "")
        ip = self.text("ip", place, "")
        if not machine:
            machine, default_ip = (
                work.owners.of_collector() if work.aggregate else work.owners.of_ad(work.my_type, work.sheet[place])
            )
            ip = ip or default_ip
        elif not ip:
            ip = work.owners.ip_of(machine, work.sheet[place])
        derivative = self.at("derivative", place)
        return Metric(
            name=name,
            value=value,
            type=kind,
            machine=machine,
            ip=ip,
            group=self.text("group", place, group_of(work.my_type, pool=bool(work.aggregate))),
            title=self.text("title", place, name),
            desc=self.text("desc", place, ""),
            units=self.text("units", place, ""),
            cluster=self.text("cluster", place, "") or work.owners.cluster(work.sheet[place]),
            derivative=derivative is True,
            lifetime=self._lifetime(place),
            my_type=work.my_type,
        )

    def _lifetime(self, place: int) -> int:
        value = self.at("lifetime", place)
        if value is UNDEFINED:
            return self.work.lifetime
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31:
            return value
        raise Problem(f"Lifetime is {_shown(value)}, and want a positive number of seconds")


class _Sum:
    """One group of an aggregate; what is told of it is what its first ad says."""

    def __init__(self, told: _Labels, place: int) -> None:
        self.told, self.place = told, place
        self.count = 0
        self.total: Number = 0
        self.most: Number = -math.inf
        self.least: Number = math.inf

    def add(self, value: Number) -> None:
        self.count += 1
        self.total += value
        if value > self.most:
            self.most = value
        if value < self.least:
            self.least = value

    def metric(self, result: Result) -> Iterable[Metric]:
        kind = self.told.work.aggregate
        found: Number = self.total
        if kind == "avg":
            found = self.total / self.count
        elif kind != "sum":
            found = self.most if kind == "max" else self.least
        if isinstance(found, bool):
            found = int(found)
        try:
            yield self.told.metric(self.place, found)
        except (Problem, OverflowError) as error:
            result.problem(f"{self.told.work.definition.where}: {error}")


def typed(value: Any, kind: str, aggregate: str = "") -> tuple[Number | str, str]:
    """A value in the type it is published in, and that type (MON-07). kind: what is asked for; "" for the default.
    Raises Problem.

    An integer that is too large for its default, int32, is a double. A real number is rounded where an integer is asked
    for: what is summed up or scaled becomes real by that."""
    if isinstance(value, str):
        if kind not in ("", "string"):
            raise Problem(f"Value is the string {value[:40]!r}, and Type {kind} wants a number")
        return value, "string"
    if not isinstance(value, int | float):
        raise Problem(f"Value is {_shown(value)}, and want a number or a string")
    if kind == "":
        if isinstance(value, bool):
            return int(value), "int8"
        if isinstance(value, float):
            return value, "float"
        least, most = _INTEGERS["int32"]
        return (value, "int32") if least <= value <= most else (float(value), "double")
    if kind == "string":
        return str(int(value)) if isinstance(value, bool) else str(value), "string"
    if kind in ("float", "double"):
        return float(value), kind
    bounds = _INTEGERS.get(kind)
    if bounds is None:
        raise Problem(f"Type is {kind[:40]!r}, and there is no such type")
    if not math.isfinite(value):
        raise Problem(f"Value is {value}, which {kind} can not hold; set Type to float or double")
    whole = round(value)
    if not bounds[0] <= whole <= bounds[1]:
        raise Problem(f"Value is {whole}, which {kind} can not hold; set Type to float or double")
    return whole, kind


def group_of(my_type: str, *, pool: bool) -> str:
    """The group of a metric that names none: by the daemon its ad is of; sums belong to the pool."""
    return "HTCondor Pool" if pool else f"HTCondor {_DAEMONS.get(my_type, my_type)}"


_DAEMONS: Final = {
    "Machine": "Startd",
    "Slot": "Startd",
    "StartDaemon": "Startd",
    "Scheduler": "Schedd",
    "Submitter": "Schedd",
    "Accounting": "Negotiator",
    "DaemonMaster": "Master",
}


def _times(value: Any, scale: Any) -> Any:
    if value.__class__ in _COUNTED and scale.__class__ in _COUNTED:
        return value * scale
    if value is UNDEFINED or scale is UNDEFINED:
        return UNDEFINED
    return ERROR


def _shown(value: Any) -> str:
    return "an error" if value is ERROR else f"{value!s:.40}"
