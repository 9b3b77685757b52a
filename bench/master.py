"""What a master saves: `python -m bench.master [--times N] [--json FILE]`.

Seven daemons on a RabbitMQ and a Redis of the run's own, first each a Python of its own that somebody starts again at
once, then as a master's children. Printed: seconds until all are ready, after their start and after a `kill -9` of all
(median and worst), processor seconds of the whole for each, and memory (proportional set size of all, and the sum of
their resident sizes).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from tests.servers import Rabbit, Redis, free_port
from tests.waiting import wait_until

DAEMONS: Final = ("collector", "negotiator", "had", "schedd", "startd", "gateway", "journal")
PATIENCE_S: Final = 120.0


class Alone:
    """Daemons without a master: each is a process that is started again as soon as it ended."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory, self._environment = directory, environment
        self._ready: dict[str, socket.socket] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        for name in DAEMONS:
            self._start(name)
        self._wait()

    def kill(self) -> None:
        """All, and return when all are ready again."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self.start()

    def processes(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        for one in self._ready.values():
            one.close()

    def _start(self, name: str) -> None:
        path = self._directory / f"{name}.notify"
        if known := self._ready.pop(name, None):
            known.close()
            path.unlink()
        listening = self._ready[name] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listening.bind(str(path))
        listening.settimeout(PATIENCE_S)
        environment = {**self._environment, "NOTIFY_SOCKET": str(path)}
        self._processes[name] = started(f"services.{name}", self._directory, environment)

    def _wait(self) -> None:
        for listening in self._ready.values():
            while b"READY=1" not in listening.recv(4096):
                pass


class Mastered:
    """The same as children of a master."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory, self._environment = directory, environment
        self._master: subprocess.Popen[bytes] | None = None
        self._times = 0

    def start(self) -> None:
        self._master = started("services.master", self._directory, self._environment)
        self._wait()

    def kill(self) -> None:
        assert self._master is not None
        for child in psutil.Process(self._master.pid).children():
            child.kill()
        self._wait()

    def processes(self) -> list[int]:
        assert self._master is not None
        return [self._master.pid, *(child.pid for child in psutil.Process(self._master.pid).children())]

    def close(self) -> None:
        if self._master is not None:
            self._master.terminate()  # it waits for its own, so that what they used counts
            self._master.wait()
            self._master = None

    def _wait(self) -> None:
        self._times += 1
        log = self._directory / "log"
        wait_until(lambda: log.read_text().count('"daemons_ready"') >= self._times, PATIENCE_S, "all daemons")


def started(module: str, directory: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (directory / "log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", module], env=environment, stderr=log, stdout=log)


def measure(what: Callable[[Path, dict[str, str]], Alone | Mastered], times: int) -> dict[str, Any]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-bench-")))
        rabbit, redis = Rabbit(), Redis()
        for server in (rabbit, redis):
            stack.callback(server.close)
            server.start()
        pool = what(directory, environment_of(directory, rabbit.url, redis.url))
        stack.callback(pool.close)
        began, used = time.perf_counter(), children_s()
        pool.start()
        start = time.perf_counter() - began
        sizes = [psutil.Process(pid).memory_full_info() for pid in pool.processes()]
        kills = []
        for _ in range(times):
            began = time.perf_counter()
            pool.kill()
            kills.append(time.perf_counter() - began)
        pool.close()
        return {
            "start_s": round(start, 2),
            "kill_median_s": round(statistics.median(kills), 2),
            "kill_worst_s": round(max(kills), 2),
            "processor_s": round((children_s() - used) / (times + 1), 2),
            "together_mb": round(sum(size.pss for size in sizes) / 1e6),
            "resident_mb": round(sum(size.rss for size in sizes) / 1e6),
        }


def children_s() -> float:
    """Of children that were waited for, and of theirs."""
    used = os.times()
    return used.children_user + used.children_system


def environment_of(directory: Path, amqp_url: str, redis_url: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
    (directory / "condor_config").write_text(
        f"LOCAL_DIR = {directory}\nROOST_AMQP_URL = {amqp_url}\nROOST_REDIS_URL = {redis_url}\n"
        f"DAEMON_LIST = {' '.join(name.upper() for name in DAEMONS)}\nROOST_GATEWAY_PORT = {free_port()}\n"
        f"ROOST_TOKEN_FILE = {directory}/token\nRUNBENCHMARKS = false\n"
    )
    return {**kept, "CONDOR_CONFIG": str(directory / "condor_config")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="how often all are killed")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    found = {"alone": measure(Alone, options.times), "with a master": measure(Mastered, options.times)}
    print(
        f"{'seven daemons':<14} {'start':>7} {'killed':>7} {'worst':>7} {'cpu each':>9} {'memory':>8} {'resident':>9}"
    )
    for name, row in found.items():
        times = f"{row['start_s']:>5.2f} s {row['kill_median_s']:>5.2f} s {row['kill_worst_s']:>5.2f} s"
        print(f"{name:<14} {times} {row['processor_s']:>7.2f} s {row['together_mb']:>5} MB {row['resident_mb']:>6} MB")
    print(f"load {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
