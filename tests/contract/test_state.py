"""What daemons may expect of the store, on every variant: embedded, a redis-server of the pool's own, a
Redis by URL, and the one of the simulation."""

import asyncio
import os
import signal
import time

import pytest

from shared.accounting_version import NOTHING, Version
from shared.state import ScriptError, StaleEpoch, StoreInUse, StoreUnavailable, keys, open_store
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
from shared.state.versions import LaterRecords, agree, check
from shared.stored_versions import ADS, CLAIM_IDS
from tests.simulation.store import SimulatedStore
from tests.spec import spec
from tests.waiting import eventually

KEPT = ["embedded", "private"]
ALL = [*KEPT, "redis", "simulated"]
ALONE = ("embedded", "simulated")  # without a server


class Place:
    """Where a store lies; it can be opened again and again."""

    def __init__(self, variant, directory, url):
        self.variant, self.directory, self.url = variant, directory, url
        self.opened = []

    async def open(self):
        if self.variant == "simulated":
            store = SimulatedStore(now=time.time)
        else:
            store = open_store(self.url or f"{self.variant}:", self.directory)
        await store.start()
        self.opened.append(store)
        return store


@pytest.fixture(params=[pytest.param(v, marks=[] if v in ALONE else [pytest.mark.servers]) for v in ALL])
async def place(request, tmp_path):
    url = request.getfixturevalue("redis_url") if request.param == "redis" else None
    place = Place(request.param, tmp_path / "state", url)
    yield place
    for store in place.opened:
        await store.stop()


@pytest.fixture
async def store(place):
    return await place.open()


kept = pytest.mark.parametrize("place", KEPT, indirect=True)


async def test_values_come_back_as_bytes(store):
    await store.set("text", "grüße")
    await store.set("binary", b"\x00\xff\r\n")
    await store.set("number", 12)
    assert await store.mget(["text", "nothing", "binary", "number"]) == ["grüße".encode(), None, b"\x00\xff\r\n", b"12"]
    assert await store.get("binary") == b"\x00\xff\r\n"
    assert await store.get("nothing") is None


@pytest.mark.parametrize("place", [*KEPT, "redis"], indirect=True)
async def test_calls_are_counted_and_measured(store):
    await store.set("a", 1)
    await store.hset("h", {"b": 2})
    assert await store.get("a") == b"1"
    assert await store.delete("a", "h") == 2
    with pytest.raises(ScriptError):
        await store.run("accountant_write", [keys.had_epoch(), "x", "y"], ["no number", "0 0", "", 0, 0, 0])
    counted = {name: taken.count for name, taken in store.health.called.by_name.items()}
    assert counted == {"set": 1, "hset": 1, "get": 1, "del": 1, "accountant_write": 1}
    assert store.health.failed.by_name == {}


async def test_delete_counts_what_was_there(store):
    await store.set("a", 1)
    assert await store.delete("a", "b") == 1
    assert await store.get("a") is None
    assert await store.delete() == 0


async def test_hashes(store):
    await store.hset("h", {"a": b"\x00", "b": 2, "c": 1.5})
    assert await store.hget("h", "a") == b"\x00"
    assert await store.hmget("h", ["c", "x"]) == [b"1.5", None]
    assert await store.hgetall("h") == {b"a": b"\x00", b"b": b"2", b"c": b"1.5"}
    assert await store.hdel("h", "a", "x") == 1
    assert await store.hgetall_many(["h", "none"]) == [{b"b": b"2", b"c": b"1.5"}, {}]
    await store.hset("h", {})
    assert await store.hgetall("none") == {}


async def test_value_with_a_lifetime_goes(store):
    await store.set("brief", "x", ttl_s=0.05)
    await store.set("long", "x", ttl_s=1000)
    await eventually(lambda: _gone(store, "brief"))
    assert await store.get("long") == b"x"


async def _gone(store, key):
    return await store.get(key) is None


@spec("ACC-16")
async def test_claims_are_of_the_books_that_they_were_written_with(store):
    """Who reads them knows what the charges in the same books were for, or that he does not know."""
    first = await write_records(store, "", 0, NOTHING, submitters=[(b"a@p", b"old")], claims=[(b"1 old", b"row")])
    assert (await read_records(store, "")).until is None  # nobody said until when
    second = await write_records(
        store, "", 0, first, until=12.5, groups=[(b"g", b"1")], claims=[(b"1 old", b""), (b"2 slot1@ep", b"row")]
    )
    third = await write_records(store, "", 0, second, submitters=[(b"idle@p", b"1")])
    books = await read_records(store, "")
    assert (books.version, books.until) == (third, 12.5)
    assert set(books.claims) == {b"", b"2 slot1@ep"}
    await stage_claims(store, "", 0, [(b"3 slot1@ep", b"staged"), (b"4 slot1@ep", b"staged")])
    rows = [(b"4 slot1@ep", b""), (b"5 slot1@ep", b"later")]
    fourth = await write_records(store, "", 0, third, until=13.0, claims=rows, staged=True)
    assert (
        await write_records(store, "", 0, third, until=13.0, claims=rows, staged=True) > fourth
    )  # its answer was lost
    books = await read_records(store, "")
    assert books.until == 13.0
    assert set(books.claims) == {b"", b"3 slot1@ep", b"5 slot1@ep"}
    noted = await when_written(store, "", books.version)
    assert noted is not None
    assert 0.0 <= noted.passed_s < 600.0
    assert await when_written(store, "", fourth) is None
    idle = await write_records(store, "", 0, books.version, submitters=[(b"idle@p", b"2")])  # nobody was charged
    after = await when_written(store, "", idle)
    assert after is not None
    assert after.now - after.passed_s == pytest.approx(noted.now - noted.passed_s, abs=0.002)
    # A version that somebody else gives without a word of them: they are of other books.
    await store.set(keys.accountant_version(""), "0 9")
    assert (await read_records(store, "")).until is None
    many = {b"%d slot1@ep" % number: b"x" for number in range(6000)}
    kept = StoredRecords.of(Version(0, 10), {b"b@p": b"new"}, {}, many, 20.0)
    restored = await restore_records(store, "", 0, kept)
    books = await read_records(store, "")
    assert (books.version, books.until, len(books.claims)) == (restored, 20.0, 6001)
    begun = await begin_records(store, "", 0, Version(0, 50))
    books = await read_records(store, "")
    assert (books.version, books.until) == (begun, 20.0)
    assert begun > Version(0, 50)
    # Books that are restored without claims leave none behind.
    await restore_records(store, "", 0, StoredRecords(Version(0, 99), {b"b@p": b"new"}))
    assert (await read_records(store, "")).claims == {}


async def test_stale_epoch_is_refused_and_writes_nothing(store):
    books = keys.accountant("")
    await write_records(store, "", 0, Version(0, 0), submitters=[(b"a@p", b"old\x00")])
    await _win(store, "had1", times=1)
    with pytest.raises(StaleEpoch):
        await write_records(store, "", 0, Version(0, 1), submitters=[(b"a@p", b"new")])
    assert await store.hgetall(books) == {b"a@p": b"old\x00"}
    await write_records(store, "", 1, Version(0, 1), submitters=[(b"a@p", b"new")])
    assert await store.hgetall(books) == {b"a@p": b"new"}


async def test_wrong_script_call_is_an_error_of_its_own(store):
    with pytest.raises(ScriptError, match="accountant_write"):
        await store.run("accountant_write", [keys.had_epoch(), "x", "y"], ["no number", "0 0", "", 0, 0, 0])


async def _lease(store, name, life=None, *, wants=True, ms=10_000, known=0, answers=True, least="", offer="0 0"):
    reply = await store.run(
        "had_lease",
        [keys.had_lease(), keys.had_epoch(), keys.had_present(), keys.accountant_version("")],
        [name, life or f"{name}-1", int(wants), ms, known, int(answers), least, offer, 0, 0],
    )
    now, owner, owner_life, epoch, until, highest, books, *present = reply
    there = dict(zip(present[::2], present[1::2], strict=True))
    return {"now": now, "owner": owner.decode(), "life": owner_life.decode(), "epoch": epoch, "until": until,
            "highest": highest, "books": books, "present": there}  # fmt: skip


async def _win(store, name, *, times):
    for _ in range(times):
        await _lease(store, name)


async def test_one_lease_at_a_time_and_renewing_keeps_the_epoch(store):
    first = await _lease(store, "a")
    other = await _lease(store, "b")
    again = await _lease(store, "a")
    assert (first["owner"], first["epoch"]) == (other["owner"], other["epoch"]) == (again["owner"], 1)
    assert other["owner"] == "a"
    assert again["until"] >= first["until"]
    assert set(again["present"]) == {b"a", b"b"}


async def test_lease_that_ran_out_goes_to_the_next_with_a_higher_epoch(store):
    await _lease(store, "a", ms=1)

    async def b_wins():
        got = await _lease(store, "b")
        return got if got["owner"] == "b" else None

    assert (await eventually(b_wins))["epoch"] == 2
    assert (await _lease(store, "a"))["owner"] == "b"


async def test_lease_given_up_is_free_at_once(store):
    await _lease(store, "a")
    assert await store.run("had_release", [keys.had_lease(), keys.had_present()], ["b", "b-1", 0]) == 0
    assert await store.run("had_release", [keys.had_lease(), keys.had_present()], ["a", "a-1", 1]) == 1
    got = await _lease(store, "b")
    assert (got["owner"], got["epoch"]) == ("b", 2)
    assert set(got["present"]) == {b"b"}


async def test_had_started_again_takes_its_own_lease_over_with_a_new_epoch(store):
    await _lease(store, "a", "first")
    got = await _lease(store, "a", "second")
    assert (got["life"], got["epoch"]) == ("second", 2)


async def test_epoch_grows_past_what_any_had_remembers(store):
    """Redis may have lost the last epochs it gave."""
    await _lease(store, "a")
    await store.run("had_release", [keys.had_lease(), keys.had_present()], ["a", "a-1", 0])
    assert (await _lease(store, "b", known=41))["epoch"] == 42
    assert await store.get(keys.had_epoch()) == b"42"


async def test_leader_that_hears_of_a_higher_epoch_gets_a_higher_one_still(store):
    await _lease(store, "a")
    assert (await _lease(store, "a", known=7))["epoch"] == 8


async def test_passive_had_is_seen_and_takes_nothing(store):
    got = await _lease(store, "a", wants=False, answers=False)
    assert got["owner"] == ""
    assert got["present"][b"a"].split()[1] == b"0"  # its negotiator does not answer


def group(ads, *, start=100, sequence=1, content=None, heard=1000.0, daemon="startd@a", my_type="Machine"):
    return StoredGroup(my_type, daemon, start, sequence, sequence if content is None else content, heard, ads)


async def test_ads_are_read_as_written(store):
    one = group({"slot1@a": b"\x00ad", "slot2@a": b"x"})
    two = group({"a@p": b"y"}, my_type="Submitter", daemon="schedd@a")
    assert await write_ads(store, [GroupWrite(one, 1900), GroupWrite(two, 1900)]) == []
    assert await load_ads(store, "Machine") == [one]
    assert sorted(await load_ads(store), key=lambda g: g.my_type) == [one, two]


async def test_many_ads_of_one_daemon(store):
    many = group({f"slot{i}@a": b"ad" * 50 for i in range(3000)})
    await write_ads(store, [GroupWrite(many, 1900)])
    assert await load_ads(store, "Machine") == [many]
    few = group({"slot1@a": b"z"}, sequence=2)
    await write_ads(store, [GroupWrite(few, 1900)])
    assert await load_ads(store, "Machine") == [few]


async def test_change_lands_on_its_base_only(store):
    await write_ads(store, [GroupWrite(group({"s1": b"1", "s2": b"2"}, sequence=5), 1900)])
    change = GroupWrite(group({"s1": b"one"}, sequence=8, heard=1010.0), 1910, base=5, gone=["s2"])
    assert await write_ads(store, [change]) == []
    assert await write_ads(store, [change]) == []  # again, as another collector does
    assert await load_ads(store) == [group({"s1": b"one"}, sequence=8, heard=1010.0)]
    unfounded = GroupWrite(group({"s1": b"!"}, sequence=12), 1920, base=11)
    assert await write_ads(store, [unfounded]) == [unfounded]
    assert await load_ads(store) == [group({"s1": b"one"}, sequence=8, heard=1010.0)]


async def test_heartbeat_moves_the_expiry(store):
    await write_ads(store, [GroupWrite(group({"s1": b"1"}, sequence=5), 1900)])
    beat = GroupWrite(group({}, sequence=6, content=5, heard=1300.0), 2200, base=5)
    assert await write_ads(store, [beat]) == []
    assert await store.zrange_by_score(keys.ADS_EXPIRY, 0, 2199) == []
    assert await store.zrange_by_score(keys.ADS_EXPIRY, 0, 2200, limit=1) == [b"Machine/startd@a"]
    assert await load_ads(store) == [group({"s1": b"1"}, sequence=6, content=5, heard=1300.0)]


async def test_older_ads_do_not_replace_newer_ones(store):
    new = group({"s1": b"new"}, start=200, sequence=3)
    await write_ads(store, [GroupWrite(new, 1900)])
    for old in (group({"s1": b"old"}, start=200, sequence=2), group({"s1": b"old"}, start=100, sequence=99)):
        assert await write_ads(store, [GroupWrite(old, 1900)]) == []
    assert await load_ads(store) == [new]
    back = group({"s1": b"clock set back"}, start=100, sequence=1, heard=1061.0)
    await write_ads(store, [GroupWrite(back, 1961)])
    assert await load_ads(store) == [back]


async def test_expired_ads_go_unless_heard_of_since(store):
    await write_ads(store, [GroupWrite(group({"s1": b"1", "s2": b"2"}, heard=1000.4567), 1900)])
    early = GroupRemoval("Machine", "startd@a", heard=990.0)
    assert await remove_ads(store, [early]) == [early]
    assert await remove_ads(store, [GroupRemoval("Machine", "startd@a", 1000.4567, ["s1"], 5000.0)]) == []
    (left,) = await load_ads(store)
    assert left.ads == {"s2": b"2"}
    assert await remove_ads(store, [GroupRemoval("Machine", "startd@a", 1000.4567)]) == []
    assert await load_ads(store) == []
    assert await store.zrange_by_score(keys.ADS_EXPIRY, 0, 1e12) == []


async def test_claims_are_kept_newest(store):
    await write_claims(store, {"startd@a": (100, 5, {"s1": "id#1"}), "startd@b": (100, 1, {"t1": "id#2"})})
    await write_claims(store, {"startd@a": (100, 4, {"s1": "older"}), "startd@b": (200, 1, {"t1": "id#3"})})
    assert await load_claims(store) == {"s1": "id#1", "t1": "id#3"}
    await forget_claims(store, ["startd@a"])
    assert await load_claims(store) == {"t1": "id#3"}


async def test_concurrent_calls_do_not_mix(store):
    async def one(number):
        await store.set(f"k{number}", number)
        return await store.get(f"k{number}")

    assert await asyncio.gather(*(one(i) for i in range(200))) == [str(i).encode() for i in range(200)]


async def test_versions_of_records_only_grow_and_later_ones_are_refused(store):
    """A pool that is upgraded daemon by daemon, and back again."""
    of_old, of_new = {ADS: 1, CLAIM_IDS: 1}, {ADS: 2, CLAIM_IDS: 1}
    await agree(store, (ADS, CLAIM_IDS), of_old)
    assert await store.get(keys.version(ADS)) is None  # nothing that releases before versions would not know
    await agree(store, (ADS, CLAIM_IDS), of_new)
    await agree(store, (ADS, CLAIM_IDS), of_new)
    assert await store.mget([keys.version(ADS), keys.version(CLAIM_IDS)]) == [b"2", None]
    for ask in (agree(store, (CLAIM_IDS, ADS), of_old), check(store, CLAIM_IDS, ADS, known=of_old), load_ads(store)):
        with pytest.raises(LaterRecords, match="a later release of Roost has written ads of version 2, and this one"):
            await ask
    await check(store, CLAIM_IDS, known=of_old)
    assert await store.mget([keys.version(ADS), keys.version(CLAIM_IDS)]) == [b"2", None]
    with pytest.raises(LaterRecords, match=r"ads of version 2.*run that release"):
        await agree(store, (CLAIM_IDS, ADS), {CLAIM_IDS: 3, ADS: 1})  # all or nothing
    assert await store.get(keys.version(CLAIM_IDS)) is None
    await store.set(keys.version(ADS), "of nobody")
    with pytest.raises(LaterRecords, match="ads of version of nobody"):
        await agree(store, (ADS,), of_new)


async def test_health_says_connected(store):
    await store.ping()
    assert store.health.connected
    assert store.health.waiting_for == ""


async def test_one_leads_until_its_lease_is_over_or_given_up(store):
    """shared.daemon.lead, on every variant."""
    key = [keys.lead("DEFRAG", "gpus")]
    assert key == ["roost:lead:defrag:gpus"]
    take = lambda name, life, first=0, length=60_000: store.run("lead_take", key, [name, life, length, first])  # noqa: E731
    assert await take("a", "1", 1) == [1, b"a", b""]
    assert await take("a", "1") == [1, b"a", b""]
    assert await take("b", "1", 1) == [0, b"a", b""]
    await store.run("lead_note", key, ["a", "1", b"\x00note"])
    for name, life in (("b", "1"), ("a", "2")):
        with pytest.raises(StaleEpoch, match="a leads"):
            await store.run("lead_note", key, [name, life, b"?"])
    assert await take("a", "2", 1) == [1, b"a", b"\x00note"]  # started again
    assert await take("a", "1") == [0, b"a", b"\x00note"]  # its former life, which still runs
    assert await store.run("lead_give_up", key, ["a", "1"]) == 0
    assert await store.run("lead_give_up", key, ["a", "2"]) == 1
    assert await take("b", "1") == [1, b"b", b"\x00note"]
    await store.hset(key[0], {"until": 1})  # over long ago
    assert await take("a", "3") == [1, b"a", b"\x00note"]
    await store.hset(key[0], {"until": 10**15})  # given before the clock was set back
    assert await take("b", "2") == [1, b"b", b"\x00note"]


@kept
async def test_everything_is_there_after_a_restart(place):
    store = await place.open()
    await store.set("plain", b"\x00")
    await store.set("lasting", "x", ttl_s=1000)
    await store.hset("h", {"a": 1})
    await store.hdel("h", "a")
    await store.hset("h", {"b": 2})
    await _win(store, "had1", times=2)
    await write_ads(store, [GroupWrite(group({f"s{i}": b"ad" for i in range(1500)}), 1900.25)])
    await store.stop()
    again = await place.open()
    assert await again.mget(["plain", "lasting"]) == [b"\x00", b"x"]
    assert await again.hgetall("h") == {b"b": b"2"}
    assert await again.get(keys.had_epoch()) == b"1"
    ((back),) = await load_ads(again)
    assert len(back.ads) == 1500
    assert await again.zrange_by_score(keys.ADS_EXPIRY, 1900.25, 1900.25) == [b"Machine/startd@a"]
    assert (await _lease(again, "had1"))["epoch"] == 1


@kept
async def test_one_process_at_a_time_has_a_directory_open(place):
    store = await place.open()
    with pytest.raises(StoreInUse, match=str(place.directory)):
        await open_store(f"{place.variant}:", place.directory).start()
    await store.set("still", "mine")
    assert await store.get("still") == b"mine"


@pytest.mark.parametrize("place", ["private"], indirect=True)
async def test_private_server_that_is_killed_comes_back_with_its_data(place):
    store = await place.open()
    await store.set("a", "b")
    first = store.pid
    os.kill(first, signal.SIGKILL)
    assert await store.get("a") == b"b"
    assert store.pid != first


@pytest.mark.parametrize("place", ["private"], indirect=True)
async def test_private_server_of_a_pool_with_a_long_path(place):
    place.directory /= "a-long-name-" * 12
    await (await place.open()).set("a", "b")
    await place.opened.pop().stop()
    assert await (await place.open()).get("a") == b"b"


@pytest.mark.parametrize("place", ["redis"], indirect=True)
async def test_calls_wait_for_a_redis_that_restarts(place, redis_server):
    store = await place.open()
    await store.set("a", "b")
    await asyncio.to_thread(redis_server.kill)
    call = asyncio.create_task(store.get("a"))
    await eventually(lambda: not store.health.connected)
    assert "Redis at" in store.health.waiting_for
    await asyncio.to_thread(redis_server.start)
    assert await call == b"b"
    assert store.health.waiting_for == ""
    await _lease(store, "a")


@pytest.mark.parametrize("place", ["redis"], indirect=True)
async def test_unreachable_redis_is_an_error_in_the_end(place, redis_server):
    from shared.state.redis_store import RedisStore
    from shared.state.urls import parse

    await asyncio.to_thread(redis_server.kill)
    store = RedisStore(parse(redis_server.url), retry_s=0.1)
    with pytest.raises(StoreUnavailable, match="Redis at"):
        await store.get("a")
    assert store.health.failed.by_name == {("get",): 1}
    assert store.health.called.by_name["get"].sum_s >= 0.1, "with all attempts"
    await store.stop()


@pytest.mark.parametrize("place", ["redis"], indirect=True)
async def test_a_redis_whose_memory_is_full_is_waited_for(place, redis_server):
    """It refuses writes, by commands and by functions, and takes them again once there is room: no reason to die."""
    from shared.state.redis_store import RedisStore
    from shared.state.urls import parse

    await (await place.open()).set("a", "before")
    store = RedisStore(parse(redis_server.url), retry_s=0.1)
    await asyncio.to_thread(redis_server.command, "CONFIG", "SET", "maxmemory", "1")
    try:
        for write in (store.set("a", "b"), _lease(store, "a")):
            with pytest.raises(StoreUnavailable, match="raise its maxmemory, or make room"):
                await write
        assert await store.get("a") == b"before"
    finally:
        await asyncio.to_thread(redis_server.command, "CONFIG", "SET", "maxmemory", "0")
    await store.set("a", "b")
    assert (await _lease(store, "a"))["owner"] == "a"
    await store.stop()


@pytest.mark.parametrize("place", ["redis"], indirect=True)
async def test_prefix_keeps_pools_apart(place):
    one = await place.open()
    place.url = place.url + ("&" if "?" in place.url else "?") + "prefix=other:"
    two = await place.open()
    await one.set("a", 1)
    assert await two.get("a") is None
    await write_ads(two, [GroupWrite(group({"s": b"x"}), 1900)])
    assert await load_ads(one) == []
    assert len(await load_ads(two)) == 1


@pytest.mark.parametrize("place", ["private", "redis"], indirect=True)
async def test_who_is_cancelled_ends_and_no_answer_goes_astray(store):
    """In whatever turn of the loop it comes, be it between a question and its answer."""
    for number in range(20):
        await store.hset(f"h{number}", {"value": number})

    async def look(number):
        assert await store.hgetall_many([f"h{number}", f"h{19 - number}"]) == [
            {b"value": b"%d" % number},
            {b"value": b"%d" % (19 - number)},
        ]
        assert await store.hget(f"h{number}", "value") == b"%d" % number

    cancelled = 0
    for turns in range(60):
        looking = [asyncio.create_task(look((turns + number) % 20)) for number in range(4)]
        for _ in range(turns % 20):
            await asyncio.sleep(0)
        for task in looking[:2]:
            expected = task.cancel()
            await asyncio.wait({task})
            assert task.cancelled() is expected
            cancelled += expected
        await asyncio.gather(*looking[2:])
    assert cancelled > 20
