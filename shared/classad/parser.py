"""Tokens to trees: recursive descent over the operators of the manual's section "ClassAd Syntax".

Depth is bounded as in the reference: at most MAX_DEPTH expressions, unary operators and operands open at once, which
allows 165 nested parentheses, lists, ads or calls and 497 unary operators; what is longer but not deeper is
parsed whatever its length. `?:` (elvis) is a postfix operator and takes an operand, not an expression.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from typing import Literal as OneOf

from shared.classad.depth import with_room
from shared.classad.expr import (
    PRECEDENCE,
    AdExpr,
    AttrRef,
    Binary,
    Call,
    Elvis,
    Expr,
    Interval,
    ListExpr,
    Literal,
    Parens,
    Subscript,
    Ternary,
    Unary,
    attr,
    fold,
)
from shared.classad.lexer import (
    BAD,
    CONSTANT,
    END,
    NAME,
    NUMBER,
    QUOTED,
    STRING,
    Lexer,
    ParseError,
    error_at,
)
from shared.classad.time_text import parse_abstime, parse_reltime

Syntax: TypeAlias = OneOf["new", "old"]
MAX_DEPTH: Final = 500

_NAMES: Final = (NAME, QUOTED)
_VALUES: Final = (NUMBER, CONSTANT)
_UNARY: Final = frozenset("-+!~")
_TRUE: Final = Literal(True)
_FALSE: Final = Literal(False)


class Parser:
    """One pass over one text. `old` changes how strings are read."""

    __slots__ = ("_depth", "_index", "_kinds", "_lexer", "_old", "_starts", "_text", "_values")

    def __init__(self, text: str, old: bool = False, start: int = 0) -> None:
        self._text = text
        self._old = old
        self._lexer = Lexer(text, old, start)
        self._kinds, self._values, self._starts = self._lexer.kinds, self._lexer.values, self._lexer.starts
        self._index = -1
        self._depth = 0
        self._step()

    def at_end(self) -> bool:
        return self._kinds[self._index] == END

    def line(self) -> int:
        """In which line of the text, from 1, the next token is."""
        return self._text.count("\n", 0, self._starts[self._index]) + 1

    def _step(self) -> None:
        """Go on to the next token, with one more to look at behind it."""
        self._index += 1
        while self._index + 2 > len(self._kinds):
            self._lexer.more()

    def accept(self, kind: str) -> bool:
        """Step over the next token if it is a `kind`."""
        if self._kinds[self._index] != kind:
            return False
        self._step()
        return True

    def expect(self, kind: str) -> None:
        if not self.accept(kind):
            raise self.error(f"'{kind}'")

    def error(self, expected: str) -> ParseError:
        """The error for the next token, which is not what was `expected`."""
        kind, start = self._kinds[self._index], self._starts[self._index]
        if kind == BAD:
            found = f"cannot read {self._text[start : start + 20]!r}"
            return error_at(self._text, start, found, str(self._values[self._index]) or expected)
        if kind == END:
            return error_at(self._text, start, "the text ends too early", expected)
        following = self._starts[self._index + 1]
        found = self._text[start : min(following, start + 40)].rstrip()
        return error_at(self._text, start, f"unexpected {found!r}", expected)

    def expression(self) -> Expr:
        """One whole expression, `a ? b : c` included."""
        self._enter()
        condition = self._binary(1)
        if self.accept("?"):
            then = self.expression()
            self.expect(":")
            condition = Ternary(condition, then, self.expression())
        self._depth -= 1
        return condition

    def whole_ad(self) -> AdExpr:
        """The next ad of a text of ads."""
        start = self._index

        def attempt() -> AdExpr:
            self._index, self._depth = start, 0
            return self.ad()

        return with_room(attempt)

    def ad(self) -> AdExpr:
        """`[ name = expression; ... ]`, empty definitions allowed."""
        self.expect("[")
        attrs: dict[str, tuple[str, Expr]] = {}
        while True:
            empty = False  # nothing but a semicolon before the bracket is refused, as in the reference
            while self.accept(";"):
                empty = not attrs
            if not empty and self.accept("]"):
                return AdExpr(attrs)
            if self._kinds[self._index] not in _NAMES:
                raise self.error("an attribute name or ']'")
            name = str(self._values[self._index])
            self._step()
            self.expect("=")
            key = fold(name)
            value = self.expression()
            attrs[key] = (attrs[key][0] if key in attrs else name, value)
            if self._kinds[self._index] not in (";", "]"):
                raise self.error("';' or ']'")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            start = self._starts[self._index]
            raise error_at(self._text, start, f"nested deeper than {MAX_DEPTH} levels", "fewer levels")

    def _binary(self, loosest: int) -> Expr:
        """Operators that bind at least as tightly as `loosest`, left to right (precedence climbing)."""
        left = self._unary()
        precedence = PRECEDENCE.get
        while True:
            op = self._kinds[self._index]
            strength = precedence(op, 0)
            if strength < loosest or strength == 0:
                return left
            self._step()
            left = Binary(op, left, self._binary(strength + 1))

    def _unary(self) -> Expr:
        op = self._kinds[self._index]
        self._enter()
        if op in _UNARY:
            self._step()
            result: Expr = Unary(op, self._unary())
        else:
            result = self._postfix()
        self._depth -= 1
        return result

    def _postfix(self) -> Expr:
        """An operand with its selections, subscripts and elvis operators."""
        self._enter()
        result = self._primary()
        while True:
            kind = self._kinds[self._index]
            if kind == ".":
                self._step()
                result = AttrRef(self._name(), result)
            elif kind == "[":
                self._step()
                index = self.expression()
                self.expect("]")
                result = Subscript(result, index)
            elif kind == "?" and self._kinds[self._index + 1] == ":":
                self._step()
                self._step()
                result = Elvis(result, self._postfix())
            else:
                self._depth -= 1
                return result

    def _name(self) -> str:
        kind = self._kinds[self._index]
        if kind not in _NAMES:
            raise self.error("an attribute name")
        return self._text_of(kind)

    def _text_of(self, kind: str) -> str:
        """Step over a name or string; adjacent strings, or adjacent quoted names, are one (new syntax only)."""
        text = str(self._values[self._index])
        self._step()
        if kind == NAME or self._old or self._kinds[self._index] != kind:
            return text
        parts = [text]
        while self._kinds[self._index] == kind:
            parts.append(str(self._values[self._index]))
            self._step()
        return "".join(parts)

    def _primary(self) -> Expr:
        kind = self._kinds[self._index]
        if kind in _NAMES:
            name = self._text_of(kind)
            return self._call(name) if self.accept("(") else attr(name)
        if kind == STRING:
            return Literal(self._text_of(kind))
        if kind in _VALUES:
            value = self._values[self._index]
            self._step()
            return _TRUE if value is True else _FALSE if value is False else Literal(value)
        if kind == "(":
            self._step()
            inner = self.expression()
            self.expect(")")
            return Parens(inner)
        if kind == "{":
            self._step()
            return ListExpr(self._items("}", (",",)))
        if kind == "[":
            return self.ad()
        if kind == "." and self._kinds[self._index + 1] in _NAMES:
            self._step()
            return AttrRef(self._name(), None, absolute=True)
        raise self.error("an expression")

    def _call(self, name: str) -> Expr:
        args = self._items(")", (",", ";"))
        text = time_text(name, args)
        if text is None:
            return Call(name, args)
        # Read here and not when evaluated, as in the reference, where the literal relTime("...") is a real.
        if fold(name) == "abstime":
            moment = parse_abstime(text)
            if moment is not None:
                return Literal(moment)
        else:
            seconds = parse_reltime(text)
            if seconds is not None:
                return Interval(seconds)
        raise self.error(f"a time in {name}(...), not {text!r}")

    def _items(self, closer: str, separators: tuple[str, ...]) -> tuple[Expr, ...]:
        if self.accept(closer):
            return ()
        items = [self.expression()]
        while self._kinds[self._index] in separators:
            self._step()
            items.append(self.expression())
        if not self.accept(closer):
            raise self.error(f"',' or '{closer}'")
        return tuple(items)


def time_text(name: str, args: tuple[Expr, ...]) -> str | None:
    """The text of `absTime("...")` or `relTime("...")` with nothing but a literal in it; None for any other call."""
    if len(args) != 1 or fold(name) not in ("abstime", "reltime"):
        return None
    argument = args[0]
    return argument.value if isinstance(argument, Literal) and isinstance(argument.value, str) else None


def parse_expr(text: str, syntax: Syntax = "new") -> Expr:
    """The tree of one expression, which must be all of the text (a `;` may follow in new syntax). Raises ParseError."""
    return with_room(_parse_expr, text, syntax)


def parse_definition(text: str) -> Expr:
    """The expression behind the `=` of a line of old syntax: it ends where it can end, and what follows on the line is
    ignored, as the reference does. Raises ParseError."""
    return with_room(lambda: Parser(text, old=True).expression())


def _parse_expr(text: str, syntax: Syntax) -> Expr:
    parser = Parser(text, old=syntax == "old")
    tree = parser.expression()
    while syntax == "new" and parser.accept(";"):
        pass
    if not parser.at_end():
        raise parser.error("an operator or the end of the expression")
    return tree
