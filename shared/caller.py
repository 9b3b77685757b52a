"""How long somebody waits for what is being made: long work for others ends when they have gone.

with awaited(10.0):  # the bus does so around handlers of requests, as long as their callers said
    ...
    check_caller()   # here and there in work that takes long, in threads too; raises CallerGone
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shared.errors import RetryableError

#: Until when (of the loop's clock) somebody waits for what is being made here: also in threads that are begun from it.
_awaited_until: ContextVar[float] = ContextVar("awaited_until", default=math.inf)


class CallerGone(RetryableError):
    """Whoever asked has stopped waiting for the answer."""


@contextmanager
def awaited(seconds: float | None) -> Iterator[None]:
    """What is made inside is waited for so long, on the running loop; None: nobody knows."""
    if seconds is None:
        yield
        return
    token = _awaited_until.set(asyncio.get_running_loop().time() + seconds)
    try:
        yield
    finally:
        _awaited_until.reset(token)


def check_caller() -> None:
    """Raises CallerGone when nobody waits any longer for what is being made here."""
    until = _awaited_until.get()
    if until == math.inf:
        return
    try:
        now = asyncio.get_running_loop().time()
    except RuntimeError:  # in a thread: the clock is the same
        now = time.monotonic()
    if now > until:
        raise CallerGone("who asked this waits no longer")
