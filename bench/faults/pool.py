"""A pool of processes, every daemon that can be had twice twice, whose parts can be killed, frozen and brought back."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from roost.client import Client
from roost.errors import ClientError
from tests.gateway_keys import key_knobs
from tests.servers import Leashed, free_port
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
CLOCK_SOURCE = Path(__file__).with_name("clock.c")
CENTRAL = ("cm1", "cm2")
#: In the order of their start.
MEMBERS = (
    *(("collector", name) for name in CENTRAL),
    *(("negotiator", name) for name in CENTRAL),
    *(("had", name) for name in CENTRAL),
    ("schedd", "ap"),
    ("startd", "ep1"),
    ("startd", "ep2"),
    ("gateway", "gw1"),
    ("gateway", "gw2"),
)
KNOBS = {
    "HAD_LIST": ", ".join(f"{name}:1" for name in CENTRAL),
    "HAD_USE_REPLICATION": "true",
    "UID_DOMAIN": "pool",
    "ROOST_OWN_USERS": "*",  # where the bench is root: the jobs' directory is nobody else's
    "ROOST_STARTD_DOCKER": "false",
    "RUNBENCHMARKS": "false",
    "ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1",
    "ROOST_SCHEDD_TRANSFER_PORT": "0",
    "NUM_CPUS": "2",
    "MEMORY": "2048",
    # A claim takes one job: each job shows that somebody negotiates.
    "CLAIM_WORKLIFE": "0",
}


def clock_library(directory: Path) -> Path:
    """Compiled there, once."""
    library = directory / "clock.so"
    if not library.exists():
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
    return library


class Member:
    """One daemon. What a startd has started outlives its death, as after a real crash, until close()."""

    def __init__(self, kind: str, name: str, directory: Path, knobs: dict[str, str], *, clock: bool = False) -> None:
        """clock: one of its own, that can be set (takes a C compiler)."""
        self.kind, self.name = kind, name
        self.port = free_port()
        self.log = directory / f"{kind}-{name}.log"
        self.home = home = directory / f"{kind}-{name}"
        self._clock = directory / f"{kind}-{name}.clock"
        own = {"LOCAL_DIR": str(home), "ROOST_HEALTH_PORT": str(self.port), "ROOST_TOKEN_FILE": str(home / "token")}
        inherited = {k: v for k, v in os.environ.items() if not k.upper().startswith(("_CONDOR_", "ROOST_", "CONDOR_"))}
        self._env = {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "CONDOR_CONFIG": "ONLY_ENV",
            **{f"_CONDOR_{knob}": text for knob, text in {**knobs, **own}.items()},
        }
        if clock:
            self.set_clock(0)
            self._env |= {"LD_PRELOAD": str(clock_library(directory)), "BENCH_CLOCK": str(self._clock)}
        self._lives: list[Leashed] = []

    def set_clock(self, ahead_s: int) -> None:
        """Its wall clock is so far ahead of the machine's, at once."""
        if not self._clock.exists():
            self._clock.write_bytes(struct.pack("q", 0))
        with self._clock.open("r+b") as file:
            file.write(struct.pack("q", ahead_s))

    def configure(self, **knobs: str) -> None:
        """From its next start on."""
        self._env |= {f"_CONDOR_{knob}": text for knob, text in knobs.items()}

    def start(self) -> None:
        command = [sys.executable, "-m", f"services.{self.kind}", "-name", self.name]
        self._lives.append(Leashed(command, log=self.log, env=self._env, cwd=ROOT))

    def kill(self) -> None:
        self._lives[-1].kill()

    def crash(self) -> None:
        """As its machine does: what a startd has started, in former lives too, is gone as well."""
        for life in self._lives:
            life.close()

    def stop(self) -> None:
        """As a supervisor does: SIGTERM, and it ends in good order."""
        self._lives[-1].terminate()
        self._lives[-1].wait()

    def freeze(self) -> None:
        self._lives[-1].freeze()

    def thaw(self) -> None:
        self._lives[-1].thaw()

    def health(self) -> tuple[int, str]:
        """Status and text of /readyz; 0 when it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def ready(self) -> bool:
        life = self._lives[-1]
        if life.returncode is not None:
            raise RuntimeError(f"{self.kind} {self.name} ended by itself\n{life.tail()}")
        return self.health()[0] == 200

    @property
    def running(self) -> bool:
        return self._lives[-1].returncode is None

    def close(self) -> None:
        for life in self._lives:
            life.close()


class FaultPool:
    """Two central managers, an access point, two execution points and two gateways; or `members`, kinds and names. own:
    further knobs of some of them. clocks: each has a clock of its own."""

    def __init__(
        self,
        directory: Path,
        amqp_url: str,
        redis_url: str,
        *,
        members: Sequence[tuple[str, str]] = MEMBERS,
        own: Mapping[tuple[str, str], dict[str, str]] | None = None,
        clocks: bool = False,
        **knobs: str,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        common = {**KNOBS, "ROOST_AMQP_URL": amqp_url, "ROOST_REDIS_URL": redis_url, **key_knobs(directory), **knobs}
        self.members: dict[tuple[str, str], Member] = {}
        self._gateways: list[int] = []
        for kind, name in members:
            more = dict((own or {}).get((kind, name), {}))
            if kind == "gateway":
                self._gateways.append(free_port())
                more |= {"ROOST_GATEWAY_BIND": "127.0.0.1", "ROOST_GATEWAY_PORT": str(self._gateways[-1])}
            self.members[kind, name] = Member(kind, name, directory, {**common, **more}, clock=clocks)

    def __enter__(self) -> Self:
        try:
            for member in self.members.values():
                member.start()
            self.wait_ready()
            wait_until(self._has_slots, 120, "slots in the pool")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for member in self.members.values():
            member.close()

    def wait_ready(self) -> None:
        for member in self.members.values():
            wait_until(member.ready, 120, f"{member.kind} {member.name} to be ready; its log: {member.log}")

    def revive(self) -> None:
        """Start whoever ended, as a supervisor does."""
        for member in self.members.values():
            if not member.running:
                member.start()

    def __getitem__(self, which: tuple[str, str]) -> Member:
        return self.members[which]

    def leader(self) -> str:
        """The central manager whose negotiator leads."""

        def leaders() -> list[str]:
            said = {name: self["negotiator", name].health() for name in CENTRAL}
            return [name for name, (status, text) in said.items() if status and json.loads(text)["role"] == "leader"]

        found: list[str] = []

        def one_leads() -> bool:
            found[:] = leaders()
            return len(found) == 1

        wait_until(one_leads, 120, "one leading negotiator")
        return found[0]

    def with_primary(self, wanted: bool) -> None:
        """Start the HADs again with, or without, HAD_USE_PRIMARY."""
        for name in CENTRAL:
            had = self["had", name]
            had.kill()
            had.configure(HAD_USE_PRIMARY="true" if wanted else "false")
            had.start()
        self.wait_ready()

    def keep_logs(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for member in self.members.values():
            shutil.copy(member.log, directory)

    def connect(self, timeout_s: float) -> Client:
        """A client of all gateways."""
        token = (self.directory / "gateway-gw1" / "token").read_text().strip()
        return Client(",".join(f"http://127.0.0.1:{port}" for port in self._gateways), token, timeout=timeout_s)

    def _has_slots(self) -> bool:
        client = self.connect(30.0)
        try:
            return len({ad.eval("Machine") for ad in client.ads("Machine", projection=["Machine"])}) == 2
        except ClientError:
            return False
        finally:
            client.close()
