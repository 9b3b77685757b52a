"""Measures what each callback of an event loop costs: processor time of the loop's thread, as on a quiet machine, so
that a busy one makes nothing look slow. Of asyncio's own loops (not uvloop's), and of all of this process."""

import asyncio
import contextlib
import gc
import time
from dataclasses import dataclass, field

from tests.yardstick import slowness

#: Processor seconds from which on a callback is of interest.
LONG_S = 0.01


@dataclass
class Held:
    """How long single callbacks held the loop. `worst`: (processor seconds, what), the longest first; once all is
    measured, of a machine as quiet as limits are meant for."""

    worst: list[tuple[float, str]] = field(default_factory=list)
    callbacks: int = 0

    @property
    def longest_s(self):
        return self.worst[0][0] if self.worst else 0.0

    def add(self, seconds, handle):
        self.callbacks += 1
        if seconds > LONG_S:
            self.worst = sorted([*self.worst, (seconds, what_of(handle))], reverse=True)[:10]


def what_of(handle):
    """The task or callback of a handle."""
    owner = getattr(handle._callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return f"{owner.get_name()} {getattr(coroutine, '__qualname__', coroutine)}"
    return repr(handle._callback)[:200]


@contextlib.contextmanager
def measured():
    """Held of what runs inside."""
    held = Held()
    plain = asyncio.Handle._run

    def run(self):
        began = time.thread_time()
        try:
            plain(self)
        finally:
            held.add(time.thread_time() - began, self)

    gc.collect()
    # What the tests hold is looked through by no daemon's collections. It stays frozen: to thaw it would thaw all that
    # was read to find the tests as well (conftest.py), and the next collection take a second.
    gc.freeze()
    asyncio.Handle._run = run
    try:
        yield held
    finally:
        asyncio.Handle._run = plain
        if held.worst:
            times = slowness()
            held.worst = [(seconds / times, what) for seconds, what in held.worst]
