"""KeepClaimIdle: how long a claim without a job is kept for the next job of its submitter (SUB-11). Pure."""

from __future__ import annotations

import math
from typing import Final

from engine.queue.jobs import Job

#: A longer KeepClaimIdle counts as this: ten years.
MAX_IDLE_S: Final = 10 * 366 * 86400.0


def idle_s(job: Job) -> float:
    """Seconds for which the claim of a run is kept when that is over and no other job takes it at once; 0: it is given
    back. What is no number, or less than 1, asks for nothing."""
    value = job.ad.eval("KeepClaimIdle")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return min(float(int(value)), MAX_IDLE_S) if value >= 1 else 0.0
