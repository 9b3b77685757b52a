"""One pass: exports what is new in each source to the target, and then writes the checkpoint (spec row MON-19)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from services.adstash.core.checkpoint import BadCheckpoint, Checkpoint, SourceCheckpoint
from services.adstash.core.documents import Document
from services.adstash.sources import Source
from services.adstash.target import Target, TargetRefuses, TargetUnavailable
from shared.cooperative import Yielder
from shared.errors import PermanentError, RoostError
from shared.files import replace_on_disk


@dataclass(slots=True)
class PassResult:
    """How a pass went. problems: by source, why it is to be done again."""

    records: int = 0
    problems: dict[str, str] = field(default_factory=dict)


class Exporter:
    """Runs passes over sources, from where the checkpoint says. bunch: documents of one request."""

    def __init__(self, target: Target, checkpoint: Path, bunch: int, log: structlog.stdlib.BoundLogger) -> None:
        self.target, self.checkpoint, self.bunch, self.log = target, checkpoint, bunch, log
        self.marks = Checkpoint()
        self.records = 0
        self.unreadable = 0

    async def read_checkpoint(self) -> None:
        """Raises PermanentError for a file that is no checkpoint: to begin anew is for a person to decide."""
        try:
            self.marks = Checkpoint.parse(await asyncio.to_thread(self.checkpoint.read_text))
        except FileNotFoundError:
            self.marks = Checkpoint()
        except (OSError, BadCheckpoint, UnicodeError) as error:
            raise PermanentError(
                f"checkpoint {self.checkpoint} can not be used: {error}; mend it, or remove it to export all anew"
            ) from error

    async def run(self, sources: Iterable[Source]) -> PassResult:
        """Export all of them. One that fails keeps its mark, and the others go on; a target that takes nothing ends the
        pass."""
        passed = PassResult()
        for source in sources:
            unreadable = source.unreadable
            try:
                await self.target.open()
                passed.records += await self._one(source)
            except (TargetUnavailable, TargetRefuses) as error:
                passed.problems[source.name] = str(error)
                break
            except RoostError as error:
                passed.problems[source.name] = str(error)
            finally:
                self.unreadable += source.unreadable - unreadable
        return passed

    async def _one(self, source: Source) -> int:
        mark = self.marks.of.get(source.name, SourceCheckpoint())
        await self.target.begin(source.name, mark.passes)
        bunch: list[Document] = []
        count, yielder = 0, Yielder()
        async with aclosing(source.documents(mark)) as documents:
            async for one in documents:
                bunch.append(one)
                await yielder.yield_if_due()  # a record takes a millisecond or two
                if len(bunch) >= self.bunch:
                    await self.target.put(bunch)
                    count += len(bunch)
                    bunch = []
                    self.records += self.bunch
        if bunch:
            await self.target.put(bunch)
            count += len(bunch)
            self.records += len(bunch)
        await self.target.commit()
        fresh = source.next(mark)
        if fresh != mark:
            self.marks.of[source.name] = fresh
            try:
                await asyncio.to_thread(replace_on_disk, self.checkpoint, self.marks.text().encode())
            except OSError as error:
                raise TargetUnavailable(f"checkpoint {self.checkpoint}: {error.strerror}") from error
        return count
