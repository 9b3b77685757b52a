"""Credentials of jobs in containers: in memory there too, and never where the engine keeps or tells anything."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.integration.container_jobs import PATIENCE_S, containers, end_of, running_pool, start, use_engine
from tests.spec import spec
from tests.startd_pool import Endpoint
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.mounts]
ONE = b"planted-credential-1a9f\n"


@pytest.fixture
def engine(docker_engine, monkeypatch):
    return use_engine(docker_engine, monkeypatch)


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        endpoint.credentials = {"box.use": ONE}
        yield endpoint


@pytest.fixture
def execute(engine, tmp_path):
    """EXECUTE, of which the engine does not see what is mounted there, as if the startd were in a container."""
    if not engine.private:
        pytest.skip("an engine of the machine's may be in this mount namespace; ours is in its own")
    execute = tmp_path / "execute"
    execute.mkdir(mode=0o755)
    subprocess.run(["mount", "--bind", execute, execute], check=True)
    subprocess.run(["mount", "--make-private", execute], check=True)
    yield execute
    # Lazily: what the startd left behind to look after its containers may be there yet.
    subprocess.run(["umount", "--lazy", execute], check=True)


@spec("TLS-18")
async def test_where_the_engine_does_not_see_them_the_job_is_held(engine, tmp_path, files, execute):
    async with running_pool(tmp_path) as pool:
        activation, _ = await start(pool, files, "cat $_CONDOR_CREDS/box.use", OAuthServicesNeeded="box")
        end = await end_of(pool, activation)
        assert (end.exit.reason, end.exit.hold_code) == ("hold", 4), end.exit
        assert "ROOST_CREDENTIALS_ON_DISK" in end.exit.message
        await eventually(lambda: not containers(engine, pool))
        await eventually(lambda: not list(execute.glob("dir_*")))


@spec("TLS-18")
async def test_on_disk_they_are_seen_wherever_the_engine_is(engine, tmp_path, files, execute):
    async with running_pool(tmp_path, ROOST_CREDENTIALS_ON_DISK="true") as pool:
        text = "cat $_CONDOR_CREDS/box.use; touch $_CONDOR_CREDS/x $_CONDOR_CREDS/box.use 2>/dev/null && echo wrote"
        activation, _ = await start(pool, files, f"{text}; exit 0", OAuthServicesNeeded="box")
        end = await end_of(pool, activation)
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
        assert files.text("_condor_stdout") == ONE.decode()
        await eventually(lambda: not list(execute.glob("dir_*")))
    assert not list(files.output.rglob("box.use"))


@pytest.fixture
def shared():
    """A directory in memory that the startd and the engine find at the same path."""
    made = tempfile.mkdtemp(prefix="roost-", dir="/dev/shm")
    yield Path(made) / "startd"
    shutil.rmtree(made)


async def test_in_a_directory_that_both_see_they_are_in_memory_and_each_jobs_own(
    engine, tmp_path, files, execute, shared
):
    async with running_pool(tmp_path, ROOST_CREDENTIALS_DIR=str(shared)) as pool:
        (shared / "of-another").mkdir(parents=True)
        shared.chmod(0o700)
        (shared / "of-another/box.use").write_bytes(b"not for this job")
        text = (
            "cat $_CONDOR_CREDS/box.use; "
            "touch $_CONDOR_CREDS/x $_CONDOR_CREDS/box.use 2>/dev/null && echo wrote; "
            f"ls {shared} 2>/dev/null; echo >there; while [ ! -e go ]; do sleep 0.1; done; exit 0"
        )
        activation, _ = await start(pool, files, text, OAuthServicesNeeded="box")
        there = await eventually(lambda: next(execute.glob("dir_*/there"), None), PATIENCE_S)
        (mine,) = [one for one in shared.iterdir() if one.name == there.parent.name]
        assert (mine / "box.use").stat().st_mode & 0o777 == 0o400
        assert not list((there.parent / ".condor_creds").iterdir())  # nothing of them on the disk
        (container,) = containers(engine, pool)
        assert ONE.decode().strip() not in str(engine.client.api.inspect_container(container.id))
        (there.parent / "go").touch()
        end = await end_of(pool, activation)
        assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
        assert files.text("_condor_stdout") == ONE.decode()
        await eventually(lambda: os.listdir(shared) == ["of-another"], what="the job's directory to go")
    assert not list(files.output.rglob("box.use"))


async def test_a_directory_on_disk_or_open_to_others_is_refused(engine, tmp_path, files, execute, shared):
    on_disk = tmp_path / "creds"
    async with running_pool(tmp_path, ROOST_CREDENTIALS_DIR=str(on_disk)) as pool:
        activation, _ = await start(pool, files, "exit 0", OAuthServicesNeeded="box")
        end = await end_of(pool, activation)
        assert "and not in memory" in end.exit.message, end.exit
        assert not list(on_disk.iterdir())
    shared.mkdir(mode=0o755)
    async with running_pool(tmp_path, ROOST_CREDENTIALS_DIR=str(shared)) as pool:
        activation, _ = await start(pool, files, "exit 0", OAuthServicesNeeded="box")
        end = await end_of(pool, activation)
        assert "mode 0700" in end.exit.message, end.exit
