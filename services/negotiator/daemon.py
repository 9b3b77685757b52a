"""The negotiator: listens to ads, runs cycles while it leads, keeps the accounting records.

It leads for as long as its HAD says so (`Lead`, a lease with an epoch). When the lease runs out it stops deciding by
itself; schedds and the accountant's scripts refuse what still carries the old epoch.

Longer than most modules: what is here is the order in which things happen, in one place on purpose. Decisions are
elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from engine.fairshare.accountant import EndedChange
from engine.fairshare.accounting_clock import presumed_ahead
from engine.fairshare.quotas import QuotaSetting, with_quotas
from engine.match.model import Request
from engine.match.slot_table import SlotTable
from engine.policy import groups_of, read_policy
from services.negotiator.accountant_rpc import AccountantRpc
from services.negotiator.ad_intake import AdIntake, IntakeResult, Submitter, by_schedd, in_order
from services.negotiator.analyze_rpc import AnalyzeRpc
from services.negotiator.cycle_runner import CycleRunner
from services.negotiator.metrics import CycleCounts, CycleStatistics, Metrics, attributes
from services.negotiator.schedd_client import CycleIdentity, ScheddClient
from services.negotiator.settings import LastCycle, next_start, read_request_lists, read_timing
from services.negotiator.stored_accountant import StoredAccountant
from shared.bus.api import Exchange, NotAllowed, Reject, RemoteFailure, Subscription
from shared.bus.topology import negotiator_inbox
from shared.classad import ClassAd
from shared.compression import AdCompressor
from shared.config import Config, ConfigError
from shared.cooperative import Yielder, in_turns
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable, Outcome, inbox_of
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.invariants import Invariants
from shared.daemon.orders import ORDERS, handle_order
from shared.daemon.statistics import Statistics
from shared.daemon.steady_clock import SteadyClock
from shared.errors import RetryableError, RoostError
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate, AskForAds, PrivateAds, SendAds
from shared.messages.analysis import Analyze
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.events import DaemonGone
from shared.messages.had import Following, Lead, StepDown
from shared.messages.negotiation import GetPriorities, ImportAccounts, Reschedule, SetPriority
from shared.state import keys
from shared.state.ads import StoredGroup, load_ads, load_claims, load_dictionaries, load_groups
from shared.state.api import StaleEpoch
from shared.stored_versions import ACCOUNTING

#: NEGOTIATION_CYCLE_STATS_LENGTH at most, and one more, which says when the period of the last began.
MOST_STATISTICS = 101
#: Slots of one message from which on the table takes them in at once: the next cycle need not.
_MANY = 100
#: Seconds between two lines on the ads of a daemon that can not be read.
UNREADABLE_S = 60.0
#: Slots that are taken in at once where all of them are.
_MOST_AT_ONCE = 2_000
#: A daemon of which something was missed is asked for all its ads at most this often (s).
ASK_AGAIN_S = 0.5
_MOST_ASKED = 10_000
#: Ads that are compressed in one go on the event loop.
_COMPACTED = 100
#: How often (s) it is looked whether there is a dictionary to compress with, until there is one.
_DICTIONARY_S = 60.0
#: Settings that say which slots are taken in, and how.
_ABOUT_SLOTS = ("negotiator_slot_constraint", "startd_ad_reeval_expr")
#: Trigger of a cycle: slots have room that they had not before.
_FREED = "free-slots"
#: Trigger of the cycle that offers again what schedds had no use for.
_UNUSED = "unused-matches"


class Negotiator(Daemon):
    """The negotiator daemon. `epoch` is 0 until a HAD gave one."""

    subsystem: ClassVar[str] = "NEGOTIATOR"
    writes: ClassVar[tuple[str, ...]] = (ACCOUNTING,)
    at_start: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.policy = read_policy(context.config, context.clock.monotonic)
        self._files = context.config  # without the quotas that are set in the accounting records
        self._tree_files = context.config  # those that the group tree was made of
        self._quotas: Mapping[str, QuotaSetting] = {}  # those in the policy
        settings = self.policy.settings
        self.timing = read_timing(settings, context.config)
        self.shard = settings.negotiator_name or ""
        self.name = self.shard or context.name
        self.inbox = negotiator_inbox(self.shard)
        self.invariants = Invariants("negotiator", context)
        self.steady = SteadyClock(context.clock)
        self.accountant = StoredAccountant(
            context.store,
            self.name,
            self.policy.factors,
            float(settings.priority_halflife),
            self.shard,
            self.policy.tree,
            now=self.steady.now,
            check=self.invariants.check,
        )
        self.accountant_rpc = AccountantRpc(context, self.name, self.accountant, self.steady.now)
        self.schedd_client = ScheddClient(context, read_request_lists(settings, context.config))
        self.compressor = AdCompressor()
        self.table = SlotTable(self.policy.cycle, self.compressor)
        self.cycle_runner = CycleRunner(
            context, self.policy, self.table, self.accountant, self.schedd_client, self._charge
        )
        self.ads = AdTable(float(settings.classad_lifetime), self.compressor)
        self.ad_intake = AdIntake(self.policy, self.ads, self.table, self.steady, self._unreadable)
        self.analyze_rpc = AnalyzeRpc(context.clock, self.ads, self.ad_intake.owner, self.ad_intake.absent)
        self.advertiser = Advertiser(context, "Negotiator")
        self.epoch = 0
        self.leads_until = 0.0  # monotonic
        self.life = context.new_id()  # orders to lead are for one life
        self._stopped_at = float("-inf")  # monotonic: when it was last told to stop
        self._told_to_stop = 0  # orders
        self.cycle = 0
        self.last_cycle: LastCycle | None = None
        self.statistics: deque[CycleStatistics] = deque(maxlen=MOST_STATISTICS)  # newest first
        self.own_statistics = Statistics(context, settings.statistics_window_seconds, dict)
        self.counts = CycleCounts()
        context.metrics.register(
            Metrics(
                self.counts,
                lambda: self.epoch if self.leading() else 0,
                lambda: self.table.charged(self.policy.cycle) if self.leading() else {},
                self._records_behind,
                lambda: (self.cycle_runner.publisher.waiting, self.cycle_runner.publisher.lost),
            )
        )
        self._loaded = False
        self._taking_over = asyncio.Lock()
        self._triggers: set[str] = set()
        self._triggered_at = 0.0  # wall clock: when the first of them came
        self._asked_for_more = 0  # triggers but those of slots
        self._served = -1  # so many of them, when everybody had got all that was asked for
        self._written_at = 0.0  # monotonic: when all accounting records were in Redis
        self._wake = asyncio.Event()
        self._active_subscription: Subscription | None = None
        self._active_epoch = 0  # in which it was made
        self._started = int(context.clock.now())
        self._asked: dict[tuple[str, str], float] = {}  # daemon and type: when it was asked for all ads, monotonic
        #: By type and daemon: when an ad that can not be read was told, monotonic, and how many have come since.
        self._told_unreadable: dict[tuple[str, str], tuple[float, int]] = {}
        self._dictionary_at = 0.0  # monotonic: when to look for a dictionary again
        self._ended: list[EndedChange] = []  # changes for a while that are over, not told yet
        self._report_problems()

    # --- life

    async def setup(self) -> None:
        bus = self.context.bus
        await bus.serve(f"negotiator.{self.context.name}", self._on_control)
        await bus.listen(Exchange.ADS, ["*.Machine.#", "*.Submitter.#"], self._on_ads)
        await bus.listen(Exchange.PRIVATE, ["#"], self._on_private)
        try:
            await bus.listen(Exchange.EVENTS, [DaemonGone.type], self._on_gone)
        except NotAllowed as error:  # a broker whose definitions are of an earlier release
            self.context.log.warning("absence_is_not_heard", reason=str(error))
        bus.on_gap(self._on_gap)
        await bus.publish(Exchange.ADS, "ask.all", AskForAds(by=f"negotiator.{self.context.name}"))

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"cycles": self._run_cycles(), "advertise": self._advertise(), "tell": self.cycle_runner.publisher.run()}

    async def drain(self) -> None:
        await self.cycle_runner.publisher.drain()
        if self.leading():
            await self._commit()
        await self.accountant_rpc.withdraw()
        await self.advertiser.invalidate()

    def check(self, config: Config) -> None:
        read_policy(config, self.context.clock.monotonic)

    async def reconfigure(self) -> None:
        await self._apply_policy(self.context.config, whole=True)
        self._trigger("reconfigured")

    async def _apply_policy(self, files: Config, *, whole: bool) -> None:
        """Go by this configuration from now on, and by the quotas in the accounting records; not `whole`: of the files
        the group tree stays as it was (NEG-40). Raises ConfigError, and changes nothing then."""
        quotas, tree_files = self.accountant.quotas(), files if whole else self._tree_files
        config = with_quotas(files, quotas)
        groups = None if tree_files is files else groups_of(with_quotas(tree_files, quotas))
        policy = read_policy(config, self.context.clock.monotonic, groups)
        self.context.config, self._files, self._tree_files, self._quotas = config, files, tree_files, quotas
        before, self.policy = self.policy, policy
        self.cycle_runner.policy = policy
        self.ad_intake.configure(policy)
        self.timing = read_timing(policy.settings, config)
        self.schedd_client.settings = read_request_lists(policy.settings, config)
        self.accountant.configure(
            policy.factors, float(policy.settings.priority_halflife), policy.tree, self.steady.now()
        )
        if policy.problems != before.problems:
            self._report_problems()
        others = (str(getattr(policy.settings, k)) != str(getattr(before.settings, k)) for k in _ABOUT_SLOTS)
        if policy.match_exprs != before.match_exprs or any(others):
            await self._apply_all_slots()

    async def _apply_quotas(self) -> None:
        """Go by the quotas in the accounting records, if they are others than before."""
        if self.accountant.quotas() != self._quotas:
            await self._apply_policy(self._files, whole=False)
            self._trigger("reconfigured")

    def _unreadable(self, my_type: str, daemon: str, name: str, error: Exception) -> None:
        """Log it; of one daemon's ads of a type a line a minute, since all of them may be met again in every cycle."""
        now = self.context.clock.monotonic()
        at, more = self._told_unreadable.get((my_type, daemon), (float("-inf"), 0))
        if now < at + UNREADABLE_S:
            self._told_unreadable[my_type, daemon] = at, more + 1
            return
        if len(self._told_unreadable) > _MOST_ASKED:
            self._told_unreadable.clear()
        self._told_unreadable[my_type, daemon] = now, 0
        reason = str(error)
        self.context.log.warning("ad_unreadable", my_type=my_type, of=daemon, ad=name[:200], error=reason, before=more)

    def _report_problems(self) -> None:
        for problem in self.policy.problems:
            self.context.log.warning("configuration", problem=problem)

    def ready(self) -> str:
        return "" if not self.leading() or self._loaded else "the slot table to be loaded"

    def role(self) -> str:
        return "leader" if self.leading() else "passive"

    def leading(self) -> bool:
        return self.epoch > 0 and self.context.clock.monotonic() < self.leads_until

    # --- what comes in

    async def _on_control(self, envelope: Envelope) -> Message:
        """Handle the inbox of this very negotiator: its HAD, and daemons that want its ads."""
        body = envelope.body
        if isinstance(body, Lead):
            await self._lead(body)
        elif isinstance(body, StepDown):
            if body.epoch >= self.epoch:
                self._told_to_stop += 1
                self._stopped_at = self.context.clock.monotonic()
                await self._stop_leading(body.reason)
        elif isinstance(body, SendAds):
            for my_type, advertiser in (("Negotiator", self.advertiser), ("Accounting", self.accountant_rpc)):
                if body.my_type in ("", my_type):
                    await advertiser.resend(body)
            return Ack()
        elif isinstance(body, ORDERS):
            return await handle_order(self, envelope)
        else:
            return await self._on_request(envelope)
        version, away = self.accountant.version, self.accountant_rpc.cut_off()
        books = [version.epoch, version.count]
        return Following(
            negotiator=self.name,
            active=self.leading(),
            epoch=self.epoch,
            cycle=self.cycle,
            books=books,
            cut_off=away,
            life=self.life,
            stamp=self.context.clock.monotonic(),
        )

    async def _on_request(self, envelope: Envelope) -> Message:
        """Handle the inbox of the active negotiator: what people and schedds ask."""
        body = envelope.body
        if not self.leading():
            return Failure(code="not-leader", reason=f"negotiator {self.name} is not the active one", retryable=True)
        if not self._loaded:
            # Told to lead again: what is in memory is of its last time, and a change of it would be read over.
            reason = f"negotiator {self.name} is about to lead: it reads its books"
            return Failure(code="not-leader", reason=reason, retryable=True)
        if isinstance(body, Reschedule):
            self._trigger("requested")
            return Ack()
        if isinstance(body, GetPriorities | SetPriority | ImportAccounts):
            return await self._ask_accountant(body)
        if isinstance(body, Analyze):
            return await self._analyze(body)
        return Failure(code="bad-request", reason=f"a negotiator does not answer {body.type}")

    async def _on_ads(self, envelope: Envelope) -> None:
        body = envelope.body
        if not isinstance(body, AdUpdate | AdDelta | AdHeartbeat | AdInvalidate):
            return
        try:
            change = await in_turns(self.ads.steps(body, self.steady.now()))
        except BadAd as error:
            raise Reject(f"ads of {body.daemon}: {error}") from error
        if change.my_type == "Machine":
            if change.outcome in (Outcome.APPLIED, Outcome.ALIVE):
                self.ad_intake.clock_offsets.heard(change.daemon, envelope.ts, self.steady.now())
            await self._take(self.ad_intake.returned(change.daemon))
            await self._take(self.ad_intake.steps(change.daemon, change.updated, change.removed))
        else:
            self.schedd_client.heard(inbox_of(change.daemon))
            if await in_turns(self.ad_intake.wants_slots(change.daemon, change.updated)):
                self._trigger("new-jobs")
        if change.ask:
            await self._ask_again(change.daemon, change.my_type)

    async def _on_private(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, PrivateAds):
            before = len(self.table.claims)
            mine = {
                slot: claim
                for slot, claim in body.claims.items()
                if self.ad_intake.owner(slot, body.daemon) == body.daemon
            }
            self.table.claims.update(mine)
            if len(self.table.claims) > before:
                self._trigger(_FREED)

    async def _on_gone(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, DaemonGone) and (slots := self.ad_intake.vanished(body.daemon)):
            self.context.log.info("execution_point_gone", of=body.daemon, slots=slots)

    async def _on_gap(self) -> None:
        """Read the collector's state again: broadcasts were missed while the broker was away."""
        if self._loaded:
            await self._load_ads()

    async def _ask_again(self, daemon: str, my_type: str) -> None:
        """Ask for all ads. Nobody waits for the answer, which is the ads: all others' would wait behind it. If it is
        lost the daemon's next message asks again."""
        now = self.context.clock.monotonic()
        if now < self._asked.get((daemon, my_type), -ASK_AGAIN_S) + ASK_AGAIN_S:
            return
        if len(self._asked) > _MOST_ASKED:
            self._asked.clear()
        self._asked[daemon, my_type] = now
        try:
            await self.context.bus.send(inbox_of(daemon), SendAds(my_type=my_type))
        except RoostError as error:
            self.context.log.info("send_ads_failed", of=daemon, my_type=my_type, error=str(error))

    async def _take(self, steps: Iterable[IntakeResult]) -> None:
        """Take in slots; others have their turn in between."""
        taken, turn = IntakeResult(), Yielder()
        for one in steps:
            taken.add(one)
            await turn.yield_if_due()
        await self._slots_changed(taken)

    async def _slots_changed(self, taken: IntakeResult) -> None:
        """Charge and start a cycle where slots have changed: so may their users, and what can be given away."""
        if taken.slots >= _MANY:
            await self.cycle_runner.flush_slots()
        if taken.touched:
            self._charge()
        if taken.freed:
            self._trigger(_FREED)

    async def _apply_all_slots(self) -> None:
        """Take in all slots again, a slice at a time: a large pool takes seconds, and the lease must be kept."""
        whole, unsettled, turn = IntakeResult(), 0, Yielder()
        for taken in self.ad_intake.apply_all():
            whole.add(taken)
            unsettled += taken.slots
            # New rows cost a copy of all columns, so fewer times the more there are; so many take some 30 ms.
            if unsettled >= min(_MOST_AT_ONCE, max(_MANY, len(self.table.ads) // 16)):
                await self.cycle_runner.flush_slots()
                unsettled = 0
            await turn.yield_if_due()
        await self._slots_changed(whole)

    def _trigger(self, why: str) -> None:
        if not self._triggers:
            self._triggered_at = self.context.clock.now()
        self._triggers.add(why)
        self._asked_for_more += why != _FREED
        self._wake.set()

    # --- leading

    async def _lead(self, lead: Lead) -> None:
        if lead.epoch < self.epoch:
            raise RemoteFailure("stale-epoch", f"epoch {lead.epoch} is over, {self.epoch} was seen")
        if lead.epoch > keys.MAX_EPOCH:
            raise RemoteFailure("bad-request", f"epoch {lead.epoch}: want at most {keys.MAX_EPOCH}")
        if lead.life not in ("", self.life):
            return  # to our former life: our answer tells the HAD of this one
        heard = self.context.clock.monotonic()
        until = lead.stamp + lead.span_s if lead.life else heard + lead.lease_s
        if until <= heard or (lead.life and lead.stamp < self._stopped_at):
            return  # it waited too long at the broker, where a later order was quicker: another one may lead by now
        fresh = lead.epoch > self.epoch or not self.leading()
        if fresh:
            # An order may have waited in our inbox for seconds: of a HAD that has died since, for our former life.
            told = self._told_to_stop
            highest = await self.context.store.get(keys.had_epoch(self.shard))
            if highest is not None and int(highest) > lead.epoch:
                raise RemoteFailure("stale-epoch", f"epoch {lead.epoch} is over, {int(highest)} was given since")
            if told != self._told_to_stop or lead.epoch < self.epoch:
                return  # a later order was quicker
            fresh = lead.epoch > self.epoch or not self.leading()
        # Of two orders the older one may have waited longer for Redis.
        longest = self.leads_until if lead.epoch == self.epoch else 0.0
        self.epoch = lead.epoch
        self.leads_until = max(longest, until)
        if fresh:
            self._loaded = False
        # Orders to lead keep coming while the accounting records are read: one of them reads, the others keep the
        # lease alive.
        if not self._loaded and not self._taking_over.locked():
            async with self._taking_over:
                try:
                    await self._take_over()
                except StaleEpoch as error:
                    await self._stop_leading(str(error))

    async def _take_over(self) -> None:
        epoch = 0
        while epoch != self.epoch:
            epoch = self.epoch
            self.context.log.info("leading", epoch=epoch)
            await self._load()
        self._trigger("requested")
        if self._active_epoch != epoch and self.leading():
            # One that led before us may hang, and be connected: it is asked no more.
            subscription = await self.context.bus.serve(self.inbox, self._on_request, priority=epoch)
            if not self.leading():  # told to stop meanwhile: half of all questions would be refused here
                await subscription.cancel()
                return
            former, self._active_subscription, self._active_epoch = self._active_subscription, subscription, epoch
            if former is not None:
                await former.cancel()

    async def _stop_leading(self, reason: str) -> None:
        was = self.leading()
        self.leads_until = 0.0
        self._loaded = False
        if self._active_subscription is not None:
            subscription, self._active_subscription, self._active_epoch = self._active_subscription, None, 0
            await subscription.cancel()
        if was:
            self.context.log.info("stepped_down", epoch=self.epoch, reason=reason)

    async def _load(self) -> None:
        """Read accounting records, slots, claims and submitters from Redis."""
        if await self.accountant.load(self.epoch):
            self.context.log.warning("books_restored", source="memory", version=self.accountant.version.text)
        await self._load_ads(presume=True)
        if self.accountant.unreadable:
            self.context.log.error("books_unreadable", records=self.accountant.unreadable)
        self.accountant.take_over(self.ad_intake.claim_charges, self.steady.now())
        await self._apply_quotas()
        self._loaded = True
        self._written_at = self.context.clock.monotonic()
        self._charge()  # at once: what is in use goes on from here

    async def _load_ads(self, *, presume: bool = False) -> None:
        """Read slots, claims and submitters from Redis; what the bus brought since stays where it is newer. presume:
        how far our clock is ahead of everybody's is known as the accounting records were read just now."""
        store, heard = self.context.store, None
        for my_type in ("Machine", "Submitter"):
            for stored in await load_ads(store, my_type, self.compressor):
                self._load_group(stored)
                heard = stored.heard if heard is None else max(heard, stored.heard)
        if presume:
            self.ad_intake.clock_offsets.presumed_s = presumed_ahead(
                self.accountant.ahead_s, self.accountant.redis_ahead_s, self.steady.now(), heard
            )
        self.table.claims = {**await load_claims(store), **self.table.claims}
        await self._apply_all_slots()

    def _load_group(self, stored: StoredGroup) -> None:
        self.ads.load(
            stored.my_type,
            stored.daemon,
            start_time=stored.start_time,
            sequence=stored.sequence,
            content=stored.content,
            heard=stored.heard,
            ads=stored.ads,
        )

    async def _keep_sleeping_machines(self) -> None:
        """Take the ads of sleeping machines as the collector keeps them, with the time for which it does."""
        silent = self.ad_intake.sleeping_daemons(self.steady.now())
        if silent:
            of_silent = [("Machine", daemon) for daemon in silent]
            for stored in await load_groups(self.context.store, of_silent, self.compressor):
                known = self.ads.group("Machine", stored.daemon)
                gone = set(known.rows) - stored.ads.keys() if known is not None else set()
                self.ads.remove("Machine", stored.daemon)
                self._load_group(stored)
                await self._take(self.ad_intake.steps(stored.daemon, stored.ads, gone))

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
                    await wait_for_event(self._wake, clock, wait)
                continue
            if not self.leading() or not self._loaded:
                # Not while the accounting records are read for a lead that has just begun.
                if self._active_subscription is not None and not self.leading():
                    await self._stop_leading("the lease ran out")
                self._wake.clear()
                await wait_for_event(self._wake, clock, 1.0)
                continue
            triggered_at = self._triggered_at if self._triggers else None
            triggers, self._triggers = self._triggers or {"periodic"}, set()
            began = clock.monotonic()
            try:
                await self._one_cycle(",".join(sorted(triggers)), triggered_at)
            except StaleEpoch as error:
                await self._stop_leading(str(error))
            except RetryableError as error:
                self.counts.failed += 1
                self.context.log.warning("cycle_failed", epoch=self.epoch, error=str(error))
                self._triggers |= triggers
                await clock.sleep(0.5)
            except Exception:
                # A mistake of ours, met with somebody's ads: they would be there for the next life too. Loud, and the
                # next cycle may go well.
                self.counts.failed += 1
                self.context.log.exception("cycle_broken", epoch=self.epoch, cycle=self.cycle)
                await clock.sleep(0.5)
            self.last_cycle = LastCycle.of(self.timing, self.last_cycle, began, clock.monotonic())

    async def _one_cycle(self, trigger: str, triggered_at: float | None) -> None:
        if self.policy.settings.negotiator_read_config_before_cycle:
            await self._reread_config()
        epoch = self.epoch
        await self._keep_sleeping_machines()
        await self._take(self.ad_intake.expire(self.steady.now()))
        await self._take(self.ad_intake.apply_kept_back())
        if self.policy.settings.negotiator_slot_constraint is not None:
            async with self.cycle_runner.up_to_date():
                await self._take(self.ad_intake.apply_constraint())
        asked_for_more = self._asked_for_more  # before they are asked: who asks meanwhile is not served yet
        asking = await self._submitters()
        if trigger == _FREED and (self._served == asked_for_more or not by_schedd(asking)):
            return  # nobody waits for it: who comes later starts a cycle
        self.cycle += 1
        identity = CycleIdentity(self.name, self.shard, epoch, self.cycle)
        done = await self.cycle_runner.cycle(
            asking, identity, trigger, lambda: self._loaded and self.leading() and epoch == self.epoch, triggered_at
        )
        if done is None:
            return
        self._served = asked_for_more if done.served else -1
        self.analyze_rpc.remember(done.result.rejections)
        self.statistics.appendleft(done.statistics)
        self.counts.add(done.statistics, done.result.rejections)
        if done.unused and trigger != _UNUSED:  # else two of us could play this ball for ever
            self._trigger(_UNUSED)
        if self.policy.settings.negotiator_update_after_cycle:
            await self.advertiser.publish({self.name: self._ad()})

    async def _reread_config(self) -> None:
        """Read the configuration again, for NEGOTIATOR_READ_CONFIG_BEFORE_CYCLE. What can not be read leaves
        everything as it was."""
        if self.context.reread is None:
            return
        try:
            config = await asyncio.to_thread(self.context.reread)
            if list(config.macros()) == list(self._files.macros()):
                return
            await self._apply_policy(config, whole=False)
        except ConfigError as error:
            self.context.log.error("configuration_kept", reason=str(error))

    # --- explanations

    async def _analyze(self, asked: Analyze) -> Message:
        if asked.negotiator not in ("", self.name):
            return Failure(code="not-found", reason=f"this is negotiator {self.name}, not {asked.negotiator[:80]}")
        try:
            return await self.analyze_rpc.answer(
                asked,
                claims=self.table.claims,
                pending=self.table.pending,
                waking=self.cycle_runner.wake_calls.names,
                constraint=self.policy.cycle.slot_constraint,
                requests=self._waiting,
                owner=self.table.owner,
            )
        except StaleEpoch as error:
            await self._stop_leading(str(error))
            return Failure(code="not-leader", reason=str(error), retryable=True)

    async def _submitters(self) -> list[Submitter]:
        """Those that can be talked to; others have their turn meanwhile, as there may be thousands."""
        turn = Yielder()
        found = []
        for one in self.ad_intake.each_submitter():
            found.append(one)
            await turn.yield_if_due()
        return in_order(found)

    async def _waiting(self) -> Mapping[str, Sequence[Request]]:
        """What all submitters ask for at this moment."""
        answers = await self.cycle_runner.requests(
            await self._submitters(), CycleIdentity(self.name, self.shard, self.epoch, self.cycle)
        )
        return answers.requests

    # --- accounting

    def _records_behind(self) -> float:
        if not self.leading() or not self._loaded:
            return 0.0
        return max(0.0, self.context.clock.monotonic() - self._written_at)

    def _follow_clock(self) -> None:
        """Go by the wall clock again, if it was set."""
        if seconds := self.steady.set_by():
            self.context.log.warning("clock_set", seconds=round(seconds, 1))
            self.steady.follow(seconds)
            self.ad_intake.clock_set(seconds)
            self.accountant.clock_set(seconds)

    def _charge(self) -> float:
        """Charge everybody up to now, which is returned."""
        self._follow_clock()
        now = self.steady.now()
        late, changed = self.ad_intake.claim_charges.take_late(), self.ad_intake.claim_charges.take_changed()
        if self.leading() and self._loaded:  # else whoever leads charges for it
            self.accountant.charge(self.table.charged(self.policy.cycle), now, late, changed)
            self._ended += self.accountant.end_changes(now)
        return now

    async def _commit(self) -> None:
        try:
            self._charge()
            await self.accountant.commit(self.epoch)
        except StaleEpoch as error:
            await self._stop_leading(str(error))
            return
        self._written_at = self.context.clock.monotonic()
        while self._ended:
            await self.accountant_rpc.tell_ended(self._ended[0])
            del self._ended[0]

    async def _ask_accountant(self, asked: GetPriorities | SetPriority | ImportAccounts) -> Message:
        self._charge()
        try:
            return await self.accountant_rpc.answer(asked, self.epoch)
        except StaleEpoch as error:
            await self._stop_leading(str(error))
            return Failure(code="not-leader", reason=str(error), retryable=True)
        finally:
            await self._apply_quotas()  # also when there was nobody to tell of the change

    async def _advertise(self) -> None:
        """Publish the negotiator's own ad, and keep the accounting records current between cycles."""
        while True:
            self._follow_clock()
            self.ad_intake.claim_charges.tidy(self.steady.now())
            if self.leading() and self._loaded:
                try:
                    await self._commit()
                except RetryableError as error:
                    self.context.log.warning("books_not_written", error=str(error))
                await self.accountant_rpc.publish()
            else:
                await self.accountant_rpc.withdraw()
            await self.advertiser.publish({self.name: self._ad()})
            await self._compact()
            await self.context.clock.sleep(min(5.0, max(0.1, float(self.policy.settings.negotiator_update_interval))))

    async def _compact(self) -> None:
        """Keep the ads that came since the last time compressed, with a collector's dictionary."""
        now = self.context.clock.monotonic()
        if not self.compressor.current and now >= self._dictionary_at:
            self._dictionary_at = now + _DICTIONARY_S
            with contextlib.suppress(RetryableError):
                await load_dictionaries(self.context.store, self.compressor)
        yielder = Yielder()
        while self.ad_intake.compact(_COMPACTED):
            await yielder.yield_if_due()

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
                "PriorityHalflife": float(self.policy.settings.priority_halflife),
                "Epoch": self.epoch,
                "Cycles": self.cycle,
                **self.own_statistics.attributes(),
                **attributes(list(self.statistics), self.policy.settings.negotiation_cycle_stats_length),
            }
        )
        return ad
