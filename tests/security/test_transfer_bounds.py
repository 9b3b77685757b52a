"""Files that travel are bounded by what the job may have, while they come: whoever sends more is cut off, held with
HTCondor's code, and leaves nothing behind. Sizes that are announced are no help to a liar."""

import asyncio
import os
import tarfile
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from shared.classad import ClassAd, parse_expr
from shared.messages.claims import JobExit
from shared.transfer import extraction, members
from shared.transfer.bundle import Source, _pax, check_sources, read_bundle, write_bundle
from shared.transfer.client import fetch, send
from shared.transfer.errors import TooLarge, TransferError, TransferRefused
from shared.transfer.limits import INPUT, OUTPUT, limit_of
from tests.scheddpool import Pool, job_ad
from tests.spec import spec
from tests.startd_pool import Endpoint
from tests.startd_pool import Pool as StartdPool
from tests.startd_pool import job_ad as startd_job_ad
from tests.waiting import eventually

MIB = 1 << 20


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(os.urandom(3 * MIB))
    return path


def spooled_ad(tmp_path, **attributes):
    return job_ad(Iwd=str(tmp_path), Cmd="run.sh", ShouldTransferFiles="YES", **attributes)


def files_below(root):
    return sorted(path.name for path in root.rglob("*") if path.is_file() and not path.name.startswith("job_queue"))


async def endless(first: bytes, most: int):
    """A sender that goes on until it is cut off. Raises what breaks its connection."""
    yield first
    for _ in range(most // len(ZEROS)):
        yield ZEROS
        await asyncio.sleep(0)


ZEROS = bytes(256 * 1024)


def header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    ("ad", "knob", "limit"),
    [
        ({}, "-1", None),
        ({}, "1", MIB),
        ({OUTPUT: 2}, "1", 2 * MIB),  # the job's own goes before the pool's
        ({OUTPUT: -1}, "1", None),
        ({OUTPUT: 0}, "1", 0),
        ({OUTPUT: "much"}, "1", MIB),
        ({OUTPUT: float("nan")}, "1", MIB),
        ({OUTPUT: float("inf")}, "1", None),
        ({OUTPUT: True}, "1", MIB),
        ({"RequestDisk": 4096}, "RequestDisk / 1024", 4 * MIB),
        ({}, "RequestDisk / 1024", None),
    ],
)
def test_the_limit_of_a_job(ad, knob, limit):
    assert limit_of(ClassAd(ad), OUTPUT, parse_expr(knob)) == limit


async def test_a_spooled_submit_has_a_limit(tmp_path, http, big):
    async with Pool(tmp_path / "pool", ROOST_SCHEDD_MAX_SPOOLED_MB=1) as pool:
        answer = await pool.submit(spooled_ad(tmp_path), spool=True)
        headers = {"Authorization": f"Bearer {answer.upload_token}"}
        async with http.put(answer.upload_url, data=write_bundle([Source(big, "big")]), headers=headers) as response:
            assert response.status == 413
            assert "ROOST_SCHEDD_MAX_SPOOLED_MB" in await response.text()
        assert files_below(pool.directory / "spool/schedd/ap/sandboxes") == []
        assert (await pool.job("1.0"))["HoldReasonCode"] == 16
        small = write_bundle([Source(Path(__file__), "run.sh")])
        async with http.put(answer.upload_url, data=small, headers=headers) as response:
            assert response.status == 200
        assert (await pool.job("1.0"))["JobStatus"] == 1


async def test_the_input_of_a_spooled_job_is_bounded_by_what_it_asked_for(tmp_path, http, big):
    async with Pool(tmp_path / "pool") as pool:
        answer = await pool.submit(spooled_ad(tmp_path, **{INPUT: 1}), spool=True)
        headers = {"Authorization": f"Bearer {answer.upload_token}"}
        async with http.put(answer.upload_url, data=write_bundle([Source(big, "big")]), headers=headers) as response:
            assert response.status == 413
        assert files_below(pool.directory / "spool/schedd/ap/sandboxes") == []


@pytest.mark.parametrize("announced", [None, 1000, 1 << 50])
async def test_a_liar_is_cut_off_at_the_limit(tmp_path, http, announced):
    """A gigabyte in small files, each within the limit: the sum counts, as it comes."""

    async def sent():
        for number in range(1000):
            data = bytes(MIB)
            digest = sha256(data).hexdigest()
            yield header(f"f{number}", MIB) + data + _pax(tarfile.XGLTYPE, {members.SHA_KEY: digest})
            count.append(number)

    count = []
    async with Pool(tmp_path / "pool") as pool:
        run = await pool.run_one(ad=job_ad(Iwd=str(tmp_path), ShouldTransferFiles="YES", MaxTransferOutputMB=4))
        headers = {"Authorization": f"Bearer {run.transfer_token}"}
        if announced is not None:
            headers["Content-Length"] = str(announced)
        try:
            async with http.put(f"{run.transfer_url}/output", data=sent(), headers=headers) as response:
                assert response.status in (413, 422)
        except aiohttp.ClientError:
            assert announced is not None  # the client's own library sees that it lies
        await eventually(lambda: files_below(pool.directory / "spool/schedd/ap/sandboxes") == [])
        assert len(count) < 200 or announced == 1000  # its own library sends no more than that


async def test_one_file_that_never_ends_stops_at_its_header(tmp_path, http):
    async with Pool(tmp_path / "pool") as pool:
        run = await pool.run_one(ad=job_ad(Iwd=str(tmp_path), ShouldTransferFiles="YES", MaxTransferOutputMB=1))
        headers = {"Authorization": f"Bearer {run.transfer_token}"}
        try:
            body = endless(header("big", 1 << 33), 200 * MIB)
            async with http.put(f"{run.transfer_url}/output", data=body, headers=headers) as response:
                assert response.status == 413
        except aiohttp.ClientError:
            pass  # cut off while it sent
        assert files_below(pool.directory / "spool/schedd/ap/sandboxes") == []


async def test_the_access_point_says_which_limit_of_input_was_met(tmp_path, http, big):
    ad = job_ad(Iwd=str(tmp_path), Cmd="big", ShouldTransferFiles="YES")
    async with Pool(tmp_path / "pool", MAX_TRANSFER_INPUT_MB="1") as pool:
        run = await pool.run_one(ad=ad)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        with pytest.raises(TransferRefused, match="MaxTransferInputMB") as refused:
            await fetch(http, run.transfer_url, run.transfer_token, scratch)
        assert refused.value.status == 413
        assert list(scratch.iterdir()) == []


async def test_a_sender_stops_before_what_exceeds_the_limit(tmp_path, http, big):
    with pytest.raises(TooLarge):
        check_sources([Source(big, "big")], limit_bytes=MIB)
    with pytest.raises(TooLarge):
        await anext(write_bundle([Source(big, "big")], limit_bytes=MIB))
    async with Pool(tmp_path / "pool") as pool:
        run = await pool.run_one(ad=job_ad(Iwd=str(tmp_path), ShouldTransferFiles="YES"))
        with pytest.raises(TooLarge):
            await send(http, run.transfer_url, run.transfer_token, [Source(big, "big")], limit_bytes=MIB)


@spec("TLS-17")
@pytest.mark.parametrize(("attribute", "code"), [(INPUT, 32), (OUTPUT, 33)])
async def test_a_job_over_its_limit_is_held_with_htcondors_code(tmp_path, attribute, code):
    """An execution point keeps to the limit by itself, whatever the other end does."""
    script = "head -c 2097152 /dev/zero > out" if attribute == OUTPUT else "true"
    async with StartdPool(tmp_path / "pool") as pool, Endpoint(tmp_path) as endpoint:
        (endpoint.input / "in").write_bytes(bytes(2 * MIB if attribute == INPUT else 1))
        more = {"Arguments": f"-c '{script}'", "ShouldTransferFiles": "YES", "TransferExecutable": False}
        ad = startd_job_ad(cmd="/bin/sh", **more, **{attribute: 1})
        activation = pool.activation(ad, url=endpoint.url)
        await pool.call(pool.request(activation))
        ended = (await pool.schedd.end_of(activation.job_id)).exit
        assert (ended.reason, ended.hold_code) == ("hold", code)
        assert endpoint.received == 0


async def test_a_held_job_says_so_at_the_access_point(tmp_path):
    async with Pool(tmp_path) as pool:
        run = await pool.run_one()
        await pool.startd.finish(run, exit=JobExit(reason="hold", hold_code=33, message="output files: too large"))
        ad = await pool.job("1.0")
        assert (ad["JobStatus"], ad["HoldReasonCode"]) == (5, 33)


async def feed_all(root, *pieces):
    async def stream():
        for piece in pieces:
            yield piece

    return await read_bundle(stream(), root)


async def test_numbers_and_names_of_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "MAX_MEMBERS", 20)
    nothing = _pax(tarfile.XGLTYPE, {members.SHA_KEY: sha256().hexdigest()})
    with pytest.raises(TooLarge, match="members"):
        await feed_all(tmp_path, *(header(f"f{n}", 0) + nothing for n in range(30)))
    # Directories that are only in a name count too.
    with pytest.raises(TooLarge, match="members"):
        await feed_all(tmp_path, header("/".join("abcdefghijklmnopqrstuvwxyz"), 0))
    monkeypatch.setattr(extraction, "MAX_NAMES", 100)
    with pytest.raises(TooLarge, match="names"):
        await feed_all(tmp_path, header("x" * 60 + "/" + "y" * 60, 0))
    assert list(tmp_path.iterdir()) == []


async def test_headers_without_members_and_zeros_without_end_are_refused(tmp_path):
    extra = _pax(tarfile.XHDTYPE, {"comment": "x"})
    with pytest.raises(TransferError, match="wrong place"):
        await feed_all(tmp_path, *([extra] * 3))
    whole = _pax(tarfile.XGLTYPE, {members.COUNT_KEY: "0"}) + bytes(1024)
    assert await feed_all(tmp_path, whole, bytes(10240)) == []
    with pytest.raises(TransferError, match="after the end"):
        await feed_all(tmp_path, whole, *([bytes(32768)] * 10))


async def test_no_bundle_eats_the_last_of_the_spools_disk(tmp_path, http, big, monkeypatch):
    async with Pool(tmp_path / "pool") as pool:
        answer = await pool.submit(spooled_ad(tmp_path), spool=True)
        monkeypatch.setattr(pool.schedd.queue, "lacks_room", lambda wanted: "1.0 MiB are left")
        headers = {"Authorization": f"Bearer {answer.upload_token}"}
        async with http.put(answer.upload_url, data=write_bundle([Source(big, "big")]), headers=headers) as response:
            assert response.status == 503
        assert files_below(pool.directory / "spool/schedd/ap/sandboxes") == []
