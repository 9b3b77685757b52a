"""Decides what a cycle of defrag does: which drains are cancelled, how many machines may begin to drain, and which
(spec rows DFR-01 to DFR-06). Pure.

The rate: each cycle may drain the whole number of machines that DEFRAG_DRAINING_MACHINES_PER_HOUR gives its interval.
The first cycle of an hour makes up for the fractions of that hour, and the first cycle of a day for the rest; hours and
days are UTC's. A defrag that was away does not catch up: draining must not come in a burst.

The state: when the last cycle was, which orders are open, and counters. It is stored as the note of the leader
(shared.daemon.lead), and written with the orders before the first of them is sent. The next leader repeats orders that
were not answered: an order names the drain that its machine began last, and a machine that has begun another one since
refuses. So no order is forgotten, and no machine is drained twice for one order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from services.defrag.core.machines import Expressions, Machine, averages

HOUR: Final = 3600
DAY: Final = 86400
#: What a product of floats may lack of a whole number.
_TINY: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Allowance:
    """Machines: of every round, besides of every hour, and (a fraction, too) of every day."""

    each_round: int
    hourly: int
    daily: float


def allowance(per_hour: float, interval_s: int) -> Allowance:
    """Split a rate. interval_s: between rounds, at least 1."""
    if per_hour <= 0:
        return Allowance(0, 0, 0.0)
    a_round = per_hour * interval_s / HOUR
    each_round = math.floor(a_round + _TINY)
    left = max(0.0, (a_round - each_round) * HOUR / interval_s)  # machines per hour
    hourly = math.floor(left + _TINY) if interval_s <= HOUR else 0
    daily = max(0.0, (left - hourly) * DAY / HOUR)
    return Allowance(each_round, hourly, daily if daily > _TINY else 0.0)


def due(allowed: Allowance, before: float, now: float, interval_s: int) -> int:
    """Machines that a round may begin to drain. before: when the last round was; 0: there was none. Times are seconds
    since 1970."""
    found = allowed.each_round
    if now // HOUR != before // HOUR:
        found += round_half_up(allowed.hourly * _left(now, HOUR, interval_s))
    today = int(now // DAY)
    # Of the days since then only those that one interval can pass over: more were lost, and stay so.
    first = max(int(before // DAY) + 1, today - math.ceil(interval_s / DAY) + 1)
    for day in range(first, today + 1):
        share = _left(now, DAY, interval_s) if day == today else 1.0
        found += round_half_up(
            share * (math.floor(allowed.daily * (day + 1) + _TINY) - math.floor(allowed.daily * day + _TINY))
        )
    return found


def round_half_up(number: float) -> int:
    return math.floor(number + 0.5)


def _left(now: float, period_s: int, interval_s: int) -> float:
    """How much of the period that began last is to come yet: all of it, if a round could not come sooner."""
    return min(1.0, (period_s - now % period_s + interval_s) / period_s)


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
class PoolView:
    """What a round has seen. badput, unclaimed: AvgDrainingBadput, AvgDrainingUnclaimed. why: what it decided, for
    people."""

    machines: int = 0
    draining: int = 0
    whole: int = 0
    badput: float = 0.0
    unclaimed: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class DefragState:
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
    seen: PoolView = field(default_factory=PoolView)

    def pack(self) -> bytes:
        return json.dumps(asdict(self) | {"orders": [asdict(order) for order in self.orders.values()]}).encode()

    @classmethod
    def unpack(cls, note: bytes) -> DefragState:
        """Raises ValueError for what is not a state."""
        if not note:
            return cls()
        try:
            found: dict[str, Any] = json.loads(note)
            orders = [Order(**order) for order in found["orders"]]
            known = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
            known["draining"] = tuple(known["draining"])
            known["recent"] = tuple((float(at), int(good), int(bad)) for at, good, bad in known["recent"])
            known["seen"] = PoolView(**known["seen"])
            known["orders"] = {order.machine: order for order in orders}
            return cls(**known)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"the note is damaged: {type(error).__name__}: {error}") from error

    def settled(self, machines: Mapping[str, Machine], now: float) -> DefragState:
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

    def answered(self, order: Order, now: float, *, taken: bool) -> DefragState:
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


def arrivals(state: DefragState, machines: Mapping[str, Machine]) -> int:
    """Machines that were being drained at the last round, and are done: they take jobs again."""
    return sum(
        1
        for inbox in state.draining
        if inbox in machines and inbox not in state.orders and not machines[inbox].draining
    )


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
class Decision:
    """What is to be done, and the state as it is to be written down first, with what was seen."""

    state: DefragState
    drains: tuple[Order, ...]
    cancels: tuple[Machine, ...]


def prefix(name: str) -> str:
    """name: DEFRAG_NAME, or nothing."""
    return f"defrag:{name}:" if name else "defrag:"


def decide(
    rules: Rules, state: DefragState, machines: Mapping[str, Machine], now: float, new_id: Callable[[], str]
) -> Decision:
    """One round."""
    state = state.settled(machines, now)
    cancels = tuple(
        sorted(
            (m for m in machines.values() if m.draining and not m.drained and m.cancels and rules.own(m.request_id)),
            key=lambda machine: machine.inbox,
        )
    )
    spared = {machine.inbox for machine in cancels}
    # What an administrator has drained is empty for a reason of his own: it stands for none of ours.
    draining = {m.inbox for m in machines.values() if m.draining and (not m.drained or rules.own(m.request_id))}
    draining = (draining | set(state.orders)) - spared
    whole = sum(1 for machine in machines.values() if _is_whole(machine))
    allowed = due(allowance(rules.per_hour, rules.interval_s), min(state.last_round, now), now, rules.interval_s)
    room, why = _allowed_drains(rules, allowed, len(draining), whole)
    chosen: list[Machine] = []
    if room:
        chosen = candidates(machines.values(), {*spared, *state.orders})[:room]
        why = _summary(chosen, room)
    orders = tuple(Order(machine.inbox, rules.prefix + new_id(), now, machine.last_start) for machine in chosen)
    done = arrivals(state, machines)
    own = [m.inbox for m in machines.values() if m.draining and rules.own(m.request_id) and m.inbox not in spared]
    under_way = {**state.orders, **{order.machine: order for order in orders}}
    state = replace(
        state,
        last_round=now,
        since=state.since or now,
        orders=under_way,
        draining=tuple(sorted({*own, *under_way})),
        drained=state.drained + done,
        arrived=now if done else state.arrived,
        draining_peak=max(state.draining_peak, len(draining) + len(orders)),
        whole_peak=max(state.whole_peak, whole),
        cancels=state.cancels + len(cancels),
        seen=PoolView(len(machines), len(draining), whole, *averages(machines.values()), why),
    )
    return Decision(state, orders, cancels)


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


def _allowed_drains(rules: Rules, allowed: int, draining: int, whole: int) -> tuple[int, str]:
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


def _summary(chosen: list[Machine], room: int) -> str:
    if not chosen:
        return f"no machine can be drained, of {room} that may be: none that is in pieces fits DEFRAG_REQUIREMENTS"
    names = ", ".join(machine.name for machine in chosen[:_TOLD])
    more = f" and {len(chosen) - _TOLD} more" if len(chosen) > _TOLD else ""
    return f"to be drained: {names}{more}"
