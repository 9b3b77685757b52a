"""The spans of a job that its schedd knows of (docs/tracing.md): it sees all of the way, and stores what must last.

    schedd.submit > job > job.attempt > job.wait, match, claim.request, activation, transfer.input, run, transfer.output

A job's trace begins with the request that submitted it, and is kept in RoostTrace of its cluster. The spans `job` and
`job.attempt` have ids computed of it, so that what is told of an attempt before the job has ended, or by another life
of the schedd, hangs on the right one. While traces are off each of these functions is one `if`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from engine.queue.job_table import JobTable
from engine.queue.jobs import Job, JobStatus, Shadow
from services.schedd.core.claim import Claim
from shared import tracing
from shared.messages.claims import JobExit

#: Where a cluster keeps the traceparent of its submit; nobody but the schedd writes it (acceptance.PROTECTED).
ATTRIBUTE: Final = "RoostTrace"

_OVER: Final = (JobStatus.COMPLETED, JobStatus.REMOVED)


def _submitted(job: Job) -> str:
    """The traceparent of a job's submit; empty: its trace is not followed."""
    if not tracing.on():
        return ""
    return tracing.proper(job.cluster.ad.eval_string(ATTRIBUTE)) or ""


def _job(job: Job, submitted: str) -> str:
    return tracing.derived(submitted, "job", str(job.id))


def _attempt(job: Job, submitted: str, attempt: int, started: float) -> str:
    # By its time, too: the number of an attempt that never was is used again.
    return tracing.derived(submitted, "attempt", str(job.id), attempt, started)


def of_run(table: JobTable, claim: Claim) -> str | None:
    """The traceparent for messages about the run on a claim."""
    if not tracing.on():
        return None
    run = claim.shadow
    job = table.get(run.job) if run is not None else None
    submitted = _submitted(job) if job is not None else ""
    if run is None or job is None or not submitted:
        return None
    return tracing.derived(_attempt(job, submitted, run.attempt, run.started), "claim.request")


def on_status(schedd: str, job: Job, old: JobStatus, now: float) -> None:
    """A job is completed or removed: the span of all of it."""
    if job.status not in _OVER or old in _OVER or not (submitted := _submitted(job)):
        return
    about = {**_about(schedd, job), "status": job.status.name.lower()}
    tracing.told("job", submitted, job.cluster.qdate, now, about, id_of=_job(job, submitted))


def on_match(schedd: str, job: Job, slot: str, negotiator: str, cycle: int, now: float) -> None:
    """A cycle gave the job a slot: a span without length, linked to the cycle's own trace, which brought the match."""
    if not (submitted := _submitted(job)):
        return
    run = job.shadow  # None: the slot must empty first
    above = _job(job, submitted) if run is None else _attempt(job, submitted, run.attempt, run.started)
    about = {**_about(schedd, job), "slot": slot, "negotiator": negotiator, "cycle": cycle}
    tracing.told("match", above, now, now, about, link=tracing.current())


def on_over(schedd: str, job: Job, claim: Claim, run: Shadow, exit_: JobExit | None, now: float) -> None:
    """A run is over: the spans of this attempt. exit_: what the execution point said; None: nothing."""
    if not (submitted := _submitted(job)):
        return
    about = {**_about(schedd, job), "slot": claim.slot, "attempt": run.attempt}
    attempt = _attempt(job, submitted, run.attempt, run.started)
    reason = exit_.reason if exit_ is not None else "lost"
    error = "" if reason in ("exited", "killed") else (exit_.message if exit_ is not None else "") or reason
    ended: dict[str, tracing.Value] = {"reason": reason}
    if exit_ is not None and exit_.exit_code is not None:
        ended["exit_code"] = exit_.exit_code
    if exit_ is not None and exit_.exit_signal is not None:
        ended["exit_signal"] = exit_.exit_signal
    waited = job.idle_since()
    tracing.told("job.attempt", _job(job, submitted), waited, now, {**about, **ended}, id_of=attempt, error=error)
    tracing.told("job.wait", attempt, waited, run.started, about, id_of=tracing.derived(attempt, "job.wait"))
    first = claim.granted_at >= run.started or not claim.granted  # on this claim: later jobs need not ask for it
    granted = (claim.granted_at if claim.granted else now) if first else run.started
    if first:
        refused = "" if claim.granted else error or "refused"
        request = tracing.derived(attempt, "claim.request")
        tracing.told("claim.request", attempt, run.started, granted, about, id_of=request, error=refused)
    if not run.executing:
        return
    # The start is told by the execution point's clock, which need not be ours.
    began = max(granted, min(run.executing, now))
    tracing.told("activation", attempt, granted, began, about, id_of=tracing.derived(attempt, "activation"))
    done = min(now, max(began, run.output_began or now))
    tracing.told("run", attempt, began, done, {**about, **ended}, id_of=tracing.derived(attempt, "run"), error=error)


@contextlib.contextmanager
def files(schedd: str, job: Job, run: Shadow, name: str, now: Callable[[], float]) -> Iterator[None]:
    """Around files of a run that travel. name: transfer.input or transfer.output."""
    began, problem = now(), ""
    try:
        yield
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"
        raise
    finally:
        if submitted := _submitted(job):
            attempt = _attempt(job, submitted, run.attempt, run.started)
            about = {**_about(schedd, job), "attempt": run.attempt}
            tracing.told(name, attempt, began, now(), about, error=problem)


def _about(schedd: str, job: Job) -> dict[str, tracing.Value]:
    return {"schedd": schedd, "job_id": str(job.id), "owner": job.cluster.owner, "submitter": job.submitter}
