"""Runs of jobs: from their beginning on a claim over the startd's reports to their end.

One claim carries one run at a time. Attempt numbers make runs distinct; what an older attempt says or sends counts for
nothing. Before a run is given away it is in the database, and before its end is acknowledged that end is, so a schedd
that was killed at any moment carries on where it was.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from engine.queue.bucket import Key
from engine.queue.claim_reuse import fits, next_job
from engine.queue.job_table import JobTable
from engine.queue.jobs import ACTIVE, Job, JobId, JobStatus, Shadow, full_ad
from engine.queue.submitters import cores_asked
from services.schedd.core import flocking, job_end, job_launch_ad
from services.schedd.core.claim import Claim, alive_s, lease_s
from services.schedd.core.idle_claims import idle_s
from services.schedd.core.job_states import JobEvent, Verdict
from services.schedd.core.machine_attributes import note_machine
from services.schedd.core.policies import Hold
from services.schedd.core.reason_counts import RECONNECT_FAILED
from services.schedd.core.run_statistics import outcome
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.parallel_runs import ParallelRuns
from shared import job_log
from shared.bus.api import RemoteFailure
from shared.config.knobs.base import to_list
from shared.messages.claims import (
    Activation,
    ClaimLost,
    JobExit,
    JobReport,
    JobReportAck,
    JobReports,
    JobReportsAck,
    ReportAnswer,
)
from shared.messages.events import JobEvicted, JobStarted


class Runs:
    """Begins runs, and follows the reports on them. Those on nodes of parallel jobs are runs as all are; what they mean
    for their job is decided elsewhere (`parallel`)."""

    def __init__(self, updates: JobUpdates, parallel: ParallelRuns) -> None:
        self.updates = updates
        self.parallel = parallel
        self.context = updates.context
        self.claims = updates.claims
        self.table = updates.table
        self.queue = updates.queue
        self.transfer_url = ""  # base of the file server; set when it listens

    # The beginning

    def begin(self, job: Job, claim: Claim, now: float) -> Activation | None:
        """Make the job's next run on this claim: None when it can not be (the job is on hold then)."""
        expanded = job_launch_ad.expand_for(self.updates.name, job, claim, now)
        if expanded.problem:
            self.updates.happen(job, JobEvent.HOLD, reason=expanded.problem, code=Hold.UNSPECIFIED)
            return None
        job_launch_ad.tell_match(job, claim)
        for name, text in expanded.changes.items():
            if name.startswith("MATCH_EXP_"):
                job.ad[name] = text
        shadow = Shadow(
            job=job.id,
            attempt=job.count("NumShadowStarts"),
            token=secrets.token_urlsafe(24),
            transfer=job_launch_ad.wants_transfer(job.ad, claim.slot_classad(), spooled=job.cluster.spool),
            started=now,
            claim=claim.id,
        )
        self._lease(claim, lease_s(job.number("JobLeaseDuration", 0)))
        if claim.has_taken_run:
            begun = self.updates.happen(job, JobEvent.START)
            assert begun.verdict is Verdict.DONE, begun.reason
            job_end.on_start(job.ad, job.autocluster, claim, now)
            self._note_machine(job, claim)
        else:
            # Its execution point has not said yet that it is there: until then the job is idle, with a match.
            assert job.status == JobStatus.IDLE, job.id
            assert job.shadow is None, job.id
            job_end.on_match(job, claim)
            self.table.withdraw(job)
            self.updates.counts_changed.set()
        recycled = claim.previous is not None
        claim.shadow = shadow
        claim.asked = cores_asked(job.ad)
        job.shadow = shadow
        self.updates.runs.began(recycled=recycled)
        self.table.count(claim.submitter).weighted_running += claim.weight()
        self.queue.put(job)
        self.queue.put_claim(claim)
        return job_launch_ad.make_activation(
            self.updates.name, job, claim, shadow, expanded.changes, self.transfer_url, now
        )

    def _lease(self, claim: Claim, lease: int) -> None:
        """Give the claim the lease of its job, also of a further job (LEA-01, LEA-04)."""
        interval = claim.alive_s
        claim.lease_s, claim.alive_s = lease, alive_s(interval, lease)
        if claim.alive_s < interval:
            self.claims.keepalive_due.set()

    def taken(self, job: Job, claim: Claim) -> None:
        """The execution point has granted the claim, and with it taken the job: from now on the job is running. One
        that was held or removed meanwhile stays so, and its run is stopped."""
        if job.status == JobStatus.IDLE and job.shadow is not None and not job.shadow.stop:
            self.updates.happen(job, JobEvent.TAKEN)
            job_end.on_start(job.ad, job.autocluster, claim, self.updates.now())
            self._note_machine(job, claim)
        else:
            job.drop("RoostMatchedSlot")
            job_end.on_slot(job.ad, claim)
        self.queue.put(job)
        if job.whole is not None:
            self.parallel.taken(job, claim)

    def _note_machine(self, job: Job, claim: Claim, *, again: bool = False) -> None:
        slot, of_all = claim.slot_classad(), self.updates.settings.machine_attributes
        note_machine(job, slot, of_all, self.updates.now(), again=again)

    def activated(self, claim: Claim, run: Shadow) -> None:
        """The execution point of a kept claim has taken its job: it says so, or the run's first report does."""
        if not self.claims.knows(claim) or claim.shadow is not run or claim.has_taken_run:
            return
        claim.idle_until = 0.0
        claim.heard = self.context.clock.monotonic()
        self.queue.put_claim(claim)
        if (job := self.table.get(run.job)) is not None:
            self.taken(job, claim)

    def undo(self, claim: Claim, reason: str) -> None:
        """The run that was begun on a claim was not taken: its job goes back to where it stood, and the number of its
        attempt is free again."""
        run = claim.shadow
        job = self.table.get(run.job) if run is not None else None
        if run is not None and job is not None:
            job.count("NumShadowStarts", -1)
            self.updates.end_run(claim, job, run)
            self.updates.runs.not_started += 1
            if job.whole is not None:
                self.parallel.not_taken(job, reason)
            else:
                self.updates.put_back(job)

    def slot_known(self, claim: Claim) -> None:
        """The slot of a run that has begun is known better now: the one that was carved for it."""
        job = self.table.get(claim.shadow.job) if claim.shadow is not None else None
        if job is not None and job.status in ACTIVE:
            self._note_machine(job, claim, again=True)
            self.queue.put(job)

    def again(self, claim: Claim, job: Job) -> Activation:
        """The activation of a run that began already: the message that began it may have been lost."""
        assert claim.shadow is not None
        now = self.updates.now()
        expanded = job_launch_ad.expand_for(self.updates.name, job, claim, now)
        return job_launch_ad.make_activation(
            self.updates.name, job, claim, claim.shadow, expanded.changes, self.transfer_url, now
        )

    # Reports

    async def report(self, report: JobReport) -> JobReportAck:
        """Take a startd's report on a run. What is answered is on disk."""
        return (await self._answer(report)).model_copy(update={"takes_batches": True})

    async def reports(self, told: JobReports) -> JobReportsAck:
        """Take several at once: one transaction, and one message, for all of them."""
        # As tasks, so that each has done its part before the first of them waits for the disk.
        return JobReportsAck(answers=await asyncio.gather(*(self._one_of(told, report) for report in told.reports)))

    async def _one_of(self, told: JobReports, report: JobReport) -> ReportAnswer:
        try:
            if report.startd != told.startd:
                raise RemoteFailure("denied", f"{told.startd[:200]} may not report for {report.startd[:200]}")
            return ReportAnswer(ack=await self._answer(report))
        except RemoteFailure as error:
            return ReportAnswer(code=error.code, reason=error.reason, retryable=error.retryable)

    async def _answer(self, report: JobReport) -> JobReportAck:
        job = find_job(self.table, report.job_id)
        run = job.shadow if job is not None else None
        if job is None or run is None or run.attempt != report.attempt:
            return await self._stale_report(report)
        claim = self._claim_for(report, run)
        if claim is None:
            return JobReportAck(known=False, release=True)
        claim.heard = self.context.clock.monotonic()
        self.activated(claim, run)
        report = job_end.sanitize_report(report)
        if report.phase != "ended":
            if report.sequence > run.sequence:
                if run.stop and run.sequence < 0:
                    # Its beginning was slower than the order to stop, which found nothing and was acknowledged.
                    self.claims.tell_stop(claim, run)
                elif run.suspension_due and run.sequence < 0:
                    self.claims.tell_suspension(claim, run)
                run.sequence = report.sequence
                self._progress(report, claim, job, run)
                self.updates.commit()
            if not report.renew:
                return JobReportAck()
            # Who hears of it gives the claim its whole lease: a schedd that is killed now must know of the claim too.
            await self.updates.commit()
            return JobReportAck(renewed=True)
        answer = self._ended(report, claim, job, run)
        await self.updates.commit()
        return answer

    def _claim_for(self, report: JobReport, run: Shadow) -> Claim | None:
        """The claim of a run, if the report may speak for it: it must know the claim's secret."""
        known = self._own(report)
        if known is not None:
            return known if known.shadow is run else None
        claim = self.claims.claims.get(run.claim)
        if claim is None or claim.granted or not claim.of(report.startd):
            return None
        # The grant was lost on its way, or is slower than the job; the claim id of a carved slot is news.
        claim.granted, claim.granted_at = True, self.updates.now()
        claim.claim_id, claim.slot = report.claim_id, report.slot
        self.claims.by_claim_id[claim.claim_id] = claim
        self.queue.put_claim(claim)
        self.claims.keepalive_due.set()
        if (job := self.table.get(run.job)) is not None:
            self.taken(job, claim)
        return claim

    def _own(self, message: JobReport | ClaimLost) -> Claim | None:
        """The claim that a startd speaks of, if we know it. Raises RemoteFailure for one on another startd: a claim id
        that leaked gives nobody else a say."""
        claim = self.claims.by_claim_id.get(message.claim_id)
        if claim is not None and not claim.of(message.startd):
            self.context.log.warning("claim_of_another", type=message.type, startd=message.startd, slot=claim.slot)
            raise RemoteFailure(
                "denied", f"the claim of slot {message.slot[:200]} is not one on {message.startd[:200]}"
            )
        return claim

    async def _stale_report(self, report: JobReport) -> JobReportAck:
        """A report of a run that is over, as far as we know. If its end was acknowledged and the answer was lost, the
        same answer is given again."""
        claim = self._own(report)
        if report.phase == "ended":
            # It may be on its way to the disk still: who hears of it here forgets it there.
            await self.updates.commit()
            claim = self._own(report)
        if claim is None:
            return JobReportAck(known=False, release=True)
        claim.heard = self.context.clock.monotonic()
        if report.phase == "ended" and claim.previous == (report.job_id, report.attempt):
            job = self.table.get(claim.shadow.job) if claim.shadow is not None else None
            if job is not None:
                return JobReportAck(next=self.again(claim, job))
            return JobReportAck(release=claim not in self.claims.idle)
        return JobReportAck(known=False)

    def _progress(self, report: JobReport, claim: Claim, job: Job, run: Shadow) -> None:
        now = self.updates.now()
        grown = report.usage.image_size_kib > job.number("ImageSize")
        job_end.on_usage(job, report.usage)
        job_end.on_updates(job, report.updates)
        run.stored_usage = report.usage
        host = self._host(claim)
        if job.whole is not None:
            self.parallel.progress(job, report)
        if report.phase == "transferring-input":
            self._input_began(job, run, now, host)
        if report.phase in ("running", "suspended") and not run.executing:
            run.executing = report.started_at or report.at
            self._input_done(job, run, now, host)
            self._executing(job, claim, run, now, now, report.scratch)
            self.queue.put_claim(claim)
        elif report.phase == "running":
            if job.status == JobStatus.SUSPENDED:
                self.updates.happen(job, JobEvent.CONTINUE)
                job_end.on_continue(job, run, now)
                self.record(job, lambda: job_log.unsuspended(job.id, now))
            elif grown:
                proportional = int(job.number("ProportionalSetSizeKb")) or None
                self.record(job, lambda: job_log.image_size(job.id, now, report.usage, proportional))
        if report.phase == "suspended" and job.status == JobStatus.RUNNING:
            self.updates.happen(job, JobEvent.SUSPEND)
            job_end.on_suspend(job, run, now)
            self.record(job, lambda: job_log.suspended(job.id, now, report.usage.procs))
        elif report.phase == "transferring-output":
            self.updates.happen(job, JobEvent.OUTPUT)
            if not run.output_told:
                run.output_told = True
                self.record(job, lambda: job_log.transferring(job.id, now, "output", "started"))
        self.updates.queue.put(job)

    def _input_began(self, job: Job, run: Shadow, now: float, host: str) -> None:
        if not run.input_told:
            run.input_told = True
            self.record(job, lambda: job_log.transferring(job.id, now, "input", "started", host))

    def _input_done(self, job: Job, run: Shadow, now: float, host: str) -> None:
        """Its files are there. What came in a moment was never reported to be on its way."""
        if run.transfer:
            self._input_began(job, run, now, host)
            self.record(job, lambda: job_log.transferring(job.id, now, "input", "finished"))

    def record(self, job: Job, event: Callable[[], job_log.Event]) -> None:
        """For the user's log: what a run does, or what becomes of it. Nothing of a job that was held or removed
        meanwhile, as the log has told that already."""
        if job.status in ACTIVE:
            self.updates.record(job, event)

    def _executing(self, job: Job, claim: Claim, run: Shadow, now: float, at: float, scratch: str) -> None:
        """Its program runs, since `at` by our clock. scratch: its directory there, if told."""
        self.updates.launches.add(at - max(run.started, claim.granted_at))
        if job.whole is not None:
            self.parallel.executing(job, claim, at, self._host(claim))
            return
        if job.status not in ACTIVE:
            return  # held or removed while it was on its way: that was told, and stands
        job_end.on_executing(job, run, now)
        self.updates.record(
            job,
            lambda: job_log.executing(
                job.id,
                at,
                self._host(claim),
                claim.slot,
                claim.slot_classad(),
                to_list(job.text("UserLogExecuteEventAttrs")),
                scratch=scratch,
            ),
        )
        self.updates.publish(
            JobStarted(
                **self.updates.about(job, at),
                slot=claim.slot,
                attempt=run.attempt,
                waited_s=max(0.0, run.started - job.idle_since()),
                began=run.started,
            )
        )
        self.updates.watch_duration(job)

    def _ended(self, report: JobReport, claim: Claim, job: Job, run: Shadow) -> JobReportAck:
        """The run is over: what becomes of the job, and which job is next on the claim."""
        now = self.updates.now()
        exit_ = report.exit
        job_end.on_usage(job, report.usage)
        job_end.on_updates(job, report.updates)
        untold = (
            not run.executing
            and report.started_at
            and exit_ is not None
            and exit_.reason in ("exited", "killed", "evicted")
        )
        if untold:
            run.executing = report.started_at  # its report was lost, or came too late
        ended = job_end.when_ended(run, report, now)
        if untold:
            self._input_done(job, run, now, self._host(claim))
            self._executing(job, claim, run, now, max(run.started, ended.at - ended.ran_s), report.scratch)
        stopped = run.stop
        self.updates.end_run(claim, job, run, exit_ or job_end.NO_EXIT, ended)
        claim.previous = (report.job_id, report.attempt)
        if job.whole is not None:
            self._node_ended(report, claim, job, run, ended)
            return JobReportAck(release=True)
        result = job_end.Result(
            report.usage,
            exit_ or job_end.NO_EXIT,
            claim.slot,
            claim.slot_classad(),
            run,
            now,
            ended,
            claim.weight(),
        )
        self.updates.carry_out(job_end.conclude(self.updates.name, self.table, job, result, self.updates.cool_down))
        self.updates.count_run(
            outcome(result.exit, job.status, output_missing=job_end.output_missing(run, result.exit)),
            claim,
            job,
            run,
            ended,
            core=result.exit.core_dumped,
            closing=report.claim_over,
        )
        if job_end.failed(run, result.exit):
            claim.exceptions += 1
        spent = claim.exceptions >= self.updates.settings.max_shadow_exceptions
        good = exit_ is not None and job_end.claim_serves_on(run, exit_, stopped=stopped, spent=spent)
        good = good and not report.claim_over
        run_next = self.next_on(claim, now) if good else None
        if run_next is not None:
            self.queue.put_claim(claim)
            return JobReportAck(next=run_next)
        if good and self.claims.knows(claim) and (idle_for_s := idle_s(job)):
            self.claims.keep(claim, now + idle_for_s)
            return JobReportAck()
        self.claims.drop(claim)
        return JobReportAck(release=True)

    def _node_ended(self, report: JobReport, claim: Claim, job: Job, run: Shadow, ended: job_end.Ended) -> None:
        """The run on a node of a parallel job is over. Its claim is of no more use: the next job's are had together."""
        exit_ = report.exit or job_end.NO_EXIT
        self.parallel.progress(job, report)
        how = outcome(exit_, JobStatus.COMPLETED, output_missing=job_end.output_missing(run, exit_))
        self.updates.count_run(how, claim, job, run, ended, core=exit_.core_dumped, closing=report.claim_over)
        self.parallel.over(job, claim, run, exit_, report.usage, ended)
        self.claims.drop(claim)

    def may_be_there(self, job: Job, startd: str) -> bool:
        """Whether a job may run on this startd, whoever matched it: in another pool only if it may flock."""
        if not flocking.pool_of(startd):
            return True
        now = self.updates.now()
        return self.updates.settings.flocking.wanted_by(full_ad(self.updates.name, job, now), now)

    def next_on(self, claim: Claim, now: float) -> Activation | None:
        """Begin the next job of the same submitter on this claim, if one fits."""
        if not self.claims.knows(claim) or not claim.granted:
            return None
        if claim.generation != self.table.autoclusters.generation:
            claim.fits.clear()
            claim.generation = self.table.autoclusters.generation
        slot = claim.slot_classad()

        def fit(key: Key, autocluster: int) -> bool:
            job = self.table.at(key)
            if job.whole is not None:
                return False  # nodes of a parallel job begin together
            if not self.may_be_there(job, claim.startd):
                return False
            return fits(full_ad(self.updates.name, job, now), slot, now, claim.concurrency_limits)

        while True:
            found = next_job(self.table.idle.get(claim.submitter), claim.fits, fit)
            if found.key is None:
                return None
            run = self.begin(self.table.at(found.key), claim, now)
            if run is not None:
                return run

    # Ends that come from elsewhere

    def lost(self, claim: Claim, reason: str, *, reconnecting: bool = False) -> None:
        """Drop a claim that is gone with the run on it: the job must run again elsewhere."""
        run = claim.shadow
        job = self.table.get(run.job) if run is not None else None
        if run is not None and job is not None:
            now = self.updates.now()
            self.updates.run_lost(claim, job, run)
            usage = run.stored_usage
            if job.whole is not None:
                ended = job_end.heard_of_end(run, now)
                self.parallel.over(job, claim, run, JobExit(reason="evicted", message=reason[:1000]), usage, ended)
                self.claims.drop(claim)
                self.updates.commit()
                return
            if reconnecting:
                self.record(job, lambda: job_log.reconnect_failed(job.id, now, reason, claim.slot))
            else:
                self.record(job, lambda: job_log.evicted(job.id, now, reason, usage, ()))
            if job.status in ACTIVE:
                self.updates.publish(
                    JobEvicted(
                        **self.updates.about(job, now),
                        slot=claim.slot,
                        attempt=run.attempt,
                        reason=reason,
                    )
                )
            code = RECONNECT_FAILED if reconnecting else 0
            self.updates.requeue(job, reason, failed=False, code=code, ran=bool(run.executing))
        self.claims.drop(claim)
        self.updates.commit()

    async def claim_lost(self, message: ClaimLost) -> None:
        """Take a startd's word that it ended a claim. The report of its run, if there is one, came before."""
        claim = self._own(message)
        if claim is not None:
            self.lost(claim, message.reason)
            await self.updates.commit()

    def _host(self, claim: Claim) -> str:
        value = claim.slot_classad().eval("Machine")
        return value if isinstance(value, str) and value else _name(claim.startd)


def _name(inbox: str) -> str:
    return inbox.partition(".")[2]


def find_job(table: JobTable, text: str) -> Job | None:
    """The job that has a run of this id, or the node of a parallel job; None for what is no id or no job."""
    try:
        return table.get(JobId.of_run(text))
    except ValueError:
        return None
