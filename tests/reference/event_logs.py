"""Logs of jobs: what HTCondor's reader makes of what Roost writes, and what both make of what HTCondor writes."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from shared import job_log
from shared.classad import ClassAd, unparse
from shared.classad.expr import Expr
from shared.job_log import Event, Form, LogReader
from shared.job_log.reading import BadEvent
from shared.messages.claims import Usage
from tests.reference.family import Case, Facts, Family

WORDS = ("a reason", "via roost rm (by user ann)", "x=1, y", "done (0)", "late: 3", "DAG Node: A.1", "über", "  two  ")
HOSTS = ("10.0.0.1:9618?addrs=10.0.0.1-9618", "ep.example", "[::1]:9618")
FORMS = (Form(), Form(), Form(utc=True), Form(sub_second=True), Form(iso=False), Form("xml"), Form("json"))


@dataclass(frozen=True)
class _Id:
    cluster: int
    proc: int


def _usage(rng: random.Random) -> Usage:
    return Usage(
        user_cpu_s=rng.choice((0.0, 1.0, 59.9, 3600.0, 90061.5)),
        sys_cpu_s=rng.choice((0.0, 2.0)),
        image_size_kib=rng.randrange(10**6),
        resident_set_kib=rng.randrange(10**6),
        memory_mib=rng.randrange(5000),
        disk_kib=rng.randrange(10**6),
        bytes_sent=rng.choice((0, 1234, 5 * 10**9)),
        bytes_received=rng.randrange(10**4),
        procs=rng.randrange(5),
    )


def _of_roost(rng: random.Random) -> Event:
    """An event that a daemon of ours writes."""
    job, at = _Id(rng.choice((1, 12, 1234567)), rng.choice((0, 3, 4321))), rng.uniform(1.7e9, 1.79e9)
    word, slot, host = rng.choice(WORDS), rng.choice(("slot1@ep", "slot1_2@ep.example")), rng.choice(HOSTS)
    ad = ClassAd({"RequestCpus": 1, "RequestDisk": 1024, "RequestMemory": 128})
    if rng.random() < 0.3:
        ad["RequestGPUs"] = 1
    slot_ad = ClassAd({"Cpus": rng.choice((1, 16)), "Memory": 128, "Disk": 10**7, "GPUs": rng.choice((0, 2))})
    resources = job_log.resources(ad, slot_ad, _usage(rng), rng.choice((0.0, 10.0)), rng.choice((None, 12.7)))
    signal = rng.choice((None, None, 9, 11))
    code = None if signal else rng.choice((0, 1, 255))
    core = rng.choice(("", "/x/core 1"))
    made = (
        lambda: job_log.submitted(job, at, host, rng.choice(("", word)), rng.choice(("", "more"))),
        lambda: job_log.executing(job, at, host, slot, slot_ad),
        lambda: job_log.evicted(job, at, rng.choice(("", word)), _usage(rng), resources),
        lambda: job_log.evicted(
            job, at, word, _usage(rng), resources, requeued=True, exit_code=code, exit_signal=signal, core=core
        ),
        lambda: job_log.terminated(
            job,
            at,
            exit_code=code,
            exit_signal=signal,
            core=core,
            run=_usage(rng),
            total=_usage(rng),
            resources=resources,
        ),
        lambda: job_log.image_size(job, at, _usage(rng)),
        lambda: job_log.shadow_exception(job, at, word, _usage(rng)),
        lambda: job_log.remote_error(job, at, slot, word, rng.choice((6, 12)), rng.randrange(3)),
        lambda: job_log.aborted(job, at, word),
        lambda: job_log.suspended(job, at, 2),
        lambda: job_log.unsuspended(job, at),
        lambda: job_log.held(job, at, word, rng.randrange(40), rng.randrange(-1, 3)),
        lambda: job_log.released(job, at, word),
        lambda: job_log.disconnected(job, at, word, slot, host),
        lambda: job_log.reconnected(job, at, slot, host),
        lambda: job_log.reconnect_failed(job, at, word, slot),
        lambda: job_log.attribute_changed(job, at, "JobPrio", rng.choice((None, "1")), "2"),
        lambda: job_log.cluster_submitted(job.cluster, at, host, *rng.choice(((), ("", word), (word, word)))),
        lambda: job_log.cluster_removed(job.cluster, at, 3, rng.choice((3, 4)), rng.choice(("", word))),
        lambda: job_log.transferring(
            job, at, rng.choice(("input", "output")), rng.choice(("started", "finished")), host
        ),
        lambda: job_log.job_ad_information(job_log.held(job, at, word, 1, 2), {"A": 1, "B": "x", "C": 1.5}),
    )
    return rng.choice(made)()


#: Events as HTCondor's daemons write them; `{n}` are numbers.
_THEIRS = (
    "002 {id} {at} (1) Job file not executable.\n",
    "003 {id} {at} Job was checkpointed.\n\tUsr 0 00:00:0{d}, Sys 0 00:00:02  -  Run Remote Usage\n"
    "\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n\t{n}  -  Run Bytes Sent By Job For Checkpoint\n",
    "008 {id} {at} {word}\n",
    "014 {id} {at} Node {d} executing on host: <{host}>\n",
    "016 {id} {at} POST Script terminated.\n\t(1) Normal termination (return value {d})\n    DAG Node: A\n",
    "016 {id} {at} POST Script terminated.\n\t(0) Abnormal termination (signal {d})\n    DAG Node: B.1\n",
    "021 {id} {at} Error from starter on slot1@ep:\n\t{word}\n\tCode {d} Subcode {n}\n",
    "025 {id} {at} Grid Resource Back Up\n    GridResource: batch x\n",
    "026 {id} {at} Detected Down Grid Resource\n    GridResource: batch x\n",
    "027 {id} {at} Job submitted to grid resource\n    GridResource: batch x\n    GridJobId: y {n}\n",
    "029 {id} {at} The job's remote status is unknown\n",
    "030 {id} {at} The job's remote status is known again\n",
    "034 {id} {at} PRE script return value is PRE_SKIP value\n    DAG Node: A\n",
    "037 {id} {at} Job Materialization Paused\n\t{word}\n\tPauseCode {d}\n\tHoldCode {n}\n",
    "038 {id} {at} Job Materialization Resumed\n\t{word}\n",
    "040 {id} {at} Entered queue to transfer input files\n",
    "040 {id} {at} Started transferring output files\n\tSeconds spent in queue: {n}\n",
    "040 {id} {at} Started transferring input files\n\tSeconds spent in queue: {n}\n\tTransferring to host: <{host}>\n",
    "006 {id} {at} Image size of job updated: {n}\n\t{d}  -  MemoryUsage of job (MB)\n"
    "\t{n}  -  ResidentSetSize of job (KB)\n\t{n}  -  ProportionalSetSize of job (KB)\n",
    "006 {id} {at} Image size of job updated: {n}\n",
    "004 {id} {at} Job was evicted.\n\t(1) Job was checkpointed.\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote "
    "Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n\t{n}  -  Run Bytes Sent By Job\n"
    "\t{d}  -  Run Bytes Received By Job\n",
    "009 {id} {at} Job was aborted by the user.\n\t{word}\n",
    "009 {id} {at} Job was aborted.\n",
    "012 {id} {at} Job was held.\n\tReason unspecified\n\tCode {d} Subcode {n}\n",
    "012 {id} {at} Job was held.\n\t{word}\n",
    "012 {id} {at} Job was held.\n",
    "013 {id} {at} Job was released.\n",
    "001 {id} {at} Job executing on host: <{host}>\n",
    '001 {id} {at} Job executing on host: <{host}>\n\tSlotName: slot1@ep\n\tCondorScratchDir = "/x/dir_{n}"\n'
    "\tCpus = {d}\n\tGPUs = 0\n\tMemory = {n}\n",
    "000 {id} {at} Job submitted from host: <{host}>\n    {word}\n    {word}\n    WARNING: Committed job submission "
    "into the queue with the following warning(s): w\n",
    "000 {id} {at} Job submitted from host: <{host}>\n    WARNING: Committed job submission into the queue with the "
    "following warning(s): w\n",
    '050 {id} {at} Something of a later version\n\tA = {d}\n\tB = "x"\n',
    "005 {id} {at} Job terminated.\n\t(1) Normal termination (return value {d})\n"
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n"
    "\t\tUsr 1 00:00:00, Sys 0 00:00:00  -  Total Remote Usage\n"
    "\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage\n"
    "\t{n}  -  Run Bytes Sent By Job\n\t{d}  -  Run Bytes Received By Job\n"
    "\t{n}  -  Total Bytes Sent By Job\n\t{d}  -  Total Bytes Received By Job\n"
    "\tPartitionable Resources :    Usage  Request Allocated Assigned\n"
    "\t   Cpus                 :     0.0{d}        1         1\n"
    "\t   Disk (KB)            :       22       20   {n}\n"
    '\t   Gpus (Average)       :     0.50        1         1 "GPU-abc"\n'
    "\t   Memory (MB)          :        1        1       128\n\n"
    "\tJob terminated of its own accord at 2026-11-22T10:00:01Z with exit-code {d}.\n",
)


def _text(rng: random.Random) -> str:
    at = rng.choice(("2026-11-22 10:00:01", "2026-02-03 04:05:06.789", "2026-11-22T10:00:01", "11/22 10:00:01"))
    return (
        rng.choice(_THEIRS).format(
            id=f"({rng.choice((1, 12, 1234567)):03d}.{rng.choice((0, 3, 4321)):03d}.000)",
            at=at,
            d=rng.randrange(10),
            n=rng.randrange(10**6),
            word=rng.choice(WORDS[:-2]),
            host=rng.choice(HOSTS),
        )
        + "...\n"
    )


def _make(rng: random.Random) -> Case:
    if rng.random() < 0.3:
        text = "".join(_text(rng) for _ in range(rng.randint(1, 6)))
        return {"text": text.replace("\n", "\r\n") if rng.random() < 0.1 else text, "by": "HTCondor", "form": "text"}
    form = rng.choice(FORMS)
    text = b"".join(job_log.written(_of_roost(rng), form) for _ in range(rng.randint(1, 6)))
    return {"text": text.decode("utf-8", "surrogateescape"), "by": "Roost", "form": form.kind}


def _plain(value: Any) -> Any:
    if isinstance(value, ClassAd):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, Expr):
        return unparse(value)
    return value


def _ours(case: Case) -> Facts:
    answers: Facts = {}
    number = 0

    def bad(_: BadEvent) -> None:
        nonlocal number
        number += 1
        answers[f"{number} is bad"] = True

    for event in LogReader(bad).feed(case["text"]):
        number += 1
        ad = job_log.as_ad(event, Form(sub_second=event.at % 1 != 0))
        answers[f"{number} {event.kind} timestamp"] = int(event.at)
        answers |= {f"{number} {event.kind} {name}": _plain(ad[name]) for name in ad}
    return answers


def _known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    _, kind, name = (*question.split(" "), "", "")[:3]
    if theirs is None and kind == "JobEvictedEvent" and name.removeprefix("Request").removesuffix("Usage") in RESOURCES:
        return "the reference's reader drops the resources of an eviction"
    if theirs is None and name in _UNASKED and kind == "JobTerminatedEvent" and case["form"] != "text":
        return "the reference's reader drops what a job did not ask for, of XML and JSON"
    if theirs is None and name in ("PriorValue", "ToE"):
        return f"the reference's reader drops {name}"
    if theirs == "" and kind == "AttributeUpdateEvent":
        return "the reference's reader can not read 033 of an attribute that is new"
    if theirs is None and name in ("LogNotes", "UserNotes") and kind == "ClusterSubmitEvent":
        return "the reference's reader drops the notes of a cluster"
    if theirs is None and name == "UserNotes" and "DAG Node: " in case["text"]:
        return "the reference's reader drops the second note of a node's job"
    if name in ("timestamp", "EventTime") and _NO_YEAR.search(case["text"]):
        return "a time without a year that would be to come is taken for the year before"
    return ""


_NO_YEAR = re.compile(r"^\d{3} \S+ \d\d/\d\d ", re.MULTILINE)
_UNASKED = ("GPUs", "TimeExecuteUsage", "TimeSlotBusyUsage")
RESOURCES = ("Cpus", "Disk", "Memory", "GPUs", "TimeExecute", "TimeSlotBusy")
EVENT_LOGS = Family("event-logs", _make, _ours, _known, lambda question, ours, theirs: question.partition(" ")[2])
