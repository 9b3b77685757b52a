"""What daemons keep on disk is their account's alone: database, spool, history and logs, whatever the umask, and what
was left more open is closed at the next start and told."""

import json
import os
import sqlite3
import stat

import pytest

from services.schedd.io.queue_db import QueueDatabase
from services.startd.journal import Journal as StartdJournal
from shared import private_files
from tests.processes import DaemonProcess, daemons
from tests.waiting import wait_until

DAEMONS = ("collector", "negotiator", "had", "schedd", "startd", "journal", "gateway")


@pytest.fixture(params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def open_to_others(root):
    """Files and directories under it, and itself, that their groups or everybody may use. {path: mode}"""
    found = {}
    for folder, directories, files in os.walk(root):
        for path in [folder, *(os.path.join(folder, name) for name in (*directories, *files))]:
            status = os.lstat(path)
            if not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o077:
                found[path] = oct(stat.S_IMODE(status.st_mode))
    return found


async def test_databases_are_made_closed(tmp_path, umask):
    queue = QueueDatabase(tmp_path / "ap" / "job_queue.db")
    await queue.open()
    await queue.commit()
    startd = StartdJournal(tmp_path / "ep" / "ep.db")
    startd.write([("claims", "<secret>", {"id": "<secret>"})])
    try:
        there = {path.name for path in tmp_path.rglob("*") if path.is_file()}
        assert {"job_queue.db", "job_queue.db-wal", "ep.db", "ep.db-wal", "ep.db-shm"} <= there
        assert not open_to_others(tmp_path / "ap")
        assert not open_to_others(tmp_path / "ep")
    finally:
        startd.close()
        await queue.close()


async def test_a_database_of_before_is_closed_with_what_lies_beside_it(tmp_path):
    path = tmp_path / "job_queue.db"
    before = sqlite3.connect(path)
    before.execute("PRAGMA journal_mode = WAL")
    before.execute("CREATE TABLE x (y)")
    before.commit()
    before_files = [path, path.with_name("job_queue.db-wal"), path.with_name("job_queue.db-shm")]
    for one in before_files:
        one.chmod(0o666)
    private_files.make_database(path)
    assert [stat.S_IMODE(one.stat().st_mode) for one in before_files] == [0o600] * 3
    before.execute("INSERT INTO x VALUES (1)")  # its locks and its log still stand
    before.commit()
    before.close()


def test_a_spool_is_closed_and_files_of_jobs_keep_their_modes(tmp_path):
    spool = tmp_path / "spool"
    output = spool / "schedd" / "ap" / "sandboxes" / "7" / "proc0" / "out"
    output.mkdir(parents=True)
    (output / "run.sh").touch(0o755)
    (output / "run.sh").chmod(0o755)
    (spool / "journal.db").touch()
    (spool / "journal.db").chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    (spool / "link").symlink_to(elsewhere)
    closed = private_files.close_spool(spool)
    assert stat.S_IMODE(spool.stat().st_mode) == 0o700
    assert stat.S_IMODE((spool / "journal.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((output / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert not closed.problems
    assert str(spool / "journal.db") in closed.paths
    assert not private_files.close_spool(spool).paths, "closed twice"


def test_a_directory_for_everybody_is_left_alone_and_told(tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    spool.chmod(0o1777)
    closed = private_files.close_spool(spool)
    assert stat.S_IMODE(spool.stat().st_mode) == 0o1777
    assert "directory for everybody" in closed.problems[0]


@pytest.mark.servers
def test_no_daemon_leaves_a_file_to_others(tmp_path, amqp_url, redis_url, umask):
    config = {
        "HISTORY": tmp_path / "kept" / "history",
        "EVENT_LOG": tmp_path / "kept" / "EventLog",
        "KEEP_POOL_HISTORY": "true",
        "POOL_HISTORY_DIR": tmp_path / "kept" / "pool_history",
        "GATEWAY_AUDIT_LOG": tmp_path / "kept" / "audit.log",
        "ROOST_GATEWAY_PORT": "0",
        "ROOST_STARTD_DOCKER": "false",
    }
    (tmp_path / "kept").mkdir(mode=0o700)
    loose = []
    for name in ("history", "history.20250101T000000", "EventLog", "EventLog.old", "audit.log", "audit.log.1"):
        loose.append(tmp_path / "kept" / name)
        loose[-1].touch()
        loose[-1].chmod(0o666)
    processes = [
        DaemonProcess(daemon, "one", tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
        for daemon in DAEMONS
    ]
    for process in processes:
        spool = tmp_path / f"{process.daemon}-one" / "spool"
        spool.mkdir(parents=True)
        spool.chmod(0o755)

    def told(process):
        lines = [json.loads(line) for line in process.log.read_text().splitlines()]
        return {path for line in lines if line["event"] == "files_closed" for path in line["paths"]}

    with daemons(*processes):
        for process in processes:
            spool = tmp_path / f"{process.daemon}-one" / "spool"
            assert str(spool) in told(process), process.daemon
            assert not open_to_others(spool), process.daemon
        wait_until(lambda: not open_to_others(tmp_path / "kept"), what="the configured files to be closed")
        all_told = set().union(*map(told, processes))
        assert {str(path) for path in loose} <= all_told
