"""A startd with a scripted schedd, on the in-process bus: what the startd's tests and its benchmark share."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgpack
from aiohttp import web

from services.startd.core.machine.detected import Detected, Sample
from services.startd.daemon import Startd
from shared.bus.memory import MemoryBus, MemoryHub
from shared.bus.senders import TABLE
from shared.classad import ClassAd
from shared.messages.base import Ack
from shared.messages.claims import (
    Activation,
    ClaimLost,
    ClaimReady,
    JobReport,
    JobReportAck,
    JobReports,
    JobReportsAck,
    ReportAnswer,
    RequestClaim,
)
from shared.transfer.bundle import Source, read_bundle, write_bundle
from tests.daemons import make_context
from tests.speakers import Speakers
from tests.waiting import PATIENCE_S

USER = "alice@pool"


class Machine:
    """Always the same."""

    def __init__(self, cpus=8, memory_mib=8192, disk_kib=10_000_000):
        self.detected = Detected(
            hostname="node1",
            cpus=cpus,
            cores=cpus,
            memory_mib=memory_mib,
            swap_kib=0,
            arch="X86_64",
            opsys_name="Debian",
            opsys_major=12,
            opsys_version=1200,
        )
        self.now = Sample(disk_kib=disk_kib)

    def detect(self):
        return self.detected

    def sample(self, execute, now):
        return self.now


def job_ad(cmd="/bin/true", **attrs):
    """A job that runs in its Iwd, without file transfer."""
    ad = {
        "ClusterId": 1,
        "ProcId": 0,
        "User": USER,
        "Owner": "alice",
        "JobUniverse": 5,
        "Cmd": cmd,
        "Iwd": "/tmp",
        "RequestCpus": 1,
        "RequestMemory": 128,
        "RequestDisk": 1024,
        "GlobalJobId": "schedd1#1.0#1",
        "ShouldTransferFiles": "NO",
    }
    return ClassAd(ad | attrs)


class Schedd:
    """Takes reports, and answers an end as `next_job` says."""

    def __init__(self, hub: MemoryHub, name: str = "schedd1") -> None:
        self.name = name
        self.hub = hub
        self.reports: list[JobReport] = []
        self.takes_batches = False  # as an older release
        self.together: list[list[str]] = []  # jobs whose ends came in one message
        self.lost: list[ClaimLost] = []
        self.ready: list[ClaimReady] = []
        self.refuse = 0  # so many ends go unanswered
        self.knows = False  # answers that a run began with what ends the claim's first lease
        self.ends: dict[str, JobReport] = {}
        self.heard = asyncio.Event()
        self.next_job: Callable[[JobReport], JobReportAck] = lambda report: JobReportAck()

    async def start(self):
        self.bus = MemoryBus(self.hub, sender=f"schedd.{self.name}")
        await self.bus.start()
        await self.bus.serve(f"schedd.{self.name}", self.on)

    async def on(self, envelope):
        body = envelope.body
        answer = Ack()
        if isinstance(body, JobReport):
            answer = self.on_report(body).model_copy(update={"takes_batches": self.takes_batches})
        elif isinstance(body, JobReports):
            self.together.append([report.job_id for report in body.reports])
            answer = JobReportsAck(answers=[ReportAnswer(ack=self.on_report(report)) for report in body.reports])
        elif isinstance(body, ClaimLost):
            self.lost.append(body)
        elif isinstance(body, ClaimReady):
            self.ready.append(body)
        self.heard.set()
        return answer

    def on_report(self, report: JobReport) -> JobReportAck:
        self.reports.append(report)
        if report.phase != "ended":
            return JobReportAck(renewed=report.renew and self.knows)
        if self.refuse:
            self.refuse -= 1
            raise RuntimeError("the scripted schedd fails")
        self.ends[f"{report.job_id}/{report.attempt}"] = report
        return self.next_job(report)

    async def until(self, condition, timeout=PATIENCE_S):
        async with asyncio.timeout(timeout):
            while not (found := condition()):
                self.heard.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.heard.wait(), 0.02)
        return found

    async def end_of(self, job_id, attempt=1, timeout=PATIENCE_S):
        await self.until(lambda: f"{job_id}/{attempt}" in self.ends, timeout)
        return self.ends[f"{job_id}/{attempt}"]

    def phases(self, job_id):
        return [r.phase for r in self.reports if r.job_id == job_id]


class Pool:
    """One startd and one schedd. `restart` ends the startd as a crash would (nothing is drained) and starts another."""

    def __init__(self, path: Path, machine=None, **macros):
        self.path = path
        self.machine = machine or Machine()
        detected = self.machine.detected
        self.macros = {
            "NUM_CPUS": detected.cpus,
            "MEMORY": detected.memory_mib,
            "DISK": self.machine.now.disk_kib,
            "ROOST_DOCKER": "false",
        } | macros
        self.hub = MemoryHub()
        self.schedd = Schedd(self.hub)
        self.speakers = Speakers.on_hub(self.hub)
        self.startd: Startd | None = None
        self._jobs = 0
        self._requests = 0

    async def __aenter__(self):
        await self.schedd.start()
        await self.start()
        return self

    async def __aexit__(self, *exc):
        await self.stop()
        # What the last startd left running would otherwise wait for the next one.
        for lock in self.path.glob("execute/.starter-*/socket"):
            await end_fork_server(lock.parent)
        await self.schedd.bus.stop()
        await self.speakers.stop()

    async def start(self):
        bus = MemoryBus(self.hub, sender="startd.node1")
        await bus.start()
        context = make_context("STARTD", "node1", bus=bus, config=self.macros, directory=self.path)
        self.startd = Startd(context, self.machine)
        await self.startd.setup()
        self.tasks = [asyncio.create_task(work, name=name) for name, work in self.startd.tasks().items()]

    async def stop(self):
        startd, self.startd = self.startd, None
        if startd is None:
            return
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await startd.close()
        await startd.context.bus.stop()

    async def restart(self):
        await self.stop()
        await self.start()

    @property
    def execute(self):
        return self.path / "execute"

    def activation(self, ad=None, attempt=1, job_id=None, url="", **attrs):
        self._jobs += 1
        job_id = job_id or f"{self._jobs}.0"
        ad = job_ad(**attrs) if ad is None else ad
        return Activation(job_id=job_id, attempt=attempt, job_ad=ad.pack(), transfer_url=url, transfer_token="token")

    def request(self, activation=None, slot="slot1@node1", claim_id=None, ad=None, **fields):
        self._requests += 1
        values = {
            "request_id": f"request{self._requests}",
            "claim_id": claim_id or self.startd.shared.slot_manager.slots[slot].offer,
            "slot": slot,
            "schedd": self.schedd.name,
            "submitter": USER,
            "job_ad": activation.job_ad if activation else (ad or job_ad(User=fields.get("submitter", USER))).pack(),
            "lease_s": 2400,
            "alive_interval_s": 300,
            "epoch": 1,
            "activation": activation,
        }
        return RequestClaim(**(values | fields))

    async def call(self, message):
        """As the schedd, unless the message says that it is another's."""
        if TABLE[message.type].by == ("schedd",) and not getattr(message, "schedd", ""):
            return await self.schedd.bus.call("startd.node1", message)
        return await self.speakers.call("startd.node1", message)

    async def run(self, cmd="/bin/true", **attrs):
        """Claim the slot and start a job; its activation and the answer."""
        activation = self.activation(cmd=cmd, **attrs)
        return activation, await self.call(self.request(activation))

    async def running(self, job_id):
        return await self.schedd.until(
            lambda: next((r for r in self.schedd.reports if r.job_id == job_id and r.phase == "running"), None)
        )

    def conditions(self):
        return {name: str(slot.condition) for name, slot in self.startd.shared.slot_manager.slots.items()}


async def end_fork_server(folder):
    """End the fork server that lives in a directory, with all of its jobs."""
    from services.startd.forkserver.client import ForkServer

    server = ForkServer(folder, orphan_s=1, now=lambda: 0.0)
    with contextlib.suppress(Exception):
        await server.start()
        await server.stop(end_server=True)


class Endpoint:
    """A schedd's transfer endpoint: serves the files of `input`, keeps what it gets in `output`, for one token."""

    def __init__(self, folder: Path) -> None:
        self.input, self.output = folder / "input", folder / "output"
        self.checkpoint = folder / "checkpoint"
        for place in (self.input, self.output, self.checkpoint):
            place.mkdir()
        self.credentials: dict[str, bytes] = {}  # by the names of their files
        self.status = 0  # refuse with this one, if any
        self.received = self.refused = 0

    async def __aenter__(self):
        app = web.Application(client_max_size=0)
        app.add_routes([web.get("/run/input", self.get), web.put("/run/output", self.put)])
        app.add_routes([web.get("/run/credentials", self.get_credentials)])
        app.add_routes([web.get("/run/checkpoint", self.get), web.put("/run/checkpoint", self.put)])
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/run"
        return self

    async def __aexit__(self, *exc):
        await self.runner.cleanup()

    def refusal(self, request):
        if self.status:
            self.refused += 1
            return web.Response(status=self.status, text="the endpoint refuses")
        if request.headers.get("Authorization") != "Bearer token":
            return web.Response(status=401, text="wrong token")
        return None

    async def get_credentials(self, request):
        return self.refusal(request) or web.Response(body=msgpack.packb(self.credentials))

    async def get(self, request):
        if refusal := self.refusal(request):
            return refusal
        answer = web.StreamResponse()
        await answer.prepare(request)
        async for chunk in write_bundle([Source(path, path.name) for path in sorted(self._place(request).iterdir())]):
            await answer.write(chunk)
        await answer.write_eof()
        return answer

    async def put(self, request):
        if refusal := self.refusal(request):
            return refusal
        await read_bundle(request.content.iter_any(), self._place(request))
        self.received += 1
        return web.Response(text="ok")

    def _place(self, request):
        if request.path.endswith("/checkpoint"):
            return self.checkpoint
        return self.input if request.method == "GET" else self.output

    def text(self, name):
        return (self.output / name).read_text()
