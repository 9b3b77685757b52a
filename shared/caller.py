"""How long somebody waits for what is being made: long work for others ends when they have gone.

with awaited(Wait(10.0)):  # the bus does so around handlers of requests, as long as their callers said
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


class Wait:
    """Until when (of the loop's clock) somebody waits for one answer; it may end earlier."""

    __slots__ = ("until",)

    def __init__(self, seconds: float | None) -> None:
        """seconds: from now, on the running loop; None: nobody knows."""
        self.until = math.inf if seconds is None else asyncio.get_running_loop().time() + seconds

    def end(self) -> None:
        """Whoever waited has gone."""
        self.until = -math.inf


#: Of who waits for what is being made here: also in threads that are begun from it.
_waits: ContextVar[Wait | None] = ContextVar("waits", default=None)


class CallerGone(RetryableError):
    """Whoever asked has stopped waiting for the answer."""


@contextmanager
def awaited(wait: Wait) -> Iterator[None]:
    """What is made inside is waited for so long."""
    token = _waits.set(wait)
    try:
        yield
    finally:
        _waits.reset(token)


def check_caller() -> None:
    """Raises CallerGone when nobody waits any longer for what is being made here."""
    wait = _waits.get()
    if wait is None or wait.until == math.inf:
        return
    if wait.until == -math.inf:
        raise CallerGone("who asked this has gone")
    try:
        now = asyncio.get_running_loop().time()
    except RuntimeError:  # in a thread: the clock is the same
        now = time.monotonic()
    if now > wait.until:
        raise CallerGone("who asked this waits no longer")
