"""One event for each job, of one that tells of many: an order on a whole cluster. It is taken when all of them are, and
given up when one of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roost.consumer.source import Delivered, Received
from roost.events import JobsOrdered
from roost.protocol import part_id


class _Taken:
    def __init__(self, whole: Delivered, parts: int) -> None:
        self._whole = whole
        self._left = parts
        self._given_up = ""

    def done(self, given_up: str) -> None:
        self._left -= 1
        self._given_up = self._given_up or given_up
        if not self._left:
            self._whole.done(self._given_up)


def parts(delivered: Delivered) -> Iterator[Delivered]:
    """In order; what tells of one job comes as it is."""
    item = delivered.item
    if not isinstance(item, Received) or not isinstance(event := item.event, JobsOrdered) or not event.jobs:
        yield delivered
        return
    taken = _Taken(delivered, event.job_count)
    for one in event.each():
        ident = part_id(item.id, int(one.job_id.partition(".")[2]))
        yield Delivered(replace(item, id=ident, event=one), taken.done)
