"""The one place where configuration asks the ClassAd language for the value of an expression.

Most texts are plain numbers and words, and those never reach the parser.
"""

from __future__ import annotations

import re
from functools import lru_cache

from shared.classad import ERROR, Expr, ParseError, Value, evaluate
from shared.classad.depth import with_room
from shared.classad.parser import Parser

_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?[0-9]{1,15}\.[0-9]{1,15}")
_MOST = (1 << 63) - 1


@lru_cache(4096)
def parse_whole(text: str) -> Expr:
    """The tree of an expression in old syntax that is all of `text`. Raises ParseError.

    Remembered: all daemons of a process have the same defaults, each reads them more than once, and reading them is
    most of what their start takes."""
    return with_room(_parse_whole, text)


def _parse_whole(text: str) -> Expr:
    parser = Parser(text, old=True)
    tree = parser.expression()
    if not parser.at_end():
        raise parser.error("an operator or the end of the expression")
    return tree


def evaluate_text(text: str) -> Value:
    """The value of a ClassAd expression that stands alone; ERROR also when it is no expression.

    A plain integer out of range is the nearest 64-bit one (within an expression it would be 0).
    """
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return max(-_MOST - 1, min(_MOST, int(text))) if len(text) < 4000 else ERROR
    if _REAL.fullmatch(text):
        return float(text)
    try:
        return evaluate(parse_whole(text))
    except ParseError:
        return ERROR


def number(text: str) -> int | float | None:
    """The number a text evaluates to; a boolean counts 1 or 0; None if it is none of these."""
    value = evaluate_text(text)
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float) else None
