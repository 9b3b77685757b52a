"""What an administrator orders daemons to do, through a gateway, which has checked who asks.

Those called `daemon.*` every daemon takes at its own inbox (`<subsystem>.<name>`), those called `machine.*` a startd.
A daemon takes orders of gateways only; a startd is told to drain, and to do so no more, by defrag too.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from shared.messages.base import Large, Message, message

#: How an end is made. graceful: what runs keeps the time it was promised. fast: at once. peaceful: when it is done.
How = Literal["graceful", "fast", "peaceful"]
#: What a startd does when everything has left a drained machine.
Afterwards = Literal["nothing", "resume", "exit", "restart"]


@message
class Reconfigure(Message):
    """Read the configuration again."""

    type: ClassVar[str] = "daemon.reconfigure"
    by: str = ""  # whom the gateway knows the asker as, here and below


@message
class Reconfigured(Message):
    """What that has changed: names of knobs and macros whose value is another than before."""

    type: ClassVar[str] = "daemon.reconfigured"
    changed: list[str] = []
    at_start: list[str] = []  # those of them that a daemon reads only as it starts: they want a restart
    warnings: list[str] = []


@message
class AskConfig(Message):
    """What a daemon's configuration says, as it goes by it at this moment."""

    type: ClassVar[str] = "daemon.config"
    names: list[str] = []
    pattern: str = ""  # a shell pattern of names: what is set that fits; with neither everything that is set
    health: bool = False  # also how the daemon does, which one of an earlier release leaves out


@message
class ConfigTold(Large):
    """One map for each macro: name, value (null: not defined), raw, file, line, template, default, error. Of secrets
    it is only told that they are set."""

    type: ClassVar[str] = "daemon.config-told"
    macros: list[dict[str, Any]] = []
    health: dict[str, Any] = {}  # where that was asked for: shared.daemon.health_told


@message
class SetConfig(Message):
    """Set and unset macros of the configuration (`config-val -set`, `-rset`): all of them or none. They take effect
    with the next reconfigure, or the next start."""

    type: ClassVar[str] = "daemon.set-config"
    set: dict[str, str] = {}  # name, perhaps with a scope before it (SCHEDD.X) -> text, with its macros unexpanded
    unset: list[str] = []
    persistent: bool = False  # for good; else until the daemon restarts
    by: str = ""
    level: str = ""  # of who asks, as the gateway knows it: for SETTABLE_ATTRS_<LEVEL>


@message
class Restart(Message):
    """End in good order, and be started again."""

    type: ClassVar[str] = "daemon.restart"
    by: str = ""


@message
class SwitchOff(Message):
    """Do nothing more until switched on again, also over restarts."""

    type: ClassVar[str] = "daemon.off"
    how: How = "graceful"
    reason: str = ""
    by: str = ""


@message
class SwitchOn(Message):
    type: ClassVar[str] = "daemon.on"
    by: str = ""


@message
class OrderTaken(Message):
    """The order is carried out, or will be for certain."""

    type: ClassVar[str] = "daemon.order-taken"
    said: str = ""  # what that means, for people


@message
class Drain(Message):
    """Let all slots become empty, and take no further jobs. Asked again with the same `request_id` it is answered as
    before."""

    type: ClassVar[str] = "machine.drain"
    request_id: str  # DrainRequestId, by which the draining can be cancelled
    how: Literal["graceful", "quick", "fast"] = "graceful"
    # graceful: jobs keep their retirement time. quick: none, but time to leave by themselves. fast: no time at all.
    reason: str = ""
    on_completion: Afterwards = "nothing"
    check: str = ""  # a ClassAd expression that must be true of every slot, or nothing is drained; empty: true
    start: str = ""  # START while the machine is drained, for jobs that may run meanwhile; empty: none may
    by: str = ""


@message
class CancelDrain(Message):
    type: ClassVar[str] = "machine.cancel-drain"
    request_id: str = ""  # empty: whichever there is
    by: str = ""


@message
class Vacate(Message):
    """End the claims of slots: what runs on them leaves, without retirement."""

    type: ClassVar[str] = "machine.vacate"
    slots: list[str] = []  # names; none: all
    how: Literal["graceful", "fast"] = "graceful"
    by: str = ""


@message
class Vacated(Large):
    type: ClassVar[str] = "machine.vacated"
    slots: dict[str, str] = {}  # by name: what becomes of it, for people
    unknown: list[str] = []  # names of no slot here


@message
class UpdateMachineAd(Message):
    """Show these attributes in the ads of all slots until the startd ends."""

    type: ClassVar[str] = "machine.update-ad"
    attributes: bytes = b""  # packed ad
    removed: list[str] = []  # set so before, and to be shown as the startd has them again
    by: str = ""
