"""Under whose name a job is charged, from the submit file to the request list (ACC-01, ACC-13, ACC-19,
ACC-20)."""

import pytest

from engine.fairshare.priorities import Factors, choose_factor
from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, JobStatus
from engine.queue.submitters import submitter_of
from roost.cli.main import main
from services.schedd.core.acceptance import accept_cluster
from services.schedd.io.submission import make_job
from shared.classad import ClassAd, parse_ads
from tests.spec import spec

NOW = 1000.0


@pytest.fixture
def submit(tmp_path, monkeypatch, capsys):
    """The ad of a cluster that `user` submits with these lines, as the schedd takes it, and the submitter's name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sh").write_text("#!/bin/sh\n")

    def take(user, *lines, cluster=1):
        (tmp_path / "job.sub").write_text("\n".join(["executable = x.sh", *lines, "queue", ""]))
        assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
        written = capsys.readouterr().out.partition("ClusterId=")[2].partition("\n")[2].partition("\nProcId=")[0]
        made = next(iter(parse_ads(written, "old")))
        ad = accept_cluster(made, user=user, cluster=cluster, now=NOW, spool=False).ad
        return ad, submitter_of(ad, user)

    return take


@spec("ACC-01")
def test_the_same_user_at_several_access_points_is_one(submit):
    assert submit("alice@pool")[1] == "alice@pool"
    assert submit("alice@elsewhere")[1] == "alice@elsewhere"


@spec("ACC-19")
def test_accounting_group_user_changes_who_is_charged_and_nothing_else(submit):
    ad, name = submit("alice@pool", "accounting_group_user = ishmael")
    assert name == "ishmael@pool"
    assert (ad.eval("Owner"), ad.eval("User")) == ("alice", "alice@pool")
    ad, name = submit("alice@pool", "accounting_group = group_physics", "accounting_group_user = einstein")
    assert name == "group_physics.einstein@pool"
    assert ad.eval("Owner") == "alice"


@spec("ACC-13")
def test_nice_users_are_charged_in_a_group_of_their_own(submit):
    ad, name = submit("alice@pool", "nice_user = true", "accounting_group_user = alice")
    assert name == "nice-user.alice@pool"
    assert choose_factor(name, Factors()) == 1e10
    assert ad.eval("MaxJobRetirementTime") == 0


@spec("ACC-20", "W-17")
def test_jobs_under_one_name_run_in_the_order_of_their_submits(submit):
    """Alice's 100 jobs and Bob's as ishmael: one list, alice's first; without it there are two."""
    table = JobTable(Autoclusters())
    for number, user in ((1, "alice@pool"), (2, "bob@pool"), (3, "alice@pool"), (4, "bob@pool")):
        lines = ["accounting_group_user = ishmael"] if number < 3 else []
        ad, name = submit(user, *lines, cluster=number)
        cluster = Cluster(number, user.partition("@")[0], user, name, int(NOW), ad)
        jobs = [make_job(cluster, proc, ClassAd().pack(), JobStatus.IDLE, 0, name) for proc in range(100)]
        table.add(cluster, jobs)
    assert set(table.idle) == {"ishmael@pool", "alice@pool", "bob@pool"}
    shared = [key for key, _ in table.idle["ishmael@pool"].keys()]  # noqa: SIM118  not a mapping
    assert [cluster for _, cluster, _ in shared] == [1] * 100 + [2] * 100
    runs, _ = table.idle["ishmael@pool"].runs(1000)
    assert [run.count for run in runs] == [200]  # their requirements are the same: one request
    assert [table.idle[name].total for name in ("alice@pool", "bob@pool")] == [100, 100]
