"""Schedd cron: programs of the administrator, whose output becomes attributes of the access point's ad (CRN-11).

Each job has one ad; names behind the dash mean nothing here. What the knobs say is read at the start, so a change of
them needs a restart, as in HTCondor; at a reconfiguration, jobs with RECONFIG_RERUN run again.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.classad import ClassAd
from shared.config.knobs import ScheddSettings
from shared.cron.crontab import CronTable
from shared.cron.jobs import CronJob, schedd_cron
from shared.cron.output import CronAd
from shared.daemon.context import Context


class ScheddCron:
    """Runs the schedd's cron jobs and keeps what they print. publish: called when the ad is to go out now
    (`update:true`)."""

    def __init__(self, context: Context, publish: Callable[[], None]) -> None:
        self._now = context.clock.now
        self._say = publish
        self._ads: dict[str, ClassAd] = {}  # by job, in the order of the list
        settings = ScheddSettings.from_config(context.config)
        self._cron = schedd_cron(settings)
        self._config_val = settings.schedd_cron_config_val or ""
        self._log_non_zero_exit = settings.schedd_cron_log_non_zero_exit
        self._table = CronTable(
            self._cron,
            base="SCHEDD_CRON",
            log=context.log,
            monotonic=context.clock.monotonic,
            publish=self._take,
            config_val=self._config_val,
            log_non_zero_exit=self._log_non_zero_exit,
        )

    def attributes(self) -> ClassAd:
        """What all jobs have printed last; of one attribute the later job's counts."""
        found = ClassAd()
        for job in self._cron.jobs:
            found.update(self._ads.get(job.name, {}))
        return found

    async def run(self) -> None:
        """Run the jobs, until cancelled."""
        await self._table.run()

    def reread(self) -> None:
        """Run the jobs with RECONFIG_RERUN again, as the configuration was read anew."""
        self._table.reconfigure(self._cron, config_val=self._config_val, log_non_zero_exit=self._log_non_zero_exit)

    async def close(self) -> None:
        await self._table.close()

    def _take(self, job: CronJob, ad: CronAd) -> None:
        attributes = ad.attributes.copy()
        attributes[f"{job.prefix}LastUpdate"] = int(self._now())
        self._ads[job.name] = attributes
        if ad.update:
            self._say()
