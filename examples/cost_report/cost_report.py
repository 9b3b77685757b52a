#!/usr/bin/env python3
"""What every accounting group's jobs cost, as CSV and Parquet, kept up to date while jobs end.

    python examples/cost_report/cost_report.py --csv costs.csv                        (follows the pool)
    python examples/cost_report/cost_report.py --csv costs.csv --parquet costs.parquet --once       (from cron)

A job is charged what it asked for (RequestCpus, RequestGPUs, RequestMemory) times the time it ran, all its runs
together (RemoteWallClockTime), at the prices of prices.json; a group may have a factor, which its sub-groups inherit.
A run is charged when it has ended. The books are an SQLite file: one row for each job, replaced whenever the job's ad
tells more. So a job is never counted twice, whatever is repeated, and killing this program loses nothing: events say
which jobs to look at again, in the transaction that takes the event, and after a start or a gap all jobs are compared
with the books.

Sums are made of whole core-, GPU- and MiB-milliseconds and rounded once, at the end. Runs against `roost up` as it
is; Parquet needs pyarrow (pip install 'roost-pool[parquet]').
"""

import argparse
import asyncio
import csv
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from roost import Client, ClientError, Consumer, Gap, Once
from roost.events import JobEnded, JobEvicted, JobHeld, JobRemoved
from roost.pool_directory import pool_dir

TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    schedd TEXT, job TEXT, day TEXT, grp TEXT, owner TEXT, wall_ms INTEGER, cpus INTEGER, gpus INTEGER, mib INTEGER,
    PRIMARY KEY (schedd, job));
CREATE TABLE IF NOT EXISTS look (
    number INTEGER PRIMARY KEY AUTOINCREMENT, schedd TEXT, job TEXT, tries INTEGER DEFAULT 0, UNIQUE (schedd, job));
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, at REAL);
"""
NEEDS = (
    *("ClusterId", "ProcId", "GlobalJobId", "Owner", "AcctGroup", "RemoteWallClockTime", "RequestCpus", "RequestGPUs"),
    *("RequestMemory", "EnteredCurrentStatus", "CompletionDate", "ServerTime", "MemoryUsage", "ImageSize"),
)
COLUMNS = ("day", "group", "owner", "jobs", "core_hours", "gpu_hours", "gb_hours", "cost", "currency")
#: A job whose ad is found nowhere so often was never there, or its history was removed.
MOST_TRIES = 30
#: The history is compared again from so long before the last time.
OVERLAP_S = 600.0
IDS_AT_A_TIME = 200
HOUR_MS = Decimal(3_600_000)


@dataclass(frozen=True)
class Prices:
    core_hour: Decimal
    gpu_hour: Decimal
    gb_hour: Decimal
    currency: str
    factors: dict[str, Decimal]

    @classmethod
    def read(cls, path: Path) -> "Prices":
        """Raises ValueError that says what is wrong with the file."""
        try:
            told = dict(json.loads(path.read_text(), parse_float=Decimal, parse_int=Decimal))
            factors = {group.lower(): Decimal(about["factor"]) for group, about in told.get("groups", {}).items()}
            found = cls(
                *(Decimal(told[name]) for name in ("core_hour", "gpu_hour", "gb_hour")), str(told["currency"]), factors
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"{path}: want core_hour, gpu_hour, gb_hour, currency and groups ({error!r})") from error
        if any(price < 0 for price in (found.core_hour, found.gpu_hour, found.gb_hour, *factors.values())):
            raise ValueError(f"{path}: a price is below 0")
        return found

    def factor(self, group: str) -> Decimal:
        """Of the group, or of the nearest one above it that has one."""
        name = group.lower()
        while name:
            if name in self.factors:
                return self.factors[name]
            name = name.rpartition(".")[0]
        return Decimal(1)

    def cost(self, group: str, core_ms: int, gpu_ms: int, mib_ms: int) -> Decimal:
        whole = core_ms * self.core_hour + gpu_ms * self.gpu_hour + Decimal(mib_ms) / 1024 * self.gb_hour
        return whole / HOUR_MS * self.factor(group)


def row_of(ad: Any) -> tuple[Any, ...]:
    """A job's row in the books, from its ad."""
    ended = _number(ad, "CompletionDate") or _number(ad, "EnteredCurrentStatus")
    return (
        str(ad.eval("GlobalJobId")).partition("#")[0],
        f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}",
        datetime.fromtimestamp(ended, UTC).date().isoformat(),
        str(ad.eval("AcctGroup")) if "AcctGroup" in ad else "",
        str(ad.eval("Owner")),
        round(_number(ad, "RemoteWallClockTime") * 1000),
        max(1, round(_number(ad, "RequestCpus", 1))),
        round(_number(ad, "RequestGPUs")),
        round(_number(ad, "RequestMemory")),
    )


def _number(ad: Any, name: str, default: float = 0.0) -> float:
    value = ad.eval(name)
    return float(value) if isinstance(value, int | float) else default


def report(rows: Iterable[tuple[Any, ...]], prices: Prices) -> list[dict[str, Any]]:
    """A row for each day, group and owner, from sums of (day, group, owner, jobs, core ms, GPU ms, MiB ms)."""
    found = []
    for day, group, owner, jobs, core_ms, gpu_ms, mib_ms in rows:
        amounts = (core_ms / HOUR_MS, gpu_ms / HOUR_MS, Decimal(mib_ms) / 1024 / HOUR_MS)
        cost = prices.cost(group, core_ms, gpu_ms, mib_ms).quantize(Decimal("0.000001"), ROUND_HALF_UP)
        hours = [float(round(amount, 6)) for amount in amounts]
        found.append(dict(zip(COLUMNS, (day, group, owner, jobs, *hours, cost, prices.currency), strict=True)))
    return found


class Books:
    """The SQLite file, and the pool it is compared with."""

    def __init__(self, path: Path, pool: str | None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.store = Once(path, TABLES)
        self._pool = pool

    def write(self, rows: list[tuple[Any, ...]], looked: Iterable[int] = ()) -> None:
        """Rows replace those of the same jobs, unless those know of more (an older ad came later). looked: numbers of
        what need not be looked at any more."""
        with self.store.writing() as db:
            db.executemany(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (schedd, job) DO UPDATE SET "
                "day = excluded.day, grp = excluded.grp, owner = excluded.owner, wall_ms = excluded.wall_ms, "
                "cpus = excluded.cpus, gpus = excluded.gpus, mib = excluded.mib "
                "WHERE excluded.wall_ms >= jobs.wall_ms",
                [row for row in rows if row[5] > 0],
            )
            db.executemany("DELETE FROM look WHERE number = ?", [(number,) for number in looked])

    def compare(self) -> int:
        """Read every job that may have run since the last time. Returns how many."""
        marks = dict(self.store.query("SELECT name, at FROM marks"))
        since = max(0.0, float(marks.get("compared", 0.0)) - OVERLAP_S)
        count, newest = 0, since
        with Client(self._pool) as client:
            for history in (False, True):
                rows = []
                constraint = f"RemoteWallClockTime > 0 && EnteredCurrentStatus >= {int(since)}"
                for ad in client.jobs(constraint=constraint, projection=NEEDS, history=history):
                    rows.append(row_of(ad))
                    newest = max(newest, _number(ad, "EnteredCurrentStatus"))
                self.write(rows)
                count += len(rows)
        with self.store.writing() as db:
            db.execute("INSERT OR REPLACE INTO marks VALUES ('compared', ?)", (newest,))
        return count

    def look(self) -> int:
        """Read the jobs that events told of. Returns how many are left to be looked at."""
        asked = self.store.query("SELECT schedd, job, number FROM look ORDER BY tries LIMIT ?", (IDS_AT_A_TIME,))
        with Client(self._pool) as client:
            for schedd in {schedd for schedd, *_ in asked}:
                # An event that comes from now on gives its job another number, and has it looked at again.
                numbers = {job: number for where, job, number in asked if where == schedd}
                for history in (False, True):
                    ads = client.jobs(*numbers, projection=NEEDS, history=history, schedd=schedd)
                    rows = [row_of(ad) for ad in ads]
                    self.write(rows, [numbers[row[1]] for row in rows if row[1] in numbers])
        with self.store.writing() as db:
            db.executemany("UPDATE look SET tries = tries + 1 WHERE number = ?", [(row[2],) for row in asked])
            db.execute("DELETE FROM look WHERE tries >= ?", (MOST_TRIES,))
        return int(self.store.query("SELECT count(*) FROM look")[0][0])

    def sums(self) -> list[tuple[Any, ...]]:
        return self.store.query(
            "SELECT day, grp, owner, count(*), sum(wall_ms * cpus), sum(wall_ms * gpus), sum(wall_ms * mib) "
            "FROM jobs GROUP BY day, grp, owner ORDER BY day, grp, owner"
        )


def write_report(rows: list[dict[str, Any]], csv_path: str, parquet_path: str) -> None:
    """Both files are replaced as a whole: readers never see half of one."""
    if csv_path:
        new = Path(f"{csv_path}.new")
        with new.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        new.replace(csv_path)
    if parquet_path:
        import pyarrow
        from pyarrow import parquet

        kinds = {"jobs": pyarrow.int64(), "cost": pyarrow.decimal128(20, 6)}
        kinds |= dict.fromkeys(("core_hours", "gpu_hours", "gb_hours"), pyarrow.float64())
        schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
        parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), f"{parquet_path}.new")
        Path(f"{parquet_path}.new").replace(parquet_path)


async def follow(books: Books, options: argparse.Namespace, prices: Prices) -> None:
    consumer = Consumer(
        options.pool, name="cost-report", durable=True, state=Path(options.state).with_suffix(".position")
    )
    news = asyncio.Event()
    compare = True

    @consumer.on(JobEnded, JobEvicted, JobHeld, JobRemoved, once=books.store)
    async def charge(event, db):  # type: ignore[no-untyped-def]
        db.execute("INSERT OR REPLACE INTO look (schedd, job) VALUES (?, ?)", (event.schedd, event.job_id))
        news.set()

    @consumer.on(Gap)
    async def gap(_):  # type: ignore[no-untyped-def]
        nonlocal compare
        compare = True
        news.set()

    async def keep() -> None:
        nonlocal compare
        left = 1
        while True:
            if not (left or compare):
                await news.wait()
            news.clear()
            again, compare = compare, False
            try:
                if again:
                    await asyncio.to_thread(books.compare)
                left = await asyncio.to_thread(books.look)
                await asyncio.to_thread(write_report, report(books.sums(), prices), options.csv, options.parquet)
            except ClientError as error:
                if not error.retryable:
                    raise
                compare = compare or again
                left = left or 1
                print(f"cost_report.py: {error}", file=sys.stderr)
            await asyncio.sleep(options.every)

    # Listening comes first: what ends while the books are compared is looked at afterwards.
    await consumer.open()
    tasks = {asyncio.create_task(keep()), asyncio.create_task(consumer.run_async(signals=True))}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", default="", metavar="FILE")
    parser.add_argument("--parquet", default="", metavar="FILE")
    parser.add_argument("--prices", type=Path, default=Path(__file__).parent / "prices.json")
    parser.add_argument("--once", action="store_true", help="bring the books up to date, write the report, end")
    parser.add_argument("--every", type=float, default=2.0, metavar="S", help="write at most so often (%(default)g s)")
    parser.add_argument("--state", default="", metavar="FILE", help="the books (default: with the pool)")
    parser.add_argument("--pool", default=None, help="URL of the pool's gateway (default: the one roost finds)")
    options = parser.parse_args(arguments)
    if not (options.csv or options.parquet):
        parser.error("name a file to write: --csv FILE, --parquet FILE")
    options.state = options.state or str(pool_dir() / "consumers" / "cost-report.sqlite")
    try:
        if options.parquet:
            import pyarrow.parquet  # noqa: F401
        prices = Prices.read(options.prices)
        books = Books(Path(options.state), options.pool)
        if options.once:
            books.compare()
            write_report(report(books.sums(), prices), options.csv, options.parquet)
        else:
            asyncio.run(follow(books, options, prices))
    except ImportError:
        sys.exit("cost_report.py: Parquet needs pyarrow: pip install 'roost-pool[parquet]'")
    except (ClientError, ValueError) as error:
        sys.exit(f"cost_report.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
