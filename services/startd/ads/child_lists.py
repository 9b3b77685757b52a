"""What a partitionable slot tells of its dynamic slots: Child... lists, one for each attribute, all in the same order.

A slot may have a thousand of them, of which one changes at a time. The lists are therefore put together from texts that
are kept for each dynamic slot, and nobody parses them who does not look at them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from engine.slots.amounts import Amounts
from services.startd.ads.claim_ads import retirement_left
from services.startd.core.slots.model import Slot
from shared.classad import ClassAd, Expr
from shared.classad.expr import Literal
from shared.classad.unparse import unparse_exact

_NAMES: Final = (
    "Name",
    "DSlotId",
    "State",
    "Activity",
    "EnteredCurrentState",
    "CurrentRank",
    "RemoteUser",
    "RemoteOwner",
    "AccountingGroup",
    "RetirementTimeRemaining",
)


@dataclass(frozen=True, slots=True)
class _Row:
    """The texts of one dynamic slot, and what they were made of."""

    made_of: tuple[object, ...]
    total: Amounts
    texts: tuple[str, ...]


class ChildLists:
    """The lists of one partitionable slot."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._resources: tuple[str, ...] = ()

    def put(self, ad: ClassAd, children: Sequence[Slot]) -> None:
        """Tell of these dynamic slots in their parent's ad."""
        ad["NumDynamicSlots"] = len(children)
        ad["PslotRollupInformation"] = True
        resources = tuple({name: None for slot in children for name in slot.total})
        known = self._rows if resources == self._resources else {}
        self._resources = resources
        self._rows = {slot.name: _row(slot, known.get(slot.name), resources) for slot in children}
        names = (*_NAMES, *resources)
        columns = zip(*(row.texts for row in self._rows.values()), strict=True) if children else ((),) * len(names)
        for name, column in zip(names, columns, strict=True):
            ad.set_written(f"Child{name}", f"{{ {','.join(column)} }}" if column else "{  }")


def _row(slot: Slot, known: _Row | None, resources: Sequence[str]) -> _Row:
    claim, left = slot.claim, retirement_left(slot)
    who = (
        (str(claim.rank), claim.owner or claim.submitter, claim.owner, claim.accounting_group)
        if claim is not None
        else None
    )
    made_of = (slot.condition, int(slot.state_since), who, left)
    if known is not None and known.made_of == made_of and known.total is slot.total:
        return known
    users = who[1:] if who is not None else ("", "", "")
    texts = (
        _text(slot.name),
        _text(slot.dynamic_id),
        _text(str(slot.state)),
        _text(str(slot.activity)),
        _text(int(slot.state_since)),
        _text(claim.rank if claim is not None else 0.0),
        *(_text(user) if user else "undefined" for user in users),
        unparse_exact(left) if isinstance(left, Expr) else _text(left),
        *(_text(slot.total[name]) for name in resources),
    )
    return _Row(made_of, slot.total, texts)


def _text(value: float | str) -> str:
    """As an ad holds it."""
    return _number(value) if isinstance(value, float) else _cached(value)


def _number(value: float) -> str:
    return unparse_exact(Literal(value))


@lru_cache(maxsize=10_000, typed=True)  # 1 and true are equal; and so are 0.0 and -0.0
def _cached(value: int | str) -> str:
    return unparse_exact(Literal(value))
