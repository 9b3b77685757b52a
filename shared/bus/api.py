"""The bus as daemons see it: one interface, two transports (AMQP, in-process). One contract suite runs
against both.

Delivery is at least once and out of order, so handlers are idempotent. A handler that returns has taken the
message (it is acknowledged then); one that raises `Reject` sends it to the dead letters with the reason; one
that raises a `RetryableError` gets it again, with back-off and a bounded number of deliveries, before it is
dead-lettered; any other exception dead-letters it at once, is logged, and the consumer goes on. A message whose
handler waited for something that was cancelled comes again when this consumer has gone. No handler may hold a
delivery while a job runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from shared.counters import CountsBy, Durations, DurationsBy
from shared.errors import PermanentError, RetryableError, RoostError
from shared.messages.base import Envelope, Message, Person


class Exchange(StrEnum):
    """Where messages are published. What each carries is told in docs/architecture.md."""

    ADS = "roost.ads"  # topic: <verb>.<MyType>.<daemon>
    PRIVATE = "roost.private"  # topic: <daemon>; claim ids, for central managers only
    RPC = "roost.requests"  # topic: the name of an inbox
    EVENTS = "roost.events"  # topic: the type of the event
    DEAD = "roost.dead"  # fanout: what no handler could take


class BusUnavailable(RetryableError):
    """The broker can not be reached, or did not confirm in time. The bus goes on reconnecting by itself."""


class NobodyThere(BusUnavailable):
    """No such inbox: its owner never served it, or so long ago that it was forgotten."""


class NotAllowed(PermanentError):
    """The broker refuses this to our user: see the permissions in shared/bus/definitions.py."""


class MessageTooLarge(PermanentError):
    """Larger than such a message may be (`most_bytes` of its type): send it in parts."""


class CallTimeout(RetryableError):
    """No answer in time: the other side may or may not have acted."""


class Reject(PermanentError):
    """Raised by a handler: this message can never be handled. It goes to the dead letters with this
    reason."""


def unpublished_as(error: RoostError) -> str:
    """How what could not be published is counted. Transient messages that are let go of without an error: "dropped"."""
    if isinstance(error, NobodyThere):
        return "nobody-there"
    return "not-allowed" if isinstance(error, NotAllowed) else "unavailable"


class RemoteFailure(RoostError):
    """The other side answered with a Failure."""

    def __init__(self, code: str, reason: str, retryable: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way to an exchange."""

    exchange: Exchange
    key: str
    body: Message
    epoch: int | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that no handler could take."""

    id: str
    reason: str
    at: float  # seconds since 1970
    exchange: str
    key: str
    queue: str  # whose handler gave it up
    type: str  # of the message, as far as it could be read
    data: bytes  # the envelope as it came
    by: str = ""  # user of the broker who buried it; empty where nobody vouches for that
    buried_by: str = ""  # the sender who buried it, as it says
    publisher: str = ""  # user of the broker who published it, as who buried it says, under its seal
    seal: str = ""


@dataclass(slots=True)
class BusHealth:
    """What /readyz tells of the bus."""

    connected: bool = False
    waiting_for: str = ""  # empty when all is well
    consumers: int = 0  # that are really consuming
    expected_consumers: int = 0
    reconnects: int = 0
    published: int = 0
    received: int = 0
    redelivered: int = 0  # of these: somebody had them before, and went away without taking them
    retried: int = 0  # calls of handlers that ended with a RetryableError, and are made again
    dead_lettered: int = 0
    in_hand: int = 0  # messages that came and are not done
    calls_waiting: int = 0  # for their answers
    abandoned: int = 0  # requests that were given up as their callers waited no longer
    handled: DurationsBy = field(default_factory=DurationsBy)  # by type of message
    confirmed: Durations = field(default_factory=Durations)  # durable messages: until the broker had them safely
    called: DurationsBy = field(default_factory=DurationsBy)  # by type of request: until the answer, or the lack of it
    unpublished: CountsBy = field(default_factory=CountsBy)  # by why (`unpublished_as`)
    denied: CountsBy = field(default_factory=CountsBy)  # by type: came from who may not send it (shared.bus.senders)
    last_error: str = ""
    details: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Envelope], Awaitable[None]]
#: Answers a request with a message. Raising RemoteFailure (or returning Failure) carries a refusal to the
#: caller.
RequestHandler = Callable[[Envelope], Awaitable[Message]]


class Subscription(Protocol):
    async def cancel(self) -> None:
        """Stop consuming; handlers under way finish first (but for the one that calls this, if any)."""


class Bus(Protocol):
    """Every method may raise BusUnavailable; all are safe to repeat.

    `consume` and `serve` run up to `prefetch` handlers at a time, begun in order of arrival; `listen` runs
    one after the other, in order of arrival. While a handler's message waits for its next attempt it keeps
    its place."""

    @property
    def health(self) -> BusHealth: ...

    async def start(self) -> None:
        """Connect and declare the topology. Waits for the broker (with back-off) until cancelled."""

    async def stop_consuming(self) -> None:
        """End all subscriptions; handlers under way finish first. What comes from now on is for the next life: who is
        about to close what its handlers use calls this before. Publishing and calling go on."""

    async def stop(self) -> None:
        """Finish handlers under way, hand over what is waiting for confirms and all facts, disconnect."""

    async def publish(
        self,
        exchange: Exchange,
        key: str,
        body: Message,
        *,
        epoch: int | None = None,
        trace: str | None = None,
    ) -> None:
        """Publish one message. Durable messages return only when the broker has confirmed them; transient
        ones (`durable = False`) return at once, and are dropped silently while there is no connection, but for
        facts on roost.events (`kept`): these wait in their order, within bounds (shared.bus.outbox).
        Messages of one sender keep their order, but for durable and transient ones, which may overtake each
        other."""

    async def publish_many(self, messages: Sequence[Outgoing]) -> None:
        """Publish several with many confirms in flight at a time."""

    async def consume(self, queue: str, handler: Handler, *, prefetch: int = 100) -> Subscription:
        """Compete with others for the messages of a durable queue that shared/bus/topology.py declares."""

    async def listen(
        self, exchange: Exchange, patterns: Sequence[str], handler: Handler, *, prefetch: int = 500
    ) -> Subscription:
        """Get a private copy of all messages whose key matches one of the topic patterns, from now on. What
        is published while this consumer is disconnected is lost to it: a `resynchronised` callback tells (see
        on_gap)."""

    def on_gap(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call this after every reconnection: broadcasts may have been missed, so ask for state again."""

    async def serve(
        self, inbox: str, handler: RequestHandler, *, prefetch: int = 100, priority: int = 0
    ) -> Subscription:
        """Answer requests to an inbox, concurrently. Several servers of one inbox share the load (the
        collector). priority: a server gets none while one of a higher priority has less than `prefetch` in hand."""

    async def call(
        self,
        inbox: str,
        request: Message,
        *,
        timeout: float = 10.0,
        epoch: int | None = None,
        trace: str | None = None,
        person: Person | None = None,
    ) -> Message:
        """Ask and wait for the answer. person: whom a gateway asks for, which it signs where it has a key. Raises
        CallTimeout, BusUnavailable, RemoteFailure. A request whose
        caller has given up is not delivered any more.

        A handler that raises Reject, a RetryableError or anything else refuses with code "bad-request",
        "unavailable" (retryable) or "internal". The request is not repeated by the bus."""

    async def send(self, inbox: str, body: Message, *, epoch: int | None = None) -> None:
        """One way to an inbox; waits there while its owner is away: an hour if the message is durable, else a
        minute (INBOX_DURABLE_WAIT_S, INBOX_TRANSIENT_WAIT_S). Raises NobodyThere where there is no such inbox
        (durable messages only), BusUnavailable like publish."""

    async def served(self, inboxes: Sequence[str]) -> dict[str, bool]:
        """Which of these inboxes have somebody who serves them now, as the broker sees it: who has died, or lost the
        connection, does not. Inboxes that were never served, or were forgotten, are left out. Raises BusUnavailable."""

    async def waiting(self, queues: Sequence[str]) -> dict[str, int]:
        """How many messages wait in each of these queues (shared.bus.topology names them) to be delivered; queues that
        are not there are left out. Raises BusUnavailable."""

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Look at the dead letters, oldest first, without taking them."""

    async def requeue(self, ids: Sequence[str]) -> list[str]:
        """Put these dead letters again into the queue they came from, for who buried them, and take them off the
        list; each is checked then as what it was. Returns the ids done."""

    async def discard(self, ids: Sequence[str]) -> list[str]:
        """Take these dead letters off the list for good."""
