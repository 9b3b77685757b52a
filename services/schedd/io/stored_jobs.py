"""Reads the jobs of the queue's database when the schedd starts: those that may stay packed (engine.queue.packed_jobs)
as their bytes, without making or parsing anything of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgpack

from engine.queue.jobs import BadSubmit, Cluster, JobStatus, priority_of
from engine.queue.packed_jobs import MOST_GROUPS, NOTHING, WRITTEN, Splitter, may_be_packed, merged
from services.schedd.io.queue_db import rows
from shared.classad.expr import fold

#: Ads whose names are read in one go.
SOME: Final = 10_000


#: Jobs that an order was for are a group again if they are so many, and one by one else.
LEAST: Final = 50


@dataclass(slots=True)
class StoredGroup:
    """Jobs that may be one group (engine.queue.packed_jobs). names: folded, of attributes that these have of their own
    besides `state`."""

    ads: dict[int, bytes]
    names: set[str]
    status: JobStatus = JobStatus.IDLE
    state: bytes = NOTHING

    def whole(self) -> Iterator[tuple[int, bytes]]:
        """Each proc with all that is its own, packed."""
        return ((proc, merged(ad, self.state)) for proc, ad in self.ads.items())


@dataclass(slots=True)
class StoredJobs:
    """The jobs of one cluster, as they are stored."""

    cluster: Cluster
    groups: list[StoredGroup]  # those that may stay packed
    others: list[tuple[int, bytes, int, int, str]]  # (proc, ad, status, priority, submitter)


def read_jobs(database: sqlite3.Connection, cluster: Cluster) -> StoredJobs:
    """Runs in the database's thread."""
    try:
        usual = (priority_of(cluster.ad), cluster.submitter)
    except BadSubmit:  # a later version may allow what this one does not
        usual = (0, "\0")
    columns = "proc, ad, status, priority, submitter"
    alike = "status = ? AND priority = ? AND submitter = ?"
    groups: list[StoredGroup] = []
    others: list[tuple[int, bytes, int, int, str]] = []
    statuses = (JobStatus.IDLE, JobStatus.HELD)
    for status in statuses:
        found = database.execute(
            f"SELECT proc, ad FROM jobs WHERE cluster = ? AND {alike}", (cluster.id, status, *usual)
        )
        # Who holds jobs until their files have come looks at them.
        some, alone = ([], found) if cluster.spool and status == JobStatus.HELD else _groups(status, found)
        groups += some
        others += [(proc, ad, int(status), *usual) for proc, ad in alone]
    either = "status IN (?, ?) AND priority = ? AND submitter = ?"
    others += rows(
        database, f"SELECT {columns} FROM jobs WHERE cluster = ? AND NOT ({either})", (cluster.id, *statuses, *usual)
    )
    for group in groups[MOST_GROUPS:]:
        others += [(proc, ad, int(group.status), *usual) for proc, ad in group.whole()]
    return StoredJobs(cluster, groups[:MOST_GROUPS], sorted(others))


def _groups(status: JobStatus, ads: Iterator[tuple[int, bytes]]) -> tuple[list[StoredGroup], list[tuple[int, bytes]]]:
    """Jobs of one state, given with their ads, as groups, and those that are made one by one."""
    alone: list[tuple[int, bytes]] = []
    by_state: dict[bytes, StoredGroup] = {}
    splitter = Splitter()
    known: dict[tuple[str, ...], frozenset[str] | None] = {}  # names, folded; None: jobs that have these are made
    while some := dict(islice(ads, SOME)):
        names = _names(some.values())
        if names.isdisjoint(WRITTEN) and may_be_packed(names):
            fresh = by_state.setdefault(NOTHING, StoredGroup({}, set(), status))
            fresh.ads.update(some)
            fresh.names |= names
            continue
        for proc, ad in some.items():
            own, state, written = splitter.split(ad)
            if written not in known:
                folded = frozenset(map(fold, written))
                known[written] = folded if may_be_packed(folded) else None
            theirs = known[written]
            if theirs is None:
                alone.append((proc, ad))
                continue
            group = by_state.get(state)
            if group is None:
                group = by_state[state] = StoredGroup({}, set(), status, state)
            group.ads[proc] = own
            group.names |= theirs
    groups = []
    for state, group in by_state.items():
        if len(group.ads) < LEAST and (state != NOTHING or status != JobStatus.IDLE):
            alone += group.whole()
        else:
            groups.append(group)
    return groups, alone


def _names(ads: Iterable[bytes]) -> set[str]:
    """Folded names of the attributes that any of these packed ads has."""
    written: set[str] = set()
    rest = iter(ads)
    while some := list(islice(rest, SOME)):
        unpacker = msgpack.Unpacker(unicode_errors="surrogateescape", max_buffer_size=0)
        unpacker.feed(b"".join(some))
        for body in unpacker:
            written.update(body)
    return {fold(name) for name in written}
