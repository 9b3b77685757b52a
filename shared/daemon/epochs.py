"""Checks epochs in messages, for daemons that obey no negotiator that was replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from shared.bus.api import RemoteFailure
from shared.state import keys

#: Negotiators of different names; more than any pool has is somebody's mistake.
MAX_SHARDS: Final = 1_000


def check_possible(shard: str, epoch: int, seen: Mapping[str, int]) -> None:
    """Raises RemoteFailure bad-request for what no negotiator has: believed, it would be the highest one for ever.
    `seen`: the highest epoch seen, by shard (NEGOTIATOR_NAME)."""
    if not 0 <= epoch <= keys.MAX_EPOCH:
        raise RemoteFailure("bad-request", f"epoch {epoch}: want 0 to {keys.MAX_EPOCH}")
    if shard not in seen and len(seen) >= MAX_SHARDS:
        raise RemoteFailure("bad-request", f"negotiator {shard[:80]!r}: {MAX_SHARDS} others are known already")
