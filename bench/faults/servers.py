"""Redis behind sentinels, and RabbitMQ in a cluster, of processes that only this bench uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.servers import Leashed, Rabbit, Redis, Server, answers, free_port
from tests.waiting import wait_until

SERVICE = "pool"
#: Starts a server of a highly available Redis.
START = Path(__file__).parents[2] / "compose" / "redis" / "ha.sh"
#: A primary that is silent for so long is down; sentinels then agree on another. Less would take a busy machine for a
#: dead one.
DOWN_AFTER_MS = 1000
#: A node of RabbitMQ that is silent for so long, and a quarter less or more, is gone for the others; until then whoever
#: declares a queue waits. Compose has 4 (compose/rabbitmq/30-cluster.conf).
TICK_S = 2
#: Whoever speaks to a node that hangs connects to it anew, and waits for so long (compose/rabbitmq/advanced.config).
SETUP_S = 1


class Sentinel(Server):
    program = "redis-server"

    def __init__(self, primary: Redis, quorum: int) -> None:
        super().__init__()
        self.primary, self.quorum = primary, quorum

    def choose_ports(self) -> None:
        self.port = free_port()
        # Sentinel keeps what it learns in this file, so that it is written once.
        (self.directory / "sentinel.conf").write_text(
            f"port {self.port}\nbind {self.host}\ndir {self.directory}\n"
            f"sentinel monitor {SERVICE} {self.primary.host} {self.primary.port} {self.quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 6000\n"
        )

    def launch(self) -> Leashed:
        command = [self.executable, str(self.directory / "sentinel.conf"), "--sentinel"]
        return Leashed(command, log=self.log, cwd=self.directory, directory=self.directory)

    def ready(self) -> bool:
        return answers(self.port, b"PING\r\n", b"+PONG")

    def knows(self, replicas: int, others: int) -> bool:
        return answers(self.port, f"SENTINEL REPLICAS {SERVICE}\r\n".encode(), f"*{replicas}".encode()) and answers(
            self.port, f"SENTINEL SENTINELS {SERVICE}\r\n".encode(), f"*{others}".encode()
        )


class RoleKeepingRedis(Redis):
    """One of several, which starts in the role that it had last, by the program of the compose pool. primary: what it
    follows at first."""

    def __init__(self, primary: Redis | None) -> None:
        # A primary that is cut off from its replicas takes no writes, which the new primary would not know.
        super().__init__("--min-replicas-to-write", "1", "--min-replicas-max-lag", "5")
        self.primary = primary

    def _launch(self, command: Sequence[str]) -> Leashed:
        program, *settings = command
        (self.directory / "settings.conf").touch()
        places = [f"REDIS_DATA={self.directory}", f"REDIS_SETTINGS={self.directory}/settings.conf"]
        first = f"{self.primary.host} {self.primary.port}" if self.primary is not None else ""
        return super()._launch(["env", *places, f"REDIS_SERVER={program}", str(START), first, *settings])


class ReplicatedRedis:
    """A primary, two replicas and three sentinels."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.servers: list[Redis] = []
        self.sentinels: list[Sentinel] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._stack.close)
            for number in range(3):
                server = RoleKeepingRedis(self.servers[0] if number else None)
                self._stack.callback(server.close)
                server.start()
                self.servers.append(server)
            for _ in range(3):
                sentinel = Sentinel(self.servers[0], 2)
                self._stack.callback(sentinel.close)
                sentinel.start()
                self.sentinels.append(sentinel)
            for sentinel in self.sentinels:
                wait_until(lambda s=sentinel: s.knows(2, 2), what="sentinels that know of all others")  # type: ignore[misc]
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        hosts = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def primary(self) -> Redis:
        """The server that takes writes, once there is but one and the others follow it: what returns from a fault calls
        itself a primary until the sentinels have told it better."""

        def primaries() -> list[Redis]:
            said = [(server, server.command("INFO", "replication")) for server in self.servers]
            return [server for server, text in said if b"role:master" in text and text.count(b"state=online") == 2]

        wait_until(lambda: len(primaries()) == 1, 120, "a primary with two replicas")
        (found,) = primaries()
        return found


class RabbitNode(Rabbit):
    """A node of a cluster: it shares the first one's cookie and its port mapper."""

    def __init__(self, first: Rabbit | None = None) -> None:
        super().__init__(f"cluster_partition_handling = autoheal\nnet_ticktime = {TICK_S}\n")
        self.first = first
        if first is not None:
            cookie = self.directory / ".erlang.cookie"
            cookie.chmod(0o600)
            cookie.write_text((first.directory / ".erlang.cookie").read_text())
            cookie.chmod(0o400)

    @property
    def env(self) -> dict[str, str]:
        return super().env | {"RABBITMQ_ADVANCED_CONFIG_FILE": f"{self.directory}/advanced.config"}

    def launch(self) -> Leashed:
        (self.directory / "advanced.config").write_text(f"[{{kernel, [{{net_setuptime, {SETUP_S}}}]}}].\n")
        if self.first is not None:
            self.epmd_port = self.first.epmd_port
            self._epmd = self.first._epmd
        return super().launch()

    def close_epmd(self) -> None:
        if self.first is None:
            super().close_epmd()

    def join(self) -> None:
        assert self.first is not None
        self.ctl("await_startup")  # it answers before all of it has started, and can not be stopped until then
        self.ctl("stop_app")
        self.ctl("join_cluster", self.first.node)
        self.ctl("start_app")
        wait_until(self.ready, what="a node that has joined its cluster")


class RabbitCluster:
    """Three nodes."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.nodes: list[RabbitNode] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._stack.close)
            for number in range(3):
                node = RabbitNode(self.nodes[0] if number else None)
                self._stack.callback(node.close)
                node.start()
                if number:
                    node.join()
                self.nodes.append(node)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def busiest(self) -> RabbitNode:
        """The node that most daemons are connected to."""
        self.wait_whole()
        used = Counter(connection["node"] for connection in self.nodes[-1].api("GET", "/api/connections"))
        return max(self.nodes, key=lambda node: used[node.node])

    def wait_whole(self) -> None:
        """Until all nodes see each other: one that went on after a hang is still being healed when the pool serves."""

        def whole() -> bool:
            try:
                said = [one for node in self.nodes for one in node.api("GET", "/api/nodes")]
            except OSError:
                return False
            return len(said) == len(self.nodes) ** 2 and all(one["running"] and not one["partitions"] for one in said)

        wait_until(whole, 180, "nodes of RabbitMQ that all see each other")

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes)
