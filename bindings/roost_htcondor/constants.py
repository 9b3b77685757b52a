"""The constants of htcondor2, by HTCondor's names and numbers."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from engine.queue.jobs import JobStatus
from shared.job_log import JobEventType

__all__ = [
    "AdType",
    "CommonFilesEventType",
    "CompletionType",
    "CredType",
    "DaemonCommand",
    "DaemonType",
    "DrainType",
    "FileTransferEventType",
    "HistorySrc",
    "JobAction",
    "JobEventType",
    "JobStatus",
    "LogLevel",
    "QueryOpt",
    "SubmitMethod",
    "SubsystemType",
    "TransactionFlag",
    "VacateType",
]


class AdType(IntEnum):
    """Kinds of ads."""

    Startd = 0
    Schedd = 1
    Master = 2
    StartdPrivate = 5
    Submitter = 6
    Collector = 7
    License = 8
    Any = 10
    Negotiator = 13
    HAD = 14
    Generic = 15
    Credd = 16
    Grid = 19
    Placementd = 20
    Defrag = 22
    Accounting = 23
    Slot = 24
    StartDaemon = 25

    @staticmethod
    def from_MyType(my_type: str) -> AdType | None:
        """The kind of ads with this MyType; None for one that has none."""
        return next((kind for kind, name in MY_TYPES.items() if name == my_type and kind != AdType.Startd), None)


#: The MyType of the ads of a kind. Slots are what HTCondor calls Startd.
MY_TYPES = {
    AdType.Startd: "Machine",
    AdType.Slot: "Machine",
    AdType.StartDaemon: "StartD",
    AdType.Schedd: "Scheduler",
    AdType.Master: "DaemonMaster",
    AdType.Submitter: "Submitter",
    AdType.Collector: "Collector",
    AdType.License: "License",
    AdType.Negotiator: "Negotiator",
    AdType.HAD: "HAD",
    AdType.Generic: "Generic",
    AdType.Credd: "CredD",
    AdType.Grid: "Grid",
    AdType.Accounting: "Accounting",
}


class CompletionType(IntEnum):
    """What a machine does once it is drained."""

    Nothing = 0
    Resume = 1
    Exit = 2
    Restart = 3
    Reconfig = 4


class CredType(IntEnum):
    """Kinds of credentials."""

    Password = 36
    Kerberos = 32
    OAuth = 40


class DaemonCommand(IntEnum):
    """Orders to daemons."""

    DaemonOn = 469
    DaemonOff = 467
    DaemonOffFast = 468
    DaemonOffPeaceful = 469
    DaemonsOn = 483
    DaemonsOff = 454
    DaemonsOffFast = 461
    DaemonsOffPeaceful = 484
    OffFast = 60006
    OffForce = 60042
    OffGraceful = 60005
    OffPeaceful = 60015
    Reconfig = 60004
    Restart = 453
    RestartPeaceful = 485
    SetForceShutdown = 60041
    SetPeacefulShutdown = 60016


class DaemonType(IntEnum):
    """Kinds of daemons."""

    none = 0
    Any = 1
    Master = 2
    Schedd = 3
    Startd = 4
    Collector = 5
    Negotiator = 6
    Credd = 13
    Placementd = 15
    HAD = 17
    Generic = 18


class DrainType(IntEnum):
    """How jobs leave a machine that drains."""

    Graceful = 0
    Quick = 10
    Fast = 20


class FileTransferEventType(IntEnum):
    """What a FILE_TRANSFER event tells (its Type)."""

    IN_QUEUED = 1
    IN_STARTED = 2
    IN_FINISHED = 3
    OUT_QUEUED = 4
    OUT_STARTED = 5
    OUT_FINISHED = 6


class CommonFilesEventType(IntEnum):
    """What a COMMON_FILES event tells; there are none here."""

    TransferQueued = 1
    TransferStarted = 2
    TransferFinished = 3
    WaitStarted = 4
    WaitFinished = 5


class HistorySrc(IntEnum):
    """Whose history is asked; here Schedd.history has that of ScheddJob."""

    ScheddJob = 0
    StartdJob = 1
    JobEpoch = 2
    Daemon = 3


class JobAction(IntEnum):
    """What `Schedd.act` does."""

    Hold = 1
    Release = 2
    Remove = 3
    RemoveX = 4
    Vacate = 5
    VacateFast = 6
    Suspend = 8
    Continue = 9


class LogLevel(IntEnum):
    """Of what `log` writes."""

    Always = 0
    Error = 1
    Status = 2
    Job = 4
    Machine = 5
    Config = 6
    Protocol = 7
    Priv = 8
    DaemonCore = 9
    Verbose = 10
    Security = 11
    Network = 14
    Hostname = 22
    Audit = 24
    Terse = 0
    FullDebug = 1 << 10
    SubSecond = 1 << 26
    Timestamp = 1 << 27
    PID = 1 << 28
    NoHeader = 1 << 31


class QueryOpt(IntFlag):
    """What `Schedd.query` gives."""

    Default = 0
    AutoCluster = 1
    GroupBy = 2
    DefaultMyJobsOnly = 4
    SummaryOnly = 8
    IncludeClusterAd = 16
    IncludeJobsetAds = 32


class SubmitMethod(IntEnum):
    """JobSubmitMethod of jobs."""

    CondorSubmit = 0
    MinReserved = 0
    DAGMan = 1
    PythonBindings = 2
    HTCondorJobSubmit = 3
    HTCondorDagSubmit = 4
    HTCondorJobSetSubmit = 5
    UserSet = 100
    MaxReserved = 100


class SubsystemType(IntEnum):
    """Of `set_subsystem`."""

    Master = 1
    Collector = 2
    Negotiator = 3
    Schedd = 4
    Shadow = 5
    Startd = 6
    Starter = 7
    GAHP = 8
    Dagman = 9
    SharedPort = 10
    Daemon = 11
    Tool = 12
    Submit = 13
    Job = 14
    Auto = 15


class TransactionFlag(IntFlag):
    """Of `Schedd.edit`."""

    Default = 0
    NonDurable = 1
    SetDirty = 4
    ShouldLog = 8


class VacateType(IntEnum):
    """How claims end."""

    Graceful = 0
    Fast = 1
