"""Routes for administrators: commands to daemons and machines (each that is meant is asked, and its answer passed on),
the configuration that daemons run with, and dead letters."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgpack
from fastapi import Depends, FastAPI, HTTPException, Query
from pydantic import BaseModel, Field

from services.gateway.auth.caller import note, person
from services.gateway.core.authorization import Identity
from services.gateway.core.command_targets import (
    MY_TYPES,
    OFF,
    PROJECTION,
    CommandTarget,
    addressed,
    choose,
    in_turns,
    of_slots,
    read,
)
from services.gateway.pool_client import NoSuchDaemon, PoolClient
from services.gateway.routes.context import ORDERED, RouteContext, example
from services.gateway.serialization import ad_of, expression
from shared.bus.api import Bus, BusUnavailable, NobodyThere, RemoteFailure
from shared.classad import ClassAd
from shared.compression import decompress
from shared.daemon.config_query import printable
from shared.errors import RetryableError, RoostError
from shared.messages.base import Message, new_id
from shared.messages.orders import (
    Afterwards,
    AskConfig,
    CancelDrain,
    ConfigTold,
    Drain,
    How,
    OrderTaken,
    Reconfigure,
    Reconfigured,
    Restart,
    SetConfig,
    SwitchOff,
    SwitchOn,
    UpdateMachineAd,
    Vacate,
    Vacated,
)

#: Daemons that are asked at the same time.
AT_ONCE = 64
#: Names of which the broker is asked who minds the place of their daemons.
MOST_LOOKED = 50
#: A daemon that reads its configuration, or writes down what it was told, may take a while on a busy machine.
PATIENCE_S = 30.0
#: Longest expression, reason or name.
MOST_TEXT = 10_000
MOST_NAMES = 10_000

Subsystem = Literal[
    "STARTD",
    "SCHEDD",
    "NEGOTIATOR",
    "HAD",
    "COLLECTOR",
    "JOURNAL",
    "GATEWAY",
    "DEFRAG",
    "ROOSTER",
    "GANGLIAD",
    "ADSTASH",
    "REGISTRAR",
]
Text = Annotated[str, Field(max_length=MOST_TEXT)]


class Daemons(BaseModel):
    """Who is meant: all, or those of these names (daemons, machines), or whose ad fits a constraint."""

    subsystems: list[Subsystem] = Field(default=[], description="only these; none: every kind")
    names: list[Text] = Field(default=[], max_length=MOST_NAMES, description="of daemons, machines or slots")
    all: bool = Field(default=False, description="everybody")
    constraint: Text = Field(default="", description="ClassAd expression over the daemons' ads")


class Ending(Daemons):
    how: How = "graceful"
    reason: Text = ""


class Draining(Daemons):
    how: Literal["graceful", "quick", "fast"] = "graceful"
    reason: Text = ""
    on_completion: Afterwards = "nothing"
    check: Text = Field(default="", description="must be true of every slot, or the machine is not drained")
    start: Text = Field(default="", description="START while older jobs still run; empty: no job starts")


class Cancelling(Daemons):
    request_id: Text = ""


class Vacating(Daemons):
    how: Literal["graceful", "fast"] = "graceful"


class NewAttributes(Daemons):
    attributes: dict[Text, Text] = Field(default={}, max_length=1000, description="name -> ClassAd expression")
    removed: list[Text] = Field(default=[], max_length=1000)


@dataclass(slots=True)
class DaemonCommands:
    """How orders reach daemons. own: the inbox and name of this gateway."""

    bus: Bus
    pool: PoolClient
    own: str

    async def find(
        self, asked: Daemons, kinds: Sequence[str] = (), *, silent: bool = False
    ) -> tuple[list[CommandTarget], bool]:
        """Who is meant, and whether they are known to be there. silent: also those of whom nobody has heard.
        Raises NoSuchDaemon, RemoteFailure."""
        note(**asked.model_dump())
        kinds = kinds or asked.subsystems
        if not (asked.all or asked.names or asked.constraint):
            raise RemoteFailure("bad-request", "say who is meant: names, a constraint, or all")
        try:
            known = await self._known()
        except RetryableError:
            if not asked.names or asked.constraint:
                raise
            return addressed(kinds, asked.names), False
        known.append(CommandTarget("GATEWAY", self.own.partition(".")[2], self.own))
        if asked.constraint:
            fit = await asyncio.to_thread(read, await self._ads(kinds, asked.constraint))
            inboxes = {target.inbox for target in fit}
            known = [target for target in known if target.inbox in inboxes]
            slots = [slot for target in fit for slot in target.slots]
            targets = of_slots(known, slots) + [target for target in known if target.subsystem != "STARTD"]
            targets, missing = choose(targets, names=asked.names) if asked.names else (targets, [])
        else:
            targets, missing = choose(known, subsystems=kinds, names=asked.names, everybody=asked.all)
        if (missing or not targets) and silent and asked.names and not asked.constraint:
            return addressed(kinds, asked.names), False
        if missing or not targets:
            raise NoSuchDaemon(_nobody(known, kinds, missing, asked.constraint))
        return targets, True

    async def minding(self, asked: Daemons, found: Sequence[CommandTarget]) -> list[CommandTarget]:
        """Who else minds the place of a daemon of these names, which is off, and is at the broker, though its ad is on
        its way still. found: those whose ads are there. Of more than MOST_LOOKED names the first are looked for."""
        if not asked.names or asked.constraint:
            return []
        names = dict.fromkeys([*asked.names, *(target.name for target in found)])
        there = {target.inbox for target in found}
        others = [
            target
            for target in addressed(asked.subsystems, list(names)[:MOST_LOOKED])
            if target.off and target.inbox not in there
        ]
        try:
            served = await self.bus.served([target.inbox for target in others])
        except BusUnavailable:
            return []
        return [target for target in others if served.get(target.inbox)]

    async def _known(self) -> list[CommandTarget]:
        return await asyncio.to_thread(read, await self._ads((), ""))

    async def _ads(self, subsystems: Sequence[str], constraint: str) -> list[ClassAd]:
        types = [MY_TYPES[one] for one in subsystems or MY_TYPES if one in MY_TYPES]
        return await self.pool.read_ads([*types, OFF], constraint=constraint, projection=PROJECTION)

    async def send(
        self,
        targets: Sequence[CommandTarget],
        order: Callable[[CommandTarget], Message],
        *,
        begin: bool = False,
        known: bool = True,
    ) -> list[dict[str, Any]]:
        """What each of them answers. One that can not be reached keeps the order from nobody else."""
        room = asyncio.Semaphore(AT_ONCE)

        async def ask(target: CommandTarget) -> dict[str, Any] | None:
            told: dict[str, Any] = {"subsystem": target.subsystem, "name": target.name}
            async with room:
                try:
                    patience = PATIENCE_S if known else 5.0
                    answer = await self.bus.call(target.inbox, order(target), timeout=patience, person=person())
                except RemoteFailure as refusal:
                    return told | {"done": False, "code": refusal.code, "said": refusal.reason}
                except NobodyThere as error:
                    return told | {"done": False, "code": "unavailable", "said": str(error)} if known else None
                except RoostError as error:
                    return told | {"done": False, "code": "unavailable", "said": str(error) or type(error).__name__}
            return told | {"done": True} | _shown(answer)

        found: list[dict[str, Any]] = []
        for turn in in_turns(targets, begin=begin):
            found += [told for told in await asyncio.gather(*map(ask, turn)) if told is not None]
        if known:
            return found
        if not found:
            raise NoSuchDaemon("nobody of that name answers")
        # Whoever answered is whom the name meant, on or off.
        return [told for told in found if told["done"]] or found


def add_routes(app: FastAPI, context: RouteContext) -> None:
    commands = DaemonCommands(context.bus, context.pool, context.own)
    _daemon_routes(app, context, commands)
    _machine_routes(app, context, commands)
    _config_routes(app, context, commands)
    _dead_letter_routes(app, context)


def _daemon_routes(app: FastAPI, context: RouteContext, commands: DaemonCommands) -> None:
    @app.post("/v1/daemons/reconfig", responses=ORDERED, tags=["daemons"])
    async def reconfig(
        asked: Daemons, identity: Annotated[Identity, Depends(context.guards.may("reconfig"))]
    ) -> list[dict[str, Any]]:
        """Have daemons read their configuration again. Each tells what has changed, and what waits for a restart."""
        targets, known = await commands.find(asked)
        return await commands.send(targets, lambda _: Reconfigure(by=identity.user), known=known)

    @app.post("/v1/daemons/restart", responses=ORDERED, tags=["daemons"])
    async def restart(
        asked: Daemons, identity: Annotated[Identity, Depends(context.guards.may("restart"))]
    ) -> list[dict[str, Any]]:
        """Have daemons end in good order and start again. Running jobs go on."""
        targets, known = await commands.find(asked)
        return await commands.send(targets, lambda _: Restart(by=identity.user), known=known)

    @app.post("/v1/daemons/off", responses=ORDERED, tags=["daemons"])
    async def off(
        asked: Ending, identity: Annotated[Identity, Depends(context.guards.may("off"))]
    ) -> list[dict[str, Any]]:
        """Switch daemons off, startds after their jobs have left as `how` says. They stay off over restarts. Gateways
        and collectors are left on unless they are asked for: who is off is found and told by them."""
        targets, known = await commands.find(asked)
        if not asked.subsystems:
            targets = [target for target in targets if target.subsystem not in ("GATEWAY", "COLLECTOR")]
        message = SwitchOff(how=asked.how, reason=asked.reason, by=identity.user)
        return await commands.send(targets, lambda _: message, known=known)

    @app.post("/v1/daemons/on", responses=ORDERED, tags=["daemons"])
    async def on(
        asked: Daemons, identity: Annotated[Identity, Depends(context.guards.may("on"))]
    ) -> list[dict[str, Any]]:
        """Switch daemons on again."""
        targets, known = await commands.find(asked, silent=True)  # the ad of who minds its place may be on its way
        if known:
            targets = [*targets, *await commands.minding(asked, targets)]
        minded = {(target.subsystem, target.name) for target in targets if target.off} if known else set()
        # So may the ad of a daemon that was switched off a moment ago still be there.
        targets = [t for t in targets if t.off or (t.subsystem, t.name) not in minded]
        return await commands.send(targets, lambda _: SwitchOn(by=identity.user), begin=True, known=known)


def _machine_routes(app: FastAPI, context: RouteContext, commands: DaemonCommands) -> None:
    @app.post("/v1/machines/drain", responses=ORDERED, tags=["machines"])
    async def drain(
        asked: Draining, identity: Annotated[Identity, Depends(context.guards.may("drain"))]
    ) -> list[dict[str, Any]]:
        """Let machines become empty, and take no further jobs. `request_id` names the draining."""
        for what, text in (("check", asked.check), ("start", asked.start)):
            expression(what, text)
        targets, known = await commands.find(asked, ["STARTD"])
        message = Drain(
            request_id=new_id(),
            how=asked.how,
            reason=asked.reason,
            on_completion=asked.on_completion,
            check=asked.check,
            start=asked.start,
            by=identity.user,
        )
        found = await commands.send(targets, lambda _: message, known=known)
        return [told | ({"request_id": message.request_id} if told["done"] else {}) for told in found]

    @app.post("/v1/machines/cancel-drain", responses=ORDERED, tags=["machines"])
    async def cancel(
        asked: Cancelling, identity: Annotated[Identity, Depends(context.guards.may("drain"))]
    ) -> list[dict[str, Any]]:
        """End a draining: the machines take jobs again."""
        targets, known = await commands.find(asked, ["STARTD"])
        message = CancelDrain(request_id=asked.request_id, by=identity.user)
        return await commands.send(targets, lambda _: message, known=known)

    @app.post("/v1/machines/vacate", responses=ORDERED, tags=["machines"])
    async def vacate(
        asked: Vacating, identity: Annotated[Identity, Depends(context.guards.may("vacate"))]
    ) -> list[dict[str, Any]]:
        """End the claims of slots: of machines, or of those slots that are named. Their jobs start again elsewhere."""
        targets, known = await commands.find(asked, ["STARTD"])
        return await commands.send(
            targets, lambda target: Vacate(slots=target.slots, how=asked.how, by=identity.user), known=known
        )

    @app.post("/v1/machines/update-ad", responses=ORDERED, tags=["machines"])
    async def update(
        asked: NewAttributes, identity: Annotated[Identity, Depends(context.guards.may("update-machine-ad"))]
    ) -> list[dict[str, Any]]:
        """Show attributes in the ads of all slots of machines, until their startd ends."""
        ad = ad_of("attributes", asked.attributes)
        targets, known = await commands.find(asked, ["STARTD"])
        message = UpdateMachineAd(attributes=ad.pack(), removed=asked.removed, by=identity.user)
        return await commands.send(targets, lambda _: message, known=known)


def _shown(answer: Message) -> dict[str, Any]:
    """An answer as clients get it."""
    match answer:
        case Reconfigured():
            return answer.model_dump()
        case OrderTaken():
            return {"said": answer.said}
        case ConfigTold():
            return {"macros": answer.macros}
        case Vacated():
            return {"slots": answer.slots, "unknown": answer.unknown}
    return {}


def _nobody(known: Sequence[CommandTarget], kinds: Sequence[str], missing: Sequence[str], constraint: str) -> str:
    what = " or ".join(kind.lower() for kind in kinds) or "daemon"
    if constraint and not missing:
        return f"no ad of a {what} fits the constraint {constraint[:200]}"
    there = sorted({target.name for target in known if not kinds or target.subsystem in kinds})
    listed = ", ".join(there[:10]) + (f" and {len(there) - 10} more" if len(there) > 10 else "") or "none"
    named = ", ".join(name[:80] for name in missing[:5])
    return f"there is no {what} {named}".rstrip() + f" in the pool; known: {listed}"


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


def _config_routes(app: FastAPI, context: RouteContext, commands: DaemonCommands) -> None:
    @app.get(
        "/v1/config",
        dependencies=[Depends(context.guards.may("config", heavy=True))],
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
        targets, known = await commands.find(Daemons(subsystems=subsystem, names=daemon, all=not daemon))
        return await commands.send(targets, lambda _: AskConfig(names=name, pattern=pattern), known=known)

    @app.post("/v1/config", responses=ORDERED, tags=["daemons"])
    async def set_config(
        asked: NewConfig, identity: Annotated[Identity, Depends(context.guards.may("config.set"))]
    ) -> list[dict[str, Any]]:
        """Set and unset macros in the configuration of daemons: each does all of it or nothing. They take effect with
        `reconfig`. A daemon sets only what its SETTABLE_ATTRS_<LEVEL> names for the caller's level, and only where
        ENABLE_RUNTIME_CONFIG or, for good, ENABLE_PERSISTENT_CONFIG is true."""
        whom = Daemons(subsystems=asked.subsystems, names=asked.names, all=asked.all, constraint=asked.constraint)
        shown = {name: printable(name, text) for name, text in asked.set.items()}
        note(set=shown, unset=asked.unset, persistent=asked.persistent)
        targets, known = await commands.find(whom)
        order = SetConfig(
            set=asked.set,
            unset=asked.unset,
            persistent=asked.persistent,
            by=identity.user,
            level=identity.level_for("config.set").name,
        )
        return await commands.send(targets, lambda _: order, known=known)


_SECRET = ("claim_id", "claim_ids", "claims", "transfer_token", "token", "upload_token", "activation")


class Letters(BaseModel):
    ids: list[str] = Field(max_length=100_000, description="of dead letters, as they are listed")


def _dead_letter_routes(app: FastAPI, context: RouteContext) -> None:
    @app.get(
        "/v1/dead-letters",
        dependencies=[Depends(context.guards.may("dead-letters"))],
        responses=example(
            [
                {
                    "id": "019a...",
                    "at": 1763820000.5,
                    "type": "ads.update",
                    "reason": "not msgpack",
                    "exchange": "roost.ads",
                    "key": "update.Machine.node1",
                    "queue": "roost.collector",
                    "bytes": 120,
                    "body": None,
                }
            ]
        ),
        tags=["dead letters"],
    )
    async def dead_letters(
        limit: Annotated[int, Query(ge=1, le=10_000, description="at most so many")] = 100,
    ) -> list[dict[str, Any]]:
        """Messages that no handler could take, oldest first."""
        return [
            {
                "id": d.id,
                "at": d.at,
                "type": d.type,
                "reason": d.reason,
                "exchange": d.exchange,
                "key": d.key,
                "queue": d.queue,
                "bytes": len(d.data),
                "body": _peek(d.data),
            }
            for d in await context.bus.dead_letters(limit)
        ]

    @app.post(
        "/v1/dead-letters/requeue",
        dependencies=[Depends(context.guards.may("dead-letters"))],
        responses=example({"done": ["019a..."]}),
        tags=["dead letters"],
    )
    async def requeue(letters: Letters) -> dict[str, list[str]]:
        """Publish dead letters again where they came from."""
        note(ids=letters.ids)
        return {"done": await context.bus.requeue(letters.ids)}

    @app.post(
        "/v1/dead-letters/discard",
        dependencies=[Depends(context.guards.may("dead-letters"))],
        responses=example({"done": ["019a..."]}),
        tags=["dead letters"],
    )
    async def discard(letters: Letters) -> dict[str, list[str]]:
        """Drop dead letters for good."""
        note(ids=letters.ids)
        return {"done": await context.bus.discard(letters.ids)}


def _peek(data: bytes) -> Any:
    """The body of a dead letter as far as it can be read; claim ids and tokens are left out."""
    try:
        raw = msgpack.unpackb(decompress(data), strict_map_key=False)
    except Exception:  # noqa: BLE001  garbage is the usual reason for being here
        return None
    body = raw.get("body") if isinstance(raw, dict) else None
    if not isinstance(body, dict):
        return None
    return {
        k: (v if isinstance(v, str | int | float | bool | type(None)) else f"<{type(v).__name__}>")
        for k, v in body.items()
        if k not in _SECRET
    }
