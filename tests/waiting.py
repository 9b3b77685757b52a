"""Waiting on conditions: what tests use instead of sleeping for a fixed time."""

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable

POLL_S = 0.01
#: A question that takes long, such as a listing over HTTP, is not asked again at once: whoever answers has a job to do.
MOST_POLL_S, REST = 0.25, 2.0
#: For what a quiet machine does in a moment. Costs time only where the wait is in vain, so it is enough for a busy one.
PATIENCE_S = 60.0
#: What wants to run, for each processor, as long as bin/test has the machine for itself: the timeouts are for that.
USUAL_LOAD = 4.0
#: Times as long as its timeout that a wait takes at the most: pytest gives a test five minutes.
MOST_STRETCH = 4.0


def stretch() -> float:
    """Times as long as usual that what is waited for may take, as others have this machine too."""
    try:
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        load = 0.0
    return min(MOST_STRETCH, max(1.0, load / USUAL_LOAD))


def too_long(began: float, timeout_s: float) -> bool:
    """Whether what has been waited for since then (time.monotonic) should have come within timeout_s, stretched."""
    waited_s = time.monotonic() - began
    return waited_s > timeout_s and waited_s > timeout_s * stretch()


def pause_s(took_s: float) -> float:
    """Seconds until the next look, after one that took so long."""
    return min(MOST_POLL_S, max(POLL_S, REST * took_s))


def wait_until(condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "the condition") -> None:
    """Return as soon as condition() is true; TimeoutError after timeout_s, stretched. For synchronous tests."""
    start = time.monotonic()
    while True:
        began = time.monotonic()
        if condition():
            return
        took_s = time.monotonic() - began
        if too_long(start, timeout_s):
            raise TimeoutError(f"{what} did not come true within {time.monotonic() - start:.0f} s")
        time.sleep(pause_s(took_s))


async def eventually(
    condition: Callable[[], object | Awaitable[object]],
    timeout_s: float = PATIENCE_S,
    what: str = "the condition",
) -> object:
    """The first true result of condition(), plain or coroutine function; TimeoutError after timeout_s, stretched."""
    start = time.monotonic()
    while True:
        began = time.monotonic()
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        took_s = time.monotonic() - began
        if too_long(start, timeout_s):
            raise TimeoutError(f"{what} did not come true within {time.monotonic() - start:.0f} s")
        await asyncio.sleep(pause_s(took_s))
