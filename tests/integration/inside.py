"""A personal pool inside the test process, in a thread with an event loop of its own, so that a test can take one of
its daemons away and put garbage on its bus."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import msgpack

from roost.client import Client
from roost.up import PersonalPool, Plan, prepare
from shared.bus.memory import MemoryBus
from shared.daemon.runner import Runner
from tests import warm
from tests.waiting import wait_until


class InsidePool:
    """Started when made; to be closed."""

    def __init__(self, directory: Path, *, redis_url: str = "", **knobs: str) -> None:
        self.directory = directory
        prepare(directory)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        plan = Plan(
            directory,
            redis_url=redis_url,
            knobs={"ROOST_GATEWAY_PORT": "0", "NUM_CPUS": "2", "MEMORY": "4096", "ROOST_OWN_USERS": "*", **knobs},
        )
        self.pool = PersonalPool(plan)
        self.run(self.pool.start())
        self.url = self.pool.url
        self.token = (directory / "token").read_text().strip()
        wait_until(self._has_slots, what="slots")

    def run(self, work, timeout_s=60.0):
        """Run a coroutine in the pool's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def client(self, token: str | None = None, timeout: float = 60.0) -> Client:
        return Client(self.url, token or self.token, timeout=timeout)

    def runner(self, name: str) -> Runner:
        return next(runner for runner in self.pool.runners if runner.name == name)

    def stop_daemon(self, name: str) -> None:
        self.run(self.runner(name).stop())

    def start_daemon(self, name: str) -> None:
        self.run(self.runner(name).start())

    def bus(self, sender: str = "gateway.test") -> MemoryBus:
        """Another member of the pool's bus, started; the caller stops it."""
        bus = MemoryBus(self.pool._hub, sender=sender)
        self.run(bus.start())
        return bus

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
        return {**kept, "ROOST_POOL_DIR": str(self.directory), "PYTHONPATH": str(Path(__file__).parents[2])}

    def roost(self, *words: str, ok: bool = True, cwd: Path | None = None) -> str:
        """Run the command: what it said, standard error last. By default it must succeed."""
        done = warm.run(
            [sys.executable, "-m", "roost", *words],
            env=self.environment(),
            cwd=cwd,
            timeout=100,
        )
        text = done.stdout + done.stderr
        assert done.returncode == (0 if ok else 1), f"roost {' '.join(words)}: exit {done.returncode}\n{text}"
        return text

    def ask(self, method, path, *, body=None, token="own", headers=None, timeout_s=30.0):
        """One raw request. Returns status, headers and the body, read as JSON where it is JSON. `body`: bytes as they
        are, anything else as JSON; token: None for none."""
        shown = {"own": self.token}.get(token, token)
        sent = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=timeout_s)
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            kind = answer.headers.get("Content-Type", "")
            return answer.status, dict(answer.headers), json.loads(text) if kind == "application/json" else text
        finally:
            connection.close()

    def submit_raw(self, body: dict, *, headers=None, **more):
        kind = {"Content-Type": "application/x-msgpack"}
        return self.ask("POST", "/v1/jobs", body=msgpack.packb(body), headers={**kind, **(headers or {})}, **more)

    def close(self) -> None:
        self.run(self.pool.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def _has_slots(self) -> bool:
        with self.client() as client:
            return any(client.ads("Machine", projection=["Name"]))
