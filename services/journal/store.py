"""The journal's database: its tables, in SQLite (WAL mode) or PostgreSQL by URL, and the steps that bring an older
journal to this version. One thread writes, another reads.

Rows are only added, never changed: an event that comes twice or late finds its place by its id and its time. Times are
seconds since 1970.

It uses threads rather than an asynchronous driver: a batch of a thousand rows keeps a thread busy for milliseconds, and
the same SQLAlchemy code serves both databases. Nothing here waits forever: a writer that can not write is told so, and
may try again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url

from services.journal.core.rows import Row, Rows
from shared import private_files
from shared.caller import check_caller
from shared.classad.budget import QUESTION_S, TooExpensive
from shared.errors import PermanentError, RetryableError, RoostError

METADATA: Final = MetaData()

#: Instructions of SQLite, and rows, between two looks at what a question has cost.
_STEPS: Final = 100_000
_LOOK_EVERY: Final = 500

#: The version of the tables, and other facts about the journal itself.
META: Final = Table("meta", METADATA, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

_SERIAL: Final = BigInteger().with_variant(Integer, "sqlite")

#: Every event. cluster, proc: of events about a job; proc -1 where a whole cluster is meant. body: JSON.
EVENTS: Final = Table(
    "events",
    METADATA,
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("at", Float, nullable=False),
    Column("type", Text, nullable=False),
    Column("sender", Text, nullable=False),
    Column("cluster", BigInteger),
    Column("proc", BigInteger),
    Column("body", Text, nullable=False),
    Index("events_at", "at", "id"),
    Index("events_job", "cluster", "proc"),
    Index("events_type", "type", "at"),
)


#: Which jobs came to which autocluster: procs first to last of a cluster.
KINDS: Final = Table(
    "kinds",
    METADATA,
    Column("at", Float, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("submitter", Text, nullable=False),
    Column("cluster", BigInteger, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Index("kinds_job", "cluster", "schedd"),
    Index("kinds_at", "at"),
)

#: What slots and policies look at in the jobs of an autocluster: a packed ad.
KIND_ADS: Final = Table(
    "kind_ads",
    METADATA,
    Column("at", Float, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("ad", LargeBinary, nullable=False),
    Index("kind_ads_of", "schedd", "autocluster", "at"),
)

#: Why an autocluster waits from this cycle on; an empty code ends it.
REASONS: Final = Table(
    "reasons",
    METADATA,
    Column("at", Float, nullable=False),
    Column("shard", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("submitter", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("code", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("left", BigInteger, nullable=False),
    Column("counts", Text, nullable=False),
    Index("reasons_of", "schedd", "autocluster", "at"),
    Index("reasons_at", "at"),
)

#: How submitters (kind "submitter") and groups (kind "group") stood. body: JSON.
STANDINGS: Final = Table(
    "standings",
    METADATA,
    Column("at", Float, nullable=False),
    Column("shard", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("standings_of", "name", "at"),
    Index("standings_at", "at"),
)

#: Slots that were given, a row for each match.
MATCHES: Final = Table(
    "matches",
    METADATA,
    Column("at", Float, nullable=False),
    Column("shard", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("cycle", BigInteger, nullable=False),
    Column("schedd", Text, nullable=False),
    Column("submitter", Text, nullable=False),
    Column("autocluster", BigInteger, nullable=False),
    Column("slot", Text, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    Column("weight", Float, nullable=False),
    Column("rank", Float, nullable=False),
    Index("matches_slot", "slot", "at"),
    Index("matches_at", "at"),
)

#: Numbers of the pool at a moment: slots by state, jobs by state.
SAMPLES: Final = Table(
    "samples",
    METADATA,
    Column("name", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("value", Float, nullable=False),
    UniqueConstraint("name", "at", "label", name="samples_once"),
    Index("samples_at", "at"),
)

#: What slots offer, as long as it stays so: a packed ad without what changes all the time; empty: the slot is gone.
SLOTS: Final = Table(
    "slots",
    METADATA,
    Column("slot", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("ad", LargeBinary, nullable=False),
    UniqueConstraint("slot", "at", name="slots_once"),
    Index("slots_at", "at"),
)

#: Tables whose rows go by their age. Of SLOTS the newest of each slot stays: it may be true still.
AGING: Final = (EVENTS, KINDS, KIND_ADS, REASONS, STANDINGS, MATCHES, SAMPLES)


def _first(connection: Connection) -> None:
    METADATA.create_all(connection)


#: Step n brings a journal from version n to n + 1. A released step is never changed: what comes later is added.
STEPS: Final[tuple[Callable[[Connection], None], ...]] = (_first,)
VERSION: Final = len(STEPS)


#: Seconds that a statement waits for a lock, and for the database's answer.
PATIENCE_S: Final = 10
#: A part of the journal's span that is forgotten at once when it is too large.
_PART: Final = 0.1
#: What SQLite says of a file that it can not read as a database.
_DAMAGED: Final = ("not a database", "malformed")
#: Ids looked up in one statement (SQLite takes 32766 parameters).
_IDS: Final = 500

T = TypeVar("T")


class JournalUnavailable(RetryableError):
    """The database does not take or give anything at the moment: locked, full, or not there."""


class JournalRefused(PermanentError):
    """Something in these rows can not be written, now or later."""


class JournalUnusable(PermanentError):
    """The journal can not be used by this version: the text says why, and what to do."""


def url_of(configured: str | None, spool: Path) -> URL:
    """Where the journal is, for ROOST_JOURNAL_URL. Raises JournalUnusable for what is no such place."""
    if not configured:
        return URL.create("sqlite", database=str(spool / "journal.db"))
    try:
        url = make_url(configured)
    except sa.exc.ArgumentError:
        raise JournalUnusable(
            "ROOST_JOURNAL_URL is no URL of a database: want postgresql://user:password@host/database, or "
            f"sqlite:///{quote(str(spool))}/journal.db"
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise JournalUnusable(
            f"ROOST_JOURNAL_URL: {url.get_backend_name()} is not known; the journal is kept in sqlite or postgresql"
        )
    return url


class _ReadBudget:
    """The processor time of this thread that one question may take, and who waits for its answer."""

    def __init__(self) -> None:
        self._end = time.thread_time() + QUESTION_S

    def check(self) -> None:
        """Raises TooExpensive, CallerGone."""
        check_caller()
        if time.thread_time() > self._end:
            limit = f"the {QUESTION_S:g} s of processor time that one question may take"
            raise TooExpensive(f"this question to the journal takes more than {limit}; ask about a shorter time")

    @contextmanager
    def watching(self, connection: sa.Connection | None) -> Iterator[None]:
        """SQLite looks in here while it works. PostgreSQL has statement_timeout."""
        if connection is None:
            yield
            return
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(self._is_over, _STEPS)
        try:
            yield
        finally:
            driver.set_progress_handler(None, _STEPS)

    def _is_over(self) -> bool:
        try:
            self.check()
        except RoostError:
            return True
        return False


_reading: ContextVar[_ReadBudget | None] = ContextVar("reading", default=None)


def in_budget(rows: Iterable[T]) -> Iterator[T]:
    """Rows of a question, as long as its budget lasts. Raises TooExpensive, CallerGone."""
    budget = _reading.get()
    for number, row in enumerate(rows):
        if budget is not None and number % _LOOK_EVERY == 0:
            budget.check()
        yield row


class Store:
    """The open database. Every method may raise JournalUnavailable."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.lite = url.get_backend_name() == "sqlite"
        self.set_aside = ""  # where a file went that was no database of ours
        self._engine: sa.Engine | None = None
        self._opening = threading.Lock()
        self._writer = ThreadPoolExecutor(1, "journal-writer")
        self._reader = ThreadPoolExecutor(1, "journal-reader")

    # --- for the event loop

    async def open(self) -> None:
        """Make or bring up to date the tables. Raises JournalUnusable too."""
        await self._in(self._writer, self._open)

    async def write(self, batch: Sequence[Rows]) -> int:
        """Write down events, each with all its rows, in one transaction; those that are there already are passed over.
        Returns how many were new."""
        return await self._in(self._writer, partial(self._write, batch))

    async def add(self, table: sa.Table, rows: Sequence[Row]) -> None:
        """Rows that belong to no event; those that are there already stay."""
        await self._in(self._writer, partial(self._add, table, rows))

    async def read(self, question: Callable[[sa.Connection], T]) -> T:
        """Ask, in the reader's thread, in one transaction. Raises TooExpensive, and CallerGone when nobody waits for
        the answer any more, in line or while it is made."""
        return await self._in(self._reader, partial(self._read, question))

    async def forget(self, before: float, most_bytes: int) -> tuple[int, int]:
        """Forget what is older, and the oldest while there is more than so many bytes. Returns rows forgotten, bytes
        that are left."""
        return await self._in(self._writer, partial(self._forget, before, most_bytes))

    async def close(self) -> None:
        """Finish what is under way."""

        def close() -> None:
            if self._engine is not None:
                self._engine.dispose()

        for pool in (self._reader, self._writer):
            await asyncio.to_thread(pool.shutdown, wait=True)
        close()

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, work)
        except OSError as error:
            raise JournalUnavailable(f"the journal's database ({self._shown()}): {error.strerror}") from error
        except (sa.exc.DataError, sa.exc.IntegrityError, sa.exc.StatementError, OverflowError, UnicodeError) as error:
            # Of these, DBAPIError alone speaks of the database, and not of what was asked of it.
            if isinstance(error, sa.exc.DBAPIError) and not isinstance(error, sa.exc.DataError | sa.exc.IntegrityError):
                raise JournalUnavailable(f"the journal's database ({self._shown()}): {_said(error)}") from error
            raise JournalRefused(f"the journal can not hold this: {_said(error)}") from error
        except sa.exc.SQLAlchemyError as error:
            raise JournalUnavailable(f"the journal's database ({self._shown()}): {_said(error)}") from error

    def _shown(self) -> str:
        return self.url.render_as_string(hide_password=True)

    # --- in the threads

    def engine(self) -> sa.Engine:
        """The engine with its tables, made by whoever comes first."""
        with self._opening:
            if self._engine is None:
                try:
                    self._engine = self._begin()
                except sa.exc.DatabaseError as error:
                    if not self.lite or not any(word in _said(error) for word in _DAMAGED):
                        raise
                    self._put_aside()
                    self._engine = self._begin()
            return self._engine

    def _begin(self) -> sa.Engine:
        if self.lite and self.url.database:
            # Its owner's only: events tell who does what.
            private_files.make_database(Path(self.url.database))
        engine = self._make()
        try:
            with engine.begin() as connection:
                migrate(connection)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _put_aside(self) -> None:
        """A damaged file is kept for whoever can read it; the journal begins anew."""
        path = Path(self.url.database or "")
        for number in range(1000):
            aside = path.with_name(f"{path.name}.damaged{number or ''}")
            if not aside.exists():
                break
        path.rename(aside)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        self.set_aside = str(aside)

    def _open(self) -> None:
        self.engine()

    def _make(self) -> sa.Engine:
        if not self.lite:
            return sa.create_engine(
                self.url,
                pool_size=2,
                max_overflow=0,
                pool_pre_ping=True,
                connect_args={
                    "connect_timeout": PATIENCE_S,
                    "options": f"-c statement_timeout={PATIENCE_S * 6000} -c lock_timeout={PATIENCE_S * 1000}",
                },
            )
        engine = sa.create_engine(self.url, connect_args={"timeout": PATIENCE_S, "check_same_thread": False})

        @sa.event.listens_for(engine, "connect")
        def prepare(connection: Any, _: Any) -> None:
            cursor = connection.cursor()
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first table, or it has no effect
            cursor.execute("PRAGMA journal_mode=WAL")
            # A crash of the machine may cost what came last; a crash of the daemon nothing.
            cursor.execute("PRAGMA synchronous=NORMAL")
            cursor.execute("PRAGMA temp_store=MEMORY")
            cursor.close()

        return engine

    def _insert(self, table: sa.Table) -> Any:
        """Insert, and leave what is there already."""
        kind = sqlite.insert if self.lite else postgresql.insert
        return kind(table).on_conflict_do_nothing()

    def _write(self, batch: Sequence[Rows]) -> int:
        events = EVENTS
        with self.engine().begin() as connection:
            ids = list(dict.fromkeys(rows["events"][0]["id"] for rows in batch))
            known: set[str] = set()
            for start in range(0, len(ids), _IDS):
                some = ids[start : start + _IDS]
                known.update(connection.scalars(sa.select(events.c.id).where(events.c.id.in_(some))))
            together: Rows = {}
            new = 0
            for rows in batch:
                name = rows["events"][0]["id"]
                if name in known:
                    continue
                known.add(name)
                new += 1
                for table, added in rows.items():
                    together.setdefault(table, []).extend(added)
            for table, added in together.items():
                if added:
                    connection.execute(self._insert(METADATA.tables[table]), added)
        return new

    def _add(self, table: sa.Table, rows: Sequence[Row]) -> None:
        if rows:
            with self.engine().begin() as connection:
                connection.execute(self._insert(table), list(rows))

    def _read(self, question: Callable[[sa.Connection], T]) -> T:
        budget = _ReadBudget()
        token = _reading.set(budget)
        try:
            budget.check()
            with self.engine().connect() as connection, budget.watching(connection if self.lite else None):
                return question(connection)
        except sa.exc.OperationalError:
            budget.check()  # which ended it
            raise
        finally:
            _reading.reset(token)

    def _forget(self, before: float, most_bytes: int) -> tuple[int, int]:
        forgotten = self._delete(before)
        while (size := self._size()) > most_bytes:
            with self.engine().connect() as connection:
                events = EVENTS.c.at
                oldest, newest = connection.execute(sa.select(sa.func.min(events), sa.func.max(events))).one()
            if oldest is None or newest <= oldest:
                break
            gone = self._delete(oldest + (newest - oldest) * _PART)
            forgotten += gone
            if not gone:
                break
        return forgotten, size

    def _delete(self, before: float) -> int:
        forgotten = 0
        for table in AGING:
            with self.engine().begin() as connection:  # one at a time: writers wait no longer than they must
                forgotten += connection.execute(sa.delete(table).where(table.c.at < before)).rowcount
        slots = SLOTS
        later = slots.alias()
        newer = sa.exists().where(later.c.slot == slots.c.slot, later.c.at > slots.c.at, later.c.at < before)
        with self.engine().begin() as connection:
            forgotten += connection.execute(sa.delete(slots).where(slots.c.at < before, newer)).rowcount
        if self.lite and forgotten:
            with self.engine().connect() as connection:
                # The driver's own cursor, fetched to the end: a page is given back at each step.
                cursor = connection.connection.cursor()
                cursor.execute("PRAGMA incremental_vacuum")
                cursor.fetchall()
                cursor.close()
                connection.commit()
        return forgotten

    def _size(self) -> int:
        with self.engine().connect() as connection:
            if self.lite:
                pages, free, size = (
                    int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
                    for name in ("page_count", "freelist_count", "page_size")
                )
                return (pages - free) * size
            names = [table.name for table in METADATA.sorted_tables]
            sizes = (sa.func.pg_total_relation_size(sa.literal(name)) for name in names)
            return sum(int(connection.scalar(sa.select(size)) or 0) for size in sizes)


def migrate(connection: sa.Connection) -> None:
    """Bring the tables to this version. Raises JournalUnusable for those of a later one."""
    meta = META
    if not sa.inspect(connection).has_table(meta.name):
        version = 0
    else:
        found = connection.scalar(sa.select(meta.c.value).where(meta.c.key == "version"))
        version = int(found) if found and found.isdigit() else 0
    if version > VERSION:
        raise JournalUnusable(
            f"the journal has version {version} of its tables, this Roost knows {VERSION}: use the newer Roost, "
            "or another place (ROOST_JOURNAL_URL)"
        )
    for step in STEPS[version:]:
        step(connection)
    if version < VERSION:
        connection.execute(sa.delete(meta).where(meta.c.key == "version"))
        connection.execute(sa.insert(meta).values(key="version", value=str(VERSION)))


def _said(error: Exception) -> str:
    """One line of what the database says."""
    origin = getattr(error, "orig", None) or error
    lines = str(origin).strip().splitlines()
    return lines[0] if lines else type(origin).__name__
