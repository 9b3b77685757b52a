"""What is logged of outcomes that nobody waits for any more."""

import asyncio
import gc
import logging
import socket

import pytest

from shared.daemon.main import loop_runner


def told_of(error: Exception, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of a future that ended with this error and was dropped."""

    async def forget() -> None:
        asyncio.get_running_loop().create_future().set_exception(error)
        gc.collect()

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        loop_runner()(forget())
    return [record.message for record in caplog.records if "never retrieved" in record.message]


def test_an_address_that_is_not_found_when_nobody_waits_for_it_any_more_is_no_news(caplog):
    assert told_of(socket.gaierror(-2, "Name or service not known"), caplog) == []


def test_any_other_error_that_nobody_saw_is_told(caplog):
    assert len(told_of(OSError("no space left"), caplog)) == 1


def test_a_task_that_died_of_a_name_is_told(caplog):
    async def dies() -> None:
        raise socket.gaierror(-2, "Name or service not known")

    async def forget() -> None:
        task = asyncio.create_task(dies())
        await asyncio.sleep(0)
        del task
        gc.collect()

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        loop_runner()(forget())
    assert any("Task exception was never retrieved" in record.message for record in caplog.records)
