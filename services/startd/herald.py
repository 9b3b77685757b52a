"""Tells the pool what has become of slots, and access points of their claims that are lost or ready."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from services.startd.book.slots import Claim
from services.startd.book.transitions import Condition
from services.startd.parts import Inside
from shared.bus.api import BusUnavailable, Exchange, Outgoing
from shared.daemon.advertiser import Advertiser
from shared.errors import RoostError
from shared.messages.ads import SendAds
from shared.messages.base import Message
from shared.messages.claims import ClaimLost, ClaimReady
from shared.messages.events import ClaimEnded, ClaimMade, SlotChanged

#: Ads go out at once, but not more often than this: with many short jobs it bounds what the pool must listen to.
MIN_GAP_S = 0.02
#: Changes that nobody waits for (a claimed slot goes from job to job) go out so much later, many at a time.
LATER_S = 0.2


class Herald:
    def __init__(self, inside: Inside, advertiser: Advertiser) -> None:
        self.inside = inside
        self.advertiser = advertiser
        self._dirty = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._changed: set[str] = set()
        self._gone: set[str] = set()
        self._told: dict[str, Condition] = {}  # by slot: what the last event said

    # -- ads

    def changed(self, slots: Iterable[str], gone: Iterable[str] = (), *, urgent: bool = False) -> None:
        """The ads of these slots are others, those of `gone` are no more; not urgent: others may come with them."""
        gone = set(gone)
        for name in gone:
            self._told.pop(name, None)
        self._changed = (self._changed | set(slots)) - gone
        self._gone |= gone
        if urgent:
            self._dirty.set()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_S, self._it_is_later)

    def _it_is_later(self) -> None:
        self._later = None
        self._dirty.set()

    async def advertise(self) -> None:
        """Ads go out when something changed, and every UPDATE_INTERVAL to live on."""
        inside = self.inside
        clock, book, showcase = inside.context.clock, inside.book, inside.showcase
        due = clock.monotonic()
        while True:
            self._dirty.clear()
            if clock.monotonic() >= due:
                due = clock.monotonic() + inside.settings.update_interval
                showcase.renew()
                self._changed, self._gone = set(), set()
                whole = {slot.name: showcase.ad_of(slot) for slot in list(book.slots.values())}
                self._tell_slots(list(whole))
                await self.advertiser.publish(whole, book.offers())
            elif self._changed or self._gone:
                changed, gone, self._changed, self._gone = self._changed, self._gone, set(), set()
                some = {n: showcase.ad_of(book.slots[n]) for n in changed if n in book.slots}
                self._tell_slots(list(some))
                await self.advertiser.change(some, gone - some.keys(), book.offers())
            await clock.sleep(MIN_GAP_S)
            try:
                # Not wait_for: Python 3.11's loses a cancellation that comes together with the event.
                async with asyncio.timeout(max(0.0, due - clock.monotonic())):
                    await self._dirty.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0)  # what changes in this turn of the loop goes out together

    async def tell_all(self) -> None:
        """All ads now, each as a whole: what changes nearly all that others make of them needs no comparison."""
        book, showcase = self.inside.book, self.inside.showcase
        showcase.renew()
        await self.advertiser.publish(
            {slot.name: showcase.ad_of(slot) for slot in list(book.slots.values())}, book.offers(), whole=True
        )

    async def resend(self, request: SendAds) -> None:
        await self.advertiser.resend(request)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()

    # -- events

    def event(self, *events: Message) -> None:
        if events:
            self.inside.spawn(self._publish(events), "events")

    async def _publish(self, events: Iterable[Any]) -> None:
        try:
            await self.inside.context.bus.publish_many([Outgoing(Exchange.EVENTS, one.type, one) for one in events])
        except BusUnavailable as error:
            self.inside.context.log.debug("events_not_sent", reason=str(error))

    def _tell_slots(self, names: list[str]) -> None:
        """Events for the slots whose state or activity is another than last told."""
        events = []
        for name in names:
            slot = self.inside.book.slots[name]
            before = self._told.get(name)
            if before == slot.condition:
                continue
            self._told[name] = slot.condition
            claim = slot.claim
            events.append(
                SlotChanged(
                    at=slot.activity_since,
                    startd=self.inside.name,
                    slot=name,
                    state=slot.state,
                    activity=slot.activity,
                    from_state=before.state if before else "",
                    from_activity=before.activity if before else "",
                    owner=claim.submitter if claim else "",
                    job_id=claim.run.partition("/")[0] if claim else "",
                )
            )
        self.event(*events)

    def claim_made(self, claim: Claim) -> None:
        self.event(
            ClaimMade(
                at=self.inside.now(),
                startd=self.inside.name,
                slot=claim.slot,
                schedd=claim.schedd,
                submitter=claim.submitter,
            )
        )

    def claim_ended(self, claim: Claim, reason: str) -> None:
        self.event(
            ClaimEnded(
                at=self.inside.now(),
                startd=self.inside.name,
                slot=claim.slot,
                schedd=claim.schedd,
                submitter=claim.submitter,
                reason=reason,
            )
        )
        self.inside.context.log.info("claim_ended", slot=claim.slot, reason=reason)

    # -- access points

    def lost(self, schedd: str, slot: str, claim_id: str, reason: str) -> None:
        """Tell an access point that its claim is no more. Not awaited: where the broker is away, which is how most
        leases end, each would take its time; and the schedd learns it from the next answer to its Alive too."""
        if not schedd:
            return  # fetched work has none
        message = ClaimLost(startd=self.inside.name, slot=slot, claim_id=claim_id, reason=reason)
        self.inside.spawn(self._send(schedd, message, "claim_lost_not_sent", slot), "claim-lost")

    def ready(self, claim: Claim) -> None:
        """Tell an access point that the claim it waits for has its slot. If that is lost, it asks again by itself."""
        if not claim.schedd:
            return
        message = ClaimReady(startd=self.inside.name, slot=claim.slot, claim_id=claim.claim_id)
        self.inside.spawn(self._send(claim.schedd, message, "claim_ready_not_sent", claim.slot), "claim-ready")

    async def _send(self, schedd: str, message: Message, failed: str, slot: str) -> None:
        try:
            await self.inside.context.bus.send(f"schedd.{schedd}", message)
        except RoostError as error:
            self.inside.context.log.info(failed, slot=slot, reason=str(error))
