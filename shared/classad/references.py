"""Which attributes an expression depends on, in which ad; what jobs must agree in to be one autocluster.

Attributes that an ad defines by expressions are followed into these. Names that only come to be while evaluating
(`eval("...")`, a subscript by name) can not be seen. Cost is linear in the size of the expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from shared.classad.ad import ClassAd
from shared.classad.cells import PackedError, parse_text
from shared.classad.expr import CURRENT_TIME, AdExpr, AttrRef, Call, Expr, fold, walk

_MY: Final = frozenset(("my", "self"))
_OTHER: Final = frozenset(("target", "other"))
_OUTERMOST: Final = frozenset(("root", "toplevel"))
MACHINE_EXPRESSIONS: Final = ("Requirements", "Rank")
#: Calls whose value is not decided by the attributes that can be seen.
_UNSEEN: Final = frozenset(
    ("random", "time", "currenttime", "debug", "eval", "unparse", "unresolved", "evalineachcontext", "countmatches")
)
_named: dict[bytes, frozenset[str]] = {}  # by the text of an expression
_MOST_NAMED: Final = 20_000


@dataclass(frozen=True, slots=True)
class References:
    """Names by the ad they are looked up in, each as first spelled.

    internal: attributes that the ad has; missing: `MY.name` that it does not have; target: `TARGET.name`;
    unscoped: bare names that the ad does not have, so that they are looked up in the other ad; nested: selections
    such as `q.z` from something that is not known, in full.
    """

    internal: frozenset[str]
    missing: frozenset[str]
    target: frozenset[str]
    unscoped: frozenset[str]
    nested: frozenset[str]

    @property
    def external(self) -> list[str]:
        """What the ad does not define, sorted, with TARGET. in front where it was written."""
        names = self.missing | self.unscoped | self.nested | {f"TARGET.{name}" for name in self.target}
        return sorted(names, key=fold)

    @property
    def other(self) -> frozenset[str]:
        """The attributes of the other ad that the expression asks for."""
        return self.target | self.unscoped


class _Collector:
    def __init__(self, my: ClassAd | None) -> None:
        self.my = my
        self.found: dict[str, dict[str, str]] = {
            kind: {} for kind in ("internal", "missing", "target", "unscoped", "nested")
        }
        self._todo: list[tuple[Expr, frozenset[str]]] = []

    def collect(self, expr: Expr) -> None:
        self._todo.append((expr, frozenset()))
        while self._todo:
            node, local = self._todo.pop()
            if isinstance(node, AttrRef):
                self._reference(node, local)
            elif isinstance(node, AdExpr):
                inside = local | node.attrs.keys()
                self._todo.extend((value, inside) for _, value in node.attrs.values())
            else:
                self._todo.extend((child, local) for child in node.children())

    def _reference(self, node: AttrRef, local: frozenset[str]) -> None:
        scope = node.scope
        if scope is None:
            if node.absolute or node.key not in local:
                self._name(node.name, "unscoped")
            return
        word = scope.key if isinstance(scope, AttrRef) and scope.scope is None and not scope.absolute else ""
        if word in local or (word and self._has(word)):
            self._todo.append((scope, local))
        elif word in _MY or word in _OUTERMOST:
            if word in _OUTERMOST or node.key not in local:
                self._name(node.name, "missing")
        elif word in _OTHER:
            self._add("target", node.name)
        elif word and word != "parent":
            self._add("nested", f"{word_of(scope)}.{node.name}")
            self._add("unscoped", word_of(scope))
        elif not word:
            self._todo.append((scope, local))

    def _has(self, key: str) -> bool:
        return self.my is not None and self.my.find(key) is not None

    def _name(self, name: str, absent: str) -> None:
        key = fold(name)
        cell = None if self.my is None else self.my.find(key)
        if cell is None:
            if key not in _MY | _OTHER | _OUTERMOST | {"parent", CURRENT_TIME}:
                self._add(absent, name)
        elif key not in self.found["internal"]:
            self.found["internal"][key] = name
            if isinstance(cell, Expr):
                self._todo.append((cell, frozenset()))

    def _add(self, kind: str, name: str) -> None:
        self.found[kind].setdefault(fold(name), name)

    def result(self) -> References:
        return References(**{kind: frozenset(names.values()) for kind, names in self.found.items()})


def word_of(scope: Expr) -> str:
    """The name of an unscoped reference."""
    assert isinstance(scope, AttrRef)
    return scope.name


def references(*exprs: Expr, my: ClassAd | None = None) -> References:
    """What the expressions depend on, with `my` (if given) as the ad around them."""
    collector = _Collector(my)
    for expr in exprs:
        collector.collect(expr)
    return collector.result()


def closure(keys: Iterable[str], cell_of: Callable[[str], Any], cells: Iterable[Any] = ()) -> set[str]:
    """These attributes (folded names) of an ad and all that they need to have their values in a smaller ad: what their
    expressions name, and so on. cell_of: what the ad has under a folded name, texts of expressions packed or not, None
    for nothing; names that the ad lacks are among the result. cells: more of the ad, which name attributes too."""
    found = set(keys).union(*map(_names_in, cells))
    todo = list(found)
    while todo:
        cell = cell_of(todo.pop())
        if cell.__class__ in _CONSTANT:
            continue
        fresh = _names_in(cell) - found
        found |= fresh
        todo.extend(fresh)
    return found


_CONSTANT: Final = frozenset((str, int, float, bool, type(None)))


def _names_in(cell: Any) -> frozenset[str]:
    """What an expression names, but for the other ad's; nothing where it can not be read."""
    if isinstance(cell, Expr):
        return _named_by(cell)
    data = getattr(cell, "data", None)
    if not isinstance(data, bytes):
        return frozenset()
    known = _named.get(data)
    if known is None:
        try:
            found = parse_text(data)
        except PackedError:
            return frozenset()
        known = _named_by(found) if isinstance(found, Expr) else frozenset()
        if len(data) < 4096:
            if len(_named) >= _MOST_NAMED:
                _named.clear()
            _named[data] = known
    return known


def _named_by(expr: Expr) -> frozenset[str]:
    refs = references(expr)
    return frozenset(map(fold, refs.missing | refs.unscoped))


def decided_by(expr: Expr) -> frozenset[str] | None:
    """The attributes (folded names) that alone decide the value of an expression, where no other ad is there; None
    where that can not be seen, or chance and the clock have a part in it."""
    for node in walk(expr):
        if (isinstance(node, Call) and node.key in _UNSEEN) or (isinstance(node, AttrRef) and node.key == CURRENT_TIME):
            return None
    refs = references(expr)
    return None if refs.target or refs.nested else _named_by(expr)


def other_references(ad: ClassAd, names: Iterable[str]) -> frozenset[str]:
    """The attributes of the other ad that the attributes `names` of `ad` ask for."""
    exprs = [expr for name in names if (expr := ad.lookup(name)) is not None]
    return references(*exprs, my=ad).other


def significant_attributes(
    machines: Iterable[ClassAd],
    policies: Iterable[Expr] = (),
    machine_expressions: Iterable[str] = MACHINE_EXPRESSIONS,
) -> frozenset[str]:
    """The job attributes that decide where a job may run, as seen from the pool.

    They are those that the machines' expressions ask of the job, and those that `policies` (the negotiator's
    preemption and rank expressions, in which TARGET is the job) name at all. Machines with equal texts cost one.
    """
    names = tuple(machine_expressions)
    seen: set[tuple[str | None, ...]] = set()
    found: dict[str, str] = {}
    for machine in machines:
        exprs = [expr for name in names if (expr := machine.lookup(name)) is not None]
        refs = references(*exprs, my=machine)
        shape = tuple(machine.text(name) for name in sorted({*names, *refs.internal}))
        if shape not in seen:
            seen.add(shape)
            for name in refs.other:
                found.setdefault(fold(name), name)
    for name in references(*policies).other:
        found.setdefault(fold(name), name)
    return frozenset(found.values())
