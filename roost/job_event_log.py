"""A job's log (`log = file`, EVENT_LOG) as events, of Roost or of HTCondor, as it grows.

for event in JobEventLog("job.log").events(stop_after=0):
    print(event.type, event.cluster, event.proc, event.timestamp, event.get("Reason"))
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from roost.errors import ClientError
from shared.job_log import BadEvent, Event, Form, JobEventType, LogFollower, as_ad

__all__ = ["JobEvent", "JobEventLog", "JobEventType"]


class JobEvent(Mapping[str, Any]):
    """One event: its attributes by HTCondor's names, in any case. Values are those of ClassAds (`shared.classad`)."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self._ad = as_ad(event, Form(sub_second=event.at % 1 != 0))

    @property
    def type(self) -> JobEventType | int:
        """Its kind; a number of one that is not known here stays a number."""
        try:
            return JobEventType(self._event.number)
        except ValueError:
            return self._event.number

    @property
    def cluster(self) -> int:
        return self._event.cluster

    @property
    def proc(self) -> int:
        """-1 for an event of a whole cluster."""
        return self._event.proc

    @property
    def timestamp(self) -> int:
        """When, whole seconds since 1970."""
        return int(self._event.at)

    def __getitem__(self, name: str) -> Any:
        return self._ad[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ad)

    def __len__(self) -> int:
        return len(self._ad)

    def __repr__(self) -> str:
        return f"JobEvent(type={self.type!s}, cluster={self.cluster}, proc={self.proc}, timestamp={self.timestamp})"


class JobEventLog:
    """Iterates over the events of a log, in text, XML or JSON. Raises OSError where the file can not be read.

    An iterator waits for events that are still to come, as long as `events` said. What is no event raises ClientError,
    once; the next call goes on behind it.
    """

    def __init__(self, path: str) -> None:
        self._log = LogFollower(path)
        self._found = self._log.read()
        self._until: float | None = None

    def events(self, stop_after: float | None = None) -> JobEventLog:
        """This log as an iterator. stop_after: how many seconds it waits for further events; 0: not at all; None: for
        ever."""
        self._until = None if stop_after is None else time.monotonic() + stop_after
        return self

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> JobEventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> JobEventLog:
        return self

    def __next__(self) -> JobEvent:
        while (found := next(self._found, None)) is None:
            self._found = self._log.read()
            if (found := next(self._found, None)) is not None:
                break
            if self._log.closed or not self._log.pause(self._until):
                raise StopIteration
        if isinstance(found, BadEvent):
            raise ClientError(f"{self._log.path}: {found}", "bad-log")
        return JobEvent(found)
