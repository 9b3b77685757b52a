"""Which attributes of jobs slots and policies look at: schedds sort their jobs into autoclusters by them (NEG-17).

    significant = Significant(policies(cycle_config), job_constraint)
    names = significant.of(matching.table)       # ("imagesize", "owner", "requestcpus", ...), for GetRequests

Two jobs that agree in these are the same to every slot, so one stands for both in a cycle. Too many names cost nothing
but smaller autoclusters; one too few gives jobs slots that they were not matched for. Therefore a bare name in an
expression counts as the job's as soon as one slot lacks it, and what slots refer to is followed through all of their
expressions. Names that only come to be in `eval("...")` can not be seen.

The table keeps equal expressions once, so a cycle costs a look at a dozen policies, not at 100,000 slots. Pure, but for
columns that the table may read when a policy names an attribute for the first time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from engine.match.model import CycleConfig
from shared.classad import Expr, References, references
from shared.classad.columnar import Table
from shared.classad.columnar.column import ABSENT, STRING
from shared.classad.expr import Literal, fold

#: What the negotiator itself reads from a job's ad, whatever slots ask.
OWN: Final = ("accountinggroup", "concurrencylimits", "jobuniverse", "niceuser", "rank", "requirements")
#: Attributes of slots whose expressions see the job. Requirements may be plain false for a while; START is what it will
#: be afterwards.
ROOTS: Final = ("requirements", "start", "rank", "withinresourcelimits", "consumptioncpus")
#: More names are nobody's policy. The first of them in order are kept.
MAX_NAMES: Final = 500

_RESOURCES: Final = "machineresources"
#: What only the negotiator knows, during a cycle (NEG-43, NEG-44), or adds itself (NEG-32): no attributes of jobs that
#: wait, whatever the name says.
_EPHEMERAL: Final = re.compile(
    r"currenttime|submittorprio|negotiatormatchexpr.*"
    r"|(slot[0-9]+_)?(submitter|remote)(user(prio|resourcesinuse)|group(resourcesinuse|quota)?|negotiatinggroup|autoregroup)"
)


class SignificantAttributes:
    """The significant attributes of one policy. `policies`: expressions of the negotiator in which MY is a slot and
    TARGET a job. `job_constraint`: NEGOTIATOR_JOB_CONSTRAINT, in which MY is the job (NEG-31)."""

    def __init__(self, policies: Iterable[Expr] = (), job_constraint: Expr | None = None) -> None:
        self._policies = tuple(policies)
        self._own = set(OWN)
        if job_constraint is not None:
            named = references(job_constraint)
            self._own |= {fold(name) for name in named.unscoped | named.missing}
        self._known: dict[int, tuple[Expr, References]] = {}  # by id; the expression is kept so that the id stays its

    def of(self, table: Table) -> tuple[str, ...]:
        """Folded names, sorted. May add columns to the table: not while somebody else uses it."""
        found = set(self._own)
        bare: set[str] = set()
        pending = set(ROOTS)
        seen = {*ROOTS, _RESOURCES}

        def look_into(expr: Expr) -> None:
            named = self._references(expr)
            found.update(fold(name) for name in named.target)
            bare.update(fold(name) for name in named.unscoped)
            of_slot = {fold(name) for name in named.unscoped | named.missing} - seen
            seen.update(of_slot)
            pending.update(of_slot)

        for policy in self._policies:
            look_into(policy)
        # One call for all that is known to be needed: each that finds a column missing reads every ad.
        table.want([_RESOURCES, *sorted(pending)])
        pending |= self._consumption(table) - seen
        while pending:
            names = sorted(name for name in pending if not _EPHEMERAL.fullmatch(name))
            pending.clear()
            table.want(names)
            for name in names:
                for expr in table.expressions(name):
                    look_into(expr)
        found |= {name for name in bare if name not in table.columns or table.columns[name].tags & (1 << ABSENT)}
        return tuple(sorted(name for name in found if not _EPHEMERAL.fullmatch(name))[:MAX_NAMES])

    def _consumption(self, table: Table) -> set[str]:
        """The attributes in which slots say what jobs consume of them, if any does (CON-02, CON-05)."""
        if not table.columns["consumptioncpus"].tags & ~(1 << ABSENT):
            return set()
        column = table.columns[_RESOURCES]
        texts = {table.codes.texts[code] for code in set(column.code[column.tag == STRING].tolist())}
        literals = (expr.value for expr in table.expressions(_RESOURCES) if isinstance(expr, Literal))
        texts.update(value for value in literals if isinstance(value, str))
        return {f"consumption{fold(name)}" for text in texts for name in text.replace(",", " ").split()}

    def _references(self, expr: Expr) -> References:
        known = self._known.get(id(expr))
        if known is None:
            known = self._known[id(expr)] = (expr, references(expr))
        return known[1]


def policies(config: CycleConfig) -> tuple[Expr, ...]:
    """The expressions of a cycle's configuration that see the job."""
    every = (config.pre_job_rank, config.post_job_rank, config.preemption_requirements, config.preemption_rank)
    return tuple(expr for expr in every if expr is not None)
