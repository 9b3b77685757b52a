"""A DAG of some hundred nodes on daemons that are processes on real servers, each of which is killed in its middle."""

import sys
from collections import Counter
from itertools import pairwise

import pytest

from bench.dag_killed import VICTIMS, count, environment_of, is_over, kill, ran, write_dag
from bench.faults.pool import FaultPool
from roost.dag.journal import read_journal
from roost.errors import ClientError
from tests import warm
from tests.waiting import wait_until

#: Chains beside each other, of so many nodes each.
CHAINS, LENGTH = 6, 30


@pytest.mark.dear(held_by="tests/integration/test_dags.py::test_managers_that_are_killed_run_no_node_twice")
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_whatever_daemon_is_killed_in_the_middle_of_a_dag_no_node_runs_twice(tmp_path, amqp_url, redis_server):
    place = tmp_path / "work"
    names = [[f"N{chain}_{number}" for number in range(LENGTH)] for chain in range(CHAINS)]
    edges = "".join(f"PARENT {a} CHILD {b}\n" for chain in names for a, b in pairwise(chain))
    write_dag(place, edges, [name for chain in names for name in chain])
    knobs = {"CLAIM_WORKLIFE": "1200", "NUM_CPUS": "3"}
    with FaultPool(tmp_path / "pool", amqp_url, redis_server.url, **knobs) as pool:
        environment = environment_of(pool)
        said = warm.run([sys.executable, "-m", "roost", "submit-dag", "d.dag"], env=environment, cwd=place, timeout=100)
        assert said.returncode == 0, said.stderr
        number = int(said.stdout.split("cluster ")[1].split(".")[0])
        share = CHAINS * LENGTH // (len(VICTIMS) + 1)
        for struck, victim in enumerate(VICTIMS, 1):
            wait_until(lambda struck=struck: count(place) >= struck * share, 120, f"node {struck * share}")
            kill(pool, place, *victim)
            pool.revive()
            pool.wait_ready()
        wait_until(lambda: is_over(place), 200, "the end of the DAG")
        assert read_journal(place / "d.dag.journal").code == 0, (place / "d.dag.dagman.out").read_text()
        assert Counter(name for name, _ in ran(place)) == Counter(name for chain in names for name in chain)
        client = pool.connect(30.0)
        wait_until(lambda: not _queued(client, number), 60, "the end of the DAG's line")
        (line,) = client.jobs(str(number), history=True)
        assert (line["JobStatus"], line["ExitCode"]) == (4, 0)
        assert line["NumShadowStarts"] >= 3  # it was killed alone, and with all others
        client.close()


def _queued(client, number: int) -> bool:
    try:
        return bool([*client.jobs(str(number))])
    except ClientError:
        return True
