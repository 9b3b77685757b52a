"""What a backup says of itself: which files, with their digests, of which versions, from where.

DIRECTORY/manifest.json    this; written last
DIRECTORY/spool/           SPOOL: databases as SQLite copied them, the other files as they were
DIRECTORY/pool/            of a personal pool: its configuration, tokens and keys
DIRECTORY/configuration/   of a machine: the files of its configuration, numbered
DIRECTORY/state.msgpack    of Redis: accounting records, tokens, absent machines, epochs
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from roost.errors import ClientError
from shared import stored_versions

MANIFEST: Final = "manifest.json"
SPOOL, POOL, CONFIGURATION, STATE = "spool", "pool", "configuration", "state.msgpack"


@dataclass(frozen=True, slots=True)
class Manifest:
    """format: of the backup. release: of Roost that took it. at: when it was begun, s since 1970. host: where.
    personal: of a personal pool. names: of daemons, by subsystem, which their state goes by. keeps: versions of what is
    in it (shared.stored_versions). files: digest (SHA-256) by path below the directory. configuration: where each file
    of the configuration was. left_out: what is not in it, and why, for people."""

    release: str
    at: float
    host: str
    personal: bool
    names: dict[str, str] = field(default_factory=dict)
    keeps: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    format: int = stored_versions.BACKUP

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def parse(text: str) -> Manifest:
    """Raises ClientError for what is no manifest, or one of a later release."""
    try:
        found: dict[str, Any] = json.loads(text)
        version = int(found["format"])
        if later := stored_versions.newer({"backup": version}):
            raise ClientError(f"{later[0]}: use the Roost that took it ({found.get('release')})", "failed")
        names = Manifest.__dataclass_fields__
        return Manifest(**{name: value for name, value in found.items() if name in names})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ClientError(f"{MANIFEST} is none of a backup: {error}", "failed") from error


def read(directory: Path) -> Manifest:
    """Raises ClientError."""
    path = directory / MANIFEST
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClientError(f"{directory} holds no {MANIFEST}: it is no backup, or one that was not finished") from None
    except (OSError, UnicodeError) as error:
        raise ClientError(f"{path}: {error}", "failed") from error


def check(directory: Path, manifest: Manifest) -> list[str]:
    """What is wrong with the files of a backup, a line each; empty: all are there as they were written, databases are
    whole, and this release reads all. Blocks."""
    found = stored_versions.newer(manifest.keeps)
    for name, digest in sorted(manifest.files.items()):
        path = directory / name
        try:
            if digest_of(path) != digest:
                found.append(f"{name} is not as it was written")
            elif is_database(PurePath(name.removeprefix(f"{SPOOL}/"))) and (damage := damage_of(path)):
                found.append(f"{name}: {damage}")
        except OSError as error:
            found.append(f"{name}: {error.strerror or error}")
    return found


def is_of_jobs(name: PurePath) -> bool:
    """Whether a path below SPOOL is a job's file: these have any names, and are kept as they are."""
    parts = name.parts
    return len(parts) > 4 and (parts[0], parts[2]) == ("schedd", "sandboxes") and parts[3] != "incoming"


def digest_of(path: Path) -> str:
    """Of a link: of where it leads to, in words. Raises OSError."""
    if path.is_symlink():
        return "-> " + str(path.readlink())
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_database(name: PurePath) -> bool:
    """Whether a path below SPOOL is a daemon's database."""
    return name.suffix == ".db" and not is_of_jobs(name)


def damage_of(path: Path) -> str:
    """What SQLite says of a database that is not whole; empty: it is."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
            said = [str(row[0]) for row in database.execute("PRAGMA integrity_check(3)")]
    except sqlite3.Error as error:
        return str(error)
    return "" if said == ["ok"] else "; ".join(said)


def versions_in(spool: Path) -> Iterator[tuple[str, int]]:
    """Versions of what lies in a copied spool, by the names of shared.stored_versions. Raises sqlite3.Error, OSError
    and ValueError."""
    for path in sorted(spool.glob("schedd/*/job_queue.db")):
        yield "job queue", _one(path, "PRAGMA user_version")
    if (path := spool / "journal.db").exists():
        yield "journal", _one(path, "SELECT value FROM meta WHERE key = 'version'")
    if (path := spool / "registrar.json").exists():
        yield "identities", int(json.loads(path.read_text(encoding="utf-8")).get("version", 0))


def _one(path: Path, question: str) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        row = database.execute(question).fetchone()
    return int(row[0]) if row else 0


def highest(versions: Iterator[tuple[str, int]]) -> Mapping[str, int]:
    """Of several of one name the highest."""
    found: dict[str, int] = {}
    for name, version in versions:
        found[name] = max(version, found.get(name, 0))
    return found
