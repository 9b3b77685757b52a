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

from services.startd.parts import Inside, Part
from services.startd.power import levels
from services.startd.power.levels import Level, Means
from services.startd.power.switch import StayedAwake, Switch, wake_on_lan
from services.startd.power.wol import Wol
from shared.classad import evaluate
from shared.daemon.clock import set_or_over
from shared.errors import RoostError
from shared.messages.ads import AdCounts, CountAds

#: What runs on the slots must be gone, and reported, within so many seconds.
EMPTY_S: Final = 120.0
#: A collector must have the ads within so many seconds.
KNOWN_S: Final = 60.0
#: Between looks at either.
LOOK_S: Final = 0.25


class Hibernation(Part):
    """See the module."""

    #: Some programs that suspend a machine return before it sleeps; awake for longer than this after one of them, it
    #: has slept, or never will. Seconds of awake time.
    settle_s: ClassVar[float] = 10.0
    #: Likewise for a machine that is switched off.
    off_s: ClassVar[float] = 600.0

    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self.asleep = Level.NONE
        self.switch = Switch()
        self.means = Means()
        self.wol: Wol | None = None
        self._reread = asyncio.Event()
        self._shown: Mapping[str, object] = {}
        self._refused = ""
        self._told: dict[str, str] = {}
        inside.showcase.add_source("power", lambda slot: self._shown)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"hibernation": self._watch()}

    def reread(self) -> None:
        self._reread.set()

    async def _watch(self) -> None:
        """Every HIBERNATE_CHECK_INTERVAL, counted from when the last check, or sleep, was over."""
        clock = self.inside.context.clock
        self._reread.set()
        while True:
            if self._reread.is_set() or not self.means.method:
                self._reread.clear()
                await self._look_around()
            rules = self.inside.settings.power
            if not rules.interval_s:
                await self._reread.wait()
                continue
            await set_or_over(self._reread, clock, float(rules.interval_s))
            if not self._reread.is_set():
                await self._check()

    async def _look_around(self) -> None:
        """What the machine can do, by settings that may be new."""
        inside = self.inside
        rules = inside.settings.power
        if rules.interval_s:
            self.switch.wish, self.switch.plugin = rules.method, rules.plugin
            self.means = await self.switch.means()
            interface = inside.detected.interface
            self.wol = wake_on_lan(interface.name) if interface is not None else None
            told = {"method": self.means.method, "states": levels.names(self.means.levels), "reason": self.means.reason}
            told["wakeable"] = str(self.wol is not None and self.wol.wakeable).lower()
            if told != self._told:
                inside.context.log.info("power_management", **told)
            self._told = told
        self._show()

    def _show(self) -> None:
        rules = self.inside.settings.power
        shown = levels.attributes(rules, self.means, self.wol, self.asleep) if rules.interval_s else {}
        if shown != self._shown:
            self._shown = shown
            self.inside.changed(urgent=True)

    def _wanted(self) -> Level:
        inside = self.inside
        rules = inside.settings.power
        if rules.hibernate is None:
            return Level.NONE
        now = inside.now()
        inside.showcase.refresh()
        ads = [inside.showcase.ad_of(slot) for slot in list(inside.book.slots.values())]
        return levels.wanted(evaluate(rules.hibernate, ad, None, now) for ad in ads)

    async def _check(self) -> None:
        log = self.inside.context.log
        level = self._wanted()
        if not level:
            return
        hindrance = levels.hindrance(level, self.means, self.wol, self.inside.settings.power)
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
        await self._rise()  # not where the daemon is stopped: a machine that is switched off ends it

    async def _sleep(self, level: Level) -> None:
        """Returns when the machine is awake again. Raises RoostError where it can not sleep."""
        inside = self.inside
        clock, log = inside.context.clock, inside.context.log
        log.info("hibernating", state=level.name, method=self.means.method)
        inside.book.helm.lie_down(inside.now())
        inside.write_down()
        await self._emptied()
        self.asleep = level
        self._show()
        await inside.herald.tell_all()
        await self._known()
        before = inside.now()
        await self.switch.enter(self.means, level)
        if level is Level.S5:
            await clock.sleep(self.off_s)
            raise StayedAwake("it was switched off, and is still there")
        if inside.now() - before < self.settle_s:
            await clock.sleep(self.settle_s)
        log.info("woken", state=level.name, slept_s=round(inside.now() - before, 1))

    async def _rise(self) -> None:
        inside = self.inside
        self.asleep = Level.NONE
        inside.book.helm.rise(inside.now())
        inside.write_down()
        self._show()
        await inside.herald.tell_all()
        inside.look()

    async def _emptied(self) -> None:
        """Wait for what was on the slots to be gone, and its end to be told."""
        inside = self.inside
        clock = inside.context.clock
        until = clock.monotonic() + EMPTY_S
        while inside.book.in_use or inside.runs.by_key:
            if clock.monotonic() >= until:
                raise StayedAwake(f"its slots did not get empty within {EMPTY_S:g} s")
            await clock.sleep(LOOK_S)

    async def _known(self) -> None:
        """Wait for a collector to say that it has all ads as those of a sleeping machine: what nobody knows to be there
        would be woken by nobody."""
        inside = self.inside
        clock = inside.context.clock
        until = clock.monotonic() + KNOWN_S
        constraint = f"Machine == {json.dumps(inside.name)} && Offline =?= true"
        question = CountAds(my_type="Machine", constraint=constraint)
        reason = "it does not have all ads"
        while clock.monotonic() < until:
            try:
                answer = await inside.context.bus.call("collector", question)
                if isinstance(answer, AdCounts) and sum(answer.counts) >= len(inside.book.slots):
                    return
            except RoostError as error:
                reason = str(error)
            await clock.sleep(LOOK_S)
        raise StayedAwake(f"no collector kept its ads within {KNOWN_S:g} s: {reason}")
