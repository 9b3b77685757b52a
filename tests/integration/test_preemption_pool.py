"""Preemption with a real schedd, a real startd and real jobs, in one process and as processes on real servers, which
are killed in the middle. The negotiator is played by hand: it knows what the bus tells a negotiator, and no more."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import pytest

from services.schedd.daemon import Schedd
from services.startd.daemon import Startd
from shared.bus import connect
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.ad_table import AdTable
from shared.daemon.lifecycle import run_daemon
from shared.messages.ads import PrivateAds, SendAds
from shared.messages.negotiation import GetRequests, Match, Matches
from shared.messages.queue import QueryJobs, SubmitJobs
from tests.daemons import make_context
from tests.integration.test_startd_crash import StartdProcess
from tests.processes import DaemonProcess
from tests.speakers import Speakers
from tests.spec import spec
from tests.startd_pool import Machine, end_fork_server
from tests.waiting import eventually

#: Says that it began, leaves when it is asked to, and ends well when its file is there.
JOB = """#!/bin/sh
trap 'echo "$1 leaves" >> log; exit 3' TERM
echo "$1 begins" >> log
while [ ! -e "$1.go" ]; do sleep 0.02; done
echo "$1 is done" >> log
"""
#: W-51: members of the group count 1, jones 1, garrison 10, others 0.
BASS = '(TARGET.Owner == "coltrane") * 1 + (TARGET.Owner == "jones") * 1 + (TARGET.Owner == "garrison") * 10'
SLOT = "slot1@ep"
STATIC = {"NUM_CPUS": 2, "MEMORY": 2048, "DISK": 1000000, "NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "100%"}
DAEMONS = {StartdProcess: ("startd", "ep"), DaemonProcess: ("schedd", "ap")}
COMMON = {
    "ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1",
    "ROOST_DOCKER": "false",
    "ROOST_SCHEDD_FILE_USERS": "alice, bob, jones, garrison, outsider, user0, user1, user2, user3",
}
PARTITIONABLE = {"NUM_CPUS": 8, "MEMORY": 8192, "DISK": 10000000}


class Negotiator:
    """By hand."""

    def __init__(self, bus, speakers, directory):
        self.bus = bus
        self.speakers = speakers
        self.directory = directory
        self.claims = {}
        self.table = AdTable(900.0)
        self._numbers = itertools.count(1)
        (directory / "job").write_text(JOB)
        (directory / "job").chmod(0o755)

    async def start(self):
        await self.bus.start()
        await self.bus.listen(Exchange.ADS, ["*.Machine.#"], self._on_ads)
        await self.bus.listen(Exchange.PRIVATE, ["#"], self._on_private)

    async def _on_ads(self, envelope):
        self.table.apply(envelope.body, 0.0)

    async def _on_private(self, envelope):
        if isinstance(envelope.body, PrivateAds):
            self.claims = envelope.body.claims

    async def look(self):
        """Hear of all slots anew: after a startd has begun another life."""
        await self.speakers.call("startd.ep", SendAds(my_type="Machine"), timeout=60)

    def ad(self, slot=SLOT):
        row = self.table.row("Machine", "startd@ep", slot)
        return ClassAd.unpack(row.packed()) if row is not None else ClassAd()

    def state(self, slot=SLOT):
        return f"{self.ad(slot).eval('State')}/{self.ad(slot).eval('Activity')}"

    async def submit(self, owner, **attributes):
        """A job of `owner`; gives its id."""
        number = next(self._numbers)
        ad = ClassAd(
            {
                "Cmd": str(self.directory / "job"),
                "Arguments": f"{owner}{number}",
                "Iwd": str(self.directory),
                "ShouldTransferFiles": "NO",
                "RequestCpus": 1,
                "RequestMemory": 16,
                "RequestDisk": 1024,
                "JobLeaseDuration": 2400,
            }
            | attributes
        )
        asked = SubmitJobs(user=f"{owner}@pool", submit_id=f"s{number}", cluster_ad=ad.pack(), procs=[ClassAd().pack()])
        return f"{(await self.speakers.call('schedd.ap', asked, timeout=60)).cluster}.0"

    async def match(self, owner, slot=SLOT, preempts=()):
        """Give the owner's first request this slot, as it is offered now."""
        name = f"{owner}@pool"
        asked = GetRequests(negotiator="n", epoch=1, cycle=1, submitters=[name])
        requests = (await self.speakers.call("schedd.ap", asked, timeout=60)).requests[name]
        await eventually(lambda: {slot, *preempts} <= self.claims.keys() and self.ad(slot), what="the slots' claim ids")
        match = Match(
            submitter=name,
            autocluster=requests[0].autocluster,
            slot=slot,
            startd="startd.ep",
            claim_id=self.claims[slot],
            slot_ad=self.ad(slot).pack(),
            preempts=list(preempts),
            preempt_claims=[self.claims[one] for one in preempts],
        )
        taken = await self.speakers.call(
            "schedd.ap", Matches(negotiator="n", epoch=1, cycle=1, matches=[match]), timeout=60, epoch=1
        )
        assert taken.begun == [1]

    async def see_through(self, owner, job_id):
        """Match an idle job until it runs, as every cycle does: a claim id may be out of date. Gives its end."""

        async def runs():
            if (await self.job(job_id))["JobStatus"] != 1:
                return True
            asked = GetRequests(negotiator="n", epoch=1, cycle=1, submitters=[f"{owner}@pool"])
            if (await self.speakers.call("schedd.ap", asked, timeout=60)).requests:
                await self.match(owner)
            return False

        await eventually(lambda: self.state() == "Unclaimed/Idle", what="the slot is free")
        await eventually(runs, what=f"a run of job {job_id}")
        return await self.until(job_id, 4)

    async def job(self, job_id):
        """As the queue has it, or the history; on its way from one to the other it is in neither for a moment."""
        found = []

        async def there():
            for history in (False, True):
                page = await self.speakers.call("schedd.ap", QueryJobs(ids=[job_id], history=history), timeout=60)
                found.extend(ClassAd.unpack(ad) for ad in page.ads)
            return found

        await eventually(there, what=f"job {job_id}")
        return found[-1]

    async def until(self, job_id, status):
        async def there():
            return (await self.job(job_id))["JobStatus"] == status

        await eventually(there, what=f"job {job_id} in state {status}")
        return await self.job(job_id)

    def log(self):
        """What the jobs said, in order."""
        path = self.directory / "log"
        return path.read_text().splitlines() if path.exists() else []

    async def says(self, line):
        await eventually(lambda: line in self.log(), what=line)

    def go(self, name):
        (self.directory / f"{name}.go").touch()


@asynccontextmanager
async def embedded(directory, **knobs):
    """Both daemons in this process; the test kills nobody."""
    config = COMMON | knobs
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="negotiator.n")
    negotiator = Negotiator(bus, Speakers.on_hub(hub), directory)
    await negotiator.start()
    lives = []
    for subsystem, name in (("STARTD", "ep"), ("SCHEDD", "ap")):
        context = make_context(subsystem, name, hub=hub, config=config, directory=directory)
        await context.bus.start()
        daemon = Startd(context, Machine()) if subsystem == "STARTD" else Schedd(context)
        started = asyncio.Event()
        lives.append((context, asyncio.ensure_future(run_daemon(daemon, drain_s=5, started=started.set))))
        await asyncio.wait_for(started.wait(), 60)
    try:
        yield negotiator
    finally:
        for context, life in lives:
            context.stopping.set()
            await life
            await context.bus.stop()
        await negotiator.speakers.stop()
        await bus.stop()
        for socket in directory.rglob(".starter-*/socket"):
            await end_fork_server(socket.parent)


class Processes:
    """Both daemons as processes."""

    def __init__(self, startd, schedd):
        self.startd, self.schedd = startd, schedd

    async def kill(self, which):
        """SIGKILL, and a new life."""
        process = getattr(self, which)
        await asyncio.to_thread(process.crash if which == "startd" else process.kill)
        await asyncio.to_thread(process.start)


@asynccontextmanager
async def on_servers(directory, amqp_url, redis_url, **knobs):
    config = COMMON | knobs
    options = {"amqp_url": amqp_url, "redis_url": redis_url, "config": config}
    pool = Processes(
        StartdProcess("startd", "ep", directory, **options), DaemonProcess("schedd", "ap", directory, **options)
    )
    negotiator = Negotiator(connect(amqp_url, sender="negotiator.n"), Speakers.on_broker(amqp_url), directory)
    await negotiator.start()
    try:
        await asyncio.gather(asyncio.to_thread(pool.startd.start), asyncio.to_thread(pool.schedd.start))
        yield negotiator, pool
    finally:
        await asyncio.to_thread(pool.schedd.close)
        await asyncio.to_thread(pool.startd.close)
        await negotiator.speakers.stop()
        await negotiator.bus.stop()
        for socket in directory.rglob(".starter-*/socket"):
            await end_fork_server(socket.parent)


async def jones_garrison_and_an_outsider(pool):
    """W-51 by RANK: each is preempted by whom bass likes better, nobody is lost, and all end well."""
    outsider = await pool.submit("outsider")
    await pool.match("outsider")
    await pool.says("outsider1 begins")
    jones = await pool.submit("jones")
    await eventually(lambda: pool.ad().eval("RemoteUser") == "outsider@pool", what="the slot's ad")
    await pool.match("jones")
    await pool.says("jones2 begins")
    garrison = await pool.submit("garrison")
    await eventually(lambda: pool.ad().eval("CurrentRank") == 1.0, what="the slot's ad")
    await pool.match("garrison")
    await pool.says("garrison3 begins")
    assert pool.log() == [
        "outsider1 begins",
        "outsider1 leaves",
        "jones2 begins",
        "jones2 leaves",
        "garrison3 begins",
    ]
    left = await pool.job(outsider)
    assert (left["JobStatus"], left["NumJobStarts"], left["VacateReasonCode"]) == (1, 1, 1018)
    assert "RANK" in left["VacateReason"]
    # Not the reverse: a claim of jones is refused, and his job goes on waiting.
    await eventually(lambda: pool.ad().eval("CurrentRank") == 10.0, what="the slot's ad")
    await pool.match("jones")

    async def offered():
        asked = GetRequests(negotiator="n", epoch=1, cycle=1, submitters=["jones@pool"])
        return "jones@pool" in (await pool.speakers.call("schedd.ap", asked, timeout=60)).requests

    await eventually(offered, what="jones is offered again")
    assert pool.log()[-1] == "garrison3 begins"
    for name in ("garrison3", "jones2", "outsider1"):
        pool.go(name)
    await pool.until(garrison, 4)
    for owner, job_id in (("jones", jones), ("outsider", outsider)):
        ended = await pool.see_through(owner, job_id)
        assert (ended["ExitCode"], ended["NumJobStarts"], ended["NumShadowStarts"]) == (0, 2, 2)


@spec("W-51")
async def test_jones_garrison_and_an_outsider(tmp_path):
    async with embedded(tmp_path, RANK=BASS, **STATIC) as pool:
        await jones_garrison_and_an_outsider(pool)


@spec("W-51")
@pytest.mark.servers
async def test_jones_garrison_and_an_outsider_on_real_servers(tmp_path, amqp_url, redis_url):
    async with on_servers(tmp_path, amqp_url, redis_url, RANK=BASS, **STATIC) as (pool, _):
        await jones_garrison_and_an_outsider(pool)


@spec("PRE-02")
async def test_a_user_of_better_priority_gets_the_slot_when_retirement_is_over(tmp_path):
    """The negotiator decides by priority; RANK is the same for both. The job keeps the time it was promised."""
    knobs = STATIC | {"MAXJOBRETIREMENTTIME": "4", "MachineMaxVacateTime": "1"}
    async with embedded(tmp_path, **knobs) as pool:
        first = await pool.submit("alice")
        await pool.match("alice")
        await pool.says("alice1 begins")
        second = await pool.submit("bob")
        await eventually(lambda: pool.ad().eval("RemoteUser") == "alice@pool", what="the slot's ad")
        await pool.match("bob")
        await eventually(lambda: pool.ad().eval("PreemptingUser") == "bob@pool", what="who waits, in the slot's ad")
        assert pool.state() == "Claimed/Retiring"
        assert (await pool.job(second))["JobStatus"] == 1
        await pool.says("bob2 begins")
        assert pool.log() == ["alice1 begins", "alice1 leaves", "bob2 begins"]
        left = await pool.job(first)
        assert (left["JobStatus"], left["VacateReasonCode"]) == (1, 1019)
        pool.go("bob2")
        await pool.until(second, 4)


async def test_a_job_that_ends_in_its_retirement_loses_nothing(tmp_path):
    async with embedded(tmp_path, MAXJOBRETIREMENTTIME="3600", **STATIC) as pool:
        first = await pool.submit("alice")
        further = await pool.submit("alice")
        await pool.match("alice")
        await pool.says("alice1 begins")
        second = await pool.submit("bob")
        await eventually(lambda: pool.ad().eval("RemoteUser") == "alice@pool", what="the slot's ad")
        await pool.match("bob")
        await eventually(lambda: pool.state() == "Claimed/Retiring", what="retirement")
        for name in ("alice1", "alice2", "bob3"):
            pool.go(name)
        assert (await pool.until(first, 4))["ExitCode"] == 0
        assert (await pool.until(second, 4))["ExitCode"] == 0
        # Her second job was not handed a claim that went to somebody else.
        waits = await pool.job(further)
        assert (waits["JobStatus"], waits["NumJobStarts"], "NumShadowExceptions" in waits) == (1, 0, False)


@spec("W-47")
async def test_room_is_made_on_a_partitionable_slot(tmp_path):
    """8 cpus in four dynamic slots, liked 3, 1, 2 and 0; one of 4 cpus, liked 5, makes those of 0 and 1 go."""
    async with embedded(tmp_path, RANK="TARGET.Liked ?: 0", **PARTITIONABLE) as pool:
        jobs = {}
        for number, liked in enumerate((3, 1, 2, 0), 1):
            jobs[liked] = await pool.submit(f"user{liked}", RequestCpus=2, Liked=liked)
            await pool.match(f"user{liked}")
            await pool.says(f"user{liked}{number} begins")
        big = await pool.submit("bob", RequestCpus=4, Liked=5)
        await eventually(lambda: pool.ad().eval("Cpus") == 0 and len(pool.claims) == 5, what="the slots' ads")
        ranks = {name: pool.ad(name).eval("CurrentRank") for name in pool.claims if name != SLOT}
        least = sorted(ranks, key=lambda name: ranks[name])[:2]
        await pool.match("bob", preempts=least)
        await pool.says("bob5 begins")
        assert {line for line in pool.log() if "leaves" in line} == {"user04 leaves", "user12 leaves"}
        for liked, status in ((3, 2), (1, 1), (2, 2), (0, 1)):
            assert (await pool.job(jobs[liked]))["JobStatus"] == status
        assert (await pool.job(big))["JobStatus"] == 2
        for name in ("user31", "user23", "bob5"):
            pool.go(name)
        await pool.until(big, 4)
        await eventually(lambda: pool.ad().eval("Cpus") == 8, what="all resources are back")


SIBLING = "tests/integration/test_preemption_pool.py::test_who_is_killed_in_the_middle_loses_no_job_and_runs_no_two"
DEAR = pytest.mark.dear(held_by=SIBLING)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("when", "killed"),
    [
        ("retiring", "schedd"),
        pytest.param("retiring", "both", marks=DEAR),
        ("vacating", "startd"),
        pytest.param("vacating", "both", marks=DEAR),
    ],
)
async def test_who_is_killed_in_the_middle_loses_no_job_and_runs_no_two(tmp_path, amqp_url, redis_url, killed, when):
    """kill -9 while a job retires, or while it is asked to leave and does not: afterwards both jobs run to their end,
    never at the same time."""
    knobs = STATIC | {"MachineMaxVacateTime": "6" if when == "vacating" else "1"}
    knobs["MAXJOBRETIREMENTTIME"] = "10" if when == "retiring" else "0"
    async with on_servers(tmp_path, amqp_url, redis_url, **knobs) as (pool, processes):
        if when == "vacating":
            (tmp_path / "job").write_text(JOB.replace("; exit 3", ""))
        first = await pool.submit("alice")
        await pool.match("alice")
        await pool.says("alice1 begins")
        second = await pool.submit("bob")
        await eventually(lambda: pool.ad().eval("RemoteUser") == "alice@pool", what="the slot's ad")
        await pool.match("bob")
        state = {"retiring": "Claimed/Retiring", "vacating": "Preempting/Vacating"}[when]
        await eventually(lambda: pool.state() == state, what=state)
        for which in ("startd", "schedd"):
            if killed in (which, "both"):
                await processes.kill(which)
        await pool.says("bob2 begins")
        begun = pool.log()
        assert [line for line in begun if "begins" in line] == ["alice1 begins", "bob2 begins"]
        assert not [line for line in begun[begun.index("bob2 begins") :] if line.startswith("alice")]
        left = await pool.until(first, 1)
        assert (left["NumJobStarts"], left["NumShadowStarts"]) == (1, 1)
        pool.go("bob2")
        pool.go("alice1")
        ended = await pool.until(second, 4)
        assert (ended["ExitCode"], ended["NumShadowStarts"]) == (0, 1)
        await pool.look()
        ended = await pool.see_through("alice", first)
        assert (ended["ExitCode"], ended["NumShadowStarts"]) == (0, 2)
