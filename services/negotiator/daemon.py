"""The negotiator: listens to ads, runs cycles while it leads, keeps the accountant's books.

It leads for as long as its HAD says so (`Lead`, a lease with an epoch). When the lease runs out it stops deciding by
itself; schedds and the accountant's scripts refuse what still carries the old epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, ClassVar

from services.negotiator import settings as knobs
from services.negotiator.accountant import Accountant
from services.negotiator.cycle import negotiate
from services.negotiator.pool import Pool, Request, Result
from services.negotiator.slot_table import SlotTable, Submitter, by_schedd, submitters
from services.negotiator.timing import LastCycle, next_start
from shared.bus.api import Exchange, Reject, RemoteFailure, Subscription
from shared.bus.topology import negotiator_inbox
from shared.classad import ClassAd
from shared.config.knobs import NegotiatorSettings
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable, inbox_of
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.errors import RetryableError, RoostError
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate, AskForAds, PrivateAds, SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.events import CycleDone, PriorityChanged
from shared.messages.had import Following, Lead, StepDown
from shared.messages.negotiation import (
    GetPriorities,
    GetRequests,
    Match,
    Matches,
    MatchesTaken,
    Priorities,
    Rejection,
    RequestList,
    Reschedule,
    ResourceRequest,
    SetPriority,
)
from shared.state import keys
from shared.state.ads import load_ads, load_claims
from shared.state.api import StaleEpoch

#: Of one submitter at one schedd in a cycle: more requests, and jobs of one request, wait for the next.
MAX_REQUESTS, MAX_COUNT = 100_000, 1_000_000
#: A match that its startd has not confirmed by now is offered again (seconds).
_PENDING_S = 10.0
#: Trigger of a cycle: slots have room that they had not before.
_FREED = "free-slots"
#: Trigger of the cycle that offers again what schedds had no use for.
_UNUSED = "unused-matches"


class Negotiator(Daemon):
    """See the module. `epoch` is 0 until a HAD gave one."""

    subsystem: ClassVar[str] = "NEGOTIATOR"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = NegotiatorSettings.from_config(context.config)
        self.config = knobs.cycle_config(self.settings)
        self.timing = knobs.timing(self.settings, context.config)
        self.shard = self.settings.negotiator_name or ""
        self.name = self.shard or context.name
        self.inbox = negotiator_inbox(self.shard)
        self.accountant = Accountant(
            context.store,
            self.name,
            knobs.factors(self.settings),
            float(self.settings.priority_halflife),
            self.shard,
        )
        self.table = SlotTable()
        self.ads = AdTable(float(self.settings.classad_lifetime))
        self.advertiser = Advertiser(context, "Negotiator")
        self.epoch = 0
        self.leads_until = 0.0  # monotonic
        self.cycle = 0
        self.last_cycle: LastCycle | None = None
        self._owners: dict[str, str] = {}  # slot -> daemon
        self._loaded = False
        self._taking_over = asyncio.Lock()
        self._triggers: set[str] = set()
        self._wake = asyncio.Event()
        self._active_subscription: Subscription | None = None
        self._started = int(context.clock.now())

    # --- life

    async def setup(self) -> None:
        bus = self.context.bus
        await bus.serve(f"negotiator.{self.context.name}", self._on_control)
        await bus.listen(Exchange.ADS, ["*.Machine.#", "*.Submitter.#"], self._on_ads)
        await bus.listen(Exchange.PRIVATE, ["#"], self._on_private)
        bus.on_gap(self._on_gap)
        await bus.publish(Exchange.ADS, "ask.all", AskForAds(by=f"negotiator.{self.context.name}"))

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"cycles": self._run_cycles(), "advertise": self._advertise()}

    async def drain(self) -> None:
        if self.leading():
            await self._commit()
        await self.advertiser.invalidate()

    def ready(self) -> str:
        return "" if not self.leading() or self._loaded else "the slot table to be loaded"

    def role(self) -> str:
        return "leader" if self.leading() else "passive"

    def leading(self) -> bool:
        return self.epoch > 0 and self.context.clock.monotonic() < self.leads_until

    # --- what comes in

    async def _on_control(self, envelope: Envelope) -> Message:
        """Inbox of this very negotiator: its HAD, and who wants its ads."""
        body = envelope.body
        if isinstance(body, Lead):
            await self._lead(body)
        elif isinstance(body, StepDown):
            if body.epoch >= self.epoch:
                await self._stop_leading(body.reason)
        elif isinstance(body, SendAds):
            await self.advertiser.resend(body)
            return Ack()
        else:
            return await self._on_request(envelope)
        return Following(negotiator=self.name, active=self.leading(), epoch=self.epoch, cycle=self.cycle)

    async def _on_request(self, envelope: Envelope) -> Message:
        """Inbox of the active negotiator: what people and schedds ask."""
        body = envelope.body
        if not self.leading():
            return Failure(code="not-leader", reason=f"negotiator {self.name} is not the active one", retryable=True)
        if isinstance(body, Reschedule):
            self._trigger("requested")
            return Ack()
        if isinstance(body, GetPriorities):
            self._charge()
            return Priorities(ads=[ad.pack() for ad in self.accountant.ads()])
        if isinstance(body, SetPriority):
            return await self._set_priority(body)
        return Failure(code="bad-request", reason=f"a negotiator does not answer {body.type}")

    async def _on_ads(self, envelope: Envelope) -> None:
        body = envelope.body
        if not isinstance(body, AdUpdate | AdDelta | AdHeartbeat | AdInvalidate):
            return
        _speaks_for(envelope, body.daemon)
        try:
            change = self.ads.apply(body, self.context.clock.now())
        except BadAd as error:
            raise Reject(f"ads of {body.daemon}: {error}") from error
        if change.ask:
            await self._ask_again(inbox_of(change.daemon), change.my_type)
        if change.my_type == "Machine":
            self._take_slots(change.daemon, change.updated, change.removed)
        elif any(self._wants(change.daemon, name) for name in change.updated):
            self._trigger("new-jobs")

    async def _on_private(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, PrivateAds):
            _speaks_for(envelope, body.daemon)
            before = len(self.table.claims)
            mine = {slot: claim for slot, claim in body.claims.items() if self._owner(slot, body.daemon) == body.daemon}
            self.table.claims.update(mine)
            if len(self.table.claims) > before:
                self._trigger(_FREED)

    async def _on_gap(self) -> None:
        """Broadcasts were missed while the broker was away: read the collector's state again."""
        if self._loaded:
            await self._load()

    async def _ask_again(self, inbox: str, my_type: str) -> None:
        try:
            await self.context.bus.call(inbox, SendAds(my_type=my_type), timeout=5.0)
        except RoostError as error:
            self.context.log.info("send_ads_failed", inbox=inbox, my_type=my_type, error=str(error))

    def _take_slots(self, daemon: str, changed: Iterable[str], gone: Iterable[str]) -> None:
        freed = touched = False
        for name in changed:
            ad = self._readable("Machine", daemon, name)
            if ad is not None and self._owner(name, daemon) == daemon:
                self._owners[name] = daemon
                freed |= self.table.put(name, ad)
                touched = True
        for name in gone:
            if self._owner(name, daemon) == daemon:
                self._owners.pop(name, None)
                self.table.drop(name)
                touched = True
        if touched:
            self._charge()
        if freed:
            self._trigger(_FREED)

    def _wants(self, daemon: str, name: str) -> bool:
        ad = self._readable("Submitter", daemon, name)
        idle = ad.eval("IdleJobs") if ad is not None else 0
        return isinstance(idle, int) and idle > 0

    def _owner(self, slot: str, daemon: str) -> str:
        """Whose slot this is: while its startd's ad of it stands, no other daemon may speak of it."""
        owner = self._owners.get(slot, daemon)
        return owner if self.ads.row("Machine", owner, slot) is not None else daemon

    def _readable(self, my_type: str, daemon: str, name: str) -> ClassAd | None:
        """An ad that is there and can be read: one that can not must not keep the others from being matched."""
        row = self.ads.row(my_type, daemon, name)
        if row is None:
            return None
        try:
            return ClassAd.unpack(row.packed()).check()
        except (ValueError, RecursionError) as error:
            self.context.log.warning("ad_unreadable", my_type=my_type, daemon=daemon, ad=name[:200], error=str(error))
            return None

    def _trigger(self, why: str) -> None:
        self._triggers.add(why)
        self._wake.set()

    # --- leading

    async def _lead(self, lead: Lead) -> None:
        if lead.epoch < self.epoch:
            raise RemoteFailure("stale-epoch", f"epoch {lead.epoch} is over, {self.epoch} was seen")
        if lead.epoch > keys.MAX_EPOCH:
            raise RemoteFailure("bad-request", f"epoch {lead.epoch}: want at most {keys.MAX_EPOCH}")
        fresh = lead.epoch > self.epoch or not self.leading()
        self.epoch = lead.epoch
        self.leads_until = self.context.clock.monotonic() + lead.lease_s
        if fresh:
            self._loaded = False
        # Orders to lead keep coming while the books are read: one of them reads, the others keep the lease alive.
        if not self._loaded and not self._taking_over.locked():
            async with self._taking_over:
                await self._take_over()

    async def _take_over(self) -> None:
        epoch = 0
        while epoch != self.epoch:
            epoch = self.epoch
            self.context.log.info("leading", epoch=epoch)
            await self._load()
        if self._active_subscription is None:
            self._active_subscription = await self.context.bus.serve(self.inbox, self._on_request)
        self._trigger("requested")

    async def _stop_leading(self, reason: str) -> None:
        was = self.leading()
        self.leads_until = 0.0
        self._loaded = False
        if self._active_subscription is not None:
            subscription, self._active_subscription = self._active_subscription, None
            await subscription.cancel()
        if was:
            self.context.log.info("stepped_down", epoch=self.epoch, reason=reason)

    async def _load(self) -> None:
        """Books, slots, claims and submitters as Redis has them; what the bus brought since stays where newer."""
        store = self.context.store
        await self.accountant.load()
        for my_type in ("Machine", "Submitter"):
            for stored in await load_ads(store, my_type):
                self.ads.load(
                    my_type,
                    stored.daemon,
                    start_time=stored.start_time,
                    sequence=stored.sequence,
                    content=stored.content,
                    heard=stored.heard,
                    ads=stored.ads,
                )
        self.table.claims = {**await load_claims(store), **self.table.claims}
        for group in list(self.ads.groups("Machine")):
            self._take_slots(group.daemon, list(group.rows), ())
        self._loaded = True

    def _expire(self, now: float) -> None:
        """Ads nobody repeats for CLASSAD_LIFETIME are gone (COL-02)."""
        for group, names in self.ads.expired(now):
            self.ads.remove(group.my_type, group.daemon, names or None)
            if group.my_type == "Machine":
                self._take_slots(group.daemon, (), names)

    # --- cycles

    async def _run_cycles(self) -> None:
        clock = self.context.clock
        while True:
            if self.table.expire(clock.monotonic()):
                self._trigger(_FREED)
            start = next_start(self.timing, self.last_cycle, bool(self._triggers))
            if not self._triggers and (given_up := self.table.next_end()) is not None:
                start = min(start, given_up)
            wait = start - clock.monotonic()
            if wait > 0:
                self._wake.clear()
                if self._triggers:
                    await clock.sleep(wait)
                else:
                    await self._wait_for_trigger(wait)
                continue
            if not self.leading() or not self._loaded:
                if self._active_subscription is not None:
                    await self._stop_leading("the lease ran out")
                self._wake.clear()
                await self._wait_for_trigger(1.0)
                continue
            triggers, self._triggers = self._triggers or {"periodic"}, set()
            began = clock.monotonic()
            try:
                await self._one_cycle(",".join(sorted(triggers)))
            except StaleEpoch as error:
                await self._stop_leading(str(error))
            except RetryableError as error:
                self.context.log.warning("cycle_failed", epoch=self.epoch, error=str(error))
                self._triggers |= triggers
                await clock.sleep(0.5)
            except Exception:
                # A mistake of ours, met with somebody's ads: they would be there for the next life too. Loud, and the
                # next cycle may go well.
                self.context.log.exception("cycle_broken", epoch=self.epoch, cycle=self.cycle)
                await clock.sleep(0.5)
            self.last_cycle = LastCycle(began, clock.monotonic())

    async def _wait_for_trigger(self, seconds: float) -> None:
        waiter = asyncio.ensure_future(self._wake.wait())
        timer = asyncio.ensure_future(self.context.clock.sleep(seconds))
        try:
            await asyncio.wait((waiter, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            timer.cancel()

    async def _one_cycle(self, trigger: str) -> None:
        clock = self.context.clock
        began = clock.monotonic()
        epoch = self.epoch
        now = clock.now()
        self._expire(now)
        told = [self._readable("Submitter", daemon, name) for daemon, name, _ in self.ads.rows("Submitter")]
        asking = submitters(ad for ad in told if ad is not None)
        if trigger == _FREED and not by_schedd(asking):
            return  # nobody waits for it: who comes later starts a cycle
        self.cycle += 1
        requests = await self._fetch_requests(asking, epoch)
        self._charge()
        pool = Pool(
            slots=self.table.offered(self.config),
            requests=requests,
            records={name: self.accountant.record(name, now) for name in requests},
            in_use={name: weight for name, (weight, _) in self.table.in_use(self.config).items()},
            total_weight=self.table.total_weight(self.config),
            now=now,
        )
        # In a thread, however few there are: one expression of a user may take most of a second, and heartbeats must
        # keep flowing. The hop costs 0.1 ms.
        result = await asyncio.to_thread(negotiate, pool, self.config)
        if not self.leading() or epoch != self.epoch:
            return
        for match in result.matches:
            self.table.matched(match, clock.monotonic() + _PENDING_S)
        self._charge()
        await self.accountant.commit(epoch)
        await self._hand_out(result, epoch, trigger)
        duration = clock.monotonic() - began
        self.context.log.info(
            "cycle",
            cycle=self.cycle,
            epoch=epoch,
            trigger=trigger,
            slots=len(pool.slots),
            spins=result.spins,
            requests=sum(len(r) for r in requests.values()),
            matches=len(result.matches),
            rejections=len(result.rejections),
            duration_s=round(duration, 6),
        )
        await self.context.bus.publish(
            Exchange.EVENTS,
            CycleDone.type,
            CycleDone(
                at=now,
                negotiator=self.name,
                epoch=epoch,
                cycle=self.cycle,
                trigger=trigger,
                duration_s=duration,
                slots=len(pool.slots),
                submitters=len(requests),
                requests=sum(len(r) for r in requests.values()),
                matches=sum(m.count for m in result.matches),
                rejections=len(result.rejections),
            ),
        )

    async def _fetch_requests(self, asking: list[Submitter], epoch: int) -> dict[str, list[Request]]:
        """Request lists of all submitters with idle jobs, from all schedds at once. A schedd that does not answer in
        NEGOTIATOR_TIMEOUT is left out of this cycle."""
        wanted = by_schedd(asking)
        lists = await asyncio.gather(*(self._ask_schedd(inbox, names, epoch) for inbox, names in wanted.items()))
        requests: dict[str, list[Request]] = {}
        for answer in lists:
            for name, found in answer.items():
                requests.setdefault(name, []).extend(found)
        return requests

    async def _ask_schedd(self, inbox: str, names: list[str], epoch: int) -> dict[str, list[Request]]:
        found: dict[str, list[Request]] = {}
        fetched: dict[str, int] = {}
        skip: dict[str, int] = {}
        while names:
            question = GetRequests(
                negotiator=self.name,
                epoch=epoch,
                cycle=self.cycle,
                shard=self.shard,
                submitters=names,
                job_constraint=self.context.config.get("NEGOTIATOR_JOB_CONSTRAINT") or "",
                limit=self.settings.negotiator_resource_request_list_size,
                skip=skip,
            )
            try:
                answer = await self.context.bus.call(
                    inbox, question, timeout=float(self.settings.negotiator_timeout), epoch=epoch
                )
            except RoostError as error:
                self.context.log.warning("schedd_silent", schedd=inbox, error=str(error))
                await self._check_lead(error)
                return found
            if not isinstance(answer, RequestList):
                self.context.log.warning("schedd_silent", schedd=inbox, error=f"it answered {answer.type}")
                return found
            asked, names = names, []
            for name in asked:
                listed = answer.requests.get(name, ())
                fetched[name] = fetched.get(name, 0) + len(listed)
                found.setdefault(name, []).extend(self._requests(inbox, listed))
                # More of a list of which nothing came would never end.
                if listed and name in answer.more and fetched[name] < MAX_REQUESTS:
                    names.append(name)
            skip = {name: fetched[name] for name in names}
        return {name: requests for name, requests in found.items() if requests}

    async def _check_lead(self, error: RoostError) -> None:
        """A schedd says that a newer negotiator is active. Raises StaleEpoch if the store knows of one; else only the
        jobs of that schedd wait, as one that is wrong must not stop the whole pool."""
        if isinstance(error, RemoteFailure) and error.code == "stale-epoch":
            highest = await self.context.store.get(keys.had_epoch(self.shard))
            if highest is not None and int(highest) > self.epoch:
                raise StaleEpoch(error.reason) from error

    def _requests(self, inbox: str, listed: Iterable[ResourceRequest]) -> Iterator[Request]:
        """Requests of a schedd that can be read."""
        for one in listed:
            try:
                ad = ClassAd.unpack(one.ad).check()
            except (ValueError, RecursionError) as error:
                self.context.log.warning("request_unreadable", schedd=inbox, job=one.first_job[:40], error=str(error))
                continue
            if one.count > 0:
                yield Request(inbox, one.autocluster, min(one.count, MAX_COUNT), ad)

    async def _hand_out(self, result: Result, epoch: int, trigger: str) -> None:
        """Send every schedd its matches and rejections. What a schedd does not take is offered again."""
        inboxes = {m.request.schedd for m in result.matches} | {r.request.schedd for r in result.rejections}

        async def tell(inbox: str) -> None:
            mine = [m for m in result.matches if m.request.schedd == inbox]
            decisions = Matches(
                negotiator=self.name,
                epoch=epoch,
                cycle=self.cycle,
                shard=self.shard,
                matches=[
                    Match(
                        submitter=m.submitter,
                        autocluster=m.request.autocluster,
                        count=m.count,
                        slot=m.slot.name,
                        startd=m.slot.startd,
                        claim_id=m.slot.claim_id,
                        slot_ad=m.slot.ad.pack(),
                    )
                    for m in mine
                ],
                rejections=[
                    Rejection(submitter=r.submitter, autocluster=r.request.autocluster, code=r.code, reason=r.reason)
                    for r in result.rejections
                    if r.request.schedd == inbox
                ],
            )
            try:
                answer = await self.context.bus.call(
                    inbox, decisions, timeout=float(self.settings.negotiator_timeout), epoch=epoch
                )
            except RoostError as error:
                self.context.log.warning("matches_not_taken", schedd=inbox, matches=len(mine), error=str(error))
                for match in mine:
                    self.table.unmatched(match)
                await self._check_lead(error)
                return
            if isinstance(answer, MatchesTaken):
                unused = [
                    self.table.unmatched(m, m.count - min(max(0, n), m.count))
                    for m, n in zip(mine, answer.begun, strict=False)
                ]
                if any(unused) and trigger != _UNUSED:  # else two of us could play this ball for ever
                    self._trigger(_UNUSED)

        await asyncio.gather(*(tell(inbox) for inbox in sorted(inboxes)))

    # --- accounting

    def _charge(self) -> None:
        if self.leading() and self._loaded:
            self.accountant.charge(self.table.in_use(self.config), self.context.clock.now())

    async def _commit(self) -> None:
        try:
            self._charge()
            await self.accountant.commit(self.epoch)
        except StaleEpoch as error:
            await self._stop_leading(str(error))

    async def _set_priority(self, asked: SetPriority) -> Message:
        now = self.context.clock.now()
        if not asked.submitter.isprintable() or not 0 < len(asked.submitter) <= 600:
            return Failure(code="bad-request", reason=f"{asked.submitter[:80]!r} is no name of a submitter")
        try:
            self.accountant.change(asked.submitter, asked.what, asked.value, now)
        except ValueError as error:
            return Failure(code="bad-request", reason=str(error))
        await self.accountant.commit(self.epoch)
        await self.context.bus.publish(
            Exchange.EVENTS,
            PriorityChanged.type,
            PriorityChanged(at=now, submitter=asked.submitter, what=asked.what, value=asked.value, by=asked.by),
        )
        return Ack()

    async def _advertise(self) -> None:
        """The negotiator's own ad, and the books kept current between cycles."""
        while True:
            if self.leading() and self._loaded:
                try:
                    await self._commit()
                except RetryableError as error:
                    self.context.log.warning("books_not_written", error=str(error))
            await self.advertiser.publish({self.name: self._ad()})
            await self.context.clock.sleep(min(5.0, float(self.settings.negotiator_update_interval)))

    def _ad(self) -> ClassAd:
        ad = ClassAd()
        ad.update(
            {
                "MyType": "Negotiator",
                "Name": self.name,
                "Machine": self.context.name,
                "MyAddress": f"negotiator.{self.context.name}",
                "DaemonStartTime": self._started,
                "NegotiatorIsActive": self.leading(),
                "Epoch": self.epoch,
                "Cycles": self.cycle,
            }
        )
        return ad


def _speaks_for(envelope: Envelope, daemon: str) -> None:
    """Raises Reject for what is said in the name of another daemon."""
    if envelope.sender and envelope.sender != inbox_of(daemon):
        raise Reject(f"ads of {daemon} from {envelope.sender}: a daemon speaks for itself only")
