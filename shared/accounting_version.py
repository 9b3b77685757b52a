"""Versions of an accountant's records, which tell the later of two states.

A version is the epoch of the negotiator that wrote last, and a counter. Epochs are never given twice, so what a later
leader wrote is newer than everything that an earlier one wrote, however often it wrote: records that went back in time
and were written again can not be mistaken for those that were lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shared.errors import PermanentError


class BadVersion(PermanentError):
    """Text or numbers that are no version."""


@dataclass(frozen=True, order=True, slots=True)
class Version:
    """Ordered: by epoch, then by counter."""

    epoch: int
    count: int

    @property
    def text(self) -> str:
        """As scripts, files and people have it: `7.50`; of books that nobody began `-`."""
        return "-" if self == NONE else f"{self.epoch}.{self.count}"

    @property
    def arg(self) -> str:
        """As an argument of a script."""
        return f"{self.epoch} {self.count}"


#: Nothing known; in Redis: books that nobody wrote yet.
NOTHING: Final = Version(0, 0)
#: No books at all: less than any version.
NONE: Final = Version(-1, 0)
#: Numbers above are nobody's: scripts count in doubles.
MOST: Final = 2**52


def parse(text: bytes | str | None) -> Version:
    """The version that a key holds, or a script answered; NONE for an empty one. Raises BadVersion."""
    if not text:
        return NONE
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if said == NONE.text:
        return NONE
    try:
        epoch, count = (int(part) for part in said.replace(".", " ").split())
    except ValueError as error:
        raise BadVersion(f"{said[:80]!r} is no version of books: want two numbers, such as 7 50") from error
    if not (0 <= epoch <= MOST and 0 <= count <= MOST):
        raise BadVersion(f"{said[:80]!r} is no version of books: numbers from 0 to {MOST}")
    return Version(epoch, count)
