"""A pool under virtual time: users with changing demand, a step at a time, slots that can be divided at will.

Each step every user gets what a negotiation would give if all jobs ended at its beginning, without the grain of whole
slots; then the accountant charges for the step. Both by the product's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.fairshare import priorities
from engine.fairshare.priorities import Record

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
#: PRIORITY_HALFLIFE by default.
HALF_LIFE: Final = DAY
#: When virtual time begins (seconds since 1970): not at 0, which means never to the accountant.
BEGINNING: Final = 1_000_000_000.0
_NOTHING: Final = 1e-9

#: How many cores a user could use at a moment (seconds since the beginning).
Demand = Callable[[float], float]


def always(cores: float) -> Demand:
    return lambda _: cores


def until(end: float, cores: float) -> Demand:
    """Cores before `end`, none from then on."""
    return lambda seconds: cores if seconds < end else 0.0


def since(start: float, cores: float) -> Demand:
    return lambda seconds: cores if seconds >= start else 0.0


@dataclass(frozen=True, slots=True)
class User:
    """`record`: what the books know at the beginning; priority, factor, floor and ceiling count."""

    demand: Demand
    record: Record = field(default_factory=lambda: Record(factor=1.0))


@dataclass(frozen=True, slots=True)
class Moment:
    """A step's beginning, in seconds since the beginning of all: each user's real and effective priority then, and the
    cores of the step."""

    seconds: float
    rup: Mapping[str, float]
    eup: Mapping[str, float]
    cores: Mapping[str, float]


def _floor_left(record: Record, given: float) -> float:
    """What a user below its floor is offered before all others, where everything can be divided (NEG-11)."""
    wanted = min(record.floor, record.ceiling) if record.ceiling >= 0.0 else record.floor
    return max(0.0, wanted - given)


def deal(
    eup: Mapping[str, float], records: Mapping[str, Record], wants: Mapping[str, float], pool: float
) -> dict[str, float]:
    """Cores for each user of a pool in which everything is free: floors, then spins (NEG-08 to NEG-12)."""
    given = dict.fromkeys(wants, 0.0)
    nothing = dict.fromkeys(wants, (0.0, 1.0))
    names = priorities.best_first([name for name, cores in wants.items() if cores > 0.0], eup, nothing)

    def give(name: str, left: float) -> float:
        took = max(0.0, min(left, wants[name] - given[name], pool - sum(given.values())))
        given[name] += took
        return took

    for name in names:
        give(name, _floor_left(records[name], given[name]))
    spin = 0
    while names:
        spin += 1
        parts = priorities.pie_fractions(names, eup)
        free = pool - sum(given.values())
        took = 0.0
        for name in names:
            left = priorities.pie_slice_left(
                parts[name], pool, given[name], free_weight=free, spin=spin, ceiling=records[name].ceiling
            )
            took += give(name, left)
        names = [
            name
            for name in names
            if wants[name] - given[name] > _NOTHING and not 0.0 <= records[name].ceiling <= given[name] + _NOTHING
        ]
        if took <= _NOTHING:
            break
    return given


def simulate(
    users: Mapping[str, User], pool: float, hours: float, *, step: float = 60.0, half_life: float = HALF_LIFE
) -> list[Moment]:
    """The moments of a simulation, the end included (whose cores are those that a next step would have)."""
    books = {name: replace(user.record, updated=BEGINNING) for name, user in users.items()}
    moments: list[Moment] = []
    for number in range(round(hours * HOUR / step) + 1):
        seconds = number * step
        now = BEGINNING + seconds
        books = {
            name: priorities.advance(record, now, half_life, record.in_use, record.slots_in_use)
            for name, record in books.items()
        }
        eup = {name: priorities.effective(record) for name, record in books.items()}
        wants = {name: user.demand(seconds) for name, user in users.items()}
        cores = deal(eup, books, wants, pool)
        moments.append(Moment(seconds, {name: record.priority for name, record in books.items()}, eup, cores))
        books = {
            name: priorities.advance(record, now, half_life, cores[name], 1 if cores[name] > 0.0 else 0)
            for name, record in books.items()
        }
    return moments


def at(moments: Sequence[Moment], hours: float) -> Moment:
    """The moment of that hour."""
    return min(moments, key=lambda moment: abs(moment.seconds - hours * HOUR))
