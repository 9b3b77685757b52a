"""Jobs of the scheduler universe in a real pool: they run beside the schedd, and no slot hears of them."""

import os
from pathlib import Path

import pytest

from roost.errors import ClientError
from tests.integration.inside import InsidePool
from tests.waiting import wait_until

MOST = 2


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER=str(MOST))
    yield inside
    inside.close()


@pytest.fixture
def submit(pool, tmp_path):
    def submit(script: str, **commands) -> str:
        program = tmp_path / "run.sh"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        own = {"universe": "scheduler", "executable": str(program), "output": "out", "error": "err", "log": "log"}
        with pool.client() as client:
            cluster = client.submit({**own, **commands}, directory=tmp_path)
        made.append(str(cluster.cluster))
        return made[-1]

    made: list[str] = []
    yield submit
    with pool.client() as client:
        client.act("remove-force", made)


def state(pool, job):
    with pool.client() as client:
        return {ad["ProcId"]: ad["JobStatus"] for ad in client.jobs(job)}


def past(pool, job):
    with pool.client() as client:
        wait_until(lambda: not [*client.jobs(job)], what=f"the end of job {job}")
        (ad,) = client.jobs(job, history=True)
    return ad


@pytest.mark.parametrize("universe", ["scheduler", "local"])
def test_a_job_runs_beside_the_schedd(pool, submit, tmp_path, universe):
    job = submit(
        'echo "$1 $X $(pwd) $CONDOR_ID"; echo oops >&2; exit 3', arguments="one", environment="X=two", universe=universe
    )
    ad = past(pool, job)
    assert (ad["JobStatus"], ad["ExitCode"], ad["NumShadowStarts"], ad["NumJobStarts"]) == (4, 3, 1, 1)
    assert "LastRemoteHost" not in ad
    assert (tmp_path / "out").read_text() == f"one two {tmp_path} {job}.0\n"
    assert (tmp_path / "err").read_text() == "oops\n"
    wait_until(lambda: "return value 3" in (tmp_path / "log").read_text(), what="the log")
    assert [line[:3] for line in (tmp_path / "log").read_text().splitlines() if line[:2] == "00"] == [
        "000",
        "001",
        "005",
    ]


def test_another_users_job_is_refused(pool, tmp_path):
    with pool.client() as admin:
        token = admin.create_token("bob@elsewhere", "WRITE")
    with pool.client(token) as client, pytest.raises(ClientError, match=r"run as the schedd's account.*another user"):
        client.submit({"universe": "scheduler", "executable": "/bin/true"}, directory=tmp_path, spool=True)


@pytest.mark.parametrize(
    ("commands", "code", "said"),
    [
        ({"executable": "/none/at/all"}, 6, "no such program"),
        ({"output": "/none/at/all"}, 7, "/none/at/all"),
        ({"input": "/none/at/all"}, 8, "can not be read"),
    ],
)
def test_what_can_not_be_run_is_held(pool, submit, commands, code, said):
    job = submit("true", **commands, transfer_executable="false")
    wait_until(lambda: list(state(pool, job).values()) == [5], what="the hold")
    with pool.client() as client:
        (ad,) = client.jobs(job)
    assert ad["HoldReasonCode"] == code
    assert said in ad["HoldReason"]


def test_a_job_that_is_held_ends_and_begins_again(pool, submit, tmp_path):
    job = submit("trap 'echo left; exit' TERM; echo begun; while true; do sleep 0.05; done")
    begun = lambda: "begun" in (tmp_path / "out").read_text() if (tmp_path / "out").exists() else False  # noqa: E731
    wait_until(begun, what="the program")
    pool.roost("hold", job)
    wait_until(lambda: "left" in (tmp_path / "out").read_text(), what="its end")
    assert list(state(pool, job).values()) == [5]
    pool.roost("release", job)
    wait_until(lambda: (tmp_path / "out").read_text() == "begun\n", what="the next run")
    pool.roost("rm", job)
    ad = past(pool, job)
    assert (ad["JobStatus"], ad["NumShadowStarts"]) == (3, 2)


def test_a_job_that_does_not_leave_is_killed(pool, submit, tmp_path):
    job = submit("trap '' TERM; echo $$; while true; do sleep 0.05; done", kill_sig_timeout="1")
    wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text(), what="the program")
    process = Path("/proc", (tmp_path / "out").read_text().strip())
    pool.roost("rm", job)
    assert past(pool, job)["JobStatus"] == 3
    wait_until(lambda: not process.exists(), what="the end of its process")


def test_so_many_run_and_no_more(pool, submit):
    job = submit("sleep 1000")
    with pool.client() as client:
        more = client.submit({"universe": "scheduler", "executable": "/bin/sleep", "arguments": "1000"}, count=3)
    both = lambda: [*state(pool, job).values(), *state(pool, str(more.cluster)).values()]  # noqa: E731
    try:
        wait_until(lambda: both().count(2) == MOST, what="two that run")
        assert both().count(1) == 2
        pool.roost("rm", job)
        wait_until(lambda: both() == [2, 2, 1], what="another to begin")
    finally:
        pool.roost("rm", "-force", str(more.cluster))


def test_a_schedd_that_ends_takes_its_jobs_along_and_starts_them_again(pool, submit, tmp_path):
    job = submit("echo $$ >>pids; while [ ! -e go ]; do sleep 0.05; done; exit 4")
    pids = lambda: (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []  # noqa: E731
    wait_until(lambda: len(pids()) == 1, what="the program")
    pool.stop_daemon("schedd")
    assert not os.path.exists(f"/proc/{pids()[0]}")
    pool.start_daemon("schedd")
    wait_until(lambda: len(pids()) == 2, what="the next run")
    (tmp_path / "go").touch()
    ad = past(pool, job)
    assert (ad["ExitCode"], ad["NumShadowStarts"]) == (4, 2)
