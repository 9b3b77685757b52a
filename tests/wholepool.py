"""All daemons of a pool in this process, on one hub and one store: real jobs, and doors for anybody's messages."""

import asyncio
import contextlib
import getpass
import itertools
from pathlib import Path

from services.collector.daemon import Collector
from services.had.daemon import Had
from services.journal.daemon import Journal
from services.negotiator.daemon import Negotiator
from services.schedd.daemon import Schedd
from services.startd.daemon import Startd
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.lifecycle import run_daemon
from shared.messages.queue import QueryJobs, SubmitJobs
from shared.state.embedded import EmbeddedStore
from tests.consistency import queue_faults, slot_faults
from tests.daemons import make_context
from tests.speakers import sender_of
from tests.startd_pool import Machine
from tests.waiting import eventually

USER = f"{getpass.getuser()}@pool"
CONFIG = {
    "ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1",
    "ROOST_STARTD_DOCKER": "false",
    "PERIODIC_EXPR_INTERVAL": "1",
    "NEGOTIATOR_CYCLE_DELAY": "0",
    "NEGOTIATOR_MIN_INTERVAL": "0",
}
KINDS = {
    "collector": Collector,
    "had": Had,
    "negotiator": Negotiator,
    "schedd": Schedd,
    "startd": Startd,
    "journal": Journal,
}
#: In the order in which they start.
FIRST = (("collector", "cm"), ("negotiator", "cm"), ("had", "cm"), ("schedd", "ap"), ("startd", "ep"))
#: In the order in which they end, after all others.
LAST = ("had", "startd", "schedd", "negotiator", "collector")


class WholePool:
    """One of each daemon: collector.cm, had.cm, negotiator.cm, schedd.ap, startd.ep."""

    def __init__(self, directory: Path, cpus: int = 8, **config) -> None:
        self.directory = directory
        self.config = CONFIG | config
        self.cpus = cpus
        self.daemons = {}
        self.lives = {}
        self._buses = {}
        self._submits = itertools.count(1)

    async def __aenter__(self):
        self.hub = MemoryHub()
        self.store = EmbeddedStore()
        await self.store.start()
        for subsystem, name in FIRST:
            await self.begin(subsystem, name)
        # What a test changes in the books before they are read would be lost with them.
        await eventually(lambda: self.negotiator.leading() and not self.negotiator.ready(), what="a leader")
        return self

    async def __aexit__(self, *exc):
        for key in (*(key for key in self.daemons if key not in LAST), *LAST):
            await self.end(key)
        for bus in self._buses.values():
            await bus.stop()
        await self.store.stop()

    async def begin(self, subsystem: str, name: str, key: str = "", **config) -> None:
        """Start a daemon. A further one of its kind needs a key of its own; `config` goes before the pool's."""
        key = key or subsystem
        directory = self.directory if key == subsystem else self.directory / key
        context = make_context(
            subsystem.upper(), name, hub=self.hub, store=self.store, config=self.config | config, directory=directory
        )
        context.spool.mkdir(parents=True, exist_ok=True)
        await context.bus.start()
        daemon = Startd(context, Machine(cpus=self.cpus)) if subsystem == "startd" else KINDS[subsystem](context)
        started = asyncio.Event()
        life = asyncio.ensure_future(run_daemon(daemon, drain_s=5, started=started.set))
        waiting = asyncio.ensure_future(started.wait())
        await asyncio.wait((waiting, life), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if life.done():
            life.result()
        self.daemons[key], self.lives[key] = daemon, life

    async def end(self, key: str) -> None:
        daemon = self.daemons[key]
        context = daemon.context
        context.stopping.set()
        if isinstance(daemon, Startd):
            for run in list(daemon.shared.runs.by_key.values()):
                run.stop("killed", "remove", "the test is over", fast=True)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.lives[key], 30)
        await context.bus.stop()

    def __getattr__(self, name):
        if name in KINDS:
            return self.__dict__["daemons"][name]
        raise AttributeError(name)

    async def bus(self, sender: str) -> MemoryBus:
        """A connection of somebody who says to be `sender`."""
        if sender not in self._buses:
            self._buses[sender] = MemoryBus(self.hub, sender=sender)
            await self._buses[sender].start()
        return self._buses[sender]

    def dead(self) -> dict[str, str]:
        """Daemons that ended, and why."""
        return {
            name: repr(life.exception() if not life.cancelled() else "cancelled")
            for name, life in self.lives.items()
            if life.done()
        }

    async def call(self, inbox: str, message, timeout: float = 30.0, sender: str = ""):
        return await (await self.bus(sender or sender_of(message))).call(inbox, message, timeout=timeout)

    def job(self, cmd="/bin/true", **attributes) -> ClassAd:
        ad = ClassAd(
            {
                "Cmd": cmd,
                "Iwd": str(self.directory),
                "ShouldTransferFiles": "NO",
                "RequestCpus": 1,
                "RequestMemory": 16,
                "RequestDisk": 1024,
                "JobLeaseDuration": 2400,
            }
        )
        for name, value in attributes.items():
            if isinstance(value, str) and value.startswith("="):
                ad.set_text(name, value[1:])
            else:
                ad[name] = value
        return ad

    async def submit(self, ad: ClassAd, procs: int = 1, **more) -> int:
        options = {"user": USER, "submit_id": f"whole{next(self._submits)}", **more}
        answer = await self.call(
            "schedd.ap", SubmitJobs(cluster_ad=ad.pack(), procs=[ClassAd().pack()] * procs, **options)
        )
        return answer.cluster

    async def ads(self, job_id: str) -> list[ClassAd]:
        """In the queue, and gone from it."""
        found = []
        for history in (False, True):
            page = await self.call("schedd.ap", QueryJobs(ids=[job_id], history=history))
            found += [ClassAd.unpack(ad) for ad in page.ads]
        return found

    async def rests(self, cluster: int, procs: int = 1, timeout: float = 90.0) -> list[ClassAd]:
        """The cluster's ads, once all are completed, removed or held."""
        found = []

        async def at_rest():
            assert not self.dead(), self.dead()
            found[:] = [ad for ad in await self.ads(str(cluster)) if ad.eval("JobStatus") in (3, 4, 5)]
            return len(found) >= procs

        await eventually(at_rest, timeout, f"cluster {cluster} at rest")
        return found

    async def works(self, timeout: float = 90.0) -> None:
        """All daemons live, and an ordinary job runs to its end."""
        assert not self.dead(), self.dead()
        cluster = await self.submit(self.job())
        (ad,) = await self.rests(cluster, timeout=timeout)
        assert ad.eval("JobStatus") == 4, f"an ordinary job ended in state {ad.eval('JobStatus')}"
        assert not self.dead(), self.dead()

    def consistent(self) -> list[str]:
        """What does not add up in queue, slots and claims; empty when all does."""
        return queue_faults(self.schedd) + slot_faults(self.startd.shared.slot_manager)
