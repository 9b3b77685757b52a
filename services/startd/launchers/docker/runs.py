"""A run in a Docker container, as its launcher knows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from hashlib import sha256

from services.startd.launchers.docker import ends
from services.startd.launchers.docker.streams import Streams
from shared.room import is_full


def container_name(run: str) -> str:
    return f"roost-{sha256(run.encode()).hexdigest()[:32]}"


@dataclass(slots=True)
class ContainerRun:
    """A run of ours, from its start until it is forgotten."""

    container: str = ""  # its id
    image: str = ""
    outputs: tuple[str, str] = ("", "")
    append: bool = False
    own_network: bool = True
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    story: ends.Story = field(default_factory=ends.Story)
    fresh: bool = False  # begun by this life, with events heard: its end will be told
    missed: bool = False  # the engine went away meanwhile
    started_at: float = 0.0
    died: ends.State | None = None  # as the engine's events told it
    streams: Streams | None = None

    def note_output(self, error: OSError) -> None:
        self.story.bad_output = f"the job's output could not be written: {error}"
        self.story.no_room = is_full(error)
