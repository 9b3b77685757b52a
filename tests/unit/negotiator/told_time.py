"""Stored accountants whose clock, as Redis's, stands where one of them was last told that it is."""

from __future__ import annotations

from typing import Any

from services.negotiator.stored_accountant import StoredAccountant
from shared.state.embedded import EmbeddedStore


class Moment:
    """Seconds since 1970, as a clock that a test sets says."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


class TimedStore(EmbeddedStore):
    def __init__(self) -> None:
        self.time = Moment(1_000_000_000.0)
        super().__init__(now=self.time.now)


class TimedAccountant(StoredAccountant):
    def __init__(self, store: TimedStore, *args: Any, **options: Any) -> None:
        super().__init__(store, *args, now=store.time.now, **options)
        self._time = store.time

    def _tick(self, now: float) -> float:
        self._time.at = now
        return super()._tick(now)
