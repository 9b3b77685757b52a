"""Events of a job's log (`log = file`, StarterUserLog), as HTCondor writes them: DAGMan, the bindings and people's
scripts read them. Making the text is pure; `append` puts it into the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from shared.classad import ClassAd, to_xml
from shared.messages.claims import Usage

MAX_TEXT: Final = 2000


class JobId(Protocol):
    """What a job goes by."""

    @property
    def cluster(self) -> int: ...

    @property
    def proc(self) -> int: ...


def event(number: int, job: JobId, at: float, title: str, *lines: str) -> bytes:
    """One event. Times are local, as in HTCondor's logs."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    body = "".join(f"{line}\n" for line in lines)
    text = f"{number:03d} ({job.cluster:03d}.{job.proc:03d}.000) {stamp} {title}\n{body}...\n"
    return text.encode("utf-8", "surrogateescape")


def one_line(text: str) -> str:
    """Text of any origin as part of a line: a line of its own could end the event."""
    return " ".join(text[:MAX_TEXT].split()) or "Reason unspecified"


def xml_event(kind: str, number: int, job: JobId, at: float, **attributes: object) -> bytes:
    """The same as XML (StarterUserLogUseXML). kind: HTCondor's name of the event, as ExecuteEvent."""
    ad = ClassAd(
        {
            "MyType": kind,
            "EventTypeNumber": number,
            "EventTime": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at)),
            "Cluster": job.cluster,
            "Proc": job.proc,
            "Subproc": 0,
        }
    )
    ad.update({name: value for name, value in attributes.items() if value is not None})
    return to_xml(ad).encode("utf-8", "surrogateescape")


def submitted(job: JobId, at: float, host: str, notes: str = "", user_notes: str = "") -> bytes:
    lines = [f"    {one_line(note)}" for note in (notes, user_notes) if note]
    return event(0, job, at, f"Job submitted from host: <{host}>", *lines)


@dataclass(frozen=True, slots=True)
class WholeCluster:
    """Stands for a cluster where an event is not about one of its jobs."""

    cluster: int
    proc: int = -1


def cluster_submitted(cluster: int, at: float, host: str) -> bytes:
    """Before any of its jobs: further ones may come for as long as `cluster_removed` was not told."""
    return event(35, WholeCluster(cluster), at, f"Cluster submitted from host: <{host}>")


def cluster_removed(cluster: int, at: float, materialized: int, total: int, reason: str = "") -> bytes:
    """The last job of such a cluster has left. materialized, of total: how many were ever in the queue."""
    how = "Complete" if materialized >= total else "Incomplete"
    lines = [f"\tMaterialized {materialized} jobs from {materialized} items.\t{how}"]
    if reason:
        lines.append(f"\t{one_line(reason)}")
    return event(36, WholeCluster(cluster), at, "Cluster removed", *lines)


def executing(job: JobId, at: float, host: str, slot: str, slot_ad: ClassAd) -> bytes:
    lines = [f"\tSlotName: {slot}"]
    for name in ("Cpus", "Memory", "Disk", "GPUs"):
        value = slot_ad.eval(name)
        if isinstance(value, int | float):
            lines.append(f"\t{name} = {value:g}" if isinstance(value, float) else f"\t{name} = {value}")
    return event(1, job, at, f"Job executing on host: <{host}>", *lines)


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
) -> bytes:
    if exit_signal is not None:
        how = [
            f"\t(0) Abnormal termination (signal {exit_signal})",
            f"\t(1) Corefile in: {one_line(core)}" if core else "\t(0) No core file",
        ]
        accord = f"with signal {exit_signal}"
    else:
        how = [f"\t(1) Normal termination (return value {exit_code or 0})"]
        accord = f"with exit-code {exit_code or 0}"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return event(
        5,
        job,
        at,
        "Job terminated.",
        *how,
        f"\t\t{_cpu(run)}  -  Run Remote Usage",
        f"\t\t{_cpu(Usage())}  -  Run Local Usage",
        f"\t\t{_cpu(total)}  -  Total Remote Usage",
        f"\t\t{_cpu(Usage())}  -  Total Local Usage",
        *_bytes(run, "Run"),
        *_bytes(total, "Total"),
        *table(resources),
        "",
        f"\tJob terminated of its own accord at {stamp} {accord}.",
    )


def evicted(job: JobId, at: float, reason: str, run: Usage, resources: Sequence[Resource]) -> bytes:
    return event(
        4,
        job,
        at,
        "Job was evicted.",
        "\t(0) CPU times",
        f"\t\t{_cpu(run)}  -  Run Remote Usage",
        f"\t\t{_cpu(Usage())}  -  Run Local Usage",
        *_bytes(run, "Run"),
        *([f"\t{one_line(reason)}"] if reason else []),
        *table(resources),
    )


def image_size(job: JobId, at: float, usage: Usage) -> bytes:
    return event(
        6,
        job,
        at,
        f"Image size of job updated: {usage.image_size_kib}",
        f"\t{usage.memory_mib}  -  MemoryUsage of job (MB)",
        f"\t{usage.resident_set_kib}  -  ResidentSetSize of job (KB)",
    )


def shadow_exception(job: JobId, at: float, reason: str, run: Usage) -> bytes:
    return event(7, job, at, "Shadow exception!", f"\t{one_line(reason)}", *_bytes(run, "Run"))


def aborted(job: JobId, at: float, reason: str) -> bytes:
    return event(9, job, at, "Job was aborted.", f"\t{one_line(reason)}")


def suspended(job: JobId, at: float, processes: int) -> bytes:
    return event(10, job, at, "Job was suspended.", f"\tNumber of processes actually suspended: {max(processes, 0)}")


def unsuspended(job: JobId, at: float) -> bytes:
    return event(11, job, at, "Job was unsuspended.")


def held(job: JobId, at: float, reason: str, code: int, subcode: int) -> bytes:
    return event(12, job, at, "Job was held.", f"\t{one_line(reason)}", f"\tCode {code} Subcode {subcode}")


def released(job: JobId, at: float, reason: str) -> bytes:
    return event(13, job, at, "Job was released.", f"\t{one_line(reason)}")


def disconnected(job: JobId, at: float, reason: str, slot: str, host: str) -> bytes:
    return event(
        22,
        job,
        at,
        "Job disconnected, attempting to reconnect",
        f"    {one_line(reason)}",
        f"    Trying to reconnect to {slot} <{host}>",
    )


def reconnected(job: JobId, at: float, slot: str, host: str) -> bytes:
    return event(
        23,
        job,
        at,
        f"Job reconnected to {slot}",
        f"    startd address: <{host}>",
        f"    starter address: <{host}>",
    )


def reconnect_failed(job: JobId, at: float, reason: str, slot: str) -> bytes:
    return event(
        24,
        job,
        at,
        "Job reconnection failed",
        f"    {one_line(reason)}",
        f"    Can not reconnect to {slot}, rescheduling job",
    )


#: The titles of file transfer events, by direction and stage.
_TRANSFER: Final = {
    ("input", "started"): "Started transferring input files",
    ("input", "finished"): "Finished transferring input files",
    ("output", "started"): "Started transferring output files",
    ("output", "finished"): "Finished transferring output files",
}


def transferring(job: JobId, at: float, direction: str, stage: str, host: str = "") -> bytes:
    lines = [f"\tTransferring to host: <{host}>"] if host and stage == "started" and direction == "input" else []
    return event(40, job, at, _TRANSFER[direction, stage], *lines)


@dataclass(frozen=True, slots=True)
class Resource:
    """A row of the resource table; None where nothing is known."""

    name: str  # as the log has it: "Cpus", "Disk (KB)", "Memory (MB)", "GPUs"
    usage: float | None
    request: float | None
    allocated: float | None


def resources(job: ClassAd, slot: ClassAd, usage: Usage, ran_s: float) -> list[Resource]:
    """What the job used, asked for and got."""
    cores = round((usage.user_cpu_s + usage.sys_cpu_s) / ran_s, 2) if ran_s > 0 else None
    rows = [
        Resource("Cpus", cores, _number(job, "RequestCpus"), _number(slot, "Cpus")),
        Resource("Disk (KB)", usage.disk_kib, _number(job, "RequestDisk"), _number(slot, "Disk")),
        Resource("Memory (MB)", usage.memory_mib, _number(job, "RequestMemory"), _number(slot, "Memory")),
    ]
    gpus = _number(job, "RequestGPUs")
    if gpus is not None:
        rows.insert(2, Resource("GPUs", None, gpus, _number(slot, "GPUs")))
    return rows


def table(rows: Sequence[Resource]) -> list[str]:
    """The table of resources: columns right-aligned under their titles."""
    if not rows:
        return []
    cells = [(row.name, _cell(row.usage), _cell(row.request), _cell(row.allocated)) for row in rows]
    width = [max(len(title), *(len(row[i + 1]) for row in cells)) for i, title in enumerate(_TITLES)]
    head = " ".join(title.rjust(width[i]) for i, title in enumerate(_TITLES))
    return [
        f"\tPartitionable Resources : {head}",
        *(
            f"\t   {name:<20} : {' '.join(cell.rjust(width[i]) for i, cell in enumerate(rest))}"
            for name, *rest in cells
        ),
    ]


_TITLES: Final = ("   Usage", " Request", "Allocated")


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else f"{value:.2f}"


def _number(ad: ClassAd, name: str) -> float | None:
    value = ad.eval(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _cpu(usage: Usage) -> str:
    return f"Usr {_clock(usage.user_cpu_s)}, Sys {_clock(usage.sys_cpu_s)}"


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 86400} {whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _bytes(usage: Usage, what: str) -> list[str]:
    return [
        f"\t{usage.bytes_sent}  -  {what} Bytes Sent By Job",
        f"\t{usage.bytes_received}  -  {what} Bytes Received By Job",
    ]


def append(events: Sequence[tuple[int, str, bytes]]) -> dict[str, str]:
    """Append the events, those of one log with one write. Returns what went wrong, by path."""
    by_path: dict[str, list[bytes]] = {}
    for _, path, text in events:
        by_path.setdefault(path, []).append(text)
    problems: dict[str, str] = {}
    for path, texts in by_path.items():
        try:
            # O_NONBLOCK: a named pipe without a reader must not stop everybody's logs.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o644)
            try:
                _write_all(descriptor, b"".join(texts))
            finally:
                os.close(descriptor)
        except OSError as error:
            problems[path] = error.strerror or str(error)
        except ValueError as error:  # a zero byte in the path
            problems[path] = str(error)
    return problems


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
