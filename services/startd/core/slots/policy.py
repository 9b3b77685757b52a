"""The policy of the machine's owner: whether a slot takes a job, and how it ranks it.

Expressions see the slot's ad as MY and the job's as TARGET (spec row SLT-15). What is not defined is not true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from services.startd.core.separation import WITHIN_SEPARATION
from shared.classad import UNDEFINED, ClassAd, Expr, evaluate, flatten, half_match, is_true, parse_expr
from shared.classad.expr import Literal
from shared.consumption import Shortage, as_consumed, consumption, has_policy

#: JobUniverse of vanilla jobs.
VANILLA = 5
#: What a slot asks of a job, whoever asks. Its ad shows it as Requirements while anybody may match it. A static slot
#: leaves it to the job's Requirements whether it is large enough, as in HTCondor.
_STATIC, REQUIREMENTS = parse_expr("START"), parse_expr("START && WithinResourceLimits")
#: The same where process jobs are not separated from the startd (`core.separation`).
_STATIC_APART = parse_expr(f"START && {WITHIN_SEPARATION}")
_REQUIREMENTS_APART = parse_expr(f"START && WithinResourceLimits && {WITHIN_SEPARATION}")
#: A job fits into what is left of a slot. Attributes that the job does not have ask for the least.
WITHIN_LIMITS = (
    "(TARGET.RequestCpus ?: 1) <= MY.Cpus && MY.Cpus > 0 && (TARGET.RequestMemory ?: 1) <= MY.Memory && MY.Memory > 0"
    " && (TARGET.RequestDisk ?: 1) <= MY.Disk && MY.Disk > 0"
)


_FALSE, _TRUE = parse_expr("false"), parse_expr("true")


@dataclass(frozen=True, slots=True)
class Policy:
    """The expressions of one slot type. Names as in the configuration."""

    start: Expr
    rank: Expr
    is_owner: Expr
    slot_weight: Expr
    claim_worklife: Expr
    machine_max_vacate_time: Expr
    max_job_retirement_time: Expr
    want_suspend: Expr
    preempt: Expr
    want_vacate: Expr
    kill: Expr
    suspend: Expr = _FALSE
    continue_: Expr = _TRUE
    want_hold: Expr = _FALSE
    want_hold_reason: Expr = _FALSE
    want_hold_subcode: Expr = _FALSE
    run_benchmarks: Expr = _FALSE
    start_backfill: Expr = _FALSE  # also where ENABLE_BACKFILL is off
    evict_backfill: Expr = _FALSE
    #: By resource; empty: CONSUMPTION_POLICY is off (CON-01).
    consumption: Mapping[str, Expr] = field(default_factory=dict)
    #: Of the above, by knob, what others of them name: attributes of the slot then.
    shown: Mapping[str, Expr] = field(default_factory=dict)
    #: What slots show as START, where that is not `start`: HTCondor's drained slots show the START that they are
    #: configured with, and refuse by Requirements.
    shown_start: Expr | None = None
    #: What counts for vanilla jobs instead, if that is anything else (STM-45).
    vanilla: Policy | None = None

    def of(self, job: ClassAd) -> Policy:
        """The expressions that count for a job."""
        return self.vanilla if self.vanilla is not None and job.eval("JobUniverse") == VANILLA else self

    def closed(self) -> Policy:
        """The same of a machine that takes no job: its idle slots are Owner, and no START is true."""
        vanilla = self.vanilla and replace(self.vanilla, start=_FALSE, is_owner=_TRUE)
        return replace(self, start=_FALSE, is_owner=_TRUE, vanilla=vanilla)

    def starting(self, start: Expr) -> Policy:
        """The same with another START. One that is never true is not shown."""
        shown = self.start if never(start) else None
        vanilla = self.vanilla
        return replace(self, start=start, shown_start=shown, vanilla=vanilla and replace(vanilla, start=start))


def requirements(slot: ClassAd) -> Expr:
    """What a slot asks of a job, by its ad."""
    apart = WITHIN_SEPARATION in slot
    if "WithinResourceLimits" not in slot:
        return _STATIC_APART if apart else _STATIC
    return _REQUIREMENTS_APART if apart else REQUIREMENTS


def expressions(policy: Policy) -> Iterator[Expr]:
    """All expressions of a policy."""
    for one in fields(policy):
        value = getattr(policy, one.name)
        if isinstance(value, Expr):
            yield value
        elif isinstance(value, Mapping):
            yield from value.values()
    if policy.vanilla is not None:
        yield from expressions(policy.vanilla)


def never(expr: Expr) -> bool:
    """It is written down as something else than true: nobody has to look at any ad."""
    return isinstance(expr, Literal) and not is_true(expr.value)


def owner_wants(policy: Policy, slot: ClassAd) -> bool:
    """IS_OWNER is TRUE for this slot, without any job (STM-01, STM-02)."""
    return is_true(evaluate(policy.is_owner, slot))


def start_is_false(policy: Policy, slot: ClassAd) -> bool:
    """START is FALSE whatever job might come (STM-43): by what the slot alone decides. `TARGET.X =?= true` is false
    without a job, but not for every job."""
    value = evaluate(policy.start, slot)
    if value is UNDEFINED or is_true(value):
        return False
    return isinstance(flatten(policy.start, slot), Literal)


def start_refuses(policy: Policy, slot: ClassAd, job: ClassAd) -> bool:
    """START is FALSE for a claim's last job, which stands for those that may follow (STM-10)."""
    value = evaluate(policy.start, slot, job)
    return isinstance(value, bool | int | float) and not value


def refusal(slot: ClassAd, job: ClassAd) -> str:
    """Why slot and job do not match; empty when both sides' Requirements are TRUE.

    Where the slot has a consumption policy they see what the job consumes as its requests (CON-07).
    """
    if has_policy(slot) and not isinstance(amounts := consumption(job, slot), Shortage):
        job = as_consumed(job, amounts)
    if not half_match(slot, job):
        return "the slot's Requirements (START) are not true for this job"
    if "Requirements" in job and not half_match(job, slot):
        return "the job's Requirements are not true for this slot"
    return ""


def rank_of(policy: Policy, slot: ClassAd, job: ClassAd) -> float:
    """RANK: how much the slot likes the job (SLT-30). What is no number counts 0."""
    value = evaluate(policy.rank, slot, job)
    return float(value) if isinstance(value, bool | int | float) and value == value else 0.0


def worklife_over(policy: Policy, slot: ClassAd, job: ClassAd, age_s: float) -> bool:
    """A claim this old takes no further job (STM-53); negative or undefined CLAIM_WORKLIFE: no limit."""
    value = evaluate(policy.claim_worklife, slot, job)
    return isinstance(value, int | float) and value >= 0 and age_s >= value


def benchmarks_due(policy: Policy, slot: ClassAd) -> bool:
    """RunBenchmarks is TRUE (STM-03)."""
    return is_true(evaluate(policy.run_benchmarks, slot))


def fills(policy: Policy, slot: ClassAd) -> bool:
    """START_BACKFILL is TRUE (STM-07)."""
    return is_true(evaluate(policy.start_backfill, slot))


def evicts_backfill(policy: Policy, slot: ClassAd) -> bool:
    """EVICT_BACKFILL is TRUE (STM-28)."""
    return is_true(evaluate(policy.evict_backfill, slot))
