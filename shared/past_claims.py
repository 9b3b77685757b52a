"""Claims that are over, as slots tell of them in RoostPastClaims, a line each: for who charges for them and may
not have heard of them in time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Nothing beyond the last so many lines of one ad is read.
_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class Past:
    """A claim that is over. Times are seconds since 1970 by its startd's clock."""

    slot: str
    began: float
    ended: float
    cpus: float
    user: str  # who is charged

    @property
    def text(self) -> str:
        """As ads have it."""
        return f"{self.began!r} {self.ended!r} {self.cpus:g} {self.slot} {self.user}"


def read_past(text: str) -> list[Past]:
    """RoostPastClaims; what can not be read is left out."""
    found = []
    for line in text.splitlines()[-_MOST:]:
        try:
            began, ended, cpus, slot, user = line.split(" ", 4)
            past = Past(slot, float(began), float(ended), float(cpus), user)
        except ValueError:
            continue
        if past.user and 0.0 < past.began <= past.ended < 1e11 and 0.0 <= past.cpus <= 1e9:
            found.append(past)
    return found
