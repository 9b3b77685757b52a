"""NEGOTIATOR_MATCH_EXPRS: what a negotiator tells of itself in every match (spec row NEG-32).

The administrator names macros; their values come as NegotiatorMatchExpr<name> into the slot's ad that goes to the
schedd, and from there into the ad of the matched job, where the policies of execution points see them. They are part of
the slot's ad during the cycle too, so that the same policy, which names them without scope, decides alike here and
there. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgpack

from shared.classad import ClassAd, Expr, ParseError, parse_expr
from shared.classad.expr import Literal

PREFIX: Final = "NegotiatorMatchExpr"


@dataclass(frozen=True, slots=True)
class MatchExprs:
    """The attributes by name, and what the administrator should hear of."""

    exprs: Mapping[str, Expr] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def into(self, packed: bytes) -> bytes:
        """A packed slot ad with these attributes besides its own. Some 1 us: the ad is not read. Raises ValueError for
        what is no packed ad."""
        if not self.exprs:
            return packed
        count, start = _header(packed)
        more = ClassAd(self.exprs).pack()
        added, begin = _header(more)
        return _map_header(count + added) + packed[start:] + more[begin:]


def match_exprs(names: Iterable[str], value_of: Callable[[str], str | None]) -> MatchExprs:
    """`names`: NEGOTIATOR_MATCH_EXPRS. `value_of`: the text of a macro, None if it is not defined: such a name is left
    out. A name that begins with the prefix gets no second one. A text that is no expression is a string."""
    exprs: dict[str, Expr] = {}
    problems = []
    for name in names:
        text = value_of(name)
        if text is None or not text.strip():
            problems.append(f"NEGOTIATOR_MATCH_EXPRS names {name}, but there is no such macro; define it")
            continue
        attribute = name if name.lower().startswith(PREFIX.lower()) else PREFIX + name
        if not attribute.replace("_", "a").isalnum() or not attribute.isascii():
            problems.append(f"NEGOTIATOR_MATCH_EXPRS names {name}, which can not be part of an attribute's name")
            continue
        try:
            exprs[attribute] = parse_expr(text.strip(), "old")
        except ParseError:
            exprs[attribute] = Literal(text.strip())
    return MatchExprs(exprs, tuple(problems))


def _header(packed: bytes) -> tuple[int, int]:
    """How many entries a msgpack map has, and where they begin."""
    first = packed[0] if packed else 0
    if first & 0xF0 == 0x80:
        return first & 0x0F, 1
    length = {0xDE: 2, 0xDF: 4}.get(first)
    if length is None or len(packed) < 1 + length:
        raise ValueError("no packed ad: it does not begin as a map")
    return int.from_bytes(packed[1 : 1 + length], "big"), 1 + length


def _map_header(count: int) -> bytes:
    header: bytes = msgpack.Packer(autoreset=True).pack_map_header(count)
    return header
