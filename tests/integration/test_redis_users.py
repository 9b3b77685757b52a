"""A real Redis with the users of the compose pool: what it keeps, and whom it refuses."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shared.bus.topology import ROLES
from tests.servers import Redis, answers
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
BOTH = "redis.call('set', KEYS[1], ARGV[1]) redis.call('set', KEYS[2], ARGV[1]) return 1"
KEYS = ("roost:accountant:a", "roost:accountant:b")


class WithUsers(Redis):
    def ready(self) -> bool:
        return answers(self.port, b"PING\r\n", b"-NOAUTH")  # from whoever has not logged in


def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "compose" / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(tmp_path):
    (tmp_path / "users.acl").write_text(prepare().redis_users({role: f"secret of {role}" for role in ROLES}))
    server = WithUsers("--aclfile", str(tmp_path / "users.acl"), "--protected-mode", "no")
    server.start()
    yield server
    server.close()


def client(server: Redis, role: str | None) -> redis.Redis:
    login = {"username": role, "password": f"secret of {role}"} if role else {}
    return redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0), **login)  # else a refusal is tried for 3 s


@pytest.mark.servers
def test_what_a_script_wrote_is_there_after_a_crash(server):
    """Redis replays scripts as transactions, and its access list holds for these: ours must let it."""
    with client(server, "negotiator") as negotiator:
        negotiator.eval(BOTH, 2, *KEYS, "books")
        with negotiator.pipeline(transaction=True) as both:
            both.set("roost:accountant:c", "more").set("roost:accountant:d", "more").execute()
    server.restart()
    with client(server, "negotiator") as negotiator:

        def loaded() -> bool:
            try:
                return bool(negotiator.ping())
            except redis.BusyLoadingError:
                return False

        wait_until(loaded, 30, "Redis to have read its file")
        assert negotiator.mget(*KEYS) == [b"books", b"books"]
        assert negotiator.mget("roost:accountant:c", "roost:accountant:d") == [b"more", b"more"]
    assert b"CRITICAL" not in server.log.read_bytes()


@pytest.mark.servers
def test_nobody_does_anything_without_a_login_or_outside_of_his_keys(server):
    with client(server, None) as stranger:
        for words in (("GET", KEYS[0]), ("SET", KEYS[0], "x"), ("EVAL", "return 1", "0"), ("ACL", "LIST"), ("PING",)):
            with pytest.raises(redis.AuthenticationError):
                stranger.execute_command(*words)
        for password in ("", "default", "secret of default"):
            with pytest.raises((redis.AuthenticationError, redis.ResponseError)):
                stranger.execute_command("AUTH", "default", password)
    with client(server, "collector") as collector, pytest.raises(redis.exceptions.NoPermissionError):
        collector.set("roost:had:epoch", 10**9)
