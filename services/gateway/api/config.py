"""The door to daemons' configuration, as each of them goes by it at this moment."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query
from pydantic import Field

from services.gateway.api.doors import Doors
from services.gateway.api.examples import ORDERED, example
from services.gateway.api.guard import Guard
from services.gateway.api.orders import Daemons, Post, Subsystem, Text
from services.gateway.authorization import Identity
from services.gateway.caller import note
from shared.daemon.config_told import text_to_tell
from shared.messages.orders import AskConfig, SetConfig

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


class NewConfig(Daemons):
    set: dict[Text, Text] = Field(default={}, max_length=1000, description="name of a macro -> its text, unexpanded")
    unset: list[Text] = Field(default=[], max_length=1000, description="names of macros that were set so")
    persistent: bool = Field(default=False, description="for good; else until the daemon restarts")


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

    @app.post("/v1/config", responses=ORDERED, tags=["daemons"])
    async def set_config(
        asked: NewConfig, identity: Annotated[Identity, Depends(may("config.set"))]
    ) -> list[dict[str, Any]]:
        """Set and unset macros in the configuration of daemons: each does all of it or nothing. They take effect with
        `reconfig`. A daemon sets only what its SETTABLE_ATTRS_<LEVEL> names for the caller's level, and only where
        ENABLE_RUNTIME_CONFIG or, for good, ENABLE_PERSISTENT_CONFIG is true."""
        whom = Daemons(subsystems=asked.subsystems, names=asked.names, all=asked.all, constraint=asked.constraint)
        shown = {name: text_to_tell(name, text) for name, text in asked.set.items()}
        note(set=shown, unset=asked.unset, persistent=asked.persistent)
        targets, known = await post.find(whom)
        order = SetConfig(
            set=asked.set,
            unset=asked.unset,
            persistent=asked.persistent,
            by=identity.user,
            level=identity.level.name,
        )
        return await post.tell(targets, lambda _: order, known=known)
