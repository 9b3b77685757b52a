"""How a DAG stands, as attributes of its line in the queue: counts of its nodes by state, and for a small one its
nodes, edges and states, from which the dashboard draws it. Pure."""

from __future__ import annotations

from typing import Final

from engine.dag.files import node_statuses
from engine.dag.model import Dag, Kind
from engine.dag.run import DagRun, NodeStatus, Progress
from shared.classad.unparse import quote_string

#: A DAG of more nodes, or with longer names, is no picture.
MOST_NODES: Final = 200
MOST_TEXT: Final = 20_000
#: States are counted each time that something has changed: of larger DAGs only what the run counts anyhow.
MOST_COUNTED: Final = 20_000
#: What stands for a node in DAG_NodeStates.
LETTERS: Final = {
    NodeStatus.NOT_READY: "N",
    NodeStatus.READY: "R",
    NodeStatus.PRE_RUN: "P",
    NodeStatus.POST_RUN: "O",
    NodeStatus.DONE: "D",
    NodeStatus.ERROR: "E",
    NodeStatus.FUTILE: "F",
}
_COUNTS: Final = {
    "DAG_NodesUnready": NodeStatus.NOT_READY,
    "DAG_NodesReady": NodeStatus.READY,
    "DAG_NodesPrerun": NodeStatus.PRE_RUN,
    "DAG_NodesPostrun": NodeStatus.POST_RUN,
    "DAG_NodesFutile": NodeStatus.FUTILE,
}


def shape(dag: Dag) -> dict[str, str]:
    """DAG_NodeNames: the nodes, with blanks between them, `+` for one that only joins others. DAG_NodeParents: for each
    the numbers of its parents in that list, with commas, or `-`. Empty for a DAG that is no picture."""
    if len(dag.nodes) > MOST_NODES:
        return {}
    names = " ".join("+" if node.kind is Kind.JOIN else node.name for node in dag.nodes)
    parents = " ".join(",".join(map(str, node.parents)) or "-" for node in dag.nodes)
    if len(names) + len(parents) > MOST_TEXT:
        return {}
    return {"DAG_NodeNames": quote_string(names), "DAG_NodeParents": quote_string(parents)}


def states(run: DagRun, *, drawn: bool) -> dict[str, str]:
    """DAG_NodeStates: a letter for each node (LETTERS; of submitted ones I, X and H: idle, running, held).
    DAG_NodeClusters: its last cluster, or `-`. And how many are in which state. drawn: it has a `shape`."""
    found = {
        "DAG_Status": int(run.status),
        "DAG_NodesTotal": run.dag.counted,
        "DAG_NodesDone": run.done,
        "DAG_NodesFailed": len(run.failed),
        "DAG_NodesQueued": run.queued,
        "DAG_JobsIdle": run.idle,
        "DAG_JobsHeld": run.held,
    }
    told = {name: str(value) for name, value in found.items()}
    if len(run.dag.nodes) > MOST_COUNTED:
        return told
    statuses = node_statuses(run)
    counts = dict.fromkeys(NodeStatus, 0)
    for node in run.dag.nodes:
        if node.counted:
            counts[statuses[node.index]] += 1
    told |= {name: str(counts[status]) for name, status in _COUNTS.items()}
    if drawn:
        letters = (LETTERS.get(one) or _of_jobs(run.progress[index]) for index, one in enumerate(statuses))
        told["DAG_NodeStates"] = quote_string("".join(letters))
        told["DAG_NodeClusters"] = quote_string(" ".join(str(one.cluster or "-") for one in run.progress))
    return told


def _of_jobs(progress: Progress) -> str:
    jobs = set((progress.jobs or {}).values())
    return "H" if "H" in jobs else "X" if "R" in jobs else "I"
