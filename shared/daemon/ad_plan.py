"""Decides what a daemon publishes of its ads next: all of them, what changed, or that nothing did.

Pure: `advertiser` sends it, `ad_table` is the receiving half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shared.daemon.ad_rows import difference
from shared.messages.ads import MOST_ADS, MOST_REMOVED, AdDelta, AdHeartbeat, AdUpdate
from shared.messages.wire import MOST_LARGE_BYTES

#: A delta that would be larger than this part of the whole is sent as the whole: it costs the receiver less.
WHOLE_ABOVE = 0.5
#: Ads in one message, and bytes of them; it may have twice as many, as an ad may be large itself.
MOST_IN_PART, PART_BYTES = MOST_ADS // 2, MOST_LARGE_BYTES // 2
#: Sequence numbers set aside for each millisecond of a life's first second (see `first_sequence`).
NUMBERS_PER_MS = 1000


@dataclass(frozen=True, slots=True)
class Published:
    """What was said last: the ads of one daemon and type."""

    my_type: str
    daemon: str
    start_time: int
    sequence: int  # of the last message; the next has one more
    content: int = 0  # of the last message that changed something; 0: the next must be whole
    ads: Mapping[str, bytes] = field(default_factory=dict)


def first_sequence(now: float) -> int:
    """Where a life that starts now begins to count, less one. DaemonStartTime is whole seconds, so a daemon
    that is killed and back within its first second must count on from above where it was, or nobody would
    believe it."""
    return int(now % 1.0 * 1000) * NUMBERS_PER_MS


def plan(last: Published, ads: Mapping[str, bytes]) -> tuple[Published, AdUpdate | AdDelta | AdHeartbeat]:
    """The message that brings receivers from `last` to `ads`, and what is published then."""
    sequence = last.sequence + 1
    changed = {name: packed for name, packed in ads.items() if last.ads.get(name) != packed}
    gone = [name for name in last.ads if name not in ads]
    new = replace(last, sequence=sequence, content=sequence, ads=dict(ads))
    if last.content and not changed and not gone:
        kept = replace(last, sequence=sequence)
        return kept, AdHeartbeat(
            my_type=last.my_type,
            daemon=last.daemon,
            start_time=last.start_time,
            base=last.content,
            sequence=sequence,
        )
    if last.content and max(len(changed), len(gone)) <= MOST_IN_PART:
        delta = _delta(last, changed, gone, sequence)
        size, whole = sum(map(len, delta.changes)), sum(map(len, ads.values()))
        few = sum(map(len, delta.removed_attrs)) <= MOST_REMOVED
        if (few and size <= WHOLE_ABOVE * whole and size <= PART_BYTES) or not ads:
            return new, delta
    return new, AdUpdate(
        my_type=last.my_type,
        daemon=last.daemon,
        start_time=last.start_time,
        sequence=sequence,
        names=list(ads),
        ads=list(ads.values()),
    )


def in_parts(update: AdUpdate) -> list[AdUpdate]:
    """The whole in messages that are not too large, each with a sequence number of its own. Who has ads of this daemon
    lacks those of later parts until they come."""
    parts: list[tuple[list[str], list[bytes]]] = [([], [])]
    size = 0
    for name, ad in zip(update.names, update.ads, strict=True):
        if parts[-1][0] and (size + len(name) + len(ad) > PART_BYTES or len(parts[-1][0]) == MOST_IN_PART):
            parts.append(([], []))
            size = 0
        size += len(name) + len(ad)
        parts[-1][0].append(name)
        parts[-1][1].append(ad)
    return [
        update.model_copy(
            update={"sequence": update.sequence + number, "names": names, "ads": ads, "complete": number == 0}
        )
        for number, (names, ads) in enumerate(parts)
    ]


def _delta(last: Published, changed: Mapping[str, bytes], gone: list[str], sequence: int) -> AdDelta:
    changes: list[bytes] = []
    removed: list[list[str]] = []
    for name, packed in changed.items():
        before = last.ads.get(name)
        patch = difference(before, packed) if before is not None else None
        changes.append(packed if patch is None else patch.packed)
        removed.append([] if patch is None else list(patch.removed))
    return AdDelta(
        my_type=last.my_type,
        daemon=last.daemon,
        start_time=last.start_time,
        base=last.content,
        sequence=sequence,
        names=list(changed),
        changes=changes,
        removed_attrs=removed,
        gone=gone,
    )
