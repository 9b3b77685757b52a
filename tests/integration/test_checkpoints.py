"""Jobs that save themselves: from the last whole checkpoint they go on, whoever was killed."""

import contextlib

import pytest

from shared.messages.claims import DeactivateClaim
from tests.integration.pools import EmbeddedPool
from tests.integration.test_startd_transfer import program, start
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually, wait_until

#: Takes three steps, and saves itself after each but the last; before the second it waits for a file.
STEPS = """#!/bin/sh
n=$(cat state 2>/dev/null || echo 0)
echo step $n
[ $n = 1 ] && { echo $$ >> WORDS/waits; while [ ! -e WORDS/go ]; do sleep 0.05; done; }
n=$((n + 1))
echo $n > state
[ $n -lt 3 ] && exit 85
exit 0
"""
SAVES = {"WantFTOnCheckpoint": True, "SuccessCheckpointExitCode": 85}


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path / "pool") as pool:
        yield pool


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def personal(tmp_path_factory):
    made = EmbeddedPool(tmp_path_factory.mktemp("checkpoints") / "pool")
    with contextlib.closing(made):
        made.start("-cpus", "2", "-memory", "2048")
        yield made


def submit(pool, folder, *lines):
    words = folder / "words"
    words.mkdir()
    (folder / "job").write_text(STEPS.replace("WORDS", str(words)))
    (folder / "job.sub").write_text(
        "executable = job\noutput = out\nerror = err\nlog = log\nshould_transfer_files = yes\n"
        + "".join(f"{line}\n" for line in lines)
        + "queue\n"
    )
    return pool.submit(folder / "job.sub")


def waits(folder):
    path = folder / "words" / "waits"
    return len(path.read_text().split()) if path.exists() else 0


def ad_of(pool, cluster, **how):
    with pool.client() as client:
        return next(iter(client.jobs(str(cluster), **how)))


def test_a_job_goes_on_from_its_checkpoint_after_hold_and_kill(personal, tmp_path):
    cluster = submit(personal, tmp_path, "checkpoint_exit_code = 85", "transfer_checkpoint_files = state")
    wait_until(lambda: waits(tmp_path) == 1, 60, "the second step")
    personal.roost("hold", str(cluster))
    wait_until(lambda: personal.final(cluster), 60, "the hold")
    personal.roost("release", str(cluster))
    wait_until(lambda: waits(tmp_path) == 2, 60, "the second step, from the checkpoint")
    assert ad_of(personal, cluster).eval("NumCkpts") == 1
    personal.kill()
    (tmp_path / "words" / "go").touch()
    personal.start("-cpus", "2", "-memory", "2048")
    wait_until(lambda: personal.final(cluster), 60, "the end")
    assert personal.final(cluster)[0][:2] == (4, 0), personal.process.tail()
    assert (tmp_path / "out").read_text() == "step 0\nstep 1\nstep 2\n"
    ad = ad_of(personal, cluster, history=True)
    assert (ad.eval("NumCkpts"), ad.eval("CheckpointNumber")) == (2, 1)
    wait_until(lambda: not list(personal.directory.rglob("checkpoints/*")), 60, "an empty spool")


def test_a_checkpoint_that_can_not_be_had_holds_the_job(personal, tmp_path):
    (tmp_path / "x").mkdir()
    cluster = submit(personal, tmp_path / "x", "checkpoint_exit_code = 85", "transfer_checkpoint_files = none")
    wait_until(lambda: personal.final(cluster), 60, "the hold")
    assert personal.final(cluster)[0] == (5, None, 36)
    assert "checkpoint: none: cannot read" in ad_of(personal, cluster).eval("HoldReason")


def test_a_job_without_transfer_is_told_that_it_can_not_save_itself(personal, tmp_path):
    (tmp_path / "job.sub").write_text(
        "executable = /bin/true\nshould_transfer_files = no\ncheckpoint_exit_code = 85\nqueue\n"
    )
    told = personal.roost("submit", str(tmp_path / "job.sub")).stderr
    assert "checkpoint_exit_code has no effect with should_transfer_files = NO" in told


async def test_each_checkpoint_starts_the_program_again_in_its_place(pool, files):
    program(files, "n=$(cat d/state || echo 0); echo $n; mkdir -p d; echo $((n + 1)) > d/state; [ $n = 2 ] || exit 85")
    activation, _ = await start(pool, files, **SAVES, TransferCheckpoint="d/state")
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
    assert files.text("_condor_stdout") == "0\n1\n2\n"
    assert (files.checkpoint / "d/state").read_text() == "2\n"
    assert (files.checkpoint / "_condor_stdout").read_text() == "0\n1\n"
    assert files.received == 3
    await eventually(lambda: not list(pool.execute.glob("dir_*")))
    await eventually(lambda: not pool.startd.shared.fork_server.running)


async def test_a_new_run_begins_with_the_checkpoint_and_sends_all_of_its_work(pool, files):
    (files.input / "state").write_text("as submitted\n")
    (files.checkpoint / "state").write_text("saved\n")
    (files.checkpoint / "made").write_text("made before\n")
    (files.checkpoint / "_condor_stdout").write_text("said before\n")
    program(files, "cat state")
    activation, _ = await start(pool, files, **SAVES, CheckpointNumber=0)
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.output_committed, end.exit
    assert files.text("_condor_stdout") == "said before\nsaved\n"
    assert (files.text("made"), files.text("state")) == ("made before\n", "saved\n")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_startd_that_was_killed_around_a_checkpoint(pool, files, tmp_path, when):
    program(
        files,
        f"n=$(cat state || echo 0); echo $n; echo $((n + 1)) > state; touch {tmp_path}/up$n; "
        f"[ $n = 1 ] || while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; [ $n = 2 ] || exit 85",
    )
    activation, _ = await start(pool, files, **SAVES)
    await eventually((tmp_path / "up0").exists)
    if when == "before":
        files.status = 503
        (tmp_path / "go").touch()
        await eventually(lambda: files.refused)
        await pool.restart()
        files.status = 0
    else:
        await pool.restart()
        (tmp_path / "go").touch()
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_code) == ("exited", 0), end.exit
    assert files.text("_condor_stdout") == "0\n1\n2\n"


async def test_a_job_that_must_leave_saves_itself_first(pool, files, tmp_path):
    program(files, f"trap 'echo saved > state; exit 85' TERM; touch {tmp_path}/up; while :; do sleep 0.01; done")
    activation, granted = await start(pool, files, **SAVES)
    await eventually((tmp_path / "up").exists)
    await pool.call(DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="vacate"))
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.output_committed) == ("evicted", False)
    assert (files.checkpoint / "state").read_text() == "saved\n"
    assert not list(files.output.iterdir())


async def test_files_of_an_evicted_job_go_with_it_where_it_wants_that(pool, files, tmp_path):
    program(files, f"cat part; echo done > part; touch {tmp_path}/up; [ -e {tmp_path}/go ] || exec sleep 1000")
    activation, granted = await start(pool, files, WhenToTransferOutput="ON_EXIT_OR_EVICT")
    await eventually((tmp_path / "up").exists)
    await pool.call(DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="vacate"))
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "evicted"
    assert [one.name for one in files.checkpoint.iterdir()] == ["part"]
    assert not list(files.output.iterdir())
    (tmp_path / "go").touch()
    activation, _ = await start(pool, files, WhenToTransferOutput="ON_EXIT_OR_EVICT", CheckpointNumber=0)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, files.text("_condor_stdout")) == ("exited", "done\n")


async def test_output_of_an_evicted_job_goes_on_after_what_was_said_where_it_wants_that(pool, files, tmp_path):
    """erase_output_and_error_on_restart = false"""
    wants = {"WhenToTransferOutput": "ON_EXIT_OR_EVICT", "EraseOutputAndErrorOnRestart": False}
    program(files, f"echo said; echo warned >&2; touch {tmp_path}/up; [ -e {tmp_path}/go ] || exec sleep 1000")
    activation, granted = await start(pool, files, **wants)
    await eventually((tmp_path / "up").exists)
    await pool.call(DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="vacate"))
    await pool.schedd.end_of(activation.job_id)
    (tmp_path / "go").touch()
    activation, _ = await start(pool, files, **wants, CheckpointNumber=0)
    await pool.schedd.end_of(activation.job_id)
    assert (files.text("_condor_stdout"), files.text("_condor_stderr")) == ("said\n" * 2, "warned\n" * 2)


def test_checkpoints_that_lie_at_a_url_are_checked_and_removed_when_they_are_not_wanted(personal, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    (personal.directory / "checkpoint-destination-mapfile").write_text(
        f"* file://{place}/ cleanup_locally_mounted_checkpoint,-prefix,\\0,-path,{place}\n"
    )
    lines = (
        "checkpoint_exit_code = 85",
        "transfer_checkpoint_files = state",
        f"checkpoint_destination = file://{place}",
    )
    cluster = submit(personal, tmp_path, *lines)
    wait_until(lambda: waits(tmp_path) == 1, 60, "the second step")
    (saved,) = [path for path in place.rglob("*") if path.is_file()]
    assert saved.relative_to(place).parts[1:] == ("0001.0001", "state")
    personal.roost("hold", str(cluster))
    wait_until(lambda: personal.final(cluster), 60, "the hold")
    saved.write_text("changed\n")
    personal.roost("release", str(cluster))
    wait_until(lambda: (personal.final(cluster) or [(0, None, 0)])[0][2] == 36, 60, "the hold")
    assert "is not what was put there (SHA-256)" in ad_of(personal, cluster).eval("HoldReason")
    saved.write_text("1\n")
    personal.roost("release", str(cluster))
    wait_until(lambda: waits(tmp_path) == 2, 60, "the second step, from the checkpoint")
    (tmp_path / "words" / "go").touch()
    wait_until(lambda: personal.final(cluster) and personal.final(cluster)[0][0] == 4, 60, "the end")
    assert (tmp_path / "out").read_text() == "step 0\nstep 1\nstep 2\n"
    wait_until(lambda: not list(place.iterdir()), 60, "an empty place")
    wait_until(lambda: not list(personal.directory.rglob("checkpoint-cleanup/*")), 60, "an empty spool")
