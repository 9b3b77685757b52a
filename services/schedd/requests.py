"""What the negotiator is told: each submitter's jobs in order, as requests (spec rows NEG-15, NEG-29 to NEG-31)."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from services.schedd.autoclusters import own_references
from services.schedd.idle import IdleJobs, Run
from services.schedd.jobs import full_ad, full_packed
from services.schedd.keeper import Keeper
from services.schedd.queries import TURN_S, parse_constraint
from services.schedd.settings import Settings
from shared.classad import Expr, evaluate, is_true
from shared.messages.negotiation import GetRequests, RequestList, ResourceRequest

#: Jobs looked at one by one for a submitter where NEGOTIATOR_JOB_CONSTRAINT is set.
MAX_LOOKED: Final = 50_000
#: Of one answer, all submitters together. A job's ad may have a megabyte, and a message has an end.
MAX_ANSWER_BYTES: Final = 4 << 20
#: Of a request, besides its ad.
_OVERHEAD: Final = 100


class Requests:
    """Answers GetRequests."""

    def __init__(self, keeper: Keeper, settings: Settings) -> None:
        self.keeper = keeper
        self.settings = settings

    async def get(self, asked: GetRequests) -> RequestList:
        """Raises RemoteFailure bad-request for a constraint that is no expression.

        No submitter may fill the answer with huge ads: each has an equal part of what is left of it, and what does not
        fit comes with the next question. Only where nothing else was listed one request may exceed it.
        """
        table = self.keeper.table
        constraint = parse_constraint(asked.job_constraint)
        # A match is for an autocluster: the constraint must not divide one.
        table.set_significant(asked.significant, own_references(constraint) if constraint is not None else ())
        counts = asked.counts and self.settings.request_counts
        requests: dict[str, list[ResourceRequest]] = {}
        more: list[str] = []
        left = MAX_ANSWER_BYTES
        for number, submitter in enumerate(asked.submitters):
            idle = table.idle.get(submitter)
            if idle is None or not idle.total:
                continue
            skip = max(0, asked.skip.get(submitter, 0))
            limit = asked.limit if asked.limit > 0 else 200
            if constraint is None:
                runs, goes_on = idle.runs(limit, skip=skip, counts=counts)
            else:
                runs, goes_on = await self._constrained(idle, constraint, limit, skip, counts)
            part = left // (len(asked.submitters) - number)
            listed: list[ResourceRequest] = []
            size = 0
            for run in runs:
                request = self._request(run)
                needs = len(request.ad) + _OVERHEAD
                if size + needs > part and (listed or left < MAX_ANSWER_BYTES):
                    goes_on = True
                    break
                listed.append(request)
                size += needs
            left -= size
            requests[submitter] = listed
            if goes_on:
                more.append(submitter)
        return RequestList(requests=requests, more=more)

    def _request(self, run: Run) -> ResourceRequest:
        job = self.keeper.table.at(run.first)
        return ResourceRequest(
            autocluster=run.autocluster,
            count=run.count,
            ad=full_packed(self.keeper.name, job, self.keeper.now()),
            first_job=str(job.id),
        )

    async def _constrained(
        self, idle: IdleJobs, constraint: Expr, limit: int, skip: int, counts: bool
    ) -> tuple[list[Run], bool]:
        """As IdleJobs.runs, with only the jobs for which the constraint is true: each must be looked at."""
        now = self.keeper.now()
        runs: list[Run] = []
        until = time.perf_counter() + TURN_S
        for number, (key, autocluster) in enumerate(list(idle.keys())):
            if number == MAX_LOOKED:
                return runs[skip : skip + limit], True
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + TURN_S
            cluster = self.keeper.table.clusters.get(key[1])
            job = cluster.jobs.get(key[2]) if cluster is not None else None
            if job is None or job.idle_key != key:
                continue  # it was started or removed meanwhile
            if not is_true(evaluate(constraint, full_ad(self.keeper.name, job, now), None, now)):
                continue
            if runs and runs[-1].autocluster == autocluster and counts:
                runs[-1] = Run(autocluster, runs[-1].first, runs[-1].count + 1)
            elif len(runs) == skip + limit:
                return runs[skip:], True
            else:
                runs.append(Run(autocluster, key, 1))
        present = [run for run in runs[skip:] if self._still(run)]
        return present, False

    def _still(self, run: Run) -> bool:
        cluster = self.keeper.table.clusters.get(run.first[1])
        return cluster is not None and run.first[2] in cluster.jobs
