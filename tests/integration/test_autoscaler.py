"""The autoscaler of examples/, with real startds: in a pool that has a broker, as processes."""

import importlib.util
import os
import re
import signal
import sys

import pytest

from tests.integration.pools import ROOT, EmbeddedPool
from tests.servers import Leashed
from tests.waiting import wait_until

PROGRAM = ROOT / "examples" / "autoscaler" / "autoscaler.py"
pytestmark = pytest.mark.xdist_group("autoscaler")


@pytest.mark.docker
def test_containers_are_started_known_and_stopped(docker_engine, monkeypatch):
    spec = importlib.util.spec_from_file_location("autoscaler", PROGRAM)
    autoscaler = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(autoscaler)
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    image = docker_engine.image("debian:bookworm-slim")
    words = ["--docker", image, "--command", "sleep 600", "--prefix", f"auto{os.getpid()}", "--env", "COLOUR=red"]
    options = autoscaler.parser().parse_args(words)
    name = f"{options.prefix}-1"
    workers = autoscaler.Containers(options, autoscaler.Size(0, 1, 64))
    try:
        workers.start(name)
        assert autoscaler.Containers(options, autoscaler.Size(0, 1, 64)).names() == {name: True}
        told = docker_engine.client.containers.get(name).attrs
        assert {"NUM_CPUS=1", "MEMORY=64", "COLOUR=red", f"_CONDOR_STARTD_NAME={name}"} <= set(told["Config"]["Env"])
        assert "ROOST_JOIN_TOKEN_FILE=/run/roost/key/join_token" in told["Config"]["Env"]
        assert f"{name}-spool:/var/lib/roost/spool" in told["HostConfig"]["Binds"]
        assert told["HostConfig"]["NanoCpus"] == 10**9
        docker_engine.client.containers.get(name).kill()
        wait_until(lambda: workers.names() == {name: False}, 60)
    finally:
        workers.stop(name)
        docker_engine.client.volumes.get(f"{name}-spool").remove()
    assert workers.names() == {}


@pytest.mark.servers
def test_workers_come_for_jobs_and_go_when_there_are_none(amqp_url, redis_url, tmp_path):
    pool = EmbeddedPool(tmp_path / "pool")
    urls = {"ROOST_AMQP_URL": amqp_url, "ROOST_REDIS_URL": redis_url, "_CONDOR_RUNBENCHMARKS": "false"}
    urls |= {"_CONDOR_ROOST_OWN_USERS": "*", "PYTHONUNBUFFERED": "1"}
    words = ["--process", "--cpus", "2", "--memory", "512", "--most", "1", "--start-after", "0", "--idle-after", "1"]
    words += ["--every", "1", "--prefix", "auto", "--state", tmp_path / "workers"]
    scaler = None
    try:
        pool.start("-cpus", "1", "-amqp", amqp_url, "-redis", redis_url)
        # Two cores: more than the pool has by itself.
        text = "executable = /bin/true\ntransfer_executable = false\nrequest_cpus = 2\nrequest_memory = 100\nqueue 3\n"
        (tmp_path / "job.sub").write_text(text)
        cluster = pool.submit(tmp_path / "job.sub")

        def start():
            return Leashed(
                [sys.executable, PROGRAM, *words],
                log=tmp_path / "log",
                env={**pool.environment(), **urls},
            )

        def said(text):
            assert scaler.returncode is None, scaler.tail()
            return re.search(text, (tmp_path / "log").read_text())

        scaler = start()
        wait_until(lambda: said(r"started auto-1: 3 jobs wait"), 60, "a worker")
        pool.wait_for_rest(cluster, 3)
        assert {status for status, *_ in pool.final(cluster).values()} == {4}
        wait_until(lambda: said(r"drain auto-1: idle"), 60, "the draining")
        wait_until(lambda: not list((tmp_path / "workers").glob("*/pid")), 60, "its end")
        assert len(re.findall(r" started ", (tmp_path / "log").read_text())) == 1
    finally:
        if scaler is not None:
            scaler.close()
        for path in (tmp_path / "workers").glob("*/pid"):
            end(int(path.read_text()))
        pool.close()


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
