"""The events that Roost's daemons write, made of what they know. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from shared.classad import ClassAd
from shared.job_log.event import Event, JobEventType

if TYPE_CHECKING:  # readers of logs (`roost wait`, a DAG's manager) start without all messages of the bus
    from shared.messages.claims import Usage

MAX_TEXT: Final = 2000


class JobId(Protocol):
    """What a job goes by."""

    @property
    def cluster(self) -> int: ...

    @property
    def proc(self) -> int: ...


def event(number: int, job: JobId, at: float, attributes: Mapping[str, Any] | None = None) -> Event:
    """One event of a job; attributes that are None or an empty text are left out."""
    told = {name: value for name, value in (attributes or {}).items() if value is not None and value != ""}
    return Event(number, job.cluster, job.proc, at, told)


def one_line(text: str) -> str:
    """Text of any origin as part of a line: a line of its own could end the event."""
    return " ".join(text[:MAX_TEXT].split()) or "Reason unspecified"


def submitted(job: JobId, at: float, host: str, notes: str = "", user_notes: str = "") -> Event:
    return event(0, job, at, _submit(host, notes, user_notes))


def _submit(host: str, notes: str, user_notes: str) -> dict[str, Any]:
    told = {"LogNotes": one_line(notes) if notes else "", "UserNotes": one_line(user_notes) if user_notes else ""}
    return {"SubmitHost": f"<{host}>", **told}


def post_script_terminated(job: JobId, at: float, node: str, code: int) -> Event:
    """code: the exit code; -N: signal N."""
    end = {"TerminatedNormally": True, "ReturnValue": code} if code >= 0 else {}
    killed = {"TerminatedNormally": False, "TerminatedBySignal": -code} if code < 0 else {}
    return event(16, job, at, {**end, **killed, "DAGNodeName": node})


def cluster_submitted(cluster: int, at: float, host: str, notes: str = "", user_notes: str = "") -> Event:
    """Before any of its jobs: further ones may come for as long as `cluster_removed` was not told."""
    told = {name: value for name, value in _submit(host, notes, user_notes).items() if value}
    return Event(35, cluster, -1, at, told)


def cluster_removed(cluster: int, at: float, materialized: int, total: int, reason: str = "") -> Event:
    """The last job of such a cluster has left. materialized, of total: how many were ever in the queue."""
    told: dict[str, Any] = {"NextProcId": materialized, "NextRow": total, "Completion": int(materialized >= total)}
    if reason:
        told["Notes"] = one_line(reason)
    return Event(36, cluster, -1, at, told)


def executing(
    job: JobId, at: float, host: str, slot: str, slot_ad: ClassAd, also: Iterable[str] = (), *, scratch: str = ""
) -> Event:
    """also: further attributes of the slot (UserLogExecuteEventAttrs). scratch: the job's directory on its machine;
    empty: not known."""
    told: dict[str, Any] = {"CondorScratchDir": one_line(scratch)} if scratch else {}
    for name in ("Cpus", "Disk", "GPUs", "Memory", *also):
        value = slot_ad.eval(name)
        if isinstance(value, bool | int | float | str):
            told[name] = value
    return event(
        1, job, at, {"ExecuteHost": f"<{host}>", "SlotName": slot, "ExecuteProps": dict(sorted(told.items())) or None}
    )


def parallel_executing(job: JobId, at: float) -> Event:
    """The programs of all nodes of a parallel job run."""
    return event(1, job, at, {"ExecuteHost": "MPI_job"})


def node_executing(job: JobId, at: float, node: int, host: str) -> Event:
    """The program of one node of a parallel job runs."""
    return event(14, job, at, {"ExecuteHost": f"<{host}>", "Node": node})


def node_terminated(
    job: JobId,
    at: float,
    node: int,
    *,
    exit_code: int | None,
    exit_signal: int | None,
    run: Usage,
    resources: Sequence[Resource],
) -> Event:
    """One node of a parallel job is over, by itself or because the job is."""
    return event(
        15,
        job,
        at,
        {
            "Node": node,
            **_exit(exit_code, exit_signal, ""),
            **_usage("Run", run),
            **_usage("Total", run),
            **_bytes(run),
            "TotalSentBytes": float(run.bytes_sent),
            "TotalReceivedBytes": float(run.bytes_received),
            **_resource_attributes(resources),
        },
    )


def terminated(
    job: JobId,
    at: float,
    *,
    exit_code: int | None,
    exit_signal: int | None,
    core: str,
    run: Usage,
    total: Usage,
    resources: Sequence[Resource],
    ran: bool = True,
) -> Event:
    """ran: it was its program that ended, and not only the job (noop_job)."""
    end = {
        "Who": "itself",
        "How": "OF_ITS_OWN_ACCORD",
        "HowCode": 0,
        "When": int(at),
        "ExitBySignal": exit_signal is not None,
        **({"ExitCode": exit_code or 0} if exit_signal is None else {"ExitSignal": exit_signal}),
    }
    return event(
        5,
        job,
        at,
        {
            **_exit(exit_code, exit_signal, core),
            **_usage("Run", run),
            **_usage("Total", total),
            **_bytes(run),
            "TotalSentBytes": float(total.bytes_sent),
            "TotalReceivedBytes": float(total.bytes_received),
            **_resource_attributes(resources),
            "ToE": end if ran else None,
        },
    )


def evicted(
    job: JobId,
    at: float,
    reason: str,
    run: Usage,
    resources: Sequence[Resource],
    *,
    requeued: bool = False,
    exit_code: int | None = None,
    exit_signal: int | None = None,
    core: str = "",
) -> Event:
    """A run ended and the job did not. requeued: by itself, and a policy wants it to run again."""
    how = _exit(exit_code, exit_signal, core) if requeued else {"TerminatedNormally": False}
    return event(
        4,
        job,
        at,
        {
            "Checkpointed": False,
            "TerminatedAndRequeued": requeued,
            **how,
            **_usage("Run", run),
            **_bytes(run),
            "Reason": one_line(reason) if reason else None,
            **_resource_attributes(resources),
        },
    )


def image_size(job: JobId, at: float, usage: Usage, proportional_kib: int | None = None) -> Event:
    """proportional_kib: None: its execution point does not say (USE_PSS)."""
    return event(
        6,
        job,
        at,
        {
            "Size": usage.image_size_kib,
            "MemoryUsage": usage.memory_mib,
            "ResidentSetSize": usage.resident_set_kib,
            "ProportionalSetSize": proportional_kib,
        },
    )


def shadow_exception(job: JobId, at: float, reason: str, run: Usage) -> Event:
    return event(7, job, at, {"Message": one_line(reason), **_bytes(run)})


def generic(job: JobId, at: float, text: str) -> Event:
    """text: one line, of the job's own words."""
    return event(8, job, at, {"Info": one_line(text)})


def remote_error(job: JobId, at: float, slot: str, text: str, code: int, subcode: int) -> Event:
    """An execution point says why it can not do its part of a job. code, subcode: of the hold that follows."""
    told = {"Daemon": "starter", "ExecuteHost": slot, "ErrorMsg": one_line(text)}
    return event(21, job, at, {**told, "HoldReasonCode": code, "HoldReasonSubCode": subcode})


def aborted(job: JobId, at: float, reason: str) -> Event:
    return event(9, job, at, {"Reason": one_line(reason)})


def suspended(job: JobId, at: float, processes: int) -> Event:
    return event(10, job, at, {"NumberOfPIDs": max(processes, 0)})


def unsuspended(job: JobId, at: float) -> Event:
    return event(11, job, at)


def held(job: JobId, at: float, reason: str, code: int, subcode: int) -> Event:
    told = {"HoldReason": one_line(reason), "HoldReasonCode": code, "HoldReasonSubCode": subcode}
    return event(12, job, at, told)


def dataflow_skipped(job: JobId, at: float) -> Event:
    return event(46, job, at)


def released(job: JobId, at: float, reason: str) -> Event:
    return event(13, job, at, {"Reason": one_line(reason)})


def disconnected(job: JobId, at: float, reason: str, slot: str, host: str) -> Event:
    told = {"DisconnectReason": one_line(reason), "StartdName": slot, "StartdAddr": f"<{host}>"}
    return event(22, job, at, {**told, "EventDescription": "Job disconnected, attempting to reconnect"})


def reconnected(job: JobId, at: float, slot: str, host: str) -> Event:
    told = {"StartdName": slot, "StartdAddr": f"<{host}>", "StarterAddr": f"<{host}>"}
    return event(23, job, at, {**told, "EventDescription": "Job reconnected"})


def reconnect_failed(job: JobId, at: float, reason: str, slot: str) -> Event:
    told = {"Reason": one_line(reason), "StartdName": slot}
    return event(24, job, at, {**told, "EventDescription": "Job reconnect impossible: rescheduling job"})


def job_ad_information(cause: Event, attributes: Mapping[str, Any]) -> Event:
    """What a job wants told with each of its events (JobAdInformationAttrs). attributes: their values in its ad, which
    come besides what the event itself told."""
    told: dict[str, Any] = {"TriggerEventTypeNumber": cause.number}
    told |= {"TriggerEventTypeName": f"ULOG_{JobEventType(cause.number).name}", "MyType": cause.kind}
    told |= {name: value for name, value in cause.attributes.items() if not _left_out(cause.number, name)}
    return Event(28, cause.cluster, cause.proc, cause.at, {**told, **attributes}, cause.subproc)


def _left_out(number: int, name: str) -> bool:
    """Whether HTCondor leaves an attribute of such an event out of 028: of an eviction its table of resources, of a
    cluster's submit its notes."""
    if number == JobEventType.CLUSTER_SUBMIT:
        return name in ("LogNotes", "UserNotes")
    if number != JobEventType.JOB_EVICTED:
        return False
    run = ("RunRemoteUsage", "RunLocalUsage")
    return name.startswith("Request") or (name.endswith("Usage") and name not in run) or name in _ALLOCATED


_ALLOCATED: Final = ("Cpus", "Disk", "GPUs", "Memory")


def attribute_changed(job: JobId, at: float, name: str, before: str | None, after: str) -> Event:
    """Somebody has edited the job's ad. before: None: it had no such attribute. Both as ClassAd text."""
    told = {"Attribute": name, "Value": one_line(after)}
    return event(33, job, at, told if before is None else {**told, "PriorValue": one_line(before)})


@dataclass(frozen=True, slots=True)
class LogHead:
    """What stands at the beginning of a log of all jobs, by which readers follow it through its rotations. sequence: of
    the file, from 1 on. offset, event_offset: bytes and events in the files before it."""

    sequence: int = 0
    offset: int = 0
    event_offset: int = 0


_HEAD: Final = re.compile(r"Global JobLog:.* sequence=(\d+) .* offset=(\d+) event_off=(\d+)")
#: A head is padded to so many characters, as HTCondor's are, which writes into it again.
_HEAD_LENGTH: Final = 256


def log_head(at: float, head: LogHead, *, ident: str, rotations: int, creator: str) -> Event:
    """ident: unique among all logs."""
    text = (
        f"Global JobLog: ctime={int(at)} id={ident} sequence={head.sequence} size=0 events=0 offset={head.offset}"
        f" event_off={head.event_offset} max_rotation={rotations} creator_name=<{creator}>"
    )
    return Event(8, -1, -1, at, {"Info": text.ljust(_HEAD_LENGTH)}, -1)


def read_log_head(event: Event) -> LogHead | None:
    """None: it is no head of a log."""
    found = _HEAD.match(str(event.attributes.get("Info", ""))) if event.number == 8 else None
    return None if found is None else LogHead(*map(int, found.groups()))


#: FileTransferEvent's Type, by direction and stage.
_TRANSFER: Final = {
    ("input", "started"): 2,
    ("input", "finished"): 3,
    ("output", "started"): 5,
    ("output", "finished"): 6,
}


def transferring(job: JobId, at: float, direction: str, stage: str, host: str = "") -> Event:
    to = f"<{host}>" if host and stage == "started" and direction == "input" else None
    return event(40, job, at, {"Type": _TRANSFER[direction, stage], "Host": to})


@dataclass(frozen=True, slots=True)
class Resource:
    """A row of the resource table; None where nothing is known."""

    name: str  # its attribute: "Cpus", "Disk", "Memory", "GPUs"
    usage: float | None
    request: float | None
    allocated: float | None


def resources(job: ClassAd, slot: ClassAd, usage: Usage, ran_s: float, had_s: float | None = None) -> list[Resource]:
    """What the job used, asked for and got. ran_s: of its program. had_s: it had its slot; None: not known."""
    cores = round((usage.user_cpu_s + usage.sys_cpu_s) / ran_s, 2) if ran_s > 0 else None
    rows = [
        Resource("Cpus", cores, _number(job, "RequestCpus"), _number(slot, "Cpus")),
        Resource("Disk", usage.disk_kib, _number(job, "RequestDisk"), _number(slot, "Disk")),
        Resource("Memory", usage.memory_mib, _number(job, "RequestMemory"), _number(slot, "Memory")),
    ]
    gpus = Resource("GPUs", None, _number(job, "RequestGPUs"), _number(slot, "GPUs"))
    if gpus.request is not None or gpus.allocated is not None:
        rows.insert(2, gpus)
    if had_s is not None:
        rows += [Resource("TimeExecute", int(ran_s), None, None)] * (ran_s > 0)
        rows.append(Resource("TimeSlotBusy", int(had_s), None, None))
    return rows


def _number(ad: ClassAd, name: str) -> float | None:
    value = ad.eval(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _exit(exit_code: int | None, exit_signal: int | None, core: str) -> dict[str, Any]:
    if exit_signal is None:
        return {"TerminatedNormally": True, "ReturnValue": exit_code or 0}
    return {
        "TerminatedNormally": False,
        "TerminatedBySignal": exit_signal,
        "CoreFile": one_line(core) if core else None,
    }


def _usage(what: str, usage: Usage) -> dict[str, str]:
    return {f"{what}RemoteUsage": _cpu(usage.user_cpu_s, usage.sys_cpu_s), f"{what}LocalUsage": _cpu(0.0, 0.0)}


def _cpu(user_s: float, system_s: float) -> str:
    return f"Usr {_clock(user_s)}, Sys {_clock(system_s)}"


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 86400} {whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _bytes(usage: Usage) -> dict[str, float]:
    return {"SentBytes": float(usage.bytes_sent), "ReceivedBytes": float(usage.bytes_received)}


def _resource_attributes(rows: Sequence[Resource]) -> dict[str, float | None]:
    told: dict[str, float | None] = {}
    for row in rows:
        told |= {f"{row.name}Usage": row.usage, f"Request{row.name}": row.request, row.name: row.allocated}
    return told
