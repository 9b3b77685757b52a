"""The real half: collector, negotiator, HAD, schedds and a gateway as processes, on a RabbitMQ and a Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.pool import processor_s
from roost.client import Client
from shared.bus.definitions import definitions
from shared.daemon.invariants import STRICT_VARIABLE
from tests.place import SECRETS
from tests.processes import DaemonProcess
from tests.servers import Rabbit, Redis, free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
#: Stand-ins of one process: their own processor time must not be what limits the pool.
A_PROCESS = 1000
STAND_INS = "stand-ins"
#: What a broker tells of itself (rabbitmq_prometheus), by what it is called here. Bytes are of the connections of now.
COUNTED = {
    "published": "rabbitmq_global_messages_received_total",
    "delivered": "rabbitmq_global_messages_delivered_total",
    "bytes in": "rabbitmq_connection_incoming_bytes_total",
    "bytes out": "rabbitmq_connection_outgoing_bytes_total",
}


class Pool:
    def __init__(self, directory: Path, stack: ExitStack, schedds: int) -> None:
        self.directory = directory
        self._counters_port = free_port()
        self.rabbit, self.redis = Rabbit(f"prometheus.tcp.port = {self._counters_port}\n"), Redis()
        # rabbitmqctl, which knows as much, takes a second of processor time for each question.
        (self.rabbit.directory / "enabled_plugins").write_text("[rabbitmq_management,rabbitmq_prometheus].")
        for server in (self.rabbit, self.redis):
            stack.callback(server.close)
            server.start()
        rights = directory / "definitions.json"
        rights.write_text(json.dumps(definitions("/", SECRETS)))
        self.rabbit.ctl("import_definitions", str(rights))
        port, token = free_port(), directory / "token"
        self.url = f"http://127.0.0.1:{port}"
        knobs: dict[str, dict[str, object]] = {
            "collector": {},
            "had": {},
            "negotiator": {},
            "gateway": {
                "ROOST_GATEWAY_PORT": port,
                "ROOST_GATEWAY_BIND": "127.0.0.1",
                "ROOST_TOKEN_FILE": token,
                "ROOST_GATEWAY_STREAMS": 0,
            },
        }
        self.schedds = [f"s{number}" for number in range(1, schedds + 1)]
        self.daemons: dict[str, Any] = {name: self._daemon(name, "p1", **more) for name, more in knobs.items()}
        for name in self.schedds:
            self.daemons[name] = self._daemon("schedd", name, ROOST_SCHEDD_TRANSFER_HOST="127.0.0.1")
        for daemon in self.daemons.values():
            stack.callback(daemon.close)
            daemon.start(wait=False)
        for name, daemon in self.daemons.items():
            wait_until(daemon.ready, 120, f"{name} to be ready")
        self.token = token.read_text().strip()
        self.machines: list[subprocess.Popen[str]] = []
        self._there = 0
        stack.callback(self._end_machines)

    def _daemon(self, daemon: str, name: str, **knobs: object) -> Any:
        config = {"MAX_JOBS_PER_SUBMISSION": 10**6, "MAX_JOBS_RUNNING": 10**6, "JOB_START_COUNT": 10**6, **knobs}
        process = DaemonProcess(  # type: ignore[no-untyped-call]
            daemon, name, self.directory, amqp_url=self.broker(daemon), redis_url=self.redis.url, config=config
        )
        process.env.pop(STRICT_VARIABLE)
        return process

    def broker(self, role: str) -> str:
        """URL of the broker for daemons of a role, who have its rights and no others."""
        return self.rabbit.url_of("/", role, SECRETS[role])

    def client(self) -> Client:
        return Client(self.url, self.token, timeout=300.0)

    # Machines

    def join(self, machines: int, slots: int, *options: str) -> float:
        """So many machines more. Returns the seconds until the collector knows all slots."""
        began = time.perf_counter()
        new = []
        for first in range(self._there, self._there + machines, A_PROCESS):
            some = min(A_PROCESS, self._there + machines - first)
            words = [self.broker("startd"), str(some), "--first", str(first), "--slots", str(slots), *options]
            new.append(
                subprocess.Popen(
                    [sys.executable, "-m", "bench.scale.machines", *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                )
            )
        self.machines += new
        self._there += machines
        for process in new:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "stand-ins ended before they were there"
        wanted = self._there * slots
        with self.client() as client:
            wait_until(lambda: sum(one["ads"] for one in client.ad_totals("Machine")) >= wanted, 600, f"{wanted} slots")
        return time.perf_counter() - began

    def did(self, order: str = "") -> dict[str, int]:
        """What the stand-ins did so far, added up. order: "last" or "end", to all of them."""
        for process in self.machines:
            assert process.stdin is not None
            process.stdin.write(f"{order}\n")
            process.stdin.flush()
        total: dict[str, int] = {}
        for process in self.machines:
            assert process.stdout is not None
            for name, value in json.loads(process.stdout.readline()).items():
                total[name] = total.get(name, 0) + (len(value) if isinstance(value, list) else value)
        return total

    def until(self, what: str, count: int, timeout_s: float = 1800.0) -> None:
        """Wait until the stand-ins did something so many times."""
        began = time.perf_counter()
        while (did := self.did())[what] < count:
            if time.perf_counter() - began > timeout_s:
                raise TimeoutError(f"{did} after {timeout_s:g} s, {count} {what} are wanted; logs: {self.directory}")
            time.sleep(0.1)

    def _end_machines(self) -> None:
        for process in self.machines:
            process.kill()
            process.wait()

    # What it costs

    def pids(self) -> dict[str, int]:
        found = {name: daemon.process.pid for name, daemon in self.daemons.items()}
        for server in (self.rabbit, self.redis):
            assert server.process is not None
            found[server.program] = server.process.pid
        return found

    def look(self) -> Look:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._counters_port}/metrics", timeout=120) as answer:
            lines = answer.read().decode().splitlines()
        messages = {
            name: sum(float(line.split()[-1]) for line in lines if line.startswith((f"{metric}{{", f"{metric} ")))
            for name, metric in COUNTED.items()
        }
        used = processor_s({**self.pids(), **{f"m{number}": one.pid for number, one in enumerate(self.machines)}})
        by_role: dict[str, float] = {}
        for name, s in used.items():
            by_role[role_of(name)] = by_role.get(role_of(name), 0.0) + s
        return Look(time.perf_counter(), by_role, messages)

    def memory_mib(self) -> dict[str, float]:
        """Resident, with children; of one schedd."""
        found = {}
        for name, pid in self.pids().items():
            process = psutil.Process(pid)
            every = [process, *process.children(recursive=True)]
            found[role_of(name)] = sum(one.memory_info().rss for one in every) / 2**20
        return found


def role_of(name: str) -> str:
    """All schedds together, and all stand-ins."""
    if not name[1:].isdigit():
        return name
    return "schedd" if name[0] == "s" else STAND_INS


@dataclass
class Look:
    """What was used so far."""

    at: float  # s
    processor_s: dict[str, float]  # by role
    messages: dict[str, float]  # of the broker, and its bytes

    def broker_is_new(self) -> None:
        """The broker begins anew."""
        self.processor_s["rabbitmq-server"] = 0.0
        self.messages = dict.fromkeys(self.messages, 0.0)


@dataclass
class Row:
    """What so many units of something took, each: messages, and by role ms of processor time, or MiB of memory."""

    kind: str
    what: str
    unit: str
    machines: int
    units: float
    s: float  # on the clock
    load: float
    by_role: dict[str, float]
    messages: dict[str, float]

    def __str__(self) -> str:
        used = sorted(self.by_role.items(), key=lambda one: -one[1])
        parts = ", ".join(f"{name} {ms:.3g}" for name, ms in used if ms >= 0.001)
        sent = ", ".join(f"{name} {count:.3g}" for name, count in self.messages.items())
        about = f"{self.machines} machines, {self.what} ({self.units:.0f} in {self.s:.1f} s, load {self.load:.1f})"
        return f"{about}\n    ms a {self.unit}: {parts}; {sent}"


def row(
    kind: str, what: str, unit: str, units: float, machines: int, looks: tuple[Look, Look], idle: Row | None = None
) -> Row:
    """idle: what a second takes in which nothing is asked for, which is taken off."""
    before, after = looks
    s = after.at - before.at

    def each(new: Mapping[str, float], old: Mapping[str, float], off: Mapping[str, float], scale: float) -> Any:
        return {n: ((new[n] - old.get(n, 0)) * scale - off.get(n, 0.0) * s) / units for n in new}

    return Row(
        kind,
        what,
        unit,
        machines,
        units,
        s,
        os.getloadavg()[0],
        each(after.processor_s, before.processor_s, idle.by_role if idle else {}, 1e3),
        each(after.messages, before.messages, idle.messages if idle else {}, 1.0),
    )
