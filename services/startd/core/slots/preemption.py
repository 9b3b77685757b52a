"""Decides who may take a claimed slot, and which dynamic slots make room for a claim (spec rows PRE-01 to PRE-17).
Pure.

The negotiator has compared users and asked PREEMPTION_REQUIREMENTS before it gave a claim id away; the startd sees to
what only it knows for sure: what runs now, how its RANK likes it, and how much retirement is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.slots.amounts import Amounts
from engine.slots.carving import Refusal, SlotKind, show_free
from services.startd.core.slots.model import Claim, Slot, VacateReason
from services.startd.core.slots.transitions import State
from shared.classad import ClassAd


def objection(claim: Claim, rank: float, submitter: str, waits: Claim | None) -> str:
    """Why a job of this RANK and submitter may not preempt a claim; empty: it may.

    waits: the claim that waits for the slot already. One waits at a time, and only a better one takes its place.
    """
    if rank < claim.rank:
        return f"RANK is {rank:g} for this job, {claim.rank:g} for the one that has the slot"
    if rank == claim.rank and submitter == claim.submitter:
        return f"the slot runs a job of {submitter} that RANK likes as well"
    if waits is not None and rank < waits.rank:
        return f"RANK is {rank:g} for this job, {waits.rank:g} for the one that waits for the slot"
    if waits is not None and rank == waits.rank and submitter == waits.submitter:
        return f"a job of {submitter} that RANK likes as well waits for the slot already"
    return ""


def reason_code(rank: float, claim: Claim) -> int:
    """RANK preemption (PRE-01), or else what the negotiator decided (PRE-02)."""
    return VacateReason.RANK if rank > claim.rank else VacateReason.PRIORITY


@dataclass(frozen=True, slots=True)
class Victim:
    """A dynamic slot that the negotiator wants preempted, and how the job stands to it. rank: of the job there;
    retired: what runs there has no retirement time left (PRE-14)."""

    slot: Slot
    rank: float
    retired: bool


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Dynamic slots to be emptied, and what is carved then; `ad`: the partitionable slot as it will be."""

    victims: tuple[Slot, ...]
    wanted: Amounts
    ad: ClassAd
    code: int


def slots_to_preempt(
    parent: Slot, listed: Iterable[tuple[str, str]], slots: Callable[[str], Slot | None]
) -> list[Slot]:
    """The slots of a list of (name, claim id) that are still as the negotiator saw them. One that is gone, or in other
    hands, is left out: what it had may be free by now."""
    found: dict[str, Slot] = {}
    for name, claim_id in listed:
        slot = slots(name)
        if slot is None or slot.kind is not SlotKind.DYNAMIC or slot.parent != parent.name:
            continue
        if slot.state is State.CLAIMED and slot.offer and slot.offer == claim_id and not slot.waiting:
            found[name] = slot
    return list(found.values())


def make_room(
    free: Amounts,
    victims: Iterable[Victim],
    submitter: str,
    ad: ClassAd,
    carve: Callable[[ClassAd, Amounts], Amounts | Refusal],
) -> PreemptionPlan | Refusal:
    """Empty the victims one by one until the job fits, and no more than that (PRE-12, PRE-17).

    free: what is left of the partitionable slot, whose ad is `ad`; carve(ad, amounts) says what the job takes.
    """
    chosen: list[Slot] = []
    code = int(VacateReason.RANK)
    spared = ""
    refused: Refusal | None = None
    for victim in victims:
        claim = victim.slot.claim
        assert claim is not None
        spared_for = objection(claim, victim.rank, submitter, None)
        if not victim.retired:
            spared_for = "its job has retirement time left"
        if spared_for:
            spared = f"; {victim.slot.name} is spared: {spared_for}"
            continue
        chosen.append(victim.slot)
        code = max(code, reason_code(victim.rank, claim))
        free = free.plus(victim.slot.total)
        roomy = ad.copy()
        show_free(roomy, free)
        carved = carve(roomy, free)
        if not isinstance(carved, Refusal):
            return PreemptionPlan(tuple(chosen), carved, roomy, code)
        refused = carved
    reason = refused.reason if refused is not None else "none of the slots to be preempted is there any more"
    return Refusal(reason + spared)
