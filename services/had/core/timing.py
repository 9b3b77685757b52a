"""The intervals of a HAD, and how long it stands back when its negotiator keeps dying (spec row HA-12).

A negotiator that crashes whenever it leads, and is started again each time, would take the lead over and over: its
schedds would never see a whole cycle. After each loss of the lead for that reason its HAD stands behind all others for
a while, each time longer. Where there is no other HAD it leads at once, because nobody gains by waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.backoff import wait_s
from shared.delays import Delay

#: The lease where everything is quick (s): a dead leader is replaced within 1 s, also where others than it are slow to
#: notice (docs/fault-tolerance.md has what the second is spent on).
QUICK_S = 0.6
#: The lease is so many times the longest delay seen lately: the next one may be worse.
MARGIN = 4.0
#: Nothing was late yet.
NO_DELAY = Delay()
#: Seconds between looks at the lease at most: a HAD that looks less often is not always seen by the others.
MOST_POLL_S = 0.3
#: Seconds between orders at most, to one that leads and to one that follows.
MOST_LEAD_S, MOST_FOLLOW_S = 0.6, 2.0


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
    """What follows from the length of the lease.

    alone: nobody else could take over, so a quick look would change nothing, and each one is a write to
    Redis. A HAD that is started again takes its own lease over at once."""
    if alone:
        lease_s = max(lease_s * 5, 6.0)
    return Timing(
        lease_s=lease_s,
        poll_s=lease_s / 6 if alone else min(lease_s / 6, MOST_POLL_S),
        lead_s=lease_s / 4 if alone else min(lease_s / 4, MOST_LEAD_S),
        follow_s=lease_s * 5 / 6 if alone else min(lease_s * 5 / 6, MOST_FOLLOW_S),
        patience_s=lease_s * 5 / 6,
        first_s=max(10.0, lease_s),
    )


def lease_length(fixed_s: float | None, longest_s: float, delay_s: float) -> float:
    """Seconds of the lease. fixed_s: ROOST_HAD_LEASE, which wins. Else it follows the delays of renewals and of the
    negotiator's answers (delay_s: the longest of late), up to longest_s, HAD_CONNECTION_TIMEOUT: who is silent for so
    long is dead, however slow the machine (HA-11)."""
    if fixed_s is not None:
        return fixed_s
    return min(max(QUICK_S, MARGIN * delay_s), max(QUICK_S, longest_s))


@dataclass(frozen=True, slots=True)
class Slowness:
    """How slow renewals and the negotiator's answers were of late. Times are a monotonic clock's.

    A stall is one observation, however many answers waited in it, and whether the negotiator or the HAD stood still:
    what began before the last delay that counted does not count. A single one at most doubles the lease, as how long a
    process hung says little of how slow it will be; where a machine is slow another one follows within the lease."""

    delay: Delay = NO_DELAY
    since: float = float("-inf")  # what began earlier does not count

    def seen(self, began: float, now: float) -> Slowness:
        """It was due, or asked for, at `began`, and is here now."""
        if began < self.since:
            return self
        most_s = 2 * max(self.delay.left(now), QUICK_S / MARGIN)
        delay = self.delay.seen(min(now - began, most_s), now)
        return self if delay is self.delay else Slowness(delay, now)

    def anew(self, now: float) -> Slowness:
        """Who answers had to start, or to load, until now: answers to what was asked before are no measure."""
        return Slowness(self.delay, max(self.since, now))


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: MASTER_HAD_BACKOFF_CONSTANT at first, MASTER_BACKOFF_FACTOR times as long after each further failure,
    MASTER_BACKOFF_CEILING at most."""

    constant_s: float
    factor: float
    ceiling_s: float


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Until when a HAD stands back, and after how many failures. Times are a monotonic clock's."""

    failures: int = 0
    length_s: float = 0.0
    until: float = float("-inf")

    def holds(self, now: float) -> bool:
        """Whether the HAD is held back."""
        return now < self.until

    def failed(self, now: float, limits: Limits) -> HeldBack:
        """The negotiator went silent while it led. Failures are forgotten once all was well for as long again as the
        HAD was held back."""
        failures = 1 if now >= self.until + self.length_s else self.failures + 1
        length = wait_s(failures, limits.constant_s, limits.ceiling_s, limits.factor)
        return HeldBack(failures, length, now + length)
