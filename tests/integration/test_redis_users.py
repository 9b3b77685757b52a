"""A real Redis with the users of a pool: what it keeps, and whom it refuses. tests/security/test_redis_rights.py tries
all that they may and may not."""

import pytest
import redis

from shared.accounting_version import NOTHING
from shared.state import acl, keys, open_store
from shared.state.accounting import begin_records, read_records, write_records
from shared.state.functions import library
from tests.processes import DaemonProcess
from tests.redis_users import RedisWithUsers
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def server():
    server = RedisWithUsers()
    server.start()
    try:
        with server.client() as tester:
            tester.function_load(library().text)
        yield server
    finally:
        server.close()


async def test_what_a_function_wrote_is_there_after_a_crash(server):
    """Redis replays functions as transactions, and its access list holds for these: ours must let it."""
    store = open_store(server.url_of("negotiator"))
    await store.start()
    try:
        version = await begin_records(store, "", 0, NOTHING)
        version = await write_records(store, "", 0, version, submitters=[(b"alice@x", b"books")], groups=[(b"g", b"h")])
        server.restart()
        with server.client() as tester:

            def loaded() -> bool:
                try:
                    return bool(tester.ping())
                except redis.BusyLoadingError:
                    return False

            wait_until(loaded, 30, "Redis to have read its file")
        books = await read_records(store, "")
        assert (books.version, books.submitters, books.groups) == (version, {b"alice@x": b"books"}, {b"g": b"h"})
    finally:
        await store.stop()
    assert b"CRITICAL" not in server.log.read_bytes()


def test_nobody_does_anything_without_a_login_or_outside_of_his_keys(server):
    key = keys.accountant("")
    with server.client(None) as stranger:
        for words in (("GET", key), ("SET", key, "x"), ("EVAL", "return 1", "0"), ("ACL", "LIST"), ("PING",)):
            with pytest.raises(redis.AuthenticationError):
                stranger.execute_command(*words)
        for password in ("", "default", "secret of default"):
            with pytest.raises((redis.AuthenticationError, redis.ResponseError)):
                stranger.execute_command("AUTH", "default", password)
    with server.client("collector") as collector, pytest.raises(redis.exceptions.NoPermissionError):
        collector.hset("roost:had:lease", "owner", "me")


async def test_a_daemon_that_keeps_nothing_there_opens_no_connection(server, amqp_url, tmp_path):
    """Not even where it is told of a Redis, and with a user that works."""
    process = DaemonProcess("schedd", "ap1", tmp_path, amqp_url=amqp_url, redis_url=server.url_of("gateway"))
    process.start()
    try:
        await eventually(lambda: process.ready(), what="the schedd")
        with server.client() as tester:
            assert {one["user"] for one in tester.client_list()} == {"tester"}
            assert not tester.acl_log()
    finally:
        process.close()


def test_rights_of_one_daemon_are_replaced_as_a_whole(server):
    """As they are given to one that is enrolled while the pool works."""
    line = acl.user_line("collector.cm7", "secret")
    with server.client() as tester:
        tester.execute_command("ACL", "SETUSER", "collector.cm7", "on", ">other", "+@all", "~*", "(+set ~*)")
        tester.execute_command("ACL", *line.replace("user", "SETUSER", 1).split())
        told = tester.acl_getuser("collector.cm7")
    assert told["passwords"] == [acl.digest("secret")]
    assert "+@all" not in told["commands"]
    assert len(told["selectors"]) == 1
    with redis.Redis(port=server.port, username="collector.cm7", password="secret") as client:
        assert client.hset(keys.ABSENT, "a", "b") == 1
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.set("x", "y")
