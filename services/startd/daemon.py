"""The startd: divides its machine into slots, lends them to access points, and runs their jobs.

Decisions are made by the `Book` (claims), `partition`, `policy` and `transitions`; this shell takes messages in, writes
down what changed, starts and ends runs, and tells the pool. What is written down is written before it is answered.

Longer than most modules, because it is the only room of the startd that may touch the bus: every request of the claim
protocol ends here, and everything else hands its decision back.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any, ClassVar

import aiohttp

from services.startd import settings
from services.startd.ads import slot_ads as ads
from services.startd.ads.showcase import Showcase
from services.startd.book import leaving, records
from services.startd.book.answers import Accepted, Changes, ClaimRequest, Ended, Granted, Refused, StopRun
from services.startd.book.claims import Book
from services.startd.book.leases import Leases, lease_s
from services.startd.book.partition import SlotKind
from services.startd.book.records import RunRecord
from services.startd.book.slots import Claim
from services.startd.book.transitions import Activity, Condition, State
from services.startd.journal import Journal, JournalFull
from services.startd.launchers.api import Launcher
from services.startd.launchers.docker import DockerLauncher
from services.startd.launchers.process import ProcessLauncher
from services.startd.machine.detection import RealMachine, Source
from services.startd.sandbox import directories as sandbox
from services.startd.starter.client import ForkServer
from services.startd.starter.run import Intervals, Run
from shared.bus.api import BusUnavailable, Exchange, Outgoing, RemoteFailure
from shared.classad import ClassAd
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.epochs import check_possible
from shared.errors import RoostError
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.claims import (
    ActivateClaim,
    Activated,
    Activation,
    Alive,
    AliveReply,
    ClaimGranted,
    ClaimLost,
    ClaimReady,
    ClaimRefused,
    ClaimWaiting,
    DeactivateClaim,
    JobExit,
    JobReportAck,
    Leftover,
    ReleaseClaim,
    RequestClaim,
    public_claim_id,
)
from shared.messages.events import ClaimEnded, ClaimMade, SlotChanged
from shared.messages.negotiation import MatchNotice

#: Ads go out at once, but not more often than this: with many short jobs it bounds what the pool must listen to.
MIN_GAP_S = 0.02
#: Changes that nobody waits for (a claimed slot goes from job to job) go out so much later, many at a time.
LATER_S = 0.2
#: A start that is not written down yet is, after this time; the fork server knows of it meanwhile.
JOURNAL_S = 0.5
#: How often what found no room on the disk is written again, seconds.
FULL_S = 1.0
#: Refusals of a further job that are about the claim, not the job.
_CLAIM_IS_OVER = ("unknown-claim", "busy", "worklife")
#: Activities that time ends.
_PASSING = (Activity.RETIRING, Activity.VACATING, Activity.KILLING)


class Startd(Daemon):
    """See the module."""

    subsystem: ClassVar[str] = "STARTD"

    def __init__(self, context: Context, machine: Source | None = None) -> None:
        super().__init__(context)
        self.machine = machine or RealMachine()
        self.detected = self.machine.detect()
        self.settings = settings.read(context.config, self.detected)
        self.name = context.name
        self.advertiser = Advertiser(context, "Machine", subsystem="STARTD")
        self.leases = Leases()
        self.runs: dict[str, Run] = {}  # by key, until their end is acknowledged
        self._tasks: set[asyncio.Task[None]] = set()
        self._dirty = asyncio.Event()
        self._leased = asyncio.Event()
        self._looks = asyncio.Event()  # something is to be looked at sooner than was known
        self._polling = False  # whether the policy is looked at as often as claimed slots want it
        self._later: asyncio.TimerHandle | None = None
        self._unwritten: dict[tuple[str, str], dict[str, Any] | None] = {}  # (table, key): for the next transaction
        self._journal_timer: asyncio.TimerHandle | None = None
        self._full = ""  # why the journal can not be written for now
        self._changed: set[str] = set()
        self._gone: set[str] = set()
        self._told: dict[str, Condition] = {}  # by slot: what the last event said
        self._shown: dict[str, tuple[object, ...]] = {}  # by slot: what others act on, as last given out
        self._offered: dict[str, tuple[str, int]] = {}  # by slot: what the journal knows of its offer
        self._http: aiohttp.ClientSession | None = None
        self._started = False
        self._closing = False

    # ---------------------------------------------------------------- life

    async def setup(self) -> None:
        context = self.context
        context.execute.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(context.spool / "startd" / f"{self.name}.db")
        amounts = settings.machine_amounts(
            context.config, self.detected, self.machine.sample(context.execute, self._now()).disk_kib
        )
        plans = settings.plan(context.config, amounts)
        around = ads.Surroundings(
            startd=self.name,
            start_time=self.advertiser.start_time,
            detected=self.detected,
            total=amounts,
            slot_count=len(plans),
            settings=self.settings,
        )
        self.showcase = Showcase(
            around,
            sample=lambda: self.machine.sample(context.execute, self._now()),
            now=context.clock.now,
            monotonic=context.clock.monotonic,
        )
        self.book = Book(
            self.name,
            self.advertiser.start_time,
            ad_of=self.showcase.ad_of,
            policy_of=self.settings.policy,
            carving=self.settings.carving,
            new_secret=lambda: secrets.token_hex(16),
            match_timeout_s=self.settings.match_timeout,
            killing_timeout_s=self.settings.killing_timeout,
        )
        self.showcase.book = self.book
        self.book.add_slots(plans, self._now())
        folder = context.execute / f".starter-{sandbox.prefix(self.name).strip('_')}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.fork_server = ForkServer(folder, orphan_s=self.settings.orphan, now=context.clock.now)
        await self.fork_server.start()
        self.processes = ProcessLauncher(self.fork_server)
        self.docker = DockerLauncher(f"{self.name}-{self.journal.identity}", self.settings, context.execute)
        await self._recover()
        await context.bus.serve(f"startd.{self.name}", self._on_request)
        self._write_down()
        self._started = True

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        tasks = {
            "advertise": self._advertise(),
            "leases": self._watch_leases(),
            "review": self._review(),
        }
        if self.settings.docker:
            tasks["docker"] = self._watch_docker()
        return tasks

    async def drain(self) -> None:
        """Jobs go on without us, and a startd that comes back adopts them."""
        await self.advertiser.invalidate()

    async def close(self) -> None:
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
        if hasattr(self, "processes"):
            await self.processes.stop()
            await self.docker.stop()
        for timer in (self._later, self._journal_timer):
            if timer is not None:
                timer.cancel()
        if hasattr(self, "journal"):
            self._flush()
            self.journal.close()

    def ready(self) -> str:
        return "" if self._started else "its slots to be set up"

    # ---------------------------------------------------------------- recovery

    async def _recover(self) -> None:
        """Take up claims and runs of an earlier life."""
        for slot_name, offer in self.journal.load("offers").items():
            self.book.restore_offer(slot_name, offer["claim_id"], offer["children"])
        lost: dict[str, str] = {}
        mono = self.context.clock.monotonic()
        for claim_id, record in self.journal.load("claims").items():
            claim, slot = records.unpack_claim(record)
            trouble = self.book.restore(claim, slot, self._now())
            if trouble:
                lost[claim_id] = trouble
                self.journal.write([("claims", claim_id, None)])
                self._spawn(self._tell_lost(claim.schedd, claim.slot, claim_id, trouble), "claim-lost")
            else:
                self.leases.grant(claim_id, claim.lease_s, mono)
        for claim_id, record in self.journal.load("waiting").items():
            waiting = records.unpack_waiting(record)
            trouble = self.book.restore_waiting(waiting, self._now())
            if trouble:
                self.journal.write([("waiting", claim_id, None)])
                self._spawn(self._tell_lost(waiting.claim.schedd, waiting.claim.slot, claim_id, trouble), "claim-lost")
            else:
                self.leases.grant(claim_id, waiting.claim.lease_s, mono)
        kept = [RunRecord.unpack(record) for record in self.journal.load("runs").values()]
        if any(one.docker for one in kept):
            await self.docker.adopt({one.name for one in kept if one.docker})
        self.fork_server.forget_others({one.name for one in kept})
        scratch = {one.scratch for one in kept if one.scratch}
        resisted = await asyncio.to_thread(sandbox.sweep, self.context.execute, self.name, scratch)
        if resisted:
            self.context.log.warning("scratch_not_removed", names=resisted)
        for one in kept:
            # Without files to fetch, a start is written down up to JOURNAL_S late: it may have been. Who knows of no
            # such process then says that the run is lost, rather than to start it twice under one attempt.
            one.launched |= not one.transfer_url
            run = self._take_up(one)
            if one.claim_id in lost:
                run.stop("evicted", "evict", lost[one.claim_id], fast=True)
        for claim in list(self.book.claims.values()):
            known = self.runs.get(claim.run)
            if claim.run and (known is None or known.ended):
                # Killed between writing down the end and freeing the slot.
                self.book.run_gone(claim.claim_id, claim.run, self._now())
        self.book.resume(self._now())
        if kept or self.book.claims:
            self.context.log.info("recovered", runs=len(kept), claims=len(self.book.claims), lost=len(lost))

    def _take_up(self, record: RunRecord) -> Run:
        claim = self.book.claims.get(record.claim_id)
        slot = self.book.slots.get(claim.slot) if claim else None
        intervals = Intervals(
            self.settings.initial_job_update, self.settings.job_update, self.settings.job_nice, self.name
        )
        cpus, memory = (float(slot.total["Cpus"]), int(slot.total["Memory"])) if slot else (1.0, 1)
        run = Run(record, self, intervals, cpus, memory)
        self.runs[record.key] = run
        self._spawn(run.live(), f"run:{record.key}")
        return run

    # ---------------------------------------------------------------- requests

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, RequestClaim):
            return self._on_claim(body)
        if isinstance(body, ActivateClaim):
            return self._on_activate(body)
        if isinstance(body, DeactivateClaim):
            return self._on_deactivate(body)
        if isinstance(body, ReleaseClaim):
            return self._on_release(body)
        if isinstance(body, Alive):
            return AliveReply(unknown=self.leases.renew(body.claim_ids, self.context.clock.monotonic()))
        if isinstance(body, MatchNotice):
            return self._on_notice(body)
        if isinstance(body, SendAds):
            self._spawn(self._resend(body), "resend")
            return Ack()
        return Failure(code="bad-request", reason=f"a startd does not answer {body.type}")

    async def _resend(self, request: SendAds) -> None:
        await self.advertiser.resend(request)

    def _on_claim(self, body: RequestClaim) -> Message:
        check_possible(body.shard, body.epoch, self.book.epochs)
        if self._full and not self.book.knows(body.request_id):
            return ClaimRefused(reason=f"the startd's spool is full: {self._full}", code="resources")
        job = _ad(body.job_ad)
        first = _ad(body.activation.job_ad) if body.activation else None
        missed = self.settings.alives_missed
        request = ClaimRequest(
            request_id=body.request_id,
            claim_id=body.claim_id,
            slot=body.slot,
            schedd=body.schedd,
            submitter=body.submitter,
            job_ad=body.job_ad,
            lease_s=lease_s(body.lease_s, body.alive_interval_s, missed),
            alive_interval_s=body.alive_interval_s,
            epoch=body.epoch,
            shard=body.shard,
            concurrency_limits=body.concurrency_limits,
            preempts=tuple(zip(body.preempts, body.preempt_claims, strict=False)),  # no proof, no preemption
        )
        answer = self.book.request(request, job, self._now())
        if isinstance(answer, Refused):
            self._write_down()
            self.context.log.info("claim_refused", slot=body.slot, code=answer.code, reason=answer.reason)
            code: Any = answer.code
            return ClaimRefused(reason=answer.reason, code=code)
        claim = answer.waiting.claim if isinstance(answer, Accepted) else answer.claim
        if answer.again:
            self.leases.renew([claim.claim_id], self.context.clock.monotonic())
        else:
            self._lease(claim)
        if isinstance(answer, Accepted):
            self._write_down()
            within = self.book.empty_within_s(answer.waiting, self._now())
            self.context.log.info("claim_waits", slot=claim.slot, schedd=claim.schedd, within_s=round(within, 1))
            return ClaimWaiting(claim_id=claim.claim_id, slot=claim.slot, within_s=within)
        if not answer.again:
            self._made(claim)
        refusal: Refused | None = None
        if body.activation is not None and first is not None:
            refusal = self._activate(claim.claim_id, body.activation, first)
        self._write_down()
        self.context.log.info("claimed", slot=claim.slot, claim=public_claim_id(claim.claim_id), schedd=claim.schedd)
        return self._granted(answer, body.activation is not None and refusal is None, refusal.reason if refusal else "")

    def _lease(self, claim: Claim) -> None:
        self.leases.grant(claim.claim_id, claim.lease_s, self.context.clock.monotonic())
        self._leased.set()

    def _made(self, claim: Claim) -> None:
        self._event(
            ClaimMade(
                at=self._now(),
                startd=self.name,
                slot=claim.slot,
                schedd=claim.schedd,
                submitter=claim.submitter,
            )
        )

    def _on_notice(self, body: MatchNotice) -> Message:
        """The negotiator told us of matches (NEG-39). What it says of a slot that is not as it was is passed over."""
        check_possible(body.shard, body.epoch, self.book.epochs)
        if body.epoch < self.book.epochs.get(body.shard, 0):
            return Failure(code="stale-epoch", reason=f"epoch {body.epoch} of {body.negotiator} is over")
        for one in body.slots:
            ignored = self.book.matched(one.slot, one.claim_id, body.epoch, body.shard, self._now())
            if ignored:
                self.context.log.info("match_notice_ignored", slot=one.slot[:200], reason=ignored[:400])
        self._write_down()
        return Ack()

    def _granted(self, granted: Granted, activated: bool, refusal: str) -> ClaimGranted:
        left = granted.leftover
        leftover = None
        if left is not None:
            leftover = Leftover(slot=left.name, claim_id=left.offer, slot_ad=self.showcase.ad_of(left).public().pack())
        return ClaimGranted(
            claim_id=granted.claim.claim_id,
            slot=granted.slot.name,
            slot_ad=self.showcase.ad_of(granted.slot).public().pack(),
            leftover=leftover,
            activated=activated,
            refusal=refusal,
        )

    def _on_activate(self, body: ActivateClaim) -> Message:
        activation = body.activation
        refusal = self._activate(body.claim_id, activation, _ad(activation.job_ad))
        self._write_down()
        if refusal is not None:
            return Failure(code="refused", reason=refusal.reason)
        return Activated(job_id=activation.job_id, attempt=activation.attempt)

    def _activate(self, claim_id: str, activation: Activation, job: ClassAd) -> Refused | None:
        """Start a run; why not, if it can not be."""
        key = records.run_key(activation)
        answer = self.book.activate(claim_id, key, activation.job_ad, job, self._now())
        if isinstance(answer, Refused):
            return answer
        if key in self.runs:
            return None
        self._take_up(self._record(claim_id, answer.slot, answer.schedd, activation, answer.lease_s))
        return None

    def _record(self, claim_id: str, slot: str, schedd: str, activation: Activation, lease: float) -> RunRecord:
        unique = self.context.new_id()
        record = RunRecord(
            name=f"{self.name}/{activation.job_id}/{activation.attempt}/{unique}",
            claim_id=claim_id,
            slot=slot,
            schedd=schedd,
            job_id=activation.job_id,
            attempt=activation.attempt,
            job_ad=activation.job_ad,
            transfer_url=activation.transfer_url,
            transfer_token=activation.transfer_token,
            scratch=sandbox.name_of(self.name, unique),
            docker=False,
            began=self._now(),
            lease_s=lease,
        )
        self.save(record, soon=True)  # before the request is answered: with the claim, in `_write_down`
        return record

    def _on_deactivate(self, body: DeactivateClaim) -> Message:
        run = self.runs.get(f"{body.job_id}/{body.attempt}")
        if run is not None and run.record.claim_id == body.claim_id:
            how: Any = "evicted" if body.why in ("vacate", "evict") else "killed"
            run.stop(
                how,
                body.why,
                f"stopped by the schedd: {body.why}",
                fast=body.how == "fast",
                want_output=body.want_output,
            )
        return Ack()

    def _on_release(self, body: ReleaseClaim) -> Message:
        self._vacate(body.claim_id, "released by the schedd", graceful=body.how == "graceful")
        self._write_down()
        return Ack()

    def _vacate(self, claim_id: str, reason: str, *, graceful: bool) -> None:
        self.book.vacate(claim_id, reason, graceful=graceful, now=self._now())

    # ---------------------------------------------------------------- what runs need (Hands)

    def launcher(self, docker: bool) -> Launcher:
        return self.docker if docker else self.processes

    def session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self._http

    def machine_ad(self, slot: str) -> ClassAd:
        found = self.book.slots.get(slot)
        return self.showcase.ad_of(found) if found is not None else self.showcase.base

    def save(self, record: RunRecord, *, soon: bool = False) -> None:
        self._unwritten["runs", record.key] = record.pack()
        if not soon:
            self._flush()
        elif self._journal_timer is None:
            self._journal_timer = asyncio.get_running_loop().call_later(JOURNAL_S, self._flush)

    def _flush(self) -> None:
        """Everything that was put aside, in one transaction."""
        if self._journal_timer is not None:
            self._journal_timer.cancel()
            self._journal_timer = None
        rows, self._unwritten = self._unwritten, {}
        try:
            self.journal.write([(table, key, record) for (table, key), record in rows.items()])
        except JournalFull as error:
            # Jobs go on and end meanwhile; only a crash before there is room runs some of them again.
            self._unwritten = rows | self._unwritten
            if not self._full:
                self.context.log.error("spool_full", reason=str(error))
            self._full = str(error)
            if not self._closing:
                self._journal_timer = asyncio.get_running_loop().call_later(FULL_S, self._flush)
        except BaseException:
            self._unwritten = rows | self._unwritten
            raise
        else:
            self._full = ""

    async def sync(self) -> None:
        await asyncio.to_thread(self.journal.sync)

    def vacate_time(self, slot: str, job: ClassAd) -> float:
        found = self.book.slots.get(slot)
        if found is not None and found.state is State.PREEMPTING and found.claim is not None:
            # The slot's own clock kills the job, and shows it; this one is for the case that it fails to.
            return found.claim.vacate_s + self.settings.killing_timeout
        type_id = found.type_id if found is not None else 0
        return leaving.vacate_time_s(self.settings.policy(type_id), self.machine_ad(slot), job)

    def claim_over(self, claim_id: str) -> bool:
        return claim_id not in self.book.claims

    def run_ended(self, run: Run) -> None:
        self.book.run_gone(run.record.claim_id, run.key, self._now())
        self._write_down()

    def run_told(self, run: Run, ack: JobReportAck | None) -> None:
        record = run.record
        if self.runs.get(run.key) is run:
            del self.runs[run.key]
        self._unwritten["runs", run.key] = None
        claim = self.book.claims.get(record.claim_id)
        if ack is None or not ack.known:
            if claim is not None and not claim.run:
                self._vacate(record.claim_id, "the schedd does not know its job", graceful=True)
                self._spawn(
                    self._tell_lost(claim.schedd, claim.slot, claim.claim_id, "its job is not known to you"),
                    "claim-lost",
                )
        elif ack.next is not None:
            self._take_next(record, ack.next)
        elif ack.release:
            self._vacate(record.claim_id, "released by the schedd", graceful=True)
        self._write_down()

    def _take_next(self, record: RunRecord, activation: Activation) -> None:
        """The schedd handed over the next job of the claim; it takes it for started, so a refusal is an end. Where the
        claim went while that was on its way, the job is not to blame."""
        refusal: Refused | None
        try:
            refusal = self._activate(record.claim_id, activation, _ad(activation.job_ad))
        except RemoteFailure as error:
            refusal = Refused("bad-request", error.reason)
        key = records.run_key(activation)
        if refusal is None or key in self.runs:
            return
        refused = self._record(record.claim_id, record.slot, record.schedd, activation, record.lease_s)
        reason: Any = "evicted" if refusal.code in _CLAIM_IS_OVER else "failed"
        refused.exit = JobExit(reason=reason, message=refusal.reason).model_dump()
        self.save(refused, soon=True)
        self._take_up(refused)

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._spawn(work, name)

    # ---------------------------------------------------------------- telling

    def _write_down(self) -> None:
        """Carry out what the book has changed: journal, leases, events, ads."""
        changes = self.book.drain()
        if not changes:
            self._flush()
            return
        urgent = self._note(changes)
        self._flush()
        for stop in changes.stops:
            self._stop_run(stop)
        for ended in changes.ended:
            self._over(ended)
        for claim in changes.ready:
            self._lease(claim)
            self._made(claim)
            self.context.log.info("claim_ready", slot=claim.slot, schedd=claim.schedd)
            self._spawn(self._tell_ready(claim), "claim-ready")
        for name in changes.gone:
            self.showcase.forget(name)
            self._told.pop(name, None)
            self._shown.pop(name, None)
        self._changed = (self._changed | changes.slots) - changes.gone
        self._gone |= changes.gone
        if self.showcase.siblings_changed():
            self._changed |= set(self.book.slots)
        if urgent:
            self._dirty.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._tell_later)

    def _note(self, changes: Changes) -> bool:
        """What is to be written down of these changes, and leases of claims that are gone. True when the pool should
        hear of them at once: somebody may act on them."""
        rows = self._unwritten
        urgent = bool(changes.gone)
        for claim_id, claim in changes.claims.items():
            if claim is not None and self.book.claims.get(claim_id) is claim:
                rows["claims", claim_id] = records.pack_claim(claim, self.book.slots[claim.slot])
            else:
                self.leases.drop(claim_id)
                rows["claims", claim_id] = None
        for claim_id, waiting in changes.waiting.items():
            rows["waiting", claim_id] = None if waiting is None else records.pack_waiting(waiting)
            if waiting is None and claim_id not in self.book.claims:
                self.leases.drop(claim_id)
        for name in changes.slots:
            slot = self.book.slots.get(name)
            if slot is None:
                continue
            partitionable = slot.kind is SlotKind.PARTITIONABLE
            if partitionable and self._offered.get(name) != (slot.offer, slot.children):
                self._offered[name] = (slot.offer, slot.children)
                rows["offers", name] = {"claim_id": slot.offer, "children": slot.children}
            shown = (slot.state, slot.offer, slot.waiting, slot.asked, slot.free if partitionable else None)
            if self._shown.get(name) != shown:
                self._shown[name] = shown
                urgent = True
            if slot.activity in _PASSING or slot.state is State.MATCHED:
                self._looks.set()
        if self.book.claims and not self._polling:
            self._looks.set()
        return urgent

    def _stop_run(self, stop: StopRun) -> None:
        run = self.runs.get(stop.run)
        if run is not None:
            run.stop("evicted", "evict", stop.reason, fast=stop.fast, vacate_code=stop.code)

    def _over(self, ended: Ended) -> None:
        """A claim is over: tell the pool, and its schedd if that does not learn it from the end of a run."""
        claim = ended.claim
        self._event(
            ClaimEnded(
                at=self._now(),
                startd=self.name,
                slot=claim.slot,
                schedd=claim.schedd,
                submitter=claim.submitter,
                reason=ended.reason,
            )
        )
        self.context.log.info("claim_ended", slot=claim.slot, reason=ended.reason)
        if ended.broken and not any(run.record.claim_id == claim.claim_id for run in self.runs.values()):
            self._spawn(self._tell_lost(claim.schedd, claim.slot, claim.claim_id, ended.reason), "claim-lost")

    def _tell_later(self) -> None:
        self._later = None
        self._dirty.set()

    async def _advertise(self) -> None:
        """Ads go out when something changed, and every UPDATE_INTERVAL to live on."""
        clock = self.context.clock
        due = clock.monotonic()
        while True:
            self._dirty.clear()
            if clock.monotonic() >= due:
                due = clock.monotonic() + self.settings.update_interval
                self.showcase.renew()
                self._changed, self._gone = set(), set()
                whole = {slot.name: self.showcase.ad_of(slot) for slot in list(self.book.slots.values())}
                self._tell_slots(list(whole))
                await self.advertiser.publish(whole, self.book.offers())
            elif self._changed or self._gone:
                changed, gone, self._changed, self._gone = self._changed, self._gone, set(), set()
                some = {n: self.showcase.ad_of(self.book.slots[n]) for n in changed if n in self.book.slots}
                self._tell_slots(list(some))
                await self.advertiser.change(some, gone - some.keys(), self.book.offers())
            await clock.sleep(MIN_GAP_S)
            try:
                # Not wait_for: Python 3.11's loses a cancellation that comes together with the event.
                async with asyncio.timeout(max(0.0, due - clock.monotonic())):
                    await self._dirty.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0)  # what changes in this turn of the loop goes out together

    def _tell_slots(self, names: list[str]) -> None:
        """Events for the slots whose state or activity is another than last told."""
        events = []
        for name in names:
            slot = self.book.slots[name]
            before = self._told.get(name)
            if before == slot.condition:
                continue
            self._told[name] = slot.condition
            claim = slot.claim
            events.append(
                SlotChanged(
                    at=slot.activity_since,
                    startd=self.name,
                    slot=name,
                    state=slot.state,
                    activity=slot.activity,
                    from_state=before.state if before else "",
                    from_activity=before.activity if before else "",
                    owner=claim.submitter if claim else "",
                    job_id=claim.run.partition("/")[0] if claim else "",
                )
            )
        if events:
            self._spawn(self._publish(events), "events")

    def _event(self, event: Message) -> None:
        self._spawn(self._publish([event]), "events")

    async def _publish(self, events: list[Any]) -> None:
        try:
            await self.context.bus.publish_many([Outgoing(Exchange.EVENTS, one.type, one) for one in events])
        except BusUnavailable as error:
            self.context.log.debug("events_not_sent", reason=str(error))

    async def _tell_lost(self, schedd: str, slot: str, claim_id: str, reason: str) -> None:
        try:
            message = ClaimLost(startd=self.name, slot=slot, claim_id=claim_id, reason=reason)
            await self.context.bus.send(f"schedd.{schedd}", message)
        except RoostError as error:
            # The schedd learns it from the next answer to its Alive.
            self.context.log.info("claim_lost_not_sent", slot=slot, reason=str(error))

    async def _tell_ready(self, claim: Claim) -> None:
        try:
            message = ClaimReady(startd=self.name, slot=claim.slot, claim_id=claim.claim_id)
            await self.context.bus.send(f"schedd.{claim.schedd}", message)
        except RoostError as error:
            # The schedd asks again by itself.
            self.context.log.info("claim_ready_not_sent", slot=claim.slot, reason=str(error))

    # ---------------------------------------------------------------- meanwhile

    async def _watch_leases(self) -> None:
        clock = self.context.clock
        while True:
            for claim_id in self.leases.expired(clock.monotonic()):
                waiting = self.book.waiting.get(claim_id)
                claim = waiting.claim if waiting is not None else self.book.claims.get(claim_id)
                if claim is None:
                    continue
                reason = f"the schedd was silent for the lease of {claim.lease_s:g} s"
                self.context.log.warning("lease_expired", slot=claim.slot, lease_s=claim.lease_s)
                # Not awaited: where the broker is away, which is how most leases end, each would take its time.
                self._spawn(self._tell_lost(claim.schedd, claim.slot, claim_id, reason), "claim-lost")
                self._vacate(claim_id, reason, graceful=False)
                self._write_down()
            self._leased.clear()
            end = self.leases.next_end()
            timeout = None if end is None else max(0.01, end - clock.monotonic())
            try:
                async with asyncio.timeout(timeout):
                    await self._leased.wait()
            except TimeoutError:
                continue

    async def _review(self) -> None:
        """Look at the policy every POLLING_INTERVAL while a slot is claimed, else every UPDATE_INTERVAL (STM-42); and
        when something comes to its end meanwhile: a retirement, a vacate time, a match."""
        clock = self.context.clock
        due = clock.monotonic()
        while True:
            self._looks.clear()
            mono, now = clock.monotonic(), self._now()
            self._polling = bool(self.book.claims)
            interval = self.settings.polling_interval if self._polling else self.settings.update_interval
            due = mono + interval if mono >= due else min(due, mono + interval)
            look = self.book.next_look(now)
            wait = due - mono if look is None else min(due - mono, max(MIN_GAP_S, look - now))
            try:
                async with asyncio.timeout(wait):
                    await self._looks.wait()
            except TimeoutError:
                self.showcase.refresh()
                self.book.review(self._now())
                self._write_down()

    async def _watch_docker(self) -> None:
        """Keep HasDocker and DockerVersion true, and the watch over containers alive."""
        while True:
            version = await self.docker.probe()
            if version != self.showcase.around.docker_version:
                self.context.log.info("docker", version=version, reason=self.docker.trouble)
                self.showcase.set_docker(version)
                self._changed |= set(self.book.slots)
                self._dirty.set()
            await self.docker.wait_for_trouble(self.settings.docker_probe)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._closing:
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The one place for mistakes of ours outside of the root tasks: loud, and the daemon goes on.
            self.context.log.error("task_failed", task=task.get_name(), exc_info=error)

    def _now(self) -> float:
        return self.context.clock.now()


def _ad(packed: bytes) -> ClassAd:
    """Unpack an ad that came from outside. Raises RemoteFailure."""
    try:
        return ClassAd.unpack(packed).check()
    except ValueError as error:
        raise RemoteFailure("bad-request", f"the job's ad can not be read: {error}") from error
