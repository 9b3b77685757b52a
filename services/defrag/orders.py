"""Asks the collector for the machines, and sends orders to startds: drain, and cancel a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from services.defrag.core.machines import CONSTRAINT, Expressions, Machine, machines_of
from services.defrag.core.policy import Order, Rules
from shared.bus.api import RemoteFailure
from shared.daemon.context import Context
from shared.daemon.pool_ads import pool_ads
from shared.errors import RetryableError
from shared.messages.base import Message
from shared.messages.orders import CancelDrain, Drain

#: DrainReason in the ads of machines.
REASON: Final = "Defrag"
#: Orders that are under way at a time, and seconds for one.
_AT_ONCE, _ORDER_S = 20, 10.0
#: Attempts at one order, which a machine takes once however often it hears it.
_ATTEMPTS: Final = 2


async def machines(context: Context, expressions: Expressions) -> dict[str, Machine]:
    """The machines as the collector knows them, by inbox. Raises RetryableError, RemoteFailure."""
    found: dict[str, Machine] = {}
    attributes = expressions.attributes()
    async for ads in pool_ads(context.bus, "Machine", constraint=CONSTRAINT, projection=attributes):
        found = machines_of(ads, expressions, context.clock.now(), found)
    return found


class OrderSender:
    """Sends orders as long as this defrag leads. holds: whether it does."""

    def __init__(self, context: Context, holds: Callable[[], bool]) -> None:
        self._context = context
        self._holds = holds
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def drain(self, orders: Iterable[Order], rules: Rules) -> dict[str, str | None]:
        """By request id: "" for an order that was taken, why it was refused, or None where nobody answered: then it may
        have been taken."""
        given = list(orders)
        answers = await asyncio.gather(*(self._send(order.machine, _drain(order, rules, self._by)) for order in given))
        return {order.request_id: answer for order, answer in zip(given, answers, strict=True)}

    async def cancel(self, machines: Iterable[Machine]) -> dict[str, str | None]:
        """By inbox, likewise."""
        draining = list(machines)
        answers = await asyncio.gather(
            *(self._send(one.inbox, CancelDrain(request_id=one.request_id, by=self._by)) for one in draining)
        )
        return {one.inbox: answer for one, answer in zip(draining, answers, strict=True)}

    @property
    def _by(self) -> str:
        return f"defrag {self._context.name}"

    async def _send(self, inbox: str, order: Message) -> str | None:
        async with self._room:
            for _ in range(_ATTEMPTS):
                if not self._holds():
                    return None  # whoever leads now gives it
                try:
                    await self._context.bus.call(inbox, order, timeout=_ORDER_S)
                except RemoteFailure as refusal:
                    if not refusal.retryable:
                        return refusal.reason or refusal.code
                except RetryableError as error:
                    self._context.log.info("order_not_answered", order=order.type, by=inbox, reason=str(error))
                else:
                    return ""
        return None


def _drain(order: Order, rules: Rules, by: str) -> Drain:
    return Drain(
        request_id=order.request_id,
        how=rules.how,
        reason=REASON,
        on_completion="resume",
        check=order.check,
        start=rules.start,
        by=by,
    )
