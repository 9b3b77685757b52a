"""Administrators' orders to a machine: drain it, vacate its slots, switch it off and on, set attributes of its ads
(spec rows TLS-06, TLS-07, TLS-09, TLS-11). What that means for its slots the slot manager decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.startd.ads.admin_attributes import AdminAttributes
from services.startd.context import Component, Handler, StartdContext
from services.startd.core.slots.drain import Completion, DrainMode, OffMode
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.requests import Refused
from services.startd.exec.vm.launcher import VmLauncher
from shared.classad import ClassAd
from shared.messages.base import Envelope, Failure, Message
from shared.messages.orders import (
    CancelDrain,
    Drain,
    OrderTaken,
    SwitchOff,
    SwitchOn,
    UpdateMachineAd,
    Vacate,
    Vacated,
)

#: Names of attributes that an answer tells.
_TOLD: Final = 20
#: What follows a draining, for people.
_AFTERWARDS: Final = {
    Completion.NOTHING: "it stays so until `roost undrain`",
    Completion.RESUME: "it takes jobs again when it is empty",
    Completion.EXIT: "it is off when it is empty, until `roost on`",
    Completion.RESTART: "it restarts when it is empty",
}
_OFF: Final = {
    OffMode.PEACEFUL: "what runs may end",
    OffMode.GRACEFUL: "what runs keeps the time it was promised",
    OffMode.FAST: "what runs is killed",
}


class AdminRpc(Component):
    """Answers administrators. Each order is answered when what it says is written down."""

    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._updates = AdminAttributes()
        self._looks = startd.publisher.advertiser.start_time * 1000
        startd.ads.add_on_top("update-ad", lambda slot, ad: {"RoostLook": self._looks, **self._updates.attributes})

    def reread(self) -> None:
        self._look()

    def _look(self) -> None:
        """What slots accept may be another: the negotiator looks at them again when this number is."""
        self._looks += 1
        self.startd.publisher.attributes_changed(urgent=True)

    def handlers(self) -> Mapping[type[Message], Handler]:
        answers: dict[type[Message], Callable[[Any], Message]] = {
            Drain: self._drain,
            CancelDrain: self._cancel,
            Vacate: self._vacate,
            SwitchOff: self._switch_off,
            SwitchOn: self._switch_on,
            UpdateMachineAd: self._update,
        }

        def handler(answer: Callable[[Any], Message]) -> Handler:
            async def handle(envelope: Envelope) -> Message:
                body: Any = envelope.body
                told = answer(body)
                log = self.startd.context.log
                if isinstance(told, Failure):
                    log.warning("order_refused", order=body.type, by=body.by[:200], reason=told.reason)
                else:
                    log.info("ordered", order=body.type, by=body.by[:200])
                return told

            return handle

        return {kind: handler(answer) for kind, answer in answers.items()}

    def on_changes(self, changes: SlotEffects) -> None:
        if changes.completed in (Completion.EXIT, Completion.RESTART):
            self.startd.background.spawn(self._finish(changes.completed), "drained")

    async def _finish(self, completion: Completion) -> None:
        """The machine is empty, and the draining was to end the daemon."""
        startd = self.startd
        startd.context.log.info("drained", then=str(completion))
        if completion is Completion.EXIT:
            # It stays, and does nothing: its supervisor would start it again.
            effects = startd.slot_manager.off(OffMode.GRACEFUL, startd.now())
            effects.add(startd.slot_manager.cancel_drain("", startd.now())[1])
            startd.effects.carry_out(effects)
            return
        startd.context.again = True
        startd.context.stopping.set()

    # -- the orders

    def _drain(self, body: Drain) -> Message:
        how, completion = DrainMode(body.how), Completion(body.on_completion)
        refused, effects = self.startd.slot_manager.drain(
            body.request_id,
            now=self.startd.now(),
            how=how,
            reason=body.reason or f"drained by {body.by or 'the administrator'}",
            completion=completion,
            check=body.check,
            aligned=self.startd.settings.drain_aligned,
            start=body.start or (self.startd.settings.draining_start if how is DrainMode.GRACEFUL else ""),
        )
        return self._answer(
            effects, refused, f"draining ({how}), request id {body.request_id}; {_AFTERWARDS[completion]}"
        )

    def _cancel(self, body: CancelDrain) -> Message:
        was = self.startd.slot_manager.machine_orders.drain
        refused, effects = self.startd.slot_manager.cancel_drain(body.request_id, self.startd.now())
        return self._answer(effects, refused, "not drained any more" if was is not None else "it is not being drained")

    def _switch_off(self, body: SwitchOff) -> Message:
        startd, how = self.startd, OffMode(body.how)
        effects = startd.slot_manager.off(how, startd.now())
        now = startd.slot_manager.machine_orders.off or how
        return self._answer(effects, None, f"it takes no jobs until `roost on`; {_OFF[now]}")

    def _switch_on(self, body: SwitchOn) -> Message:
        was = self.startd.slot_manager.machine_orders.off
        effects = self.startd.slot_manager.on(self.startd.now())
        if was is None:
            return self._answer(effects, None, "it is on already")
        drained = self.startd.slot_manager.machine_orders.drain is not None
        return self._answer(effects, None, "it is on, but is being drained" if drained else "it is on")

    def _vacate(self, body: Vacate) -> Message:
        startd, manager = self.startd, self.startd.slot_manager
        told: dict[str, str] = {}
        unknown, effects = [], SlotEffects()
        for name in body.slots or [""]:
            before = {
                s.name: str(s.condition) for s in manager.slots.values() if not name or name in (s.name, s.parent)
            }
            refused, changed = manager.vacate_slot(name, graceful=body.how == "graceful", now=startd.now())
            effects.add(changed)
            if refused is not None:
                unknown.append(name)
            for slot, condition in before.items():
                after = manager.slots.get(slot)
                if after is None or str(after.condition) != condition:
                    told[slot] = "vacated" if after is None or after.claim is None else str(after.condition)
        startd.effects.carry_out(effects)
        return Vacated(slots=told, unknown=unknown)

    def _answer(self, effects: SlotEffects, refused: Refused | None, said: str) -> Message:
        self.startd.effects.carry_out(effects)
        if refused is not None:
            return Failure(code="refused", reason=refused.reason)
        return OrderTaken(said=said)

    def _update(self, body: UpdateMachineAd) -> Message:
        vms = self.startd.launchers.get("vm")
        try:
            ad = ClassAd.unpack(body.attributes).check() if body.attributes else ClassAd()
            # Virtual machines can run here again (VMU-06). Whether they do is the startd's own word from then on.
            mended = isinstance(vms, VmLauncher) and bool(vms.rules.kind) and ad.eval("HasVM") is True
            if mended:
                del ad["HasVM"]
            self._updates.apply(ad, body.removed)
        except ValueError as error:
            return Failure(code="refused", reason=f"the attributes can not be taken: {error}")
        if isinstance(vms, VmLauncher) and mended:
            vms.mended()
        self._look()
        self.startd.look()
        names = sorted(self._updates.attributes)
        told = ", ".join(names[:_TOLD]) + (f" and {len(names) - _TOLD} more" if len(names) > _TOLD else "")
        said = f"set by hand: {told}" if names else "nothing is set by hand"
        return OrderTaken(said=f"virtual machines may run here again; {said}" if mended else said)
