"""What a daemon publishes of itself over a bus, and what a listener makes of it."""

import pytest

from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.ad_plan import PART_BYTES
from shared.daemon.ad_table import AdTable
from shared.daemon.advertiser import Advertiser
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate, PrivateAds
from tests.daemons import make_context
from tests.waiting import eventually


class Listener:
    def __init__(self):
        self.table, self.messages, self.private, self.keys = AdTable(), [], [], []

    async def on_ads(self, envelope):
        self.messages.append(envelope.body)
        self.table.apply(envelope.body, 0.0)

    async def on_private(self, envelope):
        self.private.append(envelope.body)

    def kinds(self):
        return [type(message) for message in self.messages]


@pytest.fixture
async def heard():
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="negotiator.x")
    await bus.start()
    listener = Listener()
    listener.hub, listener.bus = hub, bus
    await bus.listen(Exchange.ADS, ["*.Machine.#"], listener.on_ads)
    await bus.listen(Exchange.PRIVATE, ["#"], listener.on_private)
    yield listener
    await bus.stop()


@pytest.fixture
async def advertiser(heard):
    context = make_context("STARTD", "n1.example.org", hub=heard.hub)
    await context.bus.start()
    yield Advertiser(context, "Machine")
    await context.bus.stop()


def slot(number, **more):
    name = f"slot{number}@n1"
    return name, ClassAd({"MyType": "Machine", "Name": name, **{f"A{i}": i for i in range(30)}, **more})


async def test_many_ads_are_told_in_parts_and_changes_go_on_from_the_last(heard, advertiser):
    ads = dict(slot(number, Text=str(number % 10) * 100_000) for number in range(100))
    await advertiser.publish(ads)
    await eventually(lambda: len(heard.messages) == 3)
    assert [message.complete for message in heard.messages] == [True, False, False]
    assert max(sum(map(len, message.ads)) for message in heard.messages) <= PART_BYTES
    await advertiser.publish(ads | dict([slot(1, Text="changed")]))
    await eventually(lambda: len(heard.messages) == 4)
    assert isinstance(heard.messages[3], AdDelta)
    assert [message.sequence - heard.messages[0].sequence for message in heard.messages] == [0, 1, 2, 3]
    await advertiser.resend()
    await eventually(lambda: len(heard.messages) == 7)
    group = heard.table.group("Machine", advertiser.daemon)
    assert (len(group.rows), group.lost) == (100, 0)


async def test_so_are_changes_of_more_than_a_part(heard, advertiser):
    ads = dict(slot(number, Text="x" * 100_000, More="y" * 200_000) for number in range(50))
    await advertiser.publish(ads)
    await advertiser.publish({name: ClassAd({**ad, "Text": "z" * 100_000}) for name, ad in ads.items()})
    await eventually(lambda: heard.messages and heard.messages[-1].sequence == advertiser.sequence)
    assert all(isinstance(message, AdUpdate) for message in heard.messages)
    rows = heard.table.group("Machine", advertiser.daemon).rows
    assert {ClassAd.unpack(row.packed())["Text"] for row in rows.values()} == {"z" * 100_000}


async def test_whole_delta_heartbeat(heard, advertiser):
    await advertiser.publish(dict([slot(1)]))
    await advertiser.publish(dict([slot(1, A3="changed")]))
    await advertiser.publish(dict([slot(1, A3="changed")]))
    await eventually(lambda: len(heard.messages) == 3)
    assert heard.kinds() == [AdUpdate, AdDelta, AdHeartbeat]
    assert heard.table.row("Machine", "startd@n1.example.org", "slot1@n1").attributes()["A3"] == "changed"
    assert heard.table.group("Machine", "startd@n1.example.org").lost == 0


async def test_change_leaves_other_ads_alone(heard, advertiser):
    await advertiser.publish(dict([slot(1), slot(2)]))
    await advertiser.change(dict([slot(3)]), gone=["slot1@n1"])
    await eventually(lambda: len(heard.messages) == 2)
    assert {name for _, name, _ in heard.table.rows("Machine")} == {"slot2@n1", "slot3@n1"}


async def test_secrets_travel_on_the_private_exchange_only_and_only_when_changed(heard, advertiser):
    name, ad = slot(1, ClaimId="n1#1#secret")
    await advertiser.publish({name: ad}, {name: "n1#1#secret"})
    await advertiser.publish({name: ad}, {name: "n1#1#secret"})
    await eventually(lambda: len(heard.messages) == 2)
    await eventually(lambda: len(heard.private) == 1)
    assert heard.private[0].claims == {name: "n1#1#secret"}
    assert isinstance(heard.private[0], PrivateAds)
    assert all("secret" not in str(message) for message in heard.messages)


async def test_asked_again_it_sends_everything_once(heard, advertiser):
    name, ad = slot(1)
    await advertiser.publish({name: ad}, {name: "id"})
    asked = [advertiser.resend() for _ in range(5)]
    await asked[-1]
    await eventually(lambda: len(heard.messages) == 2)
    assert heard.kinds() == [AdUpdate, AdUpdate]
    await eventually(lambda: len(heard.private) == 2)


async def test_taken_back_ads_are_gone_until_published_again(heard, advertiser):
    await advertiser.publish(dict([slot(1)]))
    await advertiser.invalidate()
    await eventually(lambda: len(heard.messages) == 2)
    assert heard.kinds()[-1] is AdInvalidate
    assert len(heard.table) == 0
    await advertiser.publish(dict([slot(1)]))
    await eventually(lambda: len(heard.table) == 1)
    assert heard.kinds()[-1] is AdUpdate


async def test_after_a_reconnection_it_says_where_it_stands(heard, advertiser):
    bus = advertiser._context.bus
    name, ad = slot(1)
    await advertiser.publish({name: ad}, {name: "id"})
    await eventually(lambda: len(heard.messages) == 1)
    bus.disconnect()
    await advertiser.publish(dict([slot(1, A3="unheard")]))
    bus.reconnect()
    await eventually(lambda: len(heard.messages) == 2)
    assert isinstance(heard.messages[-1], AdHeartbeat)
    assert heard.table.apply(heard.messages[-1], 0.0).ask
    await eventually(lambda: len(heard.private) == 2)


async def test_nothing_is_repeated_before_there_is_anything(heard, advertiser):
    await advertiser.repeat()
    await advertiser.resend()
    await advertiser.publish(dict([slot(1)]))
    await eventually(lambda: len(heard.messages) == 1)
    assert heard.messages[0].sequence == advertiser.sequence


async def test_an_administrators_attributes_are_added_where_the_daemon_says_nothing_of_that_name(heard):
    config = {
        "SCHEDD_ATTRS": "Site, Load Name, Torn, gone",
        "SUBMITTER_ATTRS": "Site",
        "Site": '"north"',
        "Load": "TotalRunningJobs / 2",
        "Name": '"another"',
        "Torn": '"no end',
    }
    context = make_context("SCHEDD", "ap", hub=heard.hub, config=config)
    await context.bus.start()
    await heard.bus.listen(Exchange.ADS, ["*.Scheduler.#", "*.Submitter.#"], heard.on_ads)
    own = {"ap": ClassAd({"MyType": "Scheduler", "Name": "ap", "TotalRunningJobs": 8})}
    users = {"ann": ClassAd({"MyType": "Submitter", "Name": "ann", "Site": "south"})}
    await Advertiser(context, "Scheduler").publish(own)
    await Advertiser(context, "Submitter").publish(users)
    await eventually(lambda: len(heard.messages) == 2)
    ((_, _, row),) = heard.table.rows("Scheduler")
    ad = ClassAd.unpack(row.read())
    assert (ad.eval("Site"), ad.eval("Load"), ad.eval("Name")) == ("north", 4, "ap")
    assert "Torn" not in ad
    ((_, _, row),) = heard.table.rows("Submitter")
    ad = ClassAd.unpack(row.read())
    assert (ad.eval("Site"), "Load" in ad) == ("south", False)
    assert list(own["ap"]) == ["MyType", "Name", "TotalRunningJobs"]  # what the daemon has of its own is as it was
    await context.bus.stop()
