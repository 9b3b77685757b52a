"""A daemon's own ads on their way to the pool: whole once, then what changed, then heartbeats.

`ad_plan` decides what to send and `Advertiser` sends it. Each message names the content it stands on, so a
receiver that lost one notices at the next and asks for everything (SendAds); the receiving half is
`ad_table`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from shared.bus.api import BusUnavailable, Exchange
from shared.classad import ClassAd, Expr
from shared.config import Config, ConfigError
from shared.config.daemon_attributes import attributes
from shared.daemon.ad_plan import Published, first_sequence, in_parts, plan
from shared.daemon.ad_table import daemon_name, inbox_of
from shared.daemon.context import Context
from shared.daemon.shutdown_expression import wanted_shutdown
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate, PrivateAds, SendAds
from shared.messages.base import Envelope
from shared.version import VERSION

#: MyType of the ad that stands for a daemon that is off.
OFF_TYPE: Final = "DaemonMaster"


class Advertiser:
    """Publishes one daemon's ads of one type. After a reconnection of the bus it says again where it stands,
    which tells everybody who missed something."""

    def __init__(self, context: Context, my_type: str, *, subsystem: str | None = None) -> None:
        """`subsystem` signs the ads ("STARTD": they come from "startd@<name>", inbox "startd.<name>");
        without it the subsystem of the context's configuration does."""
        self._context = context
        now = context.clock.now()
        self._last = Published(
            my_type=my_type,
            daemon=daemon_name(subsystem or context.config.subsystem, context.name),
            start_time=int(now),
            sequence=first_sequence(now),
        )
        self._claims: dict[str, str] = {}
        self._added: tuple[Config | None, dict[str, Expr]] = (None, {})
        self._lock = asyncio.Lock()  # messages leave in the order of their numbers
        self._resending: asyncio.Task[None] | None = None
        self._answering = False
        context.bus.on_gap(self.repeat)

    @property
    def daemon(self) -> str:
        """How the ads are signed, e.g. "startd@node1"."""
        return self._last.daemon

    @property
    def start_time(self) -> int:
        """DaemonStartTime, seconds since 1970."""
        return self._last.start_time

    @property
    def sequence(self) -> int:
        """UpdateSequenceNumber of the last message."""
        return self._last.sequence

    def own_ad(self, attributes: Mapping[str, object]) -> ClassAd:
        """The ad of a daemon that has one, of its own: what all of these say, and what this one has to add."""
        name = self._context.name
        return ClassAd(
            {
                "MyType": self._last.my_type,
                "Name": name,
                "Machine": name,
                "MyAddress": inbox_of(self.daemon),
                "RoostVersion": VERSION,
                "DaemonStartTime": self.start_time,
                **attributes,
            }
        )

    async def publish(
        self, ads: Mapping[str, ClassAd], claims: Mapping[str, str] | None = None, *, whole: bool = False
    ) -> None:
        """Make these all the ads there are, by Name: sends the whole, a delta, or a heartbeat when nothing
        changed. `claims`: all claim ids by slot name, sent on the private exchange when they changed; None:
        as before. `whole`: not as changes of what was sent before.

        Call it when something changed, and every update interval to keep the ads alive. Private attributes
        never go out. Packing costs some 10 us an ad: with many ads use `change`. Never raises for a broker
        that is away: what could not be sent is noticed by the receivers at the next message."""
        ads = self._with_added(ads)
        packed = {name: ad.public().pack() for name, ad in ads.items()}
        self._look_for_shutdown(ads.values())
        await self._answer_askers()
        async with self._lock:
            if whole:
                self._last = replace(self._last, content=0)
            await self._send_private(claims)
            await self._send(packed)

    async def change(
        self,
        changed: Mapping[str, ClassAd],
        gone: Iterable[str] = (),
        claims: Mapping[str, str] | None = None,
    ) -> None:
        """As publish, when only these ads are new or changed and these are gone; the others stay as they
        are."""
        changed = self._with_added(changed)
        packed = {name: ad.public().pack() for name, ad in changed.items()}
        self._look_for_shutdown(changed.values())
        gone = set(gone)
        async with self._lock:
            kept = {name: old for name, old in self._last.ads.items() if name not in gone}
            await self._send_private(claims)
            await self._send(kept | packed)

    def _with_added(self, ads: Mapping[str, ClassAd]) -> Mapping[str, ClassAd]:
        """With what the administrator adds (SCHEDD_ATTRS, ...), where the daemon itself says nothing of that name."""
        config = self._context.config
        if self._added[0] is not config:
            try:
                added = attributes(config, self._last.my_type)
            except ConfigError:
                added = {}  # whoever reads the settings tells of it
            self._added = (config, added)
        added = self._added[1]
        if not added:
            return ads
        told = {}
        for name, ad in ads.items():
            told[name] = ad.copy()
            told[name].update({attribute: expr for attribute, expr in added.items() if attribute not in ad})
        return told

    def _look_for_shutdown(self, ads: Collection[ClassAd]) -> None:
        context = self._context
        if self._last.my_type == OFF_TYPE:
            return  # it is off
        found = wanted_shutdown(context.config, ads, context.clock.now())
        if found is not None:
            context.shutdown = found
            context.shutdown_asked.set()

    async def _answer_askers(self) -> None:
        """From the first ads on, answer everybody who begins to listen (AskForAds)."""
        if self._answering:
            return
        self._answering = True

        async def on_ask(_: Envelope) -> None:
            await self.repeat()

        try:
            await self._context.bus.listen(Exchange.ADS, ["ask.#"], on_ask)
        except BusUnavailable:
            self._answering = False  # tried again with the next ads

    async def repeat(self) -> None:
        """Say again where things stand: who missed something asks. Does nothing before the first ads."""
        async with self._lock:
            if self._last.content:
                claims, self._claims = self._claims, {}
                await self._send_private(claims)
                await self._send(self._last.ads)

    def resend(self, request: SendAds | None = None) -> asyncio.Task[None]:
        """Publish everything whole, soon: what to do with SendAds of this type. Need not be awaited; several
        that are asked for at once become one."""
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(self._resend(), name=f"resend:{self._last.my_type}")
        return self._resending

    async def _resend(self) -> None:
        async with self._lock:
            if self._last.content == 0 and not self._last.ads:
                return
            self._last = replace(self._last, content=0)
            claims, self._claims = self._claims, {}
            await self._send_private(claims)
            await self._send(self._last.ads)

    async def invalidate(self, names: Iterable[str] = ()) -> None:
        """Take these ads back, or all of them (COL-04). Does not raise when the broker is away: they expire
        then."""
        names = list(names)
        async with self._lock:
            sequence = self._last.sequence + 1
            kept = {n: ad for n, ad in self._last.ads.items() if names and n not in names}
            # Receivers that lack the ads do not keep track of their removal by name, so the next message is
            # whole.
            self._last = replace(self._last, sequence=sequence, content=0, ads=kept)
            message = AdInvalidate(
                my_type=self._last.my_type,
                daemon=self.daemon,
                start_time=self.start_time,
                sequence=sequence,
                names=names,
            )
            await self._publish(Exchange.ADS, f"invalidate.{self._last.my_type}.{self.daemon}", message)

    async def _send(self, packed: Mapping[str, bytes]) -> None:
        self._last, message = plan(self._last, packed)
        verb = message.type.partition(".")[2]
        for part in in_parts(message) if isinstance(message, AdUpdate) else [message]:
            if part.sequence > self._last.sequence:
                self._last = replace(self._last, sequence=part.sequence, content=part.sequence)
            await self._publish(Exchange.ADS, f"{verb}.{self._last.my_type}.{self.daemon}", part)

    async def _send_private(self, claims: Mapping[str, str] | None) -> None:
        if claims is None or claims == self._claims:
            return
        self._claims = dict(claims)
        # One number more than the last public message, as the message that follows will have: the order
        # among private messages is kept, and they are told apart from those of an earlier life.
        message = PrivateAds(
            daemon=self.daemon,
            start_time=self.start_time,
            sequence=self._last.sequence + 1,
            claims=self._claims,
        )
        await self._publish(Exchange.PRIVATE, self.daemon, message)

    async def _publish(
        self,
        exchange: Exchange,
        key: str,
        message: AdUpdate | AdDelta | AdHeartbeat | AdInvalidate | PrivateAds,
    ) -> None:
        try:
            await self._context.bus.publish(exchange, key, message)
        except BusUnavailable as error:
            self._context.log.warning("ads_not_sent", my_type=self._last.my_type, reason=str(error))
