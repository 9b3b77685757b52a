"""Claims of the nodes of parallel jobs: kept until all nodes of a job have one, then used together; given back when the
others do not come in time (core.parallel_universe)."""

from __future__ import annotations

from typing import Final

from engine.queue.jobs import Job, JobId
from services.schedd.core import job_launch_ad
from services.schedd.core import parallel_universe as decisions
from services.schedd.core.claim import Claim
from services.schedd.core.idle_claims import MAX_IDLE_S
from services.schedd.core.job_states import JobEvent
from services.schedd.core.policies import Hold
from services.schedd.io.idle_claims import IdleClaims
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.parallel_runs import ParallelRuns
from services.schedd.io.runs import Runs
from services.schedd.io.start_pacer import StartPacer
from shared.daemon.clock import wait_for_event
from shared.messages.events import JobUnmatched

#: A wait is no longer than this (s), however long claims are kept: clocks on the wall are set.
LONGEST_WAIT_S: Final = 600.0


class ParallelClaims:
    """Starts parallel jobs whose nodes all have their claims. activate: of kept claims."""

    def __init__(
        self, updates: JobUpdates, runs: Runs, parallel: ParallelRuns, idle: IdleClaims, pacer: StartPacer
    ) -> None:
        self.updates = updates
        self.table = updates.table
        self.claims = updates.claims
        self._runs = runs
        self._parallel = parallel
        self._idle = idle
        self._pacer = pacer
        self._waiting: dict[JobId, None] = {}  # jobs of which a node has a claim, but not all have
        self._tries: dict[JobId, int] = {}  # how often a job has given claims back

    def arrived(self, node: Job, claim: Claim) -> None:
        """The claim of a node is there. It is kept for it."""
        claim.idle_until = self.updates.now() + MAX_IDLE_S
        self.note(node)

    def note(self, node: Job) -> None:
        """A node has a claim that waits for those of the others."""
        self._waiting[node.queued_id] = None
        self.claims.nodes_due.set()

    async def run(self) -> None:
        """Start jobs as they become complete, and give back what waits too long, until cancelled."""
        while True:
            self.claims.nodes_due.clear()
            wait_s = LONGEST_WAIT_S
            for job_id in list(self._waiting):
                wait_s = min(wait_s, await self._look_at(job_id))
            await wait_for_event(self.claims.nodes_due, self.updates.context.clock, max(0.0, wait_s))

    async def _look_at(self, job_id: JobId) -> float:
        """Do what is due for a job; how long until there may be more to do, seconds."""
        job = self.table.get(job_id)
        claims = [self._claim_of(node) for node in job.nodes] if job is not None else []
        had = [claim for claim in claims if claim is not None]
        if job is None or not had:
            del self._waiting[job_id]
            if job is None:
                self._tries.pop(job_id, None)
            else:
                self._count(job, 0)
            return LONGEST_WAIT_S
        if not job.startable or any(claim.submitter != job.submitter for claim in had):
            # It was held, say, or is charged to another now, just as a claim came.
            self._parallel.let_go(job)
            self.updates.commit()
            return 0.0
        if len(had) == len(claims):
            await self._start(job, had)
            return 0.0
        self._count(job, len(had))
        now, timeout_s = self.updates.now(), self.updates.settings.unused_claim_timeout_s
        since = min(claim.granted_at for claim in had)
        tries = self._tries.get(job_id, 0)
        left = decisions.gives_back_at(self.updates.name, job_id, tries, since, timeout_s) - now
        if left <= 0:
            self._give_back(job, len(had), tries + 1)
            return 0.0
        return left

    def _claim_of(self, node: Job) -> Claim | None:
        """The claim that is there for a node."""
        claim = self.claims.claims.get(node.waits_for) if node.waits_for else None
        return claim if claim is not None and claim.granted else None

    def _count(self, job: Job, hosts: int) -> None:
        """Let the job say how many of its machines it has."""
        if job.shadow is None and job.number("CurrentHosts") != hosts:
            job.ad["CurrentHosts"] = hosts
            self.updates.queue.put(job)
            self.updates.commit()

    def _give_back(self, job: Job, had: int, tries: int) -> None:
        self._tries[job.id] = tries
        timeout_s = self.updates.settings.unused_claim_timeout_s
        pause_s = decisions.pause_s(self.updates.name, job.id, tries, timeout_s)
        reason = (
            f"had {had} of {len(job.nodes)} machines, and the others did not come in time (UNUSED_CLAIM_TIMEOUT = "
            f"{timeout_s:g}): it gave them back, and asks again in {pause_s:.0f} s"
        )
        now = self.updates.now()
        self.updates.context.log.info("parallel_claims_given_back", job_id=str(job.id), had=had, of=len(job.nodes))
        job.ad.update({"LastRejMatchTime": int(now), "LastRejMatchReason": reason})
        self.updates.publish(JobUnmatched(**self.updates.about(job, now), slot="", reason=reason))
        self._parallel.let_go(job)
        self.updates.cool(job, pause_s)
        self.updates.queue.put(job)
        self.updates.commit()

    async def _start(self, job: Job, claims: list[Claim]) -> None:
        """Begin the run of the job with one on every node."""
        updates, now = self.updates, self.updates.now()
        for node, claim in zip(job.nodes, claims, strict=True):
            problem = job_launch_ad.expand_for(updates.name, node, claim, now).problem
            if problem:
                updates.happen(job, JobEvent.HOLD, reason=problem, code=Hold.UNSPECIFIED)
                await updates.commit()
                return
        self._waiting.pop(job.id, None)
        self._tries.pop(job.id, None)
        self._parallel.begin(job, claims, now)
        start_in_s = self._pacer.book(job, updates.settings)
        begun = []
        for node, claim in zip(job.nodes, claims, strict=True):
            node.waits_for, claim.waits, claim.start_in_s = "", None, start_in_s
            activation = self._runs.begin(node, claim, now)
            assert activation is not None, node.id
            begun.append((claim, activation))
        await updates.commit()  # a schedd killed after the first order must know of all runs
        for claim, activation in begun:
            self.claims.spawn(self._idle.activate(claim, activation), "node")
