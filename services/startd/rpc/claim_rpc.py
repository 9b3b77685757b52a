"""The claim protocol: access points ask for slots, start and end jobs on them, and keep them alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from services.startd.context import Handler, StartdContext
from services.startd.core.journal_records import run_key
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.leases import lease_s
from services.startd.core.slots.requests import Accepted, ClaimRequest, Granted, Refused
from services.startd.runs import BadAd, unpack_ad
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.daemon.epochs import check_possible
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.claims import (
    ActivateClaim,
    Activated,
    Alive,
    AliveReply,
    ClaimGranted,
    ClaimRefused,
    ClaimWaiting,
    DeactivateClaim,
    Leftover,
    ReleaseClaim,
    RequestClaim,
    SuspendClaim,
    public_claim_id,
)
from shared.messages.negotiation import MatchNotice


class ClaimRpc:
    """Answers access points. Each answer is given when what it says is written down."""

    def __init__(self, startd: StartdContext) -> None:
        self.startd = startd

    def handlers(self) -> Mapping[type[Message], Handler]:
        answers: dict[type[Message], Callable[[Any], Message]] = {
            RequestClaim: self._on_claim,
            Alive: self._on_alive,
            MatchNotice: self._on_notice,
            SendAds: self._on_send_ads,
        }
        of_claims: dict[type[Message], Callable[[Any], Message]] = {
            ActivateClaim: self._on_activate,
            DeactivateClaim: self._on_deactivate,
            SuspendClaim: self._on_suspend,
            ReleaseClaim: self._on_release,
        }

        def handler(answer: Callable[[Any], Message], *, of_claim: bool) -> Handler:
            async def handle(envelope: Envelope) -> Message:
                if of_claim:
                    check_owner(self.startd, envelope)
                return answer(envelope.body)

            return handle

        plain = {kind: handler(answer, of_claim=False) for kind, answer in answers.items()}
        return plain | {kind: handler(answer, of_claim=True) for kind, answer in of_claims.items()}

    def _on_send_ads(self, body: SendAds) -> Message:
        self.startd.background.spawn(self.startd.publisher.resend(body), "resend")
        return Ack()

    def _on_alive(self, body: Alive) -> Message:
        startd = self.startd
        granted_to = startd.slot_manager.granted_to
        named = [*body.claim_ids, *body.only_asked]
        others = {claim for claim in named if granted_to(claim) not in ("", body.schedd)}
        unknown = startd.leases.renew([claim for claim in body.claim_ids if claim not in others])
        unknown += startd.leases.unknown([claim for claim in body.only_asked if claim not in others])
        if unknown:
            # A claim that ended with its run is known until the schedd has heard how that ended: a schedd that was
            # away meanwhile would run the job again.
            runs = startd.runs.by_key.values()
            untold = {run.record.claim_id for run in runs if run.record.schedd == body.schedd}
            unknown = [claim for claim in unknown if claim not in untold]
        if others:
            startd.context.log.warning("claims_of_others", schedd=body.schedd, count=len(others))
        return AliveReply(unknown=[*unknown, *others])

    def _on_claim(self, body: RequestClaim) -> Message:
        startd = self.startd
        manager, log = startd.slot_manager, startd.context.log
        startd.runs.counts.claims_asked += 1
        check_possible(body.shard, body.epoch, manager.epochs)
        if startd.journal_writer.full and not manager.knows(body.request_id):
            return ClaimRefused(reason=f"the startd's spool is full: {startd.journal_writer.full}", code="resources")
        job = _ad(body.job_ad)
        first = _ad(body.activation.job_ad) if body.activation else None
        answer, effects = manager.request(_claim_request(body, startd.settings.alives_missed), job, startd.now())
        if isinstance(answer, Refused):
            startd.effects.carry_out(effects)
            log.info("claim_refused", slot=body.slot, code=answer.code, reason=answer.reason)
            code: Any = answer.code
            return ClaimRefused(reason=answer.reason, code=code)
        claim = answer.waiting.claim if isinstance(answer, Accepted) else answer.claim
        begins = body.activation is not None and not startd.run_table.knows(
            run_key(body.activation, claim.schedd), startd.context.clock.monotonic()
        )
        first_s = max(0.0, body.first_lease_s) if body.activation is not None else 0.0
        if answer.again and not begins:
            startd.leases.asked_again(claim, first_s)
        else:
            startd.effects.leased(claim, first_s)
        if isinstance(answer, Accepted):
            startd.effects.carry_out(effects)
            within = manager.empty_within_s(answer.waiting, startd.now())
            log.info("claim_waits", slot=claim.slot, schedd=claim.schedd, within_s=round(within, 1))
            return ClaimWaiting(claim_id=claim.claim_id, slot=claim.slot, within_s=within)
        if not answer.again:
            startd.publisher.claim_made(claim)
        refusal: Refused | None = None
        if body.activation is not None and first is not None:
            refusal, activated = startd.runs.activate(claim.claim_id, body.activation, first)
            effects.add(activated)
        startd.effects.carry_out(effects)
        log.info("claimed", slot=claim.slot, claim=public_claim_id(claim.claim_id), schedd=claim.schedd)
        return self._granted(answer, body.activation is not None and refusal is None, refusal.reason if refusal else "")

    def _granted(self, granted: Granted, activated: bool, refusal: str) -> ClaimGranted:
        ad_of = self.startd.ads.ad_of
        left = granted.leftover
        leftover = None
        if left is not None:
            leftover = Leftover(slot=left.name, claim_id=left.offer, slot_ad=ad_of(left).public().pack())
        return ClaimGranted(
            claim_id=granted.claim.claim_id,
            slot=granted.slot.name,
            slot_ad=ad_of(granted.slot).public().pack(),
            leftover=leftover,
            activated=activated,
            refusal=refusal,
        )

    def _on_notice(self, body: MatchNotice) -> Message:
        """The negotiator told us of matches (NEG-39). What it says of a slot that is not as it was is passed over."""
        manager = self.startd.slot_manager
        check_possible(body.shard, body.epoch, manager.epochs)
        if body.epoch < manager.epochs.get(body.shard, 0):
            return Failure(code="stale-epoch", reason=f"epoch {body.epoch} of {body.negotiator} is over")
        effects = SlotEffects()
        for one in body.slots:
            ignored, changed = manager.matched(one.slot, one.claim_id, body.epoch, body.shard, self.startd.now())
            effects.add(changed)
            if ignored:
                self.startd.context.log.info("match_notice_ignored", slot=one.slot[:200], reason=ignored[:400])
        self.startd.effects.carry_out(effects)
        return Ack()

    def _on_activate(self, body: ActivateClaim) -> Message:
        activation = body.activation
        refusal, effects = self.startd.runs.activate(body.claim_id, activation, _ad(activation.job_ad))
        self.startd.effects.carry_out(effects)
        if refusal is not None:
            return Failure(code="refused", reason=refusal.reason)
        return Activated(job_id=activation.job_id, attempt=activation.attempt)

    def _on_deactivate(self, body: DeactivateClaim) -> Message:
        for run in self.startd.run_table.of_claim(body.claim_id):
            if (run.record.job_id, run.record.attempt) == (body.job_id, body.attempt):
                how: Any = "evicted" if body.why in ("vacate", "evict") else "killed"
                message = f"stopped by the schedd: {body.why}"
                run.stop(how, body.why, message, fast=body.how == "fast", want_output=body.want_output)
        return Ack()

    def _on_suspend(self, body: SuspendClaim) -> Message:
        runs = self.startd.run_table.of_claim(body.claim_id)
        key = next(
            (run.key for run in runs if (run.record.job_id, run.record.attempt) == (body.job_id, body.attempt)), ""
        )
        refusal, effects = self.startd.slot_manager.suspend(
            body.claim_id, key, suspended=body.suspended, now=self.startd.now()
        )
        self.startd.effects.carry_out(effects)
        return Ack() if refusal is None else Failure(code=refusal.code, reason=refusal.reason)

    def _on_release(self, body: ReleaseClaim) -> Message:
        graceful = body.how == "graceful"
        _, effects = self.startd.slot_manager.vacate(
            body.claim_id, "released by the schedd", graceful=graceful, now=self.startd.now()
        )
        self.startd.effects.carry_out(effects)
        return Ack()


def check_owner(startd: StartdContext, envelope: Envelope) -> None:
    """Raises RemoteFailure where a message names a claim that was granted to another access point than its sender: a
    claim id that leaked opens nothing to others."""
    claim_id = envelope.body.claim_id  # type: ignore[attr-defined]
    sender = envelope.sender.partition(".")[2]
    owner = startd.slot_manager.granted_to(claim_id)
    owners = {owner} if owner else {run.record.schedd for run in startd.run_table.of_claim(claim_id)}
    if owners - {sender}:
        startd.context.log.warning("claim_of_another", type=envelope.body.type, sender=envelope.sender)
        raise RemoteFailure("denied", f"claim {public_claim_id(claim_id)} was not granted to {sender[:200]}")


def _claim_request(body: RequestClaim, alives_missed: int) -> ClaimRequest:
    return ClaimRequest(
        request_id=body.request_id,
        claim_id=body.claim_id,
        slot=body.slot,
        schedd=body.schedd,
        submitter=body.submitter,
        job_ad=body.job_ad,
        lease_s=lease_s(body.lease_s, body.alive_interval_s, alives_missed),
        alive_interval_s=body.alive_interval_s,
        epoch=body.epoch,
        shard=body.shard,
        concurrency_limits=body.concurrency_limits,
        preempts=tuple(zip(body.preempts, body.preempt_claims, strict=False)),  # no proof, no preemption
    )


def _ad(packed: bytes) -> ClassAd:
    try:
        return unpack_ad(packed)
    except BadAd as error:
        raise RemoteFailure("bad-request", str(error)) from error
