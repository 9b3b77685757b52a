"""HADs in this process, each with something that obeys as a negotiator does: what they order, tell and advertise."""

import asyncio
import time
from contextlib import asynccontextmanager
from ipaddress import ip_address

import psutil
import pytest
import structlog
from prometheus_client import generate_latest

from services.had.daemon import Had, addresses_of
from shared.bus.api import BusUnavailable, Exchange, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import ConfigError, load_config
from shared.messages.ads import AdDelta, AdUpdate, SendAds
from shared.messages.had import AskHad, Following, Lead, StepDown
from shared.messages.negotiation import Reschedule
from shared.state import keys
from shared.state.api import StoreUnavailable, Unconfirmed
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually


class Controllee:
    """Obeys its HAD; may die, or hang."""

    def __init__(self, pool, name, subsystem="negotiator"):
        self.pool, self.name, self.subsystem = pool, name, subsystem
        self.active, self.epoch, self.orders = False, 0, []
        self.cut_off = False
        self.stubborn = False  # it does not step down
        self.life = ""  # a negotiator of an earlier version
        self.answered = []  # stamps of its answers

    async def start(self):
        self.bus = MemoryBus(self.pool.hub, sender=f"{self.subsystem}.{self.name}")
        await self.bus.start()
        await self.bus.serve(f"{self.subsystem}.{self.name}", self._answer)
        return self

    async def die(self):
        await self.bus.stop()

    async def _answer(self, envelope):
        order = envelope.body
        self.orders.append(order)
        if order.epoch >= self.epoch and not (self.stubborn and isinstance(order, StepDown)):
            self.active, self.epoch = isinstance(order, Lead), order.epoch
        self.answered.append(time.monotonic())
        return Following(
            negotiator=self.name,
            active=self.active,
            epoch=self.epoch,
            cycle=0,
            books=[0, 0],
            cut_off=self.cut_off,
            life=self.life,
            stamp=self.answered[-1] if self.life else 0.0,
        )


class Pool:
    """HADs and their controllees on one bus and one store."""

    def __init__(self, tmp_path):
        self.tmp_path, self.hub = tmp_path, MemoryHub()
        self.hads, self.controllees, self.tasks, self.ads = {}, {}, {}, []

    async def __aenter__(self):
        self.store = EmbeddedStore()
        await self.store.start()
        self.bus = MemoryBus(self.hub, sender="gateway.test")
        await self.bus.start()

        async def hear(envelope):
            self.ads.append(envelope.body)

        await self.bus.listen(Exchange.ADS, ["*.HAD.#"], hear)
        return self

    async def __aexit__(self, *_):
        for name in list(self.hads):
            await self.off(name)
        for controllee in self.controllees.values():
            await controllee.die()
        await self.bus.stop()
        await self.store.stop()

    async def on(self, name, controllee="negotiator", store=None, **config):
        self.controllees[name] = await Controllee(self, name, controllee).start()
        config = {"ROOST_HAD_LEASE": "2.5", "HAD_LIST": "cm1, cm2"} | config
        bus = MemoryBus(self.hub, sender=f"had.{name}")
        await bus.start()
        directory = self.tmp_path / name
        context = make_context("HAD", name, bus=bus, store=store or self.store, config=config, directory=directory)
        had = self.hads[name] = Had(context)
        await had.setup()
        self.tasks[name] = [asyncio.create_task(task) for task in had.tasks().values()]
        return had

    async def off(self, name):
        had = self.hads.pop(name)
        await had.drain()
        for task in self.tasks[name]:
            task.cancel()
        await asyncio.gather(*self.tasks.pop(name), return_exceptions=True)
        await had.close()
        await had.context.bus.stop()

    async def ask(self, name):
        return await self.bus.call(f"had.{name}", AskHad())

    async def leader(self, name):
        async def leads():
            return self.controllees[name].active and self.hads[name].role() == "leader"

        await eventually(leads, what=f"{name} leads")
        return self.controllees[name].epoch


@asynccontextmanager
async def pool_of(tmp_path, *names, **config):
    async with Pool(tmp_path) as pool:
        for name in names:
            await pool.on(name, **config)
        yield pool


@spec("HA-20", "HA-22")
async def test_shut_down_in_the_documented_order_leaves_one_plain_negotiator(tmp_path):
    """First the negotiators, then the HADs; a single HAD without HAD_LIST leads one negotiator on."""
    async with pool_of(tmp_path, "cm1", "cm2") as pool:
        epoch = await pool.leader("cm1")
        for name in ("cm1", "cm2"):
            await pool.controllees[name].die()
        for name in ("cm2", "cm1"):
            await pool.off(name)
        await pool.on("cm1", HAD_LIST="")
        assert await pool.leader("cm1") > epoch


async def test_clean_hand_over_tells_the_negotiator_first(tmp_path):
    """The next one has the lease as soon as the stopped one has said so; two are never active."""
    async with pool_of(tmp_path, "cm1", "cm2") as pool:
        epoch = await pool.leader("cm1")
        await eventually(lambda: pool.hads["cm2"].answering() and "cm2" in pool.hads["cm1"]._seen.present)
        await pool.off("cm1")
        assert not pool.controllees["cm1"].active
        assert isinstance(pool.controllees["cm1"].orders[-1], StepDown)
        lease = {}

        async def taken():
            lease.update(await pool.store.hgetall(keys.had_lease()))
            return lease

        await eventually(taken)
        assert (lease[b"owner"], int(lease[b"epoch"])) == (b"cm2", epoch + 1)
        assert await pool.leader("cm2") == epoch + 1


@spec("HA-05")
async def test_returning_primary_is_given_the_lead(tmp_path):
    """The lease goes from one to the other in one step, and the primary is told, rather than to find out."""
    async with pool_of(tmp_path, "cm1", "cm2", HAD_USE_PRIMARY="true") as pool:
        await pool.leader("cm1")
        await pool.off("cm1")
        epoch = await pool.leader("cm2")
        told = []
        tell = pool.hads["cm2"].context.bus.call

        async def call(inbox, body, **options):
            told.append((inbox, body.type))
            return await tell(inbox, body, **options)

        pool.hads["cm2"].context.bus.call = call
        await pool.on("cm1", HAD_USE_PRIMARY="true")
        assert await pool.leader("cm1") == epoch + 1
        assert not pool.controllees["cm2"].active
        await eventually(lambda: ("had.cm1", "had.handed-over") in told)
        assert told.index(("negotiator.cm2", "had.step-down")) < told.index(("had.cm1", "had.handed-over"))


async def test_lead_is_handed_over_only_by_a_negotiator_that_has_stepped_down(tmp_path):
    """Else two would believe to lead, until one hears of the other's epoch."""
    async with pool_of(tmp_path, "cm1", "cm2", HAD_USE_PRIMARY="true") as pool:
        await pool.leader("cm1")
        await pool.off("cm1")
        epoch = await pool.leader("cm2")
        slow = pool.controllees["cm2"]
        slow.stubborn = True
        await pool.on("cm1", HAD_USE_PRIMARY="true")

        def asked():
            return [order for order in slow.orders if isinstance(order, StepDown) and "is back" in order.reason]

        await eventually(lambda: len(asked()) > 2)  # again and again
        lease = await pool.store.hgetall(keys.had_lease())
        assert (lease[b"owner"], int(lease[b"epoch"])) == (b"cm2", epoch)
        assert not pool.controllees["cm1"].active
        slow.stubborn = False
        assert await pool.leader("cm1") == epoch + 1
        assert not slow.active


@spec("HA-10")
async def test_controllee_is_started_and_stopped_by_orders(tmp_path):
    """HAD_CONTROLLEE is whatever obeys on `<controllee>.<name>`."""
    async with pool_of(tmp_path, "cm1", controllee="defrag", HAD_CONTROLLEE="DEFRAG", HAD_LIST="") as pool:
        await pool.leader("cm1")
        await pool.off("cm1")
        assert not pool.controllees["cm1"].active


@spec("HA-10")
@pytest.mark.parametrize("name", ["", "NEGO TIATOR", "negotiator.cm2", "$(UNSET)x y"])
def test_controllee_that_is_no_name_is_refused(name):
    if not name:
        assert Had(make_context("HAD", config={"HAD_CONTROLLEE": name})).inbox == "negotiator.node1"
        return
    with pytest.raises(ConfigError, match="HAD_CONTROLLEE"):
        Had(make_context("HAD", config={"HAD_CONTROLLEE": name}))


@spec("HA-07", "HA-12")
async def test_dead_negotiator_hands_the_lead_on_and_its_had_is_held_back(tmp_path):
    """HA-07: the reference holds an election only when a HAD is silent; ours also when the negotiator beside it is.
    HA-12: the primary does not get the lead back while its negotiator may die again."""
    config = {"HAD_USE_PRIMARY": "true", "MASTER_HAD_BACKOFF_CONSTANT": "3600"}
    async with pool_of(tmp_path, "cm1", "cm2", **config) as pool:
        await pool.leader("cm1")
        await pool.controllees["cm1"].die()
        await pool.leader("cm2")
        await pool.controllees["cm1"].start()
        await eventually(lambda: pool.hads["cm1"].answering())
        told = await pool.ask("cm1")
        assert told.held_back_s > 3000
        # A machine that stood still for the length of the lease was not asked.
        assert any(why in change.reason for change in told.changes for why in ("does not answer", "has the lease"))
        # The primary is there, answers, and waits. Where there is no other, it leads at once.
        await eventually(lambda: pool.hads["cm1"].standing.state.value == "Passive")
        await pool.leader("cm2")
        await pool.off("cm2")
        await pool.leader("cm1")


async def test_negotiator_that_can_not_reach_redis_gives_the_lead_away(tmp_path):
    """A cut between one machine's negotiator and Redis only: its HAD could renew the lease for ever."""
    async with pool_of(tmp_path, "cm1", "cm2") as pool:
        epoch = await pool.leader("cm1")
        pool.controllees["cm1"].cut_off = True
        assert await pool.leader("cm2") > epoch
        assert not pool.controllees["cm1"].active


class Cut:
    """A store that one daemon can not reach while `cut`."""

    def __init__(self, store):
        self.store, self.cut = store, False

    def __getattr__(self, name):
        if self.cut:
            raise StoreUnavailable("no route to Redis")
        return getattr(self.store, name)


@spec("HA-04")
async def test_had_cut_off_from_redis_loses_the_lead_and_gets_it_no_second_time(tmp_path):
    """There is one Redis, so one side at most has a leader, whatever the partition; it stays when all is
    whole again."""
    async with pool_of(tmp_path) as pool:
        store = Cut(pool.store)
        await pool.on("cm1", store=store)
        await pool.on("cm2")
        epoch = await pool.leader("cm1")
        store.cut = True
        after = await pool.leader("cm2")
        assert after > epoch
        await eventually(lambda: not pool.controllees["cm1"].active)
        assert pool.hads["cm1"].ready() == "the lease in Redis"
        store.cut = False
        await eventually(lambda: pool.hads["cm1"].standing.leader == "cm2")
        assert await pool.leader("cm2") == after


async def test_had_cut_off_from_the_bus_loses_the_lead(tmp_path):
    """It can order nothing: the other one, which can, takes over."""
    async with pool_of(tmp_path, "cm1", "cm2") as pool:
        epoch = await pool.leader("cm1")
        sent = pool.hads["cm1"].context.bus.call

        async def lost(*_, **__):
            raise BusUnavailable("no route to RabbitMQ")

        pool.hads["cm1"].context.bus.call = lost
        assert await pool.leader("cm2") > epoch
        pool.hads["cm1"].context.bus.call = sent
        await eventually(lambda: pool.hads["cm1"].answering())


async def test_a_negotiator_whose_answers_are_lost_leads_no_longer_than_its_had_waits(tmp_path):
    """It hears every order and is heard no more: what it was granted counts from its last answer that came, and ends
    before another one leads."""
    async with pool_of(tmp_path, "cm1", "cm2") as pool:
        for controllee in pool.controllees.values():
            controllee.life = f"life of {controllee.name}"
        deaf, had = pool.controllees["cm1"], pool.hads["cm1"]
        await pool.leader("cm1")
        await eventually(lambda: isinstance(deaf.orders[-1], Lead) and deaf.orders[-1].life == deaf.life)
        call, lost_since = had.context.bus.call, []

        async def unheard(*args, **options):
            await call(*args, **options)
            lost_since.append(time.monotonic())
            raise BusUnavailable("the answer is lost")

        had.context.bus.call = unheard
        epoch = await pool.leader("cm2")
        now = time.monotonic()
        orders = [order for order in deaf.orders if isinstance(order, Lead) and order.epoch < epoch]
        assert len(lost_since) > 1  # orders came all the time
        assert max(order.stamp + order.span_s for order in orders) <= now
        assert {order.life for order in orders[-2:]} == {deaf.life}
        assert all(order.stamp in deaf.answered for order in orders if order.life)


@spec("HA-21")
async def test_addresses_of_hosts_are_found_and_loopback_is_nobodys():
    found = await addresses_of(("localhost", "no-such-host.invalid"), "CM1")
    assert found["localhost"] == frozenset()
    assert found["no-such-host.invalid"] == frozenset()
    of_machine = {one.address.partition("%")[0] for some in psutil.net_if_addrs().values() for one in some}
    assert found["cm1"] == {one for one in of_machine if _is_usable(one)}


def _is_usable(address):
    try:
        return not ip_address(address).is_loopback
    except ValueError:  # of the link
        return False


@spec("HA-11")
async def test_a_lease_of_our_own_wins_over_the_connection_timeout_and_that_is_told(tmp_path):
    async with pool_of(tmp_path) as pool:
        with structlog.testing.capture_logs() as logs:
            had = await pool.on("cm1", ROOST_HAD_LEASE="2", HAD_CONNECTION_TIMEOUT="10")
        assert had.timing.lease_s == 2.0
        (told,) = [log["problem"] for log in logs if log["event"] == "configuration"]
        assert "HAD_CONNECTION_TIMEOUT (10 s) has no effect" in told
        assert (await pool.ask("cm1")).lease_s == 2.0


async def test_wall_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    """Leases are counted by monotonic time here, and by Redis's clock there."""
    async with pool_of(tmp_path, "cm1", "cm2") as pool:
        epoch = await pool.leader("cm1")
        for jump in (-7200.0, 7200.0):
            for had in pool.hads.values():
                monkeypatch.setattr(had.context.clock, "now", lambda jump=jump: time.time() + jump)
            polls = len(pool.controllees["cm1"].orders)
            await eventually(lambda polls=polls: len(pool.controllees["cm1"].orders) > polls + 5)
            assert await pool.leader("cm1") == epoch


async def test_had_tells_how_it_stands(tmp_path):
    async with pool_of(tmp_path, "cm1", "cm2") as pool:
        epoch = await pool.leader("cm1")
        told = await pool.ask("cm1")
        assert (told.state, told.epoch, told.leader, told.had_list) == ("Leader", epoch, "cm1", ["cm1", "cm2"])
        assert 0 < told.lease_left_s <= 2.5
        assert (told.answering, told.held_back_s, told.snapshot_file) == (True, 0.0, "")
        await eventually(lambda: [(c.had, c.state) for c in pool.hads["cm1"].changes] == [("cm1", "leader")])
        assert (await pool.ask("cm1")).changes[0].epoch == epoch
        await eventually(lambda: pool.hads["cm2"].standing.leader == "cm1")
        other = await pool.ask("cm2")
        assert (other.state, other.leader, other.lease_left_s) == ("Passive", "cm1", 0.0)
        metrics = generate_latest(pool.hads["cm1"].context.metrics).decode()
        assert 'roost_had_state{state="Leader"} 1.0' in metrics
        assert f"roost_had_epoch {float(epoch)}" in metrics
        assert "roost_had_books_behind 0.0" in metrics
        with pytest.raises(RemoteFailure):
            await pool.bus.call("had.cm1", Reschedule(by="test"))


@spec("HA-19")
async def test_ad_says_who_is_active(tmp_path):
    """HadIsActive, at once when it changes, and at least every HAD_UPDATE_INTERVAL."""
    async with pool_of(tmp_path, "cm1", HAD_LIST="", HAD_UPDATE_INTERVAL="1") as pool:
        epoch = await pool.leader("cm1")

        def active():
            for message in pool.ads:
                if isinstance(message, AdUpdate | AdDelta):
                    packed = message.ads if isinstance(message, AdUpdate) else message.changes
                    if any(ClassAd.unpack(one).get("HadIsActive") is True for one in packed):
                        return True
            return False

        await eventually(active)
        heard = len(pool.ads)
        await eventually(lambda: len(pool.ads) > heard)  # repeated though nothing changed
        pool.ads.clear()
        collector = MemoryBus(pool.hub, sender="collector.cm")
        await collector.start()
        await collector.send("had.cm1", SendAds(my_type="HAD"))
        await collector.stop()
        await eventually(lambda: any(isinstance(message, AdUpdate) for message in pool.ads))
        (whole,) = [message for message in pool.ads if isinstance(message, AdUpdate)]
        ad = ClassAd.unpack(whole.ads[0])
        assert (ad["HadState"], ad["HadEpoch"], ad["HadStateSince"] > 0) == ("Leader", epoch, True)
        assert ad["HadBooksVersion"].startswith(f"{epoch}.")


async def test_epoch_is_on_disk_before_the_negotiator_leads(tmp_path):
    async with pool_of(tmp_path, "cm1", HAD_LIST="") as pool:
        epoch = await pool.leader("cm1")
        file = pool.hads["cm1"].replication.disk.epoch_file
        assert int(file.read_text()) >= epoch
        await pool.off("cm1")
        # Everything else is lost: another store, another life.
        await pool.store.stop()
        pool.store = EmbeddedStore()
        await pool.store.start()
        await pool.controllees["cm1"].die()
        await pool.on("cm1", HAD_LIST="")
        assert await pool.leader("cm1") > epoch


class Slow:
    """A store whose replica confirms nothing in time: what is written is there, and its writer is told that it may not
    last."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def run(self, script, keys, args, *, confirm=False):
        reply = await self.store.run(script, keys, args)
        if confirm:
            raise Unconfirmed("no replica confirmed the write")
        return reply


async def test_books_that_no_replica_confirmed_are_led_with_all_the_same(tmp_path):
    """They are in Redis then, and nothing is left to restore; nobody led until the HAD was started again."""
    async with Pool(tmp_path) as pool:
        had = await pool.on("cm1", store=Slow(pool.store), HAD_LIST="")
        await pool.leader("cm1")
        assert not had.standing.mending


async def test_a_new_configuration_moves_the_lead_without_a_restart(tmp_path):
    """HAD_LIST, HAD_USE_PRIMARY and the lease are taken over; what waits for a restart is said so."""
    async with Pool(tmp_path) as pool:
        await pool.on("cm1")
        await pool.on("cm2")
        await eventually(lambda: pool.controllees["cm1"].active)
        for name in ("cm1", "cm2"):
            had = pool.hads[name]
            knobs = {"ROOST_HAD_LEASE": "1.5", "HAD_LIST": "cm2, cm1", "HAD_USE_PRIMARY": "true"}
            had.context.config = load_config(
                [], subsystem="HAD", env={f"_CONDOR_{knob}": text for knob, text in knobs.items()}
            )
            await had.reconfigure()
            assert (had.timing.lease_s, had.rules.order) == (1.5, ("cm2", "cm1"))
        await eventually(lambda: pool.controllees["cm2"].active and not pool.controllees["cm1"].active)


async def test_an_unusable_configuration_changes_nothing(tmp_path):
    async with Pool(tmp_path) as pool:
        had = await pool.on("cm1")
        had.context.config = load_config(
            [], subsystem="HAD", env={"_CONDOR_HAD_LIST": "cm9", "_CONDOR_HAD_CONTROLLEE": "no-name"}
        )
        with pytest.raises(ConfigError, match="HAD_CONTROLLEE"):
            await had.reconfigure()
        assert had.rules.order == ("cm1", "cm2")
