"""What the older module classad has besides: expressions that Python's operators make, and functions in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roost_htcondor import class_ad
from roost_htcondor.ad_values import (
    ClassAdEvaluationError,
    ClassAdParseError,
    ClassAdTypeError,
    ClassAdValueError,
    Value,
    expr_of,
)
from shared.classad import ParseError, parse_ad
from shared.classad.expr import IS, ISNT, AdExpr, Binary, Call, Elvis, Expr, ListExpr, Parens, Ternary, attr
from shared.classad.functions import FUNCTIONS
from shared.classad.functions import Function as Builtin


def _operand(value: Any) -> Expr:
    try:
        expr = expr_of(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ClassAdTypeError(f"{value!r} can not stand in an expression: {error}") from None
    return Parens(expr) if isinstance(expr, Binary | Ternary | Elvis) else expr


def _operator(op: str, *, swapped: bool = False) -> Callable[[ExprTree, Any], ExprTree]:
    def method(self: ExprTree, other: Any) -> ExprTree:
        left, right = _operand(self), _operand(other)
        return ExprTree._of(Binary(op, *((right, left) if swapped else (left, right))))

    return method


class ExprTree(class_ad.ExprTree):
    """An expression. Operators with Python's values and other expressions make new ones; `==` does too, so
    `sameAs` compares."""

    __slots__ = ()

    __add__, __radd__ = _operator("+"), _operator("+", swapped=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", swapped=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", swapped=True)
    __truediv__, __rtruediv__ = _operator("/"), _operator("/", swapped=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", swapped=True)
    __and__, __rand__ = _operator("&"), _operator("&", swapped=True)
    __or__, __ror__ = _operator("|"), _operator("|", swapped=True)
    __xor__, __rxor__ = _operator("^"), _operator("^", swapped=True)
    __lshift__, __rlshift__ = _operator("<<"), _operator("<<", swapped=True)
    __rshift__, __rrshift__ = _operator(">>"), _operator(">>", swapped=True)
    __lt__, __le__, __gt__, __ge__ = _operator("<"), _operator("<="), _operator(">"), _operator(">=")
    __eq__, __ne__ = _operator("=="), _operator("!=")  # type: ignore[assignment]
    __hash__ = None
    and_, or_ = _operator("&&"), _operator("||")
    is_, isnt_ = _operator(IS), _operator(ISNT)

    def sameAs(self, expr: class_ad.ExprTree) -> bool:
        """Whether both are written alike."""
        return bool(class_ad.ExprTree.__eq__(self, expr))

    def __getitem__(self, key: int | str) -> Any:
        """An item of a list, or an attribute of a nested ad, evaluated."""
        expr = self._expr
        if isinstance(expr, ListExpr) and isinstance(key, int):
            return type(self)._of(expr.items[key]).eval()
        if isinstance(expr, AdExpr) and isinstance(key, str):
            found: ClassAd = ClassAd._python(expr)
            return found.eval(key)
        raise ClassAdValueError(f"{self} is neither a list nor an ad")

    def __bool__(self) -> bool:
        value = self.eval()
        if value is Value.Undefined:
            return False
        if isinstance(value, bool | int | float) and not isinstance(value, Value):
            return bool(value)
        raise ClassAdEvaluationError(f"{self} is neither true nor false")

    def __int__(self) -> int:
        return int(self._number())

    def __float__(self) -> float:
        return float(self._number())

    def _number(self) -> Any:
        value = self.eval()
        if isinstance(value, Value | list | class_ad.ClassAd):
            raise ClassAdValueError(f"{self} is no number")
        return value


class ClassAd(class_ad.ClassAd):
    """As in classad2, with expressions that operators make."""

    __slots__ = ()
    _tree = ExprTree


def Attribute(name: str) -> ExprTree:
    """A reference to an attribute."""
    return ExprTree._of(attr(name))


def Literal(value: Any) -> ExprTree:
    """A constant; of an expression its value."""
    if isinstance(value, class_ad.ExprTree):
        return ExprTree._of(value.simplify()._expr)
    if isinstance(value, list | tuple | dict | class_ad.ClassAd):
        raise ClassAdValueError(f"{value!r} is no literal: ExprTree takes it")
    return ExprTree._of(expr_of(value))


def Function(name: str, *args: Any) -> ExprTree:
    """A call of a function of the language."""
    return ExprTree._of(Call(name, tuple(expr_of(arg) for arg in args)))


def register(function: Callable[..., Any], name: str | None = None) -> None:
    """Let expressions that this process evaluates call a function in Python; those that daemons evaluate can not. A
    call in which it raises an exception is error."""
    name = name or function.__name__

    def call(values: list[Any]) -> Any:
        try:
            made = expr_of(function(*(ClassAd._python(value) for value in values)))
        except Exception:  # noqa: BLE001  a function of the language has a value, whatever happens in it
            return expr_value(expr_of(Value.Error))
        return expr_value(made)

    FUNCTIONS[name.lower()] = Builtin(name, 0, None, call=call, costly=True)


def expr_value(expr: Expr) -> Any:
    """The value of an expression without names."""
    return class_ad.ExprTree._of(expr)._value(None, None)


def parse(input: str) -> ClassAd:
    """The ad of a text in new syntax."""
    return ClassAd(input)


def parseOld(input: Any) -> ClassAd:
    """The ad of a text, or an open file, in old syntax."""
    text = input if isinstance(input, str) else "".join(input)
    try:
        return ClassAd._of(parse_ad(text, "old"))
    except ParseError as error:
        raise ClassAdParseError(f"The text is no ad: {error}") from None


def registerLibrary(path: str) -> None:
    """Refused: there is no library of C++ functions that Roost could load."""
    raise ClassAdValueError(f"{path} is a library for HTCondor: write the functions in Python, and register() them")
