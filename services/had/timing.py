"""How often a HAD looks and speaks, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A dead leader is replaced after lease_s + poll_s at the latest; a negotiator that hangs
    beside a live HAD after patience_s + lead_s + poll_s."""

    lease_s: float  # of the lead
    poll_s: float  # between looks at the lease, which renew it
    lead_s: float  # between orders to a negotiator that leads
    follow_s: float  # between orders to one that follows
    patience_s: float  # with a negotiator that does not answer
    first_s: float  # with one that just became active and loads the pool's ads


def timing(lease_s: float, *, alone: bool) -> Timing:
    """Timing for ROOST_HAD_LEASE. Its default of 1.2 s replaces a dead leader well within 2 s, and no pause
    of Redis or of a process shorter than 1 s topples a leader.

    alone: nobody else could take over, so a quick look would change nothing, and each one is a write to
    Redis. A HAD that is started again takes its own lease over at once."""
    lease_s = lease_s * 5 if alone else lease_s
    return Timing(
        lease_s=lease_s,
        poll_s=lease_s / 6,
        lead_s=lease_s / 4,
        follow_s=lease_s * 5 / 6,
        patience_s=lease_s * 5 / 6,
        first_s=max(10.0, lease_s),
    )
