"""Runs benchmarks where a slot's State and Activity say so (STM-03, STM-04, CRN-12 to CRN-14).

One slot at a time is Unclaimed/Benchmarking, and what is measured is for all. When somebody claims that slot, or its
owner comes, the programs are ended, and RunBenchmarks decides when to try again.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from services.startd.book.answers import Changes
from services.startd.book.slots import Slot
from services.startd.book.transitions import Activity
from services.startd.chores.scores import Scores
from services.startd.parts import Inside, Part
from shared.classad import Expr, evaluate, is_true
from shared.classad.expr import Literal
from shared.config.knobs import StartdSettings
from shared.cron.crontab import CronTable
from shared.cron.jobs import CronJob, Crontab, benchmarks
from shared.cron.output import CronAd

_SPEED: Final = str(Path(__file__).with_name("speed.py"))
#: The programs that need no EXECUTABLE.
BUILT_IN: Final = {name: (sys.executable, "-I", _SPEED, name) for name in ("mips", "kflops")}


class Benchmarks(Part):
    """See the module."""

    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self.scores = Scores()
        self._slot = ""  # that is Benchmarking
        self._left: set[str] = set()  # jobs of the set that goes on that are not over
        self._jobs = self._read()
        self._table = CronTable(
            self._jobs,
            base="BENCHMARKS",
            log=inside.context.log,
            monotonic=inside.context.clock.monotonic,
            publish=self._take,
            ended=self._ended,
        )
        inside.showcase.add_source("benchmarks", self._attributes)

    def _read(self) -> Crontab:
        knobs = StartdSettings.from_config(self.inside.context.config)
        self._wanted: Expr = knobs.runbenchmarks
        return benchmarks(knobs, BUILT_IN)

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        wanted = self.inside.settings.policy(slot.type_id).run_benchmarks
        return {"RunBenchmarks": wanted, **self.scores.attributes()}

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        self._at_start()
        return {"benchmarks": self._table.run()}

    def _at_start(self) -> None:
        """A set at the start, unless RunBenchmarks is FALSE (CRN-13). Where it is TRUE, the slots see to it."""
        wanted = self._wanted
        if isinstance(wanted, Literal) and not is_true(wanted.value):
            return
        slots = self.inside.book.slots.values()
        if not any(is_true(evaluate(wanted, self.inside.showcase.ad_of(slot))) for slot in slots):
            self._begin()

    def reread(self) -> None:
        self._jobs = self._read()
        self._table.reconfigure(self._jobs)

    async def close(self) -> None:
        await self._table.close()

    def on_changes(self, changes: Changes) -> None:
        book = self.inside.book
        if self._slot:
            slot = book.slots.get(self._slot)
            if slot is None or slot.activity is not Activity.BENCHMARKING:
                self._slot = ""
                if self._left:
                    self.inside.context.log.info("benchmarks_given_up", reason="the slot is wanted")
                    self._left.clear()
                    self._table.stop()
        if not self._slot:
            self._slot = next(
                (n for n in changes.slots if n in book.slots and book.slots[n].activity is Activity.BENCHMARKING), ""
            )
            if self._slot and not self._left:
                self._begin()

    def _begin(self) -> None:
        self._left = {job.name.lower() for job in self._jobs.jobs}
        self._table.demand()
        if not self._left:
            self.inside.spawn(self._nothing_to_do(), "benchmarks")

    async def _nothing_to_do(self) -> None:
        self._over()

    def _take(self, job: CronJob, ad: CronAd) -> None:
        if job.name.lower() in self._left:
            self.scores.put(ad.attributes)

    def _ended(self, job: CronJob, good: bool) -> None:
        """One that fails counts too: else it would be tried without end."""
        if job.name.lower() in self._left:
            self._left.discard(job.name.lower())
            if not self._left:
                self._over()

    def _over(self) -> None:
        inside = self.inside
        self.scores.over(inside.now())
        inside.context.log.info("benchmarks", **self.scores.attributes())
        inside.showcase.renew()
        slot, self._slot = self._slot, ""
        if slot:
            inside.book.benchmarked(slot, inside.now())
        inside.write_down()
        inside.changed(urgent=True)
