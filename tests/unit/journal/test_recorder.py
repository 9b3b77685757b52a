"""Events on their way to the database, which takes them or not."""

import asyncio
import json

import pytest
import sqlalchemy as sa
import structlog

from services.journal import recorder as module
from services.journal.core.rows import MOST_BYTES, rows_of
from services.journal.recorder import Recorder
from services.journal.store import EVENTS, Store, url_of
from shared.bus.api import Reject
from shared.daemon.clock import SystemClock
from shared.messages.base import Ack, Envelope
from shared.messages.events import JobRemoved, StandingsTold, SubmitterStanding
from tests.waiting import eventually

NOW = 1_700_000_000.0


class Context:
    clock = SystemClock()
    log = structlog.stdlib.get_logger()


def removed(number: int, reason: str = "so") -> Envelope:
    return Envelope(JobRemoved(at=NOW + number, schedd="ap", job_id=f"{number}.0", owner="ada", reason=reason))


@pytest.fixture
async def recorder(tmp_path):
    store = Store(url_of(None, tmp_path))
    await store.open()
    made = Recorder(Context(), store, lambda: None)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    made.let_go()
    await store.close()


async def count(store: Store) -> int:
    return await store.read(lambda c: c.scalar(sa.select(sa.func.count()).select_from(EVENTS)))


async def test_events_that_come_together_are_written_together(recorder):
    await asyncio.gather(*(recorder.on_event(removed(number)) for number in range(500)))
    assert await count(recorder.store) == 500
    assert recorder.recorded.batches < 50
    await recorder.on_event(removed(499))  # another id: another event
    await recorder.on_event(Envelope(Ack()))
    assert await count(recorder.store) == 501


async def test_a_full_database_holds_events_back_until_there_is_room(recorder):
    await recorder.on_event(removed(0))

    def no_room(connection: sa.Connection) -> None:
        """As on a full disk: SQLite takes no more pages."""
        connection.exec_driver_sql("PRAGMA max_page_count = 1")

    def room(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")

    engine = recorder.store.engine()
    sa.event.listen(engine, "begin", no_room)
    waiting = [asyncio.create_task(recorder.on_event(removed(number, "x" * 20_000))) for number in range(1, 50)]
    await eventually(lambda: recorder.trouble, 60, "trouble")
    assert "full" in recorder.trouble
    assert not any(task.done() for task in waiting)
    sa.event.remove(engine, "begin", no_room)
    sa.event.listen(engine, "begin", room)
    await asyncio.gather(*waiting)
    assert recorder.trouble == ""
    assert await count(recorder.store) == 50


async def test_an_event_that_no_database_takes_is_refused_and_the_others_are_written(recorder, monkeypatch):
    bad = removed(700)

    def too_large(envelope):
        rows = rows_of(envelope)
        if envelope is bad:
            rows["events"][0]["cluster"] = 1 << 80
        return rows

    monkeypatch.setattr(module, "rows_of", too_large)
    others = [removed(number) for number in range(20)]
    told = await asyncio.gather(
        *(recorder.on_event(one) for one in (*others[:10], bad, *others[10:])), return_exceptions=True
    )
    assert [type(one) for one in told if one is not None] == [Reject]
    assert await count(recorder.store) == 20
    assert recorder.recorded.refused == 1


async def test_who_is_let_go_gives_its_events_back(tmp_path, monkeypatch):
    store = Store(url_of(None, tmp_path))
    recorder = Recorder(Context(), store, lambda: None)
    entered = asyncio.Event()

    async def never(_):
        entered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "write", never)
    running = asyncio.create_task(recorder.run())
    task = asyncio.create_task(recorder.on_event(removed(1)))
    await entered.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    recorder.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(asyncio.CancelledError):  # its message is not acknowledged, and comes again
        await recorder.on_event(removed(2))
    await store.close()


@pytest.mark.parametrize("at", [float("inf"), float("-inf"), float("nan"), -1.0, 1e300])
async def test_an_event_of_a_time_that_no_calendar_has_is_refused(recorder, at):
    """As the newest it ended the journal, when that next told of it; as the oldest, no question was answered."""
    with pytest.raises(Reject, match="want 0 to"):
        await recorder.on_event(Envelope(JobRemoved(at=at, schedd="ap", job_id="1.0", owner="ada", reason="so")))
    assert recorder.recorded.newest == 0
    assert recorder.waiting == 0


def test_a_large_event_is_recorded_with_its_long_parts_cut():
    event = removed(7, "\0" * 2000).body
    (row,) = rows_of(Envelope(event, "schedd.ap", size=MOST_BYTES + 1))["events"]
    assert (row["cluster"], row["proc"], row["at"]) == (7, 0, event.at)
    assert json.loads(row["body"]) == {**event.model_dump(mode="json"), "reason": "\0" * 1000, "cut": ["reason"]}
    (whole,) = rows_of(Envelope(event, "schedd.ap", size=MOST_BYTES))["events"]
    assert json.loads(whole["body"]) == event.model_dump(mode="json")


def test_what_has_tables_of_its_own_is_recorded_of_a_large_event_too():
    numbers = dict.fromkeys(SubmitterStanding.model_fields, 1.0)
    standing = SubmitterStanding(**numbers | {"submitter": "u", "group": "g", "slots": 1})
    by = {"negotiator": "cm", "epoch": 1, "cycle": 2, "pool": 1.0, "half_life": 1.0}
    event = StandingsTold(at=5.0, **by, submitters=[standing] * 3, gone=["v"])
    rows = rows_of(Envelope(event, "negotiator.a", size=MOST_BYTES + 1))
    body = json.loads(rows["events"][0]["body"])
    assert (body["submitters"], body["gone"], body["cut"]) == (3, [], ["gone"])
    assert [row["name"] for row in rows["standings"]] == ["u", "u", "u", "v"]
