"""A pool of real daemons under virtual time, with handles for whatever may go wrong."""

from __future__ import annotations

import asyncio
import errno
import math
import random
import sqlite3
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from services.collector.daemon import Collector
from services.defrag.daemon import Defrag
from services.had.daemon import Had
from services.journal.daemon import QUEUE, Journal
from services.journal.store import EVENTS
from services.negotiator.daemon import Negotiator
from services.schedd.daemon import Schedd
from shared.bus.memory import DELIVER, DROP, DUPLICATE, UNCONFIRMED, Fate, Item, delay
from shared.config import Config, load_config
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.messages.base import Envelope
from shared.messages.negotiation import Matches
from tests.simulation.life import Bus, Clock, Hub, Life, Store
from tests.simulation.long_leases import LongLeases
from tests.simulation.loop import THREAD_S
from tests.simulation.machine import Host, Process, SimulatedStartd
from tests.simulation.news import News
from tests.simulation.store import SimulatedStore
from tests.simulation.usage import Usage
from tests.simulation.wires import Wires

#: When the simulation begins, seconds since 1970.
START = 1_800_000_000.0
LEASE_S = 20  # of claims and jobs
CONFIG = {
    "UID_DOMAIN": "pool",
    "ROOST_DOCKER": "false",
    "PERIODIC_EXPR_INTERVAL": "15",
    "NEGOTIATOR_CYCLE_DELAY": "1",
    "NEGOTIATOR_MIN_INTERVAL": "1",
    "NEGOTIATOR_INTERVAL": "20",
    "UPDATE_INTERVAL": "20",
    "SCHEDD_INTERVAL": "20",
    "POLLING_INTERVAL": "5",
    "ALIVE_INTERVAL": "4",
    "MACHINEMAXVACATETIME": "6",
    "KILLING_TIMEOUT": "3",
    "ROOST_HAD_LEASE": "8",
    "ROOST_SCHEDD_FILE_USERS": "alice, bob",
    "HAD_USE_REPLICATION": "true",
    "SYSTEM_PERIODIC_HOLD": "false",
    "UNUSED_CLAIM_TIMEOUT": "15",
    "RANK": "ifThenElse(TARGET.Urgent =?= true, 10, 0)",
}
#: It drains a machine now and then, as long as none is whole.
DEFRAG = {
    "DEFRAG_INTERVAL": "10",
    "DEFRAG_UPDATE_INTERVAL": "20",
    "DEFRAG_DRAINING_MACHINES_PER_HOUR": "120",
    "DEFRAG_MAX_CONCURRENT_DRAINING": "1",
    "DEFRAG_MAX_WHOLE_MACHINES": "1",
    "ROOST_DEFRAG_LEASE": "10",
}
GATEWAY = {"ROOST_TOKEN_USER": "root@pool", "GATEWAY_AUDIT_LOG": ""}
MANAGERS, ACCESS_POINTS, MACHINES = 3, 2, {"ep1": 4, "ep2": 4, "ep3": 2}


@cache
def _config(subsystem: str, knobs: tuple[tuple[str, str], ...]) -> Config:
    """Read once in a process: the simulation's directory is the same for all histories."""
    return load_config([], subsystem=subsystem, env={}, overrides=dict(knobs))


class SimulatedSchedd(Schedd):
    """The real one; where no files travel nobody fetches any from it."""

    full: Callable[[], bool]  # whether its disk is
    serves_files = False

    async def _listen(self, tls: Any) -> int:
        transaction = self.queue._transaction

        def unless_full(*rows: Any) -> None:
            if self.full():
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            transaction(*rows)

        self.queue._transaction = unless_full  # type: ignore[method-assign]
        return await super()._listen(tls) if self.serves_files else 1


class SimulatedJournal(Journal):
    """The real one, but its disk may be full."""

    full: Callable[[], bool]

    async def setup(self) -> None:
        write = self.store._write

        def unless_full(batch: Any) -> int:
            if self.full():
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(batch)

        self.store._write = unless_full  # type: ignore[method-assign]
        await super().setup()


class Weather:
    """What becomes of messages at present."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.drop = self.duplicate = self.unconfirmed = self.late = 0.0  # probabilities
        self.late_s = 1.0  # at most
        self.late_until = -math.inf
        self.bad_until = -math.inf  # messages may be lost, or so late that they count as lost

    def fate(self) -> Fate:
        roll = self.chance.random()
        for probability, fate in ((self.drop, DROP), (self.duplicate, DUPLICATE), (self.unconfirmed, UNCONFIRMED)):
            if roll < probability:
                return fate
            roll -= probability
        if roll < self.late:
            return delay(self.chance.uniform(0.0, self.late_s))
        return DELIVER


class World:
    def __init__(
        self,
        directory: Path,
        chance: random.Random,
        *,
        loud: bool = False,
        subscribing_s: float = 0.0,
        wider: bool = False,
        whole: bool = False,
    ) -> None:
        self.directory = directory
        self.loud = loud
        self.subscribing_s = subscribing_s  # how long a broker may take to confirm that somebody listens
        self.wider = wider  # disks may be slow, and nobody's death ends what others do
        self.whole = whole  # defrag and a journal are there too
        self.files = False  # those of some jobs travel
        self.parallel = False  # some jobs need several machines at once
        self.grouped = False  # clusters are larger, and more of them are held, released or removed as a whole
        self.next_order: asyncio.Future[str] | None = None  # the schedd that is given the next such order
        self.gateways: Callable[[Context], Daemon] | None = None  # users ask them, in place of the schedds
        self.earlier: set[str] = set()  # daemons of an earlier version
        self.broker_keeps = False  # what is under way, whoever sent it is dead
        self.lost_answers = 0.0  # of gateways: with which probability
        wire_chance = random.Random(chance.random()) if whole else random.Random(0)
        self.wires = Wires(wire_chance, self._is_full, self.broken)
        self.said: list[Item] = []  # messages that may come again: any that daemons sent each other
        self.for_journal: dict[str, str] = {}  # by id: type of each event that the broker had for it
        self.slow_disks: dict[str, float] = {}  # by daemon: how long they take at most
        self.news = News(self.time)
        self.chance = chance
        self.weather = Weather(random.Random(chance.random()))
        self.faults: list[tuple[float, str]] = []  # what was done, for the story of a failure
        self.processes: list[Process] = []  # every one that ever was
        self.violations: list[str] = []
        self.full: set[str] = set()  # daemons whose disk has no room
        self.trace = 0  # a sum over all that happened
        self.senders: dict[int, str] = {}  # by epoch: who sent matches in it
        self.asked: dict[str, float] = {}  # by job: when somebody last asked it to leave its slot
        self.errors: list[str] = []  # what daemons logged as their own mistakes
        self.long_leases: LongLeases | None = None  # of some jobs
        self.usage = Usage(self.time)
        self.away: list[tuple[str, float, float]] = []  # daemons, from when to when they were dead, frozen or cut off
        self.lives: dict[str, Life] = {}
        self.hosts = {
            name: Host(name, cpus, self._told, partial(self.usage.watch, name)) for name, cpus in MACHINES.items()
        }
        self.clocks: dict[str, Clock] = {}
        self._ids = 0
        self._stopped: list[Life] = []

    # -- life

    async def open(self) -> None:
        self.hub = Hub(now=self.wall, new_id=self.new_id, on_route=self._route)
        self.hub.keeps = self.broker_keeps
        self.store = SimulatedStore(now=self.wall)
        await self.store.start()
        self.user = Bus(self.hub, sender="gateway.sim")
        self.user.life = Life("gateway.sim", lambda life: None, self.user, Store(self.store), Clock(START))
        await self.user.start()
        for name in self.names():
            self.begin(name)

    async def close(self) -> None:
        for life in (*self.lives.values(), *self._stopped):
            await life.bury()
        for process in self.processes:
            for timer in (process.timer, process.lease):
                if timer is not None:
                    timer.cancel()
        await self.user.stop()
        await self.store.stop()

    def names(self) -> Iterator[str]:
        for number in range(1, MANAGERS + 1):
            yield from (f"collector.cm{number}", f"negotiator.cm{number}", f"had.cm{number}")
        yield from (f"schedd.ap{number}" for number in range(1, ACCESS_POINTS + 1))
        yield from (f"startd.{name}" for name in MACHINES)
        if self.whole:
            yield from ("journal.cm1", "defrag.cm1", "defrag.cm2")
        if self.gateways is not None:
            yield from ("gateway.cm1", "gateway.cm2")

    def begin(self, name: str) -> None:
        """Start a daemon, again if it ran before. It finds its files."""
        former = self.lives.get(name)
        if former is not None:
            former.kill()
            self._stopped.append(former)
        bus, store = Bus(self.hub, sender=name, log=Log(self, name)), Store(self.store)
        clock = self.clocks.setdefault(name, Clock(START))
        self.lives[name] = life = Life(name, self._make, bus, store, clock)
        if self.subscribing_s:
            bus.subscribing = lambda: self.chance.uniform(0.0, self.subscribing_s)
        life.on_start, life.on_break = self._lives, self.news.broke_off
        life.can_write = lambda: name not in self.full
        bus.heard = self.news.hear
        bus.is_earlier = lambda: name in self.earlier
        if self.wider:
            life.disk = partial(self._disk, name, random.Random(self.chance.random()))
        weather = self.weather
        if name.startswith("negotiator") and self.time() < weather.late_until + weather.late_s:
            self.usage.begins_in_fog(weather.late_until, weather.late_s)
        life.on_kill = self.wires.cut
        life.begin()

    def _disk(self, name: str, chance: random.Random) -> tuple[float, float]:
        """What a thread's work takes until it is done, and until that is known."""
        takes = THREAD_S + chance.uniform(0.0, self.slow_disks.get(name, 0.001))
        return chance.uniform(0.0, takes), takes

    def _lives(self, life: Life) -> None:
        if self.wider and life.name in self.slow_disks:
            self.leave(life.name, self.time(), since=life.begun)
        subsystem, _, host = life.name.partition(".")
        if subsystem == "startd" and life.daemon is not None:
            self.usage.lives(host, life.daemon.shared.slot_manager)

    def _make(self, life: Life) -> Daemon:
        subsystem, _, name = life.name.partition(".")
        knobs = dict(CONFIG)
        if subsystem in ("had", "negotiator"):
            knobs["HAD_LIST"] = ", ".join(f"cm{number}" for number in range(1, MANAGERS + 1))
        if subsystem == "defrag":
            knobs |= DEFRAG
        if subsystem == "gateway":
            knobs |= GATEWAY | {"ROOST_TOKEN_FILE": str(self.directory / life.name / "token")}
        if name == "ep3":
            knobs |= {"NUM_SLOTS_TYPE_1": "2", "SLOT_TYPE_1": "cpus=1", "SLOT_TYPE_1_PARTITIONABLE": "false"}
        if subsystem == "startd":
            host = self.hosts[name].hardware.detected
            knobs |= {"NUM_CPUS": str(host.cpus), "MEMORY": str(host.memory_mib), "DISK": "10000000"}
        directory = self.directory / life.name
        knobs |= {"SPOOL": str(directory / "spool"), "EXECUTE": str(directory / "execute")}
        context = Context(
            name=name,
            config=_config(subsystem.upper(), tuple(sorted(knobs.items()))),
            bus=life.bus,
            store=life.store,
            spool=directory / "spool",
            execute=directory / "execute",
            log=Log(self, life.name),
            clock=life.clock,
            new_id=self.new_id,
        )
        context.reread = lambda: context.config
        context.spool.mkdir(parents=True, exist_ok=True)
        context.execute.mkdir(parents=True, exist_ok=True)
        if subsystem == "startd":
            return SimulatedStartd(context, self.hosts[name], lambda: life.name in self.full)
        kinds: dict[str, Any] = {
            "collector": Collector,
            "negotiator": Negotiator,
            "had": Had,
            "schedd": SimulatedSchedd,
            "journal": SimulatedJournal,
            "defrag": Defrag,
            "gateway": self.gateways,
        }
        daemon: Daemon = kinds[subsystem](context)
        if isinstance(daemon, SimulatedSchedd | SimulatedJournal):
            daemon.full = lambda: life.name in self.full
        if isinstance(daemon, SimulatedSchedd):
            daemon.serves_files = self.files
        return daemon

    def broken(self, what: str) -> None:
        self.errors.append(f"{self.time():.3f} {what}")

    def _is_full(self, name: str) -> bool:
        return name in self.full

    def new_id(self) -> str:
        self._ids += 1
        return f"sim-{self._ids}"

    # -- time

    @staticmethod
    def time() -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return START + self.time()

    def unrecorded(self, name: str) -> list[str]:
        """What the journal has not, or twice."""
        store = self.lives[name].daemon.store
        with store.engine().connect() as connection:
            found = Counter(connection.scalars(sa.select(EVENTS.c.id)))
        lacks = [kind for event, kind in self.for_journal.items() if not found[event]]
        twice = [event for event, times in found.items() if times > 1]
        wrong = [f"{name} lacks {len(lacks)} of {len(self.for_journal)} events: {lacks[:5]}"] if lacks else []
        return [*wrong, *(f"{name} has {event} twice" for event in twice)]

    # -- what is watched

    def note(self, what: str) -> None:
        self.faults.append((self.time(), what))

    def orders_whole(self, schedd: str) -> None:
        """This schedd is about to be told something of a whole cluster."""
        if self.next_order is not None and not self.next_order.done():
            self.next_order.set_result(schedd)

    def leave(self, name: str, until: float, *, since: float | None = None) -> None:
        """This daemon is dead, frozen or cut off from `since` (now) until then."""
        self.away.append((name, self.time() if since is None else since, until))

    def _route(self, item: Item) -> Fate:
        body = item.body
        told = f"{self.time():.6f} {item.sender} {item.queue} {body.type} {len(item.data)}"
        self.trace = zlib.crc32(told.encode(), self.trace)
        if isinstance(body, Matches) and item.sender in self.lives:  # others' are refused
            known = self.senders.setdefault(body.epoch, item.sender)
            if known != item.sender:
                self.violations.append(f"epoch {body.epoch} was given to {known} and to {item.sender}")
        fate = self.weather.fate()
        if self.whole and item.exchange:
            if not item.sender.startswith("gateway"):  # whose statements are good for once
                self.said.append(item)
            if item.queue == QUEUE and fate.delays and item.sender in self.lives:
                self.for_journal[Envelope.unpack(item.data).id] = body.type
        if item.caller is not None and not item.exchange:
            life = item.caller.bus.life if isinstance(item.caller.bus, Bus) else None
            if life is not None and life.not_before > self.time():  # the answer waits until it is thawed
                fate = delay(life.not_before - self.time() + 0.001)
        return fate

    def _told(self, process: Process) -> None:
        """A process began, or ended."""
        now = self.time()
        if not process.alive:
            if process.lease_over and self.long_leases is not None:
                self.long_leases.passed(process)
            return
        if self.long_leases is not None:
            self.long_leases.began(process)
        if process.trouble:
            self.violations.append(f"{now:.3f}: {process.job} began on {process.host} {process.trouble}")
        for other in self.processes:
            if not other.alive:
                if other.runs == process.runs and self._all_done(other, now):
                    self.violations.append(
                        f"{now:.3f}: {process.runs} begins again, though it ended at {other.ended:.3f}"
                    )
                continue
            if other.host == process.host and other.slot == process.slot:
                self.violations.append(
                    f"{now:.3f}: {process.slot}@{process.host} runs {other.job} and {process.job} at once"
                )
            if other.job == process.job and other.attempt != process.attempt:
                self.violations.append(
                    f"{now:.3f}: {process.runs} begins on {process.host} while {other.runs} of run {other.attempt} is"
                    f" on {other.host}"
                )
            if other.runs == process.runs:  # what keeps the other would have ended it with its lease (LEA-09)
                self.violations.append(
                    f"{now:.3f}: {process.runs} runs on {other.host} since {other.began:.3f} and on {process.host}"
                )
        self.processes.append(process)
        used = sum(one.cpus for one in self.processes if one.alive and one.host == process.host)
        if used > self.hosts[process.host].hardware.detected.cpus:
            self.violations.append(f"{now:.3f}: {process.host} gave {used} cores away")

    def _all_done(self, process: Process, now: float) -> bool:
        """Whether this run, and those on all other nodes of its job, came to their own end."""
        together = [one for one in self.processes if (one.job, one.attempt) == (process.job, process.attempt)]
        return all(self._done(one, now) for one in together)

    def ran_together(self, job: str, nodes: int) -> bool:
        """Whether in one run of a parallel job all of its nodes began."""
        runs: dict[int, set[int]] = defaultdict(set)
        for process in self.processes:
            if process.job == job:
                runs[process.attempt].add(process.node)
        return set(range(nodes)) in runs.values()

    def _done(self, process: Process, now: float) -> bool:
        """Whether this run came to its own end, and nothing kept its startd from telling for as long as a lease."""
        if process.lost or process.asked or process.ended is None:
            return False
        if self.asked.get(process.job, -math.inf) > process.began:  # a hold that came before its end was told stands
            return False
        since = process.ended - LEASE_S
        away: dict[str, float] = defaultdict(float)
        for name, begun, over in self.away:
            if name.split(".")[0] in ("startd", "schedd"):
                away[name] += max(0.0, min(over, now) - max(begun, since))
        return max(away.values(), default=0.0) < LEASE_S / 2 and self.weather.bad_until < since


class Log:
    """Keeps what daemons say of their own mistakes; everything else is quiet unless `World.loud`."""

    OURS = ("task_failed", "schedd_task_failed", "run_failed", "cron_job_failed", "bus.poison")

    def __init__(self, world: World, name: str, **fields: object) -> None:
        self._world = world
        self._name = name
        self._fields = fields

    def bind(self, **fields: object) -> Log:
        return Log(self._world, self._name, **self._fields, **fields)

    def _say(self, level: str, event: str, *args: object, **fields: object) -> None:
        if event in self.OURS or level == "exception":
            self._world.errors.append(f"{self._world.time():.3f} {self._name}: {event} {fields}")
        if event == "lease_expired" and self._world.long_leases is not None:
            self._world.long_leases.expired(str(fields["slot"]))
        if self._world.loud:
            print(f"{self._world.time():9.3f} {self._name:14} {event} {self._fields | fields}")

    def debug(self, event: str, *args: object, **fields: object) -> None: ...

    def info(self, event: str, *args: object, **fields: object) -> None:
        self._say("info", event, *args, **fields)

    def warning(self, event: str, *args: object, **fields: object) -> None:
        self._say("warning", event, *args, **fields)

    def error(self, event: str, *args: object, **fields: object) -> None:
        self._say("error", event, *args, **fields)

    def exception(self, event: str, *args: object, **fields: object) -> None:
        import sys

        self._say("exception", event, *args, error=repr(sys.exc_info()[1]), **fields)
