"""What the passing of time does to slots: leases end, policies change their minds, retirements are over."""

from __future__ import annotations

import asyncio

from services.startd.herald import MIN_GAP_S
from services.startd.parts import Inside


class Clockwork:
    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self._leased = asyncio.Event()
        self._looks = asyncio.Event()  # something is to be looked at sooner than was known
        self._polling = False  # whether the policy is looked at as often as claimed slots want it

    def leased(self) -> None:
        """There is a new lease."""
        self._leased.set()

    def look(self) -> None:
        """Something has changed that decides when to look at the policy next."""
        self._looks.set()

    def claims_changed(self) -> None:
        """There are claims, or none any more: the policy is looked at more or less often (STM-42)."""
        if not self._polling and self.inside.book.in_use:
            self._looks.set()

    async def watch_leases(self) -> None:
        inside = self.inside
        clock, book = inside.context.clock, inside.book
        while True:
            for claim_id in inside.leases.expired(clock.monotonic()):
                waiting = book.waiting.get(claim_id)
                claim = waiting.claim if waiting is not None else book.claims.get(claim_id)
                if claim is None:
                    continue
                reason = f"the schedd was silent for the lease of {claim.lease_s:g} s"
                inside.context.log.warning("lease_expired", slot=claim.slot, lease_s=claim.lease_s)
                inside.herald.lost(claim.schedd, claim.slot, claim_id, reason)
                book.vacate(claim_id, reason, graceful=False, now=inside.now())
                inside.write_down()
            self._leased.clear()
            end = inside.leases.next_end()
            timeout = None if end is None else max(0.01, end - clock.monotonic())
            try:
                async with asyncio.timeout(timeout):
                    await self._leased.wait()
            except TimeoutError:
                continue

    async def review(self) -> None:
        """Look at the policy every POLLING_INTERVAL while a slot is claimed, else every UPDATE_INTERVAL (STM-42); and
        when something comes to its end meanwhile: a retirement, a vacate time, a match; and when `look` says so."""
        inside = self.inside
        clock, book = inside.context.clock, inside.book
        due = clock.monotonic()
        while True:
            self._looks.clear()
            mono, now = clock.monotonic(), inside.now()
            self._polling = book.in_use
            settings = inside.settings
            interval = settings.polling_interval if self._polling else settings.update_interval
            due = mono + interval if mono >= due else min(due, mono + interval)
            look = book.next_look(now)
            wait = due - mono if look is None else min(due - mono, max(MIN_GAP_S, look - now))
            try:
                async with asyncio.timeout(wait):
                    await self._looks.wait()
            except TimeoutError:
                self.review_now()

    def review_now(self) -> None:
        self.inside.showcase.refresh()
        self.inside.book.review(self.inside.now())
        self.inside.write_down()
