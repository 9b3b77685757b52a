"""Limits on how often and how many at once: decisions over counts and `now`. Pure; each gateway counts by itself."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

#: Keys that are remembered; of more the one that asked longest ago is forgotten, and begins anew.
MOST_KEYS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class RateLimiter:
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
        bucket = self._filled(key, now)
        if bucket.left < 1.0:
            return (1.0 - bucket.left) / self._rate
        bucket.left -= 1.0
        return 0.0

    def wait(self, key: str, now: float) -> float:
        """What `take` would return, without counting."""
        bucket = self._buckets.get(key)
        if self._rate <= 0 or bucket is None:
            return 0.0
        left = bucket.left + max(0.0, now - bucket.at) * self._rate
        return 0.0 if left >= 1.0 else (1.0 - left) / self._rate

    def _filled(self, key: str, now: float) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._most, now)
            if len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        bucket.left = min(self._most, bucket.left + max(0.0, now - bucket.at) * self._rate)
        bucket.at = now
        return bucket

    def __len__(self) -> int:
        return len(self._buckets)


class _Held:
    """How much of something each key has, and all together."""

    def __init__(self) -> None:
        self._by_key: dict[str, int] = {}
        self.all = 0

    def of(self, key: str) -> int:
        return self._by_key.get(key, 0)

    def add(self, key: str, amount: int = 1) -> None:
        self._by_key[key] = self.of(key) + amount
        self.all += amount

    def drop(self, key: str, amount: int = 1) -> None:
        left = self._by_key[key] - amount
        self.all -= amount
        if left:
            self._by_key[key] = left
        else:
            del self._by_key[key]


class ConcurrencyLimit:
    """How many are inside at once: `each` of one key, `total` of all. 0 is no limit."""

    def __init__(self, each: int, total: int = 0) -> None:
        self._each = each
        self._total = total
        self._inside = _Held()

    @property
    def count(self) -> int:
        return self._inside.all

    def enter(self, key: str) -> str:
        """Empty when there is room (and one more is inside, until `leave`), else which limit is reached."""
        mine = self._inside.of(key)
        if self._each and mine >= self._each:
            return f"{mine} of yours are open already"
        if self._total and self.count >= self._total:
            return f"{self.count} are open already"
        self._inside.add(key)
        return ""

    def leave(self, key: str) -> None:
        """One that was let in has gone."""
        self._inside.drop(key)


class ByteBudget:
    """How much is held at once (bytes): `each` of one key, `total` of all. 0 is no limit."""

    def __init__(self, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._held = _Held()

    @property
    def held(self) -> int:
        return self._held.all

    def take(self, key: str, amount: int) -> str:
        """Empty when there is room (and so much more is held, until `give`), else which limit is reached."""
        if self._each and self._held.of(key) + amount > self._each:
            return "yours fill their share already"
        if self._total and self.held + amount > self._total:
            return "those of all fill it already"
        self._held.add(key, amount)
        return ""

    def give(self, key: str, amount: int) -> None:
        """So much of what was taken is held no more."""
        self._held.drop(key, amount)


class FairQueue:
    """Who goes next where few may be inside at once: `each` of one key, `total` of all (0: no limit). Those who wait
    are let in key by key in turns, so that one who has many waiting holds up nobody else; and who has none inside goes
    in at once, as what is inside may take long, until there are twice as many as `total`."""

    def __init__(self, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._inside = _Held()
        self._waiting: OrderedDict[str, deque[Hashable]] = OrderedDict()
        self.waiting = 0

    @property
    def count(self) -> int:
        return self._inside.all

    def enter(self, key: str, ticket: Hashable) -> bool:
        """Whether this one may go in at once; else it waits, until `leave` or `give_up` names its ticket."""
        # Who waits already is waiting for a place of its own key, or for any: nobody of the same key passes it.
        if key not in self._waiting and self._room(key):
            self._inside.add(key)
            return True
        self._waiting.setdefault(key, deque()).append(ticket)
        self.waiting += 1
        return False

    def leave(self, key: str) -> list[Hashable]:
        """One that was inside has gone: the tickets of those who are inside now in its place."""
        self._inside.drop(key)
        return self._next()

    def give_up(self, key: str, ticket: Hashable) -> None:
        """One that waits does so no longer."""
        line = self._waiting[key]
        line.remove(ticket)
        self.waiting -= 1
        if not line:
            del self._waiting[key]

    def _next(self) -> list[Hashable]:
        called: list[Hashable] = []
        for key in list(self._waiting):
            if not self._room(key):
                continue
            line = self._waiting.pop(key)
            called.append(line.popleft())
            self.waiting -= 1
            self._inside.add(key)
            if line:
                self._waiting[key] = line  # behind the others
        return called

    def _room(self, key: str) -> bool:
        mine = self._inside.of(key)
        most = self._total if mine else 2 * self._total
        return not (self._each and mine >= self._each) and not (self._total and self.count >= most)
