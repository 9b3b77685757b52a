"""One run of one job, from the activation to the acknowledged report of its end.

prepare scratch -> fetch input -> launch -> (report running) -> wait -> send output -> write the end down -> free the
slot -> report the end until it is acknowledged. Every step can be resumed by a restarted startd: a run that was not
launched begins anew, one that was launched is waited for, one that has ended is reported.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from services.startd.core.job_ads import job_ad
from services.startd.core.journal_records import RunRecord
from services.startd.core.run import deferral, run_times
from services.startd.core.run.exit_status import Stop, StopOrder, exit_of, is_checkpoint, left
from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_hooks import Hook, Progress, changed_job
from services.startd.core.run.job_launch import (
    JOB_AD,
    MACHINE_AD,
    Account,
    Finished,
    Launch,
    Measured,
    Place,
    ad_file,
    describe,
)
from services.startd.exec.api import Launcher
from services.startd.exec.registry import choose
from services.startd.isolation import scratch_dirs
from services.startd.run import scratch_files
from services.startd.run.chirp_proxy import ChirpProxy
from services.startd.run.context import RunContext
from services.startd.run.credentials import JobCredentials
from services.startd.run.file_transfer import FileTransfer
from services.startd.run.hook_runner import HookSite, JobHookRunner
from services.startd.run.orders import Orders
from services.startd.run.reports import Reports
from shared import tracing
from shared.classad import ClassAd
from shared.job_signals import kill_signal
from shared.messages.claims import JobExit, JobReport, JobReportAck
from shared.transfer.errors import TransferUnavailable

#: Errors of a machine whose disks, memory or descriptors are at their end, whatever the job.
_MACHINE_ERRNOS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
)

#: Between samples of what a run uses, where its end does not tell: so many times as long as before, at most so long, s.
SAMPLE_GROWTH, MOST_SAMPLED_S = 1.25, 60.0


class Run:
    """after_brief: as `Reports` has it. reported: gets what a run tells that belongs to no access point. measured: its
    usage is known anew, and the machine's policy may go by it."""

    def __init__(
        self,
        record: RunRecord,
        context: RunContext,
        cpus: float,
        memory_mib: int,
        *,
        after_brief: bool,
        reported: Callable[[Run, JobReport], None],
        measured: Callable[[Run], None],
    ) -> None:
        self.record = record
        self.context = context
        self._measured = measured
        settings = context.settings()
        self._first_update_s, self._update_s = settings.initial_job_update, settings.job_update
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.job = job_ad(record.job_ad)
        self._orders = Orders(record.stop)
        self._timers: list[asyncio.TimerHandle] = []
        self._starting = False  # too late to give up: the job is started, then stopped
        self._signalled = False  # to leave, by its signal
        self._to_suspend = False  # it is to stand still
        self._is_suspended = False  # it does
        self._suspending = asyncio.Lock()
        self._over = False
        self.machine_fault = ""  # why it failed, where any other job would have failed here too
        self._last_updates: ClassAd | None = None  # of the launcher, at the end
        trace = tracing.trace_of(self.job.eval_string("RoostTrace"))
        self._log = context.daemon.log.bind(job_id=record.job_id, attempt=record.attempt, slot=record.slot, **trace)
        self._reports = Reports(
            record, context, self._log, lambda report: reported(self, report), after_brief=after_brief
        )
        self._files = FileTransfer(record, context, self._orders, self._reports, self._log)
        hooks = settings.hooks.of_job(self.job)
        self._credentials = JobCredentials(record, context, self._log)
        self._chirp = ChirpProxy(record, context, self._reports, self._log)
        self._credentials_in = ""  # the directory of its credentials, in its scratch directory
        self.hooks = JobHookRunner(hooks, self._log, context.in_background)
        self._hook_site: HookSite | None = None  # where its hooks are called, once that is known

    @property
    def key(self) -> str:
        return self.record.key

    @property
    def ended(self) -> bool:
        return self.record.exit is not None

    @property
    def stop_order(self) -> StopOrder | None:
        return self._orders.stop

    @property
    def launcher(self) -> Launcher:
        return self.context.launchers[self.record.launcher]

    @property
    def scratch(self) -> Path:
        """Its scratch directory as this process finds it; the job may find another file system there."""
        return self.context.scratch(self.record)

    @property
    def extras(self) -> dict[str, object]:
        """What parts of the startd add to the job's attributes, in every report."""
        return self._reports.extras

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
        self._orders.add(StopOrder(how, why, message, fast, want_output, vacate_code, hold))
        self._to_suspend = False  # what stands still can not end itself
        if self.record.launched:
            self.context.in_background(self._end_processes(), f"stop:{self.key}")

    def suspend(self, suspended: bool) -> None:
        """Have it stand still, or go on (STM-14 to STM-16). A job that is not started yet stands still from its first
        moment."""
        self._to_suspend = suspended and self.stop_order is None
        if self.record.launched and not self.ended:
            self.context.in_background(self._apply_suspension(), f"suspend:{self.key}")

    def restore_suspension(self, suspended: bool) -> None:
        """It was suspended in an earlier life, which may have ended before it did what it had written down."""
        self._is_suspended = not suspended or self.stop_order is not None
        self.suspend(suspended)

    async def _apply_suspension(self) -> None:
        """Bring its processes to where they are to be, and tell."""
        async with self._suspending:
            while self._is_suspended != self._to_suspend and not self.ended and not self._over:
                if self._to_suspend:
                    await self.launcher.suspend(self.record.name)
                    seen = await self.launcher.measure(self.record.name)
                    self.record.usage["procs"] = seen.procs
                    self._is_suspended = True
                else:
                    await self.launcher.continue_(self.record.name)
                    self._is_suspended = False
                self._tell_running()

    def _tell_running(self, attributes: Mapping[str, object] | None = None) -> None:
        updates = ClassAd(attributes) if attributes else None
        self._reports.tell("suspended" if self._is_suspended else "running", updates)

    async def _end_processes(self) -> None:
        order = self.stop_order
        assert order is not None
        if self.ended:
            return
        if self.record.stop is None:
            # Before it is done: a later life must not take our signal for the job's own end.
            self.record.stop = asdict(order)
            self.context.save(self.record)
        await self._apply_suspension()
        if order.fast:
            await self.launcher.kill(self.record.name)
            return
        if self._signalled:
            return
        self._signalled = True
        vacate_time_s = self.context.vacate_time(self.record.slot, self.job)
        self._timers.append(asyncio.get_running_loop().call_later(vacate_time_s, self._vacate_time_over))
        await self.launcher.signal(self.record.name, kill_signal(self.job, order.why))

    def _vacate_time_over(self) -> None:
        if not self.ended and self.stop_order is not None:
            self.stop_order.fast = True
            self.context.in_background(self._end_processes(), f"kill:{self.key}")

    # -- life

    async def perform(self) -> None:
        """Runs the job to its end, which is saved then. Cancelling leaves everything as it is, for a later life."""
        if not self.ended:
            outcome = await self._perform()
            if outcome.reason == "evicted" and self.stop_order is not None:
                outcome = left(outcome, self.stop_order)
            self.record.exit = outcome.model_dump()
            run_times.end(self.record, self.context.moment())
            self.context.save(self.record, soon=True)  # its end frees the slot, and both are written then
        self._log_end()

    async def report_end(self) -> JobReportAck | None:
        """Report the end until it is acknowledged. None: nobody wanted to hear it for very long."""
        return await self._reports.end(self._last_updates)

    def close(self) -> None:
        """Nothing more is to be done for it in this life of the startd."""
        self._over = True
        self._reports.close()
        self._credentials.close()
        self._chirp.close()
        self._files.close()
        for timer in self._timers:
            timer.cancel()

    def _log_end(self) -> None:
        """A job that ended by itself is an everyday matter, of which there may be hundreds a second."""
        outcome = self.record.outcome
        assert outcome is not None
        log = self._log.debug if outcome.reason == "exited" else self._log.info
        log("run_ended", reason=outcome.reason, exit_code=outcome.exit_code, message=outcome.message)

    async def _perform(self) -> JobExit:
        try:
            if self.launcher.knows(self.record.name):
                self.record.launched = True  # perhaps by a life that ended before it wrote that down
            elif self.record.launched:
                return Fault.PROCESS_LOST.exit("evicted", "the job was lost while the startd was away")
            if not self.record.launched:
                trouble = await self._unless_stopped(self._prepare_and_launch())
                if trouble is not None:
                    await self._exit_hook(trouble)
                    return trouble
            await self._chirp.resume(self.job)
            self._files.follow_output(self.job)
            self._measure_regularly()
            self._credentials.keep_fresh(self.job)
            await self._apply_suspension()
            if self.stop_order is not None:
                await self._end_processes()
            end = await self.launcher.finished(self.record.name)
            while is_checkpoint(self.job, end) and self.record.transfer_url and not self._orders.fast.is_set():
                self._note_usage(end)
                try:
                    await self._files.save(self.job, streams=True, launch=self.launch)
                except TransferUnavailable:
                    break  # it has to leave: the checkpoint before this one stays
                if self.stop_order is not None:
                    break
                await self._launch_again()
                end = await self.launcher.finished(self.record.name)
            await self._chirp.end(self._orders.fast)
            self._note_usage(end)
            outcome = exit_of(end, *self._orders.reason())
            await self._exit_hook(outcome)
            return await self._files.send_output(self.job, outcome, self.launch)
        except RunFailed as error:
            self.machine_fault = error.message if error.machine else ""
            outcome = error.exit()
            await self._exit_hook(outcome)
            return outcome
        except OSError as error:
            self.machine_fault = str(error) if error.errno in _MACHINE_ERRNOS else ""
            # The machine's disk or memory, not the job: EXECUTE is full, say.
            return Fault.MACHINE_ERROR.exit("failed", f"this machine failed: {error}")
        except Exception as error:  # noqa: BLE001
            # The one catch-all of a run: a mistake of ours must not keep the slot, nor end the daemon.
            self._log.exception("run_failed")
            if self.record.launched:
                await self.launcher.kill(self.record.name)
            return Fault.STARTD_ERROR.exit("failed", f"the starter failed: {type(error).__name__}: {error}")

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> JobExit | None:
        """Do the work; when a stop comes before the job is being started, give it up and return that end."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._orders.stopped.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not self._starting:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            if task.cancelled():
                how, message = self._orders.reason()
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
            scratch_dirs.make(self.context.daemon.execute, record.scratch)
        except FileExistsError:  # a life before this one began to prepare it
            self._credentials.unmount()
            await self.context.isolation.volumes.unmount_scratch(record.scratch)
            await asyncio.to_thread(scratch_dirs.remove, self.scratch)
            scratch_dirs.make(self.context.daemon.execute, record.scratch)
        machine_ad = self.context.machine_ad(record.slot)
        record.cores = self.context.cores(record, self.job)
        launch = self._describe(machine_ad)
        if record.launcher in ("process", "java", "vm"):
            await self.context.isolation.mount_scratch(launch)
        if self.hooks.has(Hook.PREPARE_JOB_BEFORE_TRANSFER):
            launch = await self._prepare_by_hook(Hook.PREPARE_JOB_BEFORE_TRANSFER, machine_ad)
        if record.launcher != "process":
            self.context.save(record)  # whom to ask about the run after a restart
        if record.transfer_url:
            await self._files.fetch_input(self.job)
        if credentials := await self._credentials.deliver(self.job, self.launcher.reader(launch)):
            self._credentials_in = credentials
            launch = self._with_credentials(launch)
        if record.transfer_url:
            await self._files.fetch_by_url(self.job, launch)
            await self._files.fetch_checkpoint(self.job, launch)
        if self.hooks.has(Hook.PREPARE_JOB):
            launch = await self._prepare_by_hook(Hook.PREPARE_JOB, machine_ad)
        files = {
            JOB_AD: ad_file(self.job, self.context.job_texts.of),
            MACHINE_AD: ad_file(machine_ad, self.context.machine_texts.of),
        }
        scratch_files.write_all(self.scratch, files)
        launch = await self._chirp.begin(self.job, launch, self.launcher)
        await self._files.note_environment(self.job, launch.env)
        await self.launcher.prepare(launch)
        clock = self.context.daemon.clock
        while wait_s := deferral.wait_s(self.job, clock.now()):
            await clock.sleep(min(wait_s, deferral.AT_ONCE_S))
        self._starting = True
        started = await self.launcher.start(replace(launch, lease_s=self.context.lease_left(record.claim_id)))
        self.context.counts.launches.add(record.launcher, time.perf_counter() - began)
        record.launched = True
        if (left_s := self.context.lease_left(record.claim_id)) is not None:
            self.launcher.lease({record.name: left_s})  # it may have been renewed meanwhile
        record.started_at, record.pid = started.at, started.pid
        self._log.debug("run_started", launcher=record.launcher, pid=started.pid)
        # A startd that is killed before this is written asks the launcher, which knows the run; but nobody else knows
        # which files were there before.
        self.context.save(record, soon=not record.transfer_url)
        self._reports.began(ClassAd(started.updates) if started.updates else None)

    async def _launch_again(self) -> None:
        """The program saved its work and ended: it goes on where it was. Raises RunFailed."""
        record, before = self.record, self.record.name
        usage = record.usage
        record.earlier_user_s, record.earlier_sys_s = usage.get("user_cpu_s", 0.0), usage.get("sys_cpu_s", 0.0)
        record.launches += 1
        record.name = f"{before.partition('#')[0]}#{record.launches}"
        record.launched = False
        self.context.save(record)  # a life that finds this begins anew, with the checkpoint
        await self.launcher.forget(before)
        launch = self.launch()
        await self.launcher.prepare(launch)
        started = await self.launcher.start(replace(launch, lease_s=self.context.lease_left(record.claim_id)))
        record.launched = True
        if (left_s := self.context.lease_left(record.claim_id)) is not None:
            self.launcher.lease({record.name: left_s})
        record.pid = started.pid
        self._log.info("run_goes_on", launches=record.launches, pid=started.pid)
        self.context.save(record)
        self._tell_running(started.updates)
        if self.stop_order is not None:  # it came meanwhile
            self._signalled = False
            await self._end_processes()

    def _describe(self, machine_ad: ClassAd) -> Launch:
        """Raises RunFailed."""
        choice = choose(self.job, machine_ad, self.context.settings().launchers)
        launch = describe(self.job, self._place(machine_ad), choice)
        account = self.context.isolation.account(self.record.slot, self.job)
        resumed = self.record.launches > 1 or isinstance(self.job.eval("CheckpointNumber"), int)
        launch = replace(launch, account=account, cores=self.record.cores, append=launch.append or resumed)
        self.record.launcher = choice.launcher
        names = ("_CONDOR_SCRATCH_DIR", "_CONDOR_SLOT", "_CONDOR_JOB_AD", "_CONDOR_MACHINE_AD", "_CONDOR_JOB_IWD")
        self._hook_site = HookSite(
            cwd=str(self.scratch),
            account=launch.account,
            env={name: launch.env[name] for name in names if name in launch.env},
            cgroup=lambda: self.context.isolation.hook_cgroup(launch),
        )
        return self._chirp.told(self._with_credentials(launch))

    def _with_credentials(self, launch: Launch) -> Launch:
        if not self._credentials_in:
            return launch
        place = f"{launch.env['_CONDOR_SCRATCH_DIR']}/{self._credentials_in}"
        return replace(launch, env={**launch.env, "_CONDOR_CREDS": place}, credentials=self._credentials.outside)

    def launch(self) -> Launch:
        """What was started, described anew: also for a run of an earlier life. Raises RunFailed."""
        return self._describe(self.context.machine_ad(self.record.slot))

    async def _prepare_by_hook(self, hook: Hook, machine_ad: ClassAd) -> Launch:
        """Call it, and do as it says. Raises RunFailed."""
        assert self._hook_site is not None
        if self._hook_site.account is not None:
            os.chown(self.scratch, self._hook_site.account.uid, self._hook_site.account.gid)
        violation = await self.hooks.prepare(hook, self.job, self._hook_site)
        self.context.isolation.renew_cgroup(self.record.slot)
        if violation.kind == "hold":
            raise Fault.HOOK_REFUSED.failure(violation.message, violation.subcode)
        if violation.kind == "idle":
            raise Fault.HOOK_FAILED.failure(violation.message)
        if violation.updates:
            self.job = changed_job(self.job, violation.updates)
            self.record.job_ad = self.job.pack()  # for what a restarted startd is to know of it
        return self._describe(machine_ad)

    def _find_hook_site(self) -> HookSite | None:
        """Also for a run of an earlier life; None where there can be none any more."""
        if self._hook_site is None:
            try:
                self._describe(self.context.machine_ad(self.record.slot))
            except RunFailed as error:
                self._log.warning("hooks_left_out", reason=error.message)
        return self._hook_site

    def account(self) -> Account | None:
        """The account of its processes; None: the startd's own."""
        site = self._find_hook_site()
        return site.account if site is not None else None

    def _progress(self) -> Progress:
        record = self.record
        return Progress(self._is_suspended, record.pid, record.started_at if record.launched else 0.0, record.used)

    async def _exit_hook(self, outcome: JobExit) -> None:
        """JOB_EXIT comes before output is sent and the schedd is told (JHK-07). Then nothing is left of any hook."""
        if self.hooks.has(Hook.JOB_EXIT) and (self._hook_site is not None or self.record.launched):
            site = self._find_hook_site()
            if site is not None:
                why = self.stop_order.why if self.stop_order is not None else ""
                now = self.context.daemon.clock.now()
                await self.hooks.exit(self.job, self._progress(), outcome, why, site, now)
        if self.hooks.called:
            await self.context.isolation.end_hooks(self.record.slot)

    def _place(self, machine_ad: ClassAd) -> Place:
        return Place(
            run=self.record.name,
            slot=self.record.slot,
            scratch=self.context.daemon.execute / self.record.scratch,
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            transfer=bool(self.record.transfer_url),
            attempt=self.record.attempt,
            labels={"roost.job": self.record.job_id, "roost.attempt": str(self.record.attempt)},
            machine_ad=machine_ad,
            environment=self.context.settings().environment,
        )

    # -- meanwhile

    def _measure_regularly(self) -> None:
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(self._first_update_s, self._measure_soon))
        if (first_s := self.launcher.sampled_from_s) is not None:
            self._timers.append(loop.call_later(first_s, self._sample_soon, first_s))

    def _sample_soon(self, after_s: float) -> None:
        """Note what it uses, for its end, and again a little later each time: so the end misses a fifth of it at most,
        and of a long run no more than the last MOST_SAMPLED_S."""
        if not self._over and not self.ended:
            self.context.in_background(self._look(), f"sample:{self.key}")
            after_s = min(after_s * SAMPLE_GROWTH, MOST_SAMPLED_S)
            loop = asyncio.get_running_loop()
            self._timers[:] = [timer for timer in self._timers if timer.when() > loop.time()]
            self._timers.append(loop.call_later(after_s, self._sample_soon, after_s))

    def _measure_soon(self) -> None:
        if not self._over and not self.ended:
            self.context.in_background(self._measure(), f"measure:{self.key}")
            loop = asyncio.get_running_loop()
            self._timers[:] = [timer for timer in self._timers if timer.when() > loop.time()]
            self._timers.append(loop.call_later(self._update_s, self._measure_soon))

    async def _look(self) -> None:
        await self._sample()

    async def _sample(self) -> Measured | None:
        """Note what it uses now; None: it has ended."""
        seen = await self.launcher.measure(self.record.name)
        if self.ended or self._over or not seen.procs:
            return None
        usage = self.record.usage
        usage["user_cpu_s"] = max(seen.user_cpu_s + self.record.earlier_user_s, usage.get("user_cpu_s", 0.0))
        usage["sys_cpu_s"] = max(seen.sys_cpu_s + self.record.earlier_sys_s, usage.get("sys_cpu_s", 0.0))
        usage["image_size_kib"] = max(seen.image_size_kib, usage.get("image_size_kib", 0))
        resident_kib = max(seen.resident_set_kib, seen.resident_peak_kib)
        usage["resident_set_kib"] = max(resident_kib, usage.get("resident_set_kib", 0))
        usage["memory_mib"] = -(-usage["resident_set_kib"] // 1024)
        usage["procs"] = seen.procs
        return seen

    async def _measure(self) -> None:
        disk = await asyncio.to_thread(scratch_dirs.size_kib, self.scratch)
        seen = await self._sample()
        if seen is None:
            return
        self.record.usage["disk_kib"] = disk
        self._tell_running(seen.attributes)
        self._measured(self)
        if self.hooks.has(Hook.UPDATE_JOB_INFO) and (site := self._find_hook_site()) is not None:
            self.hooks.update(self.job, self._progress(), site)

    def _note_usage(self, end: Finished) -> None:
        usage = self.record.usage
        usage["user_cpu_s"] = max(end.user_cpu_s + self.record.earlier_user_s, usage.get("user_cpu_s", 0.0))
        usage["sys_cpu_s"] = max(end.sys_cpu_s + self.record.earlier_sys_s, usage.get("sys_cpu_s", 0.0))
        usage["resident_set_kib"] = max(end.max_rss_kib, usage.get("resident_set_kib", 0))
        usage["image_size_kib"] = max(usage["resident_set_kib"], usage.get("image_size_kib", 0))
        usage["memory_mib"] = -(-usage["resident_set_kib"] // 1024)
        if self.record.launches == 1:
            self.record.started_at = end.started_at or self.record.started_at
        self._last_updates = ClassAd(end.updates) if end.updates else None

    # -- after

    async def clean_up(self) -> None:
        """Leave nothing behind: the container, the kept result, the scratch directory."""
        if self.record.launched:
            await self.launcher.forget(self.record.name)
        if not self.record.scratch:
            return
        self._credentials.remove()
        try:
            await self.context.isolation.volumes.unmount_scratch(self.record.scratch)
        except OSError as error:
            self._log.warning("volume_not_removed", reason=str(error))
        if scratch_dirs.remove_small(self.scratch):
            return
        if not await asyncio.to_thread(scratch_dirs.remove, self.scratch):
            self._log.warning("scratch_not_removed", path=str(self.scratch))
