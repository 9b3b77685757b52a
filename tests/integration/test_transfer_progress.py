"""How far files are while they travel: in the job's ad, in an event, and in what commands say."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from roost.cli.transfer_state import io_state
from shared.classad import UNDEFINED
from shared.transfer import progress
from tests.integration.test_startd_transfer import program, start
from tests.scheddpool import Pool as ScheddPool
from tests.scheddpool import job_ad
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually

MIB = 1 << 20
FAR = [f"TransferInput{what}" for what in ("BytesDone", "BytesTotal", "BytesPerSecond")]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(progress, "PAUSE_S", (0.02, 0.02))
    monkeypatch.setattr(progress, "NOTABLE_S", 0.0)


async def test_the_access_point_counts_what_goes_and_comes(tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 * MIB)
    ad = {"Iwd": str(tmp_path), "Cmd": "run.sh", "ShouldTransferFiles": "YES", "Out": "out", "Err": "/dev/null"}
    async with ScheddPool(tmp_path / "pool") as pool, aiohttp.ClientSession() as http:
        await pool.submit(ad=job_ad(**ad, TransferInput="large"))
        await pool.match(count=1)
        await eventually(lambda: pool.startd.activations, what="a run")
        (run,) = pool.startd.activations
        (job,) = pool.schedd.updates.table.jobs()
        headers = {"Authorization": f"Bearer {run.transfer_token}"}
        answer = await http.get(f"{run.transfer_url}/input", headers=headers)
        await answer.content.readexactly(20 * MIB)
        await eventually(lambda: job.number("TransferInputBytesDone") >= 20 * MIB, what="how far it is")
        assert [job.ad.eval(name) for name in ("TransferringInput", "TransferInputBytesTotal")] == [True, 64 * MIB + 10]
        assert " of 67.1 MB" in io_state("", job.ad)
        assert "job.transferring" in pool.event_types()
        await answer.read()
        await eventually(lambda: job.ad.eval("TransferringInput") is False, what="the end")
        assert [job.ad.eval(name) for name in FAR] == [UNDEFINED] * 3
        # What goes by URL the execution point tells of.
        told = {"way": "Input", "done": 5, "total": 10, "bytes_per_s": 1, "notable": False}
        for body, status in (
            (told, 200),
            ({**told, "done": -1}, 422),
            ({**told, "done": 1 << 70}, 422),
            ({**told, "way": "Sideways"}, 422),
            ([], 422),
        ):
            async with http.post(f"{run.transfer_url}/progress", json=body, headers=headers) as answer:
                assert answer.status == status, body
        async with http.post(f"{run.transfer_url}/progress", json=told, headers={"Authorization": "Bearer x"}) as bad:
            assert bad.status == 403
        assert [job.ad.eval(name) for name in FAR] == [5, 10, 1]
        async with http.post(f"{run.transfer_url}/progress", json={"way": "Input", "over": True}, headers=headers):
            assert [job.ad.eval(name) for name in FAR] == [UNDEFINED] * 3


async def test_the_execution_point_tells_how_far_files_are_by_url(tmp_path):
    """The built-in plug-in says it of what it fetches and sends."""
    told, go_on = [], asyncio.Event()

    async def slow(request):
        answer = web.StreamResponse(headers={"Content-Length": str(2 * MIB)})
        await answer.prepare(request)
        await answer.write(bytes(MIB))
        await go_on.wait()
        await answer.write(bytes(MIB))
        return answer

    async def hear(request):
        told.append(json.loads(await request.read()))
        return web.Response()

    files = Endpoint(tmp_path)
    app = web.Application()
    app.add_routes([web.get("/slow", slow), web.post("/run/progress", hear)])
    app.add_routes([web.get("/run/input", files.get), web.put("/run/output", files.put)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    files.url = f"{url}/run"
    async with Pool(tmp_path / "pool") as pool:
        program(files, "true")
        activation, _ = await start(pool, files, TransferInput=f"{url}/slow", TransferOutput="")
        await eventually(lambda: any(one.get("total") for one in told), what="how far it is")
        assert all(one["done"] <= MIB and one["total"] in (0, 2 * MIB) for one in told), told
        go_on.set()
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.exit_code == 0, end.exit
        assert told[-1] == {"way": "Input", "over": True}
    await runner.cleanup()
