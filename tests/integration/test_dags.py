"""DAGs on a real pool: their order, scripts and retries, rescue, and managers that are killed at any moment."""

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from roost.dag.journal import read_journal, replayed
from shared.job_log import LogFollower
from tests.integration.inside import InsidePool
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), NUM_CPUS="4")
    yield inside
    inside.close()


@pytest.fixture
def place(tmp_path):
    """A directory with a job that notes that it ran, and exits as the file <node>.codes says."""
    work = tmp_path / "work.sh"
    work.write_text(
        "#!/bin/sh\ncd $(dirname $0)\necho $1 >>order\n"
        'code=$(head -1 $1.codes 2>/dev/null || echo 0); sed -i 1d $1.codes 2>/dev/null; exit "${code:-0}"\n'
    )
    script = tmp_path / "note.sh"
    script.write_text('#!/bin/sh\necho "$@" >>order\n[ "$1" != fail ]\n')
    for file in (work, script):
        file.chmod(0o755)
    (tmp_path / "node.sub").write_text(
        f"executable = {work}\narguments = $(JOB)\ntransfer_executable = false\nshould_transfer_files = no\nqueue\n"
    )
    return tmp_path


def submitted(pool, place, *words) -> int:
    """The number of a DAG's line in the queue."""
    said = pool.roost("submit-dag", *words, cwd=place)
    return int(said.split("cluster ")[1].split(".")[0])


def managed(pool, place, *words, ok=0):
    """Run a DAG to its end: what its manager said."""
    number = submitted(pool, place, *words)
    file = place / words[-1]
    with pool.client() as client:
        wait_until(lambda: not [*client.jobs(str(number))], 120, what=f"the end of {file}")
        (line,) = client.jobs(str(number), history=True)
    assert (line["JobStatus"], line["ExitCode"]) == (4, ok), Path(f"{file}.dagman.out").read_text()
    assert read_journal(Path(f"{file}.journal")).finished
    return Path(f"{file}.dagman.out").read_text()


def manager_of(file) -> int:
    """Its process."""
    said = Path(f"{file}.dagman.out").read_text() if Path(f"{file}.dagman.out").exists() else ""
    return int(said.rpartition(", process ")[2].split()[0]) if ", process " in said else 0


def order(place) -> list[str]:
    return (place / "order").read_text().splitlines()


DIAMOND = "".join(f"JOB {name} node.sub\n" for name in "ABCD") + "PARENT A CHILD B C\nPARENT B C CHILD D\n"


def test_a_diamond_with_scripts_and_a_retry(pool, place):
    (place / "B.codes").write_text("3\n")
    (place / "d.dag").write_text(
        f"{DIAMOND}RETRY B 1\nSCRIPT PRE A note.sh pre $JOB $RETRY\n"
        "SCRIPT POST B note.sh post $JOB $RETURN $RETRY $MAX_RETRIES $PRE_SCRIPT_RETURN\n"
        "SCRIPT POST D note.sh post $JOB $RETURN $DAG_STATUS $FAILED_COUNT\n"
        "NODE_STATUS_FILE s 0\nJOBSTATE_LOG j\nDOT p\nFINAL F node.sub\n"
    )
    (place / "note.sh").write_text('#!/bin/sh\necho "$@" >>order\n[ "$1 $3" != "post 3" ]\n')
    managed(pool, place, "d.dag")
    ran = order(place)
    assert ran[:2] == ["pre A 0", "A"]
    assert Counter(ran) == Counter(
        ["pre A 0", "A", "B", "post B 3 0 1 -1", "B", "post B 0 1 1 -1", "C", "D", "post D 0 0 0", "F"]
    )
    assert ran.index("D") > max(ran.index("C"), ran.index("post B 0 1 1 -1"))
    assert ran[-1] == "F"
    assert "NodesDone = 5;" in (place / "s").read_text()
    assert (place / "j").read_text().count("JOB_SUCCESS") == 5
    assert '"A" -> "B"' in (place / "p").read_text()
    assert json.loads((place / "d.dag.metrics").read_text())["exitcode"] == 0
    assert not list(place.glob("d.dag.rescue*"))
    with LogFollower(str(place / "d.dag.nodes.log")) as log:
        told = Counter(event.number for event in log.read())
    assert {number: told[number] for number in (0, 1, 5, 16)} == {0: 6, 1: 6, 5: 6, 16: 3}
    assert "ended with status 0 (OK)\ndone 5" in pool.roost("dag", "status", str(place / "d.dag"))


def test_rescue_and_going_on_from_it(pool, place):
    (place / "C.codes").write_text("1\n")
    (place / "d.dag").write_text(DIAMOND)
    managed(pool, place, "d.dag", ok=1)
    assert sorted(order(place)) == ["A", "B", "C"]
    assert "DONE A" in (place / "d.dag.rescue001").read_text()
    managed(pool, place, "d.dag")
    assert sorted(order(place)) == ["A", "B", "C", "C", "D"]


def test_a_dag_of_what_can_not_be_submitted_fails(pool, place):
    (place / "d.dag").write_text("JOB A none.sub\nJOB B node.sub\nSCRIPT POST A note.sh post $RETURN\n")
    said = managed(pool, place, "d.dag")
    assert "node A could not be submitted: can not read submit file none.sub" in said
    assert sorted(order(place)) == ["B", "post -1001"]


def test_vars_splices_and_a_dag_inside_another(pool, place):
    (place / "node.sub").write_text(f"executable = {place}/note.sh\narguments = $(who) $(RETRY)\nqueue\n")
    (place / "inner.dag").write_text('JOB X node.sub\nVARS X who="inner-$(JOB)"\n')
    (place / "s.dag").write_text('JOB Y {\nexecutable = note.sh\narguments = "spliced $(JOB)"\n}\n')
    (place / "note.sh").write_text(f'#!/bin/sh\ncd {place}\necho "$@" >>order\n')
    (place / "d.dag").write_text("SUBDAG EXTERNAL I inner.dag\nSPLICE S s.dag\nPARENT I CHILD S\n")
    managed(pool, place, "d.dag")
    assert order(place) == ["inner-X 0", "spliced S+Y"]


WAITS = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n"


@pytest.fixture
def diamond(place):
    """A diamond whose first node waits for the file `go`, and whose last one lasts."""
    (place / "wait.sh").write_text(WAITS)
    (place / "wait.sh").chmod(0o755)
    (place / "long.sub").write_text("executable = /bin/sleep\ntransfer_executable = false\narguments = 1000\nqueue\n")
    (place / "d.dag").write_text(f"{DIAMOND}SCRIPT PRE A wait.sh\n".replace("D node.sub", "D long.sub"))
    return place


def test_a_dag_is_halted_and_goes_on(pool, diamond):
    number = submitted(pool, diamond, "-batch-name", "mine", "d.dag")
    run = lambda: replayed(read_journal(diamond / "d.dag.journal"))  # noqa: E731
    wait_until(lambda: (diamond / "d.dag.journal").exists() and run().outstanding, what="the script to run")
    assert "mine" in pool.roost("q")
    pool.roost("dag", "halt", "d.dag", cwd=diamond)
    wait_until(lambda: run().halted, what="the DAG to halt")
    assert "halted" in pool.roost("dag", "status", "d.dag", cwd=diamond)
    (diamond / "go").write_text("")
    wait_until(lambda: not run().outstanding, what="the script to end")
    assert not (diamond / "order").exists()
    pool.roost("dag", "resume", "d.dag", cwd=diamond)
    with pool.client() as client:
        mine = f"DAGManJobId == {number}"
        wait_until(lambda: [*client.jobs(constraint=f'{mine} && DAGNodeName == "D"')], what="node D in the queue")
        pool.roost("dag", "remove", "d.dag", cwd=diamond)
        wait_until(lambda: not [*client.jobs(constraint=f"{mine} || ClusterId == {number}")], what="an empty queue")
        (line,) = client.jobs(str(number), history=True)
    assert (line["JobStatus"], line["ExitCode"], line["DAG_Status"]) == (3, 2, 4)
    assert "DONE C" in (diamond / "d.dag.rescue001").read_text()
    assert (diamond / "d.dag.dagman.out").read_text().rstrip().endswith("EXITING WITH STATUS 2")


def test_the_line_in_the_queue_is_a_job_of_the_scheduler_universe(pool, diamond):
    """It runs, is held and released, and removed while it does not run, with the jobs of its nodes."""
    number = submitted(pool, diamond, "d.dag")
    with pool.client() as client:
        state = lambda: [ad["JobStatus"] for ad in client.jobs(str(number))]  # noqa: E731
        wait_until(lambda: manager_of(diamond / "d.dag"), what="the manager")
        first = manager_of(diamond / "d.dag")
        assert state() == [2]
        assert [ad["TotalSchedulerJobsRunning"] for ad in client.ads("Scheduler")] == [1]
        assert [ad["IdleJobs"] + ad["RunningJobs"] for ad in client.ads("Submitter")] in ([0], [])
        said = pool.roost("submit-dag", "d.dag", cwd=diamond, ok=False)
        assert f"is job {number}.0 already" in said
        pool.roost("hold", str(number))
        wait_until(lambda: not alive(first), what="the end of the manager")
        assert state() == [5]
        (diamond / "go").write_text("")
        pool.roost("release", str(number))
        mine = f"DAGManJobId == {number}"
        wait_until(lambda: [*client.jobs(constraint=f'{mine} && DAGNodeName == "D"')], what="node D in the queue")
        assert state() == [2]
        second = manager_of(diamond / "d.dag")
        assert second != first
        pool.roost("hold", str(number))
        wait_until(lambda: not alive(second), what="the end of the manager")
        pool.roost("rm", str(number))
        wait_until(lambda: not [*client.jobs(constraint=f"{mine} || ClusterId == {number}")], what="an empty queue")
        assert sorted(order(diamond)) == ["A", "B", "C"]
        # What was done is not done again, though nobody wrote a rescue file then.
        (diamond / "long.sub").write_text((diamond / "node.sub").read_text())
    managed(pool, diamond, "d.dag")
    assert sorted(order(diamond)) == ["A", "B", "C", "D"]


def alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def test_managers_that_are_killed_run_no_node_twice(pool, place):
    """A manager is killed after another number of lines of its journal each time, and started again by the schedd."""
    names = [f"N{number}" for number in range(8)]
    text = "".join(f"JOB {name} node.sub\nSCRIPT PRE {name} note.sh pre {name}\n" for name in names)
    text += "".join(f"PARENT {names[n]} CHILD {names[n + 2]}\n" for n in range(6))
    (place / "d.dag").write_text(text)
    journal, killed, seen = place / "d.dag.journal", 0, 0
    number = submitted(pool, place, "d.dag")
    end = time.monotonic() + 120
    while not read_journal(journal).finished and time.monotonic() < end:
        process, lines = manager_of(place / "d.dag"), len(journal.read_bytes().splitlines())
        if killed < 5 and process and alive(process) and lines >= seen + 3 + killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                killed, seen = killed + 1, lines
        threading.Event().wait(0.005)
    with pool.client() as client:
        wait_until(lambda: not [*client.jobs(str(number))], what="the end of the line")
        (line,) = client.jobs(str(number), history=True)
    assert (line["JobStatus"], line["ExitCode"]) == (4, 0)
    assert killed >= 3
    assert line["NumShadowStarts"] > killed
    assert Counter(order(place)) == Counter([*names, *(f"pre {name}" for name in names)])


def test_knobs_of_a_dag_and_of_its_own_file(pool, place):
    (place / "d.dag").write_text("CONFIG own.conf\nJOB A node.sub\nRETRY A 3\nJOB B node.sub\nPARENT B CHILD A\n")
    (place / "own.conf").write_text(
        "DAGMAN_MAX_RESCUE_NUM = 1\nDAGMAN_RESET_RETRIES_UPON_RESCUE = false\nDAGMAN_MAX_JOBS_SUBMITTED = 7\n"
        "DAGMAN_DEFAULT_NODE_LOG = @(DAG_DIR)/all.@(CLUSTER).log\nDAGMAN_SUBMIT_DELAY = 5\n"
    )
    (place / "A.codes").write_text("1\n" * 8)
    said = pool.roost("submit-dag", "-maxidle", "5", "d.dag", cwd=place)
    assert "DAGMAN_SUBMIT_DELAY has no effect: nodes are submitted as they become ready" in said
    number = int(said.split("cluster ")[1].split(".")[0])
    with pool.client() as client:
        wait_until(lambda: not [*client.jobs(str(number))], 120, what="the end of the DAG")
        (node,) = client.jobs(constraint=f'DAGManJobId == {number} && DAGNodeName == "B"', history=True)
    limits = read_journal(place / "d.dag.journal").header.limits
    assert (limits["max_jobs"], limits["max_idle"], limits["max_pre"]) == (7, 5, 20)
    assert node["KeepClaimIdle"] == 20  # it has a child
    assert (place / f"all.{number}.log").exists()
    assert "RETRY A 0" in (place / "d.dag.rescue001").read_text()
    managed(pool, place, "d.dag", ok=1)
    assert not (place / "d.dag.rescue002").exists()


def test_errors_are_told_before_anything_is_run(pool, place):
    (place / "d.dag").write_text("JOB A node.sub\nPARENT A CHILD B\n")
    said = pool.roost("submit-dag", str(place / "d.dag"), ok=False)
    assert "d.dag, line 2" in said or "d.dag:2" in said
    assert "there is no node B" in said
    assert not Path(f"{place}/d.dag.journal").exists()


def test_a_pool_that_is_not_there_is_told_at_once(pool, place):
    (place / "d.dag").write_text("JOB A node.sub\n")
    said = pool.roost("submit-dag", "-pool", "http://127.0.0.1:1", str(place / "d.dag"), ok=False)
    assert "127.0.0.1:1" in said
    managed(pool, place, "d.dag")  # what is left of the first try is in nobody's way
    assert order(place) == ["A"]
