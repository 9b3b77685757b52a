"""`roost analyze` against a whole pool: jobs that are alike are told of once, by the negotiator that decides."""

from __future__ import annotations

import json
import sys

import pytest

from roost.errors import ClientError
from shared.classad import ClassAd, parse_expr
from tests import warm
from tests.integration.inside import InsidePool
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"))
    yield inside
    inside.close()


def submit(pool, requirements, count=1, **more):
    ad = ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "RequestCpus": 1, **more})
    ad["Requirements"] = parse_expr(requirements)
    with pool.client() as client:
        return client.submit(ad, [ClassAd()] * count).cluster


@pytest.fixture(scope="module")
def waiting(pool):
    """A cluster of five jobs that ask for more memory than there is, rejected by a cycle."""
    cluster = submit(pool, "TARGET.Memory >= RequestMemory", 5, RequestMemory=999_999)

    def rejected():
        with pool.client() as client:
            return any(ad.eval("LastRejMatchReason") for ad in client.jobs(str(cluster)) if "LastRejMatchReason" in ad)

    wait_until(rejected, 60, "a rejection")
    return cluster


def roost(pool, *words):
    return warm.run(
        [sys.executable, "-m", "roost", *words],
        env=pool.environment(),
        timeout=100,
    )


def test_jobs_that_are_alike_are_told_of_once(pool, waiting):
    with pool.client() as client:
        found = client.analysis(str(waiting))
    (report,) = found["jobs"]
    assert (report["job"], report["also"], report["state"]) == (f"{waiting}.0", 4, "idle")
    assert (report["capacity"], report["outcomes"]) == (0, {"job-requirements": report["slots"]})
    assert report["suggestions"][0]["changes"][0] | {"to": "", "was": ""} == {
        "action": "set",
        "what": "RequestMemory",
        "to": "",
        "was": "",
    }
    assert int(report["suggestions"][0]["changes"][0]["to"]) <= 4096
    assert report["last"]["reason"]
    assert (found["slots"], found["more"]) == ([], 0)
    with pool.client() as client:
        everybody = client.analysis()
        assert report["job"] in [one["job"] for one in everybody["jobs"]]
        assert client.analysis(constraint="RequestMemory > 999998")["jobs"][0]["job"] == report["job"]


def test_the_cycles_word_comes_with_its_code_for_every_job_of_the_request(pool, waiting):
    with pool.client() as client:
        (report,) = client.analysis(f"{waiting}.3")["jobs"]
    assert report["last"]["code"]
    assert report["last"]["at"] > 0


def test_the_suggestion_is_true(pool, waiting):
    with pool.client() as client:
        amount = int(client.analysis(str(waiting))["jobs"][0]["suggestions"][0]["changes"][0]["to"])
        cluster = submit(pool, "TARGET.Memory >= RequestMemory", 1, RequestMemory=amount)
        client.wait([f"{cluster}.0"], timeout=60)
        (report,) = client.analysis(str(cluster))["jobs"]
        assert (report["state"], report["verdict"]) == ("completed", "It is completed with exit code 0.")


def test_held_jobs_and_jobs_of_several_kinds(pool, waiting):
    held = submit(pool, "true", 2, JobStatus=5, HoldReason="by hand")
    with pool.client() as client:
        reports = client.analysis(str(waiting), str(held))["jobs"]
        assert sorted((r["job"], r["state"], r["also"]) for r in reports) == sorted(
            [(f"{waiting}.0", "idle", 4), (f"{held}.0", "held", 1)]
        )
        few = client.analysis(str(waiting), str(held), limit=1)
        assert (len(few["jobs"]), few["more"]) == (1, 1)
        client.act("remove", [str(held)])


def test_what_a_machine_would_take(pool, waiting):
    with pool.client() as client:
        slots = [str(ad.eval("Name")) for ad in client.ads("Machine", projection=["Name", "PartitionableSlot"])]
        found = client.analysis(machine=slots[0])
        assert [one["slot"] for one in found["slots"]] == [slots[0]]
        (request,) = [one for one in found["slots"][0]["requests"] if one["job"] == f"{waiting}.0"]
        assert (request["count"], request["fits"], request["side"]) == (5, False, "job")
        (report,) = client.analysis(str(waiting), machine=slots[0])["jobs"]
        assert report["slots"] == 1


@pytest.fixture
def busy(pool):
    """A cluster of two jobs that use up the machine's cpus."""
    ad = {"Cmd": "/bin/sleep", "Args": "600", "RequestMemory": 128}
    cluster = submit(pool, "TARGET.Cpus >= RequestCpus", 2, **ad)
    with pool.client() as client:
        try:
            wait_until(lambda: set(client.wait_states([str(cluster)]).values()) == {2}, what="both jobs to run")
            yield cluster
        finally:
            client.act("remove", [str(cluster)])


def test_a_machine_that_is_in_use_is_short_of_something(pool, busy):
    """The slot is partitionable: what is left of it is too little, and it is told who has the rest."""
    late = submit(pool, "TARGET.Cpus >= RequestCpus", 1, RequestMemory=128)
    with pool.client() as client:

        def report():
            return client.analysis(f"{late}.0")["jobs"][0]

        wait_until(lambda: sum(report()["users"].values()) == 2, what="the slot's ads")
        found = report()
        assert found["outcomes"] == {"in-use": 1, "claimed": 2}
        (short,) = found["short"]
        assert (short["name"], short["asked"], short["whole"], short["free"]) == ("Cpus", 1, 2, 0)
        assert found["verdict"] == "It waits for a cpu: 2 of 2 are claimed."
        assert found["blocked_by"] == ["in-use"]
        assert found["suggestions"] == []
        (now,) = client.analysis(f"{busy}.0")["jobs"]
        assert (now["state"], now["also"]) == ("running", 0)
        assert now["verdict"].startswith("It is running on slot1_")
        client.act("remove", [str(late)])


@pytest.mark.parametrize(
    ("question", "code", "says"),
    [
        ({"ids": ["999999"]}, "not-found", "no job 999999 in the queue and history of"),
        ({"machine": "nowhere"}, "not-found", "no slot or machine 'nowhere'"),
        ({"schedd": "nowhere"}, "bad-request", "no schedd nowhere"),
        ({"negotiator": "nowhere"}, "bad-request", "no negotiator nowhere"),
        ({"constraint": "((("}, "bad-request", "constraint"),
    ],
)
def test_what_is_not_there(pool, question, code, says):
    with pool.client() as client, pytest.raises(ClientError, match=says) as refused:
        client.analysis(*question.pop("ids", ()), **question)
    assert refused.value.code == code


def test_the_command(pool, waiting):
    told = roost(pool, "analyze", str(waiting))
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"Job {waiting}.0 (and 4 more like it): idle\n")
    assert "The last negotiation cycle at " in told.stdout
    assert "What would help" in told.stdout
    condors = roost(pool, "q", "-better-analyze", str(waiting)).stdout
    assert condors.startswith("\n\n-- Schedd: ")
    assert f"\nThe Requirements expression for job {waiting}.000 is\n\n" in condors
    assert f"\n{waiting:03}.000:  Run analysis summary ignoring user priority.  Of " in condors
    assert json.loads(roost(pool, "analyze", str(waiting), "-json").stdout)["jobs"][0]["also"] == 4
    lost = roost(pool, "analyze", "999999.7")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert lost.stderr.startswith("roost: there is no job 999999.7 in the queue")
    nowhere = roost(pool, "analyze", "-machine", "nowhere", "-json")
    assert nowhere.returncode == 1
    assert json.loads(nowhere.stderr)["error"]["code"] == "not-found"


def test_slots_of_a_file_and_jobs_of_the_pool(pool, waiting, tmp_path):
    slots = tmp_path / "slots.ads"
    slots.write_text('Name = "slot1@big"\nMemory = 2000000\nRequirements = true\n')
    told = roost(pool, "analyze", str(waiting), "-slotads", str(slots), "-summary")
    assert told.stdout.splitlines()[0].startswith(f"{waiting}.0: 1 slot could run it now")
