"""The journal's database, on SQLite; tests/integration/test_journal.py has PostgreSQL."""

import os
import sqlite3

import pytest
import sqlalchemy as sa

from services.journal.core.rows import job_id, rows_of
from services.journal.store import (
    EVENTS,
    KIND_ADS,
    KINDS,
    MATCHES,
    REASONS,
    SLOTS,
    STANDINGS,
    VERSION,
    JournalRefused,
    JournalUnavailable,
    JournalUnusable,
    Store,
    in_budget,
    url_of,
)
from shared.caller import CallerGone, Wait, awaited
from shared.classad.budget import TooExpensive
from shared.messages.base import Ack, Envelope
from shared.messages.events import (
    DaemonStarted,
    JobKind,
    JobsSorted,
    JobStarted,
    MatchesMade,
    MatchGroup,
    Reason,
    ReasonsChanged,
    StandingsTold,
    SubmitterStanding,
)

NOW = 1_700_000_000.0


@pytest.fixture
async def store(tmp_path):
    made = Store(url_of(None, tmp_path))
    await made.open()
    yield made
    await made.close()


def started(number: int, at: float = NOW, **more) -> Envelope:
    event = JobStarted(
        at=at, schedd="ap", job_id=f"{number}.0", owner="ada", slot="slot1@a", attempt=1, waited_s=1.0, **more
    )
    return Envelope(event, sender="schedd.ap")


async def count(store: Store, table: sa.Table) -> int:
    return await store.read(lambda connection: connection.scalar(sa.select(sa.func.count()).select_from(table)))


async def test_an_event_that_comes_twice_is_written_once(store):
    sorted_ = Envelope(
        JobsSorted(
            at=NOW, schedd="ap", kinds=[JobKind(autocluster=3, submitter="ada@p", jobs=[[1, 0, 9], [2, 5, 5]], ad=b"x")]
        )
    )
    events = [started(1), sorted_, started(2)]
    assert await store.write([rows_of(one) for one in events]) == 3
    assert await store.write([rows_of(one) for one in (*events, events[0], started(3))]) == 1
    assert [await count(store, table) for table in (EVENTS, KINDS, KIND_ADS)] == [4, 2, 1]


async def test_all_that_a_cycle_tells_has_its_rows(store):
    by = {"at": NOW, "negotiator": "cm", "epoch": 2, "cycle": 9}
    reason = Reason(schedd="ap", submitter="ada@p", autocluster=3, code="share", text="t", left=2, counts={"free": 1})
    standing = SubmitterStanding(
        submitter="ada@p", group="<none>", priority=0.5, factor=10.0, in_use=1.0, slots=1, share=0.5, limit=2.0,
        given=1.0, requested=3.0,
    )  # fmt: skip
    group = MatchGroup(schedd="ap", submitter="ada@p", autocluster=3, slots=["a", "b"], counts=[1, 2], weights=[1, 2])
    messages = [
        ReasonsChanged(**by, whole=True, reasons=[reason]),
        MatchesMade(**by, groups=[group]),
        StandingsTold(**by, pool=10.0, half_life=86400.0, submitters=[standing], gone=["bob@p"]),
    ]
    await store.write([rows_of(Envelope.unpack(Envelope(one).pack())) for one in messages])
    found = await store.read(lambda c: c.execute(sa.select(REASONS.c.autocluster, REASONS.c.code)).all())
    assert sorted(found) == [(-1, ""), (3, "share")]
    found = await store.read(lambda c: c.execute(sa.select(MATCHES.c.slot, MATCHES.c.jobs)).all())
    assert sorted(found) == [("a", 1), ("b", 2)]
    assert await count(store, STANDINGS) == 2


async def test_what_is_older_is_forgotten_but_not_what_a_slot_offers_still(store):
    await store.write([rows_of(started(number, NOW + number)) for number in range(10)])
    slots = [("a", 1), ("a", 3), ("b", 2), ("c", 8)]
    await store.add(SLOTS, [{"slot": name, "at": NOW + at, "ad": b"x"} for name, at in slots])
    gone, size = await store.forget(NOW + 5, 1 << 40)
    assert (gone, size > 0) == (5 + 1, True)
    assert await count(store, EVENTS) == 5
    left = await store.read(lambda c: c.execute(sa.select(SLOTS.c.slot, SLOTS.c.at - NOW)).all())
    assert sorted(left) == [("a", 3), ("b", 2), ("c", 8)]


async def test_the_oldest_goes_when_there_is_too_much(store):
    for start in range(0, 4000, 1000):
        batch = [rows_of(started(number, NOW + number)) for number in range(start, start + 1000)]
        await store.write(batch)
    _, before = await store.forget(0.0, 1 << 40)
    gone, after = await store.forget(0.0, before // 2)
    assert gone > 0
    assert after <= before // 2
    oldest = await store.read(lambda c: c.scalar(sa.select(sa.func.min(EVENTS.c.at))))
    newest = await store.read(lambda c: c.scalar(sa.select(sa.func.max(EVENTS.c.at))))
    assert oldest > NOW
    assert newest == NOW + 3999


async def test_a_journal_of_a_later_release_is_left_alone(tmp_path):
    store = Store(url_of(None, tmp_path))
    await store.open()
    await store.close()
    database = sqlite3.connect(tmp_path / "journal.db")
    database.execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(VERSION + 1),))
    database.commit()
    database.close()
    store = Store(url_of(None, tmp_path))
    with pytest.raises(JournalUnusable, match="use the newer Roost"):
        await store.open()
    await store.close()


async def test_a_file_that_is_no_database_is_set_aside(tmp_path):
    (tmp_path / "journal.db").write_bytes(b"this is no database" * 1000)
    store = Store(url_of(None, tmp_path))
    await store.open()
    assert await store.write([rows_of(started(1))]) == 1
    await store.close()
    (aside,) = tmp_path.glob("journal.db.damaged*")
    assert aside.read_bytes().startswith(b"this is no")
    assert store.set_aside == str(aside)


async def test_a_locked_database_is_told_and_no_reason_to_die(tmp_path, monkeypatch):
    monkeypatch.setattr("services.journal.store.PATIENCE_S", 0.05)
    store = Store(url_of(None, tmp_path))
    await store.open()
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(JournalUnavailable, match="locked"):
        await store.write([rows_of(started(1))])
    other.execute("ROLLBACK")
    other.close()
    assert await store.write([rows_of(started(1))]) == 1
    await store.close()


async def test_what_no_database_can_hold_is_refused_and_the_rest_is_written(store):
    rows = rows_of(started(1))
    rows["events"][0]["cluster"] = 1 << 70
    with pytest.raises(JournalRefused):
        await store.write([rows])
    assert await store.write([rows_of(started(2))]) == 1


async def test_the_file_is_its_owners_only(store):
    assert os.stat(store.url.database).st_mode & 0o077 == 0


def test_where_the_journal_is(tmp_path):
    assert url_of("postgresql://u:p@h/d", tmp_path).drivername == "postgresql+psycopg"
    assert url_of(None, tmp_path).database == str(tmp_path / "journal.db")
    for text in ("nonsense", "mysql://h/d"):
        with pytest.raises(JournalUnusable, match="ROOST_JOURNAL_URL"):
            url_of(text, tmp_path)


def test_rows_of_messages_that_are_no_events_and_of_odd_jobs():
    assert rows_of(Envelope(Ack())) == {}
    (row,) = rows_of(Envelope(DaemonStarted(at=NOW, daemon="d", subsystem="S", release="1")))["events"]
    assert (row["cluster"], row["proc"]) == (None, None)
    assert job_id("12.3") == (12, 3)
    assert job_id("12") == (12, -1)
    for text in ("", "x", "1.2.3", "1.", ".1", "-1.0", "9" * 30, "１.0"):
        assert job_id(text) == (None, None)


async def test_a_question_ends_where_its_budget_is_spent_or_nobody_waits(store, monkeypatch):
    """In SQLite's own work, and among the rows."""
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000000) SELECT {} FROM n"

    def work(connection):
        return connection.execute(sa.text(numbers.format("max(x)"))).scalar()

    def rows(connection):
        return sum(1 for _ in in_budget(range(10**9)))

    assert await store.read(lambda connection: len(list(in_budget(range(2000))))) == 2000
    for question in (work, rows):
        with awaited(Wait(0.2)), pytest.raises(CallerGone):
            await store.read(question)
    monkeypatch.setattr("services.journal.store.QUESTION_S", 0.1)
    for question in (work, rows):
        with pytest.raises(TooExpensive, match=r"more than the 0\.1 s of processor time"):
            await store.read(question)
    assert await store.read(lambda connection: connection.execute(sa.text("SELECT 7")).scalar()) == 7


async def test_a_question_whose_caller_has_gone_while_it_was_in_line_is_not_begun(store):
    begun = []
    with awaited(Wait(-1.0)), pytest.raises(CallerGone):
        await store.read(begun.append)
    assert begun == []
