"""What a restarted startd must know: its claims, the runs on them, and the claim ids it has offered.

SQLite in WAL mode. A commit survives `kill -9` of this process at once (some 40 us), and a power cut once the file
was synced. A power cut also ends every job of this machine, so what it could lose is a result that the schedd has not
confirmed: `sync` is called before such a result waits for a second attempt to report it. The file holds claim ids
and tokens, so only its owner may read it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgpack

from shared import private_files
from shared.disk_space import is_full
from shared.errors import RetryableError
from shared.stored_versions import STARTD_JOURNAL

SCHEMA = STARTD_JOURNAL


class JournalFull(RetryableError):
    """The disk has no room for it; nothing was changed."""


class Journal:
    """Tables of packed records by key."""

    TABLES = ("claims", "runs", "offers", "waiting", "steering", "images", "past", "leases", "clock")

    def __init__(self, path: Path) -> None:
        self.path = path
        private_files.make_database(path)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA wal_autocheckpoint = 200")  # little is kept, and a long log takes room from others
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (0, SCHEMA):
            raise ValueError(f"{path} was written by another release (schema {version}, this one reads {SCHEMA})")
        for table in self.TABLES:
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID")
        self._db.execute(f"PRAGMA user_version = {SCHEMA}")
        self._db.execute("CREATE TABLE IF NOT EXISTS identity (id TEXT)")
        if self._db.execute("SELECT count(*) FROM identity").fetchone() == (0,):
            self._db.execute("INSERT INTO identity VALUES (?)", (secrets.token_hex(8),))
        #: Of this journal and no other: two startds of one name may share a Docker engine.
        (self.identity,) = self._db.execute("SELECT id FROM identity").fetchone()

    def load(self, table: str) -> dict[str, dict[str, Any]]:
        rows = self._db.execute(f"SELECT key, data FROM {self._known(table)}").fetchall()
        return {key: msgpack.unpackb(data) for key, data in rows}

    def write(self, changes: Iterable[tuple[str, str, Mapping[str, Any] | None]]) -> None:
        """(table, key, record), None to forget it: all of them or none. Raises JournalFull."""
        changes = list(changes)
        if not changes:
            return
        try:
            self._db.execute("BEGIN")
            for table, key, record in changes:
                if record is None:
                    self._db.execute(f"DELETE FROM {self._known(table)} WHERE key = ?", (key,))
                else:
                    statement = f"INSERT OR REPLACE INTO {self._known(table)} VALUES (?, ?)"
                    self._db.execute(statement, (key, msgpack.packb(record)))
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if is_full(error):
                raise JournalFull(f"{self.path}: {error}") from error
            raise

    def sync(self) -> None:
        """Bring everything to the disk. Blocks for some milliseconds; may be called in a thread."""
        for suffix in ("", "-wal"):
            try:
                fd = os.open(f"{self.path}{suffix}", os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        self._db.close()

    def _known(self, table: str) -> str:
        if table not in self.TABLES:
            raise ValueError(table)
        return table
