"""The claims that the schedd holds, and what their startds are told of them: stop a run, release a claim.

Whoever changes a job needs this room (a job that is held must have its run stopped), and so it knows nothing of those
above it: who makes claims of matches (`claims`), and who follows the runs on them (`runs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from engine.queue.job_table import JobTable
from engine.queue.jobs import Job, Shadow
from services.schedd.core.claim import Claim
from services.schedd.io.queue_db import QueueDatabase
from shared.backoff import Backoff
from shared.bus.api import BusUnavailable, CallTimeout, RemoteFailure
from shared.daemon.context import Context
from shared.messages.claims import DeactivateClaim, ReleaseClaim, SuspendClaim, public_claim_id

STOP_TIMEOUT_S: Final = 10.0


class IdleClaimSet:
    """The claims that are kept without a run (SUB-11), the first that was kept first."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def __contains__(self, claim: Claim) -> bool:
        return claim.id in self._claims

    def every(self) -> list[Claim]:
        return list(self._claims.values())

    def add(self, claim: Claim) -> None:
        self._claims[claim.id] = claim

    def remove(self, claim: Claim) -> None:
        self._claims.pop(claim.id, None)


class ClaimTable:
    """Claims by our own id and by the startd's. Each carries one run at a time."""

    def __init__(self, context: Context, queue: QueueDatabase, table: JobTable) -> None:
        self.context = context
        self.queue = queue
        self.table = table
        self.claims: dict[str, Claim] = {}  # by our own id
        self.by_claim_id: dict[str, Claim] = {}  # granted ones, and those that wait
        self.keepalive_due = asyncio.Event()  # there is a new claim, or a shorter lease: the timer looks again
        self.job_offered = asyncio.Event()  # a job may start (again): tell the negotiator at once
        self.idle = IdleClaimSet()
        self.nodes_due = asyncio.Event()  # a node of a parallel job got its claim, or lost it
        self.idle_due = asyncio.Event()  # one more claim is kept, or there may be a job for one
        #: Set by who gives jobs to kept claims: do it now, written with the next commit. Gives how many jobs.
        self.give_kept: Callable[[], int] = lambda: 0
        self._wakes: dict[str, asyncio.Event] = {}  # of claims that wait for their slots, by Claim.id
        self._tasks: set[asyncio.Task[None]] = set()

    def claim_of(self, job: Job) -> Claim | None:
        """The claim a job's run is on."""
        return self.claims.get(job.shadow.claim) if job.shadow is not None else None

    def knows(self, claim: Claim) -> bool:
        """Whether the claim is still ours."""
        return self.claims.get(claim.id) is claim

    def offer_jobs(self) -> None:
        """A job may start (again)."""
        self.job_offered.set()
        if self.idle:
            self.idle_due.set()

    def keep(self, claim: Claim, until: float) -> None:
        """Keep a claim that has no run until then (wall clock), for a job that is yet to come."""
        claim.idle_until, claim.looked_at = until, -1
        self.idle.add(claim)
        self.queue.put_claim(claim)
        self.idle_due.set()

    # Ends of claims

    def drop(self, claim: Claim) -> None:
        """Forget a claim. The job that waited with it is offered again."""
        if self.claims.pop(claim.id, None) is None:
            return
        for claim_id in (claim.claim_id, claim.waits_as):
            if self.by_claim_id.get(claim_id) is claim:
                del self.by_claim_id[claim_id]
        self.queue.drop_claim(claim)
        self.idle.remove(claim)
        self.wake(claim.id)
        self._wakes.pop(claim.id, None)
        job = self.table.get(claim.waits) if claim.waits is not None else None
        if job is not None and job.waits_for == claim.id:
            job.waits_for = ""
            self.table.refresh(job)
            self.offer_jobs()
            if job.whole is not None:
                self.nodes_due.set()

    def give_back(self, claim: Claim, reason: str) -> None:
        """Release a claim that is of no more use."""
        self.drop(claim)
        if claim.granted:
            self.context.log.debug("claim_released", claim=public_claim_id(claim.claim_id), reason=reason)
            self.spawn(self.release(claim.startd, claim.claim_id), "release")

    async def release(self, startd: str, claim_id: str) -> None:
        """Tell a startd that a claim is not wanted any more."""
        try:
            await self.context.bus.call(startd, ReleaseClaim(claim_id=claim_id), timeout=STOP_TIMEOUT_S)
        except (BusUnavailable, CallTimeout, RemoteFailure) as error:
            # It ends with its lease, as nobody keeps it alive any more.
            self.context.log.info("claim_not_released", claim=public_claim_id(claim_id), reason=str(error))

    # Claims that wait for their slots

    def waker(self, claim: Claim) -> asyncio.Event:
        """Set when the claim should look at once at how it stands."""
        return self._wakes.setdefault(claim.id, asyncio.Event())

    def wake(self, claim: str) -> None:
        """claim: Claim.id; of one that does not wait nothing happens."""
        if (wake := self._wakes.get(claim)) is not None:
            wake.set()

    def waits_no_more(self, claim: Claim) -> None:
        """Its slot is there."""
        self._wakes.pop(claim.id, None)

    # Ends of runs

    def stop_run(self, job: Job, why: str, how: str) -> None:
        """End a run; its last report tells when it is over. Harder ways override softer ones."""
        claim = self.claim_of(job)
        run = job.shadow
        if claim is None or run is None:
            return
        run.stop, run.how = why, how
        self.queue.put_claim(claim)
        if claim.granted:
            self.tell_stop(claim, run)

    def tell_stop(self, claim: Claim, run: Shadow) -> None:
        """Tell the startd to end a run, until it has heard of it."""
        self.spawn(self._tell_stop(claim, run), "stop")

    async def _tell_stop(self, claim: Claim, run: Shadow) -> None:
        await self.queue.commit()  # stored first: a schedd that was killed tells it again
        message = DeactivateClaim.model_validate(
            {
                "claim_id": claim.claim_id,
                "job_id": str(run.job),
                "attempt": run.attempt,
                "how": run.how,
                "why": run.stop,
            }
        )
        backoff = Backoff(0.2, 10.0)
        while claim.shadow is run and claim.id in self.claims:
            try:
                await self.context.bus.call(claim.startd, message, timeout=STOP_TIMEOUT_S)
                return
            except RemoteFailure as error:
                if not error.retryable:
                    # It knows no such run: its last report is on the way, or never will be.
                    facts = {"job_id": str(run.job), "attempt": run.attempt, "reason": str(error)}
                    self.context.log.info("run_not_stopped", **facts)
                    return
            except CallTimeout as error:
                # Said again at once: so an order waits in the startd's inbox at any time, for the moment it is back.
                self.context.log.info("run_not_stopped", job_id=str(run.job), attempt=run.attempt, reason=str(error))
                continue
            except BusUnavailable as error:
                self.context.log.info("run_not_stopped", job_id=str(run.job), attempt=run.attempt, reason=str(error))
            await self.context.clock.sleep(backoff.next_s())

    # Runs that stand still

    def suspend_run(self, job: Job, *, suspended: bool) -> None:
        """Have a run stand still, or go on, as its user wants; its reports tell when it does."""
        claim = self.claim_of(job)
        run = job.shadow
        if claim is None or run is None:
            return
        run.suspended_by_user, run.suspension_due = suspended, True
        self.queue.put_claim(claim)
        if claim.granted:
            self.tell_suspension(claim, run)

    def tell_suspension(self, claim: Claim, run: Shadow) -> None:
        """Tell the startd whether a run is to stand still, until it has heard of it."""
        self.spawn(self._tell_suspension(claim, run), "suspend")

    async def _tell_suspension(self, claim: Claim, run: Shadow) -> None:
        await self.queue.commit()  # stored first: a schedd that was killed tells it again
        backoff = Backoff(0.2, 10.0)
        while claim.shadow is run and self.knows(claim) and run.suspension_due and not run.stop:
            suspended = run.suspended_by_user
            job, attempt = str(run.job), run.attempt
            message = SuspendClaim(claim_id=claim.claim_id, job_id=job, attempt=attempt, suspended=suspended)
            facts = {"job_id": job, "attempt": attempt, "suspended": suspended}
            try:
                await self.context.bus.call(claim.startd, message, timeout=STOP_TIMEOUT_S)
            except RemoteFailure as error:
                if not error.retryable:
                    self.context.log.info("run_not_suspended", **facts, reason=str(error))
                    if run.sequence >= 0:  # else the order came before the run, whose first report has it told again
                        run.suspended_by_user = run.suspension_due = False
                        self.queue.put_claim(claim)
                        await self.queue.commit()
                    return
            except (BusUnavailable, CallTimeout) as error:
                self.context.log.info("run_not_suspended", **facts, reason=str(error))
            else:
                if run.suspended_by_user is suspended and claim.shadow is run and self.knows(claim):
                    run.suspension_due = False
                    self.queue.put_claim(claim)
                    await self.queue.commit()
                continue
            await self.context.clock.sleep(backoff.next_s())

    # Tasks

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
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
