"""The guards of the transition table: when a slot moves by itself, as time passes and expressions change. Pure.

`next_move` gives the first arrow of `transitions.TABLE` whose guard holds; the driver takes it and asks again. Another
reason to move is another guard here and its name in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

from services.startd.core.job_ads import job_ad
from services.startd.core.slots import policy, retirement
from services.startd.core.slots.model import Claim, Slot, Urgency
from services.startd.core.slots.policy import Policy
from services.startd.core.slots.transitions import Activity, State, Transition, guarded
from shared.classad import ClassAd


@dataclass(frozen=True, slots=True)
class SlotOrders:
    """What is ordered for the whole machine, seen from one slot."""

    emptied: bool = False  # it takes no more than what it has, and drains
    drained: bool = False  # all slots are
    urgency: Urgency = Urgency.STAY  # of a claim there
    aligned_left_s: float | None = None  # of the older jobs, where this one leaves with the last of them
    benchmarking: bool = False  # a slot runs benchmarks


NO_ORDERS: Final = SlotOrders()


def _job_of(claim: Claim) -> ClassAd:
    return job_ad(claim.job_ad)


class Situation:
    """One slot at one moment. Expressions are evaluated when a guard asks, as most are never asked.

    ad_of gives the slot's ad as it is now. `now` is wall-clock seconds, match_timeout_s MATCH_TIMEOUT.
    has_waiting_claim: the claim that waits takes the slot over as it is.
    """

    def __init__(
        self,
        slot: Slot,
        policy: Policy,
        ad_of: Callable[[Slot], ClassAd],
        now: float,
        *,
        match_timeout_s: float,
        has_waiting_claim: bool,
        orders: SlotOrders = NO_ORDERS,
        job_of: Callable[[Claim], ClassAd] = _job_of,
    ) -> None:
        self.slot = slot
        self.plain = policy  # whatever job there is
        self.now = now
        self.match_timeout_s = match_timeout_s
        self.has_waiting_claim = has_waiting_claim
        self.orders = orders
        self._ad_of = ad_of
        self._job_of = job_of

    @cached_property
    def policy(self) -> Policy:
        """For the job that is there (STM-45)."""
        return self.plain if self.plain.vanilla is None or self.slot.claim is None else self.plain.of(self.job)

    @property
    def ad(self) -> ClassAd:
        return self._ad_of(self.slot)

    @property
    def claim(self) -> Claim:
        assert self.slot.claim is not None, f"{self.slot.name} is {self.slot.condition} without a claim"
        return self.slot.claim

    @cached_property
    def job(self) -> ClassAd:
        """The job that runs, or the last one that did."""
        return self._job_of(self.claim)

    @property
    def running(self) -> bool:
        return bool(self.claim.run)

    @property
    def urgency(self) -> Urgency:
        """How soon the claim must go: by itself, because a better one waits, or because the machine is emptied."""
        waits = Urgency.RETIRE if self.slot.waiting else Urgency.STAY
        return max(self.claim.urgency, waits, self.orders.urgency)

    @cached_property
    def retirement_left_s(self) -> float:
        """Of the run time that the job was promised (STM-49); without end while the machine is peacefully switched off
        (STM-51)."""
        if self.claim.peaceful and not retirement.no_patience(self.policy, self.ad, self.job):
            return math.inf
        if self.orders.aligned_left_s is not None:
            return self.orders.aligned_left_s
        return self.own_retirement_left_s

    @cached_property
    def own_retirement_left_s(self) -> float:
        return retirement.retirement_s(self.policy, self.ad, self.job) - self.claim.run_time(self.now)

    @property
    def retired(self) -> bool:
        """The job must begin to leave now to be gone when its retirement is over (STM-50)."""
        left = self.retirement_left_s
        return left <= 0 or left <= retirement.leave_before_end_s(self.policy, self.ad, self.job)

    @property
    def owner_preempts(self) -> bool:
        """PREEMPT wants the job away, and did not before."""
        if not self.running or self.claim.for_owner or policy.never(self.policy.preempt):
            return False
        suspended = self.slot.activity is Activity.SUSPENDED
        return retirement.preempts(self.policy, self.ad, self.job, suspended=suspended)

    @property
    def asks_to_leave(self) -> bool:
        """Whether a job that must leave is asked before it is killed. WANT_VACATE says so where PREEMPT makes it leave
        (STM-46)."""
        return not self.claim.for_owner or retirement.wants_vacate(self.policy, self.ad, self.job)

    @property
    def vacate_s(self) -> float:
        """What the job gets for leaving by itself, if it begins now. Retirement counts only where it was waited for."""
        left = self.retirement_left_s if self.urgency is Urgency.RETIRE else 0.0
        return retirement.vacate_time_s(self.policy, self.ad, self.job, left)


def _owner_wants(at: Situation) -> bool:
    return not policy.never(at.plain.is_owner) and policy.owner_wants(at.plain, at.ad)


def _benchmarks_due(at: Situation) -> bool:
    return (
        not at.orders.benchmarking
        and not policy.never(at.plain.run_benchmarks)
        and policy.benchmarks_due(at.plain, at.ad)
    )


def _to_be_filled(at: Situation) -> bool:
    """Backfill has the whole of a slot: a partitionable one of which something is carved is not filled."""
    if policy.never(at.plain.start_backfill):
        return False
    return at.slot.free == at.slot.total and policy.fills(at.plain, at.ad)


def _not_to_be_filled(at: Situation) -> bool:
    """EVICT_BACKFILL, a match, a claim, a command, draining (STM-28); and then where to, once the client is gone."""
    slot = at.slot
    if slot.after_backfill is not None or slot.waiting or at.orders.emptied or slot.free != slot.total:
        return True
    return policy.evicts_backfill(at.plain, at.ad)


def _match_is_old(at: Situation) -> bool:
    return at.orders.emptied or at.now - at.slot.state_since >= at.match_timeout_s


def _of_no_more_use(at: Situation) -> bool:
    if at.running:
        return False
    if at.urgency > Urgency.STAY:
        return True
    if at.claim.jobs == 0:
        return False  # it was made for a job that is about to begin
    age = at.claim.age(at.now)
    return policy.start_refuses(at.plain, at.ad, at.job) or policy.worklife_over(at.policy, at.ad, at.job, age)


def _to_be_suspended(at: Situation) -> bool:
    if policy.never(at.policy.want_suspend) or policy.never(at.policy.suspend):
        return False
    return retirement.suspends(at.policy, at.ad, at.job)


def _goes_on(at: Situation) -> bool:
    return not at.claim.by_user and retirement.continues(at.policy, at.ad, at.job)


def _retired(at: Situation) -> bool:
    """To be asked. Who gives the claim back wants just that."""
    if at.urgency is Urgency.VACATE:
        return True
    return at.urgency is Urgency.RETIRE and at.retired and at.asks_to_leave


def _retired_to_be_killed(at: Situation) -> bool:
    if at.urgency is Urgency.KILL:
        return True
    return at.urgency is Urgency.RETIRE and at.retired and not at.asks_to_leave


def _out_of_time(at: Situation) -> bool:
    if not at.running:
        return False
    asked_for_s = at.now - at.slot.activity_since
    if at.urgency is Urgency.KILL or asked_for_s >= at.claim.vacate_s:
        return True
    # Not in the look that asks it to leave: it has until the next one.
    return asked_for_s > 0.0 and retirement.kills(at.policy, at.ad, at.job)


def _empty_for_a_better_claim(at: Situation) -> bool:
    """The owner comes first: PREEMPT and START (STM-22, STM-J)."""
    if at.running or not at.has_waiting_claim:
        return False
    return not at.claim.for_owner and not policy.start_is_false(at.plain, at.ad)


def _free_for_its_claim(at: Situation) -> bool:
    return at.has_waiting_claim and not policy.start_is_false(at.plain, at.ad)


#: By the names in transitions.TABLE.
GUARDS: Final[Mapping[str, Callable[[Situation], bool]]] = MappingProxyType(
    {
        "not-the-owners": lambda at: not _owner_wants(at),
        "the-owners": _owner_wants,
        "benchmarks-due": _benchmarks_due,
        "to-be-filled": _to_be_filled,
        "not-to-be-filled": _not_to_be_filled,
        "free-for-its-claim": _free_for_its_claim,
        "free-for-its-match": lambda at: at.slot.after_backfill is State.MATCHED and not at.orders.emptied,
        "match-is-old": _match_is_old,
        "of-no-more-use": _of_no_more_use,
        "at-once": lambda at: at.urgency is Urgency.KILL,
        "must-leave": lambda at: at.urgency > Urgency.STAY,
        "preempted": lambda at: at.owner_preempts,
        "to-be-suspended": _to_be_suspended,
        "goes-on": lambda at: at.urgency is Urgency.STAY and _goes_on(at),
        "goes-on-to-leave": lambda at: at.urgency > Urgency.STAY and _goes_on(at),
        "may-stay": lambda at: at.urgency is Urgency.STAY,
        "retired": _retired,
        "retired-to-be-killed": _retired_to_be_killed,
        "out-of-time": _out_of_time,
        "empty-for-a-better-claim": _empty_for_a_better_claim,
        "empty": lambda at: not at.running,
        "emptied": lambda at: at.orders.emptied,
        "not-emptied": lambda at: not at.orders.emptied,
        "all-drained": lambda at: at.orders.drained,
    }
)


def next_move(at: Situation) -> Transition | None:
    """The arrow the slot takes now; None: it stays."""
    for transition in guarded(at.slot.condition):
        if GUARDS[transition.guard](at):
            return transition
    return None


def next_look(at: Situation, killing_timeout_s: float) -> float | None:
    """When a guard may come to hold only because time has passed (wall clock); None: not by time alone. What
    expressions do meanwhile is found out by looking every POLLING_INTERVAL."""
    slot = at.slot
    if slot.state is State.MATCHED:
        return slot.state_since + at.match_timeout_s
    if slot.claim is None or not slot.claim.run:
        return None
    if slot.activity is Activity.RETIRING and at.urgency is Urgency.RETIRE:
        look = at.now + at.retirement_left_s - retirement.leave_before_end_s(at.policy, at.ad, at.job)
        return None if math.isinf(look) else look
    if slot.activity is Activity.VACATING:
        return slot.activity_since + slot.claim.vacate_s
    if slot.activity is Activity.KILLING:
        return slot.claim.killed_at + killing_timeout_s
    return None
