"""The journal in a PostgreSQL of this test's own, which is killed now and then."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import sqlalchemy as sa
import structlog

from services.journal.core.rows import rows_of
from services.journal.queries import JournalQueries
from services.journal.recorder import Recorder
from services.journal.store import EVENTS, METADATA, SAMPLES, SLOTS, JournalRefused, JournalUnavailable, Store, url_of
from shared.bus.api import Reject
from shared.daemon.clock import SystemClock
from shared.messages.base import Envelope
from shared.messages.events import JobEnded, JobKind, JobsSorted, JobsSubmitted, JobStarted, Reason, ReasonsChanged
from shared.messages.journal import AskCycles, AskEvents, AskInterval, AskJob, AskLeaders, AskSeries
from tests.servers import Leashed, ServerError
from tests.waiting import eventually, wait_until

NOW = 1_700_000_000.0

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("postgresql")]


class Postgres:
    """A server on a socket in a directory of its own, run by somebody else than root."""

    def __init__(self, directory: Path) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres")) or [shutil.which("postgres")]
        if not found[-1]:
            raise ServerError("PostgreSQL is not installed: apt-get install postgresql")
        self.programs = Path(found[-1]).parent
        self.directory = directory
        self.data = directory / "data"
        self.process: Leashed | None = None
        # Root may not run it; Debian's package brings an account that may.
        self.account = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.account:
            shutil.chown(directory, "postgres")
        self._run(
            "initdb", "-D", str(self.data), "-A", "trust", "-U", "postgres", "--no-sync", "--no-locale", "-E", "UTF8"
        )
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.directory}"

    def _run(self, program: str, *words: str) -> None:
        done = Leashed([*self.account, self.programs / program, *words], log=self.directory / "log", cwd=self.directory)
        wait_until(lambda: done.returncode is not None, 60, program)
        assert done.returncode == 0, done.tail()
        done.close()

    def start(self) -> None:
        options = ("-c", "listen_addresses=", "-k", str(self.directory), "-F")
        self.process = Leashed(
            [*self.account, self.programs / "postgres", "-D", str(self.data), *options],
            log=self.directory / "log",
            cwd=self.directory,
        )

        def ready() -> bool:
            engine = sa.create_engine(url_of(self.url, self.directory))
            try:
                with engine.connect() as connection:
                    return bool(connection.scalar(sa.text("SELECT 1")))
            except sa.exc.OperationalError:
                return False
            finally:
                engine.dispose()

        wait_until(ready, 60, "PostgreSQL")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.close()


@pytest.fixture(scope="module")
def postgres():
    directory = Path(tempfile.mkdtemp(prefix="roost-pg-", dir="/tmp"))  # short, as a socket's path must be
    server = Postgres(directory)
    yield server
    server.kill()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
async def store(postgres):
    made = Store(url_of(postgres.url, postgres.directory))
    await made.open()
    yield made

    def empty(connection: sa.Connection) -> None:
        METADATA.drop_all(connection)
        connection.commit()

    await made.read(empty)
    await made.close()


def life(cluster: int) -> list[Envelope]:
    """A job that waits for its ceiling for half a minute, and runs for one."""
    who = {"schedd": "ap", "job_id": f"{cluster}.0", "owner": "ada"}
    kind = JobKind(autocluster=cluster, submitter="ada@p", jobs=[[cluster, 0, 0]], ad=b"\x80")
    why = Reason(schedd="ap", submitter="ada@p", autocluster=cluster, code="ceiling", text="at its ceiling", left=1)
    events = [
        JobsSubmitted(at=NOW, schedd="ap", owner="ada", submitter="ada@p", cluster=cluster, first_proc=0, count=1),
        JobsSorted(at=NOW, schedd="ap", kinds=[kind]),
        ReasonsChanged(at=NOW, negotiator="cm", epoch=1, cycle=cluster, reasons=[why]),
        JobStarted(at=NOW + 30, **who, slot="slot1@a", attempt=1, waited_s=30.0, began=NOW + 30),
        JobEnded(at=NOW + 90, **who, slot="slot1@a", attempt=1, exit_code=0, ran_s=60.0),
    ]
    return [Envelope(event, sender="schedd.ap") for event in events]


async def test_the_same_questions_have_the_same_answers_as_on_sqlite(store, tmp_path):
    other = Store(url_of(None, tmp_path))
    await other.open()
    events = [event for cluster in range(1, 20) for event in life(cluster)]
    for one in (store, other):
        assert await one.write([rows_of(event) for event in events]) == len(events)
        assert await one.write([rows_of(event) for event in events[:7]]) == 0
        samples = [{"name": "slots", "label": "Claimed", "at": NOW + 5, "value": 3.0}]
        await one.add(SAMPLES, samples)
        await one.add(SAMPLES, samples)
        await one.add(SLOTS, [{"slot": "slot1@a", "at": NOW, "ad": b"\x80"}])
    theirs, ours = (JournalQueries(one, SystemClock()) for one in (store, other))
    job = AskJob(job_id="7.0")
    found = await theirs.job(job)
    assert found == await ours.job(job)
    assert (found["state"], found["waited"]) == ("completed", {"ceiling": 30.0})
    questions = [
        ("events", AskEvents(types="job.*", limit=7)),
        ("events", AskEvents(job_id="3.0", start=NOW + 1)),
        ("cycles", AskCycles()),
        ("leaders", AskLeaders()),
        ("series", AskSeries(name="slots", start=NOW - 10, end=NOW + 10, points=4)),
        ("series", AskSeries(name="waits", start=NOW, end=NOW + 100, points=4)),
        *(("interval", AskInterval(start=NOW - 1, end=NOW + 60, after=after)) for after in ("", "slots/", "jobs/")),
    ]
    for name, question in questions:
        assert await getattr(theirs, name)(question) == await getattr(ours, name)(question), question
    gone, size = await store.forget(NOW + 60, 1 << 40)
    assert gone == (await other.forget(NOW + 60, 1 << 40))[0]
    assert size > 0
    await other.close()


async def test_what_postgresql_can_not_hold_is_refused_and_nothing_else(store):
    odd = life(1)[3]
    rows = rows_of(Envelope(odd.body.model_copy(update={"owner": "a\0b"}), sender="schedd.a\0b"))
    with pytest.raises(JournalRefused):
        await store.write([rows])
    assert await store.write([rows_of(odd)]) == 1


class _Context:
    """As much of a daemon's surroundings as a recorder needs."""

    clock = SystemClock()
    log = structlog.stdlib.get_logger()


async def test_a_server_that_dies_costs_no_event(store, postgres):
    recorder = Recorder(_Context(), store, lambda: None)
    running = asyncio.create_task(recorder.run())
    first = life(1)
    await asyncio.gather(*(recorder.on_event(event) for event in first))
    await asyncio.to_thread(postgres.kill)
    waiting = [asyncio.create_task(recorder.on_event(event)) for event in life(2)]
    try:
        await eventually(lambda: recorder.trouble, 60, "trouble")
        with pytest.raises(JournalUnavailable):
            await store.read(lambda connection: connection.scalar(sa.text("SELECT 1")))
        assert not any(task.done() for task in waiting)
    finally:
        await asyncio.to_thread(postgres.start)
    await asyncio.gather(*waiting)
    assert recorder.trouble == ""
    count = sa.select(sa.func.count()).select_from(EVENTS)
    assert await store.read(lambda connection: connection.scalar(count)) == 10
    bad = life(3)[3]
    with pytest.raises(Reject):
        await recorder.on_event(Envelope(bad.body, sender="schedd.a\0b"))
    assert recorder.recorded.refused == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
