"""The shell of a crontab: runs the programs that the schedule names, and hands over what they print."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from shared.cron.jobs import CronJob, Crontab
from shared.cron.output import CronAd, OutputReader
from shared.cron.schedule import Schedule, Start, Stop
from shared.subprocess_runner import Program, ProgramFailed, clean_environment
from shared.tasks import TaskSet

#: Bytes of output that are read at once, and then each second.
RATE: Final = 128 * 1024
#: Characters of a program's stderr in the log.
SHOWN: Final = 2000


class CronTable:
    """One daemon's cron jobs of one kind.

    publish: gets every ad that a program prints. ended: hears of every run's end (True: status 0). allowed: whether a
    job whose turn it is may run (its CONDITION).
    """

    def __init__(
        self,
        table: Crontab,
        *,
        base: str,
        log: structlog.stdlib.BoundLogger,
        monotonic: Callable[[], float],
        publish: Callable[[CronJob, CronAd], None],
        ended: Callable[[CronJob, bool], None] = lambda job, good: None,
        allowed: Callable[[CronJob], bool] = lambda job: True,
        config_val: str = "",
        log_non_zero_exit: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._base = base
        self._log = log.bind(cron=base)
        self._monotonic = monotonic
        self._publish = publish
        self._ended = ended
        self._allowed = allowed
        self._config_val = config_val
        self._log_non_zero_exit = log_non_zero_exit
        self._environment = clean_environment(os.environ if environment is None else environment)
        self._schedule = Schedule(table.jobs, table.max_load, monotonic())
        self._changed = asyncio.Event()
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._programs: dict[str, Program] = {}
        self._stops = TaskSet()
        self._told: dict[str, str] = {}  # by job: the last trouble, which is told once
        self._tell(table)

    @property
    def running(self) -> list[str]:
        return list(self._runs)

    def reconfigure(self, table: Crontab, *, config_val: str = "", log_non_zero_exit: bool = False) -> None:
        """The configuration was read again."""
        self._config_val, self._log_non_zero_exit = config_val, log_non_zero_exit
        self._told.clear()
        self._tell(table)
        self._schedule.reconfigure(table.jobs, table.max_load, self._monotonic())
        self._changed.set()

    def demand(self) -> None:
        """Run every job once."""
        self._schedule.demand(self._monotonic())
        self._changed.set()

    def stop(self) -> None:
        """End what runs now, and forget what was asked for; jobs that run by themselves go on with their next turn."""
        self._schedule.forget_demands()
        for task in self._runs.values():
            task.cancel()

    async def run(self) -> None:
        """A root task of the daemon. Cancelling it leaves the programs to `close`."""
        while True:
            self._changed.clear()
            now = self._monotonic()
            for order in self._schedule.due(now):
                self._obey(order)
            look = self._schedule.next_look(now)
            try:
                async with asyncio.timeout(None if look is None else max(0.0, look - self._monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """End all programs."""
        runs = list(self._runs.values())
        for task in (*runs, *self._stops):
            task.cancel()
        await asyncio.gather(*runs, *self._stops, return_exceptions=True)

    def _tell(self, table: Crontab) -> None:
        for problem in table.problems:
            self._log.error("cron_job_left_out", problem=problem)

    def _obey(self, order: Start | Stop) -> None:
        job = order.job
        key = job.name.lower()
        if isinstance(order, Start):
            task = asyncio.create_task(self._one_run(job), name=f"{self._base}:{job.name}")
            self._runs[key] = task
            task.add_done_callback(lambda done: self._over(key, done))
            return
        self._log.info("cron_job_stopped", cron_job=job.name, reason=order.reason)
        program = self._programs.get(key)
        if program is not None:
            self._stops.spawn(program.stop(), f"{self._base}:stop:{job.name}")
        elif key in self._runs:  # it is about to start
            self._runs[key].cancel()

    def _over(self, key: str, task: asyncio.Task[None]) -> None:
        self._runs.pop(key, None)
        self._schedule.ended(key, self._monotonic())
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("cron_job_failed", cron_job=key, exc_info=error)

    async def _one_run(self, job: CronJob) -> None:
        good = False
        try:
            if self._allowed(job):
                good = await self._run_program(job)
        finally:
            self._ended(job, good)

    async def _run_program(self, job: CronJob) -> bool:
        key = job.name.lower()
        reader = OutputReader(lambda ad: self._take(job, ad), job.prefix)
        try:
            program = await Program.start([job.executable, *job.args], env=self._env(job), cwd=job.cwd)
        except ProgramFailed as error:
            self._tell_once(job, str(error))
            return False
        self._programs[key] = program
        try:
            await program.read(reader.feed, RATE)
            status = await program.wait()
            leftovers = reader.leftovers()
            self._warn(job, reader.close())
            self._note_end(job, status, leftovers, program.stderr.decode("utf-8", "replace")[-SHOWN:])
            return status == 0
        finally:
            self._programs.pop(key, None)
            program.kill()
            program.close()

    def _note_end(self, job: CronJob, status: int, leftovers: str, errors: str) -> None:
        if status == 0:
            self._told.pop(job.name.lower(), None)
            if errors:
                self._log.debug("cron_job_stderr", cron_job=job.name, stderr=errors)
        elif self._log_non_zero_exit:
            self._log.warning("cron_job_exit", cron_job=job.name, status=status, stdout=leftovers, stderr=errors)
        else:
            hint = f"see why with {self._base}_LOG_NON_ZERO_EXIT = true"
            self._tell_once(job, f"{job.executable} ended with status {status}; {hint}")

    def _tell_once(self, job: CronJob, reason: str) -> None:
        if self._told.get(job.name.lower()) != reason:
            self._told[job.name.lower()] = reason
            self._log.error("cron_job_trouble", cron_job=job.name, reason=reason)

    def _take(self, job: CronJob, ad: CronAd) -> None:
        self._warn(job, ad.problems)
        self._publish(job, ad)

    def _warn(self, job: CronJob, problems: tuple[str, ...]) -> None:
        if problems:
            self._log.warning("cron_job_output", cron_job=job.name, problems=list(problems))

    def _env(self, job: CronJob) -> dict[str, str]:
        daemon = self._base.partition("_")[0]
        env = self._environment | {f"{self._base}_INTERFACE_VERSION": "1", f"{daemon}_CRON_NAME": self._base}
        if self._config_val:
            env[f"{self._base}_CONFIG_VAL"] = self._config_val
        return env | dict(job.env)
