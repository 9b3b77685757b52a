"""Reads logs of jobs (`log = file`) as they grow, in HTCondor's lines and its XML, for `roost wait`: which jobs are
still to end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

SUBMITTED: Final = 0
#: Of a whole cluster whose jobs come into the queue some at a time.
CLUSTER_SUBMITTED, CLUSTER_REMOVED = 35, 36
#: Terminated, aborted, and what a run of a node's script ends with: after these a job does nothing more.
ENDS: Final = frozenset((5, 9))
NAMES: Final = {
    0: "submitted", 1: "executing", 4: "evicted", 5: "completed", 6: "image size updated", 7: "shadow exception",
    9: "aborted", 10: "suspended", 11: "unsuspended", 12: "held", 13: "released", 22: "disconnected",
    23: "reconnected", 24: "reconnection failed", 35: "cluster submitted", 36: "cluster removed", 40: "file transfer",
}  # fmt: skip
_HEAD: Final = re.compile(r"(\d{3}) \((\d+)\.(-?\d+)\.(-?\d+)\) (.*)")
_XML: Final = re.compile(r'<a n="(EventTypeNumber|Cluster|Proc)"\s*>\s*<i>(-?\d+)</i>')


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One event. job: "12.3"; number: HTCondor's of the event."""

    number: int
    job: str
    line: str = ""


@dataclass(slots=True)
class LogReader:
    """Takes a log in pieces as they come. A last event that is not complete yet waits for its rest."""

    _rest: str = ""

    def feed(self, text: str) -> Iterator[LogEvent]:
        self._rest += text
        while True:
            whole, found, rest = self._cut()
            if not found:
                return
            self._rest = rest
            if (event := _read(whole)) is not None:
                yield event

    def _cut(self) -> tuple[str, bool, str]:
        """The first event that is complete, whether there is one, and what follows it."""
        if self._rest.lstrip().startswith("<"):
            whole, end, rest = self._rest.partition("</c>\n")
            return whole, bool(end), rest
        if self._rest.startswith("...\n"):
            return "", True, self._rest[4:]
        whole, end, rest = self._rest.partition("\n...\n")
        return whole, bool(end), rest


def _read(text: str) -> LogEvent | None:
    if text.lstrip().startswith("<"):
        found = {name: int(number) for name, number in _XML.findall(text)}
        if not {"EventTypeNumber", "Cluster", "Proc"} <= found.keys():
            return None
        number = found["EventTypeNumber"]
        job = f"{found['Cluster']}.{found['Proc']}"
        return LogEvent(number, job, f"{number:03d} ({job}) {NAMES.get(number, '')}".rstrip())
    head = _HEAD.match(text.lstrip("\n"))
    if head is None:
        return None
    return LogEvent(int(head[1]), f"{int(head[2])}.{int(head[3])}", text.lstrip("\n").partition("\n")[0])


@dataclass(slots=True)
class JobsToEnd:
    """How the jobs of a log stand. only: "" (all of them), a cluster ("12") or a job ("12.3")."""

    only: str = ""
    running: set[str] = field(default_factory=set)
    ended: dict[str, int] = field(default_factory=dict)  # job -> the event that ended it
    open: set[str] = field(default_factory=set)  # clusters that may have further jobs (late materialization)

    def take(self, event: LogEvent) -> bool:
        """Whether the event is of a job that is waited for."""
        if self.only and self.only not in (event.job, event.job.partition(".")[0]):
            return False
        if event.number == SUBMITTED:
            self.running.add(event.job)
        elif event.number == CLUSTER_SUBMITTED:
            self.open.add(event.job)
        elif event.number == CLUSTER_REMOVED:
            self.open.discard(event.job)
        elif event.number in ENDS:
            self.running.discard(event.job)
            self.ended[event.job] = event.number
        return True

    @property
    def known(self) -> bool:
        return bool(self.running or self.ended)

    def done(self, number: int = 0) -> bool:
        """Whether all have ended, or `number` of them where it is not 0."""
        return len(self.ended) >= number if number else bool(self.ended) and not self.running and not self.open
