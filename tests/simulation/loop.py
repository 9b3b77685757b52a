"""An event loop whose time passes only while nothing is left to do."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
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


class _Timer(asyncio.TimerHandle):
    """Waits while its life is frozen, and never comes once that is dead."""

    __slots__ = ("life",)
    life: Any
    _loop: VirtualLoop

    def _run(self) -> None:
        life = self.life
        if life is not None:
            if self._loop.time() < life.not_before:
                self._loop.put_off(self, life.not_before)
                return
            if life.dead:
                return
        super()._run()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The order in which things happen is the order in which they were asked for: one seed gives one history.

    handlers_are_their_own: what handles a message belongs to whom it came to, from its first moment; else to its sender
    too, whose death ends it, as early seeds tell it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._timers = 0  # that were set: of two that are due at once the first comes first
        self._turns = 0
        self.handlers_are_their_own = False
        self._busy: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        self._wakeups = len(selector.get_map())  # the loop's own; more are sockets that somebody waits for
        self._sockets = selector
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

    # A third of a history's time went into asyncio's own versions of what follows, which wait for sockets, look at
    # real clocks and check for mistakes.

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0][2].cancelled():
            heapq.heappop(scheduled)[2]._scheduled = False
        if len(self._sockets.get_map()) > self._wakeups:
            self._process_events(self._sockets.select(0))
        ahead = scheduled[0][0] - self._now if scheduled else 0.0
        if ready or self._stopping or (scheduled and ahead <= 0.0):
            self.turn()
        elif scheduled:
            self.advance(ahead)
        else:
            raise Stuck("no timer is set, and nothing is ready")
        due = self._now + self._clock_resolution
        while scheduled and scheduled[0][0] < due:
            handle = heapq.heappop(scheduled)[2]
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.life = life = LIFE.get()
        self.put_off(timer, when if life is None else max(when, life.not_before))
        return timer

    def put_off(self, timer: _Timer, when: float) -> None:
        timer._when, timer._scheduled = when, True
        self._timers += 1
        heapq.heappush(self._scheduled, (when, self._timers, timer))

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
            self.call_at(self._now + THREAD_S, both)
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
    life = LIFE.get() if context is None else context.get(LIFE)
    if getattr(loop, "handlers_are_their_own", False) and getattr(coro, "__qualname__", "") == "_Consumer._work":
        life = getattr(coro.cr_frame.f_locals["self"].bus, "life", life)
    if context is None:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop)
    else:
        task = asyncio.Task(coro, loop=loop, context=context)
    if life is not None:
        life.adopt(task)
    return task
