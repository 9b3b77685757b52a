"""Routes to running jobs, as condor_ssh_to_job and condor_tail reach them: programs in a job's surroundings, and its
files while it runs.

A visit is begun by POST, and talked to by its name, which is a secret of the user's and says where it is; the gateway
keeps nothing of it. Its output is one long answer, read from the startd as fast as the client takes it; who hangs up
leaves. Output is made of frames: a letter (o: standard output, e: standard error, k: nothing new, x: the end, as JSON),
the length in four bytes (big endian), the bytes.
"""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import asyncio
import base64
import binascii
import json
import struct
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from services.gateway.auth.caller import note, person
from services.gateway.core.authorization import Identity
from services.gateway.pool_client import PoolClient
from services.gateway.routes.context import DONE, FRAMES, OneSchedd, RouteContext, example
from services.gateway.routes.files import JobName
from shared.bus.api import RemoteFailure
from shared.errors import RetryableError, RoostError
from shared.messages.visits import (
    MAX_CHUNK,
    ReadVisit,
    SteerVisit,
    VisitInput,
    VisitJob,
    VisitOutput,
    VisitStarted,
    Wish,
    WriteVisit,
)

#: A container that is just being made takes a while, seconds.
BEGIN_S = 30.0
#: Between two signs of life, and longer than the startd waits for room; seconds.
WAIT_S, PATIENCE_S = 10.0, 20.0
#: A startd that is away for longer has lost the visit, seconds.
AWAY_S = 60.0
_PAUSE_S = 0.5


VisitName = Annotated[str, Path(max_length=4096, description="as the beginning of the visit told it")]
_BYTES = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class Steering(BaseModel):
    rows: int = Field(default=0, ge=0, le=65535)
    columns: int = Field(default=0, ge=0, le=65535)
    signal: int = Field(default=0, ge=0, le=64)
    leave: bool = False


def name_of(startd: str, visit: str) -> str:
    """What a client calls a visit."""
    return base64.urlsafe_b64encode(f"{visit}@{startd}".encode()).decode().rstrip("=")


def place_of(name: str) -> tuple[str, str]:
    """The startd and its own name for the visit. Raises HTTPException."""
    try:
        text = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    except (ValueError, binascii.Error) as error:
        raise HTTPException(404, "there is no such visit") from error
    visit, at, startd = text.partition("@")
    if not at or not visit or len(text) > 2000:
        raise HTTPException(404, "there is no such visit")
    return startd, visit


def frame(kind: bytes, data: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(data)) + data


def add_routes(app: FastAPI, context: RouteContext) -> None:
    leaving: set[asyncio.Task[None]] = set()

    async def leave(inbox: str, visit: str, user: str) -> None:
        try:
            await context.bus.call(inbox, SteerVisit(visit=visit, user=user, leave=True), person=person())
        except RoostError:
            return  # it ends by itself when nobody asks for its output any more

    @app.post("/v1/jobs/{job_id}/visits", responses=example({"visit": "YWJj..."}), tags=["visits"])
    async def begin(
        job_id: JobName,
        wish: Wish,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.visit"))],
        schedd: OneSchedd = "",
    ) -> dict[str, str]:
        """Run a program beside a running job, or read its files. Answers the name of the visit."""
        note(job=job_id, schedd=schedd, kind=wish.kind, command=wish.command)
        found = await context.pool.schedd(schedd)
        asked = VisitJob(user=identity.user, admin=identity.admin, job_id=job_id, wish=wish)
        answer = await context.pool.ask(found.inbox, asked, VisitStarted, timeout=BEGIN_S)
        return {"visit": name_of(answer.startd, answer.visit)}

    @app.get("/v1/visits/{name}/output", responses=FRAMES, tags=["visits"], response_class=StreamingResponse)
    async def output(
        name: VisitName, identity: Annotated[Identity, Depends(context.guards.may("jobs.visit", endless=True))]
    ) -> StreamingResponse:
        """What it prints, as frames, until it ends. Who hangs up leaves."""
        startd, visit = place_of(name)
        inbox = f"startd.{startd}/visits"

        async def frames() -> AsyncIterator[bytes]:
            try:
                async for one in _frames(context.pool, inbox, visit, identity.user):
                    yield one
            finally:
                task = asyncio.create_task(leave(inbox, visit, identity.user))
                leaving.add(task)
                task.add_done_callback(leaving.discard)

        return StreamingResponse(frames(), media_type="application/octet-stream", headers={"Cache-Control": "no-store"})

    @app.post(
        "/v1/visits/{name}/input",
        responses=example({"taken": 512, "ended": False}),
        openapi_extra=_BYTES,
        tags=["visits"],
    )
    async def type_in(
        request: Request,
        name: VisitName,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.visit"))],
        start: Annotated[int, Query(ge=0, le=2**53, description="place of the first byte in all input")] = 0,
        eof: Annotated[bool, Query(description="nothing follows")] = False,
    ) -> dict[str, Any]:
        """Input; the body as it is. Answers how much was taken in all: send the rest again."""
        startd, visit = place_of(name)
        data = await request.body()
        if len(data) > MAX_CHUNK:
            raise HTTPException(413, f"send at most {MAX_CHUNK} bytes at a time")
        asked = WriteVisit(visit=visit, user=identity.user, start=start, data=data, eof=eof)
        answer = await context.pool.ask(f"startd.{startd}/visits", asked, VisitInput, timeout=PATIENCE_S)
        return {"taken": answer.taken, "ended": answer.ended}

    @app.post("/v1/visits/{name}/steer", responses=DONE, tags=["visits"])
    async def steer(
        name: VisitName, what: Steering, identity: Annotated[Identity, Depends(context.guards.may("jobs.visit"))]
    ) -> dict[str, str]:
        """The window's new size, a signal, or the end."""
        startd, visit = place_of(name)
        asked = SteerVisit(visit=visit, user=identity.user, **what.model_dump())
        await context.bus.call(f"startd.{startd}/visits", asked, person=person())
        return {"status": "done"}


async def _frames(pool: PoolClient, inbox: str, visit: str, user: str) -> AsyncIterator[bytes]:
    after, away = 0, 0.0
    yield frame(b"k")  # so that the client has its headers
    while True:
        question = ReadVisit(visit=visit, user=user, after=after, wait_s=WAIT_S)
        try:
            answer = await pool.ask(inbox, question, VisitOutput, timeout=PATIENCE_S)
        except RemoteFailure as error:
            yield frame(b"x", json.dumps({"exit_code": None, "exit_signal": None, "reason": error.reason}).encode())
            return
        except RetryableError as error:
            away += _PAUSE_S
            if away > AWAY_S:
                reason = f"the machine that runs the job does not answer: {error}"
                yield frame(b"x", json.dumps({"exit_code": None, "exit_signal": None, "reason": reason}).encode())
                return
            yield frame(b"k")
            await asyncio.sleep(_PAUSE_S)
            continue
        away = 0.0
        place = answer.start
        for part in answer.parts:
            fresh = part.data[max(0, after - place) :]
            place += len(part.data)
            if fresh:
                yield frame(b"o" if part.kind == "out" else b"e", fresh)
        after = max(after, place)
        if answer.ended:
            told = {"exit_code": answer.exit_code, "exit_signal": answer.exit_signal, "reason": answer.reason}
            yield frame(b"x", json.dumps(told).encode())
            return
        if not answer.parts:
            yield frame(b"k")
