"""Whether a constraint is true of jobs: of packed jobs that differ in nothing that it looks at it is asked once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.queue.jobs import Cluster, Job, needed
from engine.queue.packed_jobs import PackedJobs
from shared.classad import ClassAd, Expr, evaluate, is_true
from shared.classad.references import decided_by

#: What no ad has stored, and each job has of its own.
_OWN: Final = frozenset(("procid", "globaljobid", "roostreadat"))


class Verdicts:
    """Of one question. expr: None is true of all. seen: the ad of a job that it is asked about; now: its clock."""

    def __init__(self, expr: Expr | None, seen: Callable[[Job], ClassAd], now: float) -> None:
        self._expr = expr
        self._seen = seen
        self._now = now
        #: By identity, with the group: a group that is no more must not be taken for another one.
        self._known: dict[int, tuple[PackedJobs, bool | None]] = {}

    def holds(self, cluster: Cluster, proc: int) -> bool | None:
        """None: there is no such job."""
        group = cluster.jobs.group_of(proc)
        if group is None:
            job = cluster.jobs.peek(proc)
            return None if job is None else self.of_job(job)
        if self._expr is None:
            return True
        known = self._known.get(id(group))
        if known is None:
            example = cluster.jobs.peek(proc)
            assert example is not None
            known = self._known[id(group)] = (group, self.of_job(example) if self._is_shared(example, group) else None)
        if known[1] is not None:
            return known[1]
        job = cluster.jobs.peek(proc)
        return None if job is None else self.of_job(job)

    def of_job(self, job: Job) -> bool:
        return self._expr is None or is_true(evaluate(self._expr, self._seen(job), None, self._now))

    def _is_shared(self, example: Job, group: PackedJobs) -> bool:
        """Whether all jobs of a group have the same of what the constraint looks at."""
        assert self._expr is not None
        names = decided_by(self._expr)
        if names is None:
            return False
        wanted = needed(example, names)
        if not wanted.isdisjoint(group.names) or not wanted.isdisjoint(_OWN):
            return False
        cells = (example.ad.find(name) for name in wanted)
        return all(decided_by(cell) is not None for cell in cells if isinstance(cell, Expr))
