"""Handles each event exactly once, though events may come twice: what an event leads to and the event's id are written
in one SQLite transaction, so either both are there or neither is.

    store = Once("ended.sqlite", "CREATE TABLE IF NOT EXISTS ended (job TEXT, code INTEGER)")

    @consumer.on(JobEnded, once=store)
    def count(ended, db):
        db.execute("INSERT INTO ended VALUES (?, ?)", (ended.job_id, ended.exit_code))

What is done elsewhere (a mail, a call of another service) can be done twice, if the program dies in between: write it
to a table here, and send from that.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

#: Longer than any queue or journal keeps an event.
KEEP_S: Final = 30 * 86400.0
PRUNE_EVERY: Final = 1000


class Transaction:
    """The writes that belong to one event. They are committed together, after the handler."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Iterable[Any] | dict[str, Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(sql, values if isinstance(values, dict) else tuple(values))

    def executemany(self, sql: str, rows: Iterable[Iterable[Any]]) -> sqlite3.Cursor:
        return self._connection.executemany(sql, (tuple(row) for row in rows))


class Once:
    """path: of the SQLite file, made when it is not there. schema: statements run when it is opened. keep_s: how long
    ids are remembered. One process at a time writes; it may use it from any of its threads."""

    def __init__(self, path: str | os.PathLike[str], schema: str = "", *, keep_s: float = KEEP_S) -> None:
        self._keep_s = keep_s
        self._taken = 0
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
        self._connection.execute("PRAGMA journal_mode = WAL")
        # An event is acknowledged after its commit: that must be on the disk by then.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS roost_taken (id TEXT PRIMARY KEY, at REAL) WITHOUT ROWID")
        self._connection.execute("CREATE INDEX IF NOT EXISTS roost_taken_at ON roost_taken (at)")
        if schema:
            self._connection.executescript(schema)
        # Of its own, so that a handler at work may look at what was committed before.
        self._reading = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
        self._reading_lock = threading.Lock()

    @contextlib.contextmanager
    def taking(self, ident: str) -> Iterator[Transaction | None]:
        """The transaction for the event with this id, committed at the end of the block and rolled back where that
        raises. None: it was taken before, there is nothing to do."""
        with self.writing() as db:
            now = time.time()
            row = db.execute("INSERT INTO roost_taken VALUES (?, ?) ON CONFLICT DO NOTHING", (ident, now))
            yield db if row.rowcount else None
            self._prune(now)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that belongs to no event."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(self._connection)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def taken(self, ident: str) -> bool:
        return bool(self.query("SELECT 1 FROM roost_taken WHERE id = ?", (ident,)))

    def query(self, sql: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of what was written and committed."""
        with self._reading_lock:
            return self._reading.execute(sql, tuple(values)).fetchall()

    def close(self) -> None:
        with self._reading_lock:
            self._reading.close()
        with self._lock:
            self._connection.close()

    def _prune(self, now: float) -> None:
        self._taken += 1
        if self._taken % PRUNE_EVERY == 0:
            self._connection.execute("DELETE FROM roost_taken WHERE at < ?", (now - self._keep_s,))
