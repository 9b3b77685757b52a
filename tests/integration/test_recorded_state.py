"""What earlier versions left on disk and in Redis is read by today's daemons: tests/data/recorded_state, made by
`python -m tests.infrastructure.record_state`, which also recorded what those versions said of it themselves."""

import base64
import json
import time

import pytest

from shared.bus import connect
from shared.daemon.clock import SystemClock
from shared.state import open_store
from shared.state.accounting import read_records
from tests.infrastructure import record_state as recorded
from tests.integration.inside import InsidePool
from tests.waiting import eventually, wait_until

VERSIONS = sorted(path.name for path in recorded.DATA.iterdir() if path.is_dir())
#: Seconds of two slots that the accountant may charge between two starts.
CHARGED_MEANWHILE = 600.0
#: Attributes of the priorities of those who use slots, or of groups above them, that grow from second to second.
GROW = {"AccumulatedUsage", "WeightedAccumulatedUsage", "LastUsageTime"}
#: A priority decays by less than this in the seconds between.
DECAY = 0.05


def roost(*words):
    return recorded.command(recorded.ROOT, *words)


@pytest.fixture(params=VERSIONS)
def version(request):
    """The folder of a recorded version; PLACE is ours for as long as the test runs."""
    with recorded.place():
        yield recorded.DATA / request.param


@pytest.fixture
def expected(version):
    return json.loads((version / "expected.json").read_text())


def back_to(moment, monkeypatch):
    """The daemons' clock goes on a minute after this moment, when the recorded version had been asked as well."""
    shift = moment + 60.0 - time.time()
    monkeypatch.setattr(SystemClock, "now", lambda self: time.time() + shift)


class Pools:
    """Today's daemons in POOL, one life after another."""

    def __init__(self, **knobs):
        self.knobs = {"NUM_CPUS": "4", "MEMORY": "4096"} | knobs
        self.lives = []

    def start(self, **more):
        self.lives.append(InsidePool(recorded.POOL, **(self.knobs | more)))
        return self.lives[-1]

    def close(self):
        while self.lives:
            self.lives.pop().close()


@pytest.fixture
def pools():
    made = Pools()
    yield made
    made.close()


def numbers(one, other):
    try:
        return float(one), float(other)
    except ValueError:
        return None


def assert_priorities_are_alike(before, now):
    assert now.keys() == before.keys()
    for name, old in before.items():
        new = now[name]
        assert new.keys() >= old.keys(), name
        uses = float(old.get("WeightedResourcesUsed", "0")) > 0 or float(old.get("HierWeightedResourcesUsed", "0")) > 0
        for attribute, text in old.items():
            pair = numbers(text, new[attribute])
            if pair is None or (not uses and attribute not in ("Priority",)):
                assert new[attribute] == text, f"{name}.{attribute}"
            elif attribute in GROW:
                assert pair[0] <= pair[1] <= pair[0] + CHARGED_MEANWHILE, f"{name}.{attribute}"
            else:
                assert pair[1] == pytest.approx(pair[0], rel=DECAY), f"{name}.{attribute}"


def before_a_cycle(jobs):
    """Without what a negotiation cycle of today says of them, in today's words."""
    return {job: {name: text for name, text in ad.items() if name != "LastRejMatchReason"} for job, ad in jobs.items()}


def test_a_personal_pool_is_found_as_it_was(version, expected, pools, monkeypatch):
    """Every job, claim, history record, ad, priority and explanation, before anything goes on."""
    expected = expected["personal"]
    recorded.unpack(version / "personal.tar.gz")
    recorded.switch_off("startd", "node")
    back_to(expected["recorded_at"], monkeypatch)
    pools.start()
    found = recorded.shown(roost)
    assert before_a_cycle(found["jobs"]) == before_a_cycle(expected["jobs"])
    assert found["history"] == expected["history"]
    assert found["machines"] == expected["machines"]
    assert found["factories"] == expected["factories"]
    assert found["max_jobs_running"] == expected["max_jobs_running"] == "77"
    assert_priorities_are_alike(expected["priorities"], found["priorities"])
    jobs = list(expected["explained"])
    assert recorded.explained(roost, jobs, expected["recorded_at"] - 5) == expected["explained"]
    # Who leads now does so under an epoch of its own.
    (had,) = recorded.hads(roost)
    assert had["epoch"] >= expected["hads"][0]["epoch"]
    # What was switched off is off.
    (off,) = json.loads(roost("status", "-master", "-json", "-constraint", 'Subsystem == "ROOSTER"'))
    assert (off["DaemonState"], off["OffReason"]) == ("Off", "recorded")


def test_claims_and_runs_go_on_from_where_they_were(version, expected, pools, monkeypatch):
    """The startd knows its claims and runs: how a job ended that nobody was there to see, and that another one is lost.
    What waits in the queue goes on."""
    expected = expected["personal"]
    clusters = expected["clusters"]
    recorded.unpack(version / "personal.tar.gz")
    back_to(expected["recorded_at"], monkeypatch)
    pool = pools.start()

    def value(where, job, attribute):
        return roost(where, job, "-af", attribute).strip()

    # It ended with exit code 7 while no startd was there; its output was in its scratch directory.
    ending = clusters["ending"] + ".0"
    wait_until(lambda: value("history", ending, "JobStatus") == "4", 60, "the end of the job that nobody saw")
    assert value("history", ending, "ExitCode") == "7"
    assert value("history", ending, "NumJobStarts") == "1"
    assert value("history", ending, "LastRemoteHost") == expected["jobs"][f"{clusters['ending']} 0"][
        "RemoteHost"
    ].strip('"')
    assert (recorded.JOBS / "said").read_text() == "over\n"
    # Its process is gone with its fork server: the run is lost, and the job runs again, as the next attempt.
    running = clusters["running"] + ".0"
    wait_until(
        lambda: value("q", running, "JobStatus") == "2" and value("q", running, "NumJobStarts") == "2", 60, "a run"
    )
    # Held jobs are released and run, as do those that were not materialized yet.
    roost("qedit", clusters["held"], "Requirements", "true")
    roost("release", clusters["held"])
    late = clusters["late"]
    roost("qedit", late, "Requirements", "true")
    wait_until(lambda: roost("history", clusters["held"], "-af", "JobStatus").split() == ["4"] * 2, 60, "the held jobs")
    with pool.client() as client:
        total = len(list(client.jobs(history=True)))
    assert total >= len(expected["history"]) + 3


@pytest.mark.servers
def test_redis_is_read_as_it_was(version, expected, redis_url, pools, monkeypatch):
    """Ads compressed against a dictionary, accounting records and their claims, epochs, a lead with its note."""
    expected = expected["servers"]
    recorded.unpack(version / "servers.tar.gz")
    told = json.loads((recorded.PLACE / "redis.json").read_text())
    assert told["roost:ads:dictionaries"]["content"], "no ad is compressed against a dictionary"
    assert len(told["roost:accountant-claims:"]["content"]) > 3
    recorded.restore(redis_url, told)
    (recorded.POOL / "spool" / "off").mkdir(parents=True)
    (recorded.POOL / "spool" / "off" / "startd.node").write_text('{"since": 1, "by": "", "reason": ""}')
    back_to(expected["recorded_at"], monkeypatch)
    recorded.no_round()
    pools.start(redis_url=redis_url, NUM_CPUS="120")
    machines = recorded.by(recorded.ads_of(roost("status", "-long")), "Name")
    assert sorted(machines) == expected["names"]
    assert {name: machines[name] for name in expected["machines"]} == expected["machines"]
    priorities = recorded.by(recorded.ads_of(roost("userprio", "-allusers", "-long")), "Name", "IsAccountingGroup")
    assert_priorities_are_alike(expected["priorities"], priorities)
    assert float(priorities['"bob@example.org" false']["PriorityFactor"]) == 55.0
    # Who leads now takes an epoch above every recorded one.
    (had,) = recorded.hads(roost)
    epoch = int(base64.b64decode(told["roost:had:epoch"]["content"]))
    assert had["epoch"] > epoch
    # Defrag shows what an earlier one noted.
    assert recorded.defrag(roost) == expected["defrag"]


@pytest.mark.servers
async def test_accounting_records_are_read_whole(version, redis_url):
    """Version, submitters, groups and claims, byte for byte."""
    recorded.unpack(version / "servers.tar.gz")
    told = json.loads((recorded.PLACE / "redis.json").read_text())
    recorded.restore(redis_url, told)
    store = open_store(redis_url)
    await store.start()
    try:
        found = await read_records(store, "")
    finally:
        await store.stop()

    def rows(key):
        return {base64.b64decode(name): base64.b64decode(value) for name, value in told[key]["content"]}

    assert found.submitters == rows("roost:accountant:")
    assert found.groups == rows("roost:accountant-groups:")
    assert found.claims == rows("roost:accountant-claims:")
    assert found.version.arg == base64.b64decode(told["roost:accountant-version:"]["content"]).decode()
    # The claims are believed: they are of these records.
    assert found.until is not None


@pytest.mark.servers
async def test_events_that_waited_for_the_broker_are_told(version, amqp_url):
    """Under the ids that they had."""
    recorded.unpack(version / "servers.tar.gz")
    file = recorded.PLACE / "facts" / "schedd.ap.facts"
    waiting = recorded.events_in(file)
    assert "job.held" in [kind for _, kind in waiting]
    journal, schedd, heard = connect(amqp_url, "journal.j"), connect(amqp_url, "schedd.ap", spool=file), {}

    async def record(envelope):
        heard[envelope.id] = envelope.body.type

    await journal.start()
    await journal.consume("roost.view", record)
    await schedd.start()
    try:
        await eventually(lambda: heard.items() >= dict(waiting).items(), what="every event")
    finally:
        await schedd.stop()
        await journal.stop()
