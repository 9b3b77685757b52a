"""Watches whether the machine's owner is at work, and how much of its load jobs make: KeyboardIdle, ConsoleIdle,
LoadAvg, CondorLoadAvg and TotalCondorLoadAvg of each slot, and STARTD_LATCH_EXPRS (SLT-29).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from engine.slots.carving import SlotKind
from services.startd.context import Component, StartdContext
from services.startd.core.machine.detected import Sample
from services.startd.core.machine.owner_activity import JobLoads, Latches, SlotLoad, share_load
from services.startd.core.slots.model import Slot
from services.startd.core.slots.policy import expressions
from services.startd.run.run import Run
from services.startd.settings import Settings
from shared.classad import ClassAd, Expr, unparse

#: How often jobs are measured when no expression asks for loads, seconds.
SELDOM_S = 60.0
#: Loads are shared out among the slots at most this often, seconds.
SHARE_S = 1.0
_NONE = SlotLoad(0.0, 0.0)


class OwnerWatch(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._began = startd.now()
        self._latches = Latches()
        self._loads = JobLoads()
        self._shares: dict[str, SlotLoad] = {}
        self._all_jobs = 0.0
        self._shared = float("-inf")
        self._reread = asyncio.Event()
        startd.ads.add_source("owner", self._attributes)
        startd.ads.add_on_top("latches", self._latched)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"owner-watch": self._watch()}

    def reread(self) -> None:
        self._reread.set()

    def run_over(self, run: Run) -> None:
        self._loads.over(run.key)

    # -- what slots show

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        sample = self.startd.ads.sample
        self._share(sample, anew=slot.kind is not SlotKind.DYNAMIC and slot.name not in self._shares)
        load = self._shares.get(slot.name, _NONE)
        settings = self.startd.settings
        keyboard, console = idle(slot.slot_id, sample, settings, self.startd.now() - self._began)
        return {
            "LoadAvg": load.load,
            "CondorLoadAvg": load.job,
            "TotalCondorLoadAvg": self._all_jobs,
            "KeyboardIdle": keyboard,
            "ConsoleIdle": console,
        }

    def _share(self, sample: Sample, *, anew: bool) -> None:
        mono = self.startd.context.clock.monotonic()
        if anew or mono - self._shared >= SHARE_S:
            self._shared = mono
            slots = self.startd.slot_manager.slots
            self._shares, self._all_jobs = share_load(slots.values(), sample.load_avg, self._loads.of)
            self._latches.keep(slots)

    def _latched(self, slot: Slot, ad: ClassAd) -> Mapping[str, object]:
        latches = self.startd.settings.latches
        return self._latches.look(slot.name, ad, latches, self.startd.now()) if latches else {}

    # -- measuring

    async def _watch(self) -> None:
        startd = self.startd
        while True:
            self._reread.clear()
            every = startd.settings.polling_interval if asks_for_loads(startd.settings) else SELDOM_S
            try:
                async with asyncio.timeout(every):
                    await self._reread.wait()
            except TimeoutError:
                await self._measure()

    async def _measure(self) -> None:
        """What every run has used so far."""
        for key, run in list(self.startd.runs.by_key.items()):
            if run.ended or not run.record.launched:
                continue
            seen = await run.launcher.measure(run.record.name)
            if seen.procs:
                at = self.startd.context.clock.monotonic()
                self._loads.measured(key, seen.user_cpu_s + seen.sys_cpu_s, at)


def idle(slot_id: int, sample: Sample, settings: Settings, age_s: float) -> tuple[int, int]:
    """KeyboardIdle and ConsoleIdle of a slot: the first slots see the keyboards or the console, as
    SLOTS_CONNECTED_TO_KEYBOARD and _CONSOLE say; for others nobody has touched them since
    DISCONNECTED_KEYBOARD_IDLE_BOOST seconds before the startd began."""
    never = int(age_s + settings.idle_boost)
    console = sample.console_idle_s if slot_id <= settings.slots_at_console else never
    if slot_id <= settings.slots_at_keyboard:
        return min(sample.keyboard_idle_s, sample.console_idle_s), console
    return console, console


def asks_for_loads(settings: Settings) -> bool:
    """An expression of the configuration names a load."""
    return any("loadavg" in unparse(expr).lower() for expr in _expressions(settings))


def _expressions(settings: Settings) -> Iterable[Expr]:
    for policy in settings.policies.values():
        yield from expressions(policy)
    yield from settings.latches.values()
    yield from settings.attributes.values()
    for attributes in settings.slot_attributes.values():
        yield from attributes.values()
