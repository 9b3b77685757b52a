"""Programs that people write and install for HTCondor's Python modules, unchanged, on Roost's. They come from
requirements-clients.lock, without HTCondor's distribution."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import warm
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.timeout(600)  # with their installation
ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = """
rule all:
    input: "all.txt"

rule word:
    output: "{word}.txt"
    shell: "echo {wildcards.word} > {output}"

rule gather:
    input: expand("{word}.txt", word=["deep", "blue"])
    output: "all.txt"
    shell: "cat {input} > {output}"
"""


@pytest.fixture(scope="module")
def paths(clients) -> str:
    return os.pathsep.join(map(str, (ROOT / "bindings" / "modules", ROOT / "bindings", ROOT, clients)))


@pytest.fixture(scope="module")
def pool(tmp_path_factory, paths):
    """One whose machine has a python3 with Roost's modules, and HTCondor's names of the commands."""
    names = tmp_path_factory.mktemp("bin")
    warm.run([sys.executable, "-m", "roost", "condor-names", str(names)], cwd=ROOT, check=True)
    for name in names.iterdir():  # what they say, by a roost that is forked: programs begin a dozen of them
        text = name.read_text()
        assert f"{sys.executable} -m roost " in text
        name.write_text(
            text.replace(f"{sys.executable} -m roost ", f"env PYTHONPATH={ROOT} {warm.programs() / 'roost'} ")
        )
    python = names / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{names}{os.pathsep}{os.environ['PATH']}")
        inside = InsidePool(tmp_path_factory.mktemp("pool"))
        yield inside
        inside.close()


def program(pool, paths, directory, text) -> str:
    """Run the text of a program."""
    (directory / "program.py").write_text(textwrap.dedent(text))
    return run(pool, paths, directory, "program.py")


def run(pool, paths, directory, *arguments):
    """Run a program with Roost's modules and a home of its own; what it said."""
    environment = {**pool.environment(), "PYTHONPATH": paths, "HOME": str(directory)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_snakemake_runs_a_workflow_by_its_executor_for_htcondor(pool, paths, tmp_path):
    (tmp_path / "Snakefile").write_text(WORKFLOW)
    shared = ("persistence", "input-output", "software-deployment", "sources", "source-cache")
    options = ("--executor", "htcondor", "--jobs", "4", "--default-resources", "getenv=True")
    quick = ("--seconds-between-status-checks", "1", "--shared-fs-usage", *shared)
    told = run(pool, paths, tmp_path, "-m", "snakemake", *options, *quick)
    assert (tmp_path / "all.txt").read_text() == "deep\nblue\n"
    assert told.count("was successful") == 3  # of jobs of the pool; the first rule is none


def test_htmap_maps_a_function_over_inputs(pool, paths, tmp_path):
    """By the older module: its transaction, its logs, and a transfer plug-in of the job's."""
    told = program(
        pool,
        paths,
        tmp_path,
        """
        import htmap

        htmap.settings["DELIVERY_METHOD"] = "shared"
        options = htmap.MapOptions(getenv="true", request_memory="64MB", request_disk="1MB")
        found = htmap.map(lambda word: word.upper(), ["deep", "blue"], map_options=options, tag="words")
        found.wait(timeout=100)
        print(list(found), [str(one) for one in found.component_statuses])
        found.remove()
        """,
    )
    assert "['DEEP', 'BLUE'] ['COMPLETED', 'COMPLETED']" in told


def test_a_dag_of_python_objects_is_written_and_run(pool, paths, tmp_path):
    """With joins, macros of each node, a script, and a final node."""
    told = program(
        pool,
        paths,
        tmp_path,
        r"""
        import htcondor2
        from htcondor2 import dags

        dag = dags.DAG(dagman_config={"DAGMAN_USER_LOG_SCAN_INTERVAL": 1})
        word = htcondor2.Submit({"executable": "/bin/sh", "transfer_executable": "false",
                                 "arguments": '"-c \'echo $(word) >> words\'"', "log": "words.log"})
        first = dag.layer(name="first", submit_description=word, vars=[{"word": "deep"}, {"word": "blue"}])
        second = first.child_layer(name="second", submit_description=word, vars=[{"word": "see"}, {"word": "sea"}],
                                   post=dags.Script("/bin/touch", ["$JOB"]))
        dag.final(name="end", submit_description=word, pre=dags.Script("/bin/cp", ["words", "before"]))
        path = dags.write_dag(dag, ".")
        cluster = htcondor2.Schedd().submit(htcondor2.Submit.from_dag(str(path))).cluster()
        for event in htcondor2.JobEventLog("dagfile.dag.dagman.log").events(stop_after=100):
            if event.type is htcondor2.JobEventType.JOB_TERMINATED:
                print("ended with", event["ReturnValue"])
                break
        """,
    )
    assert "ended with 0" in told
    words = (tmp_path / "before").read_text().split()
    assert (sorted(words[:2]), sorted(words[2:])) == (["blue", "deep"], ["sea", "see"])
    assert sorted(one.name for one in tmp_path.glob("second:*")) == ["second:0", "second:1"]


def test_pycondor_submits_a_dag_by_the_command(pool, paths, tmp_path):
    note = tmp_path / "note"
    note.write_text("#!/bin/sh\necho $1 >>said\n")
    note.chmod(0o755)
    program(
        pool,
        paths,
        tmp_path,
        """
        import pycondor

        places = dict(submit="files", error="files", output="files", log="files", verbose=0)
        dag = pycondor.Dagman("dag", submit="files")
        first, second = (
            pycondor.Job(name, "note", dag=dag, request_memory="64MB", **places) for name in ("first", "second")
        )
        first.add_arg("first", name="it")
        second.add_arg("second", name="it")
        second.add_parent(first)
        dag.build_submit(fancyname=False)
        """,
    )
    said = tmp_path / "said"
    wait_until(lambda: said.exists() and said.read_text() == "first\nsecond\n", what="both nodes")


def test_law_submits_asks_and_removes_by_the_commands(pool, paths, tmp_path):
    (tmp_path / "job.jdl").write_text("executable = /bin/sh\narguments = \"-c 'exit 3'\"\nlog = log\nqueue\n")
    (tmp_path / "held.jdl").write_text("executable = /bin/true\nhold = true\nqueue\n")
    told = program(
        pool,
        paths,
        tmp_path,
        """
        import os, time
        from law.contrib.htcondor.job import HTCondorJobManager

        manager = HTCondorJobManager()
        job, held = (manager.submit(os.path.abspath(name)) for name in ("job.jdl", "held.jdl"))
        ends = time.time() + 60
        while time.time() < ends:
            found = manager.query([job, held])
            if found[job]["status"] not in ("pending", "running"):
                break
        print(found[job]["status"], found[job]["code"], found[held]["status"])
        manager.cancel(held)
        print(held)
        """,
    )
    told, held = told.split("\n")[:2]
    assert told == "failed 3 failed"  # what is on hold it takes for failed too
    with pool.client() as client:
        wait_until(lambda: [ad.eval("JobStatus") for ad in client.jobs(held, history=True)] == [3], what="the removal")


def test_parsl_gets_and_cancels_blocks_by_the_commands(pool, paths, tmp_path):
    told = program(
        pool,
        paths,
        tmp_path,
        """
        import os, time
        from parsl.providers import CondorProvider

        provider = CondorProvider(cores_per_slot=1, mem_per_slot=0.1)
        provider.script_dir = os.getcwd()
        done = provider.submit("echo block >said; true", 1)
        long = provider.submit("sleep 1000", 1)
        ends = time.time() + 60
        while time.time() < ends and not os.path.exists("said"):
            time.sleep(0.2)
        print(provider.status([long])[0].state.name in ("PENDING", "RUNNING"), provider.cancel([long]))
        """,
    )
    assert "True [True]" in told
