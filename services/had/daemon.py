"""The HAD: keeps exactly one negotiator of the pool active.

Two loops: one looks at the lease in Redis, the other talks to the negotiator (inbox "negotiator.<name of
this HAD>"), telling it again and again to lead, or to follow. What it answers shows that it is alive. In
between, `election` decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, ClassVar

from services.had import election
from services.had.election import Announce, Effect, GiveWay, Lead, Release, Rules, Seen, Standing, State, StepDown
from services.had.lease import look, release
from services.had.timing import timing
from shared.bus.api import Exchange, RemoteFailure
from shared.classad import ClassAd
from shared.config.knobs import HadSettings
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.errors import PermanentError, RetryableError
from shared.messages import had as messages
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.events import LeaderChanged
from shared.state import keys
from shared.version import VERSION

#: Seconds between orders to a negotiator that has not answered: it may be starting, and the pool waits for it.
KNOCK_S = 0.25


class NameTaken(PermanentError):
    """Another HAD runs under the same name."""


class Had(Daemon):
    """See the module."""

    subsystem: ClassVar[str] = "HAD"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = HadSettings.from_config(context.config)
        order = election.hosts(" ".join(self.settings.had_list))
        shard = self.settings.negotiator_name or ""
        self.rules = Rules(context.name, context.new_id(), order, self.settings.had_use_primary, shard)
        self.timing = timing(self.settings.roost_had_lease, alone=len(order) < 2)
        self.standing = Standing()
        self.advertiser = Advertiser(context, "HAD")
        self.inbox = f"negotiator.{context.name}"
        self._answered = float("-inf")  # monotonic: when the negotiator last answered
        self._led_since = 0.0
        self._store_answers = False
        self._stopped = False
        self._deciding = asyncio.Lock()
        self._wake_control = asyncio.Event()
        self._wake_election = asyncio.Event()
        self._wake_advertise = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()

    async def setup(self) -> None:
        bus = self.context.bus
        await bus.serve(f"had.{self.context.name}", self._on_request)
        await bus.listen(Exchange.EVENTS, [LeaderChanged.type], self._on_event)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"election": self._elect(), "control": self._control(), "advertise": self._advertise()}

    async def drain(self) -> None:
        async with self._deciding:
            self._stopped = True
            effects, self.standing = election.stop(self.standing), Standing(known=self.standing.known)
            await self._carry_out(effects)
            try:
                await release(self.context.store, self.rules, for_good=True)
            except RetryableError as error:
                self.context.log.info("lease_left_to_end", reason=str(error))
        if self._calls:
            await asyncio.wait(self._calls, timeout=0.5)
        await self.advertiser.invalidate()

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def ready(self) -> str:
        if not self._store_answers:
            return "the lease in Redis"
        return "" if self.answering() else f"an answer from {self.inbox}"

    def role(self) -> str:
        return "leader" if self.standing.state is State.LEADER else "passive"

    def answering(self) -> bool:
        """Whether the negotiator answers. One that just became active may be busy with loading."""
        now, timing = self.context.clock.monotonic(), self.timing
        if self.standing.state is not State.LEADER:
            return now - self._answered < timing.patience_s + timing.follow_s
        if self._answered < self._led_since:
            return now - self._led_since < timing.first_s
        return now - self._answered < timing.patience_s

    # What comes in

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, SendAds):
            self.advertiser.resend(body)
            return Ack()
        return Failure(code="bad-request", reason=f"a HAD does not answer {body.type}")

    async def _on_event(self, envelope: Envelope) -> None:
        """Epochs that others got are remembered, in case Redis forgets them."""
        body = envelope.body
        if isinstance(body, LeaderChanged) and body.shard == self.rules.shard:
            self._hear_of(body.epoch)

    def _hear_of(self, epoch: int) -> None:
        if self.standing.known < epoch <= keys.MAX_EPOCH:
            self.standing = replace(self.standing, known=epoch)

    # Root tasks

    async def _elect(self) -> None:
        seen: Seen | None = None
        while True:
            answering = self.answering()
            async with self._deciding:
                if not self._stopped:
                    seen = await self._decide(seen, answering)
            self._wake_election.clear()
            if self.answering() == answering:
                await self._pause(self._wake_election, self.timing.poll_s)

    async def _decide(self, before: Seen | None, answering: bool) -> Seen | None:
        """One look at the lease, and what follows from it."""
        clock = self.context.clock
        asked_at = clock.monotonic()
        if not answering:
            self._answered = float("-inf")  # it must answer anew, or a silent one would soon be a candidate again
        seen = await self._look(election.candidate(self.rules, self.standing, before, answering), answering)
        self.standing, effects = election.step(
            self.rules,
            self.standing,
            seen,
            answering=answering,
            asked_at=asked_at,
            lease_s=self.timing.lease_s,
            now=clock.monotonic(),
        )
        await self._carry_out(effects)
        return seen

    async def _look(self, wants: bool, answering: bool) -> Seen | None:
        try:
            async with asyncio.timeout(self.timing.lease_s / 2):
                seen = await look(
                    self.context.store,
                    self.rules,
                    wants=wants,
                    lease_s=self.timing.lease_s,
                    known=self.standing.known,
                    answering=answering,
                )
        except (RetryableError, TimeoutError) as error:
            if self._store_answers:
                self.context.log.warning("lease_not_seen", reason=f"{type(error).__name__}: {error}")
            self._store_answers = False
            return None
        self._store_answers = True
        return seen

    async def _control(self) -> None:
        clock = self.context.clock
        while True:
            self._wake_control.clear()
            leads = self.standing.state is State.LEADER
            order: messages.Lead | messages.StepDown
            if leads:
                left = self.standing.lease_ends - clock.monotonic()
                order = messages.Lead(had=self.context.name, epoch=self.standing.epoch, lease_s=max(left, 0.0))
            else:
                order = messages.StepDown(
                    had=self.context.name, epoch=self.standing.known, reason=f"{self.standing.leader or 'nobody'} leads"
                )
            self._say(order)
            follow = self.timing.follow_s if self.answering() else min(KNOCK_S, self.timing.lead_s)
            await self._pause(self._wake_control, self.timing.lead_s if leads else follow)

    def _say(self, order: messages.Lead | messages.StepDown) -> None:
        """Tell the negotiator without waiting: while one answer is late, the next order keeps its lease
        alive."""
        call = asyncio.create_task(self._tell(order), name="had:order")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _tell(self, order: messages.Lead | messages.StepDown) -> None:
        patience = self.timing.first_s if isinstance(order, messages.Lead) else self.timing.patience_s
        try:
            answer = await self.context.bus.call(self.inbox, order, timeout=patience, epoch=order.epoch)
        except RemoteFailure as refusal:
            if refusal.code == "stale-epoch" and isinstance(order, messages.Lead):
                # The negotiator knows of a higher epoch than Redis gave: ask for one above.
                self._hear_of(order.epoch + 1)
                self._wake_election.set()
            self.context.log.warning("negotiator_refused", epoch=order.epoch, code=refusal.code, reason=refusal.reason)
            return
        except RetryableError as error:
            self.context.log.debug("negotiator_silent", inbox=self.inbox, reason=str(error))
            return
        if isinstance(answer, messages.Following):
            before = self.answering()
            self._answered = self.context.clock.monotonic()
            self._hear_of(answer.epoch)
            if not before:
                self._wake_election.set()

    async def _advertise(self) -> None:
        while True:
            self._wake_advertise.clear()
            await self.advertiser.publish({self.context.name: self._ad()})
            await self._pause(self._wake_advertise, float(self.settings.had_update_interval))

    async def _pause(self, wake: asyncio.Event, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self.context.clock.sleep(seconds))
        waking = asyncio.ensure_future(wake.wait())
        try:
            await asyncio.wait((sleeping, waking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()

    # What was decided

    async def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Lead():
                    self._led_since = self.context.clock.monotonic()
                    self._wake_control.set()
                case StepDown(epoch, reason):
                    self._say(messages.StepDown(had=self.context.name, epoch=epoch, reason=reason))
                case Release(reason):
                    await self._release(reason)
                case Announce(state, epoch):
                    await self._announce(state, epoch)
                case GiveWay(life):
                    raise NameTaken(
                        f"another HAD named {self.context.name!r} (life {life}) took the lease: "
                        "give each HAD a name of its own"
                    )

    async def _release(self, reason: str) -> None:
        self.context.log.info("lease_given_up", reason=reason)
        try:
            async with asyncio.timeout(self.timing.lease_s):
                await release(self.context.store, self.rules, for_good=False)
        except (RetryableError, TimeoutError) as error:
            self.context.log.warning("lease_left_to_end", reason=str(error))

    async def _announce(self, state: State, epoch: int) -> None:
        self.context.log.info("had_state", state=state.value, epoch=epoch, leader=self.standing.leader)
        self._wake_advertise.set()
        event = LeaderChanged(
            at=self.context.clock.now(),
            had=self.context.name,
            negotiator=self.context.name,
            epoch=epoch,
            state="leader" if state is State.LEADER else "passive",
            shard=self.rules.shard,
        )
        try:
            await self.context.bus.publish(Exchange.EVENTS, event.type, event)
        except RetryableError as error:
            self.context.log.info("event_not_sent", type=event.type, reason=str(error))

    def _ad(self) -> ClassAd:
        return ClassAd(
            {
                "MyType": "HAD",
                "Name": self.context.name,
                "Machine": self.context.name,
                "MyAddress": f"had.{self.context.name}",
                "RoostVersion": VERSION,
                "DaemonStartTime": self.advertiser.start_time,
                "HadIsActive": self.standing.state is State.LEADER,
                "HadState": self.standing.state.value,
                "HadEpoch": self.standing.epoch,
                "HadLeader": self.standing.leader,
                "HadList": ", ".join(self.rules.order),
            }
        )
