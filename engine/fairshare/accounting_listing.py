"""What is told of accounting records: all as accounting ads, in pages, and the few that the collector is to have now
(ACC-21). Nothing here changes a record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.fairshare.accounting_ads import group_ad, submitter_ad
from engine.fairshare.accounting_records import GROUP_KEY, SUBMITTER_KEY, AccountingRecords
from engine.fairshare.group_negotiation import GroupResult
from engine.fairshare.priorities import Share, settle
from shared.classad import ClassAd

#: Ads in one page of an answer.
PAGE_SIZE: Final = 1_000


class AccountingListing:
    """Accounting ads of these records. `now`: seconds since 1970, not before anything that was charged."""

    def __init__(self, records: AccountingRecords, negotiator: str) -> None:
        """negotiator: the name that ads give for it."""
        self._records = records
        self._negotiator = negotiator
        self._plans: dict[str, GroupResult] = {}
        self.shares: Mapping[str, Share] = {}  # of the last cycle
        self._pool_weight = 0.0

    def forget_groups(self) -> None:
        """Forget the last cycle's plans of groups that there are no more."""
        self._plans = {key: plan for key, plan in self._plans.items() if key in self._records.tree.by_key}

    def record_cycle(self, plans: Sequence[GroupResult], shares: Mapping[str, Share], pool_weight: float) -> None:
        """What the last cycle came to: for each group, and each submitter who took part. pool_weight: of all slots that
        counted for shares."""
        for plan in plans:
            group = self._records.tree.get(plan.group)
            if group is not None and plan != self._plans.get(plan.group):
                self._records.publication.change(group.name)
        self._plans = {plan.group: plan for plan in plans}
        told = self.shares.keys() | shares.keys()
        self.shares, self._pool_weight = dict(shares), pool_weight
        for name in told:
            if name in self._records.submitters or name in self._records.newcomers:
                self._records.publication.change(name)

    def ads(self, now: float) -> list[ClassAd]:
        """One accounting ad for each group and submitter: groups first, by name (ACC-21)."""
        return [self._ad(key, now) for key in self._records.ordered_keys()]

    def page(
        self, now: float, *, after: str = "", most: int = PAGE_SIZE, active_since: float = 0.0, only: Iterable[str] = ()
    ) -> tuple[list[ClassAd], str]:
        """Accounting ads from `after` on, and where the next page begins ("": there is none).

        active_since: only submitters who used something since then, and groups. only: only submitters of these names,
        written in full or without their domain.
        """
        names = frozenset(only)
        order = self._records.ordered_keys()
        found: list[str] = []
        for place in range(bisect_right(order, after) if after else 0, len(order)):
            key = order[place]
            if self._wanted(key, active_since, names):
                found.append(key)
                if len(found) == max(1, min(most, PAGE_SIZE)):
                    following = key if place + 1 < len(order) else ""
                    return [self._ad(one, now) for one in found], following
        return [self._ad(one, now) for one in found], ""

    def ads_to_publish(self, now: float) -> tuple[dict[str, ClassAd], set[str]]:
        """Accounting ads that the collector should have now, by Name, and names of those that it should not have any
        more. To be called every few seconds while active (ACC-21)."""
        due, gone = self._records.publication.next(now, self._is_idle, self._last)
        tree = self._records.tree
        keys = (GROUP_KEY + name.lower() if tree.get(name) is not None else SUBMITTER_KEY + name for name in due)
        return {name: self._ad(key, now) for name, key in zip(due, keys, strict=True)}, gone

    def _wanted(self, key: str, active_since: float, names: frozenset[str]) -> bool:
        name = key[1:]
        if key[0] == GROUP_KEY:
            return not names or name in names
        if names and name not in names and name.partition("@")[0] not in names:
            return False
        return active_since <= 0.0 or name in self._records.using or self._last(name) >= active_since

    def _ad(self, key: str, now: float) -> ClassAd:
        name = key[1:]
        if key[0] == GROUP_KEY:
            group = self._records.tree.get(name) or self._records.tree.root
            parent = self._records.tree.groups[max(0, group.parent)].name
            known = self._records.group_record(name, now)
            record = replace(settle(known, now, self._records.half_life), factor=self._records.group_factor(name))
            return group_ad(group, parent, record, negotiator=self._negotiator, plan=self._plans.get(name))
        share = self.shares[name].fraction if name in self.shares else 0.0
        return submitter_ad(
            name,
            settle(self._records.known(name), now, self._records.half_life),
            group=self._records.group(name).name,
            negotiator=self._negotiator,
            share=share,
            limit=share * self._pool_weight,
        )

    def _is_idle(self, name: str) -> bool:
        return name not in self._records.using

    def _last(self, name: str) -> float:
        record = self._records.submitters.get(name)
        return record.last if record is not None else 0.0
