"""Answers the negotiator, which is told each submitter's idle jobs in order, as resource requests (spec rows NEG-15,
NEG-29 to NEG-31)."""

from __future__ import annotations

from typing import Final

from engine.queue.autoclusters import looked_at
from engine.queue.idle_queue import IdleQueue, JobRange
from engine.queue.jobs import full_ad, full_packed
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.queries import parse_constraint
from shared.classad import Expr, evaluate, is_true
from shared.classad.budget import Budget
from shared.classad.question import Question
from shared.cooperative import Yielder
from shared.messages.negotiation import GetRequests, RequestList, ResourceRequest

#: Negotiators whose cycles are remembered.
MAX_SHARDS: Final = 100
#: Of one answer, all submitters together. A job's ad may have a megabyte, and a message has an end.
MAX_ANSWER_BYTES: Final = 4 << 20
#: Of a request, besides its ad: so that there are no more requests in an answer than it may have values.
_OVERHEAD: Final = 640


class ResourceRequests:
    """Answers GetRequests."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates
        self._verdicts: dict[str, tuple[tuple[int, int, str], dict[int, bool]]] = {}

    async def get(self, asked: GetRequests) -> RequestList:
        """Raises RemoteFailure bad-request for a constraint that is no expression, TooExpensive for one that costs too
        much.

        No submitter may fill the answer with huge ads: each has an equal part of what is left of it, and what does not
        fit comes with the next question. Only where nothing else was listed one request may exceed it.
        """
        table = self.updates.table
        constraint = await parse_constraint(asked.job_constraint)
        # A match is for an autocluster: the constraint must not divide one.
        yielder = Yielder()
        for job in table.set_significant(asked.significant, looked_at(constraint)):
            table.refresh(job)
            await yielder.yield_if_due()
        if table.sorting:
            self.updates.publish_autoclusters()
        counts = asked.counts and self.updates.settings.request_counts
        requests: dict[str, list[ResourceRequest]] = {}
        more: list[str] = []
        left = MAX_ANSWER_BYTES
        for number, submitter in enumerate(asked.submitters):
            idle = table.idle.get(submitter)
            if idle is None or not idle.total:
                continue
            skip = max(0, asked.skip.get(submitter, 0))
            limit = asked.limit if asked.limit > 0 else 200
            only = await self._allowed(idle, constraint, asked) if constraint is not None else None
            runs, goes_on = idle.runs(limit, skip=skip, counts=counts, only=only)
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
            await yielder.yield_if_due()
            if goes_on:
                more.append(submitter)
        return RequestList(requests=requests, more=more)

    def _request(self, run: JobRange) -> ResourceRequest:
        job = self.updates.table.at(run.first)
        return ResourceRequest(
            autocluster=run.autocluster,
            count=run.count,
            # Slots' owners write what is evaluated with it, in the negotiator: they learn nothing private by that.
            ad=full_packed(self.updates.name, job, self.updates.now(), self.updates.settings.rights.private),
            first_job=str(job.queued_id),
        )

    async def _allowed(self, idle: IdleQueue, constraint: Expr, asked: GetRequests) -> frozenset[int]:
        """The autoclusters that the constraint is true for: all jobs of one agree in what it looks at. Each is asked
        about once a cycle, and others get their turn meanwhile."""
        verdicts = self._verdicts_of(asked)
        now = self.updates.now()
        async with Question(Budget("NEGOTIATOR_JOB_CONSTRAINT")) as question:
            for autocluster in list(idle.buckets):
                if autocluster not in verdicts and (key := idle.first(autocluster)) is not None:
                    ad = full_ad(self.updates.name, self.updates.table.at(key), now)
                    verdicts[autocluster] = is_true(evaluate(constraint, ad, None, now))
                    await question.yield_if_due()
        return frozenset(autocluster for autocluster in idle.buckets if verdicts.get(autocluster))

    def _verdicts_of(self, asked: GetRequests) -> dict[int, bool]:
        """The verdicts on autoclusters in this cycle of this negotiator. They end with it: a constraint may look at the
        clock."""
        if len(self._verdicts) > MAX_SHARDS:
            self._verdicts.clear()
        cycle = (asked.epoch, asked.cycle, asked.job_constraint)
        known = self._verdicts.get(asked.shard)
        if known is None or known[0] != cycle:
            known = self._verdicts[asked.shard] = (cycle, {})
        return known[1]
