"""The users that compose/prepare.py makes, on a real broker: each daemon reaches its own and no sibling's, and an
execution point that is asked for by number gets a user of its own, by a gateway with TLS, as its container does."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import pytest

from shared.bus import connect
from shared.bus.api import NotAllowed
from tests import warm
from tests.compose_set_up import COMPOSE, knobs, load
from tests.contract.test_bus import Catch
from tests.processes import DaemonProcess, daemons
from tests.servers import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.servers

ROOT = COMPOSE.parent


class Pool:
    """The files of a pool's volumes, and a broker that has read its definitions."""

    def __init__(self, server, vhost: str, directory: Path, monkeypatch, *, ha: bool) -> None:
        self.server, self.vhost, self.directory = server, vhost, directory
        prepare = load(directory, monkeypatch, ha=ha)
        monkeypatch.setattr(prepare, "VHOST", vhost)
        prepare.main()
        self.instances = prepare.instances()
        server.api("POST", "/api/definitions", json.loads((directory / "rabbitmq" / "definitions.json").read_text()))

    def url(self, service: str) -> str:
        """The service's own, for this broker."""
        login = urlsplit((self.directory / service / "amqp_url").read_text().partition(",")[0])
        return self.server.url_of(self.vhost, login.username, login.password)


@pytest.fixture
def pool_of(rabbit_server, amqp_url, tmp_path, monkeypatch):
    def make(*, ha: bool) -> Pool:
        directory = tmp_path / "volumes"
        directory.mkdir()
        return Pool(rabbit_server, amqp_url.rpartition("/")[2], directory, monkeypatch, ha=ha)

    yield make
    for user in rabbit_server.api("GET", "/api/users"):
        if user["name"] != rabbit_server.user:
            rabbit_server.api("DELETE", f"/api/users/{user['name']}")


async def test_a_daemon_of_the_pool_is_itself_and_none_of_its_siblings(pool_of):
    pool = pool_of(ha=True)
    siblings = 0
    for one in pool.instances:
        bus = connect(pool.url(one.service), one.user)
        await bus.start()
        try:
            await bus.serve(one.user, Catch())
            for other in pool.instances:
                if other.role == one.role and other != one:
                    siblings += 1
                    with pytest.raises(NotAllowed):
                        await bus.serve(other.user, Catch())
        finally:
            await bus.stop()
    assert siblings == 3 * 3 * 2 + 3 * 2 + 2 * 2


async def test_nobody_logs_in_as_a_whole_role(pool_of):
    pool = pool_of(ha=False)
    password = urlsplit(pool.url("startd1")).password
    for user in ("startd", "gateway", "startd.startd2"):
        with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
            await aio_pika.connect(pool.server.url_of(pool.vhost, user, password))


@pytest.fixture
def doors(pool_of, redis_url, tmp_path):
    """The pool's registrar and gateway, with what they find in their volumes."""
    pool = pool_of(ha=False)
    port = free_port()
    management = tmp_path / "management"
    at = f"{pool.server.host}:{pool.server.api_port}"
    management.write_text((pool.directory / "registrar" / "broker_api").read_text().replace("rabbitmq:15672", at))
    management.chmod(0o600)
    more = {
        "registrar": {"REGISTRAR_BROKER_API_FILE": management, "REGISTRAR_INTERVAL": 1},
        "gateway": {
            "ROOST_GATEWAY_BIND": "127.0.0.1",
            "ROOST_GATEWAY_PORT": port,
            "ROOST_TOKEN_FILE": tmp_path / "token",
            "GATEWAY_AUDIT_LOG": tmp_path / "audit.log",
        },
    }
    processes = [
        DaemonProcess(
            service,
            service,
            tmp_path,
            amqp_url=pool.url(service),
            redis_url=redis_url,
            config=knobs(pool.directory / service) | config,
        )
        for service, config in more.items()
    ]
    with daemons(*processes):
        wait_until((tmp_path / "token").exists, what="the administrator's token")
        yield pool, f"https://localhost:{port}", processes[0]


def environment(pool: Pool, url: str, **more: str) -> dict[str, str]:
    """Of the container of a scaled execution point, as compose.yaml has it."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
    believed = knobs(pool.directory / "join")["AUTH_SSL_CLIENT_CAFILE"]
    return {
        **clean,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": "/nonexistent",
        "CONDOR_CONFIG": "ONLY_ENV",
        "_CONDOR_AUTH_SSL_CLIENT_CAFILE": believed,
        "ROOST_JOIN_TOKEN_FILE": str(pool.directory / "join" / "join_token"),
        "ROOST_JOIN_GATEWAYS": f"https://localhost:{free_port()} {url}",  # the first one is away
        **more,
    }


def enter(env: dict[str, str]) -> dict[str, str]:
    """The environment that the daemon is started with."""
    command = ["sh", str(COMPOSE / "entrypoint.sh"), "env"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def test_an_execution_point_that_is_asked_for_by_number_gets_a_user_of_its_own_until_the_token_is_taken_away(
    doors, tmp_path
):
    pool, url, registrar = doors

    def container(name: str) -> dict[str, str]:
        """Of a scaled execution point, whose spool is kept."""
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        return environment(pool, url, ROOST_NAME_FILE=str(place / "name"), ROOST_IDENTITIES=str(place / "identities"))

    def roost(*words: str, ok: bool = True) -> str:
        env = environment(pool, url, ROOST_URL=url, ROOST_TOKEN_FILE=str(tmp_path / "token"))
        command = [sys.executable, "-m", "roost", *words]
        done = warm.run(command, env=env, timeout=100)
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    given = enter(container("first"))
    login = urlsplit(given["ROOST_AMQP_URL"])
    assert login.username == f"startd.{given['_CONDOR_FULL_HOSTNAME']}"
    assert login.username.startswith("startd.startd-")
    assert (tmp_path / "first" / "identities").stat().st_mode & 0o77 == 0
    mine = pool.server.url_of(pool.vhost, login.username, login.password)

    async def is_itself() -> None:
        bus = connect(mine, login.username)
        await bus.start()
        try:
            await bus.serve(login.username, Catch())
            with pytest.raises(NotAllowed):
                await bus.serve("startd.startd1", Catch())
        finally:
            await bus.stop()

    asyncio.run(is_itself())

    # The token is for such names alone, and an administrator takes it away.
    found = json.loads(roost("identities", "-json"))
    (token,) = found["tokens"]
    assert (token["roles"], token["names"], token["by"]) == (["startd"], "startd-*", "prepare")
    assert login.username in {one["user"] for one in found["identities"] if one["enrolled"]}
    enroll = ("enroll", "-role", "startd", "-token-file", str(pool.directory / "join" / "join_token"))
    enroll += ("-directory", str(tmp_path / "other"))
    assert "names that fit 'startd-*'" in roost(*enroll, "-name", "startd3", ok=False)
    assert "1 join token revoked" in roost("identities", "revoke", token["id"])
    registrar.kill()
    # The container made anew is who it was, and asks nobody.
    assert enter(container("first"))["ROOST_AMQP_URL"] == given["ROOST_AMQP_URL"]
    # The registrar reads the file of tokens again, and lets nobody in by it.
    registrar.start()
    assert "does not know" in roost(*enroll, "-name", "startd-1", ok=False)
    assert json.loads(roost("identities", "-json"))["tokens"] == []
