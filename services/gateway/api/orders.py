"""The doors for administrators' orders to daemons: finds whom they mean, asks each, tells what each answered."""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field

from services.gateway.api.examples import ORDERED
from services.gateway.api.guard import Guard
from services.gateway.api.wire import ad_of, expression
from services.gateway.authorization import Identity
from services.gateway.caller import note
from services.gateway.pool import NoSuchDaemon, PoolView
from services.gateway.targets import MY_TYPES, OFF, PROJECTION, Target, addressed, choose, in_turns, of_slots, read
from shared.bus.api import Bus, NobodyThere, RemoteFailure
from shared.classad import ClassAd
from shared.errors import RetryableError, RoostError
from shared.messages.base import Message, new_id
from shared.messages.orders import (
    Afterwards,
    CancelDrain,
    ConfigTold,
    Drain,
    How,
    OrderTaken,
    Reconfigure,
    Reconfigured,
    Restart,
    SwitchOff,
    SwitchOn,
    UpdateMachineAd,
    Vacate,
    Vacated,
)

#: Daemons that are asked at the same time.
AT_ONCE = 64
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
class Post:
    """How orders reach daemons. own: the inbox and name of this gateway."""

    bus: Bus
    pool: PoolView
    own: str

    async def find(
        self, asked: Daemons, kinds: Sequence[str] = (), *, silent: bool = False
    ) -> tuple[list[Target], bool]:
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
        known.append(Target("GATEWAY", self.own.partition(".")[2], self.own))
        if asked.constraint:
            fit = read(await self._ads(kinds, asked.constraint))
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

    async def _known(self) -> list[Target]:
        return read(await self._ads((), ""))

    async def _ads(self, subsystems: Sequence[str], constraint: str) -> list[ClassAd]:
        types = [MY_TYPES[one] for one in subsystems or MY_TYPES if one in MY_TYPES]
        return [
            ClassAd.unpack(packed)
            async for page in self.pool.ads([*types, OFF], constraint=constraint, projection=PROJECTION)
            for packed in page
        ]

    async def tell(
        self, targets: Sequence[Target], order: Callable[[Target], Message], *, begin: bool = False, known: bool = True
    ) -> list[dict[str, Any]]:
        """What each of them answers. One that can not be reached keeps the order from nobody else."""
        room = asyncio.Semaphore(AT_ONCE)

        async def ask(target: Target) -> dict[str, Any] | None:
            told: dict[str, Any] = {"subsystem": target.subsystem, "name": target.name}
            async with room:
                try:
                    answer = await self.bus.call(target.inbox, order(target), timeout=PATIENCE_S if known else 5.0)
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


def order_doors(app: FastAPI, post: Post, may: Guard) -> None:
    _daemon_doors(app, post, may)
    _machine_doors(app, post, may)


def _daemon_doors(app: FastAPI, post: Post, may: Guard) -> None:
    @app.post("/v1/daemons/reconfig", responses=ORDERED, tags=["daemons"])
    async def reconfig(asked: Daemons, identity: Annotated[Identity, Depends(may("reconfig"))]) -> list[dict[str, Any]]:
        """Have daemons read their configuration again. Each tells what has changed, and what waits for a restart."""
        targets, known = await post.find(asked)
        return await post.tell(targets, lambda _: Reconfigure(by=identity.user), known=known)

    @app.post("/v1/daemons/restart", responses=ORDERED, tags=["daemons"])
    async def restart(asked: Daemons, identity: Annotated[Identity, Depends(may("restart"))]) -> list[dict[str, Any]]:
        """Have daemons end in good order and start again. Running jobs go on."""
        targets, known = await post.find(asked)
        return await post.tell(targets, lambda _: Restart(by=identity.user), known=known)

    @app.post("/v1/daemons/off", responses=ORDERED, tags=["daemons"])
    async def off(asked: Ending, identity: Annotated[Identity, Depends(may("off"))]) -> list[dict[str, Any]]:
        """Switch daemons off, startds after their jobs have left as `how` says. They stay off over restarts. Gateways
        and collectors are left on unless they are asked for: who is off is found and told by them."""
        targets, known = await post.find(asked)
        if not asked.subsystems:
            targets = [target for target in targets if target.subsystem not in ("GATEWAY", "COLLECTOR")]
        message = SwitchOff(how=asked.how, reason=asked.reason, by=identity.user)
        return await post.tell(targets, lambda _: message, known=known)

    @app.post("/v1/daemons/on", responses=ORDERED, tags=["daemons"])
    async def on(asked: Daemons, identity: Annotated[Identity, Depends(may("on"))]) -> list[dict[str, Any]]:
        """Switch daemons on again."""
        targets, known = await post.find(asked, silent=True)  # the ad of who minds its place may be on its way
        minded = {(target.subsystem, target.name) for target in targets if target.off} if known else set()
        # So may the ad of a daemon that was switched off a moment ago still be there.
        targets = [t for t in targets if t.off or (t.subsystem, t.name) not in minded]
        return await post.tell(targets, lambda _: SwitchOn(by=identity.user), begin=True, known=known)


def _machine_doors(app: FastAPI, post: Post, may: Guard) -> None:
    @app.post("/v1/machines/drain", responses=ORDERED, tags=["machines"])
    async def drain(asked: Draining, identity: Annotated[Identity, Depends(may("drain"))]) -> list[dict[str, Any]]:
        """Let machines become empty, and take no further jobs. `request_id` names the draining."""
        for what, text in (("check", asked.check), ("start", asked.start)):
            expression(what, text)
        targets, known = await post.find(asked, ["STARTD"])
        message = Drain(
            request_id=new_id(),
            how=asked.how,
            reason=asked.reason,
            on_completion=asked.on_completion,
            check=asked.check,
            start=asked.start,
            by=identity.user,
        )
        found = await post.tell(targets, lambda _: message, known=known)
        return [told | ({"request_id": message.request_id} if told["done"] else {}) for told in found]

    @app.post("/v1/machines/cancel-drain", responses=ORDERED, tags=["machines"])
    async def cancel(asked: Cancelling, identity: Annotated[Identity, Depends(may("drain"))]) -> list[dict[str, Any]]:
        """End a draining: the machines take jobs again."""
        targets, known = await post.find(asked, ["STARTD"])
        message = CancelDrain(request_id=asked.request_id, by=identity.user)
        return await post.tell(targets, lambda _: message, known=known)

    @app.post("/v1/machines/vacate", responses=ORDERED, tags=["machines"])
    async def vacate(asked: Vacating, identity: Annotated[Identity, Depends(may("vacate"))]) -> list[dict[str, Any]]:
        """End the claims of slots: of machines, or of those slots that are named. Their jobs start again elsewhere."""
        targets, known = await post.find(asked, ["STARTD"])
        return await post.tell(
            targets, lambda target: Vacate(slots=target.slots, how=asked.how, by=identity.user), known=known
        )

    @app.post("/v1/machines/update-ad", responses=ORDERED, tags=["machines"])
    async def update(
        asked: NewAttributes, identity: Annotated[Identity, Depends(may("update-machine-ad"))]
    ) -> list[dict[str, Any]]:
        """Show attributes in the ads of all slots of machines, until their startd ends."""
        ad = ad_of("attributes", asked.attributes)
        targets, known = await post.find(asked, ["STARTD"])
        message = UpdateMachineAd(attributes=ad.pack(), removed=asked.removed, by=identity.user)
        return await post.tell(targets, lambda _: message, known=known)


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


def _nobody(known: Sequence[Target], kinds: Sequence[str], missing: Sequence[str], constraint: str) -> str:
    what = " or ".join(kind.lower() for kind in kinds) or "daemon"
    if constraint and not missing:
        return f"no ad of a {what} fits the constraint {constraint[:200]}"
    there = sorted({target.name for target in known if not kinds or target.subsystem in kinds})
    listed = ", ".join(there[:10]) + (f" and {len(there) - 10} more" if len(there) > 10 else "") or "none"
    named = ", ".join(name[:80] for name in missing[:5])
    return f"there is no {what} {named}".rstrip() + f" in the pool; known: {listed}"
