"""What a round of defragmentation does: which drains end early, how many machines may begin, and which. Pure.

Spec rows DFR-01 to DFR-06. Whoever calls it writes the book down before it gives the orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from services.defrag.book import Book, Order, Seen, arrivals
from services.defrag.machines import Expressions, Machine, averages
from services.defrag.rate import allowance, due

#: Names of machines that a person is told of one round.
_TOLD: Final = 10


@dataclass(frozen=True, slots=True)
class Rules:
    """The policy as configured. most_whole, most_draining: -1: no limit. start: START of draining machines ("": none).
    prefix: how the request ids of this defrag begin."""

    expressions: Expressions
    per_hour: float
    interval_s: int
    most_whole: int
    most_draining: int
    how: Literal["graceful", "quick", "fast"]
    start: str
    prefix: str

    def own(self, request_id: str) -> bool:
        """Whether a drain is this defrag's. Nobody else's is ever cancelled."""
        return request_id.startswith(self.prefix) and ":" not in request_id.removeprefix(self.prefix)


@dataclass(frozen=True, slots=True)
class Round:
    """What is to be done, and the book as it is to be written down first, with what was seen."""

    book: Book
    drains: tuple[Order, ...]
    cancels: tuple[Machine, ...]


def prefix(name: str) -> str:
    """name: DEFRAG_NAME, or nothing."""
    return f"defrag:{name}:" if name else "defrag:"


def decide(rules: Rules, book: Book, machines: Mapping[str, Machine], now: float, new_id: Callable[[], str]) -> Round:
    """One round."""
    book = book.settled(machines, now)
    cancels = tuple(
        sorted(
            (m for m in machines.values() if m.draining and not m.drained and m.cancels and rules.own(m.request_id)),
            key=lambda machine: machine.inbox,
        )
    )
    spared = {machine.inbox for machine in cancels}
    # What an administrator has drained is empty for a reason of his own: it stands for none of ours.
    draining = {m.inbox for m in machines.values() if m.draining and (not m.drained or rules.own(m.request_id))}
    draining = (draining | set(book.orders)) - spared
    whole = sum(1 for machine in machines.values() if _is_whole(machine))
    allowed = due(allowance(rules.per_hour, rules.interval_s), min(book.last_round, now), now, rules.interval_s)
    room, why = _room(rules, allowed, len(draining), whole)
    chosen: list[Machine] = []
    if room:
        chosen = candidates(machines.values(), {*spared, *book.orders})[:room]
        why = _told(chosen, room)
    orders = tuple(Order(machine.inbox, rules.prefix + new_id(), now, machine.last_start) for machine in chosen)
    done = arrivals(book, machines)
    own = [m.inbox for m in machines.values() if m.draining and rules.own(m.request_id) and m.inbox not in spared]
    under_way = {**book.orders, **{order.machine: order for order in orders}}
    book = replace(
        book,
        last_round=now,
        since=book.since or now,
        orders=under_way,
        draining=tuple(sorted({*own, *under_way})),
        drained=book.drained + done,
        arrived=now if done else book.arrived,
        draining_peak=max(book.draining_peak, len(draining) + len(orders)),
        whole_peak=max(book.whole_peak, whole),
        cancels=book.cancels + len(cancels),
        seen=Seen(len(machines), len(draining), whole, *averages(machines.values()), why),
    )
    return Round(book, orders, cancels)


def candidates(machines: Iterable[Machine], left_out: Iterable[str]) -> list[Machine]:
    """Machines that may be drained, best first: by DEFRAG_RANK (DFR-05), of equal ones that whose last drain is longest
    ago. One that a single job has for itself is none: it is what all others are drained for."""
    out = set(left_out)
    found = [
        machine
        for machine in machines
        if machine.fits
        and not (machine.draining or machine.off or machine.whole or machine.one_job)
        and machine.inbox not in out
    ]
    return sorted(found, key=lambda one: (-one.rank, one.last_start or 0, one.inbox))


def _is_whole(machine: Machine) -> bool:
    return machine.whole and not machine.draining and not machine.off


def _room(rules: Rules, allowed: int, draining: int, whole: int) -> tuple[int, str]:
    """How many drains may begin; and if none may, why (DFR-02, DFR-03)."""
    if rules.per_hour <= 0:
        return 0, "nothing is drained: DEFRAG_DRAINING_MACHINES_PER_HOUR is 0"
    if rules.most_draining == 0:
        return 0, "nothing is drained: DEFRAG_MAX_CONCURRENT_DRAINING is 0"
    if rules.most_whole == 0:
        return 0, "nothing is drained: DEFRAG_MAX_WHOLE_MACHINES is 0"
    if rules.most_whole > 0 and whole >= rules.most_whole:
        return 0, f"no further drain: {whole} machines are whole (DEFRAG_MAX_WHOLE_MACHINES is {rules.most_whole})"
    if rules.most_draining > 0 and draining >= rules.most_draining:
        most = rules.most_draining
        return 0, f"no further drain: {draining} machines are draining (DEFRAG_MAX_CONCURRENT_DRAINING is {most})"
    if not allowed:
        return 0, f"no drain is due in this round: the rate is {rules.per_hour:g} machines per hour"
    return (min(allowed, rules.most_draining - draining) if rules.most_draining > 0 else allowed), ""


def _told(chosen: list[Machine], room: int) -> str:
    if not chosen:
        return f"no machine can be drained, of {room} that may be: none that is in pieces fits DEFRAG_REQUIREMENTS"
    names = ", ".join(machine.name for machine in chosen[:_TOLD])
    more = f" and {len(chosen) - _TOLD} more" if len(chosen) > _TOLD else ""
    return f"to be drained: {names}{more}"
