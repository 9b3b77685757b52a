"""Records of the books as bytes: what lies in Redis under a submitter's or a group's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

import msgpack

from services.negotiator.priorities import Record, Temporary

_FIELDS: Final = {f.name for f in fields(Record)}


def encode(record: Record) -> bytes:
    values = asdict(record)
    for name in ("quota", "dynamic_quota"):  # few records have one
        if values[name] < 0.0:
            del values[name]
    packed: bytes = msgpack.packb(values)
    return packed


def encode_all(records: Mapping[str, Record]) -> dict[bytes, bytes]:
    return {name.encode(): encode(record) for name, record in records.items()}


def decode(row: bytes) -> Record:
    """A record as any version of this code wrote it: what it lacks has its default, what it has besides is left
    out. Raises ValueError, TypeError, AttributeError, KeyError, msgpack.UnpackException for what is none."""
    values: dict[str, Any] = {name: value for name, value in msgpack.unpackb(row).items() if name in _FIELDS}
    temporary = tuple(
        Temporary(str(t["what"]), float(t["before"]), float(t["until"])) for t in values.pop("temporary", ())
    )
    slots = int(values.pop("slots_in_use", 0))
    return Record(temporary=temporary, slots_in_use=slots, **{name: float(value) for name, value in values.items()})


def decode_all(rows: Mapping[bytes, bytes]) -> tuple[dict[str, Record], dict[bytes, bytes]]:
    """The records by name, and the rows that are none."""
    found, others = {}, {}
    for raw, row in rows.items():
        try:
            found[raw.decode()] = decode(row)
        except (ValueError, TypeError, AttributeError, KeyError, msgpack.UnpackException):
            others[raw] = row
    return found, others
