"""A personal pool: every daemon in this process, its state in one directory. With `--amqp` and `--redis` the same
daemons use servers instead of what is embedded.

The directory holds `pool.json` (where the gateway is), `gateway.socket` (the same, for its owner without a token),
`token` (an administrator's), `gateway.key` (with `--amqp`: daemons know by it what the gateway says of people),
`config` (HTCondor's language, yours to edit), `spool/` (job queue, accounts, ads) and
`execute/` (scratch directories of running jobs). Stopped or killed and started again, the pool knows its jobs,
priorities and ads; jobs that were running are found again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from roost import daemon_list
from roost.daemon_list import Member
from roost.errors import ClientError
from roost.personal_config import personal_config
from roost.pool_directory import CONFIG_FILE, POOL_FILE
from services.collector.daemon import Collector
from services.gateway.daemon import Gateway
from services.had.daemon import Had
from services.journal.daemon import Journal
from services.negotiator.daemon import Negotiator
from services.schedd.daemon import Schedd
from services.startd.daemon import Startd
from shared import bus as transport
from shared import private_files, tracing
from shared.bus.api import Bus
from shared.bus.memory import MemoryBus, MemoryHub
from shared.bus.senders import GATEWAY
from shared.bus.spool import spool_file
from shared.bus.statements import GATEWAY_KEY, Keys, Signer
from shared.bus.topology import role_of
from shared.config import Config
from shared.config.dynamic import Dynamic
from shared.config.errors import Problem, warning_lines
from shared.config.knobs.base import to_list
from shared.config.knobs.tls import TlsSettings
from shared.daemon import logs
from shared.daemon.base import Daemon
from shared.daemon.garbage import ShortCollections
from shared.daemon.main import keys_in, make_context, name_of, signer_in, trace
from shared.daemon.runner import Runner
from shared.daemon.startup import make_daemon_or_reset, set_config_loader
from shared.state import open_store
from shared.state.api import Store
from shared.tls import ClientTls
from shared.version import VERSION

#: In the order in which they start; they stop the other way round. Those that DAEMON_LIST names besides come before the
#: gateway.
DAEMONS: tuple[type[Daemon], ...] = (Journal, Collector, Had, Negotiator, Schedd, Startd, Gateway)

#: Seconds after which a start tells what it waits for.
SLOW_START_S = 3.0

CONFIG_TEMPLATE = """\
# Configuration of this personal pool, in HTCondor's language. `roost config-val -dump` shows what is in force;
# changes take effect when the pool is started again.
#
# NUM_CPUS = 4
# MEMORY = 8192
# START = KeyboardIdle > 15 * 60
# ROOST_OWN_USERS = $(USERNAME)@$(UID_DOMAIN)    (whose jobs run as the pool's own account; nobody's: leave it empty)
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `roost up` was asked for."""

    directory: Path
    amqp_url: str = ""  # empty: messages stay in the process
    redis_url: str = ""  # empty: a private redis-server where there is one, else embedded
    knobs: dict[str, str] = field(default_factory=dict)  # win over the configuration file


class PersonalPool:
    """The daemons and what they share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.runners: list[Runner] = []
        self.warnings: tuple[str, ...] = ()  # what nothing is started for, for a person, once it is up
        self.problems: tuple[str, ...] = ()  # what the daemons' logs say of the configuration, for a person
        self._members: tuple[Member, ...] = ()
        self._told: set[Problem] = set()  # warnings of the configuration that one of its daemons told
        self._store: Store | None = None
        self._hub = MemoryHub()
        self._signer: Signer | None = None
        self._keys: Keys | None = None

    @property
    def url(self) -> str:
        """Where the gateway answers."""
        gateway = self._daemon(Gateway)
        assert isinstance(gateway, Gateway)
        host = gateway.settings.roost_gateway_bind
        shown = "127.0.0.1" if host in ("", "0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        return f"{gateway.scheme}://{shown}:{gateway.port}"

    async def start(self) -> None:
        """Start the store and every daemon. Raises RoostError when one of them can not start."""
        directory = self.plan.directory
        self._members = self._choose()  # a file that can not be read is told before anything is started
        tls = self._tls()
        for url in (self.plan.amqp_url, self.plan.redis_url):
            tls.check(url)
        self._make_keys()
        self._store = open_store(self.plan.redis_url or "auto", directory, tls=tls)
        await self._store.start()
        for member in self._members:
            runner = Runner(member.word.lower(), self._maker(member))
            self.runners.append(runner)
            await runner.start()
            if runner.deaths:
                kind, _, said = runner.last_error.partition(": ")
                ours = kind in ("ConfigError", "PermanentError")
                raise ClientError(f"the {runner.name} did not start: {said if ours else runner.last_error}")
        described: dict[str, Any] = {"url": self.url, "pid": os.getpid(), "version": VERSION, "bus": self.bus_kind}
        files = self.config("MASTER").files
        described |= {"config": files[0] if files else "", "knobs": self.plan.knobs}  # tools go by the same
        gateway = self._daemon(Gateway)
        if isinstance(gateway, Gateway) and gateway.local.listens and gateway.logins.takes_local:
            described["socket"] = str(gateway.local.path)
        if (ca_file := self._ca_file()) is not None:
            described["ca_file"] = ca_file
        partial = directory / f"{POOL_FILE}.new"
        partial.write_text(json.dumps(described) + "\n")
        partial.replace(directory / POOL_FILE)

    def _make_keys(self) -> None:
        """The gateway's key, and who believes it. Without a broker it never leaves this process, and another start has
        another one. Raises ClientError."""
        if not self.plan.amqp_url:
            self._signer = Signer.new()
            self._keys = Keys(given=(self._signer.public,))
            return
        try:
            self._signer = signer_in(self.config("GATEWAY"))
        except (OSError, ValueError) as error:
            raise ClientError(f"{GATEWAY_KEY}: {error}") from error
        self._keys = keys_in(self.config("MASTER"))

    def _ca_file(self) -> str | None:
        """The authority that vouches for the gateway, where it is of the pool's own making."""
        gateway = self._daemon(Gateway)
        assert isinstance(gateway, Gateway)
        own = gateway.certificate.live is not None and gateway.certificate.authority is not None
        return str(Path(gateway.settings.trust_domain_cafile).absolute()) if own else None

    def waits_for(self) -> str:
        """What the start waits for, as far as that is known."""
        if not self.runners:
            return "the store"
        runner = self.runners[-1]
        waiting = runner.daemon.context.bus.health.waiting_for if runner.daemon is not None else ""
        return f"the {runner.name}" + (f", which waits for {waiting}" if waiting else "")

    async def stop(self) -> None:
        """Stop everything; running jobs go on and are found again."""
        (self.plan.directory / POOL_FILE).unlink(missing_ok=True)
        for runner in reversed(self.runners):
            await runner.stop()
        if self._store is not None:
            await self._store.stop()

    @property
    def bus_kind(self) -> str:
        return "RabbitMQ" if self.plan.amqp_url else "in-process"

    def report(self) -> dict[str, Any]:
        return {runner.name: runner.report() for runner in self.runners}

    def _choose(self) -> tuple[Member, ...]:
        """The members of the pool, each with a name of its own; `warnings` and `problems` tell the rest. Raises
        ConfigError."""
        config = self.config("MASTER")
        chosen = daemon_list.choose(config, [one.subsystem for one in DAEMONS], daemon_list.OPTIONAL)
        views = daemon_list.views_within(chosen.members, config.get("CONDOR_VIEW_HOST") or "", _local_hosts(config))
        warnings = [*chosen.warnings]
        problems = [str(problem) for problem in config.warnings]
        members: dict[tuple[str, str], Member] = {}
        for member in chosen.members:
            if member.subsystem == "COLLECTOR" and to_list(views) != to_list(config.get("CONDOR_VIEW_HOST") or ""):
                member = replace(member, macros={"CONDOR_VIEW_HOST": views, **member.macros})
            own = self.config(member.subsystem, member=member)
            problems += map(str, own.warnings)
            name = name_of(member.subsystem, own, member.name or None)
            other = members.setdefault((member.subsystem, name.lower()), member)
            if other is not member:
                warnings.append(
                    f"DAEMON_LIST names {member.word}, which would have the name {name} of {other.word}, so it is not "
                    f"started: give it another one with -local-name or -name in {member.word}_ARGS, or set "
                    f"{member.local_name}.{member.subsystem}_NAME"
                )
        self.warnings = tuple(warnings)
        self.problems = tuple(dict.fromkeys(problems))
        return tuple(members.values())

    @staticmethod
    def _class_of(subsystem: str) -> type[Daemon]:
        standing = {one.subsystem: one for one in DAEMONS}
        return standing.get(subsystem) or daemon_list.load(daemon_list.OPTIONAL[subsystem])

    def _daemon(self, daemon_class: type[Daemon]) -> Daemon:
        for runner in self.runners:
            if isinstance(runner.daemon, daemon_class):
                return runner.daemon
        raise ClientError(f"the {daemon_class.subsystem.lower()} is not running")

    def _maker(self, member: Member) -> Callable[[], Daemon]:
        subsystem, daemon_class = member.subsystem, self._class_of(member.subsystem)

        def make() -> Daemon:
            config = self.config(subsystem, member=member)
            name = name_of(subsystem, config, member.name or None)
            bus = self._bus(f"{subsystem.lower()}.{name}")
            assert self._store is not None
            context = make_context(daemon_class, config, name, bus, self._store)
            set_config_loader(context, lambda dynamic: self.config(subsystem, dynamic, member))
            daemon = make_daemon_or_reset(daemon_class, context)
            for problem in warning_lines(context.config.warnings, self._told):
                context.log.warning("configuration", problem=problem)
            return daemon

        return make

    def _bus(self, sender: str) -> Bus:
        signer = self._signer if role_of(sender) == GATEWAY else None
        if self.plan.amqp_url:
            spool = spool_file(self.plan.directory / "spool", sender)
            url, tls = self.plan.amqp_url, self._tls()
            return transport.connect(url, sender, spool=spool, tls=tls, signer=signer, keys=self._keys)
        return MemoryBus(self._hub, sender=sender, signer=signer, keys=self._keys)

    def _tls(self) -> ClientTls:
        return ClientTls.of(TlsSettings.from_config(self.config("MASTER")))

    def config(self, subsystem: str, dynamic: Dynamic | None = None, member: Member | None = None) -> Config:
        """As the daemons of this kind read it; that of `member` with what is its own."""
        plan = self.plan
        return personal_config(
            plan.directory,
            subsystem,
            knobs={**(member.macros if member is not None else {}), **plan.knobs},
            broker=bool(plan.amqp_url),
            local_name=(member.local_name or None) if member is not None else None,
            instance=(member.name or None) if member is not None else None,
            dynamic=dynamic,
        )


def _local_hosts(config: Config) -> frozenset[str]:
    """Names and addresses of this machine, in lower case."""
    told = ("FULL_HOSTNAME", "HOSTNAME", "IPV4_ADDRESS", "IPV6_ADDRESS", "CONDOR_HOST")
    return frozenset({"127.0.0.1", "::1", "localhost", *((config.get(name) or "").lower() for name in told)})


@contextlib.contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Hold the directory: two pools in one would take each other's jobs. Raises ClientError."""
    with _usable(directory):
        private_files.make_directory(directory)
        lock = (directory / "lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClientError(f"a pool is up in {directory} already; `roost down` stops it") from None
        yield


def prepare(directory: Path) -> None:
    """Make the directory a pool's: only its owner reads it, and there is a configuration file to edit. Raises
    ClientError."""
    with _usable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        private_files.make_directory(directory / "log")
        config = directory / CONFIG_FILE
        if not config.exists():
            config.write_text(CONFIG_TEMPLATE)


@contextlib.contextmanager
def _usable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClientError(
            f"{directory} can not be this pool's directory: {error.filename or directory}: {error.strerror}; "
            "name another one with -dir or ROOST_POOL_DIR"
        ) from error


async def run(
    plan: Plan, announce: Callable[[PersonalPool], None], still_waiting: Callable[[str], None] = lambda _: None
) -> None:
    """Run a pool until SIGINT or SIGTERM, which also end its start. `announce` is called once it is up;
    `still_waiting` with what it waits for, should its start take long."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    pool = PersonalPool(plan)
    config = pool.config("SCHEDD")
    name = name_of("SCHEDD", config, None)
    logs.identify("pool", name)
    trace("pool", config, name)
    collections = ShortCollections()
    collections.start()
    starting = asyncio.create_task(pool.start(), name="start")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        told, done = "", set[asyncio.Task[Any]]()
        while not done:
            done, _ = await asyncio.wait(
                (starting, stopping), timeout=SLOW_START_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not done and told != pool.waits_for():
                told = pool.waits_for()
                still_waiting(told)
        if starting.done():
            await starting
            for problem in pool.warnings:
                structlog.stdlib.get_logger().warning("configuration", problem=problem)
            announce(pool)
            await stopping
    finally:
        collections.stop()
        starting.cancel()
        stopping.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await pool.stop()
        await asyncio.to_thread(tracing.stop)
