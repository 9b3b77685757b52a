"""`roost status -compact`: the slots of a machine as one line, as HTCondor's condor_status rolls them up.

Slots of one type of a machine are one row; other types follow under the slot's name. A partitionable slot stands for
its children, whose states its ad lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from roost.cli.print_mask import Cells, Column, integer, real, string, truth
from roost.cli.printas import ACTIVITIES, STATES, words_of
from shared.classad import ClassAd
from shared.classad.column_page import Sheet

_UNAVAILABLE: Final = ("drained", "owner", "shutdown", "delete")
_BUSY: Final = ("matched", "claimed", "preempting")
#: What rolling slots up reads of them, beside what the columns show; the second of tables of GPUs.
READS: Final = (
    "Machine", "Name", "SlotTypeId", "PartitionableSlot", "DynamicSlot", "NumDynamicSlots", "SlotBackfill",
    "BackfillSlot", "State", "Cpus", "Memory", "RecentJobStarts", "ChildState", "ChildActivity", "ChildMemory",
)  # fmt: skip
DEVICES: Final = ("AssignedGPUs", "AvailableGPUs", "OfflineGPUs")


@dataclass(slots=True)
class Row:
    """One slot on its way into the line of its machine."""

    place: int  # of its ad
    machine: str
    kind: int | None  # the slot type's number
    label: str
    partitionable: bool
    busy: bool
    exhausted: bool
    backfill: bool
    platform: str | None
    slots: int | None
    code: str | None
    cpus: int | None
    memory: float | None
    starts: float | None
    largest: float | None
    cooked: bool = False
    renamed: bool = False
    assigned: str | None = None

    def named(self, place: int, machine: str, name: str, platform: str | None) -> Row:
        """One that differs only in these."""
        return Row(
            place, machine, self.kind, name.partition("@")[0], self.partitionable, self.busy, self.exhausted,
            self.backfill, platform, self.slots, self.code, self.cpus, self.memory, self.starts, self.largest,
            assigned=self.assigned,
        )  # fmt: skip


def row_of(place: int, ad: ClassAd, platform: str | None, code: str | None) -> Row:
    """What an ad contributes. code: its cell in the column ST."""
    partitionable = truth(ad, "PartitionableSlot")
    cpus = real(ad, "Cpus")
    state = (string(ad, "State") or "").lower()
    memory, starts = real(ad, "Memory"), real(ad, "RecentJobStarts")
    children = ad.eval("ChildMemory")
    sizes = [one for one in children if isinstance(one, int | float)] if isinstance(children, list) else []
    largest = max(sizes) / 1024.0 if sizes else None
    kind = integer(ad, "SlotTypeId")
    row = Row(
        place=place,
        machine=string(ad, "Machine") or "",
        kind=None if kind is None else abs(kind),
        label=(string(ad, "Name") or "").partition("@")[0],
        partitionable=partitionable,
        busy=state in _BUSY and not (partitionable and state == "claimed"),
        exhausted=partitionable and cpus is not None and cpus < 0.1,
        backfill=truth(ad, "SlotBackfill") or truth(ad, "BackfillSlot"),
        platform=platform,
        slots=integer(ad, "NumDynamicSlots"),
        code=code,
        cpus=integer(ad, "Cpus"),
        memory=None if memory is None else memory / 1024.0,
        starts=None if starts is None else starts / 20.0,
        largest=largest,
        assigned=string(ad, "AssignedGPUs"),
    )
    if partitionable and code is not None:
        row.code = _with_children(code, ad, row)
    return row


def rows_of(ads: Sequence[ClassAd], platforms: Sequence[str | None], codes: Sequence[str | None]) -> list[Row]:
    """The same of many ads, worked out once for those that differ only in their names."""
    if not isinstance(ads, Sheet):
        return [row_of(place, ad, platforms[place], codes[place]) for place, ad in enumerate(ads)]
    alike = ads.alike(
        [*(name.lower() for name in READS if name not in ("Machine", "Name")), "activity", "assignedgpus"]
    )
    known = {place: row_of(place, ads[place], None, codes[place]) for place in dict.fromkeys(alike)}
    machines, names = (
        [cell if type(cell) is str else string(ads[at], name) or "" for at, cell in enumerate(ads.cells(name.lower()))]
        for name in ("Machine", "Name")
    )
    return [
        known[first].named(place, machine, name, platform)
        for place, (first, machine, name, platform) in enumerate(zip(alike, machines, names, platforms, strict=True))
    ]


def _with_children(code: str, ad: ClassAd, row: Row) -> str:
    """A partitionable slot's code with what its children do."""
    child_state = _consensus(ad, "ChildState", STATES, "preempting")
    child_activity = _consensus(ad, "ChildActivity", ACTIVITIES, "vacating")
    state, activity = code[0], code[1]
    below_state, below_activity = child_state or " ", child_activity or " "
    if (state, activity) == ("U", "i") and row.exhausted:
        state, activity = below_state, below_activity
    elif state == "D" and below_state == "C":
        state = below_state
    state = below_state if below_state == "P" else state
    activity = below_activity if below_activity == "v" else activity
    if child_state is not None and state != below_state:
        state = "*"
    if child_activity is not None and activity != below_activity:
        activity = "*"
    return state + activity


def _consensus(ad: ClassAd, name: str, letters: Mapping[str, str], strongest: str) -> str | None:
    """The letter that all items of a list have; # where they differ, but for one that decides; None without any."""
    items = ad.eval(name)
    found: str | None = None
    for item in items if isinstance(items, list) else ():
        letter = letters.get(item.lower()) if isinstance(item, str) else None
        if letter is None or letter == found:
            continue
        if found is None:
            found = letter
        elif letter == letters[strongest]:
            return letter
        else:
            found = "#"
    return found


def fold(rows: Sequence[Row], amounts: bool) -> list[Row]:
    """The rows to show of slots in order of their machines. amounts: memory and cores have columns."""
    if not rows:
        return []
    kept = [rows[0]]
    last_is_new = False
    for row in rows[1:]:
        head = kept[-1]
        same = row.machine == head.machine
        if same and row.kind == head.kind:
            _cook(head, amounts)
            _add(head, row, amounts)
            last_is_new = False
            continue
        _cook(head, amounts)
        row.renamed = same
        kept.append(row)
        last_is_new = True
    if last_is_new:
        _cook(kept[-1], amounts)
    return kept


def heads(ads: Sequence[ClassAd]) -> list[int]:
    """The places of the slots that begin a line, of slots in order of their machines."""
    rows = [row_of(place, ad, None, None) for place, ad in enumerate(ads)]
    return [row.place for row in fold(rows, False)]


def _cook(row: Row, amounts: bool) -> None:
    """Make a slot that is no partitionable one the beginning of a sum."""
    if row.partitionable or row.cooked:
        return
    if amounts:
        row.largest = row.memory or 0.0
        if row.busy:
            row.cpus = None if row.cpus is None else 0
            row.memory = None if row.memory is None else 0.0
    row.slots = 1
    row.cooked = True


def _add(head: Row, row: Row, amounts: bool) -> None:
    largest = 0.0
    if amounts:
        largest = (row.largest if row.partitionable else row.memory) or 0.0
        if head.largest is not None:
            head.largest = max(head.largest, largest)
    if amounts and (row.partitionable or not row.busy):
        head.memory = None if head.memory is None else head.memory + largest
        head.cpus = None if head.cpus is None else head.cpus + (row.cpus or 0)
    more = (row.slots or 0) if row.partitionable else 1
    head.slots = 1 + more if head.slots is None else head.slots + more
    if head.starts is not None:
        head.starts += row.starts or 0.0
    if head.code is not None:
        other = row.code or "  "
        head.code = "".join(a if a == b else "*" for a, b in zip(head.code, other, strict=True))


def cells_of(rows: Sequence[Row], cells: Cells, columns: Sequence[Column], places: Mapping[str, int]) -> Cells:
    """The cells of the rows to show, with what folding made of them."""
    found: Cells = [[texts[row.place] for row in rows] for texts in cells]
    for place, row in enumerate(rows):
        if row.renamed and row.label:
            found[0][place] = f"   {row.label}"
    found[2] = _numbers([row.slots for row in rows], columns[2])
    for name, values in (
        ("cpus", [row.cpus for row in rows]),
        ("memory", [row.memory for row in rows]),
        ("starts", [row.starts for row in rows]),
        ("largest", [row.largest for row in rows]),
    ):
        if name in places:
            found[places[name]] = _numbers(values, columns[places[name]])
    if "code" in places:
        found[places["code"]] = [row.code for row in rows]
    return found


def _numbers(values: Sequence[float | None], column: Column) -> list[str | None]:
    assert column.form is not None
    return [None if value is None else column.form.number(value) for value in values]


# --- GPUs


class Devices:
    """What the ads tell of each GPU, in the order they came."""

    def __init__(self) -> None:
        self._known: dict[str, ClassAd] = {}
        self._offline: set[str] = set()

    def take(self, ad: ClassAd) -> list[str]:
        """Learn from an ad; keys of the totals for devices that are new."""
        found = []
        gpus = ad.eval("AvailableGPUs")
        for gpu in gpus if isinstance(gpus, list) else ():
            self._offline.update(words_of(string(ad, "OfflineGPUs") or ""))
            if not isinstance(gpu, ClassAd):
                continue
            name = string(gpu, "Id") or str(gpu)
            if name in self._known or not len(gpu):
                continue
            self._known[name] = gpu
            key = _device_key(gpu)
            if key:
                found.append(key)
        return found

    def cells(self, assigned: str | None, *, width: int = 10) -> list[str | None]:
        """Capability, memory and names of devices; None where one of them is not known yet."""
        ids = words_of(assigned or "")
        found = [self._known[one] for one in ids if one in self._known]
        missing = any(one not in self._known and one not in self._offline for one in ids)

        def span(attribute: str, shown: str, unit: str, divisor: float) -> str | None:
            numbers = [number for one in found if (number := real(one, attribute)) is not None]
            if missing or len(numbers) < len(found) or not numbers or max(numbers) <= 0:
                return None
            low, high = min(numbers) / divisor, max(numbers) / divisor
            text = f"{low:{shown}} to {high:{shown}}{unit}" if low < high else f"{high:{shown}}{unit}"
            return text.rjust(width)

        names = [name for one in found if (name := string(one, "DeviceName")) is not None]
        complete = not missing and len(names) == len(found)
        return [
            span("Capability", ".1f", "", 1.0),
            span("GlobalMemoryMB", ".1f", " GB", 1024.0),
            ",".join(sorted(set(names))) if names and complete else None,
        ]


def _device_key(gpu: ClassAd) -> str:
    capability = real(gpu, "Capability")
    if capability is None:
        return ""
    key = f"Capability {capability:.1f}"
    memory = integer(gpu, "GlobalMemoryMb")
    if memory is not None:
        key += f", {memory / 1024.0:.1f} GB"
    name = string(gpu, "DeviceName")
    if name is not None:
        name = name.removeprefix("NVIDIA ")
        if name.endswith("GB") and name[-3:-2].isdigit():
            name = name[:-3].rstrip("0123456789").removesuffix("-")
        key += f", {name}"
    return key
