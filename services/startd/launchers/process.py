"""Jobs as plain processes, children of the fork server."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from services.startd.launchers.api import Finished, Launch, Launcher, LaunchFailed, Measured, Started
from services.startd.starter.client import ForkServer, ForkServerGone, ProcessEnd, SpawnFailed
from services.startd.starter.faults import Fault
from services.startd.walls.warden import Warden

#: Of what a runtime or a monitor said at most so much is looked at, bytes.
SAID = 65536
#: By the step that failed.
_FAULTS = {
    "exec": Fault.NO_EXECUTABLE,
    "stdin": Fault.NO_INPUT_FILE,
    "stdout": Fault.NO_OUTPUT_FILE,
    "stderr": Fault.NO_OUTPUT_FILE,
    "cwd": Fault.NO_DIRECTORY,
}
_WHAT = {
    "exec": "the executable can not be run",
    "stdin": "the input file can not be read",
    "stdout": "the output file can not be written",
    "stderr": "the error file can not be written",
    "cwd": "the working directory can not be entered",
}
#: The machine's trouble rather than the job's: run it elsewhere.
_MACHINE = frozenset((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC))


class ProcessLauncher:
    def __init__(self, server: ForkServer, warden: Warden, wrapper: Callable[[], str] = lambda: "") -> None:
        """wrapper: USER_JOB_WRAPPER as it is now, a program that gets the job's command line and becomes the job; where
        it is empty, jobs are started themselves."""
        self.server = server
        self.warden = warden
        self._wrapper = wrapper

    async def adopt(self, runs: set[str]) -> None:
        """Nothing to do: the fork server knows its processes."""

    async def prepare(self, launch: Launch) -> None:
        await self.warden.prepare(launch)

    async def start(self, launch: Launch) -> Started:
        wrapper = "" if launch.image or launch.container is not None else self._wrapper()
        request = {
            "executable": wrapper or launch.executable,
            "argv": [wrapper, *launch.argv] if wrapper else list(launch.argv),
            "env": dict(launch.env),
            "cwd": launch.cwd,
            "stdin": launch.stdin,
            "stdout": launch.stdout,
            "stderr": launch.stderr,
            "append_stdout": launch.append,
            "append_stderr": launch.append,
        }
        request |= self.warden.request(launch)
        try:
            process = await self.server.spawn(launch.run, request)
        except ForkServerGone as error:
            self.warden.forget(launch.run)
            raise Fault.PROCESS_LOST.failure(str(error)) from error
        except SpawnFailed as error:
            self.warden.forget(launch.run)
            if wrapper and error.what == "exec":
                raise Fault.NO_PROCESS.failure(f"USER_JOB_WRAPPER can not be run: {error.message}") from error
            raise _reason(error, launch) from error
        return Started(process.pid, process.started_at)

    async def finished(self, run: str) -> Finished:
        try:
            end = await self.server.end_of(run)
        except ForkServerGone as error:
            self.warden.ended(run, used_up=True)
            return Finished(0.0, 0.0, trouble=str(error))
        await self.warden.look_at_disk(run)
        found = self.warden.judge(run, self._finished(end), end.out_of_memory)
        self.warden.ended(run, used_up=end.cgroup_used_up or end.status is None)
        return found

    @staticmethod
    def _finished(end: ProcessEnd) -> Finished:
        if end.status is None:
            return Finished(end.at, end.started_at, trouble="the job's processes were lost with their parent")
        signaled = os.WIFSIGNALED(end.status)
        return Finished(
            at=end.at,
            started_at=end.started_at,
            exit_code=None if signaled else os.WEXITSTATUS(end.status),
            exit_signal=os.WTERMSIG(end.status) if signaled else None,
            core_dumped=signaled and os.WCOREDUMP(end.status),
            user_cpu_s=end.user_cpu_s,
            sys_cpu_s=end.sys_cpu_s,
            max_rss_kib=end.max_rss_kib,
        )

    def knows(self, run: str) -> bool:
        return self.server.knows(run)

    async def signal(self, run: str, number: int) -> None:
        self.server.signal(run, number)
        if number == signal.SIGTERM:
            # A stopped process would never see it.
            self.server.signal(run, signal.SIGCONT, tree=True)

    async def kill(self, run: str) -> None:
        self.server.kill(run)

    async def suspend(self, run: str) -> None:
        self.server.signal(run, signal.SIGSTOP, tree=True)

    async def continue_(self, run: str) -> None:
        self.server.signal(run, signal.SIGCONT, tree=True)

    async def measure(self, run: str) -> Measured:
        process = self.server.running.get(run)
        if process is None:
            return Measured()
        return await asyncio.to_thread(self._measure, run, process.nanny)

    def _measure(self, run: str, nanny: int) -> Measured:
        """The cgroup knows best; the size of what is mapped it does not know."""
        seen, use = measure_tree(nanny), self.warden.use(run)
        if use is None:
            return seen
        # The cgroup's times are of all jobs that were in it: those of the processes are this job's.
        return replace(seen, resident_set_kib=use.resident_kib, procs=max(use.procs, seen.procs))

    async def forget(self, run: str) -> None:
        self.warden.forget(run)
        self.server.forget(run)

    async def stop(self) -> None:
        await self.server.stop(end_server=not self.server.running)


def measure_tree(nanny: int) -> Measured:
    """What the processes below a nanny use; those that end meanwhile count as far as they were seen."""
    user = system = 0.0
    rss = size = count = 0
    try:
        processes = psutil.Process(nanny).children(recursive=True)
    except psutil.NoSuchProcess:
        return Measured()
    for process in processes:
        try:
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        user += times.user + times.children_user
        system += times.system + times.children_system
        rss += memory.rss
        size += memory.vms
        count += 1
    return Measured(user, system, size // 1024, rss // 1024, count)


class OnProcesses:
    """What launchers share whose jobs are processes under a program of theirs, a runtime or a monitor: what they do not
    do otherwise the process launcher does."""

    processes: Launcher

    def knows(self, run: str) -> bool:
        return self.processes.knows(run)

    async def signal(self, run: str, number: int) -> None:
        await self.processes.signal(run, number)

    async def kill(self, run: str) -> None:
        await self.processes.kill(run)

    async def suspend(self, run: str) -> None:
        await self.processes.suspend(run)

    async def continue_(self, run: str) -> None:
        await self.processes.continue_(run)

    async def measure(self, run: str) -> Measured:
        return await self.processes.measure(run)

    async def forget(self, run: str) -> None:
        await self.processes.forget(run)

    async def stop(self) -> None:
        """The process launcher is stopped by itself."""


def _reason(error: SpawnFailed, launch: Launch) -> LaunchFailed:
    fault = _FAULTS.get(error.what, Fault.NO_PROCESS)
    if fault is Fault.NO_PROCESS or error.errno in _MACHINE:
        return Fault.NO_PROCESS.failure(f"this machine could not start the job: {error.message}")
    hint = ""
    if error.what == "exec":
        hint = _hint(Path(launch.executable), error.errno)
    message = f"{_WHAT[error.what]}: {error.message}{hint} (errno {error.errno})"
    return fault.failure(message, error.errno)


def _hint(executable: Path, number: int) -> str:
    if number == errno.ENOENT and executable.exists():
        return "; the file is there, so the interpreter that its first line names is missing"
    if number == errno.ENOEXEC:
        return "; it is neither a program for this machine nor a script that begins with #!"
    if number == errno.EACCES and executable.is_file() and not os.access(executable, os.X_OK):
        return "; it lacks the permission to be executed (chmod +x)"
    if number == errno.EACCES and executable.is_dir():
        return "; it is a directory"
    return ""


def read_end(path: str, start: int) -> str:
    """The end of what a file holds after `start`. Only of a plain file, and of no link's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ""
        cut = max(start, status.st_size - SAID)
        text = os.pread(descriptor, SAID, cut).decode("utf-8", "replace")
        return text if cut == start else text.partition("\n")[2]
    except OSError:
        return ""
    finally:
        os.close(descriptor)
