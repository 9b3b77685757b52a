"""States of slots with real processes: suspended jobs stand still, policies see what jobs use, machines are drained."""

import pytest

from services.startd.components.noclaim_shutdown import LOOK_S, NoClaimShutdown
from services.startd.core.slots.drain import Completion, DrainMode, OffMode
from services.startd.rpc.admin_rpc import AdminRpc
from shared.config import load_config
from shared.daemon.shutdown_expression import Shutdown
from shared.messages.claims import ReleaseClaim
from shared.messages.orders import Drain, OrderTaken
from tests.scheddpool import Pool as AccessPoint
from tests.spec import spec
from tests.startd_pool import Machine, Pool
from tests.waiting import eventually

PATIENCE = 60
FLIPPED = {
    "STARTD_ATTRS": "Flip",
    "Flip": "0",
    "POLLING_INTERVAL": "1",
    "WANT_SUSPEND": "True",
    "SUSPEND": "Flip == 1",
    "CONTINUE": "Flip == 0",
    "NUM_SLOTS_TYPE_1": "1",
    "SLOT_TYPE_1": "100%",
    "SLOT_TYPE_1_PARTITIONABLE": "false",
}
SLOT = "slot1@node1"
COUNTS = "import time, sys\nwhile True:\n    open(sys.argv[1], 'a').write('x')\n    time.sleep(0.02)\n"


def flip(pool, **values):
    """As an administrator: set attributes, and have them looked at."""
    pool.startd.shared.ads.add_on_top("flipped", lambda slot, ad: values)
    pool.startd.shared.publisher.attributes_changed()
    pool.startd.shared.look()


async def counting(pool, path, **attrs):
    script = path / "counts.py"
    script.write_text(COUNTS)
    activation, granted = await pool.run(
        "/usr/bin/python3", Arguments=f"{script} {path / 'out'}", User="alice@pool", JobUniverse=5, **attrs
    )
    assert granted.activated, granted
    await pool.running(activation.job_id)
    await eventually(lambda: (path / "out").exists())
    return activation


@spec("TLS-20")
async def test_a_startd_switches_itself_off_as_its_ads_say(tmp_path):
    """It stays, and takes no jobs: as with `roost off`."""
    async with Pool(tmp_path) as pool:
        orders = pool.startd.shared.slot_manager
        for fast, expected in ((False, OffMode.GRACEFUL), (True, OffMode.FAST), (False, OffMode.FAST)):
            await pool.startd.switch_off(Shutdown(fast=fast, reason="idle"))
            assert orders.machine_orders.off is expected


@spec("TLS-21")
async def test_a_startd_that_nobody_claims_ends_for_good(tmp_path):
    async with Pool(tmp_path, STARTD_NOCLAIM_SHUTDOWN="3600") as pool:
        context = pool.startd.context
        watch = next(one for one in pool.startd.components if isinstance(one, NoClaimShutdown))
        _, granted = await pool.run("/bin/sleep", Arguments="1000")
        watch._claimed = float("-inf")
        assert 0 < watch.look() <= LOOK_S
        assert not context.over
        await pool.call(ReleaseClaim(claim_id=granted.claim_id))
        await eventually(lambda: not pool.startd.shared.slot_manager.claims)
        assert 0 < watch.look() <= LOOK_S
        assert not context.over
        watch._claimed = float("-inf")
        watch.look()
        assert context.over
        assert context.stopping.is_set()


async def stands_still(path):
    """Nothing is written between two looks, of which the second comes when other work was done."""
    seen = []

    def same():
        seen.append((path / "out").stat().st_size)
        return len(seen) > 20 and len(set(seen[-20:])) == 1

    await eventually(same)


async def goes_on(path):
    size = (path / "out").stat().st_size
    await eventually(lambda: (path / "out").stat().st_size > size)


async def condition(pool, wanted, slot=SLOT):
    await eventually(lambda: pool.conditions().get(slot) == wanted)


def phases(pool, job_id):
    found = pool.schedd.phases(job_id)
    return [phase for n, phase in enumerate(found) if n == 0 or found[n - 1] != phase]


@spec("STM-14", "STM-15")
async def test_a_suspended_job_stands_still_and_goes_on(tmp_path):
    async with Pool(tmp_path, **FLIPPED) as pool:
        job = await counting(pool, tmp_path)
        flip(pool, Flip=1)
        await condition(pool, "Claimed/Suspended")
        await pool.schedd.until(lambda: phases(pool, job.job_id) == ["running", "suspended"], PATIENCE)
        assert pool.schedd.reports[-1].usage.procs >= 1  # for the event of the job's log
        await stands_still(tmp_path)
        ad = pool.startd.shared.ads.ad_of(pool.startd.shared.slot_manager.slots[SLOT])
        assert ad.eval("NumJobSuspensions") == 1
        flip(pool, Flip=0)
        await condition(pool, "Claimed/Busy")
        await pool.schedd.until(lambda: phases(pool, job.job_id) == ["running", "suspended", "running"], PATIENCE)
        await goes_on(tmp_path)


@spec("STM-16", "STM-17")
async def test_a_suspended_job_that_must_leave_can(tmp_path):
    async with Pool(tmp_path, **FLIPPED, PREEMPT="Flip == 2") as pool:
        job = await counting(pool, tmp_path)
        flip(pool, Flip=1)
        await condition(pool, "Claimed/Suspended")
        flip(pool, Flip=2)
        end = await pool.schedd.end_of(job.job_id, timeout=PATIENCE)
        assert (end.exit.reason, end.exit.exit_signal, end.exit.vacate_code) == ("evicted", 15, 1011)
        await condition(pool, "Unclaimed/Idle")


async def test_a_restarted_startd_finds_its_jobs_suspended_as_they_were(tmp_path):
    async with Pool(tmp_path, **FLIPPED) as pool:
        await counting(pool, tmp_path)
        flip(pool, Flip=1)
        await condition(pool, "Claimed/Suspended")
        await stands_still(tmp_path)
        pool.macros["Flip"] = "1"
        await pool.restart()
        assert pool.conditions()[SLOT] == "Claimed/Suspended"
        await stands_still(tmp_path)
        flip(pool, Flip=0)
        await condition(pool, "Claimed/Busy")
        await goes_on(tmp_path)


async def test_who_is_preempted_is_held_where_the_policy_wants_that(tmp_path):
    macros = FLIPPED | {
        "WANT_SUSPEND": "False",
        "PREEMPT": "Flip == 1",
        "WANT_HOLD": "Flip == 1",
        "WANT_HOLD_REASON": '"too much"',
        "WANT_HOLD_SUBCODE": "77",
    }
    async with Pool(tmp_path, **macros) as pool:
        job = await counting(pool, tmp_path)
        flip(pool, Flip=1)
        end = await pool.schedd.end_of(job.job_id, timeout=PATIENCE)
        held = (end.exit.reason, end.exit.hold_code, end.exit.hold_subcode, end.exit.message)
        assert held == ("hold", 21, 77, "too much")


HOGS = "import time\nhog = bytearray(300 << 20)\nhog[::4096] = b'x' * len(hog[::4096])\ntime.sleep(600)\n"


@pytest.mark.parametrize(
    ("template", "reason", "code"),
    [("Hold_If_Memory_Exceeded", "hold", 102), ("Preempt_If_Memory_Exceeded", "evicted", 0)],
)
async def test_templates_go_by_what_a_job_uses(tmp_path, template, reason, code):
    script = tmp_path / "hogs.py"
    script.write_text(HOGS)
    config = tmp_path / "policy"
    config.write_text(f"use POLICY : {template}\n")
    macros = {
        "POLLING_INTERVAL": "1",
        "CGROUP_MEMORY_LIMIT_POLICY": "none",
        "STARTER_INITIAL_UPDATE_INTERVAL": "1",
        "STARTER_UPDATE_INTERVAL": "1",
    }
    async with Pool(tmp_path, Machine(cpus=2), **macros, **expanded(config)) as pool:
        job, granted = await pool.run("/usr/bin/python3", Arguments=str(script), RequestMemory=128)
        assert granted.activated, granted
        end = await pool.schedd.end_of(job.job_id, timeout=PATIENCE)
        assert (end.exit.reason, end.exit.hold_subcode) == (reason, code), end.exit


def expanded(path):
    """The macros that a file of configuration defines."""
    config = load_config([path])
    names = ("PREEMPT", "WANT_SUSPEND", "MAXJOBRETIREMENTTIME", "WANT_HOLD", "WANT_HOLD_REASON", "WANT_HOLD_SUBCODE")
    return {name: value for name in names if (value := config.get(name))}


@spec("TLS-07")
async def test_a_drained_machine_empties_tells_so_and_takes_jobs_again(tmp_path):
    async with Pool(tmp_path, **FLIPPED) as pool:
        job = await counting(pool, tmp_path)
        manager = pool.startd.shared.slot_manager
        refused, effects = manager.drain(
            "d1",
            now=pool.startd.shared.now(),
            how=DrainMode.QUICK,
            reason="a new kernel",
            completion=Completion.NOTHING,
        )
        assert refused is None
        pool.startd.shared.effects.carry_out(effects)
        end = await pool.schedd.end_of(job.job_id, timeout=PATIENCE)
        assert (end.exit.reason, end.exit.vacate_code) == ("evicted", 1014)
        await condition(pool, "Drained/Idle")
        ad = pool.startd.shared.ads.ad_of(manager.slots[SLOT])
        told = [ad.eval(name) for name in ("Draining", "DrainingRequestId", "DrainReason", "Requirements", "Start")]
        assert told == [True, "d1", "a new kernel", False, True]
        assert manager.machine_orders.badput > 0
        await pool.restart()
        await condition(pool, "Drained/Idle")
        startd = pool.startd.shared
        refused, effects = startd.slot_manager.cancel_drain("d1", startd.now())
        assert refused is None
        startd.effects.carry_out(effects)
        assert pool.conditions()[SLOT] == "Unclaimed/Idle"
        _, granted = await pool.run("/bin/true")
        assert granted.activated


@spec("STM-51")
async def test_a_machine_that_is_off_stays_off_over_a_restart(tmp_path):
    async with Pool(tmp_path, **FLIPPED) as pool:
        startd = pool.startd.shared
        startd.effects.carry_out(startd.slot_manager.off(OffMode.PEACEFUL, startd.now()))
        await pool.restart()
        assert pool.conditions()[SLOT] == "Drained/Idle"
        answer = await pool.call(pool.request(pool.activation()))
        assert answer.code == "draining"


@spec("SLT-29")
async def test_a_slot_shows_its_owner_and_loads(tmp_path):
    machine = Machine(cpus=2)
    machine.now = machine.now.__class__(disk_kib=10_000_000, load_avg=1.5, keyboard_idle_s=7, console_idle_s=90)
    macros = {
        "NUM_SLOTS_TYPE_1": "2",
        "SLOT_TYPE_1": "1/2",
        "SLOT_TYPE_1_PARTITIONABLE": "false",
        "SLOTS_CONNECTED_TO_KEYBOARD": "1",
        "DISCONNECTED_KEYBOARD_IDLE_BOOST": "5000",
        "STARTD_LATCH_EXPRS": "CpuBusy",
        "CpuBusy": "(LoadAvg - CondorLoadAvg) >= 0.5",
    }
    async with Pool(tmp_path, machine, **macros) as pool:

        def ads_now():
            pool.startd.shared.ads.renew()
            return [pool.startd.shared.ads.ad_of(slot) for slot in pool.startd.shared.slot_manager.slots.values()]

        await eventually(lambda: [ad.eval("LoadAvg") for ad in ads_now()] == [1.0, 0.5])
        ads = ads_now()
        assert [ad.eval("CondorLoadAvg") for ad in ads] == [0.0, 0.0]
        assert ads[0].eval("KeyboardIdle") == 7
        assert ads[1].eval("KeyboardIdle") >= 5000
        assert ads[0].eval("ConsoleIdle") >= 5000
        assert [ad.eval("CpuBusyValue") for ad in ads] == [1, 1]
        assert ads[0].eval("CpuBusyTime") > 0


@spec("STM-14", "STM-15")
async def test_the_access_point_counts_suspensions(tmp_path):
    async with AccessPoint(tmp_path) as pool:
        run = await pool.run_one()
        await pool.startd.report(run, "running", started_at=5.0)
        await pool.startd.report(run, "suspended")
        job = await pool.job("1.0")
        assert [job.eval(name) for name in ("JobStatus", "TotalSuspensions")] == [7, 1]
        assert job.eval("LastSuspensionTime") > 0
        await pool.startd.report(run, "running")
        await pool.startd.report(run, "suspended")
        await pool.startd.report(run, "running")
        job = await pool.job("1.0")
        told = [job.eval(name) for name in ("JobStatus", "TotalSuspensions", "LastSuspensionTime")]
        assert told == [2, 2, 0]
        assert job.eval("CumulativeSuspensionTime") >= 0


async def test_graceful_drains_take_the_jobs_of_DEFAULT_DRAINING_START_EXPR(tmp_path):
    macros = FLIPPED | {"MAXJOBRETIREMENTTIME": "600", "MachineMaxVacateTime": "5", "NUM_SLOTS_TYPE_1": "2"}
    macros |= {"SLOT_TYPE_1": "1/2", "DEFAULT_DRAINING_START_EXPR": "TARGET.Short =?= true", "WANT_SUSPEND": "false"}
    async with Pool(tmp_path, Machine(cpus=2), **macros) as pool:
        await counting(pool, tmp_path)
        command = next(part for part in pool.startd.components if isinstance(part, AdminRpc))
        assert isinstance(command._drain(Drain(request_id="d1", how="graceful", by="test")), OrderTaken)
        await condition(pool, "Drained/Retiring", "slot2@node1")
        refused = await pool.call(pool.request(pool.activation(), "slot2@node1"))
        assert refused.code == "requirements"
        granted = await pool.call(pool.request(pool.activation(Short=True), "slot2@node1"))
        assert granted.activated
        await pool.call(ReleaseClaim(claim_id=granted.claim_id))
        await condition(pool, "Drained/Retiring", "slot2@node1")


@pytest.mark.parametrize(
    ("knobs", "start", "code"),
    [
        ({"DEFRAG_DRAINING_START_EXPR": "true"}, "", "draining"),  # defrag's: it comes with defrag's orders
        ({"DEFAULT_DRAINING_START_EXPR": "true"}, "TARGET.Short =?= true", "requirements"),
        ({"DEFAULT_DRAINING_START_EXPR": "true"}, "false", "draining"),
    ],
)
async def test_what_a_drain_names_itself_goes_before_DEFAULT_DRAINING_START_EXPR(tmp_path, knobs, start, code):
    macros = FLIPPED | {"MAXJOBRETIREMENTTIME": "600", "NUM_SLOTS_TYPE_1": "2", "SLOT_TYPE_1": "1/2"} | knobs
    async with Pool(tmp_path, Machine(cpus=2), **macros | {"WANT_SUSPEND": "false"}) as pool:
        await counting(pool, tmp_path)
        command = next(part for part in pool.startd.components if isinstance(part, AdminRpc))
        assert isinstance(command._drain(Drain(request_id="d1", how="graceful", start=start)), OrderTaken)
        refused = await pool.call(pool.request(pool.activation(), "slot2@node1"))
        assert refused.code == code
