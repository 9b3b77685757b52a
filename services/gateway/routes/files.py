"""Routes to the files of spooled jobs: bundles both ways, single files of the output, the log."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, FastAPI, HTTPException, Path, Request
from fastapi.responses import StreamingResponse
from starlette.responses import Response

from services.gateway.auth.caller import note
from services.gateway.core.authorization import Identity
from services.gateway.routes.context import BUNDLE, FILE, OneSchedd, RouteContext, example
from services.gateway.serialization import told
from shared.messages.queue import FetchFiles, FileAccess

JobName = Annotated[str, Path(max_length=100, description='"12.3"; for input also a cluster, "12"')]
_PASSED_ON = ("Content-Length", "Content-Range", "Accept-Ranges", "ETag", "Last-Modified")


def add_routes(app: FastAPI, context: RouteContext) -> None:
    @app.put(
        "/v1/jobs/{job_id}/files",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
        responses={200: {"description": "They are there; what waited for them may run"}},
        tags=["files"],
    )
    async def upload(
        request: Request,
        job_id: JobName,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.files"))],
        schedd: OneSchedd = "",
    ) -> Response:
        """Input files of a spooled job (or, with a bare cluster number, of every job in it), as one bundle."""
        note(job=job_id, schedd=schedd)
        where = await access(context, identity, job_id, schedd)
        return await put_bundle(context, where, request.stream())

    @app.get("/v1/jobs/{job_id}/files", responses=BUNDLE, tags=["files"], response_class=StreamingResponse)
    async def download(
        job_id: JobName,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.files"))],
        schedd: OneSchedd = "",
    ) -> Response:
        """Output files of a spooled job, as one bundle."""
        return await fetched(context, await access(context, identity, job_id, schedd), "")

    @app.get(
        "/v1/jobs/{job_id}/output",
        responses=example({"files": [{"name": "out.txt", "size": 12, "mtime": 1763820000.0}]}),
        tags=["files"],
    )
    async def output(
        job_id: JobName,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.files"))],
        schedd: OneSchedd = "",
    ) -> dict[str, Any]:
        """Which files a spooled job has brought back so far: path, size in bytes, time of the last change."""
        where = await access(context, identity, job_id, schedd)
        way = await context.transfer_tls.way(where.url)
        async with context.http.get(f"{where.url}/files", headers=headers_of(where), ssl=way) as answer:
            if answer.status != 200:
                raise passed_on(answer.status, await answer.read())
            return {"files": list(await answer.json())}

    @app.get("/v1/jobs/{job_id}/output/{path:path}", responses=FILE, tags=["files"], response_class=StreamingResponse)
    async def one_file(
        request: Request,
        job_id: JobName,
        path: Annotated[str, Path(max_length=4096, description="as `output` lists it")],
        identity: Annotated[Identity, Depends(context.guards.may("jobs.files"))],
        schedd: OneSchedd = "",
    ) -> Response:
        """One file of a spooled job's output, or the part that `Range` asks for."""
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise HTTPException(404, f"there is no file {path[:200]}: name one as `output` lists it")
        where = await access(context, identity, job_id, schedd)
        return await fetched(context, where, f"/files/{quote(path)}", request.headers)

    @app.get("/v1/jobs/{job_id}/log", responses=FILE, tags=["files"], response_class=StreamingResponse)
    async def log(
        request: Request,
        job_id: JobName,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.files"))],
        schedd: OneSchedd = "",
    ) -> Response:
        """The log that the submit file named (`log = FILE`), as it stands at this moment."""
        where = await access(context, identity, job_id, schedd, log=True)
        return await fetched(context, where, "/log", request.headers)


async def access(
    context: RouteContext, identity: Identity, job_id: str, schedd: str, *, log: bool = False
) -> FileAccess:
    """Where the files of a job are. Raises RemoteFailure: not there, denied."""
    found = await context.pool.schedd(schedd)
    asked = FetchFiles(user=identity.user, admin=identity.admin, job_id=job_id, log=log)
    return await context.pool.ask(found.inbox, asked, FileAccess)


async def put_bundle(context: RouteContext, where: FileAccess, bundle: AsyncIterator[bytes]) -> Response:
    """Send input files on to the schedd, as they come."""
    way = await context.transfer_tls.way(where.url)
    async with context.http.put(where.url, data=bundle, headers=headers_of(where), ssl=way) as answer:
        text = await answer.read()
        if answer.status >= 400:
            raise passed_on(answer.status, text)
        return Response(text, answer.status, media_type=answer.content_type)


async def fetched(
    context: RouteContext, where: FileAccess, path: str, asked: Mapping[str, str] | None = None
) -> StreamingResponse:
    """What the schedd's file service answers, as it comes."""
    wanted = {"Range": asked["range"]} if asked is not None and "range" in asked else {}
    answer = await context.http.get(
        f"{where.url}{path}",
        headers={**headers_of(where), **wanted},
        allow_redirects=False,
        auto_decompress=False,
        ssl=await context.transfer_tls.way(where.url),
    )
    if answer.status not in (200, 206):
        text = await answer.read()
        answer.release()
        raise passed_on(answer.status, text)

    async def body() -> AsyncIterator[bytes]:
        async with answer:
            async for chunk in answer.content.iter_chunked(1 << 18):
                yield chunk

    passed = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
    # What a job wrote must not run in a browser as if it were ours.
    passed |= {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Cache-Control": "no-store"}
    return StreamingResponse(body(), answer.status, passed, answer.content_type)


def headers_of(where: FileAccess) -> dict[str, str]:
    return {"Authorization": f"Bearer {where.token}"}


def passed_on(status: int, text: bytes) -> HTTPException:
    """A refusal of the schedd's file service, as ours."""
    return HTTPException(status if status < 500 else 502, told(text.decode(errors="replace")))
