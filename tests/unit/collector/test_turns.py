"""Turns of the loop that others have while the collector works at the ads of a daemon that says as much as it may."""

import asyncio

import pytest
import structlog

from services.collector.core.acceptance import AbsentPolicy
from services.collector.directory import AdIndex, Directory
from shared import cooperative
from shared.classad import ClassAd, parse_expr
from shared.messages.ads import AdDelta, AdHeartbeat, AdUpdate
from shared.state.ads import load_ads
from shared.state.embedded import EmbeddedStore
from tests.unit.bus.test_turns import turns_while
from tests.unit.collector.test_directory import Clock

HEAD = {"my_type": "Machine", "daemon": "startd@n1", "start_time": 5}
NAMES = [f"slot{number}@n1" for number in range(60)]


@pytest.fixture
async def directory(monkeypatch):
    monkeypatch.setattr(cooperative, "SLICE_S", -1.0)  # a turn for each piece of work
    store = EmbeddedStore()
    await store.start()
    policy = AbsentPolicy(parse_expr("Cpus > 2"), persistent=True)
    directory = Directory(store, Clock(), structlog.get_logger(), AdIndex(900.0), policy)
    ads = [ClassAd({"Name": name, "Cpus": 4}).pack() for name in NAMES]
    directory.apply(AdUpdate(**HEAD, sequence=1, names=NAMES, ads=ads))
    yield directory
    await store.stop()


async def test_ads_are_made_ready_for_redis_one_by_one_and_what_changes_meanwhile_is_written_after(directory):
    writing = asyncio.create_task(directory.writer.write_some())
    for _ in range(10):
        await asyncio.sleep(0)
    change = [ClassAd({"Cpus": 8}).pack()] * len(NAMES)
    directory.apply(
        AdDelta(
            **HEAD, base=1, sequence=2, names=NAMES, changes=change, removed_attrs=[[]] * len(NAMES), gone=[NAMES[-1]]
        )
    )
    turns, _ = await turns_while(writing)
    assert turns >= len(NAMES) - 10
    while directory.writer.waiting:
        await directory.writer.write_some()
    (group,) = await load_ads(directory._store)
    assert set(group.ads) == set(NAMES[:-1])
    assert {ClassAd.unpack(ad).eval("Cpus") for ad in group.ads.values()} == {8}
    assert (group.sequence, group.content) == (2, 2)


async def test_a_batch_ends_where_its_ads_are_many_bytes(directory, monkeypatch):
    monkeypatch.setattr("services.collector.ad_writer.BATCH_BYTES", 1)
    directory.apply(AdUpdate(**HEAD | {"daemon": "startd@n2"}, sequence=1, names=["s"], ads=[ClassAd({}).pack()]))
    assert directory.writer.waiting == 2
    await directory.writer.write_some()
    assert directory.writer.waiting == 1


async def test_ads_that_expire_are_looked_at_one_by_one_and_who_speaks_meanwhile_keeps_his(directory):
    while directory.writer.waiting:
        await directory.writer.write_some()
    directory._clock.time += 1000
    dropping = asyncio.create_task(directory.drop(directory.expire()))
    await asyncio.sleep(0)
    while not dropping.done() and not await load_empty(directory._store):  # noqa: ASYNC110 turns are counted
        await asyncio.sleep(0)
    directory.apply(AdHeartbeat(**HEAD, base=1, sequence=2))
    turns, dropped = await turns_while(dropping)
    assert turns >= len(NAMES) / 2
    assert dropped == 0
    assert len(directory.table) == len(NAMES)
    assert not directory.absentees
    while directory.writer.waiting:  # Redis gets them again
        await directory.writer.write_some()
    (group,) = await load_ads(directory._store)
    assert set(group.ads) == set(NAMES)


async def load_empty(store):
    return not await load_ads(store)


async def test_those_that_are_gone_are_remembered(directory):
    directory._clock.time += 1000
    assert await directory.drop(directory.expire()) == len(NAMES)
    assert len(directory.table) == 0
    assert len(directory.absentees) == len(NAMES)
