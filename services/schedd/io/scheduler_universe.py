"""Runs jobs of the scheduler and local universes: starts their programs, follows them, ends them.

Programs outlive the schedd: the next one finds those that still run, and learns how the others ended (shared.programs).
A job is on disk as running before its program is started, so none is started twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pwd
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from engine.queue.jobs import Job, JobId, JobStatus, Shadow, full_ad
from services.schedd.core import job_end
from services.schedd.core import scheduler_universe as decisions
from services.schedd.core.job_states import JobEvent
from services.schedd.core.policies import Hold
from services.schedd.io.job_updates import JobUpdates
from shared import job_log
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.classad.budget import TooExpensive
from shared.config.knobs.base import to_list
from shared.cooperative import Yielder
from shared.job_signals import kill_signal
from shared.job_text import BadJobText
from shared.messages.claims import Usage
from shared.messages.events import JobStarted
from shared.messages.queue import Acted, ActOnJobs
from shared.programs import Programs

#: A run that was over sooner, in seconds, was none that got anywhere: the next waits the longer, the more there were.
SHORT_S: Final = 5.0
#: Between two looks at jobs that may not start yet, seconds.
PAUSE_S: Final = 0.2
#: What a schedd that ends gives the programs to end, seconds.
GRACE_S: Final = 5.0
#: In the database: what is to be removed with jobs that were removed, [user, constraint] each.
_OTHERS: Final = "remove_with"


class SchedulerUniverse:
    """act: carries out an order on jobs, as if a user had given it."""

    def __init__(self, updates: JobUpdates, folder: Path, act: Callable[[ActOnJobs], Awaitable[Acted]]) -> None:
        self.updates = updates
        self.table = updates.table
        self.log = updates.context.log
        self._act = act
        self._programs = Programs(folder)
        self._following: dict[JobId, asyncio.Task[None]] = {}
        self._killers: dict[JobId, asyncio.TimerHandle] = {}
        self._short: dict[JobId, int] = {}  # runs in a row that were over at once
        self._others: list[tuple[str, str]] = []
        self._others_due = asyncio.Event()
        self._closing = False
        updates.stop_here, updates.abandon_here, updates.removed = self.stop, self.abandon, self.removed

    # An earlier life

    def recover(self, others: str) -> None:
        """Find the programs of an earlier life. Jobs are in the table, and not in the queue's hands yet. others: what
        the database has of what is still to be removed."""
        self._others = [(str(user), str(constraint)) for user, constraint in json.loads(others or "[]")]
        if self._others:
            self._others_due.set()
        known = self._programs.keys()
        for job in self.table.made() if known else ():
            attempt = int(job.number("NumShadowStarts")) if job.cluster.here else 0
            if job.cluster.here and _key(job, attempt) in known:
                known.discard(_key(job, attempt))
                began = job.number("JobCurrentStartExecutingDate")
                job.shadow = _shadow(job, attempt, float(began))
                job.shadow.stop = {JobStatus.HELD: "hold", JobStatus.REMOVED: "remove"}.get(job.status, "")
                self.table.refresh(job)
        for key in known:  # of jobs that have left the queue, and of earlier runs
            self._programs.stop(key)
            self._programs.forget(key)

    def follow_recovered(self) -> None:
        """Follow what `recover` has found; the schedd does its work from now on."""
        for job in self.table.made():
            if job.cluster.here and (run := job.shadow) is not None:
                if run.stop:
                    self._tell(job, run)
                self._spawn(job, self._follow(job, run))

    # Starts

    async def run(self) -> None:
        """Start what is due, until cancelled."""
        due = self.updates.due_here
        while True:
            due.clear()
            if await self._start_what_is_due():
                await self.updates.context.clock.sleep(PAUSE_S)  # each commit would have all of them looked at again
            waiting = asyncio.ensure_future(due.wait()), asyncio.ensure_future(self._others_due.wait())
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waiting:
                    one.cancel()
            if self._others_due.is_set():
                await self._remove_others()

    async def _start_what_is_due(self) -> bool:
        """Whether some are left that may not start yet."""
        yielder, left = Yielder(), False
        for job_id in list(self.table.due_here):
            await yielder.yield_if_due()
            job = self.table.get(job_id)
            if job is None or job_id not in self.table.due_here:
                continue
            if self._may_start(job):
                await self._start(job)
            else:
                left = True
        return left

    def _may_start(self, job: Job) -> bool:
        now, mine = self.updates.now(), job.cluster.user
        clusters = [found.cluster for one in self._following if (found := self.table.get(one)) and found.shadow]
        running = decisions.Running(
            scheduler=sum(cluster.here == "scheduler" for cluster in clusters),
            local=sum(cluster.here == "local" for cluster in clusters),
            of_owner=sum(cluster.here == "scheduler" and cluster.user == mine for cluster in clusters),
        )
        ad = full_ad(self.updates.name, job, now)
        try:
            return decisions.may_start(job, ad, running, self.updates.settings.scheduler_universe, now)
        except TooExpensive as error:
            self.log.warning("start_scheduler_universe", job_id=str(job.id), reason=str(error))
            return False

    async def _start(self, job: Job) -> None:
        try:
            account = pwd.getpwuid(os.getuid())
            launch = decisions.launch(job, account.pw_name, account.pw_dir, self.updates.name)
            streams = await asyncio.to_thread(_opened, launch)
        except BadJobText as error:
            await self._hold(job, str(error), Hold.FAILED_TO_CREATE_PROCESS)
            return
        except _NotLaunched as error:
            await self._hold(job, str(error), error.code)
            return
        with contextlib.ExitStack() as files:
            for descriptor in streams:
                files.callback(os.close, descriptor)
            if self.table.get(job.id) is not job or not job.startable or self._closing:
                return
            now = self.updates.now()
            run = job.shadow = _shadow(job, job.count("NumShadowStarts"), now)
            began = job.idle_since()
            self._programs.forget(_key(job, run.attempt))
            self.updates.happen(job, JobEvent.TAKEN)
            decisions.on_start(job, now)
            self.updates.queue.put(job)
            self.updates.record(
                job,
                lambda: job_log.executing(
                    job.id, now, socket.gethostname(), "", ClassAd(), to_list(job.text("UserLogExecuteEventAttrs"))
                ),
            )
            self.updates.publish(
                JobStarted(
                    **self.updates.about(job, now), slot="", attempt=run.attempt, waited_s=max(0.0, now - began),
                    began=now,
                )
            )  # fmt: skip
            await self.updates.commit()
            self.updates.watch_duration(job)
            kept = [os.dup(descriptor) for descriptor in streams]
            self._spawn(job, self._run(job, run, launch, kept))

    async def _run(self, job: Job, run: Shadow, launch: decisions.Launch, streams: list[int]) -> None:
        code: int | None = None
        try:
            if not run.stop:
                code = await self._programs.run(
                    _key(job, run.attempt), launch.words, launch.directory,
                    output={"stdout": streams[0], "stderr": streams[1]}, environment=launch.environment,
                    stdin=str(launch.stdin), begun=lambda: self._tell(job, run) if run.stop else None,
                )  # fmt: skip
        finally:
            for descriptor in streams:
                os.close(descriptor)
        await self._ended(job, run, code)

    async def _follow(self, job: Job, run: Shadow) -> None:
        code = await self._programs.ended(_key(job, run.attempt))
        await self._ended(job, run, code)

    def _spawn(self, job: Job, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._following[job.id] = task
        task.add_done_callback(lambda task: self._done(job, task))

    def _done(self, job: Job, task: asyncio.Task[None]) -> None:
        if self._following.get(job.id) is task:
            del self._following[job.id]
        self.updates.due_here.set()  # another may have its place
        if not task.cancelled() and (error := task.exception()) is not None:
            self.log.error("scheduler_universe", job_id=str(job.id), reason=repr(error))

    async def _hold(self, job: Job, reason: str, code: Hold) -> None:
        if self.table.get(job.id) is job and job.startable:
            self.updates.happen(job, JobEvent.HOLD, reason=reason, code=code)
            await self.updates.commit()

    # Ends

    async def _ended(self, job: Job, run: Shadow, code: int | None) -> None:
        if self._closing:
            return
        if job.shadow is not run:  # it was removed by force
            self._programs.forget(_key(job, run.attempt))
            return
        now = self.updates.now()
        self._forget_timer(job)
        decisions.on_end(job, run, now)
        self.updates.queue.put(job)
        exit_ = decisions.exit_of(code, run)
        ended = job_end.heard_of_end(run, now)
        result = job_end.Result(Usage(), exit_, "", ClassAd(), run, now, ended)
        self.updates.carry_out(job_end.conclude(self.updates.name, self.table, job, result, self.updates.cool_down))
        if self.table.get(job.id) is not job:
            self._short.pop(job.id, None)
        elif job.status == JobStatus.IDLE and not run.stop and now - run.started < SHORT_S:
            self._short[job.id] = failures = self._short.get(job.id, 0) + 1
            if wait := self.updates.cool_down.wait_s(failures):
                self.updates.cool(job, wait)
        else:
            self._short.pop(job.id, None)
        await self.updates.commit()
        self._programs.forget(_key(job, run.attempt))

    def stop(self, job: Job, why: str, how: str) -> None:
        """End a job's run, as job_changes wants it. The end of its program tells when it is over."""
        run = job.shadow
        if run is None:
            return
        run.stop, run.how = why, how
        self._tell(job, run)

    def _tell(self, job: Job, run: Shadow) -> None:
        key = _key(job, run.attempt)
        self._programs.stop(key, signal.Signals(kill_signal(job.ad, run.stop)))
        wait = 0.0 if run.how == "fast" else decisions.kill_after_s(job.ad, run.stop)
        self._forget_timer(job)
        if wait is not None:
            self._killers[job.id] = asyncio.get_running_loop().call_later(wait, self._programs.stop, key)

    def _forget_timer(self, job: Job) -> None:
        if (timer := self._killers.pop(job.id, None)) is not None:
            timer.cancel()

    def abandon(self, job: Job) -> None:
        """Kill a job's program: the job leaves the queue now."""
        if (run := job.shadow) is not None:
            self._forget_timer(job)
            job.shadow = None
            self._programs.stop(_key(job, run.attempt))

    # What goes with it

    def removed(self, job: Job) -> None:
        """A job that was removed leaves the queue: others may have to go with it (OtherJobRemoveRequirements)."""
        others = job.ad.eval("OtherJobRemoveRequirements")
        if isinstance(others, str) and others:
            self._others.append((job.cluster.user, others))
            self._note_others()
            self._others_due.set()

    def _note_others(self) -> None:
        self.updates.queue.put_meta(_OTHERS, json.dumps(self._others))

    async def _remove_others(self) -> None:
        self._others_due.clear()
        for user, constraint in list(self._others):
            wanted = ActOnJobs(
                user=user, action="remove", constraint=constraint, reason="with the job that had submitted it"
            )
            try:
                await self._act(wanted)
            except RemoteFailure as error:
                self.log.warning("other_jobs_not_removed", user=user, constraint=constraint[:200], reason=str(error))
            self._others.remove((user, constraint))
            self._note_others()
        await self.updates.commit()

    # The end

    async def close(self) -> None:
        """The schedd ends: so do its programs, and start again with it. What does not end in time goes on, and is found
        again."""
        self._closing = True
        for timer in self._killers.values():
            timer.cancel()
        ending: list[asyncio.Task[None]] = []
        for job_id, task in list(self._following.items()):
            job = self.table.get(job_id)
            run = job.shadow if job is not None else None
            if job is not None and run is not None:
                self._programs.stop(_key(job, run.attempt), signal.SIGTERM)
                ending.append(task)
        if ending:
            await asyncio.wait(ending, timeout=GRACE_S)
        for task in self._following.values():
            task.cancel()
        for job in self.table.made():
            if (
                job.cluster.here
                and (run := job.shadow) is not None
                and not self._programs.is_running(_key(job, run.attempt))
            ):
                self._programs.forget(_key(job, run.attempt))


class _NotLaunched(Exception):
    """Why a program can not be started."""

    def __init__(self, message: str, code: Hold) -> None:
        super().__init__(message)
        self.code = code


def _opened(launch: decisions.Launch) -> tuple[int, int]:
    """Standard output and error of a program that can be started. Raises _NotLaunched. Blocks."""
    if not launch.directory.is_dir():
        raise _NotLaunched(f"{launch.directory}: there is no such directory", Hold.IWD_ERROR)
    if not os.access(launch.words[0], os.X_OK) or Path(launch.words[0]).is_dir():
        raise _NotLaunched(f"{launch.words[0]}: there is no such program", Hold.FAILED_TO_CREATE_PROCESS)
    if not os.access(launch.stdin, os.R_OK):
        raise _NotLaunched(f"{launch.stdin}: it can not be read", Hold.UNABLE_TO_OPEN_INPUT)
    found: list[int] = []
    try:
        for path in (launch.stdout, launch.stderr):
            same = bool(found) and path == launch.stdout
            found.append(os.dup(found[0]) if same else _open(path))
    except OSError as error:
        for descriptor in found:
            os.close(descriptor)
        raise _NotLaunched(f"{path}: {error.strerror}", Hold.UNABLE_TO_OPEN_OUTPUT) from error
    return found[0], found[1]


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o644)  # a pipe without a reader must not hold us up
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return descriptor


def _key(job: Job, attempt: int) -> str:
    return f"{job.id}.{attempt}"


def _shadow(job: Job, attempt: int, now: float) -> Shadow:
    return Shadow(job=job.id, attempt=attempt, token="", transfer=False, started=now, executing=now)
