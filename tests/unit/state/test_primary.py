"""Which server is Redis's primary, of what several sentinels say."""

import asyncio

import pytest
from redis import exceptions
from redis.asyncio.sentinel import MasterNotFoundError

from shared.state.primary import Named, Sentinels, newest

OLD, NEW = ("old", 6379), ("new", 6379)


@pytest.mark.parametrize(
    ("said", "primary"),
    [
        ([Named(OLD, 1, True), Named(OLD, 1, True)], OLD),
        ([Named(OLD, 1, False), Named(OLD, 1, True)], OLD),  # one of them can not reach it
        ([Named(OLD, 1, False), Named(OLD, 1, False)], None),  # they have not agreed on another yet
        # Who makes the other one primary names the old one until the replicas follow, and it is down; others know more.
        ([Named(OLD, 2, False), Named(NEW, 2, True)], NEW),
        ([Named(OLD, 1, True), Named(NEW, 2, True)], NEW),
        ([Named(OLD, 1, True), Named(OLD, 2, False)], None),  # the first has not even noticed that it hangs
        ([], None),
    ],
)
def test_the_newest_configuration_counts(said, primary):
    assert newest(said) == primary
    assert newest(said[::-1]) == primary


class FakeSentinel:
    """Says this of the service "pool", or raises it; None: is silent."""

    def __init__(self, says):
        self.says = says

    async def sentinel_masters(self):
        if self.says is None:
            await asyncio.Event().wait()
        if isinstance(self.says, Exception):
            raise self.says
        address, epoch = self.says
        state = {"ip": address[0], "port": address[1], "config-epoch": epoch}
        return {"pool": state | {"is_master": True, "is_sdown": False, "is_odown": False}}

    async def aclose(self):
        pass


def those_that_say(*said):
    found = Sentinels([], "pool", sentinel_options={})
    found.sentinels = [FakeSentinel(one) for one in said]
    return found


async def test_a_sentinel_that_hangs_or_is_gone_keeps_nobody_from_asking_the_others():
    sentinels = those_that_say(None, exceptions.ConnectionError("refused"), (OLD, 1))
    assert await sentinels.discover_master("pool") == OLD
    with pytest.raises(MasterNotFoundError, match="refused"):
        await those_that_say(exceptions.ConnectionError("refused")).discover_master("pool")


async def test_calls_end_when_another_primary_is_named_and_not_before():
    sentinels = those_that_say((OLD, 1))
    await sentinels.discover_master("pool")
    waits = asyncio.create_task(sentinels.call(asyncio.Event().wait))
    found_out = asyncio.Event()

    async def finds_out():
        await found_out.wait()
        await sentinels.discover_master("pool")
        await asyncio.sleep(0)
        return "goes on"

    finding = asyncio.create_task(sentinels.call(finds_out))
    await asyncio.sleep(0)
    sentinels.sentinels = [FakeSentinel((OLD, 1)), FakeSentinel((NEW, 2))]
    assert not waits.done()
    found_out.set()
    assert await finding == "goes on"
    with pytest.raises(exceptions.ConnectionError, match="another primary"):
        await waits
    await sentinels.stop()


async def test_an_answer_that_is_late_has_sentinels_asked_again():
    """Nobody else speaks to the store meanwhile."""
    sentinels = those_that_say((OLD, 1))
    await sentinels.discover_master("pool")
    waits = asyncio.create_task(sentinels.call(asyncio.Event().wait))
    await asyncio.sleep(0)
    sentinels.sentinels = [FakeSentinel((NEW, 2))]
    with pytest.raises(exceptions.ConnectionError, match="another primary"):
        await asyncio.wait_for(waits, 60)
    assert await sentinels.call(lambda: asyncio.sleep(0, "answered")) == "answered"
    await sentinels.stop()


async def test_a_time_limit_of_the_callers_own_stays_one():
    sentinels = those_that_say((OLD, 1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await sentinels.call(asyncio.Event().wait)

    async def too_late():
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await sentinels.call(too_late)
    await sentinels.stop()
