"""What all route modules share: the context of their handlers, limits, query parameters, and example answers for the
API's description."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import aiohttp
from fastapi import Query

from services.gateway.attention import Attention
from services.gateway.auth.audit import AuditLog
from services.gateway.auth.guards import Guards
from services.gateway.auth.logins import Logins
from services.gateway.auth.tokens import TokenStore
from services.gateway.dashboard import Dashboard
from services.gateway.events import EventStream
from services.gateway.metrics import RequestCounts
from services.gateway.other_pools import OtherPools
from services.gateway.pool_client import PoolClient
from shared.bus.api import Bus
from shared.config.knobs import GatewaySettings
from shared.daemon.clock import Clock
from shared.transfer.tls import TransferTls

#: One part of a submit; larger clusters are sent in several parts.
MAX_BODY: Final = 64 * 1024 * 1024
#: Any other body but files, which may be as large as it likes.
MAX_JSON: Final = 8 * 1024 * 1024
#: Longest expression that is looked at.
MAX_EXPRESSION: Final = 100_000
#: More than any table holds, and no more than a message carries.
MAX_LIMIT: Final = 2**31 - 1

Constraint = Annotated[str, Query(description="ClassAd expression, true of what is wanted", max_length=MAX_EXPRESSION)]
Projection = Annotated[str, Query(description="attribute names, separated by commas; none: whole ads")]
Limit = Annotated[int, Query(ge=0, le=MAX_LIMIT, description="at most so many; 0: all")]
OneSchedd = Annotated[str, Query(description="name of the schedd; none: the one that takes jobs by default")]
AnySchedd = Annotated[str, Query(description="name of a schedd; none: all of them")]


@dataclass(slots=True)
class RouteContext:
    """What the handlers of routes work with. own: the gateway's own inbox."""

    bus: Bus
    pool: PoolClient
    tokens: TokenStore
    logins: Logins
    events: EventStream
    http: aiohttp.ClientSession
    audit: AuditLog
    guards: Guards
    settings: GatewaySettings
    clock: Clock
    own: str
    dashboard: Dashboard
    attention: Attention
    other_pools: OtherPools
    counts: RequestCounts = field(default_factory=RequestCounts)
    transfer_tls: TransferTls = field(default_factory=TransferTls)


def names(text: str) -> list[str]:
    """Words between commas or blanks."""
    return [name for name in text.replace(",", " ").split() if name]


Responses = dict[int | str, dict[str, Any]]


def example(value: Any, description: str = "Successful Response") -> Responses:
    """What a route answers, as JSON."""
    return {200: {"description": description, "content": {"application/json": {"example": value}}}}


_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
#: What a route takes that has packed ads as its body.
PACKED_BODY: Final[dict[str, Any]] = {"requestBody": {"required": True, "content": {"application/x-msgpack": _BINARY}}}

AD_STREAM: Final[Responses] = {
    200: {
        "description": "A JSON array of ads, streamed; or pages of packed ads",
        "content": {
            "application/json": {
                "schema": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
                "example": [{"MyType": "Machine", "Name": "slot1@node1", "State": "Unclaimed", "Cpus": 8}],
            },
            "application/x-msgpack": _BINARY,
        },
    }
}
BUNDLE: Final[Responses] = {
    200: {"description": "A bundle of files (tar)", "content": {"application/x-tar": _BINARY}},
}
FRAMES: Final[Responses] = {
    200: {"description": "Frames: a letter, a length, bytes", "content": {"application/octet-stream": _BINARY}},
}
FILE: Final[Responses] = {
    200: {"description": "The file's bytes", "content": {"application/octet-stream": _BINARY}},
    206: {"description": "The part of it that Range asked for", "content": {"application/octet-stream": _BINARY}},
    416: {"description": "It has no such part"},
}
EVENT_STREAM: Final[Responses] = {
    200: {
        "description": "Server-sent events, without end",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 019a...\nevent: job.started\ndata: {"type": "job.started", "at": 1763820000.5}\n\n',
            }
        },
    }
}
ACTED: Final = example({"12.0": "done", "12.1": "denied"}, "What became of each job")
ORDERED: Final = example(
    [{"subsystem": "STARTD", "name": "node1", "done": True, "said": "it restarts"}], "What each daemon answered"
)
DONE: Final = example({"status": "done"})
