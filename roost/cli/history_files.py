"""Files of jobs that left the queue, as schedds and startds write them: records of `Name = value` lines, each with a
line of stars behind it that says whose it is. A file may be longer than what fits in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final

from roost.cli.print_mask import integer
from roost.errors import UsageError
from shared.classad import ClassAd, ParseError

_WARNING: Final = "\t*** Warning: Bad history file; skipping malformed ad(s)\n"
_ID: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?\Z")
#: What a line of stars says of the record above it: `*** TYPE Offset = 0 ClusterId = 1 ProcId = 0 Owner = "x" ...`.
_SAYS: Final = re.compile(r'([A-Za-z_]+) *= *("(?:[^"\\]|\\.)*"|[^ ]+)')
_TYPE: Final = re.compile(r"\*+ *([A-Za-z_]+) +[A-Za-z_]+ *=")


def rotated(file: Path) -> list[Path]:
    """The history file and its older ones (`NAME.20261122T120000`), oldest first; those of them that there are."""
    return [*sorted(file.parent.glob(f"{file.name}.[0-9]*T[0-9]*")), *([file] if file.exists() else ())]


@dataclass(frozen=True, slots=True)
class Banner:
    """A line of stars. cluster -1, owner "": it does not say; completed: seconds since 1970, 0 for unknown."""

    kind: str = ""  # EPOCH, ...; JOB is the usual; "" where the line says nothing at all
    cluster: int = -1
    proc: int = -1
    owner: str = ""
    completed: int = 0


def banner(line: str) -> Banner:
    """What a line of stars says."""
    said = {name.lower(): value for name, value in _SAYS.findall(line)}
    if not said:
        return Banner()
    kind = _TYPE.match(line)
    return Banner(
        kind=kind[1].upper() if kind is not None else "JOB",
        cluster=_number(said.get("clusterid"), -1) or -1,
        proc=_number(said.get("procid"), -1),
        owner=said.get("owner", "").strip('"'),
        completed=_number(said.get("completiondate"), 0) or _number(said.get("currenttime"), 0),
    )


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() and text.isascii() and len(text) < 19 else default


def _of_ad(ad: ClassAd | None, name: str) -> int:
    """-1: it has no such number."""
    found = integer(ad, name) if ad is not None else None
    return -1 if found is None else found


@dataclass(slots=True)
class _Id:
    """A job or cluster that is looked for. left: how many of a cluster's jobs are still to come; -1: not known."""

    cluster: int
    proc: int = -1
    left: int = -1
    seen: int = 0
    queued: int = -1  # QDate
    done: bool = False


@dataclass(slots=True)
class Search:
    """Whose records are looked for: the words of a command line (jobs, clusters, owners) and the types of records
    ("ALL" for any). Where its words are jobs the search knows when it has them all."""

    words: Sequence[str] = ()
    kinds: frozenset[str] = frozenset(("JOB",))
    ids: list[_Id] = field(init=False)
    owners: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        found = [(word, _ID.match(word)) for word in self.words]
        self.ids = [_Id(int(job[1]), int(job[2]) if job[2] else -1) for _, job in found if job is not None]
        self.owners = frozenset(word.lower() for word, job in found if job is None)

    def wants(self, of: Banner) -> bool:
        """Whether the record of this line of stars may be one of those."""
        if of.kind and "ALL" not in self.kinds and of.kind not in self.kinds:
            return False
        if not of.kind or not (self.ids or self.owners):
            return True
        if (self.ids and of.cluster < 0) or (self.owners and not of.owner):
            return True
        return any(one.cluster == of.cluster for one in self.ids) or of.owner.lower() in self.owners

    def complete(self, of: Banner, ad: ClassAd | None) -> bool:
        """Take note of a record (None: it was passed over). Whether nothing that is looked for can follow."""
        if not self.ids:
            return False
        cluster = _of_ad(ad, "ClusterId") if of.cluster < 0 else of.cluster
        proc = _of_ad(ad, "ProcId") if of.proc < 0 else of.proc
        taken = ad is None
        for one in self.ids:
            if one.cluster == cluster and ad is not None and not one.done:
                one.queued = _of_ad(ad, "QDate") if one.queued < 0 else one.queued
                if not taken and one.proc in (-1, proc):
                    taken = True
                    one.seen += 1
                    if one.proc >= 0:
                        one.done = True
                        continue
                    if one.left < 0:
                        total = _of_ad(ad, "TotalSubmitProcs")
                        one.left = max(0, total - one.seen) if total >= 0 else -1
                    else:
                        one.left -= 1
                    one.done = one.left == 0
                    continue
            # What was completed before the cluster was queued has nothing of it before itself.
            one.done = one.done or 0 < of.completed < one.queued
        return not self.owners and all(one.done for one in self.ids)


def jobs(file: Path, search: Search, *, forwards: bool) -> Iterator[ClassAd | str]:
    """The jobs of a history file, newest first; a text for what can not be read. What stands behind the last line of
    stars is still being written. Those that `search` does not want are passed over, but for `forwards`, where each is
    read. Raises UsageError."""
    try:
        with file.open("rb") as stream:
            for raw, stars in _forwards(stream) if forwards else _backwards(stream):
                of = banner(stars.decode(errors="surrogateescape"))
                if not forwards and not search.wants(of):
                    if search.complete(of, None):
                        return
                    continue
                lines = [line for line in _lines_of(raw) if line.strip() and not line.lstrip(" \t").startswith("#")]
                if not lines:
                    continue
                ad = _record(lines)
                yield ad
                if not isinstance(ad, str) and search.complete(of, ad):
                    return
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error


def _forwards(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Each record, and the line of stars behind it."""
    lines: list[bytes] = []
    for raw in stream:
        if raw.startswith(b"***"):
            yield b"".join(lines), raw
            lines.clear()
        else:
            lines.append(raw)
    yield b"".join(lines), b""


def _backwards(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The same from the last one that is complete on, without looking at what stands before those that are taken."""
    data: bytes | mmap
    try:
        data = mmap(stream.fileno(), 0, access=ACCESS_READ)
    except (OSError, ValueError):  # empty, or no file that can be mapped
        data = stream.read()
    end = _star_line(data, len(data))
    while end >= 0:
        start = _star_line(data, end)
        after = data.find(b"\n", start, end) + 1 if start >= 0 else 0
        stop = data.find(b"\n", end)
        yield data[after:end], data[end : stop + 1 if stop >= 0 else len(data)]
        end = start


def _star_line(data: bytes | mmap, end: int) -> int:
    """Where the last line before `end` begins that begins with stars; -1 for none."""
    found = data.rfind(b"\n***", 0, end)
    return found + 1 if found >= 0 else 0 if end > 0 and data[:3] == b"***" else -1


def _lines_of(raw: bytes) -> list[str]:
    return raw.decode(errors="surrogateescape").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _record(lines: list[str]) -> ClassAd | str:
    from shared.classad.old import parse_old_ad

    try:
        return parse_old_ad(lines)
    except (ParseError, ValueError):
        return _WARNING
