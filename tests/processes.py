"""Daemons as real processes, on the servers of a test."""

import os
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.client import HTTPException

from tests.gateway_keys import key_knobs
from tests.servers import Leashed, free_port
from tests.waiting import wait_until


class DaemonProcess:
    """`python -m services.<daemon>`; can be killed and started again with the same name and directory."""

    def __init__(self, daemon, name, directory, *, amqp_url, redis_url, config=None):
        self.daemon, self.name, self.directory = daemon, name, directory
        self.port = free_port()
        self.log = directory / f"{daemon}-{name}.log"
        knobs = {
            "LOCAL_DIR": directory / f"{daemon}-{name}",
            "ROOST_AMQP_URL": amqp_url,
            "ROOST_REDIS_URL": redis_url,
            "ROOST_HEALTH_PORT": self.port,
            "UID_DOMAIN": "pool",
            "ROOST_OWN_USERS": "*",  # where these tests are root: tmp_path is nobody else's
            "RUNBENCHMARKS": "false",  # two and a half seconds of a processor for each startd
            **key_knobs(directory),
            **(config or {}),
        }
        inherited = {k: v for k, v in os.environ.items() if not k.upper().startswith(("_CONDOR_", "ROOST_", "CONDOR_"))}
        inherited["ROOST_STRICT_INVARIANTS"] = "1"
        self.env = inherited | {"CONDOR_CONFIG": "ONLY_ENV"} | {f"_CONDOR_{k}": str(v) for k, v in knobs.items()}
        self.process = None

    def start(self, *, wait=True):
        command = [sys.executable, "-m", f"services.{self.daemon}", "-name", self.name]
        self.process = Leashed(command, log=self.log, env=self.env)
        if wait:
            try:
                wait_until(self.ready, what=f"{self.daemon} {self.name} to be ready; its log: {self.log}")
            except BaseException:
                self.close()  # nobody else will: the fixture that called has nothing yet
                raise
        return self

    def ready(self):
        assert self.process.returncode is None, self.log.read_text()
        return self.ask("/readyz")[0] == 200

    def ask(self, path):
        """(status, text) of its health server; (0, why) when it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, HTTPException) as error:
            return 0, str(error)

    def kill(self):
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.close()

    def close(self):
        if self.process is not None:
            self.process.close()
            self.process = None


@contextmanager
def daemons(*processes):
    """Starts them all, then waits until each is ready; ends them."""
    try:
        for process in processes:
            process.start(wait=False)
        for process in processes:
            wait_until(process.ready, what=f"{process.daemon} {process.name} to be ready")
        yield processes
    finally:
        for process in processes:
            process.close()
