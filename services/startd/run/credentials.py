"""The credentials of one run: fetched from the schedd into a file system in memory, refreshed while the job runs, gone
with its end.

They lie in `.condor_creds` of the scratch directory, which _CONDOR_CREDS names: a file `<service>.use` each, which only
the job's account reads. The directory belongs to the startd, so the job can put nothing there. A machine that can not
mount one refuses such jobs, unless ROOST_CREDENTIALS_ON_DISK accepts a plain directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

import aiohttp
import msgpack
from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import CREDENTIALS
from services.startd.forkserver import kernel
from services.startd.run.context import RunContext
from shared.classad import ClassAd
from shared.transfer.errors import InTheClear, TransferUnavailable

#: The job attribute that names services, as HTCondor has it.
NEEDED: Final = "OAuthServicesNeeded"
_LIMIT: Final = 8 << 20
_TIMEOUT: Final = aiohttp.ClientTimeout(total=30)
#: Launchers whose jobs see what this process mounts. A container engine may live in another place: its launcher looks
#: whether the container has them.
LAUNCHERS: Final = ("process", "java", "apptainer", "singularity", "docker")


class JobCredentials:
    """What one run has of them."""

    def __init__(self, record: RunRecord, context: RunContext, log: BoundLogger) -> None:
        self._record = record
        self._context = context
        self._log = log
        self._refreshing: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def _place(self) -> Path:
        return self._context.scratch(self._record) / CREDENTIALS

    async def deliver(self, job: ClassAd, reader: tuple[int, int] | None) -> str:
        """Have them there before the job starts. reader: uid and gid of the job; none: the startd's. The name of the
        directory in the scratch directory; empty where the job wants none. Raises RunFailed."""
        if not job.eval_string(NEEDED).strip(" ,"):
            return ""
        record, on_disk = self._record, self._context.settings().credentials_on_disk
        if record.launcher not in LAUNCHERS:
            raise Fault.NO_CREDENTIALS.failure(f"credentials can not be delivered to {record.launcher} jobs")
        if not record.transfer_url:
            raise Fault.NO_CREDENTIALS.failure(
                "credentials come with the job's files: should_transfer_files = YES is needed for use_oauth_services"
            )
        try:
            os.mkdir(self._place, 0o711)
            if not on_disk:
                kernel.mount(
                    "none", str(self._place), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC,
                    "mode=711,size=16m,nr_inodes=1000",
                )  # fmt: skip
        except OSError as error:
            raise Fault.NO_ISOLATION.failure(
                f"this machine can not keep credentials in memory: {error.strerror or error}; the startd needs root "
                "and CAP_SYS_ADMIN, or ROOST_CREDENTIALS_ON_DISK = True"
            ) from error
        try:
            self._write(await self._fetch(), reader)
        except (aiohttp.ClientError, TimeoutError, OSError, TransferUnavailable) as error:
            raise Fault.NO_ISOLATION.failure(f"credentials can not be had: {error}") from error
        return CREDENTIALS

    def keep_fresh(self, job: ClassAd) -> None:
        """Refresh them every CRED_CHECK_INTERVAL from now on, also those of an earlier life's run."""
        if self._over or not job.eval_string(NEEDED).strip(" ,") or not self._place.is_dir():
            return

        def due() -> None:
            self._context.in_background(again(), f"credentials:{self._record.key}")

        async def again() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                try:
                    found = await self._fetch()
                    if not self._over:
                        self._write(found, self._reader())
                except (aiohttp.ClientError, TimeoutError, OSError, TransferUnavailable, RunFailed) as error:
                    # The job has those of the last time, and the schedd may be back the next time.
                    self._log.warning("credentials_not_refreshed", reason=f"{type(error).__name__}: {error}")
                self.keep_fresh(job)

        loop = asyncio.get_running_loop()
        self._refreshing = loop.call_later(self._context.settings().credentials_interval, due)

    def remove(self) -> None:
        """Let nothing stay of them."""
        self.close()
        self.unmount()

    def unmount(self) -> None:
        """What a life before this one left in memory goes."""
        place = self._place
        if os.path.ismount(place):
            with contextlib.suppress(OSError):
                kernel.unmount(str(place))

    def close(self) -> None:
        """Refresh no more in this life of the startd."""
        self._over = True
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def _fetch(self) -> dict[str, bytes]:
        """File names and what is in them. Raises RunFailed, ClientError, TimeoutError."""
        record = self._record
        headers = {"Authorization": f"Bearer {record.transfer_token}"}
        address = f"{record.transfer_url}/credentials"
        try:
            way = await self._context.transfer_tls.way(address)
        except InTheClear as error:
            raise Fault.IN_THE_CLEAR.failure(f"credentials: {error}") from error
        async with self._context.session().get(address, headers=headers, timeout=_TIMEOUT, ssl=way) as answer:
            data = await answer.content.read(_LIMIT)
            if answer.status == 422:
                raise Fault.NO_CREDENTIALS.failure(data[:1000].decode(errors="replace"))
            answer.raise_for_status()
            while more := await answer.content.read(_LIMIT):
                data += more
                if len(data) > _LIMIT:
                    raise OSError("more than a job's credentials can be")
        found = msgpack.unpackb(data)
        if not isinstance(found, dict) or any(
            not isinstance(name, str) or "/" in name or name in ("", ".", "..") or not isinstance(value, bytes)
            for name, value in found.items()
        ):
            raise OSError("no credentials came, but something else")
        return found

    def _reader(self) -> tuple[int, int] | None:
        """Whose those of the last time are. Raises OSError."""
        for name in os.listdir(self._place):
            if not name.startswith("."):
                has = os.lstat(self._place / name)
                return (has.st_uid, has.st_gid)
        return None

    def _write(self, found: dict[str, bytes], reader: tuple[int, int] | None) -> None:
        """Each file is the old or the new one at any moment. Raises OSError."""
        folder = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name, value in found.items():
                new = f".{name}.new"
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
                descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400, dir_fd=folder)
                with os.fdopen(descriptor, "wb") as file:
                    if reader is not None:
                        os.fchown(descriptor, *reader)
                    file.write(value)
                os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            for name in os.listdir(folder):
                if name not in found and not name.startswith("."):
                    os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
