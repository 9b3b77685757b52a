"""What managers of DAGs leave behind, and find: the journal, and the exit codes of programs."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

from engine.dag.model import When
from engine.dag.run import Begin, JobEnded, RunScript, ScriptEnded, Submit, Submitted
from roost.dag.journal import Header, Journal, digest, is_managed, read_dag, read_journal, replayed
from roost.errors import ClientError
from shared.programs import NOT_STARTED, Programs
from tests.waiting import PATIENCE_S, eventually

DAG = "JOB A x\nJOB B x\nPARENT A CHILD B\nSCRIPT POST A p\n"
FACTS = [Begin(), Submitted(0, 0, 17, 1), JobEnded(0, 0, 0, 3), ScriptEnded(0, 0, When.POST, 0)]


@pytest.fixture
def journal(tmp_path):
    (tmp_path / "d.dag").write_text(DAG)
    dag = read_dag(["d.dag"], directory=str(tmp_path))
    made = Journal(tmp_path / "d.dag.journal")
    limits = {"max_jobs": 0, "max_idle": 0, "max_pre": 0, "max_post": 0, "always_post": False}
    made.begin(Header("name", str(tmp_path), 5.0, ["d.dag"], "", 0, digest(dag), limits))
    yield made
    made.close()


def test_a_run_is_made_again_of_its_journal(journal):
    for number, fact in enumerate(FACTS):
        journal.write(fact, float(number))
    journal.note_job(12, "ap")
    record = read_journal(journal.path)
    assert [fact for fact, _ in record.facts] == FACTS
    assert (record.job, record.schedd, record.finished) == (12, "ap", False)
    assert list(replayed(record).outstanding) == [Submit(1, 0)]
    journal.finish(2)
    assert read_journal(journal.path).finished


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [(0, []), (1, [Submit(0, 0)]), (2, []), (3, [RunScript(0, 0, When.POST, 3)]), (4, [Submit(1, 0)])],
)
def test_what_was_wanted_is_found_wherever_the_manager_died(journal, facts, wanted):
    for fact in FACTS[:facts]:
        journal.write(fact, 0.0)
    assert list(replayed(read_journal(journal.path)).outstanding) == wanted


def test_half_a_line_is_cut_off(journal):
    journal.write(FACTS[0], 0.0)
    with journal.path.open("ab") as file:
        file.write(b'[0.0, "Submi')
    journal.cut()
    journal.write(FACTS[1], 1.0)
    assert [fact for fact, _ in read_journal(journal.path).facts] == FACTS[:2]


def test_one_process_manages_a_dag(journal):
    assert is_managed(journal.path)
    with pytest.raises(ClientError, match="managed already"):
        Journal(journal.path)
    journal.close()
    assert not is_managed(journal.path)
    assert not is_managed(journal.path.with_name("none"))


def test_a_dag_that_was_changed_is_refused(journal):
    (journal.path.parent / "d.dag").write_text(f"JOB C x\n{DAG}")
    with pytest.raises(ClientError, match="changed since the DAG began"):
        replayed(read_journal(journal.path))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["/bin/sh", "-c", "exit 7"], 7),
        (["/bin/true"], 0),
        (["/bin/sh", "-c", "kill -9 $$"], -9),
        (["./none.sh"], NOT_STARTED),
    ],
)
async def test_exit_codes(tmp_path, words, code):
    assert await Programs(tmp_path / "programs").run("k", words, tmp_path) == code


#: Runs a program as managers do. Arguments: its directory, and the program's words.
MANAGER = """
import asyncio, sys
from pathlib import Path
from shared.programs import Programs
here = Path(sys.argv[1])
asyncio.run(Programs(here / "programs").run("k", sys.argv[2:], here))
"""


async def test_a_program_runs_once_whoever_asks(tmp_path):
    """The manager that began it is gone: the next waits for it, and learns how it ended."""
    words = ["/bin/sh", "-c", "echo once >>ran; while [ ! -e go ]; do sleep 0.02; done; exit 3"]
    first = await asyncio.create_subprocess_exec(sys.executable, "-c", MANAGER, str(tmp_path), *words)
    await eventually((tmp_path / "ran").exists)
    first.kill()
    await first.wait()
    second = asyncio.create_task(Programs(tmp_path / "programs").run("k", words, tmp_path))
    await asyncio.sleep(0)
    (tmp_path / "go").write_text("")
    assert await second == 3
    assert await Programs(tmp_path / "programs").run("k", words, tmp_path) == 3
    assert (tmp_path / "ran").read_text() == "once\n"
    Programs(tmp_path / "programs").forget("k")
    assert not list((tmp_path / "programs").iterdir())


async def test_a_program_can_be_stopped_as_soon_as_it_does_anything(tmp_path, monkeypatch):
    """Also before who begins it has the processor again."""
    ran, stopped = tmp_path / "ran", threading.Event()

    class Late(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            stopped.wait(PATIENCE_S)

    monkeypatch.setattr(subprocess, "Popen", Late)
    programs = Programs(tmp_path / "programs")
    running = asyncio.create_task(programs.run("k", ["/bin/sh", "-c", "echo >ran; sleep 1000"], tmp_path))
    try:
        await eventually(ran.exists)
        Programs(tmp_path / "programs").stop("k")
    finally:
        stopped.set()
    assert await running == -signal.SIGKILL


async def test_a_program_is_stopped_with_what_it_started(tmp_path):
    programs = Programs(tmp_path / "programs")
    words = ["/bin/sh", "-c", "echo >ran; sleep 1000"]
    running = asyncio.create_task(programs.run("k", words, tmp_path))
    await eventually((tmp_path / "ran").exists)
    began = time.monotonic()
    Programs(tmp_path / "programs").stop("k")  # another manager does
    assert await running == -signal.SIGKILL
    assert time.monotonic() - began < 500
    programs.stop("k")  # it is over: nothing to do
    programs.stop("none")
