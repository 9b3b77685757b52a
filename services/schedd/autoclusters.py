"""Jobs that no slot and no policy can tell apart share an AutoClusterId (spec row NEG-17).

Significant are: the attributes that slots and the negotiator's policies look at (the negotiator sends them; an
administrator may name them in SIGNIFICANT_ATTRIBUTES instead), those that decide whatever slots look at, and what these
refer to in the job itself. Numbers are given once and never again to other jobs, so that a match for an autocluster can
not hit jobs it was not made for. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from services.schedd.jobs import Cluster, Job, raw_cells
from shared.classad import ClassAd, Expr
from shared.classad.expr import AttrRef, fold, walk

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
    def significant(self) -> frozenset[str]:
        """Folded names."""
        return self._asked

    def assign(self, job: Job) -> int:
        """The AutoClusterId of a job (also put into job.autocluster)."""
        if job.generation == self.generation:
            return job.autocluster
        cluster = job.cluster
        own = job.ad.table()
        if cluster.autocluster[0] != self.generation:
            cluster.names = self._names(cluster.ad, cluster)
            cluster.autocluster = (self.generation, self._id(job.submitter, cluster.packed_cells(), {}, cluster.names))
        if (
            cluster.names.isdisjoint(own.keys())
            and not any(name.startswith("request") for name in own)
            and job.submitter == cluster.submitter
            and "procid" not in cluster.names
        ):
            job.autocluster = cluster.autocluster[1]
        else:
            names = self._names(job.ad, cluster)
            cells = raw_cells(job.ad.pack())
            cells["procid"] = ("ProcId", job.proc)
            job.autocluster = self._id(job.submitter, cluster.packed_cells(), cells, names)
        job.generation = self.generation
        return job.autocluster

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
