"""Chirp: a running job reaches its own ad, its log and its files at the access point, whoever is killed meanwhile."""

import contextlib
import io
import subprocess
import sys

import aiohttp
import pytest

from services.schedd.core.job_end import may_set
from services.startd.run import condor_chirp
from shared.chirp import Answer, Code, pack_request
from tests.integration.pools import EmbeddedPool, ProcessPool
from tests.scheddpool import Pool as ScheddPool
from tests.scheddpool import job_ad
from tests.servers import free_port
from tests.spec import spec
from tests.waiting import wait_until

#: What a user's script does with the command.
SCRIPT = """#!/bin/sh
set -e
condor_chirp fetch data here
cat here
condor_chirp put here back
echo more | condor_chirp put -mode wa - back
condor_chirp put -perm 600 /dev/null private
condor_chirp mkdir results && condor_chirp rename private results/private
condor_chirp getdir . | sort | tr '\\n' ' '; echo
condor_chirp read -offset 2 data 3
condor_chirp get_job_attr Owner
condor_chirp set_job_attr Progress '"half way"'
condor_chirp get_job_attr Progress
condor_chirp set_job_attr_delayed ChirpSteps '6 * 7'
condor_chirp get_job_attr_delayed ChirpSteps
condor_chirp ulog 'Hello, World'
condor_chirp remove gone
for word in 'set_job_attr Owner "eve"' 'set_job_attr Cmd "/bin/evil"' 'set_job_attr_delayed Steps 1' \\
        'fetch /etc/passwd x' 'fetch ../secret x' 'put here ../out'; do
    condor_chirp $word 2>/dev/null && echo "$word was done"
done
ls -A | grep -c chirp || true
exit 3
"""


@pytest.fixture(scope="module")
def personal(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("chirp") / "pool")
    with contextlib.closing(pool):
        pool.start("-cpus", "2", "-memory", "2048")
        yield pool


def work_in(folder, script=SCRIPT, *lines):
    (folder / "work").mkdir(parents=True)
    work = folder / "work"
    (folder / "secret").write_text("secret")
    (work / "data").write_text("0123456789\n")
    (work / "gone").write_text("")
    (work / "job").write_text(script)
    (work / "job.sub").write_text(
        "executable = job\noutput = out\nerror = err\nlog = log\nshould_transfer_files = yes\n"
        + "".join(f"{line}\n" for line in ("+WantIOProxy = true", *lines))
        + "queue\n"
    )
    return work


def at_rest(pool, cluster):
    wait_until(lambda: pool.final(cluster), 60, "the end of the job")
    return pool.final(cluster)[0]


def ad_of(pool, cluster):
    with pool.client() as client:
        return next(iter(client.jobs(str(cluster), history=True)))


@spec("SUB-14")
def test_a_script_uses_the_command(personal, tmp_path):
    work = work_in(tmp_path)
    cluster = personal.submit(work / "job.sub")
    assert at_rest(personal, cluster)[1] == 3, (work / "err").read_text()
    said = (work / "out").read_text().splitlines()
    assert said[0] == "0123456789"
    assert said[1].split() == ["back", "data", "gone", "job", "job.sub", "log", "results"]
    assert said[2] == "234"
    owner = said[3].strip('"')
    assert said[4:] == ['"half way"', "6 * 7", "2"]
    assert (work / "back").read_text() == "0123456789\nmore\n"
    assert (work / "results" / "private").stat().st_mode & 0o777 == 0o600
    assert not (work / "gone").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["secret", "work"]
    log = (work / "log").read_text()
    assert f"008 ({cluster:03d}.000.000)" in log
    assert "Hello, World" in log
    ad = ad_of(personal, cluster)
    assert (ad.eval("Progress"), ad.eval("ChirpSteps"), ad.eval("Owner")) == ("half way", 42, owner)
    assert not (work / ".chirp.config").exists()


def test_a_spooled_job_has_its_sandbox(personal, tmp_path):
    work = work_in(tmp_path, "#!/bin/sh\ncondor_chirp fetch data x && condor_chirp put x made && cat x\n")
    (work / "job.sub").write_text(
        "executable = job\noutput = out\nerror = err\npublic_input_files = data\n+WantIOProxy = true\nqueue\n"
    )
    cluster = personal.submit(work / "job.sub", "-spool")
    assert at_rest(personal, cluster)[1] == 0
    personal.roost("transfer-data", str(cluster), cwd=work)
    assert (work / "out").read_text() == "0123456789\n"
    assert (work / "made").read_text() == "0123456789\n"


def test_a_job_that_did_not_ask_has_delayed_attributes_only(personal, tmp_path):
    folder = condor_chirp.__file__.rpartition("/")[0]
    program = f"import sys; sys.path.insert(0, {folder!r}); from condor_chirp import *\n"
    work = work_in(
        tmp_path,
        f"#!{sys.executable}\n{program}c = Client()\nc.ask('set_job_attr_delayed', 'ChirpX', '5')\n"
        "try:\n    c.ask('get_job_attr', 'Owner')\nexcept Failed as error:\n    print(error)\n",
        "+WantIOProxy = false",
    )
    cluster = personal.submit(work / "job.sub")
    assert at_rest(personal, cluster)[1] == 0, (work / "err").read_text()
    assert "does not allow this" in (work / "out").read_text()
    assert ad_of(personal, cluster).eval("ChirpX") == 5


@pytest.mark.servers
def test_questions_go_on_over_kills_of_both_sides(tmp_path, amqp_url, redis_url):
    """One connection details file and one cookie for the whole life of the job."""
    pool = ProcessPool(tmp_path / "pool", amqp_url, redis_url, free_port(), NUM_CPUS="1", MEMORY="1024")
    words = tmp_path / "words"
    words.mkdir()
    script = (
        "#!/bin/sh\ncat .chirp.config\n"
        + f"for word in one two; do while [ ! -e {words}/$word ]; do sleep 0.05; done; "
        + 'condor_chirp set_job_attr Seen \\"$word\\" && condor_chirp put .job.ad $word && echo $word; done; '
        + "cat .chirp.config\n"
    )
    work = work_in(tmp_path, script, "stream_output = true")
    with contextlib.closing(pool):
        pool.start()
        cluster = pool.submit(work / "job.sub")
        out = work / "out"
        wait_until(lambda: out.exists() and out.read_text(), 60, "its beginning")
        pool.kill("schedd")
        pool.start_daemon("schedd")
        (words / "one").touch()
        wait_until(lambda: "one" in out.read_text().split(), 60, "the first answer")
        pool.kill("startd")
        pool.start_daemon("startd")
        (words / "two").touch()
        wait_until(lambda: "two" in out.read_text().split(), 60, "the second answer")
        assert at_rest(pool, cluster)[1] == 0
        config, one, two, again = out.read_text().splitlines()
        assert (one, two) == ("one", "two")
        assert config == again
        assert ad_of(pool, cluster).eval("Seen") == "two"
        assert (work / "two").read_text() == (work / "one").read_text()


# -- at the access point


@pytest.fixture
async def schedd(tmp_path):
    async with ScheddPool(tmp_path / "ap") as pool:
        yield pool


async def ask(activation, *request, token=None, body=None):
    async with aiohttp.ClientSession() as session:
        response = await session.post(
            f"{activation.chirp_url}/chirp",
            data=body if body is not None else pack_request(*request),
            headers={"Authorization": f"Bearer {token or activation.transfer_token}"},
        )
        return Answer.unpack(await response.read()) if response.status == 200 else response.status


async def test_the_access_point_answers_of_one_run_what_its_job_may(schedd, tmp_path):
    (tmp_path / "x").write_text("text")
    activation = await schedd.run_one(ad=job_ad(WantIOProxy=True, Iwd=str(tmp_path), ChirpOld=1))
    job = activation.job_id
    assert await ask(activation, "read", "x", 0, 10, 0, 0) == Answer(4, b"text")
    assert await ask(activation, "set_job_attr", "Mine", "1 + 2") == Answer(0)
    assert (await schedd.job(job)).eval("Mine") == 3
    assert await ask(activation, "get_job_attr", "mine") == Answer(5, b"1 + 2")
    assert await ask(activation, "get_job_attr", "NotThere") == Answer(9, b"UNDEFINED")
    assert await ask(activation, "get_job_attr", "ClaimId") == Answer(9, b"UNDEFINED")
    for name in ("Owner", "Cmd", "Iwd", "TransferInput", "JobStatus", "JobPrio", "_condor_privX", "UserLog", "Args"):
        assert not may_set(name.lower())
        assert await ask(activation, "set_job_attr", name, '"x"') == Answer(Code.NOT_AUTHORIZED), name
    for request in (
        ("set_job_attr", "A B", "1"),
        ("set_job_attr", "A", "1 +"),
        ("nonsense",),
        ("read", "x"),
        ("read", 1, 2, 3, 4, 5),
    ):
        assert await ask(activation, *request) == Answer(Code.INVALID_REQUEST), request
    assert await ask(activation, body=b"\xc1 no message") == Answer(Code.INVALID_REQUEST)
    assert await ask(activation, "read", "../x", 0, 1, 0, 0) == Answer(Code.NOT_AUTHORIZED)
    assert await ask(activation, "ulog", "x", token="wrong") == 403
    assert await ask(activation, body=io.BytesIO(b"x" * (1 << 20))) == 413
    await schedd.startd.finish(activation)
    assert await ask(activation, "get_job_attr", "Owner") == 403


async def test_who_did_not_ask_for_it_gets_nothing(schedd, tmp_path):
    activation = await schedd.run_one(ad=job_ad(Iwd=str(tmp_path)))
    assert activation.chirp_url == ""
    by_hand = activation.model_copy(update={"chirp_url": activation.transfer_url})
    if by_hand.chirp_url:
        assert await ask(by_hand, "get_job_attr", "Owner") == Answer(Code.NOT_AUTHORIZED)
    updates = await schedd.run_one(ad=job_ad(WantRemoteUpdates=True, Iwd=str(tmp_path)))
    assert (await ask(updates, "get_job_attr", "Owner")).result > 0
    assert await ask(updates, "stat", ".") == Answer(Code.NOT_AUTHORIZED)


async def test_an_administrator_says_what_there_is_of_it(tmp_path):
    async with ScheddPool(tmp_path / "ap", ENABLE_CHIRP_IO="False", ENABLE_CHIRP_UPDATES="False") as schedd:
        activation = await schedd.run_one(ad=job_ad(WantIOProxy=True, Iwd=str(tmp_path)))
        assert (await ask(activation, "get_job_attr", "Owner")).result > 0
        for request in (("stat", "."), ("set_job_attr", "A", "1"), ("ulog", "x")):
            assert await ask(activation, *request) == Answer(Code.NOT_AUTHORIZED)


# -- other people's clients


def test_the_python_client_works_unchanged(personal, clients, tmp_path):
    """htchirp, as its users have it."""
    script = f"""#!{sys.executable}
import sys; sys.path.insert(0, {str(clients)!r})
import htchirp
with htchirp.HTChirp() as chirp:
    print(chirp.whoami(), chirp.getfile("data", "here"), open("here").read().strip())
    print(chirp.putfile("here", "copy"), chirp.getdir(".").count("copy"), chirp.stat("copy")["size"])
    chirp.set_job_attr("Steps", "12"); print(chirp.get_job_attr("Steps"))
    chirp.set_job_attr_delayed("ChirpSteps", "13"); print(chirp.get_job_attr_delayed("ChirpSteps"))
    chirp.ulog("said by htchirp")
    chirp.write(b"written by it", "new", "cwt"); print(chirp.read("new", 7).decode())
    chirp.rename("copy", "moved"); chirp.mkdir("d"); chirp.rmdir("d"); chirp.symlink("moved", "l")
    print(chirp.lstat("l")["size"], sorted(chirp.getlongdir("."))[0])
    try:
        chirp.unlink("../secret")
    except htchirp.HTChirp.NotAuthorized:
        print("refused")
"""
    work = work_in(tmp_path, script)
    cluster = personal.submit(work / "job.sub")
    assert at_rest(personal, cluster)[1] == 0, (work / "err").read_text()
    assert (work / "out").read_text().splitlines() == [
        "CONDOR 11 0123456789", "11 1 11", "12", "13", "written", "5 data", "refused",
    ]  # fmt: skip
    assert (work / "new").read_text() == "written by it"
    assert "said by htchirp" in (work / "log").read_text()
    ad = ad_of(personal, cluster)
    assert (ad.eval("Steps"), ad.eval("ChirpSteps")) == (12, 13)


def test_the_command_tells_what_is_wrong():
    done = subprocess.run(
        [sys.executable, condor_chirp.__file__, "fetch", "x", "y"], capture_output=True, text=True, check=False, env={}
    )
    assert done.returncode == 1
    assert "no Chirp for this job" in done.stderr
    assert "+WantIOProxy = true" in done.stderr
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        assert condor_chirp.main(["fetch", "x"]) == 1
        assert condor_chirp.main(["fly"]) == 1
        assert condor_chirp.main([]) == 1
    assert "Usage: condor_chirp fetch REMOTE_FILE LOCAL_FILE" in error.getvalue()
