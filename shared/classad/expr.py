"""Expression trees: immutable, shareable, and simple enough for a compiler to switch on.

Every node has a class attribute `kind` (one of the small integers below) and slots only. Nodes are never
changed after they are built, so one tree may hang in any number of ads, threads and caches; they compare by
identity. `AttrRef` nodes without a scope are interned, so equal names are one object.

An operator is its new-syntax spelling, with two exceptions that have two spellings: IS (`is`, `=?=`) and
ISNT (`isnt`, `=!=`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from shared.classad.values import Value

LITERAL: Final = 0
ATTR: Final = 1
UNARY: Final = 2
BINARY: Final = 3
TERNARY: Final = 4
ELVIS: Final = 5
PARENS: Final = 6
SUBSCRIPT: Final = 7
CALL: Final = 8
LIST: Final = 9
AD: Final = 10

#: The name, folded, that stands for time() wherever no ad has an attribute of that name: it comes from old ClassAds.
CURRENT_TIME: Final = "currenttime"

IS: Final = "=?="
ISNT: Final = "=!="

# Binding strength of the binary operators, loosest first (manual: "Expression Operators").
PRECEDENCE: Final[dict[str, int]] = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5,
    "==": 6, "!=": 6, IS: 6, ISNT: 6,
    "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, ">>>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip


class Expr:
    """Base of all nodes."""

    __slots__ = ()
    kind: ClassVar[int] = -1

    def children(self) -> tuple[Expr, ...]:
        return ()

    def __str__(self) -> str:
        from shared.classad.unparse import unparse  # the printer knows the nodes, not the other way round

        return unparse(self)

    def __repr__(self) -> str:
        text = str(self)
        return f"<Expr {text if len(text) < 200 else text[:197] + '...'}>"


class Literal(Expr):
    """A constant: any value but a list or an ad."""

    __slots__ = ("value",)
    kind = LITERAL

    def __init__(self, value: Value) -> None:
        self.value: Final = value


class Interval(Literal):
    """`relTime("...")` of a literal text: a real number of seconds that is printed as it was written."""

    __slots__ = ()

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)

    @property
    def seconds(self) -> float:
        assert isinstance(self.value, float)
        return self.value


class AttrRef(Expr):
    """`name`, `.name` (absolute: looked up in the outermost ad) or `scope.name`. `key` is the folded name."""

    __slots__ = ("absolute", "key", "name", "scope")
    kind = ATTR

    def __init__(self, name: str, scope: Expr | None = None, absolute: bool = False) -> None:
        self.name: Final = name
        self.key: Final = fold(name)
        self.scope: Final = scope
        self.absolute: Final = absolute

    def children(self) -> tuple[Expr, ...]:
        return () if self.scope is None else (self.scope,)


class Unary(Expr):
    """`-x`, `+x`, `!x`, `~x`."""

    __slots__ = ("op", "operand")
    kind = UNARY

    def __init__(self, op: str, operand: Expr) -> None:
        self.op: Final = op
        self.operand: Final = operand

    def children(self) -> tuple[Expr, ...]:
        return (self.operand,)


class Binary(Expr):
    """`left op right`; op is a key of PRECEDENCE."""

    __slots__ = ("left", "op", "right")
    kind = BINARY

    def __init__(self, op: str, left: Expr, right: Expr) -> None:
        self.op: Final = op
        self.left: Final = left
        self.right: Final = right

    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


class Ternary(Expr):
    """`condition ? then : otherwise`."""

    __slots__ = ("condition", "otherwise", "then")
    kind = TERNARY

    def __init__(self, condition: Expr, then: Expr, otherwise: Expr) -> None:
        self.condition: Final = condition
        self.then: Final = then
        self.otherwise: Final = otherwise

    def children(self) -> tuple[Expr, ...]:
        return (self.condition, self.then, self.otherwise)


class Elvis(Expr):
    """`left ?: right`: left unless it is UNDEFINED."""

    __slots__ = ("left", "right")
    kind = ELVIS

    def __init__(self, left: Expr, right: Expr) -> None:
        self.left: Final = left
        self.right: Final = right

    def children(self) -> tuple[Expr, ...]:
        return (self.left, self.right)


class Parens(Expr):
    """`(inner)`: kept, because expressions are printed as they were written."""

    __slots__ = ("inner",)
    kind = PARENS

    def __init__(self, inner: Expr) -> None:
        self.inner: Final = inner

    def children(self) -> tuple[Expr, ...]:
        return (self.inner,)


class Subscript(Expr):
    """`base[index]`: list[integer] or ad["name"]."""

    __slots__ = ("base", "index")
    kind = SUBSCRIPT

    def __init__(self, base: Expr, index: Expr) -> None:
        self.base: Final = base
        self.index: Final = index

    def children(self) -> tuple[Expr, ...]:
        return (self.base, self.index)


class Call(Expr):
    """`name(args...)`. `key` is the folded name; whether such a function exists is decided at evaluation."""

    __slots__ = ("args", "key", "name")
    kind = CALL

    def __init__(self, name: str, args: tuple[Expr, ...]) -> None:
        self.name: Final = name
        self.key: Final = fold(name)
        self.args: Final = args

    def children(self) -> tuple[Expr, ...]:
        return self.args


class ListExpr(Expr):
    """`{ a, b, ... }`."""

    __slots__ = ("items",)
    kind = LIST

    def __init__(self, items: tuple[Expr, ...]) -> None:
        self.items: Final = items

    def children(self) -> tuple[Expr, ...]:
        return self.items


class AdExpr(Expr):
    """`[ name = expr; ... ]`. `attrs` maps the folded name to (name as first spelled, expression)."""

    __slots__ = ("attrs",)
    kind = AD

    def __init__(self, attrs: dict[str, tuple[str, Expr]]) -> None:
        self.attrs: Final = attrs  # owned by this node, never changed afterwards

    def children(self) -> tuple[Expr, ...]:
        return tuple(expr for _, expr in self.attrs.values())


FOLDED: Final[dict[str, str]] = {}
_PLAIN: Final[dict[str, AttrRef]] = {}
_CACHE_LIMIT: Final = 20_000  # names, so that hostile input can not fill the memory
_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def fold(name: str) -> str:
    """The key under which `name` is stored: ASCII letters in lower case, nothing else changed."""
    key = FOLDED.get(name)
    if key is None:
        key = name.lower() if name.isascii() else name.translate(_ASCII_LOWER)
        if len(FOLDED) < _CACHE_LIMIT and len(name) < 200:
            FOLDED[name] = key
    return key


def attr(name: str) -> AttrRef:
    """The interned unscoped reference to `name`."""
    ref = _PLAIN.get(name)
    if ref is None:
        ref = AttrRef(name)
        if len(_PLAIN) < _CACHE_LIMIT and len(name) < 200:
            _PLAIN[name] = ref
    return ref


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of the tree, each before its children; safe for trees of any depth."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children()))


def conjuncts(expr: Expr) -> Iterator[Expr]:
    """What must be true, each, that an expression is."""
    left = [expr]
    while left:
        one = left.pop()
        if isinstance(one, Parens):
            left.append(one.inner)
        elif isinstance(one, Binary) and one.op == "&&":
            left += (one.right, one.left)
        else:
            yield one
