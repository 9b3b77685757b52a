"""Users: they submit jobs until they are told that it is done, and change their minds about some."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from shared.classad import ClassAd
from shared.errors import RoostError
from shared.messages.queue import Acted, ActOnJobs, QueryJobs, SubmitJobs, Submitted
from tests.simulation import gateway
from tests.simulation.long_leases import LONG_S
from tests.simulation.world import ACCESS_POINTS, LEASE_S, World

Action = Literal["remove", "hold", "release", "vacate"]
#: Jobs are submitted in the first so many seconds.
SUBMITTING_S = 40.0
USERS = ["alice", "bob"]
Answer = TypeVar("Answer")


@dataclass(slots=True)
class Job:
    name: str  # SIM_ID
    schedd: str
    exit_code: int
    lasts_s: float
    id: str = ""  # cluster.proc, once the submit was answered
    removed: bool = False  # somebody was told that it is
    logged: bool = False  # in a user's log
    files: Path | None = None  # where its output is brought to
    nodes: int = 0  # of a parallel job
    late: bool = False  # made by a factory: not there if its cluster was removed before


class Users:
    def __init__(self, world: World, chance: random.Random, clusters: int) -> None:
        self.world = world
        self.logs = world.directory / "logs"
        self.jobs: dict[str, Job] = {}
        self.refusal = ""  # the last one
        self._chance = chance
        self._clusters = clusters
        self._asking = random.Random(chance.random()) if world.gateways is not None else chance  # of gateways

    async def work(self) -> None:
        """Returns when everything was submitted."""
        if self.world.gateways is not None:
            await gateway.give_tokens(self.world, USERS)
        await asyncio.gather(*(self._cluster(number) for number in range(self._clusters)))

    async def _cluster(self, number: int) -> None:
        chance = random.Random(self._chance.random())
        await asyncio.sleep(chance.uniform(0.0, SUBMITTING_S))
        schedd = f"schedd.ap{chance.randint(1, ACCESS_POINTS)}"
        jobs = [
            Job(f"job{number}.{n}", schedd, chance.choice([0, 0, 0, 3]), chance.choice([0.5, 3.0, 10.0, 25.0]))
            for n in range(chance.choice([2, 5, 8, 12] if self.world.grouped else [1, 1, 2, 5]))
        ]
        user = chance.choice(USERS)
        whole = False
        cluster_ad = _cluster_ad(chance)
        environment = ""
        if self.world.long_leases is not None and chance.random() < 0.5:
            cluster_ad["JobLeaseDuration"], environment = LONG_S, " SIM_LONG_LEASE=1"
        if self.world.wider:
            whole = self._widen(number, chance, cluster_ad, jobs)
        files = self._give_files(number, chance, cluster_ad, jobs) if self.world.files else ""
        if self.world.parallel and not files and chance.random() < 0.6:
            _make_parallel(chance, cluster_ad, jobs)
        submit = SubmitJobs(
            user=f"{user}@pool",
            submit_id=f"submit{number}",
            cluster_ad=cluster_ad.pack(),
            procs=[_proc_ad(job, environment + files).pack() for job in jobs],
        )
        answer = await self._until_answered(schedd, user, submit)
        assert isinstance(answer, Submitted)
        for n, job in enumerate(jobs):
            job.id = f"{answer.cluster}.{answer.first_proc + n}"
            self.jobs[job.name] = job
        looking = [job for job in jobs[:1] if self.world.gateways is not None and not job.late]
        await asyncio.gather(self._change_mind(chance, user, jobs, whole), *(self._look(user, job) for job in looking))

    async def _change_mind(self, chance: random.Random, user: str, jobs: list[Job], whole: bool) -> None:
        schedd = jobs[0].schedd
        whim = chance.random()
        if whim < 0.45:
            await asyncio.sleep(chance.uniform(0.0, 15.0))
            job = chance.choice(jobs)
            if whole:
                await self._act_on_all(schedd, user, jobs, whim)
            elif whim < 0.2:
                # not-found: an answer before this one was lost, or it had ended by itself.
                job.removed = await self._act(schedd, user, job.id, "remove") in ("done", "already", "not-found")
            elif whim < 0.25:
                self._ask([job])
                await self._act(schedd, user, job.id, "vacate")
                self._ask([job])
            else:
                self._ask([job])
                await self._act(schedd, user, job.id, "hold")
                self._ask([job])
                await asyncio.sleep(chance.uniform(0.0, 5.0))
                await self._act(schedd, user, job.id, "release")

    def _ask(self, jobs: list[Job]) -> None:
        self.world.asked.update(dict.fromkeys((job.name for job in jobs), self.world.time()))

    def _widen(self, number: int, chance: random.Random, ad: ClassAd, jobs: list[Job]) -> bool:
        """Some have a log, which clusters may share; some have a factory. Whether whims are about the whole cluster."""
        log, factory, more = chance.random(), chance.random(), chance.choice([0, 3, 7])
        if log < 0.6:
            self.logs.mkdir(exist_ok=True)
            ad["UserLog"] = str(self.logs / f"{jobs[0].schedd}.{number % 3 if log < 0.3 else number}.log")
        if factory < 0.4:
            ad["JobMaterializeLimit"] = chance.choice([1, 2, 4])
            if factory < 0.2:
                ad["JobMaterializeMaxIdle"] = chance.choice([1, 2])
            for n in range(len(jobs), len(jobs) + more):
                lasts = chance.choice([0.5, 3.0, 10.0])
                jobs.append(Job(f"job{number}.{n}", jobs[0].schedd, chance.choice([0, 0, 0, 3]), lasts))
        for job in jobs:
            job.logged, job.late = log < 0.6, factory < 0.4
        return chance.random() < (0.8 if self.world.grouped else 0.4)

    def _give_files(self, number: int, chance: random.Random, ad: ClassAd, jobs: list[Job]) -> str:
        """Half of the clusters take a file along, and bring one back. Returns what their environment has besides."""
        if chance.random() < 0.5:
            return ""
        folder = self.world.directory / "files" / str(number)
        folder.mkdir(parents=True)
        content = f"{number}\n".encode() * chance.choice([1, 1000, 100_000])
        (folder / "input").write_bytes(content)
        ad.update(
            {
                "Iwd": str(folder),
                "ShouldTransferFiles": "YES",
                "WhenToTransferOutput": "ON_EXIT",
                "TransferExecutable": False,
                "TransferInput": "input",
            }
        )
        for job in jobs:
            job.files = folder
        return f" SIM_INPUT={zlib.crc32(content)}"

    async def _act_on_all(self, schedd: str, user: str, jobs: list[Job], whim: float) -> None:
        cluster = jobs[0].id.partition(".")[0]
        self.world.orders_whole(schedd)
        if whim < 0.2:
            await self._act(schedd, user, cluster, "remove")
            for job in jobs:
                job.removed = True
        else:
            self._ask(jobs)
            await self._act(schedd, user, cluster, "hold")
            self._ask(jobs)
            await asyncio.sleep(self._chance.uniform(0.0, 5.0))
            self.world.orders_whole(schedd)
            await self._act(schedd, user, cluster, "release")

    async def _act(self, schedd: str, user: str, which: str, action: Action) -> str:
        act = ActOnJobs(user=f"{user}@pool", action=action, ids=[which], reason="changed my mind")
        acted = await self._until_answered(schedd, user, act)
        assert isinstance(acted, Acted)
        return acted.results.get(which, "")

    async def _look(self, user: str, job: Job) -> None:
        """Who was told that his job is taken finds it whenever he asks: in the queue, or where it went from there."""
        for _ in range(3):
            await asyncio.sleep(self._asking.uniform(0.0, 12.0))
            asked, found = self.world.time(), 0
            for history in (False, True):
                asking = partial(gateway.known, self.world, self._asking, user, job.schedd, job.id, history=history)
                found += await self._again(asking)
            if not found:
                self.world.violations.append(
                    f"{self.world.time():.3f}: {job.name} ({job.schedd} {job.id}) was asked for since {asked:.3f}, and"
                    " neither the queue nor the history had it"
                )

    async def _until_answered(self, schedd: str, user: str, message: SubmitJobs | ActOnJobs) -> object:
        if self.world.gateways is not None:
            return await self._again(partial(gateway.ask, self.world, self._asking, user, schedd, message))
        return await self._again(partial(self.world.user.call, schedd, message, timeout=10.0))

    async def _again(self, ask: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        while True:
            try:
                return await ask()
            except RoostError as error:
                self.refusal = str(error)
                await asyncio.sleep(1.0)

    async def unknown(self) -> list[str]:
        """Jobs that nobody submitted, or that are there twice."""
        found: list[str] = []
        for name in sorted(name for name in self.world.lives if name.startswith("schedd")):
            there: Counter[str] = Counter()
            for history in (False, True):
                page = await self.world.user.call(name, QueryJobs(history=history, limit=1000), timeout=10.0)
                assert not page.next
                ads = [ClassAd.unpack(ad) for ad in page.ads]
                there.update(f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}" for ad in ads)
            known = {job.id for job in self.jobs.values() if job.schedd == name}
            found += [f"{name} has {job} {n} times" for job, n in there.items() if n > 1 or job not in known]
        return found

    async def ad_of(self, job: Job) -> list[ClassAd]:
        """In the queue and out of it: there should be one."""
        found = []
        for history in (False, True):
            page = await self.world.user.call(job.schedd, QueryJobs(ids=[job.id], history=history), timeout=10.0)
            found += [ClassAd.unpack(ad) for ad in page.ads]
        return found


def _cluster_ad(chance: random.Random) -> ClassAd:
    return ClassAd(
        {
            "Cmd": "/bin/true",
            "Iwd": "/tmp",
            "JobUniverse": 5,
            "ShouldTransferFiles": "NO",
            "RequestCpus": chance.choice([1, 1, 1, 2]),
            "RequestMemory": 128,
            "RequestDisk": 1024,
            "JobLeaseDuration": LEASE_S,
            "Urgent": chance.random() < 0.15,  # which machines prefer to what they run
        }
    )


def _make_parallel(chance: random.Random, ad: ClassAd, jobs: list[Job]) -> None:
    """The first job needs several machines; the others are none."""
    del jobs[1:]
    jobs[0].nodes, jobs[0].late = chance.choice([2, 3, 4, 6]), False
    for name in ("JobMaterializeLimit", "JobMaterializeMaxIdle"):
        if name in ad:
            del ad[name]
    ad.update({"JobUniverse": 11, "MinHosts": jobs[0].nodes, "MaxHosts": jobs[0].nodes, "RequestCpus": 1})
    if chance.random() < 0.5:
        ad["ParallelShutdownPolicy"] = "WAIT_FOR_ALL"


def _proc_ad(job: Job, more: str) -> ClassAd:
    return ClassAd({"Environment": f"SIM_ID={job.name} SIM_LASTS={job.lasts_s} SIM_EXIT={job.exit_code}{more}"})
