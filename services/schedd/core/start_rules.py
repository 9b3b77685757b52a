"""What must happen before an idle job is offered to slots, for jobs that more than a slot, or less, is needed for.

`noop_job` ends a job without a slot (IsNoopJob, NoopJobExitCode, NoopJobExitSignal). `engine.queue.jobs.START_RULES`
names the attributes; a job without any is offered at once. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.queue.job_table import JobTable
from engine.queue.jobs import Job, full_ad
from services.schedd.core import job_end
from services.schedd.core.job_changes import Advertise, JobEffect
from shared.classad import ClassAd, is_true
from shared.classad.budget import policies

#: Exit codes and signals of a job are in these.
_CODES = range(256)
_SIGNALS = range(1, 65)


@dataclass(frozen=True, slots=True)
class Offer:
    """The job may start."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The job is done, without a run. One of the two is None."""

    exit_code: int | None
    exit_signal: int | None


StartDecision = Offer | Skip


def start_or_not(schedd: str, table: JobTable, job: Job, now: float) -> tuple[JobEffect, ...]:
    """Look at an idle job without a run: offer it, or end it."""
    decision = decide_start(full_ad(schedd, job, now), now)
    if isinstance(decision, Skip):
        return job_end.skip(schedd, table, job, decision.exit_code, decision.exit_signal, now)
    job.due = True
    table.refresh(job)
    return (Advertise(at_once=True),)


def decide_start(ad: ClassAd, now: float) -> StartDecision:
    """What becomes of an idle job. ad: the whole one. Expressions that are neither true nor false count as false."""
    with policies("the job's noop_job").open():
        if is_true(ad.eval("IsNoopJob", None, now)):
            return _noop(ad, now)
    return Offer()


def _noop(ad: ClassAd, now: float) -> Skip:
    """How it ended: the code counts where both are given, as in HTCondor."""
    code, number = ad.eval("NoopJobExitCode", None, now), ad.eval("NoopJobExitSignal", None, now)
    if isinstance(code, int) and not isinstance(code, bool):
        return Skip(code if code in _CODES else code % 256, None)
    if isinstance(number, int) and not isinstance(number, bool) and number in _SIGNALS:
        return Skip(None, number)
    return Skip(0, None)
