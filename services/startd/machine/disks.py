"""The disk of slots as what is free changes (spec row SLT-08).

A slot's Disk is a fraction of what its partition has: what is free, and what the jobs of this startd use of it, as that
is theirs already. Dynamic slots keep what they were given, so a partitionable slot whose jobs were promised more than
there is left has nothing to give, and gets on its feet again when they go.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.startd.book.amounts import DISK, Amounts
from services.startd.book.partition import SlotKind
from services.startd.book.slots import Slot
from services.startd.machine.division import share_of_disk


def rescale(slots: Iterable[Slot], totals_kib: dict[str, int]) -> list[str]:
    """Give static and partitionable slots their share of these totals, by partition. Names of those that changed."""
    changed = []
    for slot in slots:
        total = totals_kib.get(slot.partition)
        if slot.kind is SlotKind.DYNAMIC or total is None:
            continue
        more = share_of_disk(slot.disk_share, total) - slot.total[DISK]
        if more:
            slot.total = slot.total.plus(Amounts({DISK: more}))
            slot.free = slot.free.plus(Amounts({DISK: more}))
            slot.version += 1
            changed.append(slot.name)
    return changed
