"""Pools as users start them: processes, spoken to through the `roost` command and client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from roost.client import Client
from tests import warm
from tests.gateway_keys import key_knobs
from tests.servers import Leashed
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
DAEMONS = ("collector", "had", "negotiator", "schedd", "startd", "gateway")


#: proc -> (JobStatus, ExitCode, HoldReasonCode)
Final = dict[int, tuple[int, int | None, int | None]]


def final(client: Client, cluster: int) -> Final:
    """Every job of a cluster that is at rest, in the queue or out of it."""
    needs = ["ProcId", "JobStatus", "ExitCode", "HoldReasonCode"]
    found: Final = {}
    for history in (True, False):
        for ad in client.jobs(str(cluster), projection=needs, history=history):
            status, proc = ad.eval("JobStatus"), ad.eval("ProcId")
            code, hold = ad.eval("ExitCode"), ad.eval("HoldReasonCode")
            assert isinstance(status, int)
            assert isinstance(proc, int)
            if status in (3, 4, 5):
                found[proc] = (status, code if isinstance(code, int) else None, hold if isinstance(hold, int) else None)
    return found


class Pool:
    """Common to all pools: where it is, and the command."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
        # What shares this machine need not wait while they measure it.
        ours = {"ROOST_POOL_DIR": str(self.directory), "PYTHONPATH": str(ROOT), "_CONDOR_RUNBENCHMARKS": "false"}
        return {**kept, **ours}

    def roost(self, *words: str, cwd: Path | None = None, ok: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command; by default it must succeed."""
        done = warm.run(
            [sys.executable, "-m", "roost", *words],
            env=self.environment(),
            cwd=cwd or ROOT,
            timeout=100,
        )
        if ok and done.returncode:
            raise AssertionError(f"roost {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def client(self) -> Client:
        described = json.loads((self.directory / "pool.json").read_text())
        return Client(described["url"], (self.directory / "token").read_text().strip())

    def wait_for_slots(self, cpus: int = 1) -> None:
        def there() -> bool:
            try:
                with self.client() as client:
                    return sum(int(str(ad.eval("Cpus"))) for ad in client.ads("Machine", projection=["Cpus"])) >= cpus
            except Exception:
                return False

        wait_until(there, 60, "slots in the pool")

    def submit(self, file: Path, *options: str) -> int:
        """Returns the cluster."""
        said = self.roost("submit", *options, file.name, cwd=file.parent).stdout
        return int(said.rpartition("cluster ")[2].strip().rstrip("."))

    def final(self, cluster: int) -> Final:
        with self.client() as client:
            return final(client, cluster)

    def wait_for_rest(self, cluster: int, total: int, timeout_s: float = 110.0) -> None:
        """Until that many jobs of the cluster are completed, removed or held."""

        def at_rest() -> bool:
            try:
                return len(self.final(cluster)) >= total
            except Exception:
                return False

        wait_until(at_rest, timeout_s, f"{total} jobs at rest in {self.directory}")


class EmbeddedPool(Pool):
    """`roost up` in one process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._lives: list[Leashed] = []  # all of them are closed at the end, with what they left behind

    @property
    def process(self) -> Leashed:
        return self._lives[-1]

    def start(self, *options: str) -> None:
        (self.directory / "pool.json").unlink(missing_ok=True)
        self._lives.append(
            Leashed(
                [sys.executable, "-m", "roost", "up", "-port", "0", *options],
                log=self.directory / "up.log",
                env=self.environment(),
                cwd=ROOT,
            )
        )
        wait_until(
            lambda: (self.directory / "pool.json").exists() or self.process.returncode is not None, 60, "pool.json"
        )
        assert self.process.returncode is None, self.process.tail()
        self.wait_for_slots()

    def kill(self) -> None:
        """kill -9 of the pool's process only: what it started lives on, as after a real crash."""
        self.process.kill()

    def close(self) -> None:
        for process in self._lives:
            if process.returncode is None:
                process.terminate()
            process.close()


class ProcessPool(Pool):
    """Every daemon a process of its own on RabbitMQ and Redis. tree: the checkout that the daemons are of."""

    def __init__(
        self, directory: Path, amqp_url: str, redis_url: str, port: int, *, tree: Path = ROOT, **knobs: str
    ) -> None:
        super().__init__(directory)
        self._tree = tree
        self._urls = {"ROOST_AMQP_URL": amqp_url, "ROOST_REDIS_URL": redis_url}
        self._knobs = {
            "ROOST_GATEWAY_PORT": str(port),
            "ROOST_GATEWAY_BIND": "127.0.0.1",
            "ROOST_TOKEN_FILE": str(directory / "token"),
            "SPOOL": str(directory / "spool"),
            "EXECUTE": str(directory / "execute"),
            "LOG": str(directory / "log"),
            "ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1",
            "ROOST_SCHEDD_TRANSFER_PORT": "0",
            "ROOST_HEALTH_PORT": "0",
            "ROOST_OWN_USERS": "*",  # where these tests are root: tmp_path is nobody else's
            "RUNBENCHMARKS": "false",
            **key_knobs(directory),
            **knobs,
        }
        self._port = port
        self.daemons: dict[str, Leashed] = {}
        self._dead: list[Leashed] = []

    def environment(self) -> dict[str, str]:
        knobs = {f"_CONDOR_{name}": text for name, text in self._knobs.items()}
        return {**super().environment(), "PYTHONPATH": str(self._tree), **self._urls, **knobs}

    def start_daemon(self, name: str) -> None:
        self.daemons[name] = Leashed(
            [sys.executable, "-m", f"services.{name}"],
            log=self.directory / f"{name}.log",
            env=self.environment(),
            cwd=self._tree,
        )

    def start(self) -> None:
        for name in DAEMONS:
            self.start_daemon(name)
        (self.directory / "pool.json").write_text(json.dumps({"url": f"http://127.0.0.1:{self._port}"}))
        wait_until(lambda: (self.directory / "token").exists(), 60, "the gateway's token file")
        self.wait_for_slots()

    def kill(self, name: str) -> None:
        """kill -9 of the daemon's own process only: what it started lives on, as after a real crash."""
        self.daemons[name].kill()
        self._dead.append(self.daemons.pop(name))

    def close(self) -> None:
        for daemon in self.daemons.values():
            if daemon.returncode is None:
                daemon.terminate()
        for daemon in (*self.daemons.values(), *self._dead):
            daemon.close()
