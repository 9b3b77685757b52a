"""Credentials of jobs in containers: in memory there too, and never where the engine keeps or tells anything."""

import subprocess

import pytest

from tests.integration.container_jobs import containers, end_of, running_pool, start, use_engine
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
