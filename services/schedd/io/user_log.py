"""Writes events into the users' logs of jobs (`log = file`); `shared.job_log` says what they look like.

`UserLog` writes in a thread of its own. Events lie in the queue's database, in the transaction of the change they tell
of, until they are in the file, so a schedd that was killed writes what is missing; whether the last ones are there
already it sees at the end of the file. An event is appended with one write, so many jobs, and many schedds, can share
a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from services.schedd.settings import EventLog, HistoryFile
from shared import history_file, job_log, private_files
from shared.config.knobs.base import to_list
from shared.job_log import BadEvent, LogFollower, LogHead, append

#: How far from its end a log is searched for events that may have been written before a crash, besides their own
#: length: others may have written after them.
TAIL: Final = 256 * 1024


class UserLog:
    """Appends events to users' logs, in a thread. `written(last)` is called on the loop with the highest sequence
    number up to which all is written; `failed(path, reason)` when a log can not be written (they are dropped)."""

    def __init__(
        self,
        written: Callable[[int], None],
        failed: Callable[[str, str], None],
        now: Callable[[], float] = time.time,
        creator: str = "",
    ) -> None:
        self.of_all = EventLog()
        self.history = HistoryFile()
        self.per_job = ""  # the directory with a file for each job that is over
        self._now = now
        self._creator = creator  # of the log of all jobs, as its head tells it
        self._written = written
        self._failed = failed
        self._waiting: list[tuple[int, str, bytes]] = []
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="schedd-job-log")
        self._writer: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Events that are not in their logs yet."""
        return len(self._waiting)

    def write(self, events: Sequence[tuple[int, str, bytes]]) -> None:
        """Events as (sequence number, path, text), ascending; they must be committed already."""
        self._waiting += events
        if self._writer is None and self._waiting:
            self._writer = asyncio.get_running_loop().create_task(self._write(), name="schedd:job-log")

    async def recover(self, events: Sequence[tuple[int, str, bytes]]) -> None:
        """Write the events that a schedd left behind, but those that are in their files."""
        loop = asyncio.get_running_loop()
        older = {self.of_all.path: self.of_all.older()[:1]} if self.of_all.path else {}
        if self.history.path:
            older[self.history.path] = history_file.away(Path(self.history.path))[-1:]
        missing = await loop.run_in_executor(self._thread, missing_events, list(events), older)
        done = {sequence for sequence, _, _ in events} - {sequence for sequence, _, _ in missing}
        if done and not missing:
            self._written(max(done))
        elif missing:
            self.write(missing)

    async def close_files(self) -> private_files.Closed:
        """Take the log of all jobs and the history from all but their owner."""
        return await asyncio.to_thread(close_files, self.of_all, self.history)

    async def close(self) -> None:
        """Write what is waiting."""
        while self._writer is not None:
            await self._writer
        self._thread.shutdown()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                problems = await loop.run_in_executor(self._thread, self._append, batch)
                for path, reason in problems.items():
                    self._failed(path, reason)
                self._written(batch[-1][0])
        finally:
            self._writer = None

    def _append(self, batch: Sequence[tuple[int, str, bytes]]) -> dict[str, str]:
        history = self.history
        per_job = {path for _, path, _ in batch if self.per_job and path.startswith(f"{self.per_job}/")}
        for path in (self.of_all.path, history.path, *per_job):
            if path:
                with contextlib.suppress(OSError):  # if it can not be made, `append` says so
                    # Ads of jobs may hold secrets.
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600))
        if self.of_all.path:
            with contextlib.suppress(OSError):  # likewise
                begin(self.of_all, self._creator, self._now())
        problems = append(batch)
        try:
            rotate(self.of_all)
            if _is_large(history):
                history_file.put_away(Path(history.path), self._now(), history.rotations)
        except OSError as error:
            problems[error.filename or self.of_all.path] = f"it can not be put away: {error}"
        return problems


def close_files(log: EventLog, history: HistoryFile) -> private_files.Closed:
    """Take the log of all jobs and the history, and what was put away of both, from all but their owner. Blocks."""
    paths = [Path(log.path), *log.older()] if log.path else []
    if history.path:
        paths += [Path(history.path), *history_file.away(Path(history.path))]
    return private_files.close_all(paths)


def begin(log: EventLog, creator: str, now: float) -> None:
    """Write the head of the log of all jobs, if it is new. Schedds that share it do so once. Raises OSError."""
    if not _is_empty(log.path):
        return
    with _locked(log):
        if not _is_empty(log.path):
            return
        before = log.older()[:1] if log.rotations else []
        head = _after(before[0]) if before else LogHead(1)
        began = f"{now:.6f}"
        event = job_log.log_head(
            now,
            head,
            ident=f"{os.getuid()}.{os.getpid()}.{began}.{head.sequence}.{began}",
            rotations=log.rotations,
            creator=creator,
        )
        append([(0, log.path, job_log.written(event, log.form))])


def _after(path: Path) -> LogHead:
    """The head of the log that follows this one."""
    head, events = LogHead(), 0
    try:
        with LogFollower(str(path)) as file:
            for event in file.read():
                if isinstance(event, BadEvent):
                    continue
                found = job_log.read_log_head(event)
                head = found or head
                events += found is None
        size = path.stat().st_size
    except OSError:
        return LogHead(1)
    return LogHead(head.sequence + 1, head.offset + size, head.event_offset + events)


def rotate(log: EventLog) -> None:
    """The log of all jobs, if it is too large. Schedds that share it do so once. Raises OSError."""
    if not _is_large(log):
        return
    with _locked(log):
        if not _is_large(log):
            return
        if not log.rotations:
            os.unlink(log.path)
        for before, after in log.moves():
            if before.exists():
                before.replace(after)


@contextlib.contextmanager
def _locked(log: EventLog) -> Iterator[None]:
    """Raises OSError."""
    lock = os.open(f"{log.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_empty(path: str) -> bool:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return True
    return stat.S_ISREG(found.st_mode) and not found.st_size


def _is_large(log: EventLog | HistoryFile) -> bool:
    try:
        found = os.stat(log.path) if log.path else None
    except FileNotFoundError:
        return False
    return found is not None and stat.S_ISREG(found.st_mode) and log.must_rotate(found.st_size)


def missing_events(
    events: Sequence[tuple[int, str, bytes]], older: Mapping[str, Sequence[Path]]
) -> list[tuple[int, str, bytes]]:
    """Those of the events that are not at the end of their logs; of one of which only the beginning is there, as its
    write was cut, the rest. older: where some logs were rotated to.

    A log has them in their order, up to one, as they were written with one write: each is looked for behind the one
    before it, and none behind one that is missing. To search the whole end for each takes 7 s for 25,000."""
    by_path: dict[str, list[tuple[int, bytes]]] = {}
    for number, path, text in events:
        by_path.setdefault(path, []).append((number, text))
    missing = []
    for path, texts in by_path.items():
        length = TAIL + sum(len(text) for _, text in texts)
        end = _tail(path, length)
        log = b"".join((*(_tail(str(one), length) for one in older.get(path, ())), end))
        there = at = 0
        for _, text in texts:
            if (found := log.find(text, at)) < 0:
                break
            there, at = there + 1, found + len(text)
        for number, text in texts[there : there + 1]:
            missing.append((number, path, text[_begun(end, text) :]))
        missing += [(number, path, text) for number, text in texts[there + 1 :]]
    return sorted(missing, key=lambda event: event[0])


def _begun(log: bytes, text: bytes) -> int:
    """How much of a text stands at the end of a log."""
    return next((size for size in range(min(len(text) - 1, len(log)), 0, -1) if log.endswith(text[:size])), 0)


def _tail(path: str, length: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""  # not there: nothing was written; and if it can not be read, writing will tell
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""  # a pipe, a device, a directory: what it was told can not be seen
        return os.pread(descriptor, length, max(0, status.st_size - length))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def is_for_dag(event: int, mask: str) -> bool:
    """Whether an event of this number goes into the log of a DAG's nodes. mask: DAGManNodesMask; empty: all do."""
    return not mask or str(event) in to_list(mask)
