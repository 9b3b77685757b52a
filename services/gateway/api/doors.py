"""What all families of doors work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import aiohttp

from services.gateway.api.guard import Guards
from services.gateway.audit import Audit
from services.gateway.metrics import RequestCounts
from services.gateway.pool import PoolView
from services.gateway.stream import EventStream
from services.gateway.tokens import Tokens
from shared.bus.api import Bus
from shared.config.knobs import GatewaySettings
from shared.daemon.clock import Clock

#: One part of a submit; larger clusters are sent in several parts.
MAX_BODY: Final = 64 * 1024 * 1024
#: Any other body but files, which may be as large as it likes.
MAX_JSON: Final = 8 * 1024 * 1024
#: Longest expression that is looked at.
MAX_EXPRESSION: Final = 100_000
#: More than any table holds, and no more than a message carries.
MAX_LIMIT: Final = 2**31 - 1


@dataclass(slots=True)
class Doors:
    """The gateway's parts. own: its own inbox."""

    bus: Bus
    pool: PoolView
    tokens: Tokens
    events: EventStream
    http: aiohttp.ClientSession
    audit: Audit
    guards: Guards
    settings: GatewaySettings
    clock: Clock
    own: str
    counts: RequestCounts = field(default_factory=RequestCounts)


def names(text: str) -> list[str]:
    """Words between commas or blanks."""
    return [name for name in text.replace(",", " ").split() if name]
