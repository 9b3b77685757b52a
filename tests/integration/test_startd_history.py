"""The file of the runs that ended on an execution point, and `roost history -startd` (TLS-12)."""

import pytest

from roost.cli.main import main
from shared.messages.claims import DeactivateClaim, JobReportAck
from tests.spec import spec
from tests.startd_pool import Pool
from tests.waiting import eventually


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path) as pool:
        pool.schedd.next_job = lambda report: JobReportAck(release=True)
        yield pool


@pytest.fixture
def history(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    monkeypatch.setenv("CONDOR_CONFIG", "/dev/null")
    monkeypatch.setenv("_CONDOR_SPOOL", str(tmp_path / "spool"))

    def ask(*arguments):
        capsys.readouterr()  # what the startd's log said
        code = main(["history", "-startd", *arguments])
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return ask


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@spec("TLS-12")
async def test_runs_are_in_the_history_of_the_machine(pool, history, tmp_path):
    assert "there is no history of an execution point" in history()
    first, _ = await pool.run(script(tmp_path / "seven", "exit 7"), Note="A='*** b'")
    await pool.schedd.end_of(first.job_id)
    await eventually(lambda: not pool.startd.shared.slot_manager.claims)
    second, _ = await pool.run("/bin/sleep", ClusterId=2, Arguments="600", Owner="bob")
    await pool.schedd.until(lambda: "running" in pool.schedd.phases(second.job_id))
    claim = next(r.claim_id for r in pool.schedd.reports if r.job_id == second.job_id)
    await pool.call(DeactivateClaim(claim_id=claim, job_id=second.job_id, attempt=1, why="remove", fast=True))
    await pool.schedd.end_of(second.job_id)
    values = history("-af", "ClusterId", "Owner", "JobStatus", "ExitCode", "RemoveReason")
    assert values.splitlines() == [
        "2 bob 3 undefined stopped by the schedd: remove",
        "1 alice 4 7 undefined",
    ]
    assert all(slot.endswith("@node1") for slot in history("-af", "LastRemoteHost").split())
    assert history("-forwards", "1", "-af", "ExitCode", "Note") == "7 A='*** b'\n"
    lines = history().splitlines()
    assert lines[0].split() == ["ID", "OWNER", "SUBMITTED", "RUN_TIME", "ST", "COMPLETED", "CMD"]
    assert [line.split()[0] for line in lines[1:]] == ["2.0", "1.0"]
    assert history("-name", "node1").startswith("roost: ")
    file = pool.path / "spool" / "startd_history"
    assert file.stat().st_mode & 0o777 == 0o600
    banners = [line for line in file.read_text().splitlines() if line.startswith("***")]
    assert banners[1] == '*** Offset = 0 ClusterId = 2 ProcId = 0 Owner = "bob" CompletionDate = 0'


@spec("TLS-12")
async def test_a_restarted_startd_writes_a_run_once(pool, history):
    pool.schedd.refuse = 1_000_000
    activation, _ = await pool.run()
    await pool.schedd.until(lambda: "ended" in pool.schedd.phases(activation.job_id))
    await pool.restart()
    pool.schedd.refuse = 0
    await pool.schedd.end_of(activation.job_id)
    assert history("-af", "ClusterId") == "1\n"


@spec("TLS-12")
async def test_full_files_are_put_away_and_read_in_their_order(tmp_path, monkeypatch, history):
    file = tmp_path / "log" / "runs"
    monkeypatch.setenv("_CONDOR_STARTD_HISTORY", str(file))
    async with Pool(tmp_path, STARTD_HISTORY=file, MAX_HISTORY_LOG=100, MAX_HISTORY_ROTATIONS=2) as pool:
        pool.schedd.next_job = lambda report: JobReportAck(release=True)
        now = pool.startd.context.clock.now()
        monkeypatch.setattr(pool.startd.context.clock, "now", lambda: now)
        for cluster in range(1, 5):
            now += 1
            activation, _ = await pool.run(ClusterId=cluster)
            await pool.schedd.end_of(activation.job_id)
            await eventually(lambda: not pool.startd.shared.slot_manager.claims)
        assert history("-af", "ClusterId").split() == ["4", "3", "2"]
        assert history("-forwards", "-limit", "2", "-af", "ClusterId").split() == ["2", "3"]
