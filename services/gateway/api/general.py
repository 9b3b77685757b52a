"""The doors to what there is: the pool, who you are, a schedd, ads and their totals."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import json
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from starlette.responses import Response

from services.gateway.api.doors import MAX_EXPRESSION, MAX_LIMIT, Doors, names
from services.gateway.api.examples import AD_STREAM, example
from services.gateway.api.guard import Guard
from services.gateway.api.wire import ad_response, column_response, wants_columns
from services.gateway.authorization import Identity
from shared.messages.ads import AdCounts, CountAds, QueryAds
from shared.messages.queue import DescribeSchedd, ScheddDescription
from shared.version import VERSION

Constraint = Annotated[str, Query(description="ClassAd expression, true of what is wanted", max_length=MAX_EXPRESSION)]
Projection = Annotated[str, Query(description="attribute names, separated by commas; none: whole ads")]
Limit = Annotated[int, Query(ge=0, le=MAX_LIMIT, description="at most so many; 0: all")]


def general_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    @app.get(
        "/v1/pool",
        dependencies=[Depends(may("pool"))],
        responses=example({"version": VERSION, "schedds": ["ap1"], "listeners": 2}),
        tags=["pool"],
    )
    async def pool() -> dict[str, Any]:
        """Version and schedds of the pool, and how many follow events at this gateway."""
        schedds = await doors.pool.schedds()
        return {"version": VERSION, "schedds": [s.name for s in schedds], "listeners": doors.events.listeners}

    @app.get(
        "/v1/whoami",
        responses=example(
            {"user": "alice@example.org", "level": "WRITE", "token": "0f3a51c29bd4", "scopes": [], "expires": 0.0}
        ),
        tags=["tokens"],
    )
    async def whoami(identity: Annotated[Identity, Depends(may("pool"))]) -> dict[str, Any]:
        """Who the token says you are. `expires` in seconds since 1970, 0: never; `scopes`, where there are any, are all
        that this token opens."""
        return {
            "user": identity.user,
            "level": identity.level.name,
            "token": identity.token,
            "scopes": list(identity.scopes),
            "expires": identity.expires,
        }

    @app.get(
        "/v1/schedd",
        dependencies=[Depends(may("pool"))],
        responses=example({"name": "ap1", "host_id": "5c1e...", "uid": 1000, "release": VERSION}),
        tags=["pool"],
    )
    async def schedd(
        name: Annotated[str, Query(description="which one; none: the one that takes jobs by default")] = "",
    ) -> dict[str, Any]:
        """What a client must know of a schedd before submitting: whether both see the same files."""
        found = await doors.pool.schedd(name)
        answer = await doors.bus.call(found.inbox, DescribeSchedd())
        assert isinstance(answer, ScheddDescription)
        return answer.model_dump()

    @app.get("/v1/ads", dependencies=[Depends(may("ads", heavy=True))], responses=AD_STREAM, tags=["ads"])
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
            return await column_response(doors.pool.pages(question))
        pages = doors.pool.ads(type, constraint=constraint, projection=wanted, limit=limit, absent=absent)
        return await ad_response(request, pages)

    @app.get(
        "/v1/ads/totals",
        dependencies=[Depends(may("ads", heavy=True))],
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
        answer = await doors.bus.call("collector", CountAds(my_type=type, constraint=constraint, by=keys))
        assert isinstance(answer, AdCounts)
        pairs = zip(answer.values, answer.counts, strict=True)
        totals = [{"values": dict(zip(keys, values, strict=True)), "ads": count} for values, count in pairs]
        return {"totals": sorted(totals, key=lambda one: json.dumps(one["values"]))}
