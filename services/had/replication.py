"""Copies the accountant's records to this machine's disk, and restores the records of a Redis that lost them (spec rows
HA-13 to HA-18).

The reference implementation sends files from one central manager to the others. Here each HAD copies from Redis by
itself, so nobody but Redis must be reachable, and a copy that fails harms no other.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.had.core.snapshot import Snapshot, next_after
from services.had.snapshot_file import SnapshotFiles
from shared.accounting_version import NOTHING, BadVersion, Version
from shared.config.knobs import HadSettings
from shared.daemon import closed_files
from shared.daemon.context import Context
from shared.daemon.events import announce
from shared.errors import RetryableError
from shared.messages.events import BooksRestored, SnapshotRefused
from shared.state.accounting import StoredRecords, begin_records, read_records, restore_records

#: A change of an administrator's is copied after this long: others may follow at once (s).
SOON_S = 1.0


class Replication:
    """One HAD's copies. `version`: of the newest one, NOTHING where there is none."""

    def __init__(self, context: Context, settings: HadSettings, shard: str) -> None:
        ending = f".{shard}" if shard else ""
        self.enabled = settings.had_use_replication
        epoch_file = f"had.{context.name.replace('/', '_')}{ending}.epoch"
        self.disk = SnapshotFiles(Path(settings.state_file + ending), context.spool / epoch_file, shard)
        self.version: Version = NOTHING
        self.taken = 0.0
        self.problem = ""  # why there is no newer copy
        self.source = ""  # where the books came from that were restored last
        self._context = context
        self._shard = shard
        self.configure(settings)
        self._epoch = 0  # on disk
        self._wanted = asyncio.Event()
        self._copying = asyncio.Lock()

    def configure(self, settings: HadSettings) -> None:
        """What may change while it runs: how often the books are copied, and how long that may take."""
        self._interval_s = float(settings.replication_interval)
        self._patience_s = float(settings.max_transfer_lifetime)

    async def start(self) -> int:
        """Look at what is on disk; returns the highest epoch seen. What can not be read is refused and told."""
        closed_files.tell(await asyncio.to_thread(self.disk.close_files), self._context.log)
        found = await asyncio.to_thread(self.disk.read)
        if found.snapshot is not None and self.enabled:
            self.version, self.taken = found.snapshot.version, found.snapshot.taken
        await self._tell_of(found.problems)
        self._epoch = found.epoch
        return found.epoch

    async def remember(self, epoch: int) -> None:
        """Have this epoch on disk, so that none is given twice though Redis and all HADs are lost at once. A disk that
        does not take it is told of: the pool needs a leader all the same."""
        if epoch <= self._epoch:
            return
        try:
            await asyncio.to_thread(self.disk.write_epoch, epoch)
        except OSError as error:
            self._context.log.error("epoch_not_kept", file=str(self.disk.epoch_file), epoch=epoch, error=str(error))
        self._epoch = epoch

    # Copying

    def soon(self) -> None:
        """Something changed that should not wait for the next copy."""
        self._wanted.set()

    async def keep_copying(self) -> None:
        """Root task."""
        clock = self._context.clock
        wait = SOON_S
        while True:
            if not self.enabled:
                await asyncio.Event().wait()
            self._wanted.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._wanted.wait()
                await clock.sleep(SOON_S)
            except TimeoutError:
                pass
            began = clock.monotonic()
            await self.copy()
            wait = next_after(clock.monotonic() - began, self._interval_s)

    async def copy(self) -> None:
        """Copy the books, if they are newer than the last copy; a failure is told, and tried again later."""
        if not self.enabled:
            return
        log = self._context.log
        try:
            async with self._copying, asyncio.timeout(self._patience_s or None):
                books = await read_records(self._context.store, self._shard)
                if books.version > self.version:
                    now = self._context.clock.now()
                    rows = (books.submitters, books.groups, books.claims)
                    snapshot = Snapshot(books.version, now, self._shard, *rows)
                    await asyncio.to_thread(self.disk.write, snapshot)
                    self.version, self.taken = books.version, now
                    log.debug("books_copied", version=books.version.text, file=str(self.disk.state_file))
        except (RetryableError, BadVersion, OSError, TimeoutError) as error:
            problem = f"{type(error).__name__}: {error}"
            if problem != self.problem:
                log.warning("books_not_copied", file=str(self.disk.state_file), reason=problem)
            self.problem = problem
        else:
            self.problem = ""

    # Restoring

    async def restore(self, epoch: int, in_redis: Version, memory: Version, known: Version) -> None:
        """Give Redis the newest books there are: the copy on disk, or those that the negotiator has in memory (which it
        writes itself when it is told to lead), or those that Redis has. Raises StaleEpoch, StoreUnavailable."""
        store, shard = self._context.store, self._shard
        snapshot = None
        in_redis = max(NOTHING, in_redis)
        if self.version > max(in_redis, memory):
            found = await asyncio.to_thread(self.disk.read)
            await self._tell_of(found.problems)
            snapshot = found.snapshot
            self.version = NOTHING if snapshot is None else snapshot.version
        if snapshot is not None and snapshot.version > max(in_redis, memory):
            books = StoredRecords(snapshot.version, snapshot.submitters, snapshot.groups, snapshot.claims)
            after = await restore_records(store, shard, epoch, books)
            await self._tell("snapshot", epoch, snapshot.version, known, after)
        elif memory > in_redis:
            await self._tell("memory", epoch, memory, known, memory)
        else:
            after = await begin_records(store, shard, epoch, max(NOTHING, known))
            if known > NOTHING:
                await self._tell("nothing newer", epoch, in_redis, known, after)

    async def _tell(self, source: str, epoch: int, version: Version, known: Version, after: Version) -> None:
        if self.source == f"{source} {after.text}":
            return
        self.source = f"{source} {after.text}"
        self._context.log.warning(
            "books_restored", source=source, epoch=epoch, version=version.text, known=known.text, after=after.text
        )
        await announce(
            self._context,
            BooksRestored(
                at=self._context.clock.now(),
                had=self._context.name,
                shard=self._shard,
                epoch=epoch,
                source=source,
                restored=version.text,
                newest_known=known.text,
            ),
        )

    async def _tell_of(self, problems: list[str]) -> None:
        for problem in problems:
            self._context.log.error("snapshot_refused", problem=problem)
            at, had = self._context.clock.now(), self._context.name
            await announce(self._context, SnapshotRefused(at=at, had=had, shard=self._shard, problem=problem))
