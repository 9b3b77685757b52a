"""Which jobs of a log (`log = file`) are still to end, for `roost wait`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from shared.job_log import Event

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


def job_of(event: Event) -> str:
    """What the event's job goes by: 12.3; 12.-1 is a whole cluster."""
    return f"{event.cluster}.{event.proc}"


@dataclass(slots=True)
class JobsToEnd:
    """How the jobs of a log stand. only: "" (all of them), a cluster ("12") or a job ("12.3")."""

    only: str = ""
    running: set[str] = field(default_factory=set)
    ended: dict[str, int] = field(default_factory=dict)  # job -> the event that ended it
    open: set[str] = field(default_factory=set)  # clusters that may have further jobs (late materialization)

    def take(self, event: Event) -> bool:
        """Whether the event is of a job that is waited for."""
        job = job_of(event)
        if self.only and self.only not in (job, str(event.cluster)):
            return False
        if event.number == SUBMITTED:
            self.running.add(job)
        elif event.number == CLUSTER_SUBMITTED:
            self.open.add(job)
        elif event.number == CLUSTER_REMOVED:
            self.open.discard(job)
        elif event.number in ENDS:
            self.running.discard(job)
            self.ended[job] = event.number
        return True

    @property
    def known(self) -> bool:
        return bool(self.running or self.ended)

    def done(self, number: int = 0) -> bool:
        """Whether all have ended, or `number` of them where it is not 0."""
        return len(self.ended) >= number if number else bool(self.ended) and not self.running and not self.open
