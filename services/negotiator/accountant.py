"""The accountant: accounting records in memory while its negotiator is active, in Redis for good.

Only the active negotiator writes, through a script that refuses a stale epoch. A record says what is in use and since
when, so it tells its own future until the use changes: it is touched, and written, when that happens, and now and then
while something is in use. The accounting records also name each claim for which something was charged, and say until
when, in the same write: so whoever reads them after a fail-over charges on from exactly there, whatever he heard
meanwhile (spec rows ACC-16, ACC-18; the reference charges likewise while its negotiator is down).

There is a record for each submitter who used something or has a setting of his own. A submitter who only has jobs
waiting is known while he asks, and forgotten then: names cost a hostile user nothing.

The module is this long because all that changes a record is here, so that no way of changing one can forget the groups,
the accounting ads or what is to be written.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

from engine.fairshare import claim_charging
from engine.fairshare.accounting_ads import AdPublication, group_ad, submitter_ad
from engine.fairshare.claim_charging import Claim, ClaimCharges, Key, LateCharge
from engine.fairshare.group_negotiation import GroupResult
from engine.fairshare.group_tree import Group, GroupConfig, GroupTree
from engine.fairshare.priorities import (
    MINIMUM_PRIORITY,
    Factors,
    ImportedRecord,
    Record,
    advance,
    backdate,
    change,
    check_imported,
    check_name,
    choose_factor,
    decode_records,
    encode_record,
    encode_records,
    forgettable,
    restore,
    settle,
    take_in,
)
from engine.fairshare.quotas import QuotaSetting, check_quota
from engine.match.model import Share
from shared.accounting_version import NOTHING
from shared.classad import ClassAd
from shared.state.accounting import (
    StoredRecords,
    read_records,
    read_version,
    restore_records,
    stage_claims,
    write_records,
)
from shared.state.api import Store

#: Submitters that are known without being in the accounting records.
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
PAGE_SIZE: Final = 1_000


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

#: Sums of many changes drift by less than this part of them.
_DRIFT: Final = 1e-6


def _no_check(find: Callable[[], Sequence[str]]) -> None:
    """Check nothing."""


def _checked(
    operation: Callable[Concatenate[Accountant, _P], _R],
) -> Callable[Concatenate[Accountant, _P], _R]:
    """A public operation, after which the accountant's invariants are checked."""

    @wraps(operation)
    def checked(self: Accountant, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        result = operation(self, *args, **kwargs)
        self._check(self.check_invariants)
        return result

    return checked


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
        tree: GroupTree | None = None,
        *,
        check: Check = _no_check,
    ) -> None:
        """check: called with `check_invariants` after every public operation that changes something."""
        self._check = check
        self._store = store
        self._shard = shard  # whichever negotiator of it leads
        #: Of the accounting records in memory, as Redis confirmed it.
        self.version = NOTHING
        self._highest = NOTHING  # the newest version that a check has seen
        self._negotiator = negotiator
        self.factors = factors
        self.half_life = half_life
        self.tree = GroupTree.of(GroupConfig()) if tree is None else tree
        self.records: dict[str, Record] = {}
        self.groups: dict[str, Record] = {}  # by key
        #: Records that can not be read. They are left alone until their submitters use something.
        self._unreadable: dict[bytes, bytes] = {}
        self._unreadable_groups: dict[bytes, bytes] = {}
        self._newcomers: dict[str, Record] = {}
        self.claims: dict[Key, Claim] = {}  # for which something was charged
        #: Whether `claims` are all; else the records just read were written by a version that names none.
        self._claims_known = True
        self._using: dict[str, Group] = {}  # who uses something, and the group that is charged too
        self._ending: dict[str, float] = {}  # submitter -> when a change for a while ends
        self._dirty: set[str] = set()
        self._dirty_groups: set[str] = set()
        self._dirty_claims: dict[Key, None] = {}
        self._replace_claims = False  # claims in Redis are to be replaced by all that are in memory
        self._writing = asyncio.Lock()  # a later state must not be overtaken by an earlier one
        self._clock = 0.0
        self._settled = 0.0
        self._just_read = False
        self._order: list[str] | None = None  # names as pages have them
        self._plans: dict[str, GroupResult] = {}
        self._shares: Mapping[str, Share] = {}
        self._pool_weight = 0.0
        self._publication = AdPublication()
        #: Whether groups' use was added up, and claims were charged, since the records were read: until then they are
        #: as another negotiator, with another configuration, left them.
        self._groups_current = True
        self._claims_current = True

    # --- checks

    def check_invariants(self) -> list[str]:
        """Every contradiction in what is held in memory, in one sentence each; none if all is well."""
        found = [*self._record_violations(), *self._index_violations()]
        if self._groups_current:
            found += self._group_violations()
        if self._claims_current:
            found += [
                f"claim of {slot} since {began!r} is charged to {claim.user}, who is not known to use anything"
                for (slot, began), claim in self.claims.items()
                if claim.until is None and claim.user not in self._using
            ]
        if self.version < self._highest:
            found.append(f"version {self.version.text} is older than {self._highest.text}, which it was before")
        self._highest = max(self._highest, self.version)
        return found

    def _record_violations(self) -> Iterator[str]:
        """Find records with impossible numbers."""
        for kind, records in (("submitter", self.records), ("group", self.groups)):
            for name, record in records.items():
                if not record.priority >= MINIMUM_PRIORITY:
                    yield f"{kind} {name} has priority {record.priority!r}, below {MINIMUM_PRIORITY}"
                if not (record.usage >= 0.0 and record.weighted_usage >= 0.0):
                    yield f"{kind} {name} has usage {record.usage!r}, weighted {record.weighted_usage!r}: below 0"
                if record.slots_in_use < 0 or not record.in_use >= -_DRIFT:
                    yield f"{kind} {name} has {record.slots_in_use} slots of weight {record.in_use!r} in use: below 0"
                if record.updated > self._clock:
                    yield f"{kind} {name} was charged up to {record.updated!r}, all others up to {self._clock!r}"
                if record.quota >= 0.0 and record.dynamic_quota >= 0.0:
                    yield f"{kind} {name} has two quotas: {record.quota!r}, and {record.dynamic_quota!r} as a part"

    def _index_violations(self) -> Iterator[str]:
        """Find indexes that are not in step with the records."""
        using = {name for name, record in self.records.items() if record.slots_in_use or record.in_use}
        for name in sorted(using ^ self._using.keys()):
            yield f"submitter {name} {'uses' if name in using else 'does not use'} something: the index says otherwise"
        for name, group in self._using.items():
            if group != self._group(name):
                yield f"submitter {name} is charged in group {group.key}, and belongs to {self._group(name).key}"
        ending = {name: _first_end(record) for name, record in self.records.items() if record.temporary}
        if ending != self._ending:
            names = sorted(name for name, _ in ending.items() ^ self._ending.items())
            yield f"changes for a while of {', '.join(names)} are to end at other times than their records say"
        if both := sorted(self._newcomers.keys() & self.records.keys()):
            yield f"{', '.join(both)} have a record, and are newcomers as well"
        if len(self._newcomers) > MOST_NEWCOMERS:
            yield f"{len(self._newcomers)} newcomers are known, more than {MOST_NEWCOMERS}"
        if self._order is not None and set(self._order) != self._page_keys():
            yield "pages are ordered by other names than there are"
        for name, share in self._shares.items():
            if not -_DRIFT <= share.fraction <= 1.0 + _DRIFT:
                yield f"submitter {name} has {share.fraction!r} of the pool for its share"

    def _group_violations(self) -> Iterator[str]:
        """Find groups that are charged for something else than their submitters use."""
        own, below = self._use_by_group()
        for key, record in self.groups.items():
            weight, slots = own.get(key, (0.0, 0))
            if slots != record.slots_in_use or not _about(record.in_use, weight):
                yield (
                    f"group {key} is charged for {record.slots_in_use} slots of weight {record.in_use!r}; "
                    f"its submitters use {slots} of weight {weight!r}"
                )
            if not _about(max(0.0, record.subtree_in_use), below.get(key, 0.0)):
                yield (
                    f"group {key} and those below it are charged for weight {record.subtree_in_use!r}; their "
                    f"submitters use {below.get(key, 0.0)!r}"
                )
        for key in sorted(own.keys() - self.groups.keys()):
            if own[key][1]:
                yield f"group {key} has no record, and its submitters use {own[key][1]} slots"

    # --- reading and writing

    @property
    def unreadable(self) -> list[str]:
        """Names whose record can not be read."""
        return [raw.decode(errors="replace") for raw in (*self._unreadable, *self._unreadable_groups)]

    async def load(self, epoch: int = 0) -> bool:
        """Read the accounting records: on becoming active under this epoch. A Redis that has older ones than are in
        memory has lost the rest: it gets these first. Returns whether that was so. Raises StaleEpoch."""
        lost = await self._restore(epoch)
        stored = await read_records(self._store, self._shard)
        # From here on at once: who charges meanwhile must not find half of it.
        self.records, self._unreadable = decode_records(stored.submitters)
        self.groups, self._unreadable_groups = decode_records(stored.groups)
        self.version = max(NOTHING, stored.version)
        self._dirty.clear()
        self._dirty_groups.clear()
        self._read_claims(stored)
        self._newcomers.clear()
        self._using = {name: self._group(name) for name, one in self.records.items() if one.slots_in_use or one.in_use}
        self._ending = {name: _first_end(record) for name, record in self.records.items() if record.temporary}
        touched = (record.updated for record in (*self.records.values(), *self.groups.values()))
        self._clock = max((stored.until or 0.0, *touched))
        self._settled = 0.0
        self._order = None
        self._just_read = True
        self._groups_current = self._claims_current = False
        self._check(self.check_invariants)
        return lost

    def _read_claims(self, stored: StoredRecords) -> None:
        self._claims_known = stored.until is not None or not any(record.last for record in self.records.values())
        self._dirty_claims = {}
        # Claims that lie there may be of another state of the accounting records.
        self.claims, others = claim_charging.decode_claims(stored.claims if stored.until is not None else {})
        self._replace_claims = bool(others or (stored.until is None and stored.claims))

    async def commit(self, epoch: int) -> None:
        """Write what changed since the last commit. Raises StaleEpoch when a newer negotiator is active."""
        async with self._writing:
            # Of those who use nothing nothing depends on the others'.
            if len(self._dirty) > BATCH:
                busy = {*self._using, *(self.claims[key].user for key in self._dirty_claims if key in self.claims)}
                idle = sorted(self._dirty - busy)
                for start in range(0, len(idle), BATCH):
                    await self._write(epoch, set(idle[start : start + BATCH]), alone=True)
            if self._replace_claims or len(self._dirty_claims) > MANY_CLAIMS:
                # What changes from here on is written as ever.
                self._replace_claims, self._dirty_claims = True, {}
                rows = [
                    (claim_charging.claim_field(key), claim_charging.encode_claim(claim))
                    for key, claim in self.claims.items()
                ]
                await stage_claims(self._store, self._shard, epoch, rows)
            if self._using or self._dirty or self._dirty_groups or self._dirty_claims or self._replace_claims:
                await self._write(epoch, set(self._dirty))
        self._check(self.check_invariants)

    async def _write(self, epoch: int, names: set[str], *, alone: bool = False) -> None:
        """Write these submitters' records, and, but for `alone`, all else that changed, in one step."""
        anew, groups, changed = False, set[str](), dict[Key, None]()
        if not alone:
            anew, groups, changed = self._replace_claims, self._dirty_groups, self._dirty_claims
            self._replace_claims, self._dirty_groups, self._dirty_claims = False, set(), {}
        self._dirty -= names
        try:
            self.version = await write_records(
                self._store,
                self._shard,
                epoch,
                self.version,
                until=None if alone else self._clock,
                submitters=_rows(names, self.records),
                groups=_rows(groups, self.groups),
                claims=[(claim_charging.claim_field(key), _row_of(self.claims.get(key))) for key in changed],
                staged=anew,
            )
        except BaseException:
            # Nothing was written, or it does no harm to write it again.
            self._replace_claims |= anew
            self._dirty |= names
            self._dirty_groups |= groups
            self._dirty_claims = {**changed, **self._dirty_claims}
            raise

    async def _restore(self, epoch: int) -> bool:
        if self.version == NOTHING or await read_version(self._store, self._shard) >= self.version:
            return False
        async with self._writing:
            # With what was not written yet: that is as much a part of the accounting records as the rest.
            submitters = self._unreadable | encode_records(self.records)
            groups = self._unreadable_groups | encode_records(self.groups)
            rows = {
                claim_charging.claim_field(key): claim_charging.encode_claim(claim)
                for key, claim in self.claims.items()
            }
            until = self._clock if self._claims_known else None
            stored = StoredRecords.of(self.version, submitters, groups, rows, until)
            await restore_records(self._store, self._shard, epoch, stored)
        return True

    # --- charging

    @_checked
    def configure(self, factors: Factors, half_life: float, tree: GroupTree, now: float) -> None:
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
        self._claims_current = True

    @_checked
    def take_over(self, claim_charges: ClaimCharges, now: float) -> None:
        """The accounting records just read are of some time ago. What was in use then is not what was in use until
        now: this is what `claim_charges` makes of it."""
        written = self._clock
        now = self._tick(now)
        base = min(now, written)
        inherited = claim_charges.take_over(self.claims if self._claims_known else None, base, now)
        self._claims_known = True
        for name in [name for name in self._using if name not in inherited.going]:
            self._use(name, self.records[name], 0.0, 0, base)
        for name, (weighted, slots) in inherited.going.items():
            self._use(name, self._known(name), weighted, slots, base)
        for use in inherited.late:
            self._backdate(use, now)

    def _backdate(self, use: LateCharge, now: float) -> None:
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
        own, below = self._use_by_group()
        for group in self.tree.groups:
            record = self.groups.get(group.key) or self._new_group(group.key, now)
            weighted, slots = own.get(group.key, (0.0, 0))
            settled = advance(record, now, self.half_life, weighted, slots, below.get(group.key, 0.0))
            if record.slots_in_use or settled.slots_in_use or settled.priority != record.priority:
                self._put_group(group.key, settled)
        for key, record in self.groups.items():
            if key not in self.tree.by_key and record.subtree_in_use:  # a group of another configuration
                self._put_group(key, advance(record, now, self.half_life, 0.0, 0, 0.0))
        self._groups_current = True

    def _use_by_group(self) -> tuple[dict[str, tuple[float, int]], dict[str, float]]:
        """What the submitters of each group use: weight and slots of its own; weight with all groups below it."""
        own: dict[str, tuple[float, int]] = {}
        below: dict[str, float] = {}
        for name, group in self._using.items():
            record = self.records[name]
            weighted, slots = own.get(group.key, (0.0, 0))
            own[group.key] = (weighted + record.in_use, slots + record.slots_in_use)
            for above in self.tree.upwards(group):
                if above.parent >= 0 or above is group:
                    below[above.key] = below.get(above.key, 0.0) + record.in_use
        return own, below

    def _settle(self, now: float) -> None:
        self._settled = now
        for name in self._using:
            self._put(name, settle(self.records[name], now, self.half_life), news=False)
        self._charge_groups(now)

    def _tick(self, now: float) -> float:
        """The time that counts. Looks after a clock that steps back, and after accounting records that were just
        read."""
        if now < self._clock:
            if self._clock - now < SMALL_STEP_S:
                return self._clock
            self._go_on(self._clock, now)
        self._clock = now
        if self._just_read:
            self._just_read = False
            for name, record in list(self.records.items()):
                if name not in self._using and forgettable(settle(record, now, self.half_life), self._factor(name)):
                    self._forget(name)
            by_last = sorted(self.records, key=lambda name: (name not in self._using, -self.records[name].last))
            self._publication.restart([*(group.name for group in self.tree.groups), *by_last])
        return now

    @_checked
    def clock_set_forth(self, expected: float, now: float) -> None:
        """Our clock was set forth since the last charge, and would say `expected` else: what was up to then is charged,
        and all go on from the new time (ACC-22)."""
        if self._clock <= expected < now:
            self._go_on(expected, now)
            self._clock = now

    def _go_on(self, before: float, now: float) -> None:
        """Charge everybody up to `before`, and from `now` on."""
        for name, record in self.records.items():
            self._put(name, replace(settle(record, before, self.half_life), updated=now), news=False)
        for key, record in self.groups.items():
            self._put_group(key, replace(settle(record, before, self.half_life), updated=now))
        self._settled = now

    # --- changes

    def quotas(self) -> dict[str, QuotaSetting]:
        """What administrators set in place of the configuration's quotas, by group's key: also of groups that are not
        in force at the moment."""
        return {
            key: QuotaSetting(record.quota, False) if record.quota >= 0.0 else QuotaSetting(record.dynamic_quota, True)
            for key, record in self.groups.items()
            if record.quota >= 0.0 or record.dynamic_quota >= 0.0
        }

    def set_quota(self, group: str, quota: QuotaSetting | None, now: float) -> QuotaSetting | None:
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

    @_checked
    def put_quota(self, group: str, quota: QuotaSetting | None, now: float) -> None:
        """The same without a look at whether it makes sense: to take a change back."""
        key, now = group.lower(), self._tick(now)
        record = settle(self.groups.get(key) or self._new_group(key, now), now, self.half_life)
        static = quota.value if quota is not None and not quota.dynamic else -1.0
        dynamic = quota.value if quota is not None and quota.dynamic else -1.0
        self._put_group(key, replace(record, quota=static, dynamic_quota=dynamic))

    @_checked
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
        check_name(submitter)
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
                self._claims_current = False
            self._newcomers.pop(submitter, None)
            self._forget(submitter)
            return
        if not 0.0 <= duration <= 1e10:
            raise ValueError(f"a duration of {duration:g} s: use 0 (for good) to 1e10")
        record = settle(self._known(submitter), now, self.half_life)
        self._put(submitter, change(record, what, value, now, now + duration if duration else 0.0))
        self._forget_usual(submitter)

    def import_plan(self, records: Mapping[str, ImportedRecord], now: float, *, replacing: bool) -> Imported:
        """What `import_records` would do. Raises ValueError where a record can not be."""
        now = self._tick(now)
        taken, known, usual, left = [], [], [], {}
        for name, record in records.items():
            check_imported(name, record)
            group = self.tree.get(name)
            if group is None and "@" not in name:
                left[name] = "there is no such accounting group in GROUP_NAMES, and a user has a domain"
            elif not replacing and self._has_record(name, group):
                known.append(name)
            elif group is None and forgettable(
                take_in(self._new_of(name), record, now, now, self.half_life), self._factor(name)
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
            group = self.tree.get(name)
            if group is not None:
                before = settle(self.groups.get(group.key) or self._new_group(group.key, now), now, self.half_life)
                after = take_in(before, records[name], until, now, self.half_life)
                self._put_group(
                    group.key, replace(after, factor=before.factor, floor=before.floor, ceiling=before.ceiling)
                )
                continue
            before = settle(self.records.get(name) or self._new_of(name), now, self.half_life)
            self._put(name, take_in(before, records[name], until, now, self.half_life))
            self._forget_usual(name)
        return plan

    def _has_record(self, name: str, group: Group | None) -> bool:
        if group is None:
            return name in self.records
        record = self.groups.get(group.key)
        return record is not None and bool(record.last or record.weighted_usage or record.priority > MINIMUM_PRIORITY)

    def _new_of(self, name: str) -> Record:
        return Record(factor=self._factor(name))

    @_checked
    def end_changes(self, now: float) -> list[EndedChange]:
        """End the changes for a while whose time is over; what came back is told."""
        now = self._tick(now)
        ended = []
        for name in sorted(name for name, until in self._ending.items() if until <= now):
            record, over = restore(settle(self.records[name], now, self.half_life), now)
            self._put(name, record)
            self._forget_usual(name)
            ended += [EndedChange(name, one.what, one.before) for one in over]
        return ended

    # --- telling

    @_checked
    def record_cycle(self, plans: Sequence[GroupResult], shares: Mapping[str, Share], pool_weight: float) -> None:
        """What the last cycle came to: for each group, and each submitter who took part. pool_weight: of all slots that
        counted for shares."""
        for plan in plans:
            group = self.tree.get(plan.group)
            if group is not None and plan != self._plans.get(plan.group):
                self._publication.change(group.name)
        self._plans = {plan.group: plan for plan in plans}
        told = self._shares.keys() | shares.keys()
        self._shares, self._pool_weight = dict(shares), pool_weight
        for name in told:
            if name in self.records or name in self._newcomers:
                self._publication.change(name)

    def ads(self, now: float) -> list[ClassAd]:
        """One accounting ad for each group and submitter: groups first, by name (ACC-21)."""
        now = self._tick(now)
        return [self._ad(key, now) for key in self._keys()]

    def page(
        self, now: float, *, after: str = "", most: int = PAGE_SIZE, active_since: float = 0.0, only: Iterable[str] = ()
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
                if len(found) == max(1, min(most, PAGE_SIZE)):
                    following = key if place + 1 < len(order) else ""
                    return [self._ad(one, now) for one in found], following
        return [self._ad(one, now) for one in found], ""

    def ads_to_publish(self, now: float) -> tuple[dict[str, ClassAd], set[str]]:
        """Accounting ads that the collector should have now, by Name, and names of those that it should not have any
        more. To be called every few seconds while active (ACC-21)."""
        now = self._tick(now)
        due, gone = self._publication.next(now, self._is_idle, self._last)
        keys = (_GROUP + name.lower() if self.tree.get(name) is not None else _SUBMITTER + name for name in due)
        return {name: self._ad(key, now) for name, key in zip(due, keys, strict=True)}, gone

    def _keys(self) -> list[str]:
        if self._order is None:
            self._order = sorted(self._page_keys())
        return self._order

    def _page_keys(self) -> set[str]:
        groups = {_GROUP + group.key for group in self.tree.groups}
        return groups | {_SUBMITTER + name for name in (*self._newcomers, *self.records)}

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
        """The record of who is not in the accounting records: known for as long as not too many others come."""
        record = self._newcomers.pop(submitter, None)
        if record is None:
            record = Record(factor=self._factor(submitter))
            self._order = None
            if len(self._newcomers) >= MOST_NEWCOMERS:
                forgotten = next(iter(self._newcomers))
                del self._newcomers[forgotten]
                self._publication.remove(forgotten)
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
            self._publication.change(submitter)

    def _put_group(self, key: str, record: Record) -> None:
        self.groups[key] = record
        self._dirty_groups.add(key)
        group = self.tree.get(key)
        if group is not None:
            self._publication.change(group.name)

    def _forget(self, submitter: str) -> None:
        if self.records.pop(submitter, None) is not None:
            self._dirty.add(submitter)
        self._using.pop(submitter, None)
        self._ending.pop(submitter, None)
        self._order = None
        self._publication.remove(submitter)

    def _forget_usual(self, submitter: str) -> None:
        if forgettable(self.records[submitter], self._factor(submitter)):
            self._forget(submitter)


def _rows(names: Iterable[str], records: Mapping[str, Record]) -> list[tuple[bytes, bytes]]:
    known = ((name, records.get(name)) for name in sorted(names))
    return [(name.encode(), encode_record(record) if record is not None else b"") for name, record in known]


def _about(value: float, other: float) -> bool:
    return abs(value - other) <= _DRIFT * (1.0 + abs(other))


def _row_of(claim: Claim | None) -> bytes:
    return claim_charging.encode_claim(claim) if claim is not None else b""


#: First letters of the keys by which pages are ordered.
_GROUP: Final = "0"
_SUBMITTER: Final = "1"


def _first_end(record: Record) -> float:
    return min(one.until for one in record.temporary)
