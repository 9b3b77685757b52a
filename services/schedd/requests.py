"""What the negotiator is told: each submitter's jobs in order, as requests (spec rows NEG-15, NEG-29 to NEG-31)."""

from __future__ import annotations

from typing import Final

from services.schedd.autoclusters import looked_at
from services.schedd.idle import IdleJobs, Run
from services.schedd.jobs import full_ad, full_packed
from services.schedd.keeper import Keeper
from services.schedd.queries import parse_constraint
from services.schedd.settings import Settings
from shared.classad import Expr, evaluate, is_true
from shared.messages.negotiation import GetRequests, RequestList, ResourceRequest
from shared.turns import Turns

#: Negotiators whose cycles are remembered.
MAX_SHARDS: Final = 100
#: Of one answer, all submitters together. A job's ad may have a megabyte, and a message has an end.
MAX_ANSWER_BYTES: Final = 4 << 20
#: Of a request, besides its ad.
_OVERHEAD: Final = 100


class Requests:
    """Answers GetRequests."""

    def __init__(self, keeper: Keeper, settings: Settings) -> None:
        self.keeper = keeper
        self.settings = settings
        self._verdicts: dict[str, tuple[tuple[int, int, str], dict[int, bool]]] = {}

    async def get(self, asked: GetRequests) -> RequestList:
        """Raises RemoteFailure bad-request for a constraint that is no expression.

        No submitter may fill the answer with huge ads: each has an equal part of what is left of it, and what does not
        fit comes with the next question. Only where nothing else was listed one request may exceed it.
        """
        table = self.keeper.table
        constraint = parse_constraint(asked.job_constraint)
        # A match is for an autocluster: the constraint must not divide one.
        turns = Turns()
        for job in table.set_significant(asked.significant, looked_at(constraint)):
            table.refresh(job)
            await turns.give_way()
        if table.sorting:
            self.keeper.tell_sorted()
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

    async def _allowed(self, idle: IdleJobs, constraint: Expr, asked: GetRequests) -> frozenset[int]:
        """The autoclusters that the constraint is true for: all jobs of one agree in what it looks at. Each is asked
        about once a cycle, and others get their turn meanwhile."""
        verdicts = self._verdicts_of(asked)
        now = self.keeper.now()
        turns = Turns()
        for autocluster in list(idle.buckets):
            if autocluster not in verdicts and (key := idle.first(autocluster)) is not None:
                ad = full_ad(self.keeper.name, self.keeper.table.at(key), now)
                verdicts[autocluster] = is_true(evaluate(constraint, ad, None, now))
                await turns.give_way()
        return frozenset(autocluster for autocluster in idle.buckets if verdicts.get(autocluster))

    def _verdicts_of(self, asked: GetRequests) -> dict[int, bool]:
        """What is known of autoclusters in this cycle of this negotiator; a constraint may look at the clock."""
        if len(self._verdicts) > MAX_SHARDS:
            self._verdicts.clear()
        cycle = (asked.epoch, asked.cycle, asked.job_constraint)
        known = self._verdicts.get(asked.shard)
        if known is None or known[0] != cycle:
            known = self._verdicts[asked.shard] = (cycle, {})
        return known[1]
