"""Facts that wait for the broker, on the disk of who says them: who is killed meanwhile tells them in its next life,
under the ids that they had.

A fact is handed to the kernel as it is said, so `kill -9` loses none; a power failure may. Nothing is written while
there is a broker. A disk without room, or a file that can not be read, keeps nobody from speaking.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from shared.bus.outbox import MOST_BYTES, Fact
from shared.state.journal import Command, Journal

#: Bytes on the disk: as the oldest facts go from a memory that is full, later ones are not kept here.
MOST: Final = 2 * MOST_BYTES


def place(spool: Path, sender: str) -> Path:
    """The file of a sender."""
    return spool / f"{sender.replace('/', '_')}.facts"


class Shelf:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._log = structlog.stdlib.get_logger().bind(file=str(path))
        self._open = False
        self.used = False  # whether facts are on it
        self.trouble = ""

    def take(self) -> list[Fact]:
        """What the last life left, in the order in which it was said."""
        found: dict[str, Fact] = {}
        try:
            if not self._journal.path.exists():
                return []
            for record in self._journal.open():
                for fact in map(_fact, record):
                    found.setdefault(fact.id, fact)
        except (OSError, ValueError) as error:
            self._note(f"{type(error).__name__}: {error}")
            return list(found.values())
        if self._journal.damaged is not None:
            self._log.error("facts_damaged", set_aside=str(self._journal.damaged))
        self._open, self.used = True, bool(found)
        return list(found.values())

    def add(self, facts: Iterable[Fact]) -> None:
        """Put these on it, if there is room."""
        record = [_command(fact) for fact in facts]
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


def _command(fact: Fact) -> Command:
    return [fact.key.encode(), fact.data, fact.id.encode(), fact.type.encode(), repr(fact.said).encode()]


def _fact(command: Command) -> Fact:
    """Raises ValueError for what was written by somebody else."""
    key, data, name, kind, said = command
    return Fact(key.decode(), data, name.decode(), kind.decode(), float(said))
