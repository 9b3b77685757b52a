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


def test_an_execution_point_offers_what_its_limits_say(pool):
    with pool.client() as client:
        ads = list(client.ads("Machine", projection=["TotalSlotCpus", "TotalSlotMemory"]))
    assert {(ad.eval("TotalSlotCpus"), ad.eval("TotalSlotMemory")) for ad in ads} == {(2, 2048)}


@pytest.mark.parametrize("pod", ["negotiator-0", "collector-0", "schedd-0", "redis-0", "rabbitmq-1", "startd-0"])
def test_a_pod_that_is_lost_comes_back_as_itself(pool, pod):
    pool.delete(f"{PREFIX}{pod}")
    pool.create(f"{PREFIX}{pod}")
    pool.wait_ready(f"{PREFIX}{pod}")
    wait_until(lambda: machines(pool) == {f"{PREFIX}startd-0", f"{PREFIX}startd-1"}, 120, "both execution points")
    run(pool, 2)
