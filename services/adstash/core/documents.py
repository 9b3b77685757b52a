"""A job's ad as a JSON document, with an id that is the same whenever it is made again; the types of its attributes in
Elasticsearch; and the records of history files (spec rows MON-18, MON-19). Pure.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.classad import ERROR, UNDEFINED, ClassAd, PackedError, ParseError, parse_ad, unparse
from shared.classad.expr import AttrRef, Expr, fold, walk

LONG, DOUBLE, BOOLEAN, DATE, KEYWORD, TEXT = "long", "double", "boolean", "date", "keyword", "text"

_WORDS: Final[Mapping[str, str]] = {
    LONG: """
        AutoClusterId BlockReadKbytes BlockReads BlockWriteKbytes BlockWrites BytesRecvd BytesSent ClusterId
        CommittedSlotTime CommittedSuspensionTime CommittedTime CoreSize CpusProvisioned CumulativeRemoteSysCpu
        CumulativeRemoteUserCpu CumulativeSlotTime CumulativeSuspensionTime CurrentHosts DelegatedProxyExpiration
        DiskProvisioned DiskUsage DiskUsage_RAW ExecutableSize ExecutableSize_RAW ExitCode ExitSignal ExitStatus
        GPUsProvisioned HoldReasonCode HoldReasonSubCode ImageSize ImageSize_RAW JobLeaseDuration JobMaxVacateTime
        JobPid JobPrio JobRunCount JobSubmissionId JobStatus JobUniverse LastHoldReasonCode LastHoldReasonSubCode
        LastJobStatus LocalSysCpu LocalUserCpu MachineAttrCpus0 MachineAttrSlotWeight0 MaxHosts MaxIdle MaxMaterialize
        MemoryProvisioned MemoryUsage MinHosts NumCkpts NumHolds NumJobCompletions NumJobMatches NumJobReconnects
        NumJobStarts NumRestarts NumShadowExceptions NumShadowStarts NumSystemHolds NumVacates OrigMaxHosts
        PostJobPrio1 PostJobPrio2 PreJobPrio1 PreJobPrio2 ProcId ProportionalSetSizeKb RecentBlockReads
        RecentBlockWrites RemoteSlotID RequestCpus RequestDisk RequestGPUs RequestMemory ResidentSetSize
        ResidentSetSize_RAW ScratchDirFileCount ShadowExceptions SlotID TotalSubmitProcs TotalSuspensions
        TransferInputSizeMB TransferInputSizeBytes TransferOutputSizeBytes
        VacateReasonCode VacateReasonSubCode
    """,
    DOUBLE: """
        CpusUsage GPUsUsage GPUsAverageUsage GPUsMemoryUsage JobDuration LastRemoteWallClockTime NiceUserPrio
        RemoteSysCpu RemoteUserCpu RemoteWallClockTime WallClockCheckpoint ActivationDuration
        ActivationExecutionDuration ActivationSetupDuration ActivationTeardownDuration
    """,
    BOOLEAN: """
        DelegateJobGSICredentials ExitBySignal HasEncryptExecuteDirectory IsNoopJob JobCoreDumped
        LeaveJobInQueue OnExitHold OnExitRemove PeriodicHold PeriodicRelease PeriodicRemove StreamErr StreamIn
        StreamOut SuccessCheckpointExitBySignal TerminationPending TransferErr TransferIn TransferOut WantCheckpoint
        WantDocker WantContainer WantGracefulRemoval WantRemoteIO WantRemoteSyscalls WantTransfer
    """,
    DATE: """
        ActivationStartTime CompletionDate EnteredCurrentStatus FirstJobMatchDate JobCurrentFinishTransferInputDate
        JobCurrentFinishTransferOutputDate JobCurrentStartDate JobCurrentStartExecutingDate
        JobCurrentStartTransferInputDate JobCurrentStartTransferOutputDate JobFinishedHookDone
        JobLastStartDate JobStartDate LastJobLeaseRenewal LastMatchTime LastRejMatchTime LastSuspensionTime
        LastVacateTime QDate ServerTime ShadowBday StageInFinish StageInStart StageOutFinish StageOutStart
        TransferInFinished TransferInStarted TransferOutFinished TransferOutStarted
    """,
    TEXT: """
        Arguments Args HoldReason LastHoldReason LastRejMatchReason ReleaseReason RemoveReason Requirements
        TransferInput TransferOutput VacateReason
    """,
    KEYWORD: """
        AccountingGroup AcctGroup AcctGroupUser Cmd ConcurrencyLimits ContainerImage DAGManJobId DAGNodeName
        DockerImage Err GlobalJobId In Iwd JobBatchName JobDescription JobState LastRemoteHost LastRemotePool
        NTDomain Name Notification Out Owner RemoteHost RemoteOwner RoostVersion StartdName StartdPrincipal
        SubmitterGlobalJobId User UserLog
    """,
}
#: What we add to each document.
ADDED: Final[Mapping[str, str]] = {
    "RecordTime": DATE,
    "Source": KEYWORD,
    "SourceDaemon": KEYWORD,
    "ScheddName": KEYWORD,
}
#: Folded name -> (as it is written, its type).
KNOWN: Final[Mapping[str, tuple[str, str]]] = {
    fold(name): (name, kind) for kind, words in _WORDS.items() for name in words.split()
} | {fold(name): (name, kind) for name, kind in ADDED.items()}
#: Left out: environments hold passwords more often than anybody would like.
LEFT_OUT: Final = frozenset(("env", "environment", "envdelim"))
#: Bytes of a keyword that Lucene takes: 32766; of longer ones nothing is found, but they are kept.
_MOST_KEYWORD: Final = 8000
#: Fields of one index; a pool whose users have more attributes of their own loses these, not its jobs.
_MOST_FIELDS: Final = 5000


def mappings() -> dict[str, Any]:
    """`mappings` of an index: each known attribute by its type, and of all others that they are keywords."""
    return {
        "dynamic_templates": [
            {
                "others": {
                    "match_mapping_type": "string",
                    "mapping": {"type": "keyword", "ignore_above": _MOST_KEYWORD},
                }
            }
        ],
        "date_detection": False,
        "numeric_detection": False,
        "properties": {name: _mapping(kind) for name, kind in sorted(KNOWN.values())},
    }


def settings() -> dict[str, Any]:
    """`settings` of an index."""
    return {"index": {"mapping": {"total_fields": {"limit": _MOST_FIELDS}}}}


def _mapping(kind: str) -> dict[str, Any]:
    if kind == DATE:
        return {"type": "date", "format": "epoch_second"}
    if kind == KEYWORD:
        return {"type": "keyword", "ignore_above": _MOST_KEYWORD}
    return {"type": kind}


#: Sources of records.
SCHEDD_HISTORY, STARTD_HISTORY, EPOCH_HISTORY, AD_FILE = "schedd_history", "startd_history", "job_epoch", "ad_file"
#: Longer texts are cut: a document must not be of megabytes.
_MOST_TEXT: Final = 100_000
_LONGS: Final = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Document:
    """id: of this record, at most 512 bytes as Elasticsearch wants."""

    id: str
    fields: dict[str, Any]

    def bare(self) -> Document:
        """The same without attributes that only its user knows."""
        return Document(self.id, {name: value for name, value in self.fields.items() if fold(name) in KNOWN})


def document(ad: ClassAd, source: str, daemon: str) -> Document:
    """The document of a record. source: one of those above; daemon: whose history it is of."""
    fields: dict[str, Any] = {}
    for name, expr in ad.public().exprs():
        key = fold(name)
        if key in LEFT_OUT:
            continue
        written, kind = KNOWN.get(key) or (_field(name), KEYWORD)
        _put(fields, written, kind, _value(ad, name, expr))
    time = record_time(ad)
    if time:
        fields["RecordTime"] = time
    fields |= {"Source": source, "SourceDaemon": daemon}
    if source == SCHEDD_HISTORY:
        fields["ScheddName"] = daemon
    return Document(_id(ad, source, daemon, time, fields), fields)


def record_time(ad: ClassAd) -> int:
    """When the record was made, seconds since 1970: the job ended, or left the queue; 0 where it does not say."""
    for name in ("CompletionDate", "EnteredCurrentStatus", "QDate"):
        value = ad.eval(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1 << 40:
            return int(value)
    return 0


def job_of(ad: ClassAd) -> str:
    """What tells the record of a job from others of that schedd."""
    return f"{ad.eval_string('GlobalJobId')}#{ad.eval('ClusterId')}.{ad.eval('ProcId')}#{record_time(ad)}"


def _id(ad: ClassAd, source: str, daemon: str, time: int, fields: dict[str, Any]) -> str:
    job = ad.eval_string("GlobalJobId")
    if not job or source == AD_FILE:
        text = json.dumps(fields, sort_keys=True, default=str)
        return f"{job[:200]}#{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"
    parts = [job[:300], str(time)]
    if source != SCHEDD_HISTORY:
        starts, runs = ad.eval("JobCurrentStartDate"), ad.eval("NumShadowStarts")
        parts += [source, str(starts if isinstance(starts, int) else 0), str(runs if isinstance(runs, int) else 0)]
        parts += [daemon[:100]]
    return "#".join(parts)


def _field(name: str) -> str:
    """A name that can be a field's: dots make objects, and what begins with _ is the server's own."""
    name = name.encode(errors="replace").decode().replace(".", "_")
    return f"attr{name}" if name.startswith("_") else name


def _value(ad: ClassAd, name: str, expr: Expr) -> Any:
    """The value of an attribute; of an expression that needs another ad its text."""
    try:
        value = ad.eval(name)
    except (PackedError, ValueError):
        value = ERROR
    if value is UNDEFINED or value is ERROR:
        return unparse(expr) if any(isinstance(node, AttrRef) for node in walk(expr)) else None
    if isinstance(value, str | bool | int | float):
        return value
    return unparse(expr)


def _put(fields: dict[str, Any], name: str, kind: str, value: Any) -> None:
    """Have a value that fits its field; under another name, as a keyword, where it does not."""
    if value is None:
        return
    if isinstance(value, str):
        value = value.encode(errors="replace").decode()[:_MOST_TEXT]
    fitting = _as(kind, value)
    if fitting is not None:
        fields[name] = fitting
    elif not (kind == DATE and value == 0):  # HTCondor's way to say that it has not happened
        fields[f"{name}_STRING"] = _text(value)


def _as(kind: str, value: Any) -> Any:
    if kind == BOOLEAN:
        return bool(value) if isinstance(value, bool | int) else None
    if kind not in (LONG, DOUBLE, DATE):
        return value if isinstance(value, str) else _text(value)
    if isinstance(value, bool) and kind == DATE:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if kind == DOUBLE:
        return float(value)
    if kind == DATE:
        return int(value) if 0 < value < 1 << 40 else None
    whole = int(value)
    return whole if _LONGS[0] <= whole <= _LONGS[1] else None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_BANNER: Final = re.compile(rb"(?m)^\*\*\*([^\n]*)\n")


@dataclass(frozen=True, slots=True)
class Record:
    """ad: None for what can not be read. end: offset of the byte behind it, from the beginning of the data."""

    ad: ClassAd | None
    source: str
    end: int


def records(data: bytes, source: str) -> Iterator[Record]:
    """The complete records of a piece of a file that begins with one. What stands behind the last line of stars is
    still being written. Lines of stars that begin with EPOCH are of runs of jobs, not of whole jobs."""
    start = 0
    for banner in _BANNER.finditer(data):
        text = data[start : banner.start()].decode(errors="surrogateescape")
        lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
        start = banner.end()
        kind = EPOCH_HISTORY if banner[1].lstrip(b" *").startswith(b"EPOCH") else source
        if not lines:
            continue
        try:
            ad: ClassAd | None = parse_ad("\n".join(lines), "old")
        except (ParseError, ValueError):
            ad = None
        yield Record(ad, kind, start)
