"""Claims whose job has ended, and which are kept without one for the next job of the same submitter (SUB-11).

Their slots stay Claimed/Idle, and are charged and preempted as all that are claimed. The next job that fits starts
there without a negotiator; where none comes in time the claim is given back. Until its execution point has taken that
job, it is idle, as one is whose slot was asked for (LEA-11).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from services.schedd.core.claim import Claim
from services.schedd.io import job_trace
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.presence import Presence
from services.schedd.io.runs import Runs
from services.schedd.io.start_pacer import StartPacer
from shared.backoff import Backoff
from shared.bus.api import BusUnavailable, CallTimeout, NobodyThere, RemoteFailure
from shared.daemon.clock import wait_for_event
from shared.errors import PermanentError
from shared.messages.claims import ActivateClaim, Activation

#: How long one order to take a job waits for its answer, and the first and the longest pause before the next (s).
ORDER_TIMEOUT_S: Final = 10.0
ORDER_AGAIN_S: Final = (0.2, 5.0)
#: A wait is no longer than this (s), however long a claim is kept: clocks on the wall are set.
LONGEST_WAIT_S: Final = 600.0


class IdleClaims:
    """Gives jobs to kept claims, and gives back the claims whose time is over. may_add: whether one more job may run
    (MAX_JOBS_RUNNING)."""

    def __init__(
        self, updates: JobUpdates, runs: Runs, presence: Presence, pacer: StartPacer, may_add: Callable[[], bool]
    ) -> None:
        self.updates = updates
        self.runs = runs
        self.claims = updates.claims
        self.context = updates.context
        self._presence = presence
        self._pacer = pacer
        self._may_add = may_add
        self.claims.give_kept = self.give

    async def run(self) -> None:
        """Give claims jobs as these come, and back when nobody wants them, until cancelled."""
        claims = self.claims
        while True:
            claims.idle_due.clear()
            now = self.updates.now()
            for claim in [claim for claim in claims.idle.every() if claim.idle_until <= now]:
                claims.give_back(claim, "no job came for it in its KeepClaimIdle")
            self.give()
            ends = [claim.idle_until for claim in claims.idle.every()]
            wait_s = max(0.0, min(ends, default=now + LONGEST_WAIT_S) - self.updates.now())
            await wait_for_event(claims.idle_due, self.context.clock, min(wait_s, LONGEST_WAIT_S))

    def give(self) -> int:
        """Begin what kept claims can take. Who has just changed something else and asks for this before the commit has
        both in one transaction. Returns how many jobs."""
        if begun := self._give_jobs(self.updates.now()):
            self.claims.spawn(self._order(begun, self.updates.commit()), "idle-claim")
        return len(begun)

    async def _order(self, begun: list[tuple[Claim, Activation]], written: asyncio.Future[None]) -> None:
        """Order runs that were begun."""
        await written  # a schedd killed after the order must know of the run
        for claim, run in begun:
            self.claims.spawn(self.activate(claim, run), "idle-claim")

    def _give_jobs(self, now: float) -> list[tuple[Claim, Activation]]:
        begun: list[tuple[Claim, Activation]] = []
        settings, table = self.updates.settings, self.updates.table
        for claim in self.claims.idle.every():
            idle = table.idle.get(claim.submitter)
            ready = table.count(claim.submitter).offered
            if idle is None or not idle.total or claim.looked_at == ready:
                continue
            if not self._may_add() or not self._pacer.room(settings, claim.shard):
                break
            run = self.runs.next_on(claim, now)
            if run is None:
                claim.looked_at = ready
                continue
            self.claims.idle.remove(claim)
            assert claim.shadow is not None
            claim.start_in_s = self._pacer.book(table.get(claim.shadow.job), settings)
            begun.append((claim, run))
        return begun

    async def activate(self, claim: Claim, activation: Activation) -> None:
        """Have a kept claim's execution point take a job, which is in the database. Said again while no answer comes:
        it is one run, however often it is ordered."""
        clock, run = self.context.clock, claim.shadow
        await clock.sleep(claim.start_in_s)
        order = ActivateClaim(claim_id=claim.claim_id, activation=activation)
        backoff, absence = Backoff(*ORDER_AGAIN_S), self._presence.watch(claim.startd)
        told = claim.told_until > 0.0  # by an earlier life, for all that is known
        while self.claims.knows(claim) and claim.shadow is run and run is not None and not claim.has_taken_run:
            if await absence.look():
                if not told and (run.stop or absence.is_long):
                    self._not_taken(claim, "its execution point is not there")
                    return
            else:
                refusal = ""
                trace = job_trace.of_run(self.updates.table, claim)
                try:
                    await self.context.bus.call(claim.startd, order, timeout=ORDER_TIMEOUT_S, trace=trace)
                except (BusUnavailable, CallTimeout) as error:
                    told |= not isinstance(error, NobodyThere)
                    self.context.log.info("idle_claim_unanswered", slot=claim.slot, reason=str(error))
                except RemoteFailure as error:
                    told |= error.retryable
                    refusal = "" if error.retryable else str(error)
                except PermanentError as error:  # too large, or not allowed: it would be so again
                    refusal = str(error)
                else:
                    self.runs.activated(claim, run)
                    if run.stop and claim.shadow is run:
                        self.claims.tell_stop(claim, run)  # the order to stop may have come before the run
                    self.updates.commit()
                    return
                if refusal and self.claims.knows(claim) and claim.shadow is run and not claim.has_taken_run:
                    self._not_taken(claim, refusal)
                    return
            await clock.sleep(backoff.next_s())

    def _not_taken(self, claim: Claim, reason: str) -> None:
        """The job goes back to where it stood, and the number of its attempt is free again; the claim is of no more
        use."""
        self.context.log.info("idle_claim_refused", slot=claim.slot, reason=reason)
        self.runs.undo(claim, reason)
        self.claims.give_back(claim, reason)
        self.updates.commit()
