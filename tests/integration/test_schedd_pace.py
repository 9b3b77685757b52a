"""How fast a schedd starts jobs, moves files and tells of itself: JOB_START_COUNT, JOB_START_DELAY,
MAX_CONCURRENT_UPLOADS, MAX_CONCURRENT_DOWNLOADS, SCHEDD_MIN_INTERVAL."""

import asyncio
import time

import aiohttp
import pytest

from services.schedd.io import transfer_turns
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus
from shared.messages.base import Ack
from shared.messages.negotiation import Reschedule
from shared.transfer.bundle import Source
from shared.transfer.client import fetch, send
from tests.scheddpool import Pool, job_ad
from tests.spec import spec
from tests.waiting import eventually


async def test_jobs_start_in_batches_and_the_negotiator_hears_when_more_may(tmp_path):
    async with Pool(tmp_path, JOB_START_COUNT="2", JOB_START_DELAY="3") as pool:
        negotiator, woken = MemoryBus(pool.hub, sender="negotiator.n"), []

        async def answer(envelope):
            woken.append(envelope.body)
            return Ack()

        await negotiator.start()
        await negotiator.serve("negotiator", answer)
        await pool.submit(procs=9)
        began = time.monotonic()
        at = {}
        ask = pool.startd._grant
        pool.startd._grant = lambda body: at.setdefault(body.activation.job_id, time.monotonic()) and ask(body)
        taken = await pool.match(count=9)
        assert taken.begun == [4]  # the third batch would begin after 6 s: its slots go to others
        assert len(at) <= 2
        await eventually(lambda: len(at) == 4, what="both batches")
        assert min(at["1.2"], at["1.3"]) >= began + 3
        await eventually(lambda: woken == [Reschedule(by="schedd.ap")], what="word to the negotiator")
        assert (await pool.match(count=9)).begun[0] >= 2
        assert (await pool.call_totals()).get("Held", 0) == 0
        await negotiator.stop()


@spec("SUB-08")
async def test_a_job_has_the_next_one_start_later(tmp_path):
    async with Pool(tmp_path, MAX_NEXT_JOB_START_DELAY="2") as pool:
        at = {}
        ask = pool.startd._grant
        pool.startd._grant = lambda body: at.setdefault(body.activation.job_id, time.monotonic()) and ask(body)
        await pool.submit(job_ad(NextJobStartDelay="=100 * 10"), procs=2)
        began = time.monotonic()
        assert (await pool.match(count=2)).begun == [2]
        await eventually(lambda: len(at) == 2, what="both starts")
        assert at["1.1"] >= began + 2


@pytest.mark.parametrize("knob", ["MAX_CONCURRENT_UPLOADS", "MAX_CONCURRENT_DOWNLOADS"])
async def test_transfers_beyond_the_limit_wait_for_their_turn(tmp_path, monkeypatch, knob):
    monkeypatch.setattr(transfer_turns, "TURN_S", 0.1)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 << 20)
    ad = {"Iwd": str(tmp_path), "Cmd": "run.sh", "ShouldTransferFiles": "YES", "Out": "out", "Err": "/dev/null"}
    async with Pool(tmp_path / "pool", **{knob: "1"}) as pool, aiohttp.ClientSession() as http:
        await pool.submit(ad=job_ad(**ad, TransferInput="large"), procs=2)
        await pool.match(count=2)
        await eventually(lambda: len(pool.startd.activations) == 2, what="two runs")
        one, two = pool.startd.activations
        line = pool.schedd.file_server.turns.tickets.queues["input" if knob.endswith("UPLOADS") else "output"]
        headers = {"Authorization": f"Bearer {one.transfer_token}"}
        go_on = asyncio.Event()
        if knob.endswith("UPLOADS"):
            first = await http.get(f"{one.transfer_url}/input", headers=headers)  # and nobody reads it
            (tmp_path / "scratch").mkdir()
            second = asyncio.create_task(fetch(http, two.transfer_url, two.transfer_token, tmp_path / "scratch"))
        else:

            async def slow():
                yield b"x"
                await go_on.wait()

            first = asyncio.create_task(http.put(f"{one.transfer_url}/output", headers=headers, data=slow()))
            await eventually(lambda: line.going == 1, what="the first transfer")
            (tmp_path / "out").write_text("said")
            sources = [Source(tmp_path / "out", "_condor_stdout")]
            second = asyncio.create_task(send(http, two.transfer_url, two.transfer_token, sources))
        await eventually(lambda: line.waiting == 1, what="the second waits")
        await eventually(lambda: not line.waiting, what="it was told to ask again")
        await eventually(lambda: line.waiting == 1, what="it asks again")
        assert line.going == 1
        assert not second.done()
        go_on.set()
        if knob.endswith("UPLOADS"):
            first.close()
        else:
            assert (await first).status == 422  # that was no bundle
        await asyncio.wait_for(second, 60)
        await eventually(lambda: (line.going, line.waiting) == (0, 0), what="nobody in the line")


async def test_submitter_ads_keep_their_distance_where_an_administrator_says_so(tmp_path):
    async with Pool(tmp_path, SCHEDD_MIN_INTERVAL="2") as pool:
        told = []

        async def hear(envelope):
            told.append(envelope.body)

        await pool.client.listen(Exchange.ADS, ["*.Submitter.#"], hear)
        began = time.monotonic()
        for _ in range(10):
            await pool.submit()
        await eventually(
            lambda: pool.submitter() is not None and pool.submitter()["IdleJobs"] == 10, what="all of them"
        )
        assert len(told) <= (time.monotonic() - began) / 2 + 2
