"""An interval for a replay, part by part."""

import pytest

from services.journal import replay_reader
from services.journal.core.rows import rows_of
from services.journal.queries import JournalQueries
from services.journal.store import Store, url_of
from shared.bus.api import RemoteFailure
from shared.daemon.clock import SystemClock
from shared.messages.base import Envelope
from shared.messages.events import JobEnded, JobKind, JobsSorted, JobsSubmitted, JobStarted, PolicyInForce
from shared.messages.journal import AskInterval

NOW = 1_700_000_000.0


@pytest.fixture
async def answers(tmp_path):
    store = Store(url_of(None, tmp_path))
    await store.open()
    yield JournalQueries(store, SystemClock())
    await store.close()


async def write(answers, *events) -> None:
    await answers.store.write([rows_of(Envelope(event)) for event in events])


async def parts(answers, start: float, end: float) -> list[dict]:
    found, after = [], ""
    while True:
        part = await answers.interval(AskInterval(start=NOW + start, end=NOW + end, after=after))
        found.append(part)
        if not part["next"]:
            return found
        after = part["next"]


def cluster(number: int, count: int, at: float, ranges: list[list[int]] | None = None) -> list:
    common = {"at": NOW + at, "schedd": "ap"}
    kinds = [
        JobKind(autocluster=number * 1000 + place, submitter="ada@p", jobs=[[number, *one]], ad=b"\x80")
        for place, one in enumerate(ranges or [[0, count - 1]])
    ]
    submitted = JobsSubmitted(**common, owner="ada", submitter="ada@p", cluster=number, first_proc=0, count=count)
    return [submitted, JobsSorted(**common, kinds=kinds)]


@pytest.mark.parametrize("most", [1, 7, 10_000])
async def test_every_offer_comes_once_however_small_the_parts_are(answers, monkeypatch, most):
    monkeypatch.setattr(replay_reader, "_OFFERS", most)
    monkeypatch.setattr(replay_reader, "_CLUSTERS", 3)
    for number in range(1, 9):
        await write(answers, *cluster(number, 5, number))
    offers = [tuple(offer[:5]) for part in await parts(answers, 0, 100) for offer in part.get("offers", ())]
    assert offers == [("ap", number, proc, "ada@p", number * 1000) for number in range(1, 9) for proc in range(5)]


async def test_clusters_whose_jobs_all_differ_know_their_kinds(answers):
    await write(answers, *cluster(1, 200, 1, [[proc, proc] for proc in range(200)]))
    offers = [offer for part in await parts(answers, 0, 100) for offer in part.get("offers", ())]
    assert [(offer[2], offer[4]) for offer in offers] == [(proc, 1000 + proc) for proc in range(200)]


async def test_the_policy_of_the_beginning_and_how_often_it_changed(answers):
    await write(answers, *cluster(1, 1, 1))
    for at, knobs in ((5, {"A": "1"}), (20, {"A": "1"}), (30, {"A": "2"}), (40, {"A": "3"})):
        await write(answers, PolicyInForce(at=NOW + at, negotiator="cm", epoch=1, knobs=knobs))
    (first, *_) = await parts(answers, 10, 100)
    assert (first["policy"]["knobs"], len(first["policy_changes"])) == ({"A": "1"}, 2)
    (first, *_) = await parts(answers, 0, 35)  # it is not known what was in force before
    assert (first["policy"]["knobs"], len(first["policy_changes"])) == ({"A": "1"}, 1)


async def test_lengths_of_runs_are_known_from_after_the_interval(answers):
    who = {"schedd": "ap", "job_id": "1.0", "owner": "ada", "slot": "slot1@a", "attempt": 1}
    await write(
        answers,
        *cluster(1, 1, 1),
        JobStarted(at=NOW + 50, **who, waited_s=49.0, began=NOW + 49),
        JobEnded(at=NOW + 500, **who, ran_s=450.0),
    )
    (offer,) = [offer for part in await parts(answers, 0, 100) for offer in part.get("offers", ())]
    assert offer[7] == pytest.approx(451)


async def test_what_can_not_be_replayed_is_told(answers):
    with pytest.raises(RemoteFailure, match="nothing of that time"):
        await parts(answers, 0, 100)
    await write(answers, *cluster(1, 1, 1))
    for after in ("nonsense", "jobs/x", "jobs/1.x", "cows/1"):
        with pytest.raises(RemoteFailure, match="after"):
            await answers.interval(AskInterval(start=NOW, end=NOW + 9, after=after))
    with pytest.raises(RemoteFailure, match="name one negotiator"):
        await answers.interval(AskInterval(start=NOW, end=NOW + 9, negotiator="other"))
    with pytest.raises(RemoteFailure, match="before it begins"):
        await answers.interval(AskInterval(start=NOW + 9, end=NOW))
