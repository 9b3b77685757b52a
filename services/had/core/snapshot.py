"""The format of the file in which a HAD keeps a copy of the accountant's records (spec rows HA-13, HA-16).

    ROOST-BOOKS-2 newline, SHA-256 of the rest (32 bytes), msgpack: [epoch, count, taken at, shard, submitters, groups,
    claims]

Version and checksum tell how new a copy is, and whether it is complete. Incomplete copies are refused. Files of version
1 have no claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgpack

from shared.accounting_version import BadVersion, Version, parse
from shared.errors import PermanentError

MAGIC = b"ROOST-BOOKS-2\n"
_FORMER = b"ROOST-BOOKS-1\n"
_HEAD = len(MAGIC) + 32


class Damaged(PermanentError):
    """A file that is no whole snapshot: the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The books of one shard at one moment: packed records by name."""

    version: Version
    taken: float  # seconds since 1970
    shard: str
    submitters: Mapping[bytes, bytes]
    groups: Mapping[bytes, bytes]
    claims: Mapping[bytes, bytes] = field(default_factory=dict)


def encode(snapshot: Snapshot) -> bytes:
    body: bytes = msgpack.packb(
        [
            snapshot.version.epoch,
            snapshot.version.count,
            snapshot.taken,
            snapshot.shard,
            dict(snapshot.submitters),
            dict(snapshot.groups),
            dict(snapshot.claims),
        ]
    )
    return MAGIC + hashlib.sha256(body).digest() + body


def decode(data: bytes, shard: str) -> Snapshot:
    """Raises Damaged, also for the books of another shard."""
    if not data.startswith((MAGIC, _FORMER)):
        raise Damaged(f"it begins with {data[:16]!r}: no snapshot of Roost's")
    body = data[_HEAD:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : _HEAD]:
        raise Damaged(f"{len(data)} bytes with a wrong checksum: cut short, or changed")
    try:
        values = msgpack.unpackb(body)
        epoch, count, taken, of, submitters, groups, claims = values if data.startswith(MAGIC) else (*values, {})
        version = parse(f"{epoch} {count}")
        whole = all(isinstance(rows, dict) for rows in (submitters, groups, claims)) and isinstance(of, str)
        moment = float(taken)
    except (ValueError, TypeError, BadVersion, msgpack.UnpackException) as error:
        raise Damaged(f"not what a snapshot holds: {error}") from error
    if not whole or not all(
        isinstance(part, bytes) for rows in (submitters, groups, claims) for row in rows.items() for part in row
    ):
        raise Damaged("not what a snapshot holds")
    if of != shard:
        raise Damaged(f"books of negotiator {of or '(without a name)'!r}, not of {shard or '(without a name)'!r}")
    return Snapshot(version, moment, of, submitters, groups, claims)


#: Copying may take this part of the time.
_SHARE = 0.02
#: Seconds between copies, however small the books are.
LEAST_S = 5.0


def next_after(took_s: float, interval_s: float) -> float:
    """Seconds until the next copy of books that keep changing: REPLICATION_INTERVAL at most, much sooner where a copy
    is quick (HA-14)."""
    return min(max(interval_s, 0.1), max(LEAST_S, took_s / _SHARE))
