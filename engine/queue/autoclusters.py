"""Jobs that no slot and no policy can tell apart share an AutoClusterId (spec row NEG-17).

Significant are: the attributes that slots and the negotiator's policies look at (the negotiator sends them; an
administrator may name them in SIGNIFICANT_ATTRIBUTES instead), those that decide whatever slots look at, and what these
refer to in the job itself. Numbers are given once and never again to other jobs, so that a match for an autocluster
cannot hit jobs it was not made for.

`AutoclusterChanges` collects which jobs came to which autocluster, for the event `job.sorted`: the negotiator decides
for autoclusters, and whoever asks later why a job waited must know which was the job's. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from engine.queue.jobs import Cluster, Job, raw_cells
from shared.classad import ClassAd, Expr
from shared.classad.expr import AttrRef, fold, walk
from shared.messages.events import JobKind

#: Significant whatever slots look at, and whatever SIGNIFICANT_ATTRIBUTES says: who differs in these needs other slots.
ALWAYS = (
    "Requirements",
    "Rank",
    "RequestCpus",
    "RequestMemory",
    "RequestDisk",
    "RequestGPUs",
    "ConcurrencyLimits",
    "JobUniverse",
    "NiceUser",
    "PreserveRelativeExecutable",
    "WantDocker",
    "WantContainer",
    "AccountingGroup",
    "FileSystemDomain",
    "MaxJobRetirementTime",
)
#: How far references are followed from attribute to attribute.
MAX_NAMES = 500
#: Autoclusters remembered. Forgetting one is harmless: equal jobs that come later share another number.
MAX_KNOWN = 100_000


class Autoclusters:
    """Gives every job its autocluster. `generation` grows when the significant attributes change: then all idle jobs
    are sorted anew.

    significant: SIGNIFICANT_ATTRIBUTES. If there are any, what negotiators name does not count, as in HTCondor.
    """

    def __init__(self, next_id: int = 1, significant: Iterable[str] = ()) -> None:
        significant = tuple(significant)
        self.fixed = bool(significant)
        self.generation = 0
        self.next_id = next_id
        self._asked: frozenset[str] = frozenset(fold(name) for name in (*ALWAYS, *significant))
        self._ids: dict[tuple[Any, ...], int] = {}

    def set_significant(self, names: Iterable[str], needed: Iterable[str] = ()) -> bool:
        """The attributes a negotiator named, besides those known already; `needed` count in any case. True if that
        changes anything.

        None is forgotten while the schedd runs: slots come and go, and all idle jobs would be sorted anew each time.
        """
        counting = needed if self.fixed else (*names, *needed)
        asked = self._asked | {fold(name) for name in counting}
        if asked == self._asked:
            return False
        self._asked = asked
        self.generation += 1
        self._ids.clear()  # numbers go on: an old one must not mean new jobs
        return True

    @property
    def known(self) -> int:
        """How many were told apart since the significant attributes changed last."""
        return len(self._ids)

    @property
    def significant(self) -> frozenset[str]:
        """Folded names."""
        return self._asked

    def assign(self, job: Job) -> int:
        """The AutoClusterId of a job (also put into job.autocluster)."""
        if job.generation == self.generation:
            return job.autocluster
        cluster = job.cluster
        own = job.ad.table()
        shared = self.of_cluster(cluster, own.keys())
        if shared is not None and job.submitter == cluster.submitter:
            job.autocluster = shared
        else:
            names = self._names(job.ad, cluster)
            cells = raw_cells(job.ad.pack())
            cells["procid"] = ("ProcId", job.proc)
            job.autocluster = self._id(job.submitter, cluster.packed_cells(), cells, names)
        job.generation = self.generation
        return job.autocluster

    def of_cluster(self, cluster: Cluster, own: Collection[str]) -> int | None:
        """The AutoClusterId of the cluster's jobs that have attributes of these names (folded) of their own, and its
        submitter; None where it depends on what these say."""
        if cluster.autocluster[0] != self.generation:
            cluster.names = self._names(cluster.ad, cluster)
            number = self._id(cluster.submitter, cluster.packed_cells(), {}, cluster.names)
            cluster.autocluster = (self.generation, number)
        names = cluster.names
        if "procid" in names or not names.isdisjoint(own) or any(name.startswith("request") for name in own):
            return None
        return cluster.autocluster[1]

    def _names(self, ad: ClassAd, cluster: Cluster) -> frozenset[str]:
        """The significant names with what they refer to, in this job: folded."""
        found = set(self._asked)
        pending = list(self._asked)
        while pending and len(found) < MAX_NAMES:
            expr = ad.lookup(pending.pop())
            if expr is None:
                continue
            for folded in own_references(expr):
                if folded not in found:
                    found.add(folded)
                    pending.append(folded)
        for name in cluster.packed_cells():
            # request_<custom>: a slot's resources are matched by name, whoever refers to them.
            if name.startswith("request"):
                found.add(name)
        found.update(name for name in ad.table() if name.startswith("request"))
        return frozenset(found)

    def _id(self, submitter: str, shared: dict[str, Any], own: dict[str, Any], names: frozenset[str]) -> int:
        cells = []
        for name in sorted(names):
            entry = own.get(name) or shared.get(name)
            if entry is not None:
                cell = entry[1]
                # 1, 1.0 and True are equal to Python, not to a ClassAd.
                cells.append((name, type(cell).__name__, cell))
        signature = (submitter, *cells)
        known = self._ids.get(signature)
        if known is None:
            if len(self._ids) >= MAX_KNOWN:
                self._ids.clear()
            known = self._ids[signature] = self.next_id
            self.next_id += 1
        return known


def own_references(expr: Expr) -> set[str]:
    """Folded names that an expression may take from the ad it stands in: unscoped, or scoped by MY."""
    found: set[str] = set()
    for node in walk(expr):
        if isinstance(node, AttrRef):
            scope = node.scope
            if scope is None or (isinstance(scope, AttrRef) and scope.scope is None and scope.key == "my"):
                found.add(node.key)
    return found


def looked_at(constraint: Expr | None) -> set[str]:
    """Attributes of jobs that a constraint on jobs looks at, folded."""
    names = own_references(constraint) if constraint is not None else set()
    if "globaljobid" in names:
        names |= {"clusterid", "procid"}  # it is made of these, and stored nowhere
    return names


#: Attributes that policies look at often, though they do not split autoclusters.
_MORE: Final = frozenset({"user", "owner", "jobprio", "qdate", "jobuniverse", "clusterid"})
#: Attributes that are large, and that no slot looks at.
_LARGE: Final = frozenset({"environment", "env", "arguments", "args", "in", "out", "err", "transferinput"})
#: Bytes of ads, and ranges of jobs, in one event.
_BYTES: Final = 1 << 20
_RANGES: Final = 5000
#: Autoclusters whose ads were told; forgetting one costs a repetition.
_KNOWN: Final = 200_000


class AutoclusterChanges:
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

    def note_row(self, example: Job, autocluster: int, procs: Sequence[int]) -> None:
        """Jobs of one cluster are of this autocluster. example: one of them, whose number does not count; procs: of all
        of them, ascending."""
        ranges = self._ranges.setdefault(autocluster, [])
        self._of.setdefault(autocluster, example)
        cluster = example.cluster.id
        if procs and procs[-1] - procs[0] == len(procs) - 1:
            ranges.append([cluster, procs[0], procs[-1]])
            return
        for proc in procs:
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
