"""The log of the events of all jobs (EVENT_LOG): written as users' logs are (job_log), put away when it is large."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from shared.files import beside


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """The jobs that left the queue, in a file besides (HISTORY). path: absolute; empty: none is written."""

    path: str = ""
    max_bytes: int = 20_971_520
    rotations: int = 2

    def is_put_away(self, size: int) -> bool:
        """Whether it is too large."""
        return 0 < self.max_bytes <= size


@dataclass(frozen=True, slots=True)
class EventLog:
    """path: absolute; empty: none is written. max_bytes: then it is put away; 0: never. rotations: files kept so."""

    path: str = ""
    max_bytes: int = 1_000_000
    rotations: int = 1

    def older(self) -> list[Path]:
        """Where it is put away, the newest first: `.old`, or `.1`, `.2` and so on, as HTCondor names them."""
        if self.rotations == 1:
            return [beside(Path(self.path), ".old")]
        return [beside(Path(self.path), f".{number}") for number in range(1, self.rotations + 1)]

    def is_put_away(self, size: int) -> bool:
        """Whether it is too large."""
        return 0 < self.max_bytes <= size

    def moves(self) -> list[tuple[Path, Path]]:
        """What becomes of which file when it is put away, in this order."""
        names = [Path(self.path), *self.older()]
        return list(pairwise(names))[::-1]
