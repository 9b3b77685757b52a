"""Preemption decided by the negotiator and carried out by schedd and startd: all daemons, real jobs."""

import pytest

from tests.spec import spec
from tests.waiting import eventually
from tests.wholepool import WholePool

#: Leaves when it is asked to.
JOB = """#!/bin/sh
trap 'echo "$1 leaves" >> log; exit 3' TERM
echo "$1 begins" >> log
while [ ! -e "$1.go" ]; do sleep 0.02; done
"""
STATIC = {"NUM_CPUS": "1", "NUM_SLOTS_TYPE_1": "1", "SLOT_TYPE_1": "100%", "ROOST_SCHEDD_FILE_USERS": "alice, bob"}

DYNAMIC = {"NUM_CPUS": "1", "ROOST_SCHEDD_FILE_USERS": "alice, bob"}


class Pool(WholePool):
    """Cycles follow each other: that a slot can be preempted now starts none by itself."""

    def __init__(self, directory, **config):
        super().__init__(directory, NEGOTIATOR_INTERVAL="1", **config)

    async def run(self, owner, **attributes):
        """Submit a job of `owner`; gives its id."""
        ad = self.job(str(self.script()), Arguments=owner, **attributes)
        return f"{await self.submit(ad, user=f'{owner}@pool')}.0"

    def script(self):
        path = self.directory / "job"
        path.write_text(JOB)
        path.chmod(0o755)
        return path

    def log(self):
        path = self.directory / "log"
        return path.read_text().splitlines() if path.exists() else []

    async def says(self, line):
        await eventually(lambda: line in self.log(), what=line)

    async def job_ad(self, job_id):
        """On its way from the queue to the history it is in neither for a moment, and may be seen in both."""
        found = []

        async def there():
            found.extend(await self.ads(job_id))
            return found

        await eventually(there, what=f"job {job_id}")
        return found[-1]

    def go(self, *names):
        for name in names:
            (self.directory / f"{name}.go").touch()

    async def ends(self, job_id):
        async def done():
            return (await self.job_ad(job_id))["JobStatus"] == 4

        await eventually(done, what=f"the end of job {job_id}")
        return await self.job_ad(job_id)


async def first_runs(pool, **attributes):
    alice = await pool.run("alice", **attributes)
    await pool.says("alice begins")
    return alice


async def both_end(pool, alice, bob, code):
    await pool.says("bob begins")
    assert pool.log()[:3] == ["alice begins", "alice leaves", "bob begins"]
    left = await pool.job_ad(alice)
    assert (left["JobStatus"], left["NumJobStarts"], left["VacateReasonCode"]) == (1, 1, code)
    pool.go("alice", "bob")
    assert (await pool.ends(bob))["NumShadowStarts"] == 1
    assert (await pool.ends(alice))["NumShadowStarts"] == 2
    assert pool.consistent() == []


@spec("PRE-01", "W-51")
@pytest.mark.parametrize(
    "slots", [STATIC, {"NUM_CPUS": "1", "ROOST_SCHEDD_FILE_USERS": "alice, bob"}], ids=["static", "dynamic"]
)
async def test_the_machine_prefers_another_job(tmp_path, slots):
    """RANK needs no PREEMPTION_REQUIREMENTS."""
    async with Pool(tmp_path, RANK='(TARGET.Owner == "bob") * 10', **slots) as pool:
        alice = await first_runs(pool)
        bob = await pool.run("bob")
        await both_end(pool, alice, bob, 1018)


@spec("PRE-02")
async def test_a_better_priority_preempts_where_the_policy_lets_it(tmp_path):
    policy = {"PREEMPTION_REQUIREMENTS": "RemoteUserPrio > SubmitterUserPrio * 1.2"}
    async with Pool(tmp_path, **policy, **STATIC) as pool:
        now = pool.negotiator.context.clock.now()
        pool.negotiator.accountant.change("alice@pool", "factor", 100000.0, now)
        alice = await first_runs(pool)
        bob = await pool.run("bob")
        await both_end(pool, alice, bob, 1019)


@spec("PRE-03")
async def test_without_a_policy_nobody_is_preempted(tmp_path):
    async with Pool(tmp_path, **STATIC) as pool:
        now = pool.negotiator.context.clock.now()
        pool.negotiator.accountant.change("alice@pool", "factor", 100000.0, now)
        await first_runs(pool)
        cycle = pool.negotiator.cycle
        bob = await pool.run("bob")
        await eventually(lambda: pool.negotiator.cycle > cycle, what="a cycle")
        assert (await pool.job_ad(bob))["JobStatus"] == 1
        assert pool.log() == ["alice begins"]
