"""Jobs that left the queue, newest first (spec row TLS-12). They lie in the queue's database, so that leaving the one
and entering the other is one step; a limit keeps the newest."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from services.schedd.jobs import JobId
from services.schedd.queue import Queue
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, Expr, evaluate, is_true
from shared.classad.expr import fold
from shared.messages.queue import JobPage

#: Rows looked at in one go by the database's thread, which also writes: others wait no longer than this takes.
CHUNK: Final = 500
PAGE_BYTES: Final = 4 << 20


async def page(
    queue: Queue, ids: Sequence[JobId], expr: Expr | None, *, projection: Sequence[str], limit: int, after: str
) -> JobPage:
    """One page; `after` is the `next` of the page before. Raises RemoteFailure bad-request for another text."""
    if after and not (after.isascii() and after.isdigit()):
        raise RemoteFailure("bad-request", f"after: {after[:40]!r} is not what the page before gave as next")
    below = int(after) if after else 1 << 62
    ads: list[bytes] = []
    size = 0
    while True:
        found = await queue.read(lambda database, below=below: _rows(database, ids, below))  # type: ignore[misc]
        for seq, packed in found:
            ad = ClassAd.unpack(packed)
            if expr is None or is_true(evaluate(expr, ad)):
                if len(ads) == limit or size > PAGE_BYTES:
                    return JobPage(ads=ads, next=str(below))
                if projection:
                    table = ad.table()
                    wanted = {key: table[key] for name in projection if (key := fold(name)) in table}
                    packed = ClassAd.from_table(wanted).pack()
                ads.append(packed)
                size += len(packed)
            below = seq
        if len(found) < CHUNK:
            return JobPage(ads=ads)


def _rows(database: sqlite3.Connection, ids: Sequence[JobId], below: int) -> list[tuple[int, bytes]]:
    where, values = "seq < ?", [below]
    if ids:
        where += f" AND ({' OR '.join('(cluster = ? AND (proc = ? OR ? < 0))' for _ in ids[:300])})"
        for job_id in ids[:300]:
            values += [job_id.cluster, job_id.proc, job_id.proc]
    return list(database.execute(f"SELECT seq, ad FROM history WHERE {where} ORDER BY seq DESC LIMIT {CHUNK}", values))


def prune(database: sqlite3.Connection, max_bytes: int) -> int:
    """Delete the oldest records beyond the limit (0: none); returns how many."""
    total = 0
    if max_bytes > 0:
        for seq, size in database.execute("SELECT seq, length(ad) FROM history ORDER BY seq DESC"):
            total += size
            if total > max_bytes:
                return database.execute("DELETE FROM history WHERE seq <= ?", (seq,)).rowcount
    return 0
