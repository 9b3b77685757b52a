"""The HAD: keeps exactly one negotiator of the pool active.

One loop looks at the lease in Redis, another talks to the negotiator (inbox "negotiator.<name of this HAD>", or that of
another HAD_CONTROLLEE) and tells it again and again to lead, or to follow; its answers show that it is alive.
`core.election` decides, and returns the effects that this module carries out. A third loop copies the accountant's
records to this machine's disk.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, ClassVar, Final, NamedTuple

import psutil

from services.had.core import election
from services.had.core.election import (
    Announce,
    Effect,
    GiveWay,
    HandOver,
    Lead,
    Release,
    Restore,
    Rules,
    Seen,
    Standing,
    State,
    StepDown,
    wish,
)
from services.had.core.timing import HeldBack, Limits, Slowness, Timing, lease_length, timing
from services.had.lease import hand_over, look, release
from services.had.replication import Replication
from shared.accounting_version import NONE, NOTHING, Version
from shared.bus.api import Exchange, RemoteFailure
from shared.classad import ClassAd
from shared.config import ConfigError, Problem
from shared.config.knobs import HadSettings
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.events import announce
from shared.daemon.metrics import Counter, Declared, Gauge, register
from shared.daemon.orders import handle_order
from shared.errors import PermanentError, RetryableError, RoostError
from shared.messages import had as messages
from shared.messages.base import Ack, Envelope, Message
from shared.messages.events import LeaderChanged, PriorityChanged, PriorityRestored
from shared.state import keys
from shared.stored_versions import ACCOUNTING, ELECTION
from shared.tasks import TaskSet

#: Seconds between orders to a negotiator that has not answered: it may be starting, and the pool waits for it.
KNOCK_S = 0.25
#: Seconds between looks while the books must be restored: nobody leads meanwhile.
HURRY_S = 0.1
#: Seconds between attempts to restore them.
MEND_S = 0.5
#: Seconds for the name servers to say which addresses the hosts of HAD_LIST have.
RESOLVE_S = 5.0
_INET = (socket.AF_INET, socket.AF_INET6)
#: Changes of the lead that are remembered.
MOST_CHANGES = 20


class NameTaken(PermanentError):
    """Another HAD runs under the same name."""


class Heard(NamedTuple):
    """An answer of the negotiator: its life and its clock when it answered, and when the answer was here."""

    life: str
    stamp: float
    at: float


class Had(Daemon):
    """The HAD as a daemon: it carries out what the election decides."""

    subsystem: ClassVar[str] = "HAD"
    writes: ClassVar[tuple[str, ...]] = (ELECTION, ACCOUNTING)
    at_start: ClassVar[tuple[str, ...]] = ("HAD_CONTROLLEE", "HAD_USE_REPLICATION", "STATE_FILE")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = HadSettings.from_config(context.config)
        shard = self.settings.negotiator_name or ""
        self.rules = Rules(context.name, context.new_id(), shard=shard, started=context.clock.monotonic())
        self.standing = Standing()
        self.advertiser = Advertiser(context, "HAD")
        self.inbox = f"{controllee(self.settings.had_controllee)}.{context.name}"
        self.replication = Replication(context, self.settings, shard)
        self.held_back = HeldBack()
        self._slowness = Slowness()  # of renewals and answers
        self._go_by(self.settings)
        self.changes: deque[messages.Change] = deque(maxlen=MOST_CHANGES)  # newest first
        self.heard_changes = 0
        self.since = context.clock.now()  # when it came to its state
        self._memory = NOTHING  # version of the books that the negotiator has in memory
        self._in_redis = NONE
        self._fit = 0  # epoch under which the books are fit to lead with
        self._mending: asyncio.Task[None] | None = None
        self._answered = float("-inf")  # monotonic: when the negotiator last answered
        self._heard: Heard | None = None  # the last answer that has a stamp
        self._granted_until = float("-inf")  # monotonic: so long our negotiator may believe to lead
        self._led_since = 0.0
        self._store_answers = False
        self._stopped = False
        self._seen: Seen | None = None  # the last look
        self._deciding = asyncio.Lock()
        self._wake_control = asyncio.Event()
        self._wake_election = asyncio.Event()
        self._wake_advertise = asyncio.Event()
        self._calls = TaskSet()
        register(context.metrics, METRICS, self)

    def _go_by(self, settings: HadSettings) -> None:
        self.settings = settings
        order = election.hosts(" ".join(settings.had_list))
        entry = self.rules.entry if order == self.rules.order else ""
        self.rules = replace(self.rules, order=order, use_primary=settings.had_use_primary, entry=entry)
        self.limits = Limits(
            float(settings.master_had_backoff_constant),
            settings.master_backoff_factor,
            float(settings.master_backoff_ceiling),
        )

    @property
    def timing(self) -> Timing:
        """By the delays that were seen of late."""
        settings = self.settings
        delay_s = self._slowness.delay.left(self.context.clock.monotonic())
        lease_s = lease_length(settings.roost_had_lease, settings.had_connection_timeout, delay_s)
        return timing(lease_s, alone=len(self.rules.order) < 2)

    async def _find_place(self) -> None:
        """Which entry of HAD_LIST this HAD is, by name or by address, and what is wrong with the list."""
        managers = self._central_managers()
        unknown = election.to_resolve(self.rules, managers)
        known = await addresses_of(unknown, self.rules.name) if unknown else {}
        self.rules = replace(self.rules, entry=election.own_entry(self.rules.order, self.rules.name, known))
        for problem in election.misfits(self.rules, managers, known):
            self.context.log.warning("configuration", problem=problem)
        settings = self.settings
        if settings.roost_had_lease is not None and self.context.config.is_written("HAD_CONNECTION_TIMEOUT"):
            problem = (
                f"ROOST_HAD_LEASE ({settings.roost_had_lease:g} s) is set, so HAD_CONNECTION_TIMEOUT "
                f"({settings.had_connection_timeout} s) has no effect: unset one of them"
            )
            self.context.log.warning("configuration", problem=problem)

    async def setup(self) -> None:
        bus = self.context.bus
        await self._find_place()
        self._hear_of(await self.replication.start())
        await bus.serve(f"had.{self.context.name}", self._on_request)
        kinds = [event.type for event in (LeaderChanged, PriorityChanged, PriorityRestored)]
        await bus.listen(Exchange.EVENTS, kinds, self._on_event)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "election": self._elect(),
            "control": self._control(),
            "advertise": self._advertise(),
            "copy": self.replication.keep_copying(),
        }

    async def reconfigure(self) -> None:
        settings = HadSettings.from_config(self.context.config)
        controllee(settings.had_controllee)  # of the next life
        async with self._deciding:
            self._go_by(settings)
            await self._find_place()
        self.replication.configure(settings)
        for wake in (self._wake_election, self._wake_control, self._wake_advertise):
            wake.set()

    async def drain(self) -> None:
        async with self._deciding:
            self._stopped = True
            effects = election.stop(self.rules, self.standing, self._seen)
            self.standing = Standing(known=self.standing.known)
            if not await self._carry_out(effects):
                await self._carry_out(tuple(effect for effect in effects if isinstance(effect, Announce)))
            try:
                await release(self.context.store, self.rules, for_good=True)
            except RetryableError as error:
                self.context.log.info("lease_left_to_end", reason=str(error))
        await self._calls.finish(timeout_s=0.5)
        await self.advertiser.invalidate()
        await self.replication.copy()

    async def close(self) -> None:
        under_way = [*self._calls, *([self._mending] if self._mending is not None else [])]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def ready(self) -> str:
        if not self._store_answers:
            return "the lease in Redis"
        return "" if self.answering() else f"an answer from {self.inbox}"

    def role(self) -> str:
        return "leader" if self.standing.state is State.LEADER else "passive"

    def answering(self) -> bool:
        """Whether the negotiator answers."""
        return self.context.clock.monotonic() < self._silent_at()

    def _silent_at(self) -> float:
        """When the negotiator counts as silent if it says no more, by the monotonic clock. One that just became active
        may be busy with loading."""
        timing = self.timing
        if self.standing.state is not State.LEADER:
            return self._answered + timing.patience_s + timing.follow_s
        if self._answered < self._led_since:
            return self._led_since + timing.first_s
        return self._answered + timing.patience_s

    # What comes in

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, messages.AskHad):
            return self._told()
        if isinstance(body, messages.HandedOver):
            self._wake_election.set()
            return Ack()
        return await handle_order(self, envelope, self.advertiser)

    async def _on_event(self, envelope: Envelope) -> None:
        """Epochs that others got are remembered, in case Redis forgets them."""
        body = envelope.body
        if isinstance(body, LeaderChanged) and body.shard == self.rules.shard:
            self._hear_of(body.epoch)
            self.heard_changes += 1
            self.changes.appendleft(
                messages.Change(at=body.at, had=body.had, state=body.state, epoch=body.epoch, reason=body.reason)
            )
            self.replication.soon()
        elif isinstance(body, PriorityChanged | PriorityRestored):
            self.replication.soon()

    def _hear_of(self, epoch: int) -> None:
        if self.standing.known < epoch <= keys.MAX_EPOCH:
            self.standing = replace(self.standing, known=epoch)

    # Root tasks

    async def _elect(self) -> None:
        clock, due = self.context.clock, float("inf")
        while True:
            answering, was_settled = self.answering(), self.standing.settled
            self._wake_election.clear()  # what comes while we look may not be in it
            async with self._deciding:
                if not self._stopped:
                    self._seen = await self._decide(self._seen, answering)
            seen, now = self._seen, clock.monotonic()
            if seen is not None:
                self._slowness = self._slowness.seen(due, now)
            due = now + self.timing.poll_s
            if seen is not None and self.standing.settled and not was_settled:
                continue  # the first look only told that the second may ask for the lead
            if self.answering() == answering:
                hurried = self.standing.behind_since is not None and not self.standing.mending
                poll_s = self.timing.poll_s
                await wait_for_event(self._wake_election, clock, min(HURRY_S, poll_s) if hurried else poll_s)

    async def _decide(self, before: Seen | None, answering: bool) -> Seen | None:
        """One look at the lease, and what follows from it."""
        clock = self.context.clock
        asked_at = clock.monotonic()
        if not answering:
            if self.standing.state is State.LEADER and self._fit == self.standing.epoch:
                self.held_back = self.held_back.failed(asked_at, self.limits)
            self._answered = float("-inf")  # it must answer anew, or a silent one would soon be a candidate again
            self._memory = NOTHING
        # What our negotiator was granted is not taken back by a lease that is shorter by now.
        lease_s = max(self.timing.lease_s, self._granted_until - asked_at)
        seen = await self._look(before, answering, asked_at, lease_s)
        earlier, decided_at = self.standing.state, clock.monotonic()
        self.standing, effects = election.step(
            self.rules,
            self.standing,
            seen,
            answering=answering,
            asked_at=asked_at,
            lease_s=lease_s,
            now=decided_at,
        )
        if seen is not None:
            self._in_redis = seen.books
        if self.standing.behind_since == decided_at:
            self._wake_control.set()  # which books does the negotiator have?
        if self.standing.state is not earlier:
            self.since = clock.now()
            self._wake_advertise.set()
        # On disk before anybody acts on it: Redis may be gone in the next moment.
        await self.replication.remember(self.standing.known)
        if not await self._carry_out(effects):
            # It may be slow; the lease is still ours, and the next orders make it lead on.
            ends = asked_at + lease_s
            self.standing = replace(
                self.standing, state=State.LEADER, leader=self.context.name, lease_ends=ends, primary_since=None
            )
            self._wake_control.set()
        return seen

    async def _look(self, before: Seen | None, answering: bool, now: float, lease_s: float) -> Seen | None:
        held_back = self.held_back.holds(now)
        try:
            async with asyncio.timeout(self.timing.lease_s / 2):
                seen = await look(
                    self.context.store,
                    self.rules,
                    self.standing,
                    wish(self.rules, self.standing, before, answering=answering, now=now, held_back=held_back),
                    lease_s=lease_s,
                    answering=answering,
                    offer=max(self.replication.version, self._memory),
                    held_back=held_back,
                    asked=self.standing.behind_since is not None and self._answered > self.standing.behind_since,
                )
        except (RetryableError, TimeoutError) as error:
            if self._store_answers:
                self.context.log.warning("lease_not_seen", reason=f"{type(error).__name__}: {error}")
            self._store_answers = False
            return None
        self._store_answers = True
        return seen

    async def _mend(self, epoch: int) -> None:
        """Have the books restored under this epoch, then the negotiator lead."""
        while self._leads(epoch) and self.standing.mending:
            try:
                await self.replication.restore(epoch, self._in_redis, self._memory, self.standing.books)
            except (RoostError, OSError) as error:
                self.context.log.warning("books_not_restored", epoch=epoch, reason=str(error))
            else:
                await self._lead_at_last(epoch)
            # What the negotiator has in memory it writes itself; if it can not any more, the next best is tried.
            await self.context.clock.sleep(MEND_S)
        # They may be there though no attempt said so: one whose answer was lost, or that no replica confirmed in time.
        await self._lead_at_last(epoch)

    async def _lead_at_last(self, epoch: int) -> None:
        """The books are fit: have the negotiator lead, if it was not told to yet."""
        async with self._deciding:
            if self._leads(epoch) and self._fit < epoch:
                await self._carry_out((Lead(epoch), Announce(State.LEADER, epoch)))

    def _leads(self, epoch: int) -> bool:
        return self.standing.state is State.LEADER and self.standing.epoch == epoch

    async def _control(self) -> None:
        while True:
            self._wake_control.clear()
            leads = self.standing.state is State.LEADER and self._fit == self.standing.epoch
            order: messages.Lead | messages.StepDown
            if leads:
                order = self._order_to_lead()
            else:
                order = messages.StepDown(
                    had=self.context.name, epoch=self.standing.known, reason=f"{self.standing.leader or 'nobody'} leads"
                )
            self._say(order)
            follow = self.timing.follow_s if self.answering() else min(KNOCK_S, self.timing.lead_s)
            await wait_for_event(self._wake_control, self.context.clock, self.timing.lead_s if leads else follow)

    def _order_to_lead(self) -> messages.Lead:
        """It holds until the lease ends or we would give it up because the negotiator is silent, whichever is first: so
        a negotiator does not lead on while another one begins, however late orders and answers come."""
        now, heard = self.context.clock.monotonic(), self._heard
        until = min(self.standing.lease_ends, self._silent_at())
        self._granted_until = max(self._granted_until, until)
        order = messages.Lead(had=self.context.name, epoch=self.standing.epoch, lease_s=max(until - now, 0.0))
        if heard is None:
            return order
        return order.model_copy(update={"life": heard.life, "stamp": heard.stamp, "span_s": until - heard.at})

    def _say(self, order: messages.Lead | messages.StepDown) -> None:
        """Tell the negotiator without waiting: while one answer is late, the next order keeps its lease
        alive."""
        self._calls.spawn(self._tell(order), "had:order")

    async def _tell(self, order: messages.Lead | messages.StepDown, patience_s: float = 0.0) -> Message | None:
        """What it answered; None when it did not."""
        leads = isinstance(order, messages.Lead)
        sent = self.context.clock.monotonic()
        patience = patience_s or (self.timing.first_s if leads else self.timing.patience_s)
        try:
            answer = await self.context.bus.call(self.inbox, order, timeout=patience, epoch=order.epoch)
        except RemoteFailure as refusal:
            if refusal.code == "stale-epoch" and isinstance(order, messages.Lead):
                # The negotiator knows of a higher epoch than Redis gave: ask for one above.
                self._hear_of(order.epoch + 1)
                self._wake_election.set()
            self.context.log.warning("negotiator_refused", epoch=order.epoch, code=refusal.code, reason=refusal.reason)
            return None
        except RetryableError as error:
            self.context.log.debug("negotiator_silent", inbox=self.inbox, reason=str(error))
            return None
        if isinstance(answer, messages.Following) and answer.cut_off:
            self.context.log.warning("negotiator_cut_off", inbox=self.inbox, reason="it can not reach Redis")
        elif isinstance(answer, messages.Following):
            before, now = self.answering(), self.context.clock.monotonic()
            if self.standing.state is State.LEADER and self._answered < self._led_since:
                self._slowness = self._slowness.anew(now)  # it loaded
            self._answered = now
            self._hear_stamp(answer, now)
            self._slowness = self._slowness.seen(sent, now)
            self._hear_of(answer.epoch)
            self._memory = _version(answer.books)
            if not before or self.standing.behind_since is not None:
                self._wake_election.set()
        return answer

    def _hear_stamp(self, answer: messages.Following, now: float) -> None:
        former = self._heard
        if not answer.life:  # of an earlier version
            self._heard = None
        elif former is None or former.life != answer.life or former.stamp < answer.stamp:
            self._heard = Heard(answer.life, answer.stamp, now)
            if former is None or former.life != answer.life:
                self._slowness = self._slowness.anew(now)  # it started
                self._wake_control.set()  # it obeys orders to its present life

    async def _advertise(self) -> None:
        while True:
            self._wake_advertise.clear()
            await self.advertiser.publish({self.context.name: self._ad()})
            await wait_for_event(self._wake_advertise, self.context.clock, float(self.settings.had_update_interval))

    # What was decided

    async def _carry_out(self, effects: tuple[Effect, ...]) -> bool:
        """False when the lead could not be handed over: then what should follow that was not done."""
        for effect in effects:
            match effect:
                case Lead(epoch):
                    self._led_since = self.context.clock.monotonic()
                    self._fit = epoch
                    self._wake_control.set()
                case Restore(epoch):
                    if self._mending is not None:
                        self._mending.cancel()
                    self._mending = asyncio.create_task(self._mend(epoch), name="had:mend")
                case StepDown(epoch, reason):
                    await self._step_down(epoch, reason)
                case Release(reason):
                    await self._release(reason)
                case HandOver(epoch, heir, life, reason):
                    if not await self._hand_over(epoch, heir, life, reason):
                        return False
                case Announce(state, epoch, reason):
                    await self._announce(state, epoch, reason)
                case GiveWay(life):
                    raise NameTaken(
                        f"another HAD named {self.context.name!r} (life {life}) took the lease: "
                        "give each HAD a name of its own"
                    )

        return True

    async def _step_down(self, epoch: int, reason: str) -> None:
        """Returns when the negotiator has ceased: it says so, or what it was granted is over."""
        left = self._granted_until - self.context.clock.monotonic()
        order = messages.StepDown(had=self.context.name, epoch=epoch, reason=reason)
        if left <= 0 or len(self.rules.order) < 2:  # over, or there is nobody who could lead
            self._say(order)
            return
        answer = await self._tell(order, patience_s=left)
        if isinstance(answer, messages.Following) and not answer.active:
            self._granted_until = float("-inf")
            return
        await self.context.clock.sleep(max(0.0, self._granted_until - self.context.clock.monotonic()))

    async def _release(self, reason: str) -> None:
        self.context.log.info("lease_given_up", reason=reason)
        try:
            async with asyncio.timeout(self.timing.lease_s):
                await release(self.context.store, self.rules, for_good=False)
        except (RetryableError, TimeoutError) as error:
            self.context.log.warning("lease_left_to_end", reason=str(error))

    async def _hand_over(self, epoch: int, heir: str, life: str, reason: str) -> bool:
        """First the negotiator, then the lease: the other way there would be two for a moment. False when it does not
        say in time that it has stepped down: then the lease stays ours."""
        order = messages.StepDown(had=self.context.name, epoch=epoch, reason=reason)
        answer = await self._tell(order, patience_s=self.timing.lease_s / 2)
        if not isinstance(answer, messages.Following) or answer.active:
            self.context.log.info("lease_not_handed_over", heir=heir, reason="the negotiator has not stepped down")
            return False
        self._granted_until = float("-inf")
        try:
            async with asyncio.timeout(self.timing.lease_s):
                given = await hand_over(self.context.store, self.rules, epoch, heir, life, lease_s=self.timing.lease_s)
        except (RetryableError, TimeoutError) as error:
            self.context.log.warning("lease_left_to_end", reason=str(error))
            return True
        self.context.log.info("lease_handed_over", heir=heir, epoch=given, reason=reason)
        if given:
            self._hear_of(given)
            self._calls.spawn(
                self._tell_heir(heir, messages.HandedOver(had=self.context.name, epoch=given)), "had:order"
            )
        return True

    async def _tell_heir(self, heir: str, told: messages.HandedOver) -> None:
        try:
            await self.context.bus.call(f"had.{heir}", told, timeout=self.timing.lease_s)
        except RetryableError as error:
            self.context.log.info("heir_not_told", heir=heir, reason=str(error))  # it looks by itself soon

    async def _announce(self, state: State, epoch: int, reason: str) -> None:
        self.context.log.info("had_state", state=state.value, epoch=epoch, leader=self.standing.leader, reason=reason)
        self._wake_advertise.set()
        event = LeaderChanged(
            at=self.context.clock.now(),
            had=self.context.name,
            negotiator=self.context.name,
            epoch=epoch,
            state="leader" if state is State.LEADER else "passive",
            shard=self.rules.shard,
            reason=reason,
        )
        await announce(self.context, event)

    def _ad(self) -> ClassAd:
        return self.advertiser.own_ad(
            {
                "HadIsActive": self.standing.state is State.LEADER,
                "HadState": self.standing.state.value,
                "HadEpoch": self.standing.epoch,
                "HadLeader": self.standing.leader,
                "HadList": ", ".join(self.rules.order),
                "HadStateSince": int(self.since),
                "HadBooksVersion": self.standing.books.text,
                "HadSnapshotVersion": self.replication.version.text if self.replication.enabled else "",
                "HadSnapshotTime": int(self.replication.taken),
                "HadSnapshotProblem": self.replication.problem,
                "Shard": self.rules.shard,
            }
        )

    def _told(self) -> messages.HadStanding:
        now = self.context.clock.monotonic()
        standing, copies = self.standing, self.replication
        leads = standing.state is State.LEADER
        return messages.HadStanding(
            had=self.context.name,
            shard=self.rules.shard,
            state=standing.state.value,
            epoch=standing.known,
            leader=standing.leader,
            since=self.since,
            lease_left_s=max(0.0, standing.lease_ends - now) if leads else 0.0,
            lease_s=self.timing.lease_s,
            answering=self.answering(),
            held_back_s=max(0.0, self.held_back.until - now),
            books=standing.books.text,
            in_redis=self._in_redis.text,
            memory=self._memory.text,
            snapshot=copies.version.text,
            snapshot_taken=copies.taken,
            snapshot_file=str(copies.disk.state_file) if copies.enabled else "",
            problem=copies.problem,
            had_list=list(self.rules.order),
            changes=list(self.changes),
        )

    def _central_managers(self) -> tuple[str, ...]:
        """Hosts that the configuration calls central managers."""
        return election.hosts(" ".join(self.settings.collector_host))


async def addresses_of(names: Sequence[str], own: str) -> dict[str, frozenset[str]]:
    """What name servers say of each name; of our own name the addresses of this machine, too. Empty for what is not
    known within RESOLVE_S. Loopback addresses are everybody's, and count for nobody."""
    loop = asyncio.get_running_loop()

    async def asked(name: str) -> frozenset[str]:
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError):
            return frozenset()
        return frozenset(_plain(str(one[4][0])) for one in found)

    found = dict(zip(names, await asyncio.gather(*map(asked, names)), strict=True))
    local = {_plain(one.address) for of_one in psutil.net_if_addrs().values() for one in of_one if one.family in _INET}
    mine = own.lower().rstrip(".")
    found[mine] = found.get(mine, frozenset()) | local
    return {name: frozenset(one for one in some if not ip_address(one).is_loopback) for name, some in found.items()}


def _plain(address: str) -> str:
    return str(ip_address(address.partition("%")[0]))


def controllee(knob: str) -> str:
    """The first part of the controllee's inbox. Raises ConfigError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", knob):
        problem = f"HAD_CONTROLLEE is {knob[:80]!r}: want the name of one daemon, such as NEGOTIATOR"
        raise ConfigError((Problem(problem),))
    return knob.lower()


def _version(numbers: list[int]) -> Version:
    """What a negotiator says of its books; NOTHING for what is no version."""
    if len(numbers) != 2 or not all(0 <= number <= keys.MAX_EPOCH for number in numbers):
        return NOTHING
    return Version(*numbers)


def _lease_left_s(had: Had) -> float:
    leads = had.standing.state is State.LEADER
    return max(0.0, had.standing.lease_ends - had.context.clock.monotonic()) if leads else 0.0


METRICS: Final[Declared[Had]] = (
    Gauge(
        "roost_had_state",
        "1 for the state it is in",
        lambda had: {(state.value,): float(had.standing.state is state) for state in State},
        labels=["state"],
    ),
    Gauge("roost_had_epoch", "Highest epoch ever heard of", lambda had: max(0, had.standing.known)),
    Gauge("roost_had_state_since_seconds", "When it came to its state, since 1970", lambda had: max(0.0, had.since)),
    Gauge("roost_had_lease_left_seconds", "Of its own lead", _lease_left_s),
    Gauge(
        "roost_had_lease_seconds",
        "How long its leases are: longer while renewals and answers are slow",
        lambda had: had.timing.lease_s,
    ),
    Gauge("roost_had_controllee_answers", "1 while the negotiator answers", lambda had: had.answering()),
    Gauge(
        "roost_had_held_back_seconds",
        "For how long it stands behind all others",
        lambda had: max(0.0, had.held_back.until - had.context.clock.monotonic()),
    ),
    Gauge(
        "roost_had_books_behind",
        "1 while Redis lacks some of the books",
        lambda had: had.standing.behind_since is not None,
    ),
    Gauge(
        "roost_had_snapshot_taken_seconds",
        "When the books were copied last, since 1970",
        lambda had: max(0.0, had.replication.taken),
    ),
    Counter("roost_had_changes", "Changes of the lead heard of", lambda had: had.heard_changes),
)
