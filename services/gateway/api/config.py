"""The door to daemons' configuration, as each of them goes by it at this moment."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query

from services.gateway.api.doors import Doors
from services.gateway.api.examples import example
from services.gateway.api.guard import Guard
from services.gateway.api.orders import Daemons, Post, Subsystem
from shared.messages.orders import AskConfig

_NAME = Annotated[str, Query(max_length=200)]
_MACRO = {
    "name": "NEGOTIATOR_INTERVAL",
    "value": "30",
    "raw": "30",
    "file": "/etc/roost/config",
    "line": 12,
    "template": None,
    "default": "60",
}


def config_doors(app: FastAPI, doors: Doors, may: Guard) -> None:
    post = Post(doors.bus, doors.pool, doors.own)

    @app.get(
        "/v1/config",
        dependencies=[Depends(may("config", heavy=True))],
        responses=example([{"subsystem": "NEGOTIATOR", "name": "cm1", "done": True, "macros": [_MACRO]}]),
        tags=["daemons"],
    )
    async def config(
        subsystem: Annotated[list[Subsystem], Query(description="kinds of daemons, may be repeated; none: any")] = [],  # noqa: B006
        daemon: Annotated[
            list[Annotated[str, Query(max_length=1000)]],
            Query(description="names of daemons or machines, may be repeated; none: all of the subsystem"),
        ] = [],  # noqa: B006
        name: Annotated[list[_NAME], Query(description="names of macros, may be repeated")] = [],  # noqa: B006
        pattern: Annotated[str, Query(max_length=200, description="shell pattern of names of what is set")] = "",
    ) -> list[dict[str, Any]]:
        """What running daemons go by: values, as written, where it stands, the default. Without names and pattern
        everything that is set. Passwords and other secrets are not told."""
        if not subsystem and not daemon:
            raise HTTPException(400, "whose configuration? name a subsystem, or a daemon")
        targets, known = await post.find(Daemons(subsystems=subsystem, names=daemon, all=not daemon))
        return await post.tell(targets, lambda _: AskConfig(names=name, pattern=pattern), known=known)
