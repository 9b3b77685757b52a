"""Retirement, the time to vacate and the owner's expressions about jobs that must leave. Pure.

Expressions see the slot's ad as MY and the job's as TARGET (spec row SLT-15). Durations are seconds.
"""

from __future__ import annotations

import math

from services.startd.core.slots.policy import Policy
from shared.classad import UNDEFINED, ClassAd, evaluate, is_true


def wants_suspend(policy: Policy, slot: ClassAd, job: ClassAd) -> bool:
    """WANT_SUSPEND is exactly TRUE: suspending is tried before PREEMPT is looked at (STM-44)."""
    return is_true(evaluate(policy.want_suspend, slot, job))


def suspends(policy: Policy, slot: ClassAd, job: ClassAd) -> bool:
    """The job is to stand still for a while (STM-14, STM-20)."""
    return wants_suspend(policy, slot, job) and is_true(evaluate(policy.suspend, slot, job))


def continues(policy: Policy, slot: ClassAd, job: ClassAd) -> bool:
    """CONTINUE is TRUE: a job that stands still may go on (STM-15, STM-16)."""
    return is_true(evaluate(policy.continue_, slot, job))


def preempts(policy: Policy, slot: ClassAd, job: ClassAd, *, suspended: bool = False) -> bool:
    """PREEMPT is TRUE for the job that runs, and no suspension is to be tried first (STM-13, STM-44). A suspended job
    has had that (STM-16)."""
    if not is_true(evaluate(policy.preempt, slot, job)):
        return False
    return suspended or not wants_suspend(policy, slot, job)


def hold(policy: Policy, slot: ClassAd, job: ClassAd) -> tuple[str, int] | None:
    """Where PREEMPT makes a job leave and WANT_HOLD is TRUE: reason and subcode of the hold that it gets instead of
    going back to the queue. None: it goes back."""
    if not is_true(evaluate(policy.want_hold, slot, job)):
        return None
    reason = evaluate(policy.want_hold_reason, slot, job)
    subcode = evaluate(policy.want_hold_subcode, slot, job)
    return (
        reason if isinstance(reason, str) and reason else "the machine's policy (WANT_HOLD) holds the job",
        int(subcode) if isinstance(subcode, int) and not isinstance(subcode, bool) else 0,
    )


def wants_vacate(policy: Policy, slot: ClassAd, job: ClassAd) -> bool:
    """WANT_VACATE: whether a job that must leave is asked before it is killed (STM-46)."""
    return is_true(evaluate(policy.want_vacate, slot, job))


def kills(policy: Policy, slot: ClassAd, job: ClassAd) -> bool:
    """KILL is TRUE: a job that is leaving gets no more time (STM-21)."""
    return is_true(evaluate(policy.kill, slot, job))


def retirement_s(policy: Policy, slot: ClassAd, job: ClassAd) -> float:
    """Run time that is promised to the job before it is made to leave: MAXJOBRETIREMENTTIME, or the job's own
    MaxJobRetirementTime if that is less (STM-49). A nice user's job that does not say has none."""
    promised = _seconds(evaluate(policy.max_job_retirement_time, slot, job)) or 0.0
    wanted = _seconds(job.eval("MaxJobRetirementTime", slot))
    if wanted is None and is_true(job.eval("NiceUser", slot)):
        wanted = 0.0
    return max(0.0, promised if wanted is None else min(promised, wanted))


def no_patience(policy: Policy, slot: ClassAd, job: ClassAd) -> bool:
    """MAXJOBRETIREMENTTIME is negative: also where the machine is switched off peacefully, the job must leave at once
    (STM-51)."""
    promised = _seconds(evaluate(policy.max_job_retirement_time, slot, job))
    return promised is not None and promised < 0


def vacate_time_s(policy: Policy, slot: ClassAd, job: ClassAd, retirement_left_s: float = 0.0) -> float:
    """How long a job may take to leave by itself (STM-48): MachineMaxVacateTime, or the job's own time if that is less.
    If the job wants more and has more retirement left than the machine's time, so much of that is given instead."""
    longest = _machine_vacate_s(policy, slot, job)
    wanted = _job_vacate_s(slot, job)
    if wanted is None:
        return longest
    return min(wanted, max(longest, retirement_left_s))


def leave_before_end_s(policy: Policy, slot: ClassAd, job: ClassAd) -> float:
    """How long before the end of its retirement a job is asked to leave, so that it is gone by then (STM-50)."""
    wanted = _job_vacate_s(slot, job)
    return _machine_vacate_s(policy, slot, job) if wanted is None else wanted


def _machine_vacate_s(policy: Policy, slot: ClassAd, job: ClassAd) -> float:
    value = _seconds(evaluate(policy.machine_max_vacate_time, slot, job))
    return 600.0 if value is None else max(0.0, value)


def _job_vacate_s(slot: ClassAd, job: ClassAd) -> float | None:
    for name in ("JobMaxVacateTime", "KillSigTimeout"):
        value = job.eval(name, slot)
        if value is not UNDEFINED:
            seconds = _seconds(value)
            return None if seconds is None else max(0.0, seconds)
    return None


def _seconds(value: object) -> float | None:
    """A duration as an expression gives it; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)
