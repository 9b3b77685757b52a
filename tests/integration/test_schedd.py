"""The schedd as a whole, against a scripted execution point and negotiator."""

import asyncio
import dataclasses
import re
import threading

import pytest

from engine.queue.jobs import JobId
from services.schedd.core import acceptance
from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus
from shared.classad import ClassAd
from shared.messages.claims import ClaimLost, ClaimRefused, JobExit, JobReports, Usage
from shared.messages.queue import DescribeSchedd, QueryJobs, SubmitJobs
from tests.scheddpool import USER, Pool, job_ad
from tests.spec import spec
from tests.waiting import eventually


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path) as pool:
        yield pool


async def test_a_job_runs_to_its_end_and_into_the_history(pool):
    run = await pool.run_one()
    assert (await pool.job("1.0"))["JobStatus"] == 2
    await pool.startd.report(run, "running", started_at=5.0)
    ack = await pool.startd.finish(run, 3, usage=Usage(user_cpu_s=1.5, memory_mib=12, image_size_kib=99))
    assert ack.known
    assert ack.release
    assert await pool.jobs() == []
    (ad,) = await pool.history()
    assert (ad["JobStatus"], ad["ExitCode"], ad["ExitBySignal"]) == (4, 3, False)
    assert (ad["NumJobStarts"], ad["NumShadowStarts"], ad["MemoryUsage"], ad["ImageSize"]) == (1, 1, 12, 99)
    assert ad["LastRemoteHost"] == "slot1_1@ep"
    assert ad["GlobalJobId"].startswith("ap#1.0#")
    assert ad["CompletionDate"] > 0
    assert "RemoteHost" not in ad
    told = ["job.submitted", "job.matched", "job.started", "job.ended"]
    await eventually(lambda: [kind for kind in pool.event_types() if kind != "job.sorted"] == told)
    at = {event.type: event for event in pool.events if event.type in told}
    # To the microsecond: QDate, which is whole seconds, would make it up to a second longer.
    waited = at["job.started"].began - at["job.submitted"].at
    assert at["job.started"].waited_s == pytest.approx(waited, abs=1e-6)


async def test_the_end_of_a_brief_job_tells_also_that_it_ran(pool, tmp_path):
    """Its execution point did not say so before: that would have been one message more."""
    log = tmp_path / "user.log"
    await pool.submit(job_ad(UserLog=str(log)))
    await pool.match()
    await eventually(lambda: pool.startd.activations)
    await pool.startd.finish(pool.startd.activations[0], started_at=5.0)
    (ad,) = await pool.history()
    assert (ad["JobStatus"], ad["NumJobStarts"]) == (4, 1)
    told = ["job.matched", "job.started", "job.ended"]
    await eventually(lambda: [kind for kind in pool.event_types() if kind in told] == told)
    matched, started, ended = (next(e.at for e in pool.events if e.type == kind) for kind in told)
    assert matched <= started <= ended
    await eventually(lambda: re.findall(r"^(\d{3}) \(001", log.read_text(), re.MULTILINE) == ["000", "001", "005"])


async def test_idle_jobs_are_advertised_at_once(pool):
    await pool.submit(procs=3)
    await eventually(lambda: pool.submitter() is not None and pool.submitter()["IdleJobs"] == 3)
    assert pool.submitter()["WeightedIdleJobs"] == 3
    assert pool.submitter()["ScheddIpAddr"] == "schedd.ap"


async def test_one_match_starts_as_many_jobs_as_it_counts(pool):
    await pool.submit(procs=5)
    await pool.match(count=3)
    await eventually(lambda: len(pool.startd.activations) == 3)
    assert [run.job_id for run in pool.startd.activations] == ["1.0", "1.1", "1.2"]
    await eventually(lambda: pool.submitter() is not None and pool.submitter()["RunningJobs"] == 3)
    assert pool.submitter()["IdleJobs"] == 2


async def test_the_ack_of_an_end_hands_over_the_next_job(pool):
    await pool.submit(procs=2)
    await pool.match()
    await eventually(lambda: pool.startd.activations)
    first = pool.startd.activations[0]
    ack = await pool.startd.finish(first)
    assert ack.next is not None
    assert ack.next.job_id == "1.1"
    # The same report again, its answer having been lost, gets the same answer.
    again = await pool.startd.finish(first)
    assert again.next == ack.next or (again.next.job_id, again.next.attempt) == ("1.1", 1)
    last = await pool.startd.finish(ack.next)
    assert last.release
    assert last.next is None
    assert len(await pool.history()) == 2


async def test_ends_that_come_in_one_message_are_one_transaction_and_each_has_its_answer(pool):
    await pool.submit(procs=3)
    await pool.match(count=2)
    await eventually(lambda: len(pool.startd.activations) == 2)
    await eventually(lambda: len(pool.schedd.claim_table.by_claim_id) == 2)
    done = JobExit(reason="exited", exit_code=0, output_committed=True)
    reports = [pool.startd.report_of(run, "ended", exit=done) for run in pool.startd.activations]
    write, transactions = pool.schedd.queue._transaction, []

    def counted(bulk, *rows):
        if any("INTO history" in sql for sql, *_ in bulk):
            transactions.append(bulk)
        write(bulk, *rows)

    pool.schedd.queue._transaction = counted
    stale = reports[0].model_copy(update={"job_id": "77.0", "claim_id": "of nobody"})
    foreign = reports[0].model_copy(update={"startd": "other"})
    told = JobReports(startd=pool.startd.name, reports=[*reports, stale, foreign])
    answers = (await pool.startd.bus.call("schedd.ap", told)).answers
    assert len(transactions) == 1
    assert [answer.ack.next.job_id if answer.ack.next else None for answer in answers[:2]] == ["1.2", None]
    assert answers[1].ack.release
    assert not answers[2].ack.known
    assert (answers[3].ack, answers[3].code) == (None, "denied")
    # Again, as the answer was lost: alone or together, it is the same one.
    again = (await pool.startd.bus.call("schedd.ap", told)).answers
    assert (again[0].ack.next.job_id, again[0].ack.next.attempt) == ("1.2", 1)
    alone = await pool.startd.bus.call("schedd.ap", reports[0])
    assert (alone.next.job_id, alone.next.attempt) == ("1.2", 1)
    assert alone.takes_batches
    assert {(ad["ClusterId"], ad["ProcId"]) for ad in await pool.history()} == {(1, 0), (1, 1)}


@spec("NEG-42")
async def test_a_claim_that_ends_with_its_run_takes_no_further_job(pool):
    """The startd says so: CLAIM_WORKLIFE is over, or a better claim waits for the slot."""
    await pool.submit(procs=2)
    await pool.match()
    await eventually(lambda: pool.startd.activations)
    ack = await pool.startd.finish(pool.startd.activations[0], claim_over=True)
    assert ack.release
    assert ack.next is None
    assert (await pool.job("1.1"))["JobStatus"] == 1


async def test_a_job_that_does_not_fit_the_claim_is_not_handed_over(pool):
    await pool.submit()
    await pool.match()
    await eventually(lambda: pool.startd.activations)
    await pool.submit(job_ad(RequestMemory=4000))
    ack = await pool.startd.finish(pool.startd.activations[0])
    assert ack.release


async def test_a_refused_claim_puts_the_job_back(pool):
    pool.startd.refuse = ClaimRefused(reason="full", code="resources")
    await pool.submit()
    await pool.match()
    await eventually(lambda: pool.startd.requests)

    async def idle():
        ad = await pool.job("1.0")
        return ad["JobStatus"] == 1 and ad

    ad = await eventually(idle)
    assert ad["NumShadowStarts"] == 0
    pool.startd.refuse = None
    await eventually(lambda: pool.schedd.table.demand(USER)[0] == 1)
    await pool.match()
    await eventually(lambda: pool.startd.activations)
    assert pool.startd.activations[0].attempt == 1


async def test_a_replaced_negotiator_is_not_obeyed_even_after_a_restart(pool):
    await pool.submit()
    await pool.requests(epoch=7)
    await pool.restart()
    with pytest.raises(RemoteFailure) as refusal:
        await pool.match(autocluster=1, epoch=6)
    assert refusal.value.code == "stale-epoch"


async def test_remove_hold_and_release_of_idle_jobs(pool):
    await pool.submit(procs=3)
    assert await pool.act("hold", "1.0", reason="wait") == {"1.0": "done"}
    ad = await pool.job("1.0")
    assert (ad["JobStatus"], ad["HoldReason"], ad["HoldReasonCode"]) == (5, "wait (by user root@pool)", 1)
    assert await pool.act("hold", "1.0") == {"1.0": "already"}
    assert await pool.act("release", "1.0", "9.9") == {"1.0": "done", "9.9": "not-found"}
    assert "HoldReason" not in await pool.job("1.0")
    assert (await pool.job("1.0"))["LastHoldReason"].startswith("wait (by user ")
    assert await pool.act("remove", "1.1", user="mallory@pool") == {"1.1": "denied"}
    assert await pool.act("remove", "1.1", user="boss@pool", admin=True) == {"1.1": "done"}
    assert await pool.act("remove", constraint="ProcId == 2") == {"1.2": "done"}
    assert [ad["JobStatus"] for ad in await pool.history()] == [3, 3]


async def test_a_running_job_is_removed_when_its_run_is_over(pool):
    run = await pool.run_one()
    assert await pool.act("remove", "1.0") == {"1.0": "done"}
    await eventually(lambda: pool.startd.deactivated)
    assert (await pool.job("1.0"))["JobStatus"] == 3
    await pool.startd.finish(run, exit=JobExit(reason="killed"))
    assert await pool.jobs() == []
    assert (await pool.history())[0]["JobStatus"] == 3


async def test_a_held_running_job_starts_only_after_its_run_is_over(pool):
    run = await pool.run_one()
    await pool.act("hold", "1.0")
    await pool.act("release", "1.0")
    assert (await pool.requests()).requests == {}
    await pool.startd.finish(run, exit=JobExit(reason="killed"))
    assert (await pool.job("1.0"))["JobStatus"] in (1, 2)


async def test_remove_by_force_does_not_wait(pool):
    run = await pool.run_one()
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    await pool.act("remove-force", "1.0")
    assert await pool.jobs() == []
    await eventually(lambda: pool.startd.released)
    ack = await pool.startd.finish(run)
    assert not ack.known


async def test_an_evicted_job_runs_again_as_a_new_attempt(pool):
    run = await pool.run_one()
    ack = await pool.startd.finish(run, exit=JobExit(reason="evicted", message="drained"))
    assert ack.release
    assert (await pool.job("1.0"))["JobStatus"] == 1
    await pool.match()
    await eventually(lambda: len(pool.startd.activations) == 2)
    assert pool.startd.activations[1].attempt == 2
    stale = await pool.startd.finish(run)
    assert not stale.known
    assert (await pool.job("1.0"))["JobStatus"] == 2
    await pool.startd.finish(pool.startd.activations[1])
    await eventually(pool.history)
    ended = [(ad["RunInstanceId"], ad["JobStatus"], ad["LastRemoteHost"]) for ad in await pool.jobs(epochs=True)]
    assert ended == [(2, 4, "slot1_2@ep"), (1, 1, "slot1_1@ep")]


async def test_a_lost_claim_puts_its_job_back(pool):
    run = await pool.run_one()
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    claim, slot = pool.startd.claim_of[run.job_id, run.attempt]
    await pool.startd.bus.send("schedd.ap", ClaimLost(startd="ep", slot=slot, claim_id=claim, reason="drained"))

    async def idle():
        return (await pool.job("1.0"))["JobStatus"] == 1

    await eventually(idle)


async def test_an_execution_point_that_holds_a_job_says_why(pool):
    run = await pool.run_one()
    await pool.startd.finish(run, exit=JobExit(reason="hold", message="no such program", hold_code=6, hold_subcode=2))
    ad = await pool.job("1.0")
    assert (ad["JobStatus"], ad["HoldReason"], ad["HoldReasonCode"], ad["HoldReasonSubCode"]) == (
        5,
        "Error from slot1_1@ep: no such program",
        6,
        2,
    )


async def test_on_exit_policies(pool):
    run = await pool.run_one(ad=job_ad(OnExitRemove="=ExitCode == 0 || NumJobCompletions > 1"))
    ack = await pool.startd.finish(run, 1)
    assert ack.next is not None  # requeued, and the same claim takes it again
    assert ack.next.attempt == 2
    await pool.startd.finish(ack.next, 1)
    assert (await pool.history())[0]["NumJobCompletions"] == 2


async def test_dollar_dollar_is_expanded_from_the_slot_or_holds_the_job(pool):
    run = await pool.run_one(ad=job_ad(Args="$$(Machine) $$([TARGET.Cpus * 2]) $$(Nope:dflt)"))
    assert ClassAd.unpack(run.job_ad)["Args"] == "ep 16 dflt"
    assert (await pool.job("1.0"))["Args"] == "$$(Machine) $$([TARGET.Cpus * 2]) $$(Nope:dflt)"
    assert (await pool.job("1.0"))["MATCH_EXP_Machine"] == "ep"
    await pool.submit(job_ad(Args="$$(Nope)"))
    await pool.match()
    ad = await pool.job("2.0")
    assert ad["JobStatus"] == 5
    assert "$$(Nope)" in ad["HoldReason"]


async def test_the_owner_is_who_was_authenticated(pool):
    await pool.submit(job_ad(Owner="root", User="root@pool", JobStatus=2, NumShadowStarts=9, ClaimId="x"))
    ad = await pool.job("1.0")
    assert ad["User"] == USER
    assert (ad["JobStatus"], ad["NumShadowStarts"]) == (1, 0)
    assert "ClaimId" not in ad
    with pytest.raises(RemoteFailure, match="Owner"):
        await pool.act("edit", "1.0", edits=ClassAd({"Owner": "root"}).pack())


async def test_files_of_others_are_not_used_directly(pool):
    with pytest.raises(RemoteFailure, match="spool"):
        await pool.submit(user="mallory@pool")
    assert await pool.jobs() == []


async def test_edits_move_a_job_in_its_queue(pool):
    await pool.submit(procs=3)
    await pool.act("edit", "1.2", edits=ClassAd({"JobPrio": 10}).pack())
    requests = (await pool.requests()).requests[USER]
    assert requests[0].first_job == "1.2"
    assert sum(request.count for request in requests) == 3


@pytest.mark.parametrize(
    "bad",
    [
        {"cluster_ad": b"garbage"},
        {"procs": [b"\xc1"]},
        {"procs": []},
        {"user": "we ird@pool"},
        {"submit_id": ""},
    ],
)
async def test_a_bad_submit_leaves_nothing(pool, bad):
    options = {"cluster_ad": job_ad().pack(), "procs": [ClassAd().pack()], "user": USER, "submit_id": "x", **bad}

    with pytest.raises(RemoteFailure) as refusal:
        await pool.call(SubmitJobs(**options))
    assert refusal.value.code == "bad-request"
    assert await pool.jobs() == []
    await pool.submit()
    assert len(await pool.jobs()) == 1


async def test_a_repeated_submit_is_the_same_submit(pool):
    first = await pool.submit(procs=2, submit_id="same")
    assert await pool.submit(procs=2, submit_id="same") == first
    await pool.restart()
    assert await pool.submit(procs=2, submit_id="same") == first
    assert len(await pool.jobs()) == 2


async def test_a_submit_in_parts_is_seen_only_as_a_whole(pool):
    for part in (0, 0, 1):
        await pool.submit(procs=2, submit_id="parts", more=True, part=part)
    assert await pool.jobs() == []
    done = await pool.submit(procs=1, submit_id="parts", part=2)
    assert (done.cluster, done.count) == (1, 5)
    assert [ad["ProcId"] for ad in await pool.jobs()] == [0, 1, 2, 3, 4]


async def test_a_user_has_so_many_submits_begun(pool, monkeypatch):
    """What is begun and never ended is kept here: it counts among the user's jobs, and there are only so many."""
    monkeypatch.setattr(acceptance, "MAX_UNFINISHED", 3)
    for number in range(3):
        await pool.submit(procs=2, submit_id=f"begun{number}", more=True, part=0)
    with pytest.raises(RemoteFailure, match=r"3 other submits of .* have not had their last part"):
        await pool.submit(submit_id="whole")
    await pool.submit(procs=0, submit_id="begun1", part=1)
    assert len(await pool.jobs()) == 2
    updates = pool.schedd.updates
    monkeypatch.setattr(updates, "settings", dataclasses.replace(updates.settings, max_jobs_per_owner=7))
    with pytest.raises(RemoteFailure, match="2 jobs besides 6 in the queue are more than MAX_JOBS_PER_OWNER = 7"):
        await pool.submit(procs=2, submit_id="more")
    await pool.submit(procs=1, submit_id="one")
    await pool.submit(procs=0, submit_id="begun0", part=1)  # its own jobs do not stand in its way
    assert len(await pool.jobs()) == 5


async def test_pages_of_the_queue(pool):
    await pool.submit(procs=7)
    seen, after = [], ""
    while True:
        page = await pool.call(QueryJobs(limit=3, after=after, projection=["ProcId"]))
        seen += [ClassAd.unpack(ad)["ProcId"] for ad in page.ads]
        after = page.next
        if not after:
            break
    assert seen == list(range(7))
    assert page.totals["Idle"] == 7
    with pytest.raises(RemoteFailure, match="constraint"):
        await pool.jobs(constraint="1 +")


async def test_what_a_client_is_told_of_the_schedd(pool):
    answer = await pool.call(DescribeSchedd())
    assert answer.name == "ap"
    assert answer.host_id


async def test_running_jobs_survive_a_restart_of_the_schedd(pool):
    run = await pool.run_one()
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    await pool.restart()
    assert (await pool.job("1.0"))["JobStatus"] == 2
    await eventually(lambda: pool.startd.alive)
    ack = await pool.startd.finish(run)
    assert ack.known
    assert (await pool.history())[0]["NumShadowStarts"] == 1


@spec("LEA-02")
async def test_an_end_that_is_reported_while_the_schedd_starts_is_heard(pool, monkeypatch):
    """Between the first moment of its inbox and the last claim of its earlier life."""
    run = await pool.run_one()
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    await pool.end()
    reports = []
    serve = MemoryBus.serve

    async def serve_and_be_told(bus, address, *arguments, **more):
        subscription = await serve(bus, address, *arguments, **more)
        if address == "schedd.ap":
            reports.append(asyncio.ensure_future(pool.startd.finish(run)))
            for _ in range(100):
                await asyncio.sleep(0)
        return subscription

    monkeypatch.setattr(MemoryBus, "serve", serve_and_be_told)
    await pool.begin()
    (report,) = reports
    assert (await report).known
    (job,) = await pool.history()
    assert (job["JobStatus"], job["NumShadowStarts"]) == (4, 1)


async def test_an_end_reported_again_after_a_restart_is_answered_with_the_same_next_job(pool):
    await pool.submit(procs=2)
    await pool.match()
    await eventually(lambda: pool.startd.activations)
    first = pool.startd.activations[0]
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    ack = await pool.startd.finish(first)
    await pool.restart()
    again = await pool.startd.finish(first)
    assert (again.next.job_id, again.next.attempt) == (ack.next.job_id, ack.next.attempt)
    assert len(await pool.history()) == 1


async def test_an_end_that_comes_twice_is_not_acknowledged_before_it_is_on_disk(pool):
    run = await pool.run_one()
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    write, goes_on = pool.schedd.queue._transaction, threading.Event()

    def slow(*rows):
        goes_on.wait(60)
        write(*rows)

    pool.schedd.queue._transaction = slow
    twice = [asyncio.ensure_future(pool.startd.finish(run, timeout=60)) for _ in range(2)]
    try:
        await eventually(lambda: pool.schedd.table.get(JobId(1, 0)) is None)
        answered, _ = await asyncio.wait(twice, timeout=0.2)
        assert not answered
    finally:
        goes_on.set()
    assert [ack.release for ack in await asyncio.gather(*twice)] == [True, True]
    assert len(await pool.history()) == 1


async def test_a_run_that_begins_after_it_was_told_to_stop_is_told_again(pool):
    """The answer that brought it was lost and given again, so the first order found no run to stop."""
    await pool.submit(procs=2)
    await pool.match()
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    ack = await pool.startd.finish(pool.startd.activations[0])
    assert await pool.act("hold", "1.1") == {"1.1": "done"}
    await eventually(lambda: len(pool.startd.deactivated) == 1)
    assert await pool.act("release", "1.1") == {"1.1": "done"}
    assert (await pool.startd.finish(pool.startd.activations[0])).next.job_id == "1.1"
    await pool.startd.report(ack.next, "running", started_at=5.0)
    await eventually(lambda: len(pool.startd.deactivated) == 2)
    assert {(one.job_id, one.attempt, one.why) for one in pool.startd.deactivated} == {("1.1", 1, "hold")}
    await pool.startd.report(ack.next, "running", started_at=5.0)
    then = await pool.startd.finish(ack.next, exit=JobExit(reason="killed"))
    assert len(pool.startd.deactivated) == 2
    assert (then.next.job_id, then.next.attempt) == ("1.1", 2)  # released, so it runs again


async def test_a_removed_job_that_begins_late_or_is_lost_is_not_told_of_again(pool, tmp_path):
    """Removal was told, to the stream and to the user's log, when it was asked: what its runs still do comes after."""
    log = tmp_path / "user.log"
    await pool.submit(job_ad(UserLog=str(log)), procs=2)
    await pool.match(count=2)
    await eventually(lambda: len(pool.schedd.claim_table.by_claim_id) == 2)
    late = pool.startd.activations[0]
    assert await pool.act("remove", "1.0", "1.1") == {"1.0": "done", "1.1": "done"}
    await pool.startd.report(late, "running", started_at=5.0)
    await pool.startd.finish(late, exit=JobExit(reason="killed"))
    message = ClaimLost(startd="ep", slot="slot1@ep", claim_id=pool.startd.claim_of["1.1", 1][0], reason="it broke")
    await pool.call(message)
    await eventually(lambda: not pool.schedd.table.total)
    assert {ad["JobStatus"] for ad in await pool.history()} == {3}
    await pool.submit(job_ad(UserLog=str(log)))  # the last of the stream and of the log
    await eventually(lambda: pool.event_types().count("job.submitted") == 2)
    await eventually(lambda: log.read_bytes().count(b"000 (") == 3)
    assert not {"job.started", "job.evicted"} & set(pool.event_types())
    events = re.findall(r"^(\d{3}) \(001", log.read_text(), re.MULTILINE)
    assert sorted(events) == ["000", "000", "009", "009"]


async def test_a_claim_that_nobody_knows_makes_the_job_run_again(pool):
    run = await pool.run_one()
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    pool.startd.unknown = [pool.startd.claim_of[run.job_id, run.attempt][0]]
    await pool.restart()

    async def idle():
        return (await pool.job("1.0"))["JobStatus"] == 1

    await eventually(idle)
    await pool.match()
    await eventually(lambda: len(pool.startd.activations) == 2)
    assert pool.startd.activations[1].attempt == 2


async def test_a_request_whose_answer_was_lost_is_asked_again_and_made_once(pool):
    pool.startd.mute = True
    await pool.submit()
    await pool.match()
    await pool.restart()
    pool.startd.mute = False
    await eventually(lambda: pool.startd.activations)
    assert len(pool.startd.granted) == 1
    assert pool.startd.activations[0].attempt == 1


async def test_a_job_that_comes_just_after_one_that_ended_is_told_to_the_negotiator(pool):
    """The counts are the same as before, if nobody looked in between: the ad must differ nevertheless."""
    run = await pool.run_one()
    await eventually(lambda: pool.submitter() is not None and pool.submitter()["RunningJobs"] == 1)
    await pool.startd.finish(run)
    before = pool.submitter()["JobsOffered"]
    await pool.submit()
    await eventually(lambda: pool.submitter()["JobsOffered"] == before + 1 and pool.submitter()["IdleJobs"] == 1)


async def test_a_job_refused_again_and_again_waits_longer_each_time(pool):
    pool.startd.refuse = ClaimRefused(reason="full", code="resources")
    await pool.submit()
    autocluster = (await pool.requests()).requests[USER][0].autocluster
    for refusals in range(1, 4):
        await eventually(lambda: pool.submitter() is not None and pool.schedd.table.demand(USER)[0] == 1)
        await pool.match(autocluster=autocluster)
        await eventually(lambda refusals=refusals: len(pool.startd.requests) == refusals)
    job = next(pool.schedd.table.jobs())
    await eventually(lambda: job.refusals == 3)
    assert job.cooling
    assert [pool.schedd.updates.cool_down.refused_s(count) for count in (1, 2, 3, 50)] == [0.05, 0.1, 0.2, 10]


# Execution points that are not there


@spec("LEA-11")
async def test_a_job_is_running_when_its_execution_point_has_said_so(pool):
    pool.startd.mute = True
    await pool.submit()
    await pool.match()
    await eventually(lambda: pool.startd.refused, what="the request")
    job = await pool.job("1.0")
    assert (job["JobStatus"], job["RoostMatchedSlot"]) == (1, "slot1@ep")
    assert not {"RemoteHost", "JobStartDate", "JobCurrentStartDate", "ShadowBday"} & set(job)
    await eventually(lambda: pool.submitter() is not None and pool.submitter()["IdleJobs"] == 0)
    assert pool.submitter()["RunningJobs"] == 0
    pool.startd.mute = False
    await eventually(lambda: pool.startd.activations)
    await eventually(lambda: pool.submitter()["RunningJobs"] == 1)
    job = await pool.job("1.0")
    assert (job["JobStatus"], job["RemoteHost"], job["JobRunCount"]) == (2, "slot1_1@ep", 1)
    assert "RoostMatchedSlot" not in job
    told = ClassAd.unpack(pool.startd.activations[0].job_ad)
    assert (told["JobStatus"], told["JobRunCount"], told["NumShadowStarts"]) == (2, 1, 1)
    assert "RoostMatchedSlot" not in told


@spec("GRP-17")
async def test_a_job_demands_what_it_asks_for_while_its_slot_is_asked_for(pool):
    """The slot is not carved yet, so its ad is that of the whole machine: 8 cores, for each of the jobs."""
    pool.startd.mute = True
    await pool.submit(ad=job_ad(RequestCpus=2), procs=2)
    await pool.match(count=2)

    def demand():
        ad = pool.submitter()
        return ad and (ad["IdleJobs"], ad["WeightedIdleJobs"], ad["WeightedRunningJobs"])

    await eventually(lambda: demand() == (0, 0, 4), what="two jobs of two cores each")
    await pool.restart()
    await eventually(lambda: demand() == (0, 0, 4), what="the same after a restart")
    pool.startd.mute = False
    await eventually(lambda: len(pool.startd.activations) == 2, what="both")
    await eventually(lambda: demand() == (0, 0, 2), what="the weight of what was carved")


@spec("LEA-11")
async def test_a_job_held_before_its_execution_point_answered_does_not_run(pool):
    pool.startd.mute = True
    await pool.submit()
    await pool.match()
    await eventually(lambda: pool.startd.refused, what="the request")
    await pool.act("hold", "1.0", reason="wait")
    assert (await pool.job("1.0"))["JobStatus"] == 5
    pool.startd.mute = False
    await eventually(lambda: pool.startd.deactivated, what="the order to end the run")
    assert (await pool.job("1.0"))["JobStatus"] == 5


@spec("LEA-11")
async def test_a_job_goes_elsewhere_at_once_where_its_execution_point_was_never_asked(tmp_path, monkeypatch):
    """Nobody serves the inbox of the startd, so it can not have taken the job: no lease is waited for."""
    monkeypatch.setattr("services.schedd.io.presence.ABSENT_PATIENCE_S", 0.0)
    async with Pool(tmp_path) as pool:
        await pool.startd.bus.stop_consuming()
        await pool.submit()
        await pool.match()
        await eventually(lambda: not pool.schedd.claim_table.claims)
        job = await pool.job("1.0")
        assert (job["JobStatus"], job["NumShadowStarts"]) == (1, 0)
        assert job["LastRejMatchReason"] == "slot1@ep did not take it: its startd is not there"
        assert job.get("RemoteWallClockTime", 0) == 0
        await eventually(lambda: "job.unmatched" in pool.event_types())
        assert pool.startd.asked == []


@spec("LEA-11")
async def test_a_startd_that_is_back_soon_gets_the_job_it_was_matched_with(pool):
    await pool.startd.bus.stop_consuming()
    await pool.submit()
    await pool.match()
    await pool.startd.start()
    await eventually(lambda: pool.startd.activations)
    assert "job.unmatched" not in pool.event_types()


@spec("LEA-11")
async def test_a_job_removed_while_its_execution_point_is_away_is_gone_at_once(pool):
    await pool.startd.bus.stop_consuming()
    await pool.submit()
    await pool.match()
    assert await pool.act("remove", "1.0") == {"1.0": "done"}
    await eventually(lambda: not pool.schedd.claim_table.claims)
    assert await pool.jobs() == []
