"""Wakes one machine: by ROOSTER_WAKEUP_CMD, which gets its ad on standard input, or by a wake-on-LAN packet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from shared import wake_on_lan
from shared.classad import ClassAd
from shared.errors import RoostError
from shared.subprocess_runner import ProgramFailed, clean_environment, run

#: For one command, seconds.
COMMAND_S: Final = 30.0
#: What HTCondor's files call for; where no such program is, our own packet is meant.
TOOL: Final = "condor_power"


class WakeFailed(RoostError):
    """A machine could not be woken: the text says why."""


async def wake(ad: ClassAd, command: Sequence[str]) -> None:
    """Wake the machine of this ad. Nobody answers a packet, so success only means that it was sent. Raises
    WakeFailed."""
    if not command or (os.path.basename(command[0]) == TOOL and not os.access(command[0], os.X_OK)):
        try:
            wake_on_lan.send(*wake_on_lan.of_ad(ad))
        except wake_on_lan.CanNotWake as error:
            raise WakeFailed(str(error)) from error
        return
    text = "".join(f"{name} = {ad.lookup(name)}\n" for name in ad)
    try:
        ended = await run(
            list(command), env=clean_environment(os.environ), stdin=text.encode("utf-8", "replace"), timeout_s=COMMAND_S
        )
    except ProgramFailed as error:
        raise WakeFailed(f"ROOSTER_WAKEUP_CMD: {error}") from error
    if not ended.good:
        said = ended.stderr.decode("utf-8", "replace").strip()[-400:]
        raise WakeFailed(f"{command[0]}: {ended}" + (f": {said}" if said else ""))
