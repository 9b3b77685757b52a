"""Answers what running jobs ask of their access point (shared.chirp): their own ad, their log, their files.

A job changes of its ad what an execution point may report too, and nothing that says who it is, what it runs or which
files it has: who has its machine could use these.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from engine.queue.jobs import BadSubmit, Job, Shadow, full_ad
from services.schedd.core.acceptance import check_edits
from services.schedd.core.job_end import may_set
from services.schedd.io import spool
from services.schedd.io.actions import Actions
from services.schedd.io.job_files import JobFiles
from services.schedd.io.job_updates import JobUpdates
from shared import job_log, private_files
from shared.bus.api import RemoteFailure
from shared.chirp import Answer, BadRequest, Code, code_of, unpack_request, wish_of
from shared.classad import ClassAd, ParseError, parse_expr, unparse
from shared.classad.ad import is_private
from shared.classad.expr import fold

#: Requests about files that are carried out at a time: a file system that hangs holds up no other work in threads.
MOST_AT_ONCE: Final = 8
#: Characters of what a job writes in its log at a time.
MAX_SAID: Final = 1024
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


def _answer(value: bytes | int | None) -> Answer:
    if isinstance(value, bytes):
        return Answer(len(value), value)
    return Answer(value or 0)


def _described(value: bytes) -> Answer:
    """A line of numbers comes after a result of 0."""
    return Answer(0, value)


#: Verb: kinds of its arguments (s text, d number, b bytes), and what is done.
_FILES: Final[Mapping[str, tuple[str, Callable[..., Any]]]] = {
    "open": ("ssd", lambda files, *a: _described(files.open(*a))),
    "read": ("sdddd", lambda files, *a: files.read(*a)),
    "write": ("sdbddd", lambda files, path, at, data, add, *a: files.write(path, at, data, bool(add), *a)),
    "truncate": ("sd", lambda files, *a: files.truncate(*a)),
    "fsync": ("s", lambda files, *a: files.fsync(*a)),
    "stat": ("s", lambda files, *a: _described(files.stat(*a))),
    "lstat": ("s", lambda files, *a: _described(files.stat(*a, follow=False))),
    "statfs": ("s", lambda files, *a: _described(files.statfs(*a))),
    "getdir": ("s", lambda files, *a: files.names(*a)),
    "getlongdir": ("s", lambda files, *a: files.names(*a, long=True)),
    "access": ("sd", lambda files, *a: files.access(*a)),
    "readlink": ("sd", lambda files, *a: files.readlink(*a)),
    "unlink": ("s", lambda files, *a: files.unlink(*a)),
    "rename": ("ss", lambda files, *a: files.rename(*a)),
    "link": ("ss", lambda files, *a: files.link(*a)),
    "symlink": ("ss", lambda files, *a: files.symlink(*a)),
    "mkdir": ("sd", lambda files, *a: files.mkdir(*a)),
    "rmdir": ("s", lambda files, *a: files.rmdir(*a)),
    "rmall": ("s", lambda files, *a: files.rmall(*a)),
    "chmod": ("sd", lambda files, *a: files.chmod(*a)),
    "utime": ("sdd", lambda files, *a: files.utime(*a)),
}
_UPDATES: Final = ("set_job_attr", "ulog")
_KINDS: Final[Mapping[str, type]] = {"s": str, "d": int, "b": bytes}


class ChirpRequests:
    """limit: bytes that a file of the job's output may have; None: no limit."""

    def __init__(self, updates: JobUpdates, limit: Callable[[Job], int | None]) -> None:
        self._updates = updates
        self._actions = Actions(updates)
        self._limit = limit
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def answer(self, job: Job, run: Shadow, packed: bytes) -> Answer:
        """Of a run that is known to be the job's."""
        try:
            verb, arguments = unpack_request(packed)
        except BadRequest:
            return Answer(Code.INVALID_REQUEST)
        wish, settings = wish_of(self._ad(job)), self._updates.settings
        if verb in _FILES:
            may = wish.files and settings.chirp_files
            return await self._on_files(job, verb, arguments) if may else Answer(Code.NOT_AUTHORIZED)
        if not (wish.attributes and (settings.chirp_updates if verb in _UPDATES else settings.chirp_reads)):
            return Answer(Code.NOT_AUTHORIZED)
        match verb, arguments:
            case "get_job_attr", [str(name)]:
                return self._get(job, name)
            case "set_job_attr", [str(name), str(text)]:
                return await self._set(job, run, name, text)
            case "ulog", [str(text)]:
                return await self._ulog(job, run, text)
        return Answer(Code.INVALID_REQUEST)

    def _ad(self, job: Job) -> ClassAd:
        return full_ad(self._updates.name, job, self._updates.now())

    # -- the ad and the log

    def _get(self, job: Job, name: str) -> Answer:
        """What lacks is UNDEFINED, and so is what is nobody's to see. A node of a parallel job sees the whole job's ad,
        and what it has besides, as its number."""
        found = None
        for one in (job.whole, job):
            if found is None and one is not None and not is_private(fold(name)):
                found = self._ad(one).lookup(name)
        text = "UNDEFINED" if found is None else unparse(found)
        return _answer(text.encode("utf-8", "surrogateescape"))

    async def _set(self, job: Job, run: Shadow, name: str, text: str) -> Answer:
        if not _NAME.fullmatch(name):
            return Answer(Code.INVALID_REQUEST)
        try:
            expr = parse_expr(text)
        except ParseError:
            return Answer(Code.INVALID_REQUEST)
        try:
            if not may_set(fold(name)):
                raise BadSubmit(f"{name}: a running job does not change this")
            immutable = self._updates.settings.rules.immutable
            edits = check_edits(ClassAd({name: expr}).pack(), admin=False, immutable=immutable)
            if job.shadow is not run or self._actions.edit(job.whole or job, edits) != "done":
                return Answer(Code.TRY_AGAIN)
        except (BadSubmit, RemoteFailure) as error:
            self._updates.context.log.info("chirp_refused", job_id=str(job.id), reason=str(error))
            return Answer(Code.NOT_AUTHORIZED)
        await self._updates.commit()
        return Answer(0)

    async def _ulog(self, job: Job, run: Shadow, text: str) -> Answer:
        said = " ".join(text[:MAX_SAID].split())
        if not said:
            return Answer(Code.INVALID_REQUEST)
        if job.shadow is not run:
            return Answer(Code.TRY_AGAIN)
        now = self._updates.now()
        whole = job.whole or job
        self._updates.record(whole, lambda: job_log.generic(whole.id, now, said))
        await self._updates.commit()
        return Answer(0)

    # -- files

    async def _on_files(self, job: Job, verb: str, arguments: list[Any]) -> Answer:
        kinds, do = _FILES[verb]
        if len(arguments) != len(kinds) or not all(
            isinstance(one, _KINDS[kind]) for one, kind in zip(arguments, kinds, strict=True)
        ):
            return Answer(Code.INVALID_REQUEST)
        if verb == "write" and self._updates.queue.lacks_room(len(arguments[2])):
            return Answer(Code.NO_SPACE)
        files_of = self._files_of(job)
        try:
            async with self._turns:
                done = await asyncio.to_thread(lambda: do(files_of(), *arguments))
        except OSError as error:
            return Answer(code_of(error))
        except (ValueError, OverflowError):  # a number that the system does not take
            return Answer(code_of(OSError(errno.EINVAL, "")))
        return done if isinstance(done, Answer) else _answer(done)

    def _files_of(self, job: Job) -> Callable[[], JobFiles]:
        """Makes them, in a thread."""
        iwd, limit = self._ad(job).eval_string("Iwd"), self._limit(job)
        if not job.cluster.spool:
            return lambda: JobFiles(Path(iwd or "/nonexistent"), iwd, (), limit)
        shared, own, out = spool.spool_dirs(self._updates.spool, job)

        def spooled() -> JobFiles:
            private_files.make_directory(out)
            return JobFiles(out, iwd, (own, shared), limit)

        return spooled
