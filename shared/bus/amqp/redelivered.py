"""Counts how often messages came back, where the broker does not: those to inboxes, which are classic queues.

A message that ends the process of whoever reads it must not do so for ever, so the count outlives the process: it is
handed to the kernel before the message is given to a handler. It is kept here and not with the message, since whoever
publishes a message again is believed to be its sender by nobody."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Final

import structlog

from shared import private_files
from shared.files import beside

#: Messages that are remembered; of more the oldest are forgotten.
MOST: Final = 1000


def redelivered_file(spool: Path) -> Path:
    """Where a sender keeps its counts: beside the events that wait for the broker (shared.bus.spool)."""
    return spool.with_suffix(".redelivered")


class Redelivered:
    """The counts of one daemon. path: keeps them over restarts; None: each life counts anew."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._counts: OrderedDict[str, int] | None = None

    def again(self, digest: bytes) -> int:
        """The message with this SHA-256 came again: how often it did so by now. Of the whole message: whoever publishes
        one gives it any id."""
        counts = self._read()
        name = digest.hex()
        counts[name] = counts.pop(name, 0) + 1
        while len(counts) > MOST:
            counts.popitem(last=False)
        self._write(counts)
        return counts[name]

    def done(self, digest: bytes) -> None:
        """It will not come again. Written with the next one that does."""
        if self._counts:
            self._counts.pop(digest.hex(), None)

    def _read(self) -> OrderedDict[str, int]:
        if self._counts is None:
            self._counts = OrderedDict()
            if self._path is not None:
                try:
                    found = json.loads(self._path.read_bytes())
                    self._counts.update((name, count) for name, count in found.items() if isinstance(count, int))
                except FileNotFoundError:
                    pass
                except (OSError, ValueError, AttributeError) as error:
                    self._note(error)
        return self._counts

    def _write(self, counts: OrderedDict[str, int]) -> None:
        if self._path is None:
            return
        try:
            # Not on disk: it must outlive this process, not the machine.
            private_files.make_directory(self._path.parent)
            fresh = beside(self._path, ".new")
            with open(fresh, "wb", opener=private_files.opener) as file:
                file.write(json.dumps(counts).encode())
            fresh.replace(self._path)
        except OSError as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        structlog.stdlib.get_logger().warning("redelivered_not_kept", file=str(self._path), reason=str(error))
