"""Events of a pool as Python classes, to be matched by class and field:

    match got.event:
        case JobEnded(owner="alice", exit_code=0): ...
        case JobHeld(reason=reason): ...
        case UnknownEvent(type=name, body=body): ...

They are the models that the daemons themselves send (docs/events.md lists them). Of an event that this release does not
know, or knows in another version, one gets an UnknownEvent with everything it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from shared.messages import events as _models
from shared.messages.base import catalogue, describe
from shared.messages.events import (
    BooksRestored,
    ClaimEnded,
    ClaimMade,
    CycleDone,
    DaemonStarted,
    DaemonStopped,
    Event,
    JobEnded,
    JobEvent,
    JobEvicted,
    JobHeld,
    JobMatched,
    JobReleased,
    JobRemoved,
    JobsOrdered,
    JobsSubmitted,
    JobStarted,
    LeaderChanged,
    PreemptionLoop,
    PriorityChanged,
    PriorityRestored,
    SlotChanged,
    SnapshotRefused,
)

#: (type, version) -> class, of every event there is.
TYPES: Final[Mapping[tuple[str, int], type[Event]]] = {
    key: kind for key, kind in catalogue().items() if issubclass(kind, Event)
}
_NEWEST: Final[Mapping[str, int]] = dict(sorted(TYPES))


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event that this release has no class for. problem: why an event of a known type could not be read."""

    type: str
    version: int
    body: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def at(self) -> float:
        """When it happened, seconds since 1970; 0 where it does not say."""
        at = self.body.get("at")
        return float(at) if isinstance(at, int | float) else 0.0


def event_of(name: str, body: Mapping[str, Any], version: int | None = None, text: bytes = b"") -> Event | UnknownEvent:
    """The event of this type with these fields; never an error. version: None where the sender does not tell, which
    means the newest one that is known. text: the JSON that the fields are from; in it bytes are base64."""
    told = version if version is not None else _NEWEST.get(name, 1)
    kind = TYPES.get((name, told))
    if kind is None:
        return UnknownEvent(name, told, body)
    try:
        return kind.model_validate_json(text) if text else kind.model_validate(body)
    except ValidationError as error:
        return UnknownEvent(name, told, body, describe(error))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Whatever other event the models have: this module need not list the newest ones."""
        kind = getattr(_models, name, None)
        if isinstance(kind, type) and issubclass(kind, Event):
            return kind
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "TYPES",
    "BooksRestored",
    "ClaimEnded",
    "ClaimMade",
    "CycleDone",
    "DaemonStarted",
    "DaemonStopped",
    "Event",
    "JobEnded",
    "JobEvent",
    "JobEvicted",
    "JobHeld",
    "JobMatched",
    "JobReleased",
    "JobRemoved",
    "JobStarted",
    "JobsOrdered",
    "JobsSubmitted",
    "LeaderChanged",
    "PreemptionLoop",
    "PriorityChanged",
    "PriorityRestored",
    "SlotChanged",
    "SnapshotRefused",
    "UnknownEvent",
    "event_of",
]
