"""A startd on the in-process bus, with an access point that hands over jobs as fast as they end."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import structlog

from services.startd.core.slots.effects import SlotEffects
from services.startd.daemon import Startd
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import load_config
from shared.daemon.context import Context
from shared.messages.base import Ack, Envelope, Message
from shared.messages.claims import Activation, ClaimGranted, JobReport, JobReportAck, RequestClaim
from shared.state.embedded import EmbeddedStore

SLOTS = 8


def job_ad(number: int = 0, **more: Any) -> ClassAd:
    ad = {
        "ClusterId": 1,
        "ProcId": number,
        "JobUniverse": 5,
        "Cmd": "/bin/true",
        "Iwd": "/tmp",
        "User": "bench@pool",
        "Owner": "bench",
        "RequestCpus": 1,
        "RequestMemory": 128,
        "RequestDisk": 1024,
        "ShouldTransferFiles": "NO",
    }
    return ClassAd(ad | more)


def job(number: int, **more: Any) -> Activation:
    return Activation(job_id=f"1.{number}", attempt=1, job_ad=job_ad(number, **more).pack())


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
        if report.phase != "ended":
            return JobReportAck()
        assert report.exit is not None
        assert report.exit.reason == "exited", report.exit
        self.ended[report.job_id] = time.time()
        if len(self.ended) >= self.wanted:
            self.done.set()
        return JobReportAck(next=self.left.pop()) if self.left else JobReportAck()


class Bench:
    """See the module. Knobs win over the ones that stand here."""

    def __init__(self, **knobs: str) -> None:
        self.knobs = {
            "NUM_CPUS": str(SLOTS),
            "MEMORY": "8192",
            "DISK": "10000000",
            "ROOST_DOCKER": "false",
            "RUNBENCHMARKS": "false",
            **knobs,
        }

    async def start(self, directory: Path) -> None:
        hub = MemoryHub()
        self.schedd = Schedd()
        self.bus = MemoryBus(hub, sender="schedd.bench")
        await self.bus.start()
        await self.bus.serve("schedd.bench", self.schedd.on)
        context = Context(
            name="bench",
            config=load_config([], subsystem="STARTD", env={}, overrides=self.knobs),
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
        await self.startd.shared.fork_server.stop(end_server=True)
        await self.startd.close()
        await self.startd.context.bus.stop()
        await self.bus.stop()

    async def claim(self, number: int, activation: Activation | None = None) -> str:
        slot = self.startd.shared.slot_manager.slots["slot1@bench"]
        answer = await self.bus.call(
            "startd.bench",
            RequestClaim(
                request_id=f"request{number}",
                claim_id=slot.offer,
                slot=slot.name,
                schedd="bench",
                submitter="bench@pool",
                job_ad=activation.job_ad if activation is not None else job_ad(number).pack(),
                lease_s=24000,
                alive_interval_s=300,
                epoch=1,
                activation=activation,
            ),
        )
        assert isinstance(answer, ClaimGranted), answer
        assert activation is None or answer.activated, answer.refusal
        return answer.claim_id

    def release(self, *claim_ids: str) -> None:
        startd, effects = self.startd.shared, SlotEffects()
        for claim_id in claim_ids:
            effects.add(startd.slot_manager.vacate(claim_id, "bench", graceful=True, now=time.time())[1])
        startd.effects.carry_out(effects)

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
        self.release(*ids)
        return spent

    async def latency(self, jobs: list[Activation]) -> list[float]:
        """Milliseconds from the request to the start of the process, one job after the other."""
        found = []
        for activation in jobs:
            self.schedd.running.clear()
            asked = time.time()
            await self.run([activation], 1)
            await self.schedd.running.wait()
            found.append((self.schedd.started[activation.job_id] - asked) * 1000)
        return found


def line(name: str, values: list[float], unit: str = "ms") -> str:
    ordered = sorted(values)
    half, most = statistics.median(ordered), ordered[int(len(ordered) * 0.95)]
    return f"{name}: median {half:.2f} {unit}, 95 % {most:.2f} {unit}"
