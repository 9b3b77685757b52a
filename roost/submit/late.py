"""Late materialization, as far as who submits decides on it: whether a cluster comes into the queue bit by bit."""

from __future__ import annotations

from typing import Final

from roost.submit.description import Cluster

LIMIT: Final = "JobMaterializeLimit"
MAX_IDLE: Final = "JobMaterializeMaxIdle"


def make_factory(cluster: Cluster) -> None:
    """As -factory asks: a cluster without a limit gets one of all its jobs, so that only the schedd's own count."""
    if LIMIT not in cluster.attributes and MAX_IDLE not in cluster.attributes:
        cluster.attributes[LIMIT] = len(cluster.procs)


def take_all(cluster: Cluster) -> str:
    """Queue all jobs of a spooled cluster at once, as each takes files of its own along, which go to jobs that are
    there. Returns what to tell the user; empty: nothing was changed."""
    asked = [name for name in (LIMIT, MAX_IDLE) if name in cluster.attributes]
    for name in asked:
        del cluster.attributes[name]
    if not asked:
        return ""
    return (
        "max_materialize and max_idle have no effect: the jobs are spooled, and their input files differ from job to "
        "job. All are queued at once"
    )
