"""Background tasks of one owner."""

import asyncio

from shared.tasks import TaskSet


async def wait_for_ever(begun: asyncio.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


async def test_a_task_that_fails_is_reported_and_gone():
    failures = []
    tasks = TaskSet(lambda task, error: failures.append((task.get_name(), str(error))))

    async def fail() -> None:
        raise ValueError("no")

    task = tasks.spawn(fail(), "failing")
    assert task in tasks
    await tasks.finish()
    await asyncio.sleep(0)
    assert (failures, len(tasks)) == ([("failing", "no")], 0)


async def test_all_are_cancelled_but_the_one_that_asks():
    tasks, begun = TaskSet(), asyncio.Event()
    waiting = tasks.spawn(wait_for_ever(begun), "waiting")

    async def end_all() -> str:
        await begun.wait()
        await tasks.cancel()
        return "ended all"

    assert await tasks.spawn(end_all(), "ending") == "ended all"
    assert waiting.cancelled()
    await asyncio.sleep(0)
    assert len(tasks) == 0


async def test_waiting_for_the_end_has_a_limit():
    tasks, begun = TaskSet(), asyncio.Event()
    tasks.spawn(wait_for_ever(begun), "waiting")
    await tasks.finish(timeout_s=0.01)
    assert [task.get_name() for task in tasks] == ["waiting"]
    await tasks.cancel()
