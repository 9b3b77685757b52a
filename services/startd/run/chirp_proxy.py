"""Chirp beside one run: what its job is told, and how its questions get to its access point.

The job finds address, port and cookie in `.chirp.config` of its scratch directory, as with HTCondor. One that may use
its access point finds the program condor_chirp there, too: in `.chirp`, which is the last place of its PATH.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.chirp import DelayedUpdates, Rights, rights_of
from services.startd.core.run.job_launch import CHIRP_CONFIG, Launch
from services.startd.exec.api import Launcher
from services.startd.run import scratch_files
from services.startd.run.chirp_session import ChirpJob, refusing
from services.startd.run.context import RunContext
from services.startd.run.reports import Reports
from shared.chirp import MAX_REQUEST, Answer, Code, pack_request
from shared.classad import ClassAd
from shared.transfer.errors import InTheClear, TransferUnavailable

#: The directory in the scratch directory that has the program.
FOLDER: Final = ".chirp"
PROGRAM: Final = "condor_chirp"
#: PATH of a job that has none.
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
#: An access point that is away is asked so long, seconds, with this time between; then the job hears of it.
PATIENCE_S: Final = 8.0
AGAIN_S: Final = 0.5
#: Questions of one job that are under way at a time.
MOST_AT_ONCE: Final = 4
_TIMEOUT: Final = aiohttp.ClientTimeout(total=PATIENCE_S)
#: So long what a job has sent before its end may take, seconds.
REST_S: Final = 20.0


@functools.cache
def _program() -> bytes:
    return Path(__file__).with_name("condor_chirp.py").read_bytes()


class ChirpProxy:
    def __init__(self, record: RunRecord, context: RunContext, reports: Reports, log: BoundLogger) -> None:
        self._record = record
        self._context = context
        self._reports = reports
        self._log = log
        self._job: ChirpJob | None = None
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def begin(self, job: ClassAd, launch: Launch, launcher: Launcher) -> Launch:
        """Before the job starts. Returns what is to be started."""
        settings = self._context.settings().chirp
        rights = rights_of(settings, job)
        if not rights:
            return launch
        address = await launcher.reaches(launch)
        if not address:
            if rights.remote:
                self._log.warning("chirp_left_out", reason="the job has no network in which this machine is")
            return launch
        await self._admit(job, rights, address)
        if self._record.chirp and rights.remote:
            scratch = self._context.scratch(self._record)
            scratch_files.write_below(scratch, FOLDER, PROGRAM, _program(), 0o755)
        return self.told(launch)

    async def resume(self, job: ClassAd) -> None:
        """A job of an earlier life goes on."""
        if self._record.chirp and self._job is None:
            await self._admit(job, rights_of(self._context.settings().chirp, job), *self._record.chirp)

    async def _admit(self, job: ClassAd, rights: Rights, address: str, port: int = 0, cookie: str = "") -> None:
        asks = bool(self._record.chirp_url) and rights.remote
        delayed = DelayedUpdates(self._context.settings().chirp)
        self._job = ChirpJob(
            job,
            rights,
            delayed,
            self._ask if asks else refusing(Code.OFFLINE),
            lambda: self._reports.extras.update(delayed.values),
        )
        try:
            port, cookie = await self._context.chirp.admit(self._job, address, port, cookie)
            line = f"{address} {port} {cookie}\n".encode()
            if self._record.chirp != [address, port, cookie]:
                scratch_files.write(self._context.scratch(self._record), CHIRP_CONFIG, line, 0o600)
        except OSError as error:
            tell = self._log.warning if rights.remote else self._log.debug
            tell("chirp_left_out", address=address, reason=str(error))
            return
        self._record.chirp = [address, port, cookie]

    def told(self, launch: Launch) -> Launch:
        """With what the job's programs look for. Of containers the PATH is the image's."""
        if not self._record.chirp:
            return launch
        scratch = launch.env["_CONDOR_SCRATCH_DIR"]
        env = {**launch.env, "_CONDOR_CHIRP_CONFIG": f"{scratch}/{CHIRP_CONFIG}"}
        rights = rights_of(self._context.settings().chirp, launch.job_ad)
        if rights.remote and not launch.image and not launch.in_container:
            path, own = env.get("PATH") or _PATH, f"{scratch}/{FOLDER}"
            env["PATH"] = path if own in path.split(":") else f"{path}:{own}"
        return replace(launch, env=env)

    async def end(self, hurried: asyncio.Event) -> None:
        """The job has ended: what it has sent comes to its place first, unless the slot has no time for that."""
        job = self._job
        if job is None:
            return
        self._context.chirp.dismiss(self._record.chirp[2] if self._record.chirp else "")
        if job.sessions:
            await self._context.chirp.finished(job, 0.0 if hurried.is_set() else REST_S)
        self._job = None

    def close(self) -> None:
        """Nothing more in this life of the startd."""
        if self._job is not None:
            self._context.chirp.dismiss(self._record.chirp[2] if self._record.chirp else "")
            for session in list(self._job.sessions):
                session.cancel()

    async def _ask(self, verb: str, *arguments: Any) -> Answer:
        async with self._turns:
            return await self._asked(verb, *arguments)

    async def _asked(self, verb: str, *arguments: Any) -> Answer:
        record, context = self._record, self._context
        clock = context.daemon.clock
        give_up = clock.monotonic() + PATIENCE_S
        body = pack_request(verb, *arguments)
        while True:
            again = _is_repeatable(verb, arguments)
            try:
                way = await context.transfer_tls.way(record.chirp_url)
                async with context.session().post(
                    f"{record.chirp_url}/chirp",
                    data=body,
                    headers={"Authorization": f"Bearer {record.transfer_token}"},
                    timeout=_TIMEOUT,
                    ssl=way,
                ) as response:
                    if response.status < 300:
                        return Answer.unpack(await _read(response))
                    if response.status < 500:
                        return Answer(Code.NOT_AUTHORIZED)
                    reason = f"status {response.status}"
            except InTheClear as error:
                self._log.warning("chirp_refused", reason=str(error))
                return Answer(Code.NOT_AUTHORIZED)
            except (aiohttp.ClientError, TransferUnavailable, TimeoutError, OSError) as error:
                reason = f"{type(error).__name__}: {error}"
                again = again or isinstance(error, aiohttp.ClientConnectorError)  # it did not get there
            if not again or clock.monotonic() >= give_up:
                self._log.info("chirp_unanswered", verb=verb, reason=reason)
                return Answer(Code.OFFLINE)
            await clock.sleep(AGAIN_S)


#: What is the same when it is done twice, though an answer was lost in between.
_REPEATABLE: Final = frozenset(
    [
        *("get_job_attr", "set_job_attr", "read", "write", "open", "truncate", "fsync", "chmod", "utime"),
        *("stat", "lstat", "statfs", "getdir", "getlongdir", "access", "readlink"),
    ]
)


def _is_repeatable(verb: str, arguments: tuple[Any, ...]) -> bool:
    if verb == "write" and arguments[3]:
        return False  # at the end, which is another one then
    return verb in _REPEATABLE and not (verb == "open" and "x" in arguments[1])


async def _read(response: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        found += chunk
        if len(found) > MAX_REQUEST:
            return b""
    return bytes(found)
