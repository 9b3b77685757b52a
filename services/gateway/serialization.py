"""Ads over HTTP: as JSON for everybody, and as msgpack pages, exactly as the daemons pack them, for clients that
unpack ads themselves (`Accept: application/x-msgpack`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgpack
from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from services.gateway.auth.caller import refused
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, Expr, ParseError, parse_expr, to_json
from shared.cooperative import Yielder
from shared.daemon.readable_ads import Made, readable
from shared.errors import RetryableError, RoostError
from shared.messages.ads import AdPage
from shared.messages.queue import JobPage

MSGPACK = "application/x-msgpack"

InColumns: TypeAlias = AdPage | JobPage
#: Of JSON that is sent at a time, bytes: some milliseconds of work.
PIECE: Final = 1 << 16
#: Bytes of a packed ad that is written in a thread: its expressions may take 2 us a byte to read.
LARGE: Final = 1 << 14

_STATUS = {
    "bad-request": 400,
    "denied": 403,
    "not-found": 404,
    "conflict": 409,
    "too-expensive": 422,
    "not-leader": 503,
    "busy": 503,
    "unavailable": 503,
}


class JsonAnswer(JSONResponse):
    """An answer that tells bytes that are no UTF-8, which ads and logs of others may have: they are lone surrogates
    here, and escapes in JSON, which reads as the same."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


def problem(code: str, message: str, retryable: bool = False, status: int | None = None) -> JsonAnswer:
    """The one shape of every error answer."""
    message = told(message, 10_000)
    refused(code, message)
    return JsonAnswer(
        {"error": {"code": code, "message": message, "retryable": retryable}},
        status_code=status or _STATUS.get(code, 500),
        headers={"Retry-After": "1"} if retryable else None,
    )


def explain(error: Exception) -> JsonAnswer:
    """An exception from below as an error answer."""
    if isinstance(error, RemoteFailure):
        # Only what is broken on the other side is a 5xx; any other refusal is an answer to what was asked.
        broken = error.code in ("internal", "unavailable") or error.retryable
        return problem(error.code, error.reason, error.retryable, _STATUS.get(error.code, 502 if broken else 400))
    if isinstance(error, RetryableError):
        return problem("unavailable", str(error) or type(error).__name__, True, 503)
    if isinstance(error, RoostError):
        return problem("bad-request", str(error))
    raise error


def expression(what: str, text: str) -> Expr | None:
    """A user's expression; none where there is no text. Raises RemoteFailure bad-request."""
    if not text:
        return None
    try:
        return parse_expr(text)
    except (ParseError, RecursionError) as error:
        raise RemoteFailure("bad-request", f"{what} = {text[:200]}: no ClassAd expression: {error}") from error


def ad_of(what: str, attributes: Mapping[str, str]) -> ClassAd:
    """An ad of names and expressions that a user wrote. Raises RemoteFailure bad-request."""
    ad = ClassAd()
    for name, text in attributes.items():
        value = expression(name, text)
        try:
            ad[name] = value
        except ValueError as error:  # of the name
            raise RemoteFailure("bad-request", f"{what}: {error}") from error
    return ad


def told(text: str, longest: int = 1000) -> str:
    """Text of a refusal that may repeat what a user sent: bounded, and of whole characters."""
    return text[:longest].encode(errors="replace").decode()


async def read_msgpack(request: Request, limit: int) -> dict[str, object]:
    """The body as a msgpack map of names to plain values and lists of them. Raises HTTPException 400 or 413 with the
    reason."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise HTTPException(413, f"the body is larger than {limit} bytes; send it in parts")
    except ClientDisconnect as error:
        raise HTTPException(400, "the request broke off") from error
    try:
        return flat(body)
    except Exception as error:
        raise HTTPException(400, f"the body can not be read: {error}") from error


#: Values in a msgpack body: a byte each is enough to say that there are that many.
MOST_VALUES: Final = 1_000_000


def flat(body: bytearray) -> dict[str, object]:
    """A msgpack map of texts to values, or lists of values, that hold no further ones: a megabyte of empty lists in
    lists would become sixty, and take a second to read. Raises ValueError, msgpack's own errors."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(body) + 1, max_array_len=0, max_map_len=0, max_ext_len=0)
    unpacker.feed(body)
    found: dict[str, object] = {}
    left = MOST_VALUES

    def some(count: int) -> range:
        nonlocal left
        left -= count
        if left < 0:
            raise ValueError(f"it has more than {MOST_VALUES} values; send it in parts")
        return range(count)

    def plain() -> object:
        value = unpacker.unpack()
        if isinstance(value, list | dict):
            raise ValueError("a list or map stands in a list or map")
        return value

    try:
        for _ in some(unpacker.read_map_header()):
            key = plain()
            if not isinstance(key, str):
                raise ValueError("its names must be texts")
            kind = body[unpacker.tell()]
            if kind >> 4 == 0x9 or kind in (0xDC, 0xDD):
                found[key] = [plain() for _ in some(unpacker.read_array_header())]
            else:
                found[key] = plain()
        if unpacker.tell() != len(body):
            raise ValueError(f"something follows after its {unpacker.tell()} bytes")
    except (IndexError, msgpack.OutOfData) as error:
        raise ValueError("it ends too early") from error
    return found


async def ad_response(request: Request, pages: AsyncIterator[list[bytes]]) -> Response:
    """Stream pages of packed ads in the form the client asked for. The first page is fetched before the answer begins,
    so that a bad constraint is a clean error."""
    try:
        first = await anext(pages)
    except StopAsyncIteration:
        first = []
    if MSGPACK in request.headers.get("accept", ""):

        async def packed() -> AsyncIterator[bytes]:
            yield msgpack.packb(first)
            async for page in pages:
                yield msgpack.packb(page)

        return StreamingResponse(packed(), media_type=MSGPACK)

    turn: asyncio.Lock = request.app.state.turn

    async def text() -> AsyncIterator[bytes]:
        begin = b"[\n"
        page: list[bytes] | None = first
        while page is not None:
            texts = readable(page, partial(to_json, one_line=True))
            large = any(len(packed) > LARGE for packed in page)
            while True:
                # However many answers are written, short ones wait for no more than one piece of them.
                async with turn:
                    if large:
                        piece = await asyncio.to_thread(_piece, texts, begin)
                    else:
                        piece = _piece(texts, begin)
                        await asyncio.sleep(0)
                if piece is None:
                    break
                if piece:
                    yield piece
                    begin = b",\n"
            page = await anext(pages, None)
        yield b"\n]\n" if begin != b"[\n" else b"[\n]\n"

    return StreamingResponse(text(), media_type="application/json")


def _piece(texts: Iterator[Made[str] | None], begin: bytes) -> bytes | None:
    """What is made in one turn of ads as JSON, each behind a separator, the first behind `begin`; None: there are no
    more. Empty where none that was looked at could be read."""
    piece, turn = bytearray(), Yielder()
    for text in texts:
        if text is not None:
            # A byte that is no UTF-8 is a lone surrogate here, which JSON can tell as an escape only.
            piece += (b",\n" if piece else begin) + text.of.encode("utf-8", "backslashreplace")
        if len(piece) > PIECE or turn.due():
            return bytes(piece)
    return bytes(piece) or None


def wants_columns(request: Request) -> bool:
    """Whether the client reads pages in columns (`Accept: application/x-msgpack; columns=1`)."""
    kind, *parameters = (word.strip() for word in request.headers.get("accept", "").split(";"))
    return kind == MSGPACK and "columns=1" in parameters


async def column_response(pages: AsyncIterator[InColumns]) -> Response:
    """Stream pages in columns (shared.classad.column_page), or of packed ads where the daemon gave these. The next page
    is asked for while one is sent."""
    coming = _ahead(pages)
    first = await anext(coming, None)

    async def packed() -> AsyncIterator[bytes]:
        try:
            if first is not None:
                yield first.columns or msgpack.packb(first.ads)
                async for page in coming:
                    yield page.columns or msgpack.packb(page.ads)
        finally:
            await coming.aclose()

    return StreamingResponse(packed(), media_type=MSGPACK)


async def _ahead(pages: AsyncIterator[InColumns]) -> AsyncGenerator[InColumns, None]:
    """The same, the next one fetched meanwhile."""

    async def following() -> InColumns | None:
        return await anext(pages, None)

    task = asyncio.create_task(following())
    try:
        while (page := await task) is not None:
            task = asyncio.create_task(following())
            yield page
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def results_as_json(first: dict[str, str], others: AsyncIterator[dict[str, str]]) -> AsyncIterator[bytes]:
    """One JSON object out of several parts, each sent as it comes."""
    between = b"{"
    if first:
        yield between + json.dumps(first)[1:-1].encode()
        between = b","
    async for part in others:
        if part:
            yield between + json.dumps(part)[1:-1].encode()
            between = b","
    yield b"{}" if between == b"{" else b"}"
