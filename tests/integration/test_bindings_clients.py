"""Programs that people write and install for HTCondor's Python modules, unchanged, on Roost's. They come from
requirements-clients.lock, without HTCondor's distribution."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S

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
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"))
    yield inside
    inside.close()


def run(pool, clients, directory, *arguments):
    """Run a program with Roost's modules and a home of its own; what it said."""
    paths = (ROOT / "bindings" / "modules", ROOT / "bindings", ROOT, clients)
    environment = {**pool.environment(), "PYTHONPATH": os.pathsep.join(map(str, paths)), "HOME": str(directory)}
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


def test_snakemake_runs_a_workflow_by_its_executor_for_htcondor(pool, clients, tmp_path):
    (tmp_path / "Snakefile").write_text(WORKFLOW)
    shared = ("persistence", "input-output", "software-deployment", "sources", "source-cache")
    options = ("--executor", "htcondor", "--jobs", "4", "--default-resources", "getenv=True")
    quick = ("--seconds-between-status-checks", "1", "--shared-fs-usage", *shared)
    told = run(pool, clients, tmp_path, "-m", "snakemake", *options, *quick)
    assert (tmp_path / "all.txt").read_text() == "deep\nblue\n"
    assert told.count("was successful") == 3  # of jobs of the pool; the first rule is none
