"""A redis-server of the pool's own: a child process with an append-only file in the pool's directory.

It listens on a Unix socket only. It ends with the pool, also when the pool is killed (the kernel tells it,
on Linux); what an unlucky end left running is ended at the next start. If it dies itself it is started
again, and callers wait for it as for any Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import structlog

from shared.backoff import Backoff
from shared.state.api import StoreInUse, StoreUnavailable
from shared.state.redis_store import RedisStore
from shared.state.urls import StoreUrl

PROGRAM = "redis-server"
LEAST_VERSION = 7
#: Where the data lie, in the pool's directory: several files from Redis 7 on, one before.
APPEND_ONLY = ("appendonlydir/*", "appendonly.aof")
_PR_SET_PDEATHSIG = 1
#: A Unix socket's path has room for 107 bytes.
_LONGEST_SOCKET = 100
STOP_S = 10.0


def program() -> str | None:
    """Where redis-server is installed, if it is."""
    return shutil.which(PROGRAM)


def is_recent(exe: str) -> bool:
    """Whether this server has functions (shared.state.functions): Redis 7 and Valkey have. Blocks for some
    milliseconds."""
    try:
        told = subprocess.run([exe, "--version"], capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.search(r"\bv=(\d+)\.", told)
    return found is not None and int(found[1]) >= LEAST_VERSION


class PrivateRedis(RedisStore):
    """A RedisStore that brings its server along."""

    def __init__(self, directory: Path, *, retry_s: float = 5.0) -> None:
        self._directory = directory
        self._socket = socket_path(directory)
        url = StoreUrl("private", url=f"unix://{self._socket}", shown=f"{self._socket} (private)")
        super().__init__(url, retry_s=retry_s)
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._lock = -1
        self._log = structlog.get_logger("store")

    @property
    def pid(self) -> int | None:
        """Process id of the server, while there is one."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._socket.parent != self._directory.resolve():
            _make_own(self._socket.parent)
        self._take_lock()
        await self._end_leftover()
        await self._launch()
        await self._listening()
        self._keeper = asyncio.create_task(self._keep(), name="store:redis-server")
        await super().start()

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        await super().stop()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._lock >= 0:
            if self._socket.parent != self._directory.resolve():
                with contextlib.suppress(OSError):  # not empty, or never made
                    self._socket.parent.rmdir()
            os.close(self._lock)
            self._lock = -1

    def _take_lock(self) -> None:
        self._lock = os.open(self._directory / "state.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            self._lock = -1
            raise StoreInUse(
                f"{self._directory}: another process has this pool's state open; stop it, or choose another directory"
            ) from error

    async def _end_leftover(self) -> None:
        """Nobody else holds the lock, so a server that answers here has lost its pool."""
        while self._socket.exists():
            try:
                await self.ping()
                self._log.info("ending_leftover_redis", socket=str(self._socket))
                await self._once(lambda: self._client.execute_command("SHUTDOWN", "NOSAVE"))
            except StoreUnavailable as error:
                if "LOADING" not in str(error):
                    with contextlib.suppress(FileNotFoundError):
                        self._socket.unlink()
            await asyncio.sleep(0.01)

    async def _launch(self) -> None:
        exe = program()
        if exe is None:
            raise StoreUnavailable(f"{PROGRAM} is not installed: install it, or use embedded: or a Redis URL")
        if not await asyncio.to_thread(is_recent, exe):
            raise StoreUnavailable(
                f"{exe} is older than Redis {LEAST_VERSION}, or does not start: install a newer one, or use embedded: "
                "or a Redis URL"
            )
        self._process = await asyncio.create_subprocess_exec(
            exe,
            "--port", "0",
            "--unixsocket", str(self._socket),
            "--unixsocketperm", "700",
            "--dir", str(self._directory),
            "--appendonly", "yes",
            # With everysec Redis answers before it has written while its disk is busy, and kill -9 loses that.
            "--appendfsync", "always",
            "--save", "",
            "--daemonize", "no",
            "--logfile", "redis.log",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the pool, which stops it last
            preexec_fn=_end_with_parent(),
        )  # fmt: skip
        self._log.info("redis_started", pid=self._process.pid, directory=str(self._directory))

    async def _listening(self) -> None:
        """Its server takes a moment: who asks it before that tells of a fault that is none."""
        process = self._process
        while process is not None and process.returncode is None:
            if self._socket.exists():
                return
            await asyncio.sleep(0.01)

    async def _keep(self) -> None:
        backoff = Backoff(0.05, 5.0)
        while True:
            assert self._process is not None
            code = await self._process.wait()
            self._log.warning("redis_ended", code=code, log=str(self._directory / "redis.log"))
            await asyncio.sleep(backoff.next_s())
            try:
                await self._launch()
            except (OSError, StoreUnavailable) as error:
                self._log.error("redis_not_started", error=str(error))


def socket_path(directory: Path) -> Path:
    """Where the server of the pool in `directory` listens: there, or where paths are shorter."""
    wanted = directory.resolve() / "redis.sock"
    if len(os.fsencode(wanted)) <= _LONGEST_SOCKET:
        return wanted
    name = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"roost-{os.getuid()}-{name}", "redis.sock")


def _make_own(directory: Path) -> None:
    """A directory in a place where everybody may write. Raises StoreUnavailable when somebody else made it before:
    whoever owns it could put a socket of theirs there, and read all that the pool says."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StoreUnavailable(
            f"{directory} must be a directory that only this user can enter: remove it, or give the pool a directory "
            f"with a path of at most {_LONGEST_SOCKET - len('/redis.sock')} bytes"
        )


def _end_with_parent() -> Callable[[], None] | None:
    """To be run in the child between fork and exec: ask the kernel for SIGTERM when the parent dies."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # it died in between

    return ask
