"""Several queue statements of a parallel job: one job in the queue, and a proc each where condor_submit shows them."""

import pytest

from roost.submit import Description, dry_run, here

TEXT = """universe = parallel
executable = /bin/sh
transfer_executable = false
arguments = first $(Node)
machine_count = 1
queue
{more}
machine_count = 2
queue
"""


def clusters_of(tmp_path, more):
    return list(Description(TEXT.format(more=more), here(str(tmp_path / "job.sub")), now=100.0).clusters())


def test_they_are_one_job_whose_machines_are_in_groups(tmp_path):
    (cluster,) = clusters_of(tmp_path, "arguments = worker $(Node)\nrequest_cpus = 2\nrequirements = true")
    assert cluster.not_run == ""
    ad = cluster.ad
    assert [ad.eval(name) for name in ("MinHosts", "MaxHosts", "NodeGroups")] == [3, 3, "1,2"]
    assert [ad.eval(name) for name in ("Args", "NodeGroup1_Args")] == ["first #pArAlLeLnOdE#", "worker #pArAlLeLnOdE#"]
    assert [ad.eval(name) for name in ("RequestCpus", "NodeGroup1_RequestCpus")] == [1, 2]
    assert {name for name in ad if name.startswith("NodeGroup1_")} <= {
        *("NodeGroup1_Args", "NodeGroup1_RequestCpus", "NodeGroup1_Requirements"),
    }
    assert [dict(one) for one in cluster.jobs()] == [{}]
    told = list(dry_run.lines(cluster, 1, 100.0))
    assert [line for line in told if line.startswith(("ProcId", "MaxHosts"))] == [
        *("MaxHosts=1", "ProcId=0", "ProcId=1", "MaxHosts=2"),
    ]


@pytest.mark.parametrize(
    ("more", "what"), [("priority = 5", "JobPrio"), ('+Mine = "x"', "Mine"), ("log = other", "UserLog")]
)
def test_what_is_the_jobs_is_said_alike(tmp_path, more, what):
    (cluster,) = clusters_of(tmp_path, more)
    assert f"{what} is the job's" in cluster.not_run


def test_another_executable_is_another_cluster(tmp_path):
    assert len(clusters_of(tmp_path, "executable = /bin/true")) == 2
