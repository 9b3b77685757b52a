"""One run of one daemon, from setup to close. `main` runs it as a process, `runner` inside another process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from shared.backoff import Backoff
from shared.bus.api import Bus, Exchange
from shared.config import Config
from shared.config.dynamic import refuse
from shared.config.knobs import CommonSettings
from shared.daemon import user_maps
from shared.daemon.ad_table import daemon_name
from shared.daemon.base import Daemon
from shared.errors import ConfigurationError, RetryableError, RoostError
from shared.messages.base import Message
from shared.messages.events import DaemonStarted, DaemonStopped
from shared.state import StoreUnavailable, versions
from shared.version import VERSION

#: Seconds after which a task that was cancelled, and still runs, is cancelled again.
CANCEL_AGAIN_S = 0.5
#: Seconds a daemon has for drain, and again for its close.
DRAIN_S = 10.0
#: Seconds for handlers that are under way when it ends. One that waits longer waits for something that is not there.
HEAR_OUT_S = 2.0
#: Seconds between two looks at what a store has that is of a later release, the first and the longest.
AGREE_S = (0.2, 5.0)
#: Seconds for telling the pool that it started or stopped.
EVENT_S = 1.0


class TaskEnded(RoostError):
    """A root task of a daemon returned, which none may."""


async def run_daemon(daemon: Daemon, *, drain_s: float = DRAIN_S, started: Callable[[], None] | None = None) -> None:
    """Set up, run, and stop when `context.stopping` is set. The bus and the store run already, and still do
    afterwards. `started` is called when setup is done.

    Raises what ended the daemon otherwise: the first error of setup or of a root task (TaskEnded if one
    returned).
    """
    context = daemon.context
    log = context.log
    reason = "stopped"
    await install_user_maps(daemon)
    try:
        try:
            if not await _unless_stopped(daemon, _begin(daemon)):
                return
        except ConfigurationError as error:
            await asyncio.to_thread(refuse, context.config, error)
            raise
        if started is not None:
            started()
        await _tell(daemon, DaemonStarted.type, reason)
        log.info("daemon_started", release=VERSION)
        try:
            await _run(daemon, drain_s)
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            raise
        finally:
            await _tell(daemon, DaemonStopped.type, reason)
    finally:
        user_maps.remove(daemon_name(daemon.subsystem, context.name))
        await stop_consuming(context.bus)
        async with asyncio.timeout(shutdown_s(context.config, drain_s)[1]):
            await daemon.close()
        log.info("daemon_stopped", reason=reason)


async def _begin(daemon: Daemon) -> None:
    """Setup, once what lies in Redis is of no later release; what it waits for is shown meanwhile."""
    context = daemon.context
    backoff = Backoff(*AGREE_S)
    while True:
        try:
            await versions.agree(context.store, daemon.writes)
        except StoreUnavailable as error:
            if context.waits != (reason := str(error)):
                context.waits = reason
                context.log.error("store_not_used", reason=reason)
            await context.clock.sleep(backoff.next_s())
        else:
            context.waits = ""
            break
    await daemon.setup()


def shutdown_s(config: Config, otherwise: float) -> tuple[float, float]:
    """Seconds for drain, and for close: SHUTDOWN_GRACEFUL_TIMEOUT and SHUTDOWN_FAST_TIMEOUT, where somebody wrote them.
    HTCondor's half an hour is for jobs to leave; here they stay, and a daemon that takes so long waits for something
    that is not there."""
    knobs = CommonSettings.from_config(config)
    gentle, hard = knobs.shutdown_graceful_timeout, knobs.shutdown_fast_timeout
    return (
        float(gentle) if config.is_written("SHUTDOWN_GRACEFUL_TIMEOUT") else otherwise,
        float(hard) if config.is_written("SHUTDOWN_FAST_TIMEOUT") else otherwise,
    )


async def install_user_maps(daemon: Daemon) -> None:
    """The maps of userMap() as the daemon's configuration says now; called again whenever it has a new one."""
    context = daemon.context
    maps, problems = await asyncio.to_thread(user_maps.read, context.config, daemon.subsystem)
    for problem in user_maps.install(daemon_name(daemon.subsystem, context.name), maps, problems):
        context.log.error("user_map", problem=problem)


async def _unless_stopped(daemon: Daemon, work: Coroutine[Any, Any, None]) -> bool:
    """Do this first part of a life. False when a stop was asked for meanwhile."""
    working = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(daemon.context.stopping.wait())
    try:
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        await _end(working, stopped)


async def _run(daemon: Daemon, drain_s: float) -> None:
    tasks = [asyncio.create_task(work, name=name) for name, work in daemon.tasks().items()]
    tasks.append(asyncio.create_task(_obey_shutdown_expression(daemon), name="shutdown expression"))
    stopped = asyncio.create_task(daemon.context.stopping.wait(), name="stopping")
    try:
        done, _ = await asyncio.wait((*tasks, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped not in done:
            _raise_first(done)
        daemon.context.log.info("draining")
        await stop_consuming(daemon.context.bus)
        await drain(daemon, shutdown_s(daemon.context.config, drain_s)[0])
    finally:
        await _end(*tasks, stopped)


async def _obey_shutdown_expression(daemon: Daemon) -> None:
    """Switch the daemon off when DAEMON_SHUTDOWN says so."""
    context = daemon.context
    while True:
        await context.shutdown_asked.wait()
        context.shutdown_asked.clear()
        asked, context.shutdown = context.shutdown, None
        if asked is None:
            continue
        if not daemon.can_be_off:
            why = f"a {daemon.subsystem.lower()} that is off could not be switched on"
            context.log.error("shutdown_refused", reason=f"{why}: {asked.reason}")
            continue
        try:
            await daemon.switch_off(asked)
        except OSError as error:
            context.log.error("shutdown_failed", reason=f"{error}; {asked.reason}")


async def stop_consuming(bus: Bus) -> None:
    """Take no more messages, before anything that handlers use is closed: one that fails for that would be dead, or a
    refusal that its sender believes. What comes now waits for the next life."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEAR_OUT_S):
            await bus.stop_consuming()


async def drain(daemon: Daemon, drain_s: float) -> None:
    """Have it finish what is under way; where that takes too long, or a server is away, it ends all the same."""
    try:
        async with asyncio.timeout(drain_s):
            await daemon.drain()
    except (TimeoutError, RetryableError) as error:
        daemon.context.log.warning("drain_cut_short", reason=str(error) or f"it took more than {drain_s:g} s")


def _raise_first(done: set[asyncio.Task[Any]]) -> None:
    """The error that ended the daemon."""
    for task in sorted(done, key=lambda task: task.get_name()):
        error = task.exception() if not task.cancelled() else asyncio.CancelledError("cancelled from outside")
        if isinstance(error, Exception):
            raise error
        raise TaskEnded(f"task {task.get_name()!r} ended, which no root task may: {error or 'it returned'}")


async def _end(*tasks: asyncio.Future[Any]) -> None:
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        # Again, for one that lost its cancellation on the way: before 3.11.3 asyncio's time limits could eat it.
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _tell(daemon: Daemon, kind: str, reason: str) -> None:
    """A fact for whoever wants it; that nobody hears it stops nothing."""
    context = daemon.context
    name = daemon_name(daemon.subsystem, context.name)
    at = context.clock.now()
    event: Message
    if kind == DaemonStarted.type:
        event = DaemonStarted(at=at, daemon=name, subsystem=daemon.subsystem, release=VERSION)
    else:
        event = DaemonStopped(at=at, daemon=name, subsystem=daemon.subsystem, reason=reason)
    with contextlib.suppress(RoostError, TimeoutError):
        async with asyncio.timeout(EVENT_S):
            await context.bus.publish(Exchange.EVENTS, kind, event)
