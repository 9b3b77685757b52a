"""Handlers of items: which items each wants, how it is called, and what becomes of items that it fails on."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from roost.consumer.exactly_once import Once
from roost.consumer.filters import Filter
from roost.consumer.health import Health
from roost.consumer.source import Closed, Gap, Item, Received
from roost.errors import ClientError
from shared.bus.api import Reject
from shared.bus.handling import RetryPolicy, explain

LOG = logging.getLogger("roost.consumer")

OnFailure = Literal["dead-letter", "skip", "stop"]


class HandlerFailed(ClientError):
    """A handler did not take an item, and `on_failure` says to stop then."""


@dataclass(frozen=True, slots=True)
class Handler:
    function: Callable[..., Any]
    filter: Filter | None  # None: it wants gaps
    once: Once | None
    name: str
    extra: frozenset[str]  # which of got, db it wants

    def wants(self, item: Item) -> bool:
        if isinstance(item, Gap):
            return self.filter is None
        return self.filter is not None and self.filter.takes(item)

    @classmethod
    def of(cls, function: Callable[..., Any], chosen: Filter | None, once: Once | None) -> Handler:
        """Raises ValueError for a function that wants something that there is not."""
        parameters = list(inspect.signature(function).parameters)
        extra = frozenset(parameters[1:])
        if not parameters or extra - {"got", "db"} or ("db" in extra and once is None):
            raise ValueError(
                f"{function.__name__}: want parameters (event), and maybe got, and db where `once` is given"
            )
        return cls(function, chosen, once, function.__qualname__, extra)


class Attempts:
    """Offers items to handlers, again and again where that fails."""

    def __init__(self, retry: RetryPolicy, on_failure: OnFailure, health: Health, stopping: asyncio.Event) -> None:
        self._retry = retry
        self._on_failure = on_failure
        self._health = health
        self._stopping = stopping

    async def offer(self, handler: Handler, item: Item) -> str:
        """Offer an item until it is taken. Returns why it was given up; empty when it was taken, or is to be skipped.
        Raises HandlerFailed where that ends the consumer, Closed where it is to stop."""
        for attempt in range(1, self._retry.limit + 1):
            try:
                await _call(handler, item)
                return ""
            except Reject as error:
                return self._failed(handler, item, str(error) or "rejected without a reason")
            except Exception as error:
                self._health.failed += 1
                self._health.last_error = f"{handler.name}: {explain(error)}"
                LOG.warning("%s failed, attempt %d of %d", handler.name, attempt, self._retry.limit, exc_info=True)
                if attempt == self._retry.limit:
                    return self._failed(handler, item, f"given up after {attempt} attempts: {explain(error)}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._retry.delay_s(attempt)):
                        await self._stopping.wait()
                        raise Closed from None
        return ""

    def _failed(self, handler: Handler, item: Item, reason: str) -> str:
        what = f"{item.type} {item.id}" if isinstance(item, Received) else "a gap"
        self._health.given_up += 1
        LOG.error("%s does not take %s: %s", handler.name, what, reason)
        if self._on_failure == "stop":
            raise HandlerFailed(f"{handler.name} does not take {what}: {reason}", "handler-failed")
        return f"{handler.name}: {reason}" if self._on_failure == "dead-letter" else ""


async def _call(handler: Handler, item: Item) -> None:
    subject = item.event if isinstance(item, Received) else item
    extra: dict[str, Any] = {"got": item} if "got" in handler.extra else {}
    if handler.once is None or not isinstance(item, Received):
        await _called(handler.function, subject, extra)
        return
    # Two handlers may share a store: each takes the event for itself.
    with handler.once.taking(f"{item.id} {handler.name}") as db:
        if db is not None:
            await _called(handler.function, subject, {**extra, "db": db} if "db" in handler.extra else extra)


async def _called(function: Callable[..., Any], subject: object, extra: dict[str, Any]) -> None:
    """A plain function runs in a thread: one that takes long must not cost us the connection."""
    if inspect.iscoroutinefunction(function):
        await function(subject, **extra)
    else:
        await asyncio.to_thread(function, subject, **extra)
