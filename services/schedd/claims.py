"""From the negotiator's matches to claims: asking startds for their slots, with the first job in the same message.

What a match gives is used at once and no further than its count; what is refused waits for the next cycle.
"""

from __future__ import annotations

import asyncio
from typing import Final

from services.schedd import ending
from services.schedd.activation import match_exprs
from services.schedd.claiming import limits_of
from services.schedd.jobs import JobId
from services.schedd.runs import Runs
from services.schedd.shadow import Claim
from shared.bus.api import BusUnavailable, CallTimeout, RemoteFailure
from shared.classad import ClassAd
from shared.errors import PermanentError
from shared.messages.base import Message
from shared.messages.claims import Activation, ClaimGranted, ClaimRefused, RequestClaim
from shared.messages.events import JobMatched
from shared.messages.negotiation import Match, Matches

#: How long one request for a claim waits, and how long requests are repeated before the match is given up.
REQUEST_TIMEOUT_S: Final = 10.0
REQUEST_PATIENCE_S: Final = 60.0
#: A longer JobLeaseDuration counts as this: ten years.
MAX_LEASE_S: Final = 10 * 366 * 86400


class Claims:
    """Uses matches."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.keeper = runs.keeper
        self.context = runs.context
        self.table = runs.table
        self.queue = runs.queue
        self.settings = runs.settings

    async def match(self, decided: Matches) -> list[int]:
        """Use matches of a negotiator: gives a job to each slot, several to a partitionable one. Returns how many
        of each match."""
        now = self.keeper.now()
        begun: list[tuple[Claim, Activation]] = []
        counts: list[int] = []
        # All are read before the first is used: a broken one must not leave runs begun that nobody asks for.
        for match, slot in [(match, _slot(match.slot_ad)) for match in decided.matches]:
            before = len(begun)
            budget = max(1, match.count) if slot.eval("PartitionableSlot") is True else 1
            while budget > 0 and len(self.runs.claims) < self.settings.max_jobs_running:
                started = self._use(match, slot, decided, now)
                if started is None:
                    break
                budget -= 1
                begun.append(started)
                assert started[0].shadow is not None
                self.keeper.tell(
                    JobMatched(
                        at=now,
                        schedd=self.keeper.name,
                        job_id=str(started[0].shadow.job),
                        owner=self._owner(started[0].shadow.job),
                        slot=match.slot,
                        negotiator=decided.negotiator,
                        cycle=decided.cycle,
                    )
                )
            counts.append(len(begun) - before)
        if begun:
            self.runs.spawn(self._request_all(begun), "claim")
        return counts

    def _owner(self, job_id: JobId) -> str:
        job = self.table.get(job_id)
        return job.cluster.owner if job is not None else ""

    def _use(self, match: Match, slot: ClassAd, decided: Matches, now: float) -> tuple[Claim, Activation] | None:
        """Begin a run of the first job that the match is for; None when there is none (any more)."""
        idle = self.table.idle.get(match.submitter)
        while idle is not None and (key := idle.first(match.autocluster)) is not None:
            job = self.table.at(key)
            lease = job.number("JobLeaseDuration", 0)
            lease_s = int(min(lease, MAX_LEASE_S)) if lease > 0 else 0
            alive = self.settings.alive_interval_s
            claim = Claim(
                id=self.context.new_id(),
                claim_id=match.claim_id,
                startd=match.startd,
                slot=match.slot,
                slot_ad=match.slot_ad,
                submitter=match.submitter,
                epoch=decided.epoch,
                shard=decided.shard,
                lease_s=lease_s,
                alive_s=min(alive, max(10, lease_s // 3)) if lease_s else alive,
                preempts=list(match.preempts),
                concurrency_limits=match.concurrency_limits or limits_of(job.ad, slot, now),
                match_exprs=match_exprs(slot),
                ad=slot,
            )
            run = self.runs.begin(job, claim, now)
            if run is not None:
                self.runs.claims[claim.id] = claim
                job.count("NumJobMatches")
                job.ad["LastMatchTime"] = int(now)
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
        request = RequestClaim(
            request_id=claim.id,
            claim_id=claim.claim_id,
            slot=claim.slot,
            schedd=self.keeper.name,
            submitter=claim.submitter,
            job_ad=run.job_ad,
            lease_s=claim.lease_s,
            alive_interval_s=claim.alive_s,
            epoch=claim.epoch,
            shard=claim.shard,
            preempts=claim.preempts,
            concurrency_limits=claim.concurrency_limits,
            activation=run,
        )
        give_up = self.context.clock.monotonic() + REQUEST_PATIENCE_S
        pause = 0.2
        while claim.id in self.runs.claims and not claim.granted:
            answer: Message | None = None
            try:
                answer = await self.context.bus.call(
                    claim.startd, request, timeout=REQUEST_TIMEOUT_S, epoch=claim.epoch
                )
            except RemoteFailure as error:
                if not error.retryable:
                    answer = ClaimRefused(reason=str(error), code="unknown-claim")
            except (BusUnavailable, CallTimeout) as error:
                self.context.log.info("claim_request_unanswered", slot=claim.slot, reason=str(error))
            except PermanentError as error:  # too large, or not allowed: it would be so again
                answer = ClaimRefused(reason=str(error), code="unknown-claim")
            answer = _readable(answer)
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
            if isinstance(answer, ClaimRefused):
                self._refused(claim, answer)
                return
            if self.context.clock.monotonic() > give_up:
                self.runs.lost(claim, "the execution point did not answer the request for its slot")
                return
            await self.context.clock.sleep(pause)
            pause = min(5.0, pause * 2)

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
        job = self.table.get(run.job) if run is not None else None
        if run is None or job is None:
            self.runs.give_back(claim, "its job is gone")
        elif not answer.activated:
            self.runs.over(claim, job, run)
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
            self.runs.over(claim, job, run)
            job.refusals += 1
            self.runs.cool(job, self.runs.cool_down.refused_s(job.refusals))
            self.runs.back(job)
        self.runs.drop(claim)
        self.keeper.commit()


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
