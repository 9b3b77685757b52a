"""Daemons that make rounds, of which one acts."""

import asyncio
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from shared.daemon import periodic
from shared.daemon.periodic import RETRY_S, NothingToDo, PeriodicDaemon, remaining_s
from shared.errors import RetryableError
from shared.state import StaleEpoch, StoreUnavailable
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.waiting import eventually


class Watchman(PeriodicDaemon):
    subsystem: ClassVar[str] = "WATCHMAN"
    my_type: ClassVar[str] = "Watchman"

    def __init__(self, context):
        super().__init__(context, 30.0)
        self.notes, self.taken_over, self.fails = [], 0, []
        self.rest_s = 0.0

    def load_note(self, note):
        self.notes.append(note)

    def due_s(self):
        return self.rest_s

    async def take_over(self):
        self.taken_over += 1

    async def run_cycle(self):
        if self.fails:
            raise self.fails.pop(0)
        await self.lead.write_note(b"done")
        self.rounds += 1
        self.rest_s = 3600.0

    def ad_attributes(self):
        return {"Rounds": self.rounds}

    def update_interval_s(self):
        return 300.0


@asynccontextmanager
async def begun():
    store = EmbeddedStore()
    await store.start()
    context = make_context("WATCHMAN", "w", store=store)
    await context.bus.start()
    watchman = Watchman(context)
    await watchman.setup()
    tasks = [asyncio.create_task(work) for work in watchman.tasks().values()]
    try:
        yield watchman
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await context.bus.stop()
        await store.stop()


async def test_who_lost_the_lead_for_a_while_takes_over_again(monkeypatch):
    """Another one may have begun what it did not finish."""
    async with begun() as watchman:
        await eventually(lambda: watchman.rounds == 1)
        assert (watchman.taken_over, watchman.ready(), watchman.role()) == (1, "", "leader")

        async def away(*_, **__):
            raise StoreUnavailable("Redis is away")

        with monkeypatch.context() as patch:
            patch.setattr(watchman.context.store, "run", away)
            await watchman.update_lead()
            assert (watchman.leads, watchman.ready()) == (True, "the lead in Redis")  # the lease lasts
            patch.setattr(watchman.lead, "holds", lambda: False)
            await watchman.update_lead()
            assert not watchman.leads
        await watchman.update_lead()
        await eventually(lambda: watchman.taken_over == 2)
        assert watchman.rounds == 1
        assert watchman.notes[-1] == b"done"


async def test_one_that_another_has_overtaken_is_in_no_trouble():
    async with begun() as watchman:
        await eventually(lambda: watchman.rounds == 1)
        watchman.trouble, watchman.rest_s, watchman.fails = "of before", 0.0, [StaleEpoch("another leads")]
        watchman.wake()
        await eventually(lambda: not watchman.leads)
        assert (watchman.trouble, watchman.ready()) == ("", "")


async def test_a_round_that_failed_is_made_later(monkeypatch):
    waited, wait = [], periodic.wait_for_event

    async def shorter(event, clock, seconds):
        waited.append(seconds)
        await wait(event, clock, seconds if seconds > RETRY_S else 0.01)

    monkeypatch.setattr(periodic, "wait_for_event", shorter)
    async with begun() as watchman:
        watchman.fails = [RetryableError("no answer"), NothingToDo("nobody there")]
        await eventually(lambda: watchman.rounds == 1)
        await eventually(lambda: waited[-1] == 3600)
        assert (watchman.fails, watchman.trouble, watchman.ready()) == ([], "", "")
        assert set(waited) == {RETRY_S, 3600}


@pytest.mark.parametrize(
    ("error", "ready"), [(RetryableError("no answer"), "no answer"), (NothingToDo("nobody there"), "")]
)
async def test_a_pool_with_nothing_to_decide_on_is_no_trouble(error, ready):
    watchman = Watchman(make_context("WATCHMAN"))
    watchman.store_answers = True
    watchman._note_trouble(error)
    assert (watchman.ready(), watchman.trouble) == (ready, str(error))


def test_a_round_is_due_an_interval_after_the_last_whatever_clocks_do():
    last = 1_700_000_000.0
    assert remaining_s(0.0, 600, last) == 0
    assert remaining_s(last, 600, last + 100) == 500
    assert remaining_s(last, 600, last + 6000) == 0
    assert remaining_s(last, 600, last - 5) == 605  # another machine's clock
    assert remaining_s(last, 600, last - 9000) == 0  # the clock was wrong, and was set back
