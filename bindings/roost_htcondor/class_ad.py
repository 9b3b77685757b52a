"""Ads and expressions as classad2 has them, over shared.classad."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Self

from roost_htcondor.ad_values import ClassAdParseError, Value, expr_of
from shared.classad import ClassAd as PoolAd
from shared.classad import (
    ParseError,
    evaluate,
    flatten,
    half_match,
    parse_ad,
    parse_expr,
    references,
    symmetric_match,
    to_json,
    unparse,
    unparse_old,
)
from shared.classad.ad import cell_of
from shared.classad.cells import as_expr, simplest
from shared.classad.expr import AdExpr, Expr, ListExpr, Literal
from shared.classad.functions.pretty import pretty
from shared.classad.unparse import attribute_order
from shared.classad.values import ERROR, UNDEFINED


class ExprTree:
    """An expression that is not evaluated yet. It does not change.

    expr: its text, another ExprTree, a value, or None for undefined. Raises ClassAdException where the text is none.
    """

    __slots__ = ("_expr",)

    def __init__(self, expr: Any = None) -> None:
        self._expr: Expr = _parsed(expr) if isinstance(expr, str) else expr_of(expr)

    @classmethod
    def _of(cls, expr: Expr) -> Self:
        tree = cls.__new__(cls)
        tree._expr = expr
        return tree

    def eval(self, scope: ClassAd | None = None, target: ClassAd | None = None) -> Any:
        """Its value, with the names of `scope` and, behind TARGET., of `target`. The items of a list come as they are
        written, which for anything but constants is as an ExprTree."""
        kind = ClassAd if scope is None else type(_checked(scope, "scope"))
        return kind._python(self._value(scope, target), type(self))

    def simplify(self, scope: ClassAd | None = None, target: ClassAd | None = None) -> ExprTree:
        """Its value as an ExprTree."""
        return type(self)._of(as_expr(cell_of(self._value(scope, target))))

    def _value(self, scope: ClassAd | None, target: ClassAd | None) -> Any:
        my = None if scope is None else _checked(scope, "scope")._ad
        return evaluate(self._expr, my, None if target is None else _checked(target, "target")._ad)

    def __eq__(self, other: object) -> Any:
        """Whether both are written alike."""
        if not isinstance(other, ExprTree):
            return NotImplemented
        return unparse(self._expr) == unparse(other._expr)

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return unparse(self._expr)

    def __repr__(self) -> str:
        return unparse(self._expr)

    def __reduce__(self) -> tuple[Any, ...]:
        return _tree_from, (type(self), PoolAd({"e": self._expr}).pack())


class ClassAd(MutableMapping[str, Any]):
    """A mapping of attributes, whose names are the same in any case.

    input: the text of an ad in new syntax, or a mapping. `ad[name]` is the value of a constant, and an ExprTree of
    anything else, which `eval` evaluates. Raises ClassAdException where the text is no ad.
    """

    __slots__ = ("_ad",)
    #: Of what class the expressions are that it gives.
    _tree: ClassVar[type[ExprTree]] = ExprTree

    def __init__(self, input: str | Mapping[str, Any] | None = None) -> None:
        if input is None:
            self._ad = PoolAd()
        elif isinstance(input, str):
            try:
                self._ad = parse_ad(input)
            except ParseError as error:
                raise ClassAdParseError(f"The text is no ad: {error}") from None
        elif isinstance(input, Mapping):
            self._ad = PoolAd()
            self.update(input)
        else:
            raise TypeError("a ClassAd is made of None, a str or a dict")

    @classmethod
    def _of(cls, ad: PoolAd) -> Self:
        made = cls.__new__(cls)
        made._ad = ad
        return made

    def _expr(self) -> Expr:
        """This ad inside another one."""
        return as_expr(cell_of(self._ad))

    @classmethod
    def _python(cls, value: Any, tree: type[ExprTree] | None = None) -> Any:
        """Python's value of one of shared.classad, or of an expression."""
        tree = tree or cls._tree
        if isinstance(value, Literal):
            value = value.value
        if isinstance(value, PoolAd):
            return cls._of(value)
        if isinstance(value, AdExpr):
            return cls._of(PoolAd.of(value))
        if isinstance(value, ListExpr):
            return [cls._python(item, tree) for item in value.items]
        if isinstance(value, Expr):
            return tree._of(value)
        if isinstance(value, list):
            source = getattr(value, "source", None)
            return [cls._python(item, tree) for item in (value if source is None else source)]
        if isinstance(value, datetime.datetime):
            return value.astimezone(datetime.UTC)
        if isinstance(value, datetime.timedelta):
            return value.total_seconds()
        if value is UNDEFINED:
            return Value.Undefined
        return Value.Error if value is ERROR else value

    # The mapping

    def __getitem__(self, key: str) -> Any:
        return self._python(self._lookup(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._ad[_name(key)] = simplest(expr_of(value))

    def __delitem__(self, key: str) -> None:
        del self._ad[_name(key)]

    def __contains__(self, key: object) -> bool:
        return _name(key) in self._ad

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._ad, key=attribute_order))

    def __len__(self) -> int:
        return len(self._ad)

    def __eq__(self, other: object) -> bool:
        return self._ad == other._ad if isinstance(other, ClassAd) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _lookup(self, key: str) -> Expr:
        expr = self._ad.lookup(_name(key))
        if expr is None:
            raise KeyError(key)
        return expr

    # The language

    def lookup(self, attr: str) -> ExprTree:
        """The expression of an attribute, of a constant too. Raises KeyError."""
        return self._tree._of(self._lookup(attr))

    def eval(self, attr: str) -> Any:
        """The value of an attribute. Raises KeyError."""
        self._lookup(attr)
        return self._python(self._ad.eval(attr))

    def flatten(self, expr: ExprTree) -> Any:
        """What is left of an expression when this ad is known: a value, or an ExprTree."""
        return self._python(simplest(flatten(_tree_checked(expr), self._ad)))

    def externalRefs(self, expr: ExprTree) -> list[str]:
        """The names in an expression that this ad does not have."""
        return references(_tree_checked(expr), my=self._ad).external

    def internalRefs(self, expr: ExprTree) -> list[str]:
        """The names in an expression that this ad has."""
        return sorted(references(_tree_checked(expr), my=self._ad).internal, key=str.lower)

    def matches(self, ad: ClassAd) -> bool:
        """Whether the Requirements of `ad` are true with this ad as TARGET."""
        return half_match(_checked(ad, "ad")._ad, self._ad)

    def symmetricMatch(self, ad: ClassAd) -> bool:
        """Whether the Requirements of both are true."""
        return symmetric_match(self._ad, _checked(ad, "ad")._ad)

    # Texts

    def printOld(self) -> str:
        """The ad in old syntax: a line for each attribute. Of an ad without any it is an empty line."""
        return unparse_old(self._ad) or "\n"

    def printJson(self) -> str:
        """The ad as a JSON object."""
        return to_json(self._ad)

    formatOld = printOld
    formatJson = printJson

    def __str__(self) -> str:
        return pretty(self._expr())

    def __repr__(self) -> str:
        return unparse(self._ad)

    def __reduce__(self) -> tuple[Any, ...]:
        return _ad_from, (type(self), self._ad.pack())

    def __copy__(self) -> ClassAd:
        return type(self)._of(self._ad.copy())

    def __deepcopy__(self, memo: object) -> ClassAd:
        return self.__copy__()  # attributes do not change, they are assigned anew


def _ad_from(kind: type[ClassAd], packed: bytes) -> ClassAd:
    return kind._of(PoolAd.unpack(packed))


def _tree_from(kind: type[ExprTree], packed: bytes) -> ExprTree:
    expr = PoolAd.unpack(packed).lookup("e")
    assert expr is not None
    return kind._of(expr)


def _parsed(text: str) -> Expr:
    try:
        return parse_expr(text)
    except ParseError as error:
        raise ClassAdParseError(f"The text is no expression: {error}") from None


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError("the keys of a ClassAd are strings")
    return key


def _checked(ad: ClassAd, what: str) -> ClassAd:
    if not isinstance(ad, ClassAd):
        raise TypeError(f"{what} must be a ClassAd")
    return ad


def _tree_checked(expr: ExprTree) -> Expr:
    if not isinstance(expr, ExprTree):
        raise TypeError("expr must be an ExprTree")
    return expr._expr
