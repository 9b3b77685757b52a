"""The doors to the accountant's books: priorities of submitters, groups with their quotas."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from services.gateway.api.doors import Doors
from services.gateway.api.examples import AD_STREAM, DONE, example
from services.gateway.api.guard import Guard
from services.gateway.api.wire import ad_response
from services.gateway.authorization import Identity
from services.gateway.caller import note
from services.gateway.grouptree import tree
from services.gateway.pool import PAGE
from shared.classad import ClassAd
from shared.messages.negotiation import GetPriorities, Priorities, SetPriority

OneNegotiator = Annotated[str, Query(max_length=1000, description="which one, where there are several")]


class PriorityChange(BaseModel):
    what: str = Field(
        description="factor, priority, accumulated, begin, last, floor, ceiling, reset, delete; of all users: reset-all"
    )
    value: float | None = Field(default=None, allow_inf_nan=False)
    duration_s: float = Field(
        default=0.0,
        ge=0.0,
        le=1e10,
        allow_inf_nan=False,
        description="after this the old factor, floor or ceiling comes back; 0: never",
    )
    negotiator: str = Field(default="", max_length=1000, description="which one, where there are several")


def priority_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    async def books(negotiator: str, submitters: list[str], since: float) -> AsyncIterator[list[bytes]]:
        chosen = await doors.pool.negotiator(negotiator)
        question = GetPriorities(negotiator=chosen.shard, submitters=submitters, active_since=since, limit=PAGE)
        while True:
            page = await doors.bus.call(chosen.inbox, question)
            assert isinstance(page, Priorities)
            yield page.ads
            if not page.next:
                return
            question = question.model_copy(update={"after": page.next})

    @app.get(
        "/v1/priorities",
        dependencies=[Depends(may("priorities", heavy=True))],
        responses=AD_STREAM,
        tags=["priorities"],
    )
    async def priorities(
        request: Request,
        negotiator: OneNegotiator = "",
        submitter: Annotated[list[str], Query(description="only this one, with or without domain; repeat")] = [],  # noqa: B006
        active_since: Annotated[float, Query(description="only who used something since (s since 1970)")] = 0.0,
    ) -> Response:
        """One accounting ad for each group and submitter, groups first."""
        return await ad_response(request, books(negotiator, submitter, active_since))

    @app.get(
        "/v1/groups",
        dependencies=[Depends(may("priorities", heavy=True))],
        responses=example(
            {
                "groups": [
                    {
                        "name": "physics",
                        "config_quota": 100.0,
                        "effective_quota": 120.0,
                        "in_use": 110.0,
                        "requested": 40.0,
                        "surplus_policy": "byquota",
                        "submitters": ["physics.alice@example.org"],
                        "groups": [],
                    }
                ]
            }
        ),
        tags=["priorities"],
    )
    async def groups(negotiator: OneNegotiator = "") -> dict[str, Any]:
        """The tree of accounting groups: what each is owed and uses, in (weighted) slots, and who is in it. Quotas are
        set in the configuration."""
        ads = [ClassAd.unpack(packed) async for page in books(negotiator, [], 0.0) for packed in page]
        return {"groups": tree(ads)}

    @app.post("/v1/priorities/{submitter:path}", responses=DONE, tags=["priorities"])
    async def set_priority(
        submitter: Annotated[str, Path(max_length=1000, description="in full: group.alice@example.org; empty: all")],
        change: PriorityChange,
        identity: Annotated[Identity, Depends(may("priorities.set"))],
    ) -> dict[str, str]:
        """Change one thing about a submitter; for all of them, without a name in the path, `reset-all`."""
        note(submitter=submitter, **change.model_dump())
        chosen = await doors.pool.negotiator(change.negotiator)
        await doors.bus.call(
            chosen.inbox,
            SetPriority(
                submitter=submitter,
                what=change.what,
                value=change.value,
                duration_s=change.duration_s,
                negotiator=chosen.shard,
                by=identity.user,
            ),
        )
        return {"status": "done"}
