"""What is told a schedd in one cycle, in messages that brokers take.

A cycle over 100,000 slots gives one schedd more than one message may carry. The parts go one after the other, each
answered by MatchesTaken for its own matches: their order is the order in which the jobs start. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from shared.messages.negotiation import Match, Rejection

#: Of one message. A slot's ad has some 5 KB, so it is the bytes that count first; brokers take four times as many.
MAX_ITEMS: Final = 1_000
MAX_BYTES: Final = 4 << 20
#: What an item needs besides its texts: names of fields, lengths, numbers.
_OVERHEAD: Final = 200


@dataclass(frozen=True, slots=True)
class Chunk:
    """first: the index of the first of these matches in all of them."""

    first: int
    matches: tuple[Match, ...]
    rejections: tuple[Rejection, ...] = ()


def chunks(matches: Sequence[Match], rejections: Sequence[Rejection]) -> Iterator[Chunk]:
    """All matches in their order, then all rejections, in as few messages as the bounds allow. An item that is larger
    than a message goes alone. Nothing gives no message. Time O(items)."""
    first = size = 0
    given: list[Match] = []
    refused: list[Rejection] = []
    items: list[Match | Rejection] = [*matches, *rejections]
    for item in items:
        weight = _size(item)
        count = len(given) + len(refused)
        if count and (count == MAX_ITEMS or size + weight > MAX_BYTES):
            yield Chunk(first, tuple(given), tuple(refused))
            first += len(given)
            given, refused, size = [], [], 0
        if isinstance(item, Match):
            given.append(item)
        else:
            refused.append(item)
        size += weight
    if given or refused:
        yield Chunk(first, tuple(given), tuple(refused))


def _size(item: Match | Rejection) -> int:
    """About how many bytes an item takes in a message, rather too many than too few."""
    size = _OVERHEAD
    for _, value in item:
        if isinstance(value, bytes):
            size += len(value)
        elif isinstance(value, str):
            size += 4 * len(value)
        elif isinstance(value, list):
            size += sum(4 * len(part) + 5 for part in value)
    return size
