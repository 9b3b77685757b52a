"""`roost doctor`, `upgrade -check`, `support-bundle`, `backup` and `restore` on a pool of processes and its servers."""

import asyncio
import contextlib
import json
import shutil
import socketserver
import tarfile
import threading
import urllib.parse

import pytest

from engine.doctor import Machine, Server, check_machine
from shared.bus import try_broker
from shared.state import try_store
from shared.tls import ClientTls
from tests.integration.pools import ProcessPool
from tests.servers import Redis, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.servers
PASSWORD = "planted-broker-password-51d8"


def broker(url) -> str:
    """What the doctor says of this broker; empty: nothing."""
    return _said(Server("broker", "ROOST_AMQP_URL", asyncio.run(try_broker(url, ClientTls()))))


def store(url) -> str:
    return _said(Server("store", "ROOST_REDIS_URL", *asyncio.run(try_store(url, ClientTls()))))


def _said(server) -> str:
    return " ".join(one.text for one in check_machine(Machine(servers=[server]), 0.0))


def test_brokers_that_can_not_be_used(rabbit_server, amqp_url):
    assert broker(amqp_url) == ""
    parts = urllib.parse.urlsplit(amqp_url)
    where = f"{parts.hostname}:{parts.port}"
    wrong = broker(f"amqp://guest:{PASSWORD}@{where}{parts.path}")
    assert "user or password are wrong" in wrong
    assert PASSWORD not in wrong
    assert "rabbitmqctl add_vhost" in broker(f"amqp://guest:guest@{where}/nosuch")
    assert "start RabbitMQ" in broker(f"amqp://guest:guest@127.0.0.1:{free_port()}/")
    assert "no host of that name" in broker("amqp://guest:guest@nosuch.invalid/")
    assert broker(f"amqp://guest:guest@127.0.0.1:{free_port()}/,{amqp_url}") == ""


class _Old(socketserver.StreamRequestHandler):
    """As much of Redis 6 as tells its release."""

    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2])
            text = b"# Server\r\nredis_version:6.0.16\r\n"
            if words[0].upper() == b"INFO":
                self.wfile.write(b"$%d\r\n%b\r\n" % (len(text), text))
            else:
                self.wfile.write(b"+OK\r\n")


def test_stores_that_can_not_be_used(redis_url):
    assert store(redis_url) == ""
    parts = urllib.parse.urlsplit(redis_url)
    assert "user or password are wrong" in store(f"redis://nobody:{PASSWORD}@{parts.hostname}:{parts.port}/0")
    assert "start Redis" in store(f"redis://127.0.0.1:{free_port()}/0")
    assert "redis+sentinel://" in store("amqp://x/")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Old) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert "Redis 7 or newer" in store(f"redis://127.0.0.1:{server.server_address[1]}/0")
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def pool(tmp_path_factory, _rabbit_session):
    """A pool of processes, whose user of the broker has a password to look for."""
    rabbit_server, redis_server = _rabbit_session, Redis()  # others' tests empty the shared one
    with contextlib.closing(redis_server), rabbit_server.vhost() as url:
        redis_server.start()
        parts = urllib.parse.urlsplit(url)
        vhost = urllib.parse.unquote(parts.path[1:])
        rabbit_server.api("PUT", "/api/users/planted", {"password": PASSWORD, "tags": ""})
        rabbit_server.api("PUT", f"/api/permissions/{vhost}/planted", {"configure": ".*", "write": ".*", "read": ".*"})
        amqp_url = f"amqp://planted:{PASSWORD}@{parts.hostname}:{parts.port}{parts.path}"
        made = ProcessPool(
            tmp_path_factory.mktemp("doctor") / "pool",
            amqp_url,
            redis_server.url,
            free_port(),
            NUM_CPUS="1",
            MEMORY="512",
            ROOST_STARTD_DOCKER="false",
            SEC_PLANTED_PASSWORD="planted-knob-77b2",
        )
        try:
            made.start()
            yield made
        finally:
            made.close()
            rabbit_server.api("DELETE", "/api/users/planted")


def doctor(pool):
    done = pool.roost("doctor", "-json", ok=False)
    return json.loads(done.stdout), done.returncode


def codes(found, level="error"):
    return {one["code"] for one in found["findings"] if one["level"] == level}


def test_a_pool_that_is_well_and_one_whose_schedd_died(pool):
    wait_until(lambda: not codes(doctor(pool)[0]), what="a pool without errors")
    found, _ = doctor(pool)
    assert found["url"]
    assert any("ROOST_AMQP_URL" in one for one in found["looked"])
    assert any("ROOST_REDIS_URL" in one for one in found["looked"])
    pool.kill("schedd")
    try:
        # The gateway asks all daemons at most every few seconds.
        wait_until(lambda: "no-answer" in codes(doctor(pool)[0]), what="the death of the schedd to be told")
        found, code = doctor(pool)
        assert code == 1
        (gone,) = [one for one in found["findings"] if one["code"] == "no-answer"]
        assert gone["text"].startswith("The schedd ")
        assert "look whether its process runs" in gone["text"]
    finally:
        pool.start_daemon("schedd")
    wait_until(lambda: "no-answer" not in codes(doctor(pool)[0]), what="the schedd to be back")


def test_without_a_gateway_the_machine_is_looked_at(pool):
    said = pool.roost("doctor", "-pool", f"127.0.0.1:{free_port()}", ok=False)
    assert said.returncode == 1
    assert "The gateway does not answer" in said.stdout
    assert "ROOST_AMQP_URL" in said.stdout


def test_daemons_of_one_release_need_no_restart(pool):
    said = pool.roost("upgrade", "-check").stdout
    assert "All daemons that answer run this release" in said
    found = json.loads(pool.roost("upgrade", "-check", "-json").stdout)
    assert found["safe"] is True
    assert found["order"] == []


def test_a_support_bundle_has_what_helps_and_no_secret(pool, tmp_path):
    script = pool.directory / "log"
    script.mkdir(exist_ok=True)
    token = (pool.directory / "token").read_text().strip()
    (script / "own.log").write_text(f"a line\npassword=planted-in-a-log-93aa\nlogged in with {token}\n")
    pool.roost("support-bundle", "-output", str(tmp_path / "bundle.tar.gz"))
    with tarfile.open(tmp_path / "bundle.tar.gz") as bundle:
        parts = {one.name.partition("/")[2]: bundle.extractfile(one).read() for one in bundle.getmembers()}
    assert {"doctor.json", "versions.json", "daemons.json", "ads/daemons.json", "logs/own.log"} <= set(parts)
    assert any(name.startswith("configuration/") for name in parts)
    assert b"a line" in parts["logs/own.log"]
    config = json.loads(parts["configuration/this-machine.json"])
    assert "ROOST_AMQP_URL" in {one["name"].upper() for one in config}
    for name, content in parts.items():
        for secret in (PASSWORD, "planted-knob-77b2", "planted-in-a-log-93aa", token):
            assert secret.encode() not in content, name
    assert (tmp_path / "bundle.tar.gz").stat().st_mode & 0o777 == 0o600
    again = pool.roost("support-bundle", "-output", str(tmp_path / "bundle.tar.gz"), ok=False)
    assert again.returncode == 1


def test_an_access_point_that_lost_its_disk_comes_back_and_finds_its_running_jobs(pool, tmp_path):
    runs, go = tmp_path / "runs", tmp_path / "go"
    job = tmp_path / "job"
    job.write_text(f"#!/bin/sh\necho began >>{runs}\nwhile [ ! -e {go} ]; do sleep 0.1; done\n")
    job.chmod(0o755)
    (tmp_path / "x.sub").write_text(f"executable = {job}\nrequest_memory = 16MB\nqueue 2\n")
    cluster = pool.submit(tmp_path / "x.sub")
    wait_until(runs.exists, what="a job to run")
    backup = tmp_path / "backup"
    pool.roost("backup", str(backup))
    assert "is whole" in pool.roost("backup", "-check", str(backup)).stdout
    refused = pool.roost("restore", str(backup), ok=False)
    assert "is there already" in refused.stderr
    pool.kill("schedd")
    shutil.rmtree(pool.directory / "spool" / "schedd")
    refused = pool.roost("restore", str(backup), ok=False)
    assert "holds its lease" in refused.stderr  # Redis lives, and is not to be put back in time
    assert not (pool.directory / "spool" / "schedd").exists()
    pool.roost("restore", str(backup), "-spool-only")
    pool.start_daemon("schedd")
    go.touch()
    pool.wait_for_rest(cluster, 2)
    assert {status for status, _, _ in pool.final(cluster).values()} == {4}
    assert len(runs.read_text().splitlines()) == 2
