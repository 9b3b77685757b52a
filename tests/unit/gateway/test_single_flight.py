"""Answers shared by all who look."""

import asyncio

import pytest

from services.gateway.single_flight import MOST_ANSWERS, SingleFlight


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Maker:
    def __init__(self):
        self.made, self.gate, self.fail = 0, asyncio.Event(), None

    async def __call__(self):
        self.made += 1
        await self.gate.wait()
        if self.fail:
            raise self.fail
        return self.made


async def test_one_answer_for_all_who_wait_and_for_a_while_after():
    clock, make = Clock(), Maker()
    memo = SingleFlight(clock)
    asked = [asyncio.create_task(memo.get("k", make)) for _ in range(5)]
    await asyncio.sleep(0)
    make.gate.set()
    assert await asyncio.gather(*asked) == [1] * 5
    clock.now += 0.9
    assert await memo.get("k", make) == 1
    clock.now += 0.2
    assert await memo.get("k", make) == 2
    assert await memo.get("other", make) == 3


async def test_what_took_long_is_kept_as_long():
    clock, make = Clock(), Maker()
    memo = SingleFlight(clock)
    asked = asyncio.create_task(memo.get("k", make))
    await asyncio.sleep(0)
    clock.now += 10.0
    make.gate.set()
    await asked
    clock.now += 9.0
    assert await memo.get("k", make) == 1
    clock.now += 2.0
    assert await memo.get("k", make) == 2


async def test_a_failure_is_told_to_all_and_not_kept():
    make = Maker()
    memo = SingleFlight(Clock())
    make.fail = ValueError("no")
    make.gate.set()
    found = await asyncio.gather(*(memo.get("k", make) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [ValueError] * 3
    make.fail = None
    assert await memo.get("k", make) == 2


async def test_one_who_hangs_up_ends_it_for_nobody():
    make = Maker()
    memo = SingleFlight(Clock())
    first = asyncio.create_task(memo.get("k", make))
    second = asyncio.create_task(memo.get("k", make))
    await asyncio.sleep(0)
    first.cancel()
    make.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == 1


async def test_only_so_many_are_kept():
    make = Maker()
    make.gate.set()
    memo = SingleFlight(Clock())
    for number in range(MOST_ANSWERS + 5):
        await memo.get(number, make)
    assert len(memo._kept) <= MOST_ANSWERS + 1


async def test_the_last_who_hangs_up_ends_it_and_whoever_comes_then_asks_anew():
    make, ended = Maker(), []
    memo = SingleFlight(Clock())

    async def noted():
        try:
            return await make()
        except asyncio.CancelledError:
            ended.append(make.made)
            raise

    asked = [asyncio.create_task(memo.get("k", noted)) for _ in range(2)]
    await asyncio.sleep(0)
    for one in asked:
        assert ended == []
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
    again = asyncio.create_task(memo.get("k", noted))
    await asyncio.sleep(0)
    make.gate.set()
    assert await again == 2
    assert ended == [1]
