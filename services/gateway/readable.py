"""What is made of ads that others have sent.

What a daemon of another kind of release sent, or somebody who means harm, keeps nobody from the others' ads: one that
can not be read is left out, and the log says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import structlog

from shared.classad import ClassAd, PackedError

T = TypeVar("T")


def of_each(ads: Iterable[bytes], make: Callable[[ClassAd], T]) -> Iterator[T]:
    """What is made of each packed ad that can be read as far as `make` reads it."""
    for packed in ads:
        try:
            found = make(ClassAd.unpack(packed))
        except PackedError as fault:
            structlog.stdlib.get_logger().warning("ad_left_out", reason=str(fault)[:300])
            continue
        yield found


def checked(ad: ClassAd) -> ClassAd:
    """The ad, once it is known to be one. Raises PackedError. Its expressions are read as they are asked for: one that
    can not be is ERROR; thousands that nobody asks for would hold the loop for 150 ms."""
    ad.table()
    return ad
