"""Ads of large pools are compressed in Redis and in the collector, and nobody sees a difference."""

import pytest
import structlog

from services.collector import ad_writer as module
from services.collector.ad_writer import _Sizes
from services.collector.core.acceptance import AbsentPolicy
from services.collector.directory import AdIndex, Directory
from shared.classad import ClassAd
from shared.compression import MAGIC
from shared.daemon.ad_rows import StoredAd
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdDelta, AdUpdate
from shared.state import keys
from shared.state.ads import load_ads
from shared.state.embedded import EmbeddedStore


@pytest.fixture
async def store():
    made = EmbeddedStore()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "LEAST_WRITTEN", 100)
    monkeypatch.setattr(module, "BATCH", 20)


def collector(store):
    return Directory(store, SystemClock(), structlog.get_logger(), AdIndex(900.0), AbsentPolicy())


def ad(name, **attributes):
    many = {f"Attribute{n}": f"value {n} of all machines" for n in range(50)}
    return ClassAd({"MyType": "Machine", "Name": name, **many, **attributes}).pack()


def machine(number, sequence=1, **attributes):
    names = [f"slot{slot}@n{number}" for slot in range(1, 6)]
    return AdUpdate(
        my_type="Machine",
        daemon=f"startd@n{number}",
        start_time=5,
        sequence=sequence,
        names=names,
        ads=[ad(name, **attributes) for name in names],
    )


async def filled(store, machines=60):
    made = collector(store)
    for number in range(machines):
        made.apply(machine(number))
    while made.writer.waiting:
        await made.writer.write_some()
    return made


def held(directory):
    return {name: row._held for _, name, row in directory.table.rows("Machine")}


def shown(directory):
    return {name: row.packed() for _, name, row in directory.table.rows("Machine")}


def by_name(groups):
    return {name: packed for group in groups for name, packed in group.ads.items()}


async def test_ads_are_compressed_once_there_are_enough_and_read_back_as_they_were(store):
    made = await filled(store)
    told = {name: ad(name) for number in range(60) for name in machine(number).names}
    assert shown(made) == told
    compressed = [packed for packed in held(made).values() if packed.startswith(MAGIC)]
    assert len(compressed) >= 150
    assert sum(map(len, compressed)) * 5 < sum(map(len, map(made.compressor.decompress, compressed)))
    again = collector(store)
    assert await again.load() == 300
    assert shown(again) == told
    assert held(again) == held(made)  # they are not opened to be loaded
    # Who has no use for compressed ads, as a negotiator, gets them as they were.
    assert by_name(await load_ads(store, "Machine")) == told


async def test_a_change_of_a_compressed_ad_lands_on_what_it_was(store):
    made = await filled(store)
    message = machine(59)
    change = AdDelta(
        my_type="Machine",
        daemon=message.daemon,
        start_time=5,
        base=1,
        sequence=2,
        names=message.names[:1],
        changes=[ClassAd({"State": "Claimed"}).pack()],
        removed_attrs=[["Attribute7"]],
    )
    made.apply(change)
    row = made.table.row("Machine", message.daemon, message.names[0])
    expected = ClassAd.unpack(ad(message.names[0], State="Claimed"))
    del expected["Attribute7"]
    assert ClassAd.unpack(row.read()) == expected  # without keeping anything
    assert isinstance(row._held, tuple)
    while made.writer.waiting:
        await made.writer.write_some()
    assert row._held.startswith(MAGIC)
    assert ClassAd.unpack(row.packed()) == expected
    assert ClassAd.unpack(by_name(await load_ads(store))[message.names[0]]) == expected


async def test_ads_with_a_lifetime_of_their_own_are_left_alone(store):
    made = await filled(store)
    made.apply(machine(3, 2, ClassAdLifetime=60))
    while made.writer.waiting:
        await made.writer.write_some()
    again = collector(store)
    await again.load()
    for directory in (made, again):
        rows = directory.table.group("Machine", "startd@n3").rows.values()
        assert {row.lifetime_s for row in rows} == {60.0}
        assert not any(row._held.startswith(MAGIC) for row in rows)


async def test_a_store_that_lost_everything_gets_the_dictionary_again(store):
    made = await filled(store)
    for key in [keys.ADS_EXPIRY, keys.ADS_DICTIONARIES, *(keys.ads("Machine", f"startd@n{n}") for n in range(60))]:
        await store.delete(key)
    for number in range(60):
        made.apply(machine(number, 2))
    while made.writer.waiting:
        await made.writer.write_some()
    assert by_name(await load_ads(store)) == shown(made)


async def test_without_its_dictionary_an_ad_is_unreadable_and_harms_nobody(store):
    await filled(store)
    await store.delete(keys.ADS_DICTIONARIES)
    await store.hset(keys.ADS_DICTIONARIES, {"12": b"12345678 no dictionary", "x": b""})
    again = collector(store)
    assert await again.load() == 300
    told = by_name(await load_ads(store))
    assert len(told) == 300
    row = again.table.row("Machine", "startd@n59", "slot1@n59")
    with pytest.raises(ValueError, match="dictionary"):
        row.packed()


async def test_two_collectors_with_a_dictionary_each_read_each_other(store):
    one = await filled(store)
    two = collector(store)
    for number in range(60, 120):
        two.apply(machine(number))
    while two.writer.waiting:
        await two.writer.write_some()
    assert one.compressor.current != two.compressor.current
    again = collector(store)
    assert await again.load() == 600
    assert shown(again) == shown(one) | shown(two)


def test_a_new_dictionary_is_made_when_ads_have_become_others(monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 100)
    sizes = _Sizes()
    for size, worse in ((300, False), (350, False), (500, False), (700, True)):
        sizes.add(100, size * 100)
        assert sizes.worse() is worse
    assert not sizes.worse()  # a window has to be full


@pytest.mark.parametrize("name", ["ClassAdLifetime", "CLASSADLIFETIME", "classadlifetime"])
def test_a_lifetime_is_found_in_any_spelling(name):
    assert StoredAd(ClassAd({"Name": "x", name: 33}).pack()).lifetime_s == 33.0
    assert StoredAd(ClassAd({"Name": "x", f"{name}s": 33, "ClassAdComments": 1}).pack()).lifetime_s is None
