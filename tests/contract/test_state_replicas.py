"""Redis with a replica, and behind Sentinel: what is confirmed survives the primary."""

import asyncio
import time
from functools import partial

import pytest

from bench.faults.servers import ReplicatedRedis
from shared.state import Unconfirmed, keys, open_store
from shared.state.redis_store import RedisStore
from shared.state.urls import parse
from tests.servers import Leashed, Redis, answers, free_port
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def pair():
    """A primary and its replica, in step."""
    primary, replica = Redis(), None
    try:
        primary.start()
        replica = Redis("--replicaof", primary.host, str(primary.port))
        replica.start()
        wait_until(lambda: b"state=online" in primary.command("INFO", "replication"), what="a replica in step")
        yield primary, replica
    finally:
        for server in (replica, primary):
            if server is not None:
                server.close()


async def write(store, value, **options):
    names = [
        keys.had_epoch(),
        keys.accountant_version("n"),
        keys.accountant("n"),
        "groups",
        "claims",
        "aside",
        keys.accountant_written("n"),
    ]
    await store.run("accountant_write", names, [0, "0 0", "", 0, 1, 0, f"4 {len(value)} user{value}"], **options)


async def test_confirmed_write_is_on_the_replica(pair):
    primary, replica = pair
    store, other = open_store(primary.url), open_store(replica.url)
    await store.start()
    await other.start()
    for number in range(20):
        await write(store, f"{number}", confirm=True)
        assert await other.hget(keys.accountant("n"), "user") == f"{number}".encode()
    assert store.health.replicas == 1
    await store.stop()
    await other.stop()


async def test_silent_replica_leaves_the_write_unconfirmed(pair):
    primary, replica = pair
    store = RedisStore(parse(primary.url), confirm_s=1.0)
    await store.start()
    await write(store, "before", confirm=True)
    replica.freeze()
    try:
        with pytest.raises(Unconfirmed):
            await write(store, "after", confirm=True)
        await write(store, "unconfirmed")
    finally:
        replica.thaw()
    assert await store.hget(keys.accountant("n"), "user") == b"unconfirmed"
    await store.stop()


async def test_replica_is_waited_out_rather_than_written_to(pair):
    """What was the primary may be a replica for a moment, after a fail-over."""
    _, replica = pair
    store = open_store(replica.url)
    await store.start()
    writing = asyncio.create_task(store.set("a", "b"))
    await eventually(lambda: "ReadOnly" in store.health.last_error)
    assert replica.command("REPLICAOF", "NO", "ONE").startswith(b"+OK")
    await writing
    assert await store.get("a") == b"b"
    await store.stop()


@pytest.fixture
def sentinel(pair, tmp_path):
    primary, _ = pair
    port = free_port()
    conf = tmp_path / "sentinel.conf"
    conf.write_text(
        f"sentinel monitor pool {primary.host} {primary.port} 1\n"
        "sentinel down-after-milliseconds pool 1000\nsentinel failover-timeout pool 2000\n"
    )
    command = ["redis-server", conf, "--sentinel", "--port", str(port), "--bind", "127.0.0.1", "--dir", tmp_path]
    process = Leashed(command, log=tmp_path / "sentinel.log")
    try:
        wait_until(lambda: answers(port, b"PING\r\n", b"+PONG"), what="sentinel")
        yield f"redis+sentinel://127.0.0.1:{port}/pool"
    finally:
        process.close()


async def test_who_waits_for_a_primary_that_hangs_is_answered_by_the_next_one(pair, sentinel):
    """No time limit of the store's ends these calls: they wait until sentinels name another primary, and no longer."""
    primary, replica = pair
    store = RedisStore(parse(sentinel), timeout_s=600.0, retry_s=60.0)
    await store.start()
    await write(store, "before", confirm=True)
    read = partial(store.hget, keys.accountant("n"), "user")
    await asyncio.gather(*(read() for _ in range(4)))  # connections that lie idle
    port = int(sentinel.rpartition(":")[2].partition("/")[0])
    await eventually(lambda: asyncio.to_thread(answers, port, b"SENTINEL REPLICAS pool\r\n", b"*1"))
    primary.freeze()
    try:
        # More than there are connections: some of them wait for their first word on a new one.
        found = await asyncio.wait_for(asyncio.gather(*(read() for _ in range(8))), 60)
        await write(store, "after")
    finally:
        primary.thaw()
    assert found == [b"before"] * 8
    assert b"role:master" in await asyncio.to_thread(replica.command, "INFO", "replication")
    assert await read() == b"after"
    await store.stop()


async def test_store_follows_sentinel_to_the_new_primary(pair, sentinel):
    primary, replica = pair
    store = RedisStore(parse(sentinel), retry_s=60.0)
    await store.start()
    await write(store, "confirmed", confirm=True)
    # Sentinel must know of the replica before it can promote it: it learns that from the primary every 10 s at the
    # latest, and right away when it starts.
    master = sentinel.rpartition("/")[2]
    port = int(sentinel.rpartition(":")[2].partition("/")[0])
    await eventually(lambda: asyncio.to_thread(answers, port, f"SENTINEL REPLICAS {master}\r\n".encode(), b"*1"))
    killed = time.monotonic()
    await asyncio.to_thread(primary.kill)
    await write(store, "after")
    print(f"written again {time.monotonic() - killed:.1f} s after the primary was killed")
    assert b"role:master" in await asyncio.to_thread(replica.command, "INFO", "replication")
    assert await store.hget(keys.accountant("n"), "user") == b"after"
    await store.stop()


def test_after_a_fail_over_all_servers_start_in_the_roles_they_had():
    """A power cut while the newest primary is another than the first one, which was away meanwhile."""
    with ReplicatedRedis() as redis:
        first, *others = redis.servers
        assert first.command("SET", "k", "old").startswith(b"+OK")
        first.kill()

        def leads(server):
            try:
                said = server.command("INFO", "replication")
            except ConnectionError:  # sentinels cut all connections of a server that they give another role
                return False
            return b"role:master" in said and b"state=online" in said

        leading = []
        wait_until(lambda: leading.extend(filter(leads, others)) or leading, 60, "another primary, and its replica")
        (primary,) = leading
        assert primary.command("SET", "k", "new").startswith(b"+OK")
        for server in (*others, *redis.sentinels):
            server.kill()
        for server in (first, *others, *redis.sentinels):  # the oldest data first
            server.start()
        assert redis.primary() is primary
        assert [server.command("GET", "k").split()[1] for server in redis.servers] == [b"new"] * 3
