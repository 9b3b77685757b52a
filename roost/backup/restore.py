"""Puts a backup back, into a place where nothing of a pool is yet: a personal pool's directory, or the SPOOL and the
Redis of a machine. Everything is checked before anything is written."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roost.backup import stored_state
from roost.backup.manifest import POOL, SPOOL, STATE, Manifest, check
from roost.backup.stored_state import StoredState
from roost.errors import ClientError
from roost.pool_directory import CONFIG_FILE
from shared.errors import RoostError
from shared.state import open_store
from shared.tls import ClientTls

_PATIENCE_S: Final = 30.0
#: Daemons whose state goes by their names: SPOOL/schedd/NAME.
_BY_NAME: Final = ("SCHEDD",)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a backup goes. pool: a personal pool's directory; None: a machine of a larger pool, with these. spool:
    SPOOL. store: URL of Redis; empty: what lies there is not put back. configuration: whether files of the
    configuration are written where they were, if there are none."""

    pool: Path | None = None
    spool: Path | None = None
    store: str = ""
    configuration: bool = False
    tls: ClientTls | None = None


def restore(directory: Path, manifest: Manifest, target: Target, names: Mapping[str, str]) -> list[str]:
    """What was done, in words. names: that the daemons of this machine have by its configuration, by subsystem. Raises
    ClientError, and OSError."""
    if problems := check(directory, manifest):
        raise ClientError(f"{directory} is not to be restored: {'; '.join(problems[:5])}", "failed")
    state = StoredState.unpack((directory / STATE).read_bytes()) if (directory / STATE).exists() else None
    if target.pool is not None:
        return _pool(directory, manifest, target.pool, state, names)
    assert target.spool is not None
    return _machine(directory, manifest, target, state)


def _pool(
    directory: Path, manifest: Manifest, pool: Path, state: StoredState | None, names: Mapping[str, str]
) -> list[str]:
    if not manifest.personal:
        raise ClientError(f"{directory} is of a machine of a larger pool: restore it without -dir", "failed")
    if pool.exists() and any(pool.iterdir()):
        raise ClientError(f"{pool} is not empty: a pool is restored into a new directory", "failed")
    pool.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{pool.name}.", dir=pool.parent))
    try:
        _copy_tree(directory / POOL, partial)
        _copy_tree(directory / SPOOL, partial / "spool")
        kept = _keep_names(manifest, partial / CONFIG_FILE, names)
        if state is not None:
            asyncio.run(_write("auto", partial, state, None))
        if pool.exists():
            pool.rmdir()
        partial.rename(pool)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    done = [f"restored the pool of {manifest.host} into {pool}"]
    return [*done, *kept, *_said(state, manifest)]


def _keep_names(manifest: Manifest, config: Path, names: Mapping[str, str]) -> list[str]:
    """Have the daemons go on under the names that their state goes by, where this machine would give them others."""
    other = {
        subsystem: name
        for subsystem, name in manifest.names.items()
        if subsystem in _BY_NAME and names.get(subsystem, name) != name
    }
    if not other:
        return []
    lines = "".join(f"{subsystem}_NAME = {name}\n" for subsystem, name in other.items())
    with config.open("a", encoding="utf-8") as file:
        file.write(
            f"\n# Written by `roost restore`: the queue goes by the name of the machine that it comes from.\n{lines}"
        )
    return [f"wrote into {config.name}: {line}" for line in lines.splitlines()]


def _machine(directory: Path, manifest: Manifest, target: Target, state: StoredState | None) -> list[str]:
    spool = target.spool
    assert spool is not None
    there = [*spool.glob("schedd/*/job_queue.db"), *spool.glob("journal.db"), *spool.glob("registrar.json")]
    if there:
        raise ClientError(
            f"{there[0]} is there already: move it away, with the daemons stopped, or name another SPOOL", "failed"
        )
    done = []
    if state is not None and target.store:
        asyncio.run(_write(target.store, None, state, target.tls))
        done.append(f"wrote {len(state)} records into Redis")
    elif state is not None:
        done.append("left out what lies in Redis (ROOST_REDIS_URL or -redis names it)")
    left = _copy_tree(directory / SPOOL, spool)
    done.append(f"wrote {spool}" + (f", but for {left} files that are there already" if left else ""))
    for name, place in manifest.configuration.items():
        if target.configuration and not Path(place).exists():
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(directory / name, place)
            done.append(f"wrote {place}")
        else:
            why = "is there already" if target.configuration else "-configuration writes it"
            done.append(f"left {place} alone, which {why}; its copy is {directory / name}")
    return [*done, *_said(None, manifest)]


def _said(state: StoredState | None, manifest: Manifest) -> list[str]:
    told = [f"with {len(state)} records of Redis"] if state is not None else []
    return [*told, *(f"not in it: {what}" for what in manifest.left_out)]


def _copy_tree(source: Path, target: Path) -> int:
    """With modes and, as root, owners; what is there is left alone: how many files that is."""
    left = 0
    for place, names, files in os.walk(source):
        here = Path(place)
        other = target / here.relative_to(source)
        if not other.exists():
            other.mkdir(parents=True)
            shutil.copystat(here, other)
            _own(here, other)
        for name in [*files, *(name for name in names if (here / name).is_symlink())]:
            if (other / name).exists() or (other / name).is_symlink():
                left += 1
                continue
            shutil.copy2(here / name, other / name, follow_symlinks=False)
            _own(here / name, other / name)
    return left


def _own(one: Path, other: Path) -> None:
    if os.geteuid() == 0:
        about = os.lstat(one)
        os.chown(other, about.st_uid, about.st_gid, follow_symlinks=False)


async def _write(url: str, directory: Path | None, state: StoredState, tls: ClientTls | None) -> None:
    """Raises ClientError."""
    store = open_store(url, directory, tls=tls)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await store.start()
        if why := await stored_state.occupied(store, state):
            raise ClientError(f"Redis is not written to: {why}; nothing was restored", "failed")
        await stored_state.write(store, state)
    except TimeoutError:
        raise ClientError(
            f"Redis does not answer within {_PATIENCE_S:g} s: {store.health.last_error}", "failed"
        ) from None
    except ClientError:
        raise
    except RoostError as error:
        raise ClientError(f"Redis can not be written to: {error}", "failed") from error
    finally:
        await store.stop()
