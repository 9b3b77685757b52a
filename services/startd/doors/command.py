"""Administrators' orders to a machine: drain it, vacate its slots, switch it off and on, set attributes of its ads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from services.startd.ads.updates import Updates
from services.startd.parts import Handler, Inside, Part
from shared.classad import ClassAd
from shared.daemon.orders import stranger
from shared.messages.base import Envelope, Failure, Message
from shared.messages.orders import OrderTaken, UpdateMachineAd

#: Names of attributes that an answer tells.
_TOLD: Final = 20


class Command(Part):
    """See the module. Orders come from gateways only; each is answered when what it says is written down."""

    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self._updates = Updates()
        inside.showcase.add_on_top("update-ad", lambda slot, ad: self._updates.attributes)

    def handlers(self) -> Mapping[type[Message], Handler]:
        answers: dict[type[Message], Callable[[Any], Message]] = {UpdateMachineAd: self._update}

        def handler(answer: Callable[[Any], Message]) -> Handler:
            async def handle(envelope: Envelope) -> Message:
                body: Any = envelope.body
                if (refused := stranger(envelope)) is not None:
                    return refused
                self.inside.context.log.info("ordered", order=body.type, by=body.by[:200])
                return answer(body)

            return handle

        return {kind: handler(answer) for kind, answer in answers.items()}

    def _update(self, body: UpdateMachineAd) -> Message:
        try:
            ad = ClassAd.unpack(body.attributes).check() if body.attributes else ClassAd()
            self._updates.apply(ad, body.removed)
        except ValueError as error:
            return Failure(code="refused", reason=f"the attributes can not be taken: {error}")
        self.inside.changed(urgent=True)
        self.inside.look()
        names = sorted(self._updates.attributes)
        told = ", ".join(names[:_TOLD]) + (f" and {len(names) - _TOLD} more" if len(names) > _TOLD else "")
        return OrderTaken(said=f"set by hand: {told}" if names else "nothing is set by hand")
