"""When a job with `deferral_time` is started on its slot: at that time, or within its window after (SUB-02). Pure."""

from __future__ import annotations

import math
from typing import Final

from services.startd.core.run.failures import Fault
from shared.classad import ClassAd

MISSED: Final = "Job missed deferred execution time"


def wait_s(job: ClassAd, now: float) -> float:
    """How long a job that is ready has to wait still; 0: it starts. now: the wall clock of this machine. Raises
    RunFailed for one that comes too late, or whose time can not be read."""
    if "DeferralTime" not in job:
        return 0.0
    at, window = job.eval("DeferralTime", None, now), job.eval("DeferralWindow", None, now)
    if not isinstance(at, int | float) or isinstance(at, bool) or not math.isfinite(at) or at <= 0:
        text = (job.text("DeferralTime") or "")[:200]
        raise Fault.MISSED_TIME.failure(f"Invalid deferred execution time: {text}")
    grace = window if isinstance(window, int | float) and window > 0 else 0
    if now - at > max(grace, SLACK_S):
        raise Fault.MISSED_TIME.failure(f"{MISSED}: it was ready {now - at:.0f} seconds after, and may be {grace:g}")
    return max(0.0, at - now)


#: Clocks are set while a job waits: look at them as often (s).
AT_ONCE_S: Final = 60.0
#: HTCondor counts whole seconds: a job that is ready within the very second is not late.
SLACK_S: Final = 1.0
