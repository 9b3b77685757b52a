"""What surrounds a match on its way from the negotiator to the job: concurrency limits, match expressions, request
lists. The schedd and the startd each against a script of the other side."""

import pytest

from services.negotiator.limits import counts_of
from shared.bus.api import Exchange
from shared.classad import UNDEFINED, ClassAd
from shared.daemon.ad_table import AdTable
from shared.messages.claims import ClaimGranted, ReleaseClaim
from shared.messages.negotiation import Match, Matches
from tests import scheddpool, startd_pool
from tests.scheddpool import USER, slot_ad
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


async def test_the_slot_is_asked_for_with_the_limits_it_was_matched_for_LIM_08(pool):
    await submit(pool, ConcurrencyLimits="=TARGET.Network")
    await give(pool, concurrency_limits="network_a:2")
    assert asked(pool) == ["network_a:2"]


async def test_limits_that_a_match_does_not_tell_are_those_of_the_job_LIM_12(pool):
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


@pytest.mark.parametrize("limits", [{}, {"ConcurrencyLimits": "xsw:2"}, {"ConcurrencyLimits": "xsw,db"}])
async def test_a_claim_goes_to_no_job_that_takes_other_limits_LIM_01(pool, limits):
    await submit(pool, ConcurrencyLimits="xsw")
    run = await give(pool, concurrency_limits="xsw")
    await submit(pool, **limits)
    ack = await pool.startd.finish(run)
    assert ack.release
    assert (await pool.job("2.0"))["JobStatus"] == 1


async def test_a_claim_without_limits_goes_to_no_job_that_has_some_LIM_01(pool):
    await submit(pool)
    run = await give(pool)
    await submit(pool, ConcurrencyLimits="xsw")
    assert (await pool.startd.finish(run)).release


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


async def test_a_claimed_slot_shows_the_matched_limits_until_it_is_free_LIM_12(point):
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
