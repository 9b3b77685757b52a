"""The route that tells how all daemons of the pool do."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handler where they stand.
from dataclasses import asdict
from typing import Any

from fastapi import Depends, FastAPI

from engine.doctor import Pool, Waiting, check_pool, told_of
from services.gateway.pool_health import PoolHealth
from services.gateway.routes.context import RouteContext, example

_HEALTH = {"release": "0.1.0", "waiting_for": [], "troubles": [], "disks": {"spool": [9000000000, 20000000000]}}
_DAEMON = {"subsystem": "SCHEDD", "name": "ap1", "off": False, "silent": "", "clock_s": 0.0, "unsure_s": 0.001}
_TIMES = {"queue": "roost.inbox.schedd.ap1", "heard": 1795351950, "began": 1795300000}
_FINDING = {
    "code": "no-answer",
    "level": "error",
    "text": "The schedd ap2 does not answer (nobody is at its inbox): look whether its process runs.",
    "count": 1,
    "about": {},
    "help": "daemons.md",
    "command": "",
}
_QUEUE = {"name": "roost.collector", "before": 12, "after": 3}


def add_routes(app: FastAPI, context: RouteContext) -> None:
    health = PoolHealth(context.bus, context.pool, context.clock, context.own)

    @app.get(
        "/v1/daemons/health",
        dependencies=[Depends(context.guards.may("health", heavy=True))],
        responses=example(
            {
                "at": 1795351952.0,
                "now": 1795351953.1,
                "daemons": [{**_DAEMON, **_TIMES, "health": _HEALTH}],
                "machines": 1,
                "protocols": {"2e91d0c4a7b3": ["ack/1"]},
                "queues": [_QUEUE],
                "findings": [_FINDING],
            }
        ),
        tags=["daemons"],
    )
    async def daemons_health() -> dict[str, Any]:
        """How daemons do, each as it says itself, and what waits in their queues. Of the machines the first 500 are
        asked. `at`: when that was, up to a few seconds ago; `now`: this gateway's clock. `silent`: why one did not
        answer; `clock_s`: seconds of its clock before this gateway's; `heard`, `began`: when the collector heard of it
        last, and when it began; `queues`: those in which something waited, at two moments, and `queue` a daemon's own;
        `findings`: what is wrong, gravest first, as /v1/attention has them."""
        found = await health.look()
        queues = [Waiting(**one) for one in found["queues"]]
        pool = Pool(daemons=told_of(found), queues=queues, machines=found["machines"])
        wrong = [asdict(one) for one in check_pool(pool, found["at"])]
        return {**found, "findings": wrong, "now": context.clock.now()}
