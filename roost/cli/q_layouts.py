"""The tables of `roost q`: columns and widths as HTCondor's condor_q has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from roost.cli import printf
from roost.cli.print_mask import As, Column, column, string
from roost.cli.printas import TABLE, cpu_time, dag_owner, owner
from shared.classad import ClassAd


@dataclass(slots=True)
class Layout:
    """A table. summary: whether totals stand below. ids: whether it begins with a job's number and owner."""

    columns: list[Column]
    summary: bool = True
    where: str = ""
    ids: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """What the options say about columns: -cputime, -cumulative-time, -dag; and whether lines are cut (-wide:N)."""

    cpu: bool = False
    cumulative: bool = False
    dag: bool = False
    cut: bool = False
    codes: bool = False  # of held jobs
    zero: str = "_"  # what stands for it in the view by batches


def layout(mode: str, look: Look) -> Layout:
    return _LAYOUTS[mode](look)


def words(look: Look) -> dict[str, As]:
    """What PRINTAS means to this command."""
    return {
        "CPU_TIME": cpu_time(cumulative=look.cumulative, cpu=look.cpu),
        "DAG_OWNER": As("str", render=dag_owner if look.dag else owner, needs=("Owner", "DAGManJobId", "DAGNodeName")),
    }


def widen(columns: list[Column], clusters: int, procs: int, longest: int, memory: float, most: int) -> None:
    """Make room for large numbers and long names. longest: of the names; most: what a name may have, 0: no more."""
    if clusters < 9999 and procs < 999 and longest <= 14:
        return
    first, second, name = columns[:3]
    digits = len(str(clusters))
    if 4 < digits <= 9:
        first.form, first.width = printf.parse(f"%{digits}d."), digits + 1
    digits = len(str(procs))
    if 3 < digits <= 9:
        second.form, second.width = printf.parse(f"%-{digits}d"), digits
    if longest > 14 and most:
        name.width = max(name.width, min(longest, most))
    for one in columns:
        if one.heading == "SIZE":
            one.width = max(one.width, len(f"{memory:.1f}"))


# --- columns


def _col(
    source: str, heading: str, form: str | None = "%v", width: int | None = None, *, by: As | None = None,
    alt: str = "", wide: bool = False, **more: Any,
) -> Column:  # fmt: skip
    if by is not None:
        form = by.form or None
    more = {"alt": alt, "alt_wide": wide, **more}
    if width is None:
        return column(source, heading, form, -len(heading), auto=True, cut=False, by=by, **more)
    if form == "%v" and width:
        form = f"%{width}.{abs(width)}v"
    return column(source, heading, form, width, cut=True, by=by, **more)


def _ids() -> list[Column]:
    return [
        _col("ClusterId", " ID", "%4d.", 5, unended=True),
        _col("ProcId", " ", "%-3d", 3, joined=True),
    ]


def _owner(alt: str = "?") -> Column:
    return _col("Owner", "OWNER", width=-14, by=TABLE["OWNER"], alt=alt, wide=True)


def _submitted(alt: str = "") -> Column:
    return _col("QDate", "  SUBMITTED", width=11, by=TABLE["QDATE"], alt=alt, wide=True)


def _time(look: Look, alt: str = "") -> Column:
    heading = "    CPU_TIME" if look.cpu else "    RUN_TIME"
    return _col("RemoteUserCpu", heading, width=12, by=words(look)["CPU_TIME"], alt=alt, wide=True)


def _state() -> Column:
    return _col("JobStatus", "ST", by=TABLE["JOB_STATUS"])


def _tail() -> list[Column]:
    return [
        _state(),
        _col("JobPrio", "PRI"),
        _col("ImageSize", "SIZE", width=4, by=TABLE["MEMORY_USAGE"]),
        _col("Cmd", "CMD", width=0, by=TABLE["JOB_DESCRIPTION"]),
    ]


def _normal(look: Look) -> Layout:
    return Layout([*_ids(), _owner(), _submitted(), _time(look), *_tail()])


def _dag(look: Look) -> Layout:
    name = _col("Owner", "OWNER/NODENAME", width=-17, by=words(look)["DAG_OWNER"])
    return Layout([*_ids(), name, _submitted(), _time(look), *_tail()])


def _run(look: Look) -> Layout:
    host = _col("Owner", "HOST(S)", width=0, by=TABLE["REMOTE_HOST"], alt="?", wide=True)
    return Layout([*_ids(), _owner(), _submitted("?"), _time(look, "?"), host], summary=False)


def _idle(_: Look) -> Layout:
    columns = [
        *_ids(),
        _owner(),
        _col("JobUniverse", "UNIVERSE ", by=TABLE["JOB_UNIVERSE"]),
        _col("RequestCpus", "CPUS", "%4d"),
        _col("RequestMemory", "MEMORY", "%6d"),
        _col("NumShadowStarts?:0", "STARTS", "%6d"),
        _col("LastRemoteHost", "LAST_HOST", width=0),
    ]
    return Layout(columns, summary=False)


def _goodput(look: Look) -> Layout:
    columns = [
        *_ids(),
        _owner(),
        _submitted("?"),
        _time(look, "?"),
        _col("JobStatus", "GOODPUT", width=8, by=TABLE["STDU_GOODPUT"], alt="?", wide=True),
        _col("RemoteUserCpu", "CPU_UTIL", width=9, by=TABLE["CPU_UTIL"], alt="?", wide=True),
        _col("BytesSent", "Mb/s", width=7, by=TABLE["STDU_MPBS"], alt="?", wide=True),
    ]
    return Layout(columns, summary=False)


def _grid(look: Look) -> Layout:
    resource = TABLE["GRID_RESOURCE"]
    if look.cut:

        def short(value: Any, ad: ClassAd) -> Any:
            assert resource.render is not None
            shown = resource.render(value, ad)
            return shown if shown is None else shown[:36]

        resource = As("str", render=short, needs=resource.needs)
    columns = [
        *_ids(),
        _owner(""),
        _col("GridJobStatus", "STATUS", width=-10, by=TABLE["GRID_STATUS"]),
        _col("GridResource", "GRID->MANAGER    HOST", width=-27, by=resource),
        _col("GridJobId", "GRID_JOB_ID", width=0, by=TABLE["GRID_JOB_ID"]),
    ]
    return Layout(columns, summary=False)


def _ec2(_: Look) -> Layout:
    columns = [
        *_ids(),
        _owner(""),
        _col("GridJobStatus", "STATUS", width=-10, by=TABLE["GRID_STATUS"]),
        _col("GridJobId", "INSTANCE ID", by=TABLE["GRID_JOB_ID"]),
        _col("Cmd", "CMD", "%s"),
    ]
    return Layout(columns, summary=False)


def _code(_: Any, ad: ClassAd) -> str:
    return f"{ad.eval('HoldReasonCode')}/{ad.eval('HoldReasonSubCode')}".replace("undefined", "?")


def _hold(look: Look) -> Layout:
    columns = [
        *_ids(),
        _owner(),
        _col("EnteredCurrentStatus", "HELD_SINCE", width=11, by=TABLE["QDATE"], alt="?", wide=True),
        _col("HoldReason", "HOLD_REASON", width=0),
    ]
    if look.codes:  # as HTCondor has it from version 25 on
        code = As("any", render=_code, needs=("HoldReasonCode", "HoldReasonSubCode"))
        columns.insert(-1, _col("HoldReasonCode", "CODE/SUB", by=code))
    return Layout(columns)


def _io(_: Look) -> Layout:
    old = "IfThenElse(JobUniverse==1,{},{})"
    columns = [
        *_ids(),
        _owner(),
        _col(old.format("NumCkpts_RAW", "NumJobStarts"), "RUNS", "%4d", alt="?"),
        _state(),
        _col(old.format("FileReadBytes", "BytesRecvd"), " INPUT", alt="?", wide=True),
        _col(old.format("FileWriteBytes", "BytesSent"), " OUTPUT", alt="?", wide=True),
        _col(old.format("FileReadBytes+FileWriteBytes", "BytesRecvd+BytesSent"), " RATE", width=10, alt="?", wide=True),
        _col("JobUniverse", "MISC"),
    ]
    where = "JobUniverse==1 || TransferQueued=?=true || TransferringOutput=?=true || TransferringInput=?=true"
    return Layout(columns, where=where)


def _factory(_: Look) -> Layout:
    counts = (
        ("JobMaterializeLimit", " LIMIT"), ("JobsPresent", "PRESNT"), ("JobsRunning", "  RUN "),
        ("JobsIdle", "  IDLE"), ("JobsHeld", "  HOLD"), ("JobMaterializeNextProcId", "NEXTID"),
    )  # fmt: skip
    columns = [
        *_ids(),
        _owner(),
        _submitted(),
        *(_col(name, heading, "%6d", 6) for name, heading in counts),
        _col("JobMaterializePaused?:JobFactoryPaused", "MODE", by=TABLE["JOB_FACTORY_MODE"], alt="_"),
        _col("JobMaterializeDigestFile", "DIGEST"),
    ]
    where = "(ProcId is undefined) && (JobMaterializeDigestFile isnt undefined)"
    return Layout(columns, summary=False, where=where)


def _autocluster(_: Look) -> Layout:
    columns = [
        _col("AutoClusterId", "   ID", "%5d", 5),
        _col("JobCount", "COUNT", "%5d", 5),
        _col("JobUniverse", "UINVERSE", width=-8, by=TABLE["JOB_UNIVERSE"], alt="?", wide=True),
        _col("RequestCPUs", "CPUS", "%4d", 4, alt="?", wide=True),
        _col("RequestMemory", "MEMORY", "%6d", 6, alt="?", wide=True),
        _col("RequestDisk", "    DISK", "%8d", 8, alt="?", wide=True),
        _col("Requirements", "REQUIREMENTS", "%r"),
    ]
    return Layout(columns, summary=False, ids=False)


def _jobset(_: Look) -> Layout:
    columns = [
        _col("JobSetId", "JOBSETID", "%8d", 8),
        _col("JobSetName", "NAME"),
        _col("Owner", "OWNER", by=TABLE["OWNER"], alt="?", wide=True),
        _col("NumCompleted", "COMPLETE", "%8d", 8),
        _col("NumRemoved", "REMOVED", "%7d", 7),
        _col("NumIdle", "   IDLE", "%7d", 7),
        _col("NumRunning", "RUNNING", "%7d", 7),
        _col("NumHeld", "   HELD", "%7d", 7),
    ]
    return Layout(columns, summary=False, where="ProcId is undefined", ids=False)


#: Columns of the view by batches.
OWNER, BATCH, DONE, RUN, IDLE, HOLD, TOTAL, IDS = 0, 1, 3, 4, 5, 6, 7, 8


def _batch(look: Look) -> Layout:
    counts = (
        ("JobStatus", "  DONE"), ("JobUniverse", "  RUN "), ("DAG_NodesQueued", "  IDLE"), ("DAG_NodesDone", "  HOLD"),
        ("DAG_NodesTotal?:TotalSubmitProcs", " TOTAL"),
    )  # fmt: skip
    columns = [
        _col("Owner", "OWNER", by=words(look)["DAG_OWNER"], alt="?", wide=True),
        _col("Cmd", "BATCH_NAME", width=-12, by=TABLE["BATCH_NAME"]),
        _col("QDate", "   SUBMITTED", width=12, by=TABLE["QDATE"]),
        *(_col(name, heading, "%6d", 6, alt=look.zero) for name, heading in counts),
        _col("JobStatus?:JobMaterializeNextProcId", "JOB_IDS", width=0, by=TABLE["JOB_STATUS"]),
    ]
    return Layout(columns, ids=False)


_LAYOUTS: Final[dict[str, Callable[[Look], Layout]]] = {
    "normal": _normal, "dag": _dag, "run": _run, "idle": _idle, "goodput": _goodput, "grid": _grid, "ec2": _ec2,
    "hold": _hold, "io": _io, "factory": _factory, "autocluster": _autocluster, "jobset": _jobset, "batch": _batch,
}  # fmt: skip


def name_of(ad: ClassAd) -> str | None:
    """Under which name a job is put together with others: its batch's, or that of its node in a DAG."""
    name = string(ad, "JobBatchName")
    if name is None and "DAGManJobId" in ad:
        node = string(ad, "DAGNodeName")
        name = None if node is None else f"NODE: {node}"
    return name
