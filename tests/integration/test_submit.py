"""`roost submit` and `roost transfer-data` against a personal pool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.pools import EmbeddedPool

pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("submit")]


@pytest.fixture(scope="module")
def pool(tmp_path_factory) -> Iterator[EmbeddedPool]:
    made = EmbeddedPool(tmp_path_factory.mktemp("pool") / "pool")
    try:
        made.start("-cpus", "4")
        yield made
    finally:
        made.close()


def queued(pool: EmbeddedPool) -> set[str]:
    with pool.client() as client:
        return {f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}" for ad in client.jobs(projection=["ClusterId", "ProcId"])}


def write(folder: Path, text: str) -> Path:
    (folder / "x.sh").write_text("#!/bin/sh\ncat in.txt; echo out of $1; echo made > made.txt\n")
    (folder / "x.sh").chmod(0o755)
    (folder / "job.sub").write_text(text)
    return folder / "job.sub"


def test_spooled_jobs_travel_and_their_output_comes_home(pool: EmbeddedPool, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "executable = x.sh\narguments = $(Process)\ntransfer_input_files = in.txt\noutput = out.$(Process)\n"
        'error = err.$(Process)\ntransfer_output_remaps = "made.txt = made.$(Process)"\n'
        "log = log.$(Process)\nqueue 2\n",
    )
    (tmp_path / "in.txt").write_text("from the input\n")
    cluster = pool.submit(file, "-spool")
    (tmp_path / "in.txt").unlink()
    (tmp_path / "x.sh").unlink()
    pool.wait_for_rest(cluster, 2)
    assert {status for status, _, _ in pool.final(cluster).values()} == {4}
    assert not (tmp_path / "out.0").exists()
    said = pool.roost("transfer-data", str(cluster), cwd=tmp_path).stdout
    assert "of 2 jobs" in said
    for proc in range(2):
        assert (tmp_path / f"out.{proc}").read_text() == f"from the input\nout of {proc}\n"
        assert (tmp_path / f"made.{proc}").read_text() == "made\n"
        assert (tmp_path / f"err.{proc}").read_text() == ""
        events = [line[:3] for line in (tmp_path / f"log.{proc}").read_text().splitlines() if line[3:5] == " ("]
        assert events[0] == "000"
        assert {"001", "005"} <= set(events)


def test_the_clusters_number_is_known_to_the_jobs(pool: EmbeddedPool, tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "executable = /bin/echo\narguments = $(Cluster).$(Process) $(ClusterId)\noutput = $(Cluster).$(Process).out\n"
        "log = $(Cluster).log\nqueue 2\n",
    )
    cluster = pool.submit(file)
    pool.wait_for_rest(cluster, 2)
    assert (tmp_path / f"{cluster}.1.out").read_text() == f"{cluster}.1 {cluster}\n"
    assert (tmp_path / f"{cluster}.log").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("executable = x.sh\nqueue 2\nrequest_memory = 1X\nqueue\n", "job.sub, line 3"),
        ("executable = x.sh\nhold = true\nrequest_cpus = $CHOICE(Process,1,2,3 4)\nqueue 3\n", "job.sub, line 3"),
        ("executable = x.sh\nqueue\nexecutable = nowhere\nqueue\n", "job.sub, line 3"),
        ("executable = x.sh\nuniverse = grid\ngrid_resource = batch slurm\nqueue\n", "universe"),
        ("executable = x.sh\noutput = $(Cluster)\nqueue\nnonsense\n", "job.sub, line 4"),
    ],
)
def test_after_an_error_nothing_is_queued(pool: EmbeddedPool, tmp_path: Path, text: str, told: str) -> None:
    before = queued(pool)
    file = write(tmp_path, text)
    done = pool.roost("submit", file.name, cwd=tmp_path, ok=False)
    assert done.returncode == 1
    assert told in done.stderr
    assert "submitted" not in done.stdout
    assert queued(pool) <= before


def test_a_spooled_file_that_is_missing_leaves_no_job_that_could_run(pool: EmbeddedPool, tmp_path: Path) -> None:
    file = write(tmp_path, "executable = x.sh\ntransfer_input_files = nowhere.txt\nqueue\n")
    before = queued(pool)
    done = pool.roost("submit", "-spool", file.name, cwd=tmp_path, ok=False)
    assert done.returncode == 1
    assert "nowhere.txt" in done.stderr
    assert queued(pool) <= before


def test_a_dry_run_queues_nothing(pool: EmbeddedPool, tmp_path: Path) -> None:
    before = queued(pool)
    file = write(tmp_path, "executable = x.sh\nqueue 2\n")
    said = pool.roost("submit", "-dry-run", "-", file.name, cwd=tmp_path).stdout
    assert said.count("ProcId=") == 2
    assert queued(pool) <= before


def test_an_empty_list_is_a_success_without_jobs(pool: EmbeddedPool, tmp_path: Path) -> None:
    file = write(tmp_path, "executable = x.sh\nqueue matching *.nothing\n")
    done = pool.roost("submit", file.name, cwd=tmp_path)
    assert "No jobs" in done.stdout
    assert "queues no jobs" in done.stderr


def test_what_was_queued_is_told_for_scripts(pool: EmbeddedPool, tmp_path: Path) -> None:
    file = write(tmp_path, "executable = /bin/true\narguments = $(n)\nhold = true\n")
    words = ("submit", "-json", "-append", '+Colour = "red"', "n=5", file.name, "-queue", "3")
    (told,) = json.loads(pool.roost(*words, cwd=tmp_path).stdout)
    assert told["count"] == 3
    with pool.client() as client:
        ads = list(client.jobs(str(told["cluster"])))
    assert [(ad.eval("Args"), ad.eval("Colour"), ad.eval("JobStatus")) for ad in ads] == [("5", "red", 5)] * 3
    second = pool.roost("submit", "-terse", file.name, "-queue", "2", cwd=tmp_path).stdout.strip()
    assert second == f"{told['cluster'] + 1}.0 - {told['cluster'] + 1}.1"
    pool.roost("rm", str(told["cluster"]), str(told["cluster"] + 1))


def test_the_jobs_of_a_large_cluster_come_bit_by_bit(pool: EmbeddedPool, tmp_path: Path) -> None:
    """Late materialization as its user sees it: q -factory, hold and release of the whole cluster, analyze, wait."""
    file = write(
        tmp_path,
        "executable = /bin/echo\narguments = $(x) of $(Process)\noutput = out.$(Process)\nlog = jobs.log\n"
        "max_materialize = 3\nqueue x from (\n" + "".join(f"item {number}\n" for number in range(12)) + ")\n",
    )
    said = pool.roost("submit", str(file), "-append", "hold = true", cwd=tmp_path).stdout
    assert "12 job(s) submitted to cluster" in said
    first = int(said.split("cluster ")[1].split(".")[0])
    rows = [row.split() for row in pool.roost("q", "-factory").stdout.splitlines()]
    (line,) = [row for row in rows if row and row[0] == f"{first}."]
    assert line[4:11] == ["3", "3", "0", "0", "3", "3", "Norm"]  # limit, present, running, idle, held, next, mode
    assert f"Cluster {first}: not materialized yet: 9 of 12 jobs." in pool.roost("analyze", str(first)).stdout
    assert "not materialized yet: 9 of 12 jobs" in pool.roost("explain", f"{first}.11").stdout
    batch = pool.roost("q", str(first)).stdout
    assert " 12 " in batch
    pool.roost("hold", str(first), ok=False)
    assert " Held " in pool.roost("q", "-factory", str(first)).stdout
    pool.roost("rm", *(f"{first}.{proc}" for proc in range(3)))
    rows = [row.split() for row in pool.roost("q", str(first)).stdout.splitlines()]
    assert [row[-5:] for row in rows if f"{first}." in row] == [["3", "_", "_", "12", f"{first}."]]
    assert "on hold" in pool.roost("analyze", str(first)).stdout
    pool.roost("rm", str(first))
    assert f"{first}." not in pool.roost("q", "-factory").stdout.split()
    cluster = pool.submit(file)
    pool.roost("wait", str(cluster), "-timeout", "150")
    ended = pool.final(cluster)
    assert {job: status for job, (status, _, _) in ended.items()} == dict.fromkeys(ended, 4)
    assert len(ended) == 12
    for number in range(12):
        assert (tmp_path / f"out.{number}").read_text() == f"item {number} of {number}\n"
    pool.roost("wait", "-log", "jobs.log", str(cluster), "-timeout", "60", cwd=tmp_path)
