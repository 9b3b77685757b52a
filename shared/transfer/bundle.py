"""Sandboxes on the wire: one tar stream, each file followed by its SHA-256, the end by the number of members.

The stream is a plain POSIX (pax) tar without compression. After the content of each file comes a pax global header with
`ROOST.sha256`, and before the end one with `ROOST.members`; the tar program skips both. A reader thus knows a
truncated or damaged stream from a whole one, and holds no more of it in memory than a chunk.

Both sides refuse what could reach outside the sandbox: absolute names, `..`, links that lead out, hard links, devices.
Nothing is unpacked by the standard library's `tarfile`, whose protections depend on the patch level of Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import stat
import tarfile
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Final, Literal

from shared.transfer.errors import TooLarge, TransferError
from shared.transfer.extraction import Extraction
from shared.transfer.members import (
    BLOCK,
    COUNT_KEY,
    MAX_MEMBERS,
    MAX_NAMES,
    SHA_KEY,
    Entry,
    Source,
    check_link,
    check_name,
)

#: Bytes read and sent at a time.
CHUNK: Final = 256 * 1024
#: What comes in portions larger than this is written by a thread.
SMALL: Final = 32 * 1024
#: Links on the way to one file, as the kernel has it.
MOST_LINKS: Final = 40
#: More files than this are looked at, put in place and removed in a thread.
FEW: Final = 64


# Sending


def write_bundle(sources: Iterable[Source], *, limit_bytes: int | None = None) -> AsyncIterator[bytes]:
    """The stream of these sources. Raises TransferError for a member that can not or may not be sent, TooLarge before
    the first that exceeds limit_bytes of content or what a bundle may hold.

    A file that shrinks while it is being sent is an error; what it grows by is left out.
    """
    return _write(list(sources), _Amount(limit_bytes))


def check_sources(sources: Iterable[Source], *, limit_bytes: int | None = None) -> int:
    """Bytes of content of these sources. Raises as write_bundle would, so that a sender can say so before it has begun.
    Blocking."""
    amount = _Amount(limit_bytes)
    for source in sources:
        check_name(source.name)
        for member in _members(source):
            if member.file is not None:
                member.file.close()
            amount.add(member)
    return amount.bytes


class _Amount:
    """What a bundle has come to. limit_bytes: of content; None: no limit."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._members = 0
        self._names = 0

    def add(self, member: _Member) -> None:
        """Raises TooLarge."""
        self.bytes += member.size
        self._members += 1
        self._names += len(member.name.encode("utf-8", "surrogateescape")) + len(member.target)
        if self.limit_bytes is not None and self.bytes > self.limit_bytes:
            raise TooLarge(f"{member.name}: with it, the files would exceed the limit of {self.limit_bytes} bytes")
        if self._members > MAX_MEMBERS or self._names > MAX_NAMES:
            raise TooLarge(
                f"{member.name}: more than {MAX_MEMBERS} files, or {MAX_NAMES >> 20} MiB of names; put them into an "
                "archive"
            )


async def _write(sources: list[Source], amount: _Amount) -> AsyncIterator[bytes]:
    members = 0
    buffer = bytearray()
    found = chain.from_iterable(map(_members, sources))
    # Directories and many files may take long to look at; a few files are not worth a thread.
    large = len(sources) > FEW or any(source.path.is_dir() for source in sources)
    while batch := await asyncio.to_thread(_take, found, 256) if large else _take(found, FEW):
        for number, member in enumerate(batch):
            members += 1
            try:
                amount.add(member)
            except TooLarge:
                _close(batch[number:])
                raise
            buffer += member.header()
            if member.kind == "file":
                async for piece in _content(member):
                    buffer += piece
                    if len(buffer) >= CHUNK:
                        yield bytes(buffer)
                        buffer.clear()
            if len(buffer) >= CHUNK:
                yield bytes(buffer)
                buffer.clear()
                await asyncio.sleep(0)  # the receiver may take everything at once: others have their turn
    buffer += _pax(tarfile.XGLTYPE, {COUNT_KEY: str(members)})
    buffer += bytes(2 * BLOCK)
    yield bytes(buffer)


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    kind: Literal["file", "directory", "link"]
    path: Path
    mode: int = 0
    target: str = ""
    file: IO[bytes] | None = None
    size: int = 0

    def header(self) -> bytes:
        info = tarfile.TarInfo(self.name)
        info.mode = self.mode & 0o777
        info.size = self.size
        if self.kind == "directory":
            info.type = tarfile.DIRTYPE
        elif self.kind == "link":
            info.type, info.linkname = tarfile.SYMTYPE, self.target
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _take(members: Iterator[_Member], count: int) -> list[_Member]:
    batch: list[_Member] = []
    try:
        for member in members:
            batch.append(member)
            if len(batch) == count:
                break
    except BaseException:
        _close(batch)
        raise
    return batch


def _close(members: Iterable[_Member]) -> None:
    for member in members:
        if member.file is not None:
            member.file.close()


def _members(source: Source) -> Iterator[_Member]:
    """The members of one source; each error names the one it is about."""
    check_name(source.name)
    name = source.name
    try:
        path = _real(source)
        status = path.stat()
    except OSError as error:
        raise TransferError(f"{name}: cannot read {source.path}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        yield _file(name, path, source.owner)
        return
    yield _Member(name, "directory", path, stat.S_IMODE(status.st_mode))
    pending = [(name, path)]
    while pending:
        folder, where = pending.pop()
        try:
            with os.scandir(where) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            raise TransferError(f"{folder}: cannot list {where}: {error.strerror}") from error
        for entry in entries:
            inner = f"{folder}/{entry.name}"
            try:
                member = _inner(inner, entry, inner.count("/") - name.count("/") - 1, source.owner)
            except OSError as error:  # a path may be too long for the system, a link gone by now
                raise TransferError(f"cannot read {inner[-200:]}: {error.strerror}") from error
            if member.kind == "directory":
                pending.append((inner, member.path))
            yield member


def _inner(name: str, entry: os.DirEntry[str], depth: int, owner: int | None) -> _Member:
    """One entry of a directory that is sent. depth: how far below that directory it lies."""
    path = Path(entry.path)
    if entry.is_symlink():
        target = os.readlink(path)
        # Inside the directory that is sent, not merely inside the sandbox: its siblings may not be sent.
        check_link(name, target, depth=depth)
        return _Member(name, "link", path, 0o777, target)
    check_name(name)
    if entry.is_dir(follow_symlinks=False):
        return _Member(name, "directory", path, stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode))
    return _file(name, path, owner)


def _real(source: Source) -> Path:
    """Where a source truly lies. Raises TransferError if that is outside of where it may lie."""
    path = Path(os.path.abspath(source.path))
    if source.follow:
        return Path(os.path.realpath(path, strict=True))
    base = source.within
    if base is None:
        parts = Path(source.name).parts
        base = path.parents[len(parts) - 1] if path.parts[-len(parts) :] == parts else path.parent
    real_base = os.path.realpath(base)
    # In another mount namespace, reached by its /proc/PID/root, there are no paths but from there.
    elsewhere = not os.path.exists(real_base) or not os.path.samefile(base, real_base)
    real = _beneath(base, path) if elsewhere else Path(os.path.realpath(path, strict=True))
    if real is None or not real.is_relative_to(base if elsewhere else real_base):
        where = real or "a place"
        raise TransferError(f"{source.name}: is a link to {where}, outside of {base}; copy the file instead")
    return real


def _beneath(base: Path, path: Path) -> Path | None:
    """Where a path below base truly lies, links followed one by one; None when one leads out or is absolute. Raises
    OSError."""
    todo = list(reversed(path.relative_to(base).parts))
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            if not done:
                return None
            done.pop()
            continue
        where = base.joinpath(*done, part)
        if not stat.S_ISLNK(where.lstat().st_mode):
            done.append(part)
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(where)
        if os.path.isabs(target):
            return None
        todo.extend(reversed(Path(target).parts))
    return base.joinpath(*done)


def _file(name: str, path: Path, owner: int | None) -> _Member:
    """A regular file: opened here, so that what was checked is what is sent."""
    try:
        # O_NONBLOCK: opening a named pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TransferError(f"{name}: cannot read {path}: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise TransferError(f"{name}: {path} is no regular file; only files, directories and links are transferred")
    if owner is not None and status.st_nlink > 1 and status.st_uid != owner:
        os.close(descriptor)
        raise TransferError(f"{name}: {path} is a link to a file of another account (uid {status.st_uid}); copy it")
    return _Member(
        name, "file", path, stat.S_IMODE(status.st_mode), file=os.fdopen(descriptor, "rb"), size=status.st_size
    )


def open_source(source: Source) -> IO[bytes]:
    """The file, open: what was checked is what is read. Raises TransferError for a directory too."""
    try:
        path = _real(source)
    except OSError as error:
        raise TransferError(f"{source.name}: cannot read {source.path}: {error.strerror}") from error
    file = _file(source.name, path, source.owner).file
    assert file is not None
    return file


def checksums(sources: Iterable[Source], *, limit_bytes: int | None = None) -> list[tuple[str, str]]:
    """SHA-256, as a text, and name of every file that these sources are or have in them. Raises TransferError, also for
    links. Blocking."""
    amount, found = _Amount(limit_bytes), []
    for source in sources:
        for member in _members(source):
            with member.file or contextlib.nullcontext() as file:
                amount.add(member)
                if member.kind == "link":
                    raise TransferError(f"{member.name}: is a link; only plain files can be kept at a URL")
                if file is None:
                    continue
                digest = hashlib.sha256()
                while piece := file.read(CHUNK):
                    digest.update(piece)
                found.append((digest.hexdigest(), member.name))
    return found


async def _content(member: _Member) -> AsyncIterator[bytes]:
    """Content, padding and checksum of a file."""
    assert member.file is not None
    left = member.size
    digest = hashlib.sha256()
    with member.file as file:
        while left > 0:
            try:
                piece = file.read(left) if left <= CHUNK else await asyncio.to_thread(file.read, CHUNK)
            except OSError as error:
                raise TransferError(f"{member.name}: cannot read {member.path}: {error.strerror}") from error
            if not piece:
                raise TransferError(f"{member.name}: {member.path} became shorter while it was being sent")
            digest.update(piece)
            left -= len(piece)
            yield piece
    yield bytes(-member.size % BLOCK) + _pax(tarfile.XGLTYPE, {SHA_KEY: digest.hexdigest()})


def _pax(kind: bytes, records: dict[str, str]) -> bytes:
    """A pax header block of our own with its records."""
    body = b""
    for key, value in records.items():
        text = f" {key}={value}\n".encode()
        length = len(text) + 1
        while len(str(length)) + len(text) != length:
            length = len(str(length)) + len(text)
        body += str(length).encode() + text
    info = tarfile.TarInfo("./ROOST")
    info.type, info.size, info.mode = kind, len(body), 0o644
    return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape") + body + bytes(-len(body) % BLOCK)


# Receiving


@contextlib.asynccontextmanager
async def receiving(root: Path, *, limit_bytes: int | None = None) -> AsyncIterator[Extraction]:
    """An Extraction in root. What it still has at the end is removed. Raises TransferError."""
    extraction = Extraction(root, limit_bytes=limit_bytes)
    try:
        yield extraction
    finally:
        if len(extraction.entries) > FEW:
            await asyncio.to_thread(extraction.close)
        else:
            extraction.close()


async def feed(extraction: Extraction, chunk: bytes) -> None:
    """Give an extraction its next bytes. Others have their turn, also where there is always a next chunk: one may hold
    hundreds of small files."""
    if len(chunk) > SMALL:
        await asyncio.to_thread(extraction.feed, chunk)
    else:
        extraction.feed(chunk)
        await asyncio.sleep(0)


async def read_bundle(chunks: AsyncIterable[bytes], root: Path, *, limit_bytes: int | None = None) -> list[Entry]:
    """Receive a stream into the directory `root`, all or nothing.

    Members are written to a directory of their own inside root and moved to their places only when the whole stream was
    received and verified. Files that were there already under these names are replaced. limit_bytes bounds the content.
    Raises TransferError for anything that is not a whole, honest bundle; root is then as it was.
    """
    async with receiving(root, limit_bytes=limit_bytes) as extraction:
        async for chunk in chunks:
            await feed(extraction, chunk)
        entries = extraction.finish()
        if len(entries) > FEW:
            await asyncio.to_thread(extraction.move_in)
        else:
            extraction.move_in()
        return entries


__all__ = [
    "CHUNK",
    "Entry",
    "Extraction",
    "Source",
    "check_sources",
    "feed",
    "read_bundle",
    "receiving",
    "write_bundle",
]
