"""The doors to dead letters: messages that no handler could take."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from typing import Annotated, Any

import msgpack
from fastapi import Depends, FastAPI, Query
from pydantic import BaseModel, Field

from services.gateway.api.doors import Doors
from services.gateway.api.examples import example
from services.gateway.api.guard import Guard
from services.gateway.caller import note
from shared.squeeze import opened

_SECRET = ("claim_id", "claim_ids", "claims", "transfer_token", "token", "upload_token", "activation")


class Letters(BaseModel):
    ids: list[str] = Field(max_length=100_000, description="of dead letters, as they are listed")


def dead_letter_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    @app.get(
        "/v1/dead-letters",
        dependencies=[Depends(may("dead-letters"))],
        responses=example(
            [
                {
                    "id": "019a...",
                    "at": 1763820000.5,
                    "type": "ads.update",
                    "reason": "not msgpack",
                    "exchange": "roost.ads",
                    "key": "update.Machine.node1",
                    "queue": "roost.collector",
                    "bytes": 120,
                    "body": None,
                }
            ]
        ),
        tags=["dead letters"],
    )
    async def dead_letters(
        limit: Annotated[int, Query(ge=1, le=10_000, description="at most so many")] = 100,
    ) -> list[dict[str, Any]]:
        """Messages that no handler could take, oldest first."""
        return [
            {
                "id": d.id,
                "at": d.at,
                "type": d.type,
                "reason": d.reason,
                "exchange": d.exchange,
                "key": d.key,
                "queue": d.queue,
                "bytes": len(d.data),
                "body": _peek(d.data),
            }
            for d in await doors.bus.dead_letters(limit)
        ]

    @app.post(
        "/v1/dead-letters/requeue",
        dependencies=[Depends(may("dead-letters"))],
        responses=example({"done": ["019a..."]}),
        tags=["dead letters"],
    )
    async def requeue(letters: Letters) -> dict[str, list[str]]:
        """Publish dead letters again where they came from."""
        note(ids=letters.ids)
        return {"done": await doors.bus.requeue(letters.ids)}

    @app.post(
        "/v1/dead-letters/discard",
        dependencies=[Depends(may("dead-letters"))],
        responses=example({"done": ["019a..."]}),
        tags=["dead letters"],
    )
    async def discard(letters: Letters) -> dict[str, list[str]]:
        """Drop dead letters for good."""
        note(ids=letters.ids)
        return {"done": await doors.bus.discard(letters.ids)}


def _peek(data: bytes) -> Any:
    """The body of a dead letter as far as it can be read; claim ids and tokens are left out."""
    try:
        raw = msgpack.unpackb(opened(data), strict_map_key=False)
    except Exception:  # noqa: BLE001  garbage is the usual reason for being here
        return None
    body = raw.get("body") if isinstance(raw, dict) else None
    if not isinstance(body, dict):
        return None
    return {
        k: (v if isinstance(v, str | int | float | bool | type(None)) else f"<{type(v).__name__}>")
        for k, v in body.items()
        if k not in _SECRET
    }
