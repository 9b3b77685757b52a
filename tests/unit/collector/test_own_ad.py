"""What a collector's own ad says of the pool: slots by State, and jobs of all submitters, as they are now."""

import asyncio

import pytest

from services.collector.core.pool_counts import pool_counts
from services.collector.daemon import Collector
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.advertiser import Advertiser
from shared.daemon.lifecycle import run_daemon
from shared.messages.ads import QueryAds
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually

COUNTS = ("HostsTotal", "HostsClaimed", "HostsUnclaimed", "HostsOwner", "RunningJobs", "IdleJobs")


def test_slots_are_counted_by_the_first_letter_of_their_state_and_those_without_one_not_at_all():
    states = {("Claimed",): 3, ("Unclaimed",): 4, ("Owner",): 5, ("Drained",): 6, (None,): 7, (1,): 8, ("",): 9}
    counts = pool_counts(states, {(2, 10): 1, (3, 0): 2, (None, "many"): 1, (-5, 1e300): 1})
    assert tuple(counts[name] for name in COUNTS) == (18, 3, 4, 5, 8, 10)


def test_an_empty_pool_has_none_of_each():
    assert pool_counts({}, {}) == dict.fromkeys(COUNTS, 0)


@pytest.fixture
async def pool():
    hub = MemoryHub()
    contexts = {
        name: make_context(name, name.lower(), hub=hub) for name in ("STARTD", "SCHEDD", "GATEWAY", "COLLECTOR")
    }
    for context in contexts.values():
        await context.bus.start()
    running = asyncio.Event()
    context = contexts["COLLECTOR"]
    await context.store.start()
    life = asyncio.create_task(run_daemon(Collector(context), started=running.set))
    await running.wait()
    yield contexts
    context.stopping.set()
    await life
    for context in contexts.values():
        await context.bus.stop()
    await contexts["COLLECTOR"].store.stop()


async def own_ad(bus: MemoryBus):
    page = await bus.call("collector", QueryAds(my_types=["Collector"]))
    return [ClassAd.unpack(ad) for ad in page.ads]


@spec("COL-12")
async def test_who_asks_is_told_the_present_counts(pool):
    """Not those of COLLECTOR_UPDATE_INTERVAL (15 minutes) ago."""
    slots, submitters = Advertiser(pool["STARTD"], "Machine"), Advertiser(pool["SCHEDD"], "Submitter")
    asker = pool["GATEWAY"].bus
    await slots.publish(
        {f"slot{n}@ep": ClassAd({"Name": f"slot{n}@ep", "MyType": "Machine", "State": "Claimed"}) for n in range(3)}
    )
    await submitters.publish({"a@p": ClassAd({"Name": "a@p", "MyType": "Submitter", "RunningJobs": 3, "IdleJobs": 20})})

    async def told(*counts):
        (ad,) = await own_ad(asker)
        return tuple(ad.get(name) for name in COUNTS) == counts

    await eventually(lambda: told(3, 3, 0, 0, 3, 20))
    await slots.publish({"slot1@ep": ClassAd({"Name": "slot1@ep", "MyType": "Machine", "State": "Unclaimed"})})
    await eventually(lambda: told(1, 0, 1, 0, 3, 20))
