"""roost.Client and roost.AsyncClient against a pool; the examples of docs/client.md."""

import asyncio
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from roost import AsyncClient, Client
from roost.aio import AsyncJob
from roost.aio_visit import AsyncVisit
from roost.client import Job
from roost.errors import ClientError
from roost.functions import FunctionFailed
from roost.visit import Visit
from tests.integration import functions_to_run
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, eventually, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
ECHO = {"executable": "/bin/echo", "transfer_executable": False}


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"))
    yield inside
    inside.close()


@pytest.fixture(scope="module")
def client(pool):
    with pool.client() as made:
        yield made


def examples():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_the_examples_of_the_page_run(pool, tmp_path):
    """All of them in one process after the other: each is a whole program."""
    expected = ["Grace Hopper", "", "you said hello\n0", "JOB_TERMINATED", "2", "[0.5, 1.5, 2.5]\n[1.5, 3.5, 5.5]"]
    expected += ["1.5", "{"]
    assert len(examples()) == len(expected)
    for number, (text, says) in enumerate(zip(examples(), expected, strict=True)):
        program = tmp_path / f"example{number}.py"
        program.write_text(text)
        environment = {**pool.environment(), "PYTHONWARNINGS": "error"}
        done = subprocess.run(
            [sys.executable, program],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert says in done.stdout


def test_nothing_heavy_is_imported_with_the_package():
    """The command starts often; names are looked up when they are asked for."""
    code = "import roost, sys; print(sorted(m for m in sys.modules if m.startswith(('aiohttp', 'roost.', 'asyncio'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PAGE.parents[1])
    assert done.stdout.strip() == "[]"
    code = "from roost import Client; import sys; print('aiohttp' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PAGE.parents[1])
    assert done.stdout.strip() == "False False"
    code = "import roost.cli.submit, roost.submit.remote, sys; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PAGE.parents[1])
    assert done.stdout.strip() == "False"


def surface(kind):
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "other"), [(Client, AsyncClient), (Job, AsyncJob), (Visit, AsyncVisit)])
def test_what_is_awaited_has_the_same_surface(sync, other):
    """What one client, its jobs and its visits can do, the others can, with the same arguments."""
    sync, other = surface(sync), surface(other)
    assert set(sync) == set(other)
    for name, value in sync.items():
        if isinstance(value, property):  # a question to the pool, so there it is awaited
            assert inspect.iscoroutinefunction(other[name]), name
        else:
            asked, theirs = inspect.signature(value), inspect.signature(other[name])
            assert [(p.name, p.kind, p.default is p.empty) for p in asked.parameters.values()] == [
                (p.name, p.kind, p.default is p.empty) for p in theirs.parameters.values()
            ], name


def known(client):
    """All clusters that there are or were."""
    return {ad.eval("ClusterId") for past in (False, True) for ad in client.jobs(history=past)}


# --- submit


def test_values_of_items_may_have_commas_blanks_and_quotes(client):
    items = [{"word": "a, b"}, {"word": "c  d"}, {"word": "it's"}]
    cluster = client.submit({**ECHO, "hold": True, "My.Text": '"$(word)"'}, itemdata=items)
    assert sorted(ad.eval("Text") for ad in client.jobs(str(cluster.cluster))) == ["a, b", "c  d", "it's"]
    client.act("remove", [str(cluster.cluster)])


def test_a_submit_file_by_its_path_and_as_text(client, tmp_path):
    (tmp_path / "in.txt").write_text("42")
    text = "executable = /bin/cat\ntransfer_executable = false\narguments = in.txt\n"
    text += "transfer_input_files = in.txt\noutput = out"
    (tmp_path / "job.sub").write_text(text + "\nqueue\n")
    from_path = client.submit(tmp_path / "job.sub", directory=tmp_path, spool=True)
    from_text = client.submit(text, count=1, directory=tmp_path, spool=True)
    for cluster in (from_path, from_text):
        job = client.job(*cluster.ids())
        assert job.wait(PATIENCE_S).ok
        assert job.output() == b"42"


def test_a_job_that_is_submitted_on_hold_stays_so_once_its_files_are_there(client):
    cluster = client.submit({**ECHO, "arguments": "late", "hold": "true", "output": "out"}, spool=True)
    job = client.job(*cluster.ids())
    wait_until(lambda: job.ad.eval("HoldReasonCode") == 15, what="its files to be there")
    assert (job.status, job.ad.eval("HoldReason")) == ("held", "It was submitted on hold")
    job.release()
    assert job.wait(PATIENCE_S).ok
    assert job.output() == b"late\n"


def test_a_job_is_told_and_acted_on(client):
    # Nothing runs it before it is edited.
    cluster = client.submit({**ECHO, "arguments": "late", "requirements": "false", "output": "out"}, spool=True)
    job = client.job(*cluster.ids())
    wait_until(lambda: job.status == "idle", what="its files to be there")
    job.hold("for a while")
    outcome = job.wait(PATIENCE_S)
    assert (outcome.status, outcome.ok) == ("held", False)
    assert outcome.reason.startswith("for a while (by user ")
    job.edit(Note='"mine"')
    assert job.ad.eval("Note") == "mine"
    with pytest.raises(ClientError, match="schedd keeps this attribute"):
        job.edit(Owner='"root"')
    job.edit(Requirements="true")
    job.release()
    assert job.wait(PATIENCE_S).ok
    assert job.output() == b"late\n"
    assert [file.name for file in job.files()] == ["out"]
    with pytest.raises(ClientError, match="there is no file"):
        job.output("other")
    with pytest.raises(ClientError, match="has no log"):
        job.log()
    with pytest.raises(ClientError, match="not-found"):
        client.job("999999.0").hold()
    with pytest.raises(ClientError, match=r"no job 999999\.0"):
        _ = client.job("999999.0").status


@pytest.mark.parametrize(
    ("what", "more", "says"),
    [
        ({"executable": "/bin/true\nqueue 5"}, {}, "one line"),
        ({"queue": "5", **ECHO}, {}, "is no command"),
        ({"include command": "touch /tmp/x", **ECHO}, {}, "is no command"),
        (ECHO, {"itemdata": []}, "itemdata is empty"),
        ({"executable": "no-such-program"}, {}, "does not exist"),
        ({**ECHO, "transfer_input_files": "no-such-file"}, {"spool": True}, "no-such-file"),
        ({**ECHO, "universe": "grid"}, {}, "universe"),
        ("executable = /bin/true\nqueue\nexecutable = /bin/false\nqueue", {}, "2 clusters"),
        (Path("no-such.sub"), {}, "no-such.sub"),
    ],
)
def test_a_bad_submit_says_what_is_wrong_and_leaves_nothing(client, what, more, says):
    before = known(client)
    with pytest.raises(ClientError, match=says):
        client.submit(what, **more)
    assert known(client) == before


# --- functions


def test_a_function_runs_as_a_job(client):
    assert client.submit_function(functions_to_run.add, 2, b=5).result(PATIENCE_S) == {"sum": 7}
    with pytest.raises(FunctionFailed, match="ValueError: not 3") as caught:
        client.submit_function(functions_to_run.refuse, 3).result(PATIENCE_S)
    assert "refuse" in caught.value.traceback
    with pytest.raises(FunctionFailed, match="JSON"):
        client.submit_function(functions_to_run.unspeakable).result(PATIENCE_S)


@pytest.mark.parametrize(
    ("function", "arguments", "says"),
    [
        (lambda: 1, (), "of a module's own level"),
        (len, ([],), "of a module's own level"),
        (functions_to_run.add, ({1},), "JSON"),
    ],
)
def test_what_can_not_be_sent_is_refused_at_once(client, function, arguments, says):
    with pytest.raises(ClientError, match=says):
        client.submit_function(function, *arguments)


# --- asyncio


async def test_the_asynchronous_client(pool):
    async with AsyncClient(pool.url, pool.token) as client:
        assert (await client.whoami())["level"] == "ADMINISTRATOR"
        assert [ad.eval("MyType") async for ad in client.ads("Scheduler")] == ["Scheduler"]
        clusters = await asyncio.gather(
            *(client.submit({**ECHO, "arguments": str(n), "output": "out"}, spool=True) for n in range(3))
        )
        for number, cluster in enumerate(clusters):
            job = client.job(*cluster.ids())
            assert (await job.wait(PATIENCE_S)).ok
            assert await job.output() == f"{number}\n".encode()
            assert await job.status() == "completed"
        assert await (await client.submit_function(functions_to_run.add, 1)).result(PATIENCE_S) == {"sum": 2}
        assert {g["name"] for g in await client.groups()}
        with pytest.raises(ClientError, match="no schedd"):
            await client.schedd("nobody")
        # Who stops reading early gets a clean answer to the next question.
        async for _ in client.ads():
            break
        assert (await client.pool())["schedds"]


async def test_a_running_job_is_visited_by_both_clients(pool, client, tmp_path):
    """A program beside it with input and its own exit code, and what the job writes while it runs."""
    script = "#!/bin/sh\necho begun\nwhile [ ! -e stop ]; do sleep 0.05; done\necho over\n"
    (tmp_path / "job.sh").write_text(script)
    cluster = client.submit({"executable": "job.sh", "output": "out"}, directory=tmp_path, spool=True)
    (name,) = cluster.ids()
    wait_until(lambda: "JobCurrentStartExecutingDate" in client.job(name).ad, what="its program to run")
    large = os.urandom(150_000)
    count = {"kind": "run", "command": ["/bin/sh", "-c", "cat; echo done >&2; exit 3"]}

    def talk():
        with client.visit(name, count) as visit:
            visit.write(large)
            visit.end_input()
            got = {"out": b"", "err": b""}
            for kind, data in visit.output():
                got[kind] += data
            return got, visit.end["exit_code"]

    assert await asyncio.to_thread(talk) == ({"out": large, "err": b"done\n"}, 3)
    async with AsyncClient(pool.url, pool.token) as other:
        async with await other.visit(name, count) as visit:
            got = {"out": b"", "err": b""}

            async def read():
                async for kind, data in visit.output():
                    got[kind] += data

            reading = asyncio.create_task(read())
            await visit.write(large)
            await visit.end_input()
            await asyncio.wait_for(reading, PATIENCE_S)
            assert (got, visit.end["exit_code"]) == ({"out": large, "err": b"done\n"}, 3)
        # Who leaves ends what still runs.
        async with await other.visit(name, {"kind": "run", "command": ["sleep", "1000"]}) as visit:
            left = visit.name

        async def gone():
            try:
                return (await other.visit_input(left, 0, b"", eof=True))["ended"]
            except ClientError as error:
                return "no such visit" in str(error)

        await eventually(gone)
        tail = other.job(name).tail(follow=True)
        assert await asyncio.wait_for(anext(tail), PATIENCE_S) == b"begun\n"
        async with await other.visit(name, {"kind": "run", "command": ["touch", "stop"]}) as visit:
            assert [data async for data in visit.output()] == []
        assert b"".join([data async for data in tail]) == b"over\n"
        with pytest.raises(ClientError, match=r"ended|not running|not in the queue"):
            await other.visit(name, count)

        # Both ways for files too.
        async def downloaded():
            return b"over" in b"".join([part async for part in other.download(name)])

        await eventually(downloaded)  # its output is on its way when its program has ended


async def test_as_many_jobs_as_one_likes_are_asked_about(pool, client):
    """More ids than an address holds go in several requests."""
    cluster = client.submit({**ECHO, "hold": True}, count=3)
    ids = [f"{cluster.cluster + 1}.{proc}" for proc in range(30_000)] + cluster.ids()
    assert client.wait_states(ids) == dict.fromkeys(cluster.ids(), 5)
    async with AsyncClient(pool.url, pool.token) as other:
        assert await other.wait_states(ids) == dict.fromkeys(cluster.ids(), 5)
        many = [*cluster.ids()[:2], *ids]
        for limit, found in ((0, 5), (1, 1), (2, 2), (3, 3)):
            assert len(list(client.jobs(*many, limit=limit))) == found
            assert len([ad async for ad in other.jobs(*many, limit=limit)]) == found
        for limit, found in ((0, 5), (1, 1)):
            wish = {"projection": ["ProcId", "JobStatus"], "limit": limit}
            sheets = client.job_sheet(*many, **wish), await other.job_sheet(*many, **wish)
            assert [len(sheet) for sheet in sheets] == [found, found]
            assert all(ad.eval("JobStatus") == 5 for sheet in sheets for ad in sheet)
        sheet = await other.sheet("Machine", projection=["Name"])
        assert [ad.eval("Name") for ad in sheet] == [ad.eval("Name") for ad in client.ads("Machine")]
    client.act("remove", [str(cluster.cluster)])


async def test_events_of_the_asynchronous_client_go_on_after_the_last(pool):
    async with AsyncClient(pool.url, pool.token) as client:

        async def first(after):
            stream = client.events("accountant.changed", after=after)
            try:
                async for event in stream:
                    return event
            finally:
                await stream.aclose()

        for name in ("one@x", "two@x"):
            await client.set_priority(name, "factor", 5)
        # From before all of them: a gap, which is no event.
        seen = await asyncio.wait_for(first("0" * 32), PATIENCE_S)
        assert seen.type == "accountant.changed"
        after = await asyncio.wait_for(first(seen.id), PATIENCE_S)
        assert after.id > seen.id


async def test_the_asynchronous_client_says_what_is_wrong(pool):
    async with AsyncClient(pool.url, "wrong") as client:
        with pytest.raises(ClientError, match="no valid token"):
            await client.whoami()
        with pytest.raises(ClientError, match="no valid token"):
            await anext(client.events())
    async with AsyncClient("http://127.0.0.1:1", "x") as client:
        with pytest.raises(ClientError, match=r"is it up\?"):
            await client.pool()
