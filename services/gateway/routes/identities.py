"""Routes to the registrar: join tokens, and the daemons that have users of the broker; and the one by which a machine
gets its own, which needs no token of the gateway but a join token."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Header, Path, Query
from pydantic import BaseModel, Field

from services.gateway.auth.caller import Caller, note
from services.gateway.core.authorization import Identity
from services.gateway.routes.context import RouteContext, example
from shared.bus.api import CallTimeout, NobodyThere, RemoteFailure
from shared.messages.base import Message
from shared.messages.registrar import (
    INBOX,
    AskIdentities,
    CreateJoinToken,
    Enroll,
    Enrolled,
    Identities,
    JoinTokenMade,
    Revoked,
    RevokeIdentity,
)

Answer = TypeVar("Answer", bound=Message)
#: The broker's API may take its time.
_TIMEOUT_S = 30.0
_NOBODY = (
    "nobody lets daemons in here: a personal pool needs no users of a broker; elsewhere start a registrar "
    "(services.registrar), or make users by hand (python -m shared.bus.definitions --identity)"
)
_ROW = {
    "user": "startd.node1.example.org",
    "role": "startd",
    "name": "node1.example.org",
    "since": 1763820000.0,
    "seen": 1763826000.0,
    "connected": True,
    "by": "admin@example.org",
    "address": "192.0.2.7",
    "enrolled": True,
}
_JOIN = {
    "id": "0f3a51c29bd4",
    "roles": ["startd"],
    "names": "node*.example.org",
    "left": 1,
    "expires": 1763823600.0,
    "created": 1763820000.0,
    "by": "admin@example.org",
}


class NewJoinToken(BaseModel):
    roles: list[Annotated[str, Field(min_length=1, max_length=20)]] = Field(
        min_length=1, max_length=20, description="of the daemons that it lets in: startd, schedd, ..."
    )
    names: str = Field(min_length=1, max_length=200, description="shell pattern of their names")
    uses: int = Field(default=1, ge=1, le=100_000, description="how many daemons it lets in")
    lifetime_s: float = Field(default=3600.0, ge=0.0, le=1e10, allow_inf_nan=False, description="0: does not expire")


def add_routes(app: FastAPI, context: RouteContext) -> None:
    async def ask(question: Message, kind: type[Answer]) -> Answer:
        try:
            return await context.pool.ask(INBOX, question, kind, timeout=_TIMEOUT_S)
        except NobodyThere as error:
            raise RemoteFailure("not-found", _NOBODY) from error
        except CallTimeout as error:
            raise RemoteFailure("unavailable", f"the registrar does not answer, or is off: {error}", True) from error

    @app.post(
        "/v1/join-tokens",
        responses=example({"token": "q7J...", "id": "0f3a51c29bd4", "expires": 0.0}),
        tags=["identities"],
    )
    async def create_join_token(
        new: NewJoinToken, identity: Annotated[Identity, Depends(context.guards.may("identities"))]
    ) -> dict[str, Any]:
        """Make a join token, by which daemons get users of their own. It is shown once."""
        note(**new.model_dump())
        made = await ask(CreateJoinToken(**new.model_dump(), by=identity.user), JoinTokenMade)
        note(made=made.id)
        return {"token": made.token, "id": made.id, "expires": made.expires}

    @app.post(
        "/v1/enroll",
        responses=example(
            {
                "user": "startd.node1",
                "amqp": ["amqp://broker:5672/"],
                "gateway_keys": ["-----BEGIN PUBLIC KEY-----\n...\n-----END PUBLIC KEY-----\n"],
            }
        ),
        tags=["identities"],
    )
    async def enroll(
        caller: Annotated[Caller, Depends(context.guards.anybody("enroll"))],
        join: Annotated[str, Header(alias="Roost-Join-Token", max_length=200, description="the join token")],
        role: Annotated[str, Query(max_length=20, description="startd, schedd, ...")],
        name: Annotated[str, Query(max_length=200, description="the daemon's name in the pool")],
        broker: Annotated[str, Query(max_length=100, description="RabbitMQ's hash of the password that it made")],
    ) -> dict[str, Any]:
        """Get a user of the broker for one daemon. The password stays where it was made: here goes its hash. No other
        token is needed than a join token."""
        note(role=role, name=name)
        asked = Enroll(token=join, role=role, name=name, broker_hash=broker, address=caller.address)
        made = await ask(asked, Enrolled)
        return {"user": made.user, "amqp": made.amqp, "gateway_keys": made.gateway_keys}

    @app.get(
        "/v1/identities",
        dependencies=[Depends(context.guards.may("identities"))],
        responses=example({"identities": [_ROW], "tokens": [_JOIN]}),
        tags=["identities"],
    )
    async def list_identities() -> dict[str, Any]:
        """Daemons that have users of the broker, and join tokens. Times in seconds since 1970, 0: never; `seen` to some
        minutes."""
        found = await ask(AskIdentities(), Identities)
        return {"identities": found.identities, "tokens": found.tokens}

    @app.delete(
        "/v1/identities/{name}", responses=example({"users": ["startd.node1"], "tokens": 0}), tags=["identities"]
    )
    async def revoke_identity(
        name: Annotated[
            str, Path(max_length=300, description="startd.node1, node1 (all its daemons), or a join token's id")
        ],
        identity: Annotated[Identity, Depends(context.guards.may("identities"))],
    ) -> dict[str, Any]:
        """Take users away, and end their connections, or a join token."""
        note(name=name)
        gone = await ask(RevokeIdentity(name=name, by=identity.user), Revoked)
        return {"users": gone.users, "tokens": gone.tokens}
