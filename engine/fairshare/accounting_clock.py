"""How far the clock that accounting records were written by is behind the one of who reads them. Pure.

Records say by the writer's wall clock until when all are charged, and who takes over charges what is in use from then
on. Whose clock is an hour behind would so leave an hour behind that nobody had. Redis notes as well when they were
written, by a clock that is the same for all central managers; of the two the one that says less time passed is
believed, so whichever was set, nobody is charged for more than what passed.
"""

from __future__ import annotations

from typing import Final

#: Records lie in Redis up to so long (s) after all were charged: a write waits for a primary that is failed over.
SLOWEST_WRITE_S: Final = 15.0
#: Clocks of two machines differ by this (s) without having been set.
APART_S: Final = 1.0
#: A collector of a pool heard something of some daemon in the last so many seconds.
LATELY_S: Final = 60.0


def clock_behind(until: float, now: float, passed_s: float | None) -> float:
    """What is to be added to the writer's clock to get ours, in seconds; 0 where nothing says that they differ. until:
    all are charged up to here, the writer's clock; now: ours; passed_s: since the records were written, as Redis's
    clock says, None if that is not known."""
    if passed_s is None:
        return now - until if until > now + APART_S else 0.0
    if -APART_S <= now - passed_s - until <= SLOWEST_WRITE_S:
        return 0.0
    passed = min((one for one in (now - until, passed_s) if one >= 0.0), default=0.0)
    return now - passed - until


def clock_ahead(behind_s: float, now: float, redis_now: float) -> float:
    """How far our clock is ahead of everybody's, in seconds: where the clock that records were written by (`behind_s`,
    see above) and Redis's agree that it is; else 0."""
    ahead_s = now - redis_now
    return ahead_s if abs(behind_s) > APART_S and abs(ahead_s - behind_s) <= SLOWEST_WRITE_S else 0.0


def presumed_ahead(ahead_s: float, redis_ahead_s: float | None, now: float, heard: float | None) -> float:
    """How far our clock is ahead of everybody's, in seconds: `ahead_s`, or, where the accounting records were written
    by a clock that is as wrong as ours (our own, of a former life), what Redis's clock says if the collectors' bears it
    out. redis_ahead_s: how far ours is ahead of Redis's, None if that is not known; heard: when a collector heard
    last of a daemon, its clock, None if nothing was heard."""
    if ahead_s or redis_ahead_s is None or heard is None:
        return ahead_s
    redis_fits, ours_fits = (-APART_S <= moment - heard <= LATELY_S for moment in (now - redis_ahead_s, now))
    return redis_ahead_s if redis_fits and not ours_fits else 0.0
