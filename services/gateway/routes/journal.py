"""Routes to the journal: what happened, and why. The journal answers; these pass its answers on."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Query

from services.gateway.core.authorization import Identity, may_hear
from services.gateway.pool_client import unavailable
from services.gateway.routes.context import RouteContext, example
from shared.messages.base import Message
from shared.messages.journal import (
    MOST_POINTS,
    MOST_ROWS,
    AskCycle,
    AskCycles,
    AskEvents,
    AskInterval,
    AskJob,
    AskLeaders,
    AskSeries,
    AskUser,
)

#: A question may look at a month of a large pool.
_TIMEOUT_S = 60.0
#: The year 9999: no clock goes further.
_LAST = 253402300799.0

Moment = Annotated[float, Query(ge=0, le=_LAST, allow_inf_nan=False, description="seconds since 1970; 0: open")]
Start = Annotated[
    float, Query(alias="from", ge=0, le=_LAST, allow_inf_nan=False, description="seconds since 1970; 0: open")
]
End = Annotated[float, Query(alias="to", ge=0, le=_LAST, allow_inf_nan=False, description="seconds since 1970; 0: now")]
JobId = Annotated[str, Path(max_length=100, description='"12.3"')]
Submitter = Annotated[str, Path(max_length=1000, description="name, with or without its domain")]
Points = Annotated[int, Query(ge=2, le=MOST_POINTS, description="at most so many points")]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS, description="at most so many")]


def add_routes(app: FastAPI, context: RouteContext) -> None:
    async def ask(question: Message) -> dict[str, Any]:
        with unavailable(
            "this pool has no journal that answers: start a journal daemon (services.journal)",
            "the journal does not answer, or is off (roost on -journal)",
        ):
            return await context.pool.ask_journal(question, _TIMEOUT_S)

    @app.get(
        "/v1/journal/jobs/{job_id}",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example(
            {
                "job_id": "12.0",
                "schedd": "ap1",
                "state": "idle",
                "events": [],
                "spans": [],
                "hours": [],
                "waited": {"busy": 61.5},
            }
        ),
        tags=["journal"],
    )
    async def job(
        job_id: JobId,
        schedd: Annotated[str, Query(max_length=1000, description="name; none: whichever has such a job")] = "",
        at: Moment = 0.0,
        start: Start = 0.0,
        end: End = 0.0,
    ) -> dict[str, Any]:
        """What happened to a job, what it waited for, and hour by hour for how long."""
        return await ask(AskJob(job_id=job_id, schedd=schedd, at=at, start=start, end=end))

    @app.get(
        "/v1/journal/users/{submitter:path}",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example(
            {"submitter": "ada@pool", "now": {"priority": 2.5, "weighted_in_use": 8.0}, "points": [], "text": ["..."]}
        ),
        tags=["journal"],
    )
    async def user(submitter: Submitter, start: Start = 0.0, end: End = 0.0, points: Points = 200) -> dict[str, Any]:
        """Why a submitter's share of the pool was what it was."""
        return await ask(AskUser(submitter=submitter, start=start, end=end, points=points))

    @app.get(
        "/v1/journal/cycles",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example(
            {"cycles": [{"negotiator": "cm1", "epoch": 3, "cycle": 12, "at": 1763820000.5, "matches": 4}], "next": None}
        ),
        tags=["journal"],
    )
    async def cycles(before: Moment = 0.0, limit: Limit = 50) -> dict[str, Any]:
        """Negotiation cycles, newest first; `next` is `before` of the next page."""
        return await ask(AskCycles(before=before, limit=limit))

    @app.get(
        "/v1/journal/cycles/{negotiator}/{epoch}/{cycle}",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example(
            {"negotiator": "cm1", "epoch": 3, "cycle": 12, "matched": [], "reasons": [{"code": "share", "jobs": 5}]}
        ),
        tags=["journal"],
    )
    async def cycle(
        negotiator: Annotated[str, Path(max_length=1000, description="name of the negotiator")],
        epoch: Annotated[int, Path(ge=0, le=2**53, description="its epoch")],
        cycle: Annotated[int, Path(ge=0, le=2**53, description="number of the cycle in it")],
    ) -> dict[str, Any]:
        """One cycle: what it matched, and why others got nothing."""
        return await ask(AskCycle(negotiator=negotiator, epoch=epoch, cycle=cycle))

    @app.get(
        "/v1/journal/series",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example({"times": [1763820000.0, 1763820060.0], "series": {"Claimed": [12.0, None]}}),
        tags=["journal"],
    )
    async def series(
        name: Annotated[
            Literal["slots", "cpus", "jobs", "waits", "shares", "utilisation"], Query(description="what is wanted")
        ],
        start: Start = 0.0,
        end: End = 0.0,
        points: Points = 200,
    ) -> dict[str, Any]:
        """Numbers of the pool over time: `times`, the ends of equal parts of the interval, and a list for each line."""
        return await ask(AskSeries(name=name, start=start, end=end, points=points))

    @app.get(
        "/v1/journal/leaders",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example(
            {"changes": [{"at": 1763820000.5, "had": "cm1", "negotiator": "cm1", "state": "leader", "gap_s": 0.8}]}
        ),
        tags=["journal"],
    )
    async def leaders(limit: Limit = 50) -> dict[str, Any]:
        """When another negotiator led, newest first; `gap_s`: nobody led for so long before."""
        return await ask(AskLeaders(limit=limit))

    @app.get(
        "/v1/journal/events",
        responses=example({"events": [{"id": "019a", "type": "job.started", "at": 1763820000.5}], "next": None}),
        tags=["journal"],
    )
    async def events(
        identity: Annotated[Identity, Depends(context.guards.may("events"))],
        type: Annotated[str, Query(max_length=200, description="a type, or its beginning: job.*")] = "",
        job: Annotated[str, Query(max_length=100, description='"12" or "12.3"')] = "",
        start: Start = 0.0,
        end: End = 0.0,
        after: Annotated[str, Query(max_length=100, description="`next` of the page before")] = "",
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """Recorded events, in the order in which they happened."""
        found = await ask(AskEvents(types=type, job_id=job, start=start, end=end, after=after, limit=limit))
        # Some are for administrators; a page may be shorter for others.
        return {**found, "events": [one for one in found["events"] if may_hear(identity.level, str(one["type"]))]}

    @app.get(
        "/v1/journal/interval",
        dependencies=[Depends(context.guards.may("events"))],
        responses=example({"start": 1763820000.0, "end": 1763823600.0, "standings": {}, "next": "slots/"}),
        tags=["journal"],
    )
    async def interval(
        start: Start,
        end: End,
        negotiator: Annotated[str, Query(max_length=1000, description="which one, where there are several")] = "",
        after: Annotated[str, Query(max_length=100, description="`next` of the part before")] = "",
    ) -> dict[str, Any]:
        """All that a replay of an interval needs (`roost what-if`), part by part."""
        return await ask(AskInterval(start=start, end=end, negotiator=negotiator, after=after))
