"""The highly available compose pool as something to be killed, frozen and cut off: each daemon and server is a
container, with a network of its own."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from docker.errors import APIError

from bench.faults.leaders import enter_network
from roost.client import Client
from shared.daemon.healthcheck import ask
from tests.containers.engine import Engine
from tests.containers.pool import COMPOSE_FILE, HighlyAvailablePool
from tests.waiting import wait_until

CENTRAL = ("", "2", "3")
HEALTH_PORT = 9690
BROKER_PORT = 5672
ESTABLISHED = "01"
#: Directions in which packets are lost, as seen by who is cut off.
HEARS, SPEAKS = "INPUT", "OUTPUT"
SETTLED = """
import redis.sentinel
from pathlib import Path
from shared.state.urls import parse
url = parse(Path("/run/roost/key/redis_url").read_text())
login = {"username": url.sentinel_username, "password": url.sentinel_password}
for sentinel in redis.sentinel.Sentinel(url.sentinels, sentinel_kwargs=login).sentinels:
    master = sentinel.sentinel_master(url.service)
    replicas = sentinel.sentinel_slaves(url.service)
    linked = [one for one in replicas if one["master-link-status"] == "ok" and not one["is_disconnected"]]
    assert master["flags"] == "master" and len(linked) == 2, (master["flags"], len(linked))
"""


class Container:
    """One service of the pool."""

    def __init__(self, pool: ContainerPool, service: str) -> None:
        self.pool, self.service = pool, service

    def kill(self) -> None:
        self.pool.kill(self.service)

    def start(self) -> None:
        self.pool.start(self.service)

    def freeze(self) -> None:
        container = self.pool.container(self.service)
        for attempts_left in reversed(range(5)):
            try:
                container.pause()
            except Exception as error:  # the container runtime gives up where processes are made faster than frozen
                if not attempts_left or "unable to freeze" not in str(error):
                    raise
            else:
                return

    def thaw(self) -> None:
        self.pool.container(self.service).unpause()

    @property
    def pid(self) -> int:
        """Of its first process; 0 while it is dead."""
        return int(self.pool.container(self.service).attrs["State"]["Pid"])

    def where(self) -> tuple[int, int]:
        """The process in whose network it tells of its health, and the port. Raises OSError while it is dead."""
        pid = self.pid
        if not pid:
            raise ConnectionError(f"{self.service} does not run")
        return pid, HEALTH_PORT

    def addresses(self) -> list[str]:
        networks = self.pool.container(self.service).attrs["NetworkSettings"]["Networks"]
        return [network["IPAddress"] for network in networks.values() if network["IPAddress"]]

    def health(self) -> tuple[int, str]:
        """Status and text of a daemon's /readyz; 0 when it does not answer."""
        said: list[tuple[int, str]] = []

        def look() -> None:
            try:
                enter_network(self.where()[0])
                said.append(ask(HEALTH_PORT, "/readyz", 5.0))
            except OSError as error:
                said.append((0, str(error)))

        # A thread does not come back from another network: this one ends there.
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return said[0]

    def connections(self, port: int) -> int:
        """TCP connections that were accepted on this port."""
        pid, found = self.pid, 0
        for table in ("tcp", "tcp6"):
            rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
            for row in rows:
                _, local, _, state, *_ = row.split()
                found += state == ESTABLISHED and int(local.rpartition(":")[2], 16) == port
        return found


@contextmanager
def cut(
    *containers: Container, off: Sequence[Container] = (), directions: Sequence[str] = (HEARS, SPEAKS)
) -> Iterator[None]:
    """These hear nothing from the network, and nobody hears them. off: only these others are cut off from them.
    directions: only one of the two. What a connection has sent already is not told of; nobody gets a reset."""
    peers = [address for other in off for address in other.addresses()]
    rules = []
    for direction in directions:
        interface, peer = ("-i", "-s") if direction == HEARS else ("-o", "-d")
        rules += [[direction, "!", interface, "lo", peer, address, "-j", "DROP"] for address in peers]
        if not off:
            rules.append([direction, "!", interface, "lo", "-j", "DROP"])
    pids = [container.pid for container in containers]

    def each(option: str, *, check: bool) -> None:
        for pid in pids:
            for rule in rules:
                command = ["nsenter", f"--net=/proc/{pid}/ns/net", "iptables", "--wait", option, *rule]
                subprocess.run(command, check=check, capture_output=True)

    each("--insert", check=True)
    try:
        yield
    finally:
        each("--delete", check=False)  # who was started again meanwhile has a new network


#: A container whose memory limit is to be met may have so much more than it has, and a file in its /tmp gets so much.
SPARE_BYTES, FILL_BYTES = 16 << 20, 768 << 20


@contextmanager
def memory_limits_met(*containers: Container) -> Iterator[None]:
    """These have no memory left within their limits. The limit is brought down to what each has, and its /tmp, which is
    memory, is filled: the kernel kills the daemon, which is the largest process, and the engine starts it again. The
    limits are as they were in the end."""
    met = [container.pool.container(container.service) for container in containers]
    limits = [(one.attrs["HostConfig"]["Memory"], one.attrs["HostConfig"]["MemorySwap"]) for one in met]
    lives = [one.attrs["State"]["StartedAt"] for one in met]

    def meet(one: Any) -> None:
        limit = int(one.stats(stream=False)["memory_stats"]["usage"]) + SPARE_BYTES
        one.update(mem_limit=limit, memswap_limit=limit)
        with suppress(APIError):  # it ends with the container
            one.exec_run(["sh", "-c", f"head -c {FILL_BYTES} /dev/zero > /tmp/fill"])

    def started_again() -> bool:
        for one in met:
            one.reload()
        return all(
            one.attrs["State"]["Running"] and one.attrs["State"]["StartedAt"] != life
            for one, life in zip(met, lives, strict=True)
        )

    try:
        at_once([partial(meet, one) for one in met])
        wait_until(started_again, 60, "a new life of a container that had no memory left")
        yield
    finally:
        for one, (limit, swap) in zip(met, limits, strict=True):
            one.update(mem_limit=limit, memswap_limit=swap)


class ContainerPool(HighlyAvailablePool):
    """See the module. Takes an engine on this machine, and root."""

    files = (*HighlyAvailablePool.files, COMPOSE_FILE.parents[1] / "bench" / "faults" / "compose.faults.yaml")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.env["ROOST_IMAGE"] = "roost/pool:faults"

    @cached_property
    def members(self) -> dict[str, Container]:
        return {service: Container(self, service) for service in (*self.servers, *self.daemons)}

    def __getitem__(self, service: str) -> Container:
        return self.members[service]

    def connect(self, timeout_s: float) -> Client:
        """A client of all gateways."""
        urls = ",".join(f"https://127.0.0.1:{port}" for port in self.ports)
        return Client(urls, self.token, timeout=timeout_s, ca_file=str(self.ca))

    def schedds(self) -> tuple[str, ...]:
        with self.clients(60.0)[0] as client:
            return tuple(sorted(str(ad.eval("Name")) for ad in client.ads("Scheduler", projection=["Name"])))

    def readiness(self, service: str) -> dict[str, Any]:
        status, text = self[service].health()
        return dict(json.loads(text)) if status else {}

    def healthy(self, service: str) -> bool:
        # Not by the container's own check: that takes a third of a second of processor time.
        return super().healthy(service) if service in self.servers else self[service].health()[0] == 200

    def wait_ready(self, *services: str, timeout_s: float = 180) -> None:
        super().wait_ready(*services, timeout_s=timeout_s)
        if not services:
            self.wait_redis()

    def wait_redis(self) -> None:
        """Until all sentinels know of one primary and two replicas that follow it."""

        def settled() -> bool:
            return bool(self.container("gateway").exec_run(["python3", "-c", SETTLED]).exit_code == 0)

        wait_until(settled, 120, "a primary of Redis with two replicas")

    def central(self, number: str) -> list[Container]:
        """The daemons of one central manager."""
        return [self[f"{kind}{number}"] for kind in ("negotiator", "had", "collector")]

    def redis(self) -> list[Container]:
        """What daemons reach the store by."""
        return [self[service] for service in self.servers if service.startswith(("redis", "sentinel"))]

    def brokers(self) -> list[Container]:
        return [self[service] for service in self.servers if service.startswith("rabbitmq")]

    def busiest_broker(self) -> Container:
        """The node that most daemons are connected to."""
        return max(self.brokers(), key=lambda node: node.connections(BROKER_PORT))

    def keep_logs(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for service in self.members:
            said = self.container(service).logs(timestamps=True)
            (directory / f"{service}.log").write_bytes(said)

    def with_primary(self, wanted: bool) -> None:
        """Start the HADs again with, or without, HAD_USE_PRIMARY."""
        self.env["ROOST_HAD_USE_PRIMARY"] = "true" if wanted else "false"
        hads = [f"had{number}" for number in CENTRAL]
        self.compose("up", "--detach", "--no-deps", *hads)
        self.wait_ready(*hads)


def at_once(deeds: Sequence[Callable[[], None]]) -> None:
    """All of them at the same time."""
    with ThreadPoolExecutor(max(1, len(deeds))) as threads:
        for done in [threads.submit(deed) for deed in deeds]:
            done.result()
