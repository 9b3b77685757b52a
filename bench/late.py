"""What late materialization saves a schedd: `python -m bench.late [--jobs N] [--limit M]`.

One cluster of N jobs, each with its own arguments, output and error, in SubmitJobs messages of 5000 jobs; first all of
them in the queue, then at most M. Each in a process of its own: from the first message to the last answer (wall and
processor time of both sides), memory that the process grew by, size of the queue's database, and the start of the next
schedd. Then jobs are removed 500 at a time until M have left, and others come in their place: processor time a job.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import getpass
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import structlog

from bench.schedd import job_ad
from services.schedd.daemon import Schedd
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import load_config
from shared.daemon.context import Context
from shared.daemon.lifecycle import run_daemon
from shared.messages.queue import ActOnJobs, SubmitJobs, Submitted
from shared.state.embedded import EmbeddedStore

USER = f"{getpass.getuser()}@pool"
PART = 5000
REMOVED = 500


def resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def database_mib(directory: Path) -> float:
    return sum(file.stat().st_size for file in directory.rglob("job_queue.db*")) / (1 << 20)


class Life:
    """One life of a schedd in this process."""

    def __init__(self, directory: Path, jobs: int) -> None:
        hub = MemoryHub()
        self.bus, self.client = MemoryBus(hub, sender="schedd.ap"), MemoryBus(hub, sender="gateway.b")
        limits = ("MAX_JOBS_PER_SUBMISSION", "MAX_JOBS_PER_OWNER", "ROOST_SCHEDD_LATE_JOBS_PER_OWNER")
        env = {
            "_CONDOR_UID_DOMAIN": "pool",
            "_CONDOR_ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1",
            **{f"_CONDOR_{name}": str(jobs) for name in limits},
        }
        self.context = Context(
            name="ap",
            config=load_config([], subsystem="SCHEDD", env=env),
            bus=self.bus,
            store=EmbeddedStore(),
            spool=directory,
            execute=directory,
            log=structlog.stdlib.get_logger(),
        )
        self.schedd = Schedd(self.context)

    async def __aenter__(self) -> Life:
        await self.bus.start()
        await self.client.start()
        started = asyncio.Event()
        self._life = asyncio.ensure_future(run_daemon(self.schedd, started=started.set))
        await started.wait()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.context.stopping.set()
        await self._life
        await self.client.stop()
        await self.bus.stop()


async def measure(jobs: int, limit: int, directory: Path) -> list[str]:
    common = job_ad()
    if limit:
        common["JobMaterializeLimit"] = limit
    packed = common.pack()
    lines = []
    async with Life(directory, jobs) as life:
        before = resident_mib()
        began, cpu = time.perf_counter(), time.process_time()
        for start in range(0, jobs, PART):
            numbers = range(start, min(start + PART, jobs))
            procs = [ClassAd({"Args": f"-n {n}", "Out": f"out.{n}", "Err": f"err.{n}"}).pack() for n in numbers]
            message = SubmitJobs(
                user=USER,
                submit_id="bench",
                cluster_ad=packed,
                procs=procs,
                more=start + PART < jobs,
                part=start // PART,
            )
            answer = await life.client.call("schedd.ap", message, timeout=600)
            assert isinstance(answer, Submitted)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        grown = resident_mib() - before
        lines.append(f"submit     {wall:6.2f} s, {cpu:6.2f} s of processor time, {cpu / jobs * 1e6:4.0f} us a job")
        lines.append(f"memory     {grown:6.0f} MiB more;  database {database_mib(directory):.0f} MiB")
    began = time.perf_counter()
    async with Life(directory, jobs) as life:
        lines.append(f"restart    {time.perf_counter() - began:6.2f} s until it serves")
        if limit:
            gone = 0
            cpu = time.process_time()
            while gone < min(limit * 10, jobs - limit):
                ids = [f"1.{gone + n}" for n in range(REMOVED)]
                await life.client.call("schedd.ap", ActOnJobs(user=USER, action="remove", ids=ids), timeout=60)
                gone += REMOVED
                table = life.schedd.table
                while table.clusters[1].next_proc < min(jobs, gone + limit):  # noqa: ASYNC110  nothing to wait for
                    await asyncio.sleep(0.001)
            cpu = time.process_time() - cpu
            lines.append(
                f"turnover   {cpu / gone * 1e6:6.0f} us of processor time for a job that leaves and one that comes"
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.late", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--one", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one >= 0:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
        with tempfile.TemporaryDirectory() as directory:
            for line in asyncio.run(measure(options.jobs, options.one, Path(directory))):
                print(f"  {line}")
        return 0
    for limit in (0, options.limit):
        what = f"at most {limit} in the queue" if limit else "all in the queue"
        print(f"{options.jobs} jobs, {what}", flush=True)
        again = [sys.executable, "-m", "bench.late", "--jobs", str(options.jobs), "--one", str(limit)]
        subprocess.run(again, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
