"""A disk that is full for a while: what is new is refused, what is there goes on, and nothing is lost."""

import contextlib
from pathlib import Path

import pytest

from tests.integration.pools import EmbeddedPool
from tests.waiting import wait_until

JOBS = 24
MIB = 1 << 20


def fill(directory: Path, *, but_kib: int = 0) -> Path:
    """Take all the room there is, less so much."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    with filler.open("r+b") as file:
        file.truncate(max(0, filler.stat().st_size - but_kib * 1024))
    return filler


@pytest.fixture
def pool(tmp_path):
    pool = EmbeddedPool(tmp_path / "pool")
    (tmp_path / "pool" / "config").write_text("NUM_CPUS = 2\nMEMORY = 2048\n")
    yield pool
    pool.close()


def batch(folder: Path, name: str, script: str, jobs: int, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.sub"
    extra = "\n".join(lines)
    file.write_text(
        f"executable = /bin/sh\narguments = \"-c '{script}'\"\ntransfer_executable = false\n"
        "should_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT\nrequest_memory = 10\n"
        f"output = {name}.$(Process).out\nlog = {name}.log\n{extra}\nqueue {jobs}\n"
    )
    return file


def completed(pool, cluster):
    try:
        return [proc for proc, (status, *_) in pool.final(cluster).items() if status == 4]
    except Exception:
        return []


def test_a_full_spool_refuses_new_jobs_and_loses_none(pool, tmp_path, small_disk):
    spool = small_disk(tmp_path / "pool" / "spool", 24)
    pool.start()
    work = tmp_path / "work"
    script = "echo $(Process) >> $$(Iwd)/ran; sleep 0.2; head -c 20000 /dev/zero > made.$(Process)"
    script = script.replace("$$(Iwd)", str(work))
    cluster = pool.submit(batch(work, "batch", script, JOBS))
    wait_until(lambda: completed(pool, cluster), what="a job of the batch")
    filler = fill(spool)
    refused = pool.roost("submit", "batch.sub", cwd=work, ok=False)
    assert refused.returncode != 0
    assert "the spool of this schedd is full" in refused.stderr
    log = tmp_path / "pool" / "log" / "pool.log"
    wait_until(lambda: "spool_full" in log.read_text(), what="a change that can not be written")
    assert "Total for query" in pool.roost("q").stdout  # questions are answered
    assert len(completed(pool, cluster)) < JOBS
    filler.unlink()
    pool.wait_for_rest(cluster, JOBS)
    assert {end[0] for end in pool.final(cluster).values()} == {4}
    assert sorted(map(int, (work / "ran").read_text().split())) == list(range(JOBS)), "each job ran once"
    assert len(list(work.glob("made.*"))) == JOBS
    assert {file.stat().st_size for file in work.glob("made.*")} == {20_000}
    ends = [line for line in (work / "batch.log").read_text().splitlines() if line.startswith("005 (")]
    assert len(ends) == JOBS
    assert "daemon_died" not in log.read_text()
    again = pool.submit(work / "batch.sub")
    pool.wait_for_rest(again, JOBS)


def test_a_pool_that_was_killed_with_a_full_spool_has_all_its_jobs(pool, tmp_path, small_disk):
    spool = small_disk(tmp_path / "pool" / "spool", 24)
    pool.start()
    work = tmp_path / "work"
    cluster = pool.submit(batch(work, "batch", "sleep 0.3", JOBS))
    wait_until(lambda: completed(pool, cluster), what="a job of the batch")
    filler = fill(spool)
    log = tmp_path / "pool" / "log" / "pool.log"
    wait_until(lambda: "spool_full" in log.read_text(), what="a change that can not be written")
    pool.kill()
    filler.unlink()
    pool.start()
    pool.wait_for_rest(cluster, JOBS)
    assert {end[0] for end in pool.final(cluster).values()} == {4}
    assert set(pool.final(cluster)) == set(range(JOBS))


def test_a_full_execute_directory_sends_jobs_elsewhere_until_there_is_room(pool, tmp_path, small_disk):
    """Here there is no elsewhere: they come back, with the reason, and run once there is room."""
    execute = small_disk(tmp_path / "pool" / "execute", 24)
    pool.start()
    work = tmp_path / "work"
    file = batch(work, "batch", "sleep 0.1; ls -l big; echo done", 6, "transfer_input_files = big", "request_disk = 1")
    (work / "big").write_bytes(bytes(2 * MIB))
    filler = fill(execute, but_kib=700)
    cluster = pool.submit(file)
    log = work / "batch.log"
    wait_until(lambda: log.exists() and "No space left on device" in log.read_text(), what="the reason in the log")
    assert {end[0] for end in pool.final(cluster).values()} <= {4}
    filler.unlink()
    pool.wait_for_rest(cluster, 6)
    assert {end[:2] for end in pool.final(cluster).values()} == {(4, 0)}
    assert [path.read_text().split()[-1] for path in work.glob("batch.*.out")] == ["done"] * 6


def test_jobs_end_where_the_execute_directory_is_full(pool, tmp_path, small_disk):
    """A job that fills the disk sees its own write fail; what it says goes back."""
    small_disk(tmp_path / "pool" / "execute", 16)
    pool.start()
    work = tmp_path / "work"
    script = "head -c 100000000 /dev/zero > fill || rm fill; echo done"
    cluster = pool.submit(batch(work, "greedy", script, 1))
    pool.wait_for_rest(cluster, 1)
    assert pool.final(cluster)[0][:2] == (4, 0)
    assert (work / "greedy.0.out").read_text() == "done\n"
