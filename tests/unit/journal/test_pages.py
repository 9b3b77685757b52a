"""Answers are bounded by their size, too: an event may be as large as a message."""

import json

import pytest
import sqlalchemy as sa

from services.journal.queries import PAGE_BYTES, _cycles, _job, _leaders
from services.journal.store import EVENTS, METADATA
from shared.messages.journal import AskJob

LARGE = "x" * (PAGE_BYTES // 3)


@pytest.fixture
def connection():
    engine = sa.create_engine("sqlite://")
    METADATA.create_all(engine)
    with engine.connect() as made:
        for at in range(1, 11):
            kept(made, "negotiation.cycle", float(at), {"cycle": at, "text": LARGE})
            lead = {"at": float(at), "had": "h", "negotiator": "n", "epoch": at, "state": "leader", "shard": ""}
            kept(made, "had.leader", float(at), lead | {"reason": LARGE})
        yield made
    engine.dispose()


def kept(connection, kind, at, body):
    row = {"id": f"{kind}{at}", "at": at, "type": kind, "sender": "negotiator.evil", "body": json.dumps(body)}
    if "cluster" in body:
        row |= {"cluster": body["cluster"], "proc": body["proc"]}
    connection.execute(EVENTS.insert().values(**row))


def test_all_cycles_come_page_by_page_and_no_page_is_large(connection):
    found, before = [], 0.0
    while before is not None:
        page = _cycles(connection, before, 50)
        assert 0 < len(json.dumps(page)) <= PAGE_BYTES
        found += [cycle["cycle"] for cycle in page["cycles"]]
        before = page["next"]
    assert found == list(range(10, 0, -1))


def test_one_that_is_larger_than_a_page_comes_alone(connection):
    kept(connection, "negotiation.cycle", 11.0, {"cycle": 11, "text": LARGE * 4})
    page = _cycles(connection, 0.0, 50)
    assert [cycle["cycle"] for cycle in page["cycles"]] == [11]
    assert _cycles(connection, page["next"], 1)["cycles"][0]["cycle"] == 10


def test_changes_of_the_lead_are_the_newest_that_fit(connection):
    changes = _leaders(connection, 50)["changes"]
    assert [one["epoch"] for one in changes] == [10, 9]
    assert [one["epoch"] for one in _leaders(connection, 1)["changes"]] == [10]


def test_the_story_of_a_job_is_the_newest_that_fits(connection):
    """Whoever may tell events of jobs tells thousands, of any length, of one job."""
    job = {"schedd": "s", "cluster": 7, "proc": 0}
    for turn in range(3000):
        text = LARGE if turn < 3 else f"{turn} " + "because " * 300
        kept(connection, "job.held", 1e9 + 7200 * turn, {**job, "code": 21, "reason": text})
        kept(connection, "job.released", 1e9 + 7200 * turn + 3600, {**job, "reason": text})
    answer = _job(connection, AskJob(job_id="7.0"), 7, 0, 2e9)
    assert len(json.dumps(answer)) <= 3 * PAGE_BYTES + 100_000
    assert answer["events"][-1]["at"] == 1e9 + 7200 * 2999 + 3600
    assert answer["events"][-1]["text"].startswith("released: 2999 because")
    assert "more characters)" in answer["events"][-1]["text"]
    assert answer["spans"][-1]["end"] == 2e9
