"""One connection of a running job that speaks Chirp: what it asks is answered here, or by its access point.

The access point keeps nothing of a connection: which files are open, and where in them the job is, is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from services.startd.core.run.chirp import (
    LINE_BYTES,
    VERSION,
    DelayedUpdates,
    OpenFile,
    OpenFiles,
    Pace,
    Request,
    Rights,
    cookie_of,
    parse,
)
from shared.chirp import PIECE_BYTES, Answer, Code
from shared.classad import ClassAd

#: Bytes that one `read` gives at most: fewer than were asked for is an answer, too.
MOST_READ: Final = 4 * PIECE_BYTES
#: So long a connection may say nothing before its cookie, seconds; and a wrong one is answered after this time.
SILENCE_S: Final = 30.0
WRONG_S: Final = 1.0
#: Wrong cookies of one connection.
MOST_WRONG: Final = 3
#: What HTCondor says of who both sides are.
NAME: Final = b"CONDOR"

Ask = Callable[..., Awaitable[Answer]]


@dataclass(slots=True)
class ChirpJob:
    """A job as its connections know it. ask: its access point, with a verb and arguments. set_delayed: told of each
    attribute that is to go with the next report."""

    ad: ClassAd
    rights: Rights
    delayed: DelayedUpdates
    ask: Ask
    set_delayed: Callable[[], None]
    pace: Pace = field(default_factory=Pace)
    sessions: set[asyncio.Task[None]] = field(default_factory=set)


class _Over(Exception):
    """The connection is not worth going on with."""


class ChirpSession:
    """job_of: whose cookie this is; None: nobody's. Raises nothing: whoever is at the other side may break off."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        job_of: Callable[[bytes], ChirpJob | None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._job_of = job_of
        self._files = OpenFiles()
        self.job: ChirpJob | None = None

    async def serve(self, known: Callable[[ChirpJob], None]) -> None:
        """Until the other side is done. known: is told whose connection it is, once that is known."""
        try:
            async with asyncio.timeout(SILENCE_S):
                job = self.job = await self._job()
            known(job)
            while True:
                line = await self._line()
                if (wait_s := job.pace.wait_s(time.monotonic())) > 0:
                    await asyncio.sleep(wait_s)
                await self._handle(job, parse(line))
        except (_Over, TimeoutError, OSError, asyncio.IncompleteReadError):
            return
        finally:
            self._writer.close()

    def close(self) -> None:
        self._writer.close()

    # -- lines

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            line = b" " * (LINE_BYTES + 2)
        if len(line) > LINE_BYTES + 1:
            await self._say(Code.TOO_BIG)
            raise _Over
        return line.rstrip(b"\r\n")

    async def _job(self) -> ChirpJob:
        for _ in range(MOST_WRONG):
            cookie = cookie_of(await self._line())
            if cookie is not None:
                if (job := self._job_of(cookie)) is not None:
                    await self._say(0)
                    return job
                await asyncio.sleep(WRONG_S)
            await self._say(Code.NOT_AUTHENTICATED)
        raise _Over

    async def _say(self, result: int, data: bytes = b"") -> None:
        self._writer.write(b"%d\n" % int(result) + data)
        await self._writer.drain()

    async def _pass(self, answer: Answer) -> None:
        await self._say(answer.result, answer.data if answer.result >= 0 else b"")

    # -- requests

    async def _handle(self, job: ChirpJob, request: Request | None) -> None:
        if request is None or not job.rights.allow(request):
            if request is not None and request.verb != "putfile":
                await self._skip(request.content)
            await self._say(Code.INVALID_REQUEST)
            return
        verb, words, numbers = request.verb, request.words, request.numbers
        match verb:
            case "version":
                await self._say(VERSION)
            case "whoami" | "whoareyou":
                name = NAME[: max(0, numbers[-1])]
                await self._say(len(name), name)
            case "lookup":
                path = str(PurePosixPath(job.ad.eval_string("Iwd") or "/") / words[0]).encode(errors="surrogateescape")
                await self._say(len(path), path)
            case "set_job_attr_delayed":
                wrong = job.delayed.set(*words)
                if wrong is None:
                    job.set_delayed()
                await self._say(wrong or 0)
            case "get_job_attr_delayed":
                text = job.delayed.get(words[0], job.ad)
                data = (text or "").encode("utf-8", "surrogateescape")
                await self._say(Code.DOES_NOT_EXIST if text is None else len(data), data)
            case "constrain" | "chown" | "lchown":
                await self._say(Code.NOT_AUTHORIZED)
            case "open":
                await self._open(job, words[0], words[1], numbers[0])
            case "getfile":
                await self._get_file(job, words[0])
            case "putfile":
                await self._put_file(job, words[0], *numbers)
            case _ if verb in _OF_OPEN_FILES:
                await self._on_open_file(job, request)
            case _:
                await self._pass(await job.ask(verb, *words, *numbers))

    async def _open(self, job: ChirpJob, path: str, flags: str, mode: int) -> None:
        if self._files.full:
            await self._say(Code.TOO_MANY_OPEN)
            return
        answer = await job.ask("open", path, flags, mode)
        if answer.result < 0:
            await self._say(answer.result)
        else:
            await self._say(self._files.add(path, flags), answer.data)

    async def _on_open_file(self, job: ChirpJob, request: Request) -> None:
        verb, (number, *more) = request.verb, request.numbers
        file = self._files.files.get(number)
        wrong = file is None
        if file is not None and verb in ("read", "pread", "sread"):
            wrong = not file.readable
        if file is not None and verb in ("write", "pwrite", "swrite", "ftruncate"):
            wrong = not file.writable
        if wrong or file is None:
            await self._skip(request.content)
            await self._say(Code.BAD_FD)
            return
        match verb:
            case "close":
                del self._files.files[number]
                await self._say(0)
            case "lseek":
                await self._say(await self._seek(job, file, *more))
            case "read":
                answer = await self._read(job, file.path, more[0], file.at)
                file.at += max(0, answer.result)
                await self._pass(answer)
            case "pread":
                await self._pass(await self._read(job, file.path, *more))
            case "sread":
                await self._read_parts(job, file, *more)
            case "write":
                done = await self._write(job, file, more[0], file.at)
                file.at += max(0, done)
                await self._say(done)
            case "pwrite":
                await self._say(await self._write(job, file, *more))
            case "swrite":
                await self._write_parts(job, file, *more)
            case "fchown":
                await self._say(Code.NOT_AUTHORIZED)
            case _:
                names = {"fstat": "stat", "fstatfs": "statfs", "fchmod": "chmod", "ftruncate": "truncate"}
                await self._pass(await job.ask(names.get(verb, verb), file.path, *more))

    async def _seek(self, job: ChirpJob, file: OpenFile, offset: int, whence: int) -> int:
        start = {0: 0, 1: file.at}.get(whence)
        if whence == 2:
            size = await _size(job, file.path)
            if size < 0:
                return size
            start = size
        if start is None or start + offset < 0:
            return Code.INVALID_REQUEST
        file.at = start + offset
        return file.at

    # -- content

    async def _read(self, job: ChirpJob, path: str, size: int, at: int) -> Answer:
        """So much as there is, and no more than MOST_READ."""
        if size < 0 or at < 0:
            return Answer(Code.INVALID_REQUEST)
        found = bytearray()
        most = min(size, MOST_READ)
        while len(found) < most or not size:
            answer = await job.ask("read", path, at + len(found), min(PIECE_BYTES, most - len(found)), 0, 0)
            if answer.result < 0:
                return answer
            found += answer.data
            if not answer.data:
                break
        return Answer(len(found), bytes(found))

    async def _read_parts(self, job: ChirpJob, file: OpenFile, size: int, at: int, stride: int, skip: int) -> None:
        if not 0 <= size <= PIECE_BYTES or stride <= 0:
            await self._say(Code.INVALID_REQUEST)
        else:
            await self._pass(await job.ask("read", file.path, at, size, stride, skip))

    async def _piece(self, size: int) -> bytes:
        return await self._reader.readexactly(min(size, PIECE_BYTES))

    async def _skip(self, size: int) -> None:
        """Of what comes and is not wanted: else it would be taken for requests."""
        while size > 0:
            size -= len(await self._piece(size))

    async def _write(self, job: ChirpJob, file: OpenFile, size: int, at: int) -> int:
        """What comes, as it comes. Returns how much of it is written, or a Code."""
        done = 0
        while done < size:
            piece = await self._piece(size - done)
            answer = await job.ask("write", file.path, at + done, piece, int(file.append), 0, 0)
            if answer.result != len(piece):
                await self._skip(size - done - len(piece))
                return done + answer.result if answer.result >= 0 else answer.result
            done += len(piece)
        return done

    async def _write_parts(self, job: ChirpJob, file: OpenFile, size: int, at: int, stride: int, skip: int) -> None:
        if size > PIECE_BYTES or stride <= 0:
            await self._skip(size)
            await self._say(Code.INVALID_REQUEST)
            return
        data = await self._reader.readexactly(size)
        await self._pass(await job.ask("write", file.path, at, data, 0, stride, skip))

    async def _get_file(self, job: ChirpJob, path: str) -> None:
        opened = await job.ask("open", path, "r", 0)
        size = _size_in(opened)
        if opened.result < 0 or size < 0:
            await self._say(min(opened.result, size))
            return
        await self._say(size)
        done = 0
        while done < size:
            answer = await job.ask("read", path, done, min(PIECE_BYTES, size - done), 0, 0)
            if answer.result <= 0:
                raise _Over  # the size is told: only a connection that breaks says that this is not all
            self._writer.write(answer.data)
            await self._writer.drain()
            done += len(answer.data)

    async def _put_file(self, job: ChirpJob, path: str, mode: int, size: int) -> None:
        opened = await job.ask("open", path, "wct", mode)
        await self._say(min(0, opened.result))
        if opened.result >= 0 and size:
            await self._say(await self._write(job, OpenFile(path, "w"), size, 0))


_OF_OPEN_FILES: Final = frozenset(
    [
        *("close", "lseek", "fsync", "fstat", "fstatfs", "fchown", "fchmod", "ftruncate"),
        *("read", "pread", "sread", "write", "pwrite", "swrite"),
    ]
)


def _size_in(answer: Answer) -> int:
    """The size in the line of what a file is, or a Code."""
    if answer.result < 0:
        return answer.result
    with contextlib.suppress(IndexError, ValueError):
        return int(answer.data.split()[7])
    return Code.UNKNOWN


async def _size(job: ChirpJob, path: str) -> int:
    return _size_in(await job.ask("stat", path))


def refusing(code: Code) -> Ask:
    """For a job without an access point to ask."""

    async def ask(*request: Any) -> Answer:
        return Answer(code)

    return ask
