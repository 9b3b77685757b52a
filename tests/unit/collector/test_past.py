"""The pool's history: samples, records, levels, files, and collectors that keep it (VIEW-01, 02, 03, 06, 09)."""

import asyncio
import contextlib
import io
import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.collector.core.history_samples import KINDS, MOST, Averaging, Sample, TooLong, level_for, shown
from services.collector.daemon import Collector
from services.collector.pool_history import location_problem
from services.collector.pool_history_files import NoHistory, PoolHistory, Reader, record
from shared.bus.api import Exchange, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import load_config
from shared.config.knobs import CollectorSettings
from shared.daemon.advertiser import Advertiser
from shared.messages.pool_history import INBOX, AskPoolHistory
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually


def slot(name, state="Unclaimed", load=0.0, idle=0, **more):
    return {"name": name, "state": state, "loadavg": load, "keyboardidle": idle, **more}


@spec("VIEW-01", "VIEW-09")
def test_a_sample_counts_slots_by_platform_and_state_and_jobs_by_submitter():
    sample = Sample(6000.0)
    sample.machine(slot("slot1@a", "Claimed", 1.234, 120, arch="X86_64", opsys="LINUX"))
    sample.machine(slot("slot2@a", arch="X86_64", opsys="LINUX", mycurrenttime=5940, keyboardidle=60))
    sample.machine(slot("slot1@b", "drained", arch="AARCH64", opsys="LINUX"))
    for odd in ({}, slot("", "Claimed"), slot("x", "Sleeping"), {"name": "y", "state": 3}):
        sample.machine(odd)
    sample.submitter({"name": "ada@x", "scheddname": "ap1", "runningjobs": 3, "idlejobs": 4})
    sample.submitter({"name": "ada@x", "scheddname": "ap2", "runningjobs": 1, "idlejobs": float("nan")})
    sample.submitter({"name": "bob@x", "machine": "ap2", "idlejobs": 5})
    sample.submitter({"scheddname": "ap1", "runningjobs": 100})
    rows = sample.rows()
    assert shown("resources", 6000.0, rows["resources"]["slot1@a"]) == [120, 1.23, "Claimed"]
    assert shown("resources", 6000.0, rows["resources"]["slot2@a"]) == [120, 0.0, "Unclaimed"]
    assert set(rows["resources"]) == {"slot1@a", "slot2@a", "slot1@b"}
    assert rows["platforms"] == {
        "X86_64/LINUX": (1, 0, 1, 0, 0, 0, 0, 0, 0),
        "AARCH64/LINUX": (0, 0, 0, 0, 0, 0, 0, 0, 1),
        "Total": (1, 0, 1, 0, 0, 0, 0, 0, 1),
    }
    assert rows["submitters"] == {"ada@x/ap1": (3, 4), "ada@x/ap2": (1, 0), "bob@x/ap2": (0, 5)}
    assert rows["users"] == {"ada@x": (4, 4), "bob@x": (0, 5), "Total": (4, 9)}


def test_a_sample_adds_up_what_is_claimed_of_each_machine():
    """Slots come and go with their names, a machine stays; what all of its slots say of it counts once."""
    sample = Sample(6000.0)
    whole = {"machine": "a", "totalcpus": 8, "totalmemory": 8192, "totalloadavg": 3.456}
    sample.machine(slot("slot1@a", cpus=3, memory=2048, **whole))
    sample.machine(slot("slot1_1@a", "Claimed", cpus=4, memory=4096, **whole))
    sample.machine(slot("slot1_2@a", "Preempting", cpus=1, memory=2048, **whole))
    sample.machine(slot("slot1@b", "Owner", cpus=2, machine="b", totalcpus=2, totalmemory=1024))
    sample.machine(slot("slot1@c", "Claimed", cpus=2))
    assert sample.rows()["machines"] == {"a": (3.46, 8, 5, 8192, 6144), "b": (0, 2, 0, 1024, 0)}


ROWS = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 3), st.sampled_from((0.0, 0.25, 7.5))))


def told(samples):
    before, parts = None, []
    for number, rows in enumerate(samples):
        parts.append(record(60.0 * number, rows, before))
        before = rows
    return parts


@spec("VIEW-02")
@given(st.lists(ROWS, max_size=12), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_records_say_again_what_was_sampled_and_a_torn_one_nothing(samples, cut):
    """Whatever a crash leaves of a file, whole samples are read and no half ones."""
    parts = told(samples)
    data = b"".join(parts)
    reader = Reader(io.BytesIO(data))
    assert [(at, dict(rows)) for at, rows in reader.samples()] == [(60.0 * n, rows) for n, rows in enumerate(samples)]
    assert reader.end == len(data)
    torn = data[: max(0, len(data) - cut)]
    whole = 0
    while whole < len(parts) and len(b"".join(parts[: whole + 1])) <= len(torn):
        whole += 1
    assert [dict(rows) for _, rows in Reader(io.BytesIO(torn)).samples()] == samples[:whole]
    of_a = [rows.get("a") for rows in samples[:whole]]
    assert [row for _, row in Reader(io.BytesIO(torn)).of("a")] == of_a


@given(st.binary(max_size=300), st.integers(0, 299))
@settings(max_examples=60, deadline=None)
def test_a_damaged_file_is_read_as_far_as_it_is_whole(noise, place):
    data = bytearray(b"".join(told([{"a": (n, 0.0)} for n in range(8)])))
    data[place % len(data)] ^= 0x41
    for broken in (bytes(data), noise):
        rows = [dict(rows) for _, rows in Reader(io.BytesIO(broken)).samples()]
        assert rows == [{"a": (n, 0.0)} for n in range(len(rows))]
        assert len(rows) < 8


def test_averages_count_missing_samples_as_nobody_and_take_the_state_most_seen():
    jobs = Averaging("users", 300.0)
    for minute, rows in enumerate([{"ada": (4, 10)}, {"ada": (2, 0)}, {}, {}]):
        assert jobs.add(600.0 + 60 * minute, rows) is None
    assert jobs.add(900.0, {}) == (900.0, {"ada": (1.5, 2.5)})
    slots = Averaging("resources", 300.0)
    for minute, rows in enumerate([{"s": (7, 1.0, 2)}, {"s": (9, 0.5, 0)}, {"s": (9, 0.0, 2)}, {}]):
        assert slots.add(60.0 * minute, rows) is None
    assert slots.add(3000.0, {}) == (300.0, {"s": (9, 0.5, 2)})
    machines = Averaging("machines", 300.0)
    for minute, rows in enumerate([{"m": (1.0, 8, 2)}, {"m": (2.0, 8, 4)}, {}, {"n": (4.0, 2, 2)}]):
        assert machines.add(60.0 * minute, rows) is None
    assert machines.add(300.0, {"m": (9.0, 8, 8)}) == (300.0, {"m": (1.5, 8, 3), "n": (4, 2, 2)})
    assert machines.add(600.0, {}) == (600.0, {"m": (9, 8, 8)})


def test_the_level_goes_by_the_time_that_is_asked_about():
    """A day by the minute, a week by five, a month by the hour; and no answer without bound."""
    day = 86400.0
    assert [level_for(0.0, days * day, 60.0) for days in (1, 2, 7, 10, 30, 365)] == [0, 0, 1, 1, 2, 2]
    with pytest.raises(TooLong, match=f"ask for {MOST // 24} at most"):
        level_for(0.0, 1e9, 60.0)


def users(n):
    """`n` users with so many jobs."""
    return {kind: {f"u{i}": (n, i) for i in range(20)} if kind == "users" else {} for kind in KINDS}


def history(directory, most=1_000_000):
    made = PoolHistory(directory, most, 60.0)
    made.open()
    return made


def test_coarser_levels_tell_of_what_the_finer_have_forgotten_and_the_other_way_round(tmp_path):
    kept = history(tmp_path, 200_000)
    start = 1_763_820_000.0
    minutes = 3600  # two days and a half: more than fits by the minute
    for minute in range(minutes):
        assert kept.add(start + 60 * minute, users(minute)) == []
    end = start + 60 * minutes
    every, day = kept.points("users", "u3", end - 86400 / 2, end)
    assert every == 60.0
    assert [at for at, _ in day] == sorted({at for at, _ in day})
    assert day[-1] == (end - 60, (minutes - 1, 3))
    every, week = kept.points("users", "u3", start, end)
    assert every == 300.0
    times = [at for at, _ in week]
    assert times == sorted(set(times))
    assert times[0] <= start + 3600
    assert week[-1] == (end - 60, (minutes - 1, 3))  # not in any average yet
    # Each point is the average of the time before it, whatever its level.
    for at, (running, idle) in week[1:-6]:
        assert 0 <= (at - start) / 60 - running <= 60
        assert idle == 3
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) <= 3600
    assert kept.names("users", start, end) == sorted(f"u{i}" for i in range(20))
    assert kept.names("users", end + 1, end + 2) == []
    assert kept.points("users", "nobody", start, end)[1] == []
    kept.close()


@spec("VIEW-02")
def test_all_files_together_stay_within_the_storage(tmp_path):
    """After each sample, also of kinds that grow at very different speed, and after a knob was lowered."""
    chance = random.Random(1)
    kept = history(tmp_path, 60_000)
    for minute in range(700):
        sample = {
            "resources": {f"slot{i}@m": (chance.randrange(9), chance.random(), 2) for i in range(15)},
            "platforms": {"Total": (minute, *[0] * 8)},
            "submitters": {f"u{i}/ap": (chance.randrange(99), 0) for i in range(chance.randrange(20))},
            "users": {"Total": (minute, 0)},
        }
        assert kept.add(60.0 * minute, sample) == []
        assert kept.size() == sum(path.stat().st_size for path in tmp_path.glob("*.[0-9].*")) <= 60_000
    newest = kept.points("users", "Total", 0, 60.0 * 700)[1][-1]
    kept.close()
    less = history(tmp_path, 12_000)
    assert 0 < less.size() <= 12_000
    assert less.points("users", "Total", 0, 60.0 * 700)[1][-1] == newest
    assert not list(tmp_path.glob("*.tmp"))
    less.close()


def test_a_sample_without_room_is_left_out_and_named(tmp_path):
    kept = history(tmp_path, 2000)
    rows = {f"slot{i}@machine{i * 7919}": (i, i / 7, 2) for i in range(500)}
    assert kept.add(60.0, {"resources": rows, "users": {"Total": (1, 2)}}) == ["resources.0.new"]
    assert kept.size() < 2000
    assert kept.points("users", "Total", 0, 100)[1] == [(60.0, (1, 2))]
    kept.close()


@spec("VIEW-02")
def test_a_restart_goes_on_with_files_and_averages_and_cuts_off_what_is_torn(tmp_path):
    """Never half-written."""
    one = history(tmp_path / "new" / "directory")
    for minute in range(63):
        one.add(60.0 * minute, users(minute))
    with pytest.raises(NoHistory, match="another collector keeps its history"):
        history(tmp_path / "new" / "directory")
    one.close()
    torn = tmp_path / "new" / "directory" / "users.0.new"
    with torn.open("ab") as file:
        file.write(torn.read_bytes()[:17])
    two = PoolHistory(tmp_path / "new" / "directory", 1_000_000, 60.0)
    assert two.open() == 17
    for minute in range(63, 126):
        two.add(60.0 * minute, users(minute))
    hours = [(at, row) for at, row in two.points("users", "u0", 0, 15e6)[1] if at % 3600 == 0]
    assert hours[:2] == [(3600.0, (29.5, 0)), (7200.0, (89.5, 0))]  # the second hour began before the restart
    assert len(two.points("users", "u0", 0, 60.0 * 126)[1]) == 126
    two.close()


def test_a_full_disk_costs_samples_and_no_more(tmp_path, small_disk):
    disk = small_disk(tmp_path / "disk", 1)
    (disk / "of others").write_bytes(bytes(700 << 10))
    kept = PoolHistory(disk / "past", 100 << 20, 60.0)
    kept.open()
    chance = random.Random(1)

    def sample():
        rows = {f"slot{i}@m": (chance.randrange(10**6), chance.random(), 2) for i in range(1500)}
        return {"resources": rows}

    with contextlib.suppress(OSError):
        for at in range(1000):
            kept.add(60.0 * at, sample())
    told = len(kept.points("resources", "slot1@m", 0, 60.0 * at)[1])
    assert told == at
    assert 5 < told < 1000
    kept.close()
    again = PoolHistory(disk / "past", 500_000, 60.0)  # the mend: less storage, so that there is room again
    again.open()
    again.add(60.0 * at, sample())
    assert again.points("resources", "slot1@m", 0, 60.0 * at)[1][-1][0] == 60.0 * at
    again.close()


@spec("VIEW-02")
def test_a_directory_of_its_own_is_wanted(tmp_path):
    """Not spool, not log."""
    spool, log = str(tmp_path / "spool"), str(tmp_path / "log")
    assert "names no directory" in location_problem(None, spool, log)
    assert "is SPOOL" in location_problem(f"{spool}/../spool", spool, log)
    assert "is LOG" in location_problem(log, spool, log)
    assert location_problem(str(tmp_path / "past"), spool, log) == ""


# --- collectors

TWO_VIEWS = """
COLLECTOR_HOST = localhost
VIEWSERV01.POOL_HISTORY_DIR = {place}/poolhist01
VIEWSERV01.KEEP_POOL_HISTORY = TRUE
VIEWSERV01.CONDOR_VIEW_HOST =
VIEWSERV02.POOL_HISTORY_DIR = {place}/poolhist02
VIEWSERV02.KEEP_POOL_HISTORY = TRUE
VIEWSERV02.CONDOR_VIEW_HOST =
ROOST_AMQP_URL = amqp://a:b@localhost/pool
CONDOR_VIEW_HOST = localhost:12345 localhost:24680
"""


class Running:
    """A collector on a hub."""

    def __init__(self, name, hub, config, clock=None):
        self.bus = MemoryBus(hub, sender=f"collector.{name}")
        self.context = make_context("COLLECTOR", name, bus=self.bus, config=config, clock=clock)

    async def __aenter__(self):
        await self.bus.start()
        await self.context.store.start()
        self.collector = Collector(self.context)
        await self.collector.setup()
        self.tasks = [asyncio.create_task(task) for task in self.collector.tasks().values()]
        return self.collector

    async def __aexit__(self, *_):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.collector.close()
        await self.bus.stop()
        await self.context.store.stop()


async def shows(bus, startd, state="Claimed"):
    context = make_context("STARTD", startd, bus=bus)
    name = f"slot1@{startd}"
    ad = ClassAd({"Name": name, "MyType": "Machine", "State": state, "Arch": "X86_64", "OpSys": "LINUX"})
    await Advertiser(context, "Machine").publish({name: ad})


@spec("VIEW-03", "VIEW-06", "VIEW-01", "W-35")
async def test_two_view_servers_by_local_name_keep_a_history_each_and_forward_nothing(tmp_path):
    """The manual's example; the plain collector beside them keeps none."""
    path = tmp_path / "pool.conf"
    path.write_text(TWO_VIEWS.format(place=tmp_path))

    def config(local_name=None):
        return load_config([path], subsystem="COLLECTOR", local_name=local_name, env={})

    plain = CollectorSettings.from_config(config())
    assert (plain.keep_pool_history, len(plain.condor_view_host)) == (False, 2)
    hub = MemoryHub()
    startd = MemoryBus(hub, sender="startd.n1")
    gateway = MemoryBus(hub, sender="gateway.g")
    await startd.start()
    await gateway.start()
    now = time.time() + 60
    asked = AskPoolHistory(kind="resources", name="slot1@n1", start=now - 3600, end=now)
    # VIEW-03: the pool's collector keeps nothing itself; further collectors do, each told by its -local-name.
    async with (
        Running("one", hub, config("VIEWSERV01")) as one,
        Running("two", hub, config("VIEWSERV02")) as two,
        Running("main", hub, {"KEEP_POOL_HISTORY": "false"}) as main,
    ):
        assert len(one.views) == len(two.views) == 0
        await shows(startd, "n1")
        await eventually(lambda: all(len(each.directory.table) for each in (one, two, main)))
        await one.past.sample()
        await main.past.sample()
        answer = await gateway.call("collector.one", AskPoolHistory(kind="resources", start=now - 3600, end=now))
        assert answer.names == ["slot1@n1"]
        assert (await gateway.call("collector.two", asked)).points == []
        await two.past.sample()
        assert [point[3] for point in (await gateway.call("collector.two", asked)).points] == ["Claimed"]
        assert len((await gateway.call(INBOX, asked)).points) == 1  # either of them, never the one without
        with pytest.raises(RemoteFailure, match="KEEP_POOL_HISTORY is false") as refused:
            await gateway.call("collector.main", asked)
        assert refused.value.code == "not-found"  # what is away may come back, and this does not
    assert (tmp_path / "poolhist01" / "resources.0.new").stat().st_size
    assert (tmp_path / "poolhist02" / "resources.0.new").stat().st_size
    await startd.stop()
    await gateway.stop()


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"KEEP_POOL_HISTORY": "true"}, "names no directory"),
        ({"KEEP_POOL_HISTORY": "true", "POOL_HISTORY_DIR": "/dev/null/past"}, "POOL_HISTORY_DIR: .*Not a directory"),
    ],
)
async def test_a_collector_that_can_keep_none_works_and_says_why(knobs, says):
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="gateway.g")
    await bus.start()
    async with Running("cm", hub, knobs) as collector:
        await collector.past.sample()
        with pytest.raises(RemoteFailure, match=says):
            await bus.call(INBOX, AskPoolHistory(kind="users", start=0, end=1))
        assert collector._ad({}).eval("PoolHistorySamples") == 0
        assert collector._ad({}).eval("PoolHistoryProblem")
    await bus.stop()


@spec("VIEW-09")
async def test_a_sample_is_taken_every_interval_and_questions_are_checked(tmp_path):
    """Every 60 s."""
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="gateway.g")
    await bus.start()
    knobs = {"KEEP_POOL_HISTORY": "true", "POOL_HISTORY_DIR": str(tmp_path / "past")}
    keeper = Running("cm", hub, knobs)
    async with keeper as collector:
        slept = []

        class Clock:
            now = staticmethod(lambda: 1000.0 + sum(slept))

            async def sleep(self, seconds):
                slept.append(seconds)
                if len(slept) > 3:
                    await asyncio.Event().wait()

        collector.past._clock = Clock()  # its task has not begun
        await eventually(lambda: collector.past.samples == 3)
        assert slept == [60, 60, 60, 60]
        with pytest.raises(RemoteFailure, match="ends before it begins"):
            await bus.call(INBOX, AskPoolHistory(kind="users", start=5, end=1))
        with pytest.raises(RemoteFailure, match="days are asked for"):
            await bus.call(INBOX, AskPoolHistory(kind="users", name="Total", start=0, end=1e10))
    await bus.stop()


async def test_the_collector_tells_of_itself_by_its_own_interval_and_names_the_pool():
    """COLLECTOR_UPDATE_INTERVAL, COLLECTOR_NAME."""
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="collector.other")
    told = []

    async def hear(envelope):
        told.append(envelope.body)

    await bus.start()
    await bus.listen(Exchange.ADS, ["*.Collector.#"], hear)
    knobs = {"COLLECTOR_UPDATE_INTERVAL": "1", "MASTER_UPDATE_INTERVAL": "100000", "COLLECTOR_NAME": "Physics"}
    async with Running("cm", hub, knobs) as collector:
        await eventually(lambda: len(told) >= 3)
        assert collector._ad({})["PoolName"] == "Physics"
    await bus.stop()
