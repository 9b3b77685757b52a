"""What a consumer hands out: events with their bearings, and what else there is to tell of the stream."""

from __future__ import annotations

from dataclasses import dataclass

from roost.events import Event, UnknownEvent
from shared.classad import ClassAd


@dataclass(frozen=True, slots=True)
class Received:
    """One event. `id` is unique and stays the same however often the event comes: the key for doing a thing once."""

    id: str
    event: Event | UnknownEvent
    sender: str = ""  # "<subsystem>.<name>" of the daemon that said it
    recorded: bool = False  # from the journal, after a gap; not heard live
    redelivered: bool = False  # may have come before

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def at(self) -> float:
        """When it happened, seconds since 1970 by the daemon's clock."""
        return self.event.at


@dataclass(frozen=True, slots=True)
class Gap:
    """Events may be missing before the next item. after: id of the last one that surely came; empty: none had come."""

    reason: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job that is in a queue, of the snapshot."""

    ad: ClassAd

    @property
    def id(self) -> str:
        return f"{self.ad.eval('ClusterId')}.{self.ad.eval('ProcId')}"

    @property
    def schedd(self) -> str:
        return schedd_of(self.ad)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot as the collector knows it, of the snapshot."""

    ad: ClassAd

    @property
    def name(self) -> str:
        return str(self.ad.eval("Name"))


@dataclass(frozen=True, slots=True)
class Live:
    """The snapshot is complete: from here on come events."""

    jobs: int
    slots: int


Item = Received | Gap
SnapshotItem = Received | Gap | Job | Slot | Live


def schedd_of(ad: ClassAd) -> str:
    """Name of the schedd that a job ad is of: the part of its GlobalJobId that was made for that."""
    return str(ad.eval("GlobalJobId")).partition("#")[0]
