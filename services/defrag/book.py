"""What defragmentation must know of its own past, whoever goes on with it: when the last round was, which orders are
under way, and what it has counted. Pure; it is kept as the note of the lead (shared.daemon.lead).

A round is written down with its orders before the first of them is given. Whoever leads next gives those again that
were not answered: an order names the drain that its machine began last, and a machine that has begun another one since
refuses. So none is forgotten, and no machine is drained twice for one order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from services.defrag.machines import Machine

#: An order of which the machine's ads say nothing for so long has come to nothing, seconds.
FORGET_S: Final = 600.0
#: RecentStatsLifetime: how far back the Recent... attributes look, seconds.
RECENT_S: Final = 1200.0


@dataclass(frozen=True, slots=True)
class Order:
    """To drain one machine. before: LastDrainStartTime as it was decided. taken: the startd said that it drains."""

    machine: str
    request_id: str
    at: float
    before: int | None
    taken: bool = False

    @property
    def check(self) -> str:
        """What must be true on the machine: that it has begun no drain since."""
        return f"LastDrainStartTime =?= {'undefined' if self.before is None else self.before}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a round has seen. badput, unclaimed: AvgDrainingBadput, AvgDrainingUnclaimed. why: what it decided, for
    people."""

    machines: int = 0
    draining: int = 0
    whole: int = 0
    badput: float = 0.0
    unclaimed: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """Times are seconds since 1970; 0: never. draining: machines that a drain of this defrag was emptying at the last
    round. arrived: when the last of them was done."""

    last_round: float = 0.0
    since: float = 0.0
    orders: Mapping[str, Order] = field(default_factory=dict)
    draining: tuple[str, ...] = ()
    successes: int = 0
    failures: int = 0
    cancels: int = 0
    drained: int = 0
    arrived: float = 0.0
    draining_peak: int = 0
    whole_peak: int = 0
    recent: tuple[tuple[float, int, int], ...] = ()  # when, successes, failures
    seen: Seen = field(default_factory=Seen)

    def pack(self) -> bytes:
        return json.dumps(asdict(self) | {"orders": [asdict(order) for order in self.orders.values()]}).encode()

    @classmethod
    def unpack(cls, note: bytes) -> Book:
        """Raises ValueError for what is no book."""
        if not note:
            return cls()
        try:
            found: dict[str, Any] = json.loads(note)
            orders = [Order(**order) for order in found["orders"]]
            known = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
            known["draining"] = tuple(known["draining"])
            known["recent"] = tuple((float(at), int(good), int(bad)) for at, good, bad in known["recent"])
            known["seen"] = Seen(**known["seen"])
            known["orders"] = {order.machine: order for order in orders}
            return cls(**known)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the note is damaged: {type(error).__name__}: {error}") from error

    def settled(self, machines: Mapping[str, Machine], now: float) -> Book:
        """Without the orders that have come to their end: the machine drains, has done so, or keeps silent for too
        long. What was never answered is counted by what the machine shows."""
        left: dict[str, Order] = {}
        successes = failures = 0
        lost = set()
        for inbox, order in self.orders.items():
            machine = machines.get(inbox)
            if machine is not None and machine.followed(order.request_id, order.before):
                successes += not order.taken
            elif 0 <= now - order.at < FORGET_S:
                left[inbox] = order
            else:
                failures += not order.taken
                lost.add(inbox)
        return replace(
            self,
            orders=left,
            draining=tuple(inbox for inbox in self.draining if inbox not in lost),
            successes=self.successes + successes,
            failures=self.failures + failures,
        )

    def answered(self, order: Order, now: float, *, taken: bool) -> Book:
        """A startd has taken an order, or refused it."""
        orders = {inbox: one for inbox, one in self.orders.items() if one.request_id != order.request_id}
        if taken:
            orders[order.machine] = replace(order, taken=True)
        recent = [one for one in self.recent if 0 <= now - one[0] < RECENT_S]
        return replace(
            self,
            orders=orders,
            draining=tuple(inbox for inbox in self.draining if taken or inbox != order.machine),
            successes=self.successes + taken,
            failures=self.failures + (not taken),
            recent=(*recent, (now, int(taken), int(not taken))),
        )

    def recently(self, now: float) -> tuple[int, int]:
        """Successes and failures of the last RECENT_S."""
        there = [one for one in self.recent if 0 <= now - one[0] < RECENT_S]
        return sum(good for _, good, _ in there), sum(bad for _, _, bad in there)

    def unanswered(self, now: float) -> list[Order]:
        """Orders that were written down, and may not have been given."""
        return [order for order in self.orders.values() if not order.taken and 0 <= now - order.at < FORGET_S]

    @property
    def mean_arrival_s(self) -> float:
        """MeanDrainedArrival: seconds between two machines that were done, on average; 0 before the first."""
        return max(0.0, self.arrived - self.since) / self.drained if self.drained else 0.0


def arrivals(book: Book, machines: Mapping[str, Machine]) -> int:
    """Machines that were being drained at the last round, and are done: they take jobs again."""
    return sum(
        1 for inbox in book.draining if inbox in machines and inbox not in book.orders and not machines[inbox].draining
    )
