"""Accounting groups that a schedd assigns by a map file, from the submit to the submitter ad (GRP-26, GRP-27;
worked example W-26)."""

import getpass

import pytest

from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.config import load_config
from shared.daemon.lifecycle import install_user_maps
from tests.scheddpool import USER, Pool, job_ad
from tests.spec import spec
from tests.waiting import eventually

ME = getpass.getuser()


@pytest.fixture
async def pool(tmp_path):
    """A schedd that assigns accounting groups by the file `map`."""
    (tmp_path / "map").write_text(f"* {ME} group_a,group_b\n")
    (tmp_path / "config").write_text(f"UID_DOMAIN = pool\nuse FEATURE : AssignAccountingGroup({tmp_path / 'map'})\n")
    config = load_config([tmp_path / "config"], subsystem="SCHEDD", env={})
    async with Pool(tmp_path, **{name: config.get(name) for name in config.names()}) as pool:
        yield pool


@spec("GRP-26", "W-26")
async def test_jobs_go_into_the_group_of_the_map(pool):
    done = await pool.submit(procs=2)
    assert (await pool.job(f"{done.cluster}.0"))["AccountingGroup"] == f"group_a.{ME}"
    asked = await pool.submit(job_ad(AcctGroup="group_b", AccountingGroup=f"group_b.{ME}"))
    assert (await pool.job(f"{asked.cluster}.0"))["AccountingGroup"] == f"group_b.{ME}"
    await eventually(lambda: pool.submitter(f"group_a.{USER}") and pool.submitter(f"group_b.{USER}"))
    assert pool.submitter(f"group_a.{USER}")["IdleJobs"] == 2


@spec("GRP-26")
async def test_jobs_of_one_cluster_may_ask_for_different_groups(pool):
    done = await pool.submit(procs=[ClassAd(), ClassAd({"AcctGroup": "group_b"})])
    jobs = await pool.jobs(f"{done.cluster}.0", f"{done.cluster}.1")
    assert [job["AccountingGroup"] for job in jobs] == [f"group_a.{ME}", f"group_b.{ME}"]
    await eventually(lambda: pool.submitter(f"group_b.{USER}"))


@spec("GRP-27", "W-26")
@pytest.mark.parametrize("where", ["cluster", "job"])
async def test_another_group_is_refused_and_nothing_is_queued(pool, where):
    asked = {"AcctGroup": "group_c", "AccountingGroup": f"group_c.{ME}"}
    jobs = {"cluster": {"ad": job_ad(**asked)}, "job": {"procs": [ClassAd(), ClassAd(asked)]}}
    with pytest.raises(RemoteFailure, match="You may not use accounting group group_c"):
        await pool.submit(**jobs[where])
    assert await pool.jobs() == []


@spec("GRP-26")
async def test_the_group_can_not_be_changed_afterwards(pool):
    done = await pool.submit()
    edits = ClassAd({"AccountingGroup": "group_c.x"}).pack()
    with pytest.raises(RemoteFailure, match="AccountingGroup: this pool lets nobody change it"):
        await pool.act("edit", f"{done.cluster}.0", edits=edits, admin=True)


@spec("GRP-26", "GRP-27")
async def test_the_map_is_read_anew_at_a_reconfiguration(pool, tmp_path):
    (tmp_path / "map").write_text("* somebody group_a\n")
    await pool.submit()  # not before
    await install_user_maps(pool.schedd)
    with pytest.raises(RemoteFailure, match=f"No accounting group is known for {ME}"):
        await pool.submit()
