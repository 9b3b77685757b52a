"""The checkpoint file: how far each source has been exported. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

VERSION: Final = 1


class BadCheckpoint(ValueError):
    """No checkpoint of ours."""


@dataclass(slots=True)
class SourceCheckpoint:
    """newest: job_of the newest record that has been exported, of a schedd. offsets: by inode, bytes of files that have
    been read. passes: how many have been completed."""

    newest: str = ""
    offsets: dict[str, int] = field(default_factory=dict)
    passes: int = 0


@dataclass(slots=True)
class Checkpoint:
    of: dict[str, SourceCheckpoint] = field(default_factory=dict)  # by source

    def text(self) -> str:
        sources = {
            name: {"newest": mark.newest, "offsets": mark.offsets, "passes": mark.passes}
            for name, mark in sorted(self.of.items())
        }
        return json.dumps({"version": VERSION, "sources": sources}, indent=1) + "\n"

    @staticmethod
    def parse(text: str) -> Checkpoint:
        """Raises BadCheckpoint."""
        try:
            found: Any = json.loads(text)
            if found["version"] != VERSION:
                raise BadCheckpoint(f"its version is {found['version']!r}, and this is for {VERSION}")
            marks = Checkpoint()
            for name, told in found["sources"].items():
                offsets = {str(inode): int(offset) for inode, offset in told["offsets"].items()}
                if any(offset < 0 for offset in offsets.values()):
                    raise BadCheckpoint("an offset is negative")
                marks.of[str(name)] = SourceCheckpoint(str(told["newest"]), offsets, int(told["passes"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, BadCheckpoint):
                raise
            raise BadCheckpoint(f"it is no checkpoint: {type(error).__name__}: {error}") from error
        return marks
