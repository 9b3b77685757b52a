"""How fast the startd starts jobs: `python -m bench.startd`.

1. From activation to a running job, against a bare subprocess of the same command.
2. Short jobs per second: on one claim, each handed over with the acknowledgement of the one before, and on eight.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import structlog

from services.startd.daemon import Startd
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import load_config
from shared.daemon.context import Context
from shared.messages.base import Ack, Envelope, Message
from shared.messages.claims import Activation, ClaimGranted, JobReport, JobReportAck, RequestClaim
from shared.state.embedded import EmbeddedStore

SLOTS = 8


def job(number: int) -> Activation:
    ad = ClassAd(
        {
            "ClusterId": 1,
            "ProcId": number,
            "Cmd": "/bin/true",
            "Iwd": "/tmp",
            "User": "bench@pool",
            "RequestCpus": 1,
            "RequestMemory": 128,
            "RequestDisk": 1024,
        }
    )
    return Activation(job_id=f"1.{number}", attempt=1, job_ad=ad.pack())


class Schedd:
    """Hands over a job with each acknowledgement until there are no more."""

    def __init__(self) -> None:
        self.left: list[Activation] = []
        self.started: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.wanted = 0
        self.done = asyncio.Event()
        self.running = asyncio.Event()

    async def on(self, envelope: Envelope) -> Message:
        report = envelope.body
        if not isinstance(report, JobReport):
            return Ack()
        if report.phase == "running":
            self.started.setdefault(report.job_id, report.started_at)
            self.running.set()
            return JobReportAck()
        assert report.exit is not None
        assert report.exit.reason == "exited", report.exit
        self.ended[report.job_id] = time.time()
        if len(self.ended) >= self.wanted:
            self.done.set()
        return JobReportAck(next=self.left.pop()) if self.left else JobReportAck()


class Bench:
    async def start(self, directory: Path) -> None:
        hub = MemoryHub()
        self.schedd = Schedd()
        self.bus = MemoryBus(hub, sender="schedd.bench")
        await self.bus.start()
        await self.bus.serve("schedd.bench", self.schedd.on)
        knobs = {"NUM_CPUS": str(SLOTS), "MEMORY": "8192", "DISK": "10000000", "ROOST_DOCKER": "false"}
        context = Context(
            name="bench",
            config=load_config([], subsystem="STARTD", env={}, overrides=knobs),
            bus=MemoryBus(hub, sender="startd.bench"),
            store=EmbeddedStore(),
            spool=directory / "spool",
            execute=directory / "execute",
            log=structlog.stdlib.get_logger(),
        )
        await context.bus.start()
        self.startd = Startd(context)
        await self.startd.setup()
        self.tasks = [asyncio.create_task(work) for work in self.startd.tasks().values()]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.startd.close()
        await self.startd.context.bus.stop()
        await self.bus.stop()

    async def claim(self, number: int, activation: Activation) -> str:
        slot = self.startd.book.slots["slot1@bench"]
        answer = await self.bus.call(
            "startd.bench",
            RequestClaim(
                request_id=f"request{number}",
                claim_id=slot.offer,
                slot=slot.name,
                schedd="bench",
                submitter="bench@pool",
                job_ad=activation.job_ad,
                lease_s=2400,
                alive_interval_s=300,
                epoch=1,
                activation=activation,
            ),
        )
        assert isinstance(answer, ClaimGranted), answer
        assert answer.activated, answer.refusal
        return answer.claim_id

    async def run(self, jobs: list[Activation], claims: int) -> float:
        """Seconds for these jobs on so many claims."""
        schedd = self.schedd
        schedd.ended.clear()
        schedd.wanted = len(jobs)
        schedd.done.clear()
        schedd.left = jobs[claims:]
        begin = time.perf_counter()
        ids = [await self.claim(int(one.job_id.partition(".")[2]), one) for one in jobs[:claims]]
        await schedd.done.wait()
        spent = time.perf_counter() - begin
        for claim_id in ids:
            self.startd.book.vacate(claim_id, "bench", graceful=True, now=time.time())
        return spent

    async def latency(self, count: int) -> list[float]:
        """Milliseconds from the request to the start of the process, one job at a time."""
        found = []
        for number in range(count):
            activation = job(10_000_000 + number)
            self.schedd.running.clear()
            asked = time.time()
            await self.run([activation], 1)
            await self.schedd.running.wait()
            found.append((self.schedd.started[activation.job_id] - asked) * 1000)
        return found


def bare(count: int) -> list[float]:
    found = []
    for _ in range(count):
        asked = time.perf_counter()
        process = subprocess.Popen(["/bin/true"], cwd="/tmp")
        found.append((time.perf_counter() - asked) * 1000)
        process.wait()
    return found


def line(name: str, values: list[float]) -> str:
    ordered = sorted(values)
    return f"{name}: median {statistics.median(ordered):.2f} ms, 95 % {ordered[int(len(ordered) * 0.95)]:.2f} ms"


async def measure(count: int) -> list[str]:
    lines = [line("bare subprocess, until it is started", bare(count))]
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        bench = Bench()
        await bench.start(Path(folder))
        try:
            lines.append(line("claim request to running process", await bench.latency(count)))
            for claims in (1, SLOTS):
                cpu = time.process_time()
                jobs = [job(claims * 1_000_000 + number) for number in range(count)]
                spent = await bench.run(jobs, claims)
                cpu = (time.process_time() - cpu) / count * 1000
                lines.append(
                    f"/bin/true on {claims} claim(s): {count / spent:.0f} jobs/s, {cpu:.2f} ms CPU of the startd a job"
                )
        finally:
            await bench.stop()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for text in asyncio.run(measure(options.jobs)):
        print(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
