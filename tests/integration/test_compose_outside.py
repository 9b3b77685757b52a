"""The compose pool that is open to other machines (compose.outside.yaml): an execution point that is in none of its
networks enrolls, and runs a job whose files travel."""

from pathlib import Path

import pytest

from shared.bus.statements import GATEWAY_KEYS
from tests.containers.engine import Engine
from tests.containers.pool import COMPOSE_FILE, ComposePool
from tests.processes import DaemonProcess, daemons
from tests.servers import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), pytest.mark.xdist_group("compose")]

NAME = "far.example.org"
SUBMIT = f"""
executable = work.sh
transfer_input_files = input
transfer_output_files = result
should_transfer_files = yes
request_memory = 32
request_disk = 1MB
requirements = Machine == "{NAME}"
queue
"""


class OpenPool(ComposePool):
    """address: of this machine, as containers and processes outside of them reach it."""

    files = (COMPOSE_FILE, COMPOSE_FILE.with_name("compose.outside.yaml"))
    started = ("gateway", "registrar", "schedd", "had")

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        address = engine.client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
        self.env |= {
            "ROOST_OUTSIDE_HOST": address,
            "ROOST_OUTSIDE_ADDRESS": address,
            "ROOST_GATEWAY_ADDRESS": address,
            "ROOST_OUTSIDE_BROKER_PORT": str(free_port()),
            "ROOST_OUTSIDE_FILES_PORT": str(free_port()),
        }


@pytest.fixture(scope="module")
def pool(docker_engine: Engine):
    with OpenPool.up(docker_engine) as up:
        yield up


def test_a_machine_that_enrolls_from_outside_runs_jobs(pool: OpenPool, tmp_path: Path):
    """As docs/compose.md has it: with a join token, the pool's authority and the gateways' public keys."""
    done = pool.roost("enroll", "-create", "-role", "startd", "-name", "far.*")
    assert done.returncode == 0, done.stderr
    (tmp_path / "join").write_text(done.stdout)
    (tmp_path / "gateways.pem").write_text(
        pool.compose("exec", "-T", "gateway", "sh", "-c", "cat /run/roost/key/gateways/*.pub")
    )
    words = ("-role", "startd", "-name", NAME, "-token-file", "join", "-directory", str(tmp_path / "identities"))
    done = pool.roost("enroll", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    url = (tmp_path / "identities" / f"startd.{NAME}" / "amqp_url").read_text()
    assert url.startswith(f"amqps://startd.{NAME}:")
    assert f"@{pool.env['ROOST_OUTSIDE_HOST']}:{pool.env['ROOST_OUTSIDE_BROKER_PORT']}/" in url

    config = {"AUTH_SSL_CLIENT_CAFILE": pool.ca, GATEWAY_KEYS: tmp_path / "gateways.pem", "FULL_HOSTNAME": NAME}
    config |= {"NUM_CPUS": 1, "MEMORY": 256, "ROOST_DOCKER": "false"}
    startd = DaemonProcess("startd", NAME, tmp_path, amqp_url=url, redis_url="", config=config)
    (tmp_path / "work.sh").write_text("#!/bin/sh\ntr a-z A-Z <input >result\n")
    (tmp_path / "input").write_text("from far away\n")
    (tmp_path / "job.sub").write_text(SUBMIT)
    with daemons(startd):
        with pool.client() as client:

            def there() -> bool:
                return any(ad.eval("Machine") == NAME for ad in client.ads("Machine", projection=["Machine"]))

            wait_until(there, 90, "the machine to be known")
        done = pool.roost("submit", "-spool", "-terse", "job.sub", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        cluster = done.stdout.split(".")[0]
        waited = pool.roost("wait", cluster, "-timeout", "120")
        assert waited.returncode == 0, waited.stdout + waited.stderr + startd.log.read_text() + pool.logs("schedd")
        fetched = pool.roost("transfer-data", cluster, cwd=tmp_path)
        assert fetched.returncode == 0, fetched.stderr
        assert (tmp_path / "result").read_text() == "FROM FAR AWAY\n"
        # It obeys people for whom the pool's gateway vouches.
        drained = pool.roost("drain", NAME)
        assert drained.returncode == 0, drained.stderr
