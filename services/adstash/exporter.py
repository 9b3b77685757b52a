"""A pass: what is new in each source goes to the target, and the checkpoint follows once all of it is there
(spec row MON-19)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from services.adstash.documents import Document
from services.adstash.marks import BadCheckpoint, Mark, Marks
from services.adstash.sources import Source
from services.adstash.target import Target, TargetRefuses, TargetUnavailable
from shared.errors import PermanentError, RoostError
from shared.files import replace_on_disk
from shared.turns import Turns


@dataclass(slots=True)
class Passed:
    """How a pass went. problems: by source, why it is to be done again."""

    records: int = 0
    problems: dict[str, str] = field(default_factory=dict)


class Exporter:
    """See the module. bunch: documents of one request."""

    def __init__(self, target: Target, checkpoint: Path, bunch: int, log: structlog.stdlib.BoundLogger) -> None:
        self.target, self.checkpoint, self.bunch, self.log = target, checkpoint, bunch, log
        self.marks = Marks()
        self.records = 0
        self.unreadable = 0

    async def read_checkpoint(self) -> None:
        """Raises PermanentError for a file that is no checkpoint: to begin anew is for a person to decide."""
        try:
            self.marks = Marks.parse(await asyncio.to_thread(self.checkpoint.read_text))
        except FileNotFoundError:
            self.marks = Marks()
        except (OSError, BadCheckpoint, UnicodeError) as error:
            raise PermanentError(
                f"checkpoint {self.checkpoint} can not be used: {error}; mend it, or remove it to export all anew"
            ) from error

    async def run(self, sources: Iterable[Source]) -> Passed:
        """Export all of them. One that fails keeps its mark, and the others go on; a target that takes nothing ends the
        pass."""
        passed = Passed()
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
        mark = self.marks.of.get(source.name, Mark())
        await self.target.begin(source.name, mark.passes)
        bunch: list[Document] = []
        count, turns = 0, Turns()
        async with aclosing(source.documents(mark)) as documents:
            async for one in documents:
                bunch.append(one)
                await turns.give_way()  # a record takes a millisecond or two
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
