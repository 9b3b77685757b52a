"""What the startd's manager is asked, what it answers, and what the shell is to do about a change."""

from __future__ import annotations

from dataclasses import dataclass

from services.startd.core.slots.model import Claim, Slot, WaitingClaim


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    request_id: str
    claim_id: str
    slot: str
    schedd: str
    submitter: str
    job_ad: bytes
    lease_s: float
    alive_interval_s: int
    epoch: int
    shard: str = ""
    concurrency_limits: str = ""
    preempts: tuple[tuple[str, str], ...] = ()  # dynamic slots to be preempted for it: (name, claim id)

    def claim(self, slot: str, claim_id: str, now: float) -> Claim:
        """The claim that it becomes when it is granted, or accepted."""
        return Claim(
            claim_id=claim_id,
            slot=slot,
            schedd=self.schedd,
            submitter=self.submitter,
            request_id=self.request_id,
            lease_s=self.lease_s,
            alive_interval_s=self.alive_interval_s,
            job_ad=self.job_ad,
            made_at=now,
            epoch=self.epoch,
            shard=self.shard,
            concurrency_limits=self.concurrency_limits,
        )


@dataclass(frozen=True, slots=True)
class Granted:
    slot: Slot
    claim: Claim
    leftover: Slot | None = None
    again: bool = False  # granted earlier, asked again


@dataclass(frozen=True, slots=True)
class Accepted:
    """The claim waits for its slot to empty."""

    waiting: WaitingClaim
    again: bool = False  # accepted earlier, asked again


@dataclass(frozen=True, slots=True)
class Refused:
    code: str  # as in ClaimRefused, or "unknown-claim", "busy", "worklife" for activations
    reason: str
