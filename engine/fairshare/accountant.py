"""The accountant: who is charged for what. Pure: accounting records in memory, with `now` passed in
(services/negotiator/stored_accountant.py keeps them in Redis).

A record says what is in use and since when, so it tells its own future until the use changes: it is touched, and
written, when that happens, and now and then while something is in use. The accounting records also name each claim for
which something was charged, and say until when, in the same write: so whoever reads them after a fail-over charges on
from exactly there, whatever he heard meanwhile (spec rows ACC-16, ACC-18; the reference charges likewise while its
negotiator is down).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from engine.fairshare.accounting_checks import (
    claim_violations,
    group_violations,
    index_violations,
    record_violations,
    share_violations,
)
from engine.fairshare.accounting_listing import PAGE_SIZE, AccountingListing
from engine.fairshare.accounting_records import AccountingRecords
from engine.fairshare.claim_charging import Claim, ClaimCharges, Key, LateCharge
from engine.fairshare.group_negotiation import GroupResult
from engine.fairshare.group_tree import Group, GroupConfig, GroupTree
from engine.fairshare.priorities import (
    MINIMUM_PRIORITY,
    Factors,
    ImportedRecord,
    Record,
    Share,
    advance,
    backdate,
    change,
    check_imported,
    check_name,
    forgettable,
    restore,
    settle,
    take_in,
)
from engine.fairshare.quotas import QuotaSetting, check_quota
from shared.classad import ClassAd

#: Records of what is in use are written again after this long (s), so that a change of PRIORITY_HALFLIFE across a
#: restart, or a clock that jumps, can do little harm.
SETTLE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class EndedChange:
    """A change for a while that is over: `value` is back."""

    submitter: str
    what: str
    value: float


@dataclass(frozen=True, slots=True)
class Imported:
    """What became, or would become, of the records of another pool, by name. known: here is something of them already.
    usual: they say nothing that a new submitter would not have. left: why they can not be kept."""

    taken: tuple[str, ...]
    known: tuple[str, ...]
    usual: tuple[str, ...]
    left: Mapping[str, str]


#: A check of a whole object: called with what finds its violations (shared/daemon/invariants.py).
Check = Callable[[Callable[[], Sequence[str]]], None]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def no_check(find: Callable[[], Sequence[str]]) -> None:
    """Check nothing."""


def _checked(
    operation: Callable[Concatenate[Accountant, _P], _R],
) -> Callable[Concatenate[Accountant, _P], _R]:
    """A public operation, after which the accountant's invariants are checked."""

    @wraps(operation)
    def checked(self: Accountant, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        result = operation(self, *args, **kwargs)
        self.check(self.check_invariants)
        return result

    return checked


class Accountant:
    """Charges all submitters and groups of one negotiator. Everything that takes `now` charges first: seconds since
    1970, by a clock that nobody sets; where one is set nevertheless, `clock_set` says so."""

    def __init__(
        self,
        negotiator: str,
        factors: Factors,
        half_life: float,
        tree: GroupTree | None = None,
        *,
        check: Check = no_check,
    ) -> None:
        """check: called with `check_invariants` after every public operation that changes something."""
        self.check = check
        self.records = AccountingRecords(factors, half_life, GroupTree.of(GroupConfig()) if tree is None else tree)
        self.listing = AccountingListing(self.records, negotiator)
        #: All are charged up to here.
        self.until = 0.0
        #: Whether the claims of `records` are all; else they were written by a version that names none.
        self.claims_known = True
        self._settled = 0.0
        self._just_read = False
        #: Whether groups' use was added up, and claims were charged, since the records were read: until then they are
        #: as another negotiator, with another configuration, left them.
        self._groups_current = True
        self._claims_current = True

    def check_invariants(self) -> list[str]:
        """Every contradiction in what is held in memory, in one sentence each; none if all is well."""
        return [
            *record_violations(self.records, self.until),
            *index_violations(self.records),
            *share_violations(self.listing.shares),
            *(group_violations(self.records) if self._groups_current else ()),
            *(claim_violations(self.records) if self._claims_current else ()),
        ]

    def read(
        self,
        submitters: dict[str, Record],
        groups: dict[str, Record],
        claims: dict[Key, Claim],
        until: float,
        *,
        claims_known: bool,
    ) -> None:
        """Go on from records that were written when all were charged up to `until`, or later. Who leads then takes over
        (`take_over`) before he charges."""
        self.records.read(submitters, groups, claims)
        self.claims_known = claims_known
        self.until = max((until, *(record.updated for record in (*submitters.values(), *groups.values()))))
        self._settled = 0.0
        self._just_read = True
        self._groups_current = self._claims_current = False

    # --- charging

    @_checked
    def configure(self, factors: Factors, half_life: float, tree: GroupTree, now: float) -> None:
        """Take other settings: up to now the old ones hold."""
        now = self._tick(now)
        for name, record in self.records.submitters.items():
            if record.slots_in_use or record.priority > MINIMUM_PRIORITY:
                self.records.put(name, settle(record, now, self.records.half_life))
        for key, record in self.records.groups.items():
            self.records.put_group(key, settle(record, now, self.records.half_life))
        self.records.configure(factors, half_life, tree)
        self.listing.forget_groups()
        self._charge_groups(now)

    def record(self, submitter: str, now: float) -> Record:
        """The submitter's record as it stands now; a new one gets its factor on first sight (ACC-10)."""
        now = self._tick(now)
        record = self.records.submitters.get(submitter)
        if record is None:
            return replace(self.records.newcomer(submitter), updated=now)
        return settle(record, now, self.records.half_life)

    @_checked
    def charge(
        self,
        in_use: Mapping[str, tuple[float, int]],
        now: float,
        late: Iterable[LateCharge] = (),
        changed: Mapping[Key, Claim | None] | None = None,
    ) -> None:
        """Charge everybody up to now. `in_use`: submitter -> (weighted slots, slots) from now on; who is not in it uses
        nothing. `late`: what was not heard of in time; `changed`: the claims behind all this, as far as they are new
        (see claim_charging.py). Costs as much as there are submitters who use something, not as there are in the
        accounting records."""
        now = self._tick(now)
        for use in late:
            self._backdate(use, now)
        for key, claim in (changed or {}).items():
            self.records.put_claim(key, claim)
        for name, (weighted, slots) in in_use.items():
            record = self.records.submitters.get(name)
            if record is None:
                if not slots and not weighted:
                    continue
                record = self.records.known(name)
            elif (weighted, slots) == (record.in_use, record.slots_in_use):
                continue
            self._use(name, record, weighted, slots, now)
        for name in [name for name in self.records.using if name not in in_use]:
            self._use(name, self.records.submitters[name], 0.0, 0, now)
        if now - self._settled >= SETTLE_S:
            self._settle(now)
        self._claims_current = True

    @_checked
    def take_over(self, claim_charges: ClaimCharges, now: float) -> None:
        """The accounting records just read are of some time ago. What was in use then is not what was in use until
        now: this is what `claim_charges` makes of it."""
        base = self.until
        now = self._tick(now)
        inherited = claim_charges.take_over(self.records.claims if self.claims_known else None, base, now)
        self.claims_known = True
        for name in [name for name in self.records.using if name not in inherited.going]:
            self._use(name, self.records.submitters[name], 0.0, 0, base)
        for name, (weighted, slots) in inherited.going.items():
            self._use(name, self.records.known(name), weighted, slots, base)
        for use in inherited.late:
            self._backdate(use, now)

    def _backdate(self, use: LateCharge, now: float) -> None:
        """Charge for a time that is over; give back where it ends before it begins."""
        user, weight, began, ended = use.user, use.weight, min(now, use.began), min(now, use.ended)
        if began == ended:
            return
        record = settle(self.records.known(user), now, self.records.half_life)
        self.records.put(user, backdate(record, weight, 1, began, ended, self.records.half_life))
        own = self.records.using.get(user) or self.records.group(user)
        for group in self.records.tree.upwards(own):
            if group.parent < 0 and group is not own:
                continue
            known = settle(self.records.group_record(group.key, now), now, self.records.half_life)
            slots = 1 if group is own else 0
            self.records.put_group(group.key, backdate(known, weight, slots, began, ended, self.records.half_life))

    def _use(self, name: str, record: Record, weighted: float, slots: int, now: float) -> None:
        self.records.put(name, advance(record, now, self.records.half_life, weighted, slots))
        own = self.records.using.get(name) or self.records.group(name)
        for group in self.records.tree.upwards(own):
            if group.parent < 0 and group is not own:
                continue  # use in a group is not use of the root, which is the group of those without one
            known = self.records.group_record(group.key, now)
            more, slots_more = (weighted - record.in_use, slots - record.slots_in_use) if group is own else (0.0, 0)
            below = known.subtree_in_use + weighted - record.in_use
            use = (max(0.0, known.in_use + more), max(0, known.slots_in_use + slots_more), max(0.0, below))
            self.records.put_group(group.key, advance(known, now, self.records.half_life, *use))

    def _charge_groups(self, now: float) -> None:
        """Groups are charged for what their own submitters use; their priority follows what all below them use. This
        adds it all up anew: sums of many changes drift."""
        own, below = self.records.use_by_group()
        for group in self.records.tree.groups:
            record = self.records.group_record(group.key, now)
            weighted, slots = own.get(group.key, (0.0, 0))
            settled = advance(record, now, self.records.half_life, weighted, slots, below.get(group.key, 0.0))
            if record.slots_in_use or settled.slots_in_use or settled.priority != record.priority:
                self.records.put_group(group.key, settled)
        for key, record in self.records.groups.items():
            if key not in self.records.tree.by_key and record.subtree_in_use:  # a group of another configuration
                self.records.put_group(key, advance(record, now, self.records.half_life, 0.0, 0, 0.0))
        self._groups_current = True

    def _settle(self, now: float) -> None:
        self._settled = now
        for name in self.records.using:
            self.records.put(name, settle(self.records.submitters[name], now, self.records.half_life), news=False)
        self._charge_groups(now)

    def _tick(self, now: float) -> float:
        """The time that counts, which never steps back. Looks after accounting records that were just read."""
        self.until = now = max(now, self.until)
        if self._just_read:
            self._just_read = False
            for name, record in list(self.records.submitters.items()):
                if name not in self.records.using and forgettable(
                    settle(record, now, self.records.half_life), self.records.factor(name)
                ):
                    self.records.forget(name)
            by_last = sorted(
                self.records.submitters,
                key=lambda name: (name not in self.records.using, -self.records.submitters[name].last),
            )
            self.records.publication.restart([*(group.name for group in self.records.tree.groups), *by_last])
        return now

    @_checked
    def clock_set(self, seconds: float) -> None:
        """Our clock was set by so many seconds: go on by it. Nobody is charged for that, or gets anything back
        (ACC-22)."""
        if self.until:
            self.until += seconds
        self._settled += seconds
        self.records.clock_set(seconds)

    # --- changes

    def quotas(self) -> dict[str, QuotaSetting]:
        """What administrators set in place of the configuration's quotas, by group's key: also of groups that are not
        in force at the moment."""
        return {
            key: QuotaSetting(record.quota, False) if record.quota >= 0.0 else QuotaSetting(record.dynamic_quota, True)
            for key, record in self.records.groups.items()
            if record.quota >= 0.0 or record.dynamic_quota >= 0.0
        }

    def set_quota(self, group: str, quota: QuotaSetting | None, now: float) -> QuotaSetting | None:
        """Give a group a quota in place of the configuration's; None takes it back. It counts once the daemon has made
        its policy of `quotas`. Returns what was set before. Raises ValueError, and changes nothing then."""
        known = self.records.tree.get(group)
        before = self.quotas().get(group.lower())
        if known is None and (quota is not None or before is None):
            names = [one.name for one in self.records.tree.groups[1:]]
            listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            raise ValueError(f"there is no accounting group {group[:80]!r} in GROUP_NAMES; known: {listed or 'none'}")
        if known is not None and known.parent < 0:
            raise ValueError(f"{known.name} is all of the pool, and has no quota")
        if quota is not None:
            check_quota(quota)
        self.put_quota(group, quota, now)
        return before

    @_checked
    def put_quota(self, group: str, quota: QuotaSetting | None, now: float) -> None:
        """The same without a look at whether it makes sense: to take a change back."""
        key, now = group.lower(), self._tick(now)
        record = settle(self.records.group_record(key, now), now, self.records.half_life)
        static = quota.value if quota is not None and not quota.dynamic else -1.0
        dynamic = quota.value if quota is not None and quota.dynamic else -1.0
        self.records.put_group(key, replace(record, quota=static, dynamic_quota=dynamic))

    @_checked
    def change(self, submitter: str, what: str, value: float | None, now: float, duration: float = 0.0) -> None:
        """An administrator's change; `what` "reset-all" is for all submitters, who have no name then. duration: seconds
        after which the old value comes back, 0: never. Raises ValueError, and changes nothing then."""
        now = self._tick(now)
        if what == "reset-all":
            if submitter or duration:
                raise ValueError("reset-all is for all submitters and for good: give neither a name nor a duration")
            for name, record in list(self.records.submitters.items()):
                self.records.put(name, change(settle(record, now, self.records.half_life), "reset", None, now))
            for key, record in self.records.groups.items():
                self.records.put_group(key, change(settle(record, now, self.records.half_life), "reset", None, now))
            return
        check_name(submitter)
        if self.records.tree.get(submitter) is not None:
            raise ValueError(
                f"{submitter} is an accounting group, which has a quota only (roost userprio -setquota); the factor of "
                "its members is set in the configuration"
            )
        if what == "delete":
            if submitter not in self.records.submitters and submitter not in self.records.newcomers:
                raise ValueError(f"there is no submitter {submitter!r}")
            if submitter in self.records.using:  # his group has the use no longer; the next charge begins anew
                self._use(submitter, self.records.submitters[submitter], 0.0, 0, now)
                self._claims_current = False
            self.records.newcomers.pop(submitter, None)
            self.records.forget(submitter)
            return
        if not 0.0 <= duration <= 1e10:
            raise ValueError(f"a duration of {duration:g} s: use 0 (for good) to 1e10")
        record = settle(self.records.known(submitter), now, self.records.half_life)
        self.records.put(submitter, change(record, what, value, now, now + duration if duration else 0.0))
        self.records.forget_usual(submitter)

    def import_plan(self, records: Mapping[str, ImportedRecord], now: float, *, replacing: bool) -> Imported:
        """What `import_records` would do. Raises ValueError where a record can not be."""
        now = self._tick(now)
        taken, known, usual, left = [], [], [], {}
        for name, record in records.items():
            check_imported(name, record)
            group = self.records.tree.get(name)
            if group is None and "@" not in name:
                left[name] = "there is no such accounting group in GROUP_NAMES, and a user has a domain"
            elif not replacing and self._has_record(name, group):
                known.append(name)
            elif group is None and forgettable(
                take_in(self.records.new(name), record, now, now, self.records.half_life), self.records.factor(name)
            ):
                usual.append(name)
            else:
                taken.append(name)
        return Imported(tuple(taken), tuple(known), tuple(usual), left)

    @_checked
    def import_records(
        self, records: Mapping[str, ImportedRecord], until: float, now: float, *, replacing: bool
    ) -> Imported:
        """Take in what another pool's accountant knew and charged up to `until`. replacing: also where there is
        something here. Raises ValueError, and changes nothing then."""
        now = self._tick(now)
        plan = self.import_plan(records, now, replacing=replacing)
        for name in plan.taken:
            group = self.records.tree.get(name)
            if group is not None:
                before = settle(self.records.group_record(group.key, now), now, self.records.half_life)
                after = take_in(before, records[name], until, now, self.records.half_life)
                self.records.put_group(
                    group.key, replace(after, factor=before.factor, floor=before.floor, ceiling=before.ceiling)
                )
                continue
            before = settle(self.records.submitters.get(name) or self.records.new(name), now, self.records.half_life)
            self.records.put(name, take_in(before, records[name], until, now, self.records.half_life))
            self.records.forget_usual(name)
        return plan

    def _has_record(self, name: str, group: Group | None) -> bool:
        if group is None:
            return name in self.records.submitters
        record = self.records.groups.get(group.key)
        return record is not None and bool(record.last or record.weighted_usage or record.priority > MINIMUM_PRIORITY)

    @_checked
    def end_changes(self, now: float) -> list[EndedChange]:
        """End the changes for a while whose time is over; what came back is told."""
        now = self._tick(now)
        ended = []
        for name in sorted(name for name, until in self.records.ending.items() if until <= now):
            record, over = restore(settle(self.records.submitters[name], now, self.records.half_life), now)
            self.records.put(name, record)
            self.records.forget_usual(name)
            ended += [EndedChange(name, one.what, one.before) for one in over]
        return ended

    # --- telling

    @_checked
    def record_cycle(self, plans: Sequence[GroupResult], shares: Mapping[str, Share], pool_weight: float) -> None:
        """What the last cycle came to: for each group, and each submitter who took part. pool_weight: of all slots that
        counted for shares."""
        self.listing.record_cycle(plans, shares, pool_weight)

    def ads(self, now: float) -> list[ClassAd]:
        """One accounting ad for each group and submitter: groups first, by name (ACC-21)."""
        return self.listing.ads(self._tick(now))

    def page(
        self, now: float, *, after: str = "", most: int = PAGE_SIZE, active_since: float = 0.0, only: Iterable[str] = ()
    ) -> tuple[list[ClassAd], str]:
        """Some of them, see `AccountingListing.page`."""
        return self.listing.page(self._tick(now), after=after, most=most, active_since=active_since, only=only)

    def ads_to_publish(self, now: float) -> tuple[dict[str, ClassAd], set[str]]:
        """Those that the collector should have now, see `AccountingListing.ads_to_publish`."""
        return self.listing.ads_to_publish(self._tick(now))
