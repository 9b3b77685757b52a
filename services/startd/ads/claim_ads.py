"""What the ads of slots say of claims: who has a slot and who waits for it, and what a partitionable slot and the
siblings of a slot tell of others. It is what preemption expressions look at, so the names are HTCondor's.

Amounts that grow with time stand as expressions over time(), in the same words in every ad: they are always true, and
cost no update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from services.startd.core.job_ads import job_ad
from services.startd.core.slots.model import Claim, Slot
from services.startd.core.slots.transitions import Activity, State
from shared.classad import UNDEFINED, ClassAd, Expr, flatten, parse_expr
from shared.classad.expr import Literal
from shared.messages.claims import job_of, public_claim_id

#: Job attribute -> slot attribute, while a job or claim is there.
_FROM_JOB: Final = (
    ("User", "RemoteOwner"),
    ("GlobalJobId", "GlobalJobId"),
    ("ConcurrencyLimits", "ConcurrencyLimits"),
    ("JobUniverse", "JobUniverse"),
    ("ImageSize", "ImageSize"),
    ("NiceUser", "NiceUser"),
    ("RemoteNegotiatingGroup", "RemoteNegotiatingGroup"),
    ("RemoteGroup", "RemoteGroup"),
)
_LEFT = "ifThenElse({0} > time(), {0} - time(), 0)"
_RETIREMENT_LEFT: Final = parse_expr(_LEFT.format("RoostRetirementEnds"))
_JOB_RUN_TIME: Final = parse_expr("time() - JobStart - TotalJobSuspendTime")
_CLAIM_RUN_TIME: Final = parse_expr("RoostEarlierRunTime + TotalJobRunTime")
#: A promise that goes beyond this is one for ever, and needs no exact end.
_FOREVER_S: Final = 2.0**31


def put_claim(
    ad: ClassAd, claim: Claim, state: State, job_attributes: Iterable[str], slot: ClassAd | None = None
) -> bool:
    """Who has the slot, with what. job_attributes: STARTD_JOB_ATTRS, by which policies may see the running job. slot:
    the ad that expressions of the job may look at, `ad` itself if there is no other. Whether all of it will be the same
    while the claim and the slot's State are."""
    job = job_ad(claim.job_ad)
    fixed = True
    for theirs, ours in (*_FROM_JOB, *((name, name) for name in job_attributes)):
        expr = job.lookup(theirs)
        if expr is None:
            continue
        fixed = fixed and isinstance(expr, Literal)
        value = job.eval(theirs, ad if slot is None else slot)
        if value is not UNDEFINED:
            ad[ours] = value
    if claim.concurrency_limits:
        ad["ConcurrencyLimits"] = claim.concurrency_limits
    ad["RemoteUser"] = claim.owner or claim.submitter
    if claim.accounting_group:
        ad["AccountingGroup"] = claim.accounting_group
    ad["RoostClaimedAt"] = claim.made_at
    if claim.clock_set:
        ad["RoostClockSet"] = claim.clock_set
    ad["ClientMachine"] = claim.schedd
    ad["RemoteScheddName"] = claim.schedd
    ad["PublicClaimId"] = public_claim_id(claim.claim_id)
    ad["CurrentRank"] = claim.rank
    ad["RetirementTimeRemaining"] = 0
    if not claim.run:
        ad["TotalClaimRunTime"] = int(claim.earlier_s)
        return fixed
    ad["JobId"] = job_of(claim.run)
    ad["JobStart"] = int(claim.run_since)
    ad["TotalJobSuspendTime"] = _suspend_time(claim)
    ad["NumJobSuspensions"] = claim.suspensions
    ad["TotalJobRunTime"] = _JOB_RUN_TIME
    ad["RoostEarlierRunTime"] = int(claim.earlier_s)
    ad["TotalClaimRunTime"] = _CLAIM_RUN_TIME
    if state is State.CLAIMED and claim.suspended_at:
        # Suspension does not count: what is left stands still with the job (STM-49).
        ad["RetirementTimeRemaining"] = int(
            max(0.0, min(claim.retirement_s, _FOREVER_S) - claim.run_time(claim.suspended_at))
        )
    ends = _retirement_ends(claim) if state is State.CLAIMED else None
    if ends is not None:
        ad["RoostRetirementEnds"] = ends
        ad["RetirementTimeRemaining"] = _RETIREMENT_LEFT
    return fixed


def put_waiting(ad: ClassAd, claim: Claim) -> None:
    """Who waits for the slot to empty: the one whom a further claim must be better than (PRE-06)."""
    ad["PreemptingUser"] = claim.owner or claim.submitter
    ad["PreemptingRank"] = claim.rank
    if claim.owner:
        ad["PreemptingOwner"] = claim.owner
    if claim.accounting_group:
        ad["PreemptingAccountingGroup"] = claim.accounting_group
    if claim.concurrency_limits:
        ad["PreemptingConcurrencyLimits"] = claim.concurrency_limits


def sibling_attributes(ads: Mapping[str, ClassAd], names: Sequence[str]) -> dict[str, Expr]:
    """What every slot of the machine shows of the others (SLT-26): slot<N>_<attribute> for the names in
    STARTD_SLOT_ATTRS, of dynamic slots slot<N>_<M>_<attribute>. `ads` by slot name. What depends on the clock stays an
    expression."""
    found = {}
    for slot_name, ad in ads.items():
        prefix = slot_name.partition("@")[0]
        for name in names:
            expr = ad.lookup(name)
            if expr is not None:
                found[f"{prefix}_{name}"] = flatten(expr, ad)
    return found


def _retirement_ends(claim: Claim) -> int | None:
    """When the retirement promised to the run is over, if it was promised any."""
    if not claim.run or claim.retirement_s <= 0 or claim.suspended_at:
        return None
    return int(claim.run_since + claim.suspended_s + min(claim.retirement_s, _FOREVER_S))


def _suspend_time(claim: Claim) -> Expr | int:
    """Seconds for which the run was suspended, which go on while it is."""
    if not claim.suspended_at:
        return int(claim.suspended_s)
    return parse_expr(f"time() - {int(claim.suspended_at) - int(claim.suspended_s)}")


def retirement_left(slot: Slot) -> Expr | int:
    """RetirementTimeRemaining of a slot, in an ad that is not its own."""
    claim = slot.claim
    if claim is None or slot.activity is Activity.IDLE or slot.state is not State.CLAIMED:
        return 0
    ends = _retirement_ends(claim)
    return 0 if ends is None else _left_until(ends)


@lru_cache(maxsize=10_000)
def _left_until(ends: int) -> Expr:
    return parse_expr(_LEFT.format(ends))
