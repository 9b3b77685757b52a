"""The journal's looks at the pool: a new interval does not wait for the end of a long one, and a new pool is looked at
soon, however long the interval."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from services.journal.pool_sampler import PoolSampler
from services.journal.store import SAMPLES, Store, url_of
from shared.bus.memory import MemoryBus, MemoryHub
from shared.config.knobs import JournalSettings
from shared.messages.ads import AdCounts, AdPage, CountAds
from tests.daemons import make_context
from tests.waiting import eventually


@pytest.mark.parametrize("configured_anew", [True, False])
async def test_the_pool_is_looked_at_soon(tmp_path, configured_anew):
    hub, asked = MemoryHub(), []
    collector = MemoryBus(hub, sender="collector.cm")
    await collector.start()

    async def answer(envelope):
        asked.append(envelope.body)
        if isinstance(envelope.body, CountAds):
            return AdCounts(values=[["Unclaimed", False, 4]], counts=[2])
        return AdPage(ads=[])

    await collector.serve("collector", answer)
    context = make_context("JOURNAL", "j", hub=hub, config={"ROOST_JOURNAL_SAMPLE_INTERVAL": "1000000"})
    await context.bus.start()
    settings = JournalSettings.from_config(context.config)
    store = Store(url_of(None, tmp_path))
    await store.open()
    sampler = PoolSampler(context, store, settings)
    sampling = asyncio.create_task(sampler.sample())

    async def samples():
        return await store.read(lambda connection: connection.execute(sa.select(SAMPLES)).all())

    if configured_anew:
        sampler.configure(replace(settings, roost_journal_sample_interval=1_000_000.0))
    await eventually(samples, what="a sample")
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)
    await store.close()
    for bus in (collector, context.bus):
        await bus.stop()
    assert any(isinstance(question, CountAds) for question in asked)
