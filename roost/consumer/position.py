"""Where a durable consumer over HTTP stands: the ids of the events that it took last, in a file of its own."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Final

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
        self.recent: deque[str] = deque(self._read(), RECENT)
        self._saved = self.last
        self.save(check=True)

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
