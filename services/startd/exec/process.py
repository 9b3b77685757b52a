"""The process launcher: jobs are plain processes, children of the fork server."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from services.startd.core import separation
from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import Choice, Finished, Launch, Measured, Started
from services.startd.exec.api import LOOPBACK, Launcher, LauncherHost, LauncherKind
from services.startd.exec.process_tree import measure_tree
from services.startd.forkserver.client import ForkServer, ForkServerGone, ProcessEnd, SpawnFailed
from services.startd.isolation.manager import LOOK_S, IsolationManager
from shared.classad import ClassAd, unparse

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
#: Of a run that the fork server killed, as nobody renewed its lease.
LEASE_OVER = "the schedd was silent for the lease, and no startd was there to say so"
#: The machine's trouble rather than the job's: run it elsewhere.
_MACHINE = frozenset((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC))


class ProcessLauncher(Launcher):
    def __init__(
        self,
        server: ForkServer,
        isolation: IsolationManager,
        wrapper: Callable[[], str] = lambda: "",
        *,
        contained: Callable[[], str] = lambda: "false",
        proportional: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """wrapper: USER_JOB_WRAPPER as it is now, a program that gets the job's command line and becomes the job; where
        it is empty, jobs are started themselves. contained: an expression that is true of jobs which this machine puts
        into containers unasked. proportional: USE_PSS as it is now.
        tell: what the slots say of process jobs has changed, and why not all may run."""
        self.server = server
        self.isolation = isolation
        self._wrapper = wrapper
        self._contained = contained
        self._proportional = proportional
        self._tell = tell

    async def reaches(self, launch: Launch) -> str:
        return LOOPBACK

    async def prepare(self, launch: Launch) -> None:
        if not (launch.in_container or launch.in_machine):
            self.isolation.check_process_job(launch)
        await self.isolation.prepare(launch)

    def attributes(self, jobs: Sequence[ClassAd]) -> Mapping[str, object]:
        """Nothing where all jobs may run as processes; else whose may, and why no others'."""
        return separation.attributes(self.isolation.separation(), self.isolation.rules.own_users, self._contained())

    async def watch(self) -> None:
        """Sockets come and go, and knobs change."""
        shown: Mapping[str, object] | None = None
        while True:
            now = {name: str(value) for name, value in self.attributes(()).items()}
            if now != shown:
                self._tell(now.get(separation.REASON, ""))
                shown = now
            await asyncio.sleep(LOOK_S)

    async def start(self, launch: Launch) -> Started:
        wrapper = "" if launch.image or launch.in_container or not launch.wrapped else self._wrapper()
        request: dict[str, Any] = {
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
        if launch.cores:
            request["cores"] = list(launch.cores)
        request |= self.isolation.request(launch)
        if grants := request.get("landlock", {}).get("grants"):
            grants += [["r", path] for path in (*((wrapper,) if wrapper else ()), *launch.reads)]
        try:
            process = await self.server.spawn(launch.run, request, launch.lease_s)
        except ForkServerGone as error:
            self.isolation.forget(launch.run)
            raise Fault.PROCESS_LOST.failure(str(error)) from error
        except SpawnFailed as error:
            self.isolation.forget(launch.run)
            if wrapper and error.what == "exec":
                message = f"USER_JOB_WRAPPER can not be run: {error.message}"
                raise Fault.NO_PROCESS.failure(message, machine=True) from error
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
        if end.status is None and end.lease_over:
            return Finished(end.at, end.started_at).lost(Fault.LEASE_OVER, LEASE_OVER)
        if end.status is None:
            return Finished(end.at, end.started_at).lost(
                Fault.PROCESS_LOST, "the job's processes were lost with their parent"
            )
        signaled = os.WIFSIGNALED(end.status)
        if end.lease_over and signaled:
            return Finished(
                end.at,
                end.started_at,
                user_cpu_s=end.user_cpu_s,
                sys_cpu_s=end.sys_cpu_s,
                max_rss_kib=end.max_rss_kib,
            ).lost(Fault.LEASE_OVER, LEASE_OVER)
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

    def lease(self, runs: Mapping[str, float]) -> None:
        self.server.lease(runs)

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
        if self._proportional():
            seen = replace(seen, attributes={**seen.attributes, "ProportionalSetSizeKb": seen.resident_set_kib})
        if use is None:
            return seen
        # The cgroup's times are of all jobs that were in it: those of the processes are this job's.
        return replace(seen, resident_set_kib=use.resident_kib, procs=max(use.procs, seen.procs))

    async def forget(self, run: str) -> None:
        self.isolation.forget(run)
        self.server.forget(run)

    async def stop(self) -> None:
        await self.server.stop(end_server=not self.server.running)


def _reason(error: SpawnFailed, launch: Launch) -> RunFailed:
    fault = _FAULTS.get(error.what, Fault.NO_PROCESS)
    if fault is Fault.NO_PROCESS or error.errno in _MACHINE:
        # EAGAIN may be the limit of one account's processes.
        machine = error.errno in _MACHINE and error.errno != errno.EAGAIN
        return Fault.NO_PROCESS.failure(f"this machine could not start the job: {error.message}", machine=machine)
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


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """wrapper: USER_JOB_WRAPPER, empty: none. proportional: USE_PSS."""

    wrapper: str
    proportional: bool


def _make(host: LauncherHost) -> ProcessLauncher:
    def tell(reason: str) -> None:
        if reason:
            host.context.log.warning("process_jobs_limited", reason=reason)
        host.changed()

    return ProcessLauncher(
        host.fork_server,
        host.isolation,
        lambda: str(host.settings("process").wrapper),
        proportional=lambda: bool(host.settings("process").proportional),
        contained=lambda: unparse(host.settings("apptainer").job),
        tell=tell,
    )


PROCESS = LauncherKind(
    name="process",
    make=_make,
    choose=lambda job, machine, settings: Choice("process"),
    read_settings=lambda knobs: ProcessSettings(knobs.user_job_wrapper or "", knobs.use_pss),
)
