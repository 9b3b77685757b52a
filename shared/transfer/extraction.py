"""Receiving a bundle: a parser that is fed bytes and writes to a directory of its own until all was verified."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

from shared.disk_space import is_full
from shared.transfer.errors import NoRoom, TooLarge, TransferError
from shared.transfer.members import (
    BLOCK,
    COUNT_KEY,
    INCOMING,
    MAX_MEMBERS,
    MAX_NAMES,
    MAX_PAX,
    MAX_TRAILER,
    SHA_KEY,
    Entry,
    check_link,
    check_name,
)


class Extraction:
    """A bundle being received: `feed` it bytes in any portions, then `finish`, then `move_in` (or take the verified
    members from `staging`). Leaving the context removes what was not moved. Blocking; not thread-safe."""

    def __init__(self, root: Path, *, limit_bytes: int | None = None) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self.entries: list[Entry] = []
        self.received = 0  # bytes of content
        self._came = 0  # members: without the directories above them that have no entry of their own
        self._buffer = bytearray()
        self._kinds: dict[str, str] = {}  # what each name already is: a link must not become a directory
        self._records: dict[str, str] = {}  # of the pax header before the member
        self._pax: tarfile.TarInfo | None = None
        self._file: IO[bytes] | None = None
        self._member: tarfile.TarInfo | None = None
        self._left = 0  # content bytes still to come
        self._padding = 0
        self._digest = hashlib.sha256()
        self._waiting_for_sum = False
        self._announced: int | None = None
        self._names = 0  # bytes of all names and targets of links
        self._trailer = 0  # bytes behind the end
        self._done = False
        self._modes: list[tuple[str, int]] = []
        try:
            self.staging = Path(tempfile.mkdtemp(prefix=INCOMING, dir=root))
        except OSError as error:
            raise _kind(error)(f"cannot receive files in {root}: {error.strerror}") from error

    def __enter__(self) -> Extraction:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was not moved."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it still held has no room
                self._file.close()
        shutil.rmtree(self.staging, ignore_errors=True)

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises TransferError."""
        try:
            self._feed(data)
        except OSError as error:
            where = self._member.name if self._member is not None else str(self.root)
            raise _kind(error)(f"{where}: cannot be written: {error.strerror}") from error

    def finish(self) -> list[Entry]:
        """All members, once the stream has ended. Raises TransferError if something is missing."""
        if not self._done:
            raise TransferError(f"the transfer ended too early, after {len(self.entries)} members; send it again")
        return list(self.entries)

    def move_in(self) -> None:
        """Put the members to their places below root, replacing files of the same names."""
        for entry in self.entries:
            target = self.root / entry.name
            try:
                self._check_parents(entry.name)
                if entry.kind == "directory":
                    if not target.is_dir() or target.is_symlink():
                        target.mkdir(mode=0o700)
                else:
                    os.replace(self.staging / entry.name, target)
            except OSError as error:
                raise _kind(error)(f"{entry.name}: cannot be put to {target}: {error.strerror}") from error
        for name, mode in reversed(self._modes):
            os.chmod(self.root / name, mode)

    def _check_parents(self, name: str) -> None:
        where = self.root
        for part in name.split("/")[:-1]:
            where = where / part
            if where.is_symlink():
                raise TransferError(f"{name}: {where} is a link; files are not written through links")

    def _feed(self, data: bytes) -> None:
        view = memoryview(data)
        while len(view):
            if self._file is not None:
                piece = view[: self._left]
                view = view[len(piece) :]
                self._file.write(piece)
                self._digest.update(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._end_file()
            elif self._padding:
                skipped = min(self._padding, len(view))
                self._padding -= skipped
                view = view[skipped:]
            elif self._done:
                self._trailer += len(view)
                if self._trailer > MAX_TRAILER or any(view):
                    raise TransferError("there are bytes after the end of the bundle")
                return
            else:
                wanted = BLOCK if self._pax is None else self._pax.size
                missing = wanted - len(self._buffer)
                self._buffer += view[:missing]
                view = view[missing:]
                if len(self._buffer) < wanted:
                    return
                block = bytes(self._buffer)
                self._buffer.clear()
                if self._pax is not None:
                    pax, self._pax = self._pax, None
                    self._padding = -pax.size % BLOCK
                    self._on_records(pax, block)
                else:
                    self._on_header(block)

    def _on_header(self, block: bytes) -> None:
        if not any(block):
            if self._announced is None:
                raise TransferError("the bundle ends without the number of its members; send it again")
            self._done = True
            return
        if self._announced is not None:
            raise TransferError("there are members after the end of the bundle")
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise TransferError(f"damaged after {len(self.entries)} members: {error}") from error
        if info.size < 0:
            raise TransferError(f"damaged after {len(self.entries)} members: a negative size")
        if info.type in (tarfile.XGLTYPE, tarfile.XHDTYPE):
            if not 0 < info.size <= MAX_PAX:
                raise TransferError(f"damaged after {len(self.entries)} members: {info.size} bytes of header")
            self._pax = info
            return
        if self._waiting_for_sum:
            raise TransferError(f"{self.entries[-1].name}: its checksum is missing")
        info.name = self._records.pop("path", info.name)
        info.linkname = self._records.pop("linkpath", info.linkname)
        if "size" in self._records:
            info.size = _number(self._records.pop("size"))
        self._records.clear()
        self._begin(info)

    def _on_records(self, info: tarfile.TarInfo, body: bytes) -> None:
        records = _read_records(body)
        if info.type == tarfile.XHDTYPE:
            if self._records or self._waiting_for_sum:
                raise TransferError(f"damaged after {len(self.entries)} members: a header in the wrong place")
            self._records = records
            return
        if SHA_KEY in records and self._waiting_for_sum:
            self._waiting_for_sum = False
            entry = self.entries[-1]
            if records[SHA_KEY] != entry.sha256:
                raise TransferError(f"{entry.name}: damaged on the way (its SHA-256 differs); send it again")
        elif COUNT_KEY in records and not self._waiting_for_sum:
            self._announced = _number(records[COUNT_KEY])
            if self._announced != self._came:
                raise TransferError(f"{self._came} members arrived where {self._announced} were sent; send it again")
        else:
            raise TransferError(f"damaged after {len(self.entries)} members: a header in the wrong place")

    def _begin(self, info: tarfile.TarInfo) -> None:
        self._came += 1
        parts = check_name(info.name)
        name = "/".join(parts)
        for depth in range(1, len(parts)):
            above = "/".join(parts[:depth])
            kind = self._kinds.get(above)
            if kind is None:
                # Directories that have no entry of their own ("a/b" alone): ordinary ones.
                self._add(tarfile.TarInfo(above), above, "directory", 0o755)
            elif kind != "directory":
                raise TransferError(f"{name}: lies below {above}, which is a {kind}")
        known = self._kinds.get(name)
        mode = info.mode & 0o777
        if known is not None and not (known == "directory" and info.type == tarfile.DIRTYPE):
            raise TransferError(f"{name}: comes twice in one bundle")
        if info.type == tarfile.DIRTYPE:
            if known is None:
                self._add(info, name, "directory", mode)
        elif info.type == tarfile.SYMTYPE:
            check_link(name, info.linkname)
            self._add(info, name, "link", 0o777)
        elif info.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            if self.limit_bytes is not None and self.received + info.size > self.limit_bytes:
                raise TooLarge(f"{name}: with it, the files would exceed the limit of {self.limit_bytes} bytes")
            self.received += info.size
            self._add(info, name, "file", mode)
        else:
            kind = {tarfile.LNKTYPE: "a hard link", tarfile.FIFOTYPE: "a named pipe"}.get(info.type, "a device")
            raise TransferError(f"{name}: is {kind}; only files, directories and symbolic links are taken")

    def _add(self, info: tarfile.TarInfo, name: str, kind: Literal["file", "directory", "link"], mode: int) -> None:
        if len(self.entries) >= MAX_MEMBERS:
            raise TooLarge(f"more than {MAX_MEMBERS} members; put them into an archive")
        self._names += len(name.encode("utf-8", "surrogateescape"))
        self._names += len(info.linkname.encode("utf-8", "surrogateescape")) if kind == "link" else 0
        if self._names > MAX_NAMES:
            raise TooLarge(f"names of more than {MAX_NAMES >> 20} MiB in all; put the files into an archive")
        self._member = info
        self._kinds[name] = kind
        path = self.staging / name
        if kind == "directory":
            path.mkdir(mode=0o700)
            self._modes.append((name, mode | 0o700))
        elif kind == "link":
            path.symlink_to(info.linkname)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            self._file = os.fdopen(descriptor, "wb")
            os.fchmod(descriptor, mode | 0o600)
            self._left = info.size
            self._digest = hashlib.sha256()
            self._waiting_for_sum = True
        size = info.size if kind == "file" else 0
        self.entries.append(Entry(name, kind, size, mode, target=info.linkname if kind == "link" else ""))
        if kind == "file" and size == 0:
            self._end_file()

    def _end_file(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        entry = self.entries[-1]
        self._padding = -entry.size % BLOCK
        self.entries[-1] = replace(entry, sha256=self._digest.hexdigest())


def _kind(error: OSError) -> type[TransferError]:
    return NoRoom if is_full(error) else TransferError


def _read_records(body: bytes) -> dict[str, str]:
    """The records of a pax header. Raises TransferError."""
    records: dict[str, str] = {}
    while body:
        digits, blank, _ = body.partition(b" ")
        with contextlib.suppress(ValueError):
            length = int(digits) if blank and len(digits) < 8 else 0
            record = body[len(digits) + 1 : length]
            key, equals, value = record.partition(b"=")
            if length > len(digits) + 2 and equals and value.endswith(b"\n") and length <= len(body):
                records[key.decode("utf-8", "replace")] = value[:-1].decode("utf-8", "surrogateescape")
                body = body[length:]
                continue
        raise TransferError("damaged: an extended header can not be read")
    return records


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise TransferError(f"damaged: {text[:40]!r} is no size")
    return int(text)
