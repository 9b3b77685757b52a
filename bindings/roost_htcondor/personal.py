"""PersonalPool: a pool of this user, started and stopped by a Python program. It is what `roost up` starts, in a
directory of its own."""

from __future__ import annotations

import atexit
import enum
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from roost.personal_config import personal_config
from roost.pool_directory import CONFIG_FILE, POOL_FILE, TOKEN_FILE
from roost_htcondor import gateway
from roost_htcondor.class_ad import ClassAd
from roost_htcondor.collector import Collector
from roost_htcondor.constants import DaemonType
from roost_htcondor.gateway import HTCondorException
from roost_htcondor.schedd import Schedd
from roost_htcondor.settings import param

#: What leads to another pool than the one that ROOST_POOL_DIR names.
_ELSEWHERE: Final = (
    "ROOST_CONFIG",
    "ROOST_URL",
    "ROOST_TOKEN",
    "ROOST_TOKEN_FILE",
    "ROOST_AMQP_URL",
    "ROOST_REDIS_URL",
)
#: For a pool to be there, and to be gone; then it is killed. Seconds.
START_S: Final = 120.0
STOP_S: Final = 60.0
#: Between two looks, seconds.
LOOK_S: Final = 0.05


class PersonalPoolState(enum.StrEnum):
    """How a PersonalPool is."""

    UNINITIALIZED = "UNINITIALIZED"
    INITIALIZED = "INITIALIZED"
    STARTING = "STARTING"
    READY = "READY"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"


class SetCondorConfig:
    """Has a pool be the one of this machine, for this process and what it starts: in a block, or from `set` to `unset`.
    config_file: the file `config` in the pool's directory."""

    def __init__(self, config_file: Path) -> None:
        self.config_file = Path(config_file)
        self._before: dict[str, str | None] | None = None

    def set(self) -> None:
        wanted = {"ROOST_POOL_DIR": str(self.config_file.parent), "CONDOR_CONFIG": str(self.config_file)}
        if self._before is None:
            self._before = {name: os.environ.get(name) for name in (*wanted, *_ELSEWHERE)}
        _put({**dict.fromkeys(_ELSEWHERE), **wanted})

    def unset(self) -> None:
        """As it was before `set`."""
        if self._before is not None:
            _put(self._before)
            self._before = None

    def __enter__(self) -> None:
        self.set()

    def __exit__(self, *_: object) -> None:
        self.unset()


def _put(variables: Mapping[str, str | None]) -> None:
    for name, text in variables.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
    param.forget()


class PersonalPool:
    """A pool that this program starts and stops, or one that is there (`attach`).

    local_dir: all that is the pool's, ~/.condor/personal by default. config, raw_config: go into its configuration.
    detach: it is left running when this program ends. use_config: it is this process's pool from now on.
    """

    _schedd: ClassVar[type[Schedd]] = Schedd
    _collector: ClassVar[type[Collector]] = Collector

    def __init__(
        self,
        local_dir: Path | str | None = None,
        config: Mapping[str, str | None] | None = None,
        raw_config: str | None = None,
        detach: bool = False,
        use_config: bool = True,
    ) -> None:
        self.state = PersonalPoolState.UNINITIALIZED
        self.local_dir = Path(local_dir or Path.home() / ".condor" / "personal").absolute()
        self.config_file = self.local_dir / CONFIG_FILE
        self.execute_dir, self.log_dir = self.local_dir / "execute", self.local_dir / "log"
        self.spool_dir, self.passwords_dir = self.local_dir / "spool", self.local_dir / "passwords.d"
        self._config = {name: text or "" for name, text in (config or {}).items()}
        self._raw_config = raw_config or ""
        self._detach = detach
        self._process: subprocess.Popen[bytes] | None = None
        self._default = SetCondorConfig(self.config_file)
        atexit.register(self.stop)
        if use_config:
            self.initialize()
            self._default.set()

    @classmethod
    def attach(cls, local_dir: Path | str | None = None) -> PersonalPool:
        """The pool that is up in a directory. Its configuration stays as it is. Raises HTCondorException."""
        pool = cls(local_dir, use_config=False)
        if not pool._described():
            raise HTCondorException(f"no pool is up in {pool.local_dir}: PersonalPool(local_dir).start() starts one")
        pool._default.set()
        pool._is_ready()
        return pool

    def detach(self) -> PersonalPool:
        """Leave it running when this program ends."""
        self._detach = True
        return self

    def initialize(self, overwrite_config: bool = True) -> PersonalPool:
        """Make its directory and write its configuration. overwrite_config: False raises FileExistsError where there is
        one. Nothing happens to a pool that starts or is there."""
        if self.state in (PersonalPoolState.INITIALIZED, PersonalPoolState.STARTING, PersonalPoolState.READY):
            return self
        self.local_dir.mkdir(parents=True, exist_ok=True)
        self.local_dir.chmod(0o700)
        lines = [f"{name} = {text}" for name, text in self._config.items()]
        with self.config_file.open("w" if overwrite_config else "x") as file:
            file.write("\n".join(["# Written by PersonalPool, which writes it anew.", *lines, self._raw_config, ""]))
        self.state = PersonalPoolState.INITIALIZED
        return self

    def start(self) -> PersonalPool:
        """Start it, and wait until its access point and its slots are there. Raises HTCondorException: it ended, with
        what it said; TimeoutError."""
        if self.state is PersonalPoolState.READY:
            return self
        self.initialize()
        self.state = PersonalPoolState.STARTING
        try:
            with self.use_config():
                words = [sys.executable, "-m", "roost", "up", "-dir", str(self.local_dir), *self._port()]
                self.log_dir.mkdir(mode=0o700, exist_ok=True)
                with (self.log_dir / "up.out").open("wb") as out:
                    self._process = subprocess.Popen(
                        words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                    )
                self._wait(self._is_up, START_S, "is not up")
                self._wait(self._is_complete, START_S, "is up, but its slots are not there")
            self._is_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _port(self) -> list[str]:
        """Any free port, where the configuration says nothing."""
        written = personal_config(self.local_dir, "GATEWAY").is_written("ROOST_GATEWAY_PORT")
        return [] if written else ["-port", "0"]

    def _is_up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            said = (self.log_dir / "up.out").read_text(errors="replace").strip()
            raise HTCondorException(
                f"the pool in {self.local_dir} ended with {self._process.returncode}: {said[-2000:]}"
            )
        return bool(self._described())

    def _is_complete(self) -> bool:
        self._is_up()
        listed = (personal_config(self.local_dir, "MASTER").get("DAEMON_LIST") or "STARTD SCHEDD").upper()
        wanted = {name for kind, name in (("STARTD", "Machine"), ("SCHEDD", "Scheduler")) if kind in listed}
        try:
            with gateway.gateway() as client:
                return wanted <= {str(ad.get("MyType")) for ad in client.ads(*wanted, projection=("MyType",))}
        except HTCondorException:
            return False

    def _is_ready(self) -> None:
        url = str(self._described()["url"])
        gateway.TOKENS[url] = (self.local_dir / TOKEN_FILE).read_text().strip()
        self.state = PersonalPoolState.READY

    def stop(self) -> PersonalPool:
        """Stop it. Jobs that run go on: the next start in this directory finds them, or they end with their lease. A
        pool that is detached, or not there, is left as it is. Raises TimeoutError."""
        if self._detach or self.state not in (PersonalPoolState.STARTING, PersonalPoolState.READY):
            return self
        self.state = PersonalPoolState.STOPPING
        pid = self._process.pid if self._process is not None else int(self._described().get("pid", 0))
        try:
            if pid and self._is_there():
                os.kill(pid, signal.SIGTERM)
                try:
                    self._wait(lambda: not self._is_there(), STOP_S, "is still up")
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    self._wait(lambda: not self._is_there(), STOP_S, "was killed, and is still there")
        except ProcessLookupError:
            pass  # just now
        self.state = PersonalPoolState.STOPPED
        return self

    def use_config(self) -> SetCondorConfig:
        """A block in which this pool is the one of this machine."""
        return SetCondorConfig(self.config_file)

    def __enter__(self) -> PersonalPool:
        self._default.set()
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._default.unset()

    def __del__(self) -> None:
        if sys.is_finalizing():
            return  # `atexit` has seen to it
        atexit.unregister(self.stop)
        self.stop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(local_dir={self.local_dir}, state={self.state.value})"

    # -- what is in it

    @property
    def collector(self) -> Collector:
        """This pool's, whichever pool is this process's."""
        return self._collector(self._url())

    @property
    def schedd(self) -> Schedd:
        """This pool's, whichever pool is this process's."""
        return self._schedd(self.collector.locate(DaemonType.Schedd))

    def _url(self) -> str:
        found = self._described()
        if not found:
            raise HTCondorException(f"no pool is up in {self.local_dir}: call start first")
        return str(found["url"])

    def who(self) -> ClassAd:
        """Whether it is up (IsReady), its process (MASTER_PID) and its gateway; empty: it is not."""
        found = self._described()
        told = {"MASTER": "Alive", "MASTER_PID": found.get("pid"), "IsReady": True, gateway.POOL: found.get("url")}
        return ClassAd(told if found else {})

    def run_command(
        self,
        args: Sequence[str],
        stdout: Any = subprocess.PIPE,
        stderr: Any = subprocess.PIPE,
        universal_newlines: bool = True,
        **kwargs: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Run a command that speaks of this pool, as subprocess.run does. A command of HTCondor's name that is not
        installed is Roost's."""
        words = [str(word) for word in args]
        if words and words[0].startswith("condor_") and shutil.which(words[0]) is None:
            words = [sys.executable, "-m", "roost", *words]
        with self.use_config():
            done = subprocess.run(words, stdout=stdout, stderr=stderr, text=universal_newlines, check=False, **kwargs)
        for name in ("stdout", "stderr"):
            if (text := getattr(done, name)) is not None:
                setattr(done, name, text.rstrip())
        return done

    def get_config_val(self, macro: str, default: str | None = None) -> str:
        """A knob as this pool has it. Raises KeyError where it has no value and there is no default."""
        with self.use_config():
            try:
                return param[macro]
            except KeyError:
                if default is not None:
                    return default
                raise

    # -- how it is

    def _described(self) -> dict[str, Any]:
        """What it says of itself; empty: it is not up."""
        try:
            found = json.loads((self.local_dir / POOL_FILE).read_text())
        except (OSError, ValueError):
            return {}
        return dict(found) if self._is_there() else {}

    def _is_there(self) -> bool:
        """Whether a process holds the directory."""
        if self._process is not None and self._process.poll() is not None:
            return False
        try:
            with (self.local_dir / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return self._process is not None  # it has not got so far

    def _wait(self, until: Callable[[], bool], limit_s: float, what: str) -> None:
        give_up = time.monotonic() + limit_s
        while not until():
            if time.monotonic() > give_up:
                raise TimeoutError(f"the pool in {self.local_dir} {what} after {limit_s:g} s")
            time.sleep(LOOK_S)
