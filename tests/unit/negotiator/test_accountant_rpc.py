"""The accounting records on the bus: questions, changes, events, and the ads that the collector gets."""

from __future__ import annotations

import asyncio

import pytest

from services.negotiator.daemon import Negotiator
from shared.bus.api import Exchange, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.ad_table import AdTable
from shared.daemon.advertiser import Advertiser
from shared.daemon.clock import SystemClock
from shared.daemon.lifecycle import run_daemon
from shared.messages.ads import SendAds
from shared.messages.events import PriorityChanged, PriorityRestored
from shared.messages.had import Lead, StepDown
from shared.messages.negotiation import GetPriorities, Priorities, SetPriority
from shared.state import keys
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.speakers import Speakers
from tests.spec import spec
from tests.waiting import eventually


class StepClock(SystemClock):
    at = 1_000_000_000.0

    def now(self) -> float:
        return self.at

    def boottime(self) -> float:
        return self.at


class Books:
    """A negotiator that leads, and somebody who listens to it."""

    async def start(self, **knobs: str) -> None:
        self.hub, self.clock = MemoryHub(), StepClock()
        hub, self.store = self.hub, EmbeddedStore(now=self.clock.now)
        await self.store.start()
        config = {"NEGOTIATOR_UPDATE_INTERVAL": "1", "NEGOTIATOR_NAME": "gpus", **knobs}
        self.context = make_context("NEGOTIATOR", "cm", hub=hub, store=self.store, clock=self.clock, config=config)
        await self.context.bus.start()
        self.daemon = Negotiator(self.context)
        self.bus = MemoryBus(hub, sender="gateway.test")
        self.speakers = Speakers.on_hub(hub)
        await self.bus.start()
        self.ads = AdTable(900.0)
        self.events: list[PriorityChanged | PriorityRestored] = []
        await self.bus.listen(Exchange.ADS, ["*.Accounting.#"], self._on_ads)
        await self.bus.listen(Exchange.EVENTS, ["accountant.*"], self._on_event)
        running = asyncio.Event()
        self.life = asyncio.create_task(run_daemon(self.daemon, started=running.set))
        await running.wait()
        await self.store.set(keys.had_epoch("gpus"), 1)
        await self.speakers.call("negotiator.cm", Lead(had="cm", epoch=1, lease_s=60.0))

    async def stop(self) -> None:
        self.context.stopping.set()
        await self.life
        await self.context.bus.stop()
        if hasattr(self, "startd"):
            await self.startd.bus.stop()
        await self.bus.stop()
        await self.speakers.stop()
        await self.store.stop()

    async def _on_ads(self, envelope) -> None:
        self.ads.apply(envelope.body, self.clock.now())

    async def _on_event(self, envelope) -> None:
        if isinstance(envelope.body, PriorityChanged | PriorityRestored):  # not StandingsTold
            self.events.append(envelope.body)

    def told(self, name: str) -> ClassAd | None:
        row = self.ads.row("Accounting", "negotiator@cm", name)
        return None if row is None else ClassAd.unpack(row.packed())

    async def ask(self, **question) -> dict[str, ClassAd]:
        answer = await self.speakers.call("negotiator.active.gpus", GetPriorities(**question))
        assert isinstance(answer, Priorities)
        return {str(ad.eval("Name")): ad for ad in map(ClassAd.unpack, answer.ads)}

    async def set(self, submitter: str, what: str, value: float | None, **more) -> None:
        change = SetPriority(submitter=submitter, what=what, value=value, by="root@p", **more)
        await self.speakers.call("negotiator.active.gpus", change)

    async def slot(self, **attributes: object) -> None:
        """A slot of a startd, as its ad says."""
        if not hasattr(self, "startd"):
            self.startd = make_context("STARTD", "ep", hub=self.hub, store=self.store, clock=self.clock)
            await self.startd.bus.start()
            self.slots = Advertiser(self.startd, "Machine")
        ad = ClassAd({"Name": "slot1@ep", "MyType": "Machine", "Cpus": 4, "SlotWeight": 4, **attributes})
        await self.slots.publish({"slot1@ep": ad})

    def in_use(self, name: str) -> float:
        return self.daemon.accountant.record(name, self.clock.at).in_use


@pytest.fixture
async def books():
    made = Books()
    await made.start(GROUP_NAMES="group_physics", GROUP_QUOTA_group_physics="20", GROUP_PRIO_FACTOR_group_physics="2.0")
    yield made
    await made.stop()


@spec("ACC-21")
async def test_accounting_ads_reach_the_collector_while_it_leads(books):
    """With NegotiatorName; changes follow; the one that does not lead any more takes them back."""
    await books.set("alice@p", "factor", 7.0)
    await eventually(lambda: books.told("alice@p"))
    assert books.told("alice@p").eval("NegotiatorName") == "gpus"
    await eventually(lambda: books.told("group_physics"))
    assert books.told("group_physics").eval("IsAccountingGroup") is True
    await books.set("alice@p", "factor", 9.0)
    await eventually(lambda: books.told("alice@p").eval("PriorityFactor") == 9.0)
    books.ads.remove("Accounting", "negotiator@cm")
    await books.speakers.call("negotiator.cm", SendAds(my_type="Accounting"))
    await eventually(lambda: books.told("alice@p"))
    await books.speakers.call("negotiator.cm", StepDown(had="cm", epoch=1, reason="a test"))
    await eventually(lambda: not books.told("alice@p"))


async def test_a_change_for_a_while_is_told_when_it_begins_and_ends(books):
    await books.set("alice@p", "factor", 7.0, duration_s=600.0)
    began = books.clock.at
    told = (await books.ask())["alice@p"]
    assert (told.eval("PriorityFactor"), told.eval("PriorityFactorUntil")) == (7.0, int(began + 600))
    books.clock.at = began + 599
    assert (await books.ask())["alice@p"].eval("PriorityFactor") == 7.0
    books.clock.at = began + 601
    assert "alice@p" not in await books.ask()  # as everybody: nothing to remember
    await eventually(lambda: any(isinstance(event, PriorityRestored) for event in books.events))
    changed, restored = books.events
    assert (changed.submitter, changed.until, changed.by) == ("alice@p", began + 600, "root@p")
    assert (restored.submitter, restored.what, restored.value) == ("alice@p", "factor", 1000.0)


@spec("W-25")
async def test_members_of_groups_get_their_factor(books):
    """GROUP_PRIO_FACTOR_group_physics = 2.0: a new member's EUP is 1.0."""
    record = books.daemon.accountant.record("group_physics.einstein@p", books.clock.at)
    assert (record.factor, record.priority * record.factor) == (2.0, 1.0)
    assert (await books.ask())["group_physics.einstein@p"].eval("AccountingGroup") == "group_physics"


@spec("MUL-02", "MUL-04")
async def test_who_means_another_negotiator_is_refused(books):
    await books.set("alice@p", "factor", 7.0, negotiator="gpus")
    for question in (GetPriorities(negotiator="cpus"), SetPriority(submitter="a@p", what="reset", negotiator="cpus")):
        with pytest.raises(RemoteFailure, match="this is negotiator gpus, not cpus"):
            await books.speakers.call("negotiator.active.gpus", question)
    assert "a@p" not in await books.ask(negotiator="gpus")


async def test_a_change_under_a_stale_epoch_ends_the_lead_and_may_be_tried_again(books):
    await books.store.set(keys.had_epoch("gpus"), 2)
    with pytest.raises(RemoteFailure) as caught:
        await books.set("alice@p", "factor", 7.0)
    assert (caught.value.code, caught.value.retryable) == ("not-leader", True)
    assert books.daemon.role() == "passive"
    assert not await books.store.hgetall(keys.accountant("gpus"))


async def test_nothing_is_answered_from_books_that_are_being_read(books, monkeypatch):
    """Told to lead again, as after a time without its HAD: others may have changed the accounting records since."""
    read, may_read = books.daemon.accountant.load, asyncio.Event()

    async def slowly(epoch):
        await may_read.wait()
        return await read(epoch)

    monkeypatch.setattr(books.daemon.accountant, "load", slowly)
    await books.store.set(keys.had_epoch("gpus"), 2)
    leading = asyncio.create_task(
        books.speakers.call("negotiator.cm", Lead(had="cm", epoch=2, lease_s=600.0), timeout=60)
    )
    await eventually(lambda: books.daemon.epoch == 2)
    for inbox in ("negotiator.active.gpus", "negotiator.cm"):
        for question in (GetPriorities(), SetPriority(submitter="alice@p", what="factor", value=7.0)):
            with pytest.raises(RemoteFailure, match="reads its books") as caught:
                await books.speakers.call(inbox, question)
            assert (caught.value.code, caught.value.retryable) == ("not-leader", True)
    may_read.set()
    await leading
    await books.set("alice@p", "factor", 7.0)
    assert (await books.ask())["alice@p"].eval("PriorityFactor") == 7.0


@spec("ACC-14", "ACC-15")
@pytest.mark.parametrize(("discount", "charged"), [("false", 4.0), ("true", 0.0)])
async def test_suspended_slots_are_charged_unless_the_knob_says_otherwise(discount, charged):
    made = Books()
    await made.start(NEGOTIATOR_DISCOUNT_SUSPENDED_RESOURCES=discount)
    await made.slot(State="Claimed", Activity="Busy", RemoteUser="alice@p")
    await eventually(lambda: made.in_use("alice@p") == 4.0)
    made.clock.at += 100
    await made.slot(State="Claimed", Activity="Suspended", RemoteUser="alice@p")
    await eventually(lambda: made.in_use("alice@p") == charged)
    made.clock.at += 100
    assert (await made.ask())["alice@p"].eval("WeightedAccumulatedUsage") == 400.0 + 100 * charged
    await made.slot(State="Preempting", Activity="Vacating", RemoteUser="alice@p")  # ACC-15
    await eventually(lambda: made.in_use("alice@p") == 4.0)
    await made.stop()
