"""Analyze, as the active negotiator answers it on the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.negotiator import analyze_rpc
from services.negotiator.analyze_rpc import Analyzer, TooSlow
from services.negotiator.daemon import Negotiator
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.messages.analysis import Analysis, Analyze, JobInQuestion
from tests.unit.analyze.pools import job, slot
from tests.unit.negotiator.test_daemon import Bench
from tests.waiting import eventually


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.start()
    yield made
    await made.stop()


async def ask(bench: Bench, **question: object) -> Analysis:
    answer = await bench.speakers.call("negotiator", Analyze.model_validate(question), timeout=60.0)
    assert isinstance(answer, Analysis)
    return answer


async def leading(bench: Bench, *ads: ClassAd, **knobs: object) -> Negotiator:
    negotiator = await bench.negotiator("one", **knobs)
    await bench.lead("one", 1)
    named = {str(ad.eval("Name")): ad for ad in ads}
    await bench.slots.publish(named)
    await eventually(lambda: {name for _, name, _ in negotiator.ads.rows("Machine")} == set(named))
    return negotiator


def about(ad: ClassAd, also: int = 0) -> list[JobInQuestion]:
    return [JobInQuestion(ad=ad.pack(), schedd="schedd.ap", also=also)]


async def test_a_job_is_explained(bench: Bench) -> None:
    await leading(bench, slot("slot1@ep"), slot("slot2@ep", Memory=1))
    (found,) = (await ask(bench, jobs=about(job(), also=2))).jobs
    assert found["outcomes"] == {"no-claim-id": 1, "job-requirements": 1}
    assert (found["job"], found["also"]) == ("12.0", 2)


async def test_the_reason_of_the_last_cycle_comes_along(bench: Bench) -> None:
    await leading(bench, slot("slot1@ep", Start=False))
    await bench.want(3)
    await eventually(lambda: any(told.rejections for told in bench.schedd.told))
    (found,) = (await ask(bench, jobs=about(job(AutoClusterId=1)))).jobs
    assert found["last"]["reason"] == bench.schedd.told[-1].rejections[0].reason


async def test_a_slot_is_explained_by_what_waits(bench: Bench) -> None:
    await leading(bench, slot("slot1@ep", Start=False))
    await bench.want(5)
    (found,) = (await ask(bench, machine="slot1@ep")).slots
    assert (found["slot"], found["jobs"], found["fits"]) == ("slot1@ep", 5, 0)
    assert found["requests"][0]["submitter"] == "alice@pool"
    assert found["requests"][0]["side"] == "slot"


@pytest.mark.parametrize(
    ("question", "code", "says"),
    [
        ({}, "bad-request", "name jobs, or a slot"),
        ({"jobs": [JobInQuestion(ad=b"\xc1")]}, "bad-request", "can not be read"),
        ({"machine": "nowhere"}, "not-found", "no slot or machine 'nowhere'"),
        ({"jobs": about(job()), "machine": "slot9@ep"}, "not-found", "no slot or machine 'slot9@ep'"),
        ({"jobs": about(job()), "negotiator": "other"}, "not-found", "this is negotiator one, not other"),
    ],
)
async def test_what_can_not_be_answered_is_told(bench: Bench, question: dict, code: str, says: str) -> None:
    await leading(bench, slot("slot1@ep"))
    with pytest.raises(RemoteFailure, match=says) as refused:
        await ask(bench, **question)
    assert refused.value.code == code


async def test_questions_wait_their_turn_and_too_many_are_sent_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leading(bench, slot("slot1@ep"))
    monkeypatch.setattr(analyze_rpc, "MOST_WAITING", 3)
    go_on, begun = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    plain = Analyzer.jobs

    def slow(self, *args):
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
        return plain(self, *args)

    monkeypatch.setattr(Analyzer, "jobs", slow)
    asked = [asyncio.create_task(ask(bench, jobs=about(job()))) for _ in range(4)]
    await begun.wait()
    await eventually(lambda: any(task.done() for task in asked))
    (refused,) = [task for task in asked if task.done()]
    error = refused.exception()
    assert isinstance(error, RemoteFailure)
    assert (error.code, error.retryable) == ("busy", True)
    go_on.set()
    answers = await asyncio.gather(*(task for task in asked if task is not refused))
    assert all(answer.jobs[0]["slots"] == 1 for answer in answers)


async def test_conditions_that_take_too_long_are_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await leading(bench, slot("slot1@ep"))

    def slow(self, *_):
        raise TooSlow("the conditions of job 12.0 take more than 5 s")

    monkeypatch.setattr(Analyzer, "jobs", slow)
    with pytest.raises(RemoteFailure, match="more than 5 s") as refused:
        await ask(bench, jobs=about(job()))
    assert refused.value.code == "too-expensive"
