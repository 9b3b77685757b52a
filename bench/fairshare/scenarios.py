"""What is simulated: the manual's examples (worked examples W-09 to W-15), each with its pool and users. Each is
simulated once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from bench.fairshare.cycles import run_cycles
from bench.fairshare.simulation import DAY, Moment, User, always, at, deal, simulate, since, until
from engine.fairshare.priorities import Record

CORES: Final = 100.0
#: As much as anybody could use.
ENDLESS: Final = 1e9


@cache
def growth() -> Sequence[Moment]:
    """A new user has 100 cores for three days (W-11)."""
    return simulate({"user": User(always(CORES))}, CORES, 72)


@cache
def growth_and_decay() -> Sequence[Moment]:
    """A new user has 100 cores for a day, then none (W-11)."""
    return simulate({"user": User(until(DAY, CORES))}, CORES, 24 + 240)


@cache
def decay() -> Sequence[Moment]:
    """A user with a real priority of 10 has no jobs any more (W-09)."""
    return simulate({"user": User(always(0.0), Record(priority=10.0, factor=1.0))}, CORES, 6 * 24)


@cache
def a_against_b() -> Sequence[Moment]:
    """A alone for two days, then B comes without any history; factors 1 (W-12)."""
    users = {"A": User(always(ENDLESS)), "B": User(since(2 * DAY, ENDLESS))}
    return simulate(users, CORES, 48 + 96)


@cache
def factors() -> Sequence[Moment]:
    """Two new users with factors 1000 and 2000 on 90 cores (W-14)."""
    users = {
        "factor 1000": User(always(ENDLESS), Record(factor=1000.0)),
        "factor 2000": User(always(ENDLESS), Record(factor=2000.0)),
    }
    return simulate(users, 90.0, 144)


@cache
def a_against_b_in_cycles() -> Sequence[Moment]:
    """The two days after B came, with whole slots, jobs of half an hour and the negotiation cycle itself (W-12)."""
    users = {
        "A": User(always(ENDLESS), Record(priority=at(a_against_b(), 48).rup["A"], factor=1.0)),
        "B": User(always(ENDLESS)),
    }
    return run_cycles(users, {"A": int(CORES)}, int(CORES), 48)


def inverse_ratio(wanted_by_a: float = ENDLESS) -> Mapping[str, float]:
    """One hand-out of 70 cores to effective priorities of 5, 10 and 20 (W-13)."""
    eup = {"A": 5.0, "B": 10.0, "C": 20.0}
    wants = {"A": wanted_by_a, "B": ENDLESS, "C": ENDLESS}
    return deal(eup, {name: Record(factor=1.0) for name in eup}, wants, 70.0)


@cache
def floor_and_ceiling() -> Sequence[Moment]:
    """A has the better factor by 100. B has a floor of 10 cores from the beginning; A gets a ceiling of 30 at 24 hours
    (W-15)."""
    a, b = Record(factor=1000.0), Record(factor=100_000.0, floor=10.0)
    users = {"A": User(always(ENDLESS), a), "B": User(always(ENDLESS), b)}
    before = simulate(users, CORES, 24)
    last = before[-1]
    bounded = {
        "A": User(always(ENDLESS), Record(priority=last.rup["A"], factor=1000.0, ceiling=30.0)),
        "B": User(always(ENDLESS), Record(priority=last.rup["B"], factor=100_000.0, floor=10.0)),
    }
    after = simulate(bounded, CORES, 24)
    return [*before[:-1], *(Moment(m.seconds + DAY, m.rup, m.eup, m.cores) for m in after)]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`hours`: the moments to tell of in tables."""

    title: str
    run: Callable[[], Sequence[Moment]]
    hours: tuple[float, ...]


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "growth": Scenario("100 cores, a new user", growth, (0, 1, 6, 12, 24, 36, 48, 72)),
    "growth-and-decay": Scenario("100 cores for a day, then none", growth_and_decay, (24, 36, 48, 72, 120, 264)),
    "decay": Scenario("A priority of 10 without use", decay, (0, 24, 48, 72, 103.7, 144)),
    "a-against-b": Scenario("A against B, 100 cores", a_against_b, (0, 47, 48, 49, 51, 54, 60, 72, 96, 144)),
    "a-against-b-in-cycles": Scenario(
        "The same from hour 48 on, 100 slots, jobs of 30 minutes", a_against_b_in_cycles, (0, 1, 3, 6, 12, 24, 48)
    ),
    "factors": Scenario("Factors 1000 and 2000, 90 cores", factors, (0, 1, 6, 24, 72, 144)),
    "floor-and-ceiling": Scenario("Floor of B, then ceiling of A", floor_and_ceiling, (0, 12, 23, 24, 36, 48)),
}
