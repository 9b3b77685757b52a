"""File transfer between the client's end and a real schedd's endpoint, over HTTP."""

import asyncio
import os
import socket

import aiohttp
import pytest

from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.messages.claims import JobExit
from shared.messages.queue import FetchFiles
from shared.transfer.bundle import Source, read_bundle, write_bundle
from shared.transfer.client import fetch, send
from shared.transfer.errors import TransferError, TransferRefused, TransferUnavailable
from tests.scheddpool import USER, Pool, job_ad
from tests.waiting import eventually


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path / "pool") as pool:
        yield pool


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def iwd(tmp_path):
    where = tmp_path / "iwd"
    (where / "data").mkdir(parents=True)
    (where / "run.sh").write_text("#!/bin/sh\n")
    (where / "run.sh").chmod(0o755)
    (where / "in.txt").write_text("in")
    (where / "data" / "a").write_text("A")
    (where / "data" / "b").write_text("B")
    return where


@pytest.fixture
def scratch(tmp_path):
    where = tmp_path / "scratch"
    where.mkdir()
    return where


def transfer_ad(iwd, **attributes):
    return job_ad(
        **{
            "Iwd": str(iwd),
            "Cmd": "run.sh",
            "ShouldTransferFiles": "YES",
            "Out": "out.txt",
            "Err": "/dev/null",
            **attributes,
        }
    )


def made(folder, **files):
    for name, text in files.items():
        (folder / name).write_text(text)
    return [Source(folder / name, name) for name in files]


async def fetch_input(http, run, scratch, **options):
    return await fetch(http, run.transfer_url, run.transfer_token, scratch, **options)


async def send_output(http, run, sources, **options):
    return await send(http, run.transfer_url, run.transfer_token, sources, **options)


async def test_the_input_is_executable_stdin_and_what_the_job_names(pool, http, iwd, scratch):
    run = await pool.run_one(ad=transfer_ad(iwd, In="in.txt", TransferInput="data/, data, http://x/y"))
    received = await fetch_input(http, run, scratch)
    assert sorted(os.listdir(scratch)) == ["a", "b", "condor_exec.exe", "data", "in.txt"]
    assert os.access(scratch / "condor_exec.exe", os.X_OK)
    assert (scratch / "data" / "b").read_text() == "B"
    assert received.bytes == 16


async def test_output_goes_where_the_job_says(pool, http, iwd, scratch):
    run = await pool.run_one(ad=transfer_ad(iwd, TransferOutputRemaps="res=sub/result; dir=moved", Err="err.txt"))
    (iwd / "sub").mkdir()
    (scratch / "dir").mkdir()
    (scratch / "dir" / "x").write_text("X")
    sources = made(scratch, _condor_stdout="out", _condor_stderr="err", res="R", other="O")
    await send_output(http, run, [*sources, Source(scratch / "dir", "dir")])
    for name, text in {
        "out.txt": "out", "err.txt": "err", "sub/result": "R", "other": "O", "moved/x": "X"
    }.items():  # fmt: skip
        assert (iwd / name).read_text() == text
    assert (await pool.startd.finish(run, exit=JobExit(reason="exited", exit_code=0))).known
    assert (await pool.history())[0]["JobStatus"] == 4


async def test_an_output_sent_again_changes_nothing(pool, http, iwd, scratch):
    run = await pool.run_one(ad=transfer_ad(iwd))
    assert not (await send_output(http, run, made(scratch, _condor_stdout="first"))).repeated
    assert (await send_output(http, run, made(scratch, _condor_stdout="second"))).repeated
    assert (iwd / "out.txt").read_text() == "first"


async def test_an_older_attempt_may_neither_read_nor_write(pool, http, iwd, scratch):
    old = await pool.run_one(ad=transfer_ad(iwd))
    await pool.startd.finish(old, exit=JobExit(reason="evicted"))
    await pool.match()
    await eventually(lambda: len(pool.startd.activations) == 2)
    new = pool.startd.activations[1]
    for run in (old, old.model_copy(update={"transfer_url": new.transfer_url})):
        with pytest.raises(TransferRefused):
            await send_output(http, run, made(scratch, _condor_stdout="stale"))
        with pytest.raises(TransferRefused):
            await fetch_input(http, run, scratch)
    assert not (iwd / "out.txt").exists()


async def test_a_run_without_its_output_is_not_taken_for_complete(pool, iwd):
    run = await pool.run_one(ad=transfer_ad(iwd))
    await pool.startd.finish(run, exit=JobExit(reason="exited", exit_code=0))
    await eventually(lambda: len(pool.startd.activations) == 2, what="another run")
    assert "ExitCode" not in await pool.job("1.0")


async def test_missing_input_is_named(pool, http, iwd, scratch):
    run = await pool.run_one(ad=transfer_ad(iwd, TransferInput="nope.dat"))
    with pytest.raises(TransferRefused, match=r"nope\.dat") as refusal:
        await fetch_input(http, run, scratch)
    assert refusal.value.status == 422
    assert os.listdir(scratch) == []


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped"])
async def test_output_that_leaves_the_sandbox_is_refused_by_the_schedd_too(pool, http, iwd, name):
    run = await pool.run_one(ad=transfer_ad(iwd))
    from tests.unit.transfer.test_bundle import honest, member

    async with http.put(
        f"{run.transfer_url}/output",
        data=honest((member(name), b"x")),
        headers={"Authorization": f"Bearer {run.transfer_token}"},
    ) as response:
        assert response.status == 422
        assert "escaped" in await response.text()
    assert not (iwd.parent / "escaped").exists()


async def test_output_is_not_written_through_a_link_out_of_the_job_directory(pool, http, iwd, scratch, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (iwd / "way").symlink_to(outside)
    run = await pool.run_one(ad=transfer_ad(iwd))
    (scratch / "way").mkdir()
    (scratch / "way" / "f").write_text("x")
    with pytest.raises(TransferRefused, match="outside"):
        await send_output(http, run, [Source(scratch / "way", "way")])
    assert os.listdir(outside) == []


async def test_a_broken_output_changes_nothing(pool, http, iwd, scratch):
    run = await pool.run_one(ad=transfer_ad(iwd))
    whole = b"".join([chunk async for chunk in write_bundle(made(scratch, _condor_stdout="x", two="y"))])
    async with http.put(
        f"{run.transfer_url}/output",
        data=whole[:2000],
        headers={"Authorization": f"Bearer {run.transfer_token}"},
    ) as response:
        assert response.status == 422
    assert sorted(os.listdir(iwd)) == ["data", "in.txt", "run.sh"]
    await send_output(http, run, made(scratch, _condor_stdout="x"))
    assert (iwd / "out.txt").read_text() == "x"


async def test_a_limit_on_output_is_kept(pool, http, iwd, scratch):
    run = await pool.run_one(ad=transfer_ad(iwd, MaxTransferOutputMB=1))
    (scratch / "big").write_bytes(bytes(2 << 20))
    with pytest.raises(TransferError, match="limit"):
        await send_output(http, run, [Source(scratch / "big", "big")])


async def test_output_begun_by_a_killed_schedd_is_finished_by_the_next(pool, http, iwd, scratch, monkeypatch):
    from services.schedd.io import file_server

    run = await pool.run_one(ad=transfer_ad(iwd))
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)

    def killed(staging, moves, *, begun):
        # A kill leaves everything where it is; the handler's own clean-up must not run either.
        os.rename(staging, str(staging) + ".kept")
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(file_server, "put_in_place", killed)
        with pytest.raises(TransferUnavailable):
            await send_output(http, run, made(scratch, _condor_stdout="kept"), patience_s=0)
    await pool.end()
    for kept in pool.directory.rglob("*.kept"):
        os.rename(kept, str(kept).removesuffix(".kept"))
    await pool.begin()
    assert (iwd / "out.txt").read_text() == "kept"
    assert (await send_output(http, run, made(scratch, _condor_stdout="again"))).repeated


async def test_the_endpoint_keeps_its_address_over_a_restart(pool, http, iwd, scratch):
    run = await pool.run_one(ad=transfer_ad(iwd))
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    await pool.end()
    fetching = asyncio.ensure_future(fetch_input(http, run, scratch))
    await pool.begin()
    await fetching
    assert (scratch / "condor_exec.exe").exists()


async def test_an_endpoint_that_is_away_is_waited_for_only_so_long(http, scratch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(TransferUnavailable):
        await fetch(http, f"http://127.0.0.1:{port}", "t", scratch, patience_s=0)


async def test_a_source_that_can_not_be_sent_is_told_at_once(pool, http, iwd, tmp_path):
    run = await pool.run_one(ad=transfer_ad(iwd))
    with pytest.raises(TransferError, match="gone"):
        await send_output(http, run, [Source(tmp_path / "gone", "gone")])


async def test_a_spooled_job_brings_its_files_and_gives_its_output_back(pool, http, iwd, scratch, tmp_path):
    other = "somebody@pool"
    answer = await pool.submit(transfer_ad(iwd, Out="/home/x/out.txt"), procs=2, spool=True, user=other)
    assert [ad["HoldReasonCode"] for ad in await pool.jobs()] == [16, 16]
    assert await pool.act("release", "1.0", user=other) == {"1.0": "wrong-state"}
    headers = {"Authorization": f"Bearer {answer.upload_token}"}
    sources = [Source(iwd / "run.sh", "condor_exec.exe"), Source(iwd / "in.txt", "in.txt")]
    for token, status in (("wrong", 403), (answer.upload_token, 200), (answer.upload_token, 200)):
        headers = {"Authorization": f"Bearer {token}"}
        async with http.put(answer.upload_url, data=write_bundle(sources), headers=headers) as response:
            assert response.status == status
    assert [ad["JobStatus"] for ad in await pool.jobs()] == [1, 1]
    await pool.match(submitter=other)
    await eventually(lambda: pool.startd.activations)
    run = pool.startd.activations[0]
    await fetch_input(http, run, scratch)
    assert sorted(os.listdir(scratch)) == ["condor_exec.exe", "in.txt"]
    await send_output(http, run, made(scratch, _condor_stdout="out", result="R"))
    await pool.startd.finish(run, exit=JobExit(reason="exited", exit_code=0))
    assert (await pool.job("1.0"))["JobStatus"] == 4  # stays for its owner to fetch
    with pytest.raises(RemoteFailure) as refusal:
        await pool.call(FetchFiles(user="mallory@pool", job_id="1.0"))
    assert refusal.value.code == "denied"
    access = await pool.call(FetchFiles(user=other, job_id="1.0"))
    back = tmp_path / "back"
    back.mkdir()
    async with http.get(access.url, headers={"Authorization": f"Bearer {access.token}"}) as response:
        await read_bundle(response.content.iter_chunked(1000), back)
    assert {path.name: path.read_text() for path in back.iterdir()} == {"out.txt": "out", "result": "R"}
    assert await pool.act("remove", "1.0", user=other) == {"1.0": "done"}
    await eventually(lambda: not (pool.directory / "spool/schedd/ap/sandboxes/1/proc0").exists())


async def test_without_transfer_there_is_no_token(pool):
    run = await pool.run_one()
    assert run.transfer_url == ""
    assert run.transfer_token == ""
    assert ClassAd.unpack(run.job_ad)["User"] == USER
