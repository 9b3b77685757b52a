"""What the ads of factories (late materialization) come to, and how a submit makes them."""

import re

import pytest

from roost.consumer.snapshot import SnapshotCut
from roost.consumer.source import Received
from roost.events import JobRemoved, JobsSubmitted
from roost.late_materialization import goes_on, is_given, story, unfinished
from roost.submit import Description, here
from roost.submit.description import make_factory, materialize_at_once
from shared.classad import ClassAd


def factory(**more):
    known = {
        "ClusterId": 12,
        "JobMaterializeItemCount": 100_000,
        "JobMaterializeNextProcId": 4000,
        "JobMaterializePaused": 0,
        "JobMaterializeLimit": 1000,
        "JobsPresent": 1000,
        "JobsIdle": 700,
        "JobsHeld": 0,
    }
    return ClassAd({**known, **more})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, r"1,000 are in the queue, as many as JobMaterializeLimit \(max_materialize\) = 1,000 allows"),
        (
            {"JobsPresent": 900, "JobMaterializeMaxIdle": 700},
            r"700 are idle or held, as many as JobMaterializeMaxIdle \(max_idle\) = 700 allows",
        ),
        ({"JobsPresent": 900}, "MAX_JOBS_PER_OWNER"),
        ({"JobMaterializePaused": 1, "JobMaterializePauseReason": "by me"}, "on hold: by me. .*roost release 12"),
        ({"JobMaterializePaused": -1, "JobMaterializePauseReason": "torn"}, "can not be materialized: torn"),
    ],
)
def test_it_is_said_how_many_jobs_are_not_materialized_yet_and_why(more, why):
    ad = factory(**more)
    assert story(ad).startswith("Cluster 12: not materialized yet: 96,000 of 100,000 jobs. ")
    assert re.search(why, story(ad))
    assert goes_on(ad) is (not more.get("JobMaterializePaused"))


@pytest.mark.parametrize("more", [{"JobMaterializePaused": 2}, {"JobMaterializePaused": 3}, {"ProcId": 0}])
def test_nothing_is_left_of_what_is_over_or_a_job(more):
    assert (unfinished(factory(**more)), goes_on(factory(**more)), story(factory(**more))) == (0, False, "")


def test_which_jobs_were_given():
    assert [is_given(factory(), proc) for proc in ("0", "3999", "4000", "99999", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def clusters(text):
    (cluster,) = Description(f"executable = /bin/true\n{text}", here("x.sub"), now=1.0).clusters()
    return cluster


def test_a_submit_with_factory_gets_a_limit_of_all_its_jobs():
    cluster = clusters("queue 7\n")
    make_factory(cluster)
    assert cluster.ad["JobMaterializeLimit"] == 7
    cluster = clusters("max_idle = 2\nqueue 7\n")
    make_factory(cluster)
    assert "JobMaterializeLimit" not in cluster.ad


def test_spooled_jobs_with_files_of_their_own_are_all_queued():
    cluster = clusters("max_idle = 2\nmax_materialize = 3\nqueue 7\n")
    assert "All are queued at once" in materialize_at_once(cluster)
    assert not {"JobMaterializeLimit", "JobMaterializeMaxIdle"} & set(cluster.ad)
    assert materialize_at_once(cluster) == ""


# Followers of events


def seen(*procs):
    cut = SnapshotCut()
    for proc in procs:
        cut.job(ClassAd({"ClusterId": 3, "ProcId": proc, "GlobalJobId": f"ap#3.{proc}#1", "RoostReadAt": 10.0}))
    return cut


def got(event):
    return Received("x", event, "schedd.ap")


def batch(first, count, at=11.0):
    return got(JobsSubmitted(at=at, schedd="ap", owner="a", submitter="a@p", cluster=3, first_proc=first, count=count))


def removed(proc, at):
    about = {"at": at, "schedd": "ap", "job_id": f"3.{proc}", "owner": "a", "submitter": "a@p"}
    return got(JobRemoved(**about, reason=""))


def test_a_later_batch_of_a_cluster_in_the_snapshot_is_news():
    cut = seen(0, 1, 2)
    assert not cut.is_news(batch(0, 3))
    assert not cut.is_news(batch(2, 1))
    assert cut.is_news(batch(3, 2))
    # What happened before the snapshot to the jobs it was made with is none, though the cluster was told of.
    assert not cut.is_news(removed(1, at=9.0))
    assert not cut.is_news(removed(2, at=9.0))
    assert cut.is_news(removed(4, at=9.5))
    assert cut.is_news(removed(1, at=12.0))


def test_a_batch_of_which_the_snapshot_has_a_part_is_read_again():
    cut = seen(5, 6)
    assert cut.incomplete([batch(3, 3), batch(6, 4), batch(10, 2)]) == [("ap", 3)]
