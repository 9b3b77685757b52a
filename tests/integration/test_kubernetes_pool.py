"""The pods of the Helm chart, run as it says by a Docker engine in place of a cluster: tests/containers/kubelet.py."""

import pytest

from tests.chart import PREFIX
from tests.containers.engine import Engine
from tests.containers.kubelet import Kubelet
from tests.containers.pool import ComposePool
from tests.waiting import wait_until

VALUES = {
    "negotiators": 2,
    "collectors": 2,
    "image": {"tag": "test"},
    "rabbitmq": {"replicas": 3},
    "redis": {"replicas": 3},
    "startd": {
        "replicas": 2,
        "resources": {"requests": {}, "limits": {"cpu": "2", "memory": "2Gi"}},
        "config": "RunBenchmarks = false",
    },
}

pytestmark = [
    pytest.mark.docker,
    pytest.mark.kubernetes,
    pytest.mark.mounts,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("compose"),
]


@pytest.fixture(scope="module")
def pool(docker_engine: Engine):
    for name in ("python:3.11-slim", "rabbitmq:4.0-management", "redis:8.0"):
        docker_engine.image(name)
    ComposePool(docker_engine).compose("build", "--quiet", "prepare")
    with Kubelet.up(docker_engine, VALUES) as up:
        yield up


def run(pool: Kubelet, count: int) -> None:
    """Jobs, to their end."""
    with pool.client() as client:
        cluster = client.submit(
            {"executable": "/bin/echo", "arguments": "hello", "output": "out", "request_memory": "16M"},
            count=count,
            spool=True,
        )
        for number in range(count):
            outcome = client.job(f"{cluster.cluster}.{number}", cluster.schedd).wait(180)
            assert outcome.exit_code == 0, outcome
        client.act("remove", str(cluster.cluster))


def machines(pool: Kubelet) -> set[str]:
    with pool.client() as client:
        return {str(ad.eval("Machine")) for ad in client.ads("Machine", projection=["Machine"])}


def test_a_pool_starts_in_any_order_and_runs_jobs(pool):
    assert machines(pool) == {f"{PREFIX}startd-0", f"{PREFIX}startd-1"}
    run(pool, 4)
    for name, container in pool.pods.items():
        assert b"files_open" not in container.logs(), name  # what a daemon keeps can be read by others


def test_an_execution_point_offers_what_its_limits_say(pool):
    with pool.client() as client:
        ads = list(client.ads("Machine", projection=["TotalSlotCpus", "TotalSlotMemory"]))
    assert {(ad.eval("TotalSlotCpus"), ad.eval("TotalSlotMemory")) for ad in ads} == {(2, 2048)}


def primary(pool: Kubelet) -> str:
    """The server of Redis that the sentinels name."""
    ask = "redis-cli -p 26379 --user pool -a $1 --no-auth-warning sentinel get-master-addr-by-name roost"
    password = pool.secret(f"{PREFIX}sentinel")["pool"].decode()
    said = pool.pods[f"{PREFIX}sentinel-0"].exec_run(["sh", "-c", ask, "-", password]).output.decode()
    (found,) = [name for name in ("redis-0", "redis-1", "redis-2") if address(pool, name) == said.split()[0]]
    return found


def address(pool: Kubelet, name: str) -> str | None:
    return pool.address_of(f"{PREFIX}{name}")


def test_another_server_of_redis_takes_over_and_keeps_its_role(pool):
    before = primary(pool)
    pool.delete(f"{PREFIX}{before}")
    pool.wait(lambda: primary(pool) != before, "another primary", f"{PREFIX}sentinel-0")
    after = primary(pool)
    run(pool, 2)
    pool.create(f"{PREFIX}{before}")
    pool.wait_ready(f"{PREFIX}{before}")
    servers = [f"{PREFIX}redis-{number}" for number in range(3)]
    for server in servers:  # all at once
        pool.delete(server)
    for server in servers:
        pool.create(server)
    pool.wait_ready(*servers)
    run(pool, 2)
    assert primary(pool) == after


LOST = ("negotiator-0", "collector-0", "schedd-0", "redis-1", "sentinel-1", "rabbitmq-1", "startd-0")


@pytest.mark.parametrize("pod", LOST)
def test_a_pod_that_is_lost_comes_back_as_itself(pool, pod):
    pool.delete(f"{PREFIX}{pod}")
    pool.create(f"{PREFIX}{pod}")
    pool.wait_ready(f"{PREFIX}{pod}")
    wait_until(lambda: machines(pool) == {f"{PREFIX}startd-0", f"{PREFIX}startd-1"}, 120, "both execution points")
    run(pool, 2)
