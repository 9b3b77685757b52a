"""Keeping claims alive, and noticing when they are not (spec rows LEA-01 to LEA-08).

One message for all claims on one startd. A lost one costs nothing before the lease runs out; then the startd has
dropped the claim, and its job runs again elsewhere.
"""

from __future__ import annotations

import asyncio
from typing import Final

from services.schedd.runs import Runs
from services.schedd.shadow import Claim
from shared import job_log
from shared.bus.api import BusUnavailable, CallTimeout, RemoteFailure
from shared.messages.claims import Alive, AliveReply

TIMEOUT_S: Final = 10.0
#: After a lost keep-alive the next comes sooner: a startd that was restarted is found again quickly.
RETRY_S: Final = 5.0
#: What is added to a lease before the schedd gives a claim up: the startd's clock began after ours.
SLACK_S: Final = 5.0


class Leases:
    """Sends keep-alives for all claims."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.context = runs.context
        self.keeper = runs.keeper
        self.sequence = 0
        self._next: dict[str, float] = {}  # startd -> monotonic time of its next keep-alive

    async def run(self) -> None:
        """For ever: wait for the next keep-alive that is due."""
        while True:
            now = self.context.clock.monotonic()
            due = [startd for startd, claims in self._by_startd().items() if self._due(startd, claims, now) <= now]
            if due:
                await asyncio.gather(*(self.tell(startd) for startd in due))
                continue
            waits = [self._due(startd, claims, now) - now for startd, claims in self._by_startd().items()]
            self.runs.lost_soon.clear()
            try:
                await asyncio.wait_for(self.runs.lost_soon.wait(), min(waits, default=60.0))
            except TimeoutError:
                continue

    def _by_startd(self) -> dict[str, list[Claim]]:
        found: dict[str, list[Claim]] = {}
        for claim in self.runs.claims.values():
            if claim.granted:
                found.setdefault(claim.startd, []).append(claim)
        for gone in self._next.keys() - found.keys():
            del self._next[gone]
        return found

    def _due(self, startd: str, claims: list[Claim], now: float) -> float:
        interval = min(claim.alive_s for claim in claims)
        due = self._next.get(startd)
        if due is None or due > now + interval:
            due = self._next[startd] = now + interval
        return due

    def lease_of(self, claim: Claim) -> float:
        """Seconds without a sign of life after which a claim is given up."""
        settings = self.runs.settings
        return claim.lease_s or settings.max_alives_missed * settings.alive_interval_s

    async def tell_all(self) -> None:
        """Tell every startd at once: after a restart they must hear of us before the leases end."""
        await asyncio.gather(*(self.tell(startd) for startd in self._by_startd()))

    async def tell(self, startd: str) -> None:
        """One keep-alive, and what follows from the answer or its absence."""
        claims = self._by_startd().get(startd)
        if not claims:
            return
        clock = self.context.clock
        self.sequence += 1
        sent = clock.monotonic()
        self._next[startd] = sent + min(claim.alive_s for claim in claims)
        message = Alive(schedd=self.keeper.name, sequence=self.sequence, claim_ids=[claim.claim_id for claim in claims])
        try:
            answer = await self.context.bus.call(startd, message, timeout=TIMEOUT_S)
        except (BusUnavailable, CallTimeout, RemoteFailure) as error:
            self._next[startd] = min(self._next[startd], clock.monotonic() + RETRY_S)
            self._unheard(claims, str(error))
            return
        unknown = set(answer.unknown) if isinstance(answer, AliveReply) else set()
        for claim in claims:
            if self.runs.claims.get(claim.id) is not claim:
                continue
            if claim.claim_id in unknown:
                # A run that began, or was heard of, after the question is not unknown because of the answer.
                if claim.heard <= sent:
                    self.runs.lost(
                        claim, "the execution point no longer knows its claim", reconnecting=claim.disconnected
                    )
                continue
            claim.heard = max(claim.heard, sent)
            if claim.disconnected:
                self._found(claim)

    def _unheard(self, claims: list[Claim], reason: str) -> None:
        now = self.context.clock.monotonic()
        wall = self.keeper.now()
        for claim in claims:
            if self.runs.claims.get(claim.id) is not claim or claim.shadow is None:
                continue
            job = self.keeper.table.get(claim.shadow.job)
            if now - claim.heard > self.lease_of(claim) + SLACK_S:
                self.runs.lost(claim, "its lease ran out without a sign of its execution point", reconnecting=True)
            elif not claim.disconnected and job is not None:
                claim.disconnected = True
                self.runs.record(
                    job,
                    lambda job=job, claim=claim: job_log.disconnected(job.id, wall, reason, claim.slot, claim.startd),  # type: ignore[misc]
                )
        self.keeper.commit()

    def _found(self, claim: Claim) -> None:
        claim.disconnected = False
        job = self.keeper.table.get(claim.shadow.job) if claim.shadow is not None else None
        if job is not None:
            wall = self.keeper.now()
            job.count("NumJobReconnects")
            self.runs.record(job, lambda: job_log.reconnected(job.id, wall, claim.slot, claim.startd))
            self.keeper.save(job)
            self.keeper.commit()
