"""Schedd cron with real programs (CRN-11)."""

import structlog

from shared.classad import ClassAd
from tests.daemons import make_context
from tests.scheddpool import Pool
from tests.spec import spec
from tests.waiting import eventually


def script(path, name, text):
    program = path / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def cron(*jobs):
    macros = {"SCHEDD_CRON_JOBLIST": " ".join(name for name, *_ in jobs)}
    for name, executable, own in jobs:
        values = {"EXECUTABLE": executable, "MODE": "OneShot"} | own
        macros |= {f"SCHEDD_CRON_{name.upper()}_{knob}": value for knob, value in values.items()}
    return macros


def told(pool, name):
    """What the pool knows of the access point."""
    for _, _, row in pool.ads.rows("Scheduler"):
        return ClassAd.unpack(row.packed()).eval(name)
    return None


@spec("CRN-11")
async def test_an_access_point_has_one_ad_for_each_job(tmp_path):
    """No names, so each dash replaces all of it; SLOTS and selectors mean nothing."""
    program = script(
        tmp_path, "x", "printf 'A = 1\\nB = 1\\n- one\\nSlotId = 1\\nName = \"x\"\\nA = 2\\n- two update:true\\n'"
    )
    other = script(tmp_path, "y", "echo 'Free = 7'")
    async with Pool(tmp_path, **cron(("x", program, {}), ("y", other, {"PREFIX": "Disk"}))) as pool:
        cron_ads = pool.schedd.cron
        await eventually(lambda: cron_ads.attributes().eval("A") == 2 and "DiskFree" in cron_ads.attributes())
        found = cron_ads.attributes()
        assert "B" not in found
        assert not {"name", "slotid"} & {name.lower() for name in found}
        assert isinstance(found.eval("DiskLastUpdate"), int)
        await eventually(lambda: told(pool, "A") == 2)


@spec("CRN-11", "CRN-08")
async def test_its_jobs_are_read_at_the_start_and_run_again_at_a_reconfiguration(tmp_path):
    """CRN-11: a change needs a restart; CRN-08: RECONFIG_RERUN."""
    count = tmp_path / "count"
    program = script(tmp_path, "x", f'echo x >> {count}; echo "Runs = $(wc -l < {count})"')
    macros = cron(("x", program, {"RECONFIG_RERUN": "true"}))
    async with Pool(tmp_path, **macros) as pool:
        await eventually(lambda: pool.schedd.cron.attributes().eval("Runs") == 1)
        pool.schedd.context.config = make_context("SCHEDD", config=cron(("new", "/bin/true", {}))).config
        await pool.schedd.reconfigure()
        await eventually(lambda: pool.schedd.cron.attributes().eval("Runs") == 2)


@spec("CRN-10")
async def test_a_failing_or_missing_program_does_no_harm(tmp_path):
    """For access points."""
    bad = script(tmp_path, "bad", "echo because >&2; exit 2")
    macros = cron(("bad", bad, {}), ("none", "/no/such", {}), ("vague", "here", {}))
    with structlog.testing.capture_logs() as logs:
        async with Pool(tmp_path, **macros, SCHEDD_CRON_LOG_NON_ZERO_EXIT="true") as pool:
            await eventually(lambda: any(one["event"] == "cron_job_exit" for one in logs))
            await eventually(lambda: any("/no/such can not be run" in one.get("reason", "") for one in logs))
            assert await pool.submit()
    assert any("give the full path" in one.get("problem", "") for one in logs)
