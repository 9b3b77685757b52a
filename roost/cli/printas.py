"""The formatters that PRINTAS names in a print-format file; the built-in tables use them too.

Names, and what they read, are HTCondor's. `render` gives None where there is nothing to show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from engine.queue.outcome import ATTRIBUTES as OUTCOME_FIELDS
from roost.cli import printf, transfer_state
from roost.cli.print_mask import As, integer, real, string, truth
from shared.classad import UNDEFINED, ClassAd, unparse
from shared.classad.expr import Expr, ListExpr, Literal

STATES: Final = {
    "owner": "O", "unclaimed": "U", "matched": "M", "claimed": "C", "preempting": "P", "shutdown": "S",
    "delete": "X", "backfill": "F", "drained": "D",
}  # fmt: skip
ACTIVITIES: Final = {
    "idle": "i", "busy": "b", "retiring": "r", "vacating": "v", "suspended": "s", "benchmarking": "e", "killing": "k",
}  # fmt: skip
_STATUS: Final = "IRXCH>SFB"
_RAW_STATUS: Final = ("Idle   ", "Running", "Removed", "Complet", "Held   ", "XFerOut", "Suspend", "Failed ", "Blocked")
_GRID_STATUS: Final = (
    "IDLE", "RUNNING", "REMOVED", "COMPLETED", "HELD", "XFER_OUT", "SUSPENDED", "FAILED", "BLOCKED",
)  # fmt: skip
_UNIVERSES: Final = {
    1: "Standard", 2: "Pipe", 3: "Linda", 4: "PVM", 5: "Vanilla", 6: "PVMd", 7: "Scheduler", 8: "MPI", 9: "Grid",
    10: "Java", 11: "Parallel", 12: "Local", 13: "VM",
}  # fmt: skip
_FACTORY: Final = {-1: "Errs", 0: "Norm", 1: "Held", 2: "Done", 3: "Gone"}
_AT_WORK: Final = (2, 6, 7)  # running, transferring output, suspended


# --- machines and daemons


def platform(ad: ClassAd) -> str | None:
    """Architecture/system in short: x64/Debian12. Of an unknown architecture: LINUX/Debian12."""
    system = string(ad, "OpSys")
    name = string(ad, "OpSysShortName" if system == "WINDOWS" else "OpSysAndVer")
    if name is None:
        return None
    arch = string(ad, "Arch")
    if arch is None:
        arch = system or ""
    return f"{ {'X86_64': 'x64', 'X86': 'x86'}.get(arch, arch) }/{name}"


def code_of(state: str | None, activity: str | None) -> str:
    """Two letters: Ui is Unclaimed and Idle; blanks for what is unknown."""
    return STATES.get((state or "").lower(), " ") + ACTIVITIES.get((activity or "").lower(), " ")


def _activity_code(value: str, ad: ClassAd) -> str | None:
    if value.lower() in ACTIVITIES:
        return code_of(string(ad, "State"), value)
    if value.lower() in STATES:
        return code_of(value, string(ad, "Activity"))
    return None


def _activity_time(since: int, ad: ClassAd) -> int | None:
    return _activity_span(since, integer(ad, "MyCurrentTime"), integer(ad, "LastHeardFrom"))


def _activity_span(since: int, now: int | None, heard: int | None) -> int | None:
    now = heard if now is None else now
    return None if now is None else max(0, now - since)


def _elapsed(since: int, ad: ClassAd) -> int | None:
    return _elapsed_span(since, integer(ad, "LastHeardFrom"))


def _elapsed_span(since: int, heard: int | None) -> int | None:
    return None if heard is None else heard - since


def _due(lifetime: int, ad: ClassAd) -> int | None:
    heard = integer(ad, "LastHeardFrom")
    return None if heard is None else heard + lifetime


def _version(text: str, long: bool) -> str:
    """The number of $CondorVersion, with what tells the build."""
    words = text.split(" ")
    words = [words[0], *(word for word in words[1:] if word)]
    number = words[1][:21] if len(words) > 1 else ""
    rest = words[3:] if len(words) > 2 and re.match(r"....-..-", words[2]) else words[5:]
    if rest and rest[0].startswith("B"):
        rest = rest[1:]
    if rest and not rest[0].startswith("$") and long:
        return f"{number}.{re.split('[- ]', rest[0])[0]}"[:21]
    return number


def _condor_version(text: str, _: ClassAd) -> str | None:
    return _version(text, long=True) if text else None


def _condor_platform(text: str, _: ClassAd) -> str | None:
    if not text:
        return None
    found = re.search(r" +([^ .$]*)", text)
    shown = found[1] if found else text
    shown = ("x" + shown[1:] if shown.startswith("X") else shown).replace("-", "_")
    return re.sub(r"WINDOWS_.*", "WINDOWS", shown)


def _members(value: Any, _: ClassAd) -> int | None:
    if isinstance(value, str):
        return len(words_of(value))
    return len(value) if isinstance(value, list) else None


def words_of(text: str) -> list[str]:
    """The items of a list in a string, parted by commas and blanks."""
    return [word for word in re.split(r"[, \t\r\n]+", text) if word]


def _items(value: Any) -> Iterable[Any]:
    """The items of a list value: constants as such, the text of anything else."""
    source = getattr(value, "source", None)
    if source is None:
        source = value.items if isinstance(value, ListExpr) else value
    for item in source:
        constant = item.value if isinstance(item, Literal) else item
        yield unparse(constant, syntax="old") if isinstance(constant, Expr) else constant


def _strings(value: Any, _: ClassAd) -> str | None:
    if not isinstance(value, list):
        return None
    return ", ".join(item for item in _items(value) if isinstance(item, str))


def _unique(value: Any, _: ClassAd) -> str | None:
    if not isinstance(value, list):
        return None
    return ", ".join(sorted({item if isinstance(item, str) else unparse(item, syntax="old") for item in _items(value)}))


def _readable(factor: float) -> Callable[[Any, int], str]:
    def show(value: Any, _: int) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return " " * 8
        return printf.bytes_shown(value * factor)

    return show


# --- jobs


def _batch_name(_: str, ad: ClassAd) -> str | None:
    name = string(ad, "JobBatchName")
    if name is not None:
        return name
    if integer(ad, "JobUniverse") == 7:
        return f"DAG: {integer(ad, 'ClusterId') or 0}"
    node = string(ad, "DAGNodeName") if "DAGManJobId" in ad else None
    return None if node is None else f"NODE: {node}"


def _cpu_utilisation(_: float, ad: ClassAd) -> float | None:
    used, committed = real(ad, "RemoteUserCpu"), integer(ad, "CommittedTime") or 0
    if used is None or not committed:
        return None
    share = used / committed * 100.0
    return None if share < 0.0 else min(share, 100.0)


def owner(_: str, ad: ClassAd) -> str | None:
    return string(ad, "Owner")


def dag_owner(_: str, ad: ClassAd) -> str | None:
    node = string(ad, "DAGNodeName") if "DAGManJobId" in ad else None
    return string(ad, "Owner") if node is None else node


def _grid_job_id(_: str, ad: ClassAd) -> str | None:
    text = string(ad, "GridJobId")
    if text is None:
        return None
    resource = string(ad, "GridResource")
    kind = "globus" if resource is None else resource[:63].split(" ")[0]
    last = text.rpartition(" ")[2] if " " in text else text
    host = last.partition("://")[2] if "://" in last else last
    path = host.partition("/")[2] if "/" in host else None
    if kind not in ("gt2", "gt5"):
        return host if path is None else host[host.index("/") :]
    first, _slash, second = (host if path is None else path).partition("/")
    return f"{first}.{second.partition('/')[0]}" if second else first


def _grid_resource(_: str, ad: ClassAd) -> str | None:
    text = string(ad, "GridResource")
    if text is None:
        return None
    kind, blank, rest = text.partition(" ")
    if not blank:
        kind, rest = "globus", text
    host, blank, manager = rest.partition(" ")
    if not blank:
        host, found, manager = rest.partition("jobmanager-")
        manager = manager if found else "[?]"
    host = re.split("[:/]", host.partition("://")[2] if "://" in host else host)[0]
    if kind == "ec2":
        return f"{kind} {string(ad, 'EC2RemoteVirtualMachineName') or host}"
    return f"{kind}->{manager.replace(' ', '/')} {host}"


def _grid_status(_: str, ad: ClassAd) -> str | None:
    text = string(ad, "GridJobStatus")
    if text is not None:
        return text
    status = integer(ad, "GridJobStatus")
    if status is None:
        return None
    return _GRID_STATUS[status - 1] if 1 <= status <= len(_GRID_STATUS) else str(status)


def _past_run_time(_: str, ad: ClassAd) -> str | None:
    seconds = real(ad, "RemoteWallClockTime")
    seconds = real(ad, "RemoteUserCpu") if seconds is None else seconds
    whole = printf.whole(seconds or 0.0)
    return printf.span(whole) if whole else None


def _exit(_: object, ad: ClassAd) -> str | None:
    if integer(ad, "JobStatus") != 4:
        return None
    if ad.eval("ExitBySignal") is True:
        return f"sig {integer(ad, 'ExitSignal') or '?'}"
    code = integer(ad, "ExitCode")
    return None if code is None else str(code)


def _command(_: str, ad: ClassAd) -> str | None:
    """The program with its path, and its arguments."""
    program = string(ad, "Cmd")
    if program is None:
        return None
    arguments = string(ad, "Args")
    arguments = string(ad, "Arguments") if arguments is None else arguments
    return program if arguments is None else f"{program} {arguments}"


def _description(_: str, ad: ClassAd) -> str | None:
    """What the job calls itself, else the program's name and its arguments."""
    program = string(ad, "Cmd")
    if program is None:
        return None
    description = string(ad, "MATCH_EXP_JobDescription") or string(ad, "JobDescription")
    if description:
        return f"({description})"
    arguments = string(ad, "Arguments")
    arguments = string(ad, "Args") if arguments is None else arguments
    name = program.rpartition("/")[2]
    return f"{name} {arguments}" if arguments else name


def _factory_mode(value: Any, _: int) -> str:
    if value is UNDEFINED:
        return ""
    return _FACTORY.get(printf.whole(value), "Unk") if isinstance(value, int | float) else "????"


def _job_id(_: str, ad: ClassAd) -> str | None:
    cluster = integer(ad, "ClusterId")
    return None if cluster is None else f"{cluster}.{integer(ad, 'ProcId') or 0}"


def status_code(_: str, ad: ClassAd) -> str | None:
    """A job's state in two letters, with what it transfers."""
    status = integer(ad, "JobStatus")
    if status is None:
        return None
    shown = (_STATUS[status - 1] if 1 <= status <= len(_STATUS) else " ") + " "
    queued = truth(ad, "TransferQueued")
    if truth(ad, "TransferringInput"):
        shown = "<q" if queued else "< "
    if truth(ad, "TransferringOutput") or status == 6:
        shown = "q>" if queued else " >"
    return shown


def _status_letter(status: int, _: int) -> str:
    return {1: "I", 2: "R", 3: "X", 4: "C", 6: ">", 8: "F", 9: "B"}.get(status, " ")


def _status_word(status: int, _: int) -> str:
    return _RAW_STATUS[status - 1] if 1 <= status <= len(_RAW_STATUS) else "Unk    "


def memory_usage(_: float, ad: ClassAd) -> float | None:
    """MiB that a job uses, or its image's size."""
    used = integer(ad, "MemoryUsage")
    if used is not None:
        return float(used)
    size = integer(ad, "ImageSize")
    return None if size is None else size / 1024.0


def _remote_host(_: str, ad: ClassAd) -> str | None:
    if integer(ad, "JobUniverse") == 9:
        name = string(ad, "EC2RemoteVirtualMachineName")
        return string(ad, "GridResource") if name is None else name
    return string(ad, "RemoteHost")


def _wall_clock(ad: ClassAd) -> float:
    begun, kept = integer(ad, "ShadowBday") or 0, integer(ad, "LastCkptTime") or 0
    seconds = real(ad, "RemoteWallClockTime") or 0.0
    return seconds + (kept - begun if integer(ad, "JobStatus") in _AT_WORK and begun and kept > begun else 0)


def _goodput(_: float, ad: ClassAd) -> float | None:
    if integer(ad, "JobStatus") is None:
        return None
    seconds = _wall_clock(ad)
    if seconds <= 0.0:
        return None
    share = (integer(ad, "CommittedTime") or 0) / seconds * 100.0
    return None if share < 0.0 else min(share, 100.0)


def _megabits(_: float, ad: ClassAd) -> float | None:
    sent = real(ad, "BytesSent")
    if sent is None:
        return None
    megabits = (sent + (real(ad, "BytesRecvd") or 0.0)) * 8 / (1 << 20)
    seconds = _wall_clock(ad)
    return None if megabits <= 0 else megabits / seconds if seconds else float("inf")


def cpu_time(cumulative: bool = False, cpu: bool = False) -> As:
    """RUN_TIME of this run, of all runs (`cumulative`), or processor time (`cpu`)."""

    def render(used: float, ad: ClassAd) -> float | None:
        user = real(ad, "RemoteUserCpu")
        if user is None:
            return None
        if cpu:
            return user
        now = integer(ad, "ServerTime") or 0
        if not now:
            return -1.0
        status, begun = integer(ad, "JobStatus"), integer(ad, "ShadowBday") or 0
        seconds = (real(ad, "RemoteWallClockTime") or 0.0) if cumulative else 0.0
        if status in _AT_WORK and begun:
            return seconds + now - begun
        if status in (1, 5, 9) and not cumulative:
            last = real(ad, "LastRemoteWallClockTime")
            return seconds if last is None else last
        return seconds

    needs = ("JobStatus", "ServerTime", "ShadowBday", "RemoteWallClockTime", "LastRemoteWallClockTime")
    return As("float", render=render, form="%T", needs=("RemoteUserCpu", *needs))


def _universe(number: int, _: int) -> str:
    return _UNIVERSES.get(number, "Unknown")


_DATE: Final = As("int", show=lambda value, _: printf.moment(value))
_SPAN: Final = As("int", show=lambda value, _: printf.span(value))

#: Word -> what it does.
TABLE: Final[dict[str, As]] = {
    "ACTIVITY_CODE": As("str", render=_activity_code, needs=("State", "Activity")),
    "ACTIVITY_TIME": As(
        "int", render=_activity_time, form="%T", needs=("MyCurrentTime", "LastHeardFrom"), whole=_activity_span
    ),
    "BATCH_NAME": As(
        "str",
        render=_batch_name,
        needs=("JobBatchName", "JobUniverse", "ClusterId", "DAGManJobId", "DAGNodeName"),
    ),
    "BUFFER_IO_MISC": As("str", render=transfer_state.io_state, needs=transfer_state.NEEDS),
    "CONDOR_PLATFORM": As("str", render=_condor_platform),
    "CONDOR_VERSION": As("str", render=_condor_version),
    "CPU_UTIL": As("float", render=_cpu_utilisation, form="%.1f", needs=("RemoteUserCpu", "CommittedTime")),
    "DAG_OWNER": As("str", render=dag_owner, needs=("Owner", "DAGManJobId", "DAGNodeName")),
    "DATE": _DATE,
    "DUE_DATE": As("int", render=_due, form="%Y", needs=("LastHeardFrom",)),
    "ELAPSED_TIME": As("int", render=_elapsed, form="%T", needs=("LastHeardFrom",), whole=_elapsed_span),
    "GRID_JOB_ID": As("str", render=_grid_job_id, needs=("GridJobId", "GridResource")),
    "GRID_RESOURCE": As("str", render=_grid_resource, needs=("GridResource", "EC2RemoteVirtualMachineName")),
    "GRID_STATUS": As("str", render=_grid_status, needs=("GridJobStatus",)),
    "JOB_COMMAND": As("str", render=_command, needs=("Cmd", "Args", "Arguments")),
    "JOB_DESCRIPTION": As(
        "str", render=_description, needs=("Cmd", "Args", "Arguments", "JobDescription", "MATCH_EXP_JobDescription")
    ),
    "JOB_FACTORY_MODE": As("any", show=_factory_mode),
    "JOB_ID": As("str", render=_job_id, needs=("ClusterId", "ProcId")),
    "JOB_STATUS": As(
        "str",
        render=status_code,
        needs=("JobStatus", "TransferringInput", "TransferringOutput", "TransferQueued"),
    ),
    "JOB_STATUS_RAW": As("int", show=_status_word),
    "JOB_UNIVERSE": As("int", show=_universe),
    "LOAD_AVG": As("float", show=lambda value, _: f"{value:.3f}"),
    "MEMBER_COUNT": As("any", render=_members, form="%d"),
    "MEMORY_USAGE": As("float", render=memory_usage, form="%.1f", needs=("MemoryUsage", "ImageSize")),
    "OWNER": As("str", render=owner, needs=("Owner",)),
    "PLATFORM": As("str", render=lambda _, ad: platform(ad), needs=("Arch", "OpSys", "OpSysAndVer", "OpSysShortName")),
    "QDATE": As("int", show=lambda value, _: printf.moment(value), form="%Y"),
    "READABLE_BYTES": As("any", show=_readable(1.0)),
    "READABLE_KB": As("any", show=_readable(1024.0)),
    "READABLE_MB": As("any", show=_readable(1024.0 * 1024.0)),
    "REMOTE_HOST": As(
        "str", render=_remote_host, needs=("JobUniverse", "RemoteHost", "EC2RemoteVirtualMachineName", "GridResource")
    ),
    "RUNTIME": As("float", show=lambda value, _: printf.span(printf.whole(value))),
    "STDU_GOODPUT": As(
        "float",
        render=_goodput,
        form="%.1f",
        needs=("JobStatus", "CommittedTime", "RemoteWallClockTime", "ShadowBday", "LastCkptTime"),
    ),
    "STDU_MPBS": As(
        "float",
        render=_megabits,
        form="%.2f",
        needs=("BytesSent", "BytesRecvd", "JobStatus", "RemoteWallClockTime", "ShadowBday", "LastCkptTime"),
    ),
    "STRINGS_FROM_LIST": As("any", render=_strings),
    "TIME": _SPAN,
    "UNIQUE": As("any", render=_unique),
}
#: What `roost history` shows.
PAST_RUN_TIME: Final = As("str", render=_past_run_time, needs=("RemoteWallClockTime", "RemoteUserCpu"))
STATUS_LETTER: Final = As("int", show=_status_letter)
#: How a job ended: its exit code, or the signal.
EXIT: Final = As("any", render=_exit, needs=(*OUTCOME_FIELDS, "ExitCode"))
