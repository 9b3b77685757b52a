"""The rooster: wakes machines that sleep and that jobs wait for (spec rows PWR-06, PWR-07; docs/power.md).

Every ROOSTER_INTERVAL it asks the collector for the machines of which ROOSTER_UNHIBERNATE is true, and wakes them. Of
several roosters one acts (shared.daemon.lead); when its last round was is noted there, so neither a restart nor a
change of the lead wakes more machines in an interval than ROOSTER_MAX_UNHIBERNATE. Losing it loses nothing: what sleeps
goes on to sleep, and the next round finds it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, Final

from prometheus_client.core import Metric

from services.rooster.crow import NotWoken, crow
from services.rooster.policy import Rules, Sleeper, left_s, sleepers
from shared.bus.api import Exchange, RemoteFailure
from shared.classad import ClassAd, unparse
from shared.config import ConfigError, Problem
from shared.config.knobs import RoosterSettings
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.clock import set_or_over
from shared.daemon.context import Context
from shared.daemon.lead import Lead
from shared.daemon.measures import Source, counter, gauge
from shared.daemon.orders import obey
from shared.errors import RetryableError
from shared.job_text import words_v2
from shared.messages.ads import AdPage, QueryAds
from shared.messages.base import Envelope, Message
from shared.messages.events import RoosterRound
from shared.state import StaleEpoch

MY_TYPE: Final = "Rooster"
#: Of the lead among several roosters, seconds.
LEASE_S: Final = 30.0
#: Seconds until a round that could not be made is tried again.
RETRY_S: Final = 10.0
#: Machines that are woken at a time.
AT_ONCE: Final = 10
#: Ads in one page, and seconds for it.
_PAGE, _ASK_S = 2000, 30.0


class Rooster(Daemon):
    """See the module."""

    subsystem: ClassVar[str] = "ROOSTER"
    at_start: ClassVar[tuple[str, ...]] = ()

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = RoosterSettings.from_config(context.config)
        self.rules = rules_of(self.settings)
        self.lead = Lead(context, self.subsystem, LEASE_S)
        self.advertiser = Advertiser(context, MY_TYPE)
        self.leads = False
        self.last_round = 0.0  # wall clock
        self.rounds = self.woken = self.failures = 0  # of this life
        self.trouble = ""  # why the last round could not be made
        self._seen = False
        self._stopped = False
        self._wake = asyncio.Event()
        self._tell = asyncio.Event()
        context.metrics.register(_Metrics(self))

    async def setup(self) -> None:
        await self.context.bus.serve(f"rooster.{self.context.name}", self._on_request)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"rounds": self._make_rounds(), "advertise": self._advertise()}

    async def reconfigure(self) -> None:
        settings = RoosterSettings.from_config(self.context.config)
        self.rules, self.settings = rules_of(settings), settings
        self._wake.set()

    async def drain(self) -> None:
        self._stopped = True
        await self.lead.give_up()
        await self.advertiser.invalidate()

    def ready(self) -> str:
        return self.trouble if self._seen else "the lead in Redis"

    def role(self) -> str:
        return "leader" if self.leads else "passive"

    async def _on_request(self, envelope: Envelope) -> Message:
        return await obey(self, envelope, self.advertiser)

    # Rounds

    async def _make_rounds(self) -> None:
        clock, log = self.context.clock, self.context.log
        while not self._stopped:
            self._wake.clear()
            left, trouble = self.lead.look_s, ""
            try:
                await self._look()
                if self.leads:
                    if not left_s(self.last_round, self.rules, clock.now()):
                        await self._round()
                    left = min(left, left_s(self.last_round, self.rules, clock.now()))
            except StaleEpoch:
                self.leads = False
            except (RetryableError, RemoteFailure) as error:
                trouble, left = str(error), RETRY_S
            if trouble and trouble != self.trouble:
                log.warning("no_round", reason=trouble)
            self.trouble = trouble
            await set_or_over(self._wake, clock, max(left, 0.01))

    async def _look(self) -> None:
        """Who acts. Raises StoreUnavailable."""
        standing = await self.lead.look()
        self._seen = True
        if standing.leads and not self.leads:
            self.last_round = max(self.last_round, _read(standing.note))
        if standing.leads is not self.leads:
            self.leads = standing.leads
            self.context.log.info("rooster_lead", leads=self.leads, leader=standing.owner)
            self._tell.set()

    async def _round(self) -> None:
        """Raises StaleEpoch where another rooster leads, RetryableError, RemoteFailure."""
        context, rules = self.context, self.rules
        found = sleepers(await self._ads(), rules, context.clock.now())
        now = context.clock.now()
        # Before anybody is woken: who leads next must not do so again in the same interval.
        await self.lead.write(json.dumps({"last_round": now}).encode())
        self.last_round = now
        self.rounds += 1
        woken, failed = await self._crow(found)
        self.woken += len(woken)
        self.failures += len(failed)
        self._tell.set()
        if not found:
            return
        left_out = len(found) - len(woken) - len(failed)
        context.log.info("rooster_round", woken=woken[:20], failed=dict(list(failed.items())[:20]), waiting=left_out)
        event = RoosterRound(at=now, rooster=context.name, woken=woken, failed=failed, waiting=left_out)
        try:
            await context.bus.publish(Exchange.EVENTS, event.type, event)
        except RetryableError as error:
            context.log.info("event_not_sent", type=event.type, reason=str(error))

    async def _crow(self, found: list[Sleeper]) -> tuple[list[str], dict[str, str]]:
        """Wake them in their order, until ROOSTER_MAX_UNHIBERNATE are. What can not be woken does not count."""
        most = self.rules.most or len(found)
        woken: list[str] = []
        failed: dict[str, str] = {}
        rest = iter(found)
        while len(woken) < most:
            some = list(islice(rest, min(AT_ONCE, most - len(woken))))
            if not some:
                break
            if woken or failed:
                await self._look()  # the lead must outlast many slow commands
                if not self.leads:
                    break
            answers = await asyncio.gather(*(self._one(one) for one in some))
            for one, reason in zip(some, answers, strict=True):
                if reason:
                    failed[one.machine] = reason
                else:
                    woken.append(one.machine)
        return woken, failed

    async def _one(self, one: Sleeper) -> str:
        """Why a machine could not be woken; "": it was."""
        try:
            await crow(one.ad, self.rules.command)
        except NotWoken as error:
            self.context.log.warning("not_woken", machine=one.machine[:200], reason=str(error))
            return str(error)
        return ""

    async def _ads(self) -> list[ClassAd]:
        """As the collector knows them. Raises RetryableError, RemoteFailure."""
        ads: list[ClassAd] = []
        after = ""
        constraint = unparse(self.rules.unhibernate)
        while True:
            query = QueryAds(my_types=["Machine"], constraint=constraint, limit=_PAGE, after=after)
            page = await self.context.bus.call("collector", query, timeout=_ASK_S)
            assert isinstance(page, AdPage)
            ads += _read_ads(page.ads)
            if not page.next:
                return ads
            after = page.next

    # What it tells

    async def _advertise(self) -> None:
        while True:
            self._tell.clear()
            await self.advertiser.publish({self.context.name: self._ad()})
            await set_or_over(self._tell, self.context.clock, float(self.settings.master_update_interval))

    def _ad(self) -> ClassAd:
        return self.advertiser.own_ad(
            {
                "Machine": self.context.config.get("FULL_HOSTNAME") or self.context.name,
                "MyCurrentTime": int(self.context.clock.now()),
                "RoosterIsActive": self.leads,
                "RoosterLastRound": int(self.last_round),
                "RoosterProblem": self.trouble,
                "MachinesWoken": self.woken,
                "MachinesNotWoken": self.failures,
            }
        )


def rules_of(settings: RoosterSettings) -> Rules:
    """The policy as configured. Raises ConfigError."""
    text = (settings.rooster_wakeup_cmd or "").strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('""', '"')
    try:
        command = tuple(words_v2(text))
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


def _read_ads(packed: Iterable[bytes]) -> Iterator[ClassAd]:
    """Those that can be read: an odd ad costs nobody else the waking."""
    for one in packed:
        try:
            yield ClassAd.unpack(one).check()
        except (ValueError, RecursionError):
            continue


class _Metrics(Source):
    """What the rooster measures of itself."""

    def __init__(self, rooster: Rooster) -> None:
        self._rooster = rooster

    def collect(self) -> Iterator[Metric]:
        rooster = self._rooster
        yield gauge("roost_rooster_acts", "1 for the one that acts", rooster.leads)
        yield counter("roost_rooster_rounds", "Looks for machines to wake", rooster.rounds)
        yield counter(
            "roost_rooster_woken", "Machines that were woken: commands that went well, or packets", rooster.woken
        )
        yield counter("roost_rooster_failures", "Machines that could not be woken", rooster.failures)
        since = "When the last round was, since 1970; 0: none yet"
        yield gauge("roost_rooster_last_round_seconds", since, rooster.last_round if rooster.leads else 0.0)
        text = "1 while a round can not be made: Redis or the collector does not answer"
        yield gauge("roost_rooster_troubled", text, bool(rooster.trouble))
