"""A machine that fails every job stops offering itself, says so, and comes back by itself."""

import pytest

from services.startd.core.machine import health
from shared.messages.claims import ClaimRefused
from tests.spec import spec
from tests.startd_pool import Pool
from tests.waiting import eventually


@spec("SLT-32")
async def test_runs_that_fail_by_the_machines_fault_take_it_out_of_the_offer(tmp_path, monkeypatch):
    monkeypatch.setattr(health, "FIRST_S", 0.2)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text("#!/no/such/interpreter\n")
    wrapper.chmod(0o755)
    async with Pool(tmp_path / "pool", USER_JOB_WRAPPER=str(wrapper)) as pool:
        assert pool.startd.shared.slot_manager.broken == ""
        for _ in range(3):
            assert pool.startd.shared.slot_manager.broken == ""
            activation, _ = await pool.run("/bin/true")
            assert (await pool.schedd.end_of(activation.job_id)).exit.reason == "failed"
        manager = pool.startd.shared.slot_manager
        assert "3 runs in a row failed here: USER_JOB_WRAPPER" in manager.broken
        refused = await pool.call(pool.request())
        assert isinstance(refused, ClaimRefused)
        assert "USER_JOB_WRAPPER" in refused.reason
        slot = manager.slots["slot1@node1"]
        ad = pool.startd.shared.ads.ad_of(slot)
        assert ad.eval("MachineBrokenReason") == manager.broken
        assert ad.eval("MachineBrokenUntil") > 0
        assert ad.eval("OfflineUniverses")[-2:] == ["Vanilla", 5]
        # The check finds nothing wrong with the file: on trial, one failure is enough; mended, it takes jobs again.
        await eventually(lambda: manager.broken == "")
        assert pool.conditions()["slot1@node1"] == "Unclaimed/Idle"
        activation, _ = await pool.run("/bin/true")
        await pool.schedd.end_of(activation.job_id)
        await eventually(lambda: "4 runs in a row" in manager.broken)
        wrapper.write_text('#!/bin/sh\nexec "$@"\n')
        await eventually(lambda: manager.broken == "")
        activation, _ = await pool.run("/bin/true")
        assert (await pool.schedd.end_of(activation.job_id)).exit.exit_code == 0
        ad = pool.startd.shared.ads.ad_of(slot)
        assert ad.eval_string("MachineBrokenReason") == ""


@spec("SLT-32")
@pytest.mark.parametrize("mended", ["by itself", "reconfig"])
async def test_a_wrapper_that_is_not_there_is_seen_at_the_start(tmp_path, monkeypatch, mended):
    monkeypatch.setattr(health, "FIRST_S", 0.2 if mended == "by itself" else 1000.0)
    wrapper = tmp_path / "wrapper"
    async with Pool(tmp_path / "pool", USER_JOB_WRAPPER=str(wrapper)) as pool:
        manager = pool.startd.shared.slot_manager
        assert manager.broken == f"USER_JOB_WRAPPER = {wrapper} is not there"
        assert pool.conditions()["slot1@node1"] == "Owner/Idle"
        wrapper.write_text('#!/bin/sh\nexec "$@"\n')
        wrapper.chmod(0o755)
        if mended == "reconfig":
            await pool.startd.reconfigure()
        await eventually(lambda: pool.conditions()["slot1@node1"] == "Unclaimed/Idle")
        activation, _ = await pool.run("/bin/true")
        assert (await pool.schedd.end_of(activation.job_id)).exit.exit_code == 0
