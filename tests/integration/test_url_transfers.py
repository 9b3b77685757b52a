"""Jobs whose files go by URL: plug-ins run as the jobs, what fails is told in words, and what is left is nothing."""

import errno
import os
from pathlib import Path

import pytest

from shared.classad import ClassAd
from shared.messages.claims import DeactivateClaim
from tests.faulty_http import Fault, FaultyServer
from tests.integration.isolated_pool import IsolatedPool, is_root, open_directory
from tests.integration.test_startd_transfer import program, start
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually

#: Speaks the protocol for two schemes of its own: files of a directory, and what never ends.
PLUGIN = """#!/usr/bin/python3
import os, re, sys, time
if "-classad" in sys.argv:
    print('PluginType = "FileTransfer"\\nSupportedMethods = "store,slow"\\nMultipleFileSupport = true')
    sys.exit()
infile, outfile = (sys.argv[sys.argv.index(name) + 1] for name in ("-infile", "-outfile"))
with open(outfile, "w") as out:
    for url, path in re.findall(r'Url = "(.*?)"; LocalFileName = "(.*?)"', open(infile).read()):
        if url.startswith("slow"):
            open(os.environ["_CONDOR_SCRATCH_DIR"] + "/begun", "w").close()
            time.sleep(1000)
        name = "STORE/" + url.partition("://")[2]
        source, target = (path, name) if "-upload" in sys.argv else (name, path)
        try:
            data = open(source, "rb").read()
            open(target, "wb").write(data)
        except OSError as error:
            out.write(f'[ TransferSuccess = false; TransferError = "{url}: {error.strerror}" ]\\n')
            sys.exit(3)
        out.write(f'[ TransferSuccess = true; TransferFileBytes = {len(data)} ]\\n')
"""


@pytest.fixture
async def pool(tmp_path):
    (tmp_path / "store").mkdir()
    path = tmp_path / "plugin"
    path.write_text(PLUGIN.replace("STORE", str(tmp_path / "store")))
    path.chmod(0o755)
    knobs = {"FILETRANSFER_PLUGINS": f"{path}, {tmp_path}/none", "MAX_FILE_TRANSFER_PLUGIN_LIFETIME": "600"}
    async with Pool(tmp_path / "pool", **knobs) as pool:
        yield pool


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


@pytest.fixture
def web():
    with FaultyServer() as server:
        yield server


def slot_ad(pool):
    startd = pool.startd.shared
    return startd.ads.ad_of(startd.slot_manager.slots["slot1@node1"])


def updates(report):
    return ClassAd.unpack(report.updates)


async def test_a_machine_tells_what_it_can(pool):
    assert slot_ad(pool).eval("HasFileTransferPluginMethods") == "file,gs,http,https,s3,slow,store"
    assert slot_ad(pool).eval("HasJobTransferPlugins") is True


async def test_pelicans_program_is_run_as_the_job(tmp_path, files, monkeypatch):
    """Where it is installed: found by the startd, told in the slots' ads, and readable within the job's walls."""
    programs = tmp_path / "bin"
    programs.mkdir(mode=0o755)
    (programs / "pelican").write_text('#!/bin/sh\n[ "$2" = get ] && echo "$3" > "$4"\n')
    (programs / "pelican").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    program(files, "cat object")
    async with Pool(tmp_path / "pool") as pool:
        assert slot_ad(pool).eval("HasFileTransferPluginMethods") == "file,gs,http,https,osdf,pelican,s3"
        activation, _ = await start(pool, files, TransferInput="osdf:///space/object")
        end = await pool.schedd.end_of(activation.job_id)
        assert (end.exit.exit_code, end.exit.output_committed) == (0, True), end.exit
    assert files.text("_condor_stdout") == "osdf:///space/object\n"


async def test_input_comes_and_output_goes(pool, files, web, tmp_path):
    web.files |= {"/in/a.txt": b"from afar\n"}
    (tmp_path / "store/b").write_text("from a store\n")
    program(files, "cat a.txt b; mkdir -p d/e; echo 1 > d/one; echo 2 > d/e/two; echo 3 > kept; echo 4 > sent")
    activation, _ = await start(
        pool,
        files,
        TransferInput=f"{web.url}/in/a.txt?x=y, store://b",
        TransferOutput="d,kept,sent",
        TransferOutputRemaps=f"d = {web.url}/out; sent = store://c",
    )
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_code, end.exit.output_committed) == ("exited", 0, True), end.exit
    assert files.text("_condor_stdout") == "from afar\nfrom a store\n"
    assert sorted(one.name for one in files.output.iterdir()) == ["_condor_stderr", "_condor_stdout", "kept"]
    assert (web.files["/out/one"], web.files["/out/e/two"]) == (b"1\n", b"2\n")
    assert (tmp_path / "store/c").read_text() == "4\n"
    into, out = (updates(end).eval(f"Transfer{way}Stats") for way in ("Input", "Output"))
    assert [into.eval(f"{one}FilesCountTotal") for one in ("Cedar", "Http", "Store")] == [1, 1, 1]
    assert into.eval("HttpSizeBytesTotal") == 10
    assert [out.eval(f"{one}FilesCountTotal") for one in ("Cedar", "Http", "Store")] == [3, 2, 1]
    assert end.usage.bytes_received > 23
    await eventually(lambda: not list(pool.execute.glob("dir_*")))


async def test_a_destination_gets_all_of_the_output(pool, files, web):
    program(files, "echo said; echo bad >&2; echo made > made")
    activation, _ = await start(pool, files, OutputDestination=f"{web.url}/results/")
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.output_committed, end.exit
    assert not list(files.output.iterdir())
    assert web.files == {
        "/results/out.txt": b"said\n",
        "/results/err.txt": b"bad\n",
        "/results/made": b"made\n",
    }


async def test_a_plugin_that_comes_with_the_job(pool, files, tmp_path):
    mine = PLUGIN.replace("STORE", str(tmp_path / "store")).replace('"store,slow"', '"mine"')
    (files.input / "plug.py").write_text(mine)  # not executable: it is made so
    (tmp_path / "store/x").write_text("mine\n")
    program(files, "cat x")
    activation, _ = await start(pool, files, TransferInput="mine://x", TransferPlugins="mine=/somewhere/plug.py")
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.exit_code, files.text("_condor_stdout")) == (0, "mine\n"), end.exit


@pytest.mark.parametrize(
    ("url", "subcode", "says"),
    [
        ("{web}/none", 256, "/none: the server answered 404 Not Found: no such file here"),
        ("store://none", 3 << 8, "store://none: No such file or directory"),
        ("gopher://h/x", 0, "gopher://h/x: no plug-in of this machine has gopher"),
        ("{web}/", 0, "its path ends without a name"),
    ],
)
async def test_input_that_is_not_to_be_had(pool, files, web, url, subcode, says):
    program(files, "exit 0")
    activation, _ = await start(pool, files, TransferInput=url.format(web=web.url))
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code, end.exit.hold_subcode) == ("hold", 13, subcode)
    assert says in end.exit.message
    assert "running" not in pool.schedd.phases(activation.job_id)


async def test_output_that_is_not_taken(pool, files, web):
    program(files, "echo x > made; exit 4")
    web.faults["/made"] = Fault("status", 403)
    activation, _ = await start(pool, files, TransferOutput="made", TransferOutputRemaps=f"made = {web.url}/made")
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code, end.exit.hold_subcode) == ("hold", 12, 256)
    assert "Transfer output files failure at the execution point slot1_1@node1:" in end.exit.message
    assert "403 Forbidden" in end.exit.message
    assert end.exit.exit_code == 4
    assert not end.exit.output_committed


async def test_output_that_is_missing(pool, files, web):
    program(files, "exit 0")
    activation, _ = await start(pool, files, TransferOutput="made", TransferOutputRemaps=f"made = {web.url}/made")
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 12)
    assert not web.asked


async def test_more_than_the_job_may_have(pool, files, web):
    web.files["/big"] = bytes(2_000_000)
    program(files, "exit 0")
    activation, _ = await start(pool, files, TransferInput=f"{web.url}/big", MaxTransferInputMB=1)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 32), end.exit
    program(files, "head -c 2000000 /dev/zero > big")
    activation, _ = await start(
        pool, files, TransferOutput="big", TransferOutputRemaps=f"big = {web.url}/b", MaxTransferOutputMB=1
    )
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 33), end.exit
    assert "/b" not in web.files


async def test_a_plugin_that_takes_too_long_is_ended(tmp_path, files):
    path = tmp_path / "plugin"
    path.write_text(PLUGIN)
    path.chmod(0o755)
    knobs = {"FILETRANSFER_PLUGINS": str(path), "MAX_FILE_TRANSFER_PLUGIN_LIFETIME": "1"}
    async with Pool(tmp_path / "pool", **knobs) as pool:
        program(files, "exit 0")
        activation, _ = await start(pool, files, TransferInput="slow://x")
        end = await pool.schedd.end_of(activation.job_id)
        assert (end.exit.hold_code, end.exit.hold_subcode) == (13, errno.ETIME)
        assert "took longer than 1 s (MAX_FILE_TRANSFER_PLUGIN_LIFETIME)" in end.exit.message
        await eventually(lambda: not pool.startd.shared.fork_server.running)


async def test_a_job_that_must_leave_takes_its_plugin_along(pool, files):
    program(files, "exit 0")
    activation, granted = await start(pool, files, TransferInput="slow://x")
    await eventually(lambda: list(pool.execute.glob("dir_*/begun")))
    await pool.call(
        DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="vacate", how="fast")
    )
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "evicted"
    await eventually(lambda: not pool.startd.shared.fork_server.running)


async def test_a_startd_that_was_killed_fetches_anew(pool, files, web):
    program(files, "cat a")
    web.files["/a"] = b"a"
    web.faults["/a"] = Fault("hang")
    activation, _ = await start(pool, files, TransferInput=f"{web.url}/a")
    await eventually(lambda: web.count("/a") == 1)
    await pool.stop()
    web.faults.clear()
    await pool.start()
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.exit_code, files.text("_condor_stdout")) == (0, "a"), end.exit


async def test_nothing_by_url_where_that_is_switched_off(tmp_path, files, web):
    async with Pool(tmp_path / "pool", ENABLE_URL_TRANSFERS="false") as pool:
        assert slot_ad(pool).eval("HasFileTransferPluginMethods") == ""
        program(files, "exit 0")
        activation, _ = await start(pool, files, TransferInput=f"{web.url}/a")
        end = await pool.schedd.end_of(activation.job_id)
        assert (end.exit.hold_code, "it has none" in end.exit.message) == (13, True)
        assert not web.asked


@pytest.mark.skipif(not is_root(), reason="needs root")
async def test_a_plugin_is_the_job_in_its_walls(web):
    """It has the job's account, sees no other job's directory, and leads nobody of root's astray."""
    spy = """#!/usr/bin/python3
import os, sys
outfile = sys.argv[sys.argv.index("-outfile") + 1]
scratch = os.environ["_CONDOR_SCRATCH_DIR"]
with open(scratch + "/seen", "w") as seen:
    print(os.getuid(), sorted(os.listdir(os.path.dirname(scratch))) == [os.path.basename(scratch)], file=seen)
    print("AMQP" in str(os.environ), os.access("/etc/shadow", os.R_OK), file=seen)
for name in (".job.ad", ".machine.ad"):
    os.unlink(scratch + "/" + name)
    os.symlink("VICTIM", scratch + "/" + name)
open(outfile, "w").write("[ TransferSuccess = true ]")
"""
    with open_directory() as folder:
        victim = Path(folder) / "victim"
        victim.write_text("root's own")
        async with IsolatedPool(Path(folder) / "pool") as pool:
            report, said = await pool.run(
                "cat seen; id -u; ls -l .job.ad",
                {"spy": spy.replace("VICTIM", str(victim))},
                TransferInput="spy://x",
                TransferPlugins="spy=spy",
            )
        assert report.exit.exit_code == 0, report.exit
        lines = said.splitlines()
        assert lines[0].split()[0] == lines[2] != "0"
        assert lines[0].split()[1] == "True"
        assert lines[1] == "False False"
        assert "->" not in lines[3]
        assert victim.read_text() == "root's own"
        assert os.stat(victim).st_uid == 0
