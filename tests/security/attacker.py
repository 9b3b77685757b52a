"""A user of the broker who publishes raw bytes, with properties of any kind."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import aio_pika
from aiormq.abc import AbstractChannel
from aiormq.exceptions import AMQPError, ChannelInvalidStateError
from pamqp.commands import Basic

from bench.security.cases import Case, Fault, Tally, data_of

#: Seconds in which the broker takes a message, or refuses it.
SEND_S: Final = 10.0
REPLY_TO: Final = "amq.rabbitmq.reply-to"


class Attacker:
    """One user's connection. The broker closes a channel over what it refuses; then there is another."""

    def __init__(self, url: str, tally: Tally, judge: Callable[[Case, bytes], list[Fault]]) -> None:
        """judge: says what is wrong with an answer."""
        self._judge = judge
        self._url = url
        self._tally = tally
        self._connection: Any = None
        self._channel: AbstractChannel | None = None
        self._asked: deque[tuple[str, Case]] = deque(maxlen=2_000)
        # One message at a time: what follows on a channel that the broker is closing ends the whole connection.
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        self._connection = await aio_pika.connect(self._url)

    async def stop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(AMQPError, OSError, TimeoutError):
                await asyncio.wait_for(self._connection.close(), SEND_S)

    async def take(self, case: Case, id: str) -> None:
        """Send an input. id: of the message, for its answer."""
        properties = Basic.Properties(
            user_id=case.get("as", case["user"]) or None,
            message_id=id,
            headers=case.get("headers") or {},
            delivery_mode=1,
            reply_to=REPLY_TO if case.get("answer") else None,
            correlation_id=id if case.get("answer") else None,
        )
        if case.get("answer"):
            self._asked.append((id, case))
        async with self._turn:
            try:
                async with asyncio.timeout(SEND_S):
                    channel = await self._open()
                    await channel.basic_publish(
                        data_of(case["data"]), exchange=case["exchange"], routing_key=case["key"], properties=properties
                    )
                found = "sent"
            except (AMQPError, ChannelInvalidStateError, OSError, RuntimeError) as error:
                found, self._channel = f"refused by the broker: {type(error).__name__}", None
        self._tally.sent += 1
        self._tally.outcomes[found] += 1

    async def _open(self) -> AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            if self._connection.is_closed:
                await self.start()
            made = self._connection.channel(publisher_confirms=True, on_return_raises=False)
            await made.initialize()
            self._channel = await made.get_underlay_channel()
            await self._channel.basic_consume(REPLY_TO, self._answered, no_ack=True)
        return self._channel

    async def _answered(self, message: Any) -> None:
        id = message.header.properties.correlation_id
        case = next((one for known, one in self._asked if known == id), None)
        self._tally.outcomes["answered"] += 1
        if case is not None:
            self._tally.faults += self._judge(case, bytes(message.body))
