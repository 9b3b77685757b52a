"""The signal by which a job is asked to leave."""

from __future__ import annotations

import signal

from shared.classad import ClassAd


def kill_signal(job: ClassAd, why: str) -> int:
    """The signal that asks a job to leave: RemoveKillSig, HoldKillSig or KillSig; SIGTERM unless given."""
    first = {"remove": "RemoveKillSig", "hold": "HoldKillSig"}.get(why, "KillSig")
    for name in (first, "KillSig"):
        value = job.eval(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65:
            return value
        if isinstance(value, str):
            full = value.upper() if value.upper().startswith("SIG") else f"SIG{value.upper()}"
            if full in signal.Signals.__members__:
                return signal.Signals[full].value
    return signal.SIGTERM.value
