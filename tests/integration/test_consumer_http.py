"""Consumers of a personal pool, through its gateway and its journal."""

import asyncio
import contextlib
import threading

import aiohttp
import pytest

from roost import Consumer
from roost.consumer import Gap, Job, Live, Once, Received, RetryPolicy, Slot, http
from roost.consumer.http import time_of
from roost.errors import ClientError
from roost.events import JobEnded, JobRemoved, JobsSubmitted, JobStarted
from shared.bus.api import Exchange
from shared.classad import ClassAd
from shared.messages.base import new_id
from tests.integration.inside import InsidePool
from tests.servers import free_port
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.xdist_group("consumer-http")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = InsidePool(tmp_path_factory.mktemp("consumers") / "pool", ROOST_GATEWAY_PORT=str(free_port()))
    try:
        yield pool
    finally:
        pool.close()


class Voice:
    """Says events on the pool's bus, as a schedd of another name."""

    def __init__(self, pool):
        self.pool, self.count = pool, 0
        self.bus = pool.bus("schedd.elsewhere")

    def say(self, count=1):
        first = self.count
        now = time_of(new_id())
        events = [
            JobRemoved(at=now + (n - first) * 0.002, schedd="elsewhere", job_id=f"{n}.0", owner="zoe", reason="r")
            for n in range(first, first + count)
        ]

        async def publish():
            for event in events:
                await self.bus.publish(Exchange.EVENTS, event.type, event)

        self.pool.run(publish())
        self.count += count
        return [event.job_id for event in events]


@pytest.fixture(scope="module")
def voice(pool):
    return Voice(pool)


def consumer(pool, **wanted):
    return Consumer(pool.url, token=pool.token, **wanted)


def submit(pool, count=1):
    with pool.client() as client:
        ad = ClassAd({"Cmd": "/bin/true", "Owner": "x", "Iwd": "/tmp", "TransferExecutable": False})
        return client.submit(ad, [ClassAd({}) for _ in range(count)])


def ids(found):
    return [one.event.job_id for one in found if isinstance(one, Received)]


async def take(following, count):
    found = []
    async with asyncio.timeout(60):
        async for item in following:
            if len(found) == count:
                break
            found.append(item)
            if len(found) == count:
                following.stop()
    return found


async def test_a_job_is_followed_from_its_submission_to_its_end(pool):
    async with consumer(pool, types=["job.submitted", JobStarted, JobEnded]) as following:
        cluster = (await asyncio.to_thread(submit, pool)).cluster
        found = await take(following, 3)
    match [one.event for one in found]:
        case [JobsSubmitted(cluster=told, count=1), JobStarted(slot=slot), JobEnded(exit_code=0) as ended]:
            assert told == cluster
            assert ended.job_id == f"{cluster}.0"
            assert ended.slot == slot
            assert ended.submitter.startswith(ended.owner)
        case other:
            raise AssertionError(other)
    assert all(one.sender.startswith("schedd.") for one in found)


def test_programs_without_asyncio_iterate_over_it(pool, voice):
    following = consumer(pool, owner="zoe")
    told, found = threading.Event(), []

    def speak():
        wait_until(lambda: following.health.connected, 60)
        told.said = voice.say(3)

    speaker = threading.Thread(target=speak)
    speaker.start()
    for item in following:
        found.append(item)
        if len(found) == 3:
            break
    speaker.join()
    assert ids(found) == told.said
    assert not following.health.connected
    assert [thread.name for thread in threading.enumerate() if thread.name == "consumer"] == []


async def test_a_durable_one_goes_on_where_it_stopped(pool, voice, tmp_path):
    wanted = {"durable": True, "name": "bill", "state": tmp_path / "deep" / "bill.json", "owner": "zoe"}
    async with consumer(pool, **wanted) as following:
        said = await asyncio.to_thread(voice.say, 2)
        assert ids(await take(following, 2)) == said
    said = await asyncio.to_thread(voice.say, 3)
    async with consumer(pool, **wanted) as following:
        found = await take(following, 1)
        with pytest.raises(ClientError, match="another consumer goes on from"):
            await consumer(pool, **wanted).open()
    async with consumer(pool, **wanted) as following:
        found += await take(following, 2)
    assert ids(found) == said
    (tmp_path / "deep" / "bill.json").write_text("{}")
    with pytest.raises(ClientError, match=r"bill\.json holds no position of a consumer"):
        consumer(pool, **wanted)


async def test_a_slow_one_misses_nothing(pool, voice):
    async with consumer(pool, owner="zoe", ahead=5) as following:
        said = await asyncio.to_thread(voice.say, 4500)  # more than the gateway holds for a listener
        found = await take(following, 4500)
    assert ids(found) == said
    assert not any(isinstance(one, Gap) for one in found)


@contextlib.asynccontextmanager
async def without(pool, *daemons):
    for name in daemons:
        await asyncio.to_thread(pool.stop_daemon, name)
    try:
        yield
    finally:
        for name in reversed(daemons):
            await asyncio.to_thread(pool.start_daemon, name)


async def test_a_gap_is_filled_from_the_journal_and_told_where_there_is_none(pool, voice, tmp_path, monkeypatch):
    wanted = {"durable": True, "name": "gaps", "state": tmp_path / "gaps.json", "owner": "zoe"}
    async with consumer(pool, **wanted) as following:
        begun = await asyncio.to_thread(voice.say, 2)
        assert ids(await take(following, 2)) == begun
    missed = await asyncio.to_thread(voice.say, 3)
    await eventually(lambda: recorded(pool, missed[-1]), 60)
    async with without(pool, "gateway"):  # what it kept is gone with it
        pass
    async with consumer(pool, **wanted) as following:
        found = await take(following, 3)
        assert sorted(ids(found)) == sorted(missed)
        live = await asyncio.to_thread(voice.say, 2)
        following._stopping.clear()
        assert ids(await take(following, 2)) == live
    # Where the journal does not answer, it is told.
    monkeypatch.setattr(http, "JOURNAL_WAIT_S", 1.0)
    async with without(pool, "gateway", "journal"):
        await asyncio.to_thread(voice.say, 1)
    async with without(pool, "journal"), consumer(pool, **wanted) as following:
        (gap,) = await take(following, 1)
        assert isinstance(gap, Gap)
        assert "may be missing" in gap.reason
        assert gap.after


async def recorded(pool, job):
    headers = {"Authorization": f"Bearer {pool.token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        answer = await session.get(f"{pool.url}/v1/journal/events", params={"job": job})
        return bool((await answer.json())["events"])


async def test_snapshot_and_events_make_the_whole_picture(pool):
    """Jobs come, run and go while the snapshot is taken: none is missing, told twice, or left in a wrong state."""
    before = await asyncio.to_thread(submit, pool, 30)
    jobs, slots, told = {}, set(), []
    async with consumer(pool, types=["job.*"]) as following:
        during = None
        async with asyncio.timeout(100):
            async for item in following.snapshot_then_live():
                match item:
                    case Job(ad=ad):
                        assert item.id not in jobs
                        jobs[item.id] = ad.eval("JobStatus")
                        if during is None:
                            during = await asyncio.to_thread(submit, pool, 30)
                    case Slot():
                        slots.add(item.name)
                    case Live(jobs=count, slots=seen):
                        assert count == len(jobs)
                        assert seen == len(slots) > 0
                        last = await asyncio.to_thread(submit, pool, 1)
                    case Received(event=JobsSubmitted(cluster=cluster, count=count)):
                        for proc in range(count):
                            assert f"{cluster}.{proc}" not in jobs
                            jobs[f"{cluster}.{proc}"] = 1
                    case Received(event=JobEnded(job_id=job)):
                        told.append(job)
                        assert jobs.pop(job, None) is not None
                        if job == f"{last.cluster}.0":
                            break
        await eventually(lambda: at_rest(pool), 60)
        while jobs and (found := await asyncio.wait_for(anext(aiter(following)), 60)):
            if isinstance(found.event, JobEnded):
                told.append(found.event.job_id)
                assert jobs.pop(found.event.job_id, None) is not None
    ours = {*before.ids(), *during.ids(), *last.ids()}
    assert set(during.ids()) | set(last.ids()) <= set(told) <= ours
    assert len(set(told)) == len(told)


def at_rest(pool):
    with pool.client() as client:
        return not list(client.jobs(projection=["ClusterId"]))


async def test_handlers_take_each_event_once_and_failures_are_told(pool, voice, tmp_path, caplog):
    store = Once(tmp_path / "seen.sqlite", "CREATE TABLE seen (job TEXT)")
    following = consumer(pool, retry=RetryPolicy(limit=2, first_s=0.01))
    failed = []

    @following.on(JobRemoved, owner="zoe", once=store)
    def write(removed, db, got):
        db.execute("INSERT INTO seen VALUES (?)", (removed.job_id,))
        if len(failed) < 1:
            failed.append(got.id)
            raise OSError("not yet")

    @following.on(JobRemoved, owner="zoe")
    async def fail(removed):
        raise ZeroDivisionError(removed.job_id)

    with pytest.raises(ValueError, match="want parameters"):
        following.on(JobRemoved)(lambda removed, db: None)
    running = asyncio.create_task(following.run_async(health_port=free_port()))
    await eventually(lambda: following.health.connected, 60)
    said = await asyncio.to_thread(voice.say, 2)
    await eventually(lambda: following.health.handled == 2, 60)
    following.stop()
    await running
    assert store.query("SELECT job FROM seen") == [(job,) for job in said]
    assert following.health.given_up == 2  # skipped, and said so
    assert "does not take job.removed" in caplog.text
    assert not following.health.connected
    store.close()


async def test_a_durable_one_stops_at_what_its_handler_does_not_take(pool, voice, tmp_path):
    wanted = {"durable": True, "name": "stops", "state": tmp_path / "stops.json", "owner": "zoe"}
    broken = True
    seen = []

    def make():
        following = consumer(pool, retry=RetryPolicy(limit=2, first_s=0.01), **wanted)

        @following.on(JobRemoved)
        def handle(removed):
            seen.append(removed.job_id)
            if broken and removed.job_id == said[1]:
                raise OSError("no")

        return following

    said = ["", ""]
    following = make()
    running = asyncio.create_task(following.run_async())
    await eventually(lambda: following.health.connected, 60)
    said = [f"{voice.count + n}.0" for n in range(3)]
    await asyncio.to_thread(voice.say, 3)
    with pytest.raises(ClientError, match=r"handle does not take job\.removed \w+: given up after 2 attempts: OSError"):
        await running
    assert seen == [said[0], said[1], said[1]]
    broken = False
    following = make()
    running = asyncio.create_task(following.run_async())
    await eventually(lambda: seen[3:] == said[1:], 60)
    following.stop()
    await running


async def test_what_is_wrong_is_told_at_once(pool):
    with pytest.raises(ClientError, match="no valid token"):
        await Consumer(pool.url, token="wrong").open()
    with pytest.raises(ClientError, match="the gateway"):
        await Consumer(f"http://127.0.0.1:{free_port()}", token="x", patience_s=1).open()
    with pytest.raises(ValueError, match="needs a name"):
        consumer(pool, durable=True)
    with pytest.raises(ValueError, match="dead letters"):
        consumer(pool, on_failure="dead-letter")
    with pytest.raises(ValueError, match="want a cluster"):
        consumer(pool, job="twelve")
    with pytest.raises(ValueError, match="ahead 0"):
        consumer(pool, ahead=0)
    with pytest.raises(ValueError, match="there is no handler"):
        await consumer(pool).run_async()
