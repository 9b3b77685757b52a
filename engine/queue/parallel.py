"""The nodes of a job of the parallel universe: one for each of its machines (`machine_count`). Pure.

A node is a Job of its own where slots are concerned, with the ad of the whole job, its number (`Node`), and that number
wherever `$(Node)` was written. Nothing of it is stored: nodes are made again of their job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.queue.jobs import BadSubmit, Job, JobStatus
from shared.classad import ClassAd, unparse
from shared.classad.cells import Cell
from shared.classad.expr import fold

#: What `$(Node)` of a submit file is in the queue, as in HTCondor's.
NODE_MARK: Final = "#pArAlLeLnOdE#"
#: A job has no more machines than this: its nodes are made in one go, 12 us each.
MAX_NODES: Final = 1000
#: Attributes of the whole job that none of its nodes has.
_OF_WHOLE: Final = ("holdreason", "holdreasoncode", "holdreasonsubcode", "roostmatchedslot")


def count_of(ad: ClassAd) -> int:
    """How many nodes a parallel job has: its MaxHosts. Raises BadSubmit."""
    least, most = ad.eval("MinHosts"), ad.eval("MaxHosts")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_NODES:
        raise BadSubmit(f"MaxHosts: a parallel job has 1 to {MAX_NODES} machines: say machine_count = N")
    if isinstance(least, bool) or least != most:
        raise BadSubmit(f"MinHosts: want {most}, as MaxHosts: a parallel job starts on all of its machines, or on none")
    return most


def make_nodes(job: Job) -> list[Job]:
    """The nodes of a job that was accepted."""
    try:
        count = count_of(job.ad)
    except BadSubmit:  # an administrator's edit, say: nothing may keep the queue from being read
        count = 1
    nodes = [
        Job(job.cluster, job.proc, job.ad, JobStatus.IDLE, job.priority, job.submitter, whole=job, node=number)
        for number in range(count)
    ]
    renew(job, nodes)
    return nodes


def renew(job: Job, nodes: Iterable[Job]) -> None:
    """Make nodes of the job that have no run as it is now."""
    table = {key: entry for key, entry in job.ad.table().items() if key not in _OF_WHOLE}
    marked = _marked(job)
    for node in nodes:
        ad = ClassAd.from_table(dict(table))
        for name, cell in marked:
            if isinstance(cell, str):
                ad[name] = cell.replace(NODE_MARK, str(node.node))
            else:
                ad.set_text(name, unparse(cell).replace(NODE_MARK, str(node.node)))
        ad.update({"Node": node.node, "JobStatus": int(JobStatus.IDLE)})
        ad.chain(job.cluster.ad)
        node.ad, node.status = ad, JobStatus.IDLE
        node.priority, node.submitter = job.priority, job.submitter
        node.generation = -1


def _marked(job: Job) -> list[tuple[str, Cell]]:
    """The attributes in which a node's number is to stand, of the job and its cluster."""
    found: list[tuple[str, Cell]] = []
    for source in (job.cluster.ad, job.ad):
        if NODE_MARK.encode() not in source.pack():
            continue
        for name, cell in source.cells():
            text = cell if isinstance(cell, str) else unparse(cell)
            if NODE_MARK in text and (source is job.ad or fold(name) not in job.ad.table()):
                found.append((name, cell))
    return found
