"""Waiting on conditions: what tests use instead of sleeping for a fixed time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

POLL_S = 0.01
#: For what a quiet machine does in a moment. Costs time only where the wait is in vain, so it is enough for a busy one.
PATIENCE_S = 60.0
REGISTERED_S = 2.0


def wait_until(condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "the condition") -> None:
    """Return as soon as condition() is true; TimeoutError after timeout_s. For synchronous tests."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(POLL_S)


async def registered() -> None:
    """Let so much time pass that a queue which was just declared outlives a crash of its broker: RabbitMQ has a queue's
    register on disk half a second after the declaration; two to be sure (docs/testing.md)."""
    end = time.monotonic() + REGISTERED_S
    await eventually(lambda: time.monotonic() > end)


async def eventually(
    condition: Callable[[], object | Awaitable[object]],
    timeout_s: float = PATIENCE_S,
    what: str = "the condition",
) -> object:
    """The first true result of condition(), plain or coroutine function; TimeoutError after timeout_s."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:g} s")
        await asyncio.sleep(POLL_S)
