"""From the negotiator's matches to claims: asking startds for their slots, with the first job in the same message.

What a match gives is used at once and no further than its count; what is refused waits for the next cycle.

A slot that is in use must be emptied first. Its claim waits meanwhile, with the job that it is for: the job stays Idle
and is not offered to anybody else, and its run begins when the slot is there. Asking again keeps the claim.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from services.schedd import ending, trail
from services.schedd.activation import match_exprs
from services.schedd.claiming import alive_s, lease_s, limits_of
from services.schedd.jobs import Job, JobId, JobStatus, full_packed
from services.schedd.pacing import Pacing
from services.schedd.runs import Runs
from services.schedd.shadow import Claim
from shared.bus.api import BusUnavailable, CallTimeout, RemoteFailure
from shared.classad import ClassAd
from shared.errors import PermanentError
from shared.messages.base import Message
from shared.messages.claims import Activation, ClaimGranted, ClaimReady, ClaimRefused, ClaimWaiting, RequestClaim
from shared.messages.events import JobMatched, JobUnmatched, ScheddLimited
from shared.messages.negotiation import Match, Matches

#: How long one request for a claim waits, and how long requests are repeated before the match is given up.
REQUEST_TIMEOUT_S: Final = 10.0
REQUEST_PATIENCE_S: Final = 60.0
#: How often a claim that waits for its slot to empty asks at least: a hint that the slot is ready may be lost.
ASK_EVERY_S: Final = 60.0
#: Hints that a slot is ready, which nobody has asked for yet: the oldest of more than these are forgotten.
MAX_HINTS: Final = 1000


class Claims:
    """Uses matches."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.keeper = runs.keeper
        self.context = runs.context
        self.table = runs.table
        self.queue = runs.queue
        self.settings = runs.settings
        self._wakes: dict[str, asyncio.Event] = {}  # of claims that wait, by Claim.id
        self._hints: dict[str, None] = {}  # claim ids that are ready, as startds say; oldest first
        self._pacing = Pacing(self.context, self.keeper.name, self.runs.spawn)
        self._limited = False  # it was told that no claim may be added
        runs.dropped = self._on_dropped
        self.keeper.wait_no_more = self._job_gone

    async def match(self, decided: Matches) -> list[int]:
        """Use matches of a negotiator: gives a job to each slot, several to a partitionable one. Returns how many
        of each match."""
        now = self.keeper.now()
        begun: list[tuple[Claim, Activation]] = []
        waiting: list[Claim] = []
        counts: list[int] = []
        # All are read before the first is used: a broken one must not leave runs begun that nobody asks for.
        for match, slot in [(match, _slot(match.slot_ad)) for match in decided.matches]:
            before = len(begun) + len(waiting)
            if preempts(match, slot):
                claim = self._wait_with(match, slot, decided, now)
                if claim is not None:
                    waiting.append(claim)
            else:
                budget = max(1, match.count) if slot.eval("PartitionableSlot") is True else 1
                while budget > 0 and (started := self._use(match, slot, decided, now)) is not None:
                    budget -= 1
                    begun.append(started)
            counts.append(len(begun) + len(waiting) - before)
        if begun:
            self.runs.spawn(self._request_all(begun), "claim")
        for claim in waiting:
            self.runs.spawn(self._wait(claim), "wait")
        return counts

    def _matched(self, job: Job, match: Match, decided: Matches, now: float) -> None:
        job.count("NumJobMatches")
        job.ad["LastMatchTime"] = int(now)
        trail.on_match(self.keeper.name, job, match.slot, decided.negotiator, decided.cycle, now)
        self.keeper.tell(
            JobMatched(
                **self.keeper.about(job, now),
                slot=match.slot,
                negotiator=decided.negotiator,
                cycle=decided.cycle,
            )
        )

    def _unmatched(self, job: Job, slot: str, reason: str) -> None:
        about = self.keeper.about(job, self.keeper.now())
        self.keeper.tell(JobUnmatched(**about, slot=slot, reason=reason[:1000]))

    def _first(self, submitter: str, autocluster: int) -> Job | None:
        """The job that an autocluster's next slot is for; None when there is none, or no claim may be added."""
        idle = self.table.idle.get(submitter)
        key = idle.first(autocluster) if idle is not None else None
        return self.table.at(key) if key is not None else None

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
            alive_s=alive_s(self.settings.alive_interval_s, lease),
            preempts=list(match.preempts),
            preempt_claims=list(match.preempt_claims),
            concurrency_limits=match.concurrency_limits or limits_of(job.ad, slot, now),
            match_exprs=match_exprs(slot),
            ad=slot,
        )

    def _may_add(self) -> bool:
        limit = self.settings.max_jobs_running
        limited = len(self.runs.claims) >= limit
        if limited != self._limited:
            self._limited = limited
            now = self.keeper.now()
            self.keeper.tell(ScheddLimited(at=now, schedd=self.keeper.name, limited=limited, limit=limit))
        return not limited

    def _use(self, match: Match, slot: ClassAd, decided: Matches, now: float) -> tuple[Claim, Activation] | None:
        """Begin a run of the first job that the match is for; None when there is none (any more)."""
        while self._may_add() and (job := self._first(match.submitter, match.autocluster)) is not None:
            if not self._pacing.room(self.settings, decided.shard):
                return None
            claim = self._claim(match, slot, job, decided, now)
            run = self.runs.begin(job, claim, now)
            if run is not None:
                self.runs.claims[claim.id] = claim
                self._matched(job, match, decided, now)
                claim.start_in_s = self._pacing.book()
                return claim, run
        return None

    async def _request_all(self, begun: list[tuple[Claim, Activation]]) -> None:
        # Stored first: a schedd killed after the request must know of the run, or one attempt would begin twice.
        await self.keeper.commit()
        await asyncio.gather(*(self._request(claim, run) for claim, run in begun))

    def recover(self, claim: Claim) -> None:
        """Take a claim up that was found in the database."""
        self.runs.claims[claim.id] = claim
        claim.heard = self.context.clock.monotonic()
        run = claim.shadow
        if claim.waits is not None and run is None:
            if claim.waits_as:
                self.runs.by_claim_id[claim.waits_as] = claim
            self.runs.spawn(self._wait(claim), "wait")
            return
        job = self.table.get(run.job) if run is not None else None
        if run is None or job is None:
            self.runs.give_back(claim, "no job of this schedd runs on it any more")
            return
        run.claim = claim.id
        job.shadow = run
        self.table.refresh(job)
        self.table.count(claim.submitter).weighted_running += claim.weight()
        if claim.granted:
            self.runs.by_claim_id[claim.claim_id] = claim
            self.runs.watch_duration(job)
            if run.stop:
                self.runs.spawn(self.runs.tell_stop(claim, run), "stop")
        else:
            self.runs.spawn(self._request(claim, self.runs.again(claim, job)), "claim")

    async def _request(self, claim: Claim, run: Activation) -> None:
        """Ask for the slot, with the job. Asked again while no answer comes: `request_id` makes it one request."""
        job = self.table.get(JobId.parse(run.job_id))
        if job is None:
            return
        await self.context.clock.sleep(claim.start_in_s)
        give_up = self.context.clock.monotonic() + min(REQUEST_PATIENCE_S, self.settings.request_claim_timeout_s)
        pause = 0.2
        while claim.id in self.runs.claims and not claim.granted:
            answer = await self._ask(claim, run.job_ad, run)
            if claim.id not in self.runs.claims:
                # The job is over already, or was removed by force.
                if (
                    isinstance(answer, ClaimGranted)
                    and answer.claim_id not in self.runs.by_claim_id
                    and not claim.granted
                ):
                    await self.runs.release(claim.startd, answer.claim_id)
                return
            if self._is_granted(claim):
                # Meanwhile a report of the run came, which shows the grant but not the slot.
                if isinstance(answer, ClaimGranted) and answer.claim_id == claim.claim_id:
                    self._learn_slot(claim, answer)
                    self.queue.put_claim(claim)
                return
            if isinstance(answer, ClaimGranted):
                self._granted(claim, answer)
                return
            if isinstance(answer, ClaimWaiting):
                # Nothing in the match said so, and the run has begun in our books.
                self.runs.spawn(self.runs.release(claim.startd, answer.claim_id), "release")
                answer = ClaimRefused(reason="the slot is still in use", code="busy")
            if isinstance(answer, ClaimRefused):
                self._refused(claim, answer)
                return
            if self.context.clock.monotonic() > give_up:
                self.runs.lost(claim, "the execution point did not answer the request for its slot")
                return
            await self.context.clock.sleep(pause)
            pause = min(5.0, pause * 2)

    async def _ask(self, claim: Claim, job_ad: bytes, run: Activation | None) -> Message | None:
        """Ask for a slot once. None: no answer came."""
        request = RequestClaim(
            request_id=claim.id,
            claim_id=claim.claim_id,
            slot=claim.slot,
            schedd=self.keeper.name,
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
        )
        try:
            answer = await self.context.bus.call(
                claim.startd,
                request,
                timeout=REQUEST_TIMEOUT_S,
                epoch=claim.epoch,
                trace=trail.of_run(self.table, claim),
            )
        except RemoteFailure as error:
            return None if error.retryable else ClaimRefused(reason=str(error), code="unknown-claim")
        except (BusUnavailable, CallTimeout) as error:
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
        claim.granted_at = self.keeper.now()
        claim.heard = self.context.clock.monotonic()
        claim.claim_id = answer.claim_id
        self._learn_slot(claim, answer)
        self.runs.by_claim_id[claim.claim_id] = claim
        self.queue.put_claim(claim)
        run = claim.shadow
        if run is not None:
            self.keeper.grants.add(claim.granted_at - run.started)
        job = self.table.get(run.job) if run is not None else None
        if run is None or job is None:
            self.runs.give_back(claim, "its job is gone")
        elif not answer.activated:
            self.runs.over(claim, job, run)
            self._unmatched(job, claim.slot, answer.refusal)
            self.runs.requeue(job, f"not started on {claim.slot}: {answer.refusal}", failed=True)
            self.runs.give_back(claim, "it did not take the job")
        else:
            job.refusals = 0
            ending.on_granted(job, claim)
            self.queue.put(job)
            if run.stop:
                self.runs.spawn(self.runs.tell_stop(claim, run), "stop")
        self.keeper.commit()
        self.runs.lost_soon.set()

    def _learn_slot(self, claim: Claim, answer: ClaimGranted) -> None:
        """The slot that was carved, in place of the partitionable one."""
        job = self.table.get(claim.shadow.job) if claim.shadow is not None else None
        before = claim.weight()
        claim.slot = answer.slot
        claim.slot_ad, claim.ad = answer.slot_ad, None
        claim.fits.clear()
        if job is not None:
            self.table.count(claim.submitter).weighted_running += claim.weight() - before
            self.keeper.counts_changed.set()

    def _refused(self, claim: Claim, answer: ClaimRefused) -> None:
        """No run there: the job goes back to where it stood. The attempt never was, so its number is free again."""
        run = claim.shadow
        self.context.log.info("claim_refused", slot=claim.slot, code=answer.code, reason=answer.reason)
        job = self.table.get(run.job) if run is not None else None
        if run is not None and job is not None:
            job.count("NumShadowStarts", -1)
            job.ad["LastRejMatchTime"] = int(self.keeper.now())
            job.ad["LastRejMatchReason"] = f"{claim.slot} refused it: {answer.reason}"[:1000]
            self.runs.over(claim, job, run)
            self._unmatched(job, claim.slot, answer.reason)
            job.refusals += 1
            self.runs.cool(job, self.runs.cool_down.refused_s(job.refusals))
            self.runs.back(job)
        elif claim.waits is not None and (job := self.table.get(claim.waits)) is not None:
            self._unmatched(job, claim.slot, answer.reason)
            job.refusals += 1
            self.runs.cool(job, self.runs.cool_down.refused_s(job.refusals))
        self.runs.drop(claim)
        self.keeper.commit()

    # Claims that wait for their slot to empty

    def _wait_with(self, match: Match, slot: ClassAd, decided: Matches, now: float) -> Claim | None:
        """A claim of a slot that is in use, for the first job that the match is for; None when there is none."""
        job = self._first(match.submitter, match.autocluster) if self._may_add() else None
        if job is None:
            return None
        claim = self._claim(match, slot, job, decided, now)
        claim.autocluster = match.autocluster
        self.runs.claims[claim.id] = claim
        self._let_wait(claim, job)
        self._matched(job, match, decided, now)
        self.keeper.save(job)
        return claim

    def _let_wait(self, claim: Claim, job: Job) -> None:
        claim.waits, job.waits_for = job.id, claim.id
        self.table.refresh(job)
        self.queue.put_claim(claim)

    async def _wait(self, claim: Claim) -> None:
        """Ask for the slot until it is there, and start the job then. Stored first: what was begun in the name of the
        job must not be forgotten."""
        clock = self.context.clock
        wake = self._wakes.setdefault(claim.id, asyncio.Event())
        await self.keeper.commit()
        heard = asked_first = clock.monotonic()
        pause = 0.2
        ready = False
        while self.runs.claims.get(claim.id) is claim:
            job = self._job_of(claim)
            if job is None:
                self._forsake(claim, "no job waits for it any more")
                return
            if ready:
                await self._begin(claim, job)
                return
            wake.clear()
            answer = await self._ask(claim, full_packed(self.keeper.name, job, self.keeper.now()), None)
            if self.runs.claims.get(claim.id) is not claim:
                self._give_up(claim, answer)
                return
            now = clock.monotonic()
            if isinstance(answer, ClaimRefused):
                self._refused(claim, answer)
                return
            if isinstance(answer, ClaimGranted):
                self._named(claim, answer.claim_id)
                ready = True
                continue
            if isinstance(answer, ClaimWaiting):
                self._named(claim, answer.claim_id)
                heard, pause = now, 0.2
                ready = self._hinted(claim)
                # What the other side says of time may be anything: it must not make us ask without a pause.
                delay = max(min(1.0, ASK_EVERY_S), min(ASK_EVERY_S, claim.alive_s, answer.within_s + 1.0))
            else:
                delay, pause = pause, min(5.0, pause * 2)
            patience = self.settings.request_claim_timeout_s
            if now - asked_first > patience or now - heard > max(REQUEST_PATIENCE_S, claim.lease_s):
                self._forsake(claim, "its slot did not become free in time")
                return
            if not ready:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await wake.wait()
                ready = self._hinted(claim)

    async def ready(self, message: ClaimReady) -> None:
        """A startd says that a slot is there for the claim that waits for it."""
        while len(self._hints) >= MAX_HINTS:
            del self._hints[next(iter(self._hints))]
        self._hints[message.claim_id] = None
        claim = self.runs.by_claim_id.get(message.claim_id)
        if claim is not None and (wake := self._wakes.get(claim.id)) is not None:
            wake.set()

    def _hinted(self, claim: Claim) -> bool:
        """Whether such a hint came. It may have been faster than the answer that names the claim."""
        there = claim.waits_as in self._hints
        self._hints.pop(claim.waits_as, None)
        return there

    def _named(self, claim: Claim, claim_id: str) -> None:
        """The startd's name for the claim while it waits: by it it can be given up."""
        if claim.waits_as != claim_id:
            self.runs.by_claim_id.pop(claim.waits_as, None)
            claim.waits_as = claim_id
            self.runs.by_claim_id[claim_id] = claim
            self.queue.put_claim(claim)
            self.keeper.commit()

    def _job_of(self, claim: Claim) -> Job | None:
        """The job that waits with the claim; another of its kind where that one went."""
        job = self.table.get(claim.waits) if claim.waits is not None else None
        if job is not None and job.waits_for == claim.id:
            if job.status == JobStatus.IDLE and job.shadow is None and job.submitter == claim.submitter:
                return job
            job.waits_for = ""
            self.table.refresh(job)
        job = self._first(claim.submitter, claim.autocluster)
        if job is not None:
            self._let_wait(claim, job)
        return job

    async def _begin(self, claim: Claim, job: Job) -> None:
        """The slot is empty: from here on it is as with any other match."""
        self.runs.by_claim_id.pop(claim.waits_as, None)
        self._wakes.pop(claim.id, None)
        while True:
            job.waits_for = ""
            claim.waits = None
            run = self.runs.begin(job, claim, self.keeper.now())
            if run is not None:
                break
            claim.waits = job.id  # it is on hold now; another of its kind may do
            other = self._job_of(claim)
            if other is None:
                self._forsake(claim, "no job waits for it any more")
                return
            job = other
        await self.keeper.commit()
        await self._request(claim, run)

    def _forsake(self, claim: Claim, reason: str) -> None:
        """Give up a claim that waits, or has just got its slot."""
        self.context.log.info("claim_forsaken", slot=claim.slot, reason=reason)
        job = self.table.get(claim.waits) if claim.waits is not None else None
        if job is not None and job.status == JobStatus.IDLE:
            self._unmatched(job, claim.slot, reason)
        self.runs.drop(claim)
        if claim.waits_as:
            self.runs.spawn(self.runs.release(claim.startd, claim.waits_as), "release")
        self.keeper.commit()

    def _give_up(self, claim: Claim, answer: Message | None) -> None:
        """An answer came for a claim that was dropped meanwhile."""
        if isinstance(answer, ClaimGranted | ClaimWaiting) and answer.claim_id != claim.waits_as:
            self.runs.spawn(self.runs.release(claim.startd, answer.claim_id), "release")

    def _on_dropped(self, claim: Claim) -> None:
        """A claim is no more: the job that waited with it is offered again."""
        wake = self._wakes.pop(claim.id, None)
        if wake is not None:
            wake.set()
        job = self.table.get(claim.waits) if claim.waits is not None else None
        if job is not None and job.waits_for == claim.id:
            job.waits_for = ""
            self.table.refresh(job)
            self.keeper.demand_grew.set()

    def _job_gone(self, job: Job) -> None:
        """A job that waits is held, removed or gone: its claim looks for another at once."""
        wake = self._wakes.get(job.waits_for)
        job.waits_for = ""
        if wake is not None:
            wake.set()


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
    """A grant whose slot can not be read is none; its claim ends with its lease."""
    if isinstance(answer, ClaimGranted):
        try:
            ClassAd.unpack(answer.slot_ad).check()
        except (ValueError, RecursionError) as error:
            return ClaimRefused(reason=f"the ad of the granted slot can not be read: {error}", code="unknown-claim")
    return answer
