"""Calls over RabbitMQ and their answers, by its direct reply-to: an answer comes on the link that its request went out
on, so a call ends with its link.
"""

from __future__ import annotations

import asyncio
import time

from pamqp.commands import Basic

from shared import tracing
from shared.bus.amqp.callers import say
from shared.bus.amqp.delivery import TELLS_END_HEADER
from shared.bus.amqp.link import REPLY_TO, DeliveredMessage, Link, LinkLost, NotStored, Refused
from shared.bus.amqp.publisher import Publisher
from shared.bus.api import BusUnavailable, CallTimeout, Exchange, NobodyThere
from shared.bus.handling import packed, packed_for, result_of, saying, tells_end
from shared.bus.senders import Arrival, Denied, Senders
from shared.bus.statements import Signer
from shared.messages.base import BadMessage, CallEnded, CallTaken, Envelope, Message, Person


class Calls:
    """Those under way."""

    def __init__(self, publisher: Publisher, senders: Senders, signer: Signer | None, *, verify: bool) -> None:
        """signer: of a gateway. verify: the broker vouches for who answers."""
        self._signer = signer
        self._publisher = publisher
        self._senders = senders
        self._verify = verify
        # By the request's id; the answer, and the user of the broker who published it.
        self._waiting: dict[str, asyncio.Future[tuple[bytes, str]]] = {}
        # By the request's id: of those that take long, the inbox of who works on it.
        self._taken: dict[str, str] = {}
        # Ids of requests given up before anybody had said that he takes them, as long as they may be waited for.
        self._given_up: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def signs(self) -> bool:
        """Whether it says, under a key, for whom a call is."""
        return self._signer is not None

    async def call(
        self,
        inbox: str,
        request: Message,
        *,
        timeout: float,
        epoch: int | None = None,
        trace: str | None = None,
        person: Person | None = None,
    ) -> Message:
        """See shared.bus.api.Bus.call."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        envelope = self._publisher.envelope(request, epoch, trace or tracing.current())
        said = saying(self._signer, person, inbox, request, self._senders.rows)
        data = packed(envelope) if said is None else await packed_for(envelope, said)
        link = self._publisher.link or await self._publisher.wait_link(deadline)
        began = time.perf_counter()
        future: asyncio.Future[tuple[bytes, str]] = loop.create_future()
        self._waiting[envelope.id] = future
        timer = loop.call_at(deadline, _expire, future, inbox, request.type, timeout)
        try:
            # Never persistent: a call is worth nothing once its caller is gone, and the answer is its
            # confirm.
            properties = self._publisher.properties(
                envelope.id,
                request.type,
                durable=False,
                expires_s=deadline - loop.time(),
                reply_to=REPLY_TO,
                correlation_id=envelope.id,
                headers={TELLS_END_HEADER: 1} if tells_end(envelope.sender) else None,
            )
            try:
                async with asyncio.timeout_at(deadline):
                    await self._request(link, inbox, data, properties, deadline)
            except TimeoutError:
                raise BusUnavailable(f"the broker did not take a request within {timeout:g} s") from None
            except NobodyThere:
                raise NobodyThere(f"inbox {inbox!r} does not exist: its owner was never here") from None
            except (LinkLost, Refused) as error:
                link.fail(f"a request failed: {error}")
                raise BusUnavailable(f"the connection was lost: {error}") from error
            self._publisher.health.published += 1
            answer, user = await future
            return await result_of(answer, self._arrival(user), self._senders)
        except asyncio.CancelledError:
            if tells_end(envelope.sender):
                self._give_up(envelope.id, deadline)
            raise
        finally:
            timer.cancel()
            del self._waiting[envelope.id]
            self._taken.pop(envelope.id, None)
            self._publisher.health.called.add(request.type, time.perf_counter() - began)
            if future.done() and not future.cancelled():
                future.exception()  # seen, also when the publishing failed first

    async def _request(
        self, link: Link, inbox: str, data: bytes, properties: Basic.Properties, deadline: float
    ) -> None:
        """Publish a request; what is refused for want of a queue's leader is published again. Raises like
        Link.request."""
        while True:
            generation = link.generation
            try:
                with self._publisher.renewing(link, generation):
                    return await link.request(inbox, data, properties)
            except NotStored:
                if not await self._publisher.renewed(link, generation, deadline):
                    raise

    def answered(self, message: DeliveredMessage) -> None:
        properties = message.header.properties
        call, user = properties.correlation_id or "", properties.user_id or ""
        if properties.message_type == CallTaken.type:
            self._was_taken(call, message.body, user)
            return
        future = self._waiting.get(call)
        if future is not None and not future.done():
            future.set_result((message.body, user))

    def _arrival(self, user: str) -> Arrival:
        return Arrival(None, user if self._verify else None)

    def _was_taken(self, call: str, data: bytes, user: str) -> None:
        """Somebody works on a call. What can not be believed is as if it had not come."""
        if call not in self._waiting and call not in self._given_up:
            return
        try:
            envelope = Envelope.unpack(data)
            self._senders.admit(envelope, self._arrival(user))
        except (BadMessage, Denied):
            return
        if call in self._waiting:
            self._taken[call] = envelope.sender
        else:
            self._given_up.pop(call).cancel()
            self._tell_end(call, envelope.sender)

    def _give_up(self, call: str, deadline: float) -> None:
        """Nobody waits for the answer any more: who works on it is to know, now or once he says so."""
        if taken := self._taken.get(call):
            self._tell_end(call, taken)
        else:
            loop = asyncio.get_running_loop()
            self._given_up[call] = loop.call_at(deadline, self._given_up.pop, call, None)

    def _tell_end(self, call: str, inbox: str) -> None:
        self._publisher.spawn(say(self._publisher, Exchange.RPC, inbox, CallEnded(call=call)))

    def fail(self, why: str) -> None:
        """The link is gone: raises BusUnavailable in all that wait."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(BusUnavailable(why))
        for timer in self._given_up.values():
            timer.cancel()
        self._given_up.clear()


def _expire(future: asyncio.Future[tuple[bytes, str]], inbox: str, kind: str, timeout: float) -> None:
    if not future.done():
        future.set_exception(CallTimeout(f"no answer from {inbox!r} to {kind} within {timeout:g} s"))
