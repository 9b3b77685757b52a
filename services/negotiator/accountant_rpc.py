"""The accounting records on the bus: what people ask of the accountant, what they change, what the collector is told
(spec rows ACC-21, MUL-02). The daemon sees to charging and committing, and calls this only while it leads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from engine.fairshare.accountant import EndedChange
from engine.fairshare.priorities import ImportedRecord
from engine.fairshare.quotas import read_quota_change
from services.negotiator.stored_accountant import StoredAccountant
from shared.bus.api import Exchange
from shared.daemon.advertiser import Advertiser
from shared.daemon.context import Context
from shared.errors import RetryableError
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Failure, Message
from shared.messages.events import Event, PriorityChanged, PriorityRestored
from shared.messages.negotiation import AccountsImported, GetPriorities, ImportAccounts, Priorities, SetPriority

#: Changes of a group's quota.
QUOTAS: Final = ("quota", "dynamic-quota", "no-quota")


class AccountantRpc:
    """Answers questions about one negotiator's accounting records, and publishes them."""

    def __init__(
        self, context: Context, negotiator: str, accountant: StoredAccountant, now: Callable[[], float]
    ) -> None:
        """now: the clock by which all is charged."""
        self._context = context
        self._now = now
        self._negotiator = negotiator
        self._accountant = accountant
        self._advertiser = Advertiser(context, "Accounting")
        self._published = False
        self._looking: asyncio.Task[None] | None = None

    def cut_off(self) -> bool:
        """Whether Redis can not be reached from here, as far as known; if so, it is tried again in the background."""
        away = not self._context.store.health.connected
        if away and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(), name="negotiator:look-for-redis")
        return away

    async def _look(self) -> None:
        with contextlib.suppress(RetryableError):
            await self._context.store.ping()

    async def answer(self, asked: GetPriorities | SetPriority | ImportAccounts, epoch: int) -> Message:
        """To be called when everybody is charged up to now. Raises StaleEpoch when a newer negotiator is active."""
        if asked.negotiator not in ("", self._negotiator):
            reason = f"this is negotiator {self._negotiator}, not {asked.negotiator[:80]}: each has books of its own"
            return Failure(code="not-found", reason=reason)
        now = self._now()
        if isinstance(asked, GetPriorities):
            ads, following = self._accountant.page(
                now, after=asked.after, most=asked.limit, active_since=asked.active_since, only=asked.submitters
            )
            return Priorities(ads=[ad.pack() for ad in ads], next=following)
        if isinstance(asked, ImportAccounts):
            return await self._import(asked, now, epoch)
        try:
            if asked.what in QUOTAS:
                await self._set_quota(asked, now, epoch)
            else:
                self._accountant.change(asked.submitter, asked.what, asked.value, now, asked.duration_s)
        except ValueError as error:
            return Failure(code="bad-request", reason=str(error))
        await self._accountant.commit(epoch)
        await self._tell(
            PriorityChanged(
                at=now,
                submitter=asked.submitter,
                what=asked.what,
                value=asked.value,
                by=asked.by,
                until=now + asked.duration_s if asked.duration_s else 0.0,
            )
        )
        return Ack()

    async def _import(self, asked: ImportAccounts, now: float, epoch: int) -> Message:
        records = {one.name: ImportedRecord(**one.model_dump(exclude={"name"})) for one in asked.accounts}
        if len(records) != len(asked.accounts):
            return Failure(code="bad-request", reason="a name is there twice; send one record of each")
        try:
            if asked.dry_run:
                done = self._accountant.import_plan(records, now, replacing=asked.replacing)
            else:
                done = self._accountant.import_records(records, asked.until, now, replacing=asked.replacing)
        except ValueError as error:
            return Failure(code="bad-request", reason=str(error))
        if not asked.dry_run:
            await self._accountant.commit(epoch)
            for name in done.taken:
                told = PriorityChanged(at=now, submitter=name, what="import", value=records[name].priority, by=asked.by)
                await self._tell(told)
        return AccountsImported(
            taken=list(done.taken), known=list(done.known), usual=list(done.usual), left=dict(done.left)
        )

    async def _set_quota(self, asked: SetPriority, now: float, epoch: int) -> None:
        """All or nothing: what Redis did not take is not in memory either, as cycles do not go by it. Raises
        ValueError."""
        if asked.duration_s:
            raise ValueError("a quota is set for good: leave the duration out")
        before = self._accountant.set_quota(asked.submitter, read_quota_change(asked.what, asked.value), now)
        try:
            await self._accountant.commit(epoch)
        except BaseException:
            self._accountant.put_quota(asked.submitter, before, self._now())
            raise

    async def tell_ended(self, one: EndedChange) -> None:
        """A change for a while that is over, and committed."""
        now = self._now()
        await self._tell(PriorityRestored(at=now, submitter=one.submitter, what=one.what, value=one.value))

    async def publish(self) -> None:
        """Tell the collector what is new in the accounting records: every few seconds while active (ACC-21)."""
        changed, gone = self._accountant.ads_to_publish(self._now())
        await self._advertiser.change(changed, gone)
        self._published = True

    async def withdraw(self) -> None:
        """Take back what was published: the accounting records are another's now."""
        if self._published:
            self._published = False
            await self._advertiser.invalidate()

    async def resend(self, asked: SendAds) -> None:
        await self._advertiser.resend(asked)

    async def _tell(self, event: Event) -> None:
        await self._context.bus.publish(Exchange.EVENTS, event.type, event)
