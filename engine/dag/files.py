"""The files that tell how a DAG stands, as DAGMan writes them: rescue and save point files, the node status file, the
picture for Graphviz, metrics and the job state log. Texts; nothing is written here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from engine.dag.model import Kind, Node
from engine.dag.run import JOB_REMOVED, DagRun, Ended, NodeStatus, Progress
from shared.classad.unparse import quote_string

RESCUE_VERSION: Final = "2.0.1"


def rescue_lines(run: DagRun, now: float, *, save_point: bool = False, anew: bool = True) -> Iterator[str]:
    """A partial rescue file, line by line: what is done, and the retries of what is not. It is read after the DAG.
    anew: all retries count anew, as DAGMan has it by default; else there are those that are left."""
    at = datetime.fromtimestamp(now, UTC)
    nodes = [node for node in run.dag.nodes if node.counted]
    # DAGMan writes the file before the FINAL node runs.
    final = run.dag.final is not None and run.progress[run.dag.final].status is NodeStatus.DONE
    failed = "".join(f"{run.dag.nodes[index].name}," for index in run.failed)
    kind = "Save point" if save_point else "Rescue"
    yield f"# {kind} DAG file, created after running"
    yield f"#   the {run.dag.files[0]} DAG file"
    yield f"# Created {at.month}/{at.day}/{at.year} {at:%H:%M:%S} UTC"
    yield f"# Rescue DAG version: {RESCUE_VERSION} (partial)"
    yield "#"
    yield f"# Total number of Nodes: {len(nodes)}"
    yield f"# Nodes premarked DONE: {run.done - final}"
    yield f"# Nodes that failed: {len(run.failed)}"
    yield f"#   {failed}<ENDLIST>"
    yield ""
    for node in nodes:
        if run.progress[node.index].status is NodeStatus.DONE:
            if node.kind is not Kind.FINAL:
                yield f"DONE {node.name}"
        elif node.retries:
            told = run.progress[node.index]
            if told.status is NodeStatus.ERROR and told.code == node.unless_exit:
                yield (
                    f"# {told.attempt} of {node.retries} retries performed; remaining attempts aborted after node "
                    f"returned {told.code}"
                )
            unless = f" UNLESS-EXIT {node.unless_exit}" if node.unless_exit is not None else ""
            used = 0 if anew else run.progress[node.index].attempt
            yield f"RETRY {node.name} {max(0, node.retries - used)}{unless}"


def node_statuses(run: DagRun) -> list[NodeStatus]:
    """How every node stands, by index: with those that will never run, as one of their ancestors failed."""
    found = [progress.status for progress in run.progress]
    reach = list(run.failed)
    while reach:
        for child in run.dag.nodes[reach.pop()].children:
            if found[child] is NodeStatus.NOT_READY:
                found[child] = NodeStatus.FUTILE
                reach.append(child)
    for index, (node, progress) in enumerate(zip(run.dag.nodes, run.progress, strict=True)):
        if found[index] is NodeStatus.NOT_READY and not progress.waits and node.kind is not Kind.FINAL:
            found[index] = NodeStatus.READY
    return found


def status_lines(run: DagRun, now: float, next_update: float) -> Iterator[str]:
    """The node status file: an ad of the DAG, one of each node, and one that ends it."""
    statuses = node_statuses(run)
    counts = dict.fromkeys(NodeStatus, 0)
    for node in run.dag.nodes:
        if node.counted:
            counts[statuses[node.index]] += 1
    if run.ended is not None:
        whole = NodeStatus.ERROR if run.ended.exit_code else NodeStatus.DONE
    else:
        whole = NodeStatus.SUBMITTED
    files = ", ".join(map(quote_string, run.dag.files))
    yield from _ad(
        Type='"DagStatus"', DagFiles=f"{{ {files} }}", Timestamp=int(now), DagStatus=int(whole),
        NodesTotal=sum(counts.values()), NodesDone=counts[NodeStatus.DONE], NodesPre=counts[NodeStatus.PRE_RUN],
        NodesQueued=counts[NodeStatus.SUBMITTED], NodesPost=counts[NodeStatus.POST_RUN],
        NodesReady=counts[NodeStatus.READY], NodesUnready=counts[NodeStatus.NOT_READY],
        NodesFailed=counts[NodeStatus.ERROR], NodesFutile=counts[NodeStatus.FUTILE], JobProcsHeld=run.held,
        JobProcsIdle=run.idle,
    )  # fmt: skip
    for node in run.dag.nodes:
        if node.counted:
            jobs = (run.progress[node.index].jobs or {}).values()
            held = sum(state == "H" for state in jobs)
            yield from _ad(
                Type='"NodeStatus"', Node=quote_string(node.name), NodeStatus=int(statuses[node.index]),
                StatusDetails=quote_string(_details(run, node, statuses[node.index])),
                RetryCount=run.progress[node.index].attempt, JobProcsQueued=len(jobs), JobProcsHeld=held,
            )  # fmt: skip
    yield from _ad(Type='"StatusEnd"', EndTime=int(now), NextUpdate=int(next_update))


def _details(run: DagRun, node: Node, status: NodeStatus) -> str:
    progress = run.progress[node.index]
    if status is NodeStatus.ERROR:
        return _failure(node, progress)
    if status is NodeStatus.FUTILE:
        return "Had an ancestor node fail"
    if status is NodeStatus.SUBMITTED and progress.jobs:
        states = set(progress.jobs.values())
        return "held" if "H" in states else "idle" if states == {"I"} else "not_idle"
    return ""


def _failure(node: Node, progress: Progress) -> str:
    """In DAGMan's words. Of a POST script that failed behind a job that did not, it says no "DAGMAN error 0"."""
    said = []
    if progress.pre_code > 0 and progress.pre_code != node.pre_skip:
        said.append(f"PRE Script failed with status {progress.pre_code}")
    elif progress.job_code:
        code = progress.job_code
        how = "was removed" if code == JOB_REMOVED else f"failed with {'status' if code > 0 else 'signal'} {abs(code)}"
        said.append(f"Job proc ({progress.cluster}.{progress.last_proc}.0) {how}" if progress.cluster else f"Job {how}")
    if progress.post_code > 0:
        said.append(f"POST Script failed with status {progress.post_code}")
    again = progress.attempt and progress.code != node.unless_exit
    return " and ".join(said) + (f" (after {progress.attempt} node retries)" if again else "")


def _ad(**attributes: Any) -> Iterator[str]:
    yield "["
    for name, value in attributes.items():
        yield f"  {name} = {value};"
    yield "]"


_LETTER: Final = {
    NodeStatus.NOT_READY: "I", NodeStatus.READY: "I", NodeStatus.PRE_RUN: "P", NodeStatus.SUBMITTED: "R",
    NodeStatus.POST_RUN: "O", NodeStatus.DONE: "Done", NodeStatus.ERROR: "E", NodeStatus.FUTILE: "F",
}  # fmt: skip


def dot_lines(run: DagRun, now: float, include: str = "") -> Iterator[str]:
    """The picture of a DAG, for Graphviz. include: lines that its file has besides."""
    at = quote_string(f"DAGMan Job status at {datetime.fromtimestamp(now).astimezone():%a %b %e %H:%M:%S %Y}")
    yield "digraph DAG {"
    yield f"    label={at};"
    yield ""
    if include:
        yield include.rstrip("\n")
    statuses = node_statuses(run)
    for node in run.dag.nodes:
        shape = "point" if node.kind is Kind.JOIN else "ellipse"
        label = quote_string(f"{node.name} ({_LETTER[statuses[node.index]]})")
        yield f"    {quote_string(node.name)} [shape={shape} label={label}];"
    yield ""
    for node in run.dag.nodes:
        for child in node.children:
            yield f"    {quote_string(node.name)} -> {quote_string(run.dag.nodes[child].name)};"
    yield "}"


def metrics_text(run: DagRun, ended: Ended, *, began: float, now: float, job: str, rescue: int, version: str) -> str:
    """The metrics file, of a DAG that has ended. job: the id of the DAGMan job; rescue: number of the rescue file that
    was read."""
    kinds: dict[bool, dict[NodeStatus, int]] = {True: {}, False: {}}
    for node in run.dag.nodes:
        if node.counted:
            count = kinds[node.kind is Kind.SUBDAG]
            status = run.progress[node.index].status
            count[status] = count.get(status, 0) + 1
    jobs, dags = kinds[False], kinds[True]
    over = (NodeStatus.DONE, NodeStatus.ERROR)
    return json.dumps(
        {
            "client": "condor_dagman", "version": version, "type": "metrics", "start_time": round(began, 3),
            "end_time": round(now, 3), "duration": round(now - began, 3), "exitcode": ended.exit_code,
            "dagman_id": job, "parent_dagman_id": "", "rescue_dag_number": rescue, "jobs": sum(jobs.values()),
            "jobs_failed": jobs.get(NodeStatus.ERROR, 0), "jobs_succeeded": jobs.get(NodeStatus.DONE, 0),
            "dag_jobs": sum(dags.values()), "dag_jobs_failed": dags.get(NodeStatus.ERROR, 0),
            "dag_jobs_succeeded": dags.get(NodeStatus.DONE, 0), "total_jobs": sum(jobs.values()) + sum(dags.values()),
            "total_jobs_run": sum(count.get(one, 0) for count in (jobs, dags) for one in over),
            "DagStatus": int(ended.status),
        },
        indent=4,
    )  # fmt: skip


def jobstate_line(now: float, node: str, event: str, job: str, sequence: int) -> str:
    """A line of the job state log about a node. job: its id, "-" before it has one."""
    return f"{int(now)} {node} {event} {job} - - {sequence}"
