"""What happens to a job, and what follows from it: the job's new state, and the effects that are to be carried out.

Functions here change the job and the table it is in, and return effects in the order in which they must come about.
`services.schedd.io.job_updates` carries them out: it writes, logs, publishes and tells startds. Nothing else does, so
that no consequence of a change is forgotten. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.queue.job_table import JobTable
from engine.queue.jobs import ACTIVE, Job, JobId, JobStatus
from services.schedd.core.job_states import Change, Effect, JobEvent, Verdict, transition
from services.schedd.core.policies import Action, CoolDown
from services.schedd.core.reason_counts import NOT_STARTED, REMOVED, RUN_FAILED, count_hold, count_vacate
from shared import job_log
from shared.classad import ClassAd
from shared.messages.events import Event, JobHeld, JobReleased, JobRemoved, JobsSubmitted


@dataclass(frozen=True, slots=True)
class SaveJob:
    """Write the job with the next commit."""

    job: Job


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Write an event into the job's user log, if it has one, and into the log of all jobs, if there is one."""

    job: Job
    event: Callable[[], job_log.Event]  # made only if there is a log


@dataclass(frozen=True, slots=True)
class WriteLogs:
    """Append texts to logs: (path, text)."""

    entries: Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class PublishEvent:
    """Publish an event when the change is committed."""

    event: Event


@dataclass(frozen=True, slots=True)
class TraceStatus:
    """The job came from another state into the one it is in."""

    job: Job
    old: JobStatus
    at: float


@dataclass(frozen=True, slots=True)
class StopRun:
    """Tell the startd to end the job's run; its last report tells when it is over."""

    job: Job
    why: str
    how: str


@dataclass(frozen=True, slots=True)
class AbandonRun:
    """Forget the job's run and give its claim back, whatever the startd says."""

    job: Job


@dataclass(frozen=True, slots=True)
class LeaveQueue:
    """Move the job into the history, unless LeaveJobInQueue keeps it. forced: keep it in no case."""

    job: Job
    forced: bool


@dataclass(frozen=True, slots=True)
class WakeClaim:
    """The job for which a claim waits is not to be had any more: the claim looks for another at once."""

    claim: str  # Claim.id


@dataclass(frozen=True, slots=True)
class StartCoolDown:
    """Offer the job again after so long."""

    job: Job
    wait_s: float


@dataclass(frozen=True, slots=True)
class Notify:
    """Send mail about the job, if its owner wants it: that it has ended, or was put on hold with this code."""

    job: Job
    hold_code: int | None = None


@dataclass(frozen=True, slots=True)
class LetNodesGo:
    """Give back what the nodes of a parallel job have of claims, as it does not start now."""

    job: Job


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Look at the job anew at this time (wall clock), before it is offered or while it is."""

    job: Job
    at: float


@dataclass(frozen=True, slots=True)
class LookAtFiles:
    """See whether the job's output is there already, and end the job then; else offer it."""

    job: Job


@dataclass(frozen=True, slots=True)
class Advertise:
    """Tell the negotiator what the submitters have: at once if jobs may start, else soon."""

    at_once: bool


#: What a policy wants done with a job, as an event.
EVENT_OF_POLICY: Final = {
    Action.HOLD: JobEvent.HOLD,
    Action.RELEASE: JobEvent.RELEASE,
    Action.REMOVE: JobEvent.REMOVE,
    Action.VACATE: JobEvent.VACATE,
}

JobEffect = (
    SaveJob
    | LogEvent
    | WriteLogs
    | PublishEvent
    | TraceStatus
    | StopRun
    | AbandonRun
    | LeaveQueue
    | WakeClaim
    | LetNodesGo
    | StartCoolDown
    | LookAgain
    | LookAtFiles
    | Notify
    | Advertise
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an event made of a job, and what is to be done about it."""

    change: Change
    effects: tuple[JobEffect, ...] = ()


def about(schedd: str, job: Job, now: float) -> dict[str, Any]:
    """What every event about a job says (shared.messages.events.JobEvent)."""
    return {
        "at": now,
        "schedd": schedd,
        "job_id": str(job.queued_id),
        "owner": job.cluster.owner,
        "submitter": job.submitter,
    }


def apply_event(
    schedd: str,
    table: JobTable,
    job: Job,
    event: JobEvent,
    now: float,
    *,
    reason: str = "",
    code: int = 0,
    subcode: int = 0,
    how: str = "graceful",
    slot: ClassAd | None = None,
    by_policy: bool = False,
) -> Outcome:
    """Apply an event to a job: its new state, with all that follows. code, subcode: of a hold; how: of a run's stop;
    slot: the ad of the slot that its run is on; by_policy: no person wants it, but the job's policy or the pool's."""
    old = job.status
    change = transition(old, event, has_run=job.shadow is not None)
    if change.verdict is not Verdict.DONE:
        return Outcome(change)
    table.set_status(job, change.status, now)
    if job.whole is not None:
        return Outcome(change)  # what follows is the whole job's business (core.parallel_universe)
    effects: list[JobEffect] = [TraceStatus(job, old, now)]
    if job.waits_for and change.status != JobStatus.IDLE:
        effects.append(WakeClaim(job.waits_for))
        job.waits_for = ""
    if job.nodes and job.shadow is None and change.status != JobStatus.IDLE:
        effects.append(LetNodesGo(job))
    if old in ACTIVE and change.status in (JobStatus.HELD, JobStatus.REMOVED):
        effects += _leaves(job, now, slot, code if event == JobEvent.HOLD else REMOVED, told=not by_policy)
    if event == JobEvent.VACATE and by_policy and job.shadow is not None:
        job.shadow.vacated_because = reason
    told = ordered(schedd, job, event, old, now, reason, code, subcode)
    if told is not None:
        effects.append(LogEvent(job, lambda: log_event(event, job.id, now, reason, code, subcode)))
        effects.append(PublishEvent(told))
        if event == JobEvent.HOLD and job.number("JobNotification"):
            effects.append(Notify(job, code))
    effects.append(SaveJob(job))
    for effect in change.effects:
        if effect == Effect.STOP_RUN:
            effects.append(StopRun(job, {JobEvent.HOLD: "hold", JobEvent.VACATE: "vacate"}.get(event, "remove"), how))
        elif effect == Effect.ABANDON_RUN:
            effects.append(AbandonRun(job))
        elif effect == Effect.LEAVE:
            effects.append(LeaveQueue(job, forced=event == JobEvent.FORCE))
        elif effect == Effect.OFFER:
            table.refresh(job)
    effects.append(Advertise(at_once=change.status == JobStatus.IDLE))
    return Outcome(change, tuple(effects))


def _leaves(job: Job, now: float, slot: ClassAd | None, code: int, *, told: bool) -> list[JobEffect]:
    """The log of a job that runs tells that it leaves its machine before it tells why, as HTCondor's does: with what
    was reported of the run last, as it is still being ended. code: VacateReasonCode. told: HTCondor's log leaves it out
    where policies hold or remove a job."""
    run = job.shadow
    if run is None or not run.executing:
        return []
    count_vacate(job, code)
    if not told:
        return []

    def event() -> job_log.Event:
        usage = run.stored_usage
        ran, had = now - run.executing, now - run.started
        used = job_log.resources(job.ad, slot, usage, ran, had) if slot is not None else ()
        return job_log.evicted(job.id, now, "", usage, used)

    return [LogEvent(job, event)]


def ordered(
    schedd: str, job: Job, event: JobEvent, old: JobStatus, now: float, reason: str, code: int, subcode: int
) -> JobHeld | JobReleased | JobRemoved | None:
    """Write into a job's ad why it is held, released or removed; gives what is published of it. None: nothing."""
    if event == JobEvent.HOLD:
        job.ad.update({"HoldReason": reason, "HoldReasonCode": code, "HoldReasonSubCode": subcode})
        count_hold(job, code)
        return JobHeld(**about(schedd, job, now), code=code, subcode=subcode, reason=reason)
    if event == JobEvent.RELEASE:
        for name in ("HoldReason", "HoldReasonCode", "HoldReasonSubCode"):
            cell = job.ad.find(name.lower())
            if cell is not None:
                job.ad[f"Last{name}"] = cell
            job.drop(name)
        job.ad["ReleaseReason"] = reason
        return JobReleased(**about(schedd, job, now), reason=reason)
    if event in (JobEvent.REMOVE, JobEvent.FORCE) and old != JobStatus.REMOVED:
        job.ad["RemoveReason"] = reason
        return JobRemoved(**about(schedd, job, now), reason=reason)
    return None


def log_event(event: JobEvent, job: JobId, now: float, reason: str, code: int, subcode: int) -> job_log.Event:
    """What logs say of a job that is held, released or removed."""
    if event == JobEvent.HOLD:
        return job_log.held(job, now, reason, code, subcode)
    if event == JobEvent.RELEASE:
        return job_log.released(job, now, reason)
    return job_log.aborted(job, now, reason)


# Runs that ended without success


def requeue(
    schedd: str,
    table: JobTable,
    job: Job,
    reason: str,
    now: float,
    cool_down: CoolDown,
    *,
    failed: bool,
    code: int = 0,
    ran: bool = False,
) -> tuple[JobEffect, ...]:
    """The job's run ended without success: it waits for another, a while longer after repeated failures. code: the
    VacateReasonCode, if the reason has one. ran: whether its program had begun."""
    code = code or ((RUN_FAILED if ran else NOT_STARTED) if failed else 0)
    job.ad["LastVacateTime"] = int(now)
    job.ad["VacateReason"] = reason[:1000]
    job.drop("VacateReasonCode")
    if code:
        job.ad["VacateReasonCode"] = code
    if ran:
        count_vacate(job, code)
    effects: tuple[JobEffect, ...] = ()
    if failed:
        wait = cool_down.wait_s(job.count("NumShadowExceptions"))
        if wait:
            job.ad["JobCoolDownExpiration"] = int(now + wait)
            effects = (begin_cool_down(table, job, wait),)
    return effects + put_back(schedd, table, job, now)


def begin_cool_down(table: JobTable, job: Job, wait_s: float) -> StartCoolDown:
    """Keep a job from being offered for a while."""
    job.cooling = True
    table.refresh(job)
    return StartCoolDown(job, wait_s)


def put_back(schedd: str, table: JobTable, job: Job, now: float) -> tuple[JobEffect, ...]:
    """The job's run is over: it is idle again; or, if it was held or removed meanwhile, what that asks for."""
    event = JobEvent.REQUEUE if job.status in ACTIVE else JobEvent.OVER
    return apply_event(schedd, table, job, event, now).effects


# New jobs


def submitted_event(schedd: str, jobs: Sequence[Job], now: float, count: int = 0) -> JobsSubmitted:
    """The event that tells of jobs of one cluster that came into the queue, in a row. count: how many they are, where
    the others are like the first one."""
    cluster = jobs[0].cluster
    return JobsSubmitted(
        at=now,
        schedd=schedd,
        owner=cluster.owner,
        submitter=cluster.submitter,
        cluster=cluster.id,
        first_proc=jobs[0].proc,
        count=count or len(jobs),
        **_held(jobs),
    )


def _held(jobs: Sequence[Job]) -> dict[str, Any]:
    """What the event says of jobs that are on hold from the beginning."""
    ranges: list[list[int]] = []
    first: Job | None = None
    for job in jobs:
        if job.status != JobStatus.HELD:
            continue
        first = first or job
        if ranges and ranges[-1][1] == job.proc - 1:
            ranges[-1][1] = job.proc
        else:
            ranges.append([job.proc, job.proc])
    if first is None:
        return {}
    code = int(first.number("HoldReasonCode"))
    return {"held": ranges, "hold_code": code, "hold_reason": first.text("HoldReason")[:1000]}


def submit_log_event(job: Job, host: str, now: float) -> job_log.Event:
    """What the user's log says of a job that came into the queue. host: of the schedd."""
    return job_log.submitted(job.id, now, host, job.text("SubmitEventNotes"), job.text("SubmitEventUserNotes"))


def cluster_log_event(first: Job, host: str, now: float) -> job_log.Event:
    """What the user's log says of a cluster whose jobs come late. first: its first job, whose notes are the cluster's,
    as in HTCondor."""
    notes = first.text("SubmitEventNotes"), first.text("SubmitEventUserNotes")
    return job_log.cluster_submitted(first.cluster.id, now, host, *notes)
