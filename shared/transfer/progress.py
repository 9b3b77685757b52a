"""How far a transfer is, when that is worth telling, and how it is said. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Told after so many seconds first, and then after a quarter of the time that it took so far: at least the first number
#: and at most the second. So an hour of it is told a hundred times.
PAUSE_S: Final = (2.0, 60.0)
#: Worth an event first after so many seconds, and then whenever it has taken twice as long.
NOTABLE_S: Final = 10.0
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Standing:
    """total: bytes of all; 0: nobody knows. bytes_per_s: since it was told before. notable: worth an event."""

    done: int
    total: int
    bytes_per_s: int
    notable: bool


class Progress:
    """One transfer, from its beginning. Times are monotonic seconds."""

    def __init__(self, now: float, total: int = 0) -> None:
        self.total = total
        self.done = 0
        self._began = now
        self._told, self._told_done = now, 0
        self._next = now + PAUSE_S[0]
        self._notable = now + NOTABLE_S

    @property
    def next_at(self) -> float:
        """When it is to be told next."""
        return self._next

    def moved(self, count: int, now: float) -> Standing | None:
        """So many bytes more are there. Gives what is to be told, if it is time."""
        return self.stands(self.done + count, self.total, now)

    def stands(self, done: int, total: int, now: float) -> Standing | None:
        """The same, of a transfer that says how far it is."""
        self.done, self.total = done, total
        if now < self._next:
            return None
        rate = max(0, done - self._told_done) / max(now - self._told, 0.001)
        took = now - self._began
        self._told, self._told_done = now, done
        self._next = now + min(max(PAUSE_S[0], took / 4), PAUSE_S[1])
        notable = now >= self._notable
        if notable:
            self._notable = self._began + 2 * took
        return Standing(done, total, int(rate), notable)


def in_words(done: int, total: int, bytes_per_s: int) -> str:
    """As "1.2 of 5.0 GB, 80 MB/s, 48 s left"."""
    unit = _unit(max(done, total))
    shown = f"{done / 1000**unit:.1f}" if unit else str(done)
    if total:
        shown += f" of {total / 1000**unit:.1f}" if unit else f" of {total}"
    parts = [f"{shown} {_UNITS[unit]}"]
    if bytes_per_s:
        speed = _unit(bytes_per_s)
        parts.append(f"{bytes_per_s / 1000**speed:.3g} {_UNITS[speed]}/s")
        if total > done:
            parts.append(f"{_time((total - done) // bytes_per_s)} left")
    return ", ".join(parts)


def _unit(count: int) -> int:
    """Place in _UNITS."""
    return min((len(str(count)) - 1) // 3, len(_UNITS) - 1)


def _time(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
