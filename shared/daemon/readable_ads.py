"""What is made of ads that others have sent.

What a daemon of another kind of release sent, or somebody who means harm, keeps nobody from the others' ads: one that
can not be read is left out, and the log says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from shared.classad import ClassAd, PackedError
from shared.cooperative import Yielder

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """What was made of an ad."""

    of: T


def readable(ads: Iterable[bytes], make: Callable[[ClassAd], T]) -> Iterator[Made[T] | None]:
    """What is made of each packed ad; None for one that can not be read as far as `make` reads it, so that others can
    have their turn after each."""
    left_out, first = 0, ""
    try:
        for packed in ads:
            try:
                found = make(ClassAd.unpack(packed))
            except PackedError as fault:
                first = first or str(fault)[:300]
                left_out += 1
                yield None
            else:
                yield Made(found)
    finally:
        if left_out:  # one line however many they are: 4,000 of them would hold the loop for half a second
            structlog.stdlib.get_logger().warning("ads_left_out", ads=left_out, reason=first)


async def of_each(ads: Iterable[bytes], make: Callable[[ClassAd], T]) -> list[T]:
    """The same of a page; others have their turn in between."""
    found, turn = [], Yielder()
    for made in readable(ads, make):
        if made is not None:
            found.append(made.of)
        await turn.yield_if_due()
    return found


def checked(ad: ClassAd) -> ClassAd:
    """The ad, once it is known to be one. Raises PackedError. Its expressions are read as they are asked for: one that
    can not be is ERROR; thousands that nobody asks for would hold the loop for 150 ms."""
    ad.table()
    return ad
