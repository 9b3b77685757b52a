"""stream_output and stream_error: what a job writes to its standard output and error comes to its access point while it
runs, where files travel (SUB-12).

The job writes into its scratch directory as ever; what is new there is sent a little later, piece by piece. An access
point that is away, or whose disk is full, is tried again while the job runs, and the job does not notice. It says what
it has when that is not what was thought, as after a restart of either side, and the stream goes on from there. When the
job has ended the rest is sent. A stream that is not complete then, or was refused, travels with the other output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.job_launch import STDERR, STDOUT, streamed
from services.startd.run.context import RunContext
from shared.backoff import Backoff
from shared.classad import ClassAd
from shared.transfer.bundle import Source, open_source
from shared.transfer.client import send_piece
from shared.transfer.errors import OutOfStep, TransferError, TransferUnavailable
from shared.transfer.streams import PIECE_BYTES

#: Between two looks at what a job has written, seconds: the first after something came, the longest where nothing does.
LOOK_S: Final = (0.1, 1.0)
#: Between two attempts where the access point is away.
AGAIN_S: Final = (0.2, 5.0)
#: So long (s) the sending of the rest may take when the job has ended. What takes longer travels with the other output.
REST_S: Final = 30.0
#: Attribute of the job -> file in its scratch directory, and what the access point calls the stream.
_FILES: Final = {"Out": (STDOUT, "out"), "Err": (STDERR, "err")}


@dataclass(slots=True)
class _Stream:
    file: str
    name: str
    at: int | None = 0  # bytes that the access point has; None: an earlier life knew
    given_up: bool = False


class OutputStreams:
    """The streams of one run. source: the way to a file of its scratch directory that is safe, whatever the job put
    there."""

    def __init__(
        self, record: RunRecord, context: RunContext, source: Callable[[str], Source], log: BoundLogger
    ) -> None:
        self._record = record
        self._context = context
        self._source = source
        self._log = log
        self._streams: list[_Stream] = []
        self._task: asyncio.Task[None] | None = None

    def begin(self, job: ClassAd) -> None:
        """Follow what the job writes from now on: also one of an earlier life, whose streams go on."""
        if not self._record.transfer_url or self._task is not None:
            return
        for attribute in streamed(job):
            file, name = _FILES[attribute]
            self._streams.append(_Stream(file, name, None if name in self._record.streams else 0))
        if self._streams:
            self._task = asyncio.get_running_loop().create_task(self._follow(), name=f"stream:{self._record.key}")

    async def end(self, *, rest: bool) -> set[str]:
        """The job has ended. rest: send what is not sent yet. Returns the files that the access point has whole."""
        whole: set[str] = set()
        if self._task is not None:
            self.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if rest:
            with contextlib.suppress(TimeoutError, TransferUnavailable):
                async with asyncio.timeout(REST_S):
                    for stream in self._streams:
                        if await self._send_new(stream, last=True):
                            whole.add(stream.file)
        self._streams = []
        return whole

    def cancel(self) -> None:
        """Follow no more; what was sent stays sent."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        looks, again = Backoff(*LOOK_S), Backoff(*AGAIN_S)
        away = False
        while not all(stream.given_up for stream in self._streams):
            try:
                before = [stream.at for stream in self._streams]
                for stream in self._streams:
                    await self._send_new(stream)
            except TransferUnavailable as error:
                if not away:
                    self._log.info("stream_waits", reason=str(error))
                away = True
                await asyncio.sleep(again.next_s())
                continue
            away = False
            again.reset()
            if before != [stream.at for stream in self._streams]:
                looks.reset()
            await asyncio.sleep(looks.next_s())

    async def _send_new(self, stream: _Stream, *, last: bool = False) -> bool:
        """Send what was written since the last time. last: the job has ended. Returns whether the access point has the
        whole file. Raises TransferUnavailable."""
        record = self._record
        if stream.given_up:
            return False
        try:
            # Said also where nothing is new: that it begins, so that nothing of an earlier run stays; how much there
            # is, after a restart; and that it is to be on the disk, at the end.
            due = last or stream.at is None or stream.name not in record.streams
            piece, size = await asyncio.to_thread(self._read, stream)
            while piece or due:
                whole = (stream.at or 0) + len(piece) == size
                await self._send(stream, piece, last=last and whole)
                if stream.name not in record.streams:
                    record.streams = [*record.streams, stream.name]
                    self._context.save(record, soon=True)
                due = False
                piece, size = await asyncio.to_thread(self._read, stream)
        except (TransferError, OSError) as error:
            stream.given_up = True
            self._log.warning("stream_given_up", file=stream.file, reason=str(error))
            return False
        return True

    def _read(self, stream: _Stream) -> tuple[bytes, int]:
        """The next piece, and how much there is: nothing yet where the file is not there."""
        source = self._source(stream.file)
        if not os.path.lexists(source.path):
            return b"", 0
        with open_source(source) as file:
            size = os.fstat(file.fileno()).st_size
            if stream.at is None:
                stream.at = size
            if size < stream.at:
                raise TransferError("the job made it shorter")
            return os.pread(file.fileno(), PIECE_BYTES, stream.at), size

    async def _send(self, stream: _Stream, piece: bytes, *, last: bool) -> None:
        record, context = self._record, self._context
        try:
            await send_piece(
                context.session(),
                record.transfer_url,
                record.transfer_token,
                stream.name,
                stream.at or 0,
                piece,
                last=last,
                tls=context.transfer_tls,
            )
        except OutOfStep as error:
            stream.at = error.size
            return
        stream.at = (stream.at or 0) + len(piece)
        record.usage["bytes_sent"] = record.usage.get("bytes_sent", 0) + len(piece)
        context.counts.files.bytes.add("output", count=len(piece))
