"""The process launcher: jobs are plain processes, children of the fork server."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import Choice, Finished, Launch, Measured, Started
from services.startd.exec.api import Launcher, LauncherKind
from services.startd.forkserver.client import ForkServer, ForkServerGone, ProcessEnd, SpawnFailed
from services.startd.isolation.manager import IsolationManager

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


class ProcessLauncher(Launcher):
    def __init__(
        self, server: ForkServer, isolation: IsolationManager, wrapper: Callable[[], str] = lambda: ""
    ) -> None:
        """wrapper: USER_JOB_WRAPPER as it is now, a program that gets the job's command line and becomes the job; where
        it is empty, jobs are started themselves."""
        self.server = server
        self.isolation = isolation
        self._wrapper = wrapper

    async def prepare(self, launch: Launch) -> None:
        await self.isolation.prepare(launch)

    async def start(self, launch: Launch) -> Started:
        wrapper = "" if launch.image or launch.in_container else self._wrapper()
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
        request |= self.isolation.request(launch)
        try:
            process = await self.server.spawn(launch.run, request)
        except ForkServerGone as error:
            self.isolation.forget(launch.run)
            raise Fault.PROCESS_LOST.failure(str(error)) from error
        except SpawnFailed as error:
            self.isolation.forget(launch.run)
            if wrapper and error.what == "exec":
                raise Fault.NO_PROCESS.failure(f"USER_JOB_WRAPPER can not be run: {error.message}") from error
            raise _reason(error, launch) from error
        return Started(process.pid, process.started_at)

    async def finished(self, run: str) -> Finished:
        try:
            end = await self.server.end_of(run)
        except ForkServerGone as error:
            self.isolation.ended(run, used_up=True)
            return Finished(0.0, 0.0).lost(Fault.PROCESS_LOST, str(error))
        await self.isolation.check_disk(run)
        found = self.isolation.explain_end(run, self._finished(end), end.out_of_memory)
        self.isolation.ended(run, used_up=end.cgroup_used_up or end.status is None)
        return found

    @staticmethod
    def _finished(end: ProcessEnd) -> Finished:
        if end.status is None:
            return Finished(end.at, end.started_at).lost(
                Fault.PROCESS_LOST, "the job's processes were lost with their parent"
            )
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
        seen, use = measure_tree(nanny), self.isolation.use(run)
        if use is None:
            return seen
        # The cgroup's times are of all jobs that were in it: those of the processes are this job's.
        return replace(seen, resident_set_kib=use.resident_kib, procs=max(use.procs, seen.procs))

    async def forget(self, run: str) -> None:
        self.isolation.forget(run)
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


def _reason(error: SpawnFailed, launch: Launch) -> RunFailed:
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


PROCESS = LauncherKind(
    name="process",
    make=lambda host: ProcessLauncher(host.fork_server, host.isolation, lambda: str(host.settings("process"))),
    choose=lambda job, machine, wrapper: Choice("process"),
    read_settings=lambda knobs: knobs.user_job_wrapper or "",
)
