"""stream_output and stream_error: what a job says comes to its files while it runs."""

import contextlib

import pytest

from tests.integration.pools import EmbeddedPool, ProcessPool
from tests.integration.test_full_disk import fill
from tests.servers import free_port
from tests.spec import spec
from tests.waiting import wait_until

#: Says the name of each file that comes into a folder, much before the third, and ends with the last.
JOB = """#!/bin/sh
echo begun
echo trouble >&2
for word in one two three end; do
    while [ ! -e FOLDER/$word ]; do sleep 0.05; done
    [ $word = three ] && head -c 600000 /dev/zero | tr '\\0' x
    echo $word
done
"""
MUCH = "begun\none\ntwo\n" + "x" * 600_000 + "three\n"


def submit(pool, folder, words):
    """The job, whose output goes to `out` and `err` in its folder. words: where it looks for files."""
    folder.mkdir(exist_ok=True)
    words.mkdir(exist_ok=True)
    (folder / "job").write_text(JOB.replace("FOLDER", str(words)))
    (folder / "job.sub").write_text(
        "executable = job\nshould_transfer_files = yes\noutput = out\nerror = err\n"
        "stream_output = true\nstream_error = true\nqueue\n"
    )
    return pool.submit(folder / "job.sub")


def said(folder, text, file="out"):
    path = folder / file
    wait_until(lambda: path.exists() and path.read_text() == text, what=f"{text[:40]!r} in {file}")


def end(pool, folder, words, cluster):
    """Let it end. Its output is there as a whole, and is what it said."""
    for word in ("one", "two", "three", "end"):
        (words / word).touch()
    wait_until(lambda: pool.final(cluster), what="the end of the job")
    assert (folder / "out").read_text() == MUCH + "end\n"
    assert (folder / "err").read_text() == "trouble\n"


@pytest.fixture(scope="module")
def personal(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("streams") / "pool")
    with contextlib.closing(pool):
        pool.start()
        yield pool


@spec("SUB-12")
@pytest.mark.servers
def test_a_stream_goes_on_whoever_was_killed(tmp_path, amqp_url, redis_url):
    pool = ProcessPool(tmp_path / "pool", amqp_url, redis_url, free_port(), NUM_CPUS="1", MEMORY="1024")
    work, words = tmp_path / "work", tmp_path / "words"
    with contextlib.closing(pool):
        pool.start()
        cluster = submit(pool, work, words)
        said(work, "begun\n")
        said(work, "trouble\n", "err")
        file = (work / "out").stat().st_ino
        pool.kill("schedd")
        (words / "one").touch()
        pool.start_daemon("schedd")
        said(work, "begun\none\n")
        pool.kill("startd")
        (words / "two").touch()
        pool.start_daemon("startd")
        said(work, "begun\none\ntwo\n")
        end(pool, work, words, cluster)
        assert (work / "out").stat().st_ino == file  # who follows the file sees its end


@spec("SUB-12")
def test_each_run_begins_anew_and_what_was_lost_comes_again(personal, tmp_path):
    work, words = tmp_path / "work", tmp_path / "words"
    cluster = submit(personal, work, words)
    said(work, "begun\n")
    (words / "one").touch()
    said(work, "begun\none\n")
    (words / "one").unlink()
    personal.roost("vacate-job", str(cluster))
    said(work, "begun\n")
    (work / "out").unlink()
    (words / "one").touch()
    said(work, "begun\none\n")
    end(personal, work, words, cluster)


@spec("SUB-12")
def test_a_spooled_job_streams_into_its_sandbox(personal, tmp_path):
    work, words = tmp_path / "work", tmp_path / "words"
    work.mkdir()
    words.mkdir()
    (work / "job").write_text(JOB.replace("FOLDER", str(words)))
    (work / "job.sub").write_text(
        "executable = job\nshould_transfer_files = yes\noutput = kept\nstream_output = true\nqueue\n"
    )
    cluster = personal.submit(work / "job.sub", "-spool")
    spool = personal.directory / "spool"
    wait_until(lambda: [path.read_text() for path in spool.rglob("out/kept")] == ["begun\n"], what="the output")
    assert not (work / "kept").exists()
    for word in ("one", "two", "three", "end"):
        (words / word).touch()
    wait_until(lambda: personal.final(cluster), what="the end of the job")
    assert [path.read_text() for path in spool.rglob("out/kept")] == [MUCH + "end\n"]


@spec("SUB-12")
def test_a_disk_without_room_holds_up_the_stream_and_not_the_job(personal, tmp_path, small_disk):
    work, words = small_disk(tmp_path / "work", 4), tmp_path / "words"
    cluster = submit(personal, work, words)
    said(work, "begun\n")
    filler = fill(work)
    for word in ("one", "two", "three"):
        (words / word).touch()
    log = personal.directory / "log" / "pool.log"
    wait_until(lambda: "stream_waits" in log.read_text(), what="a piece that there is no room for")
    filler.unlink()
    said(work, MUCH)
    end(personal, work, words, cluster)
