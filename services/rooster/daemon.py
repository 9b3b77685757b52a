"""The rooster: wakes sleeping machines that jobs wait for (spec rows PWR-06, PWR-07; docs/power.md).

Every ROOSTER_INTERVAL it asks the collector for the machines of which ROOSTER_UNHIBERNATE is true, and wakes them. Of
several roosters one leads (shared.daemon.lead); the time of its last cycle is noted in Redis, so neither a restart nor
a change of the leader wakes more machines in an interval than ROOSTER_MAX_UNHIBERNATE. Losing the rooster loses
nothing: machines go on sleeping, and the next cycle finds them.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from itertools import islice
from typing import ClassVar, Final

from services.rooster.core.policy import Rules, SleepingMachine, machines_to_wake
from services.rooster.waker import WakeFailed, wake
from shared.classad import ClassAd, unparse
from shared.config import ConfigError, Problem
from shared.config.knobs import RoosterSettings
from shared.daemon.context import Context
from shared.daemon.events import announce
from shared.daemon.metrics import Counter, Declared, Gauge, register
from shared.daemon.periodic import PeriodicDaemon, remaining_s
from shared.daemon.pool_ads import pool_ads
from shared.job_text import quoted, words_v2
from shared.messages.events import RoosterRound
from shared.stored_versions import ROOSTER

#: Of the lead among several roosters, seconds.
LEASE_S: Final = 30.0
#: Machines that are woken at a time.
AT_ONCE: Final = 10


class Rooster(PeriodicDaemon):
    """The rooster as a daemon: each cycle wakes the machines that the policy names."""

    subsystem: ClassVar[str] = "ROOSTER"
    writes: ClassVar[tuple[str, ...]] = (ROOSTER,)
    my_type: ClassVar[str] = "Rooster"
    at_start: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: Context) -> None:
        self.settings = RoosterSettings.from_config(context.config)
        self.rules = rules_of(self.settings)
        super().__init__(context, LEASE_S)
        self.last_round = 0.0  # wall clock
        self.woken = self.failures = 0  # of this life
        register(context.metrics, METRICS, self)

    async def reconfigure(self) -> None:
        settings = RoosterSettings.from_config(self.context.config)
        self.rules, self.settings = rules_of(settings), settings
        self.wake()

    def update_interval_s(self) -> float:
        return float(self.settings.master_update_interval)

    def load_note(self, note: bytes) -> None:
        self.last_round = max(self.last_round, _read(note))

    # Cycles

    def due_s(self) -> float:
        return remaining_s(self.last_round, self.rules.interval_s, self.context.clock.now())

    async def run_cycle(self) -> None:
        context, rules = self.context, self.rules
        ads: list[ClassAd] = []
        async for page in pool_ads(context.bus, "Machine", constraint=unparse(rules.unhibernate)):
            ads += page
        found = machines_to_wake(ads, rules, context.clock.now())
        now = context.clock.now()
        # Before anybody is woken: who leads next must not do so again in the same interval.
        await self.lead.write_note(json.dumps({"last_round": now}).encode())
        self.last_round = now
        self.rounds += 1
        woken, failed = await self._wake_machines(found)
        self.woken += len(woken)
        self.failures += len(failed)
        self.advertise_soon()
        if not found:
            return
        left_out = len(found) - len(woken) - len(failed)
        context.log.info("rooster_round", woken=woken[:20], failed=dict(list(failed.items())[:20]), waiting=left_out)
        event = RoosterRound(at=now, rooster=context.name, woken=woken, failed=failed, waiting=left_out)
        await announce(context, event)

    async def _wake_machines(self, found: list[SleepingMachine]) -> tuple[list[str], dict[str, str]]:
        """Wake them in their order, until ROOSTER_MAX_UNHIBERNATE are. What can not be woken does not count."""
        most = self.rules.most or len(found)
        woken: list[str] = []
        failed: dict[str, str] = {}
        rest = iter(found)
        while len(woken) < most:
            some = list(islice(rest, min(AT_ONCE, most - len(woken))))
            if not some:
                break
            if not self.lead.holds():
                break  # commands may be slow, and another one lead by now
            answers = await asyncio.gather(*(self._wake_one(one) for one in some))
            for one, reason in zip(some, answers, strict=True):
                if reason:
                    failed[one.machine] = reason
                else:
                    woken.append(one.machine)
        return woken, failed

    async def _wake_one(self, one: SleepingMachine) -> str:
        """Why a machine could not be woken; "": it was."""
        try:
            await wake(one.ad, self.rules.command)
        except WakeFailed as error:
            self.context.log.warning("not_woken", machine=one.machine[:200], reason=str(error))
            return str(error)
        return ""

    # The ad

    def ad_attributes(self) -> Mapping[str, object]:
        return {
            "Machine": self.context.config.get("FULL_HOSTNAME") or self.context.name,
            "MyCurrentTime": int(self.context.clock.now()),
            "RoosterIsActive": self.leads,
            "RoosterLastRound": int(self.last_round),
            "RoosterProblem": self.ready(),
            "MachinesWoken": self.woken,
            "MachinesNotWoken": self.failures,
        }


def rules_of(settings: RoosterSettings) -> Rules:
    """The policy as configured. Raises ConfigError."""
    text = (settings.rooster_wakeup_cmd or "").strip()
    inside = quoted(text)
    try:
        command = tuple(words_v2(text if inside is None else inside))
    except ValueError as error:
        raise ConfigError((Problem(f"ROOSTER_WAKEUP_CMD is {text[:200]!r}: {error}"),)) from error
    if command and not os.path.isabs(command[0]):
        raise ConfigError((Problem(f"ROOSTER_WAKEUP_CMD runs {command[0][:200]!r}: want a path that begins with /"),))
    return Rules(
        interval_s=float(settings.rooster_interval),
        unhibernate=settings.rooster_unhibernate,
        rank=settings.rooster_unhibernate_rank,
        most=settings.rooster_max_unhibernate,
        command=command,
    )


def _read(note: bytes) -> float:
    """When the last round was, as whoever led before noted it; 0 where that can not be read."""
    try:
        return float(json.loads(note)["last_round"])
    except (ValueError, KeyError, TypeError):
        return 0.0


METRICS: Final[Declared[Rooster]] = (
    Gauge("roost_rooster_acts", "1 for the one that acts", lambda rooster: rooster.leads),
    Counter("roost_rooster_rounds", "Looks for machines to wake", lambda rooster: rooster.rounds),
    Counter(
        "roost_rooster_woken",
        "Machines that were woken: commands that went well, or packets",
        lambda rooster: rooster.woken,
    ),
    Counter("roost_rooster_failures", "Machines that could not be woken", lambda rooster: rooster.failures),
    Gauge(
        "roost_rooster_last_round_seconds",
        "When the last round was, since 1970; 0: none yet",
        lambda rooster: rooster.last_round if rooster.leads else 0.0,
    ),
    Gauge(
        "roost_rooster_troubled",
        "1 while a round can not be made: Redis or the collector does not answer",
        lambda rooster: bool(rooster.ready()),
    ),
)
