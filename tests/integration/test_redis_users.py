"""A real Redis with the users of a pool: what it keeps, and whom it refuses. tests/security/test_redis_rights.py tries
all that they may and may not."""

from contextlib import asynccontextmanager

import pytest
import redis

from roost.backup import stored_state
from shared.accounting_version import NOTHING
from shared.state import StoreUnavailable, acl, keys, open_store, try_store
from shared.state.accounting import begin_records, read_records, write_records
from shared.state.functions import library
from shared.tls import ClientTls
from tests.processes import DaemonProcess
from tests.redis_users import USERS, RedisWithUsers
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


@asynccontextmanager
async def opened(url):
    store = open_store(url)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


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


async def test_doctor_finds_nothing_wrong_with_any_user_and_says_what_is(server):
    """It tries each URL that this machine's daemons have: no role may ask for the server's release."""
    for user in USERS:
        assert await try_store(server.url_of(user), ClientTls()) == ("", ""), user
    trouble, release = await try_store(server.url_of("gateway").replace("secret", "wrong"), ClientTls())
    assert "invalid username-password pair" in trouble
    assert release == ""


async def test_a_pool_with_users_is_backed_up_and_restored_by_the_one_for_that(server):
    async with opened(server.url_of("gateway")) as store:
        await store.hset(keys.TOKENS, {"digest": b"whose"})
    async with opened(server.url_of(acl.BACKUP)) as store:
        taken = await stored_state.read(store, ())
        assert taken.hashes == {keys.TOKENS: {b"digest": b"whose"}}
        assert await stored_state.occupied(store, taken) == "it has tokens already"
        with server.client() as tester:
            tester.delete(keys.TOKENS)
        assert await stored_state.occupied(store, taken) == ""
        await stored_state.write(store, taken)
    async with opened(server.url_of("gateway")) as store:
        assert await store.hgetall(keys.TOKENS) == {b"digest": b"whose"}
        with pytest.raises(StoreUnavailable, match="this user has no permissions"):
            await stored_state.read(store, ())
    with server.client() as tester:
        tester.delete(keys.TOKENS)


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
