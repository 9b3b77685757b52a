"""Notice a broker that does not answer, and consumers that are registered but get nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from pamqp.commands import Queue

from shared.bus.amqp.consumer import Consumer
from shared.bus.amqp.link import Link, LinkLost, Refused, guarded, patiently
from shared.bus.api import Exchange
from shared.delays import Delay

#: A consumer may look silent once, when messages arrive just as we look.
STRIKES = 2
#: A replicated queue whose leader is gone says that it has no consumer until the next one leads; so often it must say
#: so before it is believed, so many seconds apart.
DENIALS, AGAIN_S = 5, 1.0
#: Seconds until the first look at a new link to a cluster; each next one comes after twice as long, up to the usual
#: time. A queue that changed its leader while we began to consume may have lost us.
FIRST_LOOK_S = 0.5
#: Looks at a full prefetch window without any progress before it is reported.
STUCK_LOOKS = 3
#: Where there is another broker to go to, this one is asked for a sign of life so many seconds after the last one.
PULSE_S = 0.75
#: It may take so long where everything is quick, and so many times as long as it took of late.
QUICK_S, MARGIN = 0.75, 4.0
#: More bytes than that on their way to the broker may be why it has not answered yet.
BACKLOG_BYTES = 65536


class Pulse:
    """Notices within two seconds that a broker of several hangs, or is cut off: its clients go to another one. A
    slow broker, or a slow way to it, is not taken for a dead one: patience follows how long answers took of late, up to
    longest_s, and what has moved meanwhile counts as a sign of life."""

    def __init__(self, longest_s: float) -> None:
        self.longest_s = longest_s
        self._delay = Delay()

    @property
    def patience_s(self) -> float:
        """Seconds that an answer may take by now."""
        return min(max(QUICK_S, MARGIN * self._delay.left(time.monotonic())), self.longest_s)

    async def watch(self, link: Link, consumers: Sequence[Consumer]) -> None:
        """Until cancelled, or until there is no sign of life: then the link is broken."""
        while link.usable:
            await asyncio.sleep(PULSE_S)
            began = time.monotonic()
            patience_s = self.patience_s
            asked = guarded(link.control.exchange_declare(Exchange.RPC, passive=True))
            try:
                await patiently(asked, patience_s, lives=_moves(link, consumers), longest_s=self.longest_s)
            except TimeoutError:
                self._delay = self._delay.seen(patience_s, time.monotonic())  # the next one has more time
                link.fail(f"the broker did not answer within {patience_s:.2g} s")
            except (LinkLost, Refused) as error:
                link.fail(f"the broker was not to be asked for a sign of life: {error}")
            else:
                self._delay = self._delay.seen(time.monotonic() - began, time.monotonic())


def _moves(link: Link, consumers: Sequence[Consumer]) -> Callable[[], bool]:
    """Tells whether messages came since it was last asked, or many are on their way."""
    before = sum(consumer.count for consumer in consumers)

    def moves() -> bool:
        nonlocal before
        now = sum(consumer.count for consumer in consumers)
        came, before = now != before, now
        return came or link.backlog > BACKLOG_BYTES

    return moves


class Watchdog:
    """every_s: seconds between two looks; also how long the broker may take to answer one. soon: the first ones come
    sooner (a cluster)."""

    def __init__(self, every_s: float, *, soon: bool = False) -> None:
        self.every_s = every_s
        self.soon = soon
        self._pause_s = every_s
        self.complaints: dict[str, str] = {}  # shown in health, by queue; nothing the bus could mend
        self._strikes: dict[Consumer, int] = {}
        self._stuck: dict[Consumer, int] = {}
        self._counts: dict[Consumer, int] = {}

    async def watch(self, link: Link, consumers: Sequence[Consumer]) -> None:
        """Until cancelled, or until something is wrong with the link: then it is broken, and the bus opens
        another."""
        self._strikes.clear()
        self._counts.clear()
        self._pause_s = min(FIRST_LOOK_S, self.every_s) if self.soon else self.every_s
        while link.usable:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, self.every_s)
            try:
                await link.close_replaced()
                trouble = await self._look(link, list(consumers))
            except TimeoutError:
                trouble = f"the broker did not answer within {self.every_s:g} s"
            except (LinkLost, Refused) as error:
                trouble = f"the watchdog was refused: {error}"
            if trouble:
                link.fail(trouble)
                return

    async def _look(self, link: Link, consumers: list[Consumer]) -> str:
        """What is wrong with the link; empty when nothing is."""
        for gone in [consumer for consumer in self._counts if consumer not in consumers]:
            self._counts.pop(gone)
            self._strikes.pop(gone, None)
        self.complaints.clear()
        alive = False
        for consumer in consumers:
            before = consumer.count
            in_hand = consumer.in_hand
            state = await self._state(link, consumer)
            if state is None:
                continue
            alive = True
            progress = consumer.count != self._counts.get(consumer, before) or consumer.count != before
            full = in_hand >= consumer.prefetch
            silent = bool(state.message_count) and not full and not progress
            self._strikes[consumer] = self._strikes.get(consumer, 0) + 1 if silent else 0
            self._stuck[consumer] = self._stuck.get(consumer, 0) + 1 if full and not progress else 0
            self._counts[consumer] = consumer.count
            if state.consumer_count == 0 and await self._denied(link, consumer):
                return f"queue {consumer.queue.name} has no consumer, though we asked for its messages"
            if self._strikes[consumer] >= STRIKES:
                return f"queue {consumer.queue.name} has messages, but its consumer gets none"
            if self._stuck[consumer] >= STUCK_LOOKS:
                seconds = self._stuck[consumer] * self.every_s
                self.complaints[consumer.queue.name] = (
                    f"all {consumer.prefetch} handlers have been busy for {seconds:.0f} s"
                )
        if not alive:  # who consumes nothing asks for a sign of life, and nothing else
            await patiently(guarded(link.control.exchange_declare(Exchange.RPC, passive=True)), self.every_s)
        return ""

    async def _denied(self, link: Link, consumer: Consumer) -> bool:
        """Whether the broker goes on saying that nobody consumes."""
        for _ in range(DENIALS - 1):
            await asyncio.sleep(min(AGAIN_S, self._pause_s / 4))
            state = await self._state(link, consumer)
            if state is None or state.consumer_count:
                return False
        return True

    async def _state(self, link: Link, consumer: Consumer) -> Queue.DeclareOk | None:
        """What the broker says of its queue. None when it consumes no more: its queue may be gone by now, which is why
        a channel of its own asks. Raises TimeoutError, LinkLost, Refused."""
        if not consumer.consumes():
            return None
        try:
            state = await patiently(link.state(consumer.queue.name), self.every_s)
        except Refused:
            if consumer.consumes():
                raise
            return None
        return state if consumer.consumes() else None
