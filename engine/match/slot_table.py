"""Slots between cycles, and the snapshots on which cycles are decided.

`SlotTable` is what the negotiator knows of the pool: slots, their claim ids, matches on their way. It is fed by the
bus, and loaded from Redis when a negotiator becomes active; a cycle starts with this data in hand. Slots are resident
in a columnar table, packed. What every update needs to know of them, and what is charged for them, is kept beside it,
so that an update costs its reading and little more.

`snapshot_of` makes a snapshot of plain ads, for tests, simulations and what-if questions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.fairshare.claim_charging import charged_to
from engine.fairshare.priorities import Record
from engine.match import cycle_attributes
from engine.match.concurrency_limits import SHOWN, counts_in, counts_of
from engine.match.model import CycleConfig, Matched, Preempted, Request, Slots, Snapshot, machine_of
from engine.match.name_order import NameOrder
from engine.match.slot_arrays import HEAVIEST, LIKELY, NAMES, USER_NAMES, slot_weight, weights, whole_amount
from engine.match.sort_orders import SortOrders
from shared.classad import ClassAd, Expr, evaluate
from shared.classad.cells import PackedError
from shared.classad.columnar import Frame, Matching, Meter, Queued, Table
from shared.classad.expr import AttrRef, fold
from shared.classad.quick import QuickAd, spellings
from shared.classad.values import UNDEFINED, Value
from shared.compression import AdCompressor
from shared.consumption import PREFIX, resources
from shared.daemon.ad_rows import Patch, StoredAd
from shared.job_limits import parse

#: Knobs on which it depends what is charged for a slot.
_CHARGING = ("use_slot_weights", "force_slot_weight", "slot_weight", "poolsize_constraint", "discount_suspended")
#: States in which somebody else has the slot, or nobody may.
_TAKEN = ("Claimed", "Preempting", "Owner", "Drained")
#: Kinds of resources of a machine that are foreseen before any job names them.
_MOST_RESOURCES: Final = 20
#: Kinds of machines that are remembered.
_MOST_KINDS: Final = 1_000


@dataclass(slots=True)
class _Pending:
    """Matches on their way: the slot is not offered again until its startd was asked for all of them, or `until`."""

    submitter: str
    weight: float  # of one job
    left: int  # jobs for which the startd was not asked yet, as far as its ads tell
    until: float
    limits: str = ""  # of one job


#: What `_Facts` and the beginning of a cycle read of an ad by itself, before any job is met.
_BY_ITSELF: Final = (
    *("State", "PartitionableSlot", "Activity", "AccountingGroup", "RemoteUser", "Cpus", "RoostClaims", "RoostLook"),
    *("MyAddress", "RoostClaimedAt", "RoostClockSet", "RoostPastClaims", "Offline", "Memory", "Disk", "DaemonShutdown"),
    *("ConcurrencyLimits", "PreemptingConcurrencyLimits", "MachineResources"),
)
_KEYS_BY_ITSELF: Final = tuple(map(fold, _BY_ITSELF))
_PLAIN: Final = frozenset((bool, int, float, str))
_WEIGHT: Final = frozenset(("slotweight",))
_WEIGHED_BY_CPUS: Final = _WEIGHT | {"cpus"}


class SlotUse(NamedTuple):
    """Who is charged for a slot ("": nobody), its weight, since when it is claimed (its startd's clock; None: it does
    not say), RoostPastClaims, and by how many seconds that clock was set since it is claimed."""

    user: str
    weight: float
    claimed_at: float | None
    past: str
    clock_set: float


@dataclass(slots=True)
class _Facts:
    """What is known of a slot's ad without reading it again. user: who is charged, "": nobody. decided: the names,
    folded, of which all this is made; None: there are expressions among them, which may read anything."""

    ad: StoredAd
    decided: frozenset[str] | None
    room: float
    asked: int | None  # RoostClaims
    look: object  # RoostLook
    user: str
    weight: float
    counted: float  # weight that counts for the pool's size (NEG-35)
    startd: str  # inbox
    owner: str  # the daemon whose ad it is; "": nobody said
    claimed_at: float | None  # RoostClaimedAt
    clock_set: float  # RoostClockSet
    past: str  # RoostPastClaims


@dataclass(slots=True)
class Changes:
    """What was put and dropped until a moment. fresh, gone: names of slots that came and that went."""

    queued: Queued
    fresh: set[str]
    gone: set[str]

    def __bool__(self) -> bool:
        return bool(self.queued)


class _Plain:
    """Some attributes of an ad, which are no expressions."""

    __slots__ = ("_cells",)

    def __init__(self, names: Iterable[str], cells: Iterable[Any]) -> None:
        self._cells = dict(zip(names, cells, strict=True))

    def eval(self, name: str) -> Value:
        cell = self._cells[name]
        return UNDEFINED if cell is None else cell

    def eval_string(self, name: str) -> str:
        cell = self._cells[name]
        return cell if isinstance(cell, str) else ""


class _Ads(Mapping[str, ClassAd]):
    """The slots' ads by name, each a new object."""

    def __init__(self, facts: Mapping[str, _Facts]) -> None:
        self._facts = facts

    def __getitem__(self, name: str) -> ClassAd:
        return ClassAd.unpack(self._facts[name].ad.read())

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


class SlotTable:
    """Slots by name, and what is pending on them.

    `snapshot` gives the cycle a table that nobody else changes until the next snapshot: updates queue meanwhile, also
    while the cycle runs in another thread.
    """

    def __init__(self, config: CycleConfig | None = None, compressor: AdCompressor | None = None) -> None:
        """compressor: for `compact`."""
        self.claims: dict[str, str] = {}  # slot -> claim id
        self.pending: dict[str, list[_Pending]] = {}
        self._config = config or CycleConfig()
        self._facts: dict[str, _Facts] = {}
        self._away: dict[str, _Facts] = {}  # slots of machines that are gone: charged, and otherwise not there
        self._use: dict[str, list[float]] = {}  # submitter -> weight, slots; without what is pending
        self._counted = 0.0
        self._compressor = compressor or AdCompressor()
        #: By MachineResources and what weights are made of: names of the resources, and `_Facts.decided`.
        self._all_decided: dict[tuple[str, frozenset[str]], tuple[tuple[str, ...], frozenset[str]]] = {}
        self._resources: set[str] = set()  # MachineResources of which there are columns
        self._loose: dict[str, None] = {}  # whose ads are not compressed yet, in the order in which they came
        self._table = new_table()
        self._want_columns()
        self._matching = Matching(Frame(self._table), 0.0)
        self._emptied = Matching(Frame(self._table), 0.0)
        self._as_told = Matching(self._table, 0.0)  # the same rows without what a cycle made of them
        self._orders = SortOrders()
        self._fresh: set[str] = set()  # names that came since the last flush
        self._gone: set[str] = set()
        self._order = NameOrder()
        self._to_order: tuple[set[str], set[str]] = set(), set()  # likewise since it was used

    @property
    def ads(self) -> Mapping[str, ClassAd]:
        return _Ads(self._facts)

    def packed(self, name: str) -> bytes:
        """The ad as it came. Raises KeyError."""
        return self._facts[name].ad.read()

    def startd(self, name: str) -> str:
        """The inbox of the slot's startd; "" if there is no such slot."""
        facts = self._facts.get(name)
        return facts.startd if facts is not None else ""

    def owner(self, name: str) -> str:
        """The daemon whose expressions are evaluated with this slot."""
        facts = self._facts.get(name)
        return (facts.owner if facts is not None else "") or machine_of(name)

    def put(self, name: str, ad: ClassAd | bytes | QuickAd, owner: str = "") -> bool:
        """A new ad of a slot, of this daemon. True when a cycle may find room on the slot that the last one did not.
        Raises PackedError (a ValueError), changing nothing, if the bytes are no ad or hold an expression that can not
        be read."""
        quick = ad if isinstance(ad, QuickAd) else QuickAd(ad if isinstance(ad, bytes) else ad.pack())
        facts = self._read(quick, owner)
        old = self._facts.get(name)
        if not len(self._table):
            self._want_of(quick)
        self._table.put(name, facts.ad, quick)
        self._facts[name] = facts
        self._loose[name] = None
        self._back(name)
        if old is None:
            self._fresh.add(name)
            self._gone.discard(name)
        else:
            self._forget(old)
        self._count(facts)
        if old is None:
            return True
        if name in self.pending:
            self._was_asked(name, old.asked, facts.asked)
            return name not in self.pending and facts.room > 0
        return facts.room > old.room or (facts.room > 0 and facts.look != old.look)

    def patch(self, name: str, patch: Patch) -> bool:
        """Plain attributes of a slot's ad changed, that decide nothing by themselves. False, changing nothing, if there
        is more to it, so that the ad is to be `put`."""
        facts = self._facts.get(name)
        if facts is None or facts.decided is None or name in self.pending:
            return False
        if not set(map(type, patch.changed.values())) <= _PLAIN:
            return False
        cells: dict[str, Any] = {}
        for told in (dict.fromkeys(patch.removed), patch.changed):
            for each, cell in told.items():
                if type(each) is not str or spellings(key := fold(each)) != (each,):
                    return False  # as nobody has written it before: it may be there twice
                cells[key] = cell
        if not facts.decided.isdisjoint(cells):
            return False
        facts.ad = facts.ad.patched(patch)
        self._table.patch(name, facts.ad, cells)
        self._loose[name] = None
        return True

    def _read(self, ad: QuickAd, owner: str) -> _Facts:
        config = self._config
        weight, decided = _weight_of(ad, config)
        counts = config.poolsize_constraint is None or evaluate(config.poolsize_constraint, ad.ad()) is True
        cells = ad.cells(_KEYS_BY_ITSELF)
        told: QuickAd | _Plain = ad
        if decided is not None:
            decided = self._decided(ad, cells, decided) if config.poolsize_constraint is None else None
            told = ad if decided is None else _Plain(_BY_ITSELF, cells)
        asked = told.eval("RoostClaims")
        return _Facts(
            ad=StoredAd(ad.packed, self._compressor),
            decided=decided,
            room=_room(told),
            asked=asked if isinstance(asked, int) else None,
            look=told.eval("RoostLook"),
            user=charged_to(told, discount_suspended=config.discount_suspended),
            weight=weight,
            counted=weight if counts else 0.0,
            startd=sys.intern(told.eval_string("MyAddress")),
            owner=owner,
            claimed_at=_moment(told.eval("RoostClaimedAt")),
            clock_set=_seconds(told.eval("RoostClockSet")),
            past=told.eval_string("RoostPastClaims"),
        )

    def _decided(self, ad: QuickAd, cells: list[Any], weighed: frozenset[str]) -> frozenset[str] | None:
        """As in `_Facts`. cells: those of _BY_ITSELF. weighed: what the weight is made of."""
        if any(isinstance(cell, Expr) for cell in cells):
            return None
        key = cells[-1] if isinstance(cells[-1], str) else "", weighed
        known = self._all_decided.get(key)
        if known is None:
            if len(self._all_decided) > _MOST_KINDS:
                self._all_decided.clear()
            keys = tuple(map(fold, key[0].replace(",", " ").split()))
            known = self._all_decided[key] = keys, weighed.union(_KEYS_BY_ITSELF, keys)
        return None if any(isinstance(cell, Expr) for cell in ad.cells(known[0])) else known[1]

    def _count(self, facts: _Facts) -> None:
        self._counted += facts.counted
        if facts.user:
            use = self._use.setdefault(facts.user, [0.0, 0.0])
            use[0] += facts.weight
            use[1] += 1

    def _forget(self, facts: _Facts) -> None:
        self._counted -= facts.counted
        if facts.user:
            use = self._use[facts.user]
            use[0] -= facts.weight
            use[1] -= 1
            if use[1] <= 0:
                del self._use[facts.user]

    def _was_asked(self, name: str, before: int | None, after: int | None) -> None:
        """Cross off the matches for which the startd was asked between two ads. RoostClaims counts that, so a job that
        came and went between them is noticed too."""
        if before is None or after is None or after < before:
            del self.pending[name]  # a startd that does not count, or another life of it
            return
        asked = after - before
        waiting = self.pending[name]
        while waiting and asked >= waiting[0].left:
            asked -= waiting.pop(0).left
        if waiting:
            waiting[0].left -= asked
        else:
            del self.pending[name]

    def use(self, name: str) -> SlotUse:
        """Whom a slot is charged to, and since when."""
        facts = self._facts[name]
        return SlotUse(facts.user, facts.weight, facts.claimed_at, facts.past, facts.clock_set)

    def drop(self, name: str) -> None:
        self._back(name)
        facts = self._facts.pop(name, None)
        if facts is not None:
            self._forget(facts)
            self._take_out(name)
        self.claims.pop(name, None)

    def put_away(self, name: str) -> None:
        """The slot's machine is gone, for now: it is nobody's to have, and no part of the pool. Who has it goes on
        being charged, as what runs there may run on; its claim id is kept. `put` and `drop` end that."""
        facts = self._facts.pop(name, None)
        if facts is not None:
            self._counted -= facts.counted
            self._away[name] = facts
            self._take_out(name)

    def _back(self, name: str) -> None:
        """Count a slot no more as one that is away."""
        if (facts := self._away.pop(name, None)) is not None:
            self._counted += facts.counted
            self._forget(facts)

    def _take_out(self, name: str) -> None:
        self._table.remove(name)
        self._loose.pop(name, None)
        self._fresh.discard(name)
        self._gone.add(name)
        self.pending.pop(name, None)

    def matched(self, match: Matched, until: float) -> None:
        pending = _Pending(match.submitter, match.weight / match.count, match.count, until, match.limits)
        self.pending.setdefault(match.slot, []).append(pending)

    def unmatched(self, match: Matched, count: int | None = None) -> bool:
        """The schedd did not take so many jobs (None: all) of the match. True when the slot can be offered again."""
        waiting = self.pending.get(match.slot)
        left = match.count if count is None else count
        if waiting is None or left <= 0:
            return False
        for pending in [p for p in waiting if p.submitter == match.submitter]:
            less = min(left, pending.left)
            pending.left -= less
            left -= less
            if not pending.left:
                waiting.remove(pending)
        if waiting:
            return False
        del self.pending[match.slot]
        return True

    def next_end(self) -> float | None:
        """When the first match on its way is given up; None when there is none."""
        return min((p.until for waiting in self.pending.values() for p in waiting), default=None)

    def expire(self, now: float) -> bool:
        """Give up matches that no startd was asked for. True when slots can be offered again."""
        before = len(self.pending)
        for name, waiting in list(self.pending.items()):
            waiting[:] = [p for p in waiting if p.until > now]
            if not waiting:
                del self.pending[name]
        return len(self.pending) < before

    # What a cycle takes

    @property
    def table(self) -> Table:
        """As of the last `flush`: not for two threads at once, nor for one while another flushes it."""
        return self._table

    def flush(self) -> None:
        """Bring the columns up to date with what was put and dropped since the last time: some 20 us a slot."""
        changes = self.take()
        try:
            self.carry_out(changes)
        except BaseException:
            self.put_back(changes)
            raise

    def take(self) -> Changes:
        """What a flush would carry out, for a thread to do that (`carry_out`) before anything else is done here than
        to put, to patch and to drop."""
        changes = Changes(self._table.take(), self._fresh, self._gone)
        self._fresh, self._gone = set(), set()
        return changes

    def carry_out(self, changes: Changes) -> None:
        """In any thread."""
        table = self._table
        if not len(table):
            self._want_columns()
        try:
            table.carry_out(changes.queued)
        except PackedError:
            table.carry_out(changes.queued)  # cannot be, as `put` has read it; the rest is carried out
        fresh, gone = self._to_order
        fresh -= changes.gone
        gone -= changes.fresh
        fresh |= changes.fresh
        gone |= changes.gone

    def put_back(self, changes: Changes) -> None:
        """It could not be carried out: the next flush does."""
        self._table.put_back(changes.queued)
        fresh, gone = changes.fresh - self._gone, changes.gone - self._fresh
        self._fresh |= fresh
        self._gone |= gone

    def _want_columns(self) -> None:
        """Have columns of what every cycle looks at, and of what jobs name; later each new column has all ads read."""
        knobs = cycle_attributes.names_of(self._table, self._config, ())
        self._table.want([*SHOWN, *NAMES, *map(str.lower, USER_NAMES), *knobs, *LIKELY])

    def _want_of(self, ad: QuickAd) -> None:
        """Likewise of the resources of a machine, and of what its policies refer to."""
        text = ad.eval_string("MachineResources")
        if text not in self._resources and len(self._resources) < _MOST_KINDS:
            self._resources.add(text)
            keys = [fold(name) for name in resources(ClassAd({"MachineResources": text}))[:_MOST_RESOURCES]]
            self._table.foresee([each for key in keys for each in (key, whole_amount(key), fold(PREFIX) + key)])

    def compact(self, most: int) -> list[str]:
        """Compress up to so many ads, those first that came first; whose. Some 6 us each. None where there is no
        dictionary yet."""
        if not self._compressor.current:
            return []
        names = list(islice(self._loose, most))
        for name in names:
            del self._loose[name]
            self._facts[name].ad.stored()
        return names

    def snapshot(
        self,
        config: CycleConfig,
        requests: Mapping[str, Sequence[Request]],
        records: Mapping[str, Record],
        *,
        demand: Mapping[str, float] | None = None,
        running: frozenset[str] = frozenset(),
        preempted: Sequence[Preempted] = (),
        last_remainder: Mapping[str, float] | None = None,
        flush: bool = True,
    ) -> Snapshot:
        """This moment of the pool. Its table is this one: take no other snapshot before the cycle is over. flush:
        False where the columns were brought up to date just now; what came since has no part in it."""
        self._adopt(config)
        if flush:
            self.flush()
        table = self._table
        keys = table.keys
        offered = np.ones(len(keys), np.bool_)
        for name in (*self.pending, *table.leaving()):
            if name in table:
                offered[table.row(name)] = False
        if config.slot_constraint is not None:
            constraint = config.slot_constraint
            self._as_told.meter = Meter(self.owner) if config.monotonic is not None else None
            passing = self._as_told.together(lambda: self._as_told.mask(constraint))
            offered &= passing
        claims = self.claims
        table.companions = {
            Slots.OFFERED: offered,
            Slots.NAMED: np.fromiter((key in claims for key in keys), np.bool_, len(keys)),
            Slots.PLACE: self.places(),
        }
        return Snapshot(
            slots=Slots(self._matching, self._emptied, self.owner, self._orders),
            requests=requests,
            records=records,
            in_use=self.in_use(config),
            total_weight=self.total_weight(config),
            demand=demand or {},
            running=running,
            limits_in_use=self.limits_in_use(),
            preempted=preempted,
            last_remainder=last_remainder or {},
        )

    def left_out(self, constraint: Expr, now: float) -> list[str]:
        """Slots that a constraint does not let in at this moment, though it did when they were put here. `now`: seconds
        since 1970, what time() gives."""
        self.flush()
        self._as_told.now = now
        passing = self._as_told.together(lambda: self._as_told.mask(constraint))
        return [self._table.keys[row] for row in np.flatnonzero(~passing).tolist()]

    @property
    def placed(self) -> bool:
        """Whether `places` has nothing to do."""
        return Slots.PLACE in self._table.companions and not any(self._to_order)

    def places(self) -> NDArray[np.int64]:
        """(n,) int64: what to sort each row by for the natural order of names, as of the last flush. In any thread,
        like a flush."""
        table, (fresh, gone) = self._table, self._to_order
        if self.placed:
            return table.companions[Slots.PLACE]
        self._order.update(fresh, gone)
        self._to_order = set(), set()
        found = table.companions[Slots.PLACE] = self._order.numbers(table.keys)
        return found

    def charged(self, config: CycleConfig) -> dict[str, tuple[float, int]]:
        """Submitter -> (weighted slots, slots) that he is to be charged for: what slots say."""
        self._adopt(config)
        return {name: (weight, int(slots)) for name, (weight, slots) in self._use.items()}

    def in_use(self, config: CycleConfig) -> dict[str, tuple[float, int]]:
        """Submitter -> (weighted slots, slots) in use now, matches on their way included."""
        use = self.charged(config)
        for waiting in self.pending.values():
            for match in waiting:
                weight, slots = use.get(match.submitter, (0.0, 0))
                use[match.submitter] = (weight + match.weight * match.left, slots + match.left)
        return use

    def total_weight(self, config: CycleConfig) -> float:
        """Weight of the whole pool, used or not, as far as it counts for shares (NEG-35)."""
        self._adopt(config)
        return max(0.0, self._counted)

    def limits_in_use(self) -> dict[str, float]:
        """Units of concurrency limits in use by name, as of the last `flush`; matches on their way count too."""
        under_way = [(parse(p.limits), p.left) for waiting in self.pending.values() for p in waiting if p.limits]
        return counts_in(self._table, under_way)

    def _adopt(self, config: CycleConfig) -> None:
        """Facts depend on the knobs about weights and charging: read all ads anew when these are others."""
        if config is self._config:
            return
        # By their texts: the same expression read twice is two objects.
        same = all(str(getattr(config, name)) == str(getattr(self._config, name)) for name in _CHARGING)
        self._config = config
        if same:
            return
        for where in (self._facts, self._away):
            for name, old in list(where.items()):
                facts = where[name] = self._read(QuickAd(old.ad.read()), old.owner)
                self._forget(old)
                self._count(facts)
        # What was `_counted` of those that are away is not.
        self._counted = sum(facts.counted for facts in self._facts.values())


def _weight_of(ad: QuickAd, config: CycleConfig) -> tuple[float, frozenset[str] | None]:
    """`slot_weight`, and of which attributes it is made, as far as that is known; mostly SlotWeight is a number, or the
    name of another attribute that is one."""
    if not config.use_slot_weights:
        return 1.0, frozenset()
    if not config.force_slot_weight:
        names = _WEIGHT
        cell = ad.get("slotweight")
        if isinstance(cell, AttrRef) and cell.scope is None and not cell.absolute:
            names = _WEIGHED_BY_CPUS if cell.key == "cpus" else _WEIGHT | {cell.key}
            cell = ad.get(cell.key)
        if type(cell) in (int, float) and 0 <= cell <= HEAVIEST:  # type: ignore[operator]
            return float(cell), names  # type: ignore[arg-type]
    return slot_weight(ad.ad(), config), None


def _room(ad: QuickAd | _Plain) -> float:
    """A rough measure of what a slot can take: more than before means a cycle may find something."""
    if ad.eval_string("State") in _TAKEN:
        return 0.0
    if ad.eval("PartitionableSlot") is True:
        cpus = ad.eval("Cpus")
        return float(cpus) if isinstance(cpus, int | float) else 0.0
    return 1.0


def _moment(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 < value < 1e11 else None


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e11 else 0.0


def new_table() -> Table:
    """An empty table for slots: partitionable ones, which change during a cycle, stand together at the end."""
    return Table(leading="PartitionableSlot")


def snapshot_of(
    ads: Iterable[ClassAd],
    requests: Mapping[str, Sequence[Request]],
    records: Mapping[str, Record],
    config: CycleConfig,
    *,
    in_use: Mapping[str, tuple[float, int]] | None = None,
    total_weight: float | None = None,
    withheld: frozenset[str] = frozenset(),
    nameless: frozenset[str] = frozenset(),
    demand: Mapping[str, float] | None = None,
    running: frozenset[str] = frozenset(),
    preempted: Sequence[Preempted] = (),
) -> Snapshot:
    """A snapshot of slots given by their ads, each with a Name of its own.

    in_use: what is missing is counted from the claimed slots. total_weight: of the slots that pass the pool size
    constraint, if it is not given. withheld: names of slots that may not be given away (a match is on its way); those
    that fail the slot constraint come besides. nameless: names of slots whose claim id is missing.
    """
    ads = list(ads)
    table = new_table()
    for ad in ads:
        table.put(str(ad.eval("Name")), ad)
    table.flush()
    frame = Frame(table)
    matching = Matching(frame, 0.0)
    weighed = matching.together(lambda: weights(matching, config))  # it may move rows: their keys only now
    weight = dict(zip(table.keys, weighed.tolist(), strict=True))
    passing = {
        str(ad.eval("Name"))
        for ad in ads
        if config.slot_constraint is None or evaluate(config.slot_constraint, ad) is True
    }
    use: dict[str, tuple[float, int]] = {}
    for ad in ads:
        user, name = charged_to(ad, discount_suspended=config.discount_suspended), str(ad.eval("Name"))
        if user and name in passing:  # a slot outside the constraint is another negotiator's to account for (MUL-02)
            weighted, number = use.get(user, (0.0, 0))
            use[user] = (weighted + weight[name], number + 1)
    if total_weight is None:
        counted = [
            a for a in ads if config.poolsize_constraint is None or evaluate(config.poolsize_constraint, a) is True
        ]
        total_weight = sum(weight[name] for ad in counted if (name := str(ad.eval("Name"))) in passing)
    keys, order = table.keys, NameOrder()
    order.update(keys, ())
    table.companions = {
        Slots.OFFERED: np.array([key in passing and key not in withheld for key in keys], np.bool_),
        Slots.NAMED: np.array([key not in nameless for key in keys], np.bool_),
        Slots.PLACE: order.numbers(keys),
    }
    return Snapshot(
        slots=Slots(matching, Matching(Frame(table), 0.0)),
        requests=requests,
        records=records,
        in_use=use if in_use is None else in_use,
        total_weight=total_weight,
        demand=demand or {},
        running=running,
        limits_in_use=counts_of(ads),
        preempted=preempted,
    )
