"""Collections of garbage in the tests' own process: few, and none that is long in the middle of a test.

What Roost bounds by processor time is over its bound where a collection of a tenth of a second falls into it: an
expression of three words was ERROR then. Daemons freeze what a long one leaves (shared.daemon.garbage), and so does
this, between two tests.
"""

import gc
import time

#: gc.set_threshold: most of what a test makes has gone by itself before it is looked at.
THRESHOLDS = (10_000, 20, 10)
#: Processor seconds of a full collection after which what it left is looked at no more.
LONG_S = 0.01
_FULL = 2


class Collections:
    """From `begin` on. There is one garbage collector in a process, so there is one of these."""

    def __init__(self, long_s: float = LONG_S) -> None:
        self._long_s = long_s
        self._began = 0.0
        self._long = False

    def begin(self) -> None:
        """What there is now stays to the end."""
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
        self._freeze()
        gc.callbacks.append(self._look)

    def between_tests(self) -> None:
        if self._long:
            self._freeze()

    def _freeze(self) -> None:
        gc.collect()
        gc.freeze()
        self._long = False

    def _look(self, phase: str, told: dict[str, int]) -> None:
        if told["generation"] != _FULL:
            return
        if phase == "start":
            self._began = time.thread_time()
        elif time.thread_time() - self._began > self._long_s:
            self._long = True
