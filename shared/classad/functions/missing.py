"""Which names an expression refers to that are nowhere: what unresolved() tells.

Not `shared.classad.references`: that answers for an ad alone what a match may depend on, this follows the names of
one evaluation, selections from nested ads and the other ad of the match included, and names them as the reference
does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shared.classad.expr import CURRENT_TIME, AttrRef, Expr, fold
from shared.classad.unparse import unparse

if TYPE_CHECKING:
    from shared.classad.ad import ClassAd
    from shared.classad.context import Context

_SCOPES: Final = frozenset(("my", "self", "target", "other", "parent", "root", "toplevel"))
_TARGET: Final = "target."


def around(ad: ClassAd | None, key: str) -> ClassAd | None:
    """The ad that has an attribute: `ad` or the nearest one around it; None if none has."""
    while ad is not None and ad.find(key) is None:
        ad = ad.outer
    return ad


def missing_names(context: Context, expr: Expr, owner: ClassAd) -> list[str]:
    """The names that `expr` of the ad `owner` refers to and that are not there.

    A selection by names from something that is no ad stands with all of them, but TARGET. in front is left off (and
    counts for the order, which is without case). Attributes that are there are followed into, each once.
    """
    found: dict[str, str] = {}
    followed: set[tuple[int, str]] = set()
    todo: list[tuple[Expr, ClassAd]] = [(expr, owner)]
    while todo:
        node, ad = todo.pop()
        if not isinstance(node, AttrRef):
            todo.extend((child, ad) for child in reversed(node.children()))
            continue
        name, holder = _look_up(context, node, ad)
        if holder is None:
            if name:
                found.setdefault(fold(name), name)
            continue
        mark = (id(holder), node.key)
        cell = holder.find(node.key)
        if mark not in followed and isinstance(cell, Expr):
            todo.append((cell, holder))
        followed.add(mark)
    names = (found[key] for key in sorted(found))
    return [name[len(_TARGET) :] if fold(name).startswith(_TARGET) else name for name in names]


def _look_up(context: Context, node: AttrRef, ad: ClassAd) -> tuple[str, ClassAd | None]:
    """What to call a reference, and the ad that has the attribute, if one has."""
    from shared.classad.ad import ClassAd  # ads know about evaluation, which knows about functions

    if node.scope is None:
        special = node.key == CURRENT_TIME
        special = special or (node.key in _SCOPES and isinstance(context.evaluate_in(node, ad), ClassAd))
        return ("" if special else node.name), around(ad, node.key)
    base = context.evaluate_in(node.scope, ad)
    if isinstance(base, ClassAd):
        return node.name, around(base, node.key)
    return (unparse(node) if isinstance(node.scope, AttrRef) else ""), None
