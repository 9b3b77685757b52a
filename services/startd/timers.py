"""What the passing of time does to slots: leases end, policies are looked at again, retirements are over."""

from __future__ import annotations

import asyncio

from services.startd.core.slots.leases import silence
from services.startd.publisher import MIN_GAP_S
from services.startd.slot_services import SlotServices


async def watch_leases(startd: SlotServices) -> None:
    """End claims whose schedd was silent for their lease."""
    manager = startd.slot_manager
    while True:
        for claim_id, lasted_s in startd.leases.expired().items():
            waiting = manager.waiting.get(claim_id)
            claim = waiting.claim if waiting is not None else manager.claims.get(claim_id)
            if claim is None:
                continue
            reason = silence(lasted_s, claim.lease_s)
            startd.context.log.warning("lease_expired", slot=claim.slot, lease_s=lasted_s)
            startd.publisher.lost(claim.schedd, claim.slot, claim_id, reason)
            _, effects = manager.vacate(claim_id, reason, graceful=False, now=startd.now())
            startd.effects.carry_out(effects)
        startd.wakeups.lease_granted.clear()
        left_s = startd.leases.next_end_s()
        timeout = None if left_s is None else max(0.01, left_s)
        try:
            async with asyncio.timeout(timeout):
                await startd.wakeups.lease_granted.wait()
        except TimeoutError:
            continue


async def review_policies(startd: SlotServices) -> None:
    """Look at the policy every POLLING_INTERVAL while a slot is claimed, else every UPDATE_INTERVAL (STM-42); and when
    something comes to its end meanwhile: a retirement, a vacate time, a match."""
    clock, manager, wakeups = startd.context.clock, startd.slot_manager, startd.wakeups
    due = clock.monotonic()
    while True:
        startd.follow_clock()
        wakeups.review_rescheduled.clear()
        mono, now = clock.monotonic(), startd.now()
        wakeups.polling = manager.in_use
        interval = startd.settings.polling_interval if wakeups.polling else startd.settings.update_interval
        due = mono + interval if mono >= due else min(due, mono + interval)
        look = manager.next_look(now)
        wait = due - mono if look is None else min(due - mono, max(MIN_GAP_S, look - now))
        try:
            async with asyncio.timeout(wait):
                await wakeups.review_rescheduled.wait()
        except TimeoutError:
            startd.review()
