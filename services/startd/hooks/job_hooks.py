"""What hooks of jobs are told, and what their answers mean (JHK-02 to JHK-08). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shared.classad import ClassAd, ParseError, parse_ad
from shared.classad.ad import PRIVATE_NAMES
from shared.messages.claims import JobExit, Usage
from shared.program import Ended

#: HTCondor's hold code for a prepare hook that failed.
HOLD_PREPARE = 19
#: From this HookStatusCode on, the job goes back to Idle instead of on hold.
BACK_TO_IDLE = 300
STATUS_CODE, STATUS_MESSAGE = "HookStatusCode", "HookStatusMessage"
#: What makes a job that job, and its processes its owner's: a hook runs as the job's user, and must not change that.
_KEPT = PRIVATE_NAMES | {
    *("clusterid", "procid", "globaljobid", "owner", "user", "ntdomain", "runasowner", "mytype", "targettype"),
    *("hookstatuscode", "hookstatusmessage"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a job after a prepare hook. go: it is started. hold: with HOLD_PREPARE and this subcode. idle: it
    runs elsewhere, or here once more."""

    kind: Literal["go", "hold", "idle"]
    message: str = ""
    subcode: int = 0
    updates: ClassAd = field(default_factory=ClassAd)


def judge(knob: str, ended: Ended) -> Verdict:
    """JHK-02 to JHK-05. knob: the hook's, for messages."""
    try:
        output = parse_ad(ended.stdout.decode("utf-8", "surrogateescape"), "old")
    except (ParseError, ValueError) as error:
        if ended.good:
            return Verdict("idle", f"{knob}: its output can not be read: {error}")
        output = ClassAd()
    said = output.eval_string(STATUS_MESSAGE)
    if ended.timed_out:
        return Verdict("idle", said or f"{knob}: {ended}")
    if ended.cut:
        return Verdict("idle", f"{knob} prints too much")
    if ended.exit_signal is not None:
        return Verdict("idle", said or f"{knob} died by signal {ended.exit_signal}")
    code = output.eval(STATUS_CODE)
    given = int(code) if isinstance(code, int) and not isinstance(code, bool) and code >= 0 else None
    status = given if given is not None else ended.exit_code or 0
    if status == 0:
        updates = ClassAd()
        for name in output:
            if name.lower() not in _KEPT:
                updates[name] = output.lookup(name)
        return Verdict("go", said, updates=updates)
    message = said or (
        f"{knob} says {STATUS_CODE} {status}" if given is not None else f"{knob} ended with status {status}"
    )
    return Verdict("idle" if given is not None and status >= BACK_TO_IDLE else "hold", message, status)


def changed_job(job: ClassAd, updates: ClassAd) -> ClassAd:
    """The job as a prepare hook wants it. A Cmd of the hook is a path of this machine, not what was transferred."""
    job = job.copy()
    job.update({name: updates.lookup(name) for name in updates})
    if "Cmd" in updates:
        job["TransferExecutable"] = False
    return job


@dataclass(frozen=True, slots=True)
class Progress:
    """How a job does. Times: wall clock, seconds; 0: it has not begun."""

    suspended: bool
    pid: int
    started_at: float
    usage: Usage


def status_ad(job: ClassAd, progress: Progress) -> ClassAd:
    """What UPDATE_JOB_INFO is told (JHK-06)."""
    ad = job.public().copy()
    usage = progress.usage
    ad.update(
        {
            "JobState": "Suspended" if progress.suspended else "Running",
            "JobPid": progress.pid,
            "NumPids": usage.procs,
            "JobStartDate": int(progress.started_at),
            "RemoteSysCpu": usage.sys_cpu_s,
            "RemoteUserCpu": usage.user_cpu_s,
            "ImageSize": usage.image_size_kib,
        }
    )
    return ad


def exit_word(outcome: JobExit, stopped_for: str) -> str:
    """The argument of JOB_EXIT (JHK-07). stopped_for: what a stop was asked for; empty: the job ended by itself."""
    if stopped_for in ("remove", "hold"):
        return stopped_for
    if stopped_for:
        return "evict"
    return {"exited": "exit", "hold": "hold"}.get(outcome.reason, "evict")


def exit_ad(job: ClassAd, progress: Progress, outcome: JobExit, now: float) -> ClassAd:
    """What JOB_EXIT is told (JHK-08)."""
    ad = status_ad(job, progress)
    ad["JobState"] = "Exited"
    ad["JobDuration"] = max(0.0, now - progress.started_at) if progress.started_at else 0.0
    signaled = outcome.exit_signal is not None
    if signaled:
        reason = f"died on signal {outcome.exit_signal}"
    elif outcome.exit_code is not None:
        reason = f"exited with status {outcome.exit_code}"
    else:
        reason = "did not run to an end"
    ad["ExitReason"] = f"{reason}: {outcome.message}" if outcome.message else reason
    ad["ExitBySignal"] = signaled
    if signaled:
        ad["ExitSignal"] = outcome.exit_signal
    elif outcome.exit_code is not None:
        ad["ExitCode"] = outcome.exit_code
    return ad
