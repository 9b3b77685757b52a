"""Reads the jobs of the queue's database when the schedd starts: those that may stay packed (engine.queue.packed_jobs)
as their bytes, without making or parsing anything of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgpack

from engine.queue.jobs import BadSubmit, Cluster, JobStatus, priority_of
from engine.queue.packed_jobs import MOST_GROUPS, NOTHING, WRITTEN, may_be_packed, split
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
    found: dict[JobStatus, dict[int, bytes]] = {}
    for status in (JobStatus.IDLE, JobStatus.HELD):
        found[status] = dict(
            database.execute(f"SELECT proc, ad FROM jobs WHERE cluster = ? AND {alike}", (cluster.id, status, *usual))
        )
    either = "status IN (?, ?) AND priority = ? AND submitter = ?"
    others: list[Any] = list(
        rows(
            database,
            f"SELECT {columns} FROM jobs WHERE cluster = ? AND NOT ({either})",
            (cluster.id, *found, *usual),
        )
    )
    groups: list[StoredGroup] = []
    for status, ads in found.items():
        # Who holds jobs until their files have come looks at them.
        some, alone = ([], list(ads)) if cluster.spool and status == JobStatus.HELD else _groups(status, ads)
        groups += some
        others += [(proc, ads[proc], int(status), *usual) for proc in alone]
    for group in groups[MOST_GROUPS:]:
        others += [(proc, found[group.status][proc], int(group.status), *usual) for proc in group.ads]
    return StoredJobs(cluster, groups[:MOST_GROUPS], sorted(others))


def _groups(status: JobStatus, ads: dict[int, bytes]) -> tuple[list[StoredGroup], list[int]]:
    """Jobs of one state as groups, and those that are made one by one."""
    names = _names(ads.values())
    if status == JobStatus.IDLE and names.isdisjoint(WRITTEN) and may_be_packed(names):
        return ([StoredGroup(ads, names)] if ads else []), []
    alone: list[int] = []
    by_state: dict[bytes, dict[int, bytes]] = {}
    for proc, ad in ads.items():
        own, state = split(ad)
        if may_be_packed(_names((own,))):
            by_state.setdefault(state, {})[proc] = own
        else:
            alone.append(proc)
    groups = []
    for state, some in by_state.items():
        if len(some) < LEAST and (state != NOTHING or status != JobStatus.IDLE):
            alone += some
        else:
            groups.append(StoredGroup(some, _names(some.values()), status, state))
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
