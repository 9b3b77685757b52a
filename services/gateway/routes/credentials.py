"""Routes to a user's credentials at an access point: keep, delete, list. What they are never comes back out."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import json
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Request

from services.gateway.auth.caller import note
from services.gateway.core.authorization import Identity
from services.gateway.routes.context import DONE, OneSchedd, RouteContext, example
from services.gateway.routes.files import headers_of, passed_on
from shared.messages.queue import FetchFiles, FileAccess

Service = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="whose token it is")]


def add_routes(app: FastAPI, context: RouteContext) -> None:
    may = context.guards.may("credentials")

    async def where(identity: Identity, schedd: str) -> FileAccess:
        found = await context.pool.schedd(schedd)
        asked = FetchFiles(user=identity.user, job_id="", credentials=True)
        return await context.pool.ask(found.inbox, asked, FileAccess)

    async def ask(method: str, access: FileAccess, service: str, data: bytes | None = None) -> bytes:
        place = f"{access.url}/{service}" if service else access.url
        way = await context.transfer_tls.way(access.url)
        async with context.http.request(method, place, data=data, headers=headers_of(access), ssl=way) as answer:
            body = await answer.read()
            if answer.status >= 400:
                raise passed_on(answer.status, body)
            return body

    @app.get(
        "/v1/credentials",
        responses=example([{"service": "box", "updated": 1763820000.0}]),
        tags=["credentials"],
    )
    async def credentials(identity: Annotated[Identity, Depends(may)], schedd: OneSchedd = "") -> list[dict[str, Any]]:
        """Which services the token's user has credentials for at an access point, and since when (s since 1970)."""
        found: list[dict[str, Any]] = json.loads(await ask("GET", await where(identity, schedd), ""))
        return found

    @app.put(
        "/v1/credentials/{service}",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
        responses=DONE,
        tags=["credentials"],
    )
    async def store(
        request: Request, service: Service, identity: Annotated[Identity, Depends(may)], schedd: OneSchedd = ""
    ) -> dict[str, str]:
        """Keep a token (up to 64 KiB) that jobs with `use_oauth_services` get, in place of the one before. Jobs that
        run get it within minutes."""
        note(service=service, schedd=schedd)
        data = await request.body()
        if not data:
            raise HTTPException(400, "the body is the credential, and it is empty")
        await ask("PUT", await where(identity, schedd), service, data)
        return {"status": "done"}

    @app.delete("/v1/credentials/{service}", responses=DONE, tags=["credentials"])
    async def delete(
        service: Service, identity: Annotated[Identity, Depends(may)], schedd: OneSchedd = ""
    ) -> dict[str, str]:
        """Delete it. Jobs that run lose it with their end."""
        note(service=service, schedd=schedd)
        await ask("DELETE", await where(identity, schedd), service)
        return {"status": "done"}
