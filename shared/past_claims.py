"""Claims that are over, as slots tell of them in RoostPastClaims, a line each: for who charges for them and may
not have heard of them in time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Nothing beyond the last so many lines of one ad is read.
_MOST: Final = 100


#: A line of a claim since which the clock was set begins with this, and by how many seconds. Readers that do not know
#: it leave the line out.
_SET: Final = "set"


@dataclass(frozen=True, slots=True)
class Past:
    """A claim that is over. Times are seconds since 1970 by its startd's clock as it was when the claim began: that the
    clock was set by `clock_set` seconds since then is not in them."""

    slot: str
    began: float
    ended: float
    cpus: float
    user: str  # who is charged
    clock_set: float = 0.0

    @property
    def text(self) -> str:
        """As ads have it."""
        said = f"{_SET}{self.clock_set!r} " if self.clock_set else ""
        return f"{said}{self.began!r} {self.ended!r} {self.cpus:g} {self.slot} {self.user}"


def read_past(text: str) -> list[Past]:
    """RoostPastClaims; what can not be read is left out. A claim that seems to end before it begins is not: startds of
    earlier releases say so of one during which their clock was set back."""
    found = []
    for line in text.splitlines()[-_MOST:]:
        said = ""
        if line.startswith(_SET):
            said, _, line = line.removeprefix(_SET).partition(" ")
        try:
            began, ended, cpus, slot, user = line.split(" ", 4)
            past = Past(slot, float(began), float(ended), float(cpus), user, float(said or 0.0))
        except ValueError:
            continue
        moments = (past.began, past.ended, past.began + past.clock_set)
        if past.user and all(0.0 < one < 1e11 for one in moments) and 0.0 <= past.cpus <= 1e9:
            found.append(past)
    return found
