"""Routes to the pool as a whole: its version and schedds, who the caller is, ads and their totals, the HADs, and the
history that collectors with KEEP_POOL_HISTORY keep."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.

import asyncio
import json
import time
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Query, Request
from starlette.responses import Response

from services.gateway.core import other_pools
from services.gateway.core.authorization import Identity, refusal
from services.gateway.pool_client import PoolClient, unavailable
from services.gateway.routes.context import (
    AD_STREAM,
    Constraint,
    Limit,
    Projection,
    RouteContext,
    example,
    names,
)
from services.gateway.serialization import ad_response, column_response, wants_columns
from shared.classad import ClassAd
from shared.errors import RoostError
from shared.messages.ads import AdCounts, CountAds, QueryAds
from shared.messages.had import AskHad, HadStanding
from shared.messages.pool_history import INBOX, AskPoolHistory, PastOfPool
from shared.messages.queue import DescribeSchedd, ScheddDescription
from shared.version import VERSION

#: Longer than a living HAD needs; a frozen one should not hold up what the others say.
_HAD_TIMEOUT_S = 2.0
#: A question reads a file of a level: a second for 100 MB.
_POOL_HISTORY_TIMEOUT_S = 30.0
_DAY_S = 86400.0
#: The year 9999: no clock goes further.
_LAST_MOMENT = 253402300799.0

_POOL = {
    "name": "pool-b.example.org",
    "url": "https://cm.pool-b.example.org:9680",
    "at": 1795351952.0,
    "error": "",
    "slots": 64,
    "cpus": 512.0,
    "used_cpus": 384.0,
    "gpus": 8.0,
    "utilisation": 0.75,
    "running": 380,
    "idle": 1200,
    "held": 3,
    "users": 14,
    "version": VERSION,
    "error_count": 0,
    "warning_count": 1,
    "note_count": 0,
    "first": "3 jobs are held",
}

Moment = Annotated[float, Query(ge=0, le=_LAST_MOMENT, allow_inf_nan=False)]


def add_routes(app: FastAPI, context: RouteContext) -> None:
    _pool_routes(app, context)
    _had_routes(app, context)
    _pool_history_routes(app, context)


def _pool_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/pool",
        dependencies=[Depends(context.guards.may("pool"))],
        responses=example({"version": VERSION, "schedds": ["ap1"], "listeners": 2}),
        tags=["pool"],
    )
    async def pool() -> dict[str, Any]:
        """Version and schedds of the pool, and how many follow events at this gateway."""
        schedds = await context.pool.schedds()
        return {"version": VERSION, "schedds": [s.name for s in schedds], "listeners": context.events.listeners}

    @app.get(
        "/v1/pools",
        responses=example({"at": 1795351952.0, "pools": [_POOL]}),
        tags=["pool"],
    )
    async def pools(identity: Annotated[Identity, Depends(context.guards.may("ads"))]) -> dict[str, Any]:
        """This pool, and those of ROOST_GATEWAY_POOLS, a line each; this one has no name. `error`: why one could not be
        asked; its numbers are then those of the time `at`, and null where there were none. `error_count`,
        `warning_count` and `note_count`: what needs attention there, `first` the gravest."""
        overview, attention, others = await asyncio.gather(
            context.dashboard.overview(),
            context.attention.told(lambda operation: not refusal(identity, operation)),
            context.other_pools.told(),
        )
        now = context.clock.now()
        own = {"name": "", "url": "", "at": now, "error": "", **other_pools.line(overview, attention, VERSION)}
        return {"at": now, "pools": [own, *others]}

    @app.get(
        "/v1/whoami",
        responses=example(
            {
                "user": "alice@example.org",
                "level": "WRITE",
                "method": "TOKEN",
                "token": "0f3a51c29bd4",
                "scopes": [],
                "expires": 0.0,
                "levels": {},
            }
        ),
        tags=["tokens"],
    )
    async def whoami(identity: Annotated[Identity, Depends(context.guards.may("pool"))]) -> dict[str, Any]:
        """Who you are, and by which method you logged in. `expires` in seconds since 1970, 0: never; `scopes`, where
        there are any, are all that this token opens; `levels`: where the work of a daemon has lists of its own."""
        return {
            "user": identity.user,
            "level": identity.level.name,
            "method": identity.method,
            "token": identity.token,
            "scopes": list(identity.scopes),
            "expires": identity.expires,
            "levels": {subsystem: level.name for subsystem, level in identity.levels},
        }

    @app.get(
        "/v1/schedd",
        dependencies=[Depends(context.guards.may("pool"))],
        responses=example({"name": "ap1", "host_id": "5c1e...", "uid": 1000, "release": VERSION}),
        tags=["pool"],
    )
    async def schedd(
        name: Annotated[str, Query(description="which one; none: the one that takes jobs by default")] = "",
    ) -> dict[str, Any]:
        """What a client must know of a schedd before submitting: whether both see the same files."""
        found = await context.pool.schedd(name)
        answer = await context.pool.ask(found.inbox, DescribeSchedd(), ScheddDescription)
        return answer.model_dump()

    @app.get(
        "/v1/ads", dependencies=[Depends(context.guards.may("ads", heavy=True))], responses=AD_STREAM, tags=["ads"]
    )
    async def ads(
        request: Request,
        type: Annotated[list[str], Query(description="MyType, may be repeated; none: any")] = [],  # noqa: B006
        constraint: Constraint = "",
        projection: Projection = "",
        limit: Limit = 0,
        absent: Annotated[bool, Query(description="machines that are gone and remembered, in place of ads")] = False,
    ) -> Response:
        """Ads from the collector, streamed."""
        wanted = names(projection)
        if wants_columns(request):
            question = QueryAds(
                my_types=type, constraint=constraint, projection=wanted, limit=limit, absent=absent, columns=True
            )
            return await column_response(context.pool.pages(question))
        pages = context.pool.ads(type, constraint=constraint, projection=wanted, limit=limit, absent=absent)
        return await ad_response(request, pages)

    @app.get(
        "/v1/ads/totals",
        dependencies=[Depends(context.guards.may("ads", heavy=True))],
        responses=example({"totals": [{"values": {"State": "Claimed"}, "ads": 12}]}),
        tags=["ads"],
    )
    async def ad_totals(
        type: Annotated[str, Query(description="one MyType")] = "Machine",
        constraint: Constraint = "",
        by: Annotated[str, Query(description="attributes, separated by commas; none: one number")] = "",
    ) -> dict[str, Any]:
        """How many ads there are of each combination of values of some attributes."""
        keys = names(by)
        answer = await context.pool.ask("collector", CountAds(my_type=type, constraint=constraint, by=keys), AdCounts)
        pairs = zip(answer.values, answer.counts, strict=True)
        totals = [{"values": dict(zip(keys, values, strict=True)), "ads": count} for values, count in pairs]
        return {"totals": sorted(totals, key=lambda one: json.dumps(one["values"]))}


# No `from __future__ import annotations` here: FastAPI reads the annotations of the handler where they stand.


def _had_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/had",
        dependencies=[Depends(context.guards.may("pool"))],
        responses=example({"hads": [{"had": "cm1", "shard": "", "state": "leader", "epoch": 7, "silent": ""}]}),
        tags=["pool"],
    )
    async def had() -> dict[str, Any]:
        """How each HAD stands; one that does not answer has `silent`: why."""
        ads = await context.pool.read_ads(["HAD"])
        told = await asyncio.gather(*(_had_standing(context.pool, ad) for ad in ads))
        return {"hads": sorted(told, key=lambda one: (str(one["shard"]), str(one["had"])))}


async def _had_standing(pool: PoolClient, ad: ClassAd) -> dict[str, Any]:
    name, inbox = ad.eval("Name"), ad.eval("MyAddress")
    shard = ad.eval("Shard")
    silent = {"had": str(name), "shard": shard if isinstance(shard, str) else ""}
    if not isinstance(inbox, str):
        return {**silent, "silent": "its ad has no address"}
    try:
        answer = await pool.ask(inbox, AskHad(), HadStanding, timeout=_HAD_TIMEOUT_S)
    except RoostError as error:
        return {**silent, "silent": str(error)}
    return {**answer.model_dump(), "silent": ""}


def _pool_history_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/pool-history/{kind}",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example(
            {
                "kind": "users",
                "name": "ada@pool",
                "from": 1763740800.0,
                "to": 1763827200.0,
                "columns": ["RunningJobs", "IdleJobs"],
                "every": 60.0,
                "points": [[1763740860.0, 4, 12]],
                "names": [],
            }
        ),
        tags=["pool"],
    )
    async def pool_history(
        kind: Annotated[
            Literal["resources", "machines", "platforms", "submitters", "users"],
            Path(description="slots; machines; slots by platform; submitters (user/schedd); users"),
        ],
        name: Annotated[
            str,
            Query(
                max_length=1000,
                description="slot, machine, ARCH/OPSYS, user/schedd, user or Total; none: which there are",
            ),
        ] = "",
        start: Annotated[Moment, Query(alias="from", description="seconds since 1970; 0: a day before `to`")] = 0.0,
        to: Annotated[Moment, Query(description="seconds since 1970; 0: now")] = 0.0,
        collector: Annotated[
            str, Query(max_length=255, pattern=r"^[^/\s]*$", description="its name; none: whichever keeps a history")
        ] = "",
    ) -> dict[str, Any]:
        """How the pool stood over the time, where a collector has KEEP_POOL_HISTORY."""
        end = to or time.time()
        first = start or max(0.0, end - _DAY_S)
        asked = AskPoolHistory(kind=kind, name=name, start=first, end=end)
        inbox = f"collector.{collector}" if collector else INBOX
        who = f"there is no collector named {collector}" if collector else "no collector keeps the pool's history"
        with unavailable(
            f"{who}: set KEEP_POOL_HISTORY = true and POOL_HISTORY_DIR where one runs",
            "the collector that keeps the pool's history does not answer",
        ):
            answer = await context.pool.ask(inbox, asked, PastOfPool, _POOL_HISTORY_TIMEOUT_S)
        return {"kind": kind, "name": name, "from": first, "to": end, **answer.model_dump()}
