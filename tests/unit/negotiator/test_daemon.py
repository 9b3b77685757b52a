"""The negotiator as a daemon, on the in-process bus: it leads under a lease only, and its decisions carry the epoch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from services.negotiator.daemon import Negotiator
from shared.bus.api import Exchange, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd, parse_expr
from shared.daemon.advertiser import Advertiser
from shared.daemon.clock import SystemClock
from shared.daemon.lifecycle import run_daemon
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.events import DaemonGone
from shared.messages.had import Following, Lead, StepDown
from shared.messages.negotiation import (
    GetPriorities,
    GetRequests,
    Matches,
    Priorities,
    RequestList,
    Reschedule,
    ResourceRequest,
    SetPriority,
)
from shared.state import keys
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.speakers import Speakers
from tests.spec import spec
from tests.waiting import eventually


class StepClock(SystemClock):
    """The wall clock that a test moves by hand; timers run as ever."""

    def __init__(self) -> None:
        self.at = 1_000_000_000.0
        self.set_by = 0.0

    def now(self) -> float:
        return self.at + self.set_by

    def boottime(self) -> float:
        return self.at


class FakeSchedd:
    """Has `idle` jobs of one autocluster for alice; remembers what it was told."""

    def __init__(self, hub: MemoryHub) -> None:
        self.bus = MemoryBus(hub, sender="schedd.ap")
        self.idle = 0
        self.asked: list[GetRequests] = []
        self.told: list[Matches] = []
        self.refuse_below = 0

    async def start(self) -> None:
        await self.bus.start()
        await self.bus.serve("schedd.ap", self._on_request)

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        assert isinstance(body, GetRequests | Matches)
        if body.epoch < self.refuse_below:
            return Failure(code="stale-epoch", reason=f"epoch {body.epoch} is over")
        if isinstance(body, Matches):
            self.told.append(body)
            self.idle -= sum(match.count for match in body.matches)
            return Ack()
        self.asked.append(body)
        ad = ClassAd({"Requirements": parse_expr("true"), "Rank": 0.0, "RequestCpus": 1})
        requests = [ResourceRequest(autocluster=1, count=self.idle, ad=ad.pack(), first_job="1.0")] if self.idle else []
        return RequestList(requests={"alice@pool": requests})


class Bench:
    """A hub with a schedd, a startd's ads, and as many negotiators as a test starts."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.store = EmbeddedStore(now=lambda: self.clock.at)
        self.clock = StepClock()
        self.schedd = FakeSchedd(self.hub)
        self.client = MemoryBus(self.hub, sender="gateway.test")
        self.speakers = Speakers.on_hub(self.hub)
        self._lives: dict[str, tuple[Negotiator, asyncio.Task[None]]] = {}

    async def start(self) -> None:
        await self.store.start()
        await self.client.start()
        await self.schedd.start()
        self.startd = make_context("STARTD", "ep", hub=self.hub, store=self.store, clock=self.clock)
        self.access = make_context("SCHEDD", "ap", hub=self.hub, store=self.store, clock=self.clock)
        await self.startd.bus.start()
        await self.access.bus.start()
        self.slots = Advertiser(self.startd, "Machine")
        self.submitters = Advertiser(self.access, "Submitter")
        await self.startd.bus.serve("startd.ep", self._resend)

    async def _resend(self, envelope: Envelope) -> Message:
        assert isinstance(envelope.body, SendAds)
        self.slots.resend(envelope.body)
        return Ack()

    async def negotiator(self, name: str, **knobs: object) -> Negotiator:
        context = make_context(
            "NEGOTIATOR",
            name,
            hub=self.hub,
            store=self.store,
            clock=self.clock,
            config=knobs,
        )
        await context.bus.start()
        daemon = Negotiator(context)
        running = asyncio.Event()
        self._lives[name] = (daemon, asyncio.create_task(run_daemon(daemon, started=running.set)))
        await running.wait()
        return daemon

    async def crash(self, name: str) -> None:
        """The end of a process: nothing is drained, nothing said."""
        daemon, life = self._lives.pop(name)
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
        await daemon.context.bus.stop()

    async def stop(self) -> None:
        for daemon, life in self._lives.values():
            daemon.context.stopping.set()
            await life
            await daemon.context.bus.stop()
        await self.speakers.stop()
        for bus in (self.startd.bus, self.access.bus, self.schedd.bus, self.client):
            await bus.stop()
        await self.store.stop()

    async def lead(self, name: str, epoch: int, lease_s: float = 60.0) -> Following:
        await self.store.set(keys.had_epoch(), epoch)
        answer = await self.speakers.call(f"negotiator.{name}", Lead(had=name, epoch=epoch, lease_s=lease_s))
        assert isinstance(answer, Following)
        return answer

    async def offer(self, *, claimed_by: str = "", cpus: int = 4) -> None:
        ad = ClassAd(
            {
                "Name": "slot1@ep",
                "MyType": "Machine",
                "MyAddress": "startd.ep",
                "Cpus": cpus,
                "Memory": 8192,
                "SlotWeight": cpus,
                "SlotID": 1,
                "State": "Claimed" if claimed_by else "Unclaimed",
            }
        )
        ad["Requirements"] = parse_expr("true")
        if claimed_by:
            ad["RemoteUser"] = claimed_by
        await self.slots.publish({"slot1@ep": ad}, {"slot1@ep": "<ep>#1#1#secret"})

    async def tell_gone(self, daemon: str) -> None:
        told = DaemonGone(at=self.clock.at, collector="cm", daemon=daemon, since=self.clock.at - 5)
        await self.speakers.publish(Exchange.EVENTS, told.type, told)

    async def want(self, jobs: int) -> None:
        self.schedd.idle = jobs
        ad = ClassAd({"Name": "alice@pool", "MyType": "Submitter", "ScheddIpAddr": "schedd.ap", "IdleJobs": jobs})
        await self.submitters.publish({"alice@pool": ad})

    async def usage(self) -> float:
        answer = await self.speakers.call("negotiator", GetPriorities())
        assert isinstance(answer, Priorities)
        found = {ad.eval("Name"): ad for ad in map(ClassAd.unpack, answer.ads)}
        return float(str(found["alice@pool"].eval("WeightedAccumulatedUsage"))) if "alice@pool" in found else 0.0


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.start()
    yield made
    await made.stop()


async def test_matches_idle_jobs_at_once_under_its_epoch(bench: Bench) -> None:
    await bench.negotiator("cm1")
    await bench.lead("cm1", 7)
    await bench.offer()
    await bench.want(1)
    await eventually(lambda: bench.schedd.told and bench.schedd.told[-1].matches)
    match = bench.schedd.told[-1].matches[0]
    assert (match.slot, match.claim_id, match.startd) == ("slot1@ep", "<ep>#1#1#secret", "startd.ep")
    assert bench.schedd.told[-1].epoch == 7


async def test_decides_nothing_before_it_is_told_to_lead(bench: Bench) -> None:
    waiting = await bench.negotiator("cm1")
    await bench.negotiator("cm2")
    await bench.offer()
    await bench.want(1)
    await bench.lead("cm2", 1)
    await eventually(lambda: bench.schedd.told)
    assert {told.negotiator for told in bench.schedd.told} == {"cm2"}
    assert (waiting.cycle, waiting.role()) == (0, "passive")


async def test_stops_deciding_when_its_lease_runs_out(bench: Bench) -> None:
    daemon = await bench.negotiator("cm1")
    await bench.lead("cm1", 1, lease_s=0.05)
    await eventually(lambda: daemon.role() == "passive")
    cycles = daemon.cycle
    await bench.offer()
    await bench.want(1)
    with pytest.raises(RemoteFailure, match="not the active one"):
        await bench.speakers.call("negotiator.cm1", GetPriorities())
    assert daemon.cycle == cycles
    await bench.lead("cm1", 2)
    await eventually(lambda: bench.schedd.told and bench.schedd.told[-1].matches)


async def test_steps_down_when_told_and_ignores_an_older_order(bench: Bench) -> None:
    daemon = await bench.negotiator("cm1")
    await bench.lead("cm1", 5)
    await bench.speakers.call("negotiator.cm1", StepDown(had="other", epoch=4, reason="late"))
    assert daemon.role() == "leader"
    await bench.speakers.call("negotiator.cm1", StepDown(had="cm1", epoch=5, reason="handing over"))
    assert daemon.role() == "passive"
    with pytest.raises(RemoteFailure, match="epoch 3 is over"):
        await bench.speakers.call("negotiator.cm1", Lead(had="x", epoch=3, lease_s=60.0))


async def test_a_lead_ends_by_the_negotiators_own_clock_however_long_its_order_waited(bench: Bench) -> None:
    negotiator = await bench.negotiator("cm1")
    answer = await bench.speakers.call("negotiator.cm1", StepDown(had="cm1", epoch=0, reason=""))
    assert isinstance(answer, Following)
    assert answer.life == negotiator.life

    async def order(epoch: int, stamp: float, span_s: float, life: str = negotiator.life) -> Following:
        body = Lead(had="cm1", epoch=epoch, lease_s=60.0, life=life, stamp=stamp, span_s=span_s)
        said = await bench.speakers.call("negotiator.cm1", body)
        assert isinstance(said, Following)
        return said

    assert not (await order(1, answer.stamp - 30.0, 10.0)).active  # it waited too long
    assert not (await order(1, answer.stamp, 60.0, life="its former life")).active
    granted = await order(1, answer.stamp, 60.0)
    assert granted.active
    assert negotiator.leads_until == answer.stamp + 60.0
    ceased = await bench.speakers.call("negotiator.cm1", StepDown(had="cm1", epoch=1, reason=""))
    assert isinstance(ceased, Following)
    assert not ceased.active
    assert not (await order(1, granted.stamp, 60.0)).active  # an order of before
    assert (await order(1, ceased.stamp, 60.0)).active


async def test_order_that_waited_while_another_was_elected_is_refused(bench: Bench) -> None:
    """It lay in the inbox of a negotiator that was killed with its HAD, and has just started again."""
    daemon = await bench.negotiator("cm1")
    await bench.store.set(keys.had_epoch(), 6)
    with pytest.raises(RemoteFailure, match="epoch 5 is over, 6 was given since"):
        await bench.speakers.call("negotiator.cm1", Lead(had="cm1", epoch=5, lease_s=60.0))
    assert (daemon.role(), daemon.epoch) == ("passive", 0)
    await bench.lead("cm1", 7)
    assert daemon.role() == "leader"


async def test_order_to_stop_that_comes_while_one_to_lead_is_looked_at_prevails(bench: Bench) -> None:
    daemon = await bench.negotiator("cm1")
    looking, go, get = asyncio.Event(), asyncio.Event(), bench.store.get

    async def slow(key: str) -> bytes | None:
        looking.set()
        await go.wait()
        return await get(key)

    daemon.context.store.get = slow  # type: ignore[method-assign]
    leading = asyncio.ensure_future(bench.speakers.call("negotiator.cm1", Lead(had="cm1", epoch=5, lease_s=60.0)))
    await looking.wait()
    await bench.speakers.call("negotiator.cm1", StepDown(had="cm1", epoch=5, reason="handing over"))
    go.set()
    await leading
    assert daemon.role() == "passive"


async def test_order_to_stop_while_the_inbox_is_opened_leaves_no_listener(bench: Bench) -> None:
    """It would refuse each second question of the pool, which the leader could answer."""
    daemon = await bench.negotiator("cm1")
    serve, opening, go = daemon.context.bus.serve, asyncio.Event(), asyncio.Event()

    async def slow(*asked: object, **named: object) -> object:
        subscription = await serve(*asked, **named)
        opening.set()
        await go.wait()
        return subscription

    daemon.context.bus.serve = slow  # type: ignore[method-assign]
    leading = asyncio.ensure_future(bench.speakers.call("negotiator.cm1", Lead(had="cm1", epoch=5, lease_s=60.0)))
    await opening.wait()
    await bench.speakers.call("negotiator.cm1", StepDown(had="cm1", epoch=5, reason="handing over"))
    go.set()
    await leading
    assert not bench.hub.inbox("negotiator").consumers


async def test_schedd_that_knows_a_newer_epoch_ends_its_lead(bench: Bench) -> None:
    daemon = await bench.negotiator("cm1")
    bench.schedd.refuse_below = 9
    await bench.offer()
    await bench.lead("cm1", 8)
    await bench.store.set(keys.had_epoch(), "9")
    await bench.want(1)
    await eventually(lambda: daemon.role() == "passive")
    assert not bench.schedd.told


async def test_schedd_that_is_wrong_about_the_epoch_does_not_end_the_lead(bench: Bench) -> None:
    daemon = await bench.negotiator("cm1")
    await bench.offer()
    await bench.lead("cm1", 8)
    bench.schedd.refuse_below = 2**40
    before = daemon.cycle
    await bench.want(1)
    await eventually(lambda: daemon.cycle > before)
    assert daemon.role() == "leader"
    bench.schedd.refuse_below = 0
    await bench.want(2)
    await eventually(lambda: bench.schedd.told)


async def test_books_written_under_a_newer_epoch_are_left_alone(bench: Bench) -> None:
    """Two believe they lead, as after a pause: only the newer one's charges are written."""
    old = await bench.negotiator("cm1")
    await bench.lead("cm1", 1)
    await bench.offer(claimed_by="alice@pool")
    await eventually(lambda: old.table.ads)
    await bench.store.set(keys.had_epoch(), 2)
    bench.clock.at += 1000
    before = await bench.store.hgetall(keys.accountant(""))
    await old._commit()
    assert old.role() == "passive"
    assert await bench.store.hgetall(keys.accountant("")) == before


async def test_every_second_of_use_is_charged_once_across_a_crash(bench: Bench) -> None:
    first = await bench.negotiator("cm1")
    await bench.lead("cm1", 1)
    await bench.offer(claimed_by="alice@pool", cpus=4)
    await eventually(lambda: first.table.ads)
    bench.clock.at += 100
    assert await bench.usage() == pytest.approx(400)
    await first._commit()
    bench.clock.at += 50  # charged in memory only, or not at all: the crash comes now
    await bench.crash("cm1")
    second = await bench.negotiator("cm2")
    bench.clock.at += 25
    await bench.lead("cm2", 2)
    await bench.offer(claimed_by="alice@pool", cpus=4)
    await eventually(lambda: second.table.ads)
    bench.clock.at += 10
    assert await bench.usage() == pytest.approx(4 * (100 + 50 + 25 + 10))


@spec("ACC-22")
@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
async def test_a_clock_that_is_set_charges_nobody_though_the_lead_is_taken_anew(bench: Bench, seconds: float) -> None:
    """Set wrong, written, lost, taken again by the same negotiator as the clock is set right, and then by another."""
    first = await bench.negotiator("cm1")
    await bench.lead("cm1", 1)
    await bench.offer(claimed_by="alice@pool", cpus=4)
    await eventually(lambda: first.table.ads)
    bench.clock.at += 100
    bench.clock.set_by = seconds
    assert await bench.usage() == pytest.approx(400)
    bench.clock.at += 10
    await first._commit()
    first.leads_until = 0.0
    bench.clock.set_by = 0.0
    bench.clock.at += 10
    await bench.lead("cm1", 1)
    assert await bench.usage() == pytest.approx(4 * 120)
    bench.clock.set_by = seconds
    bench.clock.at += 10
    await first._commit()
    await bench.crash("cm1")
    bench.clock.set_by = 0.0
    second = await bench.negotiator("cm2")
    bench.clock.at += 10
    await bench.lead("cm2", 2)
    await eventually(lambda: second.table.ads)
    assert await bench.usage() == pytest.approx(4 * 140)


async def test_changes_of_an_administrator_last_and_nonsense_is_refused(bench: Bench) -> None:
    await bench.negotiator("cm1")
    await bench.lead("cm1", 1)
    await bench.speakers.call("negotiator", SetPriority(submitter="bob@pool", what="factor", value=5.0, by="root"))
    with pytest.raises(RemoteFailure, match="below 1"):
        await bench.speakers.call("negotiator", SetPriority(submitter="bob@pool", what="factor", value=0.1, by="root"))
    await bench.crash("cm1")
    await bench.negotiator("cm2")
    await bench.lead("cm2", 2)
    answer = await bench.speakers.call("negotiator", GetPriorities())
    assert isinstance(answer, Priorities)
    factors = {ad.eval("Name"): ad.eval("PriorityFactor") for ad in map(ClassAd.unpack, answer.ads)}
    assert factors["bob@pool"] == 5.0


async def test_match_that_the_schedd_did_not_take_is_offered_again(bench: Bench) -> None:
    await bench.negotiator("cm1", NEGOTIATOR_TIMEOUT=1)
    await bench.lead("cm1", 1)
    taken = bench.schedd._on_request
    failed: list[Matches] = []

    async def fail_once(envelope: Envelope) -> Message:
        if isinstance(envelope.body, Matches) and envelope.body.matches and not failed:
            failed.append(envelope.body)
            return Failure(code="unavailable", reason="disk is full", retryable=True)
        return await taken(envelope)

    await bench.schedd.bus.stop()
    bench.schedd.bus = MemoryBus(bench.hub, sender="schedd.ap")
    bench.schedd._on_request = fail_once  # type: ignore[method-assign]
    await bench.schedd.start()
    await bench.offer()
    await bench.want(1)
    await eventually(lambda: failed)
    await bench.speakers.call("negotiator", Reschedule(by="gateway"))
    await eventually(lambda: any(told.matches for told in bench.schedd.told))


async def test_startd_that_starts_before_anybody_listens_is_found(bench: Bench) -> None:
    await bench.offer()
    daemon = await bench.negotiator("cm1")
    await eventually(lambda: "slot1@ep" in daemon.table.ads and "slot1@ep" in daemon.table.claims)


@spec("COL-11")
async def test_slots_of_an_execution_point_that_is_gone_are_nobodys_until_it_speaks(bench: Bench) -> None:
    daemon = await bench.negotiator("cm1", NEGOTIATOR_CYCLE_DELAY=0)
    await bench.lead("cm1", 1)
    await bench.offer()
    await eventually(lambda: "slot1@ep" in daemon.table.ads)
    await bench.tell_gone("startd@ep")
    await eventually(lambda: "slot1@ep" not in daemon.table.ads)
    before = daemon.cycle
    await bench.want(1)
    await eventually(lambda: daemon.cycle > before)
    await daemon._apply_all_slots()  # another policy brings them back no more than a cycle does
    assert not any(told.matches for told in bench.schedd.told)
    assert daemon.table.total_weight(daemon.policy.cycle) == 0
    await bench.slots.repeat()  # it lives on: nothing has changed, and its claim id is not told again
    await eventually(lambda: any(told.matches for told in bench.schedd.told))
    (match,) = [match for told in bench.schedd.told for match in told.matches]
    assert match.claim_id == "<ep>#1#1#secret"
    assert daemon.table.total_weight(daemon.policy.cycle) == 4


@spec("COL-11")
async def test_who_has_a_slot_of_one_that_is_gone_goes_on_being_charged(bench: Bench) -> None:
    """The job may run on, and does where only the startd died."""
    daemon = await bench.negotiator("cm1")
    await bench.lead("cm1", 1)
    await bench.offer(claimed_by="alice@pool")
    await eventually(lambda: daemon.table.ads)
    bench.clock.at += 10
    assert await bench.usage() == pytest.approx(40)
    await bench.tell_gone("startd@ep")
    await eventually(lambda: not daemon.table.ads)
    bench.clock.at += 10
    assert await bench.usage() == pytest.approx(80)
    await bench.slots.repeat()
    await eventually(lambda: daemon.table.ads)
    bench.clock.at += 10
    assert await bench.usage() == pytest.approx(120)
    await bench.tell_gone("startd@ep")
    await eventually(lambda: not daemon.table.ads)
    bench.clock.at += 1000  # CLASSAD_LIFETIME is over: nobody knows any more
    await daemon._take(daemon.ad_intake.expire(bench.clock.at))
    known = await bench.usage()
    bench.clock.at += 10
    assert await bench.usage() == pytest.approx(known)
    assert daemon.table.charged(daemon.policy.cycle) == {}
    assert daemon.ad_intake.absent == set()
