"""Who lends what to whom: what accounting groups leave of their quotas, and what others use above theirs (spec rows
GRP-13 to GRP-29). Pure.

Slots bear no owner's name, so a loan is an attribution. It follows the tree, as surplus does: groups under one parent
lend to each other before anything goes further up; where several lend and several borrow, each lends to each in
proportion. What is used above all quotas comes from the part of the pool that no quota names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

ROOT: Final = "<none>"
#: Lender of what no group's quota names.
UNASSIGNED: Final = ""
_LEAST: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Stand:
    """A group. parent: its own name for the root. quota: of its own submitters, without the groups below; used: by
    them. Both are weighted slots."""

    name: str
    parent: str
    quota: float
    used: float


@dataclass(frozen=True, slots=True)
class Loan:
    lender: str  # UNASSIGNED: the part of the pool that is in no quota
    borrower: str
    amount: float  # weighted slots


@dataclass(slots=True)
class _Open:
    """What a part of the tree could not settle within itself: (group, weighted slots)."""

    offers: list[tuple[str, float]] = field(default_factory=list)
    wants: list[tuple[str, float]] = field(default_factory=list)


def loans(groups: Iterable[Stand]) -> list[Loan]:
    """Largest first. The sum of what a group borrows is exactly what it uses above its quota. The root's own quota does
    not count: what its submitters use is lent to them like to any other group."""
    stands = {group.name: group for group in groups}
    below: dict[str, list[str]] = {}
    tops = []
    for name, group in stands.items():
        if group.parent in stands and group.parent != name:
            below.setdefault(group.parent, []).append(name)
        else:
            tops.append(name)
    found: list[Loan] = []
    settled: dict[str, _Open] = {}
    # Depth first without recursion: a tree may be as deep as its names are long.
    todo = [(name, False) for name in tops]
    seen: set[str] = set()
    while todo:
        name, ready = todo.pop()
        if not ready:
            if name in seen:
                continue
            seen.add(name)
            todo.append((name, True))
            todo.extend((child, False) for child in below.get(name, ()))
            continue
        open_ = _Open()
        for child in below.get(name, ()):
            part = settled.pop(child, None)
            if part is not None:
                open_.offers += part.offers
                open_.wants += part.wants
        _note(open_, stands[name])
        settled[name] = _settle(open_, found)
    rest = _Open()
    for name in tops:
        part = settled.get(name)
        if part is not None:
            rest.offers += part.offers
            rest.wants += part.wants
    rest = _settle(rest, found)
    found += [Loan(UNASSIGNED, name, amount) for name, amount in rest.wants]
    return sorted(found, key=lambda loan: (-loan.amount, loan.lender, loan.borrower))


def _note(open_: _Open, group: Stand) -> None:
    more = group.used - (0.0 if group.name == ROOT else group.quota)
    if more > _LEAST:
        open_.wants.append((group.name, more))
    elif more < -_LEAST:
        open_.offers.append((group.name, -more))


def _settle(open_: _Open, found: list[Loan]) -> _Open:
    offered, wanted = sum(a for _, a in open_.offers), sum(a for _, a in open_.wants)
    moved = min(offered, wanted)
    if moved <= _LEAST:
        return open_
    found += [
        Loan(lender, borrower, amount)
        for lender, offer in open_.offers
        for borrower, want in open_.wants
        if (amount := moved * (offer / offered) * (want / wanted)) > _LEAST
    ]
    return _Open(
        [(name, left) for name, offer in open_.offers if (left := offer * (1.0 - moved / offered)) > _LEAST],
        [(name, left) for name, want in open_.wants if (left := want * (1.0 - moved / wanted)) > _LEAST],
    )
