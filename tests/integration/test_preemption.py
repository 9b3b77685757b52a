"""Preemption on its way: the access point that waits for a slot, the execution point that empties it, and the two of
them with real jobs. What the negotiator decides is sent by hand."""

from dataclasses import replace

import pytest

from engine.queue.jobs import JobId
from shared.bus.api import Exchange
from shared.classad import ClassAd
from shared.daemon.ad_table import AdTable
from shared.messages.ads import SendAds
from shared.messages.claims import (
    ActivateClaim,
    ClaimGranted,
    ClaimLost,
    ClaimRefused,
    ClaimWaiting,
    JobExit,
    JobReportAck,
    ReleaseClaim,
)
from shared.messages.negotiation import Match, Matches, MatchNotice, NoticedSlot
from shared.messages.queue import QueryJobs
from tests import scheddpool, startd_pool
from tests.scheddpool import USER, slot_ad
from tests.spec import spec
from tests.startd_pool import job_ad
from tests.waiting import eventually

BUSY_SLOT = {"PartitionableSlot": False, "State": "Claimed", "Activity": "Busy", "Cpus": 1}
SLEEPS = "#!/bin/sh\ntrap 'echo asked; exit 3' TERM\necho up\nwhile [ ! -e go ]; do sleep 0.02; done\n"
STUBBORN = "#!/bin/sh\ntrap 'echo asked' TERM\necho up\nwhile [ ! -e go ]; do sleep 0.02; done\n"

# The access point


@pytest.fixture
async def point(tmp_path):
    async with scheddpool.Pool(tmp_path) as pool:
        pool.startd.waits = True
        yield pool


async def wait_for_a_slot(pool, procs=1, **match):
    """Submit, and match the first job with a slot that is in use."""
    await pool.submit(scheddpool.job_ad(UserLog=str(pool.directory / "log"), Iwd=str(pool.directory)), procs=procs)
    answer = await pool.match(slot=slot_ad(**BUSY_SLOT), **match)
    await eventually(lambda: pool.startd.asked, what="a request for the slot")
    return answer


async def waits_at_all(pool):
    await eventually(
        lambda: [c for c in pool.schedd.claim_table.claims.values() if c.waits_as], what="a claim that waits"
    )


async def runs_once_the_slot_is_empty(point):
    await point.startd.empties()
    await eventually(lambda: point.startd.activations, what="a run")
    (run,) = point.startd.activations
    assert (run.job_id, run.attempt) == ("1.0", 1)
    await point.startd.report(run, "running", started_at=1000.0)
    await point.startd.finish(run)
    assert (await point.history("1.0"))[0]["NumJobStarts"] == 1


async def test_a_job_waits_for_a_slot_that_must_be_emptied_though_its_match_did_not_say_so(point):
    """A slot in backfill: were the claim released, the startd would go back to backfill, and so for ever."""
    await point.submit(scheddpool.job_ad())
    await point.match(slot=slot_ad(PartitionableSlot=False, State="Backfill", Activity="Busy", Cpus=1))
    await waits_at_all(point)
    job = await point.job("1.0")
    assert (job["JobStatus"], job["NumShadowStarts"]) == (1, 0)
    assert "RoostMatchedSlot" not in job
    assert USER not in (await point.requests()).requests
    assert point.startd.released == []
    await runs_once_the_slot_is_empty(point)


async def test_a_job_waits_idle_and_is_offered_to_nobody_else(point):
    answer = await wait_for_a_slot(point)
    assert answer.begun == [1]
    (asked,) = point.startd.asked
    assert (asked.slot, asked.claim_id, asked.activation) == ("slot1@ep", "<ep>#1#0#pslot", None)
    job = await point.job("1.0")
    assert (job["JobStatus"], "NumShadowStarts" in job and job["NumShadowStarts"]) == (1, False)
    assert job["NumJobMatches"] == 1
    assert USER not in (await point.requests()).requests
    await waits_at_all(point)
    await runs_once_the_slot_is_empty(point)
    assert not point.schedd.claim_table.claims


async def test_a_hint_that_is_lost_costs_only_time(point, monkeypatch):
    monkeypatch.setattr("services.schedd.io.claims.ASK_EVERY_S", 0.05)
    await wait_for_a_slot(point)
    await eventually(lambda: len(point.startd.asked) > 2, what="further requests")
    assert len(point.startd.requests) == 1
    await point.startd.empties(hint=False)
    await eventually(lambda: point.startd.activations, what="a run")


async def test_a_hint_may_be_faster_than_the_answer(point):
    await wait_for_a_slot(point)
    await point.startd.empties()  # perhaps before the answer was read: either way nobody waits a minute
    await eventually(lambda: point.startd.activations, 10, "a run")


@spec("PRE-17")
@pytest.mark.parametrize("preempts", [True, False], ids=["dynamic slots", "the slot itself"])
async def test_the_request_proves_what_the_negotiator_chose(point, preempts):
    await point.submit()
    autocluster = (await point.requests()).requests[USER][0].autocluster
    chosen = {"preempts": ["slot1_1@ep", "slot1_2@ep"], "preempt_claims": ["<a>", "<b>"]} if preempts else {}
    match = Match(
        submitter=USER,
        autocluster=autocluster,
        count=5,
        slot="slot1@ep",
        startd=point.startd.inbox,
        claim_id="<p>",
        slot_ad=slot_ad(**({} if preempts else BUSY_SLOT)).pack(),
        **chosen,
    )
    assert (await point.call(Matches(negotiator="n", epoch=1, cycle=1, matches=[match]))).begun == [1]
    await eventually(lambda: point.startd.asked)
    (asked,) = point.startd.asked
    assert {"preempts": asked.preempts, "preempt_claims": asked.preempt_claims} == (
        chosen or {"preempts": [], "preempt_claims": []}
    )


@pytest.mark.parametrize("action", ["remove", "hold"])
async def test_where_the_job_goes_another_of_its_kind_takes_its_place(point, action):
    await wait_for_a_slot(point, procs=2)
    await waits_at_all(point)
    await point.act(action, "1.0")
    await eventually(lambda: point.schedd.table.get(JobId(1, 1)).waits_for, what="the other job waits")
    await point.startd.empties()
    await eventually(lambda: point.startd.activations, what="a run")
    assert point.startd.activations[0].job_id == "1.1"


async def test_any_number_of_jobs_that_can_not_start_are_held_and_the_claim_is_given_back(point):
    ad = scheddpool.job_ad(Args="$$(NoSuchAttribute)", Iwd=str(point.directory))
    await point.submit(ad, procs=1200)
    await point.match(slot=slot_ad(**BUSY_SLOT))
    await waits_at_all(point)
    await point.startd.empties()
    await eventually(lambda: point.startd.released, what="the release")
    assert (await point.call(QueryJobs(constraint="JobStatus == 5", limit=1))).totals["Held"] == 1200
    assert not point.schedd.claim_table.claims


async def test_where_no_job_is_left_the_claim_is_given_back(point):
    await wait_for_a_slot(point)
    await waits_at_all(point)
    await point.act("hold", "1.0")
    await eventually(lambda: point.startd.released, what="the release")
    assert point.startd.released[0].startswith("<waiting")
    assert not point.schedd.claim_table.claims
    await point.act("release", "1.0")
    await eventually(lambda: point.schedd.table.idle[USER].total == 1, what="the job is offered again")


async def test_a_claim_that_is_lost_while_it_waits_frees_its_job(point):
    await wait_for_a_slot(point)
    await waits_at_all(point)
    (claim,) = point.schedd.claim_table.claims.values()
    lost = ClaimLost(startd="ep", slot="slot1@ep", claim_id=claim.waits_as, reason="a better claim came")
    await point.startd.bus.send("schedd.ap", lost)
    await eventually(lambda: not point.schedd.claim_table.claims, what="the claim is gone")
    assert USER in (await point.requests()).requests
    job = await point.job("1.0")
    assert (job["JobStatus"], "NumShadowExceptions" in job, "LastVacateTime" in job) == (1, False, False)


async def test_a_refused_preemption_costs_the_job_nothing(point):
    point.startd.refuse = ClaimRefused(reason="RANK is 0 for this job, 1 for the one there", code="requirements")
    await wait_for_a_slot(point)
    await eventually(lambda: not point.schedd.claim_table.claims, what="the claim is gone")
    await eventually(lambda: point.schedd.table.idle[USER].total == 1, what="the job is offered again")
    assert "NumShadowExceptions" not in await point.job("1.0")


async def test_a_slot_that_never_empties_is_given_up(point, monkeypatch):
    """After REQUEST_CLAIM_TIMEOUT."""
    point.schedd.updates.settings = replace(point.schedd.settings, request_claim_timeout_s=0.1)
    monkeypatch.setattr("services.schedd.io.claims.ASK_EVERY_S", 0.02)
    await wait_for_a_slot(point)
    await eventually(lambda: point.startd.released, what="the release")
    assert USER in (await point.requests()).requests


async def test_a_restarted_schedd_waits_on(point):
    await wait_for_a_slot(point)
    await waits_at_all(point)
    (before,) = point.startd.requests
    point.startd.asked.clear()
    await point.restart()
    await eventually(lambda: point.startd.asked, what="the request again")
    assert point.startd.asked[0].request_id == before
    assert USER not in (await point.requests()).requests
    await point.startd.empties()
    await eventually(lambda: point.startd.activations, what="a run")
    assert (point.startd.activations[0].job_id, point.startd.activations[0].attempt) == ("1.0", 1)


async def test_an_evicted_job_is_idle_again_with_its_reason_and_its_counts(point):
    point.startd.waits = False
    run = await point.run_one(ad=scheddpool.job_ad(UserLog=str(point.directory / "log"), Iwd=str(point.directory)))
    before = (await point.job("1.0"))["AutoClusterId"]
    await point.startd.report(run, "running", started_at=1000.0)
    left = JobExit(reason="evicted", exit_signal=15, message="preempted: bob has the better priority", vacate_code=1019)
    ack = await point.startd.finish(run, exit=left, claim_over=True)
    assert (ack.next, ack.release) == (None, True)
    job = await point.job("1.0")
    assert (job["JobStatus"], job["NumJobStarts"], job["NumShadowStarts"], job["AutoClusterId"]) == (1, 1, 1, before)
    assert (job["VacateReason"], job["VacateReasonCode"]) == (left.message, 1019)
    assert job["LastVacateTime"] > 0
    assert "job.evicted" in point.event_types()
    await eventually(lambda: "Job was evicted." in (point.directory / "log").read_text())
    assert USER in (await point.requests()).requests


async def test_a_job_whose_claim_went_before_it_could_start_was_not_evicted(point):
    """It was handed over with the end of the one before while the slot was taken away."""
    point.startd.waits = False
    run = await point.run_one(ad=scheddpool.job_ad(UserLog=str(point.directory / "log"), Iwd=str(point.directory)))
    gone = JobExit(reason="evicted", message="no such claim here (any more)")
    await point.startd.finish(run, exit=gone, claim_over=True)
    job = await point.job("1.0")
    assert (job["JobStatus"], "NumShadowExceptions" in job, job["NumJobStarts"]) == (1, False, 0)
    assert "job.evicted" not in point.event_types()


# The execution point


@pytest.fixture
async def machine(tmp_path):
    """One static slot, whose RANK is the job's Liked."""
    macros = {"NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "100%", "RANK": "TARGET.Liked ?: 0"}
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        yield pool


def script(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


async def runs(pool, tmp_path, text=SLEEPS, **attributes):
    """A job that has begun: its activation and claim."""
    cmd = script(tmp_path / "job", text)
    activation, granted = await pool.run(cmd, Iwd=str(tmp_path), Out="out", **attributes)
    await pool.running(activation.job_id)
    await eventually(lambda: (tmp_path / "out").exists() and "up" in (tmp_path / "out").read_text())
    return activation, granted


def ad_of(pool, slot="slot1@node1"):
    """As everybody sees it."""
    return pool.startd.shared.ads.ad_of(pool.startd.shared.slot_manager.slots[slot]).public()


@spec("PRE-10")
async def test_a_better_claim_gets_the_slot_when_the_job_has_left(machine, tmp_path):
    old, _ = await runs(machine, tmp_path)
    new = machine.activation(ad=job_ad(User="bob@pool"))
    request = machine.request(new, submitter="bob@pool")
    waiting = await machine.call(request)
    assert isinstance(waiting, ClaimWaiting)
    assert 590 < waiting.within_s <= 600
    end = await machine.schedd.end_of(old.job_id)
    assert (end.exit.reason, end.exit.exit_code, end.exit.vacate_code) == ("evicted", 3, 1019)
    assert end.exit.message == "preempted: bob@pool has the better priority"
    assert end.claim_over
    ready = await machine.schedd.until(lambda: machine.schedd.ready)
    assert [one.claim_id for one in ready] == [waiting.claim_id]
    granted = await machine.call(request)
    assert isinstance(granted, ClaimGranted)
    assert granted.activated
    assert (await machine.schedd.end_of(new.job_id)).exit.exit_code == 0
    assert machine.schedd.lost == []  # the end of the run said it


@spec("STM-21")
async def test_who_does_not_leave_is_killed_when_its_time_is_over(machine, tmp_path):
    old, _ = await runs(machine, tmp_path, STUBBORN, JobMaxVacateTime=1)
    await machine.call(machine.request(ad=job_ad(Liked=1)))
    assert machine.conditions()["slot1@node1"] == "Preempting/Vacating"
    end = await machine.schedd.end_of(old.job_id)
    assert (end.exit.exit_signal, end.exit.vacate_code) == (9, 1018)
    assert "asked" in (tmp_path / "out").read_text()


@spec("STM-19")
async def test_a_job_in_its_retirement_is_left_alone_and_stays_where_the_preemptor_goes(tmp_path):
    macros = {"NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "100%", "MAXJOBRETIREMENTTIME": "3600"}
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        await runs(pool, tmp_path)
        waiting = await pool.call(pool.request(submitter="bob@pool"))
        assert pool.conditions()["slot1@node1"] == "Claimed/Retiring"
        assert 3500 < waiting.within_s <= 3600
        ad = ad_of(pool)
        assert 3500 < ad.eval("RetirementTimeRemaining") <= 3600
        assert (ad.eval("PreemptingUser"), ad.eval("PreemptingRank")) == ("bob@pool", 0.0)
        await pool.call(ReleaseClaim(claim_id=waiting.claim_id))
        assert pool.conditions()["slot1@node1"] == "Claimed/Busy"
        assert ad_of(pool).eval("PreemptingUser") is ClassAd().eval("x")
        assert "asked" not in (tmp_path / "out").read_text()


async def test_a_claim_that_waits_ends_with_its_lease(tmp_path):
    macros = {"NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "100%", "MAXJOBRETIREMENTTIME": "3600"}
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        await runs(pool, tmp_path)
        waiting = await pool.call(pool.request(submitter="bob@pool", lease_s=1))
        await pool.schedd.until(lambda: pool.schedd.lost)
        assert [lost.claim_id for lost in pool.schedd.lost] == [waiting.claim_id]
        assert pool.conditions()["slot1@node1"] == "Claimed/Busy"


@spec("STM-57")
async def test_an_idle_claim_that_is_preempted_is_told_so(machine):
    first = await machine.call(machine.request())
    second = await machine.call(machine.request(submitter="bob@pool"))
    assert isinstance(second, ClaimGranted)
    lost = await machine.schedd.until(lambda: machine.schedd.lost)
    assert [(one.claim_id, one.reason) for one in lost] == [
        (first.claim_id, "preempted: bob@pool has the better priority")
    ]


async def test_a_job_handed_over_while_the_slot_was_taken_is_put_back_unharmed(machine, tmp_path):
    old, granted = await runs(machine, tmp_path)
    following = machine.activation()
    taken = []

    def hand_over(report):
        if report.job_id == old.job_id:
            taken.append(machine.startd.shared.slot_manager.claims.get(granted.claim_id))
            # The end was reported of an idle claim; the slot goes to somebody else before the answer arrives.
            startd = machine.startd.shared
            _, effects = startd.slot_manager.vacate(granted.claim_id, "taken away", graceful=False, now=0.0)
            startd.effects.carry_out(effects)
            return JobReportAck(next=following)
        return JobReportAck()

    machine.schedd.next_job = hand_over
    (tmp_path / "go").touch()
    end = await machine.schedd.end_of(following.job_id)
    assert taken[0] is not None
    assert (end.exit.reason, end.started_at) == ("evicted", 0.0)


@spec("PRE-17", "W-47")
async def test_a_partitionable_slot_makes_room(tmp_path):
    """8 cpus in four dynamic slots, liked 3, 1, 2 and 0; a job of 4 cpus, liked 5: those of 0 and 1 go."""
    async with startd_pool.Pool(tmp_path, RANK="TARGET.Liked ?: 0") as pool:
        cmd = script(tmp_path / "job", SLEEPS)
        for liked in (3, 1, 2, 0):
            await pool.run(cmd, Iwd=str(tmp_path), Out=f"out{liked}", RequestCpus=2, Liked=liked)
        manager = pool.startd.shared.slot_manager
        await eventually(lambda: all((tmp_path / f"out{n}").exists() for n in range(4)))
        parent = ad_of(pool)
        assert parent.eval("ChildCurrentRank") == [3.0, 1.0, 2.0, 0.0]
        chosen = ["slot1_4@node1", "slot1_2@node1"]
        waiting = await pool.call(
            pool.request(
                ad=job_ad(RequestCpus=4, Liked=5, User="bob@pool"),
                submitter="bob@pool",
                preempts=chosen,
                preempt_claims=[manager.slots[name].offer for name in chosen],
            )
        )
        assert isinstance(waiting, ClaimWaiting)
        await pool.schedd.until(lambda: pool.schedd.ready)
        assert pool.conditions() == {
            "slot1@node1": "Unclaimed/Idle",
            "slot1_1@node1": "Claimed/Busy",
            "slot1_3@node1": "Claimed/Busy",
            "slot1_5@node1": "Claimed/Idle",
        }
        assert manager.slots["slot1_5@node1"].total["Cpus"] == 4


async def test_a_restarted_startd_goes_on_emptying_its_slot(machine, tmp_path):
    old, _ = await runs(machine, tmp_path, STUBBORN, JobMaxVacateTime=3)
    request = machine.request(submitter="bob@pool")
    waiting = await machine.call(request)
    await machine.restart()
    assert machine.conditions()["slot1@node1"].startswith("Preempting/")
    assert (await machine.call(request)).claim_id == waiting.claim_id
    end = await machine.schedd.end_of(old.job_id)
    assert (end.exit.reason, end.exit.exit_signal, end.claim_over) == ("evicted", 9, True)
    await machine.schedd.until(lambda: machine.schedd.ready)
    assert isinstance(await machine.call(request), ClaimGranted)


@spec("NEG-39", "STM-43")
async def test_the_negotiators_notice_and_the_claim_that_follows(machine):
    offer = machine.startd.shared.slot_manager.slots["slot1@node1"].offer
    notice = MatchNotice(negotiator="n", epoch=3, slots=[NoticedSlot(slot="slot1@node1", claim_id=offer)])
    await machine.call(notice)
    assert machine.conditions()["slot1@node1"] == "Matched/Idle"
    assert ad_of(machine).eval("Requirements") is False  # STM-43
    activation = machine.activation()
    granted = await machine.call(machine.request(activation, claim_id=offer, epoch=3))
    assert granted.activated
    await machine.schedd.end_of(activation.job_id)


@spec("STM-08")
async def test_a_match_that_nobody_claims_is_over_after_MATCH_TIMEOUT(tmp_path):
    macros = {"NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "100%", "MATCH_TIMEOUT": "1"}
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        offer = pool.startd.shared.slot_manager.slots["slot1@node1"].offer
        await pool.call(MatchNotice(negotiator="n", epoch=1, slots=[NoticedSlot(slot="slot1@node1", claim_id=offer)]))
        assert pool.conditions()["slot1@node1"] == "Matched/Idle"
        await eventually(lambda: pool.conditions()["slot1@node1"] == "Unclaimed/Idle")
        assert pool.startd.shared.slot_manager.slots["slot1@node1"].offer != offer


@spec("STM-42")
async def test_the_owners_wish_is_looked_at_every_POLLING_INTERVAL_from_the_first_claim_on(tmp_path):
    macros = {"POLLING_INTERVAL": "1", "PREEMPT": "TotalJobRunTime >= 1", "MACHINEMAXVACATETIME": "1"}
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        activation, _ = await pool.run("/bin/sleep", Arguments="1000")
        end = await pool.schedd.end_of(activation.job_id)
        assert (end.exit.reason, end.exit.vacate_code) == ("evicted", 1011)


# What the ads say


async def test_a_claimed_slot_shows_who_has_it_and_for_how_long(tmp_path):
    macros = {"STARTD_JOB_ATTRS": "Project, Unknown", "RANK": "TARGET.Liked ?: 0", "MAXJOBRETIREMENTTIME": "100"}
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        attributes = {"Project": "p7", "Liked": 4, "AccountingGroup": "group_a.alice", "ConcurrencyLimits": "db"}
        activation, _ = await runs(pool, tmp_path, **attributes)
        ad = ClassAd.unpack(ad_of(pool, "slot1_1@node1").pack())
        start = ad.eval("JobStart")
        shown = {
            "RemoteUser": "alice@pool",
            "RemoteOwner": "alice@pool",
            "AccountingGroup": "group_a.alice@pool",
            "ConcurrencyLimits": "db",
            "CurrentRank": 4.0,
            "JobId": activation.job_id,
            "GlobalJobId": "schedd1#1.0#1",
            "Project": "p7",
        }
        assert {name: ad.eval(name) for name in shown} == shown
        assert "Unknown" not in ad
        assert start > 0
        # The same ad tells the truth an hour later.
        assert ad.eval("TotalJobRunTime", now=start + 3600.0) == 3600
        assert ad.eval("TotalClaimRunTime", now=start + 3600.0) == 3600
        assert [ad.eval("RetirementTimeRemaining", now=start + t) for t in (0.0, 60.0, 101.0)] == [100, 40, 0]
        (tmp_path / "go").touch()
        await pool.schedd.end_of(activation.job_id)
        idle = ad_of(pool, "slot1_1@node1")
        assert "JobId" not in idle
        assert (idle.eval("RetirementTimeRemaining"), idle.eval("TotalClaimRunTime") >= 0) == (0, True)


async def test_a_partitionable_slot_rolls_up_its_dynamic_slots(tmp_path):
    async with startd_pool.Pool(tmp_path, RANK="TARGET.Liked ?: 0", MAXJOBRETIREMENTTIME="100") as pool:
        await runs(pool, tmp_path, Liked=2, RequestCpus=3)
        await pool.call(pool.request(submitter="bob@pool"))
        parent = ClassAd.unpack(ad_of(pool).pack())
        lists = {
            "ChildName": ["slot1_1@node1", "slot1_2@node1"],
            "ChildState": ["Claimed", "Claimed"],
            "ChildActivity": ["Busy", "Idle"],
            "ChildCpus": [3, 1],
            "ChildMemory": [128, 128],
            "ChildCurrentRank": [2.0, 0.0],
            "ChildRemoteUser": ["alice@pool", "bob@pool"],
        }
        assert {name: parent.eval(name) for name in lists} == lists
        assert (parent.eval("NumDynamicSlots"), parent.eval("PslotRollupInformation")) == (2, True)
        since = ad_of(pool, "slot1_1@node1").eval("JobStart")
        assert parent.eval("ChildRetirementTimeRemaining", now=since + 30.0) == [70, 0]


@spec("SLT-26")
async def test_slots_show_attributes_of_their_siblings(tmp_path):
    macros = {
        "NUM_SLOTS_TYPE_1": 2,
        "SLOT_TYPE_1": "cpus=1, memory=25%, disk=25%",
        "STARTD_SLOT_ATTRS": "State, RemoteUser, TotalJobRunTime",
        "START": 'SlotID == 1 || slot1_State == "Claimed"',
    }
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        assert ad_of(pool, "slot2@node1").eval("slot1_State") == "Unclaimed"
        refused = await pool.call(pool.request(slot="slot2@node1"))
        assert isinstance(refused, ClaimRefused)
        activation, granted = pool.activation(cmd="/bin/sleep", Arguments="1000"), None
        granted = await pool.call(pool.request(activation, slot="slot1@node1"))
        assert granted.activated
        other = ad_of(pool, "slot2@node1")
        assert (other.eval("slot1_State"), other.eval("slot1_RemoteUser")) == ("Claimed", "alice@pool")
        start = ad_of(pool, "slot1@node1").eval("JobStart")
        assert other.eval("slot1_TotalJobRunTime", now=start + 50.0) == 50
        assert isinstance(await pool.call(pool.request(slot="slot2@node1")), ClaimGranted)
        await pool.call(ActivateClaim(claim_id=granted.claim_id, activation=activation))


@spec("SLT-26")
async def test_siblings_are_told_again_when_what_they_show_has_changed(tmp_path):
    macros = {
        "NUM_SLOTS_TYPE_1": 2,
        "SLOT_TYPE_1": "cpus=1, memory=25%, disk=25%",
        "STARTD_SLOT_ATTRS": "State",
        "IS_OWNER": "slot1_State =?= undefined",  # looked at in the middle of a change
    }
    async with startd_pool.Pool(tmp_path, **macros) as pool:
        table = AdTable(900.0)

        async def hear(envelope):
            table.apply(envelope.body, 0.0)

        def shown():
            ads = {name: ClassAd.unpack(row.packed()) for _, name, row in table.rows("Machine")}
            return ads["slot2@node1"].eval("slot1_State") if ads else ""

        await pool.schedd.bus.listen(Exchange.ADS, ["#"], hear)
        await pool.call(SendAds(my_type="Machine"))
        await eventually(lambda: shown() == "Unclaimed")
        granted = await pool.call(pool.request(slot="slot1@node1"))
        await eventually(lambda: shown() == "Claimed")
        await pool.call(ReleaseClaim(claim_id=granted.claim_id, how="fast"))
        await eventually(lambda: shown() == "Unclaimed")
