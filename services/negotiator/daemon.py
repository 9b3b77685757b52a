"""The negotiator: listens to ads, runs cycles while it leads, keeps the accountant's books.

It leads for as long as its HAD says so (`Lead`, a lease with an epoch). When the lease runs out it stops deciding by
itself; schedds and the accountant's scripts refuse what still carries the old epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from services.negotiator import settings as knobs
from services.negotiator.accountant import Accountant, Ended
from services.negotiator.books import Books
from services.negotiator.cycle import negotiate
from services.negotiator.group_tree import Tree
from services.negotiator.pool import Matched, Request, Result
from services.negotiator.questions import Questions
from services.negotiator.requests import Bearings, Schedds
from services.negotiator.slot_table import SlotTable, by_schedd, submitters
from services.negotiator.timing import LastCycle, next_start
from shared.bus.api import Exchange, Reject, RemoteFailure, Subscription
from shared.bus.topology import negotiator_inbox
from shared.classad import ClassAd, evaluate
from shared.config.knobs import NegotiatorSettings
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable, inbox_of
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.errors import RetryableError, RoostError
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate, AskForAds, PrivateAds, SendAds
from shared.messages.analysis import Analyze
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.events import CycleDone
from shared.messages.had import Following, Lead, StepDown
from shared.messages.negotiation import (
    GetPriorities,
    Match,
    Rejection,
    Reschedule,
    SetPriority,
)
from shared.state import keys
from shared.state.ads import load_ads, load_claims
from shared.state.api import StaleEpoch

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
            Tree.of(knobs.group_config(self.settings)),
        )
        self.books = Books(context, self.name, self.accountant)
        self.schedds = Schedds(context, knobs.lists(self.settings, context.config))
        self.table = SlotTable(self.config)
        self.ads = AdTable(float(self.settings.classad_lifetime))
        self.questions = Questions(context.clock, self.ads, self._owner)
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
        self._ended: list[Ended] = []  # changes for a while that are over, not told yet

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
        await self.books.withdraw()
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
            for my_type, advertiser in (("Negotiator", self.advertiser), ("Accounting", self.books)):
                if body.my_type in ("", my_type):
                    await advertiser.resend(body)
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
        if isinstance(body, GetPriorities | SetPriority):
            return await self._ask_books(body)
        if isinstance(body, Analyze):
            return await self._analyze(body)
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
            if ad is None or self._owner(name, daemon) != daemon:
                continue
            self._owners[name] = daemon
            touched = True
            if self._in_shard(ad):
                freed |= self.table.put(name, ad)
            elif name in self.table.ads:
                claim = self.table.claims.get(name)
                self.table.drop(name)
                if claim is not None:  # it may come back without its startd saying so again
                    self.table.claims[name] = claim
        for name in gone:
            if self._owner(name, daemon) == daemon:
                self._owners.pop(name, None)
                self.table.drop(name)
                touched = True
        if touched:
            self._charge()
        if freed:
            self._trigger(_FREED)

    def _in_shard(self, ad: ClassAd) -> bool:
        """Slots outside of NEGOTIATOR_SLOT_CONSTRAINT are neither offered nor charged nor part of the pool's size: they
        are another negotiator's (NEG-04, MUL-01, MUL-02)."""
        constraint = self.settings.negotiator_slot_constraint
        return constraint is None or evaluate(constraint, ad, now=self.context.clock.now()) is True

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
        bearings = Bearings(self.name, self.shard, epoch, self.cycle)
        requests = await self.schedds.requests(by_schedd(asking), bearings)
        self._charge()
        users = {*requests, *self.table.in_use(self.config)}
        records = {name: self.accountant.record(name, now) for name in sorted(users)}
        snapshot = self.table.snapshot(self.config, requests, records)
        # In a thread, however few there are: one expression of a user may take most of a second, and heartbeats must
        # keep flowing. The hop costs 0.1 ms.
        result = await asyncio.to_thread(negotiate, snapshot, self.config, now)
        if not self.leading() or epoch != self.epoch:
            return
        self.questions.remember(result.rejections)
        for match in result.matches:
            if match.slot in self.table.ads:  # else it went away while the cycle was decided
                self.table.matched(match, clock.monotonic() + _PENDING_S)
        self._charge()
        await self.accountant.commit(epoch)
        await self._hand_out(result, bearings, trigger)
        duration = clock.monotonic() - began
        self.context.log.info(
            "cycle",
            cycle=self.cycle,
            epoch=epoch,
            trigger=trigger,
            slots=len(self.table.ads),
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
                slots=len(self.table.ads),
                submitters=len(requests),
                requests=sum(len(r) for r in requests.values()),
                matches=sum(m.count for m in result.matches),
                rejections=len(result.rejections),
            ),
        )

    async def _hand_out(self, result: Result, bearings: Bearings, trigger: str) -> None:
        """Send every schedd its matches and rejections. What a schedd does not take is offered again."""
        matches: dict[str, list[Matched]] = {}
        rejections: dict[str, list[Rejection]] = {}
        for match in result.matches:
            if match.slot in self.table.ads:
                matches.setdefault(match.request.schedd, []).append(match)
        for r in result.rejections:
            rejections.setdefault(r.request.schedd, []).append(
                Rejection(submitter=r.submitter, autocluster=r.request.autocluster, code=r.code, reason=r.reason)
            )

        async def tell(inbox: str) -> None:
            mine = matches.get(inbox, [])

            def taken(index: int, begun: int) -> None:
                match = mine[index]
                # Not after a cycle of what nobody took: two of us could play this ball for ever.
                if self.table.unmatched(match, match.count - begun) and trigger != _UNUSED:
                    self._trigger(_UNUSED)

            await self.schedds.tell(
                inbox, [_message(match, self.table) for match in mine], rejections.get(inbox, []), bearings, taken
            )

        await asyncio.gather(*(tell(inbox) for inbox in sorted({*matches, *rejections})))

    # --- explanations

    async def _analyze(self, asked: Analyze) -> Message:
        if asked.negotiator not in ("", self.name):
            return Failure(code="not-found", reason=f"this is negotiator {self.name}, not {asked.negotiator[:80]}")
        try:
            return await self.questions.answer(
                asked,
                claims=self.table.claims,
                pending=self.table.pending,
                constraint=self.config.slot_constraint,
                requests=self._waiting,
            )
        except StaleEpoch as error:
            await self._stop_leading(str(error))
            return Failure(code="not-leader", reason=str(error), retryable=True)

    async def _waiting(self) -> Mapping[str, Sequence[Request]]:
        """What all submitters ask for at this moment."""
        told = [self._readable("Submitter", daemon, name) for daemon, name, _ in self.ads.rows("Submitter")]
        wanted = by_schedd(submitters(ad for ad in told if ad is not None))
        return await self.schedds.requests(wanted, Bearings(self.name, self.shard, self.epoch, self.cycle))

    # --- accounting

    def _charge(self) -> None:
        if self.leading() and self._loaded:
            now = self.context.clock.now()
            self.accountant.charge(self.table.in_use(self.config), now)
            self._ended += self.accountant.end_changes(now)

    async def _commit(self) -> None:
        try:
            self._charge()
            await self.accountant.commit(self.epoch)
        except StaleEpoch as error:
            await self._stop_leading(str(error))
            return
        while self._ended:
            await self.books.tell_ended(self._ended[0])
            del self._ended[0]

    async def _ask_books(self, asked: GetPriorities | SetPriority) -> Message:
        self._charge()
        try:
            return await self.books.answer(asked, self.epoch)
        except StaleEpoch as error:
            await self._stop_leading(str(error))
            return Failure(code="not-leader", reason=str(error), retryable=True)

    async def _advertise(self) -> None:
        """The negotiator's own ad, and the books kept current between cycles."""
        while True:
            if self.leading() and self._loaded:
                try:
                    await self._commit()
                except RetryableError as error:
                    self.context.log.warning("books_not_written", error=str(error))
                await self.books.publish()
            else:
                await self.books.withdraw()
            await self.advertiser.publish({self.name: self._ad()})
            await self.context.clock.sleep(min(5.0, float(self.settings.negotiator_update_interval)))

    def _ad(self) -> ClassAd:
        ad = ClassAd()
        ad.update(
            {
                "MyType": "Negotiator",
                "Name": self.name,
                "Shard": self.shard,
                "Machine": self.context.name,
                "MyAddress": f"negotiator.{self.context.name}",
                "DaemonStartTime": self._started,
                "NegotiatorIsActive": self.leading(),
                "Epoch": self.epoch,
                "Cycles": self.cycle,
            }
        )
        return ad


def _message(match: Matched, table: SlotTable) -> Match:
    packed = table.packed(match.slot)
    return Match(
        submitter=match.submitter,
        autocluster=match.request.autocluster,
        count=match.count,
        slot=match.slot,
        startd=str(ClassAd.unpack(packed).eval("MyAddress")),
        claim_id=table.claims[match.slot],
        slot_ad=packed,
        preempts=list(match.preempts),
        concurrency_limits=match.limits,
    )


def _speaks_for(envelope: Envelope, daemon: str) -> None:
    """Raises Reject for what is said in the name of another daemon."""
    if envelope.sender and envelope.sender != inbox_of(daemon):
        raise Reject(f"ads of {daemon} from {envelope.sender}: a daemon speaks for itself only")
