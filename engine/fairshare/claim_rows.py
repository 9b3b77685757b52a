"""Claims of the accounting records as rows of bytes."""

from __future__ import annotations

from collections.abc import Mapping

import msgpack

from engine.fairshare.claim_charging import Claim, Key


def claim_field(key: Key) -> bytes:
    return f"{key[1]!r} {key[0]}".encode()


def encode_claim(claim: Claim) -> bytes:
    packed: bytes = msgpack.packb(tuple(claim))
    return packed


def decode_claims(rows: Mapping[bytes, bytes]) -> tuple[dict[Key, Claim], list[bytes]]:
    """Claims by key, and names of the rows that are none. What later versions add to a row is left out."""
    found: dict[Key, Claim] = {}
    others = []
    for name, row in rows.items():
        try:
            began, _, slot = name.decode().partition(" ")
            user, weight, since, until, paused, theirs = msgpack.unpackb(row)[:6]
            found[slot, float(began)] = Claim(
                str(user), float(weight), float(since), _moment(until), bool(paused), _moment(theirs)
            )
        except (ValueError, TypeError, msgpack.UnpackException):
            others.append(name)
    return found, others


def _moment(value: object) -> float | None:
    return None if value is None else float(value)  # type: ignore[arg-type]  # a TypeError is meant
