"""The credentials of one run: fetched from the schedd into a file system in memory, refreshed while the job runs, gone
with its end.

They lie in `.condor_creds` of the scratch directory, which _CONDOR_CREDS names: a file `<service>.use` each, which only
the job's account reads. The directory belongs to the startd, so the job can put nothing there. A machine that can not
mount one refuses such jobs, unless ROOST_CREDENTIALS_ON_DISK accepts a plain directory.

A startd that is in a container mounts nothing that the engine sees. ROOST_CREDENTIALS_DIR names a directory in memory
that both have at the same path: each container job has a directory of its own there, which alone is mounted into its
container.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

import aiohttp
import msgpack
from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import CREDENTIALS
from services.startd.forkserver import kernel
from services.startd.isolation.host_capabilities import mountinfo
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
#: File systems that have no disk.
IN_MEMORY: Final = ("tmpfs", "ramfs")


class JobCredentials:
    """What one run has of them."""

    def __init__(self, record: RunRecord, context: RunContext, log: BoundLogger) -> None:
        self._record = record
        self._context = context
        self._log = log
        self._refreshing: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def outside(self) -> str:
        """Where they lie, if that is not in the scratch directory, which has an empty directory for them then."""
        folder, record = self._context.settings().credentials_dir, self._record
        return f"{folder}/{Path(record.scratch).name}" if folder and record.launcher == "docker" else ""

    @property
    def _place(self) -> Path:
        return Path(self.outside or self._context.scratch(self._record) / CREDENTIALS)

    async def deliver(self, job: ClassAd, reader: tuple[int, int] | None) -> str:
        """Have them there before the job starts. reader: uid and gid of the job; none: the startd's. The name of the
        directory in the scratch directory; empty where the job wants none. Raises RunFailed."""
        if not job.eval_string(NEEDED).strip(" ,"):
            return ""
        record = self._record
        if record.launcher not in LAUNCHERS:
            raise Fault.NO_CREDENTIALS.failure(f"credentials can not be delivered to {record.launcher} jobs")
        if not record.transfer_url:
            raise Fault.NO_CREDENTIALS.failure(
                "credentials come with the job's files: should_transfer_files = YES is needed for use_oauth_services"
            )
        if self.outside:
            self._make_outside()
        else:
            self._make_here(on_disk=self._context.settings().credentials_on_disk)
        try:
            self._write(await self._fetch(), reader)
        except (aiohttp.ClientError, TimeoutError, OSError, TransferUnavailable) as error:
            raise Fault.NO_ISOLATION.failure(f"credentials can not be had: {error}") from error
        return CREDENTIALS

    def _make_here(self, *, on_disk: bool) -> None:
        """Raises RunFailed."""
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

    def _make_outside(self) -> None:
        """Raises RunFailed."""
        place = self._place
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(place.parent, 0o700)
            kept = os.stat(place.parent)
            if (kind := file_system_of(mountinfo(), kept.st_dev)) not in IN_MEMORY:
                raise OSError(f"it is in a file system {kind or 'of an unknown kind'}, and not in memory")
            if kept.st_uid != os.geteuid() or kept.st_mode & 0o077:
                raise OSError("others than the startd's account can look into it: want its owner, and mode 0700")
            os.mkdir(place, 0o711)
            os.mkdir(self._context.scratch(self._record) / CREDENTIALS, 0o711)  # what it is mounted over
        except OSError as error:
            raise Fault.NO_ISOLATION.failure(
                f"credentials can not be kept in ROOST_CREDENTIALS_DIR = {place.parent}: {error.strerror or error}"
            ) from error

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
        if self.outside:
            shutil.rmtree(place, ignore_errors=True)
        elif os.path.ismount(place):
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


def file_system_of(mountinfo: str, device: int) -> str:
    """The kind of file system of a device, from the text of /proc/self/mountinfo; empty: not known. Pure."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2:3] == [number]:
            return source.partition(" ")[0]
    return ""
