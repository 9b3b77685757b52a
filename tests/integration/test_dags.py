"""DAGs on a real pool: their order, scripts and retries, rescue, and managers that are killed at any moment."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from roost.dag.journal import read_journal, replayed
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, wait_until


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


def managed(pool, place, *words, ok=0):
    """Run a DAG's manager to its end: what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "roost", "submit-dag", "-foreground", *words], cwd=place, env=pool.environment(),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == ok, done.stderr
    return done.stderr


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


def test_the_line_in_the_queue_halts_resumes_and_ends_the_dag(pool, place, monkeypatch):
    (place / "d.dag").write_text(f"{DIAMOND}SCRIPT PRE A wait.sh\n")
    (place / "wait.sh").write_text("#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\n")
    (place / "wait.sh").chmod(0o755)
    (place / "long.sub").write_text("executable = /bin/sleep\ntransfer_executable = false\narguments = 1000\nqueue\n")
    (place / "d.dag").write_text((place / "d.dag").read_text().replace("D node.sub", "D long.sub"))
    monkeypatch.chdir(place)
    said = pool.roost("condor_submit_dag", "-batch-name", "mine", "d.dag")
    number = said.split("cluster ")[1].split(".")[0].strip()
    run = lambda: replayed(read_journal(place / "d.dag.journal"))  # noqa: E731
    wait_until(lambda: run().outstanding, what="the script to run")
    assert "mine" in pool.roost("q", "-dag", "-nobatch") + pool.roost("q")
    pool.roost("hold", number)
    wait_until(lambda: run().halted, what="the DAG to halt")
    assert "halted" in pool.roost("dag", "status", "d.dag")
    (place / "go").write_text("")
    wait_until(lambda: not run().outstanding, what="the script to end")
    assert not (place / "order").exists()
    pool.roost("dag", "resume", "d.dag")
    with pool.client() as client:
        mine = f"DAGManJobId == {number}"
        wait_until(lambda: [*client.jobs(constraint=f'{mine} && DAGNodeName == "D"')], what="node D in the queue")
        pool.roost("rm", number)
        wait_until(lambda: read_journal(place / "d.dag.journal").finished, what="the DAG to end")
        wait_until(lambda: not [*client.jobs(constraint=f"{mine} || ClusterId == {number}")], what="an empty queue")
    assert "DONE C" in (place / "d.dag.rescue001").read_text()
    assert (place / "d.dag.dagman.out").read_text().rstrip().endswith("EXITING WITH STATUS 2")


def test_managers_that_are_killed_run_no_node_twice(pool, place):
    """A manager is killed after another number of lines of its journal each time."""
    names = [f"N{number}" for number in range(8)]
    text = "".join(f"JOB {name} node.sub\nSCRIPT PRE {name} note.sh pre {name}\n" for name in names)
    text += "".join(f"PARENT {names[n]} CHILD {names[n + 2]}\n" for n in range(6))
    (place / "d.dag").write_text(text)
    journal, killed = place / "d.dag.journal", 0
    for pause in range(1, 100):
        before = len(journal.read_bytes().splitlines()) if journal.exists() else 0
        process = subprocess.Popen(
            [sys.executable, "-m", "roost", "submit-dag", "-foreground", "d.dag"], cwd=place, env=pool.environment(),
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < end:
            if journal.exists() and len(journal.read_bytes().splitlines()) >= before + 3 + pause:
                process.send_signal(signal.SIGKILL)
                killed += 1
                break
            threading.Event().wait(0.002)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        if read_journal(journal).finished:
            break
    assert process.returncode == 0
    assert killed
    assert Counter(order(place)) == Counter([*names, *(f"pre {name}" for name in names)])


def test_errors_are_told_before_anything_is_run(pool, place):
    (place / "d.dag").write_text("JOB A node.sub\nPARENT A CHILD B\n")
    said = pool.roost("submit-dag", str(place / "d.dag"), ok=False)
    assert "d.dag, line 2" in said or "d.dag:2" in said
    assert "there is no node B" in said
    assert not Path(f"{place}/d.dag.journal").exists()


def test_a_pool_that_is_not_there_is_told_at_once(pool, place, monkeypatch):
    (place / "d.dag").write_text("JOB A node.sub\n")
    said = pool.roost("submit-dag", "-pool", "http://127.0.0.1:1", str(place / "d.dag"), ok=False)
    assert "127.0.0.1:1" in said
    monkeypatch.chdir(place)
    managed(pool, place, str(place / "d.dag"))  # what is left of the first try is in nobody's way
    assert order(place) == ["A"]
