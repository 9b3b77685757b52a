"""One run of one job, from the activation to the acknowledged report of its end.

prepare scratch -> fetch input -> launch -> (report running) -> wait -> send output -> write the end down -> free the
slot -> report the end until it is acknowledged. Every step can be taken up again by a restarted startd: a run that was
not launched begins anew, one that was launched is waited for, one that has ended is reported.

Longer than most modules: the steps of a run work on one record and one set of orders, and are read best in their order.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import aiohttp
import structlog

from services.startd.book.records import RunRecord
from services.startd.hooks.job_hooks import HOLD_PREPARE, Progress, changed_job
from services.startd.hooks.keywords import Hook
from services.startd.hooks.of_run import RunHooks, Site
from services.startd.launchers.api import Account, Finished, Launch, Launcher, LaunchFailed
from services.startd.launchers.apptainer.plan import Rules
from services.startd.metrics import RunCounts
from services.startd.sandbox import directories as sandbox
from services.startd.starter.choice import choose
from services.startd.starter.job import (
    EXECUTABLE,
    HOLD_INPUT,
    HOLD_OUTPUT,
    JOB_AD,
    MACHINE_AD,
    OWN_FILES,
    STDERR,
    STDOUT,
    BadJob,
    Place,
    Stop,
    ad_file,
    describe,
    exit_of,
    kill_signal,
    output_of,
)
from shared import tracing
from shared.classad import ClassAd
from shared.daemon.context import Context
from shared.errors import RetryableError, RoostError
from shared.messages.claims import JobExit, JobReport, JobReportAck, Usage
from shared.transfer.bundle import Source
from shared.transfer.client import fetch, send
from shared.transfer.errors import NoRoom, TransferError, TransferRefused, TransferUnavailable

#: Between two attempts to report an end, seconds: first and longest.
REPORT_FIRST_S, REPORT_LONGEST_S = 0.2, 30.0
#: An end that nobody wants to hear of is forgotten after its lease and this time, seconds.
REPORT_FOR_S = 86400.0
#: A transfer that takes longer than this is told to the schedd, seconds.
QUIET_TRANSFER_S = 1.0
#: HTCondor's hold code of a job that the execution point's policy holds (WANT_HOLD).
HOLD_BY_MACHINE = 21
#: The schedd's endpoint says that this run is over or not meant: statuses of HTTP.
_NOT_WANTED = (401, 404, 409, 410)

T = TypeVar("T")


class Hands(Protocol):
    """What a run needs of the daemon around it."""

    context: Context
    counts: RunCounts

    def launcher(self, name: str) -> Launcher: ...

    def session(self) -> aiohttp.ClientSession: ...

    def machine_ad(self, slot: str) -> ClassAd: ...

    def containers(self) -> Rules:
        """What the knobs say of jobs in containers, now."""

    def hooks(self, job: ClassAd, log: structlog.stdlib.BoundLogger) -> RunHooks:
        """The administrator's programs that prepare, watch and end this job."""

    def view(self, scratch: str) -> Path:
        """Where the startd finds a run's scratch directory."""

    async def enclose(self, launch: Launch) -> None:
        """Give the scratch directory a file system of its own, where that is wanted. Raises LaunchFailed."""

    async def disclose(self, scratch: str) -> None:
        """Remove that file system, if there is one. Raises OSError."""

    def account(self, slot: str, job: ClassAd) -> Account | None:
        """The account of a run; None: the startd's own. Raises LaunchFailed."""

    def noted(self, run: Run, report: JobReport) -> None:
        """What a run tells that no access point waits for: one of fetched work."""

    def save(self, record: RunRecord, *, soon: bool = False) -> None:
        """Write it down; `soon`: with whatever is written next, half a second from now at the latest."""

    async def sync(self) -> None: ...

    def vacate_time(self, slot: str, job: ClassAd) -> float: ...

    def claim_over(self, claim_id: str) -> bool:
        """The run's claim has ended, or ends with it."""

    def run_measured(self, run: Run) -> None:
        """Its usage is known anew: the machine's policy may go by it."""

    def run_ended(self, run: Run) -> None:
        """The processes are gone and the end is written down."""

    def run_told(self, run: Run, ack: JobReportAck | None) -> None:
        """The schedd knows (None: it never answered); forget the run, do what it says next."""

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds."""

    first_update: float
    update: float
    startd: str


@dataclass(slots=True)
class StopOrder:
    how: Stop
    why: str  # remove, hold, vacate, evict
    message: str
    fast: bool
    want_output: bool
    vacate_code: int = 0
    hold: tuple[str, int] | None = None  # it is to be held then, with this reason and subcode

    @classmethod
    def unpack(cls, record: Mapping[str, Any]) -> StopOrder:
        hold = record.get("hold")
        return cls(**{**record, "hold": None if hold is None else (hold[0], hold[1])})


class Run:
    def __init__(self, record: RunRecord, hands: Hands, intervals: Intervals, cpus: float, memory_mib: int) -> None:
        self.record = record
        self.hands = hands
        self.intervals = intervals
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.job = ClassAd.unpack(record.job_ad)
        self.stop_order = StopOrder.unpack(record.stop) if record.stop is not None else None
        self._stopped = asyncio.Event()
        self._fast = asyncio.Event()
        if self.stop_order is not None:
            self._stopped.set()
            if self.stop_order.fast:
                self._fast.set()
        self._timers: list[asyncio.TimerHandle] = []
        self._starting = False  # too late to give up: the job is started, then stopped
        self._asked = False  # to leave, by its signal
        self._suspended = False  # it is to stand still
        self._stands = False  # it does
        self._standing = asyncio.Lock()
        self._over = False
        self._last_updates: ClassAd | None = None  # of the launcher, at the end
        self.extras: dict[str, object] = {}  # what parts of the startd add to the job's attributes, in every report
        trace = tracing.trace_of(self.job.eval_string("RoostTrace"))
        self._log = hands.context.log.bind(job_id=record.job_id, attempt=record.attempt, slot=record.slot, **trace)
        self.hooks = hands.hooks(self.job, self._log)
        self._site: Site | None = None  # where its hooks are called, once that is known

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def ended(self) -> bool:
        return self.record.exit is not None

    @property
    def launcher(self) -> Launcher:
        return self.hands.launcher(self.record.launcher)

    @property
    def scratch(self) -> Path:
        """As this process finds it; the job may find another file system there."""
        return self.hands.view(self.record.scratch)

    # -- orders from outside

    def stop(
        self,
        how: Stop,
        why: str,
        message: str,
        *,
        fast: bool,
        want_output: bool = False,
        vacate_code: int = 0,
        hold: tuple[str, int] | None = None,
    ) -> None:
        """End the job: ask it first (and kill it after its vacate time), or at once. A later order may only hurry."""
        if self.ended:
            return
        if self.stop_order is None:
            self.stop_order = StopOrder(how, why, message, fast, want_output, vacate_code, hold)
            self._stopped.set()
        elif fast:
            self.stop_order.fast = True
        if self.stop_order.fast:
            self._fast.set()
        if self.record.launched:
            self.hands.in_background(self._end_processes(), f"stop:{self.key}")

    def suspend(self, suspended: bool) -> None:
        """Have it stand still, or go on (STM-14 to STM-16). A job that is not started yet stands still from its first
        moment."""
        self._suspended = suspended
        if self.record.launched and not self.ended:
            self.hands.in_background(self._stand(), f"suspend:{self.key}")

    def may_stand(self, suspended: bool) -> None:
        """It was suspended in an earlier life, which may have ended before it did what it had written down."""
        self._stands = not suspended
        self.suspend(suspended)

    async def _stand(self) -> None:
        """Bring its processes to where they are to be, and tell."""
        async with self._standing:
            while self._stands != self._suspended and not self.ended and not self._over:
                if self._suspended:
                    await self.launcher.suspend(self.record.name)
                    seen = await self.launcher.measure(self.record.name)
                    self.record.usage["procs"] = seen.procs
                    self._stands = True
                else:
                    await self.launcher.continue_(self.record.name)
                    self._stands = False
                self._tell_running()

    def _tell_running(self, attributes: Mapping[str, object] | None = None) -> None:
        updates = ClassAd(attributes) if attributes else None
        self._tell("suspended" if self._stands else "running", updates)

    async def _end_processes(self) -> None:
        order = self.stop_order
        assert order is not None
        if self.ended:
            return
        if self.record.stop is None:
            # Before it is done: a later life must not take our signal for the job's own end.
            self.record.stop = asdict(order)
            self.hands.save(self.record)
        if order.fast:
            await self.launcher.kill(self.record.name)
            return
        if self._asked:
            return
        self._asked = True
        patience = self.hands.vacate_time(self.record.slot, self.job)
        self._timers.append(asyncio.get_running_loop().call_later(patience, self._lose_patience))
        await self.launcher.signal(self.record.name, kill_signal(self.job, order.why))

    def _lose_patience(self) -> None:
        if not self.ended and self.stop_order is not None:
            self.stop_order.fast = True
            self.hands.in_background(self._end_processes(), f"kill:{self.key}")

    # -- life

    async def live(self) -> None:
        """Runs until the end is acknowledged. Cancelling leaves everything as it is, for a later life."""
        try:
            if not self.ended:
                outcome = await self._perform()
                if outcome.reason == "evicted" and self.stop_order is not None:
                    outcome = _left(outcome, self.stop_order)
                self.record.exit = outcome.model_dump()
                self.hands.save(self.record, soon=True)  # `run_ended` writes it, with the slot's
            self._log.info("run_ended", **self._outcome_fields())
            self.hands.run_ended(self)
            self.hands.in_background(self._clean_up(), f"clean-up:{self.key}")
            ack = await self._report_end()
        finally:
            self._over = True
            for timer in self._timers:
                timer.cancel()
        self.hands.run_told(self, ack)

    def _outcome_fields(self) -> Mapping[str, object]:
        outcome = self.record.outcome
        assert outcome is not None
        return {"reason": outcome.reason, "exit_code": outcome.exit_code, "message": outcome.message}

    async def _perform(self) -> JobExit:
        try:
            if self.launcher.knows(self.record.name):
                self.record.launched = True  # perhaps by a life that ended before it wrote that down
            elif self.record.launched:
                return JobExit(reason="evicted", message="the job was lost while the startd was away")
            if not self.record.launched:
                trouble = await self._unless_stopped(self._prepare_and_launch())
                if trouble is not None:
                    await self._exit_hook(trouble)
                    return trouble
            self._watch()
            await self._stand()
            if self.stop_order is not None:
                await self._end_processes()
            end = await self.launcher.finished(self.record.name)
            self._note_usage(end)
            outcome = exit_of(end, *self._stop_words())
            await self._exit_hook(outcome)
            return await self._send_output(outcome)
        except (BadJob, LaunchFailed) as error:
            kind = "hold" if isinstance(error, BadJob) else error.kind
            outcome = JobExit(reason=kind, message=error.message, hold_code=error.code, hold_subcode=error.subcode)
            await self._exit_hook(outcome)
            return outcome
        except OSError as error:
            # The machine's disk or memory, not the job: EXECUTE is full, say.
            return JobExit(reason="failed", message=f"this machine failed: {error}")
        except Exception as error:  # noqa: BLE001
            # The one catch-all of a run: a mistake of ours must not keep the slot, nor end the daemon.
            self._log.exception("run_failed")
            if self.record.launched:
                await self.launcher.kill(self.record.name)
            return JobExit(reason="failed", message=f"the starter failed: {type(error).__name__}: {error}")

    def _stop_words(self) -> tuple[Stop | None, str]:
        return (None, "") if self.stop_order is None else (self.stop_order.how, self.stop_order.message)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> JobExit | None:
        """Do the work; when a stop comes before the job is being started, give it up and return that end."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not self._starting:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            if task.cancelled():
                how, message = self._stop_words()
                assert how is not None
                return JobExit(reason=how, message=message)
            await task
        finally:
            for one in (task, stopped):
                one.cancel()
        return None

    # -- before

    async def _prepare_and_launch(self) -> None:
        record, began = self.record, time.perf_counter()
        try:
            sandbox.make(self.hands.context.execute, record.scratch)
        except FileExistsError:  # a life before this one began to prepare it
            await self.hands.disclose(record.scratch)
            await asyncio.to_thread(sandbox.remove, self.scratch)
            sandbox.make(self.hands.context.execute, record.scratch)
        machine_ad = self.hands.machine_ad(record.slot)
        launch = self._describe(machine_ad)
        if record.launcher == "process":
            await self.hands.enclose(launch)
        if self.hooks.has(Hook.PREPARE_JOB_BEFORE_TRANSFER):
            launch = await self._prepare_by_hook(Hook.PREPARE_JOB_BEFORE_TRANSFER, machine_ad)
        if record.launcher != "process":
            self.hands.save(record)  # whom to ask about the run after a restart
        if record.transfer_url:
            await self._fetch_input()
        if self.hooks.has(Hook.PREPARE_JOB):
            launch = await self._prepare_by_hook(Hook.PREPARE_JOB, machine_ad)
        (self.scratch / JOB_AD).write_text(ad_file(self.job), errors="surrogateescape")
        (self.scratch / MACHINE_AD).write_text(ad_file(machine_ad), errors="surrogateescape")
        await self.launcher.prepare(launch)
        self._starting = True
        started = await self.launcher.start(launch)
        self.hands.counts.launches.add(record.launcher, time.perf_counter() - began)
        record.launched = True
        record.started_at, record.pid = started.at, started.pid
        self._log.info("run_started", launcher=record.launcher, pid=started.pid)
        # A startd that is killed before this is written asks the launcher, which knows the run; but nobody else knows
        # which files were there before.
        self.hands.save(record, soon=not record.transfer_url)
        self._tell("running", ClassAd(started.updates) if started.updates else None)

    def _describe(self, machine_ad: ClassAd) -> Launch:
        """Raises BadJob, LaunchFailed."""
        choice = choose(self.job, machine_ad, self.hands.containers())
        launch = describe(self.job, self._place(machine_ad), choice.image, choice.plan)
        launch = replace(launch, account=self.hands.account(self.record.slot, self.job))
        self.record.launcher = choice.launcher
        names = ("_CONDOR_SCRATCH_DIR", "_CONDOR_SLOT", "_CONDOR_JOB_AD", "_CONDOR_MACHINE_AD", "_CONDOR_JOB_IWD")
        self._site = Site(
            cwd=str(self.scratch),
            account=launch.account,
            env={name: launch.env[name] for name in names if name in launch.env},
        )
        return launch

    def launch(self) -> Launch:
        """What was started, described anew: also for a run of an earlier life. Raises BadJob, LaunchFailed."""
        return self._describe(self.hands.machine_ad(self.record.slot))

    async def _prepare_by_hook(self, hook: Hook, machine_ad: ClassAd) -> Launch:
        """Call it, and do as it says. Raises BadJob, LaunchFailed."""
        assert self._site is not None
        if self._site.account is not None:
            os.chown(self.scratch, self._site.account.uid, self._site.account.gid)
        verdict = await self.hooks.prepare(hook, self.job, self._site)
        if verdict.kind == "hold":
            raise BadJob(verdict.message, HOLD_PREPARE, verdict.subcode)
        if verdict.kind == "idle":
            raise LaunchFailed("failed", verdict.message)
        if verdict.updates:
            self.job = changed_job(self.job, verdict.updates)
            self.record.job_ad = self.job.pack()  # for what a restarted startd is to know of it
        return self._describe(machine_ad)

    def _hook_site(self) -> Site | None:
        """Also for a run of an earlier life; None where there can be none any more."""
        if self._site is None:
            try:
                self._describe(self.hands.machine_ad(self.record.slot))
            except (BadJob, LaunchFailed) as error:
                self._log.warning("hooks_left_out", reason=error.message)
        return self._site

    def account(self) -> Account | None:
        """Whose processes it has; None: the startd's own."""
        site = self._hook_site()
        return site.account if site is not None else None

    def _progress(self) -> Progress:
        record = self.record
        return Progress(self._stands, record.pid, record.started_at if record.launched else 0.0, record.used)

    async def _exit_hook(self, outcome: JobExit) -> None:
        """JOB_EXIT comes before output is sent and the schedd is told (JHK-07)."""
        if not self.hooks.has(Hook.JOB_EXIT) or (self._site is None and not self.record.launched):
            return
        site = self._hook_site()
        if site is not None:
            why = self.stop_order.why if self.stop_order is not None else ""
            now = self.hands.context.clock.now()
            await self.hooks.exit(self.job, self._progress(), outcome, why, site, now)

    def _place(self, machine_ad: ClassAd) -> Place:
        return Place(
            run=self.record.name,
            slot=self.record.slot,
            scratch=self.hands.context.execute / self.record.scratch,
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            transfer=bool(self.record.transfer_url),
            labels={"roost.job": self.record.job_id, "roost.attempt": str(self.record.attempt)},
            machine_ad=machine_ad,
        )

    async def _fetch_input(self) -> None:
        record = self.record
        timer = self._tell_later("transferring-input")
        try:
            with self.hands.counts.files.measured("input"):
                received = await self._while_wanted(
                    lambda: fetch(self.hands.session(), record.transfer_url, record.transfer_token, self.scratch)
                )
        except TransferRefused as error:
            if error.status in _NOT_WANTED:
                raise LaunchFailed("failed", f"the schedd does not want this run: {error}") from error
            raise BadJob(f"input files: {error}", HOLD_INPUT) from error
        except NoRoom as error:
            raise LaunchFailed("failed", f"this machine is full: {error}") from error
        except TransferError as error:
            raise BadJob(f"input files: {error}", HOLD_INPUT) from error
        finally:
            timer.cancel()
        record.usage["bytes_received"] = received.bytes
        self.hands.counts.files.bytes.add("input", count=received.bytes)
        executable = self.scratch / EXECUTABLE
        if executable.is_file() and not executable.is_symlink():
            executable.chmod(0o755)
        record.before = _top_files(self.scratch)

    async def _while_wanted(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat a transfer while the schedd's endpoint is away. The lease of the claim bounds it: its end cancels or
        stops this run; and so does a slot that has no more time for it."""
        while True:
            task = asyncio.ensure_future(work())
            hurried = asyncio.ensure_future(self._fast.wait())
            try:
                await asyncio.wait((task, hurried), return_when=asyncio.FIRST_COMPLETED)
                order = self.stop_order
                if not task.done() and order is not None and order.how == "evicted":
                    raise TransferUnavailable("no time was left for it")
                return await task
            except TransferUnavailable as error:
                if self._fast.is_set():
                    raise
                self._log.warning("transfer_waits", reason=str(error))
            finally:
                hurried.cancel()
                if not task.done():
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    # -- meanwhile

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(self.intervals.first_update, self._measure_soon))

    def _measure_soon(self) -> None:
        if not self._over and not self.ended:
            self.hands.in_background(self._measure(), f"measure:{self.key}")
            loop = asyncio.get_running_loop()
            self._timers[:] = [timer for timer in self._timers if timer.when() > loop.time()]
            self._timers.append(loop.call_later(self.intervals.update, self._measure_soon))

    async def _measure(self) -> None:
        seen = await self.launcher.measure(self.record.name)
        disk = await asyncio.to_thread(sandbox.size_kib, self.scratch)
        if self.ended or self._over or not seen.procs:
            return
        usage = self.record.usage
        usage["user_cpu_s"] = max(seen.user_cpu_s, usage.get("user_cpu_s", 0.0))
        usage["sys_cpu_s"] = max(seen.sys_cpu_s, usage.get("sys_cpu_s", 0.0))
        usage["image_size_kib"] = max(seen.image_size_kib, usage.get("image_size_kib", 0))
        usage["resident_set_kib"] = max(seen.resident_set_kib, usage.get("resident_set_kib", 0))
        usage["memory_mib"] = -(-usage["resident_set_kib"] // 1024)
        usage["disk_kib"] = disk
        usage["procs"] = seen.procs
        self._tell_running(seen.attributes)
        self.hands.run_measured(self)
        if self.hooks.has(Hook.UPDATE_JOB_INFO) and (site := self._hook_site()) is not None:
            self.hooks.update(self.job, self._progress(), site)

    def _note_usage(self, end: Finished) -> None:
        usage = self.record.usage
        usage["user_cpu_s"] = max(end.user_cpu_s, usage.get("user_cpu_s", 0.0))
        usage["sys_cpu_s"] = max(end.sys_cpu_s, usage.get("sys_cpu_s", 0.0))
        usage["resident_set_kib"] = max(end.max_rss_kib, usage.get("resident_set_kib", 0))
        usage["image_size_kib"] = max(usage["resident_set_kib"], usage.get("image_size_kib", 0))
        usage["memory_mib"] = -(-usage["resident_set_kib"] // 1024)
        self.record.started_at = end.started_at or self.record.started_at
        self._last_updates = ClassAd(end.updates) if end.updates else None

    # -- after

    async def _send_output(self, outcome: JobExit) -> JobExit:
        record = self.record
        if not record.transfer_url or outcome.reason in ("hold", "failed"):
            return outcome
        asked = self.stop_order is not None and self.stop_order.want_output
        by_itself = outcome.reason == "exited"
        output = output_of(self.job, outcome.exit_code, ended_by_itself=by_itself, asked=asked)
        if output is None or (outcome.exit_code is None and outcome.exit_signal is None):
            return outcome
        sources = self._standard_streams()
        if output.listed is None:
            sources += await asyncio.to_thread(self._changed_files)
        else:
            sources += [self._source(*_listed(self.scratch, name, output.flatten)) for name in output.listed]
        record.usage["disk_kib"] = await asyncio.to_thread(sandbox.size_kib, self.scratch)
        timer = self._tell_later("transferring-output")
        try:
            with self.hands.counts.files.measured("output"):
                sent = await self._while_wanted(
                    lambda: send(self.hands.session(), record.transfer_url, record.transfer_token, sources)
                )
        except TransferUnavailable as error:
            return outcome.model_copy(update={"reason": "evicted", "message": f"output could not be sent: {error}"})
        except TransferRefused as error:
            if error.status in _NOT_WANTED:
                return JobExit(reason="failed", message=f"the schedd does not want this run: {error}")
            return _bad_output(outcome, error)
        except TransferError as error:
            return _bad_output(outcome, error)
        finally:
            timer.cancel()
        record.usage["bytes_sent"] = sent.bytes
        self.hands.counts.files.bytes.add("output", count=sent.bytes)
        return outcome.model_copy(update={"output_committed": True})

    def _standard_streams(self) -> list[Source]:
        paths = (self.scratch / name for name in (STDOUT, STDERR))
        return [self._source(path, path.name) for path in paths if path.is_symlink() or path.is_file()]

    def _source(self, path: Path, name: str) -> Source:
        """One file of the job's to be sent. The job owns its scratch directory and may have put links there, so
        nothing is read that lies outside, nor what another account's file is also called."""
        owner = self.scratch.stat().st_uid
        return Source(path, name, within=self.scratch, owner=owner if owner != os.geteuid() else None)

    def _changed_files(self) -> list[Source]:
        """Files of the scratch's top directory that are new or were changed; what else is there stays here."""
        now = _top_files(self.scratch)
        before = self.record.before
        names = (name for name, seen in now.items() if seen != before.get(name))
        return [self._source(self.scratch / name, name) for name in sorted(names) if name not in OWN_FILES]

    async def _clean_up(self) -> None:
        """Leave nothing behind: the container, the kept result, the scratch directory."""
        if self.record.launched:
            await self.launcher.forget(self.record.name)
        if not self.record.scratch:
            return
        try:
            await self.hands.disclose(self.record.scratch)
        except OSError as error:
            self._log.warning("volume_not_removed", reason=str(error))
        if sandbox.remove_small(self.scratch):
            return
        if not await asyncio.to_thread(sandbox.remove, self.scratch):
            self._log.warning("scratch_not_removed", path=str(self.scratch))

    # -- reports

    def _report(self, phase: Any, updates: ClassAd | None = None, outcome: JobExit | None = None) -> JobReport:
        record = self.record
        record.sequence += 1
        if self.extras:
            updates = ClassAd(self.extras | dict(updates.exprs() if updates else ()))
        return JobReport(
            startd=self.intervals.startd,
            slot=record.slot,
            claim_id=record.claim_id,
            job_id=record.job_id,
            attempt=record.attempt,
            sequence=record.sequence,
            phase=phase,
            at=self.hands.context.clock.now(),
            started_at=record.started_at,
            pid=record.pid,
            usage=Usage.model_validate(record.usage),
            exit=outcome,
            updates=updates.pack() if updates else b"",
        )

    def _tell(self, phase: str, updates: ClassAd | None = None) -> None:
        """Tell the schedd, without waiting; what gets lost is repeated by the next report."""
        self.hands.in_background(self._send_report(self._report(phase, updates)), f"report:{self.key}")

    async def _send_report(self, report: JobReport) -> None:
        if not self.record.schedd:
            self.hands.noted(self, report)
            return
        try:
            await self.hands.context.bus.send(f"schedd.{self.record.schedd}", report)
        except RoostError as error:
            self._log.info("report_not_sent", phase=report.phase, reason=str(error))

    def _tell_later(self, phase: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(QUIET_TRANSFER_S, self._tell, phase)

    async def _report_end(self) -> JobReportAck | None:
        """Repeat the final report until it is acknowledged. None: nobody wanted to hear it for very long."""
        context, record = self.hands.context, self.record
        report = self._report("ended", self._last_updates, record.outcome)
        if not record.schedd:
            self.hands.noted(self, report)
            return JobReportAck()
        give_up = context.clock.monotonic() + record.lease_s + REPORT_FOR_S
        delay = REPORT_FIRST_S
        synced = False
        while context.clock.monotonic() < give_up:
            try:
                told = report.model_copy(update={"claim_over": self.hands.claim_over(record.claim_id)})
                answer = await context.bus.call(f"schedd.{record.schedd}", told)
            except RetryableError as error:
                self._log.info("end_not_acknowledged", reason=str(error))
            except RoostError as error:
                self._log.warning("end_refused", reason=str(error))
            else:
                if isinstance(answer, JobReportAck):
                    return answer
                self._log.warning("end_refused", reason=f"the schedd answered {answer.type}")
            if not synced:
                await self.hands.sync()
                synced = True
            await context.clock.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, REPORT_LONGEST_S)
        self._log.error("end_given_up", after_s=record.lease_s + REPORT_FOR_S)
        return None


def _left(outcome: JobExit, order: StopOrder) -> JobExit:
    """The end of a job that had to leave: back to the queue, or held where the machine's policy wants that."""
    if order.hold is None:
        return outcome.model_copy(update={"vacate_code": order.vacate_code})
    reason, subcode = order.hold
    held = {"reason": "hold", "message": reason, "hold_code": HOLD_BY_MACHINE, "hold_subcode": subcode}
    return outcome.model_copy(update=held)


def _bad_output(outcome: JobExit, error: TransferError) -> JobExit:
    return outcome.model_copy(update={"reason": "hold", "message": f"output files: {error}", "hold_code": HOLD_OUTPUT})


def _listed(scratch: Path, name: str, flatten: bool) -> tuple[Path, str]:
    """A path that the job lists, and what it is called at the schedd. It must lie in the scratch directory."""
    clean = os.path.normpath(name)
    if os.path.isabs(clean) or clean.split(os.sep)[0] == "..":
        inside = os.path.relpath(clean, scratch) if os.path.isabs(clean) else ".."
        if inside.split(os.sep)[0] == "..":
            raise BadJob(f"output file {name!r} lies outside of the scratch directory", HOLD_OUTPUT)
        clean = inside
    return scratch / clean, os.path.basename(clean) if flatten else clean


def _top_files(folder: Path) -> dict[str, list[int]]:
    """Files of a directory, each with what changes when it is written: time, size, inode."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found[entry.name] = [status.st_mtime_ns, status.st_size, status.st_ino]
    return found
