"""What contradicts itself in a queue is found, and said in words."""

import asyncio

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import JobId, JobStatus, Shadow
from services.schedd.core.invariants import check_invariants
from services.schedd.io.queue_db import QueueDatabase
from tests.unit.schedd.test_decisions import cluster_of, job_of
from tests.unit.schedd.test_job_end import claim_of


class Held:
    """A queue of two jobs: 1.0 is idle, 1.1 runs on a claim."""

    def __init__(self):
        self.table = JobTable(Autoclusters())
        cluster = cluster_of("")
        self.idle, self.running = job_of(cluster, 0), job_of(cluster, 1)
        for job in (self.idle, self.running):
            job.submitter = "alice@p"
        self.table.add(cluster, [self.idle, self.running])
        self.claim = claim_of("Cpus = 2")
        self.run = Shadow(JobId(1, 1), 1, "token", True, 5.0, claim=self.claim.id)
        self.claim.shadow = self.running.shadow = self.run
        self.claim.granted = True
        self.table.set_status(self.running, JobStatus.RUNNING, 5.0)
        self.table.count("alice@p").weighted_running = 2.0
        self.claims = {self.claim.id: self.claim}
        self.by_claim_id = {self.claim.claim_id: self.claim}

    def violations(self):
        return check_invariants(self.table, self.claims, self.by_claim_id)


@pytest.fixture
def held():
    return Held()


def test_a_queue_that_agrees_with_itself_has_no_violations(held):
    assert held.violations() == []


def test_a_cooling_job_and_one_that_waits_for_a_claim_are_in_no_idle_queue(held):
    held.idle.cooling = True
    held.table.refresh(held.idle)
    assert held.violations() == []
    held.idle.cooling, held.idle.waits_for, held.claim.waits = False, held.claim.id, held.idle.id
    assert held.violations() == []


def test_jobs_that_are_not_sorted_anew_yet_violate_nothing(held):
    waiting = held.table.set_significant(["Memory"])
    assert held.violations() == []
    for job in waiting:
        held.table.refresh(job)
    assert held.violations() == []


def forget_the_claim(held):
    held.claims.clear()
    held.by_claim_id.clear()
    held.table.count("alice@p").weighted_running = 0.0


def forget_the_run(held):
    held.running.shadow = None


def give_the_claim_another_run(held):
    held.claim.shadow = Shadow(JobId(1, 1), 2, "token", True, 5.0, claim=held.claim.id)


def forget_the_id_of_the_startd(held):
    held.by_claim_id["another"] = held.claim


def keep_a_dropped_claim_by_its_id(held):
    held.by_claim_id["gone"] = claim_of("Cpus = 2")


def hold_without_telling_the_table(held):
    held.idle.status = JobStatus.HELD


def lose_the_place_in_the_idle_queue(held):
    held.idle.idle_key = None


def leave_the_idle_queue_behind_ones_back(held):
    held.table.idle["alice@p"].remove(held.idle.autocluster, held.idle.idle_key)


def change_the_priority_without_sorting(held):
    held.idle.priority = 7


def wait_for_a_claim_that_is_not_there(held):
    held.table.withdraw(held.idle)
    held.idle.waits_for = "c9"


def have_a_claim_for_nothing(held):
    held.claims["c2"] = claim = claim_of("Cpus = 1")
    claim.id = "c2"


def miscount_the_weight(held):
    held.table.count("alice@p").weighted_running = 3.0


def miscount_all(held):
    held.table.total = 3


def miscount_the_user(held):
    held.table.per_user.clear()


def miscount_the_cluster(held):
    held.idle.cluster.waiting = 2


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (forget_the_claim, "the run of job 1.1 is on a claim that is not there"),
        (forget_the_run, "job 1.1 is Running without a run"),
        (give_the_claim_another_run, "the run of job 1.1 is on claim c1 of slot1@ep, which has another run"),
        (forget_the_id_of_the_startd, "claim c1 of slot1@ep is found by the id of another"),
        (keep_a_dropped_claim_by_its_id, "claim c1 of slot1@ep is gone, but is still found by the id of its startd"),
        (hold_without_telling_the_table, "job 1.0 is Held and may not start, but an idle queue has it"),
        (hold_without_telling_the_table, "alice@p: 1 jobs are counted as Idle, 0 are there"),
        (lose_the_place_in_the_idle_queue, "job 1.0 may start, but no idle queue has it"),
        (leave_the_idle_queue_behind_ones_back, "job 1.0 does not stand in the idle queue of alice@p where it says"),
        (change_the_priority_without_sorting, "job 1.0 does not stand in the idle queue of alice@p where it says"),
        (wait_for_a_claim_that_is_not_there, "job 1.0 waits for claim c9, which does not wait for it"),
        (have_a_claim_for_nothing, "claim c2 of slot1@ep has no run and waits for none"),
        (miscount_the_weight, "alice@p: runs of weight 3.0 are counted, 2.0 are there"),
        (miscount_all, "3 jobs are counted in all, 2 are there"),
        (miscount_the_user, "jobs of users: {} are counted, {'alice@p': 2} are there"),
        (miscount_the_cluster, "cluster 1: 2 idle and held jobs are counted, 1 are there"),
    ],
)
def test_a_contradiction_is_found_and_said_in_words(held, break_it, said):
    break_it(held)
    assert said in held.violations()


async def test_what_is_changed_and_not_written_is_found(tmp_path):
    queue = QueueDatabase(tmp_path / "job_queue.db")
    await queue.open()
    cluster = cluster_of("")
    for proc, (status, save) in enumerate([(JobStatus.HELD, False), (JobStatus.HELD, True), (JobStatus.IDLE, False)]):
        job = job_of(cluster, proc)
        queue.put(job)
        done = queue.commit()
        await asyncio.sleep(0)  # the transaction has begun: it has the job as it was
        job.status = status
        if save:
            queue.put(job)
        await done
    leaves = job_of(cluster, 3)
    queue.put(leaves)
    done = queue.commit()
    await asyncio.sleep(0)
    leaves.status = JobStatus.REMOVED
    queue.leave(leaves, leaves.ad.pack(), 5.0)
    await done
    (said,) = queue.check_invariants()
    assert said.startswith("job 1.0 has status 5 in memory and 1 in the database, and nothing is to be written of it")
    assert queue.check_invariants() == []
    await queue.close()
