"""An event loop whose time passes only while nothing is left to do."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import weakref
from collections.abc import Callable
from typing import Any

#: The life that a piece of work belongs to; its tasks, timers and threads end with it.
LIFE: contextvars.ContextVar[Any] = contextvars.ContextVar("life", default=None)
#: Turns of the loop without a moment of rest: more is a circle.
STUCK_TURNS = 200_000
#: What each turn takes, seconds: a timer that rounding lets fire too early is due a little later.
TURN_S = 1e-7
#: What a thread's work takes, seconds. It is done in the loop's own thread, after this time.
THREAD_S = 0.0005


class Stuck(Exception):
    """Nothing happens any more, or everything at once."""


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: time jumps instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or timeout == 0:
            self.loop.turn()
            return found
        if timeout is None:
            raise Stuck("no timer is set, and nothing is ready")
        self.loop.advance(timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """The order in which things happen is the order in which they were asked for: one seed gives one history.

    handlers_are_their_own: what handles a message belongs to whom it came to, from its first moment; else to its sender
    too, whose death ends it, as early seeds tell it."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self._now = 0.0
        self._turns = 0
        self.handlers_are_their_own = False
        self._busy: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        super().__init__(selector)
        self.set_task_factory(_task)

    def time(self) -> float:
        return self._now

    def turn(self) -> None:
        self._now += TURN_S
        self._turns += 1
        if self._turns > STUCK_TURNS:
            raise Stuck(f"{STUCK_TURNS} turns without a moment of rest")

    def busy(self) -> list[str]:
        """What is to be done next, for the story of a circle."""
        found = set()
        for handle in list(self._ready)[:20]:
            task = getattr(handle._callback, "__self__", None)
            places = []
            work = task.get_coro() if isinstance(task, asyncio.Task) else None
            while (frame := getattr(work, "cr_frame", None)) is not None:
                places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
                work = work.cr_await
            found.add(
                f"{task.get_name()} {' > '.join(places)}" if isinstance(task, asyncio.Task) else str(handle)[:300]
            )
        return sorted(found)

    def advance(self, seconds: float) -> None:
        self._now += max(seconds, TURN_S)
        self._turns = 0

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        life = LIFE.get()
        if life is None:
            return super().call_at(when, callback, *args, context=context)

        def unless_dead() -> None:
            if handle.cancelled():  # while its life was frozen
                return
            if self._now < life.not_before:
                super(VirtualLoop, self).call_at(life.not_before, unless_dead, context=context)
            elif not life.dead:
                callback(*args)

        handle = super().call_at(max(when, life.not_before), unless_dead, context=context)
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Threads would live in real time: their work is done here, a moment later, unless its daemon is dead by
        then."""
        future: asyncio.Future[Any] = self.create_future()
        found: list[Any] = []

        def work() -> None:
            try:
                found.append(func(*args))
            except BaseException as error:
                found.append(error)

        def tell() -> None:
            if not found:  # both were due while their life was frozen
                work()
            (result,) = found
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        def both() -> None:
            work()
            tell()

        slow = getattr(LIFE.get(), "disk", None)
        if slow is None:
            self.call_later(THREAD_S, both)
            return future
        # As a slow disk does it: at some moment it is done, and later that is known. One thread does one after another.
        until_done, until_known = slow()
        begins = self._now
        if getattr(executor, "_max_workers", 0) == 1:
            begins = max(begins, self._busy.get(executor, 0.0))
            self._busy[executor] = begins + until_known
        self.call_at(begins + until_done, work)
        self.call_at(begins + until_known, tell)
        return future


def _task(loop: asyncio.AbstractEventLoop, coro: Any, context: Any = None) -> asyncio.Task[Any]:
    life = (context or contextvars.copy_context()).get(LIFE)
    if getattr(loop, "handlers_are_their_own", False) and getattr(coro, "__qualname__", "") == "_Consumer._work":
        life = getattr(coro.cr_frame.f_locals["self"].bus, "life", life)
    if context is None:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop)
    else:
        task = asyncio.Task(coro, loop=loop, context=context)
    if life is not None:
        life.adopt(task)
    return task
