"""Statistics in daemons' ads, in HTCondor's names: what was counted since the daemon began, the same of late as
`Recent<name>`, and what its process uses (`MonitorSelf...`, `DaemonCoreDutyCycle`).

Daemons count once, in plain numbers that only grow; /metrics shows the same ones (shared.daemon.metrics). What is
recent is found here, by what the numbers were before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from shared.daemon.context import Context
from shared.daemon.process_usage import Usage

#: The numbers are remembered so many times in a window, as HTCondor does (STATISTICS_WINDOW_QUANTUM is 240 s of 1200).
QUANTA: Final = 5
#: The process is looked at no more often than this, seconds.
LOOK_S: Final = 5.0
#: Spans of averages, by what their names end with, seconds.
SPANS: Final = (("1m", 60.0), ("5m", 300.0), ("1h", 3600.0), ("1d", 86400.0))


class Window:
    """What numbers that only grow were at moments of the last `window_s` seconds, and once before."""

    def __init__(self, window_s: float, now: float) -> None:
        self._window_s = window_s
        self._known: deque[tuple[float, Mapping[str, float]]] = deque([(now, {})])

    def grown(self, totals: Mapping[str, float], now: float) -> tuple[dict[str, float], float]:
        """By how much each grew of late, and in how many seconds: at least the window, or all there were; at most a
        quantum more, or the time between two calls."""
        known = self._known
        while len(known) > 1 and known[1][0] <= now - self._window_s:
            known.popleft()
        since, before = known[0]
        if now - known[-1][0] >= self._window_s / QUANTA:
            known.append((now, dict(totals)))
        return {name: total - before.get(name, 0) for name, total in totals.items()}, max(0.0, now - since)


class Averages:
    """How fast a number grows, per second, averaged over several spans: what is long ago counts exponentially less."""

    def __init__(self, now: float) -> None:
        self._at, self._total = now, 0.0
        self._rates = [0.0] * len(SPANS)

    def look(self, total: float, now: float) -> dict[str, float]:
        """By the ends of names in SPANS."""
        passed = now - self._at
        if passed > 0:
            rate = (total - self._total) / passed
            self._at, self._total = now, total
            for number, (_, span) in enumerate(SPANS):
                self._rates[number] += (rate - self._rates[number]) * -math.expm1(-passed / span)
        return {name: rate for (name, _), rate in zip(SPANS, self._rates, strict=True)}


def recent(name: str) -> str:
    return f"Recent{name}"


class Statistics:
    """The statistics of one daemon. window_s: STATISTICS_WINDOW_SECONDS. counted: what it counts now, by HTCondor's
    names."""

    def __init__(self, context: Context, window_s: float, counted: Callable[[], Mapping[str, float]]) -> None:
        self._context = context
        self._counted = counted
        self._began = now = context.clock.monotonic()
        self._window = Window(window_s, now)
        self._looked = float("-inf")
        self._usage: Usage | None = None

    def attributes(self) -> dict[str, object]:
        """For the daemon's ad as it is now."""
        now = self._context.clock.monotonic()
        usage = self._look(now)
        counted = dict(self._counted())
        grown, seconds = self._window.grown(
            counted if usage is None else {**counted, _CPU: usage.cpu_s, _BUSY: usage.busy_s, _AGE: usage.age_s}, now
        )
        told: dict[str, object] = {
            "StatsLifetime": int(now - self._began),
            "RecentStatsLifetime": int(seconds),
            "StatsLastUpdateTime": int(self._context.clock.now()),
            **counted,
            **{recent(name): grown[name] for name in counted},
        }
        if usage is not None:
            told |= {
                "MonitorSelfTime": int(self._context.clock.now()),
                "MonitorSelfAge": int(usage.age_s),
                "MonitorSelfCPUUsage": round(100 * _share(grown[_CPU], grown[_AGE]), 2),
                "MonitorSelfImageSize": usage.image_kib,
                "MonitorSelfResidentSetSize": usage.resident_kib,
                "MonitorSelfRegisteredSocketCount": usage.sockets,
                "MonitorSelfSecuritySessions": 0,  # no two daemons keep one
                "DCSelectWaittime": round(max(0.0, usage.age_s - usage.busy_s), 3),
                recent("DCSelectWaittime"): round(max(0.0, grown[_AGE] - grown[_BUSY]), 3),
                "DaemonCoreDutyCycle": round(_share(usage.busy_s, usage.age_s), 4),
                recent("DaemonCoreDutyCycle"): round(_share(grown[_BUSY], grown[_AGE]), 4),
            }
        return told

    def _look(self, now: float) -> Usage | None:
        if self._context.usage is not None and now - self._looked >= LOOK_S:
            self._usage, self._looked = self._context.usage.look(), now
        return self._usage


_CPU, _BUSY, _AGE = "cpu", "busy", "age"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
