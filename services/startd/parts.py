"""How the rooms of a startd fit together: what each may use of the others, and what a part may have.

A part is something a startd has beside slots, claims and runs: containers, cron jobs, hooks. It is named once, in
`daemon.PARTS`, and everything it does it does by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from services.startd.ads.showcase import Showcase
from services.startd.book.answers import Changes
from services.startd.book.claims import Book
from services.startd.book.leases import Leases
from services.startd.book.slots import Claim
from services.startd.launchers.api import Launcher
from services.startd.machine.detection import Detected
from services.startd.machine.division import Partition
from services.startd.settings import Settings
from services.startd.starter.client import ForkServer
from services.startd.walls.warden import Warden
from shared.daemon.context import Context
from shared.messages.base import Envelope, Message
from shared.messages.claims import JobReport

if TYPE_CHECKING:
    from services.startd.herald import Herald
    from services.startd.ledger import Ledger
    from services.startd.runs import Runs
    from services.startd.starter.run import Run

Handler = Callable[[Envelope], Awaitable[Message]]


class Inside(Protocol):
    """The startd, seen from its rooms. `settings` is replaced whole when the configuration is read again."""

    context: Context
    name: str
    detected: Detected
    settings: Settings
    book: Book
    leases: Leases
    showcase: Showcase
    ledger: Ledger
    herald: Herald
    runs: Runs
    fork_server: ForkServer
    warden: Warden
    launchers: dict[str, Launcher]  # by name: process, docker, ...

    def now(self) -> float:
        """Wall clock, seconds."""

    def disk_of(self, execute: str) -> Partition:
        """The file system that a directory is on, and what is free there."""

    def write_down(self) -> None:
        """Carry out what the book has changed: call it after every change of the book."""

    def look(self) -> None:
        """Have the policy looked at soon: something that it reads has changed."""

    def changed(self, slots: Iterable[str] | None = None, *, urgent: bool = False) -> None:
        """These slots (None: all) have other attributes than the pool knows."""

    def leased(self, claim: Claim) -> None:
        """The lease of this claim begins anew."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do it in the background; ended with the daemon."""


class Part:
    """See the module. Everything here may be left as it is."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside

    async def setup(self) -> None:
        """Before runs of an earlier life are taken up, and before any request."""

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Named tasks that run until cancelled."""
        return {}

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Requests that it answers, by the type of the message."""
        return {}

    def on_changes(self, changes: Changes) -> None:
        """The book has changed, and it is written down."""

    def run_started(self, run: Run) -> None:
        """A run was taken up: it is new, or of an earlier life."""

    def run_reported(self, run: Run, report: JobReport) -> None:
        """A run of fetched work, which no access point hears of, goes on or has ended."""

    def run_over(self, run: Run) -> None:
        """The processes of a run are gone and its end is written down."""

    def reread(self) -> None:
        """`inside.settings` are new ones."""

    async def close(self) -> None:
        """The daemon ends; also after a failed setup."""
