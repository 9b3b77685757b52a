"""Jobs in containers, on a real engine."""

import os

import pytest

from services.startd.launchers.docker.launcher import container_name
from shared.classad import ClassAd
from shared.messages.claims import DeactivateClaim
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually

IMAGE = "debian:bookworm-slim"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def engine(docker_engine, monkeypatch):
    docker_engine.image(IMAGE)
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    return docker_engine


@pytest.fixture
async def pool(engine, tmp_path):
    tmp_path.chmod(0o755)
    async with Pool(tmp_path, ROOST_DOCKER="true") as pool:
        await eventually(lambda: machine(pool).eval("HasDocker") is True)
        yield pool
        for record in pool.startd.ledger.journal.load("runs").values():
            await pool.startd.launchers["docker"].forget(record["name"])


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


async def start(pool, files, text=None, **attrs):
    job = {
        "WantDocker": True,
        "DockerImage": IMAGE,
        "Out": "out",
        "Err": "err",
        "Iwd": "/nowhere",
        "cmd": "job.sh",
    }
    if text is not None:
        (files.input / "condor_exec.exe").write_text(f"#!/bin/sh\n{text}\n")
    activation = pool.activation(url=files.url, **job | attrs)
    return activation, await pool.call(pool.request(activation))


def machine(pool):
    return pool.startd.runs.machine_ad("slot1@node1")


def containers(engine, pool):
    label = f"roost.startd={pool.startd.launchers['docker'].startd}"
    return engine.client.containers.list(all=True, sparse=True, filters={"label": label})


async def test_the_ad_tells_of_the_engine(pool):
    ad = machine(pool)
    assert ad.eval("HasDocker") is True
    assert ad.eval("DockerVersion").startswith("Docker version ")


async def test_a_job_runs_in_its_container_and_leaves_nothing(pool, files, engine):
    (files.input / "data").write_text("input\n")
    text = "cat /etc/os-release | grep ^ID=; cat data; id -u; echo bad >&2; echo x > made; exit 3"
    activation, _ = await start(pool, files, text)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_code, end.exit.output_committed) == ("exited", 3, True), end.exit
    user = os.getuid() or 65534
    assert files.text("_condor_stdout") == f"ID=debian\ninput\n{user}\n"
    assert files.text("_condor_stderr") == "bad\n"
    assert files.text("made") == "x\n"
    started = next(r for r in pool.schedd.reports if r.phase == "running")
    assert ClassAd.unpack(started.updates).eval("ContainerID")
    await eventually(lambda: not containers(engine, pool))
    await eventually(lambda: not list(pool.execute.glob("dir_*")))


async def test_a_job_may_do_little_in_its_container(pool, files):
    text = "grep -E 'CapEff|NoNewPrivs' /proc/self/status; cat /sys/fs/cgroup/pids/x; echo $OMP_NUM_THREADS"
    activation, _ = await start(pool, files, text, RequestCpus=2)
    await pool.schedd.end_of(activation.job_id)
    lines = files.text("_condor_stdout").split()
    assert lines == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1", "2"]


async def test_standard_input_reaches_the_container(pool, files):
    (files.input / "typed").write_text("one\ntwo\n" * 1000)
    activation, _ = await start(pool, files, "wc -l", In="typed")
    await pool.schedd.end_of(activation.job_id)
    assert files.text("_condor_stdout").strip() == "2000"


async def test_a_program_of_the_image_can_be_the_job(pool, files):
    activation, _ = await start(
        pool,
        files,
        cmd="/bin/echo",
        Arguments="'a b' c",
        TransferExecutable=False,
        DockerImage=f"docker://{IMAGE}",
    )
    await pool.schedd.end_of(activation.job_id)
    assert files.text("_condor_stdout") == "a b c\n"


@pytest.mark.parametrize(
    ("attrs", "code", "words"),
    [
        ({"DockerImage": "roost.invalid/no/such:image"}, 35, "roost.invalid/no/such:image"),
        ({"DockerImage": "Not A Name"}, 35, "Not A Name"),
        ({"cmd": "/no/such/program", "TransferExecutable": False}, 6, "/no/such/program"),
    ],
)
async def test_what_can_not_be_started_is_held(pool, files, engine, attrs, code, words):
    activation, _ = await start(pool, files, "exit 0", **attrs)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", code), end.exit
    assert words in end.exit.message
    await eventually(lambda: not containers(engine, pool))


async def test_too_much_memory_holds_the_job_with_use_and_limit(pool, files):
    activation, _ = await start(pool, files, "exec tail /dev/zero", RequestMemory=64)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 34), end.exit
    assert "128 MiB" in end.exit.message


async def test_a_stopped_container_is_asked_then_killed(pool, files, engine):
    text = "trap 'echo asked' TERM; echo up > up; while :; do sleep 0.1; done"
    activation, granted = await start(pool, files, text, JobMaxVacateTime=1)
    await eventually(lambda: list(pool.execute.glob("dir_*/up")))
    stop = DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="hold", want_output=True)
    await pool.call(stop)
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "killed"
    assert "asked" in files.text("_condor_stdout")
    await eventually(lambda: not containers(engine, pool))


async def test_a_restarted_startd_adopts_its_containers(pool, files, engine):
    activation, _ = await start(pool, files, "echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 4")
    await pool.running(activation.job_id)
    await eventually(lambda: list(pool.execute.glob("dir_*/up")))
    stranger = engine.client.containers.create(
        IMAGE,
        "true",
        name=container_name("stranger"),
        labels={"roost.startd": pool.startd.launchers["docker"].startd, "roost.run": "stranger"},
    )
    neighbour = engine.client.containers.create(
        IMAGE,
        "true",
        name=container_name("neighbour"),
        labels={"roost.startd": "node1-of-another-pool", "roost.run": "neighbour"},
    )
    await pool.restart()
    next(pool.execute.glob("dir_*/up")).with_name("go").touch()
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_code, end.exit.output_committed) == ("exited", 4, True)
    assert files.text("_condor_stdout") == "done\n"
    await eventually(lambda: stranger.id not in [c.id for c in containers(engine, pool)])
    neighbour.remove(force=True)  # it is still there: not ours to remove


async def test_without_an_engine_the_machine_says_so_and_jobs_go_elsewhere(tmp_path, files, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    async with Pool(tmp_path, ROOST_DOCKER="true") as pool:
        assert machine(pool).eval("HasDocker") is False
        activation, _ = await start(pool, files, "exit 0")
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.reason == "failed"
        assert "nothing.sock" in end.exit.message
