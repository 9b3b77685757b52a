"""How unparse() prints: as everywhere, but with every list item and attribute on a line of its own."""

from __future__ import annotations

from shared.classad.expr import AdExpr, Expr, ListExpr, walk
from shared.classad.unparse import attribute_order, pieces, quote_name, unparse


def pretty(expr: Expr) -> str:
    """The text of `expr`: lists indented by 3 columns, nested ads by 4."""
    if not any(isinstance(node, ListExpr | AdExpr) for node in walk(expr)):
        return unparse(expr)
    done: list[str] = []
    todo: list[tuple[str | Expr, int]] = [(expr, 0)]
    while todo:
        item, indent = todo.pop()
        if isinstance(item, str):
            done.append(item)
        elif isinstance(item, ListExpr):
            todo.extend(reversed(_lines("{", "}", [("", child) for child in item.items], ",", indent, 3)))
        elif isinstance(item, AdExpr):
            attrs = sorted(item.attrs.values(), key=lambda pair: attribute_order(pair[0]))
            named = [(f"{quote_name(name)} = ", child) for name, child in attrs]
            todo.extend(reversed(_lines("[", "]", named, "; ", indent, 4)))
        else:
            todo.extend((piece, indent) for piece in reversed(pieces(item)))
    return "".join(done)


def _lines(
    opening: str, closing: str, items: list[tuple[str, Expr]], separator: str, indent: int, step: int
) -> list[tuple[str | Expr, int]]:
    """The pieces of one list or ad, each with the indent of what stands inside it."""
    outer, inner = "\n" + " " * (indent + step), "\n" + " " * (indent + 2 * step)
    found: list[tuple[str | Expr, int]] = [(outer + opening, 0)]
    for place, (front, item) in enumerate(items):
        found.append(((separator if place else "") + inner + front, 0))
        found.append((item, indent + 2 * step))
    found.append((outer + closing, 0))
    return found
