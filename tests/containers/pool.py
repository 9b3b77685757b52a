"""The pool of compose/compose.yaml, really brought up, for tests."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docker.models.containers import Container

from roost.client import Client
from tests.containers.engine import ROOT, Engine
from tests.waiting import wait_until

COMPOSE_FILE = ROOT / "compose" / "compose.yaml"
IMAGES = ("python:3.11-slim", "rabbitmq:4.0-management", "redis:8.0", "debian:bookworm-slim")
SERVERS = ("rabbitmq", "redis")
DAEMONS = ("collector", "negotiator", "had", "schedd", "startd1", "startd2", "gateway")
TOKEN = "/var/lib/roost/spool/token"
# Where certificates to trust may be named, for the build of the image.
CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


class ComposePool:
    """A running pool. url: of its gateway; token: its administrator's."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.project = f"roost-test-{secrets.token_hex(3)}"
        self.execute = Path(tempfile.mkdtemp(prefix="roost-execute-"))
        socket = Path(engine.url.removeprefix("unix://"))
        self.env = {
            **engine.env,
            "COMPOSE_PROJECT_NAME": self.project,
            "ROOST_EXECUTE_DIR": str(self.execute),
            "ROOST_GATEWAY_PORT": "0",
            "ROOST_IMAGE": "roost/pool:test",
            "DOCKER_SOCKET": str(socket),
            "DOCKER_GID": str(socket.stat().st_gid),
            "NUM_CPUS": "2",
            "MEMORY": "2048",
        }
        certificates = next((os.environ[name] for name in CERTIFICATES if os.environ.get(name)), None)
        if certificates:
            self.env["ROOST_BUILD_CA"] = certificates
        self.url = ""
        self.token = ""

    @classmethod
    @contextlib.contextmanager
    def up(cls, engine: Engine) -> Iterator["ComposePool"]:
        """Build the image, start everything, wait until it is healthy; take it down afterwards."""
        for name in IMAGES:
            engine.image(name)
        pool = cls(engine)
        try:
            pool.compose("build", "--quiet", "prepare")
            try:
                pool.compose("up", "--detach", "--wait", "--wait-timeout", "180")
            except RuntimeError as error:
                raise RuntimeError(f"{error}\n{pool.logs()}") from None
            pool.find_gateway()
            yield pool
        finally:
            pool.compose("down", "--volumes", "--timeout", "5")
            shutil.rmtree(pool.execute, ignore_errors=True)

    def find_gateway(self) -> None:
        """Where the gateway is now: Docker gives another port at each start."""
        self.url = f"http://{self.compose('port', 'gateway', '9680').strip()}"
        self.token = self.compose("exec", "-T", "gateway", "cat", TOKEN).strip()

    def compose(self, *arguments: str) -> str:
        """Standard output of docker compose; RuntimeError with all it said, if it fails."""
        return self.engine.docker("compose", "--file", str(COMPOSE_FILE), *arguments, env=self.env)

    def logs(self, *services: str) -> str:
        return self.compose("logs", "--no-color", "--tail", "60", *services)

    def client(self) -> Client:
        return Client(self.url, self.token)

    def roost(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """The `roost` command, as a user of this pool on this machine runs it."""
        env = dict(os.environ, ROOST_URL=self.url, ROOST_TOKEN=self.token, PYTHONPATH=str(ROOT))
        command = [sys.executable, "-m", "roost", *arguments]
        return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)

    def container(self, service: str) -> Container:
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        (found,) = self.engine.client.containers.list(all=True, filters={"label": labels})
        return found

    def crash(self, service: str) -> None:
        """kill -9 of a service's main process; returns when Docker has started it again.

        Not `docker kill`: that counts as stopped by hand, and switches the restart policy off.
        """
        before = self.container(service).attrs["State"]
        os.kill(before["Pid"], signal.SIGKILL)

        def restarted() -> bool:
            now = self.container(service).attrs["State"]
            return bool(now["Running"]) and now["StartedAt"] != before["StartedAt"]

        wait_until(restarted, 60, f"the restart of {service}")

    def healthy(self, service: str) -> bool:
        """What the service's own health check says, asked now."""
        if service in SERVERS:
            return self.container(service).attrs["State"]["Health"]["Status"] == "healthy"
        check = ["python3", "-m", "shared.daemon.healthcheck", "--ready"]
        return self.container(service).exec_run(check).exit_code == 0

    def wait_ready(self, *services: str, timeout_s: float = 90) -> None:
        """Until these services, or all, do their work."""
        for service in services or (*SERVERS, *DAEMONS):
            try:
                wait_until(lambda service=service: self.healthy(service), timeout_s, f"the health of {service}")
            except TimeoutError as error:
                raise TimeoutError(f"{error}\n{self.logs(service)}") from None
