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
from engine.queue.packed_jobs import may_be_packed
from services.schedd.io.queue_db import rows
from shared.classad.expr import fold

#: Ads whose names are read in one go.
SOME: Final = 10_000


@dataclass(slots=True)
class StoredJobs:
    """The jobs of one cluster, as they are stored."""

    cluster: Cluster
    packed: dict[int, bytes]  # by proc: those that may stay packed
    names: set[str]  # folded names of attributes that these have of their own
    others: list[tuple[int, bytes, int, int, str]]  # (proc, ad, status, priority, submitter)


def read_jobs(database: sqlite3.Connection, cluster: Cluster) -> StoredJobs:
    """Runs in the database's thread."""
    try:
        usual = (int(JobStatus.IDLE), priority_of(cluster.ad), cluster.submitter)
    except BadSubmit:  # a later version may allow what this one does not
        usual = (-1, 0, "")
    columns = "proc, ad, status, priority, submitter"
    alike = "status = ? AND priority = ? AND submitter = ?"
    packed: dict[int, bytes] = dict(
        database.execute(f"SELECT proc, ad FROM jobs WHERE cluster = ? AND {alike}", (cluster.id, *usual))
    )
    others: list[Any] = list(
        rows(database, f"SELECT {columns} FROM jobs WHERE cluster = ? AND NOT ({alike})", (cluster.id, *usual))
    )
    names = _names(packed.values())
    if not may_be_packed(names):
        for proc, ad in list(packed.items()):
            if not may_be_packed(_names((ad,))):
                others.append((proc, packed.pop(proc), *usual))
        others.sort()
        names = _names(packed.values())
    return StoredJobs(cluster, packed, names, others)


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
