"""What is to be written into the journal, gathered into few transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from services.startd.journal import Journal, JournalFull
from shared.daemon.context import Context

#: What may wait is written after this time at the latest, seconds.
JOURNAL_S = 0.5
#: How often what found no room on the disk is written again, seconds.
FULL_S = 1.0


class JournalWriter:
    """Gathers records for the journal. `full`: why the journal can not be written for now; empty: it can."""

    def __init__(self, journal: Journal, context: Context) -> None:
        self.journal = journal
        self.full = ""
        self._log = context.log
        self._unwritten: dict[tuple[str, str], Mapping[str, Any] | None] = {}  # by (table, key)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def unwritten(self) -> int:
        """Records that are still to be written."""
        return len(self._unwritten)

    def put(self, table: str, key: str, record: Mapping[str, Any] | None) -> None:
        """To be written with whatever is written next; None: to be forgotten."""
        self._unwritten[table, key] = record

    def write_soon(self) -> None:
        """Write what was put, half a second from now at the latest."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(JOURNAL_S, self.write)

    def write(self) -> None:
        """Write everything that was put, in one transaction."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows, self._unwritten = self._unwritten, {}
        try:
            self.journal.write([(table, key, record) for (table, key), record in rows.items()])
        except JournalFull as error:
            # Jobs go on and end meanwhile; only a crash before there is room runs some of them again.
            self._unwritten = rows | self._unwritten
            if not self.full:
                self._log.error("spool_full", reason=str(error))
            self.full = str(error)
            if not self._closed:
                self._timer = asyncio.get_running_loop().call_later(FULL_S, self.write)
        except BaseException:
            self._unwritten = rows | self._unwritten
            raise
        else:
            self.full = ""

    async def sync(self) -> None:
        """Bring what was written to the disk."""
        await asyncio.to_thread(self.journal.sync)

    def close(self) -> None:
        self._closed = True
        self.write()
        if self._timer is not None:
            self._timer.cancel()
        self.journal.close()
