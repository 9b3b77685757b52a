"""A quota set over HTTP, two negotiators as processes, and the one that leads killed (GRP-04, HA-13)."""

import pytest

from roost.client import Client
from roost.errors import ClientError
from tests.processes import DaemonProcess, daemons
from tests.servers import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.servers

CENTRAL = {
    "ROOST_HAD_LEASE": 2.5,  # who leads changes only because this test says so
    "HAD_LIST": "cm1:1, cm2:1",
    "GROUP_NAMES": "physics",
    "GROUP_QUOTA_physics": 1,
}


@pytest.fixture
def pool(tmp_path, amqp_url, redis_url):
    """(client, central managers by name)"""
    port, token = free_port(), tmp_path / "token"
    gateway = {"ROOST_GATEWAY_PORT": port, "ROOST_GATEWAY_BIND": "127.0.0.1", "ROOST_TOKEN_FILE": token}
    schedd = {"ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1", "ROOST_SCHEDD_TRANSFER_PORT": 0}
    # A claim is for one job, so that each takes a cycle.
    startd = {"NUM_CPUS": 4, "MEMORY": 4096, "RUNBENCHMARKS": "false", "CLAIM_WORKLIFE": 0}
    wanted = [("collector", "cm", {}), ("schedd", "ap", schedd), ("startd", "ep", startd), ("gateway", "gw", gateway)]
    wanted += [(kind, name, CENTRAL) for name in ("cm1", "cm2") for kind in ("negotiator", "had")]
    made = {
        (kind, name): DaemonProcess(kind, name, tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
        for kind, name, config in wanted
    }
    with daemons(*made.values()), Client(f"http://127.0.0.1:{port}", token.read_text().strip()) as client:
        yield client, {name: [made[kind, name] for kind in ("negotiator", "had")] for name in ("cm1", "cm2")}


def asked(question):
    """What it answers, None while nobody leads."""
    try:
        return question()
    except ClientError as error:
        if not error.retryable:
            raise
        return None


@pytest.mark.timeout(240)
def test_a_quota_outlives_the_negotiator_that_it_was_set_at(pool):
    client, central = pool
    commands = {"executable": "/bin/sleep", "arguments": "600", "request_memory": "64", "request_disk": "1024"}
    commands |= {"accounting_group": "physics", "accounting_group_user": "alice", "should_transfer_files": "NO"}
    cluster = client.submit(commands, count=8, directory="/").cluster

    def running():
        ads = client.jobs(str(cluster), constraint="JobStatus == 2", projection=["ProcId"])
        return {ad.eval("ProcId") for ad in ads}

    def leaders():
        """By their ads: the one that is dead has its own for a while."""
        return {str(ad.eval("Machine")) for ad in client.ads("Negotiator", constraint="NegotiatorIsActive")}

    def group():
        found = next(one for root in client.groups() for one in root["groups"])
        return found["config_quota"], found["quota_is_set"]

    wait_until(lambda: len(running()) == 1, 60, "the one job that the configuration's quota lets run")
    client.set_quota("physics", 3)
    wait_until(lambda: len(running()) == 3, 60, "the cycle that goes by the quota")
    wait_until(lambda: asked(group) == (3.0, True), 60, "the group to be told of")

    wait_until(leaders, 60, "the leader's ad")
    (before,) = leaders()
    for process in central[before]:
        process.kill()
    (other,) = set(central) - {before}
    wait_until(lambda: other in leaders(), 60, "the other to lead")
    former = running()
    assert len(former) == 3
    client.act("remove", [f"{cluster}.{proc}" for proc in former])
    wait_until(lambda: len(running() - former) == 3, 60, "three others by the quota that was set at the former leader")
    assert asked(group) == (3.0, True)

    wait_until(lambda: asked(lambda: client.unset_quota("physics") or True), 60, "the quota to be taken back")
    latter = running()
    client.act("remove", [f"{cluster}.{proc}" for proc in latter])
    wait_until(lambda: len(running() - latter) == 1, 60, "the one job of the configuration's quota")
    wait_until(lambda: asked(group) == (1.0, False), 60, "the configuration's quota")
    client.act("remove", [str(cluster)])
    wait_until(lambda: not running(), 60, "the end of all jobs")
