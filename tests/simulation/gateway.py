"""Users' way into the pool: the real gateway, whose requests come from memory in place of sockets."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from typing import Any
from urllib.parse import urlencode

import msgpack

from services.gateway.app import CurrentApp
from services.gateway.auth.tokens import TokenStore
from services.gateway.core.authorization import Token
from services.gateway.daemon import Gateway
from shared.errors import RetryableError
from shared.messages.queue import Acted, ActOnJobs, SubmitJobs, Submitted
from shared.operations import Level
from tests.simulation.loop import LIFE
from tests.simulation.wires import LATENCY_S
from tests.simulation.world import World

#: A user waits so long for an answer, seconds, and asks again: longer than the gateway waits for a schedd, or shorter.
PATIENCE_S = (5.0, 30.0, 70.0)
KINDS = {"msgpack": "application/x-msgpack", "json": "application/json"}


class Unanswered(RetryableError):
    """Nobody knows whether it was done."""


class SimulatedGateway(Gateway):
    """The real one; its server is `Users`' own function call."""

    app: CurrentApp

    def _listen(self, app: CurrentApp, tls: ssl.SSLContext | None) -> None:
        self.app = app

    async def _serve(self) -> None:
        await asyncio.Event().wait()

    _serve_locally = _serve


async def give_tokens(world: World, users: list[str]) -> None:
    """What an administrator does at first, and when the store has lost them. A user's token is his name."""
    tokens = TokenStore(world.store, world.wall)
    for user in users:
        await tokens.add(user, Token(f"{user}@pool", Level.WRITE))


async def ask(
    world: World, chance: random.Random, user: str, schedd: str, message: SubmitJobs | ActOnJobs
) -> Submitted | Acted:
    """As the command does it: through one of the gateways. Raises Unanswered."""
    schedd = schedd.removeprefix("schedd.")
    if isinstance(message, SubmitJobs):
        body = {"submit_id": message.submit_id, "cluster_ad": message.cluster_ad, "procs": message.procs}
        packed: bytes = msgpack.packb(body)
        found = json.loads(await _request(world, chance, user, "POST", "/v1/jobs", packed, "msgpack", schedd=schedd))
        return Submitted(cluster=found["cluster"], first_proc=found["first_proc"], count=found["count"])
    asked = {"action": message.action, "ids": message.ids, "reason": message.reason}
    answer = await _request(world, chance, user, "POST", "/v1/jobs/action", json.dumps(asked).encode(), schedd=schedd)
    return Acted(results=json.loads(answer))


async def known(world: World, chance: random.Random, user: str, schedd: str, job: str, *, history: bool) -> int:
    """How many jobs of this id the gateway tells of, in the queue or out of it. Raises Unanswered."""
    query = {"schedd": schedd.removeprefix("schedd."), "ids": job, "history": str(history), "projection": "ClusterId"}
    return len(json.loads(await _request(world, chance, user, "GET", "/v1/jobs", **query)))


async def _request(
    world: World,
    chance: random.Random,
    user: str,
    method: str,
    path: str,
    body: bytes = b"",
    kind: str = "json",
    **query: str,
) -> bytes:
    """The body of a good answer. What is lost is so on its way there, or on its way back."""
    name = chance.choice(sorted(name for name in world.lives if name.startswith("gateway")))
    patience_s, lost = chance.choice(PATIENCE_S), chance.random()
    await asyncio.sleep(LATENCY_S)
    life = world.lives[name]
    if life.dead or not life.started or lost < world.lost_answers / 3:
        raise Unanswered(f"{name} can not be reached")
    headers = {"host": "gateway", "authorization": f"Bearer {user}", "content-type": KINDS[kind]}
    headers["content-length"] = str(len(body))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(query).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    token = LIFE.set(life)
    try:
        answering = asyncio.ensure_future(_answer(life, scope, body))
    finally:
        LIFE.reset(token)
    await asyncio.wait((answering,), timeout=patience_s)
    if not answering.done():
        raise Unanswered(f"{name} did not answer within {patience_s:g} s")
    if answering.cancelled():
        raise Unanswered(f"{name} died")
    if (error := answering.exception()) is not None:
        world.broken(f"{name}: {method} {path}: {error!r}")
        raise Unanswered(str(error))
    await asyncio.sleep(LATENCY_S)
    status, answer = answering.result()
    if lost < world.lost_answers:
        raise Unanswered(f"an answer of {name} was lost")
    if status == 401:
        await give_tokens(world, [user])
    if status != 200:
        raise Unanswered(f"{name}: {status} {answer[:200].decode()}")
    return answer


async def _answer(life: Any, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """Status and body of the answer. Who asked does not hang up: what he does not wait for any more is done too."""
    await life.thawed()
    status, parts, coming = 0, [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not coming:
            await asyncio.Event().wait()
        return coming.pop()

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await life.daemon.app(scope, receive, send)
    return status, b"".join(parts)
