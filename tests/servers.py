"""Private RabbitMQ and Redis servers, and any other process, for the length of a test or a session.

Nothing here uses a server that is already running on the machine. Every process hangs on a leash (leash.py)
and ends with the test process, however that ends.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from select import select
from typing import Any
from urllib.parse import quote

from tests import warm
from tests.waiting import PATIENCE_S, stretch, too_long, wait_until

LEASH = Path(__file__).with_name("leash.py")
START_TIMEOUT_S = 90.0
# Below the range that the kernel usually hands to outgoing connections: a port stays ours while its server is down.
# Where that range begins lower, connections get ports that are even as its first one (odd as it), so these are the
# others: a client that tries again and again until the server is up would one day get the very port it calls, be
# answered by itself, and block the port for a minute.
OURS = range(20000, 32000)
LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: So many of the ports given out last are held, as their servers may need a while to bind them.
HELD_PORTS = 64
#: Where the data of servers lies, if it may. They write each message and each change to the disk before they answer,
#: which waits for whatever else writes there; kill() leaves in memory what it leaves on a disk.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30
LOG_TAIL_BYTES = 4000
#: States of threads that run no more: stopped, traced, a zombie, dead.
STILL = frozenset("TtZX")


class ServerError(RuntimeError):
    """A server is not installed, or did not start."""


def ports_for_servers(text: str) -> range:
    """Those of `OURS` that no outgoing connection gets, by what LOCAL_PORTS says."""
    first, last = map(int, text.split())
    if last < OURS[0] or first > OURS[-1]:
        return OURS
    return OURS[1 - first % 2 :: 2]


PORTS = ports_for_servers(LOCAL_PORTS.read_text() if LOCAL_PORTS.exists() else "49152 65535")
_held: deque[socket.socket] = deque()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody uses, nor gets by the same function: for a server that sets SO_REUSEADDR, as
    they all do."""
    while True:
        # Not the random module: tests in several workers are seeded alike, and would all take the same port.
        port = PORTS[secrets.randbelow(len(PORTS))]
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
            continue
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # from here on a server may have it, no other probe
        _held.append(probe)
        if len(_held) > HELD_PORTS:
            _held.popleft().close()
        return port


def memory() -> Path | None:
    """MEMORY, where this machine has it, and enough for the servers of all workers."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        return MEMORY
    return None


def answers(port: int, send: bytes, expect: bytes) -> bool:
    """Whether the server on the port answers `send` with something that starts with `expect`."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(send)
            return connection.recv(len(expect)) == expect
    except OSError:
        return False


def states_of(group: int) -> Iterator[str]:
    """The state of each thread of a process group, a letter as in /proc/PID/stat."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # one that ended meanwhile
            if os.getpgid(int(process)) != group:
                continue
            for thread in Path("/proc", process, "task").iterdir():
                with contextlib.suppress(OSError):
                    yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


class Leashed:
    """A process in a process group of its own that cannot outlive the test process.

    log: file that its output is added to. directory: removed when the leash is closed.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        directory: Path | None = None,
    ) -> None:
        self.log = log
        self.directory = directory
        self._status: int | None = None
        words = [str(word) for word in command]
        self._leash: subprocess.Popen[bytes] | None = None
        if warm.takes(words, env):
            self._stdin, self._stdout = warm.leashed(words, str(directory or "-"), log, env, cwd)
        else:
            leash = [sys.executable, "-I", "-S", str(LEASH), str(directory or "-"), str(log)]
            self._leash = subprocess.Popen(
                [*leash, *words],
                env=dict(env) if env is not None else None,
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests; they end us in their own order
            )
            assert self._leash.stdin is not None
            assert self._leash.stdout is not None
            self._stdin, self._stdout = self._leash.stdin, self._leash.stdout
        line = self._stdout.readline()
        if not line:
            self.close()
            raise ServerError(f"{command[0]} did not start\n{self.tail()}")
        self.pid = int(line)

    @property
    def returncode(self) -> int | None:
        """None while it runs; then its exit status, or 128 + signal."""
        if self._status is None and not self._stdout.closed and select([self._stdout], [], [], 0)[0]:
            self._status = int(self._stdout.readline() or 128 + signal.SIGKILL)
        return self._status

    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""

    def signal(self, number: int) -> None:
        """Send a signal to the whole process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM to the process itself, as a supervisor does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit status, once the whole process group is gone. timeout_s: where others have the machine, in
        proportion."""
        timeout_s *= stretch()
        if self.returncode is None and not select([self._stdout], [], [], timeout_s)[0]:
            raise TimeoutError(f"process {self.pid} still runs after {timeout_s:g} s\n{self.tail()}")
        status = self.returncode
        assert status is not None
        return status

    def kill(self) -> None:
        """kill -9 of the process group; returns when it is gone and its ports are free.

        Processes that have left the group, as a startd's jobs do, live on until close().
        """
        self.signal(signal.SIGKILL)
        self.wait()

    def freeze(self) -> None:
        """SIGSTOP: alive to the kernel, silent to everybody else. Returns when none of its threads runs any more."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: STILL.issuperset(states_of(self.pid)), what=f"{self.pid} to stop")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def close(self, keep: bool = False) -> None:
        """End it and all of its descendants; remove its directory unless keep."""
        if self._stdin.closed:
            return
        if keep:
            with contextlib.suppress(BrokenPipeError):
                self._stdin.write(b"keep")
        self._stdin.close()
        rest = b"".join(iter(self._stdout.readline, b""))  # until the leash has gone
        if self._leash is not None:
            self._leash.wait()
        if self._status is None:
            self._status = int(rest or 128 + signal.SIGKILL)
        self._stdout.close()


class Server:
    """What Rabbit and Redis have in common: start, stop, kill, restart, freeze, thaw, close."""

    program: str
    host = "127.0.0.1"
    port: int

    def __init__(self) -> None:
        self.executable = self.find()
        self.directory = Path(tempfile.mkdtemp(prefix=f"roost-{self.program}-", dir=memory()))
        self.process: Leashed | None = None

    @classmethod
    def find(cls) -> str:
        # Debian's wrapper in /usr/sbin would change user and directory, and use the system's own data.
        path = f"/usr/lib/rabbitmq/bin:{os.environ.get('PATH', '')}:/usr/sbin"
        found = shutil.which(cls.program, path=path)
        if found is None:
            raise ServerError(
                f"{cls.program} is not installed. Install it (bin/test does; by hand on Debian: apt-get "
                f"install --no-install-recommends {cls.program}), or leave these tests out with "
                "--without servers."
            )
        return found

    @property
    def log(self) -> Path:
        return self.directory / "output.log"

    def choose_ports(self) -> None:
        raise NotImplementedError

    def launch(self) -> Leashed:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def start(self) -> None:
        """Start on the ports and the data it had before, if any; returns when it answers."""
        first = self.process is None
        if first:
            self.choose_ports()
        try:
            self._start()
        except ServerError:
            if not first:
                raise
            self.choose_ports()  # somebody took one of them in between
            self._start()

    def _start(self) -> None:
        if self.process is not None:
            self.process.close(keep=True)
        self.process = self.launch()
        began = time.monotonic()
        while not self.ready():
            if self.process.returncode is not None or too_long(began, START_TIMEOUT_S):
                self.process.close(keep=True)
                raise ServerError(f"{self.program} did not start\n{self.process.tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to stop (SIGTERM) and wait until it has."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def kill(self) -> None:
        """Crash it: SIGKILL to all of its processes. start() brings it back with its durable data."""
        if self.process is not None:
            self.process.kill()

    def restart(self) -> None:
        """kill() and start()."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        assert self.process is not None
        self.process.freeze()

    def thaw(self) -> None:
        assert self.process is not None
        self.process.thaw()

    def ensure_running(self) -> None:
        """Undo what a test did to it."""
        if self.running:
            self.thaw()
        else:
            self.start()

    def close(self) -> None:
        if self.process is not None:
            self.process.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Redis(Server):
    """A redis-server with an append-only file. extra: further settings, e.g. Redis("--maxmemory", "1mb")."""

    program = "redis-server"

    def __init__(self, *extra: str) -> None:
        super().__init__()
        self.extra = extra

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def choose_ports(self) -> None:
        self.port = free_port()

    def launch(self) -> Leashed:
        settings = ["--port", str(self.port), "--bind", self.host, "--dir", str(self.directory)]
        # With the default, everysec, Redis answers before it has written while its disk is busy, and kill() loses that.
        settings += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        settings += ["--repl-diskless-sync-delay", "0", *self.extra]
        return self._launch([self.executable, *settings])

    def _launch(self, command: Sequence[str]) -> Leashed:
        return Leashed(command, log=self.log, cwd=self.directory, directory=self.directory)

    def ready(self) -> bool:
        return answers(self.port, b"PING\r\n", b"+PONG")

    def command(self, *words: str) -> bytes:
        """The raw first reply to an inline command, for tests' own needs (the product uses shared.state)."""
        with socket.create_connection((self.host, self.port), 5) as connection:
            connection.sendall(" ".join(words).encode() + b"\r\n")
            return connection.recv(65536)

    def flush(self) -> None:
        """Forget all data, scripts and functions."""
        for words in (("FLUSHALL",), ("SCRIPT", "FLUSH"), ("FUNCTION", "FLUSH")):
            reply = self.command(*words)
            if not reply.startswith(b"+OK"):
                raise ServerError(f"{' '.join(words)}: {reply!r}")


class Rabbit(Server):
    """A RabbitMQ node with the management API. configuration: further lines for rabbitmq.conf."""

    program = "rabbitmq-server"
    user = "guest"
    password = "guest"

    def __init__(self, configuration: str = "") -> None:
        super().__init__()
        self.configuration = configuration
        self.node = f"roost{secrets.token_hex(4)}@localhost"
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        (self.directory / "enabled_plugins").write_text("[rabbitmq_management].")
        self._epmd: Leashed | None = None

    @property
    def url(self) -> str:
        """The default virtual host."""
        return self.url_of("/")

    def url_of(self, vhost: str, user: str | None = None, password: str | None = None) -> str:
        login = f"{quote(user or self.user, safe='')}:{quote(password or self.password, safe='')}"
        return f"amqp://{login}@{self.host}:{self.port}/{quote(vhost, safe='')}"

    def choose_ports(self) -> None:
        self.port, self.api_port, self.epmd_port, self.distribution_port = (free_port() for _ in range(4))
        self.close_epmd()
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {self.host}:{self.port}\n"
            f"management.tcp.ip = {self.host}\nmanagement.tcp.port = {self.api_port}\n"
            "management_agent.disable_metrics_collector = true\n" + self.configuration
        )

    @property
    def env(self) -> dict[str, str]:
        return dict(
            os.environ,
            HOME=str(self.directory),
            LANG="C.UTF-8",
            ERL_EPMD_PORT=str(self.epmd_port),
            ERL_EPMD_ADDRESS=self.host,
            RABBITMQ_CONF_ENV_FILE="/dev/null",
            RABBITMQ_NODENAME=self.node,
            RABBITMQ_NODE_PORT=str(self.port),
            RABBITMQ_NODE_IP_ADDRESS=self.host,
            RABBITMQ_DIST_PORT=str(self.distribution_port),
            RABBITMQ_MNESIA_BASE=f"{self.directory}/mnesia",
            RABBITMQ_LOG_BASE=f"{self.directory}/log",
            RABBITMQ_PID_FILE=f"{self.directory}/pid",
            RABBITMQ_CONFIG_FILE=f"{self.directory}/rabbitmq.conf",
            RABBITMQ_GENERATED_CONFIG_DIR=f"{self.directory}/gen",
            RABBITMQ_ENABLED_PLUGINS_FILE=f"{self.directory}/enabled_plugins",
            # Idle schedulers must not spin: the tests have the cores.
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none",
        )

    def launch(self) -> Leashed:
        if self._epmd is None:
            # Our own child: a broker that has to start epmd leaves it behind as a daemon.
            epmd = shutil.which("epmd") or "epmd"
            log = self.directory / "epmd.log"
            self._epmd = Leashed([epmd, "-port", str(self.epmd_port)], log=log, env=self.env)
        return Leashed([self.executable], log=self.log, env=self.env, cwd=self.directory, directory=self.directory)

    def ready(self) -> bool:
        if not answers(self.port, b"AMQP\x00\x00\x09\x01", b"\x01"):
            return False
        try:
            self.api("GET", "/api/overview")
        except (OSError, HTTPException, ValueError):  # it may hang up in the middle of an answer while it starts
            return False
        return True

    def api(self, method: str, path: str, body: object = None) -> Any:
        """One request to the management API; the decoded answer, or None where there is none."""
        request = urllib.request.Request(f"http://{self.host}:{self.api_port}{path}", method=method)
        login = b64encode(f"{self.user}:{self.password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        request.add_header("Content-Type", "application/json")
        data = json.dumps(body).encode() if body is not None else None
        try:
            with urllib.request.urlopen(request, data, timeout=30) as reply:
                text = reply.read()
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")
                raise OSError(f"{method} {path}: {error.code} {reason}") from None
        return json.loads(text) if text else None

    def ctl(self, *arguments: str) -> str:
        """rabbitmqctl; 0.25 s a call. api() is quicker where it serves."""
        command = [Path(self.executable).with_name("rabbitmqctl"), "-q", "-n", self.node, *arguments]
        return subprocess.run(command, env=self.env, check=True, capture_output=True, text=True).stdout

    def settle(self) -> None:
        """Have all that was declared so far outlive a crash of the broker: by itself it writes its register of queues
        and bindings half a second later, much later on a busy machine, and what it notes of quorum queues' leaders
        seconds later."""
        self.ctl("eval", "mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()].")

    @contextlib.contextmanager
    def vhost(self) -> Iterator[str]:
        """A virtual host for one test; yields its URL."""
        name = f"test-{secrets.token_hex(6)}"
        self.api("PUT", f"/api/vhosts/{name}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.api("PUT", f"/api/permissions/{name}/{self.user}", everything)
        try:
            yield self.url_of(name)
        finally:
            self.ensure_running()
            self.api("DELETE", f"/api/vhosts/{name}")

    def close_epmd(self) -> None:
        if self._epmd is not None:
            self._epmd.close()
            self._epmd = None

    def close(self) -> None:
        super().close()
        self.close_epmd()
