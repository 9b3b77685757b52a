"""Daemons inside another process, for the personal pool: each is started, watched, started again with
back-off when it dies, and stopped. One life ends with everything it had on the bus, as the death of a
process would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

import structlog

from shared.backoff import Backoff
from shared.daemon.base import Daemon
from shared.daemon.health import report
from shared.daemon.lifecycle import DRAIN_S, run_daemon

#: Seconds before a daemon that died is started again; doubled up to the longest, forgotten after a good life.
FIRST_BACKOFF_S, LONGEST_BACKOFF_S, GOOD_LIFE_S = 0.1, 30.0, 60.0


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # died, and will be started again
    STOPPED = "stopped"


class Runner:
    """Keeps one daemon alive. One that ends to be started again (`Context.again`) has not died.

    make: gives a new daemon, with a context of its own (an unstarted bus, a clear `stopping`), for every
    life. The runner starts and stops that bus; the store belongs to the pool and runs already."""

    def __init__(self, name: str, make: Callable[[], Daemon], *, drain_s: float = DRAIN_S) -> None:
        self.name = name
        self.state = State.STOPPED
        self.deaths = 0
        self.last_error = ""
        self.daemon: Daemon | None = None
        self._make = make
        self._drain_s = drain_s
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.stdlib.get_logger("runner").bind(daemon=name)

    async def start(self) -> None:
        """Returns when the daemon runs, or has died for the first time (see `last_error`)."""
        self._stop.clear()
        self._set(State.STARTING)
        self._task = asyncio.create_task(self._keep(), name=f"runner:{self.name}")
        while self.state is State.STARTING:
            self._changed.clear()
            await self._changed.wait()

    async def stop(self) -> None:
        """Drain and end it; returns when it is gone."""
        self._stop.set()
        if self.daemon is not None:
            self.daemon.context.stopping.set()
        if self._task is not None:
            await self._task
            self._task = None

    def report(self) -> dict[str, object]:
        """What /readyz tells of it, and how its lives went."""
        found: dict[str, object] = {"state": self.state.value, "deaths": self.deaths, "last_error": self.last_error}
        if self.daemon is not None and self.state is State.RUNNING:
            found |= report(self.daemon)
        return found

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_BACKOFF_S, LONGEST_BACKOFF_S)
        while not self._stop.is_set():
            began = loop.time()
            life = asyncio.create_task(self._one_life(), name=f"daemon:{self.name}")
            await asyncio.wait((life,))
            error = asyncio.CancelledError("cancelled from outside") if life.cancelled() else life.exception()
            ended, self.daemon = self.daemon, None
            if self._stop.is_set() and error is None:
                break
            if error is None and ended is not None and ended.context.again:
                self._log.info("daemon_restarts")
                self._set(State.STARTING)
                continue
            if error is None and ended is not None and ended.context.over:
                self._log.warning("daemon_is_over")
                break
            if loop.time() - began > GOOD_LIFE_S:
                backoff.reset()
            wait = backoff.next_s()
            self.deaths += 1
            self.last_error = f"{type(error).__name__}: {error}" if error else "it stopped by itself"
            self._log.error("daemon_died", error=self.last_error, again_in_s=wait)
            self._set(State.WAITING)
            try:
                async with asyncio.timeout(wait):
                    await self._stop.wait()
            except TimeoutError:
                self._set(State.STARTING)
        self._set(State.STOPPED)

    async def _one_life(self) -> None:
        daemon = self._make()
        self.daemon = daemon
        bus = daemon.context.bus
        starting = asyncio.create_task(bus.start(), name=f"bus:{self.name}")
        stopping = asyncio.create_task(self._stop.wait(), name=f"stop:{self.name}")
        try:
            # A bus waits for its broker as long as it takes; who is told to stop does not.
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
        try:
            if self._stop.is_set():
                return
            await run_daemon(daemon, drain_s=self._drain_s, started=lambda: self._set(State.RUNNING))
        finally:
            await bus.stop()

    def _set(self, state: State) -> None:
        self.state = state
        self._changed.set()
