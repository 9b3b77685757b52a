"""What is to be done next about a DAG: every outcome of a node, and random DAGs in a world that does as it is told."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

import pytest

from engine.dag.files import dot_lines, metrics_text, node_statuses, rescue_lines, status_lines
from engine.dag.language import finished, reading
from engine.dag.model import Dag, Kind, When
from engine.dag.run import (
    JOB_REMOVED,
    PRE_FAILED,
    SUBMIT_FAILED,
    Begin,
    DagRun,
    DagStatus,
    Ended,
    Fact,
    Halt,
    JobEnded,
    JobIs,
    Limits,
    NodeEvent,
    NodeStatus,
    ProvisionerReady,
    Remove,
    RemoveJobs,
    Resume,
    RunScript,
    SavePoint,
    ScriptEnded,
    StopScript,
    Submit,
    SubmitFailed,
    Submitted,
    TimePassed,
)
from tests.unit.dag.files import dag_of, read_of


class Told:
    """A run, and what it wants by names."""

    def __init__(self, text: str, limits: Limits | None = None, **files: str) -> None:
        self.dag = dag_of(text, **files)
        self.run = DagRun(self.dag, limits or Limits())
        self.now = 1000.0

    def __call__(self, fact: Fact) -> list[str]:
        return [self.shown(one) for one in self.run.apply(fact, self.now)]

    def index(self, name: str) -> int:
        return self.dag.by_name[name]

    def shown(self, action) -> str:
        match action:
            case Submit(node, attempt):
                return f"submit {self.dag.nodes[node].name}{attempt or ''}"
            case RunScript(node, _, when, code, pre):
                more = f" {code} {pre}" if when is When.POST else ""
                return f"{when} {self.dag.nodes[node].name}{more}"
            case RemoveJobs(node, _, cluster):
                return f"remove {self.dag.nodes[node].name} {cluster}"
            case StopScript(script):
                return f"stop {script.when} {self.dag.nodes[script.node].name}"
            case SavePoint(node):
                return f"save {self.dag.nodes[node].name}"
            case Ended(status, code, rescue):
                return f"ended {status.name} {code}{' rescue' if rescue else ''}"
        return f"{self.dag.nodes[action.node].name} {action.event}"

    def job(self, name: str, code: int = 0, attempt: int = 0) -> list[str]:
        """Its submit, and the end of its one job."""
        index = self.index(name)
        told = self(Submitted(index, attempt, 100 + index, 1))
        return told + self(JobEnded(index, attempt, 0, code))

    def script(self, name: str, when: When, code: int = 0, attempt: int = 0) -> list[str]:
        return self(ScriptEnded(self.index(name), attempt, when, code))


DIAMOND = "JOB A x\nJOB B x\nJOB C x\nJOB D x\nPARENT A CHILD B C\nPARENT B C CHILD D\n"


def test_a_diamond_runs_in_order():
    told = Told(DIAMOND)
    assert told(Begin()) == ["submit A"]
    assert told.job("A") == ["submit B", "submit C"]
    assert told.job("C") == []
    assert told.job("B") == ["submit D"]
    assert told.job("D") == ["ended OK 0"]


def test_a_failed_node_leaves_what_stands_on_it():
    told = Told(f"{DIAMOND}RETRY B 1\n")
    told(Begin())
    told.job("A")
    assert told.job("B", 3) == ["submit B1"]
    assert told.job("B", -9, attempt=1) == []
    assert told.job("C") == ["ended NODE_FAILED 1 rescue"]
    assert [one.name for one in node_statuses(told.run)] == ["DONE", "ERROR", "DONE", "FUTILE"]
    assert list(rescue_lines(told.run, 0.0)) == [
        "# Rescue DAG file, created after running",
        "#   the main.dag DAG file",
        "# Created 1/1/1970 00:00:00 UTC",
        "# Rescue DAG version: 2.0.1 (partial)",
        "#",
        "# Total number of Nodes: 4",
        "# Nodes premarked DONE: 2",
        "# Nodes that failed: 1",
        "#   B,<ENDLIST>",
        "",
        "DONE A",
        "RETRY B 1",
        "DONE C",
    ]
    again = Told(f"{DIAMOND}RETRY B 1\n", rescue="\n".join(rescue_lines(told.run, 0.0)))
    assert again(Begin()) == ["submit B"]
    assert again.job("B") == ["submit D"]


def test_unless_exit_ends_the_retries():
    told = Told("JOB A x\nRETRY A 5 UNLESS-EXIT 2\n")
    told(Begin())
    assert told.job("A", 1) == ["submit A1"]
    assert told.job("A", 2, attempt=1) == ["ended NODE_FAILED 1 rescue"]


#: (PRE's code or None, the job's, POST's or None) -> whether the node is well: the manual's tables 2.1 and 2.2.
TABLE = [
    (None, 0, None, True), (None, 1, None, False), (None, 0, 0, True), (None, 0, 1, False), (None, 1, 0, True),
    (None, 1, 1, False), (0, 0, None, True), (0, 1, None, False), (0, 0, 0, True), (0, 0, 1, False), (0, 1, 0, True),
    (0, 1, 1, False), (1, None, None, False),
]  # fmt: skip


@pytest.mark.parametrize(("pre", "job", "post", "well"), TABLE)
def test_what_ran_last_decides_about_a_node(pre, job, post, well):
    lines = ["JOB A x", *(["SCRIPT PRE A p"] * (pre is not None)), *(["SCRIPT POST A q"] * (post is not None))]
    told = Told("\n".join(lines))
    last = told(Begin())
    if pre is not None:
        assert last == ["pre A"]
        last = told.script("A", When.PRE, pre)
    if job is not None:
        assert last == ["submit A"]
        last = told.job("A", job)
    if post is not None:
        assert last == [f"post A {job} {-1 if pre is None else pre}"]
        last = told.script("A", When.POST, post)
    assert last == ["ended OK 0" if well else "ended NODE_FAILED 1 rescue"]


@pytest.mark.parametrize(
    ("always", "post", "last"),
    [
        (False, None, "ended NODE_FAILED 1 rescue"),
        (True, 0, "ended OK 0"),
        (True, 4, "ended NODE_FAILED 1 rescue"),
    ],
)
def test_a_post_script_after_a_failed_pre_script(always, post, last):
    told = Told("JOB A x\nSCRIPT PRE A p\nSCRIPT POST A q\n", Limits(always_post=always))
    told(Begin())
    then = told.script("A", When.PRE, 7)
    if always:
        assert then == [f"post A {PRE_FAILED} 7"]
        then = told.script("A", When.POST, post)
    assert then == [last]


def test_pre_skip_leaves_the_rest_of_a_node_out():
    told = Told("JOB A x\nJOB B x\nPARENT A CHILD B\nSCRIPT PRE A p\nSCRIPT POST A q\nPRE_SKIP A 7\n")
    told(Begin())
    assert told.script("A", When.PRE, 7) == ["submit B"]


def test_a_script_may_ask_to_be_run_later():
    told = Told("JOB A x\nJOB B x\nSCRIPT DEFER 4 60 PRE A p\nSCRIPT PRE B p\n", Limits(max_pre=1))
    assert told(Begin()) == ["pre A"]
    assert told.script("A", When.PRE, 4) == ["pre B"]  # it counts against no limit while it waits
    assert told.run.next_look == 1060.0
    told.now = 1059.0
    assert told(TimePassed()) == []
    told.script("B", When.PRE)
    told.now = 1060.0
    assert told(TimePassed()) == ["pre A"]
    assert told.script("A", When.PRE) == ["submit A"]
    assert told.script("A", When.PRE) == []  # told twice


def test_noop_nodes_run_their_scripts_only():
    told = Told("JOB A x NOOP\nJOB B x\nPARENT A CHILD B\nSCRIPT PRE A p\nSCRIPT POST A q\n")
    assert told(Begin()) == ["pre A"]
    assert told.script("A", When.PRE) == ["post A 0 0"]
    assert told.script("A", When.POST) == ["submit B"]


def test_a_node_of_several_jobs_fails_with_the_first_of_them():
    told = Told("JOB A x\nSCRIPT POST A q\nSCRIPT HOLD A h\n")
    told(Begin())
    told(Submitted(0, 0, 17, 3))
    assert told.run.idle == 3
    assert told(JobIs(0, 0, 2, "H")) == ["hold A"]
    assert told(JobIs(0, 0, 0, "R")) == []
    assert (told.run.idle, told.run.held) == (1, 1)
    assert told(JobEnded(0, 0, 0, 5)) == ["remove A 17"]
    assert told(JobEnded(0, 0, 1, JOB_REMOVED)) == []
    assert told(JobEnded(0, 0, 1, JOB_REMOVED)) == []  # told twice
    assert told(JobEnded(0, 0, 2, JOB_REMOVED)) == ["post A 5 -1"]
    assert (told.run.idle, told.run.held) == (0, 0)


def test_a_submit_that_fails_is_retried_as_a_node_is():
    told = Told("JOB A x\nRETRY A 1\nSCRIPT POST A q\n")
    told(Begin())
    assert told(SubmitFailed(0, 0)) == [f"post A {SUBMIT_FAILED} -1"]
    assert told.script("A", When.POST, 1) == ["submit A1"]
    assert told(Submitted(0, 0, 7, 1)) == ["remove A 7"]  # it was submitted after all


def test_throttles():
    names = "ABCDEF"
    text = (
        "".join(f"JOB {name} x\n" for name in names) + "CATEGORY A big\nCATEGORY B big\nMAXJOBS big 1\nPRIORITY F 9\n"
    )
    told = Told(text, Limits(max_jobs=3))
    assert told(Begin()) == ["submit F", "submit A", "submit C"]  # the highest priority; one of the category
    assert told.job("C") == ["submit D"]
    assert told.job("A") == ["submit B"]
    told = Told(text, Limits(max_idle=2))
    assert told(Begin()) == ["submit F", "submit A"]
    assert told(Submitted(5, 0, 1, 1)) == []
    assert told(JobIs(5, 0, 0, "R")) == ["submit C"]


def test_halt_and_resume():
    told = Told(f"{DIAMOND}SCRIPT POST A q\n")
    told(Begin())
    assert told(Halt()) == []
    assert told.run.status is DagStatus.HALTED
    assert told.job("A") == ["post A 0 -1"]
    assert told.script("A", When.POST) == []
    assert told(Resume()) == ["submit B", "submit C"]


def test_abort_dag_on():
    told = Told(f"{DIAMOND}ABORT-DAG-ON C 10 RETURN 3\nRETRY C 5\n")
    told(Begin())
    told.job("A")
    told(Submitted(1, 0, 17, 1))
    assert told.job("C", 10) == ["remove B 17", "ended ABORTED 3 rescue"]
    assert told.run.status is DagStatus.ABORTED
    told = Told("JOB A x\nJOB B x\nABORT-DAG-ON A 0 RETURN 0\n")
    told(Begin())
    assert told.job("A") == ["ended OK 0"]  # B's submit is not known yet
    assert told(Submitted(1, 0, 18, 1)) == ["remove B 18"]


def test_remove_ends_what_runs_and_runs_the_final_node():
    told = Told("JOB A x\nJOB B x\nSCRIPT PRE B p\nFINAL F x\nSCRIPT PRE F p $DAG_STATUS\n")
    assert told(Begin()) == ["pre B", "submit A"]
    told(Submitted(0, 0, 17, 1))
    assert told(Remove()) == ["remove A 17", "stop pre B", "pre F"]
    assert told.run.status is DagStatus.REMOVED
    assert told.script("B", When.PRE) == []
    assert told.script("F", When.PRE, 1) == ["ended REMOVED 2 rescue"]


@pytest.mark.parametrize(("code", "last"), [(0, "ended NODE_FAILED 0 rescue"), (1, "ended NODE_FAILED 1 rescue")])
def test_the_final_node_decides_about_the_dag(code, last):
    told = Told("JOB A x\nFINAL F x\n")
    told(Begin())
    assert told.job("A", 1) == ["submit F"]
    assert told.job("F", code) == [last]


def test_provisioner_and_services():
    told = Told("JOB A x\nPROVISIONER P x\nSERVICE S x\nRETRY P 1\n")
    assert told(Begin()) == ["submit P", "submit S"]
    told(Submitted(2, 0, 30, 1))
    assert told.job("P", 1) == ["submit P1"]
    told(Submitted(1, 1, 20, 1))
    assert told(ProvisionerReady()) == ["submit A"]
    assert told.job("A") == []
    assert told(JobEnded(1, 1, 0, 0)) == ["remove S 30", "ended OK 0"]


def test_a_save_point_is_written_once():
    told = Told("JOB A x\nSAVE_POINT_FILE A\nRETRY A 1\n")
    assert told(Begin()) == ["save A", "submit A"]
    assert told.job("A", 1) == ["submit A1"]


def test_the_files_about_a_dag():
    told = Told(f"{DIAMOND}JOBSTATE_LOG j\n")
    assert told(Begin()) == ["submit A"]
    assert told.job("A") == ["A SUBMIT", "A JOB_TERMINATED", "A JOB_SUCCESS", "submit B", "submit C"]
    text = "\n".join(status_lines(told.run, 5.0, 65.0))
    assert "  NodesDone = 1;" in text
    assert '  Node = "B";\n  NodeStatus = 3;' in text
    assert text.endswith('[\n  Type = "StatusEnd";\n  EndTime = 5;\n  NextUpdate = 65;\n]')
    picture = list(dot_lines(told.run, 5.0))
    assert '    "A" [shape=ellipse label="A (Done)"];' in picture
    assert '    "A" -> "B";' in picture
    for name in "BCD":
        told.job(name)
    assert '"jobs_succeeded": 4' in metrics_text(
        told.run, told.run.ended, began=0.0, now=1.0, job="1.0", rescue=0, version="1"
    )


def test_the_status_file_says_why_a_node_failed_as_dagman_does():
    told = Told("JOB A x\nJOB B x\nJOB C x\nJOB D x\nPARENT A CHILD D\nRETRY B 1\nSCRIPT PRE C p\nSCRIPT POST B p\n")
    told(Begin())
    told.job("A", 3)
    told.job("B")
    told(ScriptEnded(told.index("B"), 0, When.POST, 4))
    told.job("B", -9, 1)
    told(ScriptEnded(told.index("B"), 1, When.POST, 5))
    told(ScriptEnded(told.index("C"), 0, When.PRE, 6))
    lines = "\n".join(status_lines(told.run, 5.0, 65.0))
    for name, says in (
        ("A", r"Job proc \(\d+\.0\.0\) failed with status 3"),
        (
            "B",
            r"Job proc \(\d+\.0\.0\) failed with signal 9 and POST Script failed with status 5 "
            r"\(after 1 node retries\)",
        ),
        ("C", "PRE Script failed with status 6"),
        ("D", "Had an ancestor node fail"),
    ):
        assert re.search(rf'Node = "{name}";\n  NodeStatus = \d;\n  StatusDetails = "{says}";', lines), lines


def test_tries_of_nodes_are_counted_in_the_job_state_log():
    told = Told("JOB A x\nJOB B x NOOP\nPARENT A CHILD B\nRETRY A 1\nSCRIPT POST A p\nJOBSTATE_LOG j\n")
    seen = []

    def take(fact):
        seen.extend(one for one in told.run.apply(fact, told.now) if isinstance(one, NodeEvent))

    take(Begin())
    for attempt, code in ((0, 1), (1, 0)):
        take(Submitted(0, attempt, 7 + attempt, 1))
        take(JobEnded(0, attempt, 0, 0))
        take(ScriptEnded(0, attempt, When.POST, code))
    assert [(one.node, one.sequence) for one in seen] == [(0, 1)] * 6 + [(0, 2)] * 6 + [(1, 3)] * 3
    assert [one.event for one in seen[3:6]] == ["POST_SCRIPT_STARTED", "POST_SCRIPT_TERMINATED", "POST_SCRIPT_FAILURE"]
    assert [one.event for one in seen[12:]] == ["SUBMIT", "JOB_TERMINATED", "JOB_SUCCESS"]


def test_the_job_state_log_has_lines_of_each_proc_and_of_services():
    told = Told("JOB A x\nSERVICE S x\nJOBSTATE_LOG j\n")
    facts = [Begin(), Submitted(1, 0, 7, 1), Submitted(0, 0, 8, 2), JobIs(0, 0, 1, "R"), JobEnded(0, 0, 1, 0)]
    facts += [JobEnded(0, 0, 0, 0), JobEnded(1, 0, 0, JOB_REMOVED)]
    seen = [one for fact in facts for one in told.run.apply(fact, told.now) if isinstance(one, NodeEvent)]
    assert [(told.dag.nodes[one.node].name, one.event, one.proc) for one in seen] == [
        ("S", "SUBMIT", 0),
        ("A", "SUBMIT", 0),
        ("A", "SUBMIT", 1),
        ("A", "EXECUTE", 1),
        ("A", "JOB_TERMINATED", 1),
        ("A", "JOB_TERMINATED", 0),
        ("A", "JOB_SUCCESS", None),
    ]


def test_a_rescue_file_is_as_of_before_the_final_node():
    told = Told("JOB A x\nJOB B x\nFINAL F x\n")
    told(Begin())
    told.job("A")
    told.job("B", 1)
    told.job("F")
    lines = list(rescue_lines(told.run, 1000.0))
    assert (lines[6], lines[-1]) == ("# Nodes premarked DONE: 1", "DONE A")


# -- Random DAGs, and a world that does as it is told


@dataclass
class World:
    """Carries actions out in a random order, and checks each against what a DAG allows."""

    dag: Dag
    limits: Limits
    rng: random.Random
    pending: list[Fact] = field(default_factory=list)
    facts: list[tuple[Fact, float]] = field(default_factory=list)
    submitted: dict[tuple[int, int], int] = field(default_factory=dict)  # to its jobs that are left
    idle: set[tuple[int, int, int]] = field(default_factory=set)
    scripts: dict[When, int] = field(default_factory=lambda: dict.fromkeys(When, 0))
    well: dict[int, bool] = field(default_factory=dict)

    def play(self, run: DagRun) -> Ended:
        now = 0.0
        actions = self.take(run, Begin(), now)
        while not any(isinstance(one, Ended) for one in actions):
            for one in actions:
                self.do(run, one)
            if not self.pending or (run.next_look is not None and self.rng.random() < 0.1):
                assert run.next_look is not None, "the DAG stands still"
                now = max(now, run.next_look)
                actions = self.take(run, TimePassed(), now)
                continue
            fact = self.pending.pop(self.rng.randrange(len(self.pending)))
            self.came(fact)
            actions = self.take(run, fact, now)
            if self.rng.random() < 0.1:
                actions += self.take(run, fact, now)  # told twice
        assert not self.pending or self.dag.services
        return actions[-1]

    def take(self, run: DagRun, fact: Fact, now: float):
        self.facts.append((fact, now))
        return run.apply(fact, now)

    def do(self, run: DagRun, action) -> None:
        rng = self.rng
        if isinstance(action, RunScript):
            self.scripts[action.when] += 1
            most = {When.PRE: self.limits.max_pre, When.POST: self.limits.max_post}[action.when]
            assert not most or self.scripts[action.when] <= most
            code = rng.choice([0, 0, 0, 1, 4])
            self.pending.append(ScriptEnded(action.node, action.attempt, action.when, code))
            self.check_order(run, action.node)
        elif isinstance(action, Submit):
            key = (action.node, action.attempt)
            assert key not in self.submitted, "a node is submitted twice"
            self.submitted[key] = 0
            node = self.dag.nodes[action.node]
            assert action.attempt <= node.retries
            self.check_order(run, action.node)
            queued = [one for one in self.submitted if self.submitted[one] >= 0]
            assert not self.limits.max_jobs or len(queued) <= self.limits.max_jobs
            most = self.dag.categories.get(node.category)
            assert most is None or sum(self.dag.nodes[one].category == node.category for one, _ in queued) <= most
            assert not self.limits.max_idle or len(self.idle) < self.limits.max_idle
            if rng.random() < 0.05:
                self.pending.append(SubmitFailed(*key))
            else:
                self.pending.append(Submitted(*key, cluster=rng.randrange(9999), jobs=rng.choice([1, 1, 3])))

    def came(self, fact: Fact) -> None:
        """The world before a fact is told."""
        rng = self.rng
        if isinstance(fact, Submitted):
            key = (fact.node, fact.attempt)
            self.submitted[key] = fact.jobs
            for proc in range(fact.jobs):
                self.idle.add((*key, proc))
                self.pending.append(JobIs(*key, proc, rng.choice("RRH")))
        elif isinstance(fact, JobIs):
            self.idle.discard((fact.node, fact.attempt, fact.proc))
            self.pending.append(JobEnded(fact.node, fact.attempt, fact.proc, rng.choice([0, 0, 0, 0, 1, -9])))
        elif isinstance(fact, JobEnded):
            key = (fact.node, fact.attempt)
            self.submitted[key] -= 1
            if not self.submitted[key]:
                self.submitted[key] = -1
        elif isinstance(fact, SubmitFailed):
            self.submitted[fact.node, fact.attempt] = -1
        elif isinstance(fact, ScriptEnded):
            self.scripts[fact.when] -= 1

    def check_order(self, run: DagRun, node: int) -> None:
        for parent in self.dag.nodes[node].parents:
            assert run.progress[parent].status is NodeStatus.DONE


def random_dag(rng: random.Random, size: int) -> Dag:
    lines = []
    for number in range(size):
        lines.append(f"JOB N{number} x{' NOOP' if rng.random() < 0.1 else ''}{' DONE' if rng.random() < 0.1 else ''}")
        if rng.random() < 0.3:
            lines.append(f"RETRY N{number} {rng.randrange(4)}{' UNLESS-EXIT 1' if rng.random() < 0.3 else ''}")
        if rng.random() < 0.2:
            lines.append(f"SCRIPT DEFER 4 30 PRE N{number} p")
        if rng.random() < 0.2:
            lines.append(f"SCRIPT POST N{number} p")
        if rng.random() < 0.2:
            lines.append(f"PRE_SKIP N{number} 1")
        if rng.random() < 0.3:
            lines.append(f"CATEGORY N{number} c{rng.randrange(2)}")
        if rng.random() < 0.3:
            lines.append(f"PRIORITY N{number} {rng.randrange(5)}")
    for _ in range(rng.randrange(size)):
        at = rng.randrange(1, size)
        above = rng.sample(range(at), min(at, rng.choice([1, 2, 3])))
        below = rng.sample(range(at, size), min(size - at, rng.choice([1, 2, 3])))
        lines.append(f"PARENT {' '.join(f'N{n}' for n in above)} CHILD {' '.join(f'N{n}' for n in below)}")
    lines += ["MAXJOBS c0 1", "MAXJOBS c1 2"]
    if rng.random() < 0.3:
        lines.append("FINAL F x")
    text = "\n".join(lines)
    return finished(reading(["d"], lambda path: read_of({"d": text}, path)))


@pytest.mark.parametrize("seed", range(150))
def test_random_dags(seed):
    rng = random.Random(seed)
    dag = random_dag(rng, rng.randrange(1, 30))
    limits = Limits(*(rng.choice([0, 1, 2, 5]) for _ in range(4)), always_post=rng.random() < 0.3)
    world, run = World(dag, limits, rng), DagRun(dag, limits)
    ended = world.play(run)
    statuses = [progress.status for progress in run.progress]
    assert all(one not in (NodeStatus.PRE_RUN, NodeStatus.SUBMITTED, NodeStatus.POST_RUN) for one in statuses)
    assert (run.queued, run.idle, run.held) == (0, 0, 0)
    assert not run.outstanding
    # Whatever is not done stands below what failed.
    for node, status in zip(dag.nodes, node_statuses(run), strict=True):
        assert status in (NodeStatus.DONE, NodeStatus.ERROR, NodeStatus.FUTILE), node.name
    if dag.final is None:
        assert ended.exit_code == int(bool(run.failed))
    # The same facts lead to the same, and what is outstanding on the way is what was wanted and not done.
    again, wanted = DagRun(dag, limits), set()
    for fact, now in world.facts:
        wanted |= {one for one in again.apply(fact, now) if isinstance(one, Submit | RunScript)}
        assert set(again.outstanding) <= wanted
    assert [progress.status for progress in again.progress] == statuses
    assert again.ended == run.ended


def test_a_run_costs_the_same_for_each_fact_however_large_the_dag():
    """Counted in steps of the interpreter's calls: a chain ten times as long takes ten times as many."""
    import sys

    def calls(size: int) -> int:
        text = "".join(f"JOB {n} x\n" for n in range(size)) + "".join(
            f"PARENT {n} CHILD {n + 1}\n" for n in range(size - 1)
        )
        told, count = Told(text), 0

        def trace(*_):
            nonlocal count
            count += 1

        sys.setprofile(trace)
        try:
            told.run.apply(Begin(), 0.0)
            for index in range(size):
                told.run.apply(Submitted(index, 0, 1, 1), 0.0)
                told.run.apply(JobEnded(index, 0, 0, 0), 0.0)
        finally:
            sys.setprofile(None)
        assert told.run.ended == Ended(DagStatus.OK, 0, rescue=False)
        return count

    small, large = calls(100), calls(1000)
    assert large < 11 * small


def test_kinds_are_counted_as_users_count_them():
    dag = dag_of("JOB A x\nJOB B x\nJOB C x\nJOB D x\nPARENT A B CHILD C D\nSERVICE S x\nFINAL F x\n")
    assert [node.kind for node in dag.nodes].count(Kind.JOIN) == 1
    assert dag.counted == 5


@pytest.mark.parametrize(("more", "order"), [({}, "BCA"), ({"retry_first": True}, "ABC")])
def test_the_order_of_what_is_ready(more, order):
    """A is tried again while B and C wait for its place."""
    told = Told("JOB A x\nJOB B x\nJOB C x\nRETRY A 1\n", Limits(max_jobs=1, **more))
    assert told(Begin()) == ["submit A"]
    ran, said = "", told.job("A", code=1)
    for _ in range(3):
        name = said[0].split()[1]
        ran += name[0]
        said = told.job(name[0], attempt=int(name[0] == "A"))
    assert ran == order


def test_what_became_ready_last_comes_first():
    told = Told("JOB A x\nJOB B x\nJOB C x\n", Limits(max_jobs=1, depth_first=True))
    assert told(Begin()) == ["submit C"]
    assert told.job("C") == ["submit B"]


@pytest.mark.parametrize(("anew", "retries"), [(True, 3), (False, 1)])
def test_retries_after_a_rescue(anew, retries):
    told = Told("JOB A x\nRETRY A 3\n")
    told(Begin())
    told.job("A", code=1)
    told.job("A", code=1, attempt=1)
    assert f"RETRY A {retries}" in list(rescue_lines(told.run, 0.0, anew=anew))
