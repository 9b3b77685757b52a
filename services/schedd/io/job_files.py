"""What a running job does with files at its access point (Chirp): below its directory, or its spool, and nowhere else.

A path is resolved first, and then walked from that directory without following any link: so a link leads anywhere
inside, never out, and nobody who changes links meanwhile gets any further. Blocking; everything raises OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.chirp import PIECE_BYTES

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Names of a directory that are told, and parts of a file that one request may ask for.
MOST_NAMES: Final = 10_000
MOST_PARTS: Final = 4096


def refused(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _part(size: int, stride: int, skip: int) -> tuple[int, int]:
    """Bytes at a time, and from the beginning of one part to that of the next, for so many bytes in all."""
    if stride <= 0:
        return max(1, size), max(1, size)
    if skip < 0 or size > stride * MOST_PARTS:
        raise refused(errno.EINVAL, "stride")
    return stride, skip


def _line(status: os.stat_result) -> bytes:
    """HTCondor's line of what is known of a file."""
    numbers = (
        status.st_dev, status.st_ino, status.st_mode, status.st_nlink, status.st_uid, status.st_gid, status.st_rdev,
        status.st_size, status.st_blksize, status.st_blocks, int(status.st_atime), int(status.st_mtime),
        int(status.st_ctime),
    )  # fmt: skip
    return (" ".join(map(str, numbers)) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that is open, and a name in it: `.` is the directory itself."""

    folder: int
    name: str

    def open(self, flags: int, mode: int = 0) -> int:
        """A plain file."""
        found = os.open(self.name, flags | _FILE, mode, dir_fd=self.folder)
        kind = os.fstat(found).st_mode
        if stat.S_ISREG(kind):
            return found
        os.close(found)
        raise refused(errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL, self.name)

    @contextlib.contextmanager
    def opened(self, flags: int, mode: int = 0) -> Iterator[int]:
        found = self.open(flags, mode)
        try:
            yield found
        finally:
            os.close(found)

    def inner(self) -> None:
        """Raises for the directory itself, which is not the job's to change."""
        if self.name in (".", ".."):
            raise refused(errno.EACCES, self.name)


class JobFiles:
    """root: where the job's names begin. called: what the job may call it, besides; an absolute path. also: where
    further files lie that it may only read. limit_bytes: of one file that it writes; None: none."""

    def __init__(self, root: Path, called: str = "", also: tuple[Path, ...] = (), limit_bytes: int | None = None):
        self._root = os.path.realpath(root)
        self._called = called
        self._also = tuple(os.path.realpath(one) for one in also)
        self._limit = limit_bytes

    # -- places

    def _real(self, root: str, path: str, *, follow: bool) -> str:
        """Where a path leads, below root. Raises OSError for any other."""
        if path.startswith("/") and self._called:
            with contextlib.suppress(ValueError):
                path = str(Path(os.path.normpath(path)).relative_to(os.path.normpath(self._called)))
        whole = os.path.join(root, path)
        if follow or os.path.basename(whole.rstrip("/")) in ("", ".", ".."):
            real = os.path.realpath(whole)
        else:
            whole = whole.rstrip("/")
            real = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        if real != root and not real.startswith(root.rstrip("/") + "/"):
            raise refused(errno.EACCES, path)
        return real

    @contextlib.contextmanager
    def _at(self, path: str, *, follow: bool = True, reading: bool = False) -> Iterator[Place]:
        root, real = self._root, self._real(self._root, path, follow=follow)
        if reading and not os.path.lexists(real):
            for other in self._also:
                there = self._real(other, path, follow=follow)
                if os.path.lexists(there):
                    root, real = other, there
                    break
        parts = [part for part in os.path.relpath(real, root).split("/") if part != "."]
        folder = os.open(root, _FOLDER)
        try:
            for part in parts[:-1]:
                inner = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield Place(folder, parts[-1] if parts else ".")
        finally:
            os.close(folder)

    # -- content

    def open(self, path: str, flags: str, mode: int) -> bytes:
        """As a job opens it, and whether it can: nothing stays open here. Returns the line of what it is."""
        how = (os.O_RDWR if "r" in flags else os.O_WRONLY) if "w" in flags else os.O_RDONLY
        for letter, flag in (("c", os.O_CREAT), ("t", os.O_TRUNC), ("x", os.O_EXCL)):
            if letter in flags and (how != os.O_RDONLY or letter == "x"):
                how |= flag
        with self._at(path, reading=how == os.O_RDONLY) as place, place.opened(how, mode & 0o777) as file:
            return _line(os.fstat(file))

    def read(self, path: str, offset: int, size: int, stride: int = 0, skip: int = 0) -> bytes:
        if offset < 0 or not 0 <= size <= PIECE_BYTES:
            raise refused(errno.EINVAL, path)
        part, step = _part(size, stride, skip)
        found = bytearray()
        with self._at(path, reading=True) as place, place.opened(os.O_RDONLY) as file:
            while len(found) < size:
                piece = os.pread(file, min(part, size - len(found)), offset)
                if not piece:
                    break
                found += piece
                offset += step
        return bytes(found)

    def write(self, path: str, offset: int, data: bytes, append: bool, stride: int = 0, skip: int = 0) -> int:
        """append: at its end, wherever that is."""
        if offset < 0:
            raise refused(errno.EINVAL, path)
        part, step = _part(len(data), stride, skip)
        done = 0
        with self._at(path) as place, place.opened(os.O_WRONLY | (os.O_APPEND if append else 0)) as file:
            if append:
                offset, step = os.fstat(file).st_size, part
            while done < len(data):
                piece = data[done : done + part]
                if self._limit is not None and offset + len(piece) > self._limit:
                    raise refused(errno.EFBIG, path)
                count = os.write(file, piece) if append else os.pwrite(file, piece, offset)
                done += count
                if count < len(piece):
                    break
                offset += step
        return done

    def truncate(self, path: str, size: int) -> None:
        if size < 0:
            raise refused(errno.EINVAL, path)
        if self._limit is not None and size > self._limit:
            raise refused(errno.EFBIG, path)
        with self._at(path) as place, place.opened(os.O_WRONLY) as file:
            os.ftruncate(file, size)

    def fsync(self, path: str) -> None:
        with self._at(path, reading=True) as place, place.opened(os.O_RDONLY) as file:
            os.fsync(file)

    # -- names

    def stat(self, path: str, *, follow: bool = True) -> bytes:
        with self._at(path, follow=follow, reading=True) as place:
            return _line(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False))

    def statfs(self, path: str) -> bytes:
        with self._at(path, reading=True) as place:
            os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
            seen = os.fstatvfs(place.folder)
        numbers = (0, seen.f_bsize, seen.f_blocks, seen.f_bfree, seen.f_bavail, seen.f_files, seen.f_ffree)
        return (" ".join(map(str, numbers)) + "\n").encode()

    def names(self, path: str, *, long: bool = False) -> bytes:
        """The names in a directory, one a line; long: each followed by the line of what it is."""
        with self._at(path, reading=True) as place:
            folder = os.open(place.name, _FOLDER, dir_fd=place.folder)
            try:
                found = sorted(os.listdir(folder))
                if len(found) > MOST_NAMES:
                    raise refused(errno.EFBIG, path)
                lines = []
                for name in found:
                    if "\n" in name:
                        continue  # it would be two
                    lines.append(os.fsencode(name) + b"\n")
                    if long:
                        lines.append(_line(os.stat(name, dir_fd=folder, follow_symlinks=False)))
            finally:
                os.close(folder)
        data = b"".join(lines)
        if len(data) > PIECE_BYTES:
            raise refused(errno.EFBIG, path)
        return data

    def access(self, path: str, mode: int) -> None:
        with self._at(path, reading=True) as place:
            os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
            if not os.access(place.name, mode & 7, dir_fd=place.folder, effective_ids=True):
                raise refused(errno.EACCES, path)

    def readlink(self, path: str, most: int) -> bytes:
        with self._at(path, follow=False, reading=True) as place:
            return os.fsencode(os.readlink(place.name, dir_fd=place.folder))[: max(0, most)]

    # -- changes of names

    def unlink(self, path: str) -> None:
        with self._at(path, follow=False) as place:
            place.inner()
            os.unlink(place.name, dir_fd=place.folder)

    def rename(self, old: str, new: str) -> None:
        with self._at(old, follow=False) as here, self._at(new, follow=False) as there:
            here.inner()
            there.inner()
            os.rename(here.name, there.name, src_dir_fd=here.folder, dst_dir_fd=there.folder)

    def link(self, old: str, new: str) -> None:
        with self._at(old, follow=False) as here, self._at(new, follow=False) as there:
            kind = os.stat(here.name, dir_fd=here.folder, follow_symlinks=False).st_mode
            if not stat.S_ISREG(kind):
                raise refused(errno.EPERM, old)
            os.link(here.name, there.name, src_dir_fd=here.folder, dst_dir_fd=there.folder, follow_symlinks=False)

    def symlink(self, target: str, new: str) -> None:
        """To what lies inside, by a path from where it is: others follow links here who may go further than the job."""
        if target.startswith("/"):
            raise refused(errno.EACCES, target)
        with self._at(new, follow=False) as place:
            place.inner()
            self._real(self._root, os.path.join(os.path.dirname(new), target), follow=True)
            os.symlink(target, place.name, dir_fd=place.folder)

    def mkdir(self, path: str, mode: int) -> None:
        with self._at(path, follow=False) as place:
            os.mkdir(place.name, mode & 0o777, dir_fd=place.folder)

    def rmdir(self, path: str) -> None:
        with self._at(path, follow=False) as place:
            place.inner()
            os.rmdir(place.name, dir_fd=place.folder)

    def rmall(self, path: str) -> None:
        """A directory with all that is in it, or a file."""
        with self._at(path, follow=False) as place:
            place.inner()
            if stat.S_ISDIR(os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode):
                shutil.rmtree(place.name, dir_fd=place.folder)
            else:
                os.unlink(place.name, dir_fd=place.folder)

    def chmod(self, path: str, mode: int) -> None:
        with self._at(path) as place:
            place.inner()
            found = os.open(place.name, os.O_RDONLY | _FILE, dir_fd=place.folder)
            try:
                os.fchmod(found, mode & 0o777)
            finally:
                os.close(found)

    def utime(self, path: str, accessed: int, modified: int) -> None:
        with self._at(path) as place:
            os.utime(place.name, (accessed, modified), dir_fd=place.folder, follow_symlinks=False)
