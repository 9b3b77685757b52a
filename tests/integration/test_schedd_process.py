"""A schedd as a process of its own on real servers, killed with SIGKILL while a job runs."""

import asyncio

import pytest

from shared.bus import connect
from shared.classad import ClassAd
from shared.messages.claims import JobExit
from shared.messages.negotiation import GetRequests, Match, Matches
from shared.messages.queue import QueryJobs, SubmitJobs
from tests.processes import DaemonProcess
from tests.scheddpool import USER, FakeStartd, job_ad, slot_ad
from tests.speakers import Speakers
from tests.waiting import eventually

pytestmark = pytest.mark.servers


async def test_a_killed_schedd_carries_on_with_its_running_job(tmp_path, amqp_url, redis_url):
    config = {"ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1"}
    schedd = DaemonProcess("schedd", "ap", tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
    startd = FakeStartd(None, bus=connect(amqp_url, "startd.ep"))
    await startd.start()
    client = Speakers.on_broker(amqp_url)
    try:
        await asyncio.to_thread(schedd.start)
        procs = [ClassAd().pack()] * 2
        await client.call("schedd.ap", SubmitJobs(user=USER, submit_id="x", cluster_ad=job_ad().pack(), procs=procs))
        asked = GetRequests(negotiator="n", epoch=1, cycle=1, submitters=[USER])
        (request,) = (await client.call("schedd.ap", asked)).requests[USER]
        assert request.count == 2
        match = Match(
            submitter=USER,
            autocluster=request.autocluster,
            slot="slot1@ep",
            startd="startd.ep",
            claim_id="<ep>#1#0#pslot",
            slot_ad=slot_ad().pack(),
        )
        await client.call("schedd.ap", Matches(negotiator="n", epoch=1, cycle=1, matches=[match]))
        await eventually(lambda: startd.activations)
        await asyncio.to_thread(schedd.kill)
        await asyncio.to_thread(schedd.start)
        exit_ = JobExit(reason="exited", exit_code=7)
        ack = await startd.report(startd.activations[0], "ended", exit=exit_, timeout=30)
        assert ack.known
        await asyncio.to_thread(schedd.kill)
        await asyncio.to_thread(schedd.start)
        again = await startd.report(startd.activations[0], "ended", exit=exit_, timeout=30)
        assert (again.next is None) == (ack.next is None)
        last = await startd.report(startd.activations[1], "ended", exit=exit_, timeout=30)
        assert last.known
        page = await client.call("schedd.ap", QueryJobs(history=True))
        ends = [(ad["ProcId"], ad["ExitCode"], ad["NumShadowStarts"]) for ad in map(ClassAd.unpack, page.ads)]
        assert ends == [(1, 7, 1), (0, 7, 1)]
    finally:
        await asyncio.to_thread(schedd.close)
        await client.stop()
        await startd.bus.stop()
