"""Some attributes of jobs, as ads or in columns. Of packed jobs the columns are made of their bytes: what their cluster
and group say is read once, and no job is made. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgpack

from engine.queue.jobs import Cluster, Job, global_id, raw_cells
from engine.queue.packed_jobs import PackedJobs
from shared.classad import ClassAd
from shared.classad.cells import packable
from shared.classad.expr import FOLDED, fold
from shared.classad.references import closure

Columns = list[tuple[str, list[Any]]]


def projected(schedd: str, job: Job, now: float, keys: Sequence[str]) -> bytes:
    """Only some attributes of the whole ad, packed. keys: their names, folded."""
    own, shared = job.ad.table(), job.cluster.ad.table()
    table = {key: entry for key in keys if (entry := own.get(key) or shared.get(key)) is not None}
    ad = ClassAd.from_table(table)
    for key in keys:
        if key in DERIVED and (cell := DERIVED[key][1](schedd, job, now)) is not None:
            ad[DERIVED[key][0]] = cell
    return ad.pack()


def needed(job: Job, keys: Iterable[str]) -> set[str]:
    """These attributes (folded names) and what they need of the ad to have their values."""
    own, shared = job.ad.table(), job.cluster.ad.table()
    return closure(keys, lambda key: entry[1] if (entry := own.get(key) or shared.get(key)) is not None else None)


def in_columns(
    schedd: str,
    jobs: Sequence[Job],
    now: float,
    keys: Iterable[str],
    hidden: Callable[[str], frozenset[str]] | None = None,
) -> Columns:
    """Some attributes of these jobs, each with what the jobs have there, for shared.classad.column_page.page.
    Attributes that no job has are left out. hidden: what is left out of the jobs of a user, folded; None: nothing."""
    tables = [(job.ad.table(), job.cluster.ad.table()) for job in jobs]
    without = [hidden(job.cluster.user) for job in jobs] if hidden is not None else []
    found: Columns = []
    for key in sorted(keys):
        if key in DERIVED:
            name, make = DERIVED[key]
            found.append((name, [make(schedd, job, now) for job in jobs]))
            continue
        entries = [own.get(key) or shared.get(key) for own, shared in tables]
        if without:
            entries = [None if key in gone else one for one, gone in zip(entries, without, strict=True)]
        first = next(filter(None, entries), None)
        if first is not None:
            cells = [None if entry is None else entry[1] for entry in entries]
            plain = set(map(type, cells)) <= _PLAIN
            found.append((first[0], cells if plain else list(map(packable, cells))))  # type: ignore[arg-type]
    return found


#: What no ad has stored: folded name to name and value.
DERIVED: Final[dict[str, tuple[str, Callable[[str, Job, float], Any]]]] = {
    "procid": ("ProcId", lambda _, job, now: job.proc),
    "globaljobid": ("GlobalJobId", lambda schedd, job, _: global_id(schedd, job)),
    "servertime": ("ServerTime", lambda _, job, now: int(now)),
    # By the clock of this schedd's events: who follows those knows which of them this ad has in it already.
    "roostreadat": ("RoostReadAt", lambda _, job, now: now),
    "autoclusterid": ("AutoClusterId", lambda _, job, now: job.autocluster if job.generation >= 0 else None),
}
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def packed_columns(
    schedd: str,
    cluster: Cluster,
    group: PackedJobs,
    procs: Sequence[int],
    now: float,
    keys: Iterable[str],
    gone: frozenset[str] = frozenset(),
) -> Columns:
    """in_columns of packed jobs of one group, with what these attributes need to have their values. gone: folded names
    that are left out."""
    shared = {**cluster.packed_cells(), **raw_cells(group.state)}

    def cell_of(key: str) -> Any:
        return shared[key][1] if key in shared else None

    names = closure(keys, cell_of)
    while True:
        own = _own_columns(group, procs, names - gone, shared)
        # What jobs have of their own may name more.
        texts = {cell for _, cells in own.values() for cell in cells if isinstance(cell, msgpack.ExtType)}
        more = closure(names, cell_of, texts)
        if more == names:
            break
        names = more
    found: Columns = []
    for key in sorted(names - gone):
        if key in own:
            found.append(own[key])
        elif key == "procid":
            found.append(("ProcId", list(procs)))
        elif key == "globaljobid":
            head, tail = f"{schedd}#{cluster.id}.", f"#{cluster.qdate}"
            found.append(("GlobalJobId", [f"{head}{proc}{tail}" for proc in procs]))
        elif (entry := _same_of_all(group, key, now) or shared.get(key)) is not None:
            found.append((entry[0], [entry[1]] * len(procs)))
    return found


def _same_of_all(group: PackedJobs, key: str, now: float) -> tuple[str, Any] | None:
    """What no ad has stored, and all packed jobs of a group have the same of: name and value."""
    if key == "servertime":
        return "ServerTime", int(now)
    if key == "roostreadat":
        return "RoostReadAt", now
    return ("AutoClusterId", group.autocluster) if key == "autoclusterid" and group.generation >= 0 else None


def _own_columns(
    group: PackedJobs, procs: Sequence[int], names: set[str], shared: dict[str, Any]
) -> dict[str, tuple[str, list[Any]]]:
    """Those of these attributes that some of the jobs have of their own, by folded name."""
    wanted = (names & group.names) - DERIVED.keys()
    if not wanted:
        return {}
    found: dict[str, tuple[str, list[Any]]] = {}
    for place, proc in enumerate(procs):
        body = msgpack.unpackb(group.ads[proc], unicode_errors="surrogateescape")
        for name, cell in body.items():
            key = FOLDED[name] if name in FOLDED else fold(name)
            if key not in wanted:
                continue
            if key not in found:
                found[key] = name, [shared[key][1] if key in shared else None] * len(procs)
            found[key][1][place] = cell
    return found


class ColumnPage:
    """Puts columns of several lots of jobs together."""

    def __init__(self) -> None:
        self.rows = 0
        self._columns: dict[str, tuple[str, list[Any]]] = {}

    def add(self, rows: int, columns: Columns) -> None:
        """Columns of so many more jobs."""
        for name, cells in columns:
            key = fold(name)
            known = self._columns.get(key)
            if known is None:
                known = self._columns[key] = name, [None] * self.rows
            known[1].extend(cells)
        self.rows += rows
        for _, cells in self._columns.values():
            if len(cells) < self.rows:
                cells.extend([None] * (self.rows - len(cells)))

    def columns(self) -> Columns:
        return list(self._columns.values())
