"""Where a durable consumer over HTTP stands: the id of the last event it took, in a file of its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from roost.errors import ClientError

#: A crash repeats what was taken since the last write.
SAVE_EVERY_S = 0.5


class Position:
    """Of one consumer. Raises ClientError for a file that can not be read or written, or is no position."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved_at = 0.0
        self._saved = self.last = self._read()
        self.save(check=True)

    def _read(self) -> str:
        try:
            return str(json.loads(self._path.read_text())["after"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ClientError(
                f"{self._path} holds no position of a consumer ({error}): remove it to begin with the next event"
            ) from error

    def taken(self, ident: str) -> None:
        self.last = ident
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
                json.dump({"after": self.last}, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise ClientError(f"the position can not be written to {self._path}: {error.strerror}") from error
        self._saved, self._saved_at = self.last, time.monotonic()
