"""Which deliveries of a channel may be acknowledged, in as few frames as possible."""

from __future__ import annotations


class AckWindow:
    """Deliveries of one channel from arrival to acknowledgement. Tags grow with every delivery."""

    def __init__(self) -> None:
        self._open: dict[int, None] = {}  # arrived, not acknowledged; in order
        self._done: set[int] = set()

    def __len__(self) -> int:
        """How many were not acknowledged yet."""
        return len(self._open)

    def arrived(self, tag: int) -> None:
        self._open[tag] = None

    def done(self, tag: int) -> None:
        """It was handled and may be acknowledged."""
        if tag in self._open:
            self._done.add(tag)

    def take(self) -> list[tuple[int, bool]]:
        """What to acknowledge now, as (tag, multiple): everything up to the oldest delivery still in hand at
        once, and those done after it one by one, so that one slow handler does not use up the prefetch
        window."""
        acks: list[tuple[int, bool]] = []
        last = 0
        for tag in self._open:
            if tag not in self._done:
                break
            last = tag
            self._done.discard(tag)
        if last:
            for tag in [tag for tag in self._open if tag <= last]:
                del self._open[tag]
            acks.append((last, True))
        for tag in sorted(self._done):
            del self._open[tag]
            acks.append((tag, False))
        self._done.clear()
        return acks
