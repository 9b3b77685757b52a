"""Waiting on conditions: what tests use instead of sleeping for a fixed time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

POLL_S = 0.01
#: A question that takes long, such as a listing over HTTP, is not asked again at once: whoever answers has a job to do.
MOST_POLL_S, REST = 0.25, 2.0
#: For what a quiet machine does in a moment. Costs time only where the wait is in vain, so it is enough for a busy one.
PATIENCE_S = 60.0


def pause_s(took_s: float) -> float:
    """Seconds until the next look, after one that took so long."""
    return min(MOST_POLL_S, max(POLL_S, REST * took_s))


def wait_until(condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "the condition") -> None:
    """Return as soon as condition() is true; TimeoutError after timeout_s. For synchronous tests."""
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(pause_s(now - began))


async def eventually(
    condition: Callable[[], object | Awaitable[object]],
    timeout_s: float = PATIENCE_S,
    what: str = "the condition",
) -> object:
    """The first true result of condition(), plain or coroutine function; TimeoutError after timeout_s."""
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_s:g} s")
        await asyncio.sleep(pause_s(now - began))
