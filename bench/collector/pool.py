"""A collector and a gateway as processes on RabbitMQ and Redis, and what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import redis

from bench.collector.ads import SLOTS, host_of
from roost.client import Client
from shared.state import keys
from tests.processes import DaemonProcess
from tests.servers import Rabbit, Redis, free_port

ROOT = Path(__file__).parents[2]


class Pool:
    """`collectors` of them, and a gateway; all with default settings."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.rabbit, self.redis = Rabbit(), Redis()
        for server in (self.rabbit, self.redis):
            stack.callback(server.close)
            server.start()
        self.directory = directory
        self.port = free_port()
        token = directory / "token"
        self.gateway = self._process(
            "gateway", "g1", ROOST_GATEWAY_PORT=self.port, ROOST_GATEWAY_BIND="127.0.0.1", ROOST_TOKEN_FILE=token
        )
        self.collector = self.new_collector("c1")
        for process in (self.collector, self.gateway):
            stack.callback(process.close)
            process.start()
        self.token = token.read_text().strip()
        (directory / "pool.json").write_text(json.dumps({"url": self.url}))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _process(self, daemon: str, name: str, **knobs: object) -> Any:
        return DaemonProcess(  # type: ignore[no-untyped-call]
            daemon, name, self.directory, amqp_url=self.rabbit.url, redis_url=self.redis.url, config=knobs
        )

    def new_collector(self, name: str) -> Any:
        return self._process("collector", name)

    def client(self, timeout: float = 120.0) -> Client:
        return Client(self.url, self.token, timeout=timeout)

    def roost(self, *words: str) -> tuple[float, str]:
        """Seconds that the command took, Python's start included, and what it printed."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "roost", *words],
            env={**kept, "ROOST_POOL_DIR": str(self.directory), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return time.perf_counter() - began, done.stdout

    def metric(self, name: str) -> float:
        status, text = self.collector.ask("/metrics")
        assert status == 200, text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def totals(self, client: Client, constraint: str = "") -> int:
        return sum(one["ads"] for one in client.ad_totals("Machine", constraint=constraint))

    def memory_mib(self) -> dict[str, float]:
        with redis.Redis.from_url(self.redis.url) as client:
            used = int(client.info("memory")["used_memory"])
        return {
            "collector": psutil.Process(self.collector.process.pid).memory_info().rss / 2**20,
            "redis": used / 2**20,
        }

    def feed(self, kind: str, ads: int, sequence: int, base: int = 1) -> dict[str, float]:
        """Publish, and wait until everything has arrived and lies in Redis. The figures of that."""
        with subprocess.Popen(
            [sys.executable, "-m", "bench.collector.feed", self.rabbit.url, kind, *map(str, (ads, sequence, base))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as feeder:
            assert feeder.stdin is not None
            assert feeder.stdout is not None
            feeder.stdout.readline()
            parts = self.processes()
            used = {name: cpu(process) for name, process in parts.items()}
            began = time.perf_counter()
            feeder.stdin.write("go\n")
            feeder.stdin.flush()
            sent, sending = map(float, feeder.stdout.readline().split())
            while self.metric("roost_collector_unwritten_groups") or not self.stored(ads // SLOTS, sequence):
                if time.perf_counter() - began > 600:
                    raise TimeoutError(f"not all ads are stored after 600 s; the collector's log: {self.collector.log}")
                time.sleep(0.05)
            took = time.perf_counter() - began
        after = {f"{name} processor s": round(cpu(process) - used[name], 2) for name, process in parts.items()}
        return {"s": round(took, 2), "sent after s": round(sent, 2), "sender processor s": round(sending, 2), **after}

    def stored(self, machines: int, sequence: int) -> bool:
        """Whether Redis has this message of each machine, or a later one."""
        with redis.Redis.from_url(self.redis.url) as client:
            # A few first: most looks come too early.
            for step in (max(1, machines // 50), 1):
                pipe = client.pipeline(transaction=False)
                for number in range(0, machines, step):
                    pipe.hget(keys.ads("Machine", f"startd@{host_of(number)}"), "")
                if not all(found and int(found.split()[1]) >= sequence for found in pipe.execute()):
                    return False
        return True

    def processes(self) -> dict[str, psutil.Process]:
        found = {
            "collector": psutil.Process(self.collector.process.pid),
            "gateway": psutil.Process(self.gateway.process.pid),
            "redis": next(p for p in psutil.process_iter(["cmdline"]) if _serves(p, self.redis.port)),
        }
        broker = next(p for p in psutil.process_iter(["name", "environ"]) if _is_broker(p, self.rabbit.node))
        return {**found, "broker": broker}


def _serves(process: psutil.Process, port: int) -> bool:
    words = process.info["cmdline"] or []
    return bool(words) and "redis-server" in words[0] and any(str(port) in word for word in words)


def _is_broker(process: psutil.Process, node: str) -> bool:
    environ = process.info["environ"] or {}
    return bool(process.info["name"] == "beam.smp" and environ.get("RABBITMQ_NODENAME", "") == node)


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
