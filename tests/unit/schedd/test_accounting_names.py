"""Under whose name a job is charged, from the submit file to the request list (spec rows ACC-01, ACC-13, ACC-19,
ACC-20)."""

import pytest

from roost.cli.main import main
from services.negotiator.priorities import Factors, choose_factor
from services.schedd.acceptance import accept_cluster, submitter_of
from services.schedd.autoclusters import Autoclusters
from services.schedd.jobs import Cluster, JobStatus
from services.schedd.submission import make_job
from services.schedd.table import JobTable
from shared.classad import ClassAd, parse_ads

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


def test_the_same_user_at_several_access_points_is_one_ACC_01(submit):
    assert submit("alice@pool")[1] == "alice@pool"
    assert submit("alice@elsewhere")[1] == "alice@elsewhere"


def test_accounting_group_user_changes_who_is_charged_and_nothing_else_ACC_19(submit):
    ad, name = submit("alice@pool", "accounting_group_user = ishmael")
    assert name == "ishmael@pool"
    assert (ad.eval("Owner"), ad.eval("User")) == ("alice", "alice@pool")
    ad, name = submit("alice@pool", "accounting_group = group_physics", "accounting_group_user = einstein")
    assert name == "group_physics.einstein@pool"
    assert ad.eval("Owner") == "alice"


def test_nice_users_are_charged_in_a_group_of_their_own_ACC_13(submit):
    ad, name = submit("alice@pool", "nice_user = true", "accounting_group_user = alice")
    assert name == "nice-user.alice@pool"
    assert choose_factor(name, Factors()) == 1e10
    assert ad.eval("MaxJobRetirementTime") == 0


def test_jobs_under_one_name_run_in_the_order_of_their_submits_ACC_20_W_17(submit):
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
