"""Defrags in this process, with something that answers as a collector and startds do."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from prometheus_client import generate_latest

from services.defrag import daemon as shell
from services.defrag.core.policy import DefragState, Order
from services.defrag.daemon import Defrag
from shared.bus.api import Exchange, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd, evaluate, is_true, parse_expr
from shared.config import load_config
from shared.daemon import periodic
from shared.daemon.lead import LeaderLease
from shared.messages.ads import AdPage, AdUpdate
from shared.messages.base import Failure
from shared.messages.orders import CancelDrain, Drain, OrderTaken, Restart
from shared.state import StoreUnavailable, keys
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.speakers import Speakers
from tests.spec import spec
from tests.unit.defrag.pools import slot_ad
from tests.waiting import eventually

HOURLY = {"DEFRAG_DRAINING_MACHINES_PER_HOUR": "3600", "DEFRAG_INTERVAL": "3600", "DEFRAG_MAX_CONCURRENT_DRAINING": "1"}


class Pool:
    """A store, a collector and startds, and as many defrags as are begun."""

    def __init__(self, tmp_path):
        self.tmp_path, self.hub = tmp_path, MemoryHub()
        self.ads, self.orders, self.events, self.told = {}, [], [], []
        self.silent = set()  # inboxes that do not answer
        self.speak = asyncio.Event()  # until this is set
        self.before_answer = None  # called as the collector is asked
        self.defrags, self.lives = {}, {}

    async def __aenter__(self):
        self.store = EmbeddedStore()
        await self.store.start()
        self.bus = MemoryBus(self.hub, sender="collector.cm")
        await self.bus.start()
        await self.bus.serve("collector", self._collector)

        async def hear(envelope):
            self.events.append(envelope.body)

        async def hear_ads(envelope):
            self.told.append(envelope.body)

        await self.bus.listen(Exchange.EVENTS, ["defrag.#"], hear)
        await self.bus.listen(Exchange.ADS, ["*.Defrag.#"], hear_ads)
        return self

    async def __aexit__(self, *_):
        self.speak.set()
        for name in list(self.lives):
            await self.kill(name)
        await self.bus.stop()
        await self.store.stop()

    async def machine(self, name, **more):
        there = f"startd.{name}" in self.ads
        self.ads[f"startd.{name}"] = slot_ad(name, **more)
        if not there:
            await self.bus.serve(f"startd.{name}", lambda envelope: self._startd(f"startd.{name}", envelope))

    async def _collector(self, envelope):
        if self.before_answer is not None:
            await self.before_answer()
        if "collector" in self.silent:
            return Failure(code="unavailable", reason="not now", retryable=True)
        asked = parse_expr(envelope.body.constraint)
        return AdPage(ads=[ad.pack() for ad in self.ads.values() if is_true(evaluate(asked, ad))])

    async def _startd(self, inbox, envelope):
        order, ad = envelope.body, self.ads[inbox]
        self.orders.append((inbox, order))
        if isinstance(order, CancelDrain):
            self.ads[inbox] = slot_ad(inbox.removeprefix("startd."), LastDrainStartTime=ad.eval("LastDrainStartTime"))
            return OrderTaken()
        if ad.eval("DrainingRequestId") != order.request_id:
            if ad.eval("Draining") is True:
                return Failure(code="refused", reason="it drains already")
            if not is_true(evaluate(parse_expr(order.check), ad)):
                return Failure(code="refused", reason=f"{order.check} is not true")
            told = {"Draining": True, "DrainingRequestId": order.request_id, "LastDrainStartTime": len(self.orders)}
            self.ads[inbox] = ClassAd({**{name: ad.lookup(name) for name in ad}, **told})
        if inbox in self.silent:
            await self.speak.wait()
        return OrderTaken()

    def drained(self):
        """Machines by the drains that they have begun."""
        return [inbox for inbox, ad in self.ads.items() if ad.eval("Draining") is True]

    def defrag(self, name, **knobs):
        bus = MemoryBus(self.hub, sender=f"defrag.{name}")
        config = HOURLY | {"ROOST_DEFRAG_LEASE": "2"} | knobs
        context = make_context("DEFRAG", name, bus=bus, store=self.store, config=config, directory=self.tmp_path)
        self.defrags[name] = Defrag(context)
        return self.defrags[name]

    async def begin(self, name, **knobs):
        defrag = self.defrag(name, **knobs)
        await defrag.context.bus.start()
        await defrag.setup()
        self.lives[name] = [asyncio.create_task(work) for work in defrag.tasks().values()]
        return defrag

    async def kill(self, name):
        """Without a word to anybody."""
        tasks = self.lives.pop(name)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.defrags[name].context.bus.stop()

    def ad(self):
        """What defrag said of itself last."""
        whole = [body for body in self.told if isinstance(body, AdUpdate)]
        return ClassAd.unpack(whole[-1].ads[0])


@asynccontextmanager
async def pool_of(tmp_path, *machines, **more):
    async with Pool(tmp_path) as pool:
        for machine in machines:
            await pool.machine(machine, **more)
        yield pool


@spec("DFR-05", "DFR-06", "DFR-11", "DFR-12")
async def test_a_round_drains_tells_and_advertises(tmp_path):
    async with pool_of(tmp_path, "a") as pool:
        await pool.machine("b", ExpectedMachineGracefulDrainingBadput=5, TotalMachineDrainingBadput=80)
        await pool.machine("c", cpus=8)
        defrag = await pool.begin("cm")
        await eventually(lambda: pool.events)
        ((inbox, order),) = pool.orders
        assert inbox == "startd.b"
        assert (order.how, order.on_completion, order.reason, order.start) == ("graceful", "resume", "Defrag", "")
        assert order.check == "LastDrainStartTime =?= undefined"
        assert order.request_id.startswith("defrag:")
        (event,) = pool.events
        assert (event.drained, event.failed, event.whole, event.draining) == (["b"], {}, 1, 0)
        assert event.why == "to be drained: b"

        async def told():
            await defrag.advertiser.resend()
            return pool.told and pool.ad().eval("DrainSuccesses") == 1

        await eventually(told)
        ad = pool.ad()
        assert (ad.eval("MyType"), ad.eval("Name"), ad.eval("MyAddress")) == ("Defrag", "cm", "defrag.cm")
        assert (ad.eval("DefragIsActive"), ad.eval("WholeMachines"), ad.eval("MachinesDrainingPeak")) == (True, 1, 1)
        assert ad.eval("AvgDrainingBadput") == pytest.approx(80 / (3 * 8 * 1000))
        assert ad.eval("AvgDrainingUnclaimed") == 0.0
        shown = generate_latest(defrag.context.metrics).decode()
        assert "roost_defrag_drains_total 1.0" in shown
        assert "roost_defrag_acts 1.0" in shown
        assert (defrag.ready(), defrag.role()) == ("", "leader")


async def test_one_that_was_killed_amid_its_orders_is_gone_on_with_and_no_machine_drains_twice(tmp_path):
    """One machine has taken its order and the answer is lost, another never hears of it in that life."""
    async with pool_of(tmp_path, "a", "b") as pool:
        knobs = {"DEFRAG_MAX_CONCURRENT_DRAINING": "2"}
        pool.silent |= {"startd.a", "startd.b"}
        await pool.begin("cm", **knobs)
        await eventually(lambda: len(pool.orders) == 2)
        await pool.kill("cm")
        first = dict(pool.orders)
        await pool.machine("b")  # as if the order had not come
        pool.silent.clear()
        pool.speak.set()
        pool.orders.clear()
        defrag = await pool.begin("cm", **knobs)
        await eventually(lambda: defrag.state.successes == 2)
        again = dict(pool.orders)
        assert {inbox: order.request_id for inbox, order in again.items()} == {
            inbox: order.request_id for inbox, order in first.items()
        }
        assert sorted(pool.drained()) == ["startd.a", "startd.b"]
        assert defrag.state.failures == 0


async def test_an_order_that_comes_again_after_its_drain_is_over_drains_nothing(tmp_path):
    """The machine has drained and takes jobs again while nobody was there: the order names the drain before."""
    async with pool_of(tmp_path, "a") as pool:
        pool.silent.add("startd.a")
        await pool.begin("cm")
        await eventually(lambda: pool.orders)
        await pool.kill("cm")
        pool.silent.clear()
        pool.speak.set()
        await pool.machine("a", LastDrainStartTime=1)  # drained, and carved up again
        pool.orders.clear()
        defrag = await pool.begin("cm")
        await eventually(lambda: defrag.state.failures == 1)
        assert len(pool.orders) == 1
        assert pool.drained() == []


@spec("DFR-01")
async def test_the_rate_is_kept_over_a_restart(tmp_path):
    async with pool_of(tmp_path, "a", "b") as pool:
        defrag = await pool.begin("cm")
        await eventually(lambda: pool.events)
        last = defrag.state.last_round
        await pool.kill("cm")
        again = await pool.begin("cm")
        await eventually(lambda: again.leads and again.state.last_round == last)
        await eventually(lambda: again.state.successes == 1)
        assert again.rounds == 0
        assert len(pool.orders) == 1


async def test_of_two_only_one_acts_and_the_other_goes_on_when_it_stops(tmp_path):
    async with pool_of(tmp_path, "a", "b", "c") as pool:
        first = await pool.begin("cm1")
        await eventually(lambda: pool.events)
        second = await pool.begin("cm2")
        await eventually(lambda: second.lead.owner == "cm1")
        assert (first.role(), second.role(), second.ready()) == ("leader", "passive", "")
        assert "roost_defrag_draining_machines 0.0" in generate_latest(second.context.metrics).decode()
        await first.drain()  # stops in good order: the other need not wait for the lease to end
        await pool.kill("cm1")
        await eventually(lambda: second.leads)
        assert second.state.last_round == first.state.last_round
        assert len(pool.orders) == 1
        assert second.state.successes == 1


async def test_one_that_dies_is_replaced_when_its_lease_is_over(tmp_path):
    async with pool_of(tmp_path, "a") as pool:
        await pool.begin("cm1", ROOST_DEFRAG_LEASE="1")
        await eventually(lambda: pool.events)
        second = await pool.begin("cm2", ROOST_DEFRAG_LEASE="1")
        await eventually(lambda: second.lead.owner == "cm1")
        await pool.kill("cm1")
        await eventually(lambda: second.leads)
        assert len(pool.orders) == 1


async def test_two_of_one_name_do_not_take_turns(tmp_path):
    """Two containers of one host name, say: the younger one has the lead, and keeps it."""
    async with pool_of(tmp_path, "a") as pool:
        contexts = [make_context("DEFRAG", "cm", hub=pool.hub, store=pool.store) for _ in range(2)]
        older, younger = (LeaderLease(context, "DEFRAG", 30.0) for context in contexts)
        assert (await older.acquire()).leads
        assert (await younger.acquire()).leads
        assert not (await older.acquire()).leads
        assert (await younger.acquire()).leads
        assert not older.holds()


async def test_whoever_lost_the_lead_gives_no_order(tmp_path):
    """While it asked the collector another one took over: what it decided is refused, and nothing is sent."""
    async with pool_of(tmp_path, "a") as pool:

        async def overtaken():
            lead = LeaderLease(make_context("DEFRAG", "other", hub=pool.hub, store=pool.store), "DEFRAG", 15.0)
            await pool.store.hset(keys.lead("DEFRAG"), {"until": 0})
            assert (await lead.acquire()).leads
            pool.before_answer = None

        pool.before_answer = overtaken
        defrag = await pool.begin("cm")
        await eventually(lambda: defrag.lead.owner == "other" and not defrag.leads)
        assert pool.orders == []
        assert pool.events == []
        assert defrag.rounds == 0


async def test_policies_of_several_names_act_side_by_side(tmp_path):
    """DEFRAG_NAME: each has a lead, a state and drains of its own."""
    async with pool_of(tmp_path, "a", "b", "c") as pool:
        await pool.begin("one", DEFRAG_NAME="gpus", DEFRAG_REQUIREMENTS='Machine == "a"')
        await eventually(lambda: len(pool.events) == 1)
        knobs = {"DEFRAG_REQUIREMENTS": 'Machine == "b"', "DEFRAG_MAX_CONCURRENT_DRAINING": "2"}
        other = await pool.begin("two", DEFRAG_NAME="cpus", **knobs)
        await eventually(lambda: len(pool.events) == 2)
        assert [inbox for inbox, _ in pool.orders] == ["startd.a", "startd.b"]
        assert pool.events[1].name == "cpus"
        assert other.state.seen.draining == 1


async def test_own_drains_that_are_not_needed_any_more_end(tmp_path):
    async with pool_of(tmp_path) as pool:
        drained = {"Draining": True, "DrainingRequestId": "defrag:1", "LastDrainStartTime": 3}
        await pool.machine("ours", cpus=8, **drained)
        await pool.machine("theirs", cpus=8, **drained | {"DrainingRequestId": "x"})
        defrag = await pool.begin("cm")
        await eventually(lambda: pool.events)
        ((inbox, order),) = pool.orders
        assert (inbox, order.request_id) == ("startd.ours", "defrag:1")
        assert pool.events[0].cancelled == ["ours"]
        assert defrag.state.cancels == 1


async def test_a_refusal_is_told_and_counted(tmp_path):
    async with pool_of(tmp_path, "a") as pool:
        await pool.bus.serve("startd.z", lambda _: _refused())
        pool.ads["startd.a"] = slot_ad("z")
        defrag = await pool.begin("cm")
        await eventually(lambda: pool.events)
        assert pool.events[0].failed == {"z": "not today"}
        assert (defrag.state.failures, dict(defrag.state.orders)) == (1, {})


async def _refused():
    return Failure(code="refused", reason="not today")


async def test_what_keeps_it_from_working_is_told_and_costs_no_round(tmp_path, monkeypatch):
    monkeypatch.setattr(periodic, "RETRY_S", 0.05)
    async with pool_of(tmp_path) as pool:
        pool.silent.add("collector")
        defrag = await pool.begin("cm")
        assert defrag.ready() == "the lead in Redis"
        await eventually(lambda: "not now" in defrag.ready())
        pool.silent.clear()
        await eventually(lambda: defrag.trouble == shell.NO_MACHINE)
        assert defrag.ready() == ""  # there is nothing wrong with it
        assert "roost_defrag_no_round 1.0" in generate_latest(defrag.context.metrics).decode()
        assert defrag.state.last_round == 0
        await pool.machine("a")
        await eventually(lambda: pool.events)
        assert defrag.ready() == ""


async def test_without_redis_nobody_acts(tmp_path, monkeypatch):
    async with pool_of(tmp_path, "a") as pool:
        defrag = await pool.begin("cm", ROOST_DEFRAG_LEASE="1")
        await eventually(lambda: pool.events)
        run = pool.store.run

        async def away(*_, **__):
            raise StoreUnavailable("Redis is away")

        monkeypatch.setattr(pool.store, "run", away)
        await eventually(lambda: not defrag.leads and defrag.ready() == "the lead in Redis")
        assert not defrag.lead.holds()
        monkeypatch.setattr(pool.store, "run", run)
        await eventually(lambda: defrag.leads and defrag.ready() == "")
        assert len(pool.orders) == 1


async def test_a_damaged_note_is_no_end(tmp_path):
    async with pool_of(tmp_path, "a") as pool:
        await pool.store.hset(keys.lead("DEFRAG"), {"note": b"{half"})
        await pool.begin("cm")
        await eventually(lambda: pool.events)
        assert DefragState.unpack(await pool.store.hget(keys.lead("DEFRAG"), "note")).successes == 1


async def test_what_redis_lost_is_written_again_by_who_stood_by(tmp_path):
    async with pool_of(tmp_path, "a") as pool:
        await pool.begin("cm1", ROOST_DEFRAG_LEASE="1")
        await eventually(lambda: pool.events)
        second = await pool.begin("cm2", ROOST_DEFRAG_LEASE="1")
        await eventually(lambda: second.state.successes == 1)
        await pool.kill("cm1")
        await pool.store.delete(keys.lead("DEFRAG"))
        await eventually(lambda: second.leads)
        assert second.state.successes == 1
        assert second.rounds == 0


async def test_a_new_configuration_is_in_force_at_once(tmp_path):
    async with pool_of(tmp_path, "a") as pool:
        defrag = await pool.begin("cm", DEFRAG_DRAINING_MACHINES_PER_HOUR="0")
        await eventually(lambda: pool.events)
        assert pool.orders == []
        env = {f"_CONDOR_{name}": value for name, value in (HOURLY | {"DEFRAG_INTERVAL": "1"}).items()}
        defrag.context.config = load_config([], subsystem="DEFRAG", env=env)
        await defrag.reconfigure()
        await eventually(lambda: pool.orders)


async def test_it_takes_orders_of_gateways_and_nobody_else(tmp_path):
    async with pool_of(tmp_path) as pool:
        defrag = await pool.begin("cm")
        with pytest.raises(RemoteFailure, match="gateway may send it, and nobody else"):
            await pool.bus.call("defrag.cm", Restart(by="me"))
        speakers = Speakers.on_hub(pool.hub)
        with pytest.raises(RemoteFailure, match="does not answer"):
            await speakers.call("defrag.cm", Drain(request_id="x"))
        await speakers.stop()
        assert not defrag.context.stopping.is_set()


def test_unanswered_orders_of_long_ago_are_left_alone():
    state = DefragState(orders={"startd.a": Order("startd.a", "defrag:1", 1000.0, None)})
    assert [order.machine for order in state.unanswered(1500.0)] == ["startd.a"]
    assert state.unanswered(1600.0) == []
    assert state.unanswered(900.0) == []
