"""`roost negotiate` against a whole pool: it says what the pool's negotiator then does, and does nothing itself."""

from __future__ import annotations

import json
import sys

import pytest

from shared.classad import ClassAd, parse_expr
from tests import warm
from tests.integration.inside import InsidePool
from tests.waiting import wait_until

GROUPS = "GROUP_NAMES = physics\nGROUP_QUOTA_physics = 1\nGROUP_ACCEPT_SURPLUS = false\n"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Three cores, and a negotiator that has a look at nobody's jobs."""
    directory = tmp_path_factory.mktemp("pool")
    (directory / "config").write_text(f"{GROUPS}NEGOTIATOR_JOB_CONSTRAINT = Wanted =?= true\n")
    inside = InsidePool(directory, NUM_CPUS="3")
    yield inside
    inside.close()


def submit(pool, count, **more):
    ad = ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "RequestCpus": 1, **more})
    ad["Requirements"] = parse_expr("TARGET.Cpus >= RequestCpus")
    with pool.client() as client:
        return client.submit(ad, [ClassAd()] * count).cluster


def negotiate(pool, *words):
    done = warm.run(
        [sys.executable, "-m", "roost", "negotiate", "-json", *words],
        env=pool.environment(),
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def waiting(pool):
    """Two jobs of the group, and two that no slot can run, which ask for more cores."""
    cluster = submit(pool, 2, AccountingGroup="physics.ada")
    hopeless = submit(pool, 2, RequestCpus=64)
    return cluster, hopeless


def statuses(pool, cluster):
    with pool.client() as client:
        return sorted(int(ad.eval("JobStatus")) for ad in client.jobs(str(cluster), projection=["JobStatus"]))


def test_the_pools_own_configuration_counts_and_set_changes_it(pool, waiting):
    cluster, hopeless = waiting
    as_it_is = negotiate(pool)
    assert as_it_is["config"]["files"] == [str(pool.directory / "config")]
    asking = [one["submitter"] for one in as_it_is["submitters"] if one["asked"]]
    assert (as_it_is["jobs"], as_it_is["matches"], asking) == ({"asked": 0, "matched": 0}, [], [])
    everybody = negotiate(pool, "-set", "NEGOTIATOR_JOB_CONSTRAINT=")
    assert [one["job"] for one in everybody["matches"]] == [f"{cluster}.0"]
    assert {one["job"]: one["jobs"] for one in everybody["rejections"]} == {f"{cluster}.1": 1, f"{hopeless}.0": 2}
    more = negotiate(pool, "-set", "NEGOTIATOR_JOB_CONSTRAINT=", "-set", "GROUP_QUOTA_physics=2")
    assert [one["job"] for one in more["matches"]] == [f"{cluster}.0", f"{cluster}.1"]
    assert statuses(pool, cluster) == [1, 1]  # all of it on paper


def test_priorities_are_the_pools(pool, waiting):
    with pool.client() as client:
        (domain,) = {str(ad.eval("User")).partition("@")[2] for ad in client.jobs(str(waiting[0]))}
        name = f"physics.ada@{domain}"
        client.set_priority(name, "factor", 70.0)
    ada = {one["submitter"]: one for one in negotiate(pool, "-set", "NEGOTIATOR_JOB_CONSTRAINT=")["submitters"]}[name]
    assert (ada["factor"], ada["priority"], ada["group"]) == (70.0, 35.0, "physics")


def test_slots_of_a_file_and_jobs_of_the_pool(pool, waiting, tmp_path):
    file = tmp_path / "slots.ads"
    file.write_text(
        'Name = "big@file"\nState = "Unclaimed"\nCpus = 64\nMemory = 1000\nSlotWeight = 1\nRequirements = true\n'
    )
    found = negotiate(pool, "-slotads", str(file), "-set", "NEGOTIATOR_JOB_CONSTRAINT=RequestCpus > 1")
    assert [(one["job"], one["slot"]) for one in found["matches"]] == [(f"{waiting[1]}.0", "big@file")]


def test_the_pool_then_does_as_was_said(pool):
    """Three jobs that the negotiator passes over, on paper let in; then three such jobs that it looks at."""
    unseen = submit(pool, 3, AccountingGroup="physics.eve")
    foreseen = negotiate(pool, "-set", f"NEGOTIATOR_JOB_CONSTRAINT=ClusterId == {unseen}")
    assert [one["job"] for one in foreseen["matches"]] == [f"{unseen}.0"]
    assert [(one["job"], one["jobs"]) for one in foreseen["rejections"]] == [(f"{unseen}.1", 2)]
    assert foreseen["matches"][0]["submitter"].startswith("physics.eve@")
    seen = submit(pool, 3, AccountingGroup="physics.eve", Wanted=True, Cmd="/bin/sleep", Args="600")

    def of(proc, name):
        with pool.client() as client:
            (ad,) = client.jobs(f"{seen}.{proc}", projection=[name])
        return ad.eval(name)

    wait_until(lambda: of(0, "JobStatus") == 2, 60, "the first job to run")
    wait_until(lambda: isinstance(of(1, "LastRejMatchReason"), str), 60, "the second one to be refused")
    assert statuses(pool, seen) == [1, 1, 2]
    assert statuses(pool, unseen) == [1, 1, 1]
    with pool.client() as client:
        claimed = 'State == "Claimed"'
        wait_until(lambda: any(client.ads("Machine", constraint=claimed)), 60, "the collector to hear of the claim")
        held = negotiate(pool, "-set", f"NEGOTIATOR_JOB_CONSTRAINT=ClusterId == {seen}")
        assert held["matches"] == []
        (refusal,) = held["rejections"]
        client.reschedule()
        wait_until(lambda: of(1, "LastRejMatchReason") == refusal["reason"], 60, "a cycle that says the same")
        client.act("remove", [str(seen)])
