"""The slots of a pool as an explanation looks at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.classad import ClassAd, parse_expr
from shared.classad.columnar import Matching, Table
from shared.classad.columnar.column import STRING
from shared.classad.expr import AttrRef, Expr, fold

Mask = NDArray[np.bool_]

_STANDARD: Final = ("Cpus", "Memory", "Disk")
#: Columns that every explanation reads, and those that most jobs look at: asked for at once, as further ones cost a
#: look at all ads.
COLUMNS: Final = (
    "state",
    "partitionableslot",
    "dynamicslot",
    "offline",
    "draining",
    "machinelastmatchtime",
    "remoteuser",
    "accountinggroup",
    "machine",
    "machineresources",
    *(fold(f"TotalSlot{name}") for name in _STANDARD),
    *("name", "cpus", "memory", "disk", "gpus", "totalslotgpus", "arch", "opsys", "opsysandver", "filesystemdomain"),
    *("hasfiletransfer", "hasdocker", "hascontainer", "kflops", "microarch", "rank"),
)
_SCOPES: Final = frozenset(("my", "self", "target", "other", "parent", "root", "toplevel"))
#: Names that a job's conditions can lead to; beyond that columns are read as they are met.
_MOST_NAMES: Final = 500
CACHE_BYTES: Final = 32 << 20
_MY: Final = AttrRef("MY")
_CLAIMED: Final = parse_expr('State == "Claimed" || State == "Preempting"')
_OWNER: Final = parse_expr('State == "Owner"')
_PARTITIONABLE: Final = parse_expr("PartitionableSlot =?= true")
_DYNAMIC: Final = parse_expr("DynamicSlot =?= true")
_DRAINING: Final = parse_expr("Draining =?= true")
_OFFLINE: Final = parse_expr("Offline =?= true")
#: Collectors write it into the ad of a slot that sleeps when a job is matched with it; who is awake has none.
_CALLED: Final = parse_expr("Offline =?= true && MachineLastMatchTime =!= undefined")


class Slots:
    """A table of slot ads by name, as of its last flush, with `now` for time() in their expressions.

    `unoffered`: by the name of a slot, why a cycle would not hand it out though it suits: "match-under-way" or
    "no-claim-id" (see reasons.SLOTS); `constraint`: a condition that slots must satisfy for that, None: none;
    `waking`: slots that sleep and that jobs are matched with. `patience` is called often and may raise to end an
    explanation that takes too long. The table may get further columns and another order of rows, so nobody else may
    use it meanwhile.
    """

    def __init__(
        self,
        table: Table,
        now: float,
        unoffered: Mapping[str, str] | None = None,
        patience: Callable[[], None] | None = None,
        constraint: Expr | None = None,
        waking: Collection[str] = (),
    ) -> None:
        self.table: Final = table
        self.constraint: Final = constraint
        self.matching: Final = Matching(table, now, CACHE_BYTES)
        self.matching.patience = patience
        self.unoffered: Final = unoffered or {}
        self.waking: Final = frozenset(waking)
        table.want(COLUMNS)
        words = {word for text in self._texts("machineresources") for word in text.split()}
        #: What partitionable slots are divided into: folded name -> name, and -> the name of its whole amount.
        self.consumables: Final = {fold(word): word for word in (*sorted(words), *_STANDARD)}
        self.totals: Final = {key: f"TotalSlot{word}" for key, word in self.consumables.items()}
        table.want(fold(name) for name in self.totals.values())

    def __len__(self) -> int:
        return len(self.table)

    def prepare(self, job: ClassAd) -> None:
        """Read all columns that a job's Requirements may ask for in one go."""
        seen: set[str] = {"requirements"}
        todo = ["requirements"]
        while todo and len(seen) < _MOST_NAMES:
            cell = job.find(todo.pop())
            if isinstance(cell, Expr):
                fresh = self.table.names(cell) - seen
                seen |= fresh
                todo.extend(fresh)
        self.table.want(sorted(seen - _SCOPES))  # a name without a scope is looked up in the slot too

    def look(self) -> View:
        """What the slots are in the present order of the rows."""
        mask = self.matching.mask
        left_out = np.zeros(len(self), np.bool_) if self.constraint is None else ~mask(self.constraint)
        return View(
            left_out=left_out,
            claimed=mask(_CLAIMED) & ~mask(_PARTITIONABLE),
            owner=mask(_OWNER),
            partitionable=mask(_PARTITIONABLE),
            dynamic=mask(_DYNAMIC),
            draining=mask(_DRAINING),
            offline=mask(_OFFLINE),
            waking=mask(_OFFLINE) & (mask(_CALLED) | self.named(self.waking)),
        )

    def numbers(self, name: str) -> NDArray[np.float64]:
        """An attribute of each slot; 0 where it is no number."""
        found: NDArray[np.float64] = np.nan_to_num(self.matching.values(AttrRef(name, _MY)))
        return found

    def named(self, names: Iterable[str]) -> Mask:
        """Those of these names that are there."""
        rows = np.zeros(len(self), np.bool_)
        rows[[self.table.row(name) for name in names if name in self.table]] = True
        return rows

    def users(self, rows: Mask) -> Counter[str]:
        """Who has these claimed slots, with how many."""
        users: Counter[str] = Counter()
        for row in np.flatnonzero(rows).tolist():
            users[self._text(row, "accountinggroup") or self._text(row, "remoteuser") or "somebody"] += 1
        return users

    def on_machines_of(self, rows: Mask) -> Mask:
        """Slots on the machines that these slots are on."""
        column = self.table.columns["machine"]
        known: Mask = column.tag == STRING
        same: Mask = np.isin(column.code, column.code[rows & known])
        return known & same

    def _text(self, row: int, key: str) -> str:
        value = self.table.columns[key].cell(row, self.table.codes)
        return value if isinstance(value, str) else ""

    def _texts(self, key: str) -> list[str]:
        """The different strings of a column."""
        column = self.table.columns[key]
        return [self.table.codes.texts[code] for code in np.unique(column.code[column.tag == STRING]).tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Masks over the rows. `claimed`: static and dynamic slots that have a user; `left_out`: by the constraint;
    `draining`: their machine is drained; `offline`: they sleep; `waking`: and a job is matched with them."""

    claimed: Mask
    owner: Mask
    partitionable: Mask
    dynamic: Mask
    draining: Mask
    offline: Mask
    waking: Mask
    left_out: Mask
