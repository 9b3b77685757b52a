"""Slots that are taken to and fro between the same users: preemption without end helps nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.negotiator.pool import CycleConfig, Matched, Preempted, Thrashing


def find_thrashing(
    past: Sequence[Preempted], matches: Iterable[Matched], losers: dict[str, str], config: CycleConfig, now: float
) -> tuple[Thrashing, ...]:
    """Slots preempted at least `thrash_count` times within `thrash_window_s` among the same two or more users, each of
    whom took the slot and lost it. losers: who had a slot that this cycle preempts, by its name."""
    if config.thrash_count <= 0 or not losers:
        return ()
    recent = {
        match.slot: [Preempted(match.slot, losers[match.slot], match.submitter, now)]
        for match in matches
        if match.slot in losers and match.preempts
    }
    if not recent:
        return ()
    for one in past:
        if one.slot in recent and now - config.thrash_window_s <= one.at <= now:
            recent[one.slot].append(one)
    found = []
    for slot, times in sorted(recent.items()):
        both = {one.user for one in times} & {one.by for one in times}
        within = [one for one in times if one.user in both and one.by in both]
        if len(within) >= config.thrash_count:
            found.append(Thrashing(slot, tuple(sorted(both)), len(within)))
    return tuple(found)
