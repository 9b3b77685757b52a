"""Keeps events that wait for the broker on the sender's disk: a daemon that is killed meanwhile publishes them in its
next life, under the same ids.

An event is handed to the kernel at once, so `kill -9` loses none; a power failure may. Nothing is written while there
is a broker. A full disk, or a file that can not be read, keeps nobody from publishing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from shared.bus.outbox import MOST_BYTES, PendingEvent
from shared.state.append_log import Command, Journal

#: Bytes on the disk: as the oldest events go from a memory that is full, later ones are not kept here.
MOST: Final = 2 * MOST_BYTES


def spool_file(spool: Path, sender: str) -> Path:
    """The file of a sender."""
    return spool / f"{sender.replace('/', '_')}.facts"


class EventSpool:
    """The file in which one sender keeps events that wait for the broker."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._log = structlog.stdlib.get_logger().bind(file=str(path))
        self._open = False
        self.used = False  # whether events are on it
        self.trouble = ""

    def take(self) -> list[PendingEvent]:
        """What the last life left, in the order in which it was said."""
        found: dict[str, PendingEvent] = {}
        try:
            if not self._journal.path.exists():
                return []
            for record in self._journal.open():
                for event in map(_event_of, record):
                    found.setdefault(event.id, event)
        except (OSError, ValueError) as error:
            self._note(f"{type(error).__name__}: {error}")
            return list(found.values())
        if self._journal.damaged is not None:
            self._log.error("facts_damaged", set_aside=str(self._journal.damaged))
        self._open, self.used = True, bool(found)
        return list(found.values())

    def add(self, events: Iterable[PendingEvent]) -> None:
        """Put these on it, if there is room."""
        record = [_command(event) for event in events]
        if not record or self._journal.size > MOST:
            return
        try:
            if not self._open:
                for _ in self._journal.open():
                    pass
                self._open = True
            self._journal.append(record)
            self.used = True
        except OSError as error:
            self._note(f"{type(error).__name__}: {error}")

    def clear(self) -> None:
        """The broker has them all."""
        if self.used:
            self._journal.empty()
            self.used, self.trouble = False, ""

    def close(self) -> None:
        if self._open:
            self._open = False
            self._journal.close()

    def _note(self, trouble: str) -> None:
        if not self.trouble:
            self._log.warning("facts_not_kept", reason=trouble)
        self.trouble = trouble


def _command(event: PendingEvent) -> Command:
    return [event.key.encode(), event.data, event.id.encode(), event.type.encode(), repr(event.said).encode()]


def _event_of(command: Command) -> PendingEvent:
    """Raises ValueError for what was written by somebody else."""
    key, data, name, kind, said = command
    return PendingEvent(key.decode(), data, name.decode(), kind.decode(), float(said))
