"""Ads for other pools' collectors (COL-09): whom, what, and that a view ends with what the pool has."""

import asyncio
import random

import pytest

from services.collector.core.forwarding import Inbox, Outbox, targets
from services.collector.daemon import Collector
from services.collector.view_links import ViewLinks
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable
from shared.daemon.advertiser import Advertiser
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate, ForwardedAds, QueryAds, SendAds
from shared.messages.base import Ack
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually

OWN = "amqp://collector:secret@cm.x.org/pool"


@spec("COL-09", "VIEW-04", "VIEW-05")
@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["view.x.org"], ["amqp://collector:secret@view.x.org/pool"]),
        (["view:5673", "view:5673"], ["amqp://collector:secret@view:5673/pool"]),
        (["cm.x.org", "CM.x.org:5672", OWN], []),  # itself
        (["amqp://a:b@other/v"], ["amqp://a:b@other/v"]),
        (["amqp://a:b@cm.x.org/otherpool"], ["amqp://a:b@cm.x.org/otherpool"]),
        ([], []),
    ],
)
def test_hosts_of_condor_view_host(hosts, expected):
    """Every host but itself, on the default port if it names none."""
    assert targets(hosts, OWN) == (expected, [])


@pytest.mark.parametrize(
    ("host", "own", "says"),
    [
        ("http://user:secret@view", OWN, "want host"),
        ("view:port", OWN, "no number"),
        ("view:70000", OWN, "no number"),
        ("view", "", "without ROOST_AMQP_URL"),
    ],
)
def test_what_is_no_host_is_told_and_without_a_password(host, own, says):
    urls, (problem,) = targets([host], own)
    assert urls == []
    assert says in problem
    assert "secret" not in problem


def whole(sequence, names, daemon="startd@n1", start_time=1, value=0):
    ads = [ClassAd({"Name": name, "Value": value}).pack() for name in names]
    return AdUpdate(
        my_type="Machine", daemon=daemon, start_time=start_time, sequence=sequence, names=list(names), ads=ads
    )


def same(left, right):
    def content(table):
        return {
            (group.my_type, group.daemon): {name: row.attributes() for name, row in group.rows.items()}
            for group in table.groups()
            if group.rows
        }

    return content(left) == content(right)


def deliver(outbox, source, view, inbox, now):
    for message in outbox.take(source, 1000, now):
        known = view.group(message.my_type, message.daemon)
        made = inbox.take(message, known)
        if made is not None:
            view.apply(made, now)


@pytest.mark.parametrize("seed", range(5))
def test_view_ends_with_what_the_pool_has(seed):
    """Two collectors share the pool's messages and forward what they took; messages get lost on the way."""
    dice = random.Random(seed)
    source, view, inbox = AdTable(), AdTable(), Inbox()
    outboxes = [Outbox(f"collector.cm{i}", 300.0) for i in range(2)]
    sequence, start, now = {}, dict.fromkeys(range(6), 1), 1000.0
    for _ in range(200):
        now += dice.choice([0.0, 1.0, 20.0])
        daemon = dice.randrange(6)
        key = f"startd@n{daemon}"
        group = source.group("Machine", key)
        number = sequence[daemon] = sequence.get(daemon, 0) + 1
        head = {"my_type": "Machine", "daemon": key, "start_time": start[daemon], "sequence": number}
        kind = dice.choice(["whole", "delta", "beat", "beat", "gone", "again"])
        if kind == "again":
            start[daemon] += 1
            sequence[daemon] = 1
            message = whole(1, "ab", key, start[daemon], dice.random())
        elif kind == "whole" or group is None or not group.rows or group.start_time != start[daemon]:
            message = whole(number, dice.sample("abcde", 3), key, start[daemon], dice.random())
        elif kind == "delta":
            changes = [ClassAd({"Value": dice.random()}).pack()]
            message = AdDelta(
                **head, base=group.content, names=[next(iter(group.rows))], changes=changes, removed_attrs=[[]]
            )
        elif kind == "beat":
            message = AdHeartbeat(**head, base=group.content)
        else:
            message = AdInvalidate(**head)
        source.apply(message, now)
        outbox = dice.choice(outboxes)
        outbox.note([("Machine", key)])
        if dice.random() < 0.1:
            for _ in outbox.take(source, 1000, now):
                pass  # lost
        elif dice.random() < 0.5:
            deliver(outbox, source, view, inbox, now)
    # What was lost comes again with the next word of each daemon, at the latest after a third of the lifetime.
    for group in list(source.groups()):
        if group.rows:
            daemon = int(group.daemon.removeprefix("startd@n"))
            head = {"my_type": "Machine", "daemon": group.daemon, "start_time": group.start_time}
            source.apply(AdHeartbeat(**head, sequence=group.sequence + 1, base=group.content), now + 301)
    for outbox in outboxes:
        outbox.forget()
        outbox.note(group.key for group in source.groups())
        deliver(outbox, source, view, inbox, now + 302)
    view.expire(now + 302 + 899)  # of what is gone, the word may have been lost
    assert same(source, view)


def test_nothing_new_is_a_short_word_and_all_of_it_comes_now_and_then():
    source, outbox = AdTable(), Outbox("collector.cm", 300.0)
    source.apply(whole(1, "ab"), 0.0)
    said = []
    for now, sequence in ((0.0, 1), (100.0, 2), (200.0, 3), (301.0, 4)):
        if sequence > 1:
            source.apply(
                AdHeartbeat(my_type="Machine", daemon="startd@n1", start_time=1, sequence=sequence, base=1), now
            )
        outbox.note([("Machine", "startd@n1")])
        said += list(outbox.take(source, 10, now))
    assert [(len(one.names), one.base, one.sequence) for one in said] == [(2, 0, 1), (0, 1, 2), (0, 1, 3), (2, 0, 4)]


@pytest.mark.parametrize(("bound", "most"), [("PART_BYTES", 60), ("MOST_IN_PART", 3)])
def test_many_ads_come_in_parts(monkeypatch, bound, most):
    from services.collector.core import forwarding

    monkeypatch.setattr(forwarding, bound, most)
    source, view, outbox, inbox = AdTable(), AdTable(), Outbox("collector.cm", 300.0), Inbox()
    source.apply(whole(1, [f"slot{i}" for i in range(10)]), 0.0)
    outbox.note([("Machine", "startd@n1")])
    parts = list(outbox.take(source, 10, 0.0))
    assert len(parts) > 3
    random.Random(1).shuffle(parts)
    made = [inbox.take(part, None) for part in parts]
    assert made[:-1] == [None] * (len(parts) - 1)
    view.apply(made[-1], 0.0)
    assert same(source, view)
    with pytest.raises(BadAd, match="part 7 of 3"):
        inbox.take(parts[0].model_copy(update={"part": 7, "parts": 3}), None)


def test_who_sends_many_ads_can_give_way_and_parts_that_never_become_a_whole_are_few(monkeypatch):
    from services.collector.core import forwarding

    monkeypatch.setattr(forwarding, "STEP", 5)
    source, outbox, inbox = AdTable(), Outbox("collector.cm", 300.0), Inbox()
    source.apply(whole(1, [f"slot{i}" for i in range(20)]), 0.0)
    outbox.note([("Machine", "startd@n1")])
    *given_way, message = outbox.take(source, 10, 0.0)
    assert given_way == [None] * 4
    monkeypatch.setattr(forwarding, "MOST_OPEN_BYTES", 2_000)
    for number in range(50):
        inbox.take(message.model_copy(update={"sequence": number, "parts": 2}), None)
    assert 1 <= len(inbox._open) <= 10


class Pool:
    """One collector on a bus of its own."""

    def __init__(self, name, hub, **config):
        self.hub = hub
        self.bus = MemoryBus(hub, sender=f"collector.{name}")
        self.context = make_context("COLLECTOR", name, bus=self.bus, config=config)

    async def start(self, view=None):
        await self.bus.start()
        await self.context.store.start()
        self.collector = Collector(self.context)
        if view is not None:
            self.collector.views = ViewLinks(
                f"collector.{self.context.name}",
                self.collector.directory.table,
                self.context.clock,
                self.context.log,
                make_bus=lambda url, name: MemoryBus(view, sender=name),
            )
            self.collector.views.aim(["amqp://view"])
        await self.collector.setup()
        self.tasks = [asyncio.create_task(task) for task in self.collector.tasks().values()]
        return self

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.collector.close()
        await self.bus.stop()
        await self.context.store.stop()

    async def names(self, my_type="Machine"):
        bus = MemoryBus(self.hub, sender="gateway.x")
        await bus.start()
        page = await bus.call("collector", QueryAds(my_types=[my_type]))
        await bus.stop()
        return sorted(str(ClassAd.unpack(ad)["Name"]) for ad in page.ads)


@spec("COL-09", "VIEW-07")
async def test_two_pools_are_seen_in_the_view_and_a_view_does_not_forward_again():
    """One view serves several pools."""
    hubs = {name: MemoryHub() for name in ("a", "b", "view", "other")}
    view = await Pool("view", hubs["view"]).start(hubs["other"])
    beyond, heard = MemoryBus(hubs["other"], sender="collector.beyond"), set()
    await beyond.start()

    async def hear(envelope):
        heard.add(envelope.body.my_type)

    await beyond.listen(Exchange.ADS, ["forward.#"], hear)
    pools = [await Pool(name, hubs[name]).start(hubs["view"]) for name in "ab"]
    startds = []
    try:
        for name in "ab":
            bus = MemoryBus(hubs[name], sender=f"startd.{name}1")
            await bus.start()
            context = make_context("STARTD", f"{name}1", bus=bus)
            advertiser = Advertiser(context, "Machine")

            async def answer(envelope, advertiser=advertiser):
                assert isinstance(envelope.body, SendAds)
                advertiser.resend(envelope.body)
                return Ack()

            await bus.serve(f"startd.{name}1", answer)
            slot = f"slot1@{name}1"
            await advertiser.publish({slot: ClassAd({"Name": slot, "MyType": "Machine"})})
            startds.append((bus, advertiser))

        async def both():
            return await view.names() == ["slot1@a1", "slot1@b1"]

        await eventually(both)
        assert await pools[0].names() == ["slot1@a1"]
        await startds[0][1].invalidate()

        async def one():
            return await view.names() == ["slot1@b1"]

        await eventually(one)
        assert heard <= {"Collector"}  # its own ad, nothing of the others
    finally:
        for pool in (*pools, view):
            await pool.stop()
        for bus, _ in startds:
            await bus.stop()
        await beyond.stop()


async def test_only_a_collector_forwards_and_only_in_its_own_name():
    hub = MemoryHub()
    view = await Pool("view", hub).start()
    try:
        for sender, by in (("startd.n1", "collector.cm"), ("startd.n1", "startd.n1"), ("collector.x", "collector.cm")):
            bus = MemoryBus(hub, sender=sender)
            await bus.start()
            message = ForwardedAds(
                by=by, my_type="Machine", daemon="startd@n9", start_time=1, sequence=1, names=["s"], ads=[b"\x80"]
            )
            await bus.publish(Exchange.ADS, "forward.Machine.startd@n9", message)
            await bus.stop()
        await eventually(lambda: _refused(hub, 3))
        assert await view.names() == []
    finally:
        await view.stop()


async def _refused(hub, count):
    bus = MemoryBus(hub, sender="gateway.x")
    await bus.start()
    letters = [letter for letter in await bus.dead_letters() if letter.reason.startswith("denied: ads.forwarded")]
    await bus.stop()
    return len(letters) == count
