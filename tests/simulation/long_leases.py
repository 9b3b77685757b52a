"""Jobs with leases that are longer than all that goes wrong: none of them may end with its lease.

But for those that began when something was going wrong already: a claim has a shorter lease until its schedd has shown
that it knows of it, which takes two messages and a look at a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Iterator, Mapping
from unittest import mock

from services.schedd.io import claims
from tests.simulation.machine import Host, Process

#: The last fault begins after a minute, and none lasts as long as two.
LONG_S = 300
#: How long the shorter lease is, and how long a schedd asks who does not answer (the product: 40 and 30 s).
FIRST_S, PATIENCE_S = 15.0, 12.0
#: After so long a schedd has shown that it knows of a claim, where nothing is wrong.
KNOWN_S = 0.2
#: So long after a fault is over it may still be felt: daemons connect anew, and catch up.
FELT_S = 10.0
#: How long the next start is waited for.
WAIT_S = 30.0


class LongLeases:
    """time(): seconds of the simulation. wrong: gets what must not be."""

    def __init__(self, time: Callable[[], float], hosts: Mapping[str, Host], wrong: list[str]) -> None:
        self._time = time
        self._hosts = hosts
        self._wrong = wrong
        self._troubles: list[list[float]] = []  # since when, until when something went wrong
        self._began = asyncio.Event()  # the next of these jobs has

    def began(self, process: Process) -> None:
        if process.long_lease:
            self._began.set()

    async def next_start(self, chance: random.Random) -> None:
        """Wait until the next of these jobs has begun, and its schedd has just shown that it knows of the claim."""
        self._began.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._began.wait(), WAIT_S)
            await asyncio.sleep(chance.uniform(KNOWN_S, 0.7))

    @contextlib.contextmanager
    def trouble(self) -> Iterator[None]:
        """Something goes wrong meanwhile."""
        span = [self._time(), math.inf]
        self._troubles.append(span)
        yield
        span[1] = self._time() + FELT_S

    def expired(self, slot: str) -> None:
        """A startd ends what runs on this slot, as its lease has passed."""
        name, _, host = slot.partition("@")
        for process in self._hosts[host].processes.values():
            if process.alive and process.slot == name:
                self.passed(process)

    def passed(self, process: Process) -> None:
        """This process ends, as its lease has passed."""
        began = process.began
        troubled = any(since < began + KNOWN_S and began < until for since, until in self._troubles)
        if process.long_lease and not troubled:
            self._wrong.append(
                f"{self._time():.3f}: the lease of {process.runs} has passed, which is {LONG_S} s long: it began on"
                f" {process.host} at {began:.3f}"
            )


@contextlib.contextmanager
def short_first_leases() -> Iterator[None]:
    with mock.patch.multiple(claims, FIRST_LEASE_S=FIRST_S, JOB_PATIENCE_S=PATIENCE_S):
        yield
