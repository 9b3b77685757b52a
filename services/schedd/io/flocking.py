"""Flocking: a schedd's connections to the pools of FLOCK_TO, where it is an access point like any other.

In each of them it has an identity of that pool (`roost enroll -role schedd`), an inbox in which it obeys that pool's
negotiators and execution points and nobody else, and the ads of those submitters whose jobs found no slot at home.
`core.flocking` decides who these are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine.queue.submitters import Elsewhere
from services.schedd.core.flocking import Flocking, Level, as_here, elsewhere, next_level, pool_of, rejected_level
from services.schedd.io.pools_bus import PoolsBus
from shared import bus as transport
from shared.bus.api import Bus, RemoteFailure
from shared.bus.spool import spool_file
from shared.classad import ClassAd
from shared.config.knobs.tls import TlsSettings
from shared.daemon.advertiser import Advertiser
from shared.daemon.context import Context
from shared.errors import RoostError
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Message
from shared.messages.negotiation import GetRequests, Matches
from shared.tls import ClientTls

#: How often is looked who waits for too long.
LOOK_S: Final = 1.0
#: A pool's directory, or what is in it, can not be used: then it is tried again after so long.
AGAIN_S: Final = 30.0
#: What a pool's directory holds: one for the identity, as `roost enroll -directory` makes it, and the authority of its
#: broker's certificate, where that is not one that is believed at home.
URL, CA_FILE = "amqp_url", "ca.pem"

Handler = Callable[[Envelope], Awaitable[Message]]


@dataclass(slots=True)
class Pool:
    """One pool of FLOCK_TO. number: its place, from 1. advertiser: None until it was reached."""

    name: str
    number: int
    bus: Bus | None = None
    advertiser: Advertiser | None = None
    unusable: str = ""  # why there can be no connection

    @property
    def trouble(self) -> str:
        """Why it can not be asked; empty: it can."""
        if self.bus is None:
            return self.unusable or "it was not reached yet"
        health = self.bus.health
        return "" if health.connected else f"its broker is away: {health.last_error or health.waiting_for}"


class Pools:
    """The other pools of one schedd. bus: gets their connections. answer: of the schedd's own inbox. changed: set when
    ads are to be published that were not before."""

    def __init__(
        self, context: Context, bus: PoolsBus, rules: Flocking, answer: Handler, changed: asyncio.Event
    ) -> None:
        self._context = context
        self._bus = bus
        self.rules = rules
        self._answer = answer
        self._changed = changed
        self._inbox = f"schedd.{context.name}"
        self._levels: dict[str, Level] = {}  # by submitter
        self._waiting: frozenset[str] = frozenset()  # submitters with jobs that could start
        self._pools = [Pool(name, number) for number, name in enumerate(rules.pools, 1)]
        bus.pools = {pool.name: None for pool in self._pools}

    def troubles(self) -> list[str]:
        """A line for each pool that can not be asked."""
        return [f"pool {pool.name} of FLOCK_TO: {pool.trouble}" for pool in self._pools if pool.trouble]

    def flocks(self, submitter: str) -> int:
        """How many pools the jobs of a submitter are offered to, besides our own."""
        level = self._levels.get(submitter)
        return self.rules.always if level is None else level.pools

    async def run(self) -> None:
        """Root task: keep the connections, and let those flock who wait for too long."""
        async with asyncio.TaskGroup() as tasks:
            for pool in self._pools:
                tasks.create_task(self._join(pool), name=f"pool:{pool.name}")
            tasks.create_task(self._look(), name="flock-levels")

    async def publish(
        self,
        waiting: frozenset[str],
        runs: Mapping[str, Mapping[str, Elsewhere]],
        ad_of: Callable[[str, Elsewhere], ClassAd],
    ) -> None:
        """Tell each pool of the submitters that flock there or have runs there. waiting: submitters with jobs that
        could start. runs: by submitter and pool. ad_of: a submitter's ad, by his runs elsewhere."""
        self._waiting = waiting
        for pool in self._pools:
            if pool.advertiser is not None:
                told = {
                    name: ad_of(name, elsewhere(by_pool, pool.name))
                    for name in waiting | runs.keys()
                    if pool.name in (by_pool := runs.get(name, {})) or self.flocks(name) >= pool.number
                }
                await pool.advertiser.publish(told)

    def reconfigure(self, rules: Flocking) -> None:
        """Go by other rules from now on; the pools stay those of the start."""
        self.rules = replace(rules, pools=self.rules.pools, directory=self.rules.directory)

    def rejected(self, decided: Matches) -> None:
        """A negotiator had no slot for some jobs. decided: with the names that things have here."""
        pool = pool_of(decided.shard)
        by = self.rules.pools.index(pool) + 1 if pool else 0
        now = self._context.clock.monotonic()
        for name in {rejection.submitter for rejection in decided.rejections}:
            if name in self._waiting:
                self._set(name, rejected_level(self._levels.get(name), by=by, now=now, rules=self.rules))

    async def drain(self) -> None:
        """Nobody should negotiate with us any more."""
        for pool in self._pools:
            if pool.advertiser is not None:
                await pool.advertiser.invalidate()

    def _set(self, submitter: str, level: Level) -> None:
        before = self.flocks(submitter)
        self._levels[submitter] = level
        if self.flocks(submitter) != before:
            self._context.log.info("flocks", submitter=submitter, pools=self.rules.pools[: level.pools])
            self._changed.set()

    async def _look(self) -> None:
        while True:
            await self._context.clock.sleep(LOOK_S)
            now = self._context.clock.monotonic()
            for name in self._waiting | self._levels.keys():
                self._set(
                    name, next_level(self._levels.get(name), waits=name in self._waiting, now=now, rules=self.rules)
                )
            for name, level in list(self._levels.items()):
                if not level.waits and level.pools == self.rules.always and name not in self._waiting:
                    del self._levels[name]

    async def _join(self, pool: Pool) -> None:
        """Be an access point of the pool. Its broker is waited for; the jobs at home do not wait with it."""
        while pool.bus is None:
            try:
                pool.bus = await asyncio.to_thread(connect, self._context, self.rules, pool.name)
            except (OSError, ValueError, RoostError) as error:
                pool.unusable = str(error)
                self._context.log.error("no_pool_to_flock_to", pool=pool.name, reason=pool.unusable)
                await self._context.clock.sleep(AGAIN_S)
        bus = self._bus.pools[pool.name] = pool.bus
        await bus.start()
        await bus.serve(self._inbox, lambda envelope: self._on_request(pool, envelope), prefetch=500)
        pool.advertiser = Advertiser(replace(self._context, bus=bus), "Submitter", subsystem="SCHEDD")
        self._changed.set()
        self._context.log.info("flocks_to", pool=pool.name)

    async def _on_request(self, pool: Pool, envelope: Envelope) -> Message:
        """What comes from daemons of another pool: they negotiate, and tell of runs on their slots."""
        body = envelope.body
        if isinstance(body, SendAds):
            if pool.advertiser is not None and body.my_type in ("", "Submitter"):
                pool.advertiser.resend(body)
            return Ack()
        if isinstance(body, GetRequests):
            flocking = [name for name in body.submitters if self.flocks(name) >= pool.number]
            body = body.model_copy(update={"submitters": flocking})
        here = as_here(body, pool.name, self.rules.constraint)
        if here is None:
            raise RemoteFailure("denied", f"{body.type}: a schedd that flocks to this pool takes none from it")
        return await self._answer(replace(envelope, body=here))


def connect(context: Context, rules: Flocking, pool: str) -> Bus:
    """A connection to a pool, not started yet, by the files in its directory. Blocks. Raises OSError, and ValueError
    for files that can not be used."""
    place = Path(rules.directory) / pool
    sender = f"schedd.{context.name}"
    path = place / sender / URL
    try:
        url = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise ValueError(
            f"{path} is not there: get an identity of that pool, roost enroll -pool https://... -role schedd "
            f"-name {context.name} -token-file FILE -directory {place}"
        ) from None
    tls = ClientTls.of(TlsSettings.from_config(context.config))
    if (authority := place / CA_FILE).exists():
        tls = replace(tls, ca_file=str(authority), _made={})
    tls.check(url)
    return transport.connect(url, sender, spool=spool_file(context.spool, f"{sender}.{pool}"), tls=tls)
