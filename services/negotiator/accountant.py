"""The accountant's books: records in memory while active, in Redis for good.

Only the active negotiator writes, through a script that refuses a stale epoch. A record says what is in use and since
when, so it tells its own future until the use changes: it is touched, and written, when that happens, and now and
then while something is in use. The books also name each claim for which something was charged, and say until when, in
the same write: so who reads them after a fail-over charges on from exactly there, whatever he heard meanwhile (spec
rows ACC-16, ACC-18; the reference charges likewise while its negotiator is down).

The books grow with those who used something or have a setting of their own. Who only has jobs waiting is known while
he asks, and forgotten then: names cost a hostile user nothing.

Longer than most modules: all that changes a record is here, so that no way of changing one can forget the groups, the
news or what is to be written.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.negotiator import claims
from services.negotiator.accounting_ads import group_ad, submitter_ad
from services.negotiator.claims import Claim, Key, Use
from services.negotiator.group_tree import Group, GroupConfig, Tree
from services.negotiator.groups import Plan
from services.negotiator.pool import Share
from services.negotiator.priorities import (
    MINIMUM_PRIORITY,
    Factors,
    Record,
    advance,
    backdate,
    change,
    choose_factor,
    forgettable,
    restore,
    settle,
)
from services.negotiator.publication import Publication
from services.negotiator.quota_changes import Quota, check_quota
from services.negotiator.records import decode_all, encode, encode_all
from services.negotiator.tally import Tally
from shared.books import NOTHING
from shared.classad import ClassAd
from shared.state.api import Store
from shared.state.books import StoredBooks, read_books, read_version, restore_books, stage_claims, write_books

#: Submitters that are known without being on the books.
MOST_NEWCOMERS: Final = 10_000
#: Records of what is in use are written again after this long (s), so that a change of PRIORITY_HALFLIFE across a
#: restart, or a clock that jumps, can do little harm.
SETTLE_S: Final = 60.0
#: A clock that steps back by less (s) stands still for us until it has caught up.
SMALL_STEP_S: Final = 1.0
#: Records of who uses nothing in one run of the script, and ads in one page of an answer.
BATCH: Final = 5_000
#: Where more claims than this changed, all are put aside in parts before they are in force at once: one step with so
#: many would keep HADs from their lease.
MANY_CLAIMS: Final = 10_000
PAGE: Final = 1_000

_LONGEST_NAME: Final = 600


@dataclass(frozen=True, slots=True)
class Ended:
    """A change for a while that is over: `value` is back."""

    submitter: str
    what: str
    value: float


class Accountant:
    """Records of all submitters and groups of one negotiator. Everything that takes `now` charges first: seconds since
    1970, by the clock of the negotiator's machine."""

    def __init__(
        self,
        store: Store,
        negotiator: str,
        factors: Factors,
        half_life: float,
        shard: str = "",
        tree: Tree | None = None,
    ) -> None:
        self._store = store
        self._shard = shard  # whichever negotiator of it leads
        #: Of the books in memory, as Redis confirmed it.
        self.version = NOTHING
        self._negotiator = negotiator
        self.factors = factors
        self.half_life = half_life
        self.tree = Tree.of(GroupConfig()) if tree is None else tree
        self.records: dict[str, Record] = {}
        self.groups: dict[str, Record] = {}  # by key
        #: Records that can not be read. They are left alone until their submitters use something.
        self._raw: dict[bytes, bytes] = {}
        self._raw_groups: dict[bytes, bytes] = {}
        self._newcomers: dict[str, Record] = {}
        self.claims: dict[Key, Claim] = {}  # for which something was charged
        self._named = True  # whether they are all; else the books just read are of a version that names none
        self._using: dict[str, Group] = {}  # who uses something, and the group that is charged too
        self._ending: dict[str, float] = {}  # submitter -> when a change for a while ends
        self._dirty: set[str] = set()
        self._dirty_groups: set[str] = set()
        self._dirty_claims: dict[Key, None] = {}
        self._anew = False  # claims in Redis are to be replaced by all that are in memory
        self._writing = asyncio.Lock()  # a later state must not be overtaken by an earlier one
        self._clock = 0.0
        self._settled = 0.0
        self._fresh = False
        self._order: list[str] | None = None  # names as pages have them
        self._plans: dict[str, Plan] = {}
        self._shares: Mapping[str, Share] = {}
        self._pool_weight = 0.0
        self._news = Publication()

    # --- reading and writing

    @property
    def unreadable(self) -> list[str]:
        """Names whose record can not be read."""
        return [raw.decode(errors="replace") for raw in (*self._raw, *self._raw_groups)]

    async def load(self, epoch: int = 0) -> bool:
        """Read the books: on becoming active under this epoch. A Redis that has older ones than are in memory has lost
        the rest: it gets these first. Returns whether that was so. Raises StaleEpoch."""
        lost = await self._restore(epoch)
        books = await read_books(self._store, self._shard)
        # From here on at once: who charges meanwhile must not find half of it.
        self.records, self._raw = decode_all(books.submitters)
        self.groups, self._raw_groups = decode_all(books.groups)
        self.version = max(NOTHING, books.version)
        self._dirty.clear()
        self._dirty_groups.clear()
        self._read_claims(books)
        self._newcomers.clear()
        self._using = {name: self._group(name) for name, one in self.records.items() if one.slots_in_use or one.in_use}
        self._ending = {name: _first_end(record) for name, record in self.records.items() if record.temporary}
        touched = (record.updated for record in (*self.records.values(), *self.groups.values()))
        self._clock = max((books.until or 0.0, *touched))
        self._settled = 0.0
        self._order = None
        self._fresh = True
        return lost

    def _read_claims(self, books: StoredBooks) -> None:
        self._named = books.until is not None or not any(record.last for record in self.records.values())
        self._dirty_claims = {}
        # Claims that lie there may be of another state of the books.
        self.claims, others = claims.decode_all(books.claims if books.until is not None else {})
        self._anew = bool(others or (books.until is None and books.claims))

    async def commit(self, epoch: int) -> None:
        """Write what changed since the last commit. Raises StaleEpoch when a newer negotiator is active."""
        async with self._writing:
            # Of those who use nothing nothing depends on the others'.
            if len(self._dirty) > BATCH:
                busy = {*self._using, *(self.claims[key].user for key in self._dirty_claims if key in self.claims)}
                idle = sorted(self._dirty - busy)
                for start in range(0, len(idle), BATCH):
                    await self._write(epoch, set(idle[start : start + BATCH]), alone=True)
            if self._anew or len(self._dirty_claims) > MANY_CLAIMS:
                self._anew, self._dirty_claims = True, {}  # what changes from here on is to be written as ever
                rows = [(claims.field_of(key), claims.encode(claim)) for key, claim in self.claims.items()]
                await stage_claims(self._store, self._shard, epoch, rows)
            if self._using or self._dirty or self._dirty_groups or self._dirty_claims or self._anew:
                await self._write(epoch, set(self._dirty))

    async def _write(self, epoch: int, names: set[str], *, alone: bool = False) -> None:
        """Write these submitters' records, and, but for `alone`, all else that changed, in one step."""
        anew, groups, changed = False, set[str](), dict[Key, None]()
        if not alone:
            anew, groups, changed = self._anew, self._dirty_groups, self._dirty_claims
            self._anew, self._dirty_groups, self._dirty_claims = False, set(), {}
        self._dirty -= names
        try:
            self.version = await write_books(
                self._store,
                self._shard,
                epoch,
                self.version,
                until=None if alone else self._clock,
                submitters=_rows(names, self.records),
                groups=_rows(groups, self.groups),
                claims=[(claims.field_of(key), _row_of(self.claims.get(key))) for key in changed],
                staged=anew,
            )
        except BaseException:
            # Nothing was written, or it does no harm to write it again.
            self._anew |= anew
            self._dirty |= names
            self._dirty_groups |= groups
            self._dirty_claims = {**changed, **self._dirty_claims}
            raise

    async def _restore(self, epoch: int) -> bool:
        if self.version == NOTHING or await read_version(self._store, self._shard) >= self.version:
            return False
        async with self._writing:
            # With what was not written yet: that is as much a part of the books as the rest.
            submitters = self._raw | encode_all(self.records)
            groups = self._raw_groups | encode_all(self.groups)
            rows = {claims.field_of(key): claims.encode(claim) for key, claim in self.claims.items()}
            until = self._clock if self._named else None
            books = StoredBooks.of(self.version, submitters, groups, rows, until)
            await restore_books(self._store, self._shard, epoch, books)
        return True

    # --- charging

    def configure(self, factors: Factors, half_life: float, tree: Tree, now: float) -> None:
        """Take other settings: up to now the old ones hold."""
        now = self._tick(now)
        for name, record in self.records.items():
            if record.slots_in_use or record.priority > MINIMUM_PRIORITY:
                self._put(name, settle(record, now, self.half_life))
        for key, record in self.groups.items():
            self._put_group(key, settle(record, now, self.half_life))
        self.factors, self.half_life = factors, half_life
        if tree != self.tree:
            self.tree, self._order = tree, None
            self._plans = {key: plan for key, plan in self._plans.items() if key in tree.by_key}
        self._newcomers.clear()
        self._using = {name: self._group(name) for name in self._using}
        self._charge_groups(now)

    def record(self, submitter: str, now: float) -> Record:
        """The submitter's record as it stands now; a new one gets its factor on first sight (ACC-10)."""
        now = self._tick(now)
        record = self.records.get(submitter)
        if record is None:
            return replace(self._newcomer(submitter), updated=now)
        return settle(record, now, self.half_life)

    def charge(
        self,
        in_use: Mapping[str, tuple[float, int]],
        now: float,
        late: Iterable[Use] = (),
        changed: Mapping[Key, Claim | None] | None = None,
    ) -> None:
        """Charge everybody up to now. `in_use`: submitter -> (weighted slots, slots) from now on; who is not in it uses
        nothing. `late`: what was not heard of in time; `changed`: the claims behind all this, as far as they are new
        (see tally.py). Costs as much as there are submitters who use something, not as there are in the books."""
        now = self._tick(now)
        for use in late:
            self._backdate(use, now)
        for key, claim in (changed or {}).items():
            self._dirty_claims[key] = None
            if claim is None:
                self.claims.pop(key, None)
            else:
                self.claims[key] = claim
        for name, (weighted, slots) in in_use.items():
            record = self.records.get(name)
            if record is None:
                if not slots and not weighted:
                    continue
                record = self._known(name)
            elif (weighted, slots) == (record.in_use, record.slots_in_use):
                continue
            self._use(name, record, weighted, slots, now)
        for name in [name for name in self._using if name not in in_use]:
            self._use(name, self.records[name], 0.0, 0, now)
        if now - self._settled >= SETTLE_S:
            self._settle(now)

    def take_over(self, tally: Tally, now: float) -> None:
        """The books just read are of some time ago. What was in use then is not what was in use until now: this is what
        `tally` makes of it."""
        written = self._clock
        now = self._tick(now)
        base = min(now, written)
        inherited = tally.adopt(self.claims if self._named else None, base, now)
        self._named = True
        for name in [name for name in self._using if name not in inherited.going]:
            self._use(name, self.records[name], 0.0, 0, base)
        for name, (weighted, slots) in inherited.going.items():
            self._use(name, self._known(name), weighted, slots, base)
        for use in inherited.late:
            self._backdate(use, now)

    def _backdate(self, use: Use, now: float) -> None:
        """Charge for a time that is over; give back where it ends before it begins."""
        user, weight, began, ended = use.user, use.weight, min(now, use.began), min(now, use.ended)
        if began == ended:
            return
        record = settle(self._known(user), now, self.half_life)
        self._put(user, backdate(record, weight, 1, began, ended, self.half_life))
        own = self._using.get(user) or self._group(user)
        for group in self.tree.upwards(own):
            if group.parent < 0 and group is not own:
                continue
            known = settle(self.groups.get(group.key) or self._new_group(group.key, now), now, self.half_life)
            slots = 1 if group is own else 0
            self._put_group(group.key, backdate(known, weight, slots, began, ended, self.half_life))

    def _use(self, name: str, record: Record, weighted: float, slots: int, now: float) -> None:
        self._put(name, advance(record, now, self.half_life, weighted, slots))
        own = self._using.get(name) or self._group(name)
        for group in self.tree.upwards(own):
            if group.parent < 0 and group is not own:
                continue  # use in a group is not use of the root, which is the group of those without one
            known = self.groups.get(group.key) or self._new_group(group.key, now)
            more, slots_more = (weighted - record.in_use, slots - record.slots_in_use) if group is own else (0.0, 0)
            below = known.subtree_in_use + weighted - record.in_use
            use = (max(0.0, known.in_use + more), max(0, known.slots_in_use + slots_more), max(0.0, below))
            self._put_group(group.key, advance(known, now, self.half_life, *use))

    def _charge_groups(self, now: float) -> None:
        """Groups are charged for what their own submitters use; their priority follows what all below them use. This
        adds it all up anew: sums of many changes drift."""
        own: dict[str, tuple[float, int]] = {}
        below: dict[str, float] = {}
        for name, group in self._using.items():
            record = self.records[name]
            weighted, slots = own.get(group.key, (0.0, 0))
            own[group.key] = (weighted + record.in_use, slots + record.slots_in_use)
            for above in self.tree.upwards(group):
                if above.parent >= 0 or above is group:
                    below[above.key] = below.get(above.key, 0.0) + record.in_use
        for group in self.tree.groups:
            record = self.groups.get(group.key) or self._new_group(group.key, now)
            weighted, slots = own.get(group.key, (0.0, 0))
            settled = advance(record, now, self.half_life, weighted, slots, below.get(group.key, 0.0))
            if record.slots_in_use or settled.slots_in_use or settled.priority != record.priority:
                self._put_group(group.key, settled)
        for key, record in self.groups.items():
            if key not in self.tree.by_key and record.subtree_in_use:  # a group of another configuration
                self._put_group(key, advance(record, now, self.half_life, 0.0, 0, 0.0))

    def _settle(self, now: float) -> None:
        self._settled = now
        for name in self._using:
            self._put(name, settle(self.records[name], now, self.half_life), news=False)
        self._charge_groups(now)

    def _tick(self, now: float) -> float:
        """The time that counts. Looks after a clock that steps back, and after books that were just read."""
        if now < self._clock:
            if self._clock - now < SMALL_STEP_S:
                return self._clock
            self._step_back(now)
        self._clock = now
        if self._fresh:
            self._fresh = False
            for name, record in list(self.records.items()):
                if name not in self._using and forgettable(settle(record, now, self.half_life), self._factor(name)):
                    self._forget(name)
            by_last = sorted(self.records, key=lambda name: (name not in self._using, -self.records[name].last))
            self._news.restart([*(group.name for group in self.tree.groups), *by_last])
        return now

    def _step_back(self, now: float) -> None:
        """The clock was set back: what was up to then is charged, and all go on from the new time (ACC-22)."""
        before = self._clock
        for name, record in self.records.items():
            self._put(name, replace(settle(record, before, self.half_life), updated=now), news=False)
        for key, record in self.groups.items():
            self._put_group(key, replace(settle(record, before, self.half_life), updated=now))
        self._settled = now

    # --- changes

    def quotas(self) -> dict[str, Quota]:
        """What administrators set in place of the configuration's quotas, by group's key: also of groups that are not
        in force at the moment."""
        return {
            key: Quota(record.quota, False) if record.quota >= 0.0 else Quota(record.dynamic_quota, True)
            for key, record in self.groups.items()
            if record.quota >= 0.0 or record.dynamic_quota >= 0.0
        }

    def set_quota(self, group: str, quota: Quota | None, now: float) -> Quota | None:
        """Give a group a quota in place of the configuration's; None takes it back. It counts once the daemon has made
        its policy of `quotas`. Returns what was set before. Raises ValueError, and changes nothing then."""
        known = self.tree.get(group)
        before = self.quotas().get(group.lower())
        if known is None and (quota is not None or before is None):
            names = [one.name for one in self.tree.groups[1:]]
            listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            raise ValueError(f"there is no accounting group {group[:80]!r} in GROUP_NAMES; known: {listed or 'none'}")
        if known is not None and known.parent < 0:
            raise ValueError(f"{known.name} is all of the pool, and has no quota")
        if quota is not None:
            check_quota(quota)
        self.put_quota(group, quota, now)
        return before

    def put_quota(self, group: str, quota: Quota | None, now: float) -> None:
        """The same without a look at whether it makes sense: to take a change back."""
        key, now = group.lower(), self._tick(now)
        record = settle(self.groups.get(key) or self._new_group(key, now), now, self.half_life)
        static = quota.value if quota is not None and not quota.dynamic else -1.0
        dynamic = quota.value if quota is not None and quota.dynamic else -1.0
        self._put_group(key, replace(record, quota=static, dynamic_quota=dynamic))

    def change(self, submitter: str, what: str, value: float | None, now: float, duration: float = 0.0) -> None:
        """An administrator's change; `what` "reset-all" is for all submitters, who have no name then. duration: seconds
        after which the old value comes back, 0: never. Raises ValueError, and changes nothing then."""
        now = self._tick(now)
        if what == "reset-all":
            if submitter or duration:
                raise ValueError("reset-all is for all submitters and for good: give neither a name nor a duration")
            for name, record in list(self.records.items()):
                self._put(name, change(settle(record, now, self.half_life), "reset", None, now))
            for key, record in self.groups.items():
                self._put_group(key, change(settle(record, now, self.half_life), "reset", None, now))
            return
        if not submitter.isprintable() or not 0 < len(submitter) <= _LONGEST_NAME:
            raise ValueError(f"{submitter[:80]!r} is no name of a submitter")
        if self.tree.get(submitter) is not None:
            raise ValueError(
                f"{submitter} is an accounting group, which has a quota only (roost userprio -setquota); the factor of "
                "its members is set in the configuration"
            )
        if what == "delete":
            if submitter not in self.records and submitter not in self._newcomers:
                raise ValueError(f"there is no submitter {submitter!r}")
            if submitter in self._using:  # his group has the use no longer; the next charge begins anew
                self._use(submitter, self.records[submitter], 0.0, 0, now)
            self._newcomers.pop(submitter, None)
            self._forget(submitter)
            return
        if not 0.0 <= duration <= 1e10:
            raise ValueError(f"a duration of {duration:g} s: use 0 (for good) to 1e10")
        record = settle(self._known(submitter), now, self.half_life)
        self._put(submitter, change(record, what, value, now, now + duration if duration else 0.0))
        self._forget_usual(submitter)

    def end_changes(self, now: float) -> list[Ended]:
        """End the changes for a while whose time is over; what came back is told."""
        now = self._tick(now)
        ended = []
        for name in sorted(name for name, until in self._ending.items() if until <= now):
            record, over = restore(settle(self.records[name], now, self.half_life), now)
            self._put(name, record)
            self._forget_usual(name)
            ended += [Ended(name, one.what, one.before) for one in over]
        return ended

    # --- telling

    def note_cycle(self, plans: Sequence[Plan], shares: Mapping[str, Share], pool_weight: float) -> None:
        """What the last cycle came to: for each group, and each submitter who took part. pool_weight: of all slots that
        counted for shares."""
        for plan in plans:
            group = self.tree.get(plan.group)
            if group is not None and plan != self._plans.get(plan.group):
                self._news.change(group.name)
        self._plans = {plan.group: plan for plan in plans}
        told = self._shares.keys() | shares.keys()
        self._shares, self._pool_weight = dict(shares), pool_weight
        for name in told:
            if name in self.records or name in self._newcomers:
                self._news.change(name)

    def ads(self, now: float) -> list[ClassAd]:
        """One accounting ad for each group and submitter: groups first, by name (ACC-21)."""
        now = self._tick(now)
        return [self._ad(key, now) for key in self._keys()]

    def page(
        self, now: float, *, after: str = "", most: int = PAGE, active_since: float = 0.0, only: Iterable[str] = ()
    ) -> tuple[list[ClassAd], str]:
        """Accounting ads from `after` on, and where the next page begins ("": there is none).

        active_since: only submitters who used something since then, and groups. only: only submitters of these names,
        written in full or without their domain.
        """
        now = self._tick(now)
        names = frozenset(only)
        order = self._keys()
        found: list[str] = []
        for place in range(bisect_right(order, after) if after else 0, len(order)):
            key = order[place]
            if self._wanted(key, active_since, names):
                found.append(key)
                if len(found) == max(1, min(most, PAGE)):
                    following = key if place + 1 < len(order) else ""
                    return [self._ad(one, now) for one in found], following
        return [self._ad(one, now) for one in found], ""

    def news(self, now: float) -> tuple[dict[str, ClassAd], set[str]]:
        """Accounting ads that the collector should have now, by Name, and names of those that it should not have any
        more. To be called every few seconds while active (ACC-21)."""
        now = self._tick(now)
        due, gone = self._news.next(now, self._is_idle, self._last)
        keys = (_GROUP + name.lower() if self.tree.get(name) is not None else _SUBMITTER + name for name in due)
        return {name: self._ad(key, now) for name, key in zip(due, keys, strict=True)}, gone

    def _keys(self) -> list[str]:
        if self._order is None:
            groups = [_GROUP + group.key for group in self.tree.groups]
            self._order = sorted([*groups, *(_SUBMITTER + name for name in {**self._newcomers, **self.records})])
        return self._order

    def _wanted(self, key: str, active_since: float, names: frozenset[str]) -> bool:
        name = key[1:]
        if key[0] == _GROUP:
            return not names or name in names
        if names and name not in names and name.partition("@")[0] not in names:
            return False
        return active_since <= 0.0 or name in self._using or self._last(name) >= active_since

    def _ad(self, key: str, now: float) -> ClassAd:
        name = key[1:]
        if key[0] == _GROUP:
            group = self.tree.get(name) or self.tree.root
            parent = self.tree.groups[max(0, group.parent)].name
            known = self.groups.get(name) or self._new_group(name, now)
            record = replace(settle(known, now, self.half_life), factor=self._group_factor(name))
            return group_ad(group, parent, record, negotiator=self._negotiator, plan=self._plans.get(name))
        share = self._shares[name].fraction if name in self._shares else 0.0
        return submitter_ad(
            name,
            settle(self._known(name), now, self.half_life),
            group=self._group(name).name,
            negotiator=self._negotiator,
            share=share,
            limit=share * self._pool_weight,
        )

    def _is_idle(self, name: str) -> bool:
        return name not in self._using

    def _last(self, name: str) -> float:
        record = self.records.get(name)
        return record.last if record is not None else 0.0

    # --- records

    def _known(self, submitter: str) -> Record:
        """The record as it was last touched; of who was never seen, what it would be."""
        return self.records.get(submitter) or self._newcomers.get(submitter) or Record(factor=self._factor(submitter))

    def _newcomer(self, submitter: str) -> Record:
        """The record of who is not on the books: known for as long as not too many others come."""
        record = self._newcomers.pop(submitter, None)
        if record is None:
            record = Record(factor=self._factor(submitter))
            self._order = None
            if len(self._newcomers) >= MOST_NEWCOMERS:
                forgotten = next(iter(self._newcomers))
                del self._newcomers[forgotten]
                self._news.remove(forgotten)
        self._newcomers[submitter] = record  # the last one now
        return record

    def _factor(self, submitter: str) -> float:
        return choose_factor(submitter, self.factors, self.tree.group_of(submitter))

    def _group(self, submitter: str) -> Group:
        return self.tree.get(self.tree.group_of(submitter)) or self.tree.root

    def _new_group(self, key: str, now: float) -> Record:
        return Record(factor=self._group_factor(key), updated=now, subtree_in_use=0.0)

    def _group_factor(self, key: str) -> float:
        return dict(self.factors.groups).get(key, self.factors.default)

    def _put(self, submitter: str, record: Record, *, news: bool = True) -> None:
        if submitter not in self.records:
            self._newcomers.pop(submitter, None)
            self._order = None
        self.records[submitter] = record
        self._dirty.add(submitter)
        if not record.slots_in_use and not record.in_use:
            self._using.pop(submitter, None)
        elif submitter not in self._using:
            self._using[submitter] = self._group(submitter)
        if record.temporary:
            self._ending[submitter] = _first_end(record)
        else:
            self._ending.pop(submitter, None)
        if news:
            self._news.change(submitter)

    def _put_group(self, key: str, record: Record) -> None:
        self.groups[key] = record
        self._dirty_groups.add(key)
        group = self.tree.get(key)
        if group is not None:
            self._news.change(group.name)

    def _forget(self, submitter: str) -> None:
        if self.records.pop(submitter, None) is not None:
            self._dirty.add(submitter)
        self._using.pop(submitter, None)
        self._ending.pop(submitter, None)
        self._order = None
        self._news.remove(submitter)

    def _forget_usual(self, submitter: str) -> None:
        if forgettable(self.records[submitter], self._factor(submitter)):
            self._forget(submitter)


def _rows(names: Iterable[str], records: Mapping[str, Record]) -> list[tuple[bytes, bytes]]:
    known = ((name, records.get(name)) for name in sorted(names))
    return [(name.encode(), encode(record) if record is not None else b"") for name, record in known]


def _row_of(claim: Claim | None) -> bytes:
    return claims.encode(claim) if claim is not None else b""


#: First letters of the keys by which pages are ordered.
_GROUP: Final = "0"
_SUBMITTER: Final = "1"


def _first_end(record: Record) -> float:
    return min(one.until for one in record.temporary)
