"""Jobs whose files travel: input to the scratch directory, output back."""

import pytest

from shared.messages.claims import DeactivateClaim
from tests.startd_pool import Endpoint, Pool
from tests.waiting import eventually


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path) as pool:
        yield pool


@pytest.fixture
async def files(tmp_path):
    async with Endpoint(tmp_path) as endpoint:
        yield endpoint


def program(files, text):
    (files.input / "condor_exec.exe").write_text(f"#!/bin/sh\n{text}\n")


async def start(pool, files, **attrs):
    job = {
        "cmd": "job.sh",
        "Iwd": "/nowhere",
        "Out": "out.txt",
        "Err": "err.txt",
        "ShouldTransferFiles": "YES",
    }
    activation = pool.activation(url=files.url, **job | attrs)
    return activation, await pool.call(pool.request(activation))


def stop_at_once(activation, granted):
    return DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, why="vacate", how="fast")


async def test_input_comes_and_new_and_changed_files_go_back(pool, files):
    program(
        files,
        "cat; cat data; echo more >> data; mkdir sub; echo x > sub/deep; echo new > made; echo bad >&2; exit 3",
    )
    (files.input / "data").write_text("input\n")
    (files.input / "same").write_text("same\n")
    (files.input / "stdin.txt").write_text("typed\n")
    activation, _ = await start(pool, files, In="dir/stdin.txt")
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.exit_code, end.exit.output_committed) == ("exited", 3, True)
    assert sorted(path.name for path in files.output.iterdir()) == [
        "_condor_stderr",
        "_condor_stdout",
        "data",
        "made",
    ]
    assert files.text("_condor_stdout") == "typed\ninput\n"
    assert files.text("_condor_stderr") == "bad\n"
    assert files.text("data") == "input\nmore\n"
    assert end.usage.bytes_received > 0
    assert end.usage.bytes_sent > 0
    await eventually(lambda: not list(pool.execute.glob("dir_*")))


async def test_listed_output_alone_goes_back(pool, files):
    program(files, "mkdir -p d/e; echo 1 > d/e/one; echo 2 > two; echo 3 > three")
    activation, _ = await start(pool, files, TransferOutput="two, d/e/one")
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.output_committed, end.exit
    assert sorted(path.name for path in files.output.iterdir()) == [
        "_condor_stderr",
        "_condor_stdout",
        "one",
        "two",
    ]


async def test_a_slash_behind_a_directory_means_what_is_in_it(pool, files):
    program(files, "mkdir -p d/e; echo 1 > d/one; echo 2 > d/e/two")
    activation, _ = await start(pool, files, TransferOutput="d/")
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.output_committed, end.exit
    assert sorted(path.name for path in files.output.iterdir()) == ["_condor_stderr", "_condor_stdout", "e", "one"]
    assert files.text("e/two") == "2\n"


@pytest.mark.parametrize(
    ("listed", "text"),
    [
        ("missing/", "exit 0"),
        ("link/", "ln -s /etc link"),
        ("missing", "exit 0"),
        ("../x", "exit 0"),
        ("/etc/passwd", "exit 0"),
        ("link", "ln -s /etc/passwd link"),
        ("d/link", "mkdir d; ln -s /etc d/link"),
    ],
)
async def test_output_that_is_missing_or_outside_is_held(pool, files, listed, text):
    program(files, text)
    activation, _ = await start(pool, files, TransferOutput=listed)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == ("hold", 12)
    assert not list(files.output.iterdir())


@pytest.mark.parametrize(("status", "reason", "code"), [(422, "hold", 13), (401, "failed", 0), (410, "failed", 0)])
async def test_refused_input_never_starts_the_job(pool, files, status, reason, code):
    program(files, "exit 0")
    files.status = status
    activation, _ = await start(pool, files)
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.hold_code) == (reason, code)
    assert "running" not in pool.schedd.phases(activation.job_id)


async def test_output_waits_for_an_endpoint_that_is_away(pool, files, tmp_path):
    program(files, f"touch {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo done")
    activation, _ = await start(pool, files)
    await eventually((tmp_path / "up").exists)
    files.status = 503
    (tmp_path / "go").touch()
    await eventually(lambda: not pool.startd.shared.fork_server.running)
    assert activation.job_id + "/1" not in pool.schedd.ends
    files.status = 0
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.output_committed
    assert files.text("_condor_stdout") == "done\n"


async def test_a_job_that_was_stopped_sends_output_only_if_asked(pool, files, tmp_path):
    program(files, f"echo begun > made; touch {tmp_path}/up; exec sleep 1000")
    for asked in (False, True):
        (tmp_path / "up").unlink(missing_ok=True)
        activation, granted = await start(pool, files)
        await eventually((tmp_path / "up").exists)
        await pool.call(
            DeactivateClaim(
                claim_id=granted.claim_id,
                job_id=activation.job_id,
                attempt=1,
                why="vacate",
                want_output=asked,
            )
        )
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.reason == "evicted"
        assert end.exit.output_committed is asked
        assert (files.output / "made").exists() is asked


async def test_adopted_in_the_middle_a_job_sends_what_it_changed(pool, files, tmp_path):
    program(files, f"touch {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo y > made")
    (files.input / "same").write_text("same\n")
    activation, _ = await start(pool, files)
    await eventually((tmp_path / "up").exists)
    await pool.restart()
    (tmp_path / "go").touch()
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.output_committed
    assert sorted(path.name for path in files.output.iterdir()) == [
        "_condor_stderr",
        "_condor_stdout",
        "made",
    ]


async def test_a_job_that_is_killed_says_why_and_nothing_of_its_output(pool, files, tmp_path):
    """Its slot is taken at once; that no output comes then is how it is."""
    program(files, f"echo begun > made; touch {tmp_path}/up; exec sleep 1000")
    activation, granted = await start(pool, files, WhenToTransferOutput="ON_EXIT_OR_EVICT")
    await eventually((tmp_path / "up").exists)
    await pool.call(stop_at_once(activation, granted))
    end = await pool.schedd.end_of(activation.job_id)
    assert (end.exit.reason, end.exit.message) == ("evicted", "stopped by the schedd: vacate")
    assert not files.received


async def test_a_job_that_is_killed_while_it_sends_its_output_says_why_first(pool, files, tmp_path):
    """It had come to its end, and must run again: its user wants to know for whom."""
    program(files, f"touch {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done")
    activation, granted = await start(pool, files)
    await eventually((tmp_path / "up").exists)
    files.status = 503
    (tmp_path / "go").touch()
    await eventually(lambda: files.refused)
    await pool.call(stop_at_once(activation, granted))
    end = await pool.schedd.end_of(activation.job_id)
    assert end.exit.reason == "evicted"
    assert end.exit.message.startswith("stopped by the schedd: vacate; output could not be sent: ")
