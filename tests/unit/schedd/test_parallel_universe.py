"""Parallel jobs: what the end of a node means for the whole, and that jobs which hold what others lack do not wait for
each other for ever."""

import random

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import BadSubmit, Cluster, Job, JobId, JobStatus
from engine.queue.parallel import count_of
from services.schedd.core.parallel_universe import (
    Ending,
    NodeEnd,
    ParallelRun,
    exit_of,
    gives_back_at,
    on_node_end,
    on_not_taken,
    pause_s,
    settle,
    stop_of,
    usage_of,
)
from shared.classad import UNDEFINED, ClassAd
from shared.messages.claims import JobExit, Usage
from tests.scheddpool import job_ad
from tests.spec import spec

JOB = JobId(7, 0)
GOOD = NodeEnd(JobExit(reason="exited", exit_code=0))


def run_of(size=3, *, taken=True, **more):
    run = ParallelRun(JOB, 1, 100.0, [f"slot{n}@ep" for n in range(size)], **more)
    run.taken = set(range(size)) if taken else set()
    return run


def exited(code):
    return NodeEnd(JobExit(reason="exited", exit_code=code))


# The table


def table_with(nodes=3, **attributes):
    table = JobTable(Autoclusters())
    ad = job_ad(JobUniverse=11, MinHosts=nodes, MaxHosts=nodes, **attributes)
    cluster = Cluster(7, "alice", "alice@pool", "alice@pool", 0, ad)
    own = ClassAd({"JobStatus": 1})
    own.chain(ad)
    job = Job(cluster, 0, own, JobStatus.IDLE, 0, "alice@pool")
    table.add(cluster, [job])
    return table, job


def test_each_node_is_asked_for_and_the_job_counts_once():
    table, job = table_with(3)
    assert (table.total, table.totals()["Idle"]) == (1, 1)
    idle = table.idle["alice@pool"]
    assert idle.total == 3
    assert [run.count for run in idle.runs(10)[0]] == [3]
    first = table.at(idle.first(job.autocluster))
    assert (first.whole, first.node, str(first.id), first.queued_id) == (job, 0, "7.0.0", job.id)
    assert table.get(JobId.of_run("7.0.2")) is job.nodes[2]
    assert table.get(JobId(7, 0, 3)) is None
    assert table.check_invariants() == []


def test_a_node_with_a_claim_is_not_asked_for_again():
    table, job = table_with(3)
    job.nodes[0].waits_for = "claim"
    table.refresh(job.nodes[0])
    assert table.idle["alice@pool"].total == 2
    table.set_status(job, JobStatus.HELD, 5.0)
    assert table.idle["alice@pool"].total == 0
    table.set_status(job, JobStatus.IDLE, 6.0)
    assert table.idle["alice@pool"].total == 2
    assert table.check_invariants() == []


def test_nodes_have_their_number_where_it_was_written_and_follow_edits():
    table, job = table_with(2, Out="out.#pArAlLeLnOdE#", Args="-n #pArAlLeLnOdE# of 2")
    assert [node.ad.eval("Out") for node in job.nodes] == ["out.0", "out.1"]
    assert job.nodes[1].ad.eval("Args") == "-n 1 of 2"
    assert [node.ad.eval("Node") for node in job.nodes] == [0, 1]
    job.ad["Out"] = "other.#pArAlLeLnOdE#"
    table.changed(job, priority=5, submitter="alice@pool")
    assert [node.ad.eval("Out") for node in job.nodes] == ["other.0", "other.1"]
    assert table.idle["alice@pool"].first(job.nodes[0].autocluster) == (-5, 7, 0, 0)
    assert table.check_invariants() == []


GROUPED = {"NodeGroups": "1,2", "NodeGroup1_RequestCpus": 2, "NodeGroup1_Args": "worker #pArAlLeLnOdE#"}


def test_machines_of_several_queue_statements_ask_for_what_is_theirs():
    table, job = table_with(3, Args="first #pArAlLeLnOdE#", Rank=5, **GROUPED)
    told = [[node.ad.eval(name) for name in ("Node", "RequestCpus", "Args", "Rank")] for node in job.nodes]
    assert told == [[0, 1, "first 0", 5], [1, 2, "worker 1", 5], [2, 2, "worker 2", 5]]
    first, second = (node.autocluster for node in job.nodes[:2])
    assert first != second == job.nodes[2].autocluster
    job.ad.update({"Args": "edited", "NodeGroup1_Args": "too"})
    table.changed(job, priority=0, submitter="alice@pool")
    assert [node.ad.eval("Args") for node in job.nodes] == ["edited", "too", "too"]
    assert table.check_invariants() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"NodeGroups": "1,3"}, "3 machines together"),
        ({"NodeGroups": "3,0"}, "3 machines together"),
        ({"NodeGroups": "1,x,2"}, "3 machines together"),
        ({"NodeGroups": 3}, "3 machines together"),
        ({"NodeGroups": UNDEFINED}, "no such group"),
        ({"NodeGroup2_Args": "x"}, "no such group"),
        ({"NodeGroup01_Args": "x"}, "no such group"),
        ({"NodeGroup1_Owner": "root"}, "it is the job's"),
        ({"NodeGroup1_AccountingGroup": "other"}, "it is the job's"),
        ({"NodeGroup1_JobPrio": 9}, "it is the job's"),
    ],
)
def test_groups_of_machines_that_are_none_are_refused(wrong, said):
    with pytest.raises(BadSubmit, match=said):
        count_of(ClassAd({"MinHosts": 3, "MaxHosts": 3, **GROUPED, **wrong}))


def test_what_a_group_may_not_say_counts_for_nothing():
    """However it came into the queue."""
    _, job = table_with(3, **GROUPED, NodeGroup1_JobPrio=9)
    assert [node.ad.eval("JobPrio") for node in job.nodes] == [job.ad.eval("JobPrio")] * 3


@pytest.mark.parametrize("hosts", [(0, 0), (2, 3), (-1, -1), (1001, 1001), ("two", "two"), (True, True)])
def test_a_job_whose_number_of_machines_makes_no_sense_is_refused(hosts):
    with pytest.raises(BadSubmit, match=r"(MinHosts|MaxHosts)"):
        count_of(ClassAd({"MinHosts": hosts[0], "MaxHosts": hosts[1]}))


@pytest.mark.parametrize(
    ("text", "found"), [("12.0", (12, 0, -1)), ("12.0.7", (12, 0, 7)), ("12", (12, -1, -1)), ("12.0.0", (12, 0, 0))]
)
def test_a_run_goes_by_job_and_node(text, found):
    assert tuple(JobId.of_run(text)) == found
    assert str(JobId.of_run("12.0.7")) == "12.0.7"


@pytest.mark.parametrize("text", ["12.0.-1", "12.0.1.2", "12..1", "a.0.1", "12.0.x", "", "12.0.1234567890"])
def test_what_is_no_run_is_said_to_be_none(text):
    with pytest.raises(ValueError, match="is no"):
        JobId.of_run(text)
    with pytest.raises(ValueError, match="is no"):
        JobId.parse("12.0.1")  # users name jobs


# Ends


def test_the_job_is_over_with_node_0():
    run = run_of()
    on_node_end(run, 1, exited(5))
    settle(run, wait_for_all=False)
    assert run.ending is Ending.NO
    on_node_end(run, 0, exited(3))
    settle(run, wait_for_all=False)
    assert (run.ending, run.is_over, stop_of(run)) == (Ending.DONE, False, ("remove", "fast"))
    on_node_end(run, 2, NodeEnd(JobExit(reason="killed")))
    assert run.is_over
    assert exit_of(run, wait_for_all=False).exit_code == 3


def test_the_job_is_over_with_all_nodes_where_it_wants_that():
    run = run_of()
    for node, code in ((0, 3), (2, 1)):
        on_node_end(run, node, exited(code))
        settle(run, wait_for_all=True)
        assert run.ending is Ending.NO
    on_node_end(run, 1, exited(0))
    settle(run, wait_for_all=True)
    assert (run.ending, run.is_over) == (Ending.DONE, True)
    assert exit_of(run, wait_for_all=True).exit_code == 3


@spec("SUB-15")
def test_a_run_that_did_not_begin_everywhere_is_not_done():
    run = run_of(2, taken=False)
    run.taken = {0}
    on_node_end(run, 0, GOOD)
    settle(run, wait_for_all=False)
    assert run.ending is Ending.NO
    on_not_taken(run, 1, NodeEnd(JobExit(reason="failed", message="the startd is gone")))
    settle(run, wait_for_all=False)
    assert (run.ending, run.is_over) == (Ending.NOT_STARTED, True)
    assert exit_of(run, wait_for_all=False).message == "node 1 of 2, on slot1@ep: the startd is gone"


@pytest.mark.parametrize(
    ("exit_", "counts", "reason"),
    [
        (JobExit(reason="evicted", message="preempted"), True, "evicted"),
        (JobExit(reason="killed"), True, "evicted"),
        (JobExit(reason="failed", message="no disk"), True, "failed"),
        (JobExit(reason="hold", message="too large", hold_code=34), True, "hold"),
        (JobExit(reason="exited", exit_code=0), False, "failed"),
    ],
)
def test_a_node_that_comes_to_nothing_ends_the_run_of_all(exit_, counts, reason):
    run = run_of()
    on_node_end(run, 2, NodeEnd(exit_), counts=counts)
    settle(run, wait_for_all=False)
    assert (run.ending, run.by, stop_of(run)) == (Ending.FAILED, 2, ("vacate", "fast"))
    on_node_end(run, 0, GOOD)  # it was done before it heard: the job runs again all the same
    on_node_end(run, 1, NodeEnd(JobExit(reason="evicted")))
    found = exit_of(run, wait_for_all=False)
    assert (run.is_over, found.reason, found.exit_code) == (True, reason, None)
    assert found.hold_code == exit_.hold_code
    assert found.message.startswith("node 2 of 3, on slot2@ep: ")


@pytest.mark.parametrize(("stop", "reason"), [("remove", "killed"), ("hold", "killed"), ("vacate", "evicted")])
def test_a_run_that_was_told_to_leave(stop, reason):
    run = run_of(2, ending=Ending.STOPPED, stop=stop, how="graceful")
    assert stop_of(run) == (stop, "graceful")
    for node in range(2):
        on_node_end(run, node, NodeEnd(JobExit(reason="killed")))
    assert exit_of(run, wait_for_all=False).reason == reason


def test_a_vacated_run_whose_node_0_was_done_already_is_done():
    run = run_of(2, ending=Ending.STOPPED, stop="vacate")
    on_node_end(run, 0, exited(4))
    on_node_end(run, 1, NodeEnd(JobExit(reason="evicted")))
    assert exit_of(run, wait_for_all=False).exit_code == 4
    assert exit_of(run, wait_for_all=True).reason == "evicted"


def test_use_is_that_of_all_nodes():
    run = run_of(2)
    run.over[0] = NodeEnd(JobExit(reason="exited"), Usage(user_cpu_s=1.5, memory_mib=10, bytes_sent=1))
    run.over[1] = NodeEnd(JobExit(reason="exited"), Usage(user_cpu_s=2.0, memory_mib=30, bytes_sent=2))
    assert usage_of(run) == Usage(user_cpu_s=3.5, memory_mib=30, bytes_sent=3)


def test_what_is_stored_is_what_was():
    run = run_of(2, ending=Ending.STOPPED, stop="hold", how="fast", began=7.5, by=1)
    run.executing = {1}
    run.over[1] = NodeEnd(JobExit(reason="hold", message="no", hold_code=3), Usage(memory_mib=4), 8.25, 1.5)
    assert ParallelRun.unpack(run.pack()) == run


# Machines that are too few


def test_jobs_of_equal_age_do_not_give_back_at_the_same_time():
    times = {gives_back_at("ap", JobId(n, 0), 0, 1000.0, 600.0) for n in range(100)}
    assert len(times) == 100
    assert min(times) >= 1600.0
    assert max(times) <= 1900.0
    assert gives_back_at("ap", JOB, 0, 0.0, 600.0) != gives_back_at("other", JOB, 0, 0.0, 600.0)
    assert all(15.0 <= pause_s("ap", JOB, tries, 600.0) <= 960.0 for tries in range(1, 20))


@spec("SUB-16")
@pytest.mark.parametrize("seed", range(30))
def test_all_parallel_jobs_run_in_the_end(seed):
    """Jobs of several access points on too few machines, which are handed out in any order: each gets all of its
    machines at some time, and runs once."""
    chance = random.Random(seed)
    machines = chance.randint(3, 8)
    wants = {(f"ap{n % 3}", JobId(n, 0)): chance.randint(1, machines) for n in range(chance.randint(2, 6))}
    free, now, timeout_s = machines, 0.0, 600.0
    had = dict.fromkeys(wants, 0)
    since, tries, asleep, ends = {}, dict.fromkeys(wants, 0), dict.fromkeys(wants, 0.0), {}
    done = []
    while len(done) < len(wants):
        now += 1.0
        assert now < 200_000, f"{sorted(set(wants) - set(done))} never ran"
        for job in [job for job, at in ends.items() if at <= now]:
            del ends[job]
            done.append(job)
            free += wants[job]
        waiting = [job for job in wants if job not in ends and job not in done]
        for job in waiting:
            if had[job] and now >= gives_back_at(*job, tries[job], since[job], timeout_s):
                tries[job] += 1
                free += had[job]
                had[job], asleep[job] = 0, now + pause_s(*job, tries[job], timeout_s)
        asking = [job for job in waiting for _ in range(wants[job] - had[job]) if asleep[job] <= now]
        chance.shuffle(asking)
        for job in asking[:free]:
            free -= 1
            had[job] += 1
            since.setdefault(job, now) if had[job] > 1 else since.update({job: now})
            if had[job] == wants[job]:
                ends[job], had[job] = now + chance.randint(1, 500), 0
    assert free == machines
    assert sorted(done) == sorted(wants)
