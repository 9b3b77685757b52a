"""A claim id that leaked: whoever knows it, and is not whom the claim was made between, has no say about it.
Senders are whom the bus vouches for; what they say of claims is held to that."""

import pytest

from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus
from shared.messages.claims import (
    ActivateClaim,
    Activation,
    Alive,
    ClaimGranted,
    ClaimLost,
    ClaimReady,
    ClaimRefused,
    DeactivateClaim,
    JobExit,
    JobReport,
    ReleaseClaim,
)
from shared.messages.visits import StartVisit, Wish
from tests import scheddpool, startd_pool


@pytest.fixture
async def access_point(tmp_path):
    async with scheddpool.Pool(tmp_path) as pool:
        yield pool


@pytest.fixture
async def execution_point(tmp_path):
    async with startd_pool.Pool(tmp_path) as pool:
        yield pool


async def speaker(pool, sender):
    bus = MemoryBus(pool.hub, sender=sender)
    await bus.start()
    return bus


async def denied(bus, inbox, message):
    with pytest.raises(RemoteFailure) as refused:
        await bus.call(inbox, message)
    assert refused.value.code == "denied"


async def test_a_startd_reports_only_on_runs_that_were_given_to_it(access_point):
    pool = access_point
    run = await pool.run_one()
    claim, slot = pool.startd.claim_of[run.job_id, run.attempt]
    evil = await speaker(pool, "startd.evil")
    done = JobExit(reason="exited", exit_code=0, output_committed=True)
    about = {"startd": "evil", "slot": slot, "claim_id": claim, "at": 1000.0, "sequence": 99}
    report = JobReport(**about, job_id=run.job_id, attempt=run.attempt, phase="ended", exit=done)
    await denied(evil, "schedd.ap", report)
    await denied(evil, "schedd.ap", report.model_copy(update={"phase": "running", "exit": None}))
    await denied(evil, "schedd.ap", report.model_copy(update={"attempt": run.attempt + 1}))  # of a run that is no more
    await denied(evil, "schedd.ap", ClaimLost(startd="evil", slot=slot, claim_id=claim, reason="so"))
    await denied(evil, "schedd.ap", report.model_copy(update={"startd": "ep"}))  # in another's name
    assert (await pool.job(run.job_id))["JobStatus"] == 2
    assert not await pool.history(run.job_id)
    await pool.startd.finish(run)
    (ended,) = await pool.history(run.job_id)
    assert ended["ExitCode"] == 0
    await evil.stop()


async def test_a_claim_that_was_not_granted_yet_is_not_taken_over_by_who_knows_the_run(access_point):
    """The first report shows the claim id where the answer was lost: that of the startd that was asked only."""
    pool = access_point
    pool.startd.mute = True
    await pool.submit()
    await pool.match()
    (job,) = await pool.jobs()
    name = f"{job['ClusterId']}.0"
    evil = await speaker(pool, "startd.evil")
    about = {"startd": "evil", "slot": "slot1@evil", "claim_id": "<evil>#1#1#x", "at": 1000.0, "sequence": 1}
    done = JobExit(reason="exited", exit_code=0)
    answer = await evil.call("schedd.ap", JobReport(**about, job_id=name, attempt=1, phase="ended", exit=done))
    assert (answer.known, answer.next) == (False, None)
    assert not await pool.history(name)
    await evil.stop()


async def test_nobody_else_says_that_a_slot_is_ready(access_point):
    pool = access_point
    pool.startd.waits = True
    await pool.submit()
    await pool.match(slot=scheddpool.slot_ad(PartitionableSlot=False, State="Claimed"))
    await scheddpool.eventually(lambda: pool.startd.asked, what="the request")
    await scheddpool.eventually(lambda: pool.schedd.claims.claims.by_claim_id, what="the claim that waits")
    (claim,) = pool.schedd.claims.claims.by_claim_id
    evil = await speaker(pool, "startd.evil")
    await denied(evil, "schedd.ap", ClaimReady(startd="evil", slot="slot1@ep", claim_id=claim))
    await evil.stop()


async def test_an_access_point_orders_nothing_on_a_claim_of_another(execution_point):
    pool = execution_point
    run, granted = await pool.run(cmd="/bin/sleep", Args="1000")
    assert isinstance(granted, ClaimGranted)
    await pool.running(run.job_id)
    claim = granted.claim_id
    evil = await speaker(pool, "schedd.evil")
    other = Activation(job_id="9.0", attempt=1, job_ad=run.job_ad)
    for attack in (
        ActivateClaim(claim_id=claim, activation=other),
        DeactivateClaim(claim_id=claim, job_id=run.job_id, attempt=run.attempt, how="fast"),
        ReleaseClaim(claim_id=claim, how="fast"),
        StartVisit(claim_id=claim, job_id=run.job_id, attempt=run.attempt, user="root@pool", wish=Wish(kind="run")),
    ):
        await denied(evil, "startd.node1", attack)
    manager = pool.startd.shared.slot_manager
    assert manager.claims[claim].run
    assert pool.schedd.ends == {}
    await pool.call(ReleaseClaim(claim_id=claim, how="fast"))
    await pool.schedd.end_of(run.job_id)
    await evil.stop()


async def test_an_access_point_keeps_only_its_own_claims_alive(execution_point):
    pool = execution_point
    _, granted = await pool.run(cmd="/bin/sleep", Args="1000")
    claim = granted.claim_id
    leases = pool.startd.shared.leases._leases
    ends = dict(leases._ends)
    evil = await speaker(pool, "schedd.evil")
    answer = await evil.call("startd.node1", Alive(schedd="evil", sequence=1, claim_ids=[claim, "nobody's"]))
    assert set(answer.unknown) == {claim, "nobody's"}
    assert leases._ends == ends
    await denied(evil, "startd.node1", Alive(schedd=pool.schedd.name, sequence=1, claim_ids=[claim]))
    answer = await pool.call(Alive(schedd=pool.schedd.name, sequence=1, claim_ids=[claim]))
    assert answer.unknown == []
    assert leases._ends[claim] > ends[claim]
    await pool.call(ReleaseClaim(claim_id=claim, how="fast"))
    await evil.stop()


async def test_a_request_that_another_access_point_made_is_not_answered_again(execution_point):
    """Its answer holds the claim id."""
    pool = execution_point
    asked = pool.request(pool.activation(cmd="/bin/sleep", Args="1000"))
    granted = await pool.call(asked)
    evil = await speaker(pool, "schedd.evil")
    answer = await evil.call("startd.node1", asked.model_copy(update={"schedd": "evil", "claim_id": "guessed"}))
    assert isinstance(answer, ClaimRefused)
    assert (await pool.call(asked)).claim_id == granted.claim_id
    await pool.call(ReleaseClaim(claim_id=granted.claim_id, how="fast"))
    await evil.stop()
