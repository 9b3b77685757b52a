"""The slots of one cycle as arrays: how they stand after what was handed out so far, and the best of them in order
(spec rows NEG-21, NEG-22).

Arrays have one item a row of the snapshot's table, whose rows keep their places during a cycle (`RowsMoved` is raised
when a question that is new to the table moves them; the cycle then starts again).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.match.model import CycleConfig, Slots
from shared.classad import ClassAd, evaluate, parse_expr, unparse
from shared.classad.columnar import OTHER_SIDE, Frame, Matching, Table
from shared.classad.columnar.column import ABSENT, BOOL, INT, OTHER, REAL, STRING, Column
from shared.classad.columnar.frame import numbers
from shared.classad.expr import AttrRef, Expr, fold

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
RowNumbers = NDArray[np.intp]

#: Attributes of slots that every cycle looks at.
NAMES: Final = (
    "state",
    "activity",
    "partitionableslot",
    "dynamicslot",
    "offline",
    "draining",
    "slotweight",
    "cpus",
    "memory",
    "disk",
    "machine",
    "machineresources",
    "consumptioncpus",
    "currentrank",
    "retirementtimeremaining",
    "requirements",
    "start",
    "rank",
)
#: What jobs' Requirements and Rank name most often, of machines and, without a scope, of jobs.
LIKELY: Final = (
    *("arch", "opsys", "opsysandver", "opsysmajorver", "opsysname", "microarch", "kflops", "mips", "totalcpus"),
    *("totalmemory", "totaldisk", "totalslots", "detectedcpus", "detectedmemory", "loadavg", "condorloadavg"),
    *("totalloadavg", "keyboardidle", "consoleidle", "filesystemdomain", "uiddomain", "hasfiletransfer", "hasdocker"),
    *("hassingularity", "hasselfcheckpointtransfers", "hasjobdeferral", "hasmpi", "gpus", "slotid", "owner"),
    *("remoteowner", "totaljobruntime", "requestcpus", "requestmemory", "requestdisk", "requestgpus"),
    *("diskusage", "imagesize", "jobuniverse", "user"),
)
#: Who has a slot: first whoever already waits to preempt it (PRE-06), then its user.
USER_NAMES: Final = ("PreemptingAccountingGroup", "PreemptingUser", "AccountingGroup", "RemoteUser")
#: A heavier slot is a mistake, and infinity in an accounting record would stay there for ever.
HEAVIEST: Final = 1e9
STANDARD: Final = ("Cpus", "Memory", "Disk")
MY: Final = AttrRef("MY")
_CPUS: Final = AttrRef("Cpus", MY)
_CLAIMED: Final = parse_expr('MY.State == "Claimed" || MY.State == "Preempting"')
_OFFLINE: Final = parse_expr("MY.Offline =?= true")
_LEAVING: Final = parse_expr("MY.DaemonShutdown =?= true")
SLOT_WEIGHT: Final = AttrRef("SlotWeight", MY)
RANK: Final = AttrRef("Rank", MY)


class RowsMoved(Exception):
    """Rows of the table changed their places."""


@dataclass(slots=True)
class SlotArrays:
    """All slots of a cycle, and what is left of them.

    open: rows whose slot may be given away without preemption. held: claimed rows that preemption may free. Both shrink
    as slots are taken. barred: by reason code, rows that are neither, for the reasons. weight: SlotWeight (NEG-37);
    has_weight: whether the ad has one.
    resources: names of what partitionable slots are carved of; free: what is left, by folded name, as live columns;
    listed: by folded name, the rows whose MachineResources name a resource. emptied: see Slots.
    """

    matching: Matching
    frame: Frame
    version: int
    place: NDArray[np.int64]
    weight: Floats
    has_weight: Bools
    partitionable: Bools
    claimed: Bools
    open: Bools
    held: Bools
    taken: Bools
    barred: list[tuple[str, Bools]]
    resources: tuple[str, ...]
    free: dict[str, Column]
    listed: dict[str, Bools]
    emptied: Matching
    taken_rows: int = 0  # so many were given away whole
    _is_emptied: bool = False

    @property
    def size(self) -> int:
        return len(self.place)

    def check(self) -> None:
        if self.frame.version != self.version:
            raise RowsMoved

    def free_weight(self) -> float:
        """Weight of the slots that are open."""
        return float(self.weight[self.open].sum())

    def left(self) -> Bools:
        """(n,) bool: slots that may be given away still, by preemption or without."""
        return self.open | self.held

    def suits_when_empty(self, job: ClassAd) -> Bools:
        """(n,) bool: where job and slot would match, were nothing of partitionable slots in use. Where an ad does not
        tell a whole amount it is what was left."""
        suits = self._emptied().match(job)
        self.check()
        return suits

    def wanted_when_empty(self, job: ClassAd) -> Bools:
        """(n,) bool: where the job's own Requirements would be true then, whatever the slot's are."""
        wanted = np.ones(self.size, np.bool_)
        for each in self._emptied().conjuncts(job, side=OTHER_SIDE):
            wanted[each.start : each.stop] &= each.mask
        self.check()
        return wanted

    def _emptied(self) -> Matching:
        empty = self.emptied
        if not self._is_emptied:
            frame = empty.table
            assert isinstance(frame, Frame)
            columns = {name: self.frame.columns[name] for name in self.frame.replaced}
            frame.replace(columns | {key: self.whole(key) for key in self.free})
            empty.now, empty.meter = self.matching.now, self.matching.meter
            self._is_emptied = True
        return empty

    @property
    def parts(self) -> Bools:
        """(n,) bool: dynamic slots."""
        dynamic = self.frame.columns["dynamicslot"]
        found: Bools = (dynamic.tag == BOOL) & (dynamic.number == 1)
        return found

    def parts_of(self, machines: Bools) -> Bools:
        """(n,) bool: dynamic slots in use on the machines that these slots are on."""
        column = self.frame.columns["machine"]
        known = column.tag == STRING
        parts: Bools = self.parts & self.claimed & known
        return parts & np.isin(column.code, column.code[machines & known])

    def asleep(self) -> Bools:
        """(n,) bool: slots that sleep."""
        return next(rows for code, rows in self.barred if code == "offline")

    def whole(self, key: str) -> Column:
        """How much of a resource (of `free`) slots have in all: what is left of it where they do not tell."""
        left = self.free[key]
        whole = self.frame.columns[whole_amount(key)]
        told = (whole.tag == INT) | (whole.tag == REAL)
        return numbers(np.where(told, whole.number, left.number), np.where(told, whole.tag, left.tag))

    def take(self, rows: RowNumbers) -> None:
        """Mark whole slots as given away."""
        self.open[rows] = False
        self.held[rows] = False
        self.taken[rows] = True
        self.taken_rows += len(rows)

    def carve(self, rows: RowNumbers, keys: Sequence[str], used: Floats, weights: Floats) -> None:
        """Take resources from some partitionable slots, which weigh so much afterwards. used: (R, rows), by key."""
        for key, amount in zip(keys, used, strict=True):
            column = self.free.get(key)
            if column is not None:
                column.number[rows] -= amount
                if amount.any() and np.any(amount % 1):
                    column.tag[rows] = np.where(column.number[rows] % 1 == 0, column.tag[rows], REAL)
                    column.count()
        self.weight[rows] = weights
        self.frame.changed()


def frame_of(slots: Slots) -> Frame:
    frame = slots.matching.table
    assert isinstance(frame, Frame)
    return frame


def arrays_of(
    slots: Slots, config: CycleConfig, now: float, extra: Mapping[str, Column], changing: Iterable[str]
) -> SlotArrays:
    """Make the arrays as a cycle begins. `extra`: columns that no ad has; `changing`: names of those that change."""
    matching, frame = slots.matching, frame_of(slots)
    table = frame.table
    # From the table as it is: the frame still has what the last cycle made of it.
    partitionable = _true_in(table, "PartitionableSlot")
    resources, free, listed = _resources(table, partitionable)
    changing = [name for name in changing if name in extra]
    first = 0 if changing or not free else int(np.flatnonzero(partitionable)[0])
    frame.replace({**extra, **free}, live=[*free, *changing], live_from=first)
    matching.now = now

    def work() -> SlotArrays:
        weight = weights(matching, config)
        claimed = matching.mask(_CLAIMED) & ~partitionable
        companions = table.companions
        barred: list[tuple[str, Bools]] = [
            ("offline", matching.mask(_OFFLINE)),
            ("no-claim-id", ~companions[Slots.NAMED]),
            ("match-under-way", ~companions[Slots.OFFERED]),
        ]
        if config.trim_shutdown_s > 0:
            barred.append(("shutting-down", Matching(frame, now + config.trim_shutdown_s).mask(_LEAVING)))
        fit = np.ones(len(frame), np.bool_)
        for _, rows in barred:
            fit &= ~rows
        return SlotArrays(
            matching=matching,
            frame=frame,
            version=frame.version,
            place=companions[Slots.PLACE],
            weight=weight,
            has_weight=frame.columns["slotweight"].tag != ABSENT if config.use_slot_weights else fit,
            partitionable=partitionable,
            claimed=claimed,
            open=fit & ~claimed,
            held=claimed & fit if config.consider_preemption else np.zeros(len(frame), np.bool_),
            taken=np.zeros(len(frame), np.bool_),
            barred=barred,
            resources=resources,
            free=free,
            listed=listed,
            emptied=slots.emptied,
        )

    version = frame.version
    arrays = work()
    if arrays.version != version:
        raise RowsMoved
    return arrays


def _true_in(table: Table, name: str) -> Bools:
    """Rows in which an attribute is TRUE by itself."""
    table.want((fold(name),))
    column = table.columns[fold(name)]
    true: Bools = (column.tag == BOOL) & (column.number == 1)
    for row in np.flatnonzero(column.tag == OTHER).tolist():
        true[row] = table.ad(row).eval(name) is True
    return true


def weights(matching: Matching, config: CycleConfig) -> Floats:
    """Weight of each slot: 1 without weights; SlotWeight; where it is missing, the negotiator's SLOT_WEIGHT; what is
    negative or no number counts 1 (NEG-37)."""
    size = len(matching.table)
    if not config.use_slot_weights:
        return np.ones(size)
    own = own_weight(config)
    matching.values(SLOT_WEIGHT)  # has the column read
    if config.force_slot_weight:
        return _weighed(matching, own)
    has = matching.table.columns["slotweight"].tag != ABSENT
    if has.all():
        return _weighed(matching, SLOT_WEIGHT).copy()
    return np.where(has, _weighed(matching, SLOT_WEIGHT), _weighed(matching, own))


def _weighed(matching: Matching, expr: Expr) -> Floats:
    values = matching.values(expr)
    good = values > 0
    if good.all():
        return np.where(values <= HEAVIEST, values, 1.0)
    good |= matching.mask(_is_nought(expr))  # 0 is a weight, but what is no number is 0 too
    return np.where(good & (values <= HEAVIEST), values, 1.0)


@lru_cache(maxsize=16)
def _is_nought(expr: Expr) -> Expr:
    text = unparse(expr)
    return parse_expr(f"({text}) == 0 && !isBoolean({text})")


def own_weight(config: CycleConfig) -> Expr:
    """The negotiator's SLOT_WEIGHT."""
    return config.slot_weight or _CPUS


def parts_cost(arrays: SlotArrays, config: CycleConfig) -> bool:
    """Whether every part of a partitionable slot is charged a core at least: weights are cores, as they are by default.
    By other weights (a constant, say) a part may be had for nothing."""
    if not config.use_slot_weights:
        return True
    rows = arrays.partitionable & arrays.open
    cpus = arrays.free.get("cpus")
    if cpus is None or np.any(np.isnan(cpus.number[rows])):
        return not rows.any()
    has = arrays.has_weight & (not config.force_slot_weight)
    if np.any(rows & ~has) and not _is_cores(own_weight(config)):
        return False
    column = arrays.frame.columns["slotweight"]
    told = rows & has
    if np.any(column.tag[told] != OTHER):
        return False
    return all(_is_cores(arrays.frame.codes.exprs[code]) for code in np.unique(column.code[told]).tolist())


def _is_cores(expr: Expr) -> bool:
    if not isinstance(expr, AttrRef) or expr.key != "cpus" or expr.absolute:
        return False
    scope = expr.scope
    return scope is None or (isinstance(scope, AttrRef) and scope.key == "my" and scope.scope is None)


def slot_weight(ad: ClassAd, config: CycleConfig) -> float:
    """The weight of one slot, as `weights` has it."""
    if not config.use_slot_weights:
        return 1.0
    own = config.force_slot_weight or ad.lookup("SlotWeight") is None
    value = evaluate(own_weight(config) if own else SLOT_WEIGHT, ad)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= HEAVIEST:
        return 1.0
    return float(value)


def whole_amount(key: str) -> str:
    """The folded name of the attribute that says how much of a resource the whole of a partitionable slot has."""
    return f"totalslot{key}"


def _resources(table: Table, partitionable: Bools) -> tuple[tuple[str, ...], dict[str, Column], dict[str, Bools]]:
    """Names of what partitionable slots have, columns of their own of it, and which rows list it."""
    rows = np.flatnonzero(partitionable)
    if not len(rows):
        return (), {}, {}
    table.want(("machineresources",))
    texts = table.columns["machineresources"]
    names = list(STANDARD)
    listed: dict[str, Bools] = {}
    for code in np.unique(texts.code[rows][texts.tag[rows] == STRING]).tolist():
        for name in table.codes.texts[code].replace(",", " ").split():
            if fold(name) != "swap":
                names.append(name)
                some = listed.setdefault(fold(name), np.zeros(len(table), np.bool_))
                some |= texts.code == code
    by_key = {fold(name): name for name in reversed(names)}
    table.want([*by_key, *map(whole_amount, by_key)])
    free: dict[str, Column] = {}
    for key, name in by_key.items():
        column = table.columns[key]
        if column.tags == 1 << ABSENT:
            continue
        own = column.taken(np.arange(len(table)))
        own.number, own.code, own.folded = np.array(own.number), np.array(own.code), np.array(own.folded)
        for row in np.flatnonzero(own.tag == OTHER).tolist():  # an amount that is an expression: its value, as of now
            value = table.ad(row).eval(name)
            number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
            own.tag[row] = ABSENT if number is None else INT if isinstance(number, int) else REAL
            own.number[row] = np.nan if number is None else number
            own.code[row] = own.folded[row] = -1
        own.count()
        free[key] = own
    return tuple(by_key.values()), free, listed
