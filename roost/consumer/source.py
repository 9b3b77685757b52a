"""What a consumer hands out (events and gaps, jobs and slots of the snapshot), and the interface of its two
transports, `http` and `amqp`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from roost.errors import ClientError
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


class Closed(Exception):
    """The source was closed: there is nothing more to come."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """One item in the consumer's hand. done("") takes it; done(reason) gives it up: to the dead letters where the
    transport has such. What was neither comes again, if the consumer is durable."""

    item: Item
    done: Callable[[str], None]


class Source(Protocol):
    """A stream of items, in the order in which they came. One reader."""

    #: Whether what is given up is kept as a dead letter.
    buries: bool

    @property
    def connected(self) -> bool: ...

    @property
    def waiting_for(self) -> str:
        """What keeps events from coming; empty when nothing does."""

    async def open(self) -> None:
        """Begin to listen: from now on nothing is missed. Raises ClientError."""

    async def next(self) -> Delivered:
        """The next item. Raises Closed after close(), ClientError when no more can come."""

    async def close(self) -> None:
        """What was not taken is given back. May be called more than once."""


def closed_early(error: BaseException) -> ClientError:
    """For a transport that ended by itself."""
    return error if isinstance(error, ClientError) else ClientError(f"the events ended: {error}", "unavailable")
