"""Claims, from a negotiator's match to the end of their lease.

What a match gives is used at once and no further than its count: startds are asked for their slots with the first job
in the same message (`Claims`). What is refused waits for the next cycle; jobs start no faster than JOB_START_COUNT and
JOB_START_DELAY let them (`start_pacer`).

A slot that is in use must be emptied first. Its claim waits meanwhile, with the job that it is for: the job stays Idle
and is not offered to anybody else, and its run begins when the slot is there. Asking again keeps the claim.

`Keepalive` tells startds that their claims are still wanted (spec rows LEA-01 to LEA-08): one message for all claims on
one startd. A lost one costs nothing before the lease runs out; then the startd has dropped the claim, and its job runs
again elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from engine.queue.claim_reuse import limits_of
from engine.queue.jobs import Job, JobId, JobStatus, full_packed
from engine.queue.submitters import cores_asked
from services.schedd.core import job_end
from services.schedd.core.claim import Claim, alive_s, given_up_at, lease_s
from services.schedd.core.job_launch_ad import match_exprs
from services.schedd.io import job_trace
from services.schedd.io.idle_claims import IdleClaims
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.parallel_claims import ParallelClaims
from services.schedd.io.presence import Presence
from services.schedd.io.runs import Runs
from services.schedd.io.start_pacer import StartPacer
from services.schedd.settings import Settings
from shared import job_log
from shared.backoff import Backoff
from shared.bus.api import BusUnavailable, CallTimeout, NobodyThere, RemoteFailure
from shared.classad import ClassAd
from shared.errors import PermanentError
from shared.messages.base import Message
from shared.messages.claims import (
    Activation,
    Alive,
    AliveReply,
    ClaimGranted,
    ClaimReady,
    ClaimRefused,
    ClaimWaiting,
    RequestClaim,
)
from shared.messages.events import JobMatched, JobUnmatched, ScheddLimited
from shared.messages.negotiation import Match, Matches

#: How long one request for a claim waits, and how long requests are repeated before the match is given up.
REQUEST_TIMEOUT_S: Final = 10.0
REQUEST_PATIENCE_S: Final = 60.0
#: A request for a claim that brings a job is repeated for so long only, and the claim that nobody told us of has a
#: lease of so much until our first keep-alive, or our answer to the report that the job runs: so the job goes elsewhere
#: a minute and a half after a startd died, and not after its whole lease (LEA-09).
JOB_PATIENCE_S: Final = 30.0
FIRST_LEASE_S: Final = 40.0
#: How often a claim that waits for its slot to empty asks at least: a hint that the slot is ready may be lost.
ASK_EVERY_S: Final = 60.0
NOT_THERE: Final = "its startd is not there"
#: Between two requests for a slot that get no answer: the first wait and the longest.
ASK_AGAIN_S: Final = (0.2, 5.0)
#: Hints that a slot is ready, which nobody has asked for yet: the oldest of more than these are forgotten.
MAX_HINTS: Final = 1000


class Claims:
    """Makes claims of matches, and starts the first job on each."""

    def __init__(self, updates: JobUpdates, runs: Runs) -> None:
        self.updates = updates
        self.runs = runs
        self.claims = updates.claims
        self.context = updates.context
        self.table = updates.table
        self.queue = updates.queue
        self._hints: dict[str, None] = {}  # claim ids that are ready, as startds say; oldest first
        self._presence = Presence(self.context, self.claims.spawn)
        self._pacer = StartPacer(self.context, self.updates.name, self.claims.spawn)
        self._limited = False  # it was told that no claim may be added
        self.idle = IdleClaims(updates, runs, self._presence, self._pacer, self._may_add)
        self.parallel = ParallelClaims(updates, runs, runs.parallel, self.idle, self._pacer)

    async def match(self, decided: Matches) -> list[int]:
        """Use matches of a negotiator: gives a job to each slot, several to a partitionable one. Returns how many
        of each match."""
        now = self.updates.now()
        begun: list[tuple[Claim, Activation]] = []
        waiting: list[Claim] = []
        counts: list[int] = []
        # All are read before the first is used: a broken one must not leave runs begun that nobody asks for.
        for match, slot in [(match, _slot(match.slot_ad)) for match in decided.matches]:
            before = len(begun) + len(waiting)
            budget = max(1, match.count) if slot.eval("PartitionableSlot") is True else 1
            if preempts(match, slot):
                claim = self._wait_with(match, slot, decided, now)
                if claim is not None:
                    waiting.append(claim)
            elif self._is_for_nodes(match):
                while budget > 0 and (claim := self._wait_with(match, slot, decided, now)) is not None:
                    budget -= 1
                    waiting.append(claim)
            else:
                while budget > 0 and (started := self._use(match, slot, decided, now)) is not None:
                    budget -= 1
                    begun.append(started)
            counts.append(len(begun) + len(waiting) - before)
        if begun:
            self.claims.spawn(self._request_all(begun), "claim")
        for claim in waiting:
            self.claims.spawn(self._wait(claim), "wait")
        return counts

    def _is_for_nodes(self, match: Match) -> bool:
        """Whether the jobs that a match is for are nodes of parallel jobs: these start when all have their claims."""
        job = self._first(match.submitter, match.autocluster, match.startd)
        return job is not None and job.whole is not None

    def _matched(self, job: Job, match: Match, decided: Matches, now: float) -> None:
        job = job.whole or job
        had = sum(bool(node.waits_for) for node in job.nodes)
        job_end.on_matched(job, match.slot, now)
        job_trace.on_match(self.updates.name, job, match.slot, decided.negotiator, decided.cycle, now)
        self.updates.publish(
            JobMatched(
                **self.updates.about(job, now),
                slot=match.slot,
                negotiator=decided.negotiator,
                cycle=decided.cycle,
                machines=had,
                of_machines=len(job.nodes),
            )
        )

    def _unmatched(self, job: Job, slot: str, reason: str) -> None:
        about = self.updates.about(job, self.updates.now())
        self.updates.publish(JobUnmatched(**about, slot=slot, reason=reason[:1000]))

    def _first(self, submitter: str, autocluster: int, startd: str) -> Job | None:
        """The job that an autocluster's next slot is for, which this startd has; None when there is none, or it may not
        go there."""
        idle = self.table.idle.get(submitter)
        key = idle.first(autocluster) if idle is not None else None
        job = self.table.at(key) if key is not None else None
        return job if job is not None and self.runs.may_be_there(job, startd) else None

    def _claim(self, match: Match, slot: ClassAd, job: Job, decided: Matches, now: float) -> Claim:
        lease = lease_s(job.number("JobLeaseDuration", 0))
        return Claim(
            id=self.context.new_id(),
            claim_id=match.claim_id,
            startd=match.startd,
            slot=match.slot,
            slot_ad=match.slot_ad,
            submitter=match.submitter,
            epoch=decided.epoch,
            shard=decided.shard,
            lease_s=lease,
            alive_s=alive_s(self.updates.settings.alive_interval_s, lease),
            preempts=list(match.preempts),
            preempt_claims=list(match.preempt_claims),
            concurrency_limits=match.concurrency_limits or limits_of(job.ad, slot, now),
            match_exprs=match_exprs(slot),
            ad=slot,
        )

    def delayed_starts(self) -> int:
        """How many starts wait for their time (JOB_START_DELAY)."""
        return self._pacer.delayed()

    def _may_add(self) -> bool:
        limit = self.updates.settings.max_jobs_running
        limited = len(self.claims.claims) - len(self.claims.idle) >= limit
        if limited != self._limited:
            self._limited = limited
            now = self.updates.now()
            self.updates.publish(ScheddLimited(at=now, schedd=self.updates.name, limited=limited, limit=limit))
        return not limited

    def _use(self, match: Match, slot: ClassAd, decided: Matches, now: float) -> tuple[Claim, Activation] | None:
        """Begin a run of the first job that the match is for; None when there is none (any more)."""
        while self._may_add() and (job := self._first(match.submitter, match.autocluster, match.startd)) is not None:
            if not self._pacer.room(self.updates.settings, decided.shard):
                return None
            claim = self._claim(match, slot, job, decided, now)
            run = self.runs.begin(job, claim, now)
            if run is not None:
                self.claims.claims[claim.id] = claim
                self._matched(job, match, decided, now)
                claim.start_in_s = self._pacer.book(job, self.updates.settings)
                return claim, run
        return None

    async def _request_all(self, begun: list[tuple[Claim, Activation]]) -> None:
        # Stored first: a schedd killed after the request must know of the run, or one attempt would begin twice.
        await self.updates.commit()
        await asyncio.gather(*(self._request(claim, run) for claim, run in begun))

    def recover(self, claim: Claim) -> None:
        """Adopt a claim that was found in the database."""
        self.claims.claims[claim.id] = claim
        claim.heard = self.context.clock.monotonic()
        # What an earlier life sent may still be on its way.
        claim.told_until = claim.heard + max(REQUEST_TIMEOUT_S, KEEPALIVE_TIMEOUT_S)
        run = claim.shadow
        if claim.waits is not None and run is None:
            if claim.granted:
                self._recover_kept(claim)
                return
            if claim.waits_as:
                self.claims.by_claim_id[claim.waits_as] = claim
            self.claims.spawn(self._wait(claim), "wait")
            return
        if run is None and claim.idle_until > self.updates.now():
            self.claims.by_claim_id[claim.claim_id] = claim
            self.claims.keep(claim, claim.idle_until)
            return
        job = self.table.get(run.job) if run is not None else None
        if run is None or job is None or (job.whole is not None and job.whole.shadow is None):
            if job is not None:
                job.shadow = None
            self.claims.give_back(claim, "no job of this schedd runs on it any more")
            return
        run.claim = claim.id
        job.shadow = run
        self.table.refresh(job)
        claim.asked = cores_asked(job.ad)
        self.table.count(claim.submitter).weighted_running += claim.weight()
        if claim.granted and not claim.has_taken_run:
            self.claims.by_claim_id[claim.claim_id] = claim
            self.claims.spawn(self.idle.activate(claim, self.runs.again(claim, job)), "idle-claim")
        elif claim.granted:
            self.claims.by_claim_id[claim.claim_id] = claim
            if job.whole is None:
                self.updates.watch_duration(job)
            if run.stop:
                self.claims.tell_stop(claim, run)
            elif run.suspension_due:
                self.claims.tell_suspension(claim, run)
        else:
            self.claims.spawn(self._request(claim, self.runs.again(claim, job)), "claim")

    def _recover_kept(self, claim: Claim) -> None:
        """Go on keeping a claim for a node of a parallel job."""
        node = self.table.get(claim.waits) if claim.waits is not None else None
        self.claims.by_claim_id[claim.claim_id] = claim
        if node is None or node.waits_for != claim.id:
            self.claims.give_back(claim, "its job is gone")
        else:
            self.parallel.note(node)

    async def _request(self, claim: Claim, run: Activation) -> None:
        """Ask for the slot, with the job. Asked again while no answer comes: `request_id` makes it one request."""
        job = self.table.get(JobId.parse(run.job_id))
        if job is None:
            return
        await self.context.clock.sleep(claim.start_in_s)
        clock = self.context.clock
        give_up = clock.monotonic() + min(JOB_PATIENCE_S, self.updates.settings.request_claim_timeout_s)
        backoff = Backoff(*ASK_AGAIN_S)
        absence = self._presence.watch(claim.startd)
        while claim.id in self.claims.claims and not claim.granted:
            absent = await absence.look()
            answer = None if absent else await self._ask(claim, run.job_ad, run)
            if claim.id not in self.claims.claims:
                # The job is over already, or was removed by force.
                if (
                    isinstance(answer, ClaimGranted)
                    and answer.claim_id not in self.claims.by_claim_id
                    and not claim.granted
                ):
                    await self.claims.release(claim.startd, answer.claim_id)
                return
            if self._is_granted(claim):
                # Meanwhile a report of the run came, which shows the grant but not the slot.
                if isinstance(answer, ClaimGranted) and answer.claim_id == claim.claim_id:
                    self._learn_slot(claim, answer)
                    self.runs.slot_known(claim)
                    self.queue.put_claim(claim)
                return
            if isinstance(answer, ClaimGranted):
                self._granted(claim, answer)
                return
            if isinstance(answer, ClaimWaiting):
                if self._waits_after_all(claim, answer):
                    await self._wait(claim)
                    return
                self.claims.spawn(self.claims.release(claim.startd, answer.claim_id), "release")
                answer = ClaimRefused(reason="the slot is still in use", code="busy")
            if isinstance(answer, ClaimRefused):
                self._refused(claim, answer)
                return
            if absent and not claim.told_until:
                # Nobody was ever told of the job, so nothing is to be waited for.
                stopped = claim.shadow is not None and claim.shadow.stop
                if stopped or absence.is_long:
                    self._not_had(claim, NOT_THERE, "did not take it")
                    return
            elif clock.monotonic() > give_up:
                await self._give_up_unanswered(claim)
                return
            await clock.sleep(backoff.next_s())

    async def _give_up_unanswered(self, claim: Claim) -> None:
        """Nobody answers. The job may run all the same, as long as the first lease lasts; should it tell of itself
        meanwhile, the claim is a granted one."""
        clock = self.context.clock
        if claim.told_until:
            first = min(FIRST_LEASE_S, lease_of(claim, self.updates.settings))
            await clock.sleep(max(0.0, given_up_at(0.0, claim.told_until, first) - clock.monotonic()))
        if self.claims.knows(claim) and not claim.granted:
            reason = "the execution point did not answer the request for its slot"
            if claim.shadow is not None and (job := self.table.get(claim.shadow.job)) is not None:
                self._unmatched(job, claim.slot, reason)
            self.runs.lost(claim, reason)

    async def _ask(self, claim: Claim, job_ad: bytes, run: Activation | None) -> Message | None:
        """Ask for a slot once. None: no answer came."""
        request = RequestClaim(
            request_id=claim.id,
            claim_id=claim.claim_id,
            slot=claim.slot,
            schedd=self.updates.name,
            submitter=claim.submitter,
            job_ad=job_ad,
            lease_s=claim.lease_s,
            alive_interval_s=claim.alive_s,
            epoch=claim.epoch,
            shard=claim.shard,
            preempts=claim.preempts,
            preempt_claims=claim.preempt_claims,
            concurrency_limits=claim.concurrency_limits,
            activation=run,
            first_lease_s=FIRST_LEASE_S if run is not None else 0.0,
        )
        sent = self.context.clock.monotonic()
        try:
            answer = await self.context.bus.call(
                claim.startd,
                request,
                timeout=REQUEST_TIMEOUT_S,
                epoch=claim.epoch,
                trace=job_trace.of_run(self.table, claim),
            )
        except RemoteFailure as error:
            if not error.retryable:
                return ClaimRefused(reason=str(error), code="unknown-claim")
            claim.told_until = self.context.clock.monotonic()
            return None
        except NobodyThere as error:
            self.context.log.info("claim_request_unanswered", slot=claim.slot, reason=str(error))
            return None
        except (BusUnavailable, CallTimeout) as error:
            claim.told_until = sent + REQUEST_TIMEOUT_S  # it may be on its way still
            self.context.log.info("claim_request_unanswered", slot=claim.slot, reason=str(error))
            return None
        except PermanentError as error:  # too large, or not allowed: it would be so again
            return ClaimRefused(reason=str(error), code="unknown-claim")
        return _readable(answer)

    @staticmethod
    def _is_granted(claim: Claim) -> bool:
        return claim.granted

    def _granted(self, claim: Claim, answer: ClaimGranted) -> None:
        claim.granted = True
        claim.granted_at = self.updates.now()
        claim.heard = self.context.clock.monotonic()
        claim.claim_id = answer.claim_id
        self._learn_slot(claim, answer)
        self.claims.by_claim_id[claim.claim_id] = claim
        self.queue.put_claim(claim)
        run = claim.shadow
        if run is not None:
            self.updates.grants.add(claim.granted_at - run.started)
        job = self.table.get(run.job) if run is not None else None
        if run is None or job is None:
            self.claims.give_back(claim, "its job is gone")
        elif not answer.activated:
            self.updates.end_run(claim, job, run)
            self.updates.runs.not_started += 1
            self._unmatched(job, claim.slot, answer.refusal)
            self.updates.requeue(job, f"not started on {claim.slot}: {answer.refusal}", failed=True)
            self.claims.give_back(claim, "it did not take the job")
        else:
            job.refusals = 0
            self.runs.taken(job, claim)
            if run.stop:
                self.claims.tell_stop(claim, run)
        self.updates.commit()
        self.claims.keepalive_due.set()

    def _learn_slot(self, claim: Claim, answer: ClaimGranted) -> None:
        """Note the slot that was carved, in place of the partitionable one."""
        job = self.table.get(claim.shadow.job) if claim.shadow is not None else None
        before = claim.weight()
        claim.slot = answer.slot
        claim.slot_ad, claim.ad = answer.slot_ad, None
        claim.fits.clear()
        if job is not None:
            self.table.count(claim.submitter).weighted_running += claim.weight() - before
            self.updates.counts_changed.set()

    def _refused(self, claim: Claim, answer: ClaimRefused) -> None:
        self.context.log.info("claim_refused", slot=claim.slot, code=answer.code, reason=answer.reason)
        self._not_had(claim, answer.reason, "refused it")

    def _not_had(self, claim: Claim, reason: str, what: str) -> None:
        """The slot is not to be had: the job goes back to where it stood, and the number of its attempt is free again.
        what: the slot did, with the job."""
        run = claim.shadow
        job = self.table.get(run.job) if run is not None else None
        if run is not None and job is not None:
            job.ad["LastRejMatchTime"] = int(self.updates.now())
            job.ad["LastRejMatchReason"] = f"{claim.slot} {what}: {reason}"[:1000]
            self._unmatched(job, claim.slot, reason)
            job.refusals += 1
            self.updates.cool(job, self.updates.cool_down.refused_s(job.refusals))
            self.runs.undo(claim, reason)
        elif claim.waits is not None and (job := self.table.get(claim.waits)) is not None:
            self._unmatched(job, claim.slot, reason)
            job.refusals += 1
            self.updates.cool(job, self.updates.cool_down.refused_s(job.refusals))
        self.claims.drop(claim)
        self.updates.commit()

    # Claims that wait for their slot to empty

    def _wait_with(self, match: Match, slot: ClassAd, decided: Matches, now: float) -> Claim | None:
        """A claim of a slot that is in use, for the first job that the match is for; None when there is none."""
        job = self._first(match.submitter, match.autocluster, match.startd) if self._may_add() else None
        if job is None:
            return None
        claim = self._claim(match, slot, job, decided, now)
        claim.autocluster = match.autocluster
        self.claims.claims[claim.id] = claim
        self._let_wait(claim, job)
        self._matched(job, match, decided, now)
        self.updates.queue.put(job)
        return claim

    def _waits_after_all(self, claim: Claim, answer: ClaimWaiting) -> bool:
        """The slot must be emptied first, which nothing in the match said: it is in backfill, or was taken since. The
        run that was begun in our books is undone, and its job waits with the claim. False: nobody wants it any more.

        Were the claim released, the startd would stop emptying the slot, and each cycle would begin that anew."""
        run = claim.shadow
        job = self.table.get(run.job) if run is not None else None
        if run is None or job is None or run.stop or job.status != JobStatus.IDLE:
            return False
        job.count("NumShadowStarts", -1)
        self.updates.end_run(claim, job, run)
        claim.autocluster = job.autocluster
        self._let_wait(claim, job)
        self._named(claim, answer.claim_id)
        self.queue.put(job)
        self.updates.commit()
        return True

    def _let_wait(self, claim: Claim, job: Job) -> None:
        claim.waits, job.waits_for = job.id, claim.id
        self.table.refresh(job)
        self.queue.put_claim(claim)

    async def _wait(self, claim: Claim) -> None:
        """Ask for the slot until it is there, and start the job then. Stored first: what was begun in the name of the
        job must not be forgotten."""
        clock = self.context.clock
        wake = self.claims.waker(claim)
        await self.updates.commit()
        heard = asked_first = clock.monotonic()
        absence = self._presence.watch(claim.startd)
        backoff = Backoff(*ASK_AGAIN_S)
        ready = False
        while self.claims.knows(claim):
            job = self._job_of(claim)
            if job is None:
                self._give_up(claim, "no job waits for it any more")
                return
            if ready and job.whole is None:
                await self._begin(claim, job)
                return
            wake.clear()
            absent = await absence.look()
            if absence.is_long:
                self._give_up(claim, NOT_THERE)
                return
            if absent:
                await clock.sleep(backoff.next_s())
                continue
            answer = await self._ask(claim, full_packed(self.updates.name, job, self.updates.now()), None)
            if not self.claims.knows(claim):
                self._release_late(claim, answer)
                return
            now = clock.monotonic()
            if isinstance(answer, ClaimRefused):
                self._refused(claim, answer)
                return
            if isinstance(answer, ClaimGranted) and job.whole is not None:
                self._keep(claim, answer)
                return
            if isinstance(answer, ClaimGranted):
                self._named(claim, answer.claim_id)
                ready = True
                continue
            if isinstance(answer, ClaimWaiting):
                self._named(claim, answer.claim_id)
                heard = now
                backoff.reset()
                ready = self._hinted(claim)
                # What the other side says of time may be anything: it must not make us ask without a pause.
                delay = max(min(1.0, ASK_EVERY_S), min(ASK_EVERY_S, claim.alive_s, answer.within_s + 1.0))
            else:
                delay = backoff.next_s()
            patience = self.updates.settings.request_claim_timeout_s
            if now - asked_first > patience or now - heard > max(REQUEST_PATIENCE_S, claim.lease_s):
                self._give_up(claim, "its slot did not become free in time")
                return
            if not ready:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await wake.wait()
                ready = self._hinted(claim)

    def _keep(self, claim: Claim, answer: ClaimGranted) -> None:
        """The slot of a node of a parallel job is there: it is kept until the others' are."""
        node = self._job_of(claim)
        if node is None:
            self._named(claim, answer.claim_id)
            self._give_up(claim, "no job waits for it any more")
            return
        self.claims.waits_no_more(claim)
        self.claims.by_claim_id.pop(claim.waits_as, None)
        claim.waits_as, claim.claim_id = "", answer.claim_id
        claim.granted, claim.granted_at = True, self.updates.now()
        claim.heard = self.context.clock.monotonic()
        self._learn_slot(claim, answer)
        self.claims.by_claim_id[claim.claim_id] = claim
        node.refusals = 0
        self.parallel.arrived(node, claim)
        self.queue.put_claim(claim)
        self.updates.commit()
        self.claims.keepalive_due.set()

    async def ready(self, message: ClaimReady) -> None:
        """A startd says that a slot is there for the claim that waits for it. Raises RemoteFailure for another's."""
        claim = self.claims.by_claim_id.get(message.claim_id)
        if claim is not None and not claim.of(message.startd):
            raise RemoteFailure("denied", f"no claim on {message.startd[:200]} waits for slot {message.slot[:200]}")
        while len(self._hints) >= MAX_HINTS:
            del self._hints[next(iter(self._hints))]
        self._hints[message.claim_id] = None
        if claim is not None:
            self.claims.wake(claim.id)

    def _hinted(self, claim: Claim) -> bool:
        """Whether the startd said that the slot is ready. That may come before the answer that names the claim."""
        there = claim.waits_as in self._hints
        self._hints.pop(claim.waits_as, None)
        return there

    def _named(self, claim: Claim, claim_id: str) -> None:
        """Note the startd's id for the claim while it waits, by which it can be given up."""
        if claim.waits_as != claim_id:
            self.claims.by_claim_id.pop(claim.waits_as, None)
            claim.waits_as = claim_id
            self.claims.by_claim_id[claim_id] = claim
            self.queue.put_claim(claim)
            self.updates.commit()

    def _job_of(self, claim: Claim) -> Job | None:
        """The job that waits with the claim; another of its kind where that one went."""
        job = self.table.get(claim.waits) if claim.waits is not None else None
        if job is not None and job.waits_for == claim.id:
            if job.status == JobStatus.IDLE and job.shadow is None and job.submitter == claim.submitter:
                return job
            job.waits_for = ""
            self.table.refresh(job)
        job = self._first(claim.submitter, claim.autocluster, claim.startd)
        if job is not None:
            self._let_wait(claim, job)
        return job

    async def _begin(self, claim: Claim, job: Job) -> None:
        """Begin the run, as the slot is empty now: from here on the claim is like any other."""
        self.claims.by_claim_id.pop(claim.waits_as, None)
        self.claims.waits_no_more(claim)
        while True:
            job.waits_for = ""
            claim.waits = None
            run = self.runs.begin(job, claim, self.updates.now())
            if run is not None:
                break
            claim.waits = job.id  # it is on hold now; another of its kind may do
            other = self._job_of(claim)
            if other is None:
                self._give_up(claim, "no job waits for it any more")
                return
            job = other
        await self.updates.commit()
        await self._request(claim, run)

    def _give_up(self, claim: Claim, reason: str) -> None:
        """Give up a claim that waits, or has just got its slot."""
        self.context.log.info("claim_given_up", slot=claim.slot, reason=reason)
        job = self.table.get(claim.waits) if claim.waits is not None else None
        if job is not None and job.status == JobStatus.IDLE:
            self._unmatched(job, claim.slot, reason)
        self.claims.drop(claim)
        if claim.waits_as:
            self.claims.spawn(self.claims.release(claim.startd, claim.waits_as), "release")
        self.updates.commit()

    def _release_late(self, claim: Claim, answer: Message | None) -> None:
        """Release what was granted to a claim that was dropped meanwhile."""
        if isinstance(answer, ClaimGranted | ClaimWaiting) and answer.claim_id != claim.waits_as:
            self.claims.spawn(self.claims.release(claim.startd, answer.claim_id), "release")


def lease_of(claim: Claim, settings: Settings) -> float:
    """The lease that the claim's startd was asked for, seconds (LEA-05)."""
    return claim.lease_s or settings.max_alives_missed * max(settings.alive_interval_s, claim.alive_s)


def preempts(match: Match, slot: ClassAd) -> bool:
    """Whether somebody must leave before the match can be used."""
    if match.preempts:
        return True
    return slot.eval("PartitionableSlot") is not True and slot.eval("State") in ("Claimed", "Preempting")


def _slot(packed: bytes) -> ClassAd:
    """The ad of a slot that a negotiator gave. Raises RemoteFailure bad-request."""
    try:
        return ClassAd.unpack(packed).check()
    except (ValueError, RecursionError) as error:
        raise RemoteFailure("bad-request", f"the ad of a matched slot can not be read: {error}") from error


def _readable(answer: Message | None) -> Message | None:
    """The answer, or a refusal in place of a grant whose slot cannot be read; such a claim ends with its lease."""
    if isinstance(answer, ClaimGranted):
        try:
            ClassAd.unpack(answer.slot_ad).check()
        except (ValueError, RecursionError) as error:
            return ClaimRefused(reason=f"the ad of the granted slot can not be read: {error}", code="unknown-claim")
    return answer


KEEPALIVE_TIMEOUT_S: Final = 10.0
#: After a lost keep-alive the next comes sooner: a startd that was restarted is found again quickly.
KEEPALIVE_RETRY_S: Final = 5.0
#: A claim that was just granted is kept alive after so long for the first time, and after as long again where that is
#: not answered: until then its lease may be short (FIRST_LEASE_S). Jobs that end sooner cost no keep-alive.
FIRST_ALIVE_S: Final = 1.0
#: A keep-alive of older claims waits no longer than this for newer ones to be on disk, seconds.
STORED_WITHIN_S: Final = 1.0


class Keepalive:
    """Sends keep-alives for all claims, and gives up those whose lease is over."""

    def __init__(self, updates: JobUpdates, runs: Runs) -> None:
        self.updates = updates
        self.runs = runs
        self.claims = updates.claims
        self.context = updates.context
        self.sequence = 0
        self._next: dict[str, float] = {}  # startd -> monotonic time of its next keep-alive

    async def run(self) -> None:
        """Send keep-alives when they are due, until cancelled."""
        while True:
            now = self.context.clock.monotonic()
            due = [startd for startd, claims in self._by_startd().items() if self._due(startd, claims, now) <= now]
            if due:
                await asyncio.gather(*(self.tell(startd) for startd in due))
                continue
            waits = [self._due(startd, claims, now) - now for startd, claims in self._by_startd().items()]
            self.claims.keepalive_due.clear()
            try:
                await asyncio.wait_for(self.claims.keepalive_due.wait(), min(waits, default=60.0))
            except TimeoutError:
                continue

    def _by_startd(self) -> dict[str, list[Claim]]:
        found: dict[str, list[Claim]] = {}
        for claim in self.claims.claims.values():
            if claim.granted:
                found.setdefault(claim.startd, []).append(claim)
        for gone in self._next.keys() - found.keys():
            del self._next[gone]
        return found

    def _due(self, startd: str, claims: list[Claim], now: float) -> float:
        interval: float = min(claim.alive_s for claim in claims)
        if not all(claim.kept for claim in claims):
            interval = min(interval, FIRST_ALIVE_S)
        due = self._next.get(startd)
        if due is None or due > now + interval:
            due = self._next[startd] = now + interval
        return due

    async def _all_stored(self) -> bool:
        """Whether all that is known now is on disk, or comes there within STORED_WITHIN_S."""
        commit = self.updates.commit()
        await asyncio.wait((commit,), timeout=STORED_WITHIN_S)
        return commit.done() and commit.exception() is None

    async def tell_all(self) -> None:
        """Tell every startd at once: after a restart they must hear of us before the leases end."""
        await asyncio.gather(*(self.tell(startd) for startd in self._by_startd()))

    async def tell(self, startd: str) -> None:
        """One keep-alive, and what follows from the answer or its absence."""
        claims = self._by_startd().get(startd, [])
        clock = self.context.clock
        if not all(claim.kept for claim in claims):
            # Their whole leases begin: a schedd that is killed now must know of these claims too.
            stored = await self._all_stored()
            claims = [claim for claim in claims if self.claims.knows(claim) and (stored or claim.kept)]
        if not claims:
            self._next.pop(startd, None)  # again in a while
            return
        self.sequence += 1
        sent = clock.monotonic()
        self._next[startd] = sent + min(claim.alive_s for claim in claims)
        told = [claim for claim in claims if not claim.unanswered]
        asked = [claim for claim in claims if claim.unanswered]
        message = Alive(
            schedd=self.updates.name,
            sequence=self.sequence,
            claim_ids=[claim.claim_id for claim in told],
            only_asked=[claim.claim_id for claim in asked],
        )
        try:
            answer = await self.context.bus.call(startd, message, timeout=KEEPALIVE_TIMEOUT_S)
        except (BusUnavailable, CallTimeout, RemoteFailure) as error:
            self._next[startd] = min(self._next[startd], clock.monotonic() + KEEPALIVE_RETRY_S)
            for claim in told:
                if not isinstance(error, NobodyThere):
                    claim.unanswered, claim.told_until = True, sent + KEEPALIVE_TIMEOUT_S
            self._unheard(claims, str(error))
            return
        unknown = set(answer.unknown) if isinstance(answer, AliveReply) else set()
        for claim in claims:
            if not self.claims.knows(claim):
                continue
            if claim.claim_id in unknown:
                # A run that began, or was heard of, after the question is not unknown because of the answer.
                if claim.heard <= sent:
                    self.runs.lost(
                        claim, "the execution point no longer knows its claim", reconnecting=claim.disconnected
                    )
                continue
            # It may have renewed the lease up to now; of those that it was only asked for, it has not.
            claim.kept |= not claim.unanswered
            claim.heard = max(claim.heard, sent if claim.unanswered else clock.monotonic())
            if claim.unanswered:
                claim.unanswered, self._next[startd] = False, clock.monotonic()
            if claim.disconnected:
                self._found(claim)

    def _unheard(self, claims: list[Claim], reason: str) -> None:
        now = self.context.clock.monotonic()
        wall = self.updates.now()
        for claim in claims:
            if not self.claims.knows(claim) or (claim.shadow is None and claim.waits is None):
                continue
            job = self.updates.table.get(claim.shadow.job) if claim.shadow is not None else None
            job = (job.whole or job) if job is not None else None
            if now > given_up_at(claim.heard, claim.told_until, lease_of(claim, self.updates.settings)):
                self.runs.lost(claim, "its lease ran out without a sign of its execution point", reconnecting=True)
            elif not claim.disconnected and job is not None:
                claim.disconnected = True
                self.runs.record(
                    job,
                    lambda job=job, claim=claim: job_log.disconnected(job.id, wall, reason, claim.slot, claim.startd),  # type: ignore[misc]
                )
        self.updates.commit()

    def _found(self, claim: Claim) -> None:
        claim.disconnected = False
        job = self.updates.table.get(claim.shadow.job) if claim.shadow is not None else None
        job = (job.whole or job) if job is not None else None
        if job is not None:
            wall = self.updates.now()
            job.count("NumJobReconnects")
            self.runs.record(job, lambda: job_log.reconnected(job.id, wall, claim.slot, claim.startd))
            self.updates.queue.put(job)
            self.updates.commit()
