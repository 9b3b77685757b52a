"""Builtins that look at expressions: ifThenElse, eval, unparse, unresolved, evalInEachContext, countMatches, debug."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from shared.classad.expr import AttrRef, Expr, ListExpr
from shared.classad.functions.coerce import MAX_ITEMS, bounded, special, to_text
from shared.classad.functions.missing import around, missing_names
from shared.classad.functions.pcre import RegexError, compile_pattern
from shared.classad.functions.pretty import pretty
from shared.classad.functions.registry import Function, table
from shared.classad.lexer import ParseError
from shared.classad.operators import truth
from shared.classad.parser import parse_expr
from shared.classad.values import ERROR, UNDEFINED, Value

if TYPE_CHECKING:
    from shared.classad.ad import ClassAd
    from shared.classad.context import Context

MAX_EVAL_TEXT: Final = 1 << 14
"""The longest text that eval() reads, in characters; a longer one is ERROR."""

DebugListener = Callable[[Expr, Value], None]

_listener: DebugListener | None = None


def set_debug_listener(listener: DebugListener | None) -> None:
    """Have `listener` told of every debug(x): the expression x and its value. A daemon logs them at D_FULLDEBUG."""
    global _listener
    _listener = listener


def if_then_else(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """ifThenElse(condition, then, otherwise): only the branch that is needed is evaluated (spec row CLA-11)."""
    condition = truth(context.evaluate(arguments[0]))
    if condition is True:
        return context.evaluate(arguments[1])
    return context.evaluate(arguments[2]) if condition is False else condition


def eval_(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """eval(x): the value of the text of x as an expression at this place (spec row CLA-16)."""
    value = context.evaluate(arguments[0])
    if special(value) is not None:
        return ERROR
    text = to_text(value)
    if not isinstance(text, str) or len(text) > MAX_EVAL_TEXT:
        return ERROR
    expr = _parsed(text)
    return ERROR if expr is None else context.evaluate(expr)


@lru_cache(maxsize=512)
def _parsed(text: str) -> Expr | None:
    if text.rstrip().endswith(";"):
        return None  # fine behind an expression in a file, but not here
    try:
        return parse_expr(text)
    except ParseError:
        return None


def debug(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """debug(x): the value of x, which is also told to the process's listener."""
    value = context.evaluate(arguments[0])
    if _listener is not None:
        _listener(arguments[0], value)
    return value


def unparse_(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """unparse(name): the text of an attribute of the ad around it, not evaluated; empty if there is none."""
    name = arguments[0]
    if not isinstance(name, AttrRef):
        return ERROR
    if name.scope is not None or name.absolute or context.scope is None:
        return ""
    expr = context.scope.lookup(name.name)
    return "" if expr is None else bounded(pretty(expr))


def unresolved(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """unresolved(name[, pattern]): the names that an attribute's expression refers to and that are nowhere.

    As "a,b,c" in order; with a pattern, whether it matches one of them, without case. UNDEFINED if there is no such
    attribute.
    """
    name = arguments[0]
    if not isinstance(name, AttrRef):
        return ERROR
    owner = None if name.absolute else _owner(context, name)
    expr = None if owner is None else owner.lookup(name.name)
    if owner is None or expr is None:
        return UNDEFINED
    names = missing_names(context, expr, owner)
    if len(arguments) == 1:
        return bounded(",".join(names))
    pattern = context.evaluate(arguments[1])
    compiled = compile_pattern(pattern, "i") if isinstance(pattern, str) else None
    if compiled is None:
        return ERROR
    try:
        return any(compiled.matches(found) for found in names)
    except RegexError:
        return ERROR


def _owner(context: Context, name: AttrRef) -> ClassAd | None:
    """The ad in which a name is found: the one it says, or around the expression, or the other one of a match."""
    from shared.classad.ad import ClassAd

    if name.scope is not None:
        base = context.evaluate(name.scope)
        return around(base, name.key) if isinstance(base, ClassAd) else None
    owner = around(context.scope, name.key)
    return around(context.target, name.key) if owner is None else owner


def _each(context: Context, arguments: tuple[Expr, ...]) -> list[Value] | Value:
    """The values of the first argument inside each ad of the list that is the second, or what the list is instead.

    The name of an attribute that can be found stands for its expression. An item that is UNDEFINED stays so, one that
    is no ad is ERROR.
    """
    from shared.classad.ad import ClassAd

    expr, where = arguments
    lost = False
    if isinstance(expr, AttrRef) and not expr.absolute:
        found = _named(context, expr)
        expr = found or expr
        lost = found is None and context.target is not None
    # In a match, the reference forgets where it is when it looks for a name that is nowhere: names in the second
    # argument are then UNDEFINED.
    if lost and isinstance(where, AttrRef):
        return UNDEFINED
    items = context.evaluate(where)
    if not isinstance(items, list):
        return items if special(items) is not None else ERROR
    if len(items) > MAX_ITEMS:
        return ERROR
    if lost and isinstance(where, ListExpr):
        pairs = zip(where.items, items, strict=True)
        items = [UNDEFINED if isinstance(each, AttrRef) else item for each, item in pairs]
    return [
        context.evaluate_in(expr, item) if isinstance(item, ClassAd) else UNDEFINED if item is UNDEFINED else ERROR
        for item in items
    ]


def _named(context: Context, name: AttrRef) -> Expr | None:
    """The expression that a name, with or without a scope, stands for here."""
    from shared.classad.ad import ClassAd

    if name.scope is None:
        return context.lookup(name.name)
    base = context.evaluate(name.scope)
    owner = around(base, name.key) if isinstance(base, ClassAd) else None
    return None if owner is None else owner.lookup(name.name)


def eval_in_each_context(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """evalInEachContext(expression, list of ads): the list of values."""
    return _each(context, arguments)


def count_matches(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """countMatches(expression, list of ads): how many of the values are true; 0 for an UNDEFINED list."""
    values = _each(context, arguments)
    if isinstance(values, list):
        return sum(truth(value) is True for value in values)
    return 0 if values is UNDEFINED else ERROR


FUNCTIONS: Final = table(
    Function("ifThenElse", 3, 3, lazy=if_then_else),
    Function("eval", 1, 1, lazy=eval_, costly=True),
    Function("debug", 1, 1, lazy=debug),
    Function("unparse", 1, 1, lazy=unparse_, costly=True),
    Function("unresolved", 1, 2, lazy=unresolved, costly=True),
    Function("evalInEachContext", 2, 2, lazy=eval_in_each_context, costly=True),
    Function("countMatches", 2, 2, lazy=count_matches, costly=True),
)
