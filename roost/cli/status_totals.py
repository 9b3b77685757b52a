"""The totals below the tables of `roost status`: counts by platform, activity or name, and their sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from roost.cli.print_mask import integer, real, string, truth
from roost.cli.printas import platform, words_of
from shared.classad import ClassAd
from shared.classad.column_page import Sheet

_NORMAL: Final = (
    ("Total", 6), ("Owner", 5), ("Claimed", 7), ("Unclaimed", 9), ("Matched", 7), ("Preempting", 10), ("Drain", 6),
    ("Backfill", 8), ("BkIdle", 6),
)  # fmt: skip
_BY_STATE: Final = (
    ("Total", 6), ("Owner", 5), ("Unclaimed", 9), ("Claimed", 7), ("Preempting", 10), ("Matched", 7), ("Drain", 6),
    ("Backfill", 8), ("BkIdle", 6),
)  # fmt: skip
#: State -> its heading.
_STATES: Final = {
    "owner": "Owner", "claimed": "Claimed", "unclaimed": "Unclaimed", "matched": "Matched",
    "preempting": "Preempting", "drained": "Drain", "backfill": "Backfill",
}  # fmt: skip


@dataclass(slots=True)
class Sums:
    """What is counted under one key."""

    counts: Counter[str] = field(default_factory=Counter)
    load: float = 0.0
    memory: float = 0.0
    backfill_memory: float = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of totals. add: counts an ad, and says whether it was complete. key: None where the ad has none. reads:
    attributes that both look at, where children do not count (see compact.READS)."""

    heading: str
    key: Callable[[ClassAd], str | None]
    add: Callable[[Sums, ClassAd, bool, bool], bool]
    show: Callable[[Sums], str]
    sum_only: bool = False  # groups have no numbers
    reads: tuple[str, ...] = ()
    same: tuple[str, ...] = ()  # folded names of what decides all, where nothing but counts is added up
    newline: str = "\n"


class Look(NamedTuple):
    """How a slot stands in a table of machines. spare: a partitionable slot that has something left, and counts besides
    its children."""

    key: str
    backfill: bool
    spare: bool


class Totals:
    """Totals in the making."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._groups: dict[str, Sums] = {}
        self._all = Sums()
        self._incomplete = 0

    def add(self, ad: ClassAd, key: str = "", *, children: bool = False, backfill: bool = False) -> None:
        """Count an ad. children: a partitionable slot stands for the states of its children, which do not count
        themselves; backfill: idle slots for backfill are counted apart."""
        name = key or self._kind.key(ad)
        if name is None:
            self._incomplete += 1
            return
        group = self._groups.setdefault(name, Sums())
        complete = self._kind.add(group, ad, children, backfill)
        self._kind.add(self._all, ad, children, backfill)
        if not complete:
            self._incomplete += 1

    def add_all(self, ads: Iterable[ClassAd]) -> None:
        """Count many ads, those that look the same to these totals at once."""
        reads = self._kind.same
        if not reads:
            for ad in ads:
                self.add(ad)
            return
        if isinstance(ads, Sheet):
            for place, times in Counter(ads.alike(reads)).items():
                self._add(ads[place], times)
            return
        alike: dict[tuple[object, ...], list[ClassAd]] = {}
        for ad in ads:
            table = ad.table()
            look = tuple(entry[1] if (entry := table.get(name)) is not None else None for name in reads)
            if all(type(cell) is str for cell in look):
                alike.setdefault(look, []).append(ad)
            else:
                self.add(ad)
        for same in alike.values():
            self._add(same[0], len(same))

    def add_rolled_up(self, ads: Sequence[ClassAd], looks: Sequence[Look]) -> None:
        """Count the slots of a table of machines, each with how it looks there."""
        if isinstance(ads, Sheet) and self._kind.same:
            alike = ads.alike([*self._kind.same, "partitionableslot", "dynamicslot", "childstate"])
        else:
            alike = list(range(len(ads)))
        for (place, look), times in Counter(zip(alike, looks, strict=True)).items():
            self._add(ads[place], times, look.key, children=True, backfill=look.backfill)
            if look.spare and not look.backfill:
                self._add(ads[place], times, look.key, backfill=look.backfill)

    def _add(self, ad: ClassAd, times: int, key: str = "", *, children: bool = False, backfill: bool = False) -> None:
        if times == 1:
            self.add(ad, key, children=children, backfill=backfill)
            return
        one = Totals(self._kind)
        one.add(ad, key, children=children, backfill=backfill)
        self._incomplete += one._incomplete * times
        for name, sums in [*one._groups.items(), (None, one._all)]:
            into = self._all if name is None else self._groups.setdefault(name, Sums())
            for heading, count in sums.counts.items():
                into.counts[heading] += count * times

    def lines(self, width: int) -> Iterator[str]:
        """The lines, keys `width` wide; -1: as wide as the longest."""
        kind = self._kind
        if width < 0:
            width = max([5, *(len(key.encode()) for key in self._groups)])
        yield f"{'':{width}}{kind.heading}{kind.newline}"
        yield "\n"
        for key in sorted(self._groups, key=str.encode):
            shown = key.encode()[:width].decode("utf-8", "ignore")
            shown = " " * (width - len(shown.encode())) + shown
            yield shown + ("" if kind.sum_only else f"{kind.show(self._groups[key])}\n")
        if self._groups:
            yield "\n"
        yield f"{'Total':>{width}}{kind.show(self._all)}\n"
        if self._incomplete:
            yield f"\n{'':{width}}(Omitted {self._incomplete} malformed ads in computed attribute totals)\n\n"


def _row(columns: Iterable[tuple[str, int]], counts: Counter[str]) -> str:
    return " ".join(f"{counts[name]:>{width}}" for name, width in columns)


def _heading(columns: Iterable[tuple[str, int]]) -> str:
    return " ".join(f"{name:>{width}}" for name, width in columns)


def _arch(ad: ClassAd) -> str | None:
    arch, system = string(ad, "Arch"), string(ad, "OpSys")
    return None if arch is None or system is None else f"{arch}/{system}"


def _slots(*, total: bool) -> Callable[[Sums, ClassAd, bool, bool], bool]:
    """total: there is a count of all slots (in the totals by activity that column is always 0, as in HTCondor's)."""

    def state(sums: Sums, name: str, backfill: bool) -> bool:
        name = name.lower()
        if backfill and name == "unclaimed":
            sums.counts["BkIdle"] += 1
            return True
        heading = _STATES.get("backfill" if backfill and name == "claimed" else name)
        if heading is None:
            return False
        sums.counts[heading] += 1
        if total:
            sums.counts["Total"] += 1
        return True

    def add(sums: Sums, ad: ClassAd, children: bool, backfill: bool) -> bool:
        partitionable = children and truth(ad, "PartitionableSlot")
        if children and not partitionable and truth(ad, "DynamicSlot"):
            return True
        if children and partitionable:
            states = ad.eval("ChildState")
            for one in states if isinstance(states, list) else ():
                if isinstance(one, str):
                    state(sums, one, backfill)
            return True
        found = string(ad, "State")
        return found is not None and state(sums, found, backfill)

    return add


def _counted(*names: tuple[str, str]) -> Callable[[Sums, ClassAd, bool, bool], bool]:
    def add(sums: Sums, ad: ClassAd, _children: bool, _backfill: bool) -> bool:
        complete = True
        for heading, attribute in names:
            number = integer(ad, attribute)
            sums.counts[heading] += number or 0
            complete = complete and number is not None
        return complete

    return add


_SERVER: Final = (("Memory", "Memory"), ("Disk", "Disk"), ("MIPS", "Mips"), ("KFLOPS", "KFlops"))
_SPEED: Final = (("MIPS", "Mips"), ("KFLOPS", "KFlops"))


def _server(sums: Sums, ad: ClassAd, children: bool, backfill: bool) -> bool:
    state = string(ad, "State")
    if state is None:
        return False
    sums.counts["Machines"] += 1
    sums.counts["Avail"] += state.lower() in ("claimed", "unclaimed")
    return _counted(*_SERVER)(sums, ad, children, backfill)


def _speed(sums: Sums, ad: ClassAd, children: bool, backfill: bool) -> bool:
    load = real(ad, "LoadAvg")
    sums.counts["Machines"] += 1
    sums.load += load or 0.0
    return _counted(*_SPEED)(sums, ad, children, backfill) and load is not None


def _speed_row(sums: Sums) -> str:
    machines = sums.counts["Machines"]
    return (
        f"{machines:>9}  {sums.counts['MIPS']:>11}  {sums.counts['KFLOPS']:>11}   "
        f"{sums.load / machines if machines else 0.0:.3f}"
    )


_CLAIMS: Final = (("Total", 8), ("Idle", 5), ("Running", 8), ("Suspended", 10), ("Vacating", 9), ("Killing", 8))


def _on_demand(sums: Sums, ad: ClassAd, _children: bool, _backfill: bool) -> bool:
    claims = string(ad, "CODClaims")
    if claims is None:
        return False
    for claim in words_of(claims):
        sums.counts["Total"] += 1
        sums.counts[(string(ad, f"{claim}_ClaimState") or "unknown").capitalize()] += 1
    return True


_DAEMONS: Final = (
    ("Machines", ""), ("Slots", ""), ("Cpus", "TotalCpus"), ("BusyCpus", "TotalInUseCpus"),
    ("BkCpus", "TotalBackfillInUseCpus"), ("GPUs", "TotalGPUs"), ("BusyGPUs", "TotalInUseGPUs"),
    ("BkGPUs", "TotalBackfillInUseGPUs"),
)  # fmt: skip


def _startds(sums: Sums, ad: ClassAd, _children: bool, _backfill: bool) -> bool:
    slots = integer(ad, "TotalSlots")
    slots = integer(ad, "NumDynamicSlots") if slots is None else slots
    sums.counts["Machines"] += 1
    sums.counts["Slots"] += slots or 0
    complete = slots is not None
    for heading, attribute in _DAEMONS[2:]:
        number = integer(ad, attribute)
        sums.counts[heading] += number or 0
        complete = complete and (number is not None or heading not in ("Cpus", "GPUs"))
    memory = integer(ad, "TotalMemory")
    if not memory:
        return False
    sums.memory += (integer(ad, "TotalInUseMemory") or 0) / memory
    sums.backfill_memory += (integer(ad, "TotalBackfillInUseMemory") or 0) / memory
    return complete


def _startds_row(sums: Sums) -> str:
    numbers = " ".join(f"{sums.counts[name]:>8}" for name, _ in _DAEMONS)
    machines = sums.counts["Machines"]
    if not machines:
        return f"{numbers}    -nan%    -nan%"
    return f"{numbers} {100 * sums.memory / machines:7.2f}% {100 * sums.backfill_memory / machines:7.2f}%"


def _jobs(columns: tuple[tuple[str, int], ...]) -> Callable[[Sums], str]:
    return lambda sums: _row(columns, sums.counts)


_SCHEDD: Final = (("TotalRunningJobs", 18), ("TotalIdleJobs", 18), ("TotalHeldJobs", 18))
_SUBMITTER: Final = (("RunningJobs", 11), ("IdleJobs", 10), ("HeldJobs", 10))
_SERVER_ROW: Final = (("Machines", 9), ("Avail", 5), ("Memory", 11), ("Disk", 11), ("MIPS", 11), ("KFLOPS", 11))

#: Style -> its totals.
KINDS: Final[dict[str, Kind]] = {
    "normal": Kind(
        _heading(_NORMAL), _arch, _slots(total=True), lambda sums: _row(_NORMAL, sums.counts),
        reads=("State", "Arch", "OpSys"),
        same=("state", "arch", "opsys"),
    ),
    "state": Kind(
        _heading(_BY_STATE), lambda ad: string(ad, "Activity"), _slots(total=False),
        lambda sums: _row(_BY_STATE, sums.counts),
        reads=("State", "Activity"), same=("state", "activity"),
    ),
    "server": Kind(
        " Machines Avail  Memory        Disk        MIPS      KFLOPS", _arch, _server,
        lambda sums: _row(_SERVER_ROW, sums.counts),
        reads=("State", "Memory", "Disk", "Mips", "KFlops", "Arch", "OpSys"),
        same=("state", "memory", "disk", "mips", "kflops", "arch", "opsys"),
    ),
    "run": Kind(
        " Machines         MIPS       KFLOPS   AvgLoadAvg", _arch, _speed, _speed_row,
        reads=("Mips", "KFlops", "LoadAvg", "Arch", "OpSys"),
    ),
    "cod": Kind(
        _heading(_CLAIMS), _arch, _on_demand, lambda sums: _row(_CLAIMS, sums.counts),
        reads=("CODClaims", "Arch", "OpSys"),
    ),
    "startd": Kind(
        " ".join(f"{name:>8}" for name in (*(name for name, _ in _DAEMONS), "Memory%", "BkMem%")), platform, _startds,
        _startds_row,
        reads=(
            "TotalSlots", "NumDynamicSlots", "TotalMemory", "TotalInUseMemory", "TotalBackfillInUseMemory", "Arch",
            "OpSys", "OpSysAndVer", *(attribute for _, attribute in _DAEMONS[2:]),
        ),
    ),
    "schedd": Kind(
        _heading(_SCHEDD), lambda _: " ", _counted(*((name, name) for name, _ in _SCHEDD)), _jobs(_SCHEDD),
        sum_only=True, reads=tuple(name for name, _ in _SCHEDD),
    ),
    "submitters": Kind(
        _heading(_SUBMITTER), lambda ad: string(ad, "Name"), _counted(*((name, name) for name, _ in _SUBMITTER)),
        _jobs(_SUBMITTER), reads=("Name", *(name for name, _ in _SUBMITTER)),
    ),
    "ckptsrvr": Kind(
        " Servers AvailDisk  ", lambda _: " ", lambda sums, ad, children, backfill: _storage(sums, ad),
        lambda sums: f"{sums.counts['Servers']:>8} {sums.counts['Disk']:>11}", sum_only=True, reads=("Disk",),
        newline="",
    ),
}  # fmt: skip


def _storage(sums: Sums, ad: ClassAd) -> bool:
    disk = integer(ad, "Disk")
    sums.counts["Servers"] += 1
    sums.counts["Disk"] += disk or 0
    return disk is not None
