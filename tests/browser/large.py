"""A made-up pool as a process of its own."""

import json
import sys
from pathlib import Path

from tests.integration.pools import ROOT
from tests.servers import Leashed
from tests.waiting import wait_until


class LargePool:
    """bench/dashboard/pool.py, with `slots` slots and `jobs` jobs, and some events a second."""

    def __init__(self, directory: Path, slots: int, events: float = 20.0, *, jobs=10_000, journal=False) -> None:
        self.directory, self.slots, self.jobs = directory, slots, jobs
        self.events, self.journal = events, journal
        self.url = self.token = ""
        self._process: Leashed | None = None

    def start(self) -> None:
        words = [
            "--slots",
            str(self.slots),
            "--jobs",
            str(self.jobs),
            "--dir",
            str(self.directory),
            "--events",
            str(self.events),
        ]
        words += ["--journal"] if self.journal else []
        self._process = Leashed(
            [sys.executable, "-m", "bench.dashboard.pool", *words], log=self.directory / "up.log", cwd=ROOT
        )
        described = self.directory / "pool.json"
        process = self._process
        wait_until(lambda: described.exists() or process.returncode is not None, 240, "the made-up pool")
        assert process.returncode is None, process.tail()
        told = json.loads(described.read_text())
        self.url, self.token = told["url"], told["token"]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        if self._process is not None:
            if self._process.returncode is None:
                self._process.terminate()
            self._process.close()
