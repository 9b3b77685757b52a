"""What the components of a startd work with, and what a component may have.

A component is something a startd has beside slots, claims and runs: cron jobs, hooks, hibernation. It is named once, in
`daemon.COMPONENTS`, and everything it does it does by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from typing import Any

from services.startd.observers import Observer
from services.startd.runs import Runs
from services.startd.slot_services import SlotServices
from shared.messages.base import Envelope, Message

Handler = Callable[[Envelope], Awaitable[Message]]


@dataclass(slots=True, kw_only=True)
class StartdContext(SlotServices):
    """The services of the startd, and the runs."""

    runs: Runs

    @classmethod
    def of(cls, services: SlotServices, runs: Runs) -> StartdContext:
        return cls(**{one.name: getattr(services, one.name) for one in fields(SlotServices)}, runs=runs)


class Component(Observer):
    """A part of a startd. Everything here may be left as it is."""

    def __init__(self, startd: StartdContext) -> None:
        self.startd = startd

    async def setup(self) -> None:
        """Before runs of an earlier life are adopted, and before any request."""

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Named tasks that run until cancelled."""
        return {}

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Requests that it answers, by the type of the message."""
        return {}

    def reread(self) -> None:
        """`startd.settings` are new ones."""

    async def close(self) -> None:
        """The daemon ends; also after a failed setup."""
