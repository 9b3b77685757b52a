"""An event of a job's log, as data, and the form in which logs are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal


class JobEventType(IntEnum):
    """HTCondor's number of an event. Those from 100 on are of logs of execution points, which are not written here."""

    SUBMIT = 0
    EXECUTE = 1
    EXECUTABLE_ERROR = 2
    CHECKPOINTED = 3
    JOB_EVICTED = 4
    JOB_TERMINATED = 5
    IMAGE_SIZE = 6
    SHADOW_EXCEPTION = 7
    GENERIC = 8
    JOB_ABORTED = 9
    JOB_SUSPENDED = 10
    JOB_UNSUSPENDED = 11
    JOB_HELD = 12
    JOB_RELEASED = 13
    NODE_EXECUTE = 14
    NODE_TERMINATED = 15
    POST_SCRIPT_TERMINATED = 16
    GLOBUS_SUBMIT = 17
    GLOBUS_SUBMIT_FAILED = 18
    GLOBUS_RESOURCE_UP = 19
    GLOBUS_RESOURCE_DOWN = 20
    REMOTE_ERROR = 21
    JOB_DISCONNECTED = 22
    JOB_RECONNECTED = 23
    JOB_RECONNECT_FAILED = 24
    GRID_RESOURCE_UP = 25
    GRID_RESOURCE_DOWN = 26
    GRID_SUBMIT = 27
    JOB_AD_INFORMATION = 28
    JOB_STATUS_UNKNOWN = 29
    JOB_STATUS_KNOWN = 30
    JOB_STAGE_IN = 31
    JOB_STAGE_OUT = 32
    ATTRIBUTE_UPDATE = 33
    PRESKIP = 34
    CLUSTER_SUBMIT = 35
    CLUSTER_REMOVE = 36
    FACTORY_PAUSED = 37
    FACTORY_RESUMED = 38
    NONE = 39
    FILE_TRANSFER = 40
    RESERVE_SPACE = 41
    RELEASE_SPACE = 42
    FILE_COMPLETE = 43
    FILE_USED = 44
    FILE_REMOVED = 45
    DATAFLOW_JOB_SKIPPED = 46
    COMMON_FILES = 47
    EP_STARTUP = 100
    EP_READY = 101
    EP_RECONFIG = 102
    EP_SHUTDOWN = 103
    EP_REQUEST_CLAIM = 104
    EP_RELEASE_CLAIM = 105
    EP_ACTIVATE_CLAIM = 106
    EP_DEACTIVATE_CLAIM = 107
    EP_VACATE_CLAIM = 108
    EP_DRAIN = 109
    EP_RESOURCE_BREAK = 110
    EP_RESOURCE_MEND = 111


#: HTCondor's name of each event (MyType), by its number. Others are FutureEvent, as in its reader.
KINDS: Final[Mapping[int, str]] = {
    0: "SubmitEvent", 1: "ExecuteEvent", 2: "ExecutableErrorEvent", 3: "CheckpointedEvent", 4: "JobEvictedEvent",
    5: "JobTerminatedEvent", 6: "JobImageSizeEvent", 7: "ShadowExceptionEvent", 8: "GenericEvent",
    9: "JobAbortedEvent", 10: "JobSuspendedEvent", 11: "JobUnsuspendedEvent", 12: "JobHeldEvent",
    13: "JobReleaseEvent", 14: "NodeExecuteEvent", 15: "NodeTerminatedEvent", 16: "PostScriptTerminatedEvent",
    21: "RemoteErrorEvent", 22: "JobDisconnectedEvent", 23: "JobReconnectedEvent", 24: "JobReconnectFailedEvent",
    25: "GridResourceUpEvent", 26: "GridResourceDownEvent", 27: "GridSubmitEvent", 28: "JobAdInformationEvent",
    33: "AttributeUpdateEvent", 35: "ClusterSubmitEvent", 36: "ClusterRemoveEvent", 37: "FactoryPausedEvent",
    38: "FactoryResumedEvent", 40: "FileTransferEvent", 41: "ReserveSpaceEvent", 42: "ReleaseSpaceEvent",
    43: "FileCompleteEvent", 44: "FileUsedEvent", 45: "FileRemovedEvent", 46: "DataflowJobSkippedEvent",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One event. number: HTCondor's of the event. at: seconds since 1970. attributes: what it tells besides, by
    HTCondor's names, in the order in which XML and JSON have them; a mapping is a nested ad. proc, subproc: -1 where it
    is about a whole cluster. title: of one that was read as text, its
    first line, less number, job and time."""

    number: int
    cluster: int
    proc: int
    at: float
    attributes: Mapping[str, Any] = field(default_factory=dict)
    subproc: int = 0
    title: str = ""

    @property
    def kind(self) -> str:
        """HTCondor's name of the event."""
        return KINDS.get(self.number, "FutureEvent")


@dataclass(frozen=True, slots=True)
class Form:
    """How a log is written. iso: 2026-11-22 10:00:00, not 11/22 10:00:00. sub_second: with milliseconds."""

    kind: Literal["text", "xml", "json"] = "text"
    iso: bool = True
    utc: bool = False
    sub_second: bool = False


def parse_form(text: str, form: Form = Form()) -> Form:
    """DEFAULT_USERLOG_FORMAT_OPTIONS or EVENT_LOG_FORMAT_OPTIONS: words that change `form` in turn; `!WORD` takes one
    back, LEGACY takes all of the time's. XML goes before JSON. Raises ValueError that names a word which is none."""
    words = {"XML": form.kind == "xml", "JSON": form.kind == "json"}
    words |= {"ISO_DATE": form.iso, "UTC": form.utc, "SUB_SECOND": form.sub_second}
    for word in text.replace(",", " ").split():
        name, on = word.lstrip("!").upper(), not word.startswith("!")
        if name == "LEGACY":
            if on:
                words |= {"ISO_DATE": False, "UTC": False, "SUB_SECOND": False}
        elif name in words:
            words[name] = on
        else:
            known = ", ".join((*words, "LEGACY"))
            raise ValueError(f"{word!r} is no form of a job's log: give some of {known}")
    kind: Literal["text", "xml", "json"] = "xml" if words["XML"] else "json" if words["JSON"] else "text"
    return Form(kind, words["ISO_DATE"], words["UTC"], words["SUB_SECOND"])
