#!/usr/bin/env python3
"""Keep every event of a pool in files, for ever: an append-only log by topic and day, as Kafka keeps one.

    python examples/archiver.py archive                              (follows the pool until it is stopped)
    python examples/archiver.py read archive job --from 1000         (prints the events of a topic from an offset on)
    python examples/archiver.py verify archive                       (checks every record of every file)

The topic is the first word of an event's type: job, slot, claim, negotiation, accountant, had, daemon. Events have
offsets in their topic, 0, 1, 2, ..., without holes. A topic's folder has one for each day (UTC, of writing), with
segments named by the offset they begin with:

    archive/job/2026-11-22/000000000000.log.gz
    archive/job/2026-11-22/000000010000.log

A record is a line: offset, CRC-32 of what follows, the event as JSON. A segment that is full is compressed. An event
is taken when its record is on the disk (fsync), many at a time; a record that a crash left half-written is cut off at
the next start, and events that come again are known by their ids. So after kill -9 there are no holes and no doubles;
where the pool itself can not tell everything any more (it was too long ago, and there is no journal) a record of type
`gap` says so. Runs against `roost up` as it is, over HTTP or AMQP (--pool amqp://...).
"""

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from roost import ClientError, Consumer, Gap, Received
from roost.events import UnknownEvent

#: Records and bytes of a segment.
SEGMENT_RECORDS, SEGMENT_BYTES = 10_000, 16 << 20
#: Ids that are remembered, a topic: more than a pool tells again.
REMEMBERED = 50_000
#: Records that are put on the disk together, and how long the first of them waits for that.
BATCH, BATCH_S = 1000, 0.2


class Damaged(Exception):
    """Names the file, the record, and what is wrong."""


class CutOff(ValueError):
    """A record that is being written, or whose writer died."""


@dataclass(frozen=True)
class Record:
    offset: int
    facts: dict[str, object]


def line_of(offset: int, facts: dict[str, object]) -> bytes:
    text = json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")
    return b"%d\t%08x\t%s\n" % (offset, zlib.crc32(text), text)


def record_of(line: bytes) -> Record:
    """Raises ValueError that says what is wrong."""
    if not line.endswith(b"\n"):
        raise CutOff("is cut off")
    offset, crc, text = line[:-1].split(b"\t", 2)
    if int(crc, 16) != zlib.crc32(text):
        raise ValueError("has another checksum than its content")
    return Record(int(offset), json.loads(text))


def segments(topic: Path) -> list[tuple[int, Path]]:
    """(first offset, file) of a topic, in order. A segment whose compression was not completed counts once."""
    found: dict[int, Path] = {}
    for path in topic.glob("*/*.log*"):
        if name := re.fullmatch(r"(\d{12})\.log(\.gz)?", path.name):
            first = int(name[1])
            # The plain file is removed when the compressed one is whole.
            if first not in found or not name[2]:
                found[first] = path
    return sorted(found.items())


def lines_of(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield from file


class Topic:
    """One topic's log, open for writing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids: dict[str, None] = {}
        self.next = 0
        self._file = None
        self._path = folder
        self._records = self._bytes = 0
        self._recover()

    def _recover(self) -> None:
        """Cut off what a crash left half-written, and remember the ids that came last. Raises Damaged."""
        there = segments(self.folder)
        if not there:
            return
        first, path = there[-1]
        good = 0
        if path.suffix != ".gz":
            path.with_suffix(".log.gz.new").unlink(missing_ok=True)
            with path.open("rb+") as file:
                for line in file:
                    try:
                        record_of(line)
                    except ValueError as error:
                        if file.read(1):
                            raise Damaged(f"{path}: a record at byte {good} {error}, and others follow it") from error
                        break
                    good += len(line)
                file.truncate(good)
                os.fsync(file.fileno())
        kept: list[list[str]] = []
        for number, one in reversed(there):
            records = [record_of(line) for line in lines_of(one)]
            kept.append([str(record.facts.get("id", "")) for record in records])
            if one == path:
                self.next = number + len(records)
            if sum(map(len, kept)) > REMEMBERED:
                break
        self.ids = dict.fromkeys(ident for ids in reversed(kept) for ident in ids if ident)
        if path.suffix != ".gz":
            self._path, self._records, self._bytes = path, self.next - first, good

    def append(self, facts: dict[str, object], day: str) -> bool:
        """False when it is there already."""
        ident = str(facts.get("id", ""))
        if ident and ident in self.ids:
            return False
        full = self._records >= SEGMENT_RECORDS or self._bytes >= SEGMENT_BYTES
        if self._records and (full or self._path.parent.name != day):
            self._roll()
        if self._file is None:
            if not self._records:
                self._path = self.folder / day / f"{self.next:012}.log"
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab")
        line = line_of(self.next, facts)
        self._file.write(line)
        self.next += 1
        self._records += 1
        self._bytes += len(line)
        if ident:
            self.ids[ident] = None
            while len(self.ids) > REMEMBERED:
                del self.ids[next(iter(self.ids))]
        return True

    def sync(self) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def _roll(self) -> None:
        """Compress the segment that is full; the next record begins another."""
        self.close()
        new = self._path.with_suffix(".log.gz.new")
        with self._path.open("rb") as plain, new.open("wb") as file:
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
                while some := plain.read(1 << 20):
                    packed.write(some)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path.with_suffix(".log.gz"))
        self._path.unlink()
        self._records = self._bytes = 0

    def close(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None


class Archive:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.topics = {path.name: Topic(path) for path in folder.iterdir() if path.is_dir()} if folder.exists() else {}

    def append(self, item: Received | Gap, now: float) -> bool:
        if isinstance(item, Gap):
            facts: dict[str, object] = {"type": "gap", "at": now, "reason": item.reason, "after": item.after}
            for name in list(self.topics) or ["daemon"]:
                self._topic(name).append(facts, _day(now))
            return True
        event = item.event
        body = dict(event.body) if isinstance(event, UnknownEvent) else event.model_dump(mode="json")
        facts = {"id": item.id, "type": event.type, "sender": item.sender, **body}
        return self._topic(event.type.partition(".")[0]).append(facts, _day(now))

    def _topic(self, name: str) -> Topic:
        if name not in self.topics:
            if not re.fullmatch(r"[a-z0-9_-]{1,60}", name):
                name = "other"
            if name not in self.topics:
                self.topics[name] = Topic(self.folder / name)
        return self.topics[name]

    def sync(self) -> None:
        for topic in self.topics.values():
            topic.sync()

    def close(self) -> None:
        for topic in self.topics.values():
            topic.close()


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


async def follow(options: argparse.Namespace) -> None:
    archive = Archive(options.folder)
    consumer = Consumer(
        options.pool, name="archiver", durable=True, state=options.folder / "position.json", ahead=2 * BATCH
    )
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        stack.callback(archive.close)
        async with consumer:
            consumer.stop_on_signals(stack)
            print(f"archiving to {options.folder}", flush=True)
            # Items are taken together, when they are on the disk.
            async for items in consumer.batches(BATCH, BATCH_S):
                for item in items:
                    archive.append(item, time.time())
                await loop.run_in_executor(None, archive.sync)


def read(folder: Path, topic: str, first: int) -> Iterator[Record]:
    """Records of a topic from an offset on. Raises Damaged."""
    there = segments(folder / topic)
    for position, (begin, path) in enumerate(there):
        if position + 1 < len(there) and there[position + 1][0] <= first:
            continue
        for record in _records(path, begin, newest=position + 1 == len(there)):
            if record.offset >= first:
                yield record


def _records(path: Path, first: int, *, newest: bool) -> Iterator[Record]:
    """newest: nothing follows, so its last record may be in the making."""
    expected = first
    try:
        for line in lines_of(path):
            record = record_of(line)
            if record.offset != expected:
                raise ValueError(f"has offset {record.offset}")
            yield record
            expected += 1
    except (ValueError, OSError, EOFError, zlib.error) as error:
        if newest and isinstance(error, CutOff):
            return
        raise Damaged(f"{path}: record {expected} {error}") from error


def verify(folder: Path) -> list[str]:
    """A line for each topic. Raises Damaged for the first thing that is wrong."""
    told = []
    for topic in sorted(path for path in folder.iterdir() if path.is_dir()):
        ids: set[object] = set()
        count, files, expected = 0, 0, 0
        there = segments(topic)
        for first, path in there:
            if first != expected:
                raise Damaged(f"{path}: begins with {first}, but {expected} comes next: a segment is missing")
            for record in _records(path, first, newest=path == there[-1][1]):
                ident = record.facts.get("id")
                if ident is not None and ident in ids:
                    raise Damaged(f"{path}: record {record.offset} is event {ident}, which is there already")
                ids.add(ident)
                expected += 1
                count += 1
            files += 1
        told.append(f"{topic.name}: {count} records in {files} segments, offsets 0 to {expected - 1}")
    return told


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] and words[0] not in ("read", "verify", "-h", "--help"):
        words = ["follow", *words]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    following = verbs.add_parser("follow", help="archive events (also without this word)")
    following.add_argument("folder", type=Path)
    following.add_argument("--pool", default=None, help="gateway or broker (default: the pool roost finds)")
    reading = verbs.add_parser("read", help="print a topic")
    reading.add_argument("folder", type=Path)
    reading.add_argument("topic")
    reading.add_argument("--from", dest="first", type=int, default=0, metavar="OFFSET")
    verbs.add_parser("verify", help="check every record").add_argument("folder", type=Path)
    options = parser.parse_args(words)
    try:
        if options.verb == "follow":
            asyncio.run(follow(options))
        elif options.verb == "read":
            for record in read(options.folder, options.topic, options.first):
                print(record.offset, json.dumps(record.facts))
        else:
            print("\n".join(verify(options.folder)))
    except (ClientError, Damaged, OSError) as error:
        sys.exit(f"archiver.py: {error}")


if __name__ == "__main__":
    main()
