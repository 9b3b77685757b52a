"""htcondor2 of Roost: jobs, ads and orders, with the interface of HTCondor's module of that name (docs/bindings.md)."""

import classad2

from roost_htcondor import refuse_mixture
from roost_htcondor.collector import Collector
from roost_htcondor.constants import (
    AdType,
    CommonFilesEventType,
    CompletionType,
    CredType,
    DaemonCommand,
    DaemonType,
    DrainType,
    FileTransferEventType,
    HistorySrc,
    JobAction,
    JobEventType,
    JobStatus,
    LogLevel,
    QueryOpt,
    SubmitMethod,
    SubsystemType,
    TransactionFlag,
    VacateType,
)
from roost_htcondor.credd import CredCheck, Credd
from roost_htcondor.daemons import (
    Placementd,
    load_a_config_usermap_file,
    ping,
    platform,
    reload_config_usermaps,
    send_alive,
    send_command,
    set_ready_state,
    version,
)
from roost_htcondor.dagman import DAGMan
from roost_htcondor.gateway import HTCondorException, SecurityContext
from roost_htcondor.job_events import JobEvent, JobEventLog
from roost_htcondor.negotiator import Negotiator
from roost_htcondor.schedd import Schedd, SubmitResult
from roost_htcondor.settings import (
    RemoteParam,
    disable_debug,
    enable_debug,
    enable_log,
    log,
    param,
    reload_config,
    set_subsystem,
)
from roost_htcondor.startd import Startd
from roost_htcondor.submit import Submit, SubmitWarning

refuse_mixture(__file__)

classad = classad2
AdTypes = AdType
CredTypes = CredType
DaemonCommands = DaemonCommand
DaemonTypes = DaemonType
DrainTypes = DrainType
QueryOpts = QueryOpt
TransactionFlags = TransactionFlag

__all__ = [
    "AdType",
    "AdTypes",
    "Collector",
    "CommonFilesEventType",
    "CompletionType",
    "CredCheck",
    "CredType",
    "CredTypes",
    "Credd",
    "DAGMan",
    "DaemonCommand",
    "DaemonCommands",
    "DaemonType",
    "DaemonTypes",
    "DrainType",
    "DrainTypes",
    "FileTransferEventType",
    "HTCondorException",
    "HistorySrc",
    "JobAction",
    "JobEvent",
    "JobEventLog",
    "JobEventType",
    "JobStatus",
    "LogLevel",
    "Negotiator",
    "Placementd",
    "QueryOpt",
    "QueryOpts",
    "RemoteParam",
    "Schedd",
    "SecurityContext",
    "Startd",
    "Submit",
    "SubmitMethod",
    "SubmitResult",
    "SubmitWarning",
    "SubsystemType",
    "TransactionFlag",
    "TransactionFlags",
    "VacateType",
    "disable_debug",
    "enable_debug",
    "enable_log",
    "load_a_config_usermap_file",
    "log",
    "param",
    "ping",
    "platform",
    "reload_config",
    "reload_config_usermaps",
    "send_alive",
    "send_command",
    "set_ready_state",
    "set_subsystem",
    "version",
]
