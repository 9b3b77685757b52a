"""When the next cycle starts (spec rows NEG-01 to NEG-03, and how events change them).

Events (new idle jobs, freed slots, a reschedule request) start a cycle at once after a quiet spell. While they keep
coming, cycles are coalesced: the gap between two starts is `duty` times the duration of the last cycle, at least a
blink and at most `coalesce`, so a small pool with cycles of a millisecond reacts within milliseconds and a huge one is
not kept busy by triggers. NEGOTIATOR_MIN_INTERVAL and NEGOTIATOR_CYCLE_DELAY bind only where an administrator sets
them; the periodic cycle every NEGOTIATOR_INTERVAL stays as a safety net.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    interval: float = 60.0  # NEGOTIATOR_INTERVAL, from start to start
    min_interval: float = 0.0  # NEGOTIATOR_MIN_INTERVAL where set, from start to start
    cycle_delay: float = 0.0  # NEGOTIATOR_CYCLE_DELAY where set, from end to start
    coalesce: float = 0.2  # ROOST_NEGOTIATOR_COALESCE
    blink: float = 0.002
    duty: float = 10.0


@dataclass(frozen=True, slots=True)
class LastCycle:
    """When the last cycle started and ended (monotonic seconds)."""

    start: float
    end: float


def next_start(timing: Timing, last: LastCycle | None, triggered: bool) -> float:
    """Monotonic time before which no cycle starts; may lie in the past, which means now."""
    if last is None:
        return float("-inf")
    earliest = max(
        last.start + timing.min_interval,
        last.end + timing.cycle_delay,
        last.start + min(timing.coalesce, max(timing.blink, timing.duty * (last.end - last.start))),
    )
    return earliest if triggered else max(earliest, last.start + timing.interval)
