"""How often an address may try join tokens that are none. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: Failures that an address, and all together, may have in PERIOD_S.
OF_ONE: Final = 10
OF_ALL: Final = 200
PERIOD_S: Final = 60.0
_MOST_ADDRESSES: Final = 10_000


class Attempts:
    """Failures of the last while, by address. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, list[float]] = OrderedDict()
        self._all: list[float] = []

    def wait_s(self, address: str, now: float) -> float:
        """Seconds until this address may try again; 0: now."""
        one = _late(self._failed.get(address, []), now)
        self._all = _late(self._all, now)
        waits = [
            mine[-most] + PERIOD_S - now for mine, most in ((one, OF_ONE), (self._all, OF_ALL)) if len(mine) >= most
        ]
        return max([0.0, *waits])

    def failed(self, address: str, now: float) -> None:
        self._failed[address] = [*_late(self._failed.get(address, []), now), now]
        self._failed.move_to_end(address)
        if len(self._failed) > _MOST_ADDRESSES:
            self._failed.popitem(last=False)
        self._all = [*_late(self._all, now), now]


def _late(times: list[float], now: float) -> list[float]:
    return [at for at in times if at > now - PERIOD_S]
