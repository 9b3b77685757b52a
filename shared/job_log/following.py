"""Follows a log of jobs as it grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from shared.job_log.event import Event
from shared.job_log.reading import BadEvent, LogReader

#: How often a log is looked at, seconds. Where it lies may be a file system that tells of no changes.
LOOK_S: Final = 0.2
#: Characters read in one go.
PIECE: Final = 1 << 20


class LogFollower:
    """The events of a log in the order in which they stand there. Raises OSError where the file can not be read."""

    def __init__(self, path: str) -> None:
        # A carriage return is what it is: the reader knows how lines end.
        self._file = open(path, encoding="utf-8", errors="surrogateescape", newline="")  # noqa: SIM115  close does it
        self._found: list[Event | BadEvent] = []
        self._reader = LogReader(self._found.append)

    @property
    def path(self) -> str:
        return self._file.name

    @property
    def closed(self) -> bool:
        return self._file.closed

    def __enter__(self) -> LogFollower:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def read(self) -> Iterator[Event | BadEvent]:
        """What is there now, further pieces as long as there are any; with what is no event, which is passed over."""
        while not self._file.closed and (piece := self._file.read(PIECE)):
            for event in self._reader.feed(piece):
                self._found.append(event)
            found, self._found[:] = list(self._found), []
            yield from found

    @staticmethod
    def pause(until: float | None) -> bool:
        """Wait until there may be more. until: monotonic, None: there is no end. False: that is over."""
        left = LOOK_S if until is None else until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(LOOK_S, left))
        return True
