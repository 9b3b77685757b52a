"""Handles a delivery: one implementation for all transports.

A transport hands over the bytes; the outcome is a value. Nothing that a handler raises ends its consumer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from shared import tracing
from shared.backoff import wait_s
from shared.bus.api import (
    Exchange,
    Handler,
    MessageTooLarge,
    NobodyThere,
    Reject,
    RemoteFailure,
    RequestHandler,
)
from shared.bus.outbox import Outbox
from shared.bus.senders import GATEWAY, Arrival, Denied, Row, Senders, speaks_for_somebody
from shared.bus.statements import Signer, digest_of
from shared.bus.topology import MAX_KEY_BYTES, ROLES, inbox_queue, role_of
from shared.caller import CallerGone, Wait, awaited
from shared.compression import compress, decompress, is_compressed
from shared.errors import RetryableError
from shared.messages.base import BadMessage, Envelope, Failure, Head, Message, Person, pack_body
from shared.messages.events import DaemonReconnected
from shared.messages.wire import too_large

Log = structlog.stdlib.BoundLogger


#: Bytes of a message that are compressed in a turn of the loop, in 1 ms.
COMPRESSED_AT_ONCE: Final = 1 << 18
#: Seconds that a bus which stops waits for handlers under way, and again for confirms.
STOP_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a message is offered to a handler that raises RetryableError, and how long is waited in
    between.

    The defaults bridge some 23 s, which is longer than a restart of Redis or the broker takes. The message is
    held (not acknowledged) meanwhile, so a crash brings it back."""

    limit: int = 10  # deliveries, counting from the first
    first_s: float = 0.05
    factor: float = 2.0
    cap_s: float = 10.0

    def delay_s(self, deliveries: int) -> float:
        """Seconds to wait after this many deliveries have failed."""
        return wait_s(deliveries, self.first_s, self.cap_s, self.factor)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to do with a delivery that was handled: answer it (where somebody waits), then acknowledge it, and
    if `dead` is not empty put it to the dead letters with that reason first. `later`: none of that; it comes again when
    this consumer has gone."""

    dead: str = ""
    answer: Message | None = None
    later: bool = False


@dataclass(frozen=True, slots=True)
class Saying:
    """For whom a gateway sends a message to an inbox."""

    signer: Signer
    person: Person
    inbox: str


TAKEN = Outcome()
LATER = Outcome(later=True)


def unreadable(reason: str) -> Outcome:
    """Of a message that can not be read, which is a mistake in a program: who asked is told as well."""
    return Outcome(dead=reason, answer=Failure(code="bad-message", reason=reason))


async def _admitted(data: bytes, arrival: Arrival, senders: Senders) -> Envelope:
    """The message, from who may send it. Of a large one the head is looked at before there is anything of its body:
    who may not send it, or sends more than it may have, costs its reader nothing. Raises BadMessage, Denied."""
    head = Head.of(data)
    if head is None:
        envelope = Envelope.unpack(data)
    else:
        senders.admit_head(head, arrival)
        data = await decompressed(data)
        async with senders.large:  # several that came together would hold one turn of the loop
            await asyncio.sleep(0)
            envelope = Envelope.unpack(data)
        await asyncio.sleep(0)  # what is done with it has a turn of its own
    senders.admit(envelope, arrival)
    return envelope


async def decompressed(data: bytes) -> bytes:
    """Large messages are decompressed in a thread. Raises BadMessage."""
    if not is_compressed(data):
        return data
    try:
        return await asyncio.to_thread(decompress, data)
    except ValueError as error:
        raise BadMessage(f"not a msgpack envelope: {error}") from error


async def unpack_checked(data: bytes, arrival: Arrival, senders: Senders) -> Envelope:
    """The message, from who may send it, with the person it is for. Raises BadMessage, Denied."""
    envelope = await _admitted(data, arrival, senders)
    if not senders.asks_who(envelope, arrival):
        return envelope
    return senders.believe(envelope, arrival, await digest_of(envelope.content))


async def handle_message(
    data: bytes,
    deliveries: int,
    handler: Handler,
    policy: RetryPolicy,
    log: Log,
    arrival: Arrival,
    senders: Senders,
) -> Outcome:
    """Offer a message to a handler until it is taken or given up. deliveries: how often it was offered
    before. arrival: how it came. senders: decides whether it may."""
    try:
        envelope = await unpack_checked(data, arrival, senders)
    except BadMessage as error:
        return Outcome(dead=str(error))
    except Denied as error:
        # Of what everybody hears one dead letter is enough: that of the work queue which has it too.
        return TAKEN if arrival.copy else Outcome(dead=f"denied: {error}")
    health = senders.health
    if deliveries >= policy.limit:
        log.error("bus.poison", type=envelope.body.type, message_id=envelope.id, deliveries=deliveries)
        return Outcome(dead=f"given up after {deliveries} deliveries: each ended with its consumer's connection")
    while True:
        began = time.perf_counter()
        try:
            try:
                with tracing.handling(envelope.body.type, envelope.trace):
                    await handler(envelope)
            finally:
                health.handled.add(envelope.body.type, time.perf_counter() - began)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            # Only what the handler waited for was. A consumer that works in order must not stand still for that.
            log.info("bus.left_for_later", type=envelope.body.type, message_id=envelope.id)
            return LATER
        except Reject as error:
            return Outcome(dead=str(error) or "rejected without a reason")
        except RetryableError as error:
            deliveries += 1
            if deliveries >= policy.limit:
                log.warning("bus.given_up", type=envelope.body.type, message_id=envelope.id, deliveries=deliveries)
                return Outcome(dead=f"given up after {deliveries} deliveries: {explain(error)}")
            health.retried += 1
            await asyncio.sleep(policy.delay_s(deliveries))
        except Exception as error:
            log.exception("bus.handler_failed", type=envelope.body.type, message_id=envelope.id, sender=envelope.sender)
            return Outcome(dead=f"handler failed: {explain(error)}")
        else:
            return TAKEN


async def answer_request(
    data: bytes, handler: RequestHandler, log: Log, arrival: Arrival, senders: Senders, wait: Wait
) -> Outcome:
    """Answer a request somebody waits for. It is never offered twice, since the caller knows best whether to
    ask again; and it is not dead-lettered when it was refused or failed, since its caller was told. Only what
    could not be read is: that is a mistake in a program. arrival, senders: see handle_message. wait: the caller's."""
    try:
        envelope = await unpack_checked(data, arrival, senders)
    except BadMessage as error:
        return unreadable(str(error))
    except Denied as error:
        return TAKEN if error.answered else Outcome(answer=Failure(code="denied", reason=str(error)))
    began = time.perf_counter()
    try:
        with tracing.handling(envelope.body.type, envelope.trace), awaited(wait):
            return Outcome(answer=await handler(envelope))
    except asyncio.CancelledError:
        if _is_cancelled():
            raise
        reason = "what this waited for was given up"
        return Outcome(answer=Failure(code="unavailable", reason=reason, retryable=True))
    except RemoteFailure as error:
        return Outcome(answer=Failure(code=error.code, reason=error.reason, retryable=error.retryable))
    except Reject as error:
        return Outcome(answer=Failure(code="bad-request", reason=str(error)))
    except RetryableError as error:
        if isinstance(error, CallerGone):
            senders.health.abandoned += 1
        return Outcome(answer=Failure(code="unavailable", reason=explain(error), retryable=True))
    except Exception as error:
        log.exception("bus.handler_failed", type=envelope.body.type, message_id=envelope.id, sender=envelope.sender)
        return Outcome(answer=Failure(code="internal", reason=explain(error)))
    finally:
        senders.health.handled.add(envelope.body.type, time.perf_counter() - began)


def _is_cancelled() -> bool:
    """Whether this very task is."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def one_way(handler: RequestHandler) -> Handler:
    """A request handler for messages nobody waits for the answer of. What it refuses is dead-lettered, for
    there is no caller who could be told."""

    async def handle(envelope: Envelope) -> None:
        try:
            result = await handler(envelope)
        except RemoteFailure as error:
            raise _refusal(error.code, error.reason, error.retryable) from error
        if isinstance(result, Failure):
            raise _refusal(result.code, result.reason, result.retryable)

    return handle


class _RetryLater(RetryableError):
    """A refusal of a one-way message that may go away."""


def _refusal(code: str, reason: str, retryable: bool) -> Exception:
    return _RetryLater(f"{code}: {reason}") if retryable else Reject(f"{code}: {reason}")


async def result_of(data: bytes, arrival: Arrival, senders: Senders) -> Message:
    """The answer to a call. Raises RemoteFailure for a refusal, also when the answer can not be read, or comes from who
    may not give it."""
    try:
        envelope = await _admitted(data, arrival, senders)
    except BadMessage as error:
        raise RemoteFailure("bad-message", f"the answer can not be read: {error}") from error
    except Denied as error:
        raise RemoteFailure("denied", f"the answer is not believed: {error}") from error
    body = envelope.body
    if isinstance(body, Failure):
        raise RemoteFailure(body.code, body.reason, body.retryable)
    return body


#: What packing raises for an answer that can not be sent.
UNSENDABLE: Final = (TypeError, ValueError, OverflowError, MessageTooLarge)


def not_sent(body: Message, error: Exception, log: Log) -> Failure:
    """What a caller is told in place of an answer that can not be sent; in its `except`."""
    log.exception("bus.bad_answer", type=body.type)
    return Failure(code="internal", reason=f"the answer can not be sent: {explain(error)}")


def tells_end(sender: str) -> bool:
    """Whether it says when nobody waits any longer for the answer to a call of its own. Gateways do: those for whom
    they ask come and go, and may have gone long before an answer would be too late. Daemons' deadlines say it all."""
    return role_of(sender) == GATEWAY


def check_topic(exchange: Exchange, key: str = "") -> None:
    """Raises ValueError for what can not be published or listened to: a programmer's error."""
    if exchange is Exchange.DEAD:
        raise ValueError("dead letters are not published or listened to: see dead_letters() and requeue()")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise ValueError(f"routing key {key[:40]!r}... has more than {MAX_KEY_BYTES} bytes")


def reconnected(sender: str, now: float, since: float, outbox: Outbox) -> DaemonReconnected | None:
    """What a sender says of its time without a connection; None: it is no daemon, and may not speak of itself."""
    role, _, name = sender.partition(".")
    if role not in ROLES:
        return None
    lost = outbox.take_lost()
    return DaemonReconnected(
        at=now,
        daemon=f"{role}@{name}",
        since=since,
        waiting=len(outbox),
        lost=lost.events,
        lost_from=lost.first,
        lost_to=lost.last,
    )


def check_inbox(inbox: str) -> None:
    """Raises NobodyThere for a name no inbox can have; names come from users too."""
    if not {"*", "#"}.isdisjoint(inbox.split(".")):
        raise NobodyThere(f"inbox {inbox[:40]!r} does not exist: a name has no '*' or '#' between dots")
    if len(inbox_queue(inbox).encode()) > MAX_KEY_BYTES:
        raise NobodyThere(f"inbox {inbox[:40]!r}... does not exist: names have at most {MAX_KEY_BYTES} bytes")


def packed(envelope: Envelope) -> bytes:
    """Raises MessageTooLarge, and TypeError, ValueError or OverflowError for what msgpack can not carry."""
    return _bounded(envelope, envelope.pack())


async def packed_in_turns(envelope: Envelope) -> bytes:
    """The same; a large message is compressed in a thread, which takes ten times as long as all else."""
    plain = envelope.pack_plain()
    if not envelope.travels_compressed(plain):
        return _bounded(envelope, plain)
    at_once = len(plain) <= COMPRESSED_AT_ONCE
    return _bounded(envelope, compress(plain) if at_once else await asyncio.to_thread(compress, plain))


async def packed_for(envelope: Envelope, saying: Saying) -> bytes:
    """The message with a statement of the person it is for. Raises like `packed`."""
    body = pack_body(envelope.body)
    statement = saying.signer.sign(envelope, await digest_of(body), saying.inbox, saying.person, envelope.ts)
    return _bounded(envelope, replace(envelope, statement=statement).pack(body))


def saying(
    signer: Signer | None, person: Person | None, inbox: str, body: Message, rows: Mapping[str, Row]
) -> Saying | None:
    """For whom a message is sent, where who receives it asks. signer: of a gateway. rows: who may send what."""
    row = rows.get(body.type)
    if signer is None or person is None or row is None or not speaks_for_somebody(body, row.permit):
        return None
    return Saying(signer, person, inbox)


def _bounded(envelope: Envelope, data: bytes) -> bytes:
    if len(data) > (most := envelope.body.most_bytes):
        raise MessageTooLarge(too_large(envelope.body.type, len(data), most))
    return data


def explain(error: BaseException) -> str:
    """One line about an exception."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def report_gap(callback: Callable[[], Awaitable[None]], policy: RetryPolicy, log: Log) -> None:
    """Run a callback of Bus.on_gap until it succeeds; give up where the policy does, or on a permanent
    error."""
    for deliveries in range(1, policy.limit + 1):
        try:
            await callback()
        except RetryableError as error:
            log.warning("bus.gap_callback_retried", error=explain(error), deliveries=deliveries)
            await asyncio.sleep(policy.delay_s(deliveries))
        except Exception:
            log.exception("bus.gap_callback_failed")
            return
        else:
            return
