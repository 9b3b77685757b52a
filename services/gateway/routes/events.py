"""Routes to live events: as server-sent events, and over a WebSocket. One follower behind both.

A WebSocket carries JSON texts. The client says first, within ten seconds, {"types": ["job.*"], "after": ID, "token":
TOKEN}: everything may be left out that the address and the headers told. The gateway says {"open": true, "user": ...},
then {"id": ..., "event": TYPE, "data": {...}} for each event, {"gap": TEXT} before the first where some may be missing,
{"quiet": true} when there was nothing for a while, and closes with a code: 4401 no valid token (any more), 4403 not
allowed, 4408 nothing was said first, 4413 too slow (go on from the last id), 4429 too many streams, 4400 what the
client said can not be read.
"""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import asyncio
import json
from collections.abc import AsyncIterator
from itertools import chain
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Query, Request, WebSocket
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from services.gateway.auth.caller import PROTOCOL
from services.gateway.auth.guards import caller_of
from services.gateway.core.authorization import Identity
from services.gateway.events import Ended, EventStream, Listener, Overflow, Quiet, sse
from services.gateway.routes.context import EVENT_STREAM, RouteContext, example
from shared.cooperative import Yielder
from shared.errors import RoostError
from shared.messages.base import describe

#: How long a client may take to say what it wants, and to take what is sent to it, seconds.
FIRST_WORD_S = 10.0
SEND_S = 30.0
#: Longest first message, bytes.
MOST_SAID = 16_384
#: Patterns that a listener may give, the longest of them, and the longest id, characters.
MOST_PATTERNS = 100
MOST_PATTERN = 100
MOST_ID = 200
#: Events of one answer, and their size in bytes.
MOST_LATEST = 500
LATEST_BYTES = 1 << 20
Types = Annotated[
    list[Annotated[str, Query(max_length=MOST_PATTERN)]],
    Query(max_length=MOST_PATTERNS, description="shell pattern of types, may be repeated: job.*"),
]
_CODES = {401: 4401, 403: 4403, 429: 4429}


class Wanted(BaseModel):
    """What the client of a WebSocket says first."""

    types: list[Annotated[str, Field(max_length=MOST_PATTERN)]] = Field(default=[], max_length=MOST_PATTERNS)
    after: str = Field(default="", max_length=MOST_ID)
    token: str = Field(default="", max_length=4096)


def add_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get("/v1/events", responses=EVENT_STREAM, tags=["events"], response_class=StreamingResponse)
    async def events(
        request: Request,
        identity: Annotated[Identity, Depends(context.guards.may("events", endless=True))],
        type: Types = [],  # noqa: B006
        after: Annotated[str, Query(max_length=MOST_ID, description="id of the last event you saw")] = "",
    ) -> StreamingResponse:
        """Live events as server-sent events; the id of each resumes the stream (`Last-Event-ID` or `after`). A comment
        comes when there is nothing to tell for 15 s; `gap` where events since that id may be missing; `overflow`,
        the last line, where the reader was too slow; `ended` where its token is over. Events of the type gateway.*
        are for administrators. The same over a WebSocket: `/v1/events/ws`."""
        start = request.headers.get("last-event-id", "") or after
        following = follow(context, identity, type, start)

        async def lines() -> AsyncIterator[bytes]:
            try:
                yield b": following\n\n"
                async for ident, event, text in told_before(context.events, following, start):
                    yield sse(ident, event, text)
                if following.gap:
                    yield sse("", "gap", json.dumps(following.gap))
                async for told in following:
                    if expired(context, following):
                        raise Ended("the token of this stream has expired")
                    if isinstance(told, Quiet):
                        yield b": quiet\n\n"
                    else:
                        yield b"".join(map(context.events.line, chain((told,), following.more())))
            except Overflow as error:
                yield sse("", "overflow", json.dumps(str(error)))
            except Ended as error:
                yield sse("", "ended", json.dumps(str(error)))
            finally:
                following.close()

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.get(
        "/v1/overview/events",
        responses=example({"events": [{"id": "019a...", "type": "job.started", "at": 1763820000.5, "job_id": "12.0"}]}),
        tags=["events"],
    )
    async def latest(
        identity: Annotated[Identity, Depends(context.guards.may("events"))],
        type: Types = [],  # noqa: B006
        limit: Annotated[int, Query(ge=1, le=MOST_LATEST, description="at most so many")] = 50,
    ) -> Response:
        """The last events that this gateway remembers, newest first, of at most a megabyte: where a page begins that
        goes on with `/v1/events`. The journal knows older ones."""
        told: list[str] = []
        room, yielder = LATEST_BYTES, Yielder()
        for ident, text in context.events.latest(type, limit, identity.level):
            room -= len(text)
            if room < 0:
                break
            told.append(f'{{"id": {json.dumps(ident)}, {text[1:]}')
            await yielder.yield_if_due()
        return Response(f'{{"events": [{", ".join(told)}]}}', media_type="application/json")

    @app.websocket("/v1/events/ws")
    async def events_ws(
        socket: WebSocket,
        type: Types = [],  # noqa: B006
        after: Annotated[str, Query(max_length=MOST_ID)] = "",
    ) -> None:
        caller = caller_of(socket)
        chosen = [p for p in socket.scope.get("subprotocols", ()) if not p.startswith(PROTOCOL)][:1]
        await socket.accept(subprotocol=chosen[0] if chosen else None)
        try:
            wanted = await _first_word(socket)
            if wanted.token:
                caller.identity, caller.why = await context.logins.look(wanted.token, socket.scope, caller.address)
            context.guards.let_in(caller, "events", endless=True)
        except HTTPException as refused:
            caller.status = refused.status_code
            await _shut(socket, _CODES.get(refused.status_code, 4400), str(refused.detail))
            return
        except WebSocketDisconnect:
            return
        except RoostError as error:
            await _shut(socket, 1013, str(error))  # try again later
            return
        assert caller.identity is not None
        start = wanted.after or after
        following = follow(context, caller.identity, wanted.types or type, start)
        hanging_up = asyncio.create_task(_until_gone(socket))
        try:
            telling = asyncio.create_task(_tell(socket, context, following, caller.identity, start))
            await asyncio.wait({hanging_up, telling}, return_when=asyncio.FIRST_COMPLETED)
            telling.cancel()
            (outcome,) = await asyncio.gather(telling, return_exceptions=True)
            match outcome:
                case Overflow():
                    await _shut(socket, 4413, str(outcome))
                case Ended():
                    await _shut(socket, 4401, str(outcome))
                case TimeoutError():
                    await _shut(socket, 4413, f"nothing was taken for {SEND_S:g} s: follow again from the last id")
        finally:
            following.close()
            hanging_up.cancel()
            await asyncio.gather(hanging_up, return_exceptions=True)


def follow(context: RouteContext, identity: Identity, types: list[str], after: str) -> Listener:
    """Begin to listen as this user."""
    return context.events.follow(types, after, level=identity.level, token=identity.token, until=identity.expires)


def expired(context: RouteContext, following: Listener) -> bool:
    return bool(following.until) and following.until <= context.clock.now()


async def _first_word(socket: WebSocket) -> Wanted:
    """Raises HTTPException and WebSocketDisconnect."""
    try:
        async with asyncio.timeout(FIRST_WORD_S):
            text = await socket.receive_text()
    except TimeoutError:
        raise HTTPException(408, f'nothing was said in {FIRST_WORD_S:g} s; begin with {{"types": []}}') from None
    except KeyError:
        raise HTTPException(400, "texts, not bytes, are spoken here") from None
    if len(text) > MOST_SAID:
        raise HTTPException(400, f"the first message is longer than {MOST_SAID} characters")
    try:
        return Wanted.model_validate_json(text or "{}")
    except ValidationError as error:
        raise HTTPException(400, describe(error)) from error


async def _until_gone(socket: WebSocket) -> None:
    """What a client says later is read and dropped: so its leaving is noticed."""
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
    except (WebSocketDisconnect, RuntimeError):
        return


async def told_before(stream: EventStream, following: Listener, start: str) -> AsyncIterator[tuple[str, str, str]]:
    """What `before` has. There can be thousands, and to send one need not mean to wait."""
    yielder = Yielder()
    for told in await stream.before(following, start):
        yield told
        await yielder.yield_if_due()


async def _tell(socket: WebSocket, context: RouteContext, following: Listener, identity: Identity, start: str) -> None:
    async def send(text: str) -> None:
        # Who takes nothing is no reason to keep more and more of it.
        async with asyncio.timeout(SEND_S):
            await socket.send_text(text)

    stream: EventStream = context.events
    await send(json.dumps({"open": True, "user": identity.user, "level": identity.level.name}))
    async for ident, event, text in told_before(stream, following, start):
        await send(message(ident, event, text))
    if following.gap:
        await send(json.dumps({"gap": following.gap}))
    async for told in following:
        if expired(context, following):
            raise Ended("the token of this stream has expired")
        if isinstance(told, Quiet):
            await send('{"quiet": true}')
            continue
        for one in chain((told,), following.more()):
            await send(message(one.id, one.type, stream.text(one)))


def message(ident: str, event: str, text: str) -> str:
    """One event as a WebSocket carries it; text: its JSON."""
    return f'{{"id": {json.dumps(ident)}, "event": {json.dumps(event)}, "data": {text}}}'


async def _shut(socket: WebSocket, code: int, why: str) -> None:
    """Close with a reason, which the protocol bounds to 123 bytes."""
    if socket.client_state == WebSocketState.CONNECTED:
        try:
            await socket.close(code, why.encode()[:120].decode(errors="ignore"))
        except (RuntimeError, WebSocketDisconnect):
            return  # gone already
