"""Which jobs have come to which autocluster since it was told last: the negotiator decides for autoclusters, and who
asks later why a job waited must know which was the job's. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from services.schedd.jobs import Job
from shared.messages.events import JobKind

#: Attributes that policies look at often, though they do not split autoclusters.
_MORE: Final = frozenset({"user", "owner", "jobprio", "qdate", "jobuniverse", "clusterid"})
#: Attributes that are large, and that no slot looks at.
_LARGE: Final = frozenset({"environment", "env", "arguments", "args", "in", "out", "err", "transferinput"})
#: Bytes of ads, and ranges of jobs, in one event.
_BYTES: Final = 1 << 20
_RANGES: Final = 5000
#: Autoclusters whose ads were told; forgetting one costs a repetition.
_KNOWN: Final = 200_000


class Sorting:
    """Collects ranges of jobs as they come, mostly in order."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[list[int]]] = {}  # autocluster -> [cluster, first, last]
        self._of: dict[int, Job] = {}  # autocluster -> one of its jobs
        self._told: set[int] = set()  # autoclusters whose ads were told

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def note(self, job: Job, autocluster: int) -> None:
        """The job is of this autocluster now."""
        if job.sorted_as == autocluster:
            return
        job.sorted_as = autocluster
        ranges = self._ranges.get(autocluster)
        if ranges is None:
            ranges = self._ranges[autocluster] = []
            self._of[autocluster] = job
        cluster, proc = job.cluster.id, job.proc
        if ranges and ranges[-1][0] == cluster and ranges[-1][2] == proc - 1:
            ranges[-1][2] = proc
        else:
            ranges.append([cluster, proc, proc])

    def repeat(self, jobs: Iterable[Job]) -> None:
        """Of these jobs it is told once more which autoclusters they are of, as if it had never been."""
        for job in jobs:
            if job.sorted_as:
                autocluster, job.sorted_as = job.sorted_as, 0
                self.note(job, autocluster)

    def forget_ads(self) -> None:
        """Tell what autoclusters look like with the next jobs that come to them, or are told again."""
        self._told.clear()

    def take(self, project: Callable[[Job, list[str]], bytes]) -> Iterator[list[JobKind]]:
        """All that was noted, in parts that fit into an event each. project: a job's ad with these attributes,
        packed."""
        noted, jobs = self._ranges, self._of
        self._ranges, self._of = {}, {}
        if len(self._told) > _KNOWN:
            self._told.clear()
        part: list[JobKind] = []
        size = count = 0
        for autocluster, ranges in noted.items():
            job = jobs[autocluster]
            ad = b""
            if autocluster not in self._told:
                self._told.add(autocluster)
                names = (job.cluster.names | job.ad.table().keys() | _MORE) - _LARGE
                ad = project(job, sorted(names))
            for start in range(0, len(ranges), _RANGES):
                some = ranges[start : start + _RANGES]
                if part and (size + len(ad) > _BYTES or count + len(some) > _RANGES):
                    yield part
                    part, size, count = [], 0, 0
                part.append(JobKind(autocluster=autocluster, submitter=job.submitter, jobs=some, ad=ad))
                size, count, ad = size + len(ad), count + len(some), b""
        if part:
            yield part
