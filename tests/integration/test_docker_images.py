"""Images of jobs: pulled from a registry, shared, kept and removed. On a real engine."""

import asyncio
import contextlib

import pytest
from docker.errors import ImageNotFound

from services.startd.exec.docker import image_cache
from shared.messages.claims import DeactivateClaim
from tests.containers.registry import Registry
from tests.integration.container_jobs import end_of, launcher, machine, running_pool, start, up, use_engine
from tests.spec import spec
from tests.startd_pool import Endpoint
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)
#: What the engine itself puts into every container, so images need no program.
JOB = {"cmd": "/sbin/docker-init", "Arguments": "--version", "TransferExecutable": False}


@pytest.fixture
def engine(docker_engine, monkeypatch):
    return use_engine(docker_engine, monkeypatch)


@pytest.fixture
async def pool(engine, tmp_path):
    async with running_pool(tmp_path, DOCKER_IMAGE_CACHE_SIZE="2") as pool:
        yield pool


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


@pytest.fixture
async def registry(engine):
    async with Registry() as registry:
        yield registry
        # What the test did not have removed.
        for tag in tags(engine, registry):
            with contextlib.suppress(ImageNotFound):
                engine.client.images.remove(registry.name(tag), force=True)


async def run(pool, files, image, **attrs):
    activation, _ = await start(pool, files, **JOB, DockerImage=image, **attrs)
    return await end_of(pool, activation)


def tags(engine, registry):
    names = {tag for image in engine.client.api.images() for tag in image.get("RepoTags") or ()}
    return sorted(name.removeprefix(registry.name("")) for name in names if name.startswith(registry.name("")))


async def test_an_image_is_pulled_once(pool, files, registry):
    image = registry.add("pulled:1")
    for _ in range(2):
        end = await run(pool, files, image)
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
    assert files.text("_condor_stdout").startswith("tini version")
    assert registry.pulls() == 1


@spec("DKR-07")
async def test_the_least_recently_used_of_our_images_go(pool, files, registry, engine):
    """With DOCKER_IMAGE_CACHE_SIZE = 2, also over a restart; what others brought stays."""
    others = registry.add("others:1")
    await asyncio.to_thread(engine.client.images.pull, *others.rsplit(":", 1))
    one, two, three, four = (registry.add(f"{name}:1") for name in ("one", "two", "three", "four"))
    for image in (others, one, two, one):
        assert (await run(pool, files, image)).exit.exit_code == 0
    assert tags(engine, registry) == ["one:1", "others:1", "two:1"]
    await run(pool, files, three)
    await eventually(lambda: tags(engine, registry) == ["one:1", "others:1", "three:1"])
    await pool.restart()
    await eventually(lambda: machine(pool).eval("HasDocker") is True)
    await run(pool, files, four)
    await eventually(lambda: tags(engine, registry) == ["four:1", "others:1", "three:1"])


@spec("DKR-07")
async def test_an_image_in_use_stays(engine, tmp_path, files, registry):
    """Where none may stay, one stays while a job runs in it."""
    # The image has no shell: this machine's is mounted.
    volumes = {"bin": "/usr/bin:/bin:ro", "lib": "/usr/lib:/lib:ro", "lib64": "/usr/lib64:/lib64:ro"}
    macros = {f"DOCKER_VOLUME_DIR_{name}": path for name, path in volumes.items()}
    names = " ".join(volumes)
    async with running_pool(
        tmp_path, DOCKER_IMAGE_CACHE_SIZE="0", DOCKER_VOLUMES=names, DOCKER_MOUNT_VOLUMES=names, **macros
    ) as pool:
        used, other = registry.add("used:1"), registry.add("other:1")
        assert (await run(pool, files, used)).exit.exit_code == 0
        await eventually(lambda: tags(engine, registry) == [])
        text = "echo up > up; while [ ! -e go ]; do sleep 0.05; done"
        activation, _ = await start(pool, files, text, DockerImage=used)
        path = await up(pool)
        assert (await run(pool, files, other)).exit.exit_code == 0
        await eventually(lambda: tags(engine, registry) == ["used:1"])
        path.with_name("go").touch()
        await end_of(pool, activation)
        await eventually(lambda: tags(engine, registry) == [])


@pytest.mark.parametrize(("policy", "pulls"), [("always", 2), ("missing", 1)])
async def test_pull_policies(pool, files, registry, policy, pulls):
    image = registry.add("policy:1")
    for _ in range(2):
        assert (await run(pool, files, image, DockerPullPolicy=policy)).exit.exit_code == 0
    assert registry.pulls() == pulls


async def test_an_image_that_is_missing_holds_the_job_with_the_engines_reason(pool, files, registry):
    end = await run(pool, files, registry.name("nobody/made:this"))
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 35), end.exit
    assert "nobody/made:this" in end.exit.message
    assert "manifest unknown" in end.exit.message
    assert machine(pool).eval("HasDocker") is True


async def test_a_damaged_image_holds_the_job(pool, files, registry):
    image = registry.add("damaged:1")
    registry.damaged = True
    end = await run(pool, files, image)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 35), end.exit
    assert image in end.exit.message


async def test_a_registry_that_is_away_for_a_moment_does_no_harm(pool, files, registry, monkeypatch):
    monkeypatch.setattr(image_cache, "PULL_AGAIN_S", (0.1, 0.1, 0.1, 0.1))
    image = registry.add("moment:1")
    registry.refuse = [503, 503, 503]
    end = await run(pool, files, image)
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
    assert not registry.refuse


async def test_a_registry_that_stays_away_holds_the_job(pool, files, registry, monkeypatch):
    monkeypatch.setattr(image_cache, "PULL_AGAIN_S", (0.1, 0.1))
    image = registry.add("away:1")
    registry.refuse = [503] * 100
    end = await run(pool, files, image)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 35), end.exit


async def test_many_jobs_wait_for_one_pull(pool, files, registry):
    image = registry.add("shared:1")
    registry.gate.clear()
    started = [await start(pool, files, **JOB, DockerImage=image) for _ in range(3)]
    await asyncio.wait_for(registry.waiting.wait(), 60)
    registry.gate.set()
    for activation, _ in started:
        assert (await end_of(pool, activation)).exit.exit_code == 0
    assert registry.pulls() == 1


async def test_a_pull_that_nobody_waits_for_is_given_up(pool, files, registry, engine):
    image = registry.add("given-up:1")
    registry.gate.clear()
    started = [await start(pool, files, **JOB, DockerImage=image) for _ in range(2)]
    await asyncio.wait_for(registry.waiting.wait(), 60)
    for activation, granted in started:
        stop = DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="remove", fast=True)
        await pool.call(stop)
        assert (await end_of(pool, activation)).exit.reason == "killed"
    await asyncio.wait_for(registry.broken_off.wait(), 60)
    assert tags(engine, registry) == []


async def test_a_run_that_was_fetching_its_image_begins_anew_after_a_restart(pool, files, registry, engine):
    """It has no container yet, so it is not lost: it is started as if nothing had been."""
    image = registry.add("anew:1")
    registry.gate.clear()
    activation, _ = await start(pool, files, **JOB, DockerImage=image)
    await asyncio.wait_for(registry.waiting.wait(), 60)
    await pool.restart()
    registry.gate.set()
    end = await end_of(pool, activation)
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
    assert launcher(pool).attributes(())["HasDocker"] is True
