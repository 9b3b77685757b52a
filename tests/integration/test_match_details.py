"""What surrounds a match on its way from the negotiator to the job: concurrency limits, match expressions, request
lists. The schedd and the startd each against a script of the other side."""

import pytest

from engine.match.concurrency_limits import counts_of
from engine.policy import match_exprs
from shared.bus.api import Exchange
from shared.classad import UNDEFINED, ClassAd
from shared.daemon.ad_table import AdTable
from shared.messages.claims import Alive, ClaimGranted, JobExit, JobReportAck, ReleaseClaim
from shared.messages.negotiation import GetRequests, Match, Matches
from tests import scheddpool, startd_pool
from tests.scheddpool import USER, slot_ad
from tests.spec import spec
from tests.waiting import eventually


@pytest.fixture
async def pool(tmp_path):
    async with scheddpool.Pool(tmp_path) as pool:
        yield pool


@pytest.fixture
async def point(tmp_path):
    async with startd_pool.Pool(tmp_path) as pool:
        yield pool


async def submit(pool, **attributes):
    return await pool.submit(scheddpool.job_ad(**attributes))


async def give(pool, slot=None, **match):
    """A match for the first request, with what the negotiator says besides. Gives the run that it starts."""
    before = len(pool.startd.activations)
    request = (await pool.requests()).requests[USER][0]
    fields = {
        "submitter": USER,
        "autocluster": request.autocluster,
        "slot": "slot1@ep",
        "startd": pool.startd.inbox,
        "claim_id": "<ep>#1#0#pslot",
        "slot_ad": (slot or slot_ad()).pack(),
    } | match
    await pool.call(Matches(negotiator="n", epoch=1, cycle=1, matches=[Match(**fields)]))
    await eventually(lambda: len(pool.startd.activations) > before, 5, "a run")
    return pool.startd.activations[before]


def asked(pool):
    return [request.concurrency_limits for request in pool.startd.requests.values()]


# Concurrency limits on their way


@spec("LIM-08")
async def test_the_slot_is_asked_for_with_the_limits_it_was_matched_for(pool):
    await submit(pool, ConcurrencyLimits="=TARGET.Network")
    await give(pool, concurrency_limits="network_a:2")
    assert asked(pool) == ["network_a:2"]


@spec("LIM-12")
async def test_limits_that_a_match_does_not_tell_are_those_of_the_job(pool):
    await submit(pool, ConcurrencyLimits='=strcat("SWX:2 ", TARGET.Network)')
    await give(pool, slot_ad(Network="NETWORK_A"))
    assert asked(pool) == ["swx:2,network_a"]


async def test_a_restarted_schedd_still_knows_what_a_claim_was_matched_for(pool):
    await submit(pool, ConcurrencyLimits="xsw")
    run = await give(pool, concurrency_limits="xsw")
    await submit(pool, ConcurrencyLimits="XSW:1")
    await pool.restart()
    ack = await pool.startd.finish(run)
    assert ack.next.job_id == "2.0"


@spec("LIM-01")
@pytest.mark.parametrize("limits", [{}, {"ConcurrencyLimits": "xsw:2"}, {"ConcurrencyLimits": "xsw,db"}])
async def test_a_claim_goes_to_no_job_that_takes_other_limits(pool, limits):
    await submit(pool, ConcurrencyLimits="xsw")
    run = await give(pool, concurrency_limits="xsw")
    await submit(pool, **limits)
    ack = await pool.startd.finish(run)
    assert ack.release
    assert (await pool.job("2.0"))["JobStatus"] == 1


@spec("LIM-01")
async def test_a_claim_without_limits_goes_to_no_job_that_has_some(pool):
    await submit(pool)
    run = await give(pool)
    await submit(pool, ConcurrencyLimits="xsw")
    assert (await pool.startd.finish(run)).release


# Request lists


def listed(answer):
    return [(request.first_job, request.count) for request in answer.requests.get(USER, ())]


@spec("NEG-15")
async def test_jobs_come_by_priority_then_age(pool):
    for priority, memory in ((0, 1), (5, 2), (-5, 3), (5, 4)):
        await submit(pool, JobPrio=priority, RequestMemory=memory)
    assert [job for job, _ in listed(await pool.requests())] == ["2.0", "4.0", "1.0", "3.0"]


@spec("NEG-29")
async def test_consecutive_jobs_of_an_autocluster_are_one_request(pool):
    await pool.submit(procs=3)
    await submit(pool, RequestMemory=7, JobPrio=1)
    await pool.submit(procs=2)
    assert listed(await pool.requests()) == [("2.0", 1), ("1.0", 5)]
    each = listed(await pool.requests(counts=False))
    assert each == [("2.0", 1), ("1.0", 1), ("1.1", 1), ("1.2", 1), ("3.0", 1), ("3.1", 1)]
    assert listed(await pool.requests(counts=False, job_constraint="RequestMemory == 7")) == [("2.0", 1)]


@spec("NEG-29")
async def test_the_access_points_own_knob_makes_each_job_a_request_too(tmp_path):
    async with scheddpool.Pool(tmp_path, USE_RESOURCE_REQUEST_COUNTS="false") as pool:
        await pool.submit(procs=2)
        assert listed(await pool.requests()) == [("1.0", 1), ("1.1", 1)]


@spec("NEG-30")
@pytest.mark.parametrize("constraint", ["", "RequestMemory > 0"])
async def test_lists_come_in_parts(pool, constraint):
    for memory in range(1, 6):
        await submit(pool, RequestMemory=memory)
    found, skip = [], 0
    for more in (True, True, False):
        part = await pool.requests(limit=2, skip={USER: skip}, job_constraint=constraint)
        assert part.more == ([USER] if more else [])
        found += [job for job, _ in listed(part)]
        skip = len(found)
    assert found == [f"{cluster}.0" for cluster in range(1, 6)]


@spec("NEG-30")
async def test_huge_ads_come_in_several_answers_and_keep_nobody_else_waiting(pool):
    # Every other submitter's requests fit into each answer, whatever one of them fills his ads with.
    for memory in range(6):
        await pool.submit(scheddpool.job_ad(RequestMemory=memory + 1, Padding="x" * 900_000))
        await pool.submit(scheddpool.job_ad(RequestMemory=memory + 1, AccountingGroup="g.x", AcctGroup="g"))
    names = sorted(pool.schedd.table.idle)
    assert len(names) == 2
    seen, skip, answers = dict.fromkeys(names, 0), {}, 0
    while True:
        answer = await pool.call(GetRequests(negotiator="n", epoch=1, cycle=1, submitters=names, skip=skip))
        answers += 1
        assert sum(len(one.ad) for part in answer.requests.values() for one in part) < 5 << 20
        for name, part in answer.requests.items():
            seen[name] += len(part)
        if answers == 1:
            small = min(names, key=lambda name: len(answer.requests[name][0].ad))
            assert seen[small] == 6
        if not answer.more:
            break
        assert any(answer.requests.values())
        skip = dict(seen)
    assert seen == dict.fromkeys(names, 6)
    assert answers > 1


@spec("NEG-31")
async def test_a_match_never_starts_a_job_outside_the_job_constraint(pool):
    # The two differ in nothing that slots or the schedd look at.
    await submit(pool, Site="far")
    await submit(pool, Site="near")
    constraint = 'Site == "near"'
    answer = await pool.requests(job_constraint=constraint)
    assert listed(answer) == [("2.0", 1)]
    await pool.match(autocluster=answer.requests[USER][0].autocluster)
    await eventually(lambda: pool.startd.activations)
    assert [run.job_id for run in pool.startd.activations] == ["2.0"]


@spec("NEG-31")
@pytest.mark.parametrize(
    "constraint", ["ProcId == 1", 'regexp("#1[.]1#", GlobalJobId)', "ClusterId == 1 && MY.ProcId > 0", "Number == 7"]
)
async def test_the_job_constraint_is_asked_of_each_job(pool, constraint):
    await pool.submit(procs=[ClassAd({"Number": number}) for number in (6, 7)])
    await pool.submit()
    assert listed(await pool.requests(job_constraint=constraint)) == [("1.1", 1)]


@spec("NEG-17")
async def test_the_negotiators_significant_attributes_divide_autoclusters(pool):
    await submit(pool, Colour="red")
    await submit(pool, Colour="blue")
    assert listed(await pool.requests()) == [("1.0", 2)]
    assert listed(await pool.requests(significant=["colour"])) == [("1.0", 1), ("2.0", 1)]


@spec("NEG-17")
async def test_a_job_that_ran_is_sorted_anew_by_what_its_run_changed(pool):
    await pool.submit(procs=2)
    significant = ["NumJobStarts"]
    assert listed(await pool.requests(significant=significant)) == [("1.0", 2)]
    run = await give(pool)
    await pool.startd.report(run, "running", started_at=5.0)
    await pool.startd.finish(run, exit=JobExit(reason="evicted"))
    await eventually(lambda: pool.schedd.table.demand(USER)[0] == 2)
    assert listed(await pool.requests(significant=significant)) == [("1.0", 1), ("1.1", 1)]


@spec("NEG-17")
async def test_the_administrators_significant_attributes_replace_the_negotiators(tmp_path):
    async with scheddpool.Pool(tmp_path, SIGNIFICANT_ATTRIBUTES="Size, Weight") as pool:
        await submit(pool, Colour="red", Size=1)
        await submit(pool, Colour="blue", Size=1)
        await submit(pool, Colour="blue", Size=2)
        assert listed(await pool.requests(significant=["colour"])) == [("1.0", 2), ("3.0", 1)]


# Claims that go on


@spec("NEG-42")
async def test_a_claim_serves_several_jobs_without_new_negotiation(pool):
    await pool.submit(procs=3)
    run = await give(pool)
    order = []
    while run is not None:
        order.append(run.job_id)
        ack = await pool.startd.finish(run)
        run = ack.next
    assert order == ["1.0", "1.1", "1.2"]
    assert ack.release
    assert len(pool.startd.requests) == 1


@spec("NEG-42")
@pytest.mark.parametrize(("worklife", "over"), [(0, True), (1_000_000, False), (-1, False), ("", False)])
async def test_a_claim_takes_jobs_until_its_worklife_is_over(tmp_path, worklife, over):
    """CLAIM_WORKLIFE is the execution point's: it tells the schedd when there is no use in another job."""
    async with startd_pool.Pool(tmp_path, CLAIM_WORKLIFE=worklife) as pool:
        second = pool.activation(cmd="/bin/true")
        pool.schedd.next_job = lambda report: JobReportAck(next=None if report.claim_over else second)
        activation, _ = await pool.run("/bin/true")
        assert (await pool.schedd.end_of(activation.job_id)).claim_over is over
        await eventually(lambda: over or f"{second.job_id}/1" in pool.schedd.ends)
        assert ("slot1_1@node1" in pool.conditions()) is not over


@spec("LEA-02")
async def test_a_claim_that_ended_with_its_run_is_known_until_the_end_is_told(tmp_path):
    """A schedd that was away meanwhile would run the job a second time."""
    async with startd_pool.Pool(tmp_path, CLAIM_WORKLIFE=0) as pool:
        pool.schedd.refuse = 1_000_000
        activation, granted = await pool.run("/bin/true")
        await eventually(lambda: "slot1_1@node1" not in pool.conditions(), what="the slot to be given back")

        async def unknown():
            return (await pool.call(Alive(schedd="schedd1", sequence=1, claim_ids=[granted.claim_id, "x"]))).unknown

        assert await unknown() == ["x"]
        pool.schedd.refuse = 0
        await pool.schedd.end_of(activation.job_id)

        async def forgotten():
            return await unknown() == [granted.claim_id, "x"]

        await eventually(forgotten, what="the claim to be forgotten")


# Match expressions

EXPRS = match_exprs(
    ["NegotiatorName", "NegotiatorMatchExprSite"],
    {"NegotiatorName": '"My Negotiator"', "NegotiatorMatchExprSite": "1 + 2"}.get,
)


@spec("NEG-32", "W-06")
async def test_the_matched_job_carries_the_negotiators_match_expressions(pool):
    await pool.submit(procs=2)
    slot = ClassAd.unpack(EXPRS.into(slot_ad().pack()))
    run = await give(pool, slot)
    told = {"NegotiatorMatchExprNegotiatorName": "My Negotiator", "NegotiatorMatchExprSite": 3}
    for ad in (await pool.job("1.0"), ClassAd.unpack(run.job_ad)):
        assert {name: ad.eval(name) for name in ad if name.startswith("NegotiatorMatchExpr")} == told
    # The next job on the claim was matched by the same negotiator, also after a restart.
    await pool.restart()
    following = (await pool.startd.finish(run)).next
    assert ClassAd.unpack(following.job_ad)["NegotiatorMatchExprNegotiatorName"] == "My Negotiator"


@spec("NEG-32")
async def test_what_another_negotiator_told_is_gone(pool):
    await submit(pool)
    run = await give(pool, ClassAd.unpack(EXPRS.into(slot_ad().pack())))
    await pool.startd.finish(run, exit=JobExit(reason="evicted"))
    await eventually(lambda: pool.schedd.table.demand(USER)[0] == 1)
    again = await give(pool)
    assert not any(name.startswith("NegotiatorMatchExpr") for name in ClassAd.unpack(again.job_ad))


# The startd


class Ads:
    """The slot ads that a startd publishes."""

    def __init__(self, point):
        self.point = point
        self.table = AdTable(900.0)

    async def listen(self):
        await self.point.schedd.bus.listen(Exchange.ADS, ["*.Machine.#"], self.on)
        return self

    async def on(self, envelope):
        self.table.apply(envelope.body, 0.0)

    def of(self, slot):
        row = self.table.row("Machine", "startd@node1", slot)
        return ClassAd.unpack(row.packed()) if row is not None else ClassAd()

    def limits(self, slot):
        return self.of(slot).eval("ConcurrencyLimits")


@spec("LIM-12")
async def test_a_claimed_slot_shows_the_matched_limits_until_it_is_free(point):
    ads = await Ads(point).listen()
    job = startd_pool.job_ad(ConcurrencyLimits="something else")
    granted = await point.call(point.request(ad=job, concurrency_limits="xsw:2,network_a"))
    assert isinstance(granted, ClaimGranted)
    assert counts_of([ClassAd.unpack(granted.slot_ad)]) == {"xsw": 2.0, "network_a": 1.0}
    await eventually(lambda: ads.limits(granted.slot) == "xsw:2,network_a")
    assert ads.limits("slot1@node1") is UNDEFINED
    await point.restart()
    ads = await Ads(point).listen()
    await eventually(lambda: ads.limits(granted.slot) == "xsw:2,network_a")
    await point.call(ReleaseClaim(claim_id=granted.claim_id))
    await eventually(lambda: not ads.of(granted.slot))
