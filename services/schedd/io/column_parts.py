"""Jobs in columns, for an answer: part by part, so that the size is known in time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.queue.job_columns import ColumnPage, Columns, in_columns, needed, packed_columns
from engine.queue.jobs import Job
from services.schedd.core.rights import Viewer
from services.schedd.io.job_stretches import PART_JOBS, Stretch
from services.schedd.io.job_updates import JobUpdates
from shared.classad import column_page
from shared.classad.expr import fold

#: Columns of one part.
MOST_COLUMNS: Final = 300


class Parts:
    """Pages of shared.classad.column_page, in `packed` one behind the other. most: rows of each."""

    def __init__(self, most: int = PART_JOBS) -> None:
        self.rows = 0
        self.size = 0  # bytes
        self._packed: list[bytes] = []
        self._most = most
        self._page = ColumnPage()
        self._names: set[str] = set()

    def add(self, rows: int, columns: Columns) -> None:
        names = {fold(name) for name, _ in columns}
        if self._page.rows + rows > self._most or len(self._names | names) > MOST_COLUMNS:
            self.put()
        self._names |= names
        self._page.add(rows, columns)
        self.rows += rows

    def put(self) -> None:
        if self._page.rows:
            self._packed.append(column_page.page(self._page.rows, self._page.columns()))
            self.size += len(self._packed[-1])
            self._page = ColumnPage()
            self._names = set()

    def packed(self) -> bytes:
        """All of them."""
        self.put()
        return b"".join(self._packed)


def columns_of(
    updates: JobUpdates, stretch: Stretch, procs: Sequence[int], keys: frozenset[str], viewer: Viewer
) -> Iterator[tuple[int, Columns]]:
    """(how many jobs, their columns) of some jobs of a stretch, in one lot unless one job's many names of its own would
    be columns of all. keys: folded names."""
    now = updates.now()
    cluster, group = stretch.cluster, stretch.group
    if group is not None:
        gone = viewer.hidden(cluster.user)
        columns = packed_columns(updates.name, cluster, group, procs, now, keys, gone)
        if len(columns) <= MOST_COLUMNS or len(procs) == 1:
            yield len(procs), columns
            return
        for proc in procs:
            yield 1, packed_columns(updates.name, cluster, group, [proc], now, keys, gone)
        return
    lot: list[Job] = []
    names = set(keys)
    hidden = viewer.hidden if viewer.private else None
    for job in Stretch(cluster, list(procs), None).jobs():
        wanted = needed(job, keys)
        if lot and len(names | wanted) > MOST_COLUMNS:
            yield len(lot), in_columns(updates.name, lot, now, names, hidden)
            lot, names = [], set(keys)
        lot.append(job)
        names |= wanted
    if lot:
        yield len(lot), in_columns(updates.name, lot, now, names, hidden)
    for job in lot:
        job.settle()
