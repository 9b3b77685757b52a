"""A DAG of some hundred nodes on daemons that are processes on real servers, each of which is killed in its middle."""

import os
import signal
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from bench.faults.pool import ROOT, FaultPool
from roost.dag.journal import read_journal
from roost.errors import ClientError
from tests import warm
from tests.waiting import wait_until

#: Chains beside each other, of so many nodes each.
CHAINS, LENGTH = 6, 50
VICTIMS = (
    *(("manager", ""), ("collector", "cm1"), ("negotiator", ""), ("had", ""), ("schedd", "ap"), ("startd", "ep1")),
    *(("gateway", "gw1"), ("all", "")),
)


@pytest.mark.servers
@pytest.mark.timeout(600)
def test_whatever_daemon_is_killed_in_the_middle_of_a_dag_no_node_runs_twice(tmp_path, amqp_url, redis_server):
    place = tmp_path / "work"
    place.mkdir()
    (place / "node.sub").write_text(
        f"executable = {place}/work.sh\narguments = $(JOB)\n"
        "transfer_executable = false\nshould_transfer_files = no\nqueue\n"
    )
    (place / "work.sh").write_text(f"#!/bin/sh\necho $1 >>{place}/order\n")
    (place / "work.sh").chmod(0o755)
    names = [[f"N{chain}_{number}" for number in range(LENGTH)] for chain in range(CHAINS)]
    text = "".join(f"JOB {name} node.sub\n" for chain in names for name in chain)
    text += "".join(f"PARENT {a} CHILD {b}\n" for chain in names for a, b in pairwise(chain))
    (place / "d.dag").write_text(text)
    knobs = {"CLAIM_WORKLIFE": "1200", "NUM_CPUS": "3"}
    with FaultPool(tmp_path / "pool", amqp_url, redis_server.url, **knobs) as pool:
        environment = _environment(pool)
        said = warm.run([sys.executable, "-m", "roost", "submit-dag", "d.dag"], env=environment, cwd=place, timeout=100)
        assert said.returncode == 0, said.stderr
        number = int(said.stdout.split("cluster ")[1].split(".")[0])
        share = CHAINS * LENGTH // (len(VICTIMS) + 1)
        for struck, victim in enumerate(VICTIMS, 1):
            wait_until(lambda struck=struck: _done(place) >= struck * share, 120, f"node {struck * share}")
            _kill(pool, place, *victim)
            pool.revive()
            pool.wait_ready()
        wait_until(lambda: read_journal(place / "d.dag.journal").finished, 200, "the end of the DAG")
        assert read_journal(place / "d.dag.journal").code == 0, (place / "d.dag.dagman.out").read_text()
        ran = Counter((place / "order").read_text().split())
        assert ran == Counter(name for chain in names for name in chain)
        client = pool.connect(30.0)
        wait_until(lambda: not _queued(client, number), 60, "the end of the DAG's line")
        (line,) = client.jobs(str(number), history=True)
        assert (line["JobStatus"], line["ExitCode"]) == (4, 0)
        assert line["NumShadowStarts"] >= 3  # it was killed alone, and with all others
        client.close()


def _environment(pool: FaultPool) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
    urls = ",".join(f"http://127.0.0.1:{port}" for port in pool._gateways)
    token = str(pool.directory / "gateway-gw1" / "token")
    return {**kept, "PYTHONPATH": str(ROOT), "CONDOR_CONFIG": "ONLY_ENV", "ROOST_URL": urls, "ROOST_TOKEN_FILE": token}


def _done(place: Path) -> int:
    return len((place / "order").read_text().split()) if (place / "order").exists() else 0


def _kill(pool: FaultPool, place: Path, kind: str, name: str) -> None:
    if kind in ("negotiator", "had"):
        pool[kind, pool.leader()].kill()
    elif kind in ("manager", "all"):
        if kind == "all":
            for member in pool.members.values():
                member.kill()
        process = int((place / "d.dag.dagman.out").read_text().rpartition(", process ")[2].split()[0])
        os.kill(process, signal.SIGKILL)
    else:
        pool[kind, name].kill()


def _queued(client, number: int) -> bool:
    try:
        return bool([*client.jobs(str(number))])
    except ClientError:
        return True
