"""Routes to the accountant: priorities of submitters, accounting groups with their quotas."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from services.gateway.auth.caller import note
from services.gateway.core.authorization import Identity
from services.gateway.core.fair_share import tree
from services.gateway.routes.context import AD_STREAM, DONE, RouteContext, example
from services.gateway.serialization import ad_response
from shared.daemon.readable_ads import checked, of_each
from shared.messages.base import Ack
from shared.messages.negotiation import AccountsImported, ImportAccounts, ImportedAccount, SetPriority

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


class GroupQuota(BaseModel):
    """One of the two."""

    quota: float | None = Field(default=None, allow_inf_nan=False, description="in (weighted) slots")
    dynamic_quota: float | None = Field(
        default=None, allow_inf_nan=False, description="as a part of the quota of the group above, 0 to 1"
    )
    negotiator: str = Field(default="", max_length=1000, description="which one, where there are several")


class AccountsToImport(BaseModel):
    accounts: list[ImportedAccount] = Field(
        max_length=5000, description="whole records: priority, factor, usage (slot-seconds), times (s since 1970)"
    )
    until: float = Field(
        default=0.0, ge=0.0, allow_inf_nan=False, description="when they were charged last: priorities decay from there"
    )
    replacing: bool = Field(default=False, description="also where something is known here already")
    dry_run: bool = Field(default=False, description="only say what would become of them")
    negotiator: str = Field(default="", max_length=1000, description="which one, where there are several")


#: What a change of a quota is called on the bus; these have routes of their own.
_QUOTAS = ("quota", "dynamic-quota", "no-quota")
GroupName = Annotated[str, Path(max_length=1000, description="of GROUP_NAMES, such as physics.hep")]


def add_routes(app: FastAPI, context: RouteContext) -> None:
    async def accounting_ads(negotiator: str, submitters: list[str], since: float) -> AsyncIterator[list[bytes]]:
        async for page in context.pool.accounting_ads(await context.pool.negotiator(negotiator), submitters, since):
            yield page

    async def ask(
        negotiator: str, identity: Identity, submitter: str, what: str, value: float | None, duration_s: float = 0.0
    ) -> None:
        chosen = await context.pool.negotiator(negotiator)
        change = SetPriority(
            submitter=submitter,
            what=what,
            value=value,
            duration_s=duration_s,
            negotiator=chosen.shard,
            by=identity.user,
        )
        await context.pool.ask_negotiator(chosen, change, Ack)

    @app.get(
        "/v1/priorities",
        dependencies=[Depends(context.guards.may("priorities", heavy=True))],
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
        return await ad_response(request, accounting_ads(negotiator, submitter, active_since))

    @app.get(
        "/v1/groups",
        dependencies=[Depends(context.guards.may("priorities", heavy=True))],
        responses=example(
            {
                "groups": [
                    {
                        "name": "physics",
                        "config_quota": 100.0,
                        "effective_quota": 120.0,
                        "in_use": 110.0,
                        "requested": 40.0,
                        "quota_is_set": False,
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
        those of the configuration, but for those that were set (`quota_is_set`)."""
        ads = [ad async for page in accounting_ads(negotiator, [], 0.0) for ad in await of_each(page, checked)]
        return {"groups": tree(ads)}

    @app.post("/v1/priorities/{submitter:path}", responses=DONE, tags=["priorities"])
    async def set_priority(
        submitter: Annotated[str, Path(max_length=1000, description="in full: group.alice@example.org; empty: all")],
        change: PriorityChange,
        identity: Annotated[Identity, Depends(context.guards.may("priorities.set"))],
    ) -> dict[str, str]:
        """Change one thing about a submitter; for all of them, without a name in the path, `reset-all`."""
        note(submitter=submitter, **change.model_dump())
        if change.what in _QUOTAS:
            raise HTTPException(400, "a group's quota has a door of its own: PUT /v1/groups/GROUP/quota")
        await ask(change.negotiator, identity, submitter, change.what, change.value, change.duration_s)
        return {"status": "done"}

    @app.post(
        "/v1/accounts/import",
        responses=example({"taken": ["alice@example.org"], "known": [], "usual": [], "left": {}}),
        tags=["priorities"],
    )
    async def import_accounts(
        asked: AccountsToImport, identity: Annotated[Identity, Depends(context.guards.may("priorities.set"))]
    ) -> dict[str, Any]:
        """Take in whole records of another pool's accountant, all or none. Names come back by what became of them:
        taken; known (something of them is here, which stays); usual (they say nothing that a new submitter would not
        have); left, with the reason."""
        note(accounts=len(asked.accounts), **asked.model_dump(exclude={"accounts"}))
        chosen = await context.pool.negotiator(asked.negotiator)
        wish = ImportAccounts.model_validate({**asked.model_dump(), "negotiator": chosen.shard, "by": identity.user})
        answer = await context.pool.ask_negotiator(chosen, wish, AccountsImported, timeout=60.0)
        return answer.model_dump()

    @app.put("/v1/groups/{group:path}/quota", responses=DONE, tags=["priorities"])
    async def set_quota(
        group: GroupName, asked: GroupQuota, identity: Annotated[Identity, Depends(context.guards.may("quotas.set"))]
    ) -> dict[str, str]:
        """Give a group another quota than the configuration's, for good: the next cycle goes by it, and whichever
        negotiator leads."""
        note(group=group, **asked.model_dump())
        if (asked.quota is None) == (asked.dynamic_quota is None):
            raise HTTPException(400, "give either quota or dynamic_quota")
        if asked.quota is not None:
            await ask(asked.negotiator, identity, group, "quota", asked.quota)
        else:
            await ask(asked.negotiator, identity, group, "dynamic-quota", asked.dynamic_quota)
        return {"status": "done"}

    @app.delete("/v1/groups/{group:path}/quota", responses=DONE, tags=["priorities"])
    async def unset_quota(
        group: GroupName,
        identity: Annotated[Identity, Depends(context.guards.may("quotas.set"))],
        negotiator: OneNegotiator = "",
    ) -> dict[str, str]:
        """Give a group the configuration's quota again."""
        note(group=group, negotiator=negotiator)
        await ask(negotiator, identity, group, "no-quota", None)
        return {"status": "done"}
