"""How often, and how many at once: decisions over counts and `now`. Pure; each gateway counts by itself."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

#: Keys that are remembered; of more the one that asked longest ago is forgotten, and begins anew.
MOST_KEYS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Limiter:
    """A token bucket for each key: `rate` requests a second for good, `seconds` worth of them at once. A rate of 0 is
    no limit."""

    def __init__(self, rate: float, seconds: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate * seconds)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """0 when this request may go on (and is counted), else after how many seconds the next one may. now: monotonic
        seconds."""
        if self._rate <= 0:
            return 0.0
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._most, now)
            if len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        bucket.left = min(self._most, bucket.left + max(0.0, now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left < 1.0:
            return (1.0 - bucket.left) / self._rate
        bucket.left -= 1.0
        return 0.0

    def __len__(self) -> int:
        return len(self._buckets)


class Room:
    """How many are inside at once: `each` of one key, `total` of all. 0 is no limit."""

    def __init__(self, each: int, total: int = 0) -> None:
        self._each = each
        self._total = total
        self._inside: dict[str, int] = {}
        self.count = 0

    def enter(self, key: str) -> str:
        """Empty when there is room (and one more is inside, until `leave`), else which limit is reached."""
        mine = self._inside.get(key, 0)
        if self._each and mine >= self._each:
            return f"{mine} of yours are open already"
        if self._total and self.count >= self._total:
            return f"{self.count} are open already"
        self._inside[key] = mine + 1
        self.count += 1
        return ""

    def leave(self, key: str) -> None:
        """One that was let in has gone."""
        left = self._inside[key] - 1
        self.count -= 1
        if left:
            self._inside[key] = left
        else:
            del self._inside[key]
