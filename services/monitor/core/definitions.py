"""Reads definitions of metrics from their files: new ClassAds, one for each metric (spec rows MON-01 to MON-09).

A problem in a definition is reported with file and line, and leaves out that definition only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from shared.classad import ClassAd, Expr, ParseError, evaluate
from shared.classad.expr import AttrRef, Literal, fold, walk
from shared.classad.functions.pcre import Pattern, compile_pattern
from shared.classad.parser import Parser

AGGREGATES: Final = ("sum", "avg", "max", "min")
TYPES: Final = ("double", "float", "int32", "uint32", "int16", "uint16", "int8", "uint8", "string")
#: Folded name -> as HTCondor's manual writes it.
ATTRIBUTES: Final[Mapping[str, str]] = {
    fold(name): name
    for name in (
        *("Name", "Value", "Desc", "Verbosity", "TargetType", "Requirements", "Title", "Group", "Cluster", "Units"),
        *("Scale", "Derivative", "Type", "Regex", "Aggregate", "AggregateGroup", "Machine", "IP", "Lifetime"),
    )
}
#: They say what a definition is, so they can not depend on the ad that is looked at.
FIXED: Final = ("verbosity", "targettype", "regex", "aggregate")
NAME: Final = "name"
VALUE: Final = "value"
ANY: Final = "any"
SLOT1: Final = "machine_slot1"
MACHINE: Final = "machine"
#: Spellings of MyType, for who writes `machine`.
_SPELT: Final = {
    fold(name): name
    for name in (
        *("Machine", "Slot", "StartDaemon", "Scheduler", "Submitter", "Negotiator", "Collector", "Accounting"),
        *("DaemonMaster", "HAD", "Journal"),
    )
}
_COMMENT: Final = re.compile(r"(?m)^[ \t]*#.*$")


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. exprs: by folded attribute; targets: folded words of TargetType, none for ANY."""

    where: str  # its file and line, for a person
    exprs: Mapping[str, Expr]
    targets: frozenset[str] = frozenset()
    verbosity: int = 0
    aggregate: str = ""  # one of AGGREGATES, or none
    regex: Pattern | None = None
    my_types: tuple[str, ...] = ()  # of the ads it looks at; none: all

    def slot1_only(self) -> bool:
        """Whether of machines it looks at slot 1 only (MON-04)."""
        return SLOT1 in self.targets and MACHINE not in self.targets

    def looks_at(self, my_type: str) -> bool:
        return not self.my_types or fold(my_type) in {fold(one) for one in self.my_types}

    def needs(self) -> frozenset[str] | None:
        """The attributes (folded) that it reads of an ad; None: they are not known before the ad is."""
        if self.regex is not None or (VALUE not in self.exprs and not isinstance(self.exprs[NAME], Literal)):
            return None
        found = {node.key for expr in self.exprs.values() for node in walk(expr) if isinstance(node, AttrRef)}
        if VALUE not in self.exprs:
            name = self.exprs[NAME]
            assert isinstance(name, Literal)
            found.add(fold(str(name.value)))
        return frozenset(found)


@dataclass(slots=True)
class Read:
    """What files came to. problems: for a person, each with its place; of definitions left out, and of odd ones."""

    definitions: list[Definition] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read(files: Iterable[tuple[str, str]]) -> Read:
    """The definitions of files, given as (name, text) in their order."""
    found = Read()
    for name, text in files:
        _read_file(name, text, found)
    return found


def _read_file(file: str, text: str, found: Read) -> None:
    text = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
    starts = _line_starts(text)
    parser: Parser | None = Parser(text)
    while parser is not None and not parser.at_end():
        line = parser.line()
        where = f"{file}, line {line}"
        try:
            node = parser.whole_ad()
        except ParseError as error:
            found.problems.append(f"{file}, {error}; the definition that begins in line {line} is left out")
            parser = _next_ad(text, starts, max(line + 1, error.line))
            continue
        exprs = {key: expr for key, (_, expr) in node.attrs.items()}
        unknown = [name for key, (name, _) in node.attrs.items() if key not in ATTRIBUTES]
        if unknown:
            known = ", ".join(ATTRIBUTES.values())
            found.problems.append(f"{where}: nothing goes by {', '.join(unknown)}; a metric has {known}")
        definition = _definition(where, {key: expr for key, expr in exprs.items() if key in ATTRIBUTES})
        if isinstance(definition, str):
            found.problems.append(f"{where}: {definition}; the definition is left out")
        else:
            found.definitions.append(definition)
        while parser.accept(",") or parser.accept(";"):
            pass


def _next_ad(text: str, starts: list[int], line: int) -> Parser | None:
    """Where reading goes on behind what can not be read: at the next line that begins with a bracket."""
    for start in starts[line - 1 :]:
        if text[start:].lstrip(" \t").startswith("["):
            return Parser(text, start=start)
    return None


def _line_starts(text: str) -> list[int]:
    return [0, *(place.end() for place in re.finditer("\n", text))]


def _definition(where: str, exprs: Mapping[str, Expr]) -> Definition | str:
    """The definition, or what is wrong with it."""
    fixed: dict[str, object] = {}
    for key in FIXED:
        if key in exprs:
            if any(isinstance(node, AttrRef) for node in walk(exprs[key])):
                return f"{ATTRIBUTES[key]} names an attribute; it is the same for all ads, so want a constant"
            fixed[key] = evaluate(exprs[key], ClassAd())
    verbosity = fixed.get("verbosity", 0)
    if not isinstance(verbosity, int) or isinstance(verbosity, bool):
        return "Verbosity: want an integer"
    for key in ("targettype", "regex", "aggregate"):
        if not isinstance(fixed.get(key, ""), str):
            return f"{ATTRIBUTES[key]}: want a string"
    targets = [word.strip() for word in str(fixed.get("targettype", "")).split(",") if word.strip()]
    folded = frozenset(map(fold, targets))
    my_types = () if ANY in folded else tuple(dict.fromkeys(map(_my_type, targets)))
    aggregate = str(fixed.get("aggregate", "")).lower()
    if aggregate and aggregate not in AGGREGATES:
        return f"Aggregate = {aggregate[:40]!r}: want one of {', '.join(AGGREGATES)}"
    pattern = None
    if "regex" in fixed:
        pattern = compile_pattern(str(fixed["regex"]), "i")  # names of attributes are alike in either case
        if pattern is None:
            return f"Regex = {str(fixed['regex'])[:80]!r}: this is no regular expression"
    kind = exprs.get("type")
    if isinstance(kind, Literal) and (not isinstance(kind.value, str) or kind.value.lower() not in TYPES):
        return f"Type = {str(kind.value)[:40]!r}: want one of {', '.join(TYPES)}"
    if pattern is None and NAME not in exprs:
        return "it has no Name"
    return Definition(where, exprs, frozenset() if ANY in folded else folded, verbosity, aggregate, pattern, my_types)


def _my_type(word: str) -> str:
    key = fold(word)
    return "Machine" if key == SLOT1 else _SPELT.get(key, word)


def published(definitions: Iterable[Definition], verbosity: int, *, per_node: bool) -> list[Definition]:
    """Those that are published: up to a verbosity (MON-03); without per_node none that looks at machines only and sums
    nothing up (MON-15)."""
    return [
        one
        for one in definitions
        if one.verbosity <= verbosity
        and (per_node or one.aggregate or not one.my_types or not set(one.my_types) <= NODE_TYPES)
    ]


#: MyType of ads of execution points, of which a pool has thousands.
NODE_TYPES: Final = frozenset(("Machine", "Slot", "StartDaemon"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the collector is asked for ads of one type ("" for all types). attributes: folded; None: whole ads."""

    my_type: str
    attributes: frozenset[str] | None
    slot1: bool  # of machines slot 1 is enough


def wanted(definitions: Iterable[Definition]) -> list[Wanted]:
    """The questions that get all ads that these definitions look at, and no attribute more than they read."""
    definitions = list(definitions)
    if any(not one.my_types for one in definitions):
        types: list[str] = [""]
    else:
        types = sorted({my_type for one in definitions for my_type in one.my_types})
    found = []
    for my_type in types:
        mine = [one for one in definitions if not my_type or my_type in one.my_types]
        needs = [one.needs() for one in mine]
        attributes = None if None in needs else frozenset[str]().union(*(one for one in needs if one is not None))
        slot1 = my_type == "Machine" and all(one.slot1_only() for one in mine)
        found.append(Wanted(my_type, attributes, slot1))
    return found
