"""A whole pool moved while jobs run: backed up, stopped, and restored elsewhere."""

import pytest

from tests.integration.pools import EmbeddedPool
from tests.waiting import wait_until


@pytest.fixture
def pools(tmp_path):
    made = []

    def make(name):
        made.append(EmbeddedPool(tmp_path / name))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def priorities(pool):
    with pool.client() as client:
        return {
            str(ad.eval("Name")): (ad.eval("PriorityFactor"), round(float(ad.eval("Priority")), 1))
            for ad in client.priorities()
            if ad.eval("IsAccountingGroup") is not True
        }


def running(pool, cluster):
    with pool.client() as client:
        return sum(1 for _ in client.jobs(str(cluster), constraint="JobStatus == 2"))


def test_a_pool_is_moved_and_nothing_is_lost(pools, tmp_path):
    old = pools("old")
    old.start("-cpus", "2", "-memory", "1024")
    done = tmp_path / "done.sub"
    done.write_text("executable = /bin/true\nqueue 2\n")
    first = old.submit(done)
    old.wait_for_rest(first, 2)
    (me,) = set(old.roost("history", "-af", "User").stdout.split())
    old.roost("userprio", "-setfactor", me, "77")
    runs = tmp_path / "runs"
    job = tmp_path / "job"
    job.write_text(f"#!/bin/sh\necho began >>{runs}\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.1; done\n")
    job.chmod(0o755)
    (tmp_path / "work.sub").write_text(f"executable = {job}\nrequest_memory = 64MB\nqueue 4\n")
    second = old.submit(tmp_path / "work.sub")
    wait_until(lambda: running(old, second) == 2, what="two jobs to run")
    before = priorities(old)

    backup = tmp_path / "backup"
    said = old.roost("backup", str(backup)).stdout
    assert "it holds secrets" in said
    assert "is whole" in old.roost("backup", "-check", str(backup)).stdout
    old.roost("down")
    for life in old._lives:
        life.close()  # and what it left running: the machine is gone

    new = pools("new")
    new.directory.rmdir()
    new.roost("restore", str(backup), "-dir", str(new.directory))
    new.start("-cpus", "2", "-memory", "1024")
    assert {status for status, _, _ in new.final(first).values()} == {4}
    after = priorities(new)
    assert after[me][0] == before[me][0] == 77.0
    assert abs(after[me][1] - before[me][1]) <= 0.1 * before[me][1]
    (tmp_path / "go").touch()
    new.wait_for_rest(second, 4)
    assert {status for status, _, _ in new.final(second).values()} == {4}
    # The two that ran began once more, the two that waited began once.
    assert len(runs.read_text().splitlines()) == 6
    assert new.submit(done) == second + 1
