"""The startd's end of the fork server: starts it, connects, reconnects, and turns its frames into answers."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.startd import forkserver
from services.startd.forkserver import proof
from services.startd.forkserver.build import PROGRAM
from services.startd.forkserver.processes import all_pids, kill_descendants, send_signal
from shared.errors import RetryableError
from shared.local_sockets import connect_local

#: The interpreter sees none of our libraries, only the packages' own directory.
_START = (
    "import sys; sys.path.append(sys.argv[1]); from services.startd.forkserver.server import main; main(*sys.argv[2:])"
)
_ROOT = Path(forkserver.__file__).parents[3]
#: How long the server may take until it can be connected to (a few dozen milliseconds on an idle machine), seconds.
START_S = 30.0
#: How often to look whether the processes of a server that was killed are gone, and whether a server that does not
#: answer does again, seconds.
LOOK_S = 0.02
#: Nannies end their jobs when they see the server's end. After so long they are helped, seconds.
NANNIES_S = 2.0


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
    lease_over: bool = False  # it was killed because its lease had passed


class ForkServer:
    """One startd's fork server, in `directory`. `orphan_s`: how long it and its jobs live on without a startd.
    `killing_timeout_s`: how long a nanny may take to kill its job until it is killed itself, as it is now. `native`:
    whether a server that is started uses the spawner in C where it can."""

    def __init__(
        self,
        directory: Path,
        *,
        orphan_s: float,
        now: Callable[[], float],
        boottime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        killing_timeout_s: Callable[[], float] = lambda: 30.0,
        native: bool = True,
        warn: Callable[..., None] = lambda event, **about: None,
    ) -> None:
        self.directory = directory
        self.orphan_s = orphan_s
        self.running: dict[str, Process] = {}
        self._now = now
        self._boottime = boottime
        self._killing_timeout_s = killing_timeout_s
        self._wants_native = native
        self._leases: dict[str, float] = {}  # when each ends, by CLOCK_BOOTTIME: told again to a server that missed it
        self._warn = warn
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._spawning: dict[str, asyncio.Future[Process]] = {}
        self._ended: dict[str, asyncio.Future[ProcessEnd]] = {}
        self._stopped = False
        self._abandoned: set[str] = set()
        self._killed: set[str] = set()  # that are to be killed: told again to a server that may not have heard it
        self._recovering: asyncio.Task[None] | None = None
        self._mounts: dict[int, asyncio.Future[None]] = {}
        self._last_id = 0
        self.pid = 0  # the server's, once it is connected to
        #: It is of a version that asked nobody for a proof, or knows fewer walls, and stays for the jobs that it has.
        self.outdated = False
        #: It is of a version without leases: it gets jobs, and a successor as soon as it has none.
        self.knows_leases = True
        #: Its nannies are in C; if not, and they were to be, why not.
        self.native, self.why_not = False, ""
        self._warned_of = 0  # pid of the server that was last warned of

    # -- life

    async def start(self) -> None:
        """Connect, starting the server when there is none. Afterwards `running` and `end_of` tell of jobs that were
        there before. Raises ForkServerGone."""
        if self._recovering is not None:
            await asyncio.shield(self._recovering)
        async with self._starting:
            if self._writer is not None and not (self._to_replace and not self.running):
                return
            deadline = time.monotonic() + START_S
            while True:
                try:
                    if self._writer is None:
                        await self._connect()
                    if not self._to_replace:
                        return
                    if self.running:
                        if self.outdated or self._warned_of != self.pid:
                            self._warned_of = self.pid
                            self._warn("fork_server_outdated", pid=self.pid, jobs=len(self.running))
                        return
                    await self._replace()
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise ForkServerGone(f"no fork server in {self.directory}: {error}") from error
                # Starting one is a no-op while an older one holds the lock, perhaps on its way out.
                channel = await asyncio.to_thread(self._launch)
                if channel is not None:
                    try:
                        await self._adopt(*await asyncio.open_unix_connection(sock=channel), forkserver.Frames())
                        return
                    except OSError as error:
                        raise ForkServerGone(f"the fork server in {self.directory} ended at once: {error}") from error
                await asyncio.sleep(0.01)

    @property
    def _to_replace(self) -> bool:
        return self.outdated or not self.knows_leases

    async def _replace(self) -> None:
        """End a server of an older version that has no jobs; what it kept on disk the next one reads."""
        reading, self._reading = self._reading, None
        self._send({"op": "exit"})
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
        self._writer, self.outdated, self.knows_leases = None, False, True

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
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.gather(self._recovering, return_exceptions=True)
        for spawning in self._spawning.values():
            spawning.cancel()
        for ended in self._ended.values():
            ended.cancel()

    # -- jobs

    async def spawn(self, run: str, request: dict[str, Any], lease_s: float | None = None) -> Process:
        """Start a job. It is killed after `lease_s`, unless `lease` says otherwise by then; None: it has no lease.
        Raises SpawnFailed, ForkServerGone."""
        await self.start()
        if self.outdated:
            what = (
                "a fork server of an older version, which can not wall jobs off as this one does, still has jobs here"
            )
            raise SpawnFailed("start", errno.EAGAIN, what)
        future: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
        self._spawning[run] = future
        if lease_s is not None:
            request = request | {"lease": self._boottime() + lease_s}
        self._send({"op": "spawn", "run": run, **request})
        try:
            process = await future
        finally:
            self._spawning.pop(run, None)
        return process

    async def end_of(self, run: str) -> ProcessEnd:
        """Wait until the run has ended. A run that nobody knows is lost at once; one that was known is lost only when
        none of its processes is left. Raises ForkServerGone."""
        if run not in self.running and run not in self._ended:
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

    def lease(self, leases: Mapping[str, float]) -> None:
        """Let these runs live for so many seconds from now, startd or not. Those that are not there are passed over."""
        now = self._boottime()
        ends = {run: now + left_s for run, left_s in leases.items() if run in self.running or run in self._spawning}
        if ends:
            self._leases |= ends
            self._send({"op": "lease", "leases": ends})

    def kill(self, run: str) -> None:
        if run in self.running or run in self._spawning:
            self._killed.add(run)
        self._send({"op": "kill", "run": run, "stuck_s": self._killing_timeout_s()})

    def forget(self, run: str) -> None:
        """The end of this run is on record elsewhere."""
        self._ended.pop(run, None)
        self._leases.pop(run, None)
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
        """To a server that is there already. Raises OSError when there is none, one that is just ending, or one that
        is not ours."""
        reader, writer = await asyncio.open_unix_connection(sock=await asyncio.to_thread(self._call))
        frames = forkserver.Frames()
        try:
            await self._prove(reader, writer, frames)
        except BaseException:
            writer.close()
            raise
        await self._adopt(reader, writer, frames)

    def _call(self) -> socket.socket:
        """Waits where many call at a time, which asyncio does not do for this kind of sockets. Blocking. Raises
        OSError."""
        return connect_local(self.directory / "socket", START_S)

    async def _prove(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: forkserver.Frames
    ) -> None:
        """Show the server that we are its startd, and have it show that it is our server. Raises OSError."""
        secret = await asyncio.to_thread(self._secret)
        asked = await self._next_frame(reader, frames)
        self.outdated = not secret and asked.get("op") == "state"
        if self.outdated:
            frames.unread(asked)
            return
        own = os.urandom(proof.NONCE_BYTES)
        try:
            if asked.get("op") != "prove" or not secret:
                raise ValueError("it asks for no proof")
            answer = proof.mac(secret, "client", proof.nonce_of(asked))
            writer.write(forkserver.pack({"op": "proof", "nonce": own.hex(), "mac": answer}))
            proved = await self._next_frame(reader, frames)
            if not proof.same(str(proved.get("mac", "")), proof.mac(secret, "server", own)):
                raise ValueError("it does not know our secret")
        except ValueError as error:
            raise ConnectionRefusedError(f"what answers in {self.directory} is not our fork server: {error}") from error

    def _secret(self) -> bytes:
        try:
            return (self.directory / proof.SECRET_FILE).read_bytes()
        except FileNotFoundError:
            return b""

    async def _adopt(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: forkserver.Frames
    ) -> None:
        """This is the server from now on: what it knows is what there is. Raises OSError."""
        try:
            state = await self._next_frame(reader, frames)
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self.outdated |= state.get("walls") != forkserver.WALLS
        self.knows_leases = bool(state.get("leases"))
        self._take_state(state)
        self._leases = {run: until for run, until in self._leases.items() if run in self.running}
        if self._leases:
            self._send({"op": "lease", "leases": self._leases})
        for run in list(self._killed):
            self.kill(run)
        self._reading = asyncio.create_task(self._read(reader, frames), name="fork-server-reader")

    def _launch(self) -> socket.socket | None:
        """Start the server process and wait until it listens: our end of its first channel. None: another one serves
        the directory. Raises ForkServerGone."""
        reader, writer = os.pipe()
        ours, theirs = socket.socketpair()
        try:
            command = [sys.executable, "-I", "-S", "-c", _START, str(_ROOT)]
            with open(self.directory / "log", "ab") as log:
                process = subprocess.Popen(
                    [
                        *(*command, str(self.directory), str(self.orphan_s), str(writer), str(theirs.fileno())),
                        str(PROGRAM) if self._wants_native else "",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(writer, theirs.fileno()),
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                )
            os.close(writer)
            writer = -1
            serves = os.read(reader, 1) != b""
            # Never waited for by name again: it outlives us. Should it end before us, poll() collects it.
            _collect(process)
        except OSError as error:
            ours.close()
            raise ForkServerGone(f"{sys.executable}: {error}") from error
        finally:
            theirs.close()
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        if serves:
            return ours
        ours.close()
        return None

    async def _next_frame(self, reader: asyncio.StreamReader, frames: forkserver.Frames) -> forkserver.Frame:
        """Raises OSError."""
        try:
            while (frame := frames.next()) is None:
                data = await asyncio.wait_for(reader.read(1 << 20), START_S)
                if not data:
                    raise ConnectionResetError(f"the fork server in {self.directory} hung up")
                frames.add(data)
        except ValueError as error:
            raise ConnectionResetError(f"what answers in {self.directory} is no fork server: {error}") from error
        return frame

    async def _read(self, reader: asyncio.StreamReader, frames: forkserver.Frames) -> None:
        while True:
            while (frame := frames.next()) is not None:
                self._take(frame)
            try:
                data = await reader.read(1 << 20)
            except OSError:
                data = b""
            if not data:
                break
            frames.add(data)
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if not self._stopped:
            recovery = self._recover(self.pid, dict(self.running))
            self._recovering = asyncio.create_task(recovery, name="fork-server-recovery")

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
            self._killed.discard(run)
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
        self.native, self.why_not = bool(frame.get("native")), str(frame.get("why_not", ""))
        self.running = {one["run"]: _process(one) for one in frame["running"]}
        for run, process in self.running.items():
            if process.pid:
                self._settle(self._spawning, run, process)
        for one in frame["ended"]:
            self._take(one | {"op": "ended"})

    async def _recover(self, server: int, before: dict[str, Process]) -> None:
        """The connection is gone. A server that lives is found again, and its jobs with it; the jobs of one that was
        killed are lost, once none of their processes is left."""
        began, told = time.monotonic(), False
        async with self._starting:
            while True:
                try:
                    await self._connect()
                    break
                except OSError as error:
                    reason = str(error)
                if await asyncio.to_thread(self._nobody_serves):
                    await asyncio.to_thread(_end_nannies, server)
                    self.running = {}
                    break
                if not told and time.monotonic() > began + START_S:
                    told = True
                    self._warn("fork_server_silent", pid=server, reason=reason, jobs=len(before))
                await asyncio.sleep(LOOK_S)
        self._settle_lost(before)

    def _settle_lost(self, before: dict[str, Process]) -> None:
        """Tell who waits for what the server, as it is now, does not know."""
        gone = ForkServerGone(f"the fork server in {self.directory} was killed, and its jobs with it")
        starting = [future for run, future in self._spawning.items() if run not in self.running]
        waiting: list[asyncio.Future[Any]] = [*starting, *self._mounts.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(gone)
        for run, process in before.items():
            if run not in self.running:
                self._killed.discard(run)
                self._end(run)
                self._settle(self._ended, run, ProcessEnd(run, None, self._now(), process.started_at))

    def _nobody_serves(self) -> bool:
        """A server holds its lock as long as it lives."""
        try:
            with open(self.directory / "lock", "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except FileNotFoundError:
            pass  # the directory was removed under it
        return True

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
        frame.get("lease_over", False),
    )


def _end_nannies(server: int) -> None:
    """Wait until all that was below a server that was killed is gone. Blocking.

    Nannies end their jobs and themselves when they see the server's end; one that is slow is helped. They are known by
    their session, which is the server's and no job's."""
    helped = time.monotonic() + NANNIES_S
    while nannies := [pid for pid in all_pids() if _session_of(pid) == server]:
        if time.monotonic() > helped:
            for nanny in nannies:
                kill_descendants(nanny)
                send_signal(nanny, signal.SIGCONT)  # a stopped one does not see anything
        select.select([], [], [], LOOK_S)


def _session_of(pid: int) -> int:
    """Of a process that is alive; 0: it is gone, or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return 0 if fields[0] in ("Z", "X") else int(fields[3])
    except (OSError, ValueError, IndexError):
        return 0


def _collect(process: subprocess.Popen[bytes]) -> None:
    """Keep the interpreter from warning about a child that is meant to outlive us, and from making it a zombie."""
    import threading  # only here, and only once a life

    threading.Thread(target=process.wait, name="fork-server-wait", daemon=True).start()
