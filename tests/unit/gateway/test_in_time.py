"""Parts of an answer for which a page does not wait for ever."""

import asyncio
import time

import pytest

from services.gateway.in_time import InTime
from services.gateway.single_flight import SingleFlight
from shared.errors import RetryableError


async def test_a_part_that_takes_long_is_made_once_for_all_who_ask_meanwhile():
    flight, ready, begun = SingleFlight(time.monotonic), asyncio.Event(), 0

    async def make():
        nonlocal begun
        begun += 1
        await ready.wait()
        return "made"

    impatient = InTime(0.01)
    for _ in range(3):
        assert await impatient.get(flight.get("part", make)) == {"error": "no answer within 0.01 s"}
    ready.set()
    assert await InTime(5.0).get(flight.get("part", make)) == "made"
    assert begun == 1


async def test_a_part_ends_with_the_question_that_was_the_only_one():
    flight, ended = SingleFlight(time.monotonic), asyncio.Event()

    async def make():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    asking = asyncio.ensure_future(InTime(60.0).get(flight.get("part", make)))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(ended.wait(), 5.0)


async def test_a_part_that_fails_too_late_is_told_to_who_asks_next():
    flight, fails, begun = SingleFlight(time.monotonic), asyncio.Event(), []

    async def make():
        begun.append(True)
        await fails.wait()
        raise RetryableError("the collector is away")

    impatient = InTime(0.01)
    assert "no answer" in (await impatient.get(flight.get("part", make)))["error"]
    fails.set()
    assert await InTime(5.0).get(flight.get("part", make)) == {"error": "the collector is away"}


async def test_what_nobody_waits_for_ends_with_the_gateway():
    ended = asyncio.Event()

    async def make():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    impatient = InTime(0.01)
    assert "no answer" in (await impatient.get(make()))["error"]
    await impatient.stop()
    assert ended.is_set()
