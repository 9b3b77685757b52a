"""The door to the HADs: who leads, and how the others stand, as each of them says itself at this moment."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handler where they stand.
import asyncio
from typing import Any

from fastapi import Depends, FastAPI

from services.gateway.api.examples import example
from services.gateway.api.guard import Guard
from services.gateway.pool import PoolView
from shared.bus.api import Bus
from shared.classad import ClassAd
from shared.errors import RoostError
from shared.messages.had import AskHad, HadStanding

#: Longer than a living HAD needs; a frozen one should not hold up what the others say.
_TIMEOUT_S = 2.0


def had_doors(app: FastAPI, bus: Bus, pool: PoolView, may: Guard) -> None:
    @app.get(
        "/v1/had",
        dependencies=[Depends(may("pool"))],
        responses=example({"hads": [{"had": "cm1", "shard": "", "state": "leader", "epoch": 7, "silent": ""}]}),
        tags=["pool"],
    )
    async def had() -> dict[str, Any]:
        """How each HAD stands; one that does not answer has `silent`: why."""
        ads = [ClassAd.unpack(packed) async for page in pool.ads(["HAD"]) for packed in page]
        told = await asyncio.gather(*(_ask(bus, ad) for ad in ads))
        return {"hads": sorted(told, key=lambda one: (str(one["shard"]), str(one["had"])))}


async def _ask(bus: Bus, ad: ClassAd) -> dict[str, Any]:
    name, inbox = ad.eval("Name"), ad.eval("MyAddress")
    shard = ad.eval("Shard")
    silent = {"had": str(name), "shard": shard if isinstance(shard, str) else ""}
    if not isinstance(inbox, str):
        return {**silent, "silent": "its ad has no address"}
    try:
        answer = await bus.call(inbox, AskHad(), timeout=_TIMEOUT_S)
    except RoostError as error:
        return {**silent, "silent": str(error)}
    assert isinstance(answer, HadStanding)
    return {**answer.model_dump(), "silent": ""}
