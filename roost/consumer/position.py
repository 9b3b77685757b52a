"""The position of a durable consumer over HTTP: the ids of the events that it took last, in a file of its own."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import IO, Final

from roost.errors import ClientError

#: A crash repeats what was taken since the last write.
SAVE_EVERY_S: Final = 0.5
#: Ids before the last one: what a journal tells again, since the clocks of daemons differ, is known by them.
RECENT: Final = 2000


class Position:
    """Of one consumer. Raises ClientError for a file that can not be read or written, or is no position."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved_at = 0.0
        self._lock: IO[str] | None = None
        self.recent: deque[str] = deque(self._read(), RECENT)
        self._saved = self.last
        self.save(check=True)

    def hold(self) -> None:
        """Two consumers of one name would each take half a place. Raises ClientError where there is another."""
        if self._lock is None:
            lock = self._path.with_name(self._path.name + ".lock").open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise ClientError(f"another consumer goes on from {self._path}: give this one another name") from None
            self._lock = lock

    def let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def last(self) -> str:
        return self.recent[-1] if self.recent else ""

    def _read(self) -> list[str]:
        try:
            return [str(ident) for ident in json.loads(self._path.read_text())["taken"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClientError(
                f"{self._path} holds no position of a consumer ({error!r}): remove it to begin with the next event"
            ) from error

    def taken(self, ident: str) -> None:
        self.recent.append(ident)
        if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            self.save()

    def save(self, *, check: bool = False) -> None:
        """Write it, if there is news. check: in any case."""
        if self.last == self._saved and not check:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_name(self._path.name + ".new")
            with new.open("w") as file:
                json.dump({"taken": list(self.recent)}, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise ClientError(f"the position can not be written to {self._path}: {error.strerror}") from error
        self._saved, self._saved_at = self.last, time.monotonic()
