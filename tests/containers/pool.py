"""The pools of compose/compose.yaml and compose.ha.yaml, really brought up, for tests."""

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

from docker.models.containers import Container

from roost.client import Client
from tests import warm
from tests.compose_set_up import services
from tests.containers.engine import ROOT, Engine
from tests.servers import free_port
from tests.waiting import wait_until

COMPOSE_FILE = ROOT / "compose" / "compose.yaml"
IMAGES = ("python:3.11-slim", "rabbitmq:4.0-management", "redis:8.0", "debian:bookworm-slim")
SERVERS = ("rabbitmq", "redis")
DAEMONS = ("collector", "negotiator", "had", "schedd", "startd1", "startd2", "journal", "registrar", "gateway")
#: Whose health is looked at; the last ones are started with a profile only.
CHECKED = (*SERVERS, *DAEMONS, "defrag", "rooster", "gangliad", "adstash")
#: Machines that are not measured when they start, which takes two seconds and a half each time. startd1 is.
UNMEASURED = ("startd2", "startd")
CA = "/run/roost/key/ca.pem"
TOKEN = "/var/lib/roost/spool/token"
# Where certificates to trust may be named, for the build of the image.
CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")

#: A check of its health is a process in each container: every few seconds, as users have it, they would together keep
#: half a processor busy as long as the pool is there. So a check rests where the one before found all well; a container
#: that starts has a new /tmp.
RESTING = "{check} && {{ [ ! -e /tmp/well ] || sleep 30; }} && touch /tmp/well"

READINESS = """
import urllib.error, urllib.request
try:
    print(urllib.request.urlopen("http://127.0.0.1:9690/readyz").read().decode())
except urllib.error.HTTPError as error:
    print(error.read().decode())
"""
PRIMARY = """
import redis.sentinel
from pathlib import Path
from shared.state.urls import parse
url = parse(Path("/run/roost/key/redis_url").read_text())
login = {"username": url.sentinel_username, "password": url.sentinel_password}
print(redis.sentinel.Sentinel(url.sentinels, sentinel_kwargs=login).discover_master(url.service)[0])
"""


def resting(service: str) -> dict[str, object]:
    """Its health check, which rests where all is well."""
    kind, *words = services(ha=False)[service]["healthcheck"]["test"]
    check = shlex.join(words) if kind == "CMD" else words[0]
    test = ["CMD", "sh", "-c", RESTING.format(check=check).replace("$", "$$")]
    return {"test": test, "interval": "2s", "timeout": "60s"}


def readable(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


class ComposePool:
    """A running pool. url: of its gateway; token: its administrator's; ca: file with its authority's certificate."""

    files: tuple[Path, ...] = (COMPOSE_FILE,)
    servers: tuple[str, ...] = SERVERS
    daemons: tuple[str, ...] = DAEMONS
    #: Services that are started, with what they need; none: all.
    started: tuple[str, ...] = ()
    #: Whether Docker looks at their health as often as it does for users.
    watched = False

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
            "ROOST_CONSUMERS": "bill",
            "NUM_CPUS": "2",
            "MEMORY": "2048",
        }
        certificates = next((os.environ[name] for name in CERTIFICATES if os.environ.get(name)), None)
        if certificates:
            self.env["ROOST_BUILD_CA"] = certificates
        self.url = ""
        self.token = ""
        self.ca = Path(tempfile.mkdtemp(prefix="roost-ca-")) / "ca.pem"
        if not self.watched:
            checks = self.ca.with_name("checks.yaml")
            services = {name: {"healthcheck": resting(name)} for name in CHECKED}
            for name in UNMEASURED:
                services.setdefault(name, {})["environment"] = {"_CONDOR_RUNBENCHMARKS": "false"}
            checks.write_text(json.dumps({"services": services}))
            self.files = (*self.files, checks)

    @classmethod
    @contextlib.contextmanager
    def up(cls, engine: Engine) -> Iterator[Self]:
        """Build the image, start everything, wait until it is healthy; take it down afterwards."""
        for name in IMAGES:
            engine.image(name)
        pool = cls(engine)
        try:
            pool.compose("build", "--quiet", "prepare")
            try:
                pool.compose("up", "--detach", "--wait", "--wait-timeout", "180", *cls.started)
            except RuntimeError as error:
                raise RuntimeError(f"{error}\n{pool.logs()}") from None
            pool.find_gateway()
            yield pool
        finally:
            pool.compose("down", "--volumes", "--timeout", "5")
            shutil.rmtree(pool.execute, ignore_errors=True)
            shutil.rmtree(pool.ca.parent, ignore_errors=True)

    def find_gateway(self) -> None:
        """Where the gateway is now: Docker gives another port at each start."""
        gateway = self.container("gateway")
        bound = gateway.attrs["NetworkSettings"]["Ports"]["9680/tcp"][0]
        self.url = f"https://{bound['HostIp']}:{bound['HostPort']}"
        if not self.token:
            self.ca.write_bytes(gateway.exec_run(["cat", CA]).output)
            self.token = gateway.exec_run(["cat", TOKEN]).output.decode().strip()

    def compose(self, *arguments: str) -> str:
        """Standard output of docker compose; RuntimeError with all it said, if it fails."""
        files = [word for file in self.files for word in ("--file", str(file))]
        return self.engine.docker("compose", *files, *arguments, env=self.env)

    def logs(self, *services: str) -> str:
        return self.compose("logs", "--no-color", "--tail", "60", *services)

    def client(self) -> Client:
        return Client(self.url, self.token, ca_file=str(self.ca))

    def roost(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """The `roost` command, as a user of this pool on this machine runs it."""
        env = dict(os.environ, PYTHONPATH=str(ROOT), **self.login)
        command = [sys.executable, "-m", "roost", *arguments]
        return warm.run(command, env=env, cwd=cwd, timeout=300)

    @property
    def login(self) -> dict[str, str]:
        """The environment by which its user's commands find it."""
        return {"ROOST_URL": self.url, "ROOST_TOKEN": self.token, "ROOST_CA_FILE": str(self.ca)}

    def container(self, service: str) -> Container:
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        (found,) = self.engine.client.containers.list(all=True, filters={"label": labels})
        return found

    def status(self, container: Container) -> str:
        """/proc/PID/status of its first process."""
        if self.engine.private:  # a process of this machine
            return Path(f"/proc/{container.attrs['State']['Pid']}/status").read_text()
        return str(container.exec_run(["cat", "/proc/1/status"]).output.decode())

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
        if service in self.servers:
            return self.container(service).attrs["State"]["Health"]["Status"] == "healthy"
        if self.engine.private and not self.watched:  # its network is this machine's
            networks = self.container(service).attrs["NetworkSettings"]["Networks"].values()
            return any(readable(f"http://{one['IPAddress']}:9690/readyz") for one in networks if one["IPAddress"])
        check = ["python3", "-m", "shared.daemon.healthcheck", "--ready"]
        return self.container(service).exec_run(check).exit_code == 0

    def wait_ready(self, *services: str, timeout_s: float = 90) -> None:
        """Until these services, or all, do their work."""
        for service in services or (*self.servers, *self.daemons):
            try:
                wait_until(lambda service=service: self.healthy(service), timeout_s, f"the health of {service}")
            except TimeoutError as error:
                raise TimeoutError(f"{error}\n{self.logs(service)}") from None


class HighlyAvailablePool(ComposePool):
    """The pool of compose.ha.yaml. A service that is killed stays dead until it is started."""

    files: tuple[Path, ...] = (COMPOSE_FILE, COMPOSE_FILE.with_name("compose.ha.yaml"))
    servers = (
        *(f"{name}{number}" for name in SERVERS for number in ("", "2", "3")),
        *(f"sentinel{number}" for number in (1, 2, 3)),
    )
    daemons = (
        *(f"{name}{number}" for name in ("collector", "negotiator", "had") for number in ("", "2", "3")),
        *("schedd", "schedd2", "startd1", "startd2", "startd3", "journal", "registrar", "gateway", "gateway2"),
    )
    watched = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # Ports of our choice, that stay what they are when a gateway is started again.
        self.ports = [free_port(), free_port()]
        self.env["ROOST_NET"] = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(256)}"
        self.env |= {"ROOST_GATEWAY_PORT": str(self.ports[0]), "ROOST_GATEWAY2_PORT": str(self.ports[1])}

    def kill(self, *services: str) -> None:
        for service in services:
            self.container(service).kill()

    def start(self, *services: str) -> None:
        for service in services:
            self.container(service).start()

    def clients(self, timeout_s: float) -> list[Client]:
        """A client of each gateway."""
        return [
            Client(f"https://127.0.0.1:{port}", self.token, timeout=timeout_s, ca_file=str(self.ca))
            for port in self.ports
        ]

    def readiness(self, service: str) -> dict[str, Any]:
        """What a daemon's /readyz says."""
        done = self.container(service).exec_run(["python3", "-c", READINESS])
        return dict(json.loads(done.output)) if done.exit_code == 0 else {}

    def leader(self) -> str:
        """The number ("", "2", "3") of the central manager that leads."""

        def leaders() -> list[str]:
            running = [n for n in ("", "2", "3") if self.container(f"negotiator{n}").status == "running"]
            return [n for n in running if self.readiness(f"negotiator{n}").get("role") == "leader"]

        found = ""

        def one_leads() -> bool:
            nonlocal found
            now = leaders()
            found = now[0] if len(now) == 1 else ""
            return len(now) == 1

        wait_until(one_leads, 120, "one leading negotiator")
        return found

    def redis_primary(self) -> str:
        """The name of the Redis that the sentinels send daemons to."""
        done = self.container("gateway").exec_run(["python3", "-c", PRIMARY])
        if done.exit_code:
            raise RuntimeError(done.output.decode())
        number = int(done.output.decode().rpartition(".")[2]) - 10  # 11 to 13
        return f"redis{number if number > 1 else ''}"
