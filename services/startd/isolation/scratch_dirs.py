"""Scratch directories: made private, given to the job's account, measured, and removed whatever the job did to them.

A hostile job may have made any tree of directories: it is walked without ever being left. Nothing here follows a link
or goes by a long path: each directory is opened from the one it is in, and the way back is by `..`, checked against
where we came from. Two directories are open at a time, whatever the depth; names are bytes to the kernel and may be
anything.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

#: Up to so many files are removed without a thread.
SMALL = 16


def prefix(startd: str) -> str:
    """How the scratch directories of one startd begin, so that several startds can share one EXECUTE."""
    return f"dir_{sha256(startd.encode()).hexdigest()[:8]}_"


def name_of(startd: str, unique: str) -> str:
    """The name of a scratch directory. `unique` must be hard to guess."""
    return prefix(startd) + unique


def make(execute: Path, name: str) -> Path:
    """A new scratch directory that only this user can enter."""
    path = execute / name
    os.mkdir(path, 0o700)
    return path


def remove_small(path: Path) -> bool:
    """Remove a scratch directory that holds a few plain files at most, at once; False when it is more work: a thread
    for each short job would cost more than the job."""
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry, _ in zip(entries, range(SMALL + 1), strict=False) if not entry.is_dir()]
        if len(names) > SMALL:
            return False
        for name in names:
            os.unlink(name)
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove(path: Path) -> bool:
    """Remove a scratch directory with everything in it; whether nothing is left. Never leaves it through a link."""
    return not remove_tree(path)


def sweep(execute: Path, startd: str, keep: Iterable[str]) -> list[str]:
    """Remove this startd's scratch directories that no run owns (after a crash); names of those that resisted."""
    kept = set(keep)
    start = prefix(startd)
    resisted = []
    for name in os.listdir(execute):
        if name.startswith(start) and name not in kept and not remove(execute / name):
            resisted.append(name)
    return resisted


#: Of a tree that has more entries than this, the rest is not measured.
MOST_ENTRIES = 5_000_000
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_IMMUTABLE = 0x10 | 0x20  # immutable, append only


@dataclass(slots=True)
class _Level:
    name: str
    ident: tuple[int, int]
    todo: list[str] = field(default_factory=list)


#: What is done with each directory: gets its descriptor, returns the names of those in it that are to be entered.
Visit = Callable[[int], list[str]]
#: What is done when all below is: gets the descriptor of the directory above, and the name.
Leave = Callable[[int, str], None]


def walk_tree(root: Path, visit: Visit, leave: Leave | None = None, open_up: Visit | None = None) -> None:
    """Visit every directory of a tree on one file system, the root first. `open_up` is tried on what can not be
    entered (given the one above it). A directory that is moved away meanwhile ends the walk. Raises OSError only for
    the root itself."""
    fd = os.open(root, _FLAGS)
    try:
        device = os.fstat(fd).st_dev
        stack = [_Level("", _ident(fd), visit(fd))]
        while stack:
            level = stack[-1]
            if level.todo:
                name = level.todo.pop()
                child = _enter(fd, name, open_up)
                if child is None:
                    continue
                if os.fstat(child).st_dev != device:
                    os.close(child)
                    continue
                os.close(fd)
                fd = child
                stack.append(_Level(name, _ident(fd), visit(fd)))
                continue
            stack.pop()
            if not stack:
                return
            above = os.open("..", _FLAGS, dir_fd=fd)
            os.close(fd)
            fd = above
            if _ident(fd) != stack[-1].ident:
                return
            if leave is not None:
                leave(fd, level.name)
    except FileNotFoundError:
        return  # `..` of a directory that somebody removed
    finally:
        os.close(fd)


def _ident(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _enter(fd: int, name: str, open_up: Visit | None) -> int | None:
    try:
        return os.open(name, _FLAGS, dir_fd=fd)
    except PermissionError:
        if open_up is None:
            return None
    except OSError:
        return None  # gone, or no directory any more
    try:
        os.chmod(name, 0o700, dir_fd=fd)  # not a link: a link would have been ELOOP above
        return os.open(name, _FLAGS, dir_fd=fd)
    except OSError:
        return None


# ---------------------------------------------------------------- measuring


def size_kib(root: Path) -> int:
    """What a tree occupies, KiB; what can not be read, or is on another file system, counts as empty. A file with
    several names counts once."""
    blocks = entries = 0
    seen: set[int] = set()

    def visit(fd: int) -> list[str]:
        nonlocal blocks, entries
        folders = []
        with contextlib.suppress(OSError), os.scandir(fd) as found:
            for entry in found:
                entries += 1
                if entries > MOST_ENTRIES:
                    return []
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # removed meanwhile by the job
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.name)
                elif status.st_nlink > 1:
                    if status.st_ino in seen:
                        continue
                    seen.add(status.st_ino)
                blocks += status.st_blocks
        return folders

    try:
        walk_tree(root, visit)
    except OSError:
        return 0
    return blocks // 2


# ---------------------------------------------------------------- giving away


def give_tree(root: Path, uid: int, gid: int) -> None:
    """Make an account the owner of a tree. Nobody else may write to it yet. Raises OSError."""

    def visit(fd: int) -> list[str]:
        os.fchown(fd, uid, gid)
        folders = []
        with os.scandir(fd) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    os.chown(entry.name, uid, gid, dir_fd=fd, follow_symlinks=False)
        return folders

    walk_tree(root, visit)


# ---------------------------------------------------------------- removing


def remove_tree(root: Path) -> list[str]:
    """Remove a tree, whatever its permissions are; why something is left, a few reasons at most."""
    troubles: list[str] = []

    def trouble(name: str, error: OSError) -> None:
        if len(troubles) < 3:
            troubles.append(f"{name.encode(errors='surrogateescape').decode(errors='replace')}: {error.strerror}")

    def take(fd: int, name: str, call: Callable[..., None]) -> None:
        try:
            call(name, dir_fd=fd)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES):
                _release(fd, name)
                with contextlib.suppress(OSError):
                    call(name, dir_fd=fd)
                    return
            trouble(name, error)

    def visit(fd: int) -> list[str]:
        folders = []
        with contextlib.suppress(OSError):
            if os.fstat(fd).st_mode & 0o700 != 0o700:
                os.fchmod(fd, 0o700)
        try:
            with os.scandir(fd) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    else:
                        take(fd, entry.name, os.unlink)
        except OSError as error:
            trouble(".", error)
        return folders

    try:
        _open_root(root)
        walk_tree(root, visit, lambda fd, name: take(fd, name, os.rmdir), open_up=visit)
        os.rmdir(root)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        os.unlink(root)  # a link in its place goes, not what it leads to
    except OSError as error:
        trouble(root.name, error)
    return troubles if os.path.lexists(root) else []


def _open_root(root: Path) -> None:
    if os.lstat(root).st_mode & 0o700 != 0o700 and not root.is_symlink():
        os.chmod(root, 0o700)


def _release(fd: int, name: str) -> None:
    """Take away what keeps an entry from being removed: flags of its directory or its own (chattr +i, +a)."""
    with contextlib.suppress(OSError):
        _clear_flags(fd)
    with contextlib.suppress(OSError):
        entry = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        try:
            _clear_flags(entry)
        finally:
            os.close(entry)


def _clear_flags(fd: int) -> None:
    flags = array.array("l", [0])
    fcntl.ioctl(fd, _GET_FLAGS, flags)
    if flags[0] & _IMMUTABLE:
        flags[0] &= ~_IMMUTABLE
        fcntl.ioctl(fd, _SET_FLAGS, flags)
