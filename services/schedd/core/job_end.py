"""What a run does to its job's ad, and what becomes of the job when the run is over. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from engine.queue.job_table import JobTable
from engine.queue.jobs import ACTIVE, PROTECTED, Job, Shadow, full_ad
from engine.queue.outcome import success_code
from services.schedd.core import transfer_times
from services.schedd.core.claim import Claim
from services.schedd.core.flocking import pool_of
from services.schedd.core.job_changes import JobEffect, LogEvent, Notify, PublishEvent, about, apply_event, requeue
from services.schedd.core.job_states import JobEvent
from services.schedd.core.policies import Action, CoolDown, Hold, after_exit
from services.schedd.core.reason_counts import REQUEUED
from shared import job_log
from shared.classad import ClassAd
from shared.classad.ad import is_private
from shared.classad.expr import fold
from shared.errors import error_number
from shared.messages.claims import JobExit, JobReport, Usage
from shared.messages.events import JobEnded, JobEvicted

#: A last report that does not say how the run ended: run it again.
NO_EXIT: Final = JobExit(reason="failed", message="the execution point did not say how the run ended")
#: HTCondor's VacateReasonCode of a job that its user had vacated.
USER_VACATED: Final = 1004
#: Never taken from an execution point: who the job is, what it runs with which files, and what the schedd decides.
_NAMES: Final = """
    clusterid procid globaljobid owner user qdate jobstatus cmd iwd jobprio accountinggroup numjobstarts
    numshadowstarts holdreason holdreasoncode holdreasonsubcode requirements userlog dagmannodeslog out err in
    transferoutputremaps transferinput publicinputfiles transferplugins transferoutput outputdestination
    args arguments env environment
    jobuniverse wantioproxy wantremoteupdates oauthservicesneeded
"""
_NOT_THEIRS: Final = frozenset(_NAMES.split())


#: Slots that a job remembers at most, whatever it wants.
MOST_REMEMBERED: Final = 100
#: Amounts above this, and times after this, are no truth.
_MOST: Final = 2**60
_LATEST: Final = 2.0**33
_TIMES: Final = ("at", "started_at", "had_s", "ran_s", "over_s")


@dataclass(frozen=True, slots=True)
class Ended:
    """When a run was over, by our clock, how long its machine had it, and how long its program ran. Its startd says
    so: it makes no difference when we hear of it."""

    at: float
    had_s: float
    ran_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    usage: Usage
    exit: JobExit
    slot: str
    slot_ad: ClassAd
    run: Shadow
    now: float
    ended: Ended
    weight: float = 1.0  # of the slot


# Attributes along the way


def on_match(job: Job, claim: Claim) -> None:
    """The job's slot was asked for: until it is granted the job is idle, and says for which slot."""
    job.ad["RoostMatchedSlot"] = claim.slot


def on_matched(job: Job, slot: str, now: float) -> None:
    """A slot was found for the job: it remembers as many of the last ones as it wants (match_list_length)."""
    ad = job.ad
    job.count("NumJobMatches")
    ad["LastMatchTime"] = int(now)
    if "FirstJobMatchDate" not in ad:
        ad["FirstJobMatchDate"] = int(now)
    wanted = min(int(job.number("LastMatchListLength")), MOST_REMEMBERED)
    if wanted > 0:
        before = [name for number in range(wanted - 1) if (name := job.text(f"LastMatchName{number}"))]
        for number, name in enumerate((slot, *before)):
            ad[f"LastMatchName{number}"] = name


def on_start(ad: ClassAd, autocluster: int, claim: Claim, now: float) -> None:
    """Note in a job's own attributes that it runs on this claim. autocluster: that it was matched as."""
    stamp = int(now)
    if "JobStartDate" not in ad:
        ad["JobStartDate"] = stamp
    last = ad.find("jobcurrentstartdate")
    if last is not None:
        ad["JobLastStartDate"] = last
    ad["JobCurrentStartDate"] = stamp
    ad["ShadowBday"] = stamp
    ad["AutoClusterId"] = autocluster
    transfer_times.forget(ad)
    runs = ad.eval("JobRunCount")
    ad["JobRunCount"] = (int(runs) if isinstance(runs, int | float) else 0) + 1
    if "RoostMatchedSlot" in ad:
        del ad["RoostMatchedSlot"]
    on_slot(ad, claim)


def on_slot(ad: ClassAd, claim: Claim) -> None:
    """Note on which slot the job runs."""
    ad["RemoteHost"] = claim.slot
    ad["StartdAddr"] = claim.startd
    if pool := pool_of(claim.startd):
        ad["RemotePool"] = pool
    slot_id = claim.slot_classad().eval("SlotID")
    if isinstance(slot_id, int):
        ad["RemoteSlotID"] = slot_id


def on_executing(job: Job, run: Shadow, now: float) -> None:
    job.ad["JobCurrentStartExecutingDate"] = int(run.executing or now)
    job.count("NumJobStarts")


def on_suspend(job: Job, run: Shadow, now: float) -> None:
    run.suspended = now
    job.ad["LastSuspensionTime"] = int(now)
    job.count("TotalSuspensions")


def on_continue(job: Job, run: Shadow, now: float) -> None:
    if run.suspended:
        job.count("CumulativeSuspensionTime", max(0, int(now - run.suspended)))
        run.suspended = 0.0
    job.ad["LastSuspensionTime"] = 0


def sanitize_report(report: JobReport) -> JobReport:
    """The report with numbers that can be counted on: an execution point may send any. Refused it would only come
    again, and its job would never end."""
    usage = report.usage
    numbers = {name: _counted(value) for name, value in usage}
    sound = usage if numbers == dict(usage) else usage.model_copy(update=numbers)
    said = {name: value for name in _TIMES if (value := getattr(report, name)) is not None}
    times = {name: _counted(value, _LATEST) for name, value in said.items()}
    if sound is usage and times == said:
        return report
    return report.model_copy(update={"usage": sound, **times})


def _counted(value: Any, most: float = _MOST) -> Any:
    return type(value)(min(max(value, 0), most)) if value == value else 0.0


def on_usage(job: Job, usage: Usage) -> None:
    """Note what the run used so far. Sizes only grow: a short look at a process may miss its peak."""
    ad = job.ad
    for name, value in (
        ("ImageSize", usage.image_size_kib),
        ("ResidentSetSize", usage.resident_set_kib),
        ("MemoryUsage", usage.memory_mib),
        ("DiskUsage", usage.disk_kib),
    ):
        if value and value > job.number(name):
            ad[name] = value
    if usage.user_cpu_s or usage.sys_cpu_s:
        ad["RemoteUserCpu"] = usage.user_cpu_s
        ad["RemoteSysCpu"] = usage.sys_cpu_s


def may_set(key: str) -> bool:
    """Whether an execution point, or the job that runs there, sets this attribute. key: folded."""
    return key not in _NOT_THEIRS and key not in PROTECTED and not is_private(key)


def on_updates(job: Job, packed: bytes) -> None:
    """Further attributes that the execution point sets, but none that are not its own to set."""
    if not packed:
        return
    try:
        updates = ClassAd.unpack(packed).check()
    except ValueError:
        return  # a report with a broken ad is still a report
    for name, cell in updates.cells():
        if may_set(fold(name)):
            job.ad[name] = cell


def when_ended(run: Shadow, report: JobReport, now: float) -> Ended:
    """When a run was over whose end is reported at last. It can not have begun before we gave it away, nor ended later
    than the report says; between the two its startd's wall clock is believed, which need not go as ours does."""
    if report.had_s is None or report.over_s is None:
        return heard_of_end(run, now)
    latest = min(now, max(run.started, now - report.over_s))
    earliest = min(latest, run.started + report.had_s)
    at = min(max(report.at, earliest), latest)
    return Ended(at, report.had_s, report.had_s if report.ran_s is None else report.ran_s)


def heard_of_end(run: Shadow, now: float) -> Ended:
    """A run that is over, of which nobody says since when."""
    return Ended(now, max(0.0, now - run.started), max(0.0, now - (run.executing or run.started)))


def end_run(table: JobTable, job: Job, claim: Claim, run: Shadow, ended: Ended) -> None:
    """The run is no more, however it ended: neither the job nor the claim has it now."""
    claim.shadow = None
    job.shadow = None
    table.count(claim.submitter).weighted_running -= claim.weight()
    on_run_end(job, claim, run, ended)


def on_run_end(job: Job, claim: Claim, run: Shadow, ended: Ended) -> None:
    """Add a run that is over to the job's totals. One that its execution point never took used nothing."""
    had = ended.had_s if claim.granted else 0.0
    if run.suspended:
        on_continue(job, run, ended.at)
    transfer_times.at_rest(job.ad, "Input", "Output")
    job.ad["RemoteWallClockTime"] = float(job.number("RemoteWallClockTime")) + had
    job.ad["LastRemoteWallClockTime"] = float(had)
    job.ad["CumulativeSlotTime"] = float(job.number("CumulativeSlotTime")) + had * claim.weight()
    if claim.granted:
        job.ad["LastRemoteHost"] = claim.slot
        if pool := pool_of(claim.startd):
            job.ad["LastRemotePool"] = pool
        else:
            job.drop("LastRemotePool")
    job.drop("RemoteHost", "RemoteSlotID", "RemotePool", "StartdAddr", "ShadowBday", "RoostMatchedSlot")


# The end


def conclude(schedd: str, table: JobTable, job: Job, result: Result, cool_down: CoolDown) -> tuple[JobEffect, ...]:
    """What becomes of the job whose run has ended."""
    exit_, now = result.exit, result.now
    _add_up(job, result.usage)
    if job.status not in ACTIVE:
        # Held or removed meanwhile: that stands, whatever the run came to.
        if exit_.reason == "exited":
            _note_exit(job, exit_)
        return apply_event(schedd, table, job, JobEvent.OVER, now).effects
    if exit_.reason == "exited":
        return _exited(schedd, table, job, result, cool_down)
    if exit_.reason == "hold":
        return _held_there(schedd, table, job, result)
    if exit_.reason == "failed":
        return _failed(schedd, table, job, result, exit_.message or "the job could not be started", cool_down)
    reason = exit_.message or ("its run was vacated" if result.run.stop == "vacate" else "its run was evicted")
    # Where it did not run yet no log says that it ran: the claim went before the job could start.
    told = _evicted(schedd, job, result, _logged(result.run, reason)) if result.run.executing else ()
    code = exit_.vacate_code or (USER_VACATED if result.run.stop == "vacate" else 0)
    ran = bool(result.run.executing)
    return told + requeue(schedd, table, job, reason, now, cool_down, failed=False, code=code, ran=ran)


def _logged(run: Shadow, reason: str) -> str:
    """Why a run was evicted, in the job's log, which tells nothing of a user who asks the job to leave."""
    if run.stop != "vacate":
        return reason
    return run.vacated_because or ("User requested the job to vacate" if run.how == "fast" else "")


def skip(
    schedd: str, table: JobTable, job: Job, exit_code: int | None, exit_signal: int | None, now: float
) -> tuple[JobEffect, ...]:
    """The job is done without a run, and its log tells of an end as of any other."""
    exit_ = JobExit(reason="exited", exit_code=exit_code, exit_signal=exit_signal)
    _note_exit(job, exit_)
    job.ad["CompletionDate"] = int(now)
    none = Usage()

    def event() -> job_log.Event:
        return job_log.terminated(
            job.id,
            now,
            exit_code=exit_code,
            exit_signal=exit_signal,
            core="",
            run=none,
            total=none,
            resources=(),
            ran=False,
        )

    ended = JobEnded(
        **about(schedd, job, now),
        slot="",
        attempt=0,
        exit_code=exit_code,
        exit_signal=exit_signal,
        failed=_has_failed(schedd, job, exit_code, exit_signal, now),
        ran_s=0.0,
    )
    after = apply_event(schedd, table, job, JobEvent.SKIP, now).effects
    return LogEvent(job, event), PublishEvent(ended), *after


def _has_failed(schedd: str, job: Job, exit_code: int | None, exit_signal: int | None, now: float) -> bool:
    if exit_signal is not None:
        return True
    return exit_code is not None and exit_code != success_code(full_ad(schedd, job, now))


def output_missing(run: Shadow, exit_: JobExit) -> bool:
    """Whether a run that exited did not bring its output home: then it does not count."""
    return exit_.reason == "exited" and run.transfer and not run.output and not exit_.output_committed


def failed(run: Shadow, exit_: JobExit) -> bool:
    """Whether a run does not count: it could not start, or its output is lost."""
    return exit_.reason == "failed" or output_missing(run, exit_)


def claim_serves_on(run: Shadow, exit_: JobExit, *, stopped: str, spent: bool) -> bool:
    """Whether another job may follow on the claim of a run that ended so. stopped: the order to stop it, if one was
    given; spent: as many runs of the claim failed as MAX_SHADOW_EXCEPTIONS allows, or more."""
    if failed(run, exit_):
        return not spent
    return exit_.reason == "exited" or (exit_.reason == "killed" and stopped != "vacate")


def _failed(
    schedd: str, table: JobTable, job: Job, result: Result, reason: str, cool_down: CoolDown
) -> tuple[JobEffect, ...]:
    """The run does not count: it could not start, or its output is lost."""
    now = result.now
    told = LogEvent(job, lambda: job_log.shadow_exception(job.id, result.ended.at, reason, result.usage))
    return (told, *requeue(schedd, table, job, reason, now, cool_down, failed=True, ran=bool(result.run.executing)))


def _exited(schedd: str, table: JobTable, job: Job, result: Result, cool_down: CoolDown) -> tuple[JobEffect, ...]:
    """The job's program ended by itself: its policies say whether that was it."""
    exit_, now, run = result.exit, result.now, result.run
    if output_missing(run, exit_):
        return _failed(schedd, table, job, result, exit_.message or "its output did not arrive", cool_down)
    _note_exit(job, exit_)
    _commit(job, result)
    job.count("NumJobCompletions")
    decision = after_exit(full_ad(schedd, job, now), now)
    brought = _brought(job, result)
    if decision.action == Action.HOLD:
        reason, code, subcode = decision.reason, decision.code, decision.subcode
        held = apply_event(schedd, table, job, JobEvent.HOLD, now, reason=reason, code=code, subcode=subcode)
        return brought + held.effects
    if decision.action == Action.REQUEUE:
        told = brought + _evicted(schedd, job, result, decision.reason, requeued=True)
        return told + requeue(
            schedd, table, job, decision.reason, now, cool_down, failed=False, code=REQUEUED, ran=True
        )
    job.ad["CompletionDate"] = int(result.ended.at)
    job.ad["JobFinishedHookDone"] = int(now)
    effects: list[JobEffect] = [*brought, LogEvent(job, lambda: _terminated(job, result))]
    ended = JobEnded(
        **about(schedd, job, now),
        slot=result.slot,
        attempt=run.attempt,
        exit_code=exit_.exit_code,
        exit_signal=exit_.exit_signal,
        failed=_has_failed(schedd, job, exit_.exit_code, exit_.exit_signal, now),
        ran_s=result.ended.ran_s,
        user_cpu_s=result.usage.user_cpu_s,
        sys_cpu_s=result.usage.sys_cpu_s,
        memory_mib=result.usage.memory_mib,
    )
    effects.append(PublishEvent(ended))
    if job.number("JobNotification"):
        effects.append(Notify(job))
    return (*effects, *apply_event(schedd, table, job, JobEvent.COMPLETE, now).effects)


def _brought(job: Job, result: Result) -> tuple[JobEffect, ...]:
    """The log of a job whose output is here. What came in a moment was never reported to be on its way."""
    run = result.run
    if not run.transfer:
        return ()
    return _moved(job, result.ended.at, "output", began=run.output_told or not result.usage.bytes_sent)


def _moved(job: Job, at: float, way: str, host: str = "", *, began: bool) -> tuple[JobEffect, ...]:
    """Files of a run have travelled. host: where to; began: its log tells already that they began to."""

    def event(stage: str) -> job_log.Event:
        return job_log.transferring(job.id, at, way, stage, host)

    return tuple(LogEvent(job, partial(event, stage)) for stage in (() if began else ("started",)) + ("finished",))


def _commit(job: Job, result: Result) -> None:
    """The run's work counts: its program ended by itself, and its output is here."""
    had = result.ended.had_s
    job.ad["CommittedTime"] = int(job.number("CommittedTime") + had)
    job.ad["CommittedSlotTime"] = float(job.number("CommittedSlotTime")) + had * result.weight
    job.ad["CommittedSuspensionTime"] = int(job.number("CumulativeSuspensionTime"))


def _note_exit(job: Job, exit_: JobExit) -> None:
    ad = job.ad
    if exit_.exit_signal is not None:
        ad["ExitBySignal"] = True
        ad["ExitSignal"] = exit_.exit_signal
        job.drop("ExitCode")
    else:
        ad["ExitBySignal"] = False
        ad["ExitCode"] = exit_.exit_code or 0
        job.drop("ExitSignal")
    ad["ExitStatus"] = exit_.exit_code or 0
    ad["JobCoreDumped"] = exit_.core_dumped


def _add_up(job: Job, usage: Usage) -> None:
    """Add a run's usage to the totals over all runs of the job."""
    for name, value in (
        ("CumulativeRemoteUserCpu", usage.user_cpu_s),
        ("CumulativeRemoteSysCpu", usage.sys_cpu_s),
        ("BytesSent", float(usage.bytes_sent)),
        ("BytesRecvd", float(usage.bytes_received)),
    ):
        job.ad[name] = float(job.number(name)) + value


def _terminated(job: Job, result: Result) -> job_log.Event:
    total = Usage(
        user_cpu_s=job.number("CumulativeRemoteUserCpu"),
        sys_cpu_s=job.number("CumulativeRemoteSysCpu"),
        bytes_sent=int(job.number("BytesSent")),
        bytes_received=int(job.number("BytesRecvd")),
    )
    return job_log.terminated(
        job.id,
        result.ended.at,
        exit_code=result.exit.exit_code,
        exit_signal=result.exit.exit_signal,
        core=job.text("JobCoreFileName") if result.exit.core_dumped else "",
        run=result.usage,
        total=total,
        resources=_resources(job, result),
    )


def _resources(job: Job, result: Result) -> Sequence[job_log.Resource]:
    """HTCondor tells times of runs only that its starter brought to their end in good order."""
    run, ended = result.run, result.ended
    broken = run.stop == "vacate" and (run.how == "fast" or run.vacated_because)
    had_s = ended.had_s if result.slot and not broken and result.exit.hold_code != Hold.TRANSFER_INPUT_ERROR else None
    return job_log.resources(job.ad, result.slot_ad, result.usage, ended.ran_s if run.executing else 0.0, had_s)


def _held_there(schedd: str, table: JobTable, job: Job, result: Result) -> tuple[JobEffect, ...]:
    """The execution point can not run the job, or can not bring its output: its owner has to look."""
    exit_, at = result.exit, result.ended.at
    code, subcode = exit_.hold_code or Hold.STARTD_HELD_JOB, exit_.hold_subcode
    message = exit_.message or "The execution point put the job on hold"
    if not result.slot:  # it ran beside its schedd
        return apply_event(
            schedd, table, job, JobEvent.HOLD, result.now, reason=message, code=code, subcode=subcode
        ).effects
    reason = f"Error from {result.slot}: {message}"
    way, colon, details = message.partition(" files: ")
    host = result.slot.rpartition("@")[2]
    told: list[JobEffect] = []
    if result.run.transfer and not result.run.executing:
        told += _moved(job, at, "input", host, began=result.run.input_told)
    if colon and way in ("input", "output"):  # in HTCondor's words, which people look for in logs
        reason = f"Transfer {way} files failure at execution point {result.slot}. Details: {details}"
        subcode = subcode or error_number(details)
        if way == "output":
            told += _moved(job, at, way, began=result.run.output_told)

    def evicted() -> job_log.Event:
        return job_log.evicted(job.id, at, reason, result.usage, _resources(job, result))

    told.append(LogEvent(job, lambda: job_log.remote_error(job.id, at, result.slot, message, code, subcode)))
    told.append(LogEvent(job, evicted))
    held = apply_event(schedd, table, job, JobEvent.HOLD, result.now, reason=reason, code=code, subcode=subcode)
    return (*told, *held.effects)


def _evicted(schedd: str, job: Job, result: Result, reason: str, *, requeued: bool = False) -> tuple[JobEffect, ...]:
    """requeued: the run ended by itself, and a policy wants another."""
    exit_ = result.exit

    def event() -> job_log.Event:
        return job_log.evicted(
            job.id,
            result.ended.at,
            reason,
            result.usage,
            () if requeued else _resources(job, result),
            requeued=requeued,
            exit_code=exit_.exit_code,
            exit_signal=exit_.exit_signal,
        )

    told = JobEvicted(**about(schedd, job, result.now), slot=result.slot, attempt=result.run.attempt, reason=reason)
    return LogEvent(job, event), PublishEvent(told)
