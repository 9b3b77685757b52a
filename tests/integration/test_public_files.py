"""public_input_files: what an access point says of them, and what a machine keeps of them for other jobs."""

import hashlib
import os

import aiohttp
import pytest
from aiohttp import web

from shared.classad import ClassAd
from shared.transfer.bundle import Source, write_bundle
from shared.transfer.client import fetch, list_public
from shared.transfer.errors import TransferRefused
from shared.transfer.public import PublicFile, listing
from tests.faulty_http import FaultyServer
from tests.integration.test_startd_transfer import program
from tests.scheddpool import Pool as ScheddPool
from tests.scheddpool import job_ad
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually


def digest_of(content):
    return hashlib.sha256(content).hexdigest()


class PublicEndpoint(Endpoint):
    """An access point with public files. sends: other content than it says, by name. knows:
    of such lists, as earlier releases do not. asked: what it was asked for."""

    def __init__(self, folder):
        super().__init__(folder)
        (folder / "public").mkdir()
        self.public = folder / "public"
        self.sends = {}
        self.knows = True
        self.asked = []

    async def __aenter__(self):
        app = web.Application()
        app.add_routes([web.get("/run/input", self.get), web.put("/run/output", self.put)])
        app.add_routes([web.get("/run/public", self.list), web.get("/run/public/{digest}", self.one)])
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/run"
        return self

    async def list(self, request):
        if not self.knows:
            raise web.HTTPNotFound
        found = [
            PublicFile(one.name, digest_of(data := one.read_bytes()), len(data), one.stat().st_mode & 0o777)
            for one in sorted(self.public.iterdir())
        ]
        return self.refusal(request) or web.json_response(listing(found))

    async def one(self, request):
        digest = request.match_info["digest"]
        self.asked.append(digest)
        (path,) = (one for one in self.public.iterdir() if digest_of(one.read_bytes()) == digest)
        return await self._stream(request, [Source(self.sends.get(path.name, path), digest, follow=True)])

    async def get(self, request):
        without = request.query.get("without") == "public"
        self.asked.append("rest" if without else "all")
        places = [self.input] if without else [self.input, self.public]
        return await self._stream(request, [Source(one, one.name) for where in places for one in where.iterdir()])

    async def _stream(self, request, sources):
        answer = web.StreamResponse()
        await answer.prepare(request)
        async for chunk in write_bundle(sources):
            await answer.write(chunk)
        await answer.write_eof()
        return answer

    def text_of(self, end):
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
        return self.text("_condor_stdout")


@pytest.fixture
async def files(tmp_path):
    async with PublicEndpoint(tmp_path) as endpoint:
        yield endpoint


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path / "pool", DATA_REUSE_BYTES="1000") as pool:
        yield pool


async def run(pool, files, text, **attrs):
    """The end of a job, and what it says of its input."""
    program(files, text)
    job = {"cmd": "job.sh", "Iwd": "/nowhere", "Out": "out.txt", "Err": "err.txt", "ShouldTransferFiles": "YES"}
    activation = pool.activation(url=files.url, **job | attrs)
    await pool.call(pool.request(activation))
    end = await pool.schedd.end_of(activation.job_id)
    told = ClassAd.unpack(end.updates).eval("TransferInputStats") if end.updates else None
    return end, told if isinstance(told, ClassAd) else None


async def test_the_second_job_gets_what_the_first_one_brought(pool, files):
    (files.public / "data").write_bytes(b"public\n")
    (files.public / "tool").write_bytes(b"#!/bin/sh\necho tool\n")
    (files.public / "tool").chmod(0o755)
    text = "cat data; ./tool; echo evil > data; chmod 777 data"
    for number in range(3):
        end, told = await run(pool, files, text, PublicInputFiles="data, tool", TransferOutput="")
        assert files.text_of(end) == "public\ntool\n"
        assert [told.eval(f"{name}FilesCountLastRun") if told else 0 for name in ("Reused", "Cedar")] == (
            [2, 1] if number else [0, 0]
        )
    tools = sorted(digest_of(one.read_bytes()) for one in files.public.iterdir())
    assert sorted(files.asked) == sorted([*tools, "rest", "rest", "rest"])
    kept = pool.startd.context.spool / "startd" / "node1.reuse"
    assert sorted(one.name for one in kept.iterdir()) == sorted([*tools, "incoming"])
    assert all(one.stat().st_mode & 0o077 == 0 for one in (kept, *kept.iterdir()))


async def test_private_files_are_not_kept(pool, files):
    (files.input / "secret").write_bytes(b"mine\n")
    await run(pool, files, "cat secret", TransferInput="secret")
    assert files.asked == ["all"]
    assert pool.startd.shared.reuse.bytes == 0


@pytest.mark.parametrize("why", ["other content", "too large", "no list", "none kept"])
async def test_where_nothing_can_be_kept_the_files_travel_with_the_others(pool, files, tmp_path, why):
    (files.public / "data").write_bytes(b"x" * 2000 if why == "too large" else b"public\n")
    if why == "other content":
        (tmp_path / "evil").write_bytes(b"evil!!\n")
        files.sends["data"] = tmp_path / "evil"
    elif why == "no list":
        files.knows = False
    elif why == "none kept":
        pool.startd.shared.reuse.open(tmp_path / "reuse", 0)
    end, told = await run(pool, files, "wc -c < data", PublicInputFiles="data")
    assert files.text_of(end).strip() == ("2000" if why == "too large" else "7")
    assert files.asked[-1] == "all"
    assert told is None
    assert pool.startd.shared.reuse.bytes == 0


async def test_a_url_that_says_what_it_is(pool, files, tmp_path):
    content = b"from afar\n"
    with FaultyServer() as server:
        server.files |= {"/good": content, "/plain": content, "/mine": content}
        named = f"#sha256={digest_of(content)}"
        for _ in range(2):
            end, told = await run(
                pool,
                files,
                "cat good plain mine",
                PublicInputFiles=f"{server.url}/good{named}, {server.url}/plain",
                TransferInput=f"{server.url}/mine{named}",
            )
            assert files.text_of(end) == 3 * content.decode()
        assert [server.count(path) for path in ("/good", "/plain", "/mine")] == [1, 2, 2]
        assert [told.eval(f"{name}FilesCountLastRun") for name in ("Reused", "Http")] == [1, 2]
        assert pool.startd.shared.reuse.bytes == len(content)


async def test_what_the_access_point_says(tmp_path):
    for name, mode in (("data", 0o644), ("secret", 0o640), ("tool", 0o755), ("other", 0o644)):
        (tmp_path / name).write_text(name)
        (tmp_path / name).chmod(mode)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "folder").mkdir()
    ad = {"Iwd": str(tmp_path), "Cmd": "run.sh", "ShouldTransferFiles": "YES", "Out": "/dev/null", "Err": "/dev/null"}
    async with ScheddPool(tmp_path / "pool") as pool, aiohttp.ClientSession() as http:
        listed = "data, secret, tool, folder, https://x/y"
        await pool.submit(ad=job_ad(**ad, TransferInput="other", PublicInputFiles=listed))
        await pool.submit(ad=job_ad(**ad, TransferInput="data"))
        await pool.match(count=2)
        await eventually(lambda: len(pool.startd.activations) == 2, what="two runs")
        one, two = pool.startd.activations
        found = await list_public(http, one.transfer_url, one.transfer_token)
        assert [(file.name, file.mode) for file in found] == [("data", 0o644), ("tool", 0o755)]
        assert found[0].sha256 == digest_of(b"data")

        async def names(run, what):
            (folder := tmp_path / os.urandom(4).hex()).mkdir()
            received = await fetch(http, run.transfer_url, run.transfer_token, folder, what=what)
            return sorted(entry.name for entry in received.entries if "/" not in entry.name)

        every = ["condor_exec.exe", "data", "folder", "other", "secret", "tool"]
        assert await names(one, "input") == every
        assert await names(one, "input?without=public") == [each for each in every if each not in ("data", "tool")]
        assert await names(one, f"public/{found[0].sha256}") == [found[0].sha256]
        # Of a job that calls nothing public, nothing is told; and a run gets its own files and no others.
        assert await list_public(http, two.transfer_url, two.transfer_token) == []
        assert await names(two, "input?without=public") == ["condor_exec.exe", "data"]
        for run_, digest in ((two, found[0].sha256), (one, digest_of(b"secret")), (one, "0" * 64)):
            with pytest.raises(TransferRefused):
                await names(run_, f"public/{digest}")
        with pytest.raises(TransferRefused):
            await list_public(http, one.transfer_url, two.transfer_token)
        # A file that changes is another one.
        (tmp_path / "data").write_text("later")
        again = await list_public(http, one.transfer_url, one.transfer_token)
        assert again[0].sha256 == digest_of(b"later")
