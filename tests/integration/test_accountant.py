"""The accountant on a real Redis: negotiators come, are killed, freeze and come back, and every second of use is
charged exactly once (ACC-16, ACC-18, MUL-02)."""

import math
import random

import pytest

from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.fairshare.priorities import Factors
from services.negotiator.stored_accountant import StoredAccountant
from shared.state import StaleEpoch, keys, open_store
from tests.spec import spec

T0 = 1_000_000_000.0
DAY = 86400.0


@pytest.fixture
async def stores(redis_url, tmp_path):
    """Two machines, each with a connection of its own."""
    made = [open_store(redis_url, tmp_path / name) for name in "ab"]
    for store in made:
        await store.start()
    yield made
    for store in made:
        await store.stop()


@pytest.fixture(autouse=True)
def times_are_made_up(monkeypatch):
    """Redis's is not, and so of no use here."""

    async def not_noted(*_):
        return None

    monkeypatch.setattr("services.negotiator.stored_accountant.when_written", not_noted)


def accountant(store, shard=""):
    tree = GroupTree.of(GroupConfig(names=("g",), quota={"g": 5}))
    return StoredAccountant(store, shard or "cm", Factors(), DAY, shard, tree, now=lambda: math.inf)


async def lead(store, epoch, shard=""):
    await store.set(keys.had_epoch(shard), epoch)
    leader = accountant(store, shard)
    await leader.load()
    return leader


def usage(leader, now):
    return {
        str(ad.eval("Name")): (ad.eval("AccumulatedUsage"), ad.eval("WeightedAccumulatedUsage"))
        for ad in leader.ads(now)
        if ad.eval("AccumulatedUsage")
    }


@pytest.mark.servers
@pytest.mark.parametrize("seed", range(4))
async def test_every_second_is_charged_once_across_restarts_and_fail_overs(stores, seed):
    """Use is charged at what was on the books last while nobody leads, as the reference does; where every change of use
    is committed, that is what was in use."""
    dice = random.Random(seed)
    names = ["alice@p", "bob@p", "g.carol@p"]
    expected: dict[str, list[float]] = {name: [0.0, 0.0] for name in [*names, "g", "<none>"]}
    epoch, now, use = 1, T0, {}
    leader = await lead(stores[0], epoch)
    for _ in range(60):
        wait = dice.choice([0.0, 0.5, 3.0, 59.0, 61.0, 4000.0])
        now += wait
        for name, (weight, slots) in use.items():
            for charged in (name, "g" if name.startswith("g.") else "<none>"):
                expected[charged][0] += slots * wait
                expected[charged][1] += weight * wait
        event = dice.choice(["use", "use", "idle", "crash", "freeze"])
        if event == "use":
            chosen = dice.sample(names, dice.randint(0, 3))
            use = {name: (2.5 * slots, slots) for name in chosen if (slots := dice.randint(1, 4))}
            leader.charge(use, now)
            await leader.commit(epoch)
        elif event == "idle":
            leader.charge(use, now)  # seen, not written
        else:
            old, epoch = leader, epoch + 1
            if event == "freeze":
                old.charge({}, now - wait / 2)  # it will want to write what it thinks it saw
            leader = await lead(stores[epoch % 2], epoch)
            if event == "freeze":
                old.change("alice@p", "floor", 1.0, now)
                with pytest.raises(StaleEpoch):
                    await old.commit(epoch - 1)
    told = usage(leader, now)
    assert told == {name: pytest.approx(tuple(sums)) for name, sums in expected.items() if sums[0]}
    record = leader.record("alice@p", now)
    assert record.priority > 0.5


@spec("ACC-16", "W-11")
@pytest.mark.servers
async def test_priorities_factors_and_changes_survive(stores):
    first = await lead(stores[0], 1)
    first.charge({"alice@p": (100.0, 100)}, T0)
    first.change("alice@p", "factor", 77.0, T0)
    first.change("bob@p", "ceiling", 5.0, T0, duration=DAY)
    await first.commit(1)
    second = await lead(stores[1], 2)
    assert second.record("alice@p", T0 + DAY).priority == pytest.approx(50.25)  # W-11
    assert second.record("alice@p", T0 + DAY).factor == 77.0
    assert [one.submitter for one in second.end_changes(T0 + DAY)] == ["bob@p"]


@spec("MUL-02")
@pytest.mark.servers
async def test_negotiators_of_different_names_have_books_of_their_own(stores):
    """Use in one shard does not change priorities in the other."""
    gpus, cpus = await lead(stores[0], 1, "gpus"), await lead(stores[1], 1, "cpus")
    gpus.charge({"alice@p": (100.0, 100)}, T0)
    cpus.charge({"bob@p": (1.0, 1)}, T0)
    await gpus.commit(1)
    await cpus.commit(1)
    again = await lead(stores[0], 2, "cpus")
    assert again.record("alice@p", T0 + DAY).priority == 0.5
    assert set(again.records.submitters) == {"bob@p"}


@pytest.mark.servers
async def test_more_records_than_one_script_writes_are_written_and_read(stores):
    first = await lead(stores[0], 1)
    first.charge({f"user{n}@p": (1.0, 1) for n in range(12_000)}, T0)
    first.charge({}, T0 + 60)
    await first.commit(1)
    second = await lead(stores[1], 2)
    assert len(second.records.submitters) == 12_000
    assert second.record("user11999@p", T0 + 60).usage == 60.0
