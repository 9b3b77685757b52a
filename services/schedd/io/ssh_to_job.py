"""Lets users look into their running jobs (roost ssh): checks whose job it is, and tells the startd that runs it whom
to let in."""

from __future__ import annotations

from engine.queue.jobs import JobId
from services.schedd.core.flocking import pool_of
from services.schedd.core.rights import may_act
from services.schedd.io.job_updates import JobUpdates
from shared.bus.api import RemoteFailure
from shared.messages.base import Message
from shared.messages.visits import StartVisit, VisitJob

#: A container that is just being made takes a while, seconds.
PATIENCE_S = 25.0
#: More at a time would keep too many places in the schedd's inbox.
AT_ONCE = 50


class SshToJob:
    """Answers VisitJob."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates
        self._asking = 0

    async def visit(self, asked: VisitJob) -> Message:
        """The startd's answer. Raises RemoteFailure."""
        job_id = _named(asked.job_id)
        cluster = self.updates.table.clusters.get(job_id.cluster)
        if job_id.proc < 0 and cluster is not None and len(cluster.jobs) == 1:
            job_id = JobId(job_id.cluster, next(iter(cluster.jobs)))
        if cluster is None or job_id.proc not in cluster.jobs:
            known = cluster is not None and job_id.proc < 0
            reason = f"cluster {asked.job_id} has several jobs: name one of them, {job_id.cluster}.0 say"
            raise RemoteFailure("not-found", reason if known else f"job {asked.job_id} is not in the queue")
        if cluster.parallel:
            # Node 0 is the one that the others are there for.
            job_id = JobId(job_id.cluster, job_id.proc, max(0, job_id.node))
        elif job_id.node >= 0:
            raise RemoteFailure("not-found", f"job {job_id.cluster}.{job_id.proc} has no nodes: it is no parallel job")
        if not may_act(asked.user, asked.admin, cluster.user, self.updates.settings.rights):
            raise RemoteFailure("denied", f"job {asked.job_id} belongs to {cluster.user}")
        claim = next(
            (one for one in self.updates.claims.claims.values() if one.shadow and one.shadow.job == job_id), None
        )
        if claim is None or claim.shadow is None:
            what = f"job {job_id}" if job_id.node < 0 else f"node {job_id.node} of job {job_id.cluster}.{job_id.proc}"
            raise RemoteFailure("conflict", f"{what} is not running")
        if pool := pool_of(claim.startd):
            raise RemoteFailure("conflict", f"job {job_id} runs in pool {pool}, where our gateways do not reach it")
        if self._asking >= AT_ONCE:
            raise RemoteFailure("busy", "too many visits begin at the moment: try again", retryable=True)
        wanted = StartVisit(
            claim_id=claim.claim_id,
            job_id=str(job_id),
            attempt=claim.shadow.attempt,
            user=asked.user,
            wish=asked.wish,
        )
        self._asking += 1
        try:
            return await self.updates.context.bus.call(claim.startd, wanted, timeout=PATIENCE_S)
        finally:
            self._asking -= 1


def _named(text: str) -> JobId:
    """A job, or a node of a parallel one (12.0.3). Raises RemoteFailure."""
    try:
        return JobId.of_run(text)
    except ValueError as error:
        raise RemoteFailure("bad-request", str(error)) from error
