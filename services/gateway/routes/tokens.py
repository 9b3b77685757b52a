"""Routes to tokens: list, make, revoke; and to the audit log."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from fnmatch import fnmatchcase
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query
from pydantic import BaseModel, Field

from services.gateway.auth.caller import note
from services.gateway.core.authorization import Identity, Token, beyond, may_see, outlives
from services.gateway.routes.context import RouteContext, example
from shared.operations import NEEDS, Level
from shared.user_names import MOST, user_of

_RECORD = {
    "type": "gateway.audit",
    "at": 1763820000.5,
    "gateway": "gw1",
    "request_id": "019a...",
    "user": "alice@example.org",
    "token": "0f3a51c29bd4",
    "level": "WRITE",
    "address": "192.0.2.7",
    "method": "POST",
    "path": "/v1/jobs/action",
    "operation": "jobs.act",
    "what": {"action": "hold", "ids": ["12"]},
    "status": 200,
    "outcome": "done",
    "code": "",
    "message": "",
    "took_s": 0.004,
    "untold": 0,
}


class NewToken(BaseModel):
    user: str = Field(min_length=1, max_length=MOST, description="whom it stands for, NAME@DOMAIN")
    level: str = Field(pattern="^(READ|WRITE|ADMINISTRATOR)$")
    label: str = Field(default="", max_length=200, description="what it is for")
    lifetime_s: float = Field(default=0.0, ge=0.0, le=1e10, allow_inf_nan=False, description="0: does not expire")
    scopes: list[Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z.*-]+$")]] = Field(
        default=[],
        max_length=50,
        description="shell patterns of operations: it opens only these; none: all of its level",
    )


class FetchedToken(BaseModel):
    key: str = Field(default="", max_length=100, description="name of the signing key; none: SEC_TOKEN_ISSUER_KEY")
    authorizations: list[Annotated[str, Field(pattern="^[A-Z_]{1,40}$")]] = Field(
        default=[], max_length=20, description="READ, WRITE, ...: it opens only these; none: all that you have"
    )
    lifetime_s: float = Field(default=0.0, ge=0.0, le=1e10, allow_inf_nan=False, description="0: does not expire")


def add_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/tokens",
        responses=example(
            [
                {
                    "id": "0f3a51c29bd4",
                    "user": "alice@example.org",
                    "level": "WRITE",
                    "label": "laptop",
                    "scopes": [],
                    "created": 1763820000.0,
                    "by": "admin@example.org",
                    "expires": 0.0,
                    "revoked": 0.0,
                    "used": 1763826000.0,
                }
            ]
        ),
        tags=["tokens"],
    )
    async def list_tokens(
        identity: Annotated[Identity, Depends(context.guards.may("tokens"))],
        all: Annotated[bool, Query(description="also those that were revoked, for 30 days")] = False,
    ) -> list[dict[str, Any]]:
        """Who may do what; never the tokens themselves, and only of tokens that open no more than yours. Times in
        seconds since 1970, 0: never; `used` to some 10 s."""
        return [
            {
                "id": key,
                "user": t.user,
                "level": t.level.name,
                "label": t.label,
                "scopes": list(t.scopes),
                "created": t.created,
                "by": t.by,
                "expires": t.expires,
                "revoked": t.revoked,
                "used": used,
            }
            for key, (t, used) in (await context.tokens.listed(all=all)).items()
            if may_see(identity, t)
        ]

    @app.post("/v1/tokens", responses=example({"token": "q7J...", "id": "0f3a51c29bd4"}), tags=["tokens"])
    async def create_token(
        new: NewToken, identity: Annotated[Identity, Depends(context.guards.may("tokens"))]
    ) -> dict[str, str]:
        """Make a token. It is shown once."""
        note(**new.model_dump())
        for scope in new.scopes:
            if not any(fnmatchcase(operation, scope) for operation in NEEDS):
                raise HTTPException(400, f"scope {scope} is no operation; there are {', '.join(sorted(NEEDS))}")
        if more := beyond(identity, Level[new.level], tuple(new.scopes)):
            raise HTTPException(403, f"your token does not open {', '.join(more)[:200]}, so it makes none that does")
        expires = context.tokens.now() + new.lifetime_s if new.lifetime_s else 0.0
        if longer := outlives(identity, expires):
            raise HTTPException(403, longer)
        try:
            user = user_of(new.user, context.settings.uid_domain)
        except ValueError as error:
            raise HTTPException(400, f"user: {error}") from error
        made = Token(user, Level[new.level], new.label, expires, tuple(new.scopes))
        token, ident = await context.tokens.create(made, identity.user)
        note(made=ident)
        return {"token": token, "id": ident}

    @app.post(
        "/v1/tokens/fetch", responses=example({"token": "eyJhbGciOi...", "user": "alice@example.org"}), tags=["tokens"]
    )
    async def fetch_token(
        asked: FetchedToken, identity: Annotated[Identity, Depends(context.guards.may("tokens.fetch"))]
    ) -> dict[str, str]:
        """An IDTOKEN for yourself, as condor_token_fetch gets one: signed with the pool's key, of no more levels than
        you have, and good no longer than what you logged in with. The gateway keeps nothing of it."""
        note(**asked.model_dump())
        try:
            token = context.logins.idtokens.issue(
                identity, asked.key, asked.authorizations, asked.lifetime_s, context.clock.now()
            )
        except PermissionError as error:
            raise HTTPException(403, str(error)) from error
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        return {"token": token, "user": identity.user}

    @app.delete("/v1/tokens/{prefix}", responses=example({"revoked": 1}), tags=["tokens"])
    async def revoke_token(
        prefix: Annotated[str, Path(max_length=64, description="the id that the list shows, 8 digits or more")],
        identity: Annotated[Identity, Depends(context.guards.may("tokens"))],
    ) -> dict[str, int]:
        """Revoke by the id that the list shows you. Every gateway refuses the token from now on, and ends its
        streams."""
        note(prefix=prefix)
        try:
            gone = await context.tokens.revoke(prefix, identity.user, lambda token: may_see(identity, token))
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        return {"revoked": gone}

    @app.get(
        "/v1/audit",
        dependencies=[Depends(context.guards.may("audit"))],
        responses=example({"records": [_RECORD]}),
        tags=["tokens"],
    )
    async def audit(
        limit: Annotated[int, Query(ge=1, le=10_000, description="at most so many")] = 100,
        user: Annotated[str, Query(max_length=200, description="only requests of this user, name@domain")] = "",
        operation: Annotated[str, Query(max_length=100, description="only this operation, as jobs.act")] = "",
        outcome: Annotated[str, Query(max_length=20, description="only done, refused, failed or broke off")] = "",
    ) -> dict[str, Any]:
        """What was changed, by whom and from where, newest first, and who was refused: the last 2000 records. The audit
        log has more."""
        wanted = {"user": user, "operation": operation, "outcome": outcome}
        wanted = {name: value for name, value in wanted.items() if value}
        found = []
        for record in reversed(context.audit.kept):
            if all(getattr(record, name) == value for name, value in wanted.items()):
                found.append({"type": record.type, **record.model_dump(mode="json")})
                if len(found) == limit:
                    break
        return {"records": found}
