"""Ends of runs that are told together."""

import asyncio

import pytest

from services.startd.run import end_reports
from services.startd.run.end_reports import EndReports, NotTaken
from shared.bus.api import CallTimeout, RemoteFailure
from shared.messages.base import Ack
from shared.messages.claims import JobReport, JobReportAck, JobReports, JobReportsAck, ReportAnswer

OLDER, NEWER = JobReportAck(), JobReportAck(takes_batches=True)


class Bus:
    """Keeps what it is asked until the test answers."""

    def __init__(self):
        self.asked = []
        self._answers = []

    async def call(self, inbox, message):
        assert inbox == "schedd.ap"
        self.asked.append(message)
        answer = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return await answer

    def answer(self, number, with_):
        if isinstance(with_, Exception):
            self._answers[number].set_exception(with_)
        else:
            self._answers[number].set_result(with_)

    def jobs(self):
        """Of each message, the jobs that it is about; a text for one alone."""
        return [
            [report.job_id for report in message.reports] if isinstance(message, JobReports) else message.job_id
            for message in self.asked
        ]


class Ends:
    def __init__(self):
        self.bus = Bus()
        self.tasks = []
        self.ends = EndReports(self.bus, "ep", lambda work, name: self.tasks.append(asyncio.ensure_future(work)))

    def tell(self, job_id):
        about = {"startd": "ep", "slot": "slot1@ep", "claim_id": "c", "attempt": 1, "sequence": 1, "at": 1.0}
        report = JobReport(job_id=job_id, phase="ended", **about)
        task = asyncio.ensure_future(self.ends.call("ap", report))
        self.tasks.append(task)
        return task

    async def settle(self):
        for _ in range(10):
            await asyncio.sleep(0)

    async def learn(self, ack):
        """The access point answers a first report."""
        first = self.tell("0.0")
        await self.settle()
        self.bus.answer(0, ack)
        assert await first == ack
        self.bus.asked.clear()
        self.bus._answers.clear()


@pytest.fixture
async def ends(monkeypatch):
    monkeypatch.setattr(end_reports, "GATHER_S", 3600.0)  # nothing goes because of time alone
    ends = Ends()
    yield ends
    for task in ends.tasks:
        task.cancel()
    await asyncio.gather(*ends.tasks, return_exceptions=True)


def several(*acks):
    return JobReportsAck(answers=[ReportAnswer(ack=ack) for ack in acks])


async def test_an_access_point_that_does_not_say_that_it_takes_several_gets_each_alone(ends):
    await ends.learn(OLDER)
    told = [ends.tell(f"1.{proc}") for proc in range(3)]
    await ends.settle()
    assert ends.bus.jobs() == ["1.0", "1.1", "1.2"]
    for number in range(3):
        ends.bus.answer(number, OLDER)
    assert await asyncio.gather(*told) == [OLDER] * 3


async def test_what_ends_together_and_what_ends_before_the_answer_goes_in_one_message(ends):
    await ends.learn(NEWER)
    first = [ends.tell("1.0"), ends.tell("1.1")]
    await ends.settle()
    later = [ends.tell("1.2"), ends.tell("1.3")]
    await ends.settle()
    assert ends.bus.jobs() == [["1.0", "1.1"]]
    release = JobReportAck(release=True)
    ends.bus.answer(0, several(NEWER, release))
    assert await asyncio.gather(*first) == [NEWER, release]
    await ends.settle()
    assert ends.bus.jobs() == [["1.0", "1.1"], ["1.2", "1.3"]]
    ends.bus.answer(1, JobReportsAck(answers=[ReportAnswer(code="denied", reason="no"), ReportAnswer(ack=NEWER)]))
    with pytest.raises(RemoteFailure, match="no") as refused:
        await later[0]
    assert refused.value.code == "denied"
    assert await later[1] == NEWER


async def test_one_that_is_alone_travels_as_ever(ends):
    await ends.learn(NEWER)
    told = ends.tell("1.0")
    await ends.settle()
    assert ends.bus.jobs() == ["1.0"]
    ends.bus.answer(0, NEWER)
    assert await told == NEWER


async def test_an_end_waits_for_others_for_a_moment_only(ends, monkeypatch):
    monkeypatch.setattr(end_reports, "GATHER_S", 0.0)
    await ends.learn(NEWER)
    ends.tell("1.0")
    await ends.settle()
    ends.tell("1.1")
    await ends.settle()
    assert ends.bus.jobs() == ["1.0", "1.1"]  # though the first is not answered


async def test_a_message_has_so_many_ends_at_most(ends, monkeypatch):
    monkeypatch.setattr(end_reports, "MOST", 2)
    await ends.learn(NEWER)
    ends.tell("1.0")
    await ends.settle()
    for proc in range(1, 4):
        ends.tell(f"1.{proc}")
    await ends.settle()
    assert ends.bus.jobs() == ["1.0", ["1.1", "1.2"]]
    ends.bus.answer(0, NEWER)
    ends.bus.answer(1, several(NEWER, NEWER))
    await ends.settle()
    assert ends.bus.jobs() == ["1.0", ["1.1", "1.2"], "1.3"]


@pytest.mark.parametrize("answer", [RemoteFailure("bad-message", "unknown message type"), Ack(), several(NEWER)])
async def test_where_several_are_not_taken_they_are_told_one_by_one_until_they_are(ends, answer):
    await ends.learn(NEWER)
    told = [ends.tell("1.0"), ends.tell("1.1")]
    await ends.settle()
    ends.bus.answer(0, answer)
    for task in told:
        with pytest.raises(NotTaken):
            await task
    again = [ends.tell("1.0"), ends.tell("1.1")]
    await ends.settle()
    assert ends.bus.jobs()[1:] == ["1.0", "1.1"]
    ends.bus.answer(1, NEWER)
    ends.bus.answer(2, NEWER)
    await asyncio.gather(*again)
    ends.tell("1.2"), ends.tell("1.3")
    await ends.settle()
    assert ends.bus.jobs()[3:] == [["1.2", "1.3"]]


@pytest.mark.parametrize("error", [CallTimeout("nobody answers"), RemoteFailure("unavailable", "full", retryable=True)])
async def test_trouble_that_passes_is_told_to_each_and_changes_nothing(ends, error):
    await ends.learn(NEWER)
    told = [ends.tell("1.0"), ends.tell("1.1")]
    await ends.settle()
    ends.bus.answer(0, error)
    for task in told:
        with pytest.raises(type(error)):
            await task
    ends.tell("1.0"), ends.tell("1.1")
    await ends.settle()
    assert ends.bus.jobs() == [["1.0", "1.1"], ["1.0", "1.1"]]


async def test_who_is_cancelled_while_it_waits_is_left_out(ends):
    await ends.learn(NEWER)
    ends.tell("1.0")
    await ends.settle()
    gone, stays = ends.tell("1.1"), ends.tell("1.2")
    await ends.settle()
    gone.cancel()
    ends.bus.answer(0, NEWER)
    await ends.settle()
    assert ends.bus.jobs() == ["1.0", "1.2"]
    ends.bus.answer(1, NEWER)
    assert await stays == NEWER
