"""Takes a backup of what a pool, or the daemons of one machine, keep, while they work.

A database is copied by SQLite's own backup, so it is one that was committed at some moment, and is checked afterwards.
Files of jobs are copied before and after it: each job of the copied queue has its files, whichever came or went
meanwhile. What lies in Redis is read a shard at a time, each as it was at one moment.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from roost.backup import stored_state
from roost.backup.manifest import (
    CONFIGURATION,
    MANIFEST,
    POOL,
    SPOOL,
    STATE,
    Manifest,
    damage_of,
    digest_of,
    highest,
    is_database,
    is_of_jobs,
    versions_in,
)
from roost.errors import ClientError
from shared import private_files
from shared.errors import RoostError
from shared.files import replace_on_disk
from shared.state import Store, open_store
from shared.state.embedded import JOURNAL
from shared.state.private import socket_path
from shared.tls import ClientTls

#: Of SPOOL, what is not copied: names of what belongs to a process, and beginnings of paths.
_ENDS: Final = ("-wal", "-shm", "-journal", ".lock", ".pid", ".sock", ".socket", ".new")
#: A startd's database tells of processes of this machine; uploads under way are begun again by who sends them.
_NOT: Final = ("startd/",)
_UNDER_WAY: Final = "incoming"
#: In a personal pool's directory, what is no file of its spool and is kept.
_OF_POOL: Final = ("config", "config.d", "token", "gateway.key", "gateway.key.pub", "passwords.d", "tls", "identities")
#: Seconds that a copy of a database waits for a lock.
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be backed up. spool: SPOOL. pool: a personal pool's directory, None for a machine of a larger pool.
    configuration: files of a machine's configuration. store: URL of Redis; empty: none, or the personal pool's own.
    shards: names of its negotiators that have one."""

    spool: Path
    pool: Path | None = None
    configuration: Sequence[str] = ()
    store: str = ""
    shards: Sequence[str] = ()
    tls: ClientTls | None = None


def take(source: Source, directory: Path, about: Manifest) -> Manifest:
    """Make the directory, which must not be there: it appears with its name when it is whole and checked. Raises
    ClientError, and OSError."""
    if directory.exists():
        raise ClientError(f"{directory} is there already: a backup is made in a new directory", "failed")
    if not source.spool.is_dir():
        raise ClientError(
            f"there is no spool at {source.spool}: is this machine's configuration the right one?", "failed"
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))  # 0700
    try:
        made = _copied(source, partial, about)
        replace_on_disk(partial / MANIFEST, made.text().encode(), 0o600)
        partial.rename(directory)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return made


def _copied(source: Source, target: Path, about: Manifest) -> Manifest:
    left_out = [*about.left_out, "what startds keep of running jobs: those run again, or are found by their startds"]
    _copy_files(source.spool, target / SPOOL)
    for database in _databases(source.spool):
        copy_database(database, target / SPOOL / database.relative_to(source.spool))
    _copy_files(source.spool, target / SPOOL)  # of jobs that came meanwhile
    configuration = {}
    if source.pool is not None:
        for name in _OF_POOL:
            _copy(source.pool / name, target / POOL / name)
    for number, path in enumerate(source.configuration):
        name = f"{CONFIGURATION}/{number:02d}-{Path(path).name}"
        _copy(Path(path), target / name)
        if (target / name).exists():
            configuration[name] = path
    state = asyncio.run(_state(source))
    if state is None:
        left_out.append("what lies in Redis: this machine's configuration names none (ROOST_REDIS_URL)")
    else:
        replace_on_disk(target / STATE, state.pack(), 0o600)
    try:
        keeps = dict(highest(versions_in(target / SPOOL)))
        keeps |= {kind: int(version) for kind, version in (state.versions() if state else {}).items()}
    except (sqlite3.Error, ValueError) as error:
        raise ClientError(f"the copy of {source.spool} can not be read: {error}", "failed") from error
    files = {str(path.relative_to(target)): digest_of(path) for path in _below(target)}
    return replace(about, keeps=keeps, files=files, configuration=configuration, left_out=left_out)


def copy_database(path: Path, target: Path) -> None:
    """A database as it was at one moment, though somebody writes to it. Raises ClientError."""
    private_files.make_database(target)
    target.unlink()
    try:
        with (
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_PATIENCE_S)) as there,
            closing(sqlite3.connect(target)) as copy,
        ):
            there.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, that can be moved
    except sqlite3.Error as error:
        raise ClientError(f"{path} can not be copied: {error}", "failed") from error
    _keep_owner(path, target)
    if damage := damage_of(target):
        raise ClientError(f"the copy of {path} is damaged, so the database itself may be: {damage}", "failed")


def _databases(spool: Path) -> list[Path]:
    found = ((path, path.relative_to(spool)) for path in spool.rglob("*.db") if path.is_file())
    return sorted(path for path, name in found if is_database(name) and not _left(name))


def _left(name: Path) -> bool:
    """Whether a path below SPOOL is not copied."""
    if is_of_jobs(name):
        return False
    text = name.as_posix()
    return text.startswith(_NOT) or text.endswith(_ENDS) or _UNDER_WAY in name.parts


def _copy_files(spool: Path, target: Path) -> None:
    """All but databases, that are not there yet or have changed. What goes meanwhile is no error. Raises OSError."""
    private_files.make_directory(target)
    for path in _below(spool, directories=True):
        name = path.relative_to(spool)
        if not is_database(name) and not _left(name):
            _copy(path, target / name, recursive=False)


def _copy(path: Path, target: Path, *, recursive: bool = True) -> None:
    """A file, link or directory with its owner and mode; nothing where there is none. Sockets and the like are none."""
    try:
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode):
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            for one in path.iterdir() if recursive else ():
                _copy(one, target / one.name)
        elif stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
            if target.is_symlink() or (target.exists() and _same(about, target.stat())):
                return
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
        else:
            return
        _keep_owner(path, target)
    except FileNotFoundError:
        return


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return one.st_size == other.st_size and one.st_mtime_ns == other.st_mtime_ns


def _keep_owner(path: Path, target: Path) -> None:
    about = path.lstat()
    if os.geteuid() == 0:
        os.chown(target, about.st_uid, about.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(about.st_mode):
        os.chmod(target, stat.S_IMODE(about.st_mode))


def _below(folder: Path, *, directories: bool = False) -> Iterator[Path]:
    """Files and links below a directory, links not followed."""
    for place, names, files in os.walk(folder):
        here = Path(place)
        links = [name for name in names if (here / name).is_symlink()]
        for name in sorted([*files, *links, *(names if directories else ())]):
            yield here / name


async def _state(source: Source) -> stored_state.StoredState | None:
    """What lies in Redis; None where there is none to read. Raises ClientError."""
    try:
        if source.store:
            return await _read(open_store(source.store, tls=source.tls), source.shards)
        if source.pool is None:
            return None
        socket = socket_path(source.pool)
        if socket.exists():
            return await _read(open_store(f"unix://{socket}"), source.shards)
        with tempfile.TemporaryDirectory(prefix="roost-backup-") as folder:
            # As it lies on disk: nobody has it open, or somebody only adds to its end.
            for name in (JOURNAL, "appendonlydir", "appendonly.aof"):
                _copy(source.pool / name, Path(folder) / name)
            return await _read(open_store("auto", Path(folder)), source.shards)
    except RoostError as error:
        raise ClientError(f"what lies in Redis can not be read: {error}", "failed") from error


async def _read(store: Store, shards: Sequence[str]) -> stored_state.StoredState:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await store.start()
        return await stored_state.read(store, shards)
    except TimeoutError:
        raise ClientError(f"it does not answer within {_PATIENCE_S:g} s: {store.health.last_error}", "failed") from None
    finally:
        await store.stop()
