"""The gateway's HTTP API. Every door names the operation it needs a level for (see authorization.NEEDS)."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers below, which name local
# things (the guards), so they must be evaluated where they stand.
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import aiohttp
import msgpack
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import Response

from services.gateway.api.analysis import analysis_doors
from services.gateway.api.hads import had_doors
from services.gateway.api.limits import BodyLimit
from services.gateway.api.orders import Post, order_doors
from services.gateway.api.visits import visit_doors
from services.gateway.api.wire import ad_response, explain, problem, read_msgpack, results_as_json, told
from services.gateway.authorization import Identity, Level, Token, refusal
from services.gateway.pool import PAGE, PoolView
from services.gateway.stream import EventStream, Overflow, Quiet
from services.gateway.tokens import Tokens
from shared.bus.api import Bus
from shared.errors import RoostError
from shared.messages.ads import AdCounts, CountAds
from shared.messages.base import describe
from shared.messages.negotiation import GetPriorities, Priorities, Reschedule, SetPriority
from shared.messages.queue import (
    ActOnJobs,
    DescribeSchedd,
    FetchFiles,
    FileAccess,
    JobPage,
    QueryJobs,
    ScheddDescription,
    SubmitJobs,
    Submitted,
)
from shared.version import VERSION

#: One part of a submit; larger clusters are sent in several parts.
MAX_BODY = 64 * 1024 * 1024
#: Any other body but a bundle of files, which may be as large as it likes.
MAX_JSON = 8 * 1024 * 1024
#: Longest expression that is looked at.
MAX_EXPRESSION = 100_000
#: More than any table holds, and no more than a message carries.
MAX_LIMIT = 2**31 - 1


@dataclass(slots=True)
class Doors:
    """What the handlers work with."""

    bus: Bus
    pool: PoolView
    tokens: Tokens
    events: EventStream
    http: aiohttp.ClientSession
    own: str = "gateway.here"  # its own inbox


class JobAction(BaseModel):
    action: Literal["remove", "remove-force", "hold", "release", "vacate", "vacate-fast", "suspend", "continue"]
    ids: list[str] = Field(default=[], description='"12" for a cluster, "12.3" for a job')
    constraint: str = Field(default="", max_length=MAX_EXPRESSION, description="ClassAd expression; instead of ids")
    reason: str = Field(default="", max_length=10_000)


class PriorityChange(BaseModel):
    what: str = Field(
        description="factor, priority, accumulated, begin, last, floor, ceiling, reset, delete; of all users: reset-all"
    )
    value: float | None = Field(default=None, allow_inf_nan=False)
    duration_s: float = Field(
        default=0.0,
        ge=0.0,
        le=1e10,
        allow_inf_nan=False,
        description="after this the old factor, floor or ceiling comes back; 0: never",
    )
    negotiator: str = Field(default="", max_length=1000, description="which one, where there are several")


class NewToken(BaseModel):
    user: str = Field(min_length=1, max_length=200, pattern=r"^[^\s@]+(@[^\s@]+)?$")
    level: str = Field(pattern="^(READ|WRITE|ADMINISTRATOR)$")
    label: str = Field(default="", max_length=200)
    lifetime_s: float = Field(default=0.0, ge=0.0, le=1e10, allow_inf_nan=False, description="0: does not expire")


class Letters(BaseModel):
    ids: list[str] = Field(max_length=100_000)


def build(doors: Doors) -> FastAPI:
    """The application over these doors."""
    app = FastAPI(
        title="Roost",
        version=VERSION,
        description="One door to the pool: ads, jobs, priorities, events. Send `Authorization: Bearer <token>`.",
        docs_url="/docs",
        redoc_url=None,
    )

    @app.exception_handler(RoostError)
    async def on_roost_error(_: Request, error: RoostError) -> JSONResponse:
        return explain(error)

    app.add_middleware(BodyLimit, small=MAX_JSON, large=MAX_BODY)

    @app.exception_handler(AnyHTTPException)
    async def on_http_error(_: Request, error: AnyHTTPException) -> JSONResponse:
        codes = {400: "bad-request", 401: "unauthenticated", 403: "denied", 404: "not-found", 405: "not-allowed"}
        code = {**codes, 413: "too-large", 502: "unavailable"}.get(error.status_code, "error")
        answer = problem(code, str(error.detail), error.status_code == 502, status=error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def on_bad_input(_: Request, error: RequestValidationError) -> JSONResponse:
        text = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        return problem("bad-request", told(text), status=400)

    @app.exception_handler(ValidationError)
    async def on_bad_message(_: Request, error: ValidationError) -> JSONResponse:
        return problem("bad-request", told(describe(error)), status=400)

    @app.exception_handler(UnicodeEncodeError)
    async def on_half_characters(_: Request, error: UnicodeEncodeError) -> JSONResponse:
        return problem("bad-request", f"a text has half a character at position {error.start}", status=400)

    @app.exception_handler(aiohttp.ClientError)
    @app.exception_handler(TimeoutError)
    async def on_no_files(_: Request, error: Exception) -> JSONResponse:
        reason = f"the schedd's file service does not answer: {error or type(error).__name__}"
        return problem("unavailable", reason, True, 503)

    def may(operation: str) -> Callable[[Request], Awaitable[Identity]]:
        async def check(request: Request) -> Identity:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            identity = await doors.tokens.identity(token.strip()) if scheme.lower() == "bearer" and token else None
            refused = refusal(identity, operation)
            if refused or identity is None:
                status, headers = (403, None) if identity is not None else (401, {"WWW-Authenticate": "Bearer"})
                raise HTTPException(status, refused, headers)
            return identity

        return check

    _pool_doors(app, doors, may)
    _job_doors(app, doors, may)
    analysis_doors(app, doors.bus, doors.pool, may)
    had_doors(app, doors.bus, doors.pool, may)
    _file_doors(app, doors, may)
    visit_doors(app, doors.bus, doors.pool, may)
    _event_doors(app, doors, may)
    _admin_doors(app, doors, may)
    order_doors(app, Post(doors.bus, doors.pool, doors.own), may)
    return app


Guard = Callable[[str], Callable[[Request], Awaitable[Identity]]]


def _pool_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    @app.get("/v1/pool", dependencies=[Depends(may("pool"))])
    async def pool() -> dict[str, Any]:
        """Version and schedds of the pool."""
        schedds = await doors.pool.schedds()
        return {"version": VERSION, "schedds": [s.name for s in schedds], "listeners": doors.events.listeners}

    @app.get("/v1/whoami")
    async def whoami(identity: Annotated[Identity, Depends(may("pool"))]) -> dict[str, str]:
        """Who the token says you are."""
        return {"user": identity.user, "level": identity.level.name}

    @app.get("/v1/schedd", dependencies=[Depends(may("pool"))])
    async def schedd(name: str = "") -> dict[str, Any]:
        """What a client must know of a schedd before submitting."""
        found = await doors.pool.schedd(name)
        answer = await doors.bus.call(found.inbox, DescribeSchedd())
        assert isinstance(answer, ScheddDescription)
        return answer.model_dump()

    @app.get("/v1/ads", dependencies=[Depends(may("ads"))])
    async def ads(
        request: Request,
        type: Annotated[list[str], Query(description="MyType, may be repeated; none: any")] = [],  # noqa: B006
        constraint: str = "",
        projection: Annotated[str, Query(description="attribute names, separated by commas")] = "",
        limit: Annotated[int, Query(ge=0, le=MAX_LIMIT)] = 0,
        absent: bool = False,
    ) -> Response:
        """Ads from the collector."""
        pages = doors.pool.ads(type, constraint=constraint, projection=_names(projection), limit=limit, absent=absent)
        return await ad_response(request, pages)


def _job_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    @app.get("/v1/ads/totals", dependencies=[Depends(may("ads"))])
    async def ad_totals(
        type: Annotated[str, Query(description="one MyType")] = "Machine",
        constraint: Annotated[str, Query(max_length=MAX_EXPRESSION)] = "",
        by: Annotated[str, Query(description="attributes, separated by commas; none: one number")] = "",
    ) -> dict[str, Any]:
        """How many ads there are of each combination of values of some attributes."""
        names = [name for name in by.replace(",", " ").split() if name]
        answer = await doors.bus.call("collector", CountAds(my_type=type, constraint=constraint, by=names))
        assert isinstance(answer, AdCounts)
        pairs = zip(answer.values, answer.counts, strict=True)
        totals = [{"values": dict(zip(names, values, strict=True)), "ads": count} for values, count in pairs]
        return {"totals": sorted(totals, key=lambda one: json.dumps(one["values"]))}

    @app.get("/v1/jobs", dependencies=[Depends(may("jobs.query"))])
    async def jobs(
        request: Request,
        schedd: Annotated[str, Query(description="name; none: all schedds")] = "",
        constraint: str = "",
        ids: Annotated[str, Query(description='"12" or "12.3", separated by commas')] = "",
        projection: str = "",
        limit: Annotated[int, Query(ge=0, le=MAX_LIMIT)] = 0,
        history: bool = False,
    ) -> Response:
        """Job ads, schedd by schedd, in order of cluster and proc; with `history` those that left the queue, newest
        first."""
        question = QueryJobs(
            constraint=constraint, projection=_names(projection), ids=_names(ids), limit=limit, history=history
        )
        asked = [await doors.pool.schedd(schedd)] if schedd else await doors.pool.schedds()

        async def pages() -> AsyncIterator[list[bytes]]:
            left = limit
            for one in asked:
                async for page in doors.pool.jobs(one, question.model_copy(update={"limit": left})):
                    yield page.ads
                    left -= len(page.ads) if limit else 0
                if limit and left <= 0:
                    return

        return await ad_response(request, pages())

    @app.get("/v1/jobs/totals", dependencies=[Depends(may("jobs.query"))])
    async def totals(schedd: str = "") -> dict[str, int]:
        """Jobs by status, over the whole queue of one schedd or of all."""
        asked = [await doors.pool.schedd(schedd)] if schedd else await doors.pool.schedds()
        summed: dict[str, int] = {}
        for one in asked:
            page = await doors.bus.call(one.inbox, QueryJobs(limit=1, projection=["ClusterId"]))
            assert isinstance(page, JobPage)
            for status, count in page.totals.items():
                summed[status] = summed.get(status, 0) + count
        return summed

    @app.post("/v1/jobs")
    async def submit(
        request: Request, identity: Annotated[Identity, Depends(may("jobs.submit"))], schedd: str = ""
    ) -> dict[str, Any]:
        """Submit one cluster, or one part of it. The body is msgpack: {submit_id, cluster_ad, procs, spool, more}, ads
        packed as the client library packs them. The owner is who the token says."""
        raw = await read_msgpack(request, MAX_BODY)
        if not isinstance(raw, dict):
            raise HTTPException(400, "the body is not a map with submit_id, cluster_ad and procs")
        raw = {key: value for key, value in raw.items() if isinstance(key, str)}
        body = SubmitJobs.model_validate({**raw, "user": identity.user})
        found = await doors.pool.schedd(schedd)
        answer = await doors.bus.call(found.inbox, body, timeout=60.0)
        assert isinstance(answer, Submitted)
        return {"cluster": answer.cluster, "first_proc": answer.first_proc, "count": answer.count, "schedd": found.name}

    @app.post("/v1/jobs/action")
    async def act(
        asked: JobAction, identity: Annotated[Identity, Depends(may("jobs.act"))], schedd: str = ""
    ) -> Response:
        """Remove, hold, release, ... jobs. Answers what became of each. Many are done part by part, and the answer
        comes as it is known; where it breaks off, what it tells is done, and the same may be asked again."""
        if not asked.ids and not asked.constraint:
            raise HTTPException(400, "name jobs by ids, or by a constraint (constraint=true means all)")
        message = ActOnJobs.model_validate({**asked.model_dump(), "user": identity.user, "admin": identity.admin})
        asked_of = [await doors.pool.schedd(schedd)] if schedd else await doors.pool.schedds()
        parts = doors.pool.act(asked_of, message)
        first = await anext(parts)  # what is wrong with the question is told with its status
        return StreamingResponse(results_as_json(first, parts), media_type="application/json")


def _file_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    async def access(identity: Identity, job_id: str, schedd: str) -> FileAccess:
        found = await doors.pool.schedd(schedd)
        answer = await doors.bus.call(found.inbox, FetchFiles(user=identity.user, admin=identity.admin, job_id=job_id))
        assert isinstance(answer, FileAccess)
        return answer

    @app.put("/v1/jobs/{job_id}/files")
    async def upload(
        request: Request,
        job_id: str,
        identity: Annotated[Identity, Depends(may("jobs.files"))],
        schedd: str = "",
    ) -> Response:
        """Input files of a spooled job (or, with a bare cluster number, of every job in it), as one bundle."""
        where = await access(identity, job_id, schedd)
        async with doors.http.put(
            where.url, data=request.stream(), headers={"Authorization": f"Bearer {where.token}"}
        ) as answer:
            text = await answer.read()
            if answer.status >= 400:
                raise _passed_on(answer.status, text)
            return Response(text, answer.status, media_type=answer.content_type)

    @app.get("/v1/jobs/{job_id}/files")
    async def download(
        job_id: str, identity: Annotated[Identity, Depends(may("jobs.files"))], schedd: str = ""
    ) -> Response:
        """Output files of a spooled job, as one bundle."""
        where = await access(identity, job_id, schedd)
        answer = await doors.http.get(where.url, headers={"Authorization": f"Bearer {where.token}"})
        if answer.status != 200:
            text = await answer.read()
            answer.release()
            raise _passed_on(answer.status, text)

        async def body() -> AsyncIterator[bytes]:
            async with answer:
                async for chunk in answer.content.iter_chunked(1 << 18):
                    yield chunk

        return StreamingResponse(body(), media_type=answer.content_type)


def _passed_on(status: int, text: bytes) -> HTTPException:
    """A refusal of the schedd's file service, as ours."""
    return HTTPException(status if status < 500 else 502, told(text.decode(errors="replace")))


def _event_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    @app.get("/v1/events", dependencies=[Depends(may("events"))])
    async def events(
        request: Request,
        type: Annotated[list[str], Query(description="shell pattern of types, may be repeated: job.*")] = [],  # noqa: B006
        after: Annotated[str, Query(description="id of the last event you saw")] = "",
    ) -> StreamingResponse:
        """Live events as server-sent events; the id of each resumes the stream (`Last-Event-ID` or `after`). A comment
        comes when there is nothing to tell for 15 s; `gap` where events since that id may be missing; `overflow`,
        the last line, where the reader was too slow."""
        start = request.headers.get("last-event-id", "") or after

        following = doors.events.follow(type, start)

        async def lines() -> AsyncIterator[bytes]:
            try:
                yield b": following\n\n"
                if following.gap:
                    yield f"event: gap\ndata: {json.dumps(following.gap)}\n\n".encode()
                async for envelope in following:
                    if isinstance(envelope, Quiet):
                        yield b": quiet\n\n"
                    else:
                        yield b"".join(map(doors.events.line, (envelope, *following.more())))
            except Overflow as error:
                yield f"event: overflow\ndata: {json.dumps(str(error))}\n\n".encode()
            finally:
                following.close()

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _admin_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    @app.get("/v1/priorities", dependencies=[Depends(may("priorities"))])
    async def priorities(
        request: Request,
        negotiator: Annotated[str, Query(description="which one, where there are several")] = "",
        submitter: Annotated[list[str], Query(description="only this one, with or without domain; repeat")] = [],  # noqa: B006
        active_since: Annotated[float, Query(description="only who used something since (s since 1970)")] = 0.0,
    ) -> Response:
        """One accounting ad for each group and submitter, groups first."""
        chosen = await doors.pool.negotiator(negotiator)

        async def pages() -> AsyncIterator[list[bytes]]:
            question = GetPriorities(
                negotiator=chosen.shard, submitters=submitter, active_since=active_since, limit=PAGE
            )
            while True:
                page = await doors.bus.call(chosen.inbox, question)
                assert isinstance(page, Priorities)
                yield page.ads
                if not page.next:
                    return
                question = question.model_copy(update={"after": page.next})

        return await ad_response(request, pages())

    @app.post("/v1/priorities/{submitter:path}")
    async def set_priority(
        submitter: str, change: PriorityChange, identity: Annotated[Identity, Depends(may("priorities.set"))]
    ) -> dict[str, str]:
        """Change one thing about a submitter; for all of them, without a name in the path, `reset-all`."""
        chosen = await doors.pool.negotiator(change.negotiator)
        await doors.bus.call(
            chosen.inbox,
            SetPriority(
                submitter=submitter,
                what=change.what,
                value=change.value,
                duration_s=change.duration_s,
                negotiator=chosen.shard,
                by=identity.user,
            ),
        )
        return {"status": "done"}

    @app.post("/v1/reschedule", dependencies=[Depends(may("jobs.act"))])
    async def reschedule() -> dict[str, str]:
        """Start a negotiation cycle soon."""
        await doors.bus.call("negotiator", Reschedule(by="gateway"))
        return {"status": "done"}

    @app.get("/v1/dead-letters", dependencies=[Depends(may("dead-letters"))])
    async def dead_letters(limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> list[dict[str, Any]]:
        """Messages that no handler could take, oldest first."""
        return [
            {
                "id": d.id,
                "at": d.at,
                "type": d.type,
                "reason": d.reason,
                "exchange": d.exchange,
                "key": d.key,
                "queue": d.queue,
                "bytes": len(d.data),
                "body": _peek(d.data),
            }
            for d in await doors.bus.dead_letters(limit)
        ]

    @app.post("/v1/dead-letters/requeue", dependencies=[Depends(may("dead-letters"))])
    async def requeue(letters: Letters) -> dict[str, list[str]]:
        """Publish dead letters again where they came from."""
        return {"done": await doors.bus.requeue(letters.ids)}

    @app.post("/v1/dead-letters/discard", dependencies=[Depends(may("dead-letters"))])
    async def discard(letters: Letters) -> dict[str, list[str]]:
        """Drop dead letters for good."""
        return {"done": await doors.bus.discard(letters.ids)}

    @app.get("/v1/tokens", dependencies=[Depends(may("tokens"))])
    async def list_tokens() -> list[dict[str, Any]]:
        """Who may do what; never the tokens themselves."""
        return [
            {"id": key, "user": t.user, "level": t.level.name, "label": t.label, "expires": t.expires}
            for key, t in (await doors.tokens.listed()).items()
        ]

    @app.post("/v1/tokens", dependencies=[Depends(may("tokens"))])
    async def create_token(new: NewToken) -> dict[str, str]:
        """Make a token. It is shown once."""
        expires = doors.tokens.now() + new.lifetime_s if new.lifetime_s else 0.0
        token = await doors.tokens.create(Token(new.user, Level[new.level], new.label, expires))
        return {"token": token}

    @app.delete("/v1/tokens/{prefix}", dependencies=[Depends(may("tokens"))])
    async def revoke_token(prefix: str) -> dict[str, int]:
        """Revoke by the id that the list shows."""
        try:
            return {"revoked": await doors.tokens.revoke(prefix)}
        except ValueError as error:
            raise HTTPException(400, str(error)) from error


def _names(text: str) -> list[str]:
    return [name for name in text.replace(",", " ").split() if name]


def _peek(data: bytes) -> Any:
    """The body of a dead letter as far as it can be read; claim ids and tokens are left out."""
    try:
        raw = msgpack.unpackb(data, strict_map_key=False)
    except Exception:  # noqa: BLE001  garbage is the usual reason for being here
        return None
    body = raw.get("body") if isinstance(raw, dict) else None
    if not isinstance(body, dict):
        return None
    secret = ("claim_id", "claim_ids", "claims", "transfer_token", "token", "upload_token", "activation")
    return {
        k: (v if isinstance(v, str | int | float | bool | type(None)) else f"<{type(v).__name__}>")
        for k, v in body.items()
        if k not in secret
    }
