"""Asks every negotiator all the time whether it leads."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from bench.faults.verdict import Glimpse
from shared.daemon.healthcheck import ask

EVERY_S = 0.02
#: A negotiator that does not answer within that time is not counted as a leader.
PATIENCE_S = 0.25
CLONE_NEWNET = 0x40000000


def enter_network(pid: int) -> None:
    """Have this thread, for the rest of its life, in the network of that process (takes root). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net") as network:
        if libc.setns(network.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


class _Watched(threading.Thread):
    def __init__(self, address: Callable[[], tuple[int, int]], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address, self.stop = address, stop
        self.said: list[Glimpse] = []

    def run(self) -> None:
        where = (0, 0)
        while not self.stop.wait(EVERY_S):
            asked = time.time()
            leads = False
            try:
                if not where[1]:
                    where = self.address()
                    if where[0]:
                        enter_network(where[0])
                _, text = ask(where[1], "/readyz", PATIENCE_S)
                leads = json.loads(text)["role"] == "leader"
            except (OSError, ValueError, KeyError):
                if not where[0] or not os.path.exists(f"/proc/{where[0]}"):
                    where = (0, 0)  # it may be somewhere else when it is back
            self.said.append(Glimpse(asked, time.time(), leads))


class LeaderWatch:
    """addresses: of each negotiator, the process in whose network it listens (0: in ours) and its port; asked again
    when the process is gone. May raise OSError while there is none."""

    def __init__(self, addresses: Sequence[Callable[[], tuple[int, int]]]) -> None:
        self._stop = threading.Event()
        self._watched = [_Watched(address, self._stop) for address in addresses]

    @property
    def glimpses(self) -> list[list[Glimpse]]:
        return [list(one.said) for one in self._watched]

    def __enter__(self) -> Self:
        for one in self._watched:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for one in self._watched:
            with suppress(RuntimeError):
                one.join(10)
