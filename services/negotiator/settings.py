"""Settings of the negotiator besides the policy by which it matches (engine/policy.py): when cycles start, and how
schedds are asked (spec rows NEG-01 to NEG-03, NEG-29 to NEG-31). Pure.

Events (new idle jobs, freed slots, a reschedule request) start a cycle at once after a quiet spell. While they keep
coming, cycles are coalesced: each is to be followed by a rest of `duty` times its duration, at least `least_gap` and at
most `coalesce`, counted from its start. Up to `coalesce` of that may be made up for later: jobs that come one by one,
some milliseconds apart, need not wait for each other. So a small pool with cycles of a millisecond reacts at once, and
a huge one is not kept busy by triggers. NEGOTIATOR_MIN_INTERVAL and NEGOTIATOR_CYCLE_DELAY bind only where an
administrator sets them; the periodic cycle every NEGOTIATOR_INTERVAL stays as a safety net.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.config import Config
from shared.config.knobs import NegotiatorSettings


@dataclass(frozen=True, slots=True)
class Timing:
    """When cycles start. All in seconds."""

    interval: float = 60.0  # NEGOTIATOR_INTERVAL, from start to start
    min_interval: float = 0.0  # NEGOTIATOR_MIN_INTERVAL where set, from start to start
    cycle_delay: float = 0.0  # NEGOTIATOR_CYCLE_DELAY where set, from end to start
    coalesce: float = 0.2  # ROOST_NEGOTIATOR_COALESCE
    least_gap: float = 0.002
    duty: float = 10.0


@dataclass(frozen=True, slots=True)
class LastCycle:
    """When the last cycle started and ended, and when all rests are over that it and those before it call for
    (monotonic seconds)."""

    start: float
    end: float
    rested: float

    @classmethod
    def of(cls, timing: Timing, before: LastCycle | None, start: float, end: float) -> LastCycle:
        rest = min(timing.coalesce, max(timing.least_gap, timing.duty * (end - start)))
        return cls(start, end, (start if before is None else max(start, before.rested)) + rest)


def next_start(timing: Timing, last: LastCycle | None, triggered: bool) -> float:
    """Monotonic time before which no cycle starts; may lie in the past, which means now."""
    if last is None:
        return float("-inf")
    earliest = max(
        last.start + timing.min_interval,
        last.end + timing.cycle_delay,
        last.rested - timing.coalesce,
    )
    return earliest if triggered else max(earliest, last.start + timing.interval)


@dataclass(frozen=True, slots=True)
class RequestListSettings:
    """What every request list is asked with (spec rows NEG-29 to NEG-31)."""

    job_constraint: str = ""  # NEGOTIATOR_JOB_CONSTRAINT
    limit: int = 200  # NEGOTIATOR_RESOURCE_REQUEST_LIST_SIZE
    counts: bool = True  # USE_RESOURCE_REQUEST_COUNTS
    timeout_s: float = 30.0  # NEGOTIATOR_TIMEOUT


def read_timing(settings: NegotiatorSettings, config: Config) -> Timing:
    """Read when cycles start. MIN_INTERVAL and CYCLE_DELAY hold an event-driven pool back, so they count only where
    somebody set them."""
    return Timing(
        interval=float(settings.negotiator_interval),
        min_interval=float(settings.negotiator_min_interval) if config.is_written("NEGOTIATOR_MIN_INTERVAL") else 0.0,
        cycle_delay=float(settings.negotiator_cycle_delay) if config.is_written("NEGOTIATOR_CYCLE_DELAY") else 0.0,
        coalesce=settings.roost_negotiator_coalesce,
    )


def read_request_lists(settings: NegotiatorSettings, config: Config) -> RequestListSettings:
    return RequestListSettings(
        job_constraint=config.get("NEGOTIATOR_JOB_CONSTRAINT") or "",
        # One by one where jobs are asked for one by one, as the manual has it (NEG-29).
        limit=settings.negotiator_resource_request_list_size if settings.use_resource_request_counts else 1,
        counts=settings.use_resource_request_counts,
        timeout_s=float(settings.negotiator_timeout),
    )
