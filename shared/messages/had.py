"""Between a HAD and the negotiator it controls (inbox `negotiator.<name>`, HAD_CONTROLLEE)."""

from __future__ import annotations

from typing import ClassVar

from shared.messages.base import Message, message


@message
class Lead(Message):
    """Be the active negotiator under this epoch for `lease_s` seconds from now. Repeated well before the lease ends; a
    negotiator whose lease ran out stops deciding by itself, whoever may still hear it."""

    type: ClassVar[str] = "had.lead"
    had: str
    epoch: int
    lease_s: float


@message
class StepDown(Message):
    """Cease to be the active negotiator now: finish nothing, hand over (answer: Following with active False)."""

    type: ClassVar[str] = "had.step-down"
    had: str
    epoch: int
    reason: str


@message
class Following(Message):
    """What the negotiator says of itself; also tells the HAD that it is not hung."""

    type: ClassVar[str] = "had.following"
    negotiator: str
    active: bool
    epoch: int
    cycle: int
