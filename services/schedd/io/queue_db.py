"""The job queue on disk: SQLite in WAL mode, written in groups by a thread of its own.

Everything is read from memory, so the database is a log that is also its own snapshot. What is put between two commits
travels in one transaction; `commit` returns when it is safely on disk (synchronous=FULL). A job that leaves and its
history record, or a job that ends and the next on its claim, thus change together or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from engine.queue.jobs import Cluster, Job, JobId, JobStatus
from services.schedd.core.claim import Claim
from shared import disk_space, private_files
from shared.counters import Durations
from shared.errors import PermanentError
from shared.stored_versions import JOB_QUEUE

SCHEMA: Final = JOB_QUEUE
_TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE clusters (
  id INTEGER PRIMARY KEY, user TEXT NOT NULL, submitter TEXT NOT NULL, qdate INTEGER NOT NULL, spool INTEGER NOT NULL,
  submit_id TEXT NOT NULL, next_proc INTEGER NOT NULL, complete INTEGER NOT NULL, ad BLOB NOT NULL
);
CREATE UNIQUE INDEX clusters_submit ON clusters (user, submit_id);
CREATE TABLE jobs (
  cluster INTEGER NOT NULL, proc INTEGER NOT NULL, status INTEGER NOT NULL, priority INTEGER NOT NULL,
  submitter TEXT NOT NULL, ad BLOB NOT NULL, PRIMARY KEY (cluster, proc)
) WITHOUT ROWID;
CREATE TABLE submits (user TEXT NOT NULL, submit_id TEXT NOT NULL, part INTEGER NOT NULL, cluster INTEGER NOT NULL,
  first_proc INTEGER NOT NULL, count INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (user, submit_id, part)
) WITHOUT ROWID;
CREATE TABLE claims (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE history (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, cluster INTEGER NOT NULL, proc INTEGER NOT NULL, owner TEXT NOT NULL,
  left_at INTEGER NOT NULL, ad BLOB NOT NULL
);
CREATE INDEX history_job ON history (cluster, proc);
CREATE TABLE outputs (cluster INTEGER NOT NULL, proc INTEGER NOT NULL, attempt INTEGER NOT NULL, plan BLOB NOT NULL,
  PRIMARY KEY (cluster, proc)) WITHOUT ROWID;
CREATE TABLE log_events (seq INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, text BLOB NOT NULL);
"""
#: Since version 2: jobs that are not materialized yet, in pieces (engine.queue.late_materialization.pack_items).
_ITEMS: Final = """
CREATE TABLE items (cluster INTEGER NOT NULL, first_proc INTEGER NOT NULL, count INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (cluster, first_proc)) WITHOUT ROWID;
"""

#: A record of each run that is over, numbered in this order. ad: the job's as the run left it; null: the job left the
#: queue with it, and its record in the history has the ad. Not a version of its own: a release that does not know the
#: table leaves it alone.
_EPOCHS: Final = """
CREATE TABLE IF NOT EXISTS epochs (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, cluster INTEGER NOT NULL, proc INTEGER NOT NULL, run INTEGER NOT NULL,
  ended_at INTEGER NOT NULL, ad BLOB
);
CREATE INDEX IF NOT EXISTS epochs_job ON epochs (cluster, proc);
"""

_TO_HISTORY: Final = "INSERT INTO history (cluster, proc, owner, left_at, ad) VALUES (?, ?, ?, ?, ?)"
#: A function of statements that change many jobs: what is a proc's own from now on, packed.
_NEW_AD: Final = "new_ad"
#: How often a transaction that found no room on the disk is tried again, seconds.
FULL_S: Final = 1.0

T = TypeVar("T")


class QueueDamaged(PermanentError):
    """The queue's database can not be used: the text says why and what to do."""


class _Statement(NamedTuple):
    """One statement, for each of these rows. ad_of: what _NEW_AD is in it."""

    sql: str
    rows: Iterable[tuple[Any, ...]]
    ad_of: Callable[[int], bytes] | None = None


@dataclass(slots=True)
class _Batch:
    """What the next transaction holds. Jobs and claims by key: only their last state is written."""

    jobs: dict[tuple[int, int], Job] = field(default_factory=dict)
    left: set[tuple[int, int]] = field(default_factory=set)  # jobs that leave the queue with it
    left_rows: list[tuple[int, int, int]] = field(default_factory=list)  # likewise: cluster, first and last proc
    claims: dict[str, Claim] = field(default_factory=dict)
    bulk: list[_Statement] = field(default_factory=list)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def leaving(self) -> list[tuple[int, int, int]]:
        return [*self.left_rows, *((cluster, proc, proc) for cluster, proc in self.left)]

    def __bool__(self) -> bool:
        return bool(self.jobs or self.claims or self.bulk or self.waiting)


class QueueDatabase:
    """The database. All methods are for the event loop's thread; blocking work happens in the writer's."""

    def __init__(self, path: Path, on_full: Callable[[str], None] = lambda reason: None) -> None:
        """on_full: called when the disk becomes full, with the reason, and, with none, when it has room again."""
        self.path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="schedd-queue")
        self._batch = _Batch()
        self._writer: asyncio.Task[None] | None = None
        self._failed: BaseException | None = None
        self._database: sqlite3.Connection | None = None
        self._closing = False
        self._shortening = False
        self._unsaved: list[str] = []  # see check_invariants
        self._leaving: list[tuple[int, int, int]] = []  # what the transaction under way moves into the history
        #: Why nothing can be written for now: the disk is full. What changes meanwhile is written when there is room.
        self.full = ""
        self._on_full = on_full
        self.durations = Durations()  # of transactions; added to in the writer's thread

    async def open(self) -> None:
        """Open or create the database. Raises QueueDamaged."""
        await self.read(lambda database: None)

    def last_try(self) -> None:
        """Wait for room no longer: what can not be written now is lost with this process. Nobody was promised it."""
        self._closing = True

    def lacks_room(self, wanted: int) -> str:
        """Why nothing of this size should be taken on now; empty: there is room."""
        lack = self.full or disk_space.shortage_in(self.path.parent, wanted)
        if lack and not self._shortening:
            self._shortening = True
            done = asyncio.get_running_loop().run_in_executor(self._thread, self._shorten)
            done.add_done_callback(self._shortened)
        return lack

    def _shortened(self, done: asyncio.Future[None]) -> None:
        self._shortening = False
        if not done.cancelled() and (error := done.exception()) is not None:
            self._on_full(f"{self.path}: {error}")

    async def close(self) -> None:
        """Write what is waiting, and close."""
        if self._failed is None:
            await self.commit()
        if self._writer is not None:
            await self._writer

        def shut() -> None:
            if self._database is not None:
                self._database.close()
                self._database = None

        await asyncio.get_running_loop().run_in_executor(self._thread, shut)
        self._thread.shutdown()

    def leaving(self) -> list[tuple[int, int, int]]:
        """Jobs that are not in the queue any more, and not in the history yet: their transaction is to come, or under
        way. `commit` waits for it. As rows: cluster, first and last proc."""
        return self._leaving + self._batch.leaving()

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query in the writer's thread, after the transaction that is under way. What was changed since is not
        there yet."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: query(self._open()))

    # Changes; each is written with the next commit.

    def put(self, job: Job) -> None:
        """The job as it is when the transaction is written. Nodes of parallel jobs are not stored."""
        if job.whole is not None:
            return
        self._batch.jobs[job.cluster.id, job.proc] = job

    def put_claim(self, claim: Claim) -> None:
        self._batch.claims[claim.id] = claim

    def drop_claim(self, claim: Claim) -> None:
        self._batch.claims.pop(claim.id, None)
        self.do("DELETE FROM claims WHERE id = ?", (claim.id,))

    def leave(self, job: Job, ad: bytes, now: float) -> None:
        """Move a job into the history, with its whole ad."""
        key = (job.cluster.id, job.proc)
        self._batch.jobs.pop(key, None)
        self._batch.left.add(key)
        self.do("DELETE FROM jobs WHERE cluster = ? AND proc = ?", key)
        self.do(_TO_HISTORY, (*key, job.cluster.owner, int(now), ad))

    def end_run(self, job: JobId, run: int, ad: bytes | None, now: float) -> None:
        """Record a run that is over. run: which one of the job's; ad: the job's whole one; None: it left with it."""
        row = (job.cluster, job.proc, run, int(now), ad)
        self.do("INSERT INTO epochs (cluster, proc, run, ended_at, ad) VALUES (?, ?, ?, ?, ?)", row)

    def leave_many(self, cluster: int, procs: Iterable[Sequence[int]], history: Iterable[tuple[Any, ...]]) -> None:
        """Move jobs of a cluster into the history that have nothing else to be written. procs: first and last of
        each row of them; history: (cluster, proc, owner, when, ad), which the thread reads, perhaps more than once."""
        for first, last in procs:
            self._batch.left_rows.append((cluster, first, last))
            self.do("DELETE FROM jobs WHERE cluster = ? AND proc BETWEEN ? AND ?", (cluster, first, last))
        self._batch.bulk.append(_Statement(_TO_HISTORY, history))

    def put_states(
        self, cluster: int, procs: Iterable[Sequence[int]], status: JobStatus, ad_of: Callable[[int], bytes]
    ) -> None:
        """Jobs of a cluster that have nothing else to be written are in this state now. procs: first and last of each
        row of them; ad_of: what is each one's own, packed, which the thread asks for, perhaps more than once."""
        rows = [(int(status), cluster, first, last) for first, last in procs]
        sql = f"UPDATE jobs SET status = ?, ad = {_NEW_AD}(proc) WHERE cluster = ? AND proc BETWEEN ? AND ?"
        self._batch.bulk.append(_Statement(sql, rows, ad_of))

    def put_cluster(self, cluster: Cluster, *, complete: bool, new: bool) -> None:
        """A cluster, as it is now. complete: all parts of its submit have come."""
        if new:
            self.do(
                "INSERT INTO clusters (id, user, submitter, qdate, spool, submit_id, next_proc, complete, ad) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    cluster.id,
                    cluster.user,
                    cluster.submitter,
                    cluster.qdate,
                    cluster.spool,
                    cluster.submit_id,
                    cluster.next_proc,
                    complete,
                    cluster.ad.pack(),
                ),
            )
        else:
            self.do(
                "UPDATE clusters SET next_proc = ?, complete = ?, ad = ? WHERE id = ?",
                (cluster.next_proc, complete, cluster.ad.pack(), cluster.id),
            )

    def put_factory(self, cluster: Cluster) -> None:
        """Where the factory of a cluster stands."""
        self.do(
            "UPDATE clusters SET next_proc = ?, ad = ? WHERE id = ?", (cluster.next_proc, cluster.ad.pack(), cluster.id)
        )

    def drop_cluster(self, cluster: int) -> None:
        self.do("DELETE FROM clusters WHERE id = ?", (cluster,))

    def put_new_jobs(self, rows: list[tuple[Any, ...]]) -> None:
        """Jobs that are not in the database yet: (cluster, proc, status, priority, submitter, packed ad)."""
        self.do_many(
            "INSERT INTO jobs (cluster, proc, status, priority, submitter, ad) VALUES (?, ?, ?, ?, ?, ?)", rows
        )

    def put_items(self, rows: list[tuple[int, int, int, bytes]]) -> None:
        """Jobs that are not materialized yet: (cluster, first proc, count, packed items)."""
        self.do_many("INSERT INTO items (cluster, first_proc, count, body) VALUES (?, ?, ?, ?)", rows)

    def drop_items(self, cluster: int, first_proc: int | None = None) -> None:
        """One piece of them; None: all of a cluster."""
        if first_proc is None:
            self.do("DELETE FROM items WHERE cluster = ?", (cluster,))
        else:
            self.do("DELETE FROM items WHERE cluster = ? AND first_proc = ?", (cluster, first_proc))

    def put_meta(self, key: str, value: Any) -> None:
        self.do("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def drop_meta(self, key: str) -> None:
        self.do("DELETE FROM meta WHERE key = ?", (key,))

    def remember_submit(
        self, key: tuple[str, str], part: int, cluster: int, first_proc: int, count: int, at: float
    ) -> None:
        """How a part of a submit was answered. key: user and submit_id."""
        self.do(
            "INSERT OR REPLACE INTO submits (user, submit_id, part, cluster, first_proc, count, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, part, cluster, first_proc, count, int(at)),
        )

    def discard_submit(self, key: tuple[str, str], cluster: int | None) -> None:
        """Nothing of a submit stays, and nothing of the cluster that it began."""
        self.do("DELETE FROM submits WHERE user = ? AND submit_id = ?", key)
        if cluster is not None:
            self.do("DELETE FROM jobs WHERE cluster = ?", (cluster,))
            self.drop_items(cluster)
            self.drop_cluster(cluster)

    def forget_submits(self, *, before: float) -> None:
        """Forget how submits were answered that came before a time."""
        self.do("DELETE FROM submits WHERE at < ?", (int(before),))

    def put_log_event(self, number: int, path: str, text: bytes) -> None:
        """What a user's log is to say; see drop_log_events."""
        # As bytes: a path need not be UTF-8, and SQLite takes no other text.
        row = (number, path.encode("utf-8", "surrogateescape"), text)
        self.do("INSERT INTO log_events (seq, path, text) VALUES (?, ?, ?)", row)

    def drop_log_events(self, last: int) -> None:
        """Those up to this one are in their logs."""
        self.do("DELETE FROM log_events WHERE seq <= ?", (last,))

    def put_output(self, job: JobId, attempt: int, plan: bytes) -> None:
        """Where the output of a run that was received is to be put."""
        row = (job.cluster, _stored_proc(job), attempt, plan)
        self.do("INSERT OR REPLACE INTO outputs (cluster, proc, attempt, plan) VALUES (?, ?, ?, ?)", row)

    def drop_output(self, job: JobId) -> None:
        self.do("DELETE FROM outputs WHERE cluster = ? AND proc = ?", (job.cluster, _stored_proc(job)))

    def do(self, sql: str, row: tuple[Any, ...]) -> None:
        bulk = self._batch.bulk
        if bulk and bulk[-1].sql == sql and isinstance(last := bulk[-1].rows, list):
            last.append(row)
        else:
            bulk.append(_Statement(sql, [row]))

    def do_many(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        self._batch.bulk.append(_Statement(sql, rows))

    def commit(self) -> asyncio.Future[None]:
        """Write everything put so far; the future is done when it is on disk."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if self._failed is not None:
            done.set_exception(QueueDamaged(f"{self.path}: {self._failed}"))
            return done
        self._batch.waiting.append(done)
        self.flush()
        return done

    def flush(self) -> None:
        """Write everything put so far, soon; nobody waits."""
        if self._writer is None and self._batch and self._failed is None:
            self._writer = asyncio.get_running_loop().create_task(self._write(), name="schedd:queue")

    async def _write(self) -> None:
        """Transactions, one after the other, as long as there is something to write."""
        loop = asyncio.get_running_loop()
        try:
            while self._batch:
                batch, self._batch = self._batch, _Batch()
                self._leaving = batch.leaving()
                try:
                    # Packed here, so that the thread never sees an ad that the loop is changing.
                    jobs = [
                        (cluster, proc, int(job.status), job.priority, job.submitter, job.ad.keep_packed())
                        for (cluster, proc), job in batch.jobs.items()
                    ]
                    claims = [(key, claim.pack()) for key, claim in batch.claims.items()]
                    work = partial(self._attempt, batch.bulk, jobs, claims)
                    while trouble := await loop.run_in_executor(self._thread, work):
                        self._note_room(trouble)
                        await asyncio.sleep(FULL_S)
                    self._note_room("")
                    self._compare(batch, jobs)
                    for job in batch.jobs.values():
                        job.settle()
                except Exception as error:  # noqa: BLE001  a value SQLite can not take is no sqlite3.Error
                    # Whatever it is: who waits must hear of it, or the daemon would stand still without ending.
                    self._failed = error
                    problem = QueueDamaged(
                        f"{self.path}: cannot be written: {error}. Make room or mend the file, and start it again"
                    )
                    for future in (*batch.waiting, *self._batch.waiting):
                        if not future.done():
                            future.set_exception(problem)
                    return
                for future in batch.waiting:
                    if not future.done():
                        future.set_result(None)
        finally:
            self._writer, self._leaving = None, []

    def _compare(self, batch: _Batch, written: list[tuple[Any, ...]]) -> None:
        """What was written must be what is in memory now, unless it is to be written again."""
        pending = self._batch
        for cluster, proc, status, priority, submitter, _ in written:
            key = (cluster, proc)
            job = batch.jobs[key]
            if key in pending.jobs or key in pending.left:
                continue
            if (int(job.status), job.priority, job.submitter) != (status, priority, submitter):
                self._unsaved.append(
                    f"job {cluster}.{proc} has status {int(job.status)} in memory and {status} in the database, and "
                    "nothing is to be written of it"
                )

    def check_invariants(self) -> list[str]:
        """Jobs that were not the same in memory and in the database, since this was asked last."""
        found, self._unsaved = self._unsaved, []
        return found

    def _note_room(self, reason: str) -> None:
        if self.full != reason:
            self.full = reason
            self._on_full(reason)

    @property
    def failed(self) -> BaseException | None:
        """Why nothing can be written any more: the daemon must end then, so that it is started again."""
        return self._failed

    # In the writer's thread

    def _open(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        try:
            private_files.make_database(self.path)
            database = sqlite3.connect(self.path, isolation_level=None)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA wal_autocheckpoint = 4000")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                database.executescript(f"BEGIN; {_TABLES} {_ITEMS} PRAGMA user_version = {SCHEMA}; COMMIT;")
            elif version == 1:
                database.executescript(f"BEGIN; {_ITEMS} PRAGMA user_version = {SCHEMA}; COMMIT;")
            elif version != SCHEMA:
                raise QueueDamaged(
                    f"{self.path}: is of version {version}; this schedd reads {SCHEMA}. Run the Roost that wrote it"
                )
            database.executescript(_EPOCHS)
        except sqlite3.Error as error:
            raise QueueDamaged(f"{self.path}: {error}; move the file away to begin with an empty queue") from error
        self._database = database
        return database

    def _attempt(
        self,
        bulk: list[_Statement],
        jobs: list[tuple[Any, ...]],
        claims: list[tuple[str, bytes]],
    ) -> str:
        """Run the transaction. Returns why nothing was changed when the disk has no room for it."""
        try:
            self._transaction(bulk, jobs, claims)
        except sqlite3.OperationalError as error:
            if self._closing or not disk_space.is_full(error):
                raise
            self._shorten()
            return f"{self.path}: {error}"
        return ""

    def _shorten(self) -> None:
        """Truncate the write-ahead log: it keeps megabytes when it was long once."""
        with contextlib.suppress(sqlite3.OperationalError):  # no room even for that
            self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _transaction(
        self,
        bulk: list[_Statement],
        jobs: list[tuple[Any, ...]],
        claims: list[tuple[str, bytes]],
    ) -> None:
        database = self._open()
        began = time.perf_counter()
        database.execute("BEGIN IMMEDIATE")
        try:
            for sql, rows, ad_of in bulk:
                if ad_of is not None:
                    database.create_function(_NEW_AD, 1, ad_of)
                database.executemany(sql, rows)
            if jobs:
                # A job that left meanwhile was taken out of the batch; one of a cluster that is gone can not come back.
                database.executemany(
                    "INSERT INTO jobs (cluster, proc, status, priority, submitter, ad) VALUES (?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET status = excluded.status, priority = excluded.priority, "
                    "submitter = excluded.submitter, ad = excluded.ad",
                    jobs,
                )
            if claims:
                database.executemany("INSERT OR REPLACE INTO claims (id, body) VALUES (?, ?)", claims)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self.durations.add(time.perf_counter() - began)


#: Outputs of nodes of parallel jobs are stored as those of procs beyond this times their number, and one.
_NODES_FROM: Final = 1 << 40


def _stored_proc(job: JobId) -> int:
    return job.proc + (job.node + 1) * _NODES_FROM


def output_of(cluster: int, stored: int) -> JobId:
    """The job, or the node of one, that a row of `outputs` is of."""
    node, proc = divmod(stored, _NODES_FROM)
    return JobId(cluster, proc, node - 1)


def rows(database: sqlite3.Connection, sql: str, values: Iterable[Any] = ()) -> Iterator[tuple[Any, ...]]:
    """The rows of a query."""
    yield from database.execute(sql, tuple(values))
