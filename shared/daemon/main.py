"""A daemon as a process: `python -m services.<daemon> [-f] [-local-name NAME] [-name NAME] [-config FILE]`.

SIGTERM and SIGINT stop it after a bounded drain (again: at once), SIGHUP reads the configuration anew. Exit
status: 0 stopped, 1 a task died (start it again), 2 wrong arguments, 75 it was told to restart (start it again), 78
wrong configuration (starting it again will not help), 99 it is over by its own decision (do not start it again).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import structlog

from shared import bus as transport
from shared import private_files, tracing
from shared.bus.api import Bus
from shared.bus.spool import spool_file
from shared.bus.statements import Keys, Signer, signer_of
from shared.call_stack import in_one_piece
from shared.config import Config, ConfigError, load_config
from shared.config.dynamic import Dynamic
from shared.config.errors import warning_lines
from shared.config.knobs.tls import TlsSettings
from shared.daemon import closed_files, instance_lock, logs, orders
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.garbage import ShortCollections
from shared.daemon.health import HealthServer, waiting_for
from shared.daemon.lifecycle import TaskEnded, run_daemon
from shared.daemon.process_usage import ProcessUsage
from shared.daemon.startup import make_daemon_or_reset, set_config_loader
from shared.daemon.systemd import Systemd
from shared.errors import RoostError
from shared.state import NoStore, Store, open_store
from shared.tasks import TaskSet
from shared.tls import ClientTls

EXIT_DIED, EXIT_AGAIN, EXIT_CONFIG, EXIT_OVER = 1, 75, 78, 99
#: Seconds between looks at the store when nothing else asks it.
PING_S = 5.0
#: Daemons whose <SUBSYSTEM>_NAME names them in the pool. A negotiator's or collector's names something else.
NAMED = ("SCHEDD", "STARTD")

P = ParamSpec("P")
R = TypeVar("R")


def run(daemon_class: type[Daemon]) -> None:
    """The whole of a daemon's __main__. Does not return."""
    sys.exit(main(daemon_class, sys.argv[1:]))


def main(daemon_class: type[Daemon], argv: Sequence[str]) -> int:
    """Returns the exit status."""
    options = _arguments(daemon_class.subsystem).parse_args(argv)
    try:
        config = _configuration(daemon_class, options)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIG
    logs.configure(logs.level_of(config.get(f"{daemon_class.subsystem}_DEBUG"), config.get("ALL_DEBUG")))
    subsystem, name = daemon_class.subsystem.lower(), name_of(daemon_class.subsystem, config, options.name)
    logs.identify(subsystem, name)
    trace(subsystem, config, name)
    status: int = loop_runner()(_process(daemon_class, options, config))
    tracing.stop()
    return status


def trace(service: str, config: Config, instance: str) -> None:
    """Send traces from now on, if the configuration or the environment says where."""
    try:
        tracing.start(f"roost-{service}", config.get("ROOST_OTLP_ENDPOINT"), instance=instance)
    except tracing.NoTracing as error:
        structlog.stdlib.get_logger().error("no_traces", reason=str(error))


def loop_runner() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """asyncio.run, on uvloop where there is one. Its calls and those of its threads have room (shared.call_stack)."""
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run
    with contextlib.suppress(ImportError):  # where there is none for this platform
        import uvloop

        run = uvloop.run
    return lambda main: in_one_piece(run, _on_this_loop(main))


async def _on_this_loop(main: Coroutine[Any, Any, Any]) -> Any:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(_Threads())
    loop.set_exception_handler(_tell_trouble)
    return await main


def _tell_trouble(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody saw to, but for addresses that nobody waits for any more: where a name is not found in time,
    uvloop leaves the question behind, and the late answer that there is none has nobody to be told to."""
    forgotten = "future" in context and not isinstance(context["future"], asyncio.Task)
    if not (forgotten and isinstance(context.get("exception"), socket.gaierror)):
        loop.default_exception_handler(context)


class _Threads(ThreadPoolExecutor):
    """What asyncio.to_thread runs has room for its calls, too."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return super().submit(in_one_piece, fn, *args, **kwargs)


def _arguments(subsystem: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m services.{subsystem.lower()}", allow_abbrev=False, description=f"Roost's {subsystem.lower()}."
    )
    parser.add_argument("-f", action="store_true", help="run in the foreground (always so; for HTCondor's habit)")
    parser.add_argument("-t", action="store_true", help="log to the terminal (always so)")
    parser.add_argument("-local-name", "--local-name", default=None, help="prefix of configuration of its own")
    parser.add_argument("-name", "--name", default=None, help="its name in the pool (default: the host's)")
    parser.add_argument("-config", "--config", type=Path, default=None, help="configuration file to begin with")
    parser.add_argument("-pidfile", "--pidfile", type=Path, default=None, help="write the process id there")
    return parser


def _configuration(daemon_class: type[Daemon], options: argparse.Namespace, dynamic: Dynamic | None = None) -> Config:
    return load_config(
        [options.config] if options.config else None,
        subsystem=daemon_class.subsystem,
        local_name=options.local_name,
        env=os.environ,
        instance=options.name or options.local_name,
        dynamic=dynamic,
    )


def name_of(subsystem: str, config: Config, given: str | None) -> str:
    """The daemon's name in the pool: as given, as configured, or the host's (with the local name in
    front)."""
    if given:
        return given
    if subsystem in NAMED and (configured := config.get(f"{subsystem}_NAME")):
        return configured
    host = config.get("FULL_HOSTNAME") or socket.gethostname()
    return f"{config.local_name}@{host}" if config.local_name else host


def make_context(daemon_class: type[Daemon], config: Config, name: str, bus: Bus, store: Store) -> Context:
    """A context on real time, with its directories made, and SPOOL its account's alone. store: for daemons that use it.
    Raises OSError."""
    spool = spool_of(config)
    execute = Path(config.get("EXECUTE") or spool.parent / "execute")
    spool.parent.mkdir(parents=True, exist_ok=True)  # EXECUTE may be there too, which jobs must reach
    private_files.make_directory(spool)
    closed = private_files.close_spool(spool)
    if daemon_class.subsystem == "STARTD":
        execute.mkdir(parents=True, exist_ok=True)
    log = structlog.stdlib.get_logger().bind(daemon=daemon_class.subsystem.lower(), name=name)
    closed_files.tell(closed, log)
    own = store if daemon_class.uses_store else NoStore()
    return Context(
        name=name,
        config=config,
        bus=bus,
        store=own,
        spool=spool,
        execute=execute,
        log=log,
        usage=ProcessUsage(),
    )


def spool_of(config: Config) -> Path:
    return Path(config.get("SPOOL") or "spool")


async def _process(daemon_class: type[Daemon], options: argparse.Namespace, config: Config) -> int:
    try:
        context = _connections(daemon_class, options, config)
        instance_lock.acquire(context.spool, daemon_class.subsystem, context.name)
        set_config_loader(context, lambda dynamic: _configuration(daemon_class, options, dynamic))
        daemon = make_daemon_or_reset(daemon_class, context)
        health = _health(daemon, config)
    except instance_lock.AlreadyRunning as error:  # worth another try: the other one may end
        sys.stderr.write(f"{daemon_class.subsystem.lower()}: {error}\n")
        return EXIT_DIED
    except (ConfigError, RoostError, ValueError, OSError) as error:
        sys.stderr.write(f"{daemon_class.subsystem.lower()}: {error}\n")
        return EXIT_CONFIG
    for problem in warning_lines(context.config.warnings):
        context.log.warning("configuration", problem=problem)
    if options.pidfile:
        options.pidfile.write_text(f"{os.getpid()}\n")
    systemd = Systemd.of(os.environ)
    _signals(daemon, systemd)
    try:
        if health is not None:
            await health.start()
        await _whole_life(daemon, health, systemd)
    except Exception as error:
        context.log.critical("daemon_died", error=f"{type(error).__name__}: {error}", exc_info=_worth_a_trace(error))
        return EXIT_DIED
    finally:
        if health is not None:
            await health.stop()
        if options.pidfile:
            options.pidfile.unlink(missing_ok=True)
    return EXIT_AGAIN if context.again else EXIT_OVER if context.over else 0


def _connections(daemon_class: type[Daemon], options: argparse.Namespace, config: Config) -> Context:
    name = name_of(daemon_class.subsystem, config, options.name)
    wanted = {"ROOST_AMQP_URL": "amqp://user:password@host/vhost"}
    if daemon_class.uses_store:
        wanted["ROOST_REDIS_URL"] = "redis://host/0"
    urls = {knob: str(config.get(knob) or "") for knob in wanted}
    for knob, example in wanted.items():
        if not urls[knob]:
            raise ValueError(f"{knob} is not set: say where to connect, e.g. {knob} = {example}")
    sender = f"{daemon_class.subsystem.lower()}.{name}"
    tls = ClientTls.of(TlsSettings.from_config(config))
    for url in urls.values():
        tls.check(url)  # what is missing at the start is a mistake; later it may be about to be renewed
    bus = transport.connect(
        urls["ROOST_AMQP_URL"],
        sender,
        spool=spool_file(spool_of(config), sender),
        tls=tls,
        signer=signer_in(config) if daemon_class.subsystem == "GATEWAY" else None,
        keys=keys_in(config),
    )
    store = open_store(urls["ROOST_REDIS_URL"], tls=tls) if daemon_class.uses_store else NoStore()
    return make_context(daemon_class, config, name, bus, store)


def signer_in(config: Config) -> Signer | None:
    """The key of a gateway; made where the configuration names a file that is not there. Blocks. Raises OSError, and
    ValueError for a file that holds no such key."""
    path = config.get("ROOST_GATEWAY_KEY")
    return signer_of(Path(path)) if path else None


def keys_in(config: Config) -> Keys | None:
    """The keys of gateways that are believed; None: the configuration names none, and nobody is."""
    path = config.get("ROOST_GATEWAY_KEYS")
    return Keys(Path(path)) if path else None


def _health(daemon: Daemon, config: Config) -> HealthServer | None:
    port = int(config.get("ROOST_HEALTH_PORT") or 0)
    if port == 0:
        return None
    return HealthServer(daemon, config.get("ROOST_HEALTH_BIND") or "127.0.0.1", port)


async def _whole_life(daemon: Daemon, health: HealthServer | None, systemd: Systemd) -> None:
    context = daemon.context
    telling = asyncio.create_task(systemd.keep_telling(lambda: "; ".join(waiting_for(daemon))), name="systemd")
    opening = asyncio.gather(context.bus.start(), context.store.start())
    stopping = asyncio.ensure_future(context.stopping.wait())
    pinging: asyncio.Task[None] | None = None
    collections = ShortCollections()
    collections.start()
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            return
        await opening
        pinging = asyncio.create_task(_ping(context), name="ping")
        await run_daemon(daemon, started=partial(_started, health, systemd))
    finally:
        collections.stop()
        beside = [task for task in (opening, stopping, pinging, telling) if task is not None]
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await context.bus.stop()
        await context.store.stop()


def _started(health: HealthServer | None, systemd: Systemd) -> None:
    if health is not None:
        health.set_up = True
    systemd.ready()


async def _ping(context: Context) -> None:
    """Keeps what health tells of the store true while nobody uses it."""
    while True:
        await context.clock.sleep(PING_S)
        with contextlib.suppress(RoostError):
            await context.store.ping()


def _signals(daemon: Daemon, systemd: Systemd) -> None:
    loop = asyncio.get_running_loop()
    context = daemon.context
    background = TaskSet()

    def stop(name: str) -> None:
        if context.stopping.is_set():
            context.log.warning("stopped_at_once", signal=name)
            os._exit(EXIT_DIED)
        context.log.info("stop_asked", signal=name)
        systemd.stopping()
        context.stopping.set()

    def reconfigure() -> None:
        background.spawn(_reconfigure(daemon), "reconfigure")

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, stop, number.name)
    loop.add_signal_handler(signal.SIGHUP, reconfigure)


async def _reconfigure(daemon: Daemon) -> None:
    try:
        await orders.reconfigure(daemon)
    except (RoostError, ValueError) as error:
        daemon.context.log.error("configuration_kept", reason=str(error))


def _worth_a_trace(error: Exception) -> bool:
    return not isinstance(error, RoostError) or isinstance(error, TaskEnded)
