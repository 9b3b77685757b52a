"""Work that a FETCH_WORK hook brings: what its ad must say, when the hook is asked again, and what its log tells. Pure.

FHK-02 and FHK-09 to FHK-13. The log (StarterUserLog) has the events of `shared.job_log`, or the same as XML.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Final

from shared import job_log
from shared.classad import ClassAd, Expr, ParseError, evaluate, parse_ad, parse_expr
from shared.classad.ad import PRIVATE_NAMES, PRIVATE_PREFIX
from shared.messages.claims import JobReport

VANILLA, JAVA = 5, 10
#: FetchWorkDelay where it is no number, seconds.
DELAY_S: Final = 300.0
#: A slot whose hook brought nothing is not asked again sooner than this, whatever FetchWorkDelay says, seconds.
LEAST_S: Final = 1.0
#: Fetched work belongs to no access point.
NOBODY: Final = ""
_TRUE: Final = parse_expr("true")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}\$?")


class BadWork(ValueError):
    """A fetched job that can not be run: which attribute, and the mend."""


def read_work(stdout: bytes) -> ClassAd | None:
    """What a FETCH_WORK hook printed; None: there is no work. Raises BadWork."""
    try:
        ad = parse_ad(stdout.decode("utf-8"), "old")
    except UnicodeDecodeError:
        raise BadWork("it is not UTF-8") from None
    except ParseError as error:
        raise BadWork(f"it is no ClassAd: {error}") from None
    return ad if len(ad) else None


def accept(ad: ClassAd, *, keyword: str, root: bool, partitionable: bool, uid_domain: str, java: str) -> ClassAd:
    """The job as it is run. root: whether the startd is; partitionable: whether its slot is; java: the interpreter.
    Raises BadWork."""
    job = ad.copy()
    for name in list(job):
        if name.lower() in PRIVATE_NAMES or name.lower().startswith(PRIVATE_PREFIX):
            del job[name]
    if not job.eval_string("Cmd"):
        raise BadWork('Cmd is missing: give the path of the program, as Cmd = "/bin/prog"')
    owner = job.eval_string("Owner")
    if root and not owner:
        raise BadWork("Owner is missing: the startd is root, so name the account that the job gets")
    if owner and not _NAME.fullmatch(owner):
        raise BadWork(f"Owner = {owner[:40]!r} is no name of an account")
    if partitionable:
        for name in ("RequestCpus", "RequestMemory", "RequestDisk"):
            if not isinstance(job.eval(name), int | float):
                raise BadWork(f"{name} is missing, or no number: a partitionable slot is divided by it")
    _set_universe(job, java)
    defaults = {"ClusterId": 1, "ProcId": 0, "Requirements": _TRUE, "Owner": owner or "nobody"}
    for name, value in defaults.items():
        if name not in job or name == "Owner":
            job[name] = value
    job["User"] = f"{job['Owner']}@{uid_domain}"
    job["RunAsOwner"] = root
    job["ShouldTransferFiles"] = "NO"
    job["HookKeyword"] = keyword
    for name in ("JobLeaseDuration", "TransferInput"):
        job.pop(name, None)
    return job


def _set_universe(job: ClassAd, java: str) -> None:
    universe = job.eval("JobUniverse") if "JobUniverse" in job else VANILLA
    if universe not in (VANILLA, JAVA):
        raise BadWork("JobUniverse is neither 5 (vanilla) nor 10 (java)")
    job["JobUniverse"] = universe
    if universe == JAVA:
        # The first argument is the class; its file, Cmd, and the JAR files are where it is looked for.
        folder = posixpath.dirname(job.eval_string("Cmd")) or "."
        jars = re.split(r"[\s,]+", job.eval_string("JarFiles").strip())
        path = ":".join([*(jar for jar in jars if jar), folder])
        job["Args"] = f"-classpath {path} {job.eval_string('Args')}".strip()
        job["Cmd"] = java
        job["JobUniverse"] = VANILLA  # the whole command is in the ad now


def log_path(job: ClassAd, scratch: str) -> str:
    """StarterUserLog, below IWD where it is relative (FHK-10, FHK-12); empty: none."""
    path = job.eval_string("StarterUserLog")
    return posixpath.join(job.eval_string("Iwd") or scratch, path) if path else ""


def delay_s(expr: Expr, slot: ClassAd, job: ClassAd | None) -> float:
    """Seconds from the end of the last fetch to the next (FHK-09). job: what runs on the slot."""
    value = evaluate(expr, slot, job)
    if isinstance(value, int | float) and value == value:
        return min(max(0.0, float(value)), 1e9)
    return DELAY_S


@dataclass(frozen=True, slots=True)
class JobNumber:
    """What the job goes by in its log."""

    cluster: int
    proc: int

    @classmethod
    def of(cls, job: ClassAd) -> JobNumber:
        numbers = (job.eval("ClusterId"), job.eval("ProcId"))
        cluster, proc = (one if isinstance(one, int) and 0 <= one < 1e9 else 0 for one in numbers)
        return cls(int(cluster), int(proc))


def log_event(job: ClassAd, slot: ClassAd, report: JobReport, host: str, *, first: bool) -> bytes:
    """The event that a report makes; empty: none. first: the job has just begun."""
    event = _event(job, slot, report, host, first)
    xml = job.eval("StarterUserLogUseXML") is True
    return job_log.written(event, job_log.Form("xml") if xml else job_log.TEXT) if event is not None else b""


def _event(job: ClassAd, slot: ClassAd, report: JobReport, host: str, first: bool) -> job_log.Event | None:
    number, at, end = JobNumber.of(job), report.at, report.exit
    if report.phase == "running":
        return (
            job_log.executing(number, at, host, report.slot, slot)
            if first
            else job_log.image_size(number, at, report.usage)
        )
    if report.phase == "suspended":
        return job_log.suspended(number, at, report.usage.procs)
    if end is None:
        return None
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
