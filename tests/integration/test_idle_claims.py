"""Claims that are kept without a job for the next one of their submitter (KeepClaimIdle)."""

import contextlib
import time

import pytest

from engine.queue.jobs import JobId
from services.schedd.core.claim import Claim
from shared.messages.claims import JobExit
from tests.integration.inside import InsidePool
from tests.integration.pools import ProcessPool
from tests.scheddpool import Pool, job_ad
from tests.servers import free_port
from tests.spec import spec
from tests.waiting import eventually, wait_until

KEPT = job_ad(KeepClaimIdle=3600)


async def idle_claim(pool, seconds=3600):
    """A job has run, and left a claim behind that is kept for so long."""
    run = await pool.run_one(ad=job_ad(KeepClaimIdle=seconds))
    await pool.startd.report(run, "running")
    answer = await pool.startd.finish(run)
    assert (answer.next, answer.release, answer.known) == (None, False, True)
    return run


def claims_of(pool):
    return list(pool.schedd.claim_table.claims.values())


@spec("SUB-11")
async def test_the_next_job_starts_on_an_idle_claim_without_a_match(tmp_path):
    async with Pool(tmp_path) as pool:
        first = await idle_claim(pool)
        await pool.submit()
        await eventually(lambda: len(pool.startd.activations) == 2, what="the second job")
        second = pool.startd.activations[1]
        assert pool.startd.claim_of[second.job_id, 1] == pool.startd.claim_of[first.job_id, 1]
        await pool.startd.report(second, "running")
        assert (await pool.job("2.0"))["JobStatus"] == 2
        # It asks for nothing itself: when it is over, so is the claim.
        assert (await pool.startd.finish(second)).release
        assert claims_of(pool) == []
        assert {ad["NumShadowStarts"] for ad in await pool.history()} == {1}


@spec("SUB-11")
async def test_a_run_on_an_idle_claim_is_on_disk_with_the_submit_of_its_job(tmp_path, monkeypatch):
    """A submit waits for the disk once, and no negotiator is told of a job that has its slot."""
    async with Pool(tmp_path) as pool:
        await idle_claim(pool)
        transactions, offered = [], []
        queue, write = pool.schedd.queue, pool.schedd.queue._transaction

        def noted(bulk, jobs, claims):
            transactions.append((any("INTO jobs" in one.sql for one in bulk), claims))
            write(bulk, jobs, claims)

        monkeypatch.setattr(queue, "_transaction", noted)
        monkeypatch.setattr(pool.schedd.claim_table.job_offered, "set", lambda: offered.append(True))
        await pool.submit()
        (begun,) = [claims for submits, claims in transactions if submits]
        assert [Claim.unpack(*claim).shadow.job for claim in begun] == [JobId(2, 0)]
        assert not offered
        await pool.submit(procs=2)
        assert offered


@spec("SUB-11")
async def test_an_idle_claim_is_given_back_when_no_job_came_in_time(tmp_path):
    async with Pool(tmp_path) as pool:
        await idle_claim(pool, seconds=1)
        await eventually(lambda: pool.startd.released, what="the end of the claim")
        assert claims_of(pool) == []


@spec("SUB-11")
async def test_a_job_that_does_not_fit_leaves_the_claim_to_one_that_does(tmp_path):
    """Nor does a claim serve another submitter; the limit of running jobs counts only claims with a job."""
    async with Pool(tmp_path, MAX_JOBS_RUNNING="1") as pool:
        await idle_claim(pool)
        await pool.submit(job_ad(RequestMemory=100_000))
        await pool.submit(job_ad(AccountingGroup="others", AcctGroup="others"))
        await pool.submit()
        await eventually(lambda: len(pool.startd.activations) == 2, what="the job that fits")
        assert pool.startd.activations[1].job_id == "4.0"
        await pool.match()  # of the large one: there is no room for it
        assert len(pool.startd.activations) == 2


FAILED = JobExit(reason="failed", message="the disk of the machine is broken")


@pytest.mark.parametrize(("most", "failures"), [(None, 2), ("0", 1), ("1", 1), ("3", 3)])
async def test_a_claim_serves_until_MAX_SHADOW_EXCEPTIONS_of_its_runs_failed(tmp_path, most, failures):
    async with Pool(tmp_path, **{} if most is None else {"MAX_SHADOW_EXCEPTIONS": most}) as pool:
        run = await pool.run_one(procs=6)
        await pool.startd.report(run, "running")
        answer = await pool.startd.finish(run)
        for _ in range(1, failures):
            assert answer.next is not None  # a job that ended well between two does not begin the count anew
            answer = await pool.startd.finish(answer.next, exit=FAILED)
        assert answer.next is not None
        answer = await pool.startd.finish(answer.next, exit=FAILED)
        assert (answer.next, answer.release) == (None, True)
        assert claims_of(pool) == []


@spec("SUB-11")
async def test_a_removed_job_keeps_its_claim_and_an_evicted_one_does_not(tmp_path):
    async with Pool(tmp_path) as pool:
        for action, exit_, kept in (
            ("remove", JobExit(reason="killed"), True),
            ("vacate", JobExit(reason="evicted"), False),
        ):
            run = await pool.run_one(ad=KEPT)
            await pool.startd.report(run, "running")
            await pool.act(action, run.job_id)
            answer = await pool.startd.finish(run, exit=exit_)
            assert answer.release is not kept
            assert len(claims_of(pool)) == kept
            for claim in claims_of(pool):
                pool.schedd.claim_table.give_back(claim, "the next case")


@spec("SUB-11")
async def test_an_idle_claim_survives_a_restart(tmp_path):
    async with Pool(tmp_path) as pool:
        await idle_claim(pool)
        await pool.restart()
        await eventually(lambda: pool.startd.alive, what="a keep-alive")
        assert pool.startd.released == []
        await pool.submit()
        await eventually(lambda: len(pool.startd.activations) == 2, what="the second job")


@spec("SUB-11")
async def test_an_order_that_nobody_answered_is_given_again_by_the_next_life(tmp_path):
    async with Pool(tmp_path) as pool:
        await idle_claim(pool)
        pool.startd.mute = True
        await pool.submit()
        await eventually(lambda: pool.startd.refused, what="an order")
        assert (await pool.job("2.0"))["JobStatus"] == 1
        await pool.restart()
        pool.startd.mute = False
        await eventually(lambda: len(pool.startd.activations) == 2, what="the second job")
        assert [run.attempt for run in pool.startd.activations] == [1, 1]
        await pool.startd.report(pool.startd.activations[1], "running")
        assert (await pool.job("2.0"))["JobStatus"] == 2


@spec("SUB-11")
async def test_a_report_shows_that_the_job_was_taken(tmp_path):
    async with Pool(tmp_path) as pool:
        first = await idle_claim(pool)
        pool.startd.mute = True
        await pool.submit()
        await eventually(lambda: pool.startd.refused, what="an order")
        claim = claims_of(pool)[0]
        again = pool.schedd.runs.again(claim, pool.schedd.table.get(claim.shadow.job))
        pool.startd.claim_of["2.0", 1] = pool.startd.claim_of[first.job_id, 1]
        await pool.startd.report(again, "running")
        assert (await pool.job("2.0"))["JobStatus"] == 2
        assert (await pool.startd.finish(again)).release


@spec("SUB-11")
async def test_a_refused_job_waits_for_another_slot_and_its_claim_ends(tmp_path):
    async with Pool(tmp_path) as pool:
        await idle_claim(pool)
        pool.startd.refuse_runs = "the claim is older than CLAIM_WORKLIFE"
        await pool.submit()
        await eventually(lambda: pool.startd.released, what="the end of the claim")
        job = await pool.job("2.0")
        assert (job["JobStatus"], job["NumShadowStarts"]) == (1, 0)
        await pool.match()
        await eventually(lambda: len(pool.startd.activations) == 2, what="the second job")
        assert pool.startd.activations[1].attempt == 1


@spec("SUB-11")
async def test_a_job_that_is_removed_before_it_was_taken_is_gone(tmp_path):
    async with Pool(tmp_path) as pool:
        await idle_claim(pool)
        pool.startd.mute = True
        await pool.submit()
        await eventually(lambda: pool.startd.refused, what="an order")
        await pool.act("remove", "2.0")
        pool.startd.refuse_runs = "no"
        pool.startd.mute = False
        await eventually(lambda: pool.schedd.table.total == 0, what="the end of the job")
        assert claims_of(pool) == []


@spec("SUB-11")
async def test_an_end_that_is_told_again_does_not_end_the_claim(tmp_path):
    async with Pool(tmp_path) as pool:
        run = await idle_claim(pool)
        answer = await pool.startd.finish(run)
        assert (answer.next, answer.release) == (None, False)
        assert len(claims_of(pool)) == 1


@spec("SUB-11")
@pytest.mark.servers
def test_the_next_job_starts_where_there_is_no_negotiator_whoever_was_killed(tmp_path, amqp_url, redis_url):
    """On an idle claim, which outlives its schedd and its startd."""
    pool = ProcessPool(tmp_path / "pool", amqp_url, redis_url, free_port(), NUM_CPUS="1", MEMORY="1024")
    (tmp_path / "job.sub").write_text(
        "executable = /bin/true\nshould_transfer_files = no\nkeep_claim_idle = 3600\nqueue\n"
    )

    def run_one():
        cluster = pool.submit(tmp_path / "job.sub")
        wait_until(lambda: pool.final(cluster), what="the end of the job")

    def states():
        with pool.client() as client:
            slots = client.ads("Machine", projection=["State", "Activity", "DynamicSlot"])
            return [(ad.eval("State"), ad.eval("Activity")) for ad in slots if ad.eval("DynamicSlot") is True]

    with contextlib.closing(pool):
        pool.start()
        run_one()
        pool.kill("negotiator")
        wait_until(lambda: states() == [("Claimed", "Idle")], what="an idle claim")
        run_one()
        for daemon in ("schedd", "startd"):
            pool.kill(daemon)
            pool.start_daemon(daemon)
            run_one()
        pool.roost("vacate", "-all")
        wait_until(lambda: states() == [], what="the end of the claim")


@spec("SUB-11", "ACC-04", "ACC-18")
def test_an_idle_claim_is_charged_to_its_submitter_until_it_ends(tmp_path):
    """To the member of the group whose job left it, and to nobody else: neither to the same user without the group, nor
    to whoever has the rest of the machine meanwhile."""
    knobs = {"GROUP_NAMES": "group_a", "GROUP_QUOTA_group_a": "2", "NUM_CPUS": "2"}
    inside = InsidePool(tmp_path / "pool", ROOST_SCHEDD_FILE_USERS="alice@elsewhere, bob@elsewhere", **knobs)
    with contextlib.closing(inside), inside.client() as admin:
        tokens = {name: admin.create_token(f"{name}@elsewhere", "WRITE") for name in ("alice", "bob")}
        job = {"executable": "/bin/true", "should_transfer_files": "no", "request_cpus": "1"}
        grouped = {"accounting_group": "group_a", "accounting_group_user": "alice", "keep_claim_idle": "600"}

        def run(name, **more):
            with inside.client(tokens[name]) as client:
                cluster = client.submit(job | more).cluster
                assert set(client.wait([str(cluster)], timeout=60).values()) == {4}

        def kept():
            constraint = 'DynamicSlot && State == "Claimed" && Activity == "Idle"'
            return list(admin.ads("Machine", constraint=constraint))

        def books():
            return {
                ad.eval("Name").partition("@")[0]: (
                    ad.eval("WeightedResourcesUsed"),
                    ad.eval("WeightedAccumulatedUsage"),
                )
                for ad in admin.priorities()
            }

        run("alice", **grouped)
        wait_until(kept, what="an idle claim")
        [slot] = kept()
        assert slot.eval("AccountingGroup").startswith("group_a.alice@")
        began = slot.eval("EnteredCurrentState")
        run("bob")
        run("alice")
        wait_until(lambda: books()["group_a.alice"][0] == 1.0, what="the charge of the slot")
        wait_until(lambda: books()["group_a.alice"][1] >= 2.0, what="two seconds of it")
        before = time.time()
        inside.roost("vacate", "-all")
        wait_until(lambda: not kept(), what="the end of the claim")
        after = time.time()
        wait_until(lambda: books()["group_a.alice"][0] == 0.0, what="the end of the charge")
        # The slot tells whole seconds of its begin. What was charged beyond the end is given back.
        least, most = before - began - 1.0, after - began + 0.5
        wait_until(lambda: least <= books()["group_a.alice"][1] <= most, what=f"a charge of {least} to {most} s")
        # Those two jobs were over at once, on slots that were given back.
        assert {books()[name][0] for name in ("alice", "bob")} == {0.0}
        assert books()["bob"][1] + books()["alice"][1] < least
