"""Whether a constraint is true of jobs. Of packed jobs that differ in nothing that it looks at it is asked once; of
others only those parts of it that look at what differs, and no job is made for that. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeGuard

from engine.queue.job_columns import DERIVED, needed
from engine.queue.jobs import Cluster, Job, full_ad
from engine.queue.packed_jobs import PackedJobs
from shared.classad import ClassAd, Expr, evaluate, is_true
from shared.classad.cells import PackedText, Table, read_packed
from shared.classad.expr import AttrRef, Binary, Literal, Parens, conjuncts, walk
from shared.classad.references import decided_by

#: What no ad has stored, and each job has of its own.
_OWN: Final = frozenset(("procid", "globaljobid", "roostreadat"))
_NOTHING: Final[frozenset[str]] = frozenset()
#: Of fewer jobs each is asked about: to find out what they have in common costs as much.
LEAST: Final = 3
#: Nodes of a constraint that is taken apart for each group; of a larger one it would take too long.
MOST_NODES: Final = 200


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of the constraint for each job of a group."""

    expr: Expr
    wanted: frozenset[str]  # folded names that decide it
    shared: Table  # what of them is no job's own
    hidden: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Known:
    group: PackedJobs
    verdict: bool | None  # on all of them
    rest: _Rest | None = None  # None, without a verdict: each job is to be made for it


class Verdicts:
    """Of one question. expr: None is true of all. schedd: its name; now: its clock; hidden: folded names that who asks
    does not see of a user's jobs."""

    def __init__(
        self, expr: Expr | None, schedd: str, now: float, hidden: Callable[[str], frozenset[str]] = lambda _: _NOTHING
    ) -> None:
        self._expr = expr
        self._names = decided_by(expr) if expr is not None else _NOTHING
        self._may_be_reduced = expr is not None and sum(1 for _ in islice(walk(expr), MOST_NODES + 1)) <= MOST_NODES
        terms = list(conjuncts(expr)) if expr is not None and self._may_be_reduced else []
        #: Terms such as JobStatus == 5, all of which are true of what fits, and whether there are no others.
        self._equal = [one for one in map(_equality, terms) if one is not None]
        self._only = len(self._equal) == len(terms) > 0
        self._schedd = schedd
        self._now = now
        self._hidden = hidden
        #: By identity, with the group: a group that is no more must not be taken for another one.
        self._known: dict[int, _Known] = {}

    def of_group(self, cluster: Cluster, group: PackedJobs) -> bool | None:
        """Of all its jobs; None: it differs, or may."""
        if self._expr is None:
            return True
        known = self._known.get(id(group))
        if known is None or known.group is not group:
            known = self._known[id(group)] = self._look(cluster, group)
        return known.verdict

    def of_packed(self, cluster: Cluster, group: PackedJobs, proc: int) -> bool:
        """Of one that is in this group."""
        verdict = self.of_group(cluster, group)
        if verdict is not None:
            return verdict
        rest = self._known[id(group)].rest
        if rest is not None:
            own = read_packed(group.ads[proc])
            table = dict(rest.shared)
            for key in (rest.wanted & own.keys()) - rest.hidden:
                if isinstance(own[key][1], Expr | PackedText):
                    break  # it may name more
                table[key] = own[key]
            else:
                ad = ClassAd.from_table(table)
                if "procid" in rest.wanted:
                    ad["ProcId"] = proc
                return is_true(evaluate(rest.expr, ad, None, self._now))
        job = cluster.jobs.peek(proc)
        return job is not None and self.of_job(job)

    def of_job(self, job: Job) -> bool:
        if self._expr is None:
            return True
        own, shared = job.ad.table(), job.cluster.ad.table()
        for key, number in self._equal:
            entry = own.get(key) or shared.get(key)
            if entry is None or entry[1].__class__ is not int:
                break
            if entry[1] != number:
                return False
        else:
            if self._only and self._hidden(job.cluster.user).isdisjoint(key for key, _ in self._equal):
                return True
        return is_true(evaluate(self._expr, self._seen(job), None, self._now))

    def _seen(self, job: Job) -> ClassAd:
        return full_ad(self._schedd, job, self._now, self._hidden(job.cluster.user))

    def _look(self, cluster: Cluster, group: PackedJobs) -> _Known:
        assert self._expr is not None
        example = cluster.jobs.peek(next(iter(group.ads))) if len(group.ads) >= LEAST else None
        if example is None:
            return _Known(group, None)
        varying = group.names | _OWN
        if self._decided(self._names, example, varying):
            return _Known(group, self.of_job(example))
        if not self._may_be_reduced:
            return _Known(group, None)
        ad = self._seen(example)
        expr = self._reduced(self._expr, example, ad, varying)
        if _is_constant(expr):
            return _Known(group, expr.value is True)
        names = decided_by(expr)
        wanted = frozenset(needed(example, names)) if names is not None else _NOTHING
        if names is None or not self._is_steady(example, wanted) or not wanted.isdisjoint(_OWN - {"procid"}):
            return _Known(group, None)
        hidden, shared = self._hidden(cluster.user), cluster.ad.table()
        table = {key: entry for key, entry in ad.table().items() if key in wanted and key not in varying}
        for key in (wanted & varying & shared.keys()) - hidden:
            table[key] = shared[key]  # of those that say nothing else
        return _Known(group, None, _Rest(expr, wanted, table, hidden))

    def _decided(self, names: frozenset[str] | None, example: Job, varying: set[str] | frozenset[str]) -> bool:
        """Whether an expression has the same value for all jobs of a group. names: decided_by(it)."""
        if names is None:
            return False
        wanted = needed(example, names)
        return wanted.isdisjoint(varying) and self._is_steady(example, wanted)

    @staticmethod
    def _is_steady(example: Job, names: set[str] | frozenset[str]) -> bool:
        """Whether neither chance nor the clock has a part in what these attributes are."""
        cells = (example.ad.find(name) for name in names)
        return all(decided_by(cell) is not None for cell in cells if isinstance(cell, Expr))

    def _reduced(self, expr: Expr, example: Job, ad: ClassAd, varying: set[str] | frozenset[str]) -> Expr:
        """Something that is true of the same jobs of a group: what is decided for all of them is left out."""
        while isinstance(expr, Parens):
            expr = expr.inner
        if isinstance(expr, Binary) and expr.op in ("&&", "||"):
            left, right = (self._reduced(one, example, ad, varying) for one in (expr.left, expr.right))
            ends = expr.op == "||"  # with this value on the left the right does not count
            if _is_constant(left):
                return left if left.value is ends else right
            if _is_constant(right) and right.value is not ends:
                return left
            return Binary(expr.op, left, right)
        if self._decided(decided_by(expr), example, varying):
            value = evaluate(expr, ad, None, self._now)
            if isinstance(value, bool):
                return Literal(value)
        return expr


def _equality(expr: Expr) -> tuple[str, int] | None:
    """(folded name, number) of `Name == number`, where that is what an ad has stored."""
    if not isinstance(expr, Binary) or expr.op not in ("==", "=?="):
        return None
    sides = (expr.left, expr.right) if isinstance(expr.left, AttrRef) else (expr.right, expr.left)
    name, value = sides
    if not isinstance(name, AttrRef) or name.scope is not None or name.absolute or name.key in DERIVED:
        return None
    return (name.key, value.value) if isinstance(value, Literal) and value.value.__class__ is int else None


def _is_constant(expr: Expr) -> TypeGuard[Literal]:
    return isinstance(expr, Literal) and isinstance(expr.value, bool)
