"""What the manager of a DAG submits: the jobs of a node, and the line of the DAG itself in the queue."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from engine.dag.model import Node, When
from engine.dag.run import DagRun, RunScript
from roost.dag.settings import Options
from roost.submit import Description, SubmitContext, here, read_file
from shared.classad.unparse import quote_string

#: More parents than so many are not named in a job's ad.
NAMED_PARENTS: Final = 100
#: Numbers of the events that go into the log of all nodes, besides those that end scripts.
LOGGED: Final = "0,1,2,4,5,7,9,10,11,12,13,16,17,24,27,35,36"
_QUEUES: Final = re.compile(r"^\s*queue\b", re.IGNORECASE | re.MULTILINE)


def description_of(run: DagRun, node: Node, job: int, now: float, options: Options) -> Description:
    """The submit description of a node, with its VARS and what DAGMan adds. job: cluster of the DAGMan job. Raises
    ConfigError."""
    attempt = run.progress[node.index].attempt
    directory = Path(node.directory).absolute()
    name = node.submit or f"<{node.name} of {node.source}>"
    place = replace(_of_this_machine(), file=name, directory=directory)
    text = node.inline if node.inline is not None else read_file(node.submit, place)
    macros = {
        "JOB": node.name,
        "RETRY": str(attempt),
        "FAILED_COUNT": str(len(run.failed)),
        "DAG_STATUS": str(int(run.status)),
    }
    before = [f"{macro} = {value}" for macro, value in macros.items()]
    if options.hold_claim_s and node.children:
        before.append(f"keep_claim_idle = {options.hold_claim_s}")  # the child begins there without negotiation
    late = [var for var in node.vars if (options.append_vars if var.append is None else var.append)]
    before += [f"{var.name} = {var.value}" for var in node.vars if var not in late]
    after = [f"{var.name} = {var.value}" for var in late]
    after.append(f"submit_event_notes = DAG Node: {node.name}")  # by which readers of the logs know it
    after += [f"dag_node_name = {node.name}", f"+DAGManJobId = {job}", f"+DAGManNodeRetry = {attempt}"]
    if log := log_of(options, job):
        after += [f"dagman_log = {log}", f"+DAGManNodesMask = {quote_string(LOGGED)}"]
    parents = [run.dag.nodes[parent].name for parent in node.parents[:NAMED_PARENTS]]
    if parents and len(node.parents) <= NAMED_PARENTS:
        after.append(f"+DAGParentNodeNames = {quote_string(','.join(parents))}")
    priority = node.priority if options.least_priority is None else max(node.priority, options.least_priority)
    if priority:
        after.append(f"priority = {priority}")
    if options.suppress_notification:
        after.append("notification = never")
    queue = None if _QUEUES.search(text) or node.inline is None else "1"
    made = Description(text, place, prelude=before, append=after, queue_override=queue, now=now)
    made.tell_unused = False
    return made


def log_of(options: Options, job: int) -> str:
    """The log of all nodes; empty: there is none."""
    return options.node_log.replace("@(CLUSTER)", str(job))


@cache
def _of_this_machine() -> SubmitContext:
    """Read once: the files of the configuration take longer than the rest of a submit."""
    return here("<dag>")


def script_words(run: DagRun, script: RunScript, job_id: str) -> list[str]:
    """A script's command line: words that are a macro as a whole are replaced."""
    node = run.dag.nodes[script.node]
    told = node.scripts[script.when]
    values = {
        "$JOB": node.name,
        "$RETRY": str(script.attempt),
        "$MAX_RETRIES": str(node.retries),
        "$DAG_STATUS": str(int(run.status)),
        "$FAILED_COUNT": str(len(run.failed)),
        "$NODE_COUNT": str(run.dag.counted),
        "$DONE_COUNT": str(run.done),
        "$QUEUED_COUNT": str(run.queued),
    }
    if script.when is When.POST:
        values |= {"$JOBID": job_id, "$RETURN": str(script.code), "$PRE_SCRIPT_RETURN": str(script.pre_code)}
    program = told.executable
    directory = Path(node.directory)
    if "/" not in program and (directory / program).exists():
        program = f"./{program}"
    return [program, *(values.get(word, word) for word in told.arguments.split())]
