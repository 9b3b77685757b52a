"""What the log of fetched work tells (StarterUserLog, FHK-12): the events of `shared.job_log`, or the same as XML."""

from __future__ import annotations

from dataclasses import dataclass

from shared import job_log
from shared.classad import ClassAd
from shared.messages.claims import JobReport


@dataclass(frozen=True, slots=True)
class Number:
    """What the job goes by in its log."""

    cluster: int
    proc: int

    @classmethod
    def of(cls, job: ClassAd) -> Number:
        numbers = (job.eval("ClusterId"), job.eval("ProcId"))
        cluster, proc = (one if isinstance(one, int) and 0 <= one < 1e9 else 0 for one in numbers)
        return cls(int(cluster), int(proc))


def tell(job: ClassAd, slot: ClassAd, report: JobReport, host: str, *, first: bool) -> bytes:
    """The event that a report makes; empty: none. first: the job has just begun."""
    return (_xml if job.eval("StarterUserLogUseXML") is True else _text)(job, slot, report, host, first)


def _text(job: ClassAd, slot: ClassAd, report: JobReport, host: str, first: bool) -> bytes:
    number, at, end = Number.of(job), report.at, report.exit
    if report.phase == "running":
        return (
            job_log.executing(number, at, host, report.slot, slot)
            if first
            else job_log.image_size(number, at, report.usage)
        )
    if report.phase == "suspended":
        return job_log.suspended(number, at, report.usage.procs)
    if end is None:
        return b""
    ran = max(0.0, at - report.started_at) if report.started_at else 0.0
    resources = job_log.resources(job, slot, report.usage, ran)
    if end.reason == "exited":
        return job_log.terminated(
            number,
            at,
            exit_code=end.exit_code,
            exit_signal=end.exit_signal,
            core="",
            run=report.usage,
            total=report.usage,
            resources=resources,
        )
    if end.reason == "hold":
        return job_log.held(number, at, end.message, end.hold_code, end.hold_subcode)
    if end.reason == "failed":
        return job_log.shadow_exception(number, at, end.message, report.usage)
    return job_log.evicted(number, at, end.message, report.usage, resources)


def _xml(job: ClassAd, slot: ClassAd, report: JobReport, host: str, first: bool) -> bytes:
    number, at, end, usage = Number.of(job), report.at, report.exit, report.usage
    if report.phase == "running" and first:
        return job_log.xml_event("ExecuteEvent", 1, number, at, ExecuteHost=f"<{host}>", SlotName=report.slot)
    if report.phase == "running":
        sizes = {
            "Size": usage.image_size_kib,
            "ResidentSetSize": usage.resident_set_kib,
            "MemoryUsage": usage.memory_mib,
        }
        return job_log.xml_event("JobImageSizeEvent", 6, number, at, **sizes)
    if report.phase == "suspended":
        return job_log.xml_event("JobSuspendedEvent", 10, number, at, NumberOfPIDs=usage.procs)
    if end is None:
        return b""
    if end.reason == "exited":
        return job_log.xml_event(
            "JobTerminatedEvent",
            5,
            number,
            at,
            TerminatedNormally=end.exit_signal is None,
            ReturnValue=end.exit_code,
            TerminatedBySignal=end.exit_signal,
        )
    if end.reason == "hold":
        held = {"HoldReason": end.message, "HoldReasonCode": end.hold_code, "HoldReasonSubCode": end.hold_subcode}
        return job_log.xml_event("JobHeldEvent", 12, number, at, **held)
    if end.reason == "failed":
        return job_log.xml_event("ShadowExceptionEvent", 7, number, at, Message=end.message)
    return job_log.xml_event("JobEvictedEvent", 4, number, at, Reason=end.message or None)
