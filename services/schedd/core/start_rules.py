"""What must happen before an idle job is offered to slots, for jobs that more than a slot, or less, is needed for.

`noop_job` ends a job without a slot (IsNoopJob, NoopJobExitCode, NoopJobExitSignal). A job with `deferral_time`
(DeferralTime, seconds since 1970) is offered DeferralPrepTime seconds before, and may start until DeferralWindow
seconds after: the execution point waits for the moment. `cron_minute` and its like give the next DeferralTime. Of a job
with `skip_if_dataflow` the files are looked at first, in a thread.

`engine.queue.jobs.START_RULES` names the attributes; a job without any is offered at once. No I/O.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from engine.queue.crontab import FIELDS, BadCronTab, CronTab, WallClock, next_run, parse_crontab
from engine.queue.job_table import JobTable
from engine.queue.jobs import Job, full_ad
from services.schedd.core import job_end
from services.schedd.core.job_changes import Advertise, JobEffect, LookAgain, LookAtFiles, SaveJob, apply_event
from services.schedd.core.job_states import JobEvent
from services.schedd.core.policies import Hold
from shared.classad import ClassAd, is_true
from shared.classad.budget import policies

#: Exit codes and signals of a job are in these.
_CODES: Final = range(256)
_SIGNALS: Final = range(1, 65)
#: HTCondor's, where a job says none (seconds).
DEFAULT_PREP_S: Final = 300
#: Whoever has no window needs a slot before the time: a cycle, and files. HTCondor adds ScheddInterval, 300 s.
LEAST_PREP_S: Final = 20
MISSED: Final = "Job missed deferred execution time"


@dataclass(frozen=True, slots=True)
class Offer:
    """The job may start. until: wall clock, when to look again; None: it may start at any time. deferral: its next
    DeferralTime, where that is news."""

    until: float | None = None
    deferral: int | None = None
    files_first: bool = False  # unless its output is there already (core.dataflow)


@dataclass(frozen=True, slots=True)
class Wait:
    """The job may not start before this time (wall clock)."""

    until: float
    deferral: int | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """The job is done, without a run. One of the two is None."""

    exit_code: int | None
    exit_signal: int | None


@dataclass(frozen=True, slots=True)
class PutOnHold:
    """The job can not start in time any more, or nobody knows when."""

    reason: str
    code: Hold


StartDecision = Offer | Wait | Skip | PutOnHold


def start_or_not(schedd: str, table: JobTable, job: Job, now: float, clock: WallClock) -> tuple[JobEffect, ...]:
    """Look at an idle job without a run: offer it, let it wait, end it, or put it on hold."""
    ad = full_ad(schedd, job, now)
    decision = decide_start(ad, now, clock)
    if isinstance(decision, Offer) and not job.cluster.spool and is_true(ad.eval("SkipIfDataflow", None, now)):
        decision = replace(decision, files_first=True)
    if isinstance(decision, Skip):
        return job_end.skip(schedd, table, job, decision.exit_code, decision.exit_signal, now)
    if isinstance(decision, PutOnHold):
        reason, code = decision.reason, decision.code
        return apply_event(schedd, table, job, JobEvent.HOLD, now, reason=reason, code=code).effects
    effects: list[JobEffect] = []
    if decision.deferral is not None:
        job.ad["DeferralTime"] = decision.deferral
        job.generation = -1  # its Requirements go by it
        effects.append(SaveJob(job))
    if decision.until is not None:
        effects.append(LookAgain(job, decision.until))
    if isinstance(decision, Offer):
        effects += [LookAtFiles(job)] if decision.files_first else offer(table, job)
    return tuple(effects)


def offer(table: JobTable, job: Job) -> list[JobEffect]:
    """Nothing keeps the job from its start any more."""
    job.due = True
    table.refresh(job)
    return [Advertise(at_once=True)]


def decide_start(ad: ClassAd, now: float, clock: WallClock) -> StartDecision:
    """What becomes of an idle job. ad: the whole one. Expressions that are neither true nor false count as false."""
    with policies("the job's start").open():
        if is_true(ad.eval("IsNoopJob", None, now)):
            return _noop(ad, now)
        fields = {name: text for name, _, _ in FIELDS if (text := _field(ad, name, now)) is not None}
        if not fields and "DeferralTime" not in ad:
            return Offer()
        deferral = _seconds(ad, "DeferralTime", now)
        window = max(0.0, _seconds(ad, "DeferralWindow", now) or 0.0)
        prep = _seconds(ad, "DeferralPrepTime", now)
        prep = DEFAULT_PREP_S if prep is None else max(LEAST_PREP_S, prep)
        executed = _seconds(ad, "JobCurrentStartExecutingDate", now) or 0.0
    if not fields:
        if deferral is None or deferral <= 0:
            text = (ad.text("DeferralTime") or "")[:200]
            return PutOnHold(f"Invalid deferred execution time: {text}", Hold.MISSED_DEFERRED_EXECUTION_TIME)
        if now >= deferral + window:
            return PutOnHold(MISSED, Hold.MISSED_DEFERRED_EXECUTION_TIME)
        return _when(deferral, window, prep, now, None)
    try:
        crontab = parse_crontab(fields)
    except BadCronTab as error:
        return PutOnHold(f"Invalid cron schedule parameters: {error}", Hold.INVALID_CRON_SETTINGS)
    return _next_of(crontab, deferral, window, prep, executed, now, clock)


def _next_of(
    crontab: CronTab, deferral: float | None, window: float, prep: float, executed: float, now: float, clock: WallClock
) -> StartDecision:
    """deferral: the time that is set already; it counts as long as its window is open and it had no run."""
    used = deferral is not None and executed >= deferral
    if deferral is not None and not used and deferral <= now < deferral + window:
        return _when(deferral, window, prep, now, None)
    # The clock of an execution point may have been ahead of ours.
    found = next_run(crontab, max(now, deferral) if used and deferral is not None else now, clock)
    if found is None:
        return PutOnHold("Invalid cron schedule parameters: the time never comes", Hold.INVALID_CRON_SETTINGS)
    return _when(found, window, prep, now, found if found != deferral else None)


def _when(deferral: float, window: float, prep: float, now: float, news: int | None) -> StartDecision:
    if now < deferral - prep:
        return Wait(deferral - prep, news)
    return Offer(deferral + window, news)


def _field(ad: ClassAd, name: str, now: float) -> str | None:
    """The text of a field of a cron job; None where it is not given."""
    if name not in ad:
        return None
    value = ad.eval(name, None, now)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ad.text(name) or ""


def _seconds(ad: ClassAd, name: str, now: float) -> float | None:
    value = ad.eval(name, None, now)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _noop(ad: ClassAd, now: float) -> Skip:
    """How it ended: the code counts where both are given, as in HTCondor."""
    code, number = ad.eval("NoopJobExitCode", None, now), ad.eval("NoopJobExitSignal", None, now)
    if isinstance(code, int) and not isinstance(code, bool):
        return Skip(code if code in _CODES else code % 256, None)
    if isinstance(number, int) and not isinstance(number, bool) and number in _SIGNALS:
        return Skip(None, number)
    return Skip(0, None)
