"""The nodes of a job of the parallel universe: one for each of its machines (`machine_count`). Pure.

A node is a Job of its own where slots are concerned, with the ad of the whole job, its number (`Node`), and that number
wherever `$(Node)` was written. Nothing of it is stored: nodes are made again of their job.

Where a submit had several queue statements the machines are in groups: NodeGroups has their sizes, and what those of
group N (0 the first) ask for otherwise than the first one's is NodeGroup<N>_<attribute>.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from engine.queue.jobs import BadSubmit, Job, JobStatus
from shared.classad import UNDEFINED, ClassAd, unparse
from shared.classad.cells import Cell
from shared.classad.expr import fold

#: What `$(Node)` of a submit file is in the queue, as in HTCondor's.
NODE_MARK: Final = "#pArAlLeLnOdE#"
#: A job has no more machines than this: its nodes are made in one go, 12 us each.
MAX_NODES: Final = 1000
#: The sizes of groups of machines, as "1,3"; and what a group says itself.
GROUPS: Final = "NodeGroups"
_OF_GROUP: Final = re.compile(r"nodegroup([1-9]\d{0,3})_([a-z_]\w*)")
#: What may differ between groups of one job, besides what machines are asked for: all else is the job's.
_MAY_DIFFER: Final = frozenset(
    [
        *("requirements", "rank", "args", "arguments", "env", "environment", "imagesize", "diskusage"),
        *("in", "out", "err", "streamin", "streamout", "streamerr", "transferin", "transferout", "transfererr"),
        *("transferinput", "transferinputsizemb", "transferoutput", "transferoutputremaps"),
    ]
)
#: Attributes of the whole job that none of its nodes has.
_OF_WHOLE: Final = ("holdreason", "holdreasoncode", "holdreasonsubcode", "roostmatchedslot")


def count_of(ad: ClassAd) -> int:
    """How many nodes a parallel job has: its MaxHosts. Raises BadSubmit."""
    least, most = ad.eval("MinHosts"), ad.eval("MaxHosts")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_NODES:
        raise BadSubmit(f"MaxHosts: a parallel job has 1 to {MAX_NODES} machines: say machine_count = N")
    if isinstance(least, bool) or least != most:
        raise BadSubmit(f"MinHosts: want {most}, as MaxHosts: a parallel job starts on all of its machines, or on none")
    sizes_of(ad, most)
    return most


def group_attribute(group: int, name: str) -> str:
    return f"NodeGroup{group}_{name}"


def is_of_group(folded: str) -> bool:
    """Whether an attribute is what a group says itself."""
    return _OF_GROUP.fullmatch(folded) is not None


def may_differ(name: str) -> bool:
    """Whether groups of machines of one job may have another one each."""
    folded = fold(name)
    return folded in _MAY_DIFFER or folded.startswith(("request", "require"))


def sizes_of(ad: ClassAd, most: int) -> list[int]:
    """How many machines each group has, of `most` in all. Raises BadSubmit."""
    told = ad.eval(GROUPS)
    if told is UNDEFINED:
        sizes = [most]
    else:
        words = told.split(",") if isinstance(told, str) and len(told) <= 5 * MAX_NODES else []
        sizes = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 5]
        if len(sizes) != len(words) or 0 in sizes or sum(sizes) != most:
            raise BadSubmit(f'{GROUPS}: want the sizes of groups that are {most} machines together, as "1,{most - 1}"')
    for name in ad:
        if fold(name).startswith("nodegroup") and name != GROUPS:
            found = _OF_GROUP.fullmatch(fold(name))
            if found is None or int(found[1]) >= len(sizes):
                raise BadSubmit(f"{name}: the job has no such group of machines ({GROUPS})")
            if not may_differ(found[2]):
                raise BadSubmit(f"{name}: machines of one job can not differ in that; it is the job's")
    return sizes


def group_ad(ad: ClassAd, group: int) -> ClassAd:
    """What a machine of this group is asked for. ad: of the job, chained to nothing."""
    table = {key: entry for key, entry in ad.table().items() if not key.startswith("nodegroup")}
    found = ClassAd.from_table(table)
    for name, cell in _own(ad, group).items():
        found[name] = cell
    return found


def _own(ad: ClassAd, group: int) -> dict[str, Cell]:
    """What a group says itself, by the attribute that it stands for."""
    if not group:
        return {}
    found = {}
    for name, cell in ad.cells():
        match = _OF_GROUP.fullmatch(fold(name))
        if match is not None and int(match[1]) == group and may_differ(match[2]):
            found[name.partition("_")[2]] = cell
    return found


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
    groups = _groups_of(job)
    own = {group: _own(job.cluster.ad, group) | _own(job.ad, group) for group in {*groups}}
    for node in nodes:
        ad = ClassAd.from_table(dict(table))
        for name, cell in {**dict(marked), **own[groups[node.node]]}.items():
            text = cell if isinstance(cell, str) else unparse(cell)
            if NODE_MARK not in text:
                ad[name] = cell
            elif isinstance(cell, str):
                ad[name] = text.replace(NODE_MARK, str(node.node))
            else:
                ad.set_text(name, text.replace(NODE_MARK, str(node.node)))
        ad.update({"Node": node.node, "JobStatus": int(JobStatus.IDLE)})
        ad.chain(job.cluster.ad)
        node.ad, node.status = ad, JobStatus.IDLE
        node.priority, node.submitter = job.priority, job.submitter
        node.generation = -1


def _groups_of(job: Job) -> list[int]:
    """The group of each node."""
    try:
        sizes = sizes_of(job.ad, count_of(job.ad))
    except BadSubmit:  # as in make_nodes
        sizes = [MAX_NODES]
    return [group for group, size in enumerate(sizes) for _ in range(size)]


def _marked(job: Job) -> list[tuple[str, Cell]]:
    """The attributes in which a node's number is to stand, of the job and its cluster."""
    found: list[tuple[str, Cell]] = []
    for source in (job.cluster.ad, job.ad):
        if NODE_MARK.encode() not in source.pack():
            continue
        for name, cell in source.cells():
            if _OF_GROUP.fullmatch(fold(name)):
                continue
            text = cell if isinstance(cell, str) else unparse(cell)
            if NODE_MARK in text and (source is job.ad or fold(name) not in job.ad.table()):
                found.append((name, cell))
    return found
