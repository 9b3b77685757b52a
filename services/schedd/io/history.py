"""Jobs that left the queue, and runs that are over, newest first (spec row TLS-12). They lie in the queue's database,
so that leaving the one and entering the other is one step; limits keep the newest."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.queue.jobs import JobId
from services.schedd.io.queue_db import QueueDatabase
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, Expr, evaluate, is_true
from shared.classad.expr import fold
from shared.classad.question import Question
from shared.messages.queue import JobPage

#: Rows looked at in one go by the database's thread, which also writes: others wait no longer than this takes.
CHUNK: Final = 500
#: Ids looked up in one go.
IDS: Final = 5000
PAGE_BYTES: Final = 4 << 20
#: What a record without an ad counts as, bytes.
ROW: Final = 50


@dataclass(frozen=True, slots=True)
class Records:
    """A table of records. rows: its query, of seq, ad and what comes into each ad besides, without where and order."""

    table: str
    rows: str
    adds: tuple[str, ...] = ()


JOBS: Final = Records("history", "SELECT seq, ad FROM history")
#: Of runs. Of a job that left the queue with its last one the history has the ad, until it is pruned.
RUNS: Final = Records(
    "epochs",
    """
    SELECT seq, coalesce(ad, (SELECT ad FROM history WHERE history.cluster = epochs.cluster
        AND history.proc = epochs.proc ORDER BY history.seq DESC LIMIT 1)), run, ended_at, 'EPOCH' FROM epochs
    """,
    ("RunInstanceId", "EpochWriteDate", "EpochAdType"),
)


async def page(
    question: Question,
    queue: QueueDatabase,
    ids: Sequence[JobId],
    expr: Expr | None,
    seen: Callable[[ClassAd], ClassAd],
    *,
    projection: Sequence[str],
    limit: int,
    after: str,
    records: Records = JOBS,
) -> JobPage:
    """One page; `after` is the `next` of the page before. seen: what of an ad may be looked at, and told. Raises
    RemoteFailure bad-request for another text, TooExpensive."""
    if after and not (after.isascii() and after.isdigit()):
        raise RemoteFailure("bad-request", f"after: {after[:40]!r} is not what the page before gave as next")
    below = int(after) if after else 1 << 62
    ads: list[bytes] = []
    size = 0
    named: deque[int] = deque()
    for start in range(0, len(ids), IDS):
        some = ids[start : start + IDS]
        named += await queue.read(lambda database, some=some: _of_ids(database, records, some, below))  # type: ignore[misc]
    if len(ids) > IDS:
        named = deque(sorted(set(named), reverse=True))
    while True:
        if ids:
            numbers = [named.popleft() for _ in range(min(CHUNK, len(named)))]
            found = await queue.read(lambda database, numbers=numbers: _some(database, records, numbers))  # type: ignore[misc]
        else:
            found = await queue.read(lambda database, below=below: _rows(database, records, below))  # type: ignore[misc]
        for seq, packed, *more in found:
            await question.yield_if_due()
            if packed is None:  # the history has forgotten this one's job
                continue
            whole = ClassAd.unpack(packed)
            for name, value in zip(records.adds, more, strict=True):
                whole[name] = value
            ad = seen(whole)
            if expr is None or is_true(evaluate(expr, ad)):
                if len(ads) == limit or size > PAGE_BYTES:
                    return JobPage(ads=ads, next=str(below))
                if projection:
                    table = ad.table()
                    wanted = {key: table[key] for name in projection if (key := fold(name)) in table}
                    packed = ClassAd.from_table(wanted).pack()
                elif ad is not whole or more:
                    packed = ad.pack()
                ads.append(packed)
                size += len(packed)
            below = seq
        if not named if ids else len(found) < CHUNK:
            return JobPage(ads=ads)


def _rows(database: sqlite3.Connection, records: Records, below: int) -> list[tuple[Any, ...]]:
    sql = f"{records.rows} WHERE seq < ? ORDER BY seq DESC LIMIT {CHUNK}"
    return list(database.execute(sql, (below,)))


def _of_ids(database: sqlite3.Connection, records: Records, ids: Sequence[JobId], below: int) -> list[int]:
    """The numbers of all records of these jobs before one, newest first. Each id is looked up in the index."""
    clusters = json.dumps([job_id.cluster for job_id in ids if job_id.proc < 0])
    jobs = json.dumps([(job_id.cluster, job_id.proc) for job_id in ids if job_id.proc >= 0])
    # A cross join is carried out in the order in which it is written.
    found = database.execute(
        f"""
        SELECT seq FROM json_each(?) AS one CROSS JOIN {records.table} ON cluster = one.value WHERE seq < ?
        UNION
        SELECT seq FROM json_each(?) AS one CROSS JOIN {records.table}
            ON cluster = json_extract(one.value, '$[0]') AND proc = json_extract(one.value, '$[1]') WHERE seq < ?
        ORDER BY seq DESC
        """,
        (clusters, below, jobs, below),
    )
    return [seq for (seq,) in found]


def _some(database: sqlite3.Connection, records: Records, numbers: Sequence[int]) -> list[tuple[Any, ...]]:
    sql = f"{records.rows} WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq DESC"
    return list(database.execute(sql, (json.dumps(numbers),)))


def prune(database: sqlite3.Connection, max_bytes: int, records: Records = JOBS) -> int:
    """Delete the oldest records beyond the limit (0: none); returns how many."""
    total = 0
    if max_bytes > 0:
        table = records.table
        for seq, size in database.execute(f"SELECT seq, coalesce(length(ad), {ROW}) FROM {table} ORDER BY seq DESC"):
            total += size
            if total > max_bytes:
                return database.execute(f"DELETE FROM {table} WHERE seq <= ?", (seq,)).rowcount
    return 0
