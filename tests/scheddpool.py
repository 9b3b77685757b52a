"""A schedd with a scripted execution point and negotiator round it, on the in-process bus."""

import asyncio
import getpass
import itertools
from pathlib import Path

from services.schedd.daemon import Schedd
from shared.bus.api import Exchange, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.ad_table import AdTable
from shared.daemon.lifecycle import run_daemon
from shared.messages.base import Ack
from shared.messages.claims import (
    ActivateClaim,
    Activated,
    Alive,
    AliveReply,
    ClaimGranted,
    ClaimReady,
    ClaimRefused,
    ClaimWaiting,
    DeactivateClaim,
    JobExit,
    JobReport,
    Leftover,
    ReleaseClaim,
    RequestClaim,
    SuspendClaim,
    Usage,
)
from shared.messages.negotiation import GetRequests, Match, Matches
from shared.messages.queue import ActOnJobs, QueryJobs, SubmitJobs
from tests.daemons import make_context
from tests.speakers import Speakers
from tests.waiting import eventually

USER = f"{getpass.getuser()}@pool"


def job_ad(**attributes) -> ClassAd:
    ad = ClassAd(
        {
            "Cmd": "/bin/true",
            "Iwd": "/tmp",
            "ShouldTransferFiles": "NO",
            "RequestCpus": 1,
            "RequestMemory": 128,
            "RequestDisk": 1024,
            "JobLeaseDuration": 2400,
        }
    )
    ad.set_text("Requirements", "TARGET.Memory >= RequestMemory")
    for name, value in attributes.items():
        if isinstance(value, str) and value.startswith("="):
            ad.set_text(name, value[1:])
        else:
            ad[name] = value
    return ad


def slot_ad(name="slot1@ep", **attributes) -> ClassAd:
    ad = ClassAd(
        {
            "Name": name,
            "Machine": "ep",
            "Cpus": 8,
            "Memory": 8000,
            "Disk": 10_000_000,
            "PartitionableSlot": True,
            "SlotWeight": 8,
            "FileSystemDomain": "fs",
            "Start": True,
        }
    )
    ad.set_text("Requirements", "Start")
    ad.update(attributes)
    return ad


class FakeStartd:
    """Grants what it is asked for; tests say when jobs start and end."""

    def __init__(self, hub, name="ep", bus=None):
        self.name = name
        self.inbox = f"startd.{name}"
        self.bus = bus or MemoryBus(hub, sender=self.inbox)
        self.requests: dict[str, RequestClaim] = {}
        self.granted: dict[str, ClaimGranted] = {}
        self.activations = []  # every run that was begun here
        self.claim_of: dict[tuple[str, int], tuple[str, str]] = {}
        self.deactivated: list[DeactivateClaim] = []
        self.suspended: list[SuspendClaim] = []
        self.released: list[str] = []
        self.alive: list[Alive] = []
        self.unknown: list[str] = []
        self.refuse: ClaimRefused | None = None
        self.refuse_runs = ""  # why no run begins on a claim that it has granted
        self.waits = False  # the slot is in use: claims wait until `empties`
        self.asked: list[RequestClaim] = []
        self.mute = False
        self.refused = 0  # how often it was asked while it was mute
        self._numbers = itertools.count(1)
        self._sequences = itertools.count(1)

    async def start(self):
        await self.bus.start()
        await self.bus.serve(self.inbox, self._on_request)

    async def _on_request(self, envelope):
        body = envelope.body
        if self.mute:
            self.refused += 1
            raise RemoteFailure("unavailable", "muted", retryable=True)
        if isinstance(body, RequestClaim):
            self.requests[body.request_id] = body
            self.asked.append(body)
            if self.refuse is not None:
                return self.refuse
            if self.waits:
                return ClaimWaiting(claim_id=f"<waiting {body.request_id}>", slot=body.slot, within_s=3600.0)
            known = self.granted.get(body.request_id)
            if known is None:
                self.granted[body.request_id] = self._grant(body)
            elif not known.activated and body.activation is not None:
                self._began(body.activation, known.claim_id, known.slot)
                self.granted[body.request_id] = known.model_copy(update={"activated": True})
            return self.granted[body.request_id]
        if isinstance(body, ActivateClaim):
            if self.refuse_runs:
                raise RemoteFailure("refused", self.refuse_runs)
            run = body.activation
            if (run.job_id, run.attempt) not in self.claim_of:
                slots = {granted.claim_id: granted.slot for granted in self.granted.values()}
                self._began(run, body.claim_id, slots[body.claim_id])
            return Activated(job_id=run.job_id, attempt=run.attempt)
        if isinstance(body, DeactivateClaim):
            self.deactivated.append(body)
        elif isinstance(body, SuspendClaim):
            self.suspended.append(body)
        elif isinstance(body, ReleaseClaim):
            self.released.append(body.claim_id)
        elif isinstance(body, Alive):
            self.alive.append(body)
            asked = (*body.claim_ids, *body.only_asked)
            return AliveReply(unknown=[claim for claim in asked if claim in self.unknown])
        return Ack()

    def _grant(self, body):
        number = next(self._numbers)
        claim, slot = f"<{self.name}>#1#{number}#secret", f"slot1_{number}@{self.name}"
        ad = slot_ad(slot, PartitionableSlot=False, DynamicSlot=True, Cpus=1, Memory=128, Disk=1024, SlotWeight=1)
        if body.activation is not None:
            self._began(body.activation, claim, slot)
        return ClaimGranted(
            claim_id=claim,
            slot=slot,
            slot_ad=ad.pack(),
            activated=body.activation is not None,
            leftover=Leftover(slot="slot1@ep", claim_id=body.claim_id, slot_ad=slot_ad().pack()),
        )

    def _began(self, activation, claim, slot):
        self.activations.append(activation)
        self.claim_of[activation.job_id, activation.attempt] = (claim, slot)

    async def empties(self, *, hint=True):
        """The slot is empty now; with `hint` whoever waits hears of it."""
        self.waits = False
        if hint:
            for request_id in {request.request_id for request in self.asked}:
                message = ClaimReady(startd=self.name, slot="slot1@ep", claim_id=f"<waiting {request_id}>")
                await self.bus.send("schedd.ap", message)

    def report_of(self, activation, phase, *, usage=None, exit=None, **more):
        claim, slot = self.claim_of[activation.job_id, activation.attempt]
        return JobReport(
            startd=self.name,
            slot=slot,
            claim_id=claim,
            job_id=activation.job_id,
            attempt=activation.attempt,
            sequence=next(self._sequences),
            phase=phase,
            at=1000.0,
            usage=usage or Usage(),
            exit=exit,
            **more,
        )

    async def report(self, activation, phase, *, timeout=30.0, **more):
        claim, slot = self.claim_of[activation.job_id, activation.attempt]
        ack = await self.bus.call("schedd.ap", self.report_of(activation, phase, **more), timeout=timeout)
        if ack.next is not None and (ack.next.job_id, ack.next.attempt) not in self.claim_of:
            self._began(ack.next, claim, slot)
        return ack

    async def finish(self, activation, code=0, **more):
        """Run a job to its end."""
        exit_ = more.pop("exit", None) or JobExit(reason="exited", exit_code=code, output_committed=True)
        return await self.report(activation, "ended", exit=exit_, **more)


class Pool:
    """What tests talk to."""

    def __init__(self, directory: Path, **config):
        self.directory = directory
        self.config = {"ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1", **config}
        self.hub = None
        self.schedd = None
        self.events = []
        self._life = None
        self._submits = itertools.count(1)
        self._epoch = 1

    async def __aenter__(self):
        self.hub = MemoryHub()
        self.client = MemoryBus(self.hub, sender="gateway.test")
        await self.client.start()
        self.speakers = Speakers.on_hub(self.hub)
        self.ads = AdTable(900.0)
        await self.client.listen(Exchange.ADS, ["*.Submitter.#", "*.Scheduler.#"], self._on_ads)
        await self.client.listen(Exchange.EVENTS, ["job.#"], self._on_event)
        self.startd = FakeStartd(self.hub)
        await self.startd.start()
        await self.begin()
        return self

    async def __aexit__(self, *exc):
        await self.end()
        await self.startd.bus.stop()
        await self.client.stop()
        await self.speakers.stop()

    async def begin(self):
        self.context = make_context("SCHEDD", "ap", hub=self.hub, config=self.config, directory=self.directory)
        await self.context.bus.start()
        self.schedd = Schedd(self.context)
        started = asyncio.Event()
        self._life = asyncio.ensure_future(run_daemon(self.schedd, drain_s=5, started=started.set))
        waiting = asyncio.ensure_future(started.wait())
        await asyncio.wait((waiting, self._life), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._life.done():
            self._life.result()

    async def end(self):
        self.context.stopping.set()
        await self._life
        await self.context.bus.stop()

    async def restart(self):
        await self.end()
        await self.begin()

    async def _on_ads(self, envelope):
        self.ads.apply(envelope.body, 0.0)

    async def _on_event(self, envelope):
        self.events.append(envelope.body)

    def event_types(self):
        return [event.type for event in self.events]

    user = USER

    async def call_totals(self):
        return (await self.call(QueryJobs(limit=1))).totals

    def submitter(self, name=USER):
        row = self.ads.row("Submitter", "schedd@ap", name)
        return ClassAd.unpack(row.packed()) if row is not None else None

    async def call(self, message, timeout=30.0):
        return await self.speakers.call("schedd.ap", message, timeout=timeout)

    async def submit(self, ad=None, procs=1, **more):
        own = [ClassAd().pack()] * procs if isinstance(procs, int) else [proc.pack() for proc in procs]
        options = {"user": USER, "submit_id": f"s{next(self._submits)}", **more}
        return await self.call(SubmitJobs(cluster_ad=(ad or job_ad()).pack(), procs=own, **options))

    async def jobs(self, *ids, **more):
        page = await self.call(QueryJobs(ids=list(ids), **{"user": USER} | more))
        return [ClassAd.unpack(ad) for ad in page.ads]

    async def job(self, job_id):
        return (await self.jobs(job_id))[0]

    async def history(self, *ids):
        return await self.jobs(*ids, history=True)

    async def act(self, action, *ids, user=USER, **more):
        return (await self.call(ActOnJobs(user=user, action=action, ids=list(ids), **more))).results

    async def requests(self, submitter=USER, **more):
        options = {"epoch": self._epoch, **more}
        return await self.call(GetRequests(negotiator="n", cycle=1, submitters=[submitter], **options))

    async def match(self, count=1, submitter=USER, autocluster=None, slot=None, **more):
        """One cycle: a match for the first request."""
        if autocluster is None:
            autocluster = (await self.requests(submitter)).requests[submitter][0].autocluster
        match = Match(
            submitter=submitter,
            autocluster=autocluster,
            count=count,
            slot="slot1@ep",
            startd=self.startd.inbox,
            claim_id="<ep>#1#0#pslot",
            slot_ad=(slot or slot_ad()).pack(),
        )
        return await self.call(Matches(negotiator="n", matches=[match], **{"epoch": self._epoch, "cycle": 1, **more}))

    async def run_one(self, **more):
        """Submit a job and have it started; gives its activation."""
        before = len(self.startd.activations)
        await self.submit(**more)
        await self.match()
        await eventually(lambda: len(self.startd.activations) > before, what="a run")
        return self.startd.activations[before]
