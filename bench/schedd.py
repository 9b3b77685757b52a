"""What a schedd costs: `python -m bench.schedd [--jobs N]`.

Submit: one cluster of N jobs as one SubmitJobs message, from the call to its answer (committed, synchronous=FULL).
Run cycle: N jobs through eight claims against an execution point that ends every job at once; wall time, and CPU time
of the whole process (schedd, the other side of each message, and the bus) for each job.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog

from services.schedd.daemon import Schedd
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import load_config
from shared.daemon.context import Context
from shared.daemon.lifecycle import run_daemon
from shared.messages.base import Ack, Envelope, Message
from shared.messages.claims import (
    Activation,
    Alive,
    AliveReply,
    ClaimGranted,
    JobExit,
    JobReport,
    JobReportAck,
    RequestClaim,
)
from shared.messages.negotiation import GetRequests, Match, Matches, RequestList
from shared.messages.queue import SubmitJobs, Submitted
from shared.state.embedded import EmbeddedStore
from tests.speakers import Speakers

USER = f"{getpass.getuser()}@pool"
SLOTS = 8
REQUIREMENTS = (
    '(TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk) && '
    "(TARGET.Memory >= RequestMemory) && (TARGET.HasFileTransfer)"
)


def job_ad() -> ClassAd:
    """An ad of the size that `roost submit` makes."""
    ad = ClassAd({f"Filler{number}": f"value {number}" for number in range(40)})
    ad.update(
        {
            "Cmd": "/bin/true",
            "Iwd": "/tmp",
            "ShouldTransferFiles": "NO",
            "RequestCpus": 1,
            "RequestDisk": 1024,
            "RequestMemory": 128,
            "JobLeaseDuration": 2400,
        }
    )
    ad.set_text("Requirements", REQUIREMENTS)
    ad.set_text("OnExitRemove", "true")
    return ad


def slot_ad(name: str) -> ClassAd:
    ad = ClassAd({f"Filler{number}": f"value {number}" for number in range(80)})
    ad.update({"Name": name, "Machine": "ep", "Arch": "X86_64", "OpSys": "LINUX", "HasFileTransfer": True})
    ad.update({"Cpus": 1, "Memory": 1000, "Disk": 1000000, "Start": True, "SlotWeight": 1})
    ad.set_text("Requirements", "Start")
    return ad


class Startd:
    """Grants every claim, and ends every job at once."""

    def __init__(self, hub: MemoryHub) -> None:
        self.bus = MemoryBus(hub, sender="startd.ep")
        self.done = 0
        self.wanted = 0
        self.all_done = asyncio.Event()
        self._runners: set[asyncio.Task[None]] = set()

    async def on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, Alive):
            return AliveReply()
        if not isinstance(body, RequestClaim):
            return Ack()
        slot = body.slot
        claim = f"{body.claim_id}carved"
        assert body.activation is not None
        runner = asyncio.ensure_future(self._run(slot, claim, body.activation))
        self._runners.add(runner)
        runner.add_done_callback(self._runners.discard)
        return ClaimGranted(claim_id=claim, slot=slot, slot_ad=slot_ad(slot).pack(), activated=True)

    async def _run(self, slot: str, claim: str, run: Activation) -> None:
        following: Activation | None = run
        while following is not None:
            run = following
            await self._report(slot, claim, run, 1, None)
            ack = await self._report(slot, claim, run, 2, JobExit(reason="exited", exit_code=0))
            self.done += 1
            if self.done == self.wanted:
                self.all_done.set()
            following = ack.next

    async def _report(self, slot: str, claim: str, run: Activation, sequence: int, end: JobExit | None) -> JobReportAck:
        report = JobReport(
            startd="ep",
            slot=slot,
            claim_id=claim,
            job_id=run.job_id,
            attempt=run.attempt,
            sequence=sequence,
            phase="running" if end is None else "ended",
            at=time.time(),
            started_at=time.time(),
            exit=end,
        )
        answer = await self.bus.call("schedd.ap", report, timeout=60)
        assert isinstance(answer, JobReportAck)
        return answer


async def measure(jobs: int, directory: Path) -> list[str]:
    hub = MemoryHub()
    bus, client, startd = MemoryBus(hub, sender="schedd.ap"), Speakers.on_hub(hub), Startd(hub)
    for each in (bus, startd.bus):
        await each.start()
    await startd.bus.serve("startd.ep", startd.on_request)
    startd.wanted = jobs
    config = load_config(
        [],
        subsystem="SCHEDD",
        env={
            "_CONDOR_UID_DOMAIN": "pool",
            "_CONDOR_ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1",
            "_CONDOR_MAX_JOBS_PER_SUBMISSION": str(jobs),
        },
    )
    context = Context(
        name="ap",
        config=config,
        bus=bus,
        store=EmbeddedStore(),
        spool=directory,
        execute=directory,
        log=structlog.stdlib.get_logger(),
    )
    schedd = Schedd(context)
    started = asyncio.Event()
    life = asyncio.ensure_future(run_daemon(schedd, started=started.set))
    await started.wait()

    procs = [ClassAd({"Args": f"number {number}"}).pack() for number in range(jobs)]
    message = SubmitJobs(user=USER, submit_id="bench", cluster_ad=job_ad().pack(), procs=procs)
    began, cpu = time.perf_counter(), time.process_time()
    answer = await client.call("schedd.ap", message, timeout=120)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert isinstance(answer, Submitted)
    lines = [f"submit     {jobs} jobs in {wall:.2f} s: {jobs / wall:,.0f} jobs/s, {cpu / jobs * 1e6:.0f} us CPU a job"]

    asked = GetRequests(negotiator="b", epoch=1, cycle=1, submitters=[USER])
    began = time.perf_counter()
    requests = await client.call("schedd.ap", asked)
    lines.append(f"requests   one autocluster of {jobs} jobs offered in {(time.perf_counter() - began) * 1000:.1f} ms")
    assert isinstance(requests, RequestList)
    matches = [
        Match(
            submitter=USER,
            autocluster=requests.requests[USER][0].autocluster,
            slot=f"slot{number}@ep",
            startd="startd.ep",
            claim_id=f"<ep>#1#{number}#",
            slot_ad=slot_ad(f"slot{number}@ep").pack(),
        )
        for number in range(SLOTS)
    ]
    began, cpu = time.perf_counter(), time.process_time()
    await client.call("schedd.ap", Matches(negotiator="b", epoch=1, cycle=1, matches=matches))
    await startd.all_done.wait()
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    lines.append(
        f"run cycle  {jobs} jobs on {SLOTS} claims in {wall:.1f} s: {jobs / wall:,.0f} jobs/s, "
        f"{cpu / jobs * 1000:.2f} ms CPU a job, {schedd.queue.durations.count} transactions, "
        f"{schedd.queue.durations.sum_s / schedd.queue.durations.count * 1000:.2f} ms each"
    )
    context.stopping.set()
    await life
    await client.stop()
    for each in (startd.bus, bus):
        await each.stop()
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.schedd", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the queue lies (default: a temporary one)")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for line in asyncio.run(measure(options.jobs, Path(directory))):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
