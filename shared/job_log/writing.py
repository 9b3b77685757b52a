"""An event as text, as HTCondor writes it into logs; or as XML or JSON. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from shared.classad import ClassAd, to_json, to_xml, unparse
from shared.classad.expr import Literal
from shared.job_log.event import Event, Form

TEXT: Final = Form()
#: FileTransferEvent's Type -> the first line.
TRANSFERS: Final[Mapping[int, str]] = {
    1: "Entered queue to transfer input files",
    2: "Started transferring input files",
    3: "Finished transferring input files",
    4: "Entered queue to transfer output files",
    5: "Started transferring output files",
    6: "Finished transferring output files",
}
#: The columns of the table of resources: title, and what comes before and after the name of the attribute.
COLUMNS: Final = (("   Usage", "", "Usage"), (" Request", "Request", ""), ("Allocated", "", ""))
#: A row's unit, where it has one.
UNITS: Final[Mapping[str, str]] = {
    "Disk": "Disk (KB)",
    "Memory": "Memory (MB)",
    "TimeExecute": "TimeExecute (s)",
    "TimeSlotBusy": "TimeSlotBusy (s)",
}


def written(event: Event, form: Form = TEXT) -> bytes:
    """The event as it stands in a log."""
    if form.kind == "text":
        title, *lines = _lines(event)
        body = "".join(f"{line}\n" for line in lines)
        job = f"{event.number:03d} ({event.cluster:03d}.{event.proc:03d}.{event.subproc:03d})"
        text = f"{job} {_time(event.at, form)} {title}\n{body}...\n"
    else:
        ad = as_ad(event, form)
        text = to_xml(ad) if form.kind == "xml" else to_json(ad) + "\n"
    return text.encode("utf-8", "surrogateescape")


def as_ad(event: Event, form: Form = TEXT) -> ClassAd:
    """The event as HTCondor's event ads are."""
    told: dict[str, Any] = {
        "MyType": event.kind,
        "EventTypeNumber": event.number,
        "EventTime": _time(event.at, Form(utc=form.utc, sub_second=form.sub_second), "T"),
        "Cluster": event.cluster,
    }
    told |= {name: value for name, value in (("Proc", event.proc), ("Subproc", event.subproc)) if value >= 0}
    ad = ClassAd(told)
    for name, value in event.attributes.items():
        ad[name] = ClassAd(dict(value)) if isinstance(value, Mapping) else value
    return ad


def _time(at: float, form: Form, between: str = " ") -> str:
    """Local, unless the form says UTC."""
    whole = int(at // 1)
    moment = time.gmtime(whole) if form.utc else time.localtime(whole)
    stamp = time.strftime(f"%Y-%m-%d{between}%H:%M:%S" if form.iso else "%m/%d %H:%M:%S", moment)
    if form.sub_second:
        stamp += f".{int((at - whole) * 1000 + 1e-3):03d}"  # a read .123 is .12299
    return f"{stamp}Z" if form.utc else stamp


def _lines(event: Event) -> list[str]:
    """The first line, less the number, job and time; and those below it."""
    told = event.attributes
    match event.number:
        case 0 | 35:
            what = "Job" if event.number == 0 else "Cluster"
            notes = [f"    {told[name]}" for name in ("Warnings", "LogNotes", "UserNotes") if name in told]
            return [f"{what} submitted from host: {told['SubmitHost']}", *notes]
        case 1:
            slot = [f"\tSlotName: {told['SlotName']}"] if "SlotName" in told else []
            props = [f"\t{name} = {_printed(value)}" for name, value in told.get("ExecuteProps", {}).items()]
            return [f"Job executing on host: {told['ExecuteHost']}", *slot, *props]
        case 4:
            return _evicted(told)
        case 5:
            return ["Job terminated.", *_exit(told), *_used(told), *_table(told), *_own_accord(told)]
        case 6:
            rows = (("MemoryUsage", "MB"), ("ResidentSetSize", "KB"), ("ProportionalSetSize", "KB"))
            sizes = [f"\t{told[name]}  -  {name} of job ({unit})" for name, unit in rows if name in told]
            return [f"Image size of job updated: {told['Size']}", *sizes]
        case 7:
            return ["Shadow exception!", f"\t{told['Message']}", *_bytes(told, "Run", "")]
        case 8:
            return [told["Info"]]
        case 9:
            return ["Job was aborted.", f"\t{told['Reason']}"]
        case 10:
            return ["Job was suspended.", f"\tNumber of processes actually suspended: {told['NumberOfPIDs']}"]
        case 11:
            return ["Job was unsuspended."]
        case 12:
            codes = f"\tCode {told['HoldReasonCode']} Subcode {told['HoldReasonSubCode']}"
            return ["Job was held.", f"\t{told['HoldReason']}", codes]
        case 13:
            return ["Job was released.", f"\t{told['Reason']}"]
        case 14:
            return [f"Node {told['Node']} executing on host: {told['ExecuteHost']}"]
        case 15:
            return [f"Node {told['Node']} terminated.", *_exit(told), *_used(told), *_table(told)]
        case 16:
            return ["POST Script terminated.", *_exit(told)[:1], f"    DAG Node: {told['DAGNodeName']}"]
        case 21:
            codes = f"\tCode {told['HoldReasonCode']} Subcode {told['HoldReasonSubCode']}"
            return [f"Error from {told['Daemon']} on {told['ExecuteHost']}:", f"\t{told['ErrorMsg']}", codes]
        case 22:
            tried = f"    Trying to reconnect to {told['StartdName']} {told['StartdAddr']}"
            return ["Job disconnected, attempting to reconnect", f"    {told['DisconnectReason']}", tried]
        case 23:
            addresses = [f"    startd address: {told['StartdAddr']}", f"    starter address: {told['StarterAddr']}"]
            return [f"Job reconnected to {told['StartdName']}", *addresses]
        case 24:
            failed = f"    Can not reconnect to {told['StartdName']}, rescheduling job"
            return ["Job reconnection failed", f"    {told['Reason']}", failed]
        case 28:
            whole = as_ad(event, Form(sub_second=True))
            lines = [f"{name} = {unparse(whole[name], 'old')}" for name in sorted(whole)]
            return ["Job ad information event triggered.", *lines]
        case 33:
            name, value = told["Attribute"], told["Value"]
            if "PriorValue" in told:
                return [f"Changing job attribute {name} from {told['PriorValue']} to {value}"]
            return [f"Setting job attribute {name} to {value}"]
        case 36:
            how = "Complete" if told["Completion"] else "Incomplete"
            notes = [f"\t{told['Notes']}"] if "Notes" in told else []
            items = f"\tMaterialized {told['NextProcId']} jobs from {told['NextRow']} items.\t{how}"
            return ["Cluster removed", items, *notes]
        case 40:
            host = [f"\tTransferring to host: {told['Host']}"] if "Host" in told else []
            return [TRANSFERS[told["Type"]], *host]
        case 46:
            return ["Dataflow job was skipped."]
    raise ValueError(f"no daemon writes events of the kind {event.number}")


def _evicted(told: Mapping[str, Any]) -> list[str]:
    requeued = told["TerminatedAndRequeued"]
    reason = [f"\t{told['Reason']}"] if "Reason" in told else []
    return [
        "Job was evicted.",
        "\t(0) Job terminated and was requeued" if requeued else "\t(0) CPU times",
        *_usage(told, "Run"),
        *_bytes(told, "Run", ""),
        *(_exit(told) if requeued else ()),
        *reason,
        *_table(told),
    ]


def _exit(told: Mapping[str, Any]) -> list[str]:
    if told["TerminatedNormally"]:
        return [f"\t(1) Normal termination (return value {told['ReturnValue']})"]
    core = f"\t(1) Corefile in: {told['CoreFile']}" if "CoreFile" in told else "\t(0) No core file"
    return [f"\t(0) Abnormal termination (signal {told['TerminatedBySignal']})", core]


def _used(told: Mapping[str, Any]) -> list[str]:
    return [*_usage(told, "Run"), *_usage(told, "Total"), *_bytes(told, "Run", ""), *_bytes(told, "Total", "Total")]


def _usage(told: Mapping[str, Any], what: str) -> list[str]:
    return [f"\t\t{told[f'{what}{where}Usage']}  -  {what} {where} Usage" for where in ("Remote", "Local")]


def _bytes(told: Mapping[str, Any], what: str, prefix: str) -> list[str]:
    sent, received = told[f"{prefix}SentBytes"], told[f"{prefix}ReceivedBytes"]
    return [f"\t{sent:.0f}  -  {what} Bytes Sent By Job", f"\t{received:.0f}  -  {what} Bytes Received By Job"]


#: Rows that may be there though nothing of them was asked for.
_USED: Final = ("CpusUsage", "DiskUsage", "MemoryUsage", "TimeExecuteUsage", "TimeSlotBusyUsage")


def _table(told: Mapping[str, Any]) -> list[str]:
    """The table of resources: columns right-aligned under their titles."""
    names = [name.removeprefix("Request") for name in told if name.startswith("Request")]
    names += [name.removesuffix("Usage") for name in _USED if name in told]
    names += ["GPUs"] * ("GPUs" in told)
    rows = [
        (UNITS.get(name, name), [_cell(told.get(f"{before}{name}{after}")) for _, before, after in COLUMNS])
        for name in sorted(set(names))
    ]
    if not rows:
        return []
    width = [max(len(title), *(len(cells[i]) for _, cells in rows)) for i, (title, *_) in enumerate(COLUMNS)]
    head = " ".join(title.rjust(width[i]) for i, (title, *_) in enumerate(COLUMNS))
    return [
        f"\tPartitionable Resources : {head} ",
        *(
            f"\t   {name:<20} : {' '.join(cell.rjust(width[i]) for i, cell in enumerate(cells))} "
            for name, cells in rows
        ),
    ]


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else f"{value:.2f}"


def _own_accord(told: Mapping[str, Any]) -> list[str]:
    end = told.get("ToE")
    if end is None:
        return []
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end["When"]))
    how = f"with signal {end['ExitSignal']}" if end["ExitBySignal"] else f"with exit-code {end['ExitCode']}"
    return ["", f"\tJob terminated of its own accord at {stamp} {how}."]


def _printed(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else unparse(Literal(value))
