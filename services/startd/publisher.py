"""Tells the pool what has become of slots, and access points of their claims that are lost or ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from services.startd.ads.ad_cache import AdCache
from services.startd.background import BackgroundTasks
from services.startd.core.slots.model import Claim, Slot
from services.startd.core.slots.slot_manager import SlotManager
from services.startd.core.slots.transitions import Activity, Condition, State
from shared.bus.api import BusUnavailable, Exchange, Outgoing
from shared.daemon.advertiser import Advertiser
from shared.daemon.context import Context
from shared.daemon.pace import Pace
from shared.errors import RoostError
from shared.messages.ads import SendAds
from shared.messages.base import Message
from shared.messages.claims import ClaimLost, ClaimReady, job_of
from shared.messages.events import ClaimEnded, ClaimMade, SlotChanged

#: Ads go out at once, but not more often than this: with many short jobs it bounds what the pool must listen to.
MIN_GAP_S = 0.02
#: Changes that nobody waits for (a claimed slot goes from job to job) go out so much later, many at a time; where they
#: go on and on, as with many short jobs, up to so much.
LATER_S, LATEST_S = 0.2, 1.0


def between_jobs(slot: Slot, told: Condition | None, now: float) -> bool:
    """Whether a slot that was told to be busy has just ended a job of a claim that may bring it another. now: by the
    clock of slots."""
    claim = slot.claim
    if claim is None or told != Condition(State.CLAIMED, Activity.BUSY) or slot.waiting or claim.end_reason:
        return False
    idle = slot.condition == Condition(State.CLAIMED, Activity.IDLE)
    return idle and 0.0 <= now - slot.activity_since < LATER_S


class Publisher:
    """Sends ads, events and notices. update_interval: UPDATE_INTERVAL as it is now, seconds. now: by slots' clock;
    follow_clock: it goes by the wall clock again."""

    def __init__(
        self,
        context: Context,
        advertiser: Advertiser,
        *,
        slot_manager: SlotManager,
        ads: AdCache,
        background: BackgroundTasks,
        update_interval: Callable[[], float],
        now: Callable[[], float],
        follow_clock: Callable[[], None],
    ) -> None:
        self.advertiser = advertiser
        self._context = context
        self._slot_manager = slot_manager
        self._ads = ads
        self._background = background
        self._update_interval = update_interval
        self._now = now
        self._follow_clock = follow_clock
        self._dirty = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._pace = Pace(LATER_S, LATEST_S)
        self._changed: set[str] = set()
        self._gone: set[str] = set()
        self._told: dict[str, Condition] = {}  # by slot: what the last event said
        self._held_back: set[str] = set()  # changed slots that were not told of when others were

    # -- ads

    def changed(self, slots: Iterable[str], gone: Iterable[str] = (), *, urgent: bool = False) -> None:
        """Tell the pool of changed slots, and of those that are gone. Not urgent: many at a time, a little later."""
        gone = set(gone)
        for name in gone:
            self._told.pop(name, None)
        self._changed = (self._changed | set(slots)) - gone
        self._gone |= gone
        if urgent:
            self._dirty.set()
        elif self._later is None:
            wait_s = self._pace.wait_s(self._context.clock.monotonic())
            self._later = asyncio.get_running_loop().call_later(wait_s, self._it_is_later)

    def attributes_changed(self, slots: Iterable[str] | None = None, *, urgent: bool = False) -> None:
        """Tell the ads of these slots (None: of all) anew: something else than the slots has changed in them."""
        names = list(self._slot_manager.slots) if slots is None else list(slots)
        for name in names:
            self._ads.forget(name)
        self.changed(names, urgent=urgent)

    def _it_is_later(self) -> None:
        self._later = None
        self._pace.told(self._context.clock.monotonic())
        self._dirty.set()

    async def advertise(self) -> None:
        """Ads go out when something changed, and every UPDATE_INTERVAL to live on."""
        clock, manager, ads = self._context.clock, self._slot_manager, self._ads
        due = clock.monotonic()
        while True:
            self._follow_clock()  # what ads say of times is by the clock that their message is by
            self._dirty.clear()
            if clock.monotonic() >= due:
                due = clock.monotonic() + self._update_interval()
                ads.renew()
                self._changed, self._gone = set(), set()
                whole = {slot.name: ads.ad_of(slot) for slot in list(manager.slots.values())}
                self._tell_slots(list(whole))
                await self.advertiser.publish(whole, manager.offers())
            elif self._changed or self._gone:
                changed, gone, self._changed, self._gone = self._changed, self._gone, set(), set()
                changed = self._without_passing(changed)
                some = {n: ads.ad_of(manager.slots[n]) for n in changed if n in manager.slots}
                self._tell_slots(list(some))
                await self.advertiser.change(some, gone - some.keys(), manager.offers())
            await clock.sleep(MIN_GAP_S)
            try:
                # Not wait_for: Python 3.11's loses a cancellation that comes together with the event.
                async with asyncio.timeout(max(0.0, due - clock.monotonic())):
                    await self._dirty.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0)  # what changes in this turn of the loop goes out together

    def _without_passing(self, changed: set[str]) -> set[str]:
        """Leave out slots that are between two jobs of a claim, as it seems: there is more to tell of them in a moment.
        Each is left out once, then told as it is."""
        now, slots = self._now(), self._slot_manager.slots
        seem = {name for name in changed if name in slots and between_jobs(slots[name], self._told.get(name), now)}
        self._held_back = seem - self._held_back
        if self._held_back:
            self.changed(self._held_back)
        return changed - self._held_back

    async def tell_all(self) -> None:
        """All ads now, each as a whole: what changes nearly all that others make of them needs no comparison."""
        self._follow_clock()
        manager, ads = self._slot_manager, self._ads
        ads.renew()
        await self.advertiser.publish(
            {slot.name: ads.ad_of(slot) for slot in list(manager.slots.values())}, manager.offers(), whole=True
        )

    async def resend(self, request: SendAds) -> None:
        self._follow_clock()
        await self.advertiser.resend(request)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()

    # -- events

    def event(self, *events: Message) -> None:
        if events:
            self._background.spawn(self._publish(events), "events")

    async def _publish(self, events: Iterable[Any]) -> None:
        try:
            await self._context.bus.publish_many([Outgoing(Exchange.EVENTS, one.type, one) for one in events])
        except BusUnavailable as error:
            self._context.log.debug("events_not_sent", reason=str(error))

    def _tell_slots(self, names: list[str]) -> None:
        """Events for the slots whose state or activity is another than last told."""
        events = []
        for name in names:
            slot = self._slot_manager.slots[name]
            before = self._told.get(name)
            if before == slot.condition:
                continue
            self._told[name] = slot.condition
            claim = slot.claim
            events.append(
                SlotChanged(
                    at=slot.activity_since,
                    startd=self._context.name,
                    slot=name,
                    state=slot.state,
                    activity=slot.activity,
                    from_state=before.state if before else "",
                    from_activity=before.activity if before else "",
                    owner=claim.submitter if claim else "",
                    job_id=job_of(claim.run) if claim else "",
                    reason=self._slot_manager.broken if slot.state is State.OWNER else "",
                )
            )
        self.event(*events)

    def claim_made(self, claim: Claim) -> None:
        self.event(
            ClaimMade(
                at=self._context.clock.now(),
                startd=self._context.name,
                slot=claim.slot,
                schedd=claim.schedd,
                submitter=claim.submitter,
            )
        )

    def claim_ended(self, claim: Claim, reason: str) -> None:
        self.event(
            ClaimEnded(
                at=self._context.clock.now(),
                startd=self._context.name,
                slot=claim.slot,
                schedd=claim.schedd,
                submitter=claim.submitter,
                reason=reason,
            )
        )
        self._context.log.info("claim_ended", slot=claim.slot, reason=reason)

    # -- access points

    def lost(self, schedd: str, slot: str, claim_id: str, reason: str) -> None:
        """Tell an access point that its claim is no more. Not awaited: where the broker is away, which is how most
        leases end, each would take its time; and the schedd learns it from the next answer to its Alive too."""
        if not schedd:
            return  # fetched work has none
        message = ClaimLost(startd=self._context.name, slot=slot, claim_id=claim_id, reason=reason)
        self._background.spawn(self._send(schedd, message, "claim_lost_not_sent", slot), "claim-lost")

    def ready(self, claim: Claim) -> None:
        """Tell an access point that the claim it waits for has its slot. If that is lost, it asks again by itself."""
        if not claim.schedd:
            return
        message = ClaimReady(startd=self._context.name, slot=claim.slot, claim_id=claim.claim_id)
        self._background.spawn(self._send(claim.schedd, message, "claim_ready_not_sent", claim.slot), "claim-ready")

    async def _send(self, schedd: str, message: Message, failed: str, slot: str) -> None:
        try:
            await self._context.bus.send(f"schedd.{schedd}", message)
        except RoostError as error:
            self._context.log.info(failed, slot=slot, reason=str(error))
