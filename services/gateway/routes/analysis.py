"""The route that explains why jobs do not run: it finds the jobs, groups like ones, and asks the negotiator for
reports."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handler where they stand.
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query

from services.gateway.core.authorization import Identity
from services.gateway.pool_client import PoolClient, Schedd
from services.gateway.routes.context import Constraint, RouteContext, example
from shared.bus.api import RemoteFailure
from shared.daemon.readable_ads import checked, of_each
from shared.messages.analysis import MOST_JOBS, Analysis, Analyze, JobInQuestion
from shared.messages.queue import QueryJobs

#: Jobs looked at for which are alike; of more it is only said that there are more.
MOST_LOOKED = 100_000
#: What tells jobs apart here.
_KEYS = ["ClusterId", "ProcId", "AutoClusterId", "JobStatus"]
#: Longer than the negotiator's patience, with questions of others before it.
_TIMEOUT_S = 30.0

#: Said of jobs that wait for machines to be woken where nobody does so.
NO_ROOSTER = " No rooster runs in this pool (ROOSTER in DAEMON_LIST): wake it with `roost power`."


@dataclass(slots=True)
class _Group:
    """Jobs that are alike, and the first of them."""

    schedd: Schedd
    first: str
    count: int = 0
    history: bool = False


def add_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/analysis",
        responses=example({"jobs": [{"schedd": "ap1"}], "slots": [], "more": 0}),
        tags=["jobs"],
    )
    async def analysis(
        identity: Annotated[Identity, Depends(context.guards.may("jobs.query", heavy=True))],
        ids: Annotated[str, Query(description='"12" or "12.3", separated by commas; none: idle jobs')] = "",
        constraint: Constraint = "",
        schedd: Annotated[str, Query(description="name; none: all schedds")] = "",
        machine: Annotated[
            str,
            Query(
                max_length=1000, description="only this slot or machine; without jobs: what it would take of what waits"
            ),
        ] = "",
        negotiator: Annotated[str, Query(description="which one, where there are several")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_JOBS, description="at most so many reports")] = 20,
    ) -> dict[str, Any]:
        """Why jobs do not run, what would help: one report for jobs that are alike. `more`: kinds of jobs not shown."""
        named = [name for name in ids.replace(",", " ").split() if name]
        chosen = await context.pool.negotiator(negotiator)
        groups: list[_Group] = []
        if named or constraint or not machine:
            asked = await context.pool.who_knows(named, schedd)
            groups = await _alike(context.pool, asked, named, constraint, identity)
        questions = await _questions(context.pool, groups[:limit])
        answer = Analysis()
        # Jobs that were asked for and are not there are no question about the slot.
        if questions or (machine and not (named or constraint)):
            jobs = [job for _, job in questions]
            question = Analyze(jobs=jobs, machine=machine, negotiator=chosen.shard)
            answer = await context.pool.ask_negotiator(chosen, question, Analysis, timeout=_TIMEOUT_S)
        reports = [
            {**report, "schedd": group.schedd.name} for (group, _), report in zip(questions, answer.jobs, strict=False)
        ]
        waking = [report for report in reports if "waking" in report.get("outcomes", ())]
        if waking and not await _rooster(context.pool):
            for report in waking:
                report["verdict"] += NO_ROOSTER
        return {"jobs": reports, "slots": answer.slots, "more": max(0, len(groups) - limit)}


async def _rooster(pool: PoolClient) -> bool:
    """Whether somebody is there who wakes machines."""
    return bool(await pool.read_ads(["Rooster"], projection=["Name"], limit=1))


async def _alike(
    pool: PoolClient, schedds: Sequence[Schedd], ids: list[str], constraint: str, identity: Identity
) -> list[_Group]:
    """The jobs asked about, like ones together, in order. Raises RemoteFailure not-found for an id that neither a queue
    nor a history knows."""
    groups: dict[tuple[object, ...], _Group] = {}
    missing = dict.fromkeys(ids)

    async def look(schedd: Schedd, question: QueryJobs) -> None:
        async for page in pool.jobs(schedd, question):
            for ad in await of_each(page.ads, checked):
                cluster, proc, kind, status = (ad.eval(key) for key in _KEYS)
                for name in (f"{cluster}", f"{cluster}.{proc}"):
                    missing.pop(name, None)
                # What was never idle in this life of its schedd has no autocluster: its cluster is the next best.
                key = (schedd.name, status, kind if isinstance(kind, int) else str(cluster), question.history)
                group = groups.setdefault(key, _Group(schedd, f"{cluster}.{proc}", history=question.history))
                group.count += 1

    only = constraint or ("" if ids else "JobStatus == 1")
    question = QueryJobs(
        ids=ids, constraint=only, projection=_KEYS, limit=MOST_LOOKED, user=identity.user, admin=identity.admin
    )
    for schedd in schedds:
        await look(schedd, question)
    if missing and not constraint:
        for schedd in schedds:
            gone = list(missing)
            if gone:
                await look(schedd, QueryJobs(ids=gone, projection=_KEYS, limit=MOST_JOBS, history=True))
    if missing and not constraint:
        where = f"the queue and history of {', '.join(s.name for s in schedds) or 'any schedd'}"
        raise RemoteFailure("not-found", f"there is no job {', '.join(list(missing)[:5])} in {where}")
    return list(groups.values())


async def _questions(pool: PoolClient, groups: Sequence[_Group]) -> list[tuple[_Group, JobInQuestion]]:
    """Each group with the whole ad of its first job. A job that left its queue a moment ago is left out."""
    found: dict[tuple[str, str, bool], bytes] = {}
    for schedd in {group.schedd for group in groups}:
        for history in (False, True):
            ids = [g.first for g in groups if g.schedd == schedd and g.history == history]
            if ids:
                async for page in pool.jobs(schedd, QueryJobs(ids=ids, limit=len(ids), history=history)):
                    for packed in page.ads:
                        for ad in await of_each([packed], checked):
                            found[schedd.name, f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}", history] = packed
    return [
        (group, JobInQuestion(ad=found[key], schedd=group.schedd.inbox, also=group.count - 1))
        for group in groups
        if (key := (group.schedd.name, group.first, group.history)) in found
    ]
