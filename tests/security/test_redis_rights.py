"""What each role may do in Redis, on a real one: all of its own work, and nothing else."""

import asyncio
import re
import time
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from services.had.core.election import Rules, Standing, Wish
from services.had.lease import hand_over, look, release
from shared.accounting_version import NOTHING, Version
from shared.compression import AdCompressor
from shared.state import StoreUnavailable, acl, keys
from shared.state.accounting import (
    StoredRecords,
    begin_records,
    read_records,
    restore_records,
    stage_claims,
    when_written,
    write_records,
)
from shared.state.ads import (
    GroupRemoval,
    GroupWrite,
    StoredGroup,
    forget_claims,
    load_ads,
    load_claims,
    remove_ads,
    write_ads,
    write_claims,
)
from shared.state.functions import library
from shared.state.redis_store import RedisStore
from shared.state.scripts import names
from shared.state.urls import parse
from shared.state.versions import LaterRecords, agree
from shared.stored_versions import ABSENT, ACCOUNTING, ADS, CLAIM_IDS, ELECTION, IN_REDIS, TOKENS
from tests.redis_users import USERS, RedisWithUsers
from tests.servers import Redis
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.servers

DAEMON = "gateway.gw1"  # a daemon with a user of its own
#: Redis lets everybody log in, and go.
ALWAYS = frozenset({"auth", "hello", "quit", "reset"})
LOOP = "local t = redis.call('TIME')[1] + 4 while redis.call('TIME')[1] + 0 < t do end return 1"
#: One of every kind of key that lies in a pool's Redis, and some of somebody else.
KEYS = (
    *(keys.ADS_EXPIRY, keys.ADS_DICTIONARIES, keys.ADS_COLUMNS, keys.CLAIMS, keys.ABSENT, keys.TOKENS),
    *(keys.TOKENS_USED, keys.ads("Machine", "startd.ep1"), keys.accountant(""), keys.accountant("n2")),
    *(keys.accountant_groups(""), keys.accountant_claims(""), keys.accountant_version(""), keys.accountant_aside("")),
    *(keys.had_lease(), keys.had_epoch(), keys.had_epoch("n2"), keys.had_present(), keys.lead("defrag")),
    *(keys.lead("rooster"), "roost:of-a-later-release", "somebody's", ""),
    *map(keys.version, IN_REDIS),
)


@pytest.fixture(scope="module")
def redis_with_users():
    server = RedisWithUsers(users=(DAEMON,))
    server.start()
    yield server
    server.close()


@pytest.fixture
def server(redis_with_users):
    """Empty, with this release's functions."""
    with redis_with_users.client() as tester:
        tester.flushall()
        tester.function_flush()
        tester.function_load(library().text)
    return redis_with_users


@asynccontextmanager
async def opened(url: str, **how: float):
    """A store there; how: see RedisStore."""
    store = RedisStore(parse(url), **how)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def rights_of(user: str) -> acl.Rights:
    return acl.OTHERS.get(user) or acl.RIGHTS[acl.role_of(user)]


def granted(user: str) -> set[str]:
    rights = rights_of(user)
    return set(rights.all_commands) | ({"fcall"} if rights.functions else set())


def all_commands(server: RedisWithUsers) -> dict[str, int]:
    """What this Redis knows, with the least number of words; subcommands as "container|subcommand"."""
    found = {}

    def take(entry) -> None:
        name, arity, below = entry[0].decode(), abs(entry[1]), entry[9] if len(entry) > 9 else []
        if not below:
            found[name] = arity
        for one in below:
            take(one)

    with server.client() as tester:
        connection = tester.connection_pool.get_connection()
        connection.send_command("COMMAND")
        for entry in connection.read_response():
            take(entry)
        connection.disconnect()
    assert len(found) > 300
    return found


def words_of(command: str, words: int) -> list[str]:
    """A call of this command, with as many words as it takes at least."""
    given = command.split("|")
    return given + ["1"] * (words - len(given))


@pytest.mark.parametrize("user", [*USERS, DAEMON, acl.HEALTH])
def test_every_command_that_is_not_granted_is_refused(user, server):
    commands, may = all_commands(server), {"ping"} if user == acl.HEALTH else granted(user)
    assert may <= set(commands)
    if user != acl.LOADER:
        assert not may & {"eval", "evalsha", "eval_ro", "keys", "scan", "flushall", "config|get", "function|load"}
    with server.client(user) as client:
        for command, arity in commands.items():
            if command in may | ALWAYS:
                continue
            # EXEC wraps the reason in one of its own.
            said = f"no permissions to run the '{command}' command"
            with pytest.raises(ResponseError, match=re.escape(said)):
                client.execute_command(*words_of(command, arity))
    with server.client() as tester:
        assert tester.dbsize() == 0
        assert libraries(tester) == {library().name}


@pytest.mark.parametrize("user", [*USERS, DAEMON])
def test_every_key_that_is_not_granted_is_refused(user, server):
    """With every command that the user has; a function with every key in every place."""
    rights = rights_of(user)
    arities = all_commands(server)
    keyed = [one for one in sorted(rights.all_commands) if one not in ("ping", "time", "role", "wait")]
    reading = {"exists", "get", "hexists", "hget", "hgetall", "hmget", "zrangebyscore"}
    with server.client() as tester:
        for key in KEYS if user != acl.LOADER else ():
            writes = any(fnmatchcase(key, pattern) for pattern in rights.keys)
            reads = writes or any(fnmatchcase(key, pattern) for pattern in rights.reads)
            for command in keyed:
                words = words_of(command, max(arities[command], 3 if command == "rename" else 2))
                words[1] = key
                if command == "rename":
                    words[2] = key
                told = tester.execute_command("ACL", "DRYRUN", user, *words)
                assert (told == b"OK") == (reads if command in reading else writes), (command, key, told)
    passed = (*rights.keys, *rights.passed)
    with server.client(user) as client:
        for key in KEYS:
            if not any(fnmatchcase(key, pattern) for pattern in passed):
                for function in library().functions.values():
                    with pytest.raises(NoPermissionError):
                        client.fcall(function, 1, key, "0")


def test_keys_that_a_function_only_reads_are_not_written_by_any(server):
    """The negotiator's functions take the epoch: none lets it set one, whatever keys and arguments it is given."""
    epoch = keys.had_epoch()
    with server.client() as tester:
        tester.set(epoch, 7)
    own = keys.accountant("")
    with server.client("negotiator") as negotiator:
        for name, function in library().functions.items():
            for place in range(8):
                named = [own] * 8
                named[place] = epoch
                for arguments in (
                    [9, "9 9", "1", 1, 0, 0],
                    ["n", "l", 1, 1000, 99, 1, "", "9 9", 0, 0],
                    ["a", "b"] * 4,
                ):
                    with suppress(ResponseError):  # or it does something to its own key
                        negotiator.fcall(function, 8, *named, *arguments)
                    with server.client() as tester:
                        assert tester.get(epoch) == b"7", (name, place, arguments)
                        tester.delete(own)
        for words in (("SET", epoch, 9), ("DEL", epoch), ("RENAME", own, epoch), ("HSET", keys.CLAIMS, "a", "b")):
            with pytest.raises(NoPermissionError):
                negotiator.execute_command(*words)


@pytest.mark.parametrize("user", USERS)
async def test_nobody_keeps_the_others_waiting(user, server):
    """A loop of four seconds, in every way in which a role could have Redis run one."""
    longest, over = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        async with opened(server.url_of("negotiator")) as store:
            while not over.is_set():
                began = time.monotonic()
                await store.get(keys.had_epoch())
                longest = max(longest, time.monotonic() - began)
                await asyncio.sleep(0.01)

    def attack() -> None:
        load = f"#!lua name=mine\nredis.register_function('mine', function() {LOOP} end)"
        ready = library().functions
        lies = "1000000000000"
        expiry, group = keys.ADS_EXPIRY, keys.ads("Machine", "startd.ep1")
        written = (expiry, keys.ADS_DICTIONARIES, group, "", "m", "1", "1", "1", "1", "1")
        attempts = [
            ("EVAL", LOOP, "0"),
            ("EVAL_RO", LOOP, "0"),
            ("SCRIPT", "LOAD", LOOP),
            ("FCALL", "mine", "0"),
            ("DEBUG", "SLEEP", "4"),
            ("CLIENT", "PAUSE", "4000"),
            # True functions, with counts that are not.
            ("FCALL", ready["ads_write"], "3", *written, "", lies),
            ("FCALL", ready["ads_write"], "3", *written, "", "0", lies),
            ("FCALL", ready["ads_write"], "2", expiry, keys.ADS_DICTIONARIES, "1 " * 5_000_000),
            ("FCALL", ready["ads_remove"], "2", expiry, group, "m", "1", "", lies),
            ("FCALL", ready["accountant_write"], "6", *[keys.accountant("")] * 6, "0", "0 0", "", "0", lies, lies),
        ]
        if user != acl.LOADER:  # whose only right it is
            attempts.append(("FUNCTION", "LOAD", load))
        with server.client(user) as client:
            for words in attempts:
                with pytest.raises(ResponseError):
                    client.execute_command(*words)

    watching = asyncio.create_task(watch())
    try:
        await asyncio.to_thread(attack)
    finally:
        over.set()
        await watching
    assert longest < 1.0


async def raise_versions(store, *kinds) -> None:
    """The last thing that a release does which writes a later version."""
    await agree(store, kinds, dict.fromkeys(kinds, 2))
    with pytest.raises(LaterRecords, match=f"{kinds[0]} of version 2, and this one reads 1"):
        await agree(store, kinds)


async def collect(store) -> None:
    """A collector's life: shared.state.ads, and the directory's own keys."""
    compressor = AdCompressor()
    group = StoredGroup("Machine", "startd.ep1", 5, 1, 1, 9.0, {"slot1": b"packed", "slot2": b"packed"})
    compressor.add(3, b"a dictionary", 1.0)
    assert await write_ads(store, [GroupWrite(group, 99.0)], compressor) == []
    change = StoredGroup("Machine", "startd.ep1", 5, 2, 2, 10.0, {"slot1": b"other"})
    assert await write_ads(store, [GroupWrite(change, 99.0, base=1, gone=("slot2",))], compressor) == []
    assert await remove_ads(store, [GroupRemoval("Machine", "startd.ep1", 10.0, ("slot1",), 99.0)]) == []
    assert await remove_ads(store, [GroupRemoval("Machine", "startd.ep1", 10.0)]) == []
    await load_ads(store, compressor=compressor)
    await write_claims(store, {"startd.ep1": (5, 1, {"slot1": "claim"})})
    await forget_claims(store, ["startd.ep1"])
    await store.hset(keys.ADS_COLUMNS, {"Machine": b"columns"})
    assert await store.hget(keys.ADS_COLUMNS, "Machine") == b"columns"
    await store.hset(keys.ABSENT, {"slot1": b"ad"})
    assert await store.hgetall(keys.ABSENT) == {b"slot1": b"ad"}
    await store.hdel(keys.ABSENT, "slot1")
    await raise_versions(store, ADS, CLAIM_IDS, ABSENT)


async def negotiate(store) -> None:
    assert await store.get(keys.had_epoch()) is None
    version = await begin_records(store, "", 0, NOTHING)
    await stage_claims(store, "", 0, [(b"1 slot1", b"row")])
    version = await write_records(
        store, "", 0, version, until=5.0, submitters=[(b"alice@x", b"r"), (b"bob@x", b"")], staged=True
    )
    books = await read_records(store, "")
    assert books.version == version
    noted = await when_written(store, "", version)
    assert noted is not None
    assert 0.0 <= noted.passed_s < 60.0
    assert await restore_records(store, "", 0, books) == version
    await load_ads(store, "Machine")
    assert await load_claims(store) == {}
    await raise_versions(store, ACCOUNTING)


async def stand_by(store) -> None:
    """A HAD's life."""
    rules = Rules("had1", "life")
    seen = await look(store, rules, Standing(), Wish(wants=True, least=None), lease_s=5.0, answering=True)
    assert seen.owner == "had1"
    assert await hand_over(store, rules, seen.epoch, "had2", "other", lease_s=5.0) == seen.epoch + 1
    await release(store, rules, for_good=True)
    await release(store, Rules("had2", "other"), for_good=True)
    await restore_records(store, "", seen.epoch + 1, StoredRecords(Version(1, 5), {b"a": b"b"}, {}, {}))
    await read_records(store, "")
    await raise_versions(store, ELECTION, ACCOUNTING)


def lead_of(role):
    async def lead(store) -> None:
        key = keys.lead(role)
        assert await store.run("lead_take", [key], ["one", "life", 5000, 1]) == [1, b"one", b""]
        await store.run("lead_note", [key], ["one", "life", b"note"], confirm=True)
        assert await store.run("lead_give_up", [key], ["one", "life"]) == 1
        await raise_versions(store, f"lead of {role}")

    return lead


async def keep_tokens(store) -> None:
    for key in (keys.TOKENS, keys.TOKENS_USED):
        await store.hset(key, {"hash": b"whose"})
        assert await store.hget(key, "hash") == b"whose"
        assert await store.hgetall(key) == {b"hash": b"whose"}
        assert await store.hdel(key, "hash") == 1
    await raise_versions(store, TOKENS)


WORK = {
    "collector": collect,
    "negotiator": negotiate,
    "had": stand_by,
    "defrag": lead_of("defrag"),
    "rooster": lead_of("rooster"),
    "gateway": keep_tokens,
}


@pytest.mark.parametrize("role", acl.RIGHTS)
async def test_a_role_does_its_work_and_needs_every_right_for_it(role, server):
    """Redis counts what is called, also by functions. WAIT is for where there is a replica."""
    replica = Redis(
        *("--replicaof", server.host, str(server.port), "--masteruser", "tester", "--masterauth", "any"),
    )
    replica.start()
    try:
        with server.client() as tester:
            wait_until(lambda: b"state=online" in server_info(tester), 30, "a replica in step")
            tester.config_resetstat()
            async with opened(server.url_of(role)) as store:
                await WORK[role](store)
            used = {name.removeprefix("cmdstat_"): told for name, told in tester.info("commandstats").items()}
            refused = {name for name, told in used.items() if told["rejected_calls"] and name not in LIBRARY_S}
            called = {name for name, told in used.items() if told["calls"]}
    finally:
        replica.close()
    assert refused == set()
    rights = acl.RIGHTS[role]
    assert rights.functions == set(store.health.called.by_name) & set(names())
    assert granted(role) - called == set()


#: What the tester and the client library say besides.
LIBRARY_S = {"client|setinfo", "client|maint_notifications"}


def server_info(tester: redis.Redis) -> bytes:
    connection = tester.connection_pool.get_connection()
    connection.send_command("INFO", "replication")
    answer = connection.read_response()
    tester.connection_pool.release(connection)
    return bytes(answer)


async def test_a_store_says_what_the_server_lacks_and_goes_on_once_it_is_there(server):
    with server.client() as tester:
        tester.function_flush()
    async with opened(server.url_of("defrag"), retry_s=90.0) as store:  # a program must start meanwhile
        taking = asyncio.create_task(store.run("lead_take", [keys.lead("defrag")], ["one", "life", 5000, 1]))
        await eventually(lambda: store.health.waiting_for)
        assert library().name in store.health.waiting_for
        assert "python -m shared.daemon.load_functions" in store.health.waiting_for
        await store.ping()
        assert library().name in store.health.waiting_for  # an answer to something else changes nothing
        done = await asyncio.to_thread(server.load_functions)
        assert (done.returncode, done.stdout) == (0, f"{library().name} is loaded\n"), done.stderr
        assert await taking == [1, b"one", b""]
        assert store.health.waiting_for == ""


async def test_a_store_says_that_its_rights_are_not_of_this_release(server):
    async with opened(server.url_of("rooster")) as store:
        with pytest.raises(StoreUnavailable, match=r"no permissions.*write it anew"):
            await store.get(keys.TOKENS)
        assert "write it anew" in store.health.waiting_for


async def test_an_old_redis_is_named_as_what_it_is(redis_url):
    old = Redis("--rename-command", "FCALL", "", "--rename-command", "FUNCTION", "")
    old.start()
    try:
        async with opened(old.url) as store:
            with pytest.raises(StoreUnavailable, match="older than Redis 7: upgrade it"):
                await store.run("lead_take", ["key"], ["one", "life", 5000, 1])
    finally:
        old.close()


async def test_functions_survive_a_crash_and_are_on_replicas(server):
    server.restart()
    wait_until(lambda: answers_ping(server), 30, "Redis to have read its file")
    replica = Redis("--replicaof", server.host, str(server.port), "--masteruser", "tester", "--masterauth", "any")
    replica.start()
    try:
        with redis.Redis(port=replica.port) as there:
            wait_until(lambda: there.function_list(), 30, "functions on the replica")
            there.execute_command("REPLICAOF", "NO", "ONE")
            assert there.fcall(library().functions["lead_give_up"], 1, "key", "one", "life") == 0
    finally:
        replica.close()
    async with opened(server.url_of("defrag")) as store:
        assert await store.run("lead_take", [keys.lead("defrag")], ["one", "life", 5000, 1]) == [1, b"one", b""]
    assert b"CRITICAL" not in server.log.read_bytes()


def libraries(tester: redis.Redis) -> set[str]:
    """Names of those that are loaded."""
    return {dict(zip(one[::2], one[1::2], strict=True))[b"library_name"].decode() for one in tester.function_list()}


def answers_ping(server: RedisWithUsers) -> bool:
    with server.client() as tester:
        try:
            return bool(tester.ping())
        except redis.BusyLoadingError:
            return False


def test_libraries_of_two_releases_stand_side_by_side(server):
    other = "#!lua name=roost_0123456789ab\nredis.register_function('roost_0123456789ab_x', function() return 1 end)"
    with server.client() as tester:
        tester.execute_command("FUNCTION", "LOAD", other)
        tester.execute_command("FUNCTION", "LOAD", other.replace("roost_", "someone_"))
        assert server.load_functions().stdout == f"{library().name} is there already\n"
        assert "roost_0123456789ab" in libraries(tester)
        told = server.load_functions("--only").stdout.splitlines()
        assert told == [f"{library().name} is there already", "roost_0123456789ab is deleted"]
        assert libraries(tester) == {library().name, "someone_0123456789ab"}


def test_who_may_not_load_functions_is_told_so(server):
    done = server.load_functions(user="gateway")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no permissions to run the 'function|load' command" in done.stderr
    assert "secret" not in done.stderr
