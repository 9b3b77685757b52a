"""An event of a job's log, as data, and the form in which logs are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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
    43: "FileCompleteEvent", 44: "FileUsedEvent", 45: "FileRemovedEvent",
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
