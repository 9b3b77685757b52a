"""Runs of jobs: from their beginning on a claim over the startd's reports to their end.

One claim carries one run at a time. Attempt numbers make runs distinct; what an older attempt says or sends counts for
nothing. Before a run is given away it is in the database, and before its end is acknowledged that end is, so a schedd
that was killed at any moment carries on where it was.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final

from services.schedd import activation, ending, sandbox, trail
from services.schedd.claiming import alive_s, fits, lease_s, next_job
from services.schedd.idle import Key
from services.schedd.job_states import JobEvent, Verdict
from services.schedd.jobs import ACTIVE, Job, JobId, JobStatus, full_ad
from services.schedd.keeper import Keeper, job_of
from services.schedd.policies import CoolDown, Hold, next_duration
from services.schedd.settings import Settings
from services.schedd.shadow import Claim, Shadow
from shared import job_log
from shared.bus.api import BusUnavailable, CallTimeout, RemoteFailure
from shared.messages.claims import (
    Activation,
    ClaimLost,
    DeactivateClaim,
    JobExit,
    JobReport,
    JobReportAck,
    ReleaseClaim,
    public_claim_id,
)
from shared.messages.events import JobEvicted, JobStarted

STOP_TIMEOUT_S: Final = 10.0


class Runs:
    """Claims of this schedd and the runs on them."""

    def __init__(self, keeper: Keeper, settings: Settings) -> None:
        self.keeper = keeper
        self.context = keeper.context
        self.table = keeper.table
        self.queue = keeper.queue
        self.settings = settings
        self.transfer_url = ""  # base of the transfer endpoint; set when it listens
        self.claims: dict[str, Claim] = {}  # by our own id
        self.by_claim_id: dict[str, Claim] = {}  # granted ones, and those that wait
        self.dropped: Callable[[Claim], None] = lambda claim: None
        self.cool_down = CoolDown()
        self.lost_soon = asyncio.Event()  # a new claim: the keep-alive timer looks again
        self.on_duration: Callable[[Job], None] = lambda job: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[JobId, asyncio.TimerHandle] = {}
        keeper.stop_run = self.stop
        keeper.abandon_run = self.abandon

    # The beginning

    def begin(self, job: Job, claim: Claim, now: float) -> Activation | None:
        """Make the job's next run on this claim: None when it can not be (the job is on hold then)."""
        expanded = activation.expansion(self.keeper.name, job, claim, now)
        if expanded.problem:
            self.keeper.happen(job, JobEvent.HOLD, reason=expanded.problem, code=Hold.UNSPECIFIED)
            return None
        activation.tell_match(job, claim)
        for name, text in expanded.changes.items():
            if name.startswith("MATCH_EXP_"):
                job.ad[name] = text
        shadow = Shadow(
            job=job.id,
            attempt=job.count("NumShadowStarts"),
            token=secrets.token_urlsafe(24),
            transfer=sandbox.wants_transfer(job.ad, claim.slot_classad(), spooled=job.cluster.spool),
            started=now,
            claim=claim.id,
        )
        begun = self.keeper.happen(job, JobEvent.START)
        assert begun.verdict is Verdict.DONE, begun.reason
        self._lease(claim, lease_s(job.number("JobLeaseDuration", 0)))
        claim.shadow = shadow
        job.shadow = shadow
        self.table.count(claim.submitter).weighted_running += claim.weight()
        ending.on_start(job, claim, now)
        self.queue.put(job)
        self.queue.put_claim(claim)
        return activation.make(self.keeper.name, job, claim, shadow, expanded.changes, self.transfer_url, now)

    def _lease(self, claim: Claim, lease: int) -> None:
        """The claim's lease is its job's, also of a further job (LEA-01, LEA-04)."""
        interval = claim.alive_s
        claim.lease_s, claim.alive_s = lease, alive_s(interval, lease)
        if claim.alive_s < interval:
            self.lost_soon.set()

    def again(self, claim: Claim, job: Job) -> Activation:
        """The same run as before, told once more: the message that began it may have been lost."""
        assert claim.shadow is not None
        now = self.keeper.now()
        expanded = activation.expansion(self.keeper.name, job, claim, now)
        return activation.make(self.keeper.name, job, claim, claim.shadow, expanded.changes, self.transfer_url, now)

    # Claims

    def give_back(self, claim: Claim, reason: str) -> None:
        """Release a claim that is of no more use."""
        self.drop(claim)
        if claim.granted:
            self.context.log.debug("claim_released", claim=public_claim_id(claim.claim_id), reason=reason)
            self.spawn(self.release(claim.startd, claim.claim_id), "release")

    async def release(self, startd: str, claim_id: str) -> None:
        try:
            await self.context.bus.call(startd, ReleaseClaim(claim_id=claim_id), timeout=STOP_TIMEOUT_S)
        except (BusUnavailable, CallTimeout, RemoteFailure) as error:
            # It ends with its lease, as nobody keeps it alive any more.
            self.context.log.info("claim_not_released", claim=public_claim_id(claim_id), reason=str(error))

    def drop(self, claim: Claim) -> None:
        """Forget a claim."""
        if self.claims.pop(claim.id, None) is not None:
            for claim_id in (claim.claim_id, claim.waits_as):
                if self.by_claim_id.get(claim_id) is claim:
                    del self.by_claim_id[claim_id]
            self.queue.drop_claim(claim)
            self.dropped(claim)

    def claim_of(self, job: Job) -> Claim | None:
        """The claim a job's run is on."""
        return self.claims.get(job.shadow.claim) if job.shadow is not None else None

    # Reports

    async def report(self, report: JobReport) -> JobReportAck:
        """A startd tells how a run goes; what is answered is on disk."""
        job = job_of(self.table, report.job_id)
        run = job.shadow if job is not None else None
        if job is None or run is None or run.attempt != report.attempt:
            return await self._stale_report(report)
        claim = self._claim_for(report, run)
        if claim is None:
            return JobReportAck(known=False, release=True)
        claim.heard = self.context.clock.monotonic()
        report = ending.sane(report)
        if report.phase != "ended":
            if report.sequence > run.sequence:
                if run.stop and run.sequence < 0:
                    # Its beginning was slower than the order to stop, which found nothing and was acknowledged.
                    self.spawn(self.tell_stop(claim, run), "stop")
                run.sequence = report.sequence
                self._progress(report, claim, job, run)
                self.keeper.commit()
            return JobReportAck()
        answer = self._ended(report, claim, job, run)
        await self.keeper.commit()
        return answer

    def _claim_for(self, report: JobReport, run: Shadow) -> Claim | None:
        """The claim of a run, if the report may speak for it: it must know the claim's secret."""
        known = self.by_claim_id.get(report.claim_id)
        if known is not None:
            return known if known.shadow is run else None
        claim = self.claims.get(run.claim)
        if claim is None or claim.granted or report.startd not in (claim.startd, _name(claim.startd)):
            return None
        # The grant was lost on its way, or is slower than the job; the claim id of a carved slot is news.
        claim.granted, claim.granted_at = True, self.keeper.now()
        claim.claim_id, claim.slot = report.claim_id, report.slot
        self.by_claim_id[claim.claim_id] = claim
        self.queue.put_claim(claim)
        self.lost_soon.set()
        return claim

    async def _stale_report(self, report: JobReport) -> JobReportAck:
        """A report of a run that is over, as far as we know. If its end was acknowledged and the answer was lost, the
        same answer is given again."""
        if report.phase == "ended":
            # It may be on its way to the disk still: who hears of it here forgets it there.
            await self.keeper.commit()
        claim = self.by_claim_id.get(report.claim_id)
        if claim is None:
            return JobReportAck(known=False, release=True)
        claim.heard = self.context.clock.monotonic()
        if report.phase == "ended" and claim.previous == (report.job_id, report.attempt):
            job = self.table.get(claim.shadow.job) if claim.shadow is not None else None
            if job is not None:
                return JobReportAck(next=self.again(claim, job))
            return JobReportAck(release=True)
        return JobReportAck(known=False)

    def _progress(self, report: JobReport, claim: Claim, job: Job, run: Shadow) -> None:
        now = self.keeper.now()
        grown = report.usage.image_size_kib > job.number("ImageSize")
        ending.on_usage(job, report.usage)
        ending.on_updates(job, report.updates)
        run.stored_usage = report.usage
        host = self._host(claim)
        if report.phase == "transferring-input":
            self.record(job, lambda: job_log.transferring(job.id, now, "input", "started", host))
        elif report.phase == "running":
            if not run.executing:
                run.executing = report.started_at or report.at
                if run.transfer:
                    self.record(job, lambda: job_log.transferring(job.id, now, "input", "finished"))
                self._executing(job, claim, run, now)
                self.queue.put_claim(claim)
            elif job.status == JobStatus.SUSPENDED:
                self.keeper.happen(job, JobEvent.CONTINUE)
                ending.on_continue(job, run, now)
                self.record(job, lambda: job_log.unsuspended(job.id, now))
            elif grown:
                self.record(job, lambda: job_log.image_size(job.id, now, report.usage))
        elif report.phase == "suspended" and job.status == JobStatus.RUNNING:
            self.keeper.happen(job, JobEvent.SUSPEND)
            ending.on_suspend(job, run, now)
            self.record(job, lambda: job_log.suspended(job.id, now, report.usage.procs))
        elif report.phase == "transferring-output":
            self.keeper.happen(job, JobEvent.OUTPUT)
            self.record(job, lambda: job_log.transferring(job.id, now, "output", "started"))
        self.keeper.save(job)

    def record(self, job: Job, text: Callable[[], bytes]) -> None:
        """For the user's log: what a run does, or what becomes of it. Nothing of a job that was held or removed
        meanwhile, as the log has told that already."""
        if job.status in ACTIVE:
            self.keeper.record(job, text)

    def _executing(self, job: Job, claim: Claim, run: Shadow, now: float) -> None:
        self.keeper.launches.add(now - max(run.started, claim.granted_at))
        if job.status not in ACTIVE:
            return  # held or removed while it was on its way: that was told, and stands
        ending.on_executing(job, run, now)
        self.keeper.record(
            job,
            lambda: job_log.executing(job.id, now, self._host(claim), claim.slot, claim.slot_classad()),
        )
        self.keeper.tell(
            JobStarted(
                **self.keeper.about(job, now),
                slot=claim.slot,
                attempt=run.attempt,
                waited_s=max(0.0, run.started - job.idle_since()),
                began=run.started,
            )
        )
        self.watch_duration(job)

    def _ended(self, report: JobReport, claim: Claim, job: Job, run: Shadow) -> JobReportAck:
        """The run is over: what becomes of the job, and which job is next on the claim."""
        now = self.keeper.now()
        exit_ = report.exit
        ending.on_usage(job, report.usage)
        ending.on_updates(job, report.updates)
        if (
            not run.executing
            and report.started_at
            and exit_ is not None
            and exit_.reason in ("exited", "killed", "evicted")
        ):
            run.executing = report.started_at  # its report was lost, or came too late
            self._executing(job, claim, run, now)
        stopped = run.stop
        self.over(claim, job, run, exit_ or ending.NO_EXIT)
        claim.previous = (report.job_id, report.attempt)
        result = ending.Result(
            report.usage,
            exit_ or ending.NO_EXIT,
            claim.slot,
            claim.slot_classad(),
            run,
            now,
        )
        ending.conclude(
            self.keeper,
            job,
            result,
            requeue=lambda reason, failed, code: self.requeue(job, reason, failed=failed, code=code),
        )
        good = exit_ is not None and (
            (exit_.reason == "exited" and not ending.output_missing(run, exit_))
            or (exit_.reason == "killed" and stopped != "vacate")
        )
        run_next = self._next(claim, now) if good and not report.claim_over else None
        if run_next is not None:
            self.queue.put_claim(claim)
            return JobReportAck(next=run_next)
        self.drop(claim)
        return JobReportAck(release=True)

    def over(self, claim: Claim, job: Job, run: Shadow, exit_: JobExit | None = None) -> None:
        """A run is no more, however it ended. exit_: what its last report says; None: there was none."""
        trail.on_over(self.keeper.name, job, claim, run, exit_, self.keeper.now())
        timer = self._timers.pop(job.id, None)
        if timer is not None:
            timer.cancel()
        claim.shadow = None
        job.shadow = None
        self.table.count(claim.submitter).weighted_running -= claim.weight()
        ending.on_over(job, claim, run, self.keeper.now())
        self.keeper.save(job)

    def _next(self, claim: Claim, now: float) -> Activation | None:
        """Begin the next job of the same submitter on this claim, if one fits."""
        if not self._keeps_leases(claim):
            return None
        if claim.generation != self.table.autoclusters.generation:
            claim.fits.clear()
            claim.generation = self.table.autoclusters.generation
        slot = claim.slot_classad()

        def fit(key: Key, autocluster: int) -> bool:
            return fits(full_ad(self.keeper.name, self.table.at(key), now), slot, now, claim.concurrency_limits)

        while True:
            found = next_job(self.table.idle.get(claim.submitter), claim.fits, fit)
            if found.key is None:
                return None
            run = self.begin(self.table.at(found.key), claim, now)
            if run is not None:
                return run

    def _keeps_leases(self, claim: Claim) -> bool:
        return claim.id in self.claims and claim.granted

    # Ends that come from elsewhere

    def requeue(self, job: Job, reason: str, *, failed: bool, code: int = 0) -> None:
        """The job's run ended without success; it waits for another, a while longer after repeated failures. `code` is
        the VacateReasonCode, if the reason has one."""
        now = self.keeper.now()
        job.ad["LastVacateTime"] = int(now)
        job.ad["VacateReason"] = reason[:1000]
        job.drop("VacateReasonCode")
        if code:
            job.ad["VacateReasonCode"] = code
        if failed:
            wait = self.cool_down.wait_s(job.count("NumShadowExceptions"))
            if wait:
                job.ad["JobCoolDownExpiration"] = int(now + wait)
                self.cool(job, wait)
        self.back(job)

    def cool(self, job: Job, wait_s: float) -> None:
        """Keep a job from being offered for a while."""
        job.cooling = True
        self.table.refresh(job)
        asyncio.get_running_loop().call_later(wait_s, self._cooled, job)

    def _cooled(self, job: Job) -> None:
        job.cooling = False
        if self.table.get(job.id) is job:
            self.table.refresh(job)
            self.keeper.demand_grew.set()

    def back(self, job: Job) -> None:
        """Idle again; or, if it was held or removed meanwhile, what that asks for."""
        event = JobEvent.REQUEUE if job.status in ACTIVE else JobEvent.OVER
        self.keeper.happen(job, event)

    def lost(self, claim: Claim, reason: str, *, reconnecting: bool = False) -> None:
        """The claim is gone, and the run on it: the job must run again elsewhere."""
        run = claim.shadow
        job = self.table.get(run.job) if run is not None else None
        if run is not None and job is not None:
            now = self.keeper.now()
            self.over(claim, job, run)
            usage = run.stored_usage
            if reconnecting:
                self.record(job, lambda: job_log.reconnect_failed(job.id, now, reason, claim.slot))
            else:
                self.record(job, lambda: job_log.evicted(job.id, now, reason, usage, ()))
            if job.status in ACTIVE:
                self.keeper.tell(
                    JobEvicted(
                        **self.keeper.about(job, now),
                        slot=claim.slot,
                        attempt=run.attempt,
                        reason=reason,
                    )
                )
            self.requeue(job, reason, failed=False)
        self.drop(claim)
        self.keeper.commit()

    async def claim_lost(self, message: ClaimLost) -> None:
        """A startd breaks a claim. The report of its run, if one is to come, came before."""
        claim = self.by_claim_id.get(message.claim_id)
        if claim is not None:
            self.lost(claim, message.reason)
            await self.keeper.commit()

    def stop(self, job: Job, why: str, how: str) -> None:
        """End a run; its last report tells when it is over. Harder ways override softer ones."""
        claim = self.claim_of(job)
        run = job.shadow
        if claim is None or run is None:
            return
        run.stop, run.how = why, how
        self.queue.put_claim(claim)
        if claim.granted:
            self.spawn(self.tell_stop(claim, run), "stop")

    async def tell_stop(self, claim: Claim, run: Shadow) -> None:
        await self.keeper.commit()
        message = DeactivateClaim.model_validate(
            {
                "claim_id": claim.claim_id,
                "job_id": str(run.job),
                "attempt": run.attempt,
                "how": run.how,
                "why": run.stop,
            }
        )
        pause = 0.2
        while claim.shadow is run and claim.id in self.claims:
            try:
                await self.context.bus.call(claim.startd, message, timeout=STOP_TIMEOUT_S)
                return
            except RemoteFailure as error:
                if not error.retryable:
                    # It knows no such run: its last report is on the way, or never will be.
                    about = {"job_id": str(run.job), "attempt": run.attempt, "reason": str(error)}
                    self.context.log.info("run_not_stopped", **about)
                    return
            except (BusUnavailable, CallTimeout) as error:
                self.context.log.info("run_not_stopped", job_id=str(run.job), attempt=run.attempt, reason=str(error))
            await self.context.clock.sleep(pause)
            pause = min(10.0, pause * 2)

    def abandon(self, job: Job) -> None:
        """Forget a run, whatever the startd says of it."""
        claim = self.claim_of(job)
        run = job.shadow
        if claim is not None and run is not None:
            self.over(claim, job, run)
            self.give_back(claim, "its job was removed by force")

    # Timers and tasks

    def watch_duration(self, job: Job) -> None:
        """Look at the job when a limit on its duration is reached, not at the next periodic look."""
        wait = next_duration(job.ad, self.keeper.now())
        if wait is not None:
            old = self._timers.pop(job.id, None)
            if old is not None:
                old.cancel()
            self._timers[job.id] = asyncio.get_running_loop().call_later(wait + 0.01, self.on_duration, job)

    def _host(self, claim: Claim) -> str:
        value = claim.slot_classad().eval("Machine")
        return value if isinstance(value, str) and value else _name(claim.startd)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something on the side; it is cancelled when the daemon ends."""
        task = asyncio.get_running_loop().create_task(work, name=f"schedd:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.context.log.error("schedd_task_failed", task=task.get_name(), error=str(error), exc_info=error)

    async def close(self) -> None:
        """Stop talking; jobs run on."""
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _name(inbox: str) -> str:
    return inbox.partition(".")[2]
