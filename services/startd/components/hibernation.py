"""Puts the machine to sleep when all its slots agree (spec rows PWR-01 to PWR-04, PWR-07).

In order: no slot is lent any more and what is left on the slots is ended; all ads say Offline, and a collector says
that it has them so; then the machine sleeps. What goes wrong on the way leaves it awake, and is tried again after
HIBERNATE_CHECK_INTERVAL. When it wakes, slots begin their state anew, so that what sent it to sleep does not at once do
so again, and all ads say that it is there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar, Final

from services.startd.context import Component, StartdContext
from services.startd.core.machine import power_states
from services.startd.core.machine.detected import Wol
from services.startd.core.machine.power_states import Level, Means
from services.startd.machine.power_switch import PowerSwitch, StayedAwake, wake_on_lan
from shared.classad import evaluate
from shared.daemon.clock import wait_for_event
from shared.errors import RoostError
from shared.messages.ads import AdCounts, CountAds

#: What runs on the slots must be gone, and reported, within so many seconds.
EMPTY_S: Final = 120.0
#: A collector must have the ads within so many seconds.
KNOWN_S: Final = 60.0
#: Between looks at either.
LOOK_S: Final = 0.25


class Hibernation(Component):
    """Power management of this machine."""

    #: Some programs that suspend a machine return before it sleeps; awake for longer than this after one of them, it
    #: has slept, or never will. Seconds of awake time.
    settle_s: ClassVar[float] = 10.0
    #: Likewise for a machine that is switched off.
    off_s: ClassVar[float] = 600.0

    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self.asleep = Level.NONE
        self.switch = PowerSwitch()
        self.means = Means()
        self.wol: Wol | None = None
        self._reread = asyncio.Event()
        self._shown: Mapping[str, object] = {}
        self._refused = ""
        self._told: dict[str, str] = {}
        startd.ads.add_source("power", lambda slot: self._shown)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"hibernation": self._watch()}

    def reread(self) -> None:
        self._reread.set()

    async def _watch(self) -> None:
        """Every HIBERNATE_CHECK_INTERVAL, counted from when the last check, or sleep, was over."""
        clock = self.startd.context.clock
        self._reread.set()
        while True:
            if self._reread.is_set() or not self.means.method:
                self._reread.clear()
                await self._look_around()
            rules = self.startd.settings.power
            if not rules.interval_s:
                await self._reread.wait()
                continue
            await wait_for_event(self._reread, clock, float(rules.interval_s))
            if not self._reread.is_set():
                await self._check()

    async def _look_around(self) -> None:
        """What the machine can do, by settings that may be new."""
        startd = self.startd
        rules = startd.settings.power
        if rules.interval_s:
            self.switch.wish, self.switch.plugin = rules.method, rules.plugin
            self.means = await self.switch.means()
            interface = startd.detected.interface
            self.wol = wake_on_lan(interface.name) if interface is not None else None
            told = {
                "method": self.means.method,
                "states": power_states.names(self.means.levels),
                "reason": self.means.reason,
            }
            told["wakeable"] = str(self.wol is not None and self.wol.wakeable).lower()
            if told != self._told:
                startd.context.log.info("power_management", **told)
            self._told = told
        self._show()

    def _show(self) -> None:
        rules = self.startd.settings.power
        shown = (
            power_states.hibernation_attributes(rules, self.means, self.wol, self.asleep) if rules.interval_s else {}
        )
        if shown != self._shown:
            self._shown = shown
            self.startd.publisher.attributes_changed(urgent=True)

    def _wanted(self) -> Level:
        startd = self.startd
        rules = startd.settings.power
        if rules.hibernate is None:
            return Level.NONE
        now = startd.now()
        startd.ads.refresh()
        ads = [startd.ads.ad_of(slot) for slot in list(startd.slot_manager.slots.values())]
        return power_states.wanted(evaluate(rules.hibernate, ad, None, now) for ad in ads)

    async def _check(self) -> None:
        log = self.startd.context.log
        level = self._wanted()
        if not level:
            return
        hindrance = power_states.hindrance(level, self.means, self.wol, self.startd.settings.power)
        if hindrance:
            if hindrance != self._refused:  # else it would be told at every check
                log.warning("not_hibernating", state=level.name, reason=hindrance)
            self._refused = hindrance
            return
        self._refused = ""
        try:
            await self._sleep(level)
        except RoostError as error:
            log.error("not_hibernating", state=level.name, reason=str(error))
        await self._wake_up()  # not where the daemon is stopped: a machine that is switched off ends it

    async def _sleep(self, level: Level) -> None:
        """Returns when the machine is awake again. Raises RoostError where it can not sleep."""
        startd = self.startd
        clock, log = startd.context.clock, startd.context.log
        log.info("hibernating", state=level.name, method=self.means.method)
        startd.effects.carry_out(startd.slot_manager.sleep(startd.now()))
        await self._emptied()
        self.asleep = level
        self._show()
        await startd.publisher.tell_all()
        await self._known()
        before = startd.now()
        await self.switch.enter(self.means, level)
        if level is Level.S5:
            await clock.sleep(self.off_s)
            raise StayedAwake("it was switched off, and is still there")
        if startd.now() - before < self.settle_s:
            await clock.sleep(self.settle_s)
        log.info("woken", state=level.name, slept_s=round(startd.now() - before, 1))

    async def _wake_up(self) -> None:
        startd = self.startd
        self.asleep = Level.NONE
        startd.effects.carry_out(startd.slot_manager.wake(startd.now()))
        self._show()
        await startd.publisher.tell_all()
        startd.look()

    async def _emptied(self) -> None:
        """Wait for what was on the slots to be gone, and its end to be told."""
        startd = self.startd
        clock = startd.context.clock
        until = clock.monotonic() + EMPTY_S
        while startd.slot_manager.in_use or startd.runs.by_key:
            if clock.monotonic() >= until:
                raise StayedAwake(f"its slots did not get empty within {EMPTY_S:g} s")
            await clock.sleep(LOOK_S)

    async def _known(self) -> None:
        """Wait for a collector to say that it has all ads as those of a sleeping machine: what nobody knows to be there
        would be woken by nobody."""
        startd = self.startd
        clock = startd.context.clock
        until = clock.monotonic() + KNOWN_S
        constraint = f"Machine == {json.dumps(startd.name)} && Offline =?= true"
        question = CountAds(my_type="Machine", constraint=constraint)
        reason = "it does not have all ads"
        while clock.monotonic() < until:
            try:
                answer = await startd.context.bus.call("collector", question)
                if isinstance(answer, AdCounts) and sum(answer.counts) >= len(startd.slot_manager.slots):
                    return
            except RoostError as error:
                reason = str(error)
            await clock.sleep(LOOK_S)
        raise StayedAwake(f"no collector kept its ads within {KNOWN_S:g} s: {reason}")
