"""The interface of a target. A pass over one source is `begin`, any number of `put`, and `commit` once everything was
put.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.adstash.core.documents import Document
from shared.errors import PermanentError, RetryableError


class TargetUnavailable(RetryableError):
    """It takes nothing at the moment: what has not been committed is exported again."""


class TargetRefuses(PermanentError):
    """It will take nothing as things are configured: the text says why, and the mend."""


@dataclass(slots=True)
class Counts:
    """Documents, so far."""

    exported: int = 0
    there: int = 0  # that had been exported before
    refused: int = 0  # for good
    bare: int = 0  # exported without attributes that only their users know
    reason: str = ""  # of the newest refusal


class Target(Protocol):
    counts: Counts

    async def open(self) -> None:
        """Make ready what takes the documents. Raises TargetUnavailable, TargetRefuses."""

    async def begin(self, source: str, number: int) -> None:
        """Begin with a pass. number: of passes of this source that have been completed."""

    async def put(self, documents: Sequence[Document]) -> None:
        """Take documents; those that are there already stay as they are."""

    async def commit(self) -> None:
        """The pass is over, and all of it is to be kept."""

    async def close(self) -> None: ...
