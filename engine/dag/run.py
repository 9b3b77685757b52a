"""What is to be done next about a DAG that runs.

    run = DagRun(dag, Limits(max_jobs=100))
    for fact in [Begin(), Submitted(0, 0, cluster=17, jobs=1), JobEnded(0, 0, proc=0, code=0), ...]:
        for action in run.apply(fact, now):
            ...                                      # submit, run a script, remove jobs, end

Nothing but facts changes a run, and equal facts lead to equal actions: who keeps the facts can make the run again after
a crash, and finds in `outstanding` what was wanted and is not known to be done. A fact costs the same however large the
DAG is, but for the logarithm of how many nodes wait for a throttle. A node is named by its index, one try of it by
(node, attempt); facts about earlier attempts change nothing.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from engine.dag.model import Dag, Kind, Node, When

#: What $RETURN says where there is no exit code.
SUBMIT_FAILED: Final = -1001
JOB_REMOVED: Final = -1002
PRE_FAILED: Final = -1004


class NodeStatus(IntEnum):
    """As the node status file has it."""

    NOT_READY = 0
    READY = 1
    PRE_RUN = 2
    SUBMITTED = 3
    POST_RUN = 4
    DONE = 5
    ERROR = 6
    FUTILE = 7


class DagStatus(IntEnum):
    """DAG_Status of the DAGMan job, and $DAG_STATUS."""

    OK = 0
    ERROR = 1
    NODE_FAILED = 2
    ABORTED = 3
    REMOVED = 4
    CYCLE = 5
    HALTED = 6


@dataclass(frozen=True, slots=True)
class Limits:
    """Throttles: nodes whose jobs are queued, idle jobs among these, scripts that run at a time. 0: no limit.
    always_post: run POST scripts of nodes whose PRE script failed, too (DAGMAN_ALWAYS_RUN_POST). retry_first: nodes
    that are tried again come before others of their priority; depth_first: those first that became ready last."""

    max_jobs: int = 0
    max_idle: int = 0
    max_pre: int = 0
    max_post: int = 0
    always_post: bool = False
    retry_first: bool = False
    depth_first: bool = False


# Facts


@dataclass(frozen=True, slots=True)
class Begin:
    pass


@dataclass(frozen=True, slots=True)
class Submitted:
    node: int
    attempt: int
    cluster: int
    jobs: int


@dataclass(frozen=True, slots=True)
class SubmitFailed:
    node: int
    attempt: int


@dataclass(frozen=True, slots=True)
class JobIs:
    """A job of a node is I (idle), R (running) or H (held) now."""

    node: int
    attempt: int
    proc: int
    state: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job of a node left the queue. code: its exit code; -N: by signal N; JOB_REMOVED."""

    node: int
    attempt: int
    proc: int
    code: int


@dataclass(frozen=True, slots=True)
class ScriptEnded:
    node: int
    attempt: int
    when: When
    code: int


@dataclass(frozen=True, slots=True)
class ProvisionerReady:
    pass


@dataclass(frozen=True, slots=True)
class Halt:
    """Begin no PRE script and no job any more, until Resume. What runs goes on."""


@dataclass(frozen=True, slots=True)
class Resume:
    pass


@dataclass(frozen=True, slots=True)
class Remove:
    """The user wants the DAG ended."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is time to look at scripts that are to run again later."""


Fact = (
    Begin
    | Submitted
    | SubmitFailed
    | JobIs
    | JobEnded
    | ScriptEnded
    | ProvisionerReady
    | Halt
    | Resume
    | Remove
    | TimePassed
)


# Actions


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit the jobs of a node, once: the pair is the key by which a second time is known."""

    node: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RunScript:
    """Run a script. code: $RETURN; pre_code: $PRE_SCRIPT_RETURN; tries: how often it asked to be run later."""

    node: int
    attempt: int
    when: When
    code: int = 0
    pre_code: int = -1
    tries: int = 0


@dataclass(frozen=True, slots=True)
class RemoveJobs:
    """Remove what is left of the jobs of a try of a node."""

    node: int
    attempt: int
    cluster: int


@dataclass(frozen=True, slots=True)
class StopScript:
    script: RunScript


@dataclass(frozen=True, slots=True)
class SavePoint:
    """Write the save point file of a node that begins."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something for the job state log, by its names there. sequence: of the try of that node among all tries of nodes,
    from 1. proc: the job of the node that it is about; None: the last one."""

    node: int
    sequence: int
    event: str
    code: int | None = None
    proc: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The DAG is over. rescue: write a rescue file."""

    status: DagStatus
    exit_code: int
    rescue: bool


Action = Submit | RunScript | RemoveJobs | StopScript | SavePoint | NodeEvent | Ended


@dataclass(slots=True)
class Progress:
    """How far a node is. jobs: by proc, of those in the queue, I, R or H; failed: the code of the first that failed."""

    status: NodeStatus = NodeStatus.NOT_READY
    attempt: int = 0
    waits: int = 0  # for so many parents
    cluster: int = 0
    jobs: dict[int, str] | None = None
    last_proc: int = 0
    failed: int | None = None
    pre_code: int = -1
    job_code: int = 0
    post_code: int = -1
    code: int = 0  # of what ended last
    script: RunScript | None = None  # that runs
    submitting: bool = False
    started: bool = False
    in_category: bool = False


@dataclass(slots=True)
class _Category:
    most: int
    used: int = 0
    parked: list[tuple[int, int, int]] = field(default_factory=list)


class DagRun:
    """A DAG that runs."""

    def __init__(self, dag: Dag, limits: Limits) -> None:
        self.dag = dag
        self.limits = limits
        self.progress = [Progress(waits=len(node.parents)) for node in dag.nodes]
        self.failed: dict[int, None] = {}
        self.done = 0  # nodes that users count
        self.queued = 0  # nodes with jobs in the queue, or on their way there
        self.idle = 0  # idle jobs
        self.held = 0
        self.halted = False
        self.ended: Ended | None = None
        self._gate = True  # the provisioner is ready
        self._ending: DagStatus | None = None  # what ends the DAG before its nodes are done
        self._end_code = 0
        self._active = 0  # nodes between their start and their end, but services
        self._scripts = {When.PRE: 0, When.POST: 0}
        self._waiting: dict[When, deque[RunScript]] = {When.PRE: deque(), When.POST: deque()}
        self._deferred: list[tuple[float, int, RunScript]] = []
        self._ready: list[tuple[int, int, int]] = []  # (-priority, order, node): jobs to be submitted
        self._to_start: deque[int] = deque()  # nodes all of whose parents are done
        self._order = 0
        self._categories = {name: _Category(most) for name, most in dag.categories.items()}
        self._actions: list[Action] = []
        self._events = bool(dag.jobstate_log)
        self._sequence = 0
        self._sequences: dict[int, tuple[int, int]] = {}  # of each node its try, and the sequence of that
        self.outstanding: dict[Submit | RunScript, None] = {}

    # What others ask

    @property
    def status(self) -> DagStatus:
        if self._ending is not None:
            return self._ending
        if self.halted:
            return DagStatus.HALTED
        return DagStatus.NODE_FAILED if self.failed else DagStatus.OK

    @property
    def provisioning(self) -> bool:
        """Whether the other nodes wait for the provisioner."""
        return not self._gate

    @property
    def next_look(self) -> float | None:
        """When TimePassed is due."""
        return self._deferred[0][0] if self._deferred else None

    def apply(self, fact: Fact, now: float) -> list[Action]:
        """What follows from a fact."""
        if self.ended is None or isinstance(fact, Submitted):
            self._take(fact, now)
            self._go_on()
        actions, self._actions = self._actions, []
        return actions

    # Facts

    def _take(self, fact: Fact, now: float) -> None:
        match fact:
            case Begin():
                self._begin()
            case Submitted():
                self._submitted(fact)
            case SubmitFailed():
                self._submit_failed(fact)
            case JobIs():
                self._job_is(fact)
            case JobEnded():
                self._job_ended(fact)
            case ScriptEnded():
                self._script_ended(fact, now)
            case ProvisionerReady():
                self._gate = True
            case Halt():
                self.halted = True
            case Resume():
                self.halted = False
            case Remove():
                if self._ending is None:
                    self._end_early(DagStatus.REMOVED, 2)
            case TimePassed():
                while self._deferred and self._deferred[0][0] <= now:
                    script = heapq.heappop(self._deferred)[2]
                    if self._is_current(script.node, script.attempt):
                        self._want_script(script)

    def _begin(self) -> None:
        nodes = self.dag.nodes
        if self.dag.provisioner is not None and not nodes[self.dag.provisioner].done:
            self._gate = False
            self._start(self.dag.provisioner)
        for index in self.dag.services:
            self._start(index)
        for node in nodes:
            if node.done:
                self._succeed(node)
            elif not node.parents and node.kind in (Kind.JOB, Kind.SUBDAG, Kind.JOIN):
                self._to_start.append(node.index)

    def _is_current(self, node: int, attempt: int) -> bool:
        progress = self.progress[node]
        return progress.attempt == attempt and progress.status in _UNDER_WAY

    def _submitted(self, fact: Submitted) -> None:
        self.outstanding.pop(Submit(fact.node, fact.attempt), None)
        progress = self.progress[fact.node]
        if not self._is_current(fact.node, fact.attempt) or self.ended is not None:
            self._actions.append(RemoveJobs(fact.node, fact.attempt, fact.cluster))
            return
        if not progress.submitting:
            return  # told twice
        progress.submitting = False
        progress.cluster = fact.cluster
        progress.jobs = dict.fromkeys(range(fact.jobs), "I")
        progress.last_proc = fact.jobs - 1
        self.idle += fact.jobs
        for proc in progress.jobs:
            self._note(fact.node, "SUBMIT", proc=proc)

    def _submit_failed(self, fact: SubmitFailed) -> None:
        self.outstanding.pop(Submit(fact.node, fact.attempt), None)
        progress = self.progress[fact.node]
        if self._is_current(fact.node, fact.attempt) and progress.submitting:
            progress.submitting = False
            self._note(fact.node, "SUBMIT_FAILURE")
            self._job_over(self.dag.nodes[fact.node], SUBMIT_FAILED)

    def _job_is(self, fact: JobIs) -> None:
        progress = self.progress[fact.node]
        if not self._is_current(fact.node, fact.attempt) or not progress.jobs or fact.proc not in progress.jobs:
            return
        before = progress.jobs[fact.proc]
        if before == fact.state:
            return
        progress.jobs[fact.proc] = fact.state
        self._count(before, -1)
        self._count(fact.state, 1)
        self._note(fact.node, {"I": "JOB_RELEASED" if before == "H" else "JOB_EVICTED", "R": "EXECUTE"}.get(
            fact.state, "JOB_HELD"), proc=fact.proc)  # fmt: skip
        if fact.state == "H" and When.HOLD in self.dag.nodes[fact.node].scripts:
            self._actions.append(RunScript(fact.node, fact.attempt, When.HOLD))

    def _count(self, state: str, change: int) -> None:
        if state == "I":
            self.idle += change
        elif state == "H":
            self.held += change

    def _job_ended(self, fact: JobEnded) -> None:
        progress = self.progress[fact.node]
        if not self._is_current(fact.node, fact.attempt) or not progress.jobs or fact.proc not in progress.jobs:
            return
        self._count(progress.jobs.pop(fact.proc), -1)
        if fact.code and progress.failed is None:
            progress.failed = fact.code
            if progress.jobs:
                self._actions.append(RemoveJobs(fact.node, fact.attempt, progress.cluster))
        self._note(fact.node, "JOB_ABORTED" if fact.code == JOB_REMOVED else "JOB_TERMINATED", proc=fact.proc)
        if not progress.jobs:
            self._job_over(self.dag.nodes[fact.node], progress.failed or 0)

    def _script_ended(self, fact: ScriptEnded, now: float) -> None:
        if fact.when is When.HOLD or not self._is_current(fact.node, fact.attempt):
            return
        node, progress = self.dag.nodes[fact.node], self.progress[fact.node]
        if progress.status is not _STATUS[fact.when]:
            return
        asked = progress.script
        if asked is None:
            return  # told twice
        progress.script = None
        del self.outstanding[asked]
        self._scripts[fact.when] -= 1
        script = node.scripts[fact.when]
        if script.defer_status is not None and fact.code == script.defer_status:
            self._order += 1
            later = replace(asked, tries=asked.tries + 1)
            heapq.heappush(self._deferred, (now + script.defer_s, self._order, later))
            return
        if fact.when is When.POST:
            progress.post_code = fact.code
            self._note(fact.node, "POST_SCRIPT_TERMINATED")
        self._note(fact.node, f"{fact.when.upper()}_SCRIPT_{'FAILURE' if fact.code else 'SUCCESS'}")
        if fact.when is When.POST:
            self._node_over(node, fact.code)
        else:
            self._pre_ended(node, progress, fact.code)

    def _pre_ended(self, node: Node, progress: Progress, code: int) -> None:
        progress.pre_code = code
        if not code:
            self._want_job(node)
        elif node.pre_skip == code:
            self._note(node.index, "PRESKIP")
            self._leave(node)
            self._succeed(node)
        elif node.abort is not None and node.abort.exit_code == code:
            self._node_over(node, code)
        elif When.POST in node.scripts and self.limits.always_post:
            self._post(node, PRE_FAILED)
        else:
            self._node_over(node, code)

    # What becomes of a node

    def _start(self, index: int) -> None:
        """All its parents are done, or it is tried again."""
        node, progress = self.dag.nodes[index], self.progress[index]
        if progress.status is NodeStatus.DONE:
            return
        if node.kind is Kind.JOIN:
            self._succeed(node)
            return
        if node.kind is not Kind.SERVICE:
            self._active += 1
        if node.save_point is not None and not progress.started:
            self._actions.append(SavePoint(index))
        progress.started = True
        progress.status = NodeStatus.READY
        progress.failed, progress.pre_code, progress.code = None, -1, 0
        progress.job_code, progress.post_code = 0, -1
        if When.PRE in node.scripts:
            self._want_script(RunScript(index, progress.attempt, When.PRE))
        else:
            self._want_job(node)

    def _want_script(self, script: RunScript) -> None:
        self._waiting[script.when].append(script)

    def _want_job(self, node: Node) -> None:
        self.progress[node.index].status = NodeStatus.READY
        if node.noop:
            self._note(node.index, "SUBMIT")
            self._note(node.index, "JOB_TERMINATED")
            self._job_over(node, 0)
            return
        self._order += 1
        limits = self.limits
        first = limits.depth_first or (limits.retry_first and self.progress[node.index].attempt > 0)
        heapq.heappush(self._ready, (-node.priority, -self._order if first else self._order, node.index))

    def _job_over(self, node: Node, code: int) -> None:
        """Its job is over, or will never be."""
        self._unqueue(node)
        self.progress[node.index].job_code = code
        self._note(node.index, "JOB_FAILURE" if code else "JOB_SUCCESS", code)
        if When.POST in node.scripts:
            self._post(node, code)
        else:
            self._node_over(node, code)

    def _post(self, node: Node, code: int) -> None:
        progress = self.progress[node.index]
        progress.code = code
        progress.status = NodeStatus.READY
        self._want_script(RunScript(node.index, progress.attempt, When.POST, code, progress.pre_code))

    def _unqueue(self, node: Node) -> None:
        """None of its jobs is in the queue any more."""
        progress = self.progress[node.index]
        if progress.status is NodeStatus.SUBMITTED and node.kind is not Kind.SERVICE:
            self.queued -= 1
        for state in (progress.jobs or {}).values():
            self._count(state, -1)
        progress.jobs = None
        progress.submitting = False
        if progress.in_category:
            progress.in_category = False
            category = self._categories[node.category]
            category.used -= 1
            if category.parked:
                heapq.heappush(self._ready, heapq.heappop(category.parked))

    def _leave(self, node: Node) -> None:
        """It is not under way any more."""
        if node.kind is not Kind.SERVICE:
            self._active -= 1

    def _node_over(self, node: Node, code: int) -> None:
        progress = self.progress[node.index]
        progress.code = code
        self._leave(node)
        if node.kind is Kind.SERVICE:
            progress.status = NodeStatus.ERROR if code else NodeStatus.DONE
            return
        if node.abort is not None and node.abort.exit_code == code:
            returns = node.abort.returns if node.abort.returns is not None else code
            if code:
                self._fail(node)
            else:
                self._succeed(node)
            self._end_early(DagStatus.ABORTED if returns else DagStatus.OK, returns)
        elif not code:
            self._succeed(node)
        elif progress.attempt < node.retries and code != node.unless_exit:
            progress.attempt += 1
            if node.kind is Kind.PROVISIONER:
                self._start(node.index)  # the others wait for it
            else:
                self._to_start.append(node.index)
        else:
            self._fail(node)

    def _fail(self, node: Node) -> None:
        self.progress[node.index].status = NodeStatus.ERROR
        self.failed[node.index] = None
        if node.kind is Kind.PROVISIONER and self._ending is None:
            self._end_early(DagStatus.NODE_FAILED, 1)

    def _succeed(self, node: Node) -> None:
        progress = self.progress[node.index]
        progress.status = NodeStatus.DONE
        self.done += node.counted
        if node.kind is Kind.PROVISIONER:
            self._gate = True
        for child in node.children:
            below = self.progress[child]
            below.waits -= 1
            if not below.waits:
                self._to_start.append(child)

    # What the DAG as a whole allows

    def _go_on(self) -> None:
        """Start what may start, until nothing more follows."""
        while True:
            if self._gate:
                while self._to_start:
                    self._start(self._to_start.popleft())
            self._begin_scripts(When.PRE, self.limits.max_pre)
            self._begin_scripts(When.POST, self.limits.max_post)
            self._submit_ready()
            if not self._to_start or not self._gate or self._ending is not None:
                break
        if not self._active and self.ended is None:
            self._finish()

    def _paused(self) -> bool:
        return self.halted and self._ending is None

    def _begin_scripts(self, when: When, most: int) -> None:
        waiting = self._waiting[when]
        while waiting and (not most or self._scripts[when] < most) and not (when is When.PRE and self._paused()):
            script = waiting.popleft()
            if not self._is_current(script.node, script.attempt):
                continue
            self._scripts[when] += 1
            self.progress[script.node].status = _STATUS[when]
            self.progress[script.node].script = script
            self.outstanding[script] = None
            self._actions.append(script)
            if not script.tries:
                self._note(script.node, f"{when.upper()}_SCRIPT_STARTED")

    def _submit_ready(self) -> None:
        limits = self.limits
        while self._ready and not self._paused():
            if limits.max_jobs and self.queued >= limits.max_jobs:
                return
            if limits.max_idle and self.idle + self._on_their_way() >= limits.max_idle:
                return
            entry = heapq.heappop(self._ready)
            node, progress = self.dag.nodes[entry[2]], self.progress[entry[2]]
            if progress.status is not NodeStatus.READY:
                continue  # of an end before its time
            category = self._categories.get(node.category)
            if category is not None:
                if category.used >= category.most:
                    heapq.heappush(category.parked, entry)
                    continue
                category.used += 1
                progress.in_category = True
            progress.status = NodeStatus.SUBMITTED
            progress.submitting = True
            if node.kind is not Kind.SERVICE:
                self.queued += 1
            submit = Submit(node.index, progress.attempt)
            self.outstanding[submit] = None
            self._actions.append(submit)

    def _on_their_way(self) -> int:
        """Submits whose outcome is not known: each will be an idle job at least."""
        return len(self.outstanding) - self._scripts[When.PRE] - self._scripts[When.POST]

    def _end_early(self, status: DagStatus, code: int) -> None:
        """End the DAG with what runs: remove its jobs, stop its scripts; only the FINAL node comes yet."""
        self._ending, self._end_code = status, code
        self._to_start.clear()
        self._ready.clear()
        for index, progress in enumerate(self.progress):
            if progress.status in _UNDER_WAY:
                self._stop(self.dag.nodes[index], progress)
        self._deferred.clear()
        for waiting in self._waiting.values():
            waiting.clear()
        for category in self._categories.values():
            category.parked.clear()
        self._ready.clear()

    def _stop(self, node: Node, progress: Progress) -> None:
        if (script := progress.script) is not None:
            progress.script = None
            del self.outstanding[script]
            self._scripts[script.when] -= 1
            self._actions.append(StopScript(script))
        if progress.jobs:
            self._actions.append(RemoveJobs(node.index, progress.attempt, progress.cluster))
        self._unqueue(node)
        self._leave(node)
        progress.status = NodeStatus.NOT_READY
        progress.attempt += 1  # what is told of it now is of an earlier one

    def _finish(self) -> None:
        final = self.dag.final
        if final is not None and self.progress[final].status not in (NodeStatus.DONE, NodeStatus.ERROR):
            self._start(final)
            self._go_on()
            return
        for index in self.dag.services:
            if self.progress[index].status in _UNDER_WAY:
                self._stop(self.dag.nodes[index], self.progress[index])
        self.ended = self._verdict()
        self._actions.append(self.ended)

    def _verdict(self) -> Ended:
        removed = self._ending is DagStatus.REMOVED
        if self.dag.final is not None:
            well = self.progress[self.dag.final].status is NodeStatus.DONE
            # What went wrong before a FINAL node that ends well decides no exit code, and is told all the same.
            status = self._ending or (DagStatus.NODE_FAILED if self.failed else DagStatus.OK)
            before = bool(self._end_code) if self._ending is not None else bool(self.failed)
            return Ended(status, 2 if removed else int(not well), rescue=removed or not well or before)
        if self._ending is not None:
            return Ended(self._ending, self._end_code, rescue=bool(self._end_code))
        if self.failed:
            return Ended(DagStatus.NODE_FAILED, 1, rescue=True)
        return Ended(DagStatus.OK, 0, rescue=False)

    def _note(self, node: int, event: str, code: int | None = None, proc: int | None = None) -> None:
        if self._events and (self.dag.nodes[node].counted or self.dag.nodes[node].kind is Kind.SERVICE):
            attempt = self.progress[node].attempt
            if self._sequences.get(node, (-1, 0))[0] != attempt:
                self._sequence += 1
                self._sequences[node] = (attempt, self._sequence)
            self._actions.append(NodeEvent(node, self._sequences[node][1], event, code, proc))


_STATUS: Final = {When.PRE: NodeStatus.PRE_RUN, When.POST: NodeStatus.POST_RUN}
_UNDER_WAY: Final = (NodeStatus.READY, NodeStatus.PRE_RUN, NodeStatus.SUBMITTED, NodeStatus.POST_RUN)
