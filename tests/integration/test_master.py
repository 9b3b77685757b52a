"""The master with real daemons on real servers: what DAEMON_LIST names runs, whatever ends."""

import json
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from roost.client import Client
from shared.classad import ClassAd
from tests.servers import Leashed, free_port
from tests.spec import spec
from tests.waiting import wait_until

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
LISTED = ("COLLECTOR", "NEGOTIATOR", "HAD", "SCHEDD", "STARTD", "GATEWAY")


class Mastered:
    """A pool of one master, in a directory of its own."""

    def __init__(self, directory, amqp_url, redis_url):
        self.directory, self.port = directory, free_port()
        self.text = f"""
            LOCAL_DIR = {directory}
            ROOST_AMQP_URL = {amqp_url}
            ROOST_REDIS_URL = {redis_url}
            ROOST_GATEWAY_PORT = {self.port}
            ROOST_TOKEN_FILE = {directory}/token
            ROOST_GATEWAY_KEY = {directory}/gateway.key
            ROOST_GATEWAY_KEYS = {directory}/gateway.key.pub
            ROOST_OWN_USERS = *
            NUM_CPUS = 2
            MEMORY = 4096
            RUNBENCHMARKS = false
        """
        self.master, self.masters = None, []
        self.configure("DAEMON_LIST = MASTER COLLECTOR NEGOTIATOR SCHEDD STARTD GATEWAY")

    def configure(self, *lines):
        (self.directory / "condor_config").write_text("\n".join((self.text, *lines)) + "\n")

    def start(self, *, fresh=False, **environment):
        """fresh: the master reads the modules that its daemons share, as for users; else it has them."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
        config, log = self.directory / "condor_config", self.directory / "master.log"
        env = {**clean, "CONDOR_CONFIG": str(config), "PYTHONPATH": str(ROOT), **environment}
        command = [sys.executable, *(("-X", "utf8") if fresh else ()), "-m", "services.master"]  # warm.takes
        self.master = Leashed(command, log=log, env=env, cwd=self.directory)
        self.masters.append(self.master)

    def lines(self, event):
        path = self.directory / "master.log"
        text = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in text if line.startswith("{") and f'"{event}"' in line]
        return [line for line in found if line["event"] == event and line["daemon"] == "master"]

    def wait_ready(self, times=1):
        def ready():
            assert self.master.returncode is None, self.master.tail()
            return len(self.lines("daemons_ready")) >= times

        wait_until(ready, 90, "all daemons")

    def pid(self, word):
        """Of its last life."""
        return next(line["pid"] for line in reversed(self.lines("daemon_starts")) if line["word"] == word)

    def client(self):
        return Client(f"http://127.0.0.1:{self.port}", (self.directory / "token").read_text().strip())


@pytest.fixture
def mastered(tmp_path, amqp_url, redis_url):
    made = Mastered(tmp_path, amqp_url, redis_url)
    yield made
    for master in made.masters:
        master.close()


@spec("CFG-20")
def test_it_runs_what_is_listed_and_jobs_outlive_all_of_it(mastered, tmp_path):
    mastered.start(fresh=True)
    mastered.wait_ready()
    assert {line["word"] for line in mastered.lines("daemon_starts")} == set(LISTED)
    (tmp_path / "job").mkdir()
    script = "echo begun >> starts; while [ ! -e go ]; do sleep 0.05; done; echo done > out"
    ad = {"Cmd": "/bin/sh", "Arguments": f"-c '{script}'", "Iwd": str(tmp_path / "job")}
    ad |= {"ShouldTransferFiles": "NO", "TransferExecutable": False}
    with mastered.client() as client:
        wait_until(lambda: list(client.ads("Scheduler")) and list(client.ads("Machine")), 60, "the pool's ads")
        (job,) = client.submit(ClassAd(ad), [ClassAd()]).ids()
    wait_until((tmp_path / "job" / "starts").exists, 60, "the start of the job")

    for word in LISTED:  # all daemons at once
        os.kill(mastered.pid(word), signal.SIGKILL)
    mastered.wait_ready(times=2)
    assert {line["word"] for line in mastered.lines("daemon_died")} == set(LISTED)

    daemons = [mastered.pid(word) for word in LISTED]
    mastered.master.kill()  # and the master itself: none of its daemons stays behind
    wait_until(lambda: not any(map(psutil.pid_exists, daemons)), what="the end of the daemons")
    mastered.start()
    mastered.wait_ready(times=3)

    (tmp_path / "job" / "go").touch()
    with mastered.client() as client:
        client.wait([job], timeout=90)
        (done,) = client.jobs(job, projection=["ExitCode", "NumJobStarts"], history=True)
    assert (done.eval("ExitCode"), done.eval("NumJobStarts")) == (0, 1)
    assert (tmp_path / "job" / "starts").read_text() == "begun\n"
    mastered.master.terminate()
    assert mastered.master.wait() == 0


def test_it_reads_the_list_again_and_kills_who_hangs(mastered):
    mastered.configure("DAEMON_LIST = COLLECTOR SCHEDD", "NOT_RESPONDING_TIMEOUT = 2")
    mastered.start()
    mastered.wait_ready()
    mastered.configure("DAEMON_LIST = COLLECTOR STARTD", "NOT_RESPONDING_TIMEOUT = 2")
    schedd, collector = mastered.pid("SCHEDD"), mastered.pid("COLLECTOR")
    mastered.master.signal(signal.SIGHUP)
    mastered.wait_ready(times=2)
    wait_until(lambda: not psutil.pid_exists(schedd), what="the end of the schedd")
    assert mastered.pid("COLLECTOR") == collector

    mastered.configure("DAEMON_LIST = MASTER")  # nothing: nobody ends for that
    mastered.master.signal(signal.SIGHUP)
    wait_until(lambda: mastered.lines("configuration_kept"), what="word of the list that names nothing")
    mastered.configure("DAEMON_LIST = COLLECTOR STARTD")

    os.kill(collector, signal.SIGSTOP)
    wait_until(lambda: mastered.pid("COLLECTOR") != collector, 60, "another collector")
    assert [line["reason"] for line in mastered.lines("daemon_killed")] == ["it said nothing for 2 s"]
    mastered.wait_ready(times=3)


def test_it_tells_systemd_of_all_of_them(mastered, tmp_path):
    mastered.configure("DAEMON_LIST = COLLECTOR")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        mastered.start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        told = []
        while "READY=1" not in told or "STATUS=COLLECTOR: does its work" not in told:
            told += systemd.recv(4096).decode().splitlines()


@pytest.mark.parametrize(
    ("lines", "status", "told"),
    [
        (("DAEMON_LIST = MASTER",), 78, "names no daemon to run"),
        (("DAEMON_LIST = COLLECTOR", "NOT_RESPONDING_TIMEOUT = soon"), 78, "NOT_RESPONDING_TIMEOUT"),
    ],
)
def test_a_configuration_that_runs_nothing_is_told(mastered, lines, status, told):
    mastered.configure(*lines)
    mastered.start()
    assert mastered.master.wait() == status
    assert told in mastered.master.tail()


def test_there_is_one_in_a_spool(mastered):
    mastered.configure("DAEMON_LIST = COLLECTOR")
    mastered.start()
    mastered.wait_ready()
    mastered.start()
    assert mastered.master.wait() == 1
    assert "another master" in mastered.master.tail()
