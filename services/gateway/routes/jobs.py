"""Routes to jobs: list, count, submit, act on, edit."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import secrets
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.responses import Response

from services.gateway.auth.caller import note
from services.gateway.core.authorization import Identity
from services.gateway.core.rerun import NotAgain, again
from services.gateway.pool_client import JOB_TOTALS
from services.gateway.routes.context import (
    ACTED,
    AD_STREAM,
    DONE,
    MAX_BODY,
    MAX_EXPRESSION,
    PACKED_BODY,
    AnySchedd,
    Constraint,
    Limit,
    OneSchedd,
    Projection,
    RouteContext,
    example,
    names,
)
from services.gateway.serialization import (
    ad_of,
    ad_response,
    column_response,
    read_msgpack,
    results_as_json,
    wants_columns,
)
from shared import tracing
from shared.classad import ClassAd
from shared.classad.ad import PRIVATE_OF_JOBS
from shared.classad.expr import fold
from shared.daemon.readable_ads import checked, of_each
from shared.messages.queue import ActOnJobs, ImportJobs, JobPage, JobsImported, QueryJobs, SubmitJobs, Submitted
from shared.users import same, whole

Owner = Annotated[
    str,
    Query(
        max_length=200,
        pattern=r"^([^\s@]+(@[^\s@]+)?)?$",
        description="ADMINISTRATOR only: whose jobs they are to be; none: the token's user's",
    ),
]


class Chosen(BaseModel):
    """Jobs, by ids or by a constraint."""

    ids: list[str] = Field(default=[], description='"12" for a cluster, "12.3" for a job')
    constraint: str = Field(
        default="", max_length=MAX_EXPRESSION, description="ClassAd expression; instead of ids. true: all"
    )


class JobAction(Chosen):
    action: Literal["remove", "remove-force", "hold", "release", "vacate", "vacate-fast", "suspend", "continue"]
    reason: str = Field(default="", max_length=10_000, description="shown with the job")
    ranges: bool = Field(
        default=False, description='the answer may tell of many jobs that follow each other at once: "12.0-12.4999"'
    )


class JobEdit(Chosen):
    attributes: dict[str, str] = Field(
        min_length=1, max_length=1000, description="name -> ClassAd expression; a text is written with its quotes"
    )


def add_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/jobs",
        responses=AD_STREAM,
        tags=["jobs"],
    )
    async def jobs(
        request: Request,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.query", heavy=True))],
        schedd: AnySchedd = "",
        constraint: Constraint = "",
        ids: Annotated[str, Query(description='"12" or "12.3", separated by commas')] = "",
        projection: Projection = "",
        limit: Limit = 0,
        history: Annotated[bool, Query(description="jobs that left the queue, newest first")] = False,
        epochs: Annotated[
            bool,
            Query(description="in place of jobs: their runs that are over, of jobs in the queue too, newest first"),
        ] = False,
        factories: Annotated[
            bool, Query(description="in place of jobs: clusters of late materialization, with how far they are")
        ] = False,
    ) -> Response:
        """Job ads, schedd by schedd, in order of cluster and proc; with `history` those that left the queue, newest
        first; with `epochs` an ad for each run that is over, the job's as it was then, with RunInstanceId and
        EpochWriteDate; with `factories` one ad, without ProcId, of each cluster whose jobs come into the queue some
        at a time. Private attributes (Environment) are there for the jobs' owners and administrators."""
        question = QueryJobs(
            constraint=constraint, projection=names(projection), ids=names(ids), limit=limit, history=history,
            epochs=epochs, columns=wants_columns(request) and not factories, factories=factories,
            user=identity.user, admin=identity.admin,
        )  # fmt: skip
        asked = await context.pool.who_knows(question.ids, schedd)

        async def pages() -> AsyncIterator[JobPage]:
            left = limit
            for one in asked:
                async for page in context.pool.jobs(one, question.model_copy(update={"limit": left})):
                    yield page
                    left -= len(page.ads) + page.rows if limit else 0
                if limit and left <= 0:
                    return

        if question.columns:
            return await column_response(pages())
        return await ad_response(request, (page.ads async for page in pages()))

    @app.get(
        "/v1/jobs/totals",
        dependencies=[Depends(context.guards.may("jobs.query"))],
        responses=example({"idle": 3, "running": 12, "held": 1}),
        tags=["jobs"],
    )
    async def totals(
        schedd: AnySchedd = "",
        managers: Annotated[
            bool, Query(description="also jobs of the scheduler universe: those that manage DAGs")
        ] = True,
    ) -> dict[str, int]:
        """Jobs by status, over the whole queue of one schedd or of all. They are counted all the time: it takes no
        longer with a million jobs."""
        asked = [await context.pool.schedd(schedd)] if schedd else await context.pool.schedds()
        summed: dict[str, int] = {}
        for one in asked:
            page = await context.pool.ask(one.inbox, JOB_TOTALS, JobPage)
            for status, count in page.totals.items():
                less = 0 if managers else page.scheduler_totals.get(status, 0)
                summed[status] = summed.get(status, 0) + count - less
        return summed

    @app.post(
        "/v1/jobs",
        responses=example({"cluster": 12, "first_proc": 0, "count": 100, "schedd": "ap1"}),
        openapi_extra=PACKED_BODY,
        tags=["jobs"],
    )
    async def submit(
        request: Request,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.submit"))],
        schedd: OneSchedd = "",
        owner: Owner = "",
    ) -> dict[str, Any]:
        """Submit one cluster, or one part of it. The body is msgpack: {submit_id, cluster_ad, procs, spool, more}, ads
        packed as the client library packs them. The owner is who the token says. For submit files and people see
        `POST /v1/jobs/description`."""
        user = owner_for(identity, owner, context.settings.uid_domain)
        raw = await read_msgpack(request, MAX_BODY)
        body = SubmitJobs.model_validate({**raw, "user": user})
        note(owner=owner, schedd=schedd, submit_id=body.submit_id, part=body.part, jobs=len(body.procs))
        found = await context.pool.schedd(schedd)
        with tracing.span("gateway.submit", request.headers.get("traceparent"), user=user, schedd=found.name):
            answer = await context.pool.ask(found.inbox, body, Submitted, timeout=60.0)
        note(cluster=answer.cluster)
        return {"cluster": answer.cluster, "first_proc": answer.first_proc, "count": answer.count, "schedd": found.name}

    @app.post(
        "/v1/jobs/import",
        responses=example({"cluster": 12, "known": [], "direct": True, "schedd": "ap1"}),
        openapi_extra=PACKED_BODY,
        tags=["jobs"],
    )
    async def import_jobs(
        request: Request,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.import"))],
        schedd: OneSchedd = "",
    ) -> dict[str, Any]:
        """Take in jobs of one cluster of another access point's queue, with what happened to them there, all or none.
        The body is msgpack: {user, origin, cluster, cluster_ad, numbers, procs, spool, dry_run}. The cluster keeps its
        number where that is free (`cluster`: its number here; 0 in a dry run where it would get another one); jobs that
        came before (`known`) do not come again; `direct`: whether jobs of this user use their files where they lie,
        else they are to be spooled."""
        body = ImportJobs.model_validate(await read_msgpack(request, MAX_BODY))
        told = {"owner": body.user, "origin": body.origin, "jobs": len(body.procs), "dry_run": body.dry_run}
        note(schedd=schedd, **told)
        found = await context.pool.schedd(schedd)
        answer = await context.pool.ask(found.inbox, body, JobsImported, timeout=60.0)
        note(cluster=answer.cluster)
        return {**answer.model_dump(), "schedd": found.name}

    @app.post(
        "/v1/jobs/{job_id}/rerun",
        responses=example({"cluster": 13, "first_proc": 0, "count": 1, "schedd": "ap1"}),
        tags=["jobs"],
    )
    async def rerun(
        job_id: Annotated[str, Path(max_length=100, description="CLUSTER.PROC of a job that left the queue")],
        identity: Annotated[Identity, Depends(context.guards.may("jobs.submit"))],
        schedd: OneSchedd = "",
    ) -> dict[str, Any]:
        """Submit a job that left the queue once more, as it was submitted then, for the same user. Its files are read
        where they lie; one whose files were spooled is to be submitted again."""
        found = await context.pool.schedd(schedd)
        question = QueryJobs(ids=[job_id], limit=1, history=True, user=identity.user, admin=identity.admin)
        ads = [ad async for page in context.pool.jobs(found, question) for ad in await of_each(page.ads, checked)]
        if not ads:
            raise HTTPException(404, f"there is no job {job_id} in the history of {found.name}")
        user = str(ads[0].eval("User"))
        if not (identity.admin or same(user, identity.user)):
            raise HTTPException(403, f"job {job_id} belongs to {user}")
        try:
            ad = again(ads[0], job_id)
        except NotAgain as error:
            raise HTTPException(409, str(error)) from error
        note(job=job_id, schedd=found.name, owner=user)
        body = SubmitJobs(user=user, submit_id=secrets.token_hex(16), cluster_ad=ad.pack(), procs=[ClassAd().pack()])
        answer = await context.pool.ask(found.inbox, body, Submitted, timeout=60.0)
        note(cluster=answer.cluster)
        return {"cluster": answer.cluster, "first_proc": answer.first_proc, "count": answer.count, "schedd": found.name}

    async def carry_out(chosen: Chosen, schedd: str, message: ActOnJobs, *, ranges: bool = False) -> Response:
        if not chosen.ids and not chosen.constraint:
            raise HTTPException(400, "name jobs by ids, or by a constraint (constraint=true means all)")
        asked_of = await context.pool.who_knows(chosen.ids, schedd)
        parts = context.pool.act(asked_of, message, ranges=ranges)
        first = await anext(parts)  # what is wrong with the question is told with its status
        return StreamingResponse(results_as_json(first, parts), media_type="application/json")

    @app.post("/v1/jobs/action", responses=ACTED, tags=["jobs"])
    async def act(
        asked: JobAction, identity: Annotated[Identity, Depends(context.guards.may("jobs.act"))], schedd: AnySchedd = ""
    ) -> Response:
        """Remove, hold, release, ... jobs. Answers what became of each. Many are done part by part, and the answer
        comes as it is known; where it breaks off, what it tells is done, and the same may be asked again."""
        note(**asked.model_dump(), schedd=schedd)
        message = ActOnJobs.model_validate({**asked.model_dump(), "user": identity.user, "admin": identity.admin})
        return await carry_out(asked, schedd, message, ranges=asked.ranges)

    @app.post("/v1/jobs/edit", responses=ACTED, tags=["jobs"])
    async def edit(
        asked: JobEdit, identity: Annotated[Identity, Depends(context.guards.may("jobs.edit"))], schedd: AnySchedd = ""
    ) -> Response:
        """Change attributes of jobs in the queue. What the schedd keeps itself (Owner, JobStatus, ...) it lets nobody
        change."""
        told = {name: "(private)" if fold(name) in PRIVATE_OF_JOBS else text for name, text in asked.attributes.items()}
        note(**asked.model_dump(exclude={"attributes"}), attributes=told, schedd=schedd)
        edits = ad_of("attributes", asked.attributes).pack()
        chosen = Chosen(ids=asked.ids, constraint=asked.constraint)
        message = ActOnJobs(action="edit", edits=edits, user=identity.user, admin=identity.admin, **chosen.model_dump())
        return await carry_out(chosen, schedd, message)

    @app.post("/v1/reschedule", responses=DONE, tags=["jobs"])
    async def reschedule(
        identity: Annotated[Identity, Depends(context.guards.may("jobs.act"))],
        negotiator: Annotated[
            str, Query(max_length=1000, description="which one, where there are several; none: all")
        ] = "",
    ) -> dict[str, str]:
        """Start a negotiation cycle soon, in all negotiators of the pool or in one."""
        note(negotiator=negotiator)
        await context.pool.reschedule(negotiator, identity.user)
        return {"status": "done"}


def owner_for(identity: Identity, owner: str, uid_domain: str) -> str:
    """Whose jobs a submit makes, name@domain. Raises HTTPException 403 for who may not make those of others."""
    owner = whole(owner, uid_domain)
    if not owner or same(owner, identity.user):
        return identity.user
    if not identity.admin:
        raise HTTPException(403, f"owner={owner[:80]}: only an ADMINISTRATOR submits for others; leave it out")
    return owner
