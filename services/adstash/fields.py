"""Which attributes of jobs are numbers, dates and so on for Elasticsearch (spec row MON-18). All others are
keywords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shared.classad.expr import fold

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
