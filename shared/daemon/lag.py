"""Measures how late the event loop is, which is how long one piece of work keeps all others waiting, and names it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from shared.counters import CountsBy, Durations

#: Seconds between two looks. What keeps the loop for longer than twice this is always seen, shorter work by chance.
EVERY_S: Final = 0.02
#: Processor seconds for which one piece of work may keep the loop; longer ones are remembered.
LONG_S: Final = 0.05
#: Seconds between two looks at whether the loop is late, and how late it has to be to look at its stack: together less
#: than LONG_S, so that there is a look at all that is longer.
WATCH_EVERY_S: Final = 0.035
WATCH_LATE_S: Final = 0.01
#: Processor seconds after which work that goes on is told of, and not only when it has ended.
ENDLESS_S: Final = 1.0
#: Functions that are named of one piece of work.
MOST_NAMED: Final = 6
#: Functions that are counted by name.
MOST_COUNTED: Final = 50
#: Seconds between two lines of a log that tell of it; what is between is counted.
TELL_EVERY_S: Final = 10.0

_ROOT: Final = Path(__file__).parents[2]
_OF_LOOPS: Final = ("base_events.py", "events.py", "runners.py")


@dataclass(frozen=True, slots=True)
class Stack:
    """What a thread did at a moment. function: the innermost one of Roost's own, or where there is none the one of a
    library that the loop called; calls: `file:line function` of what was under way, innermost first."""

    function: str
    calls: str = ""


#: Where no look came in time.
UNSEEN: Final = Stack("unknown")
#: Where the loop was between two pieces of work: many short ones held it.
BETWEEN: Final = Stack("many short pieces of work")


@dataclass(frozen=True, slots=True)
class Held:
    """A stretch in which the loop took no turn. `at`: monotonic, when it ended; seconds on the clock and of the loop's
    thread on a processor; `by`: who held it."""

    at: float
    seconds: float
    processor_s: float
    by: Stack


class LoopLag:
    """Measures, from `start` to `stop`, how much later than asked for a timer comes (`late`), and how much of that time
    the loop's own thread was on a processor (`held`): a busy machine makes the one long, and only work the other. It
    costs 50 timers a second, 7 ms of processor time.

    A thread looks at what the loop does while no timer comes, so that who held it is known: `tell(held, more)` is
    called TELL_EVERY_S apart, on the loop or in that thread; more: how many were not told of meanwhile. It costs 2.5 ms
    of processor time a second."""

    def __init__(self, tell: Callable[[Held, int], None]) -> None:
        self.late = Durations()
        self.held = Durations()
        self.long = 0  # stretches of more than LONG_S of processor time
        self.long_by = CountsBy(most=MOST_COUNTED)  # them, by the function that held the loop
        self.last: Held | None = None  # the last of them
        self._timer: asyncio.TimerHandle | None = None
        self._watch = _Watch(tell)

    def start(self) -> None:
        """On the running loop."""
        self._watch.start()
        self._again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._watch.stop()

    def _again(self) -> None:
        due, spent = time.perf_counter() + EVERY_S, time.thread_time()
        self._watch.turn = (due, spent)
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._look, due, spent)

    def _look(self, due: float, spent: float) -> None:
        now = time.perf_counter()
        late = now - due
        # What was done before the timer was due counts too, as nobody knows where in it the long work began.
        held = min(late, time.thread_time() - spent)
        self.late.add(late)
        self.held.add(held)
        if held > LONG_S:
            self.long += 1
            self.last = Held(now, late, held, self._watch.seen_since(due))
            self.long_by.add(self.last.by.function)
            self._watch.tell_of(self.last)
        self._again()


class _Watch:
    """A thread that looks at the stack of the loop's thread while the loop takes no turn.

    It looks at frames only when the loop is late by WATCH_LATE_S and its thread was on a processor for that long: an
    idle daemon, and one that waits on a busy machine, cost it two readings of a clock."""

    def __init__(self, tell: Callable[[Held, int], None]) -> None:
        self._tell = tell
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self.turn = (float("inf"), 0.0)  # when the loop's timer is due, and its thread's processor time before
        self._seen = (0.0, UNSEEN)  # when the turn was due that was seen, and who held the loop
        self._endless = 0.0  # the turn that was told of while it went on
        self._told_at = float("-inf")
        self._untold = 0

    def start(self) -> None:
        """On the thread of the loop."""
        if self._thread is None:
            looked_at = threading.get_ident()
            self._thread = threading.Thread(target=self._run, args=(looked_at,), name="loop-watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread, self._end = None, threading.Event()

    def seen_since(self, due: float) -> Stack:
        """Who held the loop in the turn that was due then."""
        return self._seen[1] if self._seen[0] == due else UNSEEN

    def tell_of(self, held: Held) -> None:
        """Tell of a stretch, unless another one was told of just before."""
        if held.at < self._told_at + TELL_EVERY_S:
            self._untold += 1
            return
        untold, self._untold, self._told_at = self._untold, 0, held.at
        self._tell(held, untold)

    def _run(self, looked_at: int) -> None:
        clock = time.pthread_getcpuclockid(looked_at)
        while not self._end.wait(WATCH_EVERY_S):
            due, spent = self.turn
            now = time.perf_counter()
            if now < due + WATCH_LATE_S:
                continue
            busy = time.clock_gettime(clock) - spent
            if busy < WATCH_LATE_S:
                continue
            frame = sys._current_frames().get(looked_at)
            if frame is None or self.turn[0] != due:
                continue  # it has come round meanwhile
            stack = stack_of(frame)
            if stack is not BETWEEN or self._seen[0] != due:  # that is seen, too, when the work has just ended
                self._seen = (due, stack)
            if busy > ENDLESS_S and self._endless != due:
                self._endless = due
                self.tell_of(Held(now, now - due, busy, self._seen[1]))


def stack_of(frame: FrameType | None) -> Stack:
    """A stack from its innermost frame to where asyncio runs the loop; BETWEEN where there is none."""
    function = called = ""
    calls: list[str] = []
    while frame is not None:
        code = frame.f_code
        path = Path(code.co_filename)
        if path.parent.name == "asyncio" and path.name in _OF_LOOPS:
            break
        own = path.is_relative_to(_ROOT) and "site-packages" not in path.parts
        where = path.relative_to(_ROOT) if own else Path(*path.parts[-2:])
        called = f"{where.with_suffix('').as_posix().replace('/', '.')}.{code.co_qualname}"
        if own and not function:
            function = called
        calls.append(f"{where}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    if len(calls) > MOST_NAMED:
        calls = [*calls[: MOST_NAMED // 2], "...", *calls[-MOST_NAMED // 2 :]]
    return Stack(function or called, " < ".join(calls)) if calls else BETWEEN
