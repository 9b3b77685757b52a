"""The hooks of jobs: which there are for a slot or a job, what they are told, and what their answers mean. Pure.

A hook is `<Keyword>_HOOK_<name>`; slot, job and configuration say whose keyword counts (JHK-01 to JHK-08, FHK-01).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from shared.classad import ClassAd, ParseError, parse_ad
from shared.classad.ad import PRIVATE_NAMES
from shared.config.knobs import StartdSettings
from shared.messages.claims import JobExit, Usage
from shared.subprocess_runner import CompletedProgram

#: Seconds that a hook may take, where nothing else is said; JOB_EXIT as in HTCondor.
EXIT_TIMEOUT_S = 30.0


class Hook(StrEnum):
    FETCH_WORK = "FETCH_WORK"
    REPLY_FETCH = "REPLY_FETCH"
    EVICT_CLAIM = "EVICT_CLAIM"
    PREPARE_JOB_BEFORE_TRANSFER = "PREPARE_JOB_BEFORE_TRANSFER"
    PREPARE_JOB = "PREPARE_JOB"
    UPDATE_JOB_INFO = "UPDATE_JOB_INFO"
    JOB_EXIT = "JOB_EXIT"


#: What the starter calls, for any job; the others are about fetched work.
OF_JOBS = (Hook.PREPARE_JOB_BEFORE_TRANSFER, Hook.PREPARE_JOB, Hook.UPDATE_JOB_INFO, Hook.JOB_EXIT)


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of one keyword: paths of programs."""

    keyword: str
    paths: Mapping[Hook, str]
    timeout_s: float
    exit_timeout_s: float = EXIT_TIMEOUT_S

    def knob(self, hook: Hook) -> str:
        """The name of its knob, for messages."""
        return f"{self.keyword}_HOOK_{hook}"

    def time_of(self, hook: Hook) -> float:
        return self.exit_timeout_s if hook is Hook.JOB_EXIT else self.timeout_s


@dataclass(frozen=True, slots=True)
class HookConfig:
    """What the configuration says of hooks."""

    hooks: Mapping[str, Hooks] = field(default_factory=dict)  # by keyword in lower case
    startd: str = ""  # STARTD_JOB_HOOK_KEYWORD
    slots: Mapping[int, str] = field(default_factory=dict)  # SLOT<N>_JOB_HOOK_KEYWORD
    forced: str = ""  # STARTER_JOB_HOOK_KEYWORD
    default: str = ""  # STARTER_DEFAULT_JOB_HOOK_KEYWORD

    def of_slot(self, slot_id: int) -> Hooks | None:
        """FHK-01; None where no work is to be fetched (FHK-03)."""
        hooks = self.hooks.get((self.slots.get(slot_id) or self.startd).lower())
        return hooks if hooks is not None and Hook.FETCH_WORK in hooks.paths else None

    def of_job(self, job: ClassAd) -> Hooks | None:
        """JHK-01: a keyword is valid if it has any hook of jobs; STARTER_JOB_HOOK_KEYWORD counts as it is."""
        if self.forced:
            return self._for_jobs(self.forced)
        return self._for_jobs(job.eval_string("HookKeyword")) or self._for_jobs(self.default)

    def _for_jobs(self, keyword: str) -> Hooks | None:
        hooks = self.hooks.get(keyword.lower())
        return hooks if hooks is not None and any(hook in hooks.paths for hook in OF_JOBS) else None


def read_hook_config(settings: StartdSettings) -> HookConfig:
    """What the knobs say of hooks."""
    families: dict[Hook, Mapping[str, str]] = {
        Hook.FETCH_WORK: settings.hook_fetch_work_by_keyword,
        Hook.REPLY_FETCH: settings.hook_reply_fetch_by_keyword,
        Hook.EVICT_CLAIM: settings.hook_evict_claim_by_keyword,
        Hook.PREPARE_JOB_BEFORE_TRANSFER: settings.hook_prepare_job_before_transfer_by_keyword,
        Hook.PREPARE_JOB: settings.hook_prepare_job_by_keyword,
        Hook.UPDATE_JOB_INFO: settings.hook_update_job_info_by_keyword,
        Hook.JOB_EXIT: settings.hook_job_exit_by_keyword,
    }
    exit_timeouts = settings.hook_job_exit_timeout_by_keyword
    found = {
        keyword: Hooks(
            keyword=keyword.upper(),
            paths={hook: paths[keyword].strip() for hook, paths in families.items() if keyword in paths},
            timeout_s=settings.roost_hook_timeout,
            exit_timeout_s=exit_timeouts.get(keyword, EXIT_TIMEOUT_S),
        )
        for keyword in {name for paths in families.values() for name in paths}
    }
    return HookConfig(
        hooks=found,
        startd=settings.startd_job_hook_keyword or "",
        slots={int(n): keyword for n, keyword in settings.slot_job_hook_keyword_by_n.items() if n.isdecimal()},
        forced=settings.starter_job_hook_keyword or "",
        default=settings.starter_default_job_hook_keyword or "",
    )


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
    """What becomes of a job after a prepare hook. go: it is started. hold: as HOOK_REFUSED, with this subcode. idle: it
    runs elsewhere, or here once more."""

    kind: Literal["go", "hold", "idle"]
    message: str = ""
    subcode: int = 0
    updates: ClassAd = field(default_factory=ClassAd)


def judge(knob: str, ended: CompletedProgram) -> Verdict:
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
    if outcome.exit_code is None:  # who exits says all there is by its ExitCode
        reason = f"died on signal {outcome.exit_signal}" if signaled else "did not run to an end"
        ad["ExitReason"] = f"{reason}: {outcome.message}" if outcome.message else reason
    ad["ExitBySignal"] = signaled
    if signaled:
        ad["ExitSignal"] = outcome.exit_signal
    elif outcome.exit_code is not None:
        ad["ExitCode"] = outcome.exit_code
    return ad
