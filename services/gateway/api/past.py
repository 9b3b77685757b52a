"""The door to the pool's history, which collectors with KEEP_POOL_HISTORY keep."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import time
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Path, Query

from services.gateway.api.examples import example
from services.gateway.api.guard import Guard
from shared.bus.api import Bus, BusUnavailable, CallTimeout, NobodyThere, RemoteFailure
from shared.messages.past import INBOX, AskPoolHistory, PastOfPool

#: A question reads a file of a level: a second for 100 MB.
_TIMEOUT_S = 30.0
_DAY_S = 86400.0
#: The year 9999: no clock goes further.
_LAST = 253402300799.0

Moment = Annotated[float, Query(ge=0, le=_LAST, allow_inf_nan=False)]


def past_doors(app: FastAPI, bus: Bus, may: Guard) -> None:
    @app.get(
        "/v1/pool-history/{kind}",
        dependencies=[Depends(may("events"))],
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
            Literal["resources", "platforms", "submitters", "users"],
            Path(description="slots; slots by platform; submitters (user/schedd); users"),
        ],
        name: Annotated[
            str,
            Query(max_length=1000, description="slot, ARCH/OPSYS, user/schedd or user; Total; none: which there are"),
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
        try:
            answer = await bus.call(f"collector.{collector}" if collector else INBOX, asked, timeout=_TIMEOUT_S)
        except NobodyThere as error:
            who = f"there is no collector named {collector}" if collector else "no collector keeps the pool's history"
            mend = "set KEEP_POOL_HISTORY = true and POOL_HISTORY_DIR where one runs"
            raise RemoteFailure("unavailable", f"{who}: {mend}", True) from error
        except (CallTimeout, BusUnavailable) as error:
            said = f"the collector that keeps the pool's history does not answer: {error}"
            raise RemoteFailure("unavailable", said, True) from error
        assert isinstance(answer, PastOfPool)
        return {"kind": kind, "name": name, "from": first, "to": end, **answer.model_dump()}
