"""Startd cron: programs of the administrator, whose output becomes attributes of slots (CRN-01 to CRN-10)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.context import Component, StartdContext
from services.startd.core.cron_ads import MAX_NAMES, CronAds
from services.startd.core.cron_metrics import CronMetrics, split
from services.startd.core.machine.gpu_usage import CRON_JOB, PROGRAM
from services.startd.core.slots.model import Slot
from services.startd.run.run import Run
from shared.classad import ClassAd, evaluate, is_true
from shared.config.knobs import StartdSettings
from shared.cron.crontab import CronTable
from shared.cron.jobs import CronJob, startd_cron
from shared.cron.output import CronAd

#: Output that comes within this time goes into the slots' ads together, seconds.
TOGETHER_S = 0.05


class Cron(Component):
    """The cron jobs of this startd.

    What a program prints is in the slots' ads at once, where the policy sees it. The pool learns it with the slots'
    next update, or now: by STARTD_CRON_AUTOPUBLISH, or `update:true` behind the dash (CRN-02).
    """

    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._ads = CronAds()
        self._metrics = CronMetrics(startd.now())
        self._timer: asyncio.TimerHandle | None = None
        self._changed = self._urgent = False  # what waits for the timer
        self._full: set[str] = set()  # jobs that have too many names, and were told
        self._read()
        self._table = CronTable(
            self._cron,
            base="STARTD_CRON",
            log=startd.context.log,
            monotonic=startd.context.clock.monotonic,
            publish=self._take,
            allowed=self._allowed,
            config_val=self._knobs.startd_cron_config_val or "",
            log_non_zero_exit=self._knobs.startd_cron_log_non_zero_exit,
        )
        startd.ads.add_on_top("cron", self._attributes)

    def _read(self) -> None:
        self._knobs = knobs = StartdSettings.from_config(self.startd.context.config)
        self._autopublish = knobs.startd_cron_autopublish.lower()
        self._cron = startd_cron(knobs)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"cron": self._table.run()}

    def reread(self) -> None:
        self._read()
        self._full.clear()
        self._table.reconfigure(
            self._cron,
            config_val=self._knobs.startd_cron_config_val or "",
            log_non_zero_exit=self._knobs.startd_cron_log_non_zero_exit,
        )
        self._metrics.keep_only(self._cron.jobs)
        if self._ads.keep_only(self._cron.jobs):
            self.startd.publisher.attributes_changed()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._table.close()

    def _attributes(self, slot: Slot, ad: ClassAd) -> Mapping[str, object]:
        measured = self._metrics.of_slot(self._ads.names_of(ad, slot.slot_id), self.startd.now())
        return {**self._ads.of(ad, slot.slot_id), **measured}

    def run_started(self, run: Run) -> None:
        self._metrics.begin(run.key, self.startd.now())

    def run_over(self, run: Run) -> None:
        self._tell(run)
        self._metrics.end(run.key)

    def _tell(self, run: Run) -> None:
        slot = self.startd.slot_manager.slots.get(run.record.slot)
        if slot is not None:
            names = self._ads.names_of(self.startd.ads.ad_of(slot), slot.slot_id)
            run.extras.update(self._metrics.of_run(run.key, names, self.startd.now()))

    def _allowed(self, job: CronJob) -> bool:
        if job.name.lower() == CRON_JOB and job.executable.endswith(PROGRAM):
            return False  # a part of the startd does that (machine/gpu_monitor)
        return job.condition is None or is_true(evaluate(job.condition, self.startd.ads.base))

    def _take(self, job: CronJob, ad: CronAd) -> None:
        ad, reported = split(job, ad)
        changed = self._ads.put(job, ad, self.startd.now())
        if changed is not None and reported:
            self._metrics.take(job, ad.name, reported)
            for run in self.startd.runs.by_key.values():
                self._tell(run)
        if changed is None:
            if job.name not in self._full:
                self._full.add(job.name)
                self.startd.context.log.error(
                    "cron_job_trouble",
                    cron="STARTD_CRON",
                    cron_job=job.name,
                    reason=f"it has printed ads of more than {MAX_NAMES} names: further ones are passed over",
                )
            return
        self._changed |= changed
        if ad.update is not None:
            self._urgent |= ad.update
        else:
            self._urgent |= self._autopublish == "always" or (self._autopublish == "if_changed" and changed)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TOGETHER_S, self._show)

    def _show(self) -> None:
        """Into the ads, and to whom it concerns."""
        startd = self.startd
        self._timer = None
        changed, urgent, self._changed, self._urgent = self._changed, self._urgent, False, False
        if urgent:
            startd.publisher.attributes_changed(urgent=True)
        else:
            for name in startd.slot_manager.slots:
                startd.ads.forget(name)
        if changed:
            startd.look()  # policies may go by it
