"""How long the lead's lease must be on a busy machine: `python -m bench.lease`.

Two central managers for each length of lease (HAD and negotiator, processes on one RabbitMQ and one Redis), all at the
same time, so that all meet the same load: N processes that compute, half of them by starting Python again and
again, as suites of tests do. Nothing is killed, so every take-over is a false one. For each load and lease it prints
take-overs, the longest time in which no negotiator said that it led, and for how long two did (which must be 0).
`auto`: ROOST_HAD_LEASE unset, the lease follows what is slow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.faults.leaders import LeaderWatch
from bench.faults.pool import CENTRAL, KNOBS, Member
from bench.faults.verdict import two_leaders, without_leader
from shared.state import keys
from tests.servers import Rabbit, Redis
from tests.waiting import wait_until

LEASES = ("0.6", "auto", "1.2", "2.5", "5")
LOADS = (1, 5, 10, 25, 50)
PATIENCE_S = 180.0


class Managers:
    """Two central managers whose lease has this length, in an election of their own."""

    def __init__(self, lease: str, directory: Path, urls: dict[str, str]) -> None:
        self.lease = lease
        self.shard = f"lease-{lease.replace('.', '-')}"
        names = [f"{self.shard}-{name}" for name in CENTRAL]
        knobs = {**KNOBS, **urls, "NEGOTIATOR_NAME": self.shard, "HAD_LIST": ", ".join(f"{name}:1" for name in names)}
        if lease != "auto":
            knobs["ROOST_HAD_LEASE"] = lease
        self.negotiators = [Member("negotiator", name, directory, knobs) for name in names]
        self.hads = [Member("had", name, directory, knobs) for name in names]
        self.members = [*self.negotiators, *self.hads]

    def leads(self) -> bool:
        said = [member.health() for member in self.negotiators]
        return [json.loads(text)["role"] for status, text in said if status].count("leader") == 1

    def epoch(self, redis: Redis) -> int:
        """Each take-over has one more."""
        return int(redis.command("GET", keys.had_epoch(self.shard)).split(b"\r\n")[1])

    def watch(self) -> LeaderWatch:
        return LeaderWatch([lambda port=member.port: (0, port) for member in self.negotiators])  # type: ignore[misc]


@contextmanager
def computing(count: int) -> Iterator[None]:
    """So many processes that want a processor each. The last life of each starter ends by itself."""
    starting = f"import subprocess\nwhile True: subprocess.run([{sys.executable!r}, '-c', 'import asyncio, json'])"
    kinds = ("while True: pass", starting)
    busy = [subprocess.Popen([sys.executable, "-c", kinds[number % 2]]) for number in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


def measure(managers: Sequence[Managers], redis: Redis, load: int, seconds: float) -> list[str]:
    """A cell for each."""
    for one in managers:
        wait_until(one.leads, PATIENCE_S, f"a leader with a lease of {one.lease}")
    watches = [one.watch() for one in managers]
    with ExitStack() as stack:
        before = [one.epoch(redis) for one in managers]
        for watch in watches:
            stack.enter_context(watch)
        begun = time.time()
        with computing(load):
            time.sleep(seconds)
        ended = time.time()
    cells = []
    for one, watch, epoch in zip(managers, watches, before, strict=True):
        both, nobody = two_leaders(watch.glimpses, begun, ended), without_leader(watch.glimpses, begun, ended)
        cells.append(f"{one.epoch(redis) - epoch}, {nobody:.1f} s" + (f", two for {both:.2f} s" if both > 0.0 else ""))
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description="Count take-overs without a fault, by length of the lease and load.")
    parser.add_argument("--leases", nargs="+", default=LEASES, metavar="S", help=f"ROOST_HAD_LEASE, or auto {LEASES}")
    parser.add_argument("--loads", nargs="+", type=int, default=LOADS, metavar="N", help=f"busy processes {LOADS}")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each load (30)")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-lease-")))
        rabbit, redis = Rabbit(), Redis()
        for server in (rabbit, redis):
            stack.callback(server.close)
            server.start()
        urls = {"ROOST_AMQP_URL": rabbit.url, "ROOST_REDIS_URL": redis.url}
        managers = [Managers(lease, directory, urls) for lease in options.leases]
        for member in [member for one in managers for member in one.members]:
            stack.callback(member.close)
            member.start()
        for one in managers:
            for member in one.members:
                wait_until(member.ready, PATIENCE_S, f"{member.kind} {member.name}")
        print(f"| busy processes | {' | '.join(f'lease {one.lease}' for one in managers)} | load |")
        print(f"| --- |{' --- |' * (len(managers) + 1)}", flush=True)
        for load in options.loads:
            cells = measure(managers, redis, load, options.seconds)
            print(f"| {load} | {' | '.join(cells)} | {os.getloadavg()[0]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
