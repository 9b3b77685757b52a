"""An event that tells of many jobs is to everybody one event for each of them."""

import json

import pytest

from roost.consumer.parts import parts
from roost.consumer.source import Delivered, Gap, Received
from roost.protocol import Event, each, events
from services.journal.core.explain import RecordedEvent, with_hold
from services.journal.core.replay import by_job
from services.journal.core.rows import rows_of
from shared.messages.base import Envelope
from shared.messages.events import JobHeld, JobReleased

ABOUT = {"at": 5.0, "schedd": "ap", "owner": "ada", "submitter": "ada@pool"}
MANY = JobReleased(job_id="3.4", reason="go on", jobs=[[4, 6], [9, 9]], **ABOUT)
IDS = ["3.4", "3.5", "3.6", "3.9"]


def delivered(item):
    done = []
    return Delivered(item, done.append), done


def test_a_consumer_gets_one_event_for_each_and_takes_them_as_one():
    whole, done = delivered(Received("id", MANY, "schedd.ap"))
    found = list(parts(whole))
    assert [one.item.event.job_id for one in found] == IDS
    assert [one.item.id for one in found] == ["id/4", "id/5", "id/6", "id/9"]
    assert {one.item.event.jobs == [] for one in found} == {True}
    assert MANY.job_count == len(found)
    for number, one in enumerate(found):
        assert done == []
        one.done("no use" if number == 1 else "")
    assert done == ["no use"]


@pytest.mark.parametrize(
    "item",
    [
        Gap("away"),
        Received("id", JobHeld(job_id="3.4", code=1, subcode=0, reason="", **ABOUT)),
    ],
    ids=["gap", "one job"],
)
def test_all_else_comes_as_it_is(item):
    whole, _ = delivered(item)
    assert list(parts(whole)) == [whole]


def test_a_client_gets_one_event_for_each_and_goes_on_after_all_of_them():
    found = list(each(Event("id", "job.released", MANY.model_dump(mode="json"))))
    assert [event.body["job_id"] for event in found] == IDS
    assert "after=id&" in f"{events((), found[1].id).path}&"
    alone = Event("id", "job.submitted", {"jobs": [[1, 2]]})
    assert list(each(alone)) == [alone]


def test_a_journal_keeps_one_event_and_knows_it_of_each():
    (row,) = rows_of(Envelope(MANY))["events"]
    assert (row["cluster"], row["proc"]) == (3, -1)
    fact = RecordedEvent(5.0, "job.released", json.loads(row["body"]))
    assert [one.body["job_id"] for proc in range(12) for one in with_hold(fact, proc)] == IDS
    assert sorted(by_job([(3, -1, fact)])) == [("ap", 3, proc) for proc in (4, 5, 6, 9)]
