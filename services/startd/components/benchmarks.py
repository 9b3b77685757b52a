"""Runs benchmarks where a slot's State and Activity say so (STM-03, STM-04, CRN-12 to CRN-14).

One slot at a time is Unclaimed/Benchmarking, and what is measured (Mips, KFlops, LastBenchmark) is for all. When
somebody claims that slot, or its owner comes, the programs are ended, and RunBenchmarks decides when to try again.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from services.startd.context import Component, StartdContext
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.model import Slot
from services.startd.core.slots.transitions import Activity
from shared.classad import ClassAd, Expr, evaluate, is_true
from shared.classad.expr import Literal
from shared.config.knobs import StartdSettings
from shared.cron.crontab import CronTable
from shared.cron.jobs import CronJob, Crontab, benchmarks
from shared.cron.output import CronAd

#: What was measured before counts so many times as much as a new value (SLT-28: a weighted average).
WEIGHT = 3


class Scores:
    """See the module. `last`: when a set of benchmarks was over, wall clock, seconds; 0: never (CRN-14)."""

    def __init__(self) -> None:
        self.last = 0
        self._values: dict[str, Any] = {}

    def put(self, measured: ClassAd) -> None:
        """A program has printed this. Numbers are averaged, anything else is replaced."""
        for name in measured:
            value: Any = measured.eval(name)
            before: Any = self._values.get(name)
            if _is_number(value) and _is_number(before):
                average = (before * WEIGHT + value) / (WEIGHT + 1)
                value = round(average) if isinstance(value, int) else average
            self._values[name] = value

    def over(self, now: float) -> None:
        """A set of benchmarks is over."""
        self.last = int(now)

    def attributes(self) -> Mapping[str, Any]:
        return self._values | {"LastBenchmark": self.last}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SPEED: Final = str(Path(__file__).with_name("benchmark_programs.py"))
#: The programs that need no EXECUTABLE.
BUILT_IN: Final = {name: (sys.executable, "-I", _SPEED, name) for name in ("mips", "kflops")}


class Benchmarks(Component):
    """The benchmarks of this machine."""

    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self.scores = Scores()
        self._slot = ""  # that is Benchmarking
        self._left: set[str] = set()  # jobs of the set that goes on that are not over
        self._jobs = self._read()
        self._table = CronTable(
            self._jobs,
            base="BENCHMARKS",
            log=startd.context.log,
            monotonic=startd.context.clock.monotonic,
            publish=self._take,
            ended=self._ended,
        )
        startd.ads.add_source("benchmarks", self._attributes)

    def _read(self) -> Crontab:
        knobs = StartdSettings.from_config(self.startd.context.config)
        self._wanted: Expr = knobs.runbenchmarks
        return benchmarks(knobs, BUILT_IN)

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        wanted = self.startd.settings.policy(slot.type_id).run_benchmarks
        return {"RunBenchmarks": wanted, **self.scores.attributes()}

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        self._at_start()
        return {"benchmarks": self._table.run()}

    def _at_start(self) -> None:
        """A set at the start, unless RunBenchmarks is FALSE (CRN-13). Where it is TRUE, the slots see to it."""
        wanted = self._wanted
        if isinstance(wanted, Literal) and not is_true(wanted.value):
            return
        slots = self.startd.slot_manager.slots.values()
        if not any(is_true(evaluate(wanted, self.startd.ads.ad_of(slot))) for slot in slots):
            self._begin()

    def reread(self) -> None:
        self._jobs = self._read()
        self._table.reconfigure(self._jobs)

    async def close(self) -> None:
        await self._table.close()

    def on_changes(self, changes: SlotEffects) -> None:
        manager = self.startd.slot_manager
        if self._slot:
            slot = manager.slots.get(self._slot)
            if slot is None or slot.activity is not Activity.BENCHMARKING:
                self._slot = ""
                if self._left:
                    self.startd.context.log.info("benchmarks_given_up", reason="the slot is wanted")
                    self._left.clear()
                    self._table.stop()
        if not self._slot:
            self._slot = next(
                (n for n in changes.slots if n in manager.slots and manager.slots[n].activity is Activity.BENCHMARKING),
                "",
            )
            if self._slot and not self._left:
                self._begin()

    def _begin(self) -> None:
        self._left = {job.name.lower() for job in self._jobs.jobs}
        self._table.demand()
        if not self._left:
            self.startd.background.spawn(self._nothing_to_do(), "benchmarks")

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
        startd = self.startd
        self.scores.over(startd.now())
        startd.context.log.info("benchmarks", **self.scores.attributes())
        startd.ads.renew()
        slot, self._slot = self._slot, ""
        if slot:
            startd.effects.carry_out(startd.slot_manager.benchmarked(slot, startd.now()))
        startd.publisher.attributes_changed(urgent=True)
