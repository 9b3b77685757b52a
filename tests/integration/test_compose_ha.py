"""The highly available compose pool: one of everything is killed in turn while jobs run, and no job is lost."""

import pytest

from bench.faults.workload import Workload
from tests.containers.engine import Engine
from tests.containers.pool import HighlyAvailablePool
from tests.waiting import wait_until

SERVED_S = 150.0


@pytest.mark.docker
@pytest.mark.ha
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("compose")
def test_nothing_is_lost_when_one_of_each_is_killed(docker_engine: Engine):
    with HighlyAvailablePool.up(docker_engine) as pool:
        with pool.clients(60.0)[0] as client:
            schedds = tuple(sorted(str(ad.eval("Name")) for ad in client.ads("Scheduler", projection=["Name"])))
        assert len(schedds) == 2
        with Workload(pool.execute / "work", pool.clients, schedds=schedds, shared=False, charges=False) as work:
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
        print(verdict)
        assert (verdict.lost, verdict.ended_twice, verdict.doubled) == ((), (), ())
        # Jobs without an image live in their startd's container: what ran in that one began again elsewhere.
        assert len(verdict.twice) <= 2
        assert verdict.jobs > len(killings)
