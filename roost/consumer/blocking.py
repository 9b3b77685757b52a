"""Runs consumers in programs without asyncio, and stops them on signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")
#: What is cancelled has so long to end, seconds.
END_S: Final = 5.0


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class BlockingLoop:
    """An event loop in a thread of its own, so that connections live while the program does something else."""

    def __enter__(self) -> BlockingLoop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="consumer", daemon=True)
        self._thread.start()
        return self

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C here must not leave it waiting there
            raise

    def __exit__(self, *_: object) -> None:
        """What still runs is cancelled, and has its end: after Ctrl-C there may be a connection that is being made."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_others(), self._loop).result(END_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    mine = asyncio.current_task()
    while others := [task for task in asyncio.all_tasks() if task is not mine]:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1.0)
