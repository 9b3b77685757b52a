"""Why, at any point in time: a personal pool that is asked about its past, and what the journal's database may do to it
(nothing). Times come from the pool's own record, so a slow machine changes no answer."""

import json
import time
from itertools import pairwise

import pytest

from tests.integration.pools import EmbeddedPool
from tests.spec import spec
from tests.waiting import wait_until

CONFIG = """\
ROOST_JOURNAL_SAMPLE_INTERVAL = 0.5
ROOST_JOURNAL_SLOTS_INTERVAL = 1
RUNBENCHMARKS = false
"""

pytestmark = pytest.mark.xdist_group("journal")


class JournalPool(EmbeddedPool):
    def ask(self, what: str, **query) -> dict:
        with self.client() as client:
            return client.journal(what, **query)

    def explained(self, job: str, until, timeout_s: float = 90.0) -> dict:
        """The job's story as soon as `until` holds of it."""
        found: dict = {}

        def told() -> bool:
            nonlocal found
            try:
                found = self.ask(f"jobs/{job}")
            except Exception:
                return False
            return bool(until(found))

        wait_until(told, timeout_s, f"the story of job {job}")
        return found

    def queue(self, folder, name: str, text: str) -> int:
        (folder / name).write_text(text)
        return self.submit(folder / name)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    directory = tmp_path_factory.mktemp("journal") / "pool"
    made = JournalPool(directory)
    (directory / "config").write_text(CONFIG)
    made.start("-cpus", "2", "-memory", "2048")
    yield made
    made.close()


def consistent(found: dict) -> None:
    """No gap, no overlap, and the parts are the whole."""
    spans = found["spans"]
    for one, two in pairwise(spans):
        assert one["end"] == pytest.approx(two["start"], abs=1e-6)
    for span in spans:
        if span["state"] in ("idle", "starting", "held"):
            assert sum(cause["seconds"] for cause in span["causes"]) == pytest.approx(
                span["end"] - span["start"], abs=1e-5
            )
    total = sum(span["end"] - span["start"] for span in spans)
    assert sum(sum(hour["seconds"].values()) for hour in found["hours"]) == pytest.approx(total, abs=1e-5)
    waited = sum(span["end"] - span["start"] for span in spans if span["state"] in ("idle", "starting", "held"))
    assert sum(found["waited"].values()) == pytest.approx(waited, abs=1e-5)


def test_requirements_then_hold_then_release_then_removal(pool, tmp_path):
    cluster = pool.queue(tmp_path, "big.sub", "executable = /bin/true\nrequest_memory = 999999\nqueue\n")
    job = f"{cluster}.0"
    pool.explained(job, lambda found: "requirements" in found["waited"])
    pool.roost("hold", job)
    pool.explained(job, lambda found: found["state"] == "held")
    pool.roost("release", job)
    pool.explained(job, lambda found: found["state"] == "idle" and found["spans"][-1]["causes"])
    pool.roost("rm", job)
    found = pool.explained(job, lambda found: found["state"] == "removed")
    consistent(found)
    assert found["gone"]
    assert {"requirements", "held"} <= set(found["waited"])
    types = [event["type"] for event in found["events"]]
    assert types == ["job.submitted", "job.held", "job.released", "job.removed"]
    at = {event["type"]: event["at"] for event in found["events"]}
    assert found["waited"]["held"] == pytest.approx(at["job.released"] - at["job.held"], abs=0.002)
    # The command, for a job that has left the queue, in words, at a moment, in an interval, and as JSON.
    said = pool.roost("explain", job).stdout
    assert "no slot satisfies its Requirements" in said
    assert "Seconds, hour by hour" in said
    moment = (at["job.held"] + at["job.released"]) / 2
    assert "it was held" in pool.roost("explain", job, "-at", f"{moment:.3f}").stdout
    part = json.loads(
        pool.roost("explain", job, "-between", str(at["job.held"]), str(at["job.released"]), "-json").stdout
    )
    assert set(part["waited"]) == {"held"}


def test_a_ceiling_and_then_a_slot(pool, tmp_path):
    pool.roost("userprio", "-setceiling", "capped@" + _domain(pool), "1")
    text = "executable = /bin/sleep\narguments = {}\naccounting_group_user = capped\nrequest_memory = 10\nqueue\n"
    first = pool.queue(tmp_path, "first.sub", text.format(600))
    pool.explained(f"{first}.0", lambda found: found["state"] == "running")
    second = pool.queue(tmp_path, "second.sub", text.format(0))
    pool.explained(f"{second}.0", lambda found: "ceiling" in found["waited"])
    pool.roost("rm", f"{first}.0")
    found = pool.explained(f"{second}.0", lambda found: found["state"] == "completed")
    consistent(found)
    assert found["submitter"] == "capped@" + _domain(pool)
    assert found["waited"]["ceiling"] > 0
    user = pool.ask("users/capped")
    assert user["submitter"] == found["submitter"]
    assert user["now"]["ceiling"] == 1
    assert any("ceiling of 1" in line for line in user["text"])
    assert any("set its ceiling to 1" in line for line in user["text"])
    assert "ceiling of 1" in pool.roost("explain", "-user", "capped").stdout


def test_a_job_that_is_submitted_on_hold_waits_for_its_release(pool, tmp_path):
    cluster = pool.queue(tmp_path, "held.sub", "executable = /bin/true\nhold = true\nqueue 2\n")
    found = pool.explained(f"{cluster}.1", lambda found: found["state"] == "held")
    assert set(found["waited"]) <= {"held"}
    pool.roost("release", f"{cluster}.1")
    found = pool.explained(f"{cluster}.1", lambda found: found["state"] == "completed")
    consistent(found)
    assert "held" in found["waited"]


def _slots_recorded(pool) -> int:
    """Slots of the last second, as far as they are known: a journal that has just begun has not looked yet."""
    said = pool.roost("what-if", "-from", f"{time.time() - 1.0:.3f}", "-json", ok=False)
    return int(json.loads(said.stdout)["slots"]) if said.returncode == 0 else 0


def test_an_interval_replayed_as_it_was_is_what_it_was_and_a_ceiling_less_makes_others_wait_less(pool, tmp_path):
    wait_until(lambda: _slots_recorded(pool) == 1, 30, "the journal's first look at the slots")
    began = time.time()
    pool.roost("userprio", "-setceiling", "slow@" + _domain(pool), "1")
    text = "executable = /bin/sleep\narguments = 1\naccounting_group_user = slow\nrequest_memory = 10\nqueue 3\n"
    cluster = pool.queue(tmp_path, "slow.sub", text)
    pool.wait_for_rest(cluster, 3)
    pool.explained(f"{cluster}.2", lambda found: found["state"] == "completed")
    # A replay may be late by its steps, so what it looks at must not end with the last job.
    over = time.time()
    wait_until(lambda: time.time() > over + 2.0, 10, "two seconds more of the interval")
    said = json.loads(pool.roost("what-if", "-from", f"{began:.3f}", "-json").stdout)
    name = "slow@" + _domain(pool)
    recorded, replayed = said["recorded"]["submitters"][name], said["baseline"]["submitters"][name]
    assert (recorded["offered"], recorded["finished"]) == (3, 3)
    assert (replayed["offered"], replayed["started"], replayed["finished"]) == (3, 3, 3)
    # One after the other, in truth and in the replay. A loaded machine adds to the truth, which the replay takes over
    # in the length of runs, but not in the time between them.
    assert 2.0 <= replayed["waited_s"] <= recorded["waited_s"] + 3.0
    assert said["changed"] is None
    shown = pool.roost("what-if", "-from", f"{began:.3f}", "-set", "NEGOTIATOR_SLOT_CONSTRAINT=false").stdout
    assert f"{name} (" in shown
    assert "would have waited more" in shown
    refused = pool.roost("what-if", "-from", "-1h", "-set", "GROUP_QUOTAS=1", ok=False)
    assert (refused.returncode, "looks at no knob of that name" in refused.stderr) == (1, True)


def test_cycles_leaders_series_and_events_of_the_contract(pool, tmp_path):
    for name in ("one.sub", "two.sub"):
        cluster = pool.queue(tmp_path, name, "executable = /bin/true\nqueue 2\n")
        pool.explained(f"{cluster}.1", lambda found: found["state"] == "completed")
    wait_until(lambda: len(pool.ask("cycles", limit=3)["cycles"]) == 3, 60, "cycles")
    first = pool.ask("cycles", limit=2)
    assert len(first["cycles"]) == 2
    assert first["cycles"][0]["at"] >= first["cycles"][1]["at"]
    assert pool.ask("cycles", limit=2, before=first["next"])["cycles"][0]["at"] < first["next"]
    one = first["cycles"][1]
    cycle = pool.ask(f"cycles/{one['negotiator']}/{one['epoch']}/{one['cycle']}")
    assert cycle["at"] == one["at"]
    assert {"reasons", "matched"} <= set(cycle)
    (change, *_) = pool.ask("leaders")["changes"]
    assert (change["state"], change["gap_s"]) == ("leader", 0.0)
    wait_until(lambda: pool.ask("series", name="slots", points=10)["series"], 60, "samples of slots")
    for name in ("slots", "cpus", "jobs", "waits", "shares", "utilisation"):
        series = pool.ask("series", name=name, points=10)
        assert len(series["times"]) == 10
        assert all(len(line) == 10 for line in series["series"].values())
    page = pool.ask("events", type="job.*", limit=2)
    assert len(page["events"]) == 2
    following = pool.ask("events", type="job.*", limit=2, after=page["next"])
    assert {event["id"] for event in page["events"]}.isdisjoint(event["id"] for event in following["events"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["99999.0"], "knows nothing of job 99999.0"),
        (["1.0", "-at", "soon"], "-at wants a time"),
        (["-user", "nobody-here"], "knows no submitter nobody-here"),
        ([], "name one job"),
        (["1.0", "-between", "-1h", "-2h"], "before it begins"),
        (["1.0", "-between", "-1h"], "-between wants two times"),
    ],
)
def test_what_can_not_be_explained_is_told_plainly(pool, words, said):
    done = pool.roost("explain", *words, ok=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@spec("TLS-06", "TLS-09")
def test_the_journal_is_a_daemon_of_the_pool_and_takes_orders(pool, tmp_path):
    """It is listed, reads its configuration again, and is off until it is on."""

    def listed() -> str:
        return pool.roost("status", "-any", "-af", "MyType", "JournalProblem", "MyAddress").stdout

    wait_until(lambda: "Journal  journal." in listed(), 60, "the journal's ad")
    config = pool.directory / "config"
    config.write_text(config.read_text().replace("ROOST_JOURNAL_SLOTS_INTERVAL = 1\n", "ROOST_JOURNAL_KEEP = 864000\n"))
    said = pool.roost("reconfig", "-all", "-journal").stdout
    assert "ROOST_JOURNAL_KEEP" in said
    pool.roost("off", "-all", "-journal", "-reason", "moving")
    wait_until(lambda: "DaemonMaster" in listed() and "Journal " not in listed(), 60, "a journal that is off")
    asked = pool.roost("explain", "1.0", ok=False)
    assert asked.returncode == 1
    assert "or is off (roost on -journal)" in asked.stderr
    cluster = pool.queue(tmp_path, "meanwhile.sub", "executable = /bin/true\nqueue\n")
    pool.wait_for_rest(cluster, 1)
    pool.roost("on", "-all", "-journal")
    wait_until(lambda: "Journal  journal." in listed(), 60, "the journal's ad again")
    found = pool.explained(f"{cluster}.0", lambda found: found["state"] == "completed")
    consistent(found)


def _domain(pool: JournalPool) -> str:
    with pool.client() as client:
        return client.whoami()["user"].partition("@")[2]
