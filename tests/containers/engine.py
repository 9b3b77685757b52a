"""A private Docker engine for tests: dockerd with its own socket and data, shared by all test sessions.

One engine at a time serves every worker and every session of the user: two would fight over the machine's
packet filter rules. Whoever comes first starts a keeper process, which stops the engine when the last one has
gone, whatever end they came to. Images stay in the cache directory, so that only the first session makes them.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import docker
from docker.errors import APIError

from tests.containers import debian
from tests.containers.images import ensure_image
from tests.servers import Leashed, ServerError
from tests.waiting import too_long

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "roost-tests"
# A short path: a socket's name has at most 107 bytes.
RUNTIME = Path(f"/tmp/roost-docker-{os.getuid()}")
PLUGIN_SUITE = "trixie"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
COMMAND_TIMEOUT_S = 600.0
BUILD_CACHE_BYTES = 1_500_000_000
MACHINE_ENGINE = "unix:///var/run/docker.sock"
HELP = "Install it (bin/test does), or leave these tests out with --without docker."


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def alive() -> bool:
    """Whether a keeper runs: it holds this lock as long as it lives."""
    with (RUNTIME / "alive").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def answers(url: str) -> bool:
    """Whether an engine answers at the URL of a Unix socket."""
    # Not by the SDK: it leaves its socket open when it can not connect.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(url.removeprefix("unix://"))
        connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return connection.recv(32).startswith(b"HTTP/1.0 200")
    return False


class Engine:
    """A Docker engine.

    url: for DOCKER_HOST. client: a docker.DockerClient. env: environment for the docker command.
    private: ours, with stand-ins for a registry's images; else the one that the user named, which pulls them.
    """

    def __init__(self, url: str, private: bool) -> None:
        self.url = url
        self.private = private
        self.client = docker.DockerClient(base_url=url, timeout=120)
        self.env = dict(os.environ, DOCKER_HOST=url)
        if private:
            self.env["DOCKER_CONFIG"] = str(CACHE / "docker-config")

    @classmethod
    @contextlib.contextmanager
    def join(cls) -> Iterator["Engine"]:
        """An engine to use within the block. ServerError says what is missing for it."""
        with contextlib.ExitStack() as stack:
            named = os.environ.get("DOCKER_HOST")
            if named and named.startswith("unix://") and not answers(named):
                raise ServerError(f"DOCKER_HOST is {named}, but no engine answers there.")
            if named or answers(MACHINE_ENGINE):
                engine = cls(named or MACHINE_ENGINE, private=False)
            else:
                engine = cls(stack.enter_context(_private_engine()), private=True)
            stack.callback(engine.client.close)
            yield engine

    def image(self, name: str) -> str:
        """Make sure that the engine has an image, by its official name; returns the name."""
        if self.private:
            with locked(CACHE / "images.lock"):
                ensure_image(self.client, name)
        else:
            try:
                self.client.images.get(name)
            except docker.errors.ImageNotFound:
                self.client.images.pull(name)
        return name

    def docker(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Standard output of the docker command; RuntimeError with all it said, if it fails. env: instead of ours."""
        if self.private and not (CACHE / "docker-config/cli-plugins/docker-buildx").exists():
            with locked(CACHE / "plugins.lock"):
                debian.command_line_plugins(PLUGIN_SUITE, CACHE / "docker-config" / "cli-plugins")
        return debian.run("docker", *arguments, env=env or self.env, cwd=ROOT, timeout=COMMAND_TIMEOUT_S)


@contextlib.contextmanager
def _private_engine() -> Iterator[str]:
    for program in ("dockerd", "docker", "debootstrap", "iptables"):
        if shutil.which(program) is None:
            raise ServerError(f"No Docker engine answers, and {program} is not installed to start one. {HELP}")
    if os.getuid() != 0:
        raise ServerError("No Docker engine answers, and starting one takes root. Start one, or --without docker.")
    CACHE.mkdir(parents=True, exist_ok=True)
    RUNTIME.mkdir(mode=0o700, exist_ok=True)
    with (RUNTIME / "users").open("a") as users:
        with locked(RUNTIME / "starting"):
            # Waits here while a keeper, whose last user has gone, is stopping: it holds this lock alone.
            fcntl.flock(users, fcntl.LOCK_SH)
            if not alive():
                _start_keeper()
        mine = RUNTIME / f"user-{os.getpid()}"
        mine.touch()
        try:
            yield f"unix://{RUNTIME}/docker.sock"
        finally:
            mine.unlink()
            fcntl.flock(users, fcntl.LOCK_UN)
            _wait_if_last()


def _wait_if_last() -> None:
    """The last user waits until the engine has stopped, so that nothing outlives the tests."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while alive() and time.monotonic() < deadline:
        if any(Path("/proc", user.name.removeprefix("user-")).exists() for user in RUNTIME.glob("user-*")):
            return
        time.sleep(0.05)


def _start_keeper() -> None:
    with (RUNTIME / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.containers.engine"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert keeper.stdout is not None
    with keeper.stdout as said:
        if said.readline() == b"ready\n":
            keeper.returncode = 0  # it outlives this object; nobody waits for it here
            return
    keeper.wait()
    raise ServerError("The Docker engine did not start\n" + (RUNTIME / "keeper.log").read_text()[-4000:])


# The keeper's side.


def keep() -> None:
    """Start dockerd, say "ready", and stop it when nobody holds the users' lock any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (RUNTIME / "alive").open("a") as alive_lock, (RUNTIME / "users").open("a") as users:
        fcntl.flock(alive_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (RUNTIME / "daemon.json").write_text("{}")  # not the machine's /etc/docker/daemon.json
        url = f"unix://{RUNTIME}/docker.sock"
        log = RUNTIME / "dockerd.log"
        log.unlink(missing_ok=True)
        # A mount namespace of its own: whatever end the engine comes to, its mounts end with it.
        command = ["unshare", "--mount", "--propagation", "slave", "dockerd", "--log-level", "warn"]
        command += [
            "--host",
            url,
            "--config-file",
            str(RUNTIME / "daemon.json"),
            "--pidfile",
            str(RUNTIME / "pid"),
        ]
        command += ["--data-root", str(CACHE / "docker"), "--exec-root", str(RUNTIME / "exec")]
        command += ["--mtu", str(_mtu()), "--shutdown-timeout", "2"]
        (RUNTIME / "pid").unlink(missing_ok=True)
        engine = Leashed(command, log=log)
        try:
            began = time.monotonic()
            while not answers(url):
                if engine.returncode is not None or too_long(began, START_TIMEOUT_S):
                    raise ServerError(f"dockerd did not start\n{engine.tail()}")
                time.sleep(0.05)
            with contextlib.closing(docker.DockerClient(base_url=url, timeout=120)) as client:
                _forget_containers(client)
                sys.stdout.write("ready\n")
                sys.stdout.flush()
                sys.stdout.close()
                fcntl.flock(users, fcntl.LOCK_EX)
                _forget_containers(client)
                # Every build of the pool's image leaves its predecessor without a name.
                client.images.prune(filters={"dangling": True})
                client.api.prune_builds(keep_storage=BUILD_CACHE_BYTES)
            engine.terminate()
            with contextlib.suppress(TimeoutError):
                engine.wait(STOP_TIMEOUT_S / 2)
        finally:
            engine.close()
            shutil.rmtree(RUNTIME / "exec", ignore_errors=True)
            (RUNTIME / "docker.sock").unlink(missing_ok=True)


def _mtu() -> int:
    """The packet size of the way out: containers must not send larger ones."""
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        interface, destination, *_ = line.split()
        if destination == "00000000":
            return int(Path(f"/sys/class/net/{interface}/mtu").read_text())
    return 1500


def _forget_containers(client: docker.DockerClient) -> None:
    """Remove what tests left in the engine: containers, networks, volumes. Images stay."""
    for container in client.containers.list(all=True, ignore_removed=True):
        with contextlib.suppress(APIError):  # a restart policy, or --rm, was quicker
            container.remove(force=True, v=True)
    client.networks.prune()
    for volume in client.volumes.list():
        with contextlib.suppress(APIError):
            volume.remove(force=True)


if __name__ == "__main__":
    keep()
