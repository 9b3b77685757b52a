"""The highly available compose pool: one of everything is killed in turn while jobs run, and no job is lost."""

import json
import time

import pytest

from bench.faults.containers import ContainerPool, cut
from bench.faults.faults import dead_primary, returns
from bench.faults.leaders import LeaderWatch
from bench.faults.verdict import two_leaders, without_leader
from bench.faults.workload import Workload
from tests.containers.engine import Engine
from tests.spec import spec
from tests.waiting import wait_until

SERVED_S = 150.0
CORES = 6  # of three startds

#: It takes root to look into the containers' networks.
pytestmark = [
    pytest.mark.docker,
    pytest.mark.ha,
    pytest.mark.mounts,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("compose"),
]


@pytest.fixture(scope="module")
def pool(docker_engine: Engine):
    with ContainerPool.up(docker_engine) as up:
        yield up


def test_nothing_is_lost_when_one_of_each_is_killed(pool: ContainerPool):
    schedds = pool.schedds()
    assert len(schedds) == 2
    begun = time.time()
    with Workload(pool.execute / "killed", pool.connect, schedds=schedds, shared=False) as work:
        work.start()
        leader = pool.leader()
        killings = (
            (f"negotiator{leader}", f"had{leader}"),
            (pool.redis_primary(),),
            ("rabbitmq",),  # the one that all daemons begin with
            ("collector",),
            ("gateway2",),
            ("schedd2",),
            ("startd3",),
        )
        for services in killings:
            pool.kill(*services)
            killed = work.now()
            wait_until(lambda since=killed: work.served(since), SERVED_S, f"service without {services}")
            pool.start(*services)
            pool.wait_ready(*services)
            print(services, work.without(killed, work.now()))
        verdict = work.end()
    took = time.time() - begun
    noted = sum(work.durations())
    print(f"{verdict.jobs} jobs in {took:.0f} s, ran {verdict.ran_s:.0f} s, by their own notes {noted:.0f} s", end="")
    print(f", charged {verdict.charged_s:.0f} s")
    # Jobs without an image live in their startd's container: what ran in that one begins again elsewhere.
    assert verdict.faults(restarts=True) == []
    assert len(verdict.twice) <= 2
    assert verdict.jobs > len(killings)
    # Whoever ran something is charged, nobody for what is no more: end() has seen that all charging ended.
    assert noted <= verdict.charged_s <= CORES * took


def test_daemons_that_are_cut_off_say_what_they_wait_for(pool: ContainerPool):
    """/readyz, with a status that a load balancer understands; and all is well again once the cut is mended."""

    def waits_for(service: str, what: str) -> bool:
        status, text = pool[service].health()
        return status == 503 and any(what in reason for reason in json.loads(text)["waiting_for"])

    cuts = (
        ("collector3", pool.redis(), "store:"),
        ("had3", pool.redis(), "store:"),
        ("schedd2", pool.brokers(), "bus:"),
        ("startd3", pool.brokers(), "bus:"),
        ("gateway2", pool.brokers(), "bus:"),
    )
    for service, off, what in cuts:
        with cut(pool[service], off=off):
            wait_until(lambda s=service, w=what: waits_for(s, w), 90, f"{service} to say that it waits for the {what}")
        pool.wait_ready(service)


@spec("HA-05")
def test_returning_primary_takes_the_lead_while_nobody_else_does(pool: ContainerPool):
    """With the defaults: the others are told, and never are there two."""
    daemons = [pool["negotiator"], pool["had"]]
    with dead_primary(pool, "", *daemons):
        watched = [pool[name].where for name in ("negotiator", "negotiator2", "negotiator3")]
        with LeaderWatch(watched) as watch:
            began = time.time()
            with returns(pool, "", *daemons):
                ended = time.time()
        two = two_leaders(watch.glimpses, began, ended)
        print(f"nobody led for {without_leader(watch.glimpses, began, ended):.2f} s, two for {two:.2f} s")
        assert two < 0.05
