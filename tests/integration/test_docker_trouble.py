"""Engines that go away, come back, or are broken: what the machine offers, and what becomes of jobs."""

import asyncio
import secrets

import pytest

from services.startd.core.run import failures
from services.startd.exec.docker import engine as engine_module
from shared.classad import parse_expr
from tests.integration.container_jobs import (
    IMAGE,
    PATIENCE_S,
    Proxy,
    containers,
    end_of,
    launcher,
    machine,
    run,
    running_pool,
    start,
    up,
    use_engine,
)
from tests.spec import spec
from tests.startd_pool import Endpoint
from tests.waiting import eventually

pytestmark = [
    pytest.mark.timeout(600),
    # The SDK drops the socket of a connection that can not be made, and leaves closing it to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture
def engine(docker_engine, monkeypatch):
    monkeypatch.setattr(failures, "FIRST_S", 0.2)
    return use_engine(docker_engine, monkeypatch)


@pytest.fixture
async def proxy(engine, tmp_path, monkeypatch):
    async with Proxy(engine.url, tmp_path / "engine.sock") as proxy:
        monkeypatch.setenv("DOCKER_HOST", proxy.url)
        yield proxy


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


def offered(pool):
    return machine(pool).eval("HasDocker") is True


@spec("DKR-01")
async def test_an_engine_that_went_away_is_not_offered_until_it_is_back(proxy, files, tmp_path):
    async with running_pool(tmp_path) as pool:
        assert machine(pool).eval("DockerOfflineReason").__class__.__name__ == "Undefined"
        await proxy.cut()
        await eventually(lambda: not offered(pool))
        reason = machine(pool).eval("DockerOfflineReason")
        assert reason
        assert machine(pool).eval("DockerVersion").__class__.__name__ == "Undefined"
        end = await run(pool, files, "exit 0")
        assert (end.exit.reason, end.exit.hold_code) == ("failed", 0), end.exit
        await proxy.mend()
        await eventually(lambda: offered(pool), PATIENCE_S)
        assert (await run(pool, files, "exit 0")).exit.exit_code == 0


async def test_a_job_that_needs_docker_does_not_match_meanwhile(proxy, files, tmp_path):
    async with running_pool(tmp_path) as pool:
        await proxy.cut()
        await eventually(lambda: not offered(pool))
        _, answer = await start(pool, files, "exit 0", Requirements=parse_expr("TARGET.HasDocker"))
        assert answer.type == "claim.refused", answer


@pytest.mark.parametrize("meanwhile", [True, False])
async def test_jobs_go_on_without_the_engines_ear(proxy, files, tmp_path, engine, meanwhile):
    """What ends while the engine can not be asked is known when it can."""
    async with running_pool(tmp_path) as pool:
        text = "echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo done; exit 4"
        activation, _ = await start(pool, files, text)
        path = await up(pool)
        (container,) = containers(engine, pool)
        await proxy.cut()
        await eventually(lambda: not offered(pool))
        if meanwhile:
            path.with_name("go").touch()
            await asyncio.to_thread(container.wait)
        await proxy.mend()
        await eventually(lambda: offered(pool), PATIENCE_S)
        path.with_name("go").touch()
        end = await end_of(pool, activation)
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 4), end.exit
        assert files.text("_condor_stdout") == "done\n"
        await eventually(lambda: not containers(engine, pool))


async def test_what_happens_while_the_ear_is_being_put_on_is_heard(engine, monkeypatch):
    """The engine answers the question for events a moment before it notes any: a job that ended in this moment was only
    seen to have ended a minute later."""
    monkeypatch.setattr(engine_module, "BEFORE_S", 60)
    name = f"roost-heard-{secrets.token_hex(4)}"
    container = engine.client.containers.create(IMAGE, ["true"], name=name)
    events = []
    ear = engine_module.Engine(lambda: (engine.url,), events.append, lambda news: None)
    try:
        container.start()
        container.wait()
        ear.listen()
        await eventually(
            lambda: any(e["Action"] == "die" and e["Actor"]["Attributes"]["name"] == name for e in list(events))
        )
    finally:
        await ear.ask(lambda api: container.remove(force=True))
        await ear.close()


async def test_a_container_whose_removal_failed_is_removed_later(proxy, files, tmp_path, engine, monkeypatch):
    async with running_pool(tmp_path) as pool:
        forget = launcher(pool).forget

        async def forget_without_engine(name):
            await proxy.cut()
            await forget(name)
            await proxy.mend()

        monkeypatch.setattr(launcher(pool), "forget", forget_without_engine)
        end = await run(pool, files, "exit 3")
        assert end.exit.exit_code == 3
        await eventually(lambda: not containers(engine, pool), PATIENCE_S)
        await eventually(lambda: offered(pool), PATIENCE_S)


@spec("DKR-01")
async def test_an_engine_that_runs_no_container_is_not_offered(engine, files, tmp_path, monkeypatch):
    """It answers, but its test container does not run."""
    good = engine_module.TEST_COMMAND
    monkeypatch.setattr(engine_module, "TEST_COMMAND", ("/sbin/docker-init", "-z"))
    monkeypatch.setattr(failures, "LONGEST_S", 0.5)
    probed = running_pool(tmp_path, DOCKER_PERFORM_TEST="true")
    entering = asyncio.create_task(probed.__aenter__())
    try:
        test = "roost-probe"
        await eventually(lambda: test in str(engine.client.images.list(name=test)), PATIENCE_S)
        assert not entering.done()
        monkeypatch.setattr(engine_module, "TEST_COMMAND", good)
        pool = await entering
        assert offered(pool)
        assert (await run(pool, files, "exit 0")).exit.exit_code == 0
        assert not containers(engine, pool) or await eventually(lambda: not containers(engine, pool))
    finally:
        if not entering.done():
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)
        else:
            await probed.__aexit__(None, None, None)


async def test_a_refusal_is_the_jobs_where_other_containers_run_and_the_machines_where_none_does(
    engine, files, tmp_path, monkeypatch
):
    monkeypatch.setattr(failures, "FIRST_S", 3600.0)
    async with running_pool(tmp_path, DOCKER_EXTRA_ARGUMENTS="--runtime no-such-runtime") as pool:
        end = await run(pool, files, "exit 0")
        assert (end.exit.reason, end.exit.hold_code) == ("hold", 6), end.exit
        assert "no-such-runtime" in end.exit.message
        assert offered(pool)
        monkeypatch.setattr(engine_module, "TEST_COMMAND", ("/sbin/docker-init", "-z"))
        end = await run(pool, files, "exit 0")
        assert (end.exit.reason, end.exit.hold_code) == ("failed", 0), end.exit
        await eventually(lambda: not offered(pool))
        assert "no-such-runtime" in machine(pool).eval("DockerOfflineReason")


@spec("DKR-04")
async def test_a_volume_that_is_not_there_is_the_machines_fault(engine, files, tmp_path):
    volume = tmp_path / "volume"
    macros = {"DOCKER_VOLUMES": "a", "DOCKER_VOLUME_DIR_a": volume, "DOCKER_MOUNT_VOLUMES": "a"}
    async with running_pool(tmp_path, **macros) as pool:
        end = await run(pool, files, "exit 0")
        assert (end.exit.reason, end.exit.hold_code) == ("failed", 0), end.exit
        assert str(volume) in end.exit.message
        volume.mkdir()
        await eventually(lambda: offered(pool), PATIENCE_S)
        assert (await run(pool, files, "exit 0")).exit.exit_code == 0


async def test_containers_end_when_no_startd_comes_back_for_them(engine, files, tmp_path):
    """Whatever dies, nothing is left behind."""
    async with running_pool(tmp_path, ROOST_STARTD_ORPHAN_TIMEOUT="1") as pool:
        await start(pool, files, "echo up > up; sleep 600")
        await up(pool)
        (container,) = containers(engine, pool)
        await pool.stop()
        there = {"all": True, "filters": {"id": container.id}}
        await eventually(lambda: not engine.client.api.containers(**there), PATIENCE_S)


@spec("LEA-02")
async def test_a_container_ends_with_its_lease_where_no_startd_is(engine, files, tmp_path):
    """Long before all containers would be removed for want of a startd."""
    async with running_pool(tmp_path) as pool:
        activation, _ = await start(pool, files, "echo up > up; sleep 600")
        await up(pool)
        await pool.running(activation.job_id)  # its lease was told after its start, and would be told after ours
        (container,) = containers(engine, pool)
        (run_name,) = launcher(pool)._runs
        launcher(pool).lease({run_name: 0.5})
        await pool.stop()
        there = {"all": True, "filters": {"id": container.id}}
        await eventually(lambda: not engine.client.api.containers(**there), PATIENCE_S)


async def test_containers_go_on_when_a_startd_comes_back_for_them(engine, files, tmp_path):
    async with running_pool(tmp_path, ROOST_STARTD_ORPHAN_TIMEOUT="3") as pool:
        activation, _ = await start(pool, files, "echo up > up; while [ ! -e go ]; do sleep 0.05; done; exit 4")
        path = await up(pool)
        watcher = launcher(pool)._watcher._process
        await pool.stop()
        watcher.returncode = None  # so that it can be waited for
        await pool.start()
        await asyncio.to_thread(watcher.wait, PATIENCE_S)  # it saw that there is another one
        path.with_name("go").touch()
        end = await end_of(pool, activation)
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 4), end.exit
