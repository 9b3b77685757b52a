"""Where events come from: one interface, two transports (`http`, `amqp`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from roost.consumer.items import Item
from roost.errors import ClientError


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
