"""What the collector knows of an ad by itself and adds to it, and constraints that ask for that.

It changes with every message, and is the same for all ads of a daemon. So the part of a constraint that asks for
nothing else is decided once for each daemon, not for each ad.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from shared.classad import ClassAd, Expr, evaluate
from shared.classad.expr import AttrRef, Binary, Call, Literal, Parens, Unary, conjuncts, walk
from shared.classad.match import is_true
from shared.daemon.ad_rows import pack_one
from shared.daemon.ad_table import Group

_ADDED: Final[dict[str, Callable[[Group], Any]]] = {
    "MyType": lambda group: group.my_type,
    "LastHeardFrom": lambda group: int(group.heard),
    "DaemonStartTime": lambda group: group.start_time,
    "UpdateSequenceNumber": lambda group: group.sequence,
    "UpdatesTotal": lambda group: group.received + group.lost,
    "UpdatesLost": lambda group: group.lost,
}
_FOLDED: Final = frozenset(map(str.lower, _ADDED))
#: Not in the columns.
OVERLAID: Final = _FOLDED | {"updatessequenced"}


def end_of(group: Group | None) -> bytes:
    """What is added to the ads of a group whatever the projection, packed; empty where the group has gone."""
    if group is None:
        return b""
    return b"".join(map(pack_one, ("MyType", group.my_type, "LastHeardFrom", int(group.heard))))


def overlay_of(group: Group) -> dict[str, Any]:
    """What the collector knows of an ad by itself; an ad's own attributes of these names are not seen."""
    return {name: read(group) for name, read in _ADDED.items()}


#: What has a column of its own in a page of columns, where it is asked for, beside what all pages have.
LISTED: Final = _FOLDED - {"mytype", "lastheardfrom"}


def listed_of(
    groups: Mapping[str, Group | None], daemons: Sequence[str], asked: Collection[str]
) -> list[tuple[str, list[Any]]]:
    """Columns of what is added to ads. daemons: of each ad; a cell is None where its group has gone. asked: names in
    lower case."""
    found = []
    for name, read in _ADDED.items():
        if name.lower() in asked and name.lower() in LISTED:
            values = {daemon: None if group is None else read(group) for daemon, group in groups.items()}
            found.append((name, [values[daemon] for daemon in daemons]))
    return found


class OfGroups:
    """The part of a constraint that is the same for all ads of a daemon."""

    def __init__(self, conditions: Iterable[Expr], now: float) -> None:
        """conditions: each must be true; see parted. now: s since 1970."""
        self._conditions = list(conditions)
        named = {node.key for one in self._conditions for node in walk(one) if isinstance(node, AttrRef)}
        self._read = [(name, read) for name, read in _ADDED.items() if name.lower() in named]
        self._now = now
        self._known: dict[tuple[Any, ...], bool] = {}

    def true_of(self, group: Group) -> bool:
        """Raises TooExpensive."""
        values = tuple(read(group) for _, read in self._read)
        found = self._known.get(values)
        if found is None:  # many were heard of in the same second
            ad = ClassAd({name: value for (name, _), value in zip(self._read, values, strict=True)})
            found = all(is_true(evaluate(one, ad, None, self._now)) for one in self._conditions)
            self._known[values] = found
        return found


def parted(constraint: Expr) -> tuple[Expr | None, list[Expr]]:
    """What of it depends on ads (None: nothing), and what must be true of their daemons: together they are true where
    it is."""
    own: list[Expr] = []
    others: list[Expr] = []
    for one in conjuncts(constraint):
        (others if _of_groups(one) else own).append(one)
    if not others:
        return constraint, []
    return (reduce(lambda left, right: Binary("&&", left, right), own) if own else None), others


def _of_groups(condition: Expr) -> bool:
    """Whether nothing but what the collector adds decides it. A function may look at more than it names (eval)."""
    asks = False
    for node in walk(condition):
        if isinstance(node, AttrRef):
            if node.key not in _FOLDED or node.scope is not None:
                return False
            asks = True
        elif isinstance(node, Call):
            if node.key != "time" or node.args:
                return False
        elif not isinstance(node, Literal | Binary | Unary | Parens):
            return False
    return asks
