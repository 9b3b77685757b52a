"""Dask's own scheduler and workers, which are jobs of a real pool."""

import os
import sys
from pathlib import Path

import pytest

from tests.integration.inside import InsidePool
from tests.integration.test_bindings_clients import run
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.timeout(600)  # with the installation of Dask
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = f"""
import socket, sys, time
from distributed import Client, wait
from roost import Client as Roost
from roost.dask import RoostCluster

def where(n):
    import os
    return n, os.environ["_CONDOR_SCRATCH_DIR"]

def jobs():
    with Roost() as roost:
        return [ad for ad in roost.jobs()]

def until(true):
    end = time.monotonic() + {PATIENCE_S}
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.2)
    return found

if __name__ == "__main__":
    with RoostCluster(1, cpus=2, memory="300MB", name="mine", python=sys.argv[1]) as cluster:
        assert cluster.scheduler_address.startswith("tls://"), cluster.scheduler_address
        with Client(cluster) as client:
            client.wait_for_workers(1, timeout={PATIENCE_S})
            (worker,) = client.scheduler_info()["workers"].values()
            print("threads", worker["nthreads"], "memory", worker["memory_limit"])
            (number, scratch) = client.submit(where, 7).result({PATIENCE_S})
            print("value", number, "dir_" in scratch)
            (ad,) = jobs()
            print("job", ad["JobBatchName"], ad["RequestCpus"], ad["RequestMemory"])
            cluster.scale(2)
            client.wait_for_workers(2, timeout={PATIENCE_S})
            print("sum", client.submit(sum, client.map(abs, range(-9, 10))).result({PATIENCE_S}))
            cluster.scale(0)
            print("left none", until(lambda: not client.scheduler_info()["workers"]))
    print("queued none", until(lambda: not jobs()))
    with RoostCluster(requirements="false", security=False) as cluster:
        cluster.scale(1)
        until(lambda: cluster.workers and cluster.workers[0].future)
        worker = cluster.workers[0]
        until(lambda: worker.future.job_id)
        with Roost() as roost:
            roost.act("hold", [worker.future.job_id], reason="no such machine")
        until(lambda: worker.trouble)
        print("trouble", worker.trouble)
    print("queued none", until(lambda: not jobs()))
"""


def test_workers_are_jobs_and_go_with_their_cluster(clients, tmp_path):
    paths = os.pathsep.join(map(str, (ROOT, clients)))
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    pool = InsidePool(tmp_path / "pool", NUM_CPUS="4", MEMORY="2000")
    try:
        (tmp_path / "program.py").write_text(PROGRAM)
        said = run(pool, paths, tmp_path, "program.py", str(python))
    finally:
        pool.close()
    told = [line.partition(" (by user")[0] for line in said.splitlines() if line.partition(" ")[0] in TOLD]
    assert told == [
        f"threads 2 memory {384 << 20}",  # what is carved for 300 MB
        "value 7 True",
        "job mine 2 300",
        "sum 90",
        "left none True",
        "queued none True",
        "trouble job 3.0 was held: no such machine",
        "queued none True",
    ], said


TOLD = ("threads", "value", "job", "sum", "left", "queued", "trouble")
