"""Tells the access point how far the files are that go by URL: what plug-ins say in a file of the scratch directory, or
else how much of the input is there. A plug-in is the job, so what it says is shown and nothing more."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.plugins import Transfer
from services.startd.run import scratch_files
from services.startd.run.context import RunContext
from shared.transfer.client import tell_progress
from shared.transfer.errors import TransferError, TransferUnavailable
from shared.transfer.progress import Progress

#: In the scratch directory: bytes so far, and of all or 0. This variable names it to plug-ins.
FILE: Final = ".roost-transfer-progress"
VARIABLE: Final = "_ROOST_TRANSFER_PROGRESS"
_MOST_DIGITS: Final = 18


@contextlib.asynccontextmanager
async def told(
    record: RunRecord, context: RunContext, transfers: Sequence[Transfer], *, upload: bool
) -> AsyncIterator[None]:
    """Inside, it is told how far these transfers are, where they take long."""
    teller = _Teller(record, context, transfers, "Output" if upload else "Input")
    task = asyncio.create_task(teller.follow(), name=f"progress:{record.key}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(scratch_files.remove, teller.scratch, FILE)
    if teller.began:
        await teller.tell({"over": True})


class _Teller:
    def __init__(self, record: RunRecord, context: RunContext, transfers: Sequence[Transfer], way: str) -> None:
        self.record = record
        self.context = context
        self.transfers = transfers
        self.way = way
        self.scratch: Path = context.scratch(record)
        self.began = False

    async def follow(self) -> None:
        """Until cancelled, or until the access point does not want to hear of it."""
        clock = self.context.daemon.clock
        progress = Progress(clock.monotonic())
        wanted = True
        while wanted:
            await clock.sleep(max(0.0, progress.next_at - clock.monotonic()))
            standing = progress.stands(*await asyncio.to_thread(self._look), clock.monotonic())
            if standing is not None:
                self.began = True
                wanted = await self.tell(
                    {
                        "done": standing.done,
                        "total": standing.total,
                        "bytes_per_s": standing.bytes_per_s,
                        "notable": standing.notable,
                    }
                )

    async def tell(self, what: dict[str, Any]) -> bool:
        """Whether the access point wants to hear more. One that is away hears the next of it."""
        record, context = self.record, self.context
        told = {"way": self.way, **what}
        try:
            await tell_progress(
                context.session(), record.transfer_url, record.transfer_token, told, tls=context.transfer_tls
            )
        except TransferUnavailable:
            return True
        except TransferError:  # an earlier release, or the run is over
            return False
        return True

    def _look(self) -> tuple[int, int]:
        """Bytes so far, and of all; 0: nobody knows."""
        words = scratch_files.read(self.scratch, FILE, 2 * _MOST_DIGITS + 1).split()
        if len(words) == 2 and all(word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS for word in words):
            done, total = map(int, words)
            return done, total
        if self.way == "Output":
            return 0, 0
        done = 0
        for one in self.transfers:
            with contextlib.suppress(OSError):
                done += os.lstat(self.scratch / Path(one.path).name).st_size
        return done, 0
