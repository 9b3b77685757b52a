"""The startd's end of the fork server: starts it, connects, reconnects, and turns its frames into answers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.startd import forkserver
from shared.errors import RetryableError

#: The interpreter sees none of our libraries, only the packages' own directory.
_START = (
    "import sys; sys.path.append(sys.argv[1]); from services.startd.forkserver.server import main; main(*sys.argv[2:])"
)
_ROOT = Path(forkserver.__file__).parents[3]
#: How long the server may take until it can be connected to (a few dozen milliseconds on an idle machine), seconds.
START_S = 30.0


class ForkServerGone(RetryableError):
    """The fork server can not be started or was killed; its jobs died with it."""


class SpawnFailed(Exception):
    """A job's process could not be started: in which step, with which errno."""

    def __init__(self, what: str, number: int, message: str) -> None:
        super().__init__(message)
        self.what = what
        self.errno = number
        self.message = message


@dataclass(frozen=True, slots=True)
class Process:
    run: str
    pid: int
    nanny: int
    started_at: float
    tracking_gid: int = 0
    group: str = ""  # its cgroup's name


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """`status` as waitpid gives it; None: the job was lost (its nanny or the server was killed)."""

    run: str
    status: int | None
    at: float
    started_at: float = 0.0
    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    max_rss_kib: int = 0
    out_of_memory: dict[str, Any] | None = None  # killed, own, peak_bytes: see the fork server
    cgroup_used_up: bool = False


class ForkServer:
    """One startd's fork server, in `directory`. `orphan_s`: how long it and its jobs live on without a startd."""

    def __init__(self, directory: Path, *, orphan_s: float, now: Callable[[], float]) -> None:
        self.directory = directory
        self.orphan_s = orphan_s
        self.running: dict[str, Process] = {}
        self._now = now
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._spawning: dict[str, asyncio.Future[Process]] = {}
        self._ended: dict[str, asyncio.Future[ProcessEnd]] = {}
        self._stopped = False
        self._abandoned: set[str] = set()
        self._mounts: dict[int, asyncio.Future[None]] = {}
        self._last_id = 0
        self.pid = 0  # the server's, once it is connected to

    # -- life

    async def start(self) -> None:
        """Connect, starting the server when there is none. Afterwards `running` and `end_of` tell of jobs that were
        there before. Raises ForkServerGone."""
        async with self._starting:
            if self._writer is not None:
                return
            deadline = time.monotonic() + START_S
            while True:
                try:
                    await self._connect()
                    return
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise ForkServerGone(f"no fork server in {self.directory}: {error}") from error
                # Starting one is a no-op while an older one holds the lock, perhaps on its way out.
                await asyncio.to_thread(self._launch)
                await asyncio.sleep(0.01)

    async def stop(self, *, end_server: bool) -> None:
        """Disconnect. The server and its jobs live on unless `end_server`."""
        self._stopped = True
        if end_server and self._writer is not None:
            self._send({"op": "exit"})
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            if not end_server:
                self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        for spawning in self._spawning.values():
            spawning.cancel()
        for ended in self._ended.values():
            ended.cancel()

    # -- jobs

    async def spawn(self, run: str, request: dict[str, Any]) -> Process:
        """Start a job. Raises SpawnFailed, ForkServerGone."""
        await self.start()
        future: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
        self._spawning[run] = future
        self._send({"op": "spawn", "run": run, **request})
        try:
            process = await future
        finally:
            self._spawning.pop(run, None)
        return process

    async def end_of(self, run: str) -> ProcessEnd:
        """Wait until the run has ended. A run that nobody knows is lost at once."""
        await self.start()
        if run not in self.running and run not in self._ended:
            return ProcessEnd(run, None, self._now())
        return await asyncio.shield(self._end(run))

    def knows(self, run: str) -> bool:
        """Whether the run is going on, or has ended and was not forgotten."""
        return run in self.running or run in self._ended

    def signal(self, run: str, number: int, *, tree: bool = False) -> None:
        """Signal the job's main process, or all of its processes. Does nothing when it has ended."""
        self._send({"op": "signal", "run": run, "signal": int(number), "tree": tree})

    def kill(self, run: str) -> None:
        self._send({"op": "kill", "run": run})

    def forget(self, run: str) -> None:
        """The end of this run is on record elsewhere."""
        self._ended.pop(run, None)
        self._send({"op": "ack", "run": run})

    async def mount(self, source: str, target: str, fstype: str, options: str) -> None:
        """Mount it where the server's later jobs see it, and nobody else. Raises OSError, ForkServerGone."""
        await self._mount({"op": "mount", "source": source, "target": target, "fstype": fstype, "options": options})

    async def unmount(self, target: str) -> None:
        """Raises OSError, ForkServerGone."""
        await self._mount({"op": "unmount", "target": target})

    async def _mount(self, frame: dict[str, Any]) -> None:
        await self.start()
        number = self._last_id = self._last_id + 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._mounts[number] = future
        self._send(frame | {"id": number})
        try:
            await future
        finally:
            self._mounts.pop(number, None)

    def abandon(self, run: str) -> None:
        """Kill the run if it was started, and forget it as soon as it has ended."""
        self._abandoned.add(run)
        self.kill(run)
        if run in self._ended:
            self.forget(run)

    def forget_others(self, known: Container[str]) -> None:
        """End and forget the runs of an earlier life that nobody knows any more."""
        for run in [*self.running, *self._ended]:
            if run not in known:
                self.abandon(run)

    # -- inside

    def _end(self, run: str) -> asyncio.Future[ProcessEnd]:
        future = self._ended.get(run)
        if future is None:
            future = self._ended[run] = asyncio.get_running_loop().create_future()
        return future

    async def _connect(self) -> None:
        """Raises OSError when there is no server, or one that is just ending."""
        # The path of a socket may have 107 bytes only, so the way leads through an open directory.
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/socket")
        finally:
            os.close(folder)
        frames = forkserver.Frames()
        try:
            state = await self._first_frame(reader, frames)
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self._take_state(state)
        self._reading = asyncio.create_task(self._read(reader, frames), name="fork-server-reader")

    def _launch(self) -> None:
        """Start the server process and wait until it listens. One that already runs makes this a no-op."""
        reader, writer = os.pipe()
        try:
            command = [sys.executable, "-I", "-S", "-c", _START, str(_ROOT)]
            with open(self.directory / "log", "ab") as log:
                process = subprocess.Popen(
                    [*command, str(self.directory), str(self.orphan_s), str(writer)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(writer,),
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                )
            os.close(writer)
            writer = -1
            os.read(reader, 1)
            # Never waited for by name again: it outlives us. Should it end before us, poll() collects it.
            _collect(process)
        except OSError as error:
            raise ForkServerGone(f"{sys.executable}: {error}") from error
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)

    async def _first_frame(self, reader: asyncio.StreamReader, frames: forkserver.Frames) -> forkserver.Frame:
        while True:
            data = await asyncio.wait_for(reader.read(1 << 20), START_S)
            if not data:
                raise ConnectionResetError(f"the fork server in {self.directory} hung up")
            for frame in frames.feed(data):
                return frame

    async def _read(self, reader: asyncio.StreamReader, frames: forkserver.Frames) -> None:
        while True:
            try:
                data = await reader.read(1 << 20)
            except OSError:
                data = b""
            if not data:
                break
            for frame in frames.feed(data):
                self._take(frame)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if not self._stopped:
            self._lost()

    def _take(self, frame: dict[str, Any]) -> None:
        op, run = frame["op"], frame.get("run", "")
        if op == "spawned":
            process = _process(frame)
            self.running[run] = process
            self._settle(self._spawning, run, process)
        elif op == "failed":
            future = self._spawning.get(run)
            if future is not None and not future.done():
                future.set_exception(SpawnFailed(frame["what"], frame["errno"], frame["message"]))
            elif self.running.pop(run, None) is not None:
                # Its start was asked for in an earlier life: for us it is a run that was lost.
                self._end(run)
                self._settle(self._ended, run, ProcessEnd(run, None, self._now()))
        elif op == "ended":
            self.running.pop(run, None)
            self._end(run)
            self._settle(self._ended, run, _end_of(frame))
            if run in self._abandoned:
                self._abandoned.discard(run)
                self.forget(run)
        elif op == "mounted":
            mounting = self._mounts.get(frame["id"])
            if mounting is not None and not mounting.done():
                if frame["message"]:
                    mounting.set_exception(OSError(frame["errno"], frame["message"]))
                else:
                    mounting.set_result(None)
        elif op == "state":
            self._take_state(frame)

    def _take_state(self, frame: dict[str, Any]) -> None:
        self.pid = frame.get("pid", 0)
        self.running = {one["run"]: _process(one) for one in frame["running"]}
        for one in frame["ended"]:
            self._end(one["run"])
            self._settle(self._ended, one["run"], _end_of(one))

    def _lost(self) -> None:
        """The server went away. Its jobs go with it."""
        gone = f"the fork server in {self.directory} was killed, and its jobs with it"
        waiting: list[asyncio.Future[Any]] = [*self._spawning.values(), *self._mounts.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(ForkServerGone(gone))
        for run in list(self.running):
            self._end(run)
            self._settle(self._ended, run, ProcessEnd(run, None, self._now(), self.running[run].started_at))
        self.running.clear()

    @staticmethod
    def _settle(futures: dict[str, asyncio.Future[Any]], run: str, value: Any) -> None:
        future = futures.get(run)
        if future is not None and not future.done():
            future.set_result(value)

    def _send(self, frame: dict[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(forkserver.pack(frame))


def _process(frame: dict[str, Any]) -> Process:
    return Process(
        frame["run"], frame["pid"], frame["nanny"], frame["at"], frame.get("tracking_gid", 0), frame.get("group", "")
    )


def _end_of(frame: dict[str, Any]) -> ProcessEnd:
    return ProcessEnd(
        frame["run"],
        frame["status"],
        frame["at"],
        frame.get("started_at", 0.0),
        frame.get("user_cpu_s", 0.0),
        frame.get("sys_cpu_s", 0.0),
        frame.get("max_rss_kib", 0),
        frame.get("out_of_memory"),
        frame.get("cgroup_used_up", False),
    )


def _collect(process: subprocess.Popen[bytes]) -> None:
    """Keep the interpreter from warning about a child that is meant to outlive us, and from making it a zombie."""
    import threading  # only here, and only once a life

    threading.Thread(target=process.wait, name="fork-server-wait", daemon=True).start()
