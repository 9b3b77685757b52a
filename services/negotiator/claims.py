"""What was charged for each claim: the part of the books from which whoever leads next charges on (spec rows ACC-16,
ACC-18). Pure.

A claim is known by its slot and the moment it began, by its startd's clock: its id is a secret, and is nowhere here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgpack

#: What is heard of within this time (s) is heard of at once: most ads are, and begin and end are late alike.
PROMPT_S: Final = 0.05
#: Of what ended longer ago (s) than this it is believed that it was charged: others may have forgotten it since.
BELIEVED_S: Final = 600.0

#: Slot, and the moment a claim began as its startd says; 0.0 if it does not say.
Key = tuple[str, float]
Span = tuple[float, float]


class Claim(NamedTuple):
    """`weight` is charged to `user` from `began` to `until`, the leader's clock. began -inf: nobody knows since when.
    until None: it goes on. paused: it is free of charge for the time being. theirs: when it ended, its startd's clock;
    None: nobody told."""

    user: str
    weight: float
    began: float
    until: float | None = None
    paused: bool = False
    theirs: float | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """To be charged: so much from `began` to `ended`, our clock; to be given back where it ends before it begins."""

    user: str
    weight: float
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Inherited:
    """What is to be charged since the books were written. going: submitter -> (weight, slots) of what is in use since
    then, and still is; late: everything else."""

    going: Mapping[str, tuple[float, int]]
    late: Sequence[Use]


def between(began: float, ended: float, gaps: Iterable[Span] = ()) -> list[Span]:
    """The time from one moment to another but for these gaps, which are in order; backwards it is one piece."""
    if ended <= began or began == -math.inf:
        return [(began, ended)] if -math.inf < ended < began else []
    found = []
    for first, last in gaps:
        if last > began and first < ended:
            if first > began:
                found.append((began, first))
            began = max(began, last)
    return [*found, (began, ended)] if began < ended else found


def carry_on(
    mine: Claim | None, booked: Claim | None, gaps: Sequence[Span], base: float, now: float
) -> tuple[Claim, list[Span]]:
    """A claim as this negotiator heard of it, and as the books of `base` have it, one of which there is: what is true
    of it from now on, and for which time it is to be charged yet, or given back."""
    if booked is None:
        assert mine is not None
        if mine.until is not None and mine.until <= base - BELIEVED_S:
            return mine, []  # whoever led then may have forgotten it
        return mine, between(mine.began, now if mine.until is None else mine.until, gaps)
    charged = base if booked.until is None else min(booked.until, base)
    if mine is None:
        return booked._replace(until=charged), []
    mine = mine._replace(began=booked.began)
    if mine.until is None:
        return mine, between(charged, now, gaps)
    if mine.theirs is not None:
        if booked.paused:
            return booked._replace(paused=False, theirs=mine.theirs), []
        if booked.theirs is None:
            return mine, between(charged, mine.until, gaps)
        longer = mine.theirs - booked.theirs  # their clock: what is to be added to it may be known better by now
        if longer <= PROMPT_S:
            return booked, []
        return booked._replace(until=charged + longer, theirs=mine.theirs), [(charged, charged + longer)]
    if mine.paused:
        if booked.theirs is not None:
            return mine._replace(until=charged), []
        return mine, between(charged, mine.until, gaps)
    if booked.theirs is not None or booked.paused or mine.until <= charged:
        return booked._replace(until=charged), []
    return mine, between(charged, mine.until, gaps)


# --- as bytes


def field_of(key: Key) -> bytes:
    return f"{key[1]!r} {key[0]}".encode()


def encode(claim: Claim) -> bytes:
    packed: bytes = msgpack.packb(tuple(claim))
    return packed


def decode_all(rows: Mapping[bytes, bytes]) -> tuple[dict[Key, Claim], list[bytes]]:
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
