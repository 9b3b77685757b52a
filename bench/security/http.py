"""HTTP: bytes that are no request or two, wrong hosts and origins, websockets; and for every route of the gateway's
description requests that say what they may, mostly, with hostile values. With tokens of the levels READ and WRITE, and
without one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgpack

from bench.security import texts, values
from bench.security.cases import CRASH, RIGHTS, Case, Fault, Tally, data_of, text
from bench.security.values import Dice
from tests.security.test_http_strict import AMBIGUOUS, UPGRADE

#: Where a token of a level stands in a request, in the case of that level.
TOKEN: Final = b"@TOKEN@"
LEVELS: Final = ("", "READ", "WRITE")
#: Seconds for an answer, and for a connection that waits for the rest of half a request.
PATIENCE_S, HALF_S = 30.0, 0.05
#: An answer without an end; begun, and left.
ENDLESS: Final = ("/v1/events",)
STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")

_TARGETS: Final = (
    *(
        "/v1/whoami",
        "/v1/jobs",
        "/",
        "*",
        "//v1/whoami",
        "/v1/../v1/whoami",
        "/%2e%2e/etc/passwd",
        "/v1/whoami?" + "a" * 9000,
    ),
    *(
        "http://localhost/v1/whoami",
        "/v1/jobs/1.0/output/../../x",
        "/static/../app.py",
        "/\0",
        "/é",
        "/%00",
        "/openapi.json",
    ),
)
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "G\0T", "PRI", "")
_HOSTS: Final = (
    "localhost",
    "127.0.0.1",
    "evil.example",
    "",
    "localhost:99999",
    "[::1",
    "a" * 300,
    "localhost\t",
    "pool,evil",
)
_HEADERS: Final = (
    *("Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5", "Transfer-Encoding: chunked"),
    *(
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Expect: 100-continue",
        "Connection: close, keep-alive",
    ),
    *(
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABk",
        "Cookie: a=b",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-User: root",
    ),
    *(
        "Authorization: Basic cm9vdDpyb290",
        "Authorization: Bearer \xff",
        "Authorization: bearer",
        "Range: bytes=0-0,-1,5-",
    ),
    *("Content-Encoding: gzip", "Content-Type: multipart/form-data", "Content-Type: application/json; charset=utf-7"),
    *(
        "traceparent: 00-zz",
        "Origin: null",
        "Origin: https://evil.example",
        "X: a\r\n b",
        ": x",
        "X",
        "If-None-Match: " + "a" * 5000,
    ),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway. tokens: by level, none for "". files: port of an access point's file server; 0: it is not tried."""

    host: str
    port: int
    tokens: Mapping[str, str]
    files: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of the description."""

    method: str
    path: str
    level: str  # that it needs; empty: none
    description: Mapping[str, Any]


def routes(document: Mapping[str, Any]) -> list[Route]:
    return [
        Route(method.upper(), path, operation.get("x-roost-level", ""), operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


class Maker:
    """Makes inputs for a gateway that describes itself so."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._routes = routes(document)
        self._schemas: Mapping[str, Any] = document.get("components", {}).get("schemas", {})

    def make(self, dice: Dice) -> Case:
        kind = dice.random()
        level = dice.choice(LEVELS)
        if kind < 0.70:
            return self._routed(dice, level)
        if kind < 0.80:
            what = dice.choice(list(AMBIGUOUS))
            said = AMBIGUOUS[what] % (b"" if not level else b"Authorization: Bearer " + TOKEN + b"\r\n")
            case: Case = {"family": "http", "level": level, "data": text(said), "answers": 1, "half": True}
            return case | ({"to": "files"} if dice.random() < 0.2 else {})
        said = self._websocket(dice) if kind < 0.85 else self._framed(dice)
        if dice.random() < 0.4:
            said = values.altered(dice, said)
        return {"family": "http", "level": "", "data": text(said), "half": True}

    def _routed(self, dice: Dice, level: str) -> Case:
        route = dice.choice(self._routes)
        path, query = route.path, []
        for parameter in route.description.get("parameters", ()):
            value = values.of_schema(parameter.get("schema", {}), self._schemas, dice)
            written = quote(str(value).encode(errors="replace"), safe="" if dice.random() < 0.9 else "/?&=")[:40_000]
            if parameter["in"] == "path":
                path = path.replace("{" + parameter["name"] + "}", written or "x")
            elif dice.random() < 0.5:
                query.append(f"{parameter['name']}={written}")
        body, kind = self._body(dice, route)
        head = [
            f"{route.method} {path}{'?' if query else ''}{'&'.join(query)} HTTP/1.1",
            "Host: localhost",
            "Connection: close",
        ]
        if level:
            head.append(f"Authorization: Bearer {TOKEN.decode()}")
        if kind:
            head += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        said = "\r\n".join([*head, "", ""]).encode() + body
        case: Case = {"family": "http", "level": level, "needs": route.level, "data": text(said)}
        return case | ({"half": True} if route.path in ENDLESS else {})

    def _body(self, dice: Dice, route: Route) -> tuple[bytes, str]:
        content = route.description.get("requestBody", {}).get("content", {})
        if not content:
            return b"", ""
        kind, described = dice.choice(list(content.items()))
        if kind == "multipart/form-data":
            body = _form(
                {"description": texts.submit_file(dice), values.some_text(dice)[:50]: values.some_text(dice)[:500]}
            )
            kind += "; boundary=x"
        elif kind == "application/x-msgpack":
            procs = [values.packed_ad(dice) for _ in range(dice.randrange(3))]
            said = {"submit_id": values.some_text(dice)[:200], "cluster_ad": values.packed_ad(dice), "procs": procs}
            body = msgpack.packb(said, unicode_errors="surrogatepass") if dice.random() < 0.9 else values.deep(dice)
        elif kind == "application/json":
            said_json = values.of_schema(described.get("schema", {}), self._schemas, dice)
            body = json.dumps(said_json).encode() if dice.random() < 0.95 else b"[" * dice.choice((100, 3_000, 100_000))
        else:
            body = dice.randbytes(dice.choice((0, 10, 600, 2_000)))
        return (values.altered(dice, body) if dice.random() < 0.1 else body), kind

    def _framed(self, dice: Dice) -> bytes:
        lines = [
            f"{dice.choice(_METHODS)} {dice.choice(_TARGETS)} HTTP/{dice.choice(('1.1', '1.0', '2.0', '1.10', ''))}"
        ]
        lines += [f"Host: {dice.choice(_HOSTS)}"] * dice.choice((1, 1, 1, 0, 2))
        lines += dice.choices(_HEADERS, k=dice.randrange(5))
        end = dice.choice(("\r\n", "\r\n", "\r\n", "\n", "\r"))
        body = dice.choice(
            (
                b"",
                b"0\r\n\r\n",
                b"5\r\nhello\r\n0\r\n\r\n",
                b"ffffffffffffffff\r\n",
                b"GET / HTTP/1.1\r\n\r\n",
                b"\0" * 999,
            )
        )
        return (end.join([*lines, "", ""])).encode("utf-8", "surrogateescape") + body

    def _websocket(self, dice: Dice) -> bytes:
        path = dice.choice(("/v1/events/ws", "/v1/visits/x/ws", "/v1/whoami", "/"))
        head = f"GET {path} HTTP/1.1\r\nHost: {dice.choice(_HOSTS[:2])}\r\n".encode() + UPGRADE
        origin = dice.choice(
            (b"", b"", b"Origin: http://localhost\r\n", b"Origin: https://evil.example\r\n", b"Origin: null\r\n")
        )
        frame = bytes((dice.randrange(256), dice.randrange(256))) + dice.randbytes(dice.randrange(40))
        return head + origin + b"\r\n" + dice.choice((b"", frame, b"\x89\x85abcd12345", b"\x81\xff" + b"\xff" * 8))


def _form(fields: Mapping[str, str]) -> bytes:
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode(errors="replace")
        for name, value in fields.items()
    ]
    return b"".join(parts) + b"--x--\r\n"


async def send(case: Case, target: Target) -> bytes:
    """What is answered, until the other side ends the connection. Raises OSError where nobody listens."""
    port = target.files if case.get("to") == "files" and target.files else target.port
    said = data_of(case["data"]).replace(TOKEN, target.tokens.get(case["level"], "").encode())
    reader, writer = await asyncio.open_connection(target.host, port)
    try:
        writer.write(said)
        if not case.get("half"):
            return await asyncio.wait_for(_rest(reader), PATIENCE_S)
        got = b""
        with contextlib.suppress(TimeoutError):
            got = await asyncio.wait_for(reader.read(1 << 16), HALF_S)
        if writer.can_write_eof():
            writer.write_eof()
        try:
            return got + await asyncio.wait_for(_rest(reader), HALF_S)
        except TimeoutError:
            return got
    except (ConnectionResetError, BrokenPipeError):
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    got = b""
    try:
        while more := await reader.read(1 << 16):
            got = (got + more)[: 1 << 20]
    except ConnectionResetError:
        pass
    return got


def judge(case: Case, answer: bytes) -> tuple[str, list[Fault]]:
    """What came of a request: for the tally, and what is wrong with it. Pure."""
    found = [int(status) for status in STATUS.findall(answer)]
    if not found:
        return "no answer", []
    status, faults = found[0], []
    shown = text(answer[:1500])
    if any(one >= 500 and not _away(one, answer) for one in found[:1]):
        faults.append(Fault(CRASH, "http", f"{status}: {shown}", (case,)))
    if 200 <= status < 300 and _beyond(case):
        faults.append(Fault(RIGHTS, "http", f"{status} where {case['needs']} is needed: {shown}", (case,)))
    if len(found) > case.get("answers", len(found)):
        faults.append(Fault(RIGHTS, "http", f"{len(found)} answers to one request: {shown}", (case,)))
    return str(status), faults


def _away(status: int, answer: bytes) -> bool:
    """Whether it is said that somebody is away, and to ask again; or that a method or version is not spoken."""
    return (status == 503 and b'"retryable":true' in answer.replace(b" ", b"")) or status in (501, 505)


def _beyond(case: Case) -> bool:
    order = ("", "READ", "WRITE", "ADMINISTRATOR")
    return order.index(case.get("needs", "")) > order.index(case["level"])


async def take(case: Case, target: Target, tally: Tally) -> None:
    """Send an input and see what comes."""
    try:
        answer = await send(case, target)
    except TimeoutError:
        found, faults = f"no answer in {PATIENCE_S:g} s", [Fault(CRASH, "http", "no answer", (case,))]
    except OSError as error:
        found, faults = type(error).__name__, [Fault(CRASH, "http", f"no connection: {error}", (case,))]
    else:
        found, faults = judge(case, answer)
    tally.sent += 1
    tally.outcomes[found] += 1
    tally.faults += faults
