"""Jobs put together by cluster: a line for each, with how many of its jobs are in which state. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from services.gateway.core.dashboard_rows import STATUS, command_line
from shared.classad import ClassAd
from shared.classad.column_page import Sheet
from shared.classad.expr import fold
from shared.messages.queue import ALIKE

#: What is read of each job.
FIELDS: Final = (
    *("ClusterId", "ProcId", "JobStatus", "JobBatchName", "User", "Owner", "AccountingGroup", "Cmd", "Args", "QDate"),
    "Arguments",
    "DAGManJobId",
)
#: And by which of it jobs of a cluster are counted.
BY: Final = ("JobStatus",)
#: Of these the line of a batch has what its first job has.
_SHOWN: Final = ("JobBatchName", "User", "Owner", "AccountingGroup", "Cmd", "Args", "Arguments", "QDate", "DAGManJobId")


@dataclass(slots=True)
class Batch:
    """Jobs of one cluster that fit a question. states: how many by name of the status."""

    schedd: str
    cluster: int
    about: dict[str, Any]
    states: Counter[str] = field(default_factory=Counter)

    def row(self) -> dict[str, Any]:
        return {
            "Schedd": self.schedd,
            "ClusterId": self.cluster,
            **self.about,
            "Command": command_line(self.about),
            "states": dict(self.states),
            "jobs": self.states.total(),
        }


class Batches:
    """Batches of all schedds. `add` jobs, then `order` them, then read pages."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], Batch] = {}
        self._ordered: list[Batch] = []
        self._jobs = 0

    def add(self, schedd: str, jobs: Sheet) -> None:
        """Some more jobs of a schedd, those that are alike (BY) in a line or not."""
        lines = zip(jobs.cells("clusterid"), jobs.cells("jobstatus"), alike(jobs), strict=True)
        for place, (cluster, status, count) in enumerate(lines):
            known = (schedd, cluster) in self._found
            about = {} if known else {name: jobs.cell(name.lower(), place) for name in _SHOWN}
            self._count(schedd, cluster, status, about, count)

    def add_ad(self, schedd: str, job: ClassAd) -> None:
        self._count(schedd, job.eval("ClusterId"), job.eval("JobStatus"), {name: job.eval(name) for name in _SHOWN})

    def _count(self, schedd: str, cluster: object, state: object, about: dict[str, object], jobs: int = 1) -> None:
        if not isinstance(cluster, int):
            return
        batch = self._found.get((schedd, cluster))
        if batch is None:
            shown = {name: value for name, value in about.items() if isinstance(value, str | int)}
            batch = self._found[schedd, cluster] = Batch(schedd, cluster, shown)
        batch.states[STATUS.get(state, "Unknown") if isinstance(state, int) else "Unknown"] += jobs

    def order(self) -> None:
        """To be called when all jobs are there. Of very many clusters it takes some 0.1 s."""
        self._ordered = sorted(
            self._found.values(), key=lambda one: (-_number(one.about.get("QDate")), one.schedd, -one.cluster)
        )
        self._jobs = sum(one.states.total() for one in self._ordered)

    def page(self, after: int, limit: int) -> dict[str, Any]:
        """{rows, next, fits, jobs}: newest first, without the first `after`; fits: batches, jobs: theirs, of all
        pages."""
        end = after + limit
        return {
            "rows": [one.row() for one in self._ordered[after:end]],
            "next": end if end < len(self._ordered) else None,
            "fits": len(self._ordered),
            "jobs": self._jobs,
        }


def alike(jobs: Sheet) -> list[int]:
    """How many jobs each line of a sheet stands for: one, but for those of a schedd that counts (QueryJobs.by)."""
    return [count if isinstance(count, int) else 1 for count in jobs.cells(fold(ALIKE))]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
