"""Backfill with a stand-in for the BOINC client (BKF-01 to BKF-06, STM-07, STM-26 to STM-32)."""

import os

import pytest
import structlog

from shared.messages.base import Ack
from shared.messages.negotiation import MatchNotice, NoticedSlot
from tests.spec import spec
from tests.startd_pool import Machine, Pool
from tests.waiting import eventually

#: A daemon of its own, as BOINC's children may be: it leaves session and group, and does not mind SIGTERM.
CLIENT = """
trap '' TERM
echo "$$" >> {folder}/lives
setsid sh -c 'trap "" TERM; echo $$ >> {folder}/children; while :; do sleep 1000; done' &
echo "$@ in $(pwd -P) with $FLAVOUR"
while :; do sleep 1000; done
"""


@pytest.fixture
def boinc(tmp_path):
    folder = tmp_path / "boinc"
    folder.mkdir()
    program = folder / "client"
    program.write_text("#!/bin/sh" + CLIENT.format(folder=folder))
    program.chmod(0o755)
    knobs = {
        "ENABLE_BACKFILL": "TRUE",
        "BACKFILL_SYSTEM": "BOINC",
        "START_BACKFILL": "TRUE",
        "EVICT_BACKFILL": "FALSE",
        "BOINC_Executable": program,
        "BOINC_InitialDir": folder,
        "BOINC_Universe": "vanilla",
        "BOINC_Arguments": "--attach_project URL KEY",
        "BOINC_Environment": "FLAVOUR=sweet",
        "BOINC_Output": "out",
    }
    if os.geteuid() == 0:
        knobs["BOINC_Owner"] = "root"
    return folder, knobs


def pids(folder, name="lives"):
    path = folder / name
    return path.read_text().split() if path.exists() else []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def static(count):
    return {"NUM_SLOTS_TYPE_1": count, "SLOT_TYPE_1": "auto"}


async def busy(pool, folder, lives=1):
    await eventually(lambda: len(pids(folder)) >= lives and len(pids(folder, "children")) >= lives)
    await eventually(lambda: set(pool.conditions().values()) == {"Backfill/Busy"})


@spec("BKF-02", "BKF-05", "STM-07", "STM-26")
async def test_a_client_fills_an_idle_machine_and_leaves_with_all_it_started(tmp_path, boinc):
    """It goes when the startd goes."""
    folder, knobs = boinc
    async with Pool(tmp_path, **knobs, **static(1)) as pool:
        await busy(pool, folder)
        await eventually(lambda: (folder / "out").read_text().strip())
        text = (folder / "out").read_text().strip()
        assert text == f"--attach_project URL KEY in {folder.resolve()} with sweet"
    await eventually(lambda: not any(map(alive, pids(folder) + pids(folder, "children"))))


@spec("BKF-01", "BKF-02")
@pytest.mark.parametrize("change", [{"ENABLE_BACKFILL": "FALSE"}, {"START_BACKFILL": "undefined"}])
async def test_backfill_only_where_it_is_wanted(tmp_path, boinc, change):
    folder, knobs = boinc
    async with Pool(tmp_path, **(knobs | change)) as pool:
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})
        pool.startd.shared.review()
        assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}
        assert not pids(folder)


@spec("BKF-03", "W-60")
async def test_the_sample_policy(tmp_path, boinc):
    """After some time in the state, here one second; away when the machine is busy, and the owner's then."""
    folder, knobs = boinc
    mark = tmp_path / "busy"
    watch = tmp_path / "watch"
    watch.write_text(f"#!/bin/sh\n[ -e {mark} ] && echo 'MachineBusy = true' || echo 'MachineBusy = false'\n")
    watch.chmod(0o755)
    policy = {
        "StateTimer": "(time() - EnteredCurrentState)",
        "START_BACKFILL": "$(StateTimer) > 1 && MachineBusy =!= true",
        "EVICT_BACKFILL": "MachineBusy",
        "IS_OWNER": "MachineBusy =?= true",
        "STARTD_CRON_JOBLIST": "watch",
        "STARTD_CRON_WATCH_EXECUTABLE": watch,
        "STARTD_CRON_WATCH_PERIOD": "1s",
        "UPDATE_INTERVAL": "1",
    }
    async with Pool(tmp_path, **(knobs | policy), **static(1)) as pool:
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})
        await busy(pool, folder)
        mark.touch()
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Owner/Idle"})
        assert not any(map(alive, pids(folder) + pids(folder, "children")))
        mark.unlink()
        await busy(pool, folder, lives=2)


@spec("BKF-04", "BKF-06")
async def test_there_is_one_client_for_all_slots(tmp_path, boinc):
    """One slot's eviction ends it, and it comes again for the others."""
    folder, knobs = boinc
    async with Pool(tmp_path, Machine(cpus=3), **knobs, **static(3)) as pool:
        await busy(pool, folder)
        assert len(pids(folder)) == 1
        _, answer = await pool.run("/bin/sleep", Args="1000")
        assert answer.type == "claim.waiting"
        ready = await pool.schedd.until(lambda: next(iter(pool.schedd.ready), None))
        assert not alive(pids(folder)[0])
        assert not alive(pids(folder, "children")[0])
        await eventually(lambda: len(pids(folder)) == 2)
        await eventually(lambda: sorted(pool.conditions().values()).count("Backfill/Busy") == 2)
        assert ready.slot == "slot1@node1"
        assert pool.conditions()["slot1@node1"] == "Claimed/Idle"


@spec("BKF-06", "STM-28", "STM-29", "STM-31")
async def test_a_claim_gets_the_slot_when_the_client_and_its_children_are_gone(tmp_path, boinc):
    folder, knobs = boinc
    async with Pool(tmp_path, **knobs, **static(1)) as pool:
        await busy(pool, folder)
        activation = pool.activation(cmd="/bin/true")
        request = pool.request(activation)
        assert (await pool.call(request)).type == "claim.waiting"
        await pool.schedd.until(lambda: pool.schedd.ready)
        assert not any(map(alive, pids(folder) + pids(folder, "children")))
        assert (await pool.call(request)).type == "claim.granted"
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.exit_code == 0


@spec("STM-28", "STM-32")
async def test_a_match_ends_it_too(tmp_path, boinc):
    folder, knobs = boinc
    async with Pool(tmp_path, **knobs, **static(1)) as pool:
        await busy(pool, folder)
        offer = pool.startd.shared.slot_manager.slots["slot1@node1"].offer
        notice = MatchNotice(negotiator="n", epoch=1, shard="", slots=[NoticedSlot(slot="slot1@node1", claim_id=offer)])
        assert isinstance(await pool.call(notice), Ack)
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Matched/Idle"})
        assert not any(map(alive, pids(folder) + pids(folder, "children")))


@spec("STM-27")
async def test_a_client_that_ends_by_itself_is_started_again(tmp_path, boinc):
    """At once the first time."""
    folder, knobs = boinc
    async with Pool(tmp_path, **knobs, **static(1)) as pool:
        await busy(pool, folder)
        os.kill(int(pids(folder)[0]), 9)
        await busy(pool, folder, lives=2)
        assert not alive(pids(folder, "children")[0])


@spec("BKF-05")
async def test_a_client_that_can_not_be_had_is_told_and_the_slot_can_be_claimed(tmp_path, boinc):
    _, knobs = boinc
    with structlog.testing.capture_logs() as logs:
        async with Pool(tmp_path, **(knobs | {"BOINC_Universe": ""})) as pool:
            await eventually(lambda: pool.conditions()["slot1@node1"] in ("Unclaimed/Idle", "Backfill/Idle"))
            activation, _ = await pool.run("/bin/true")
            assert (await pool.schedd.end_of(activation.job_id)).exit.exit_code == 0
    assert any("BOINC_Universe is not defined" in one.get("problem", "") for one in logs)


async def test_a_program_that_can_not_be_run_is_tried_seldom(tmp_path, boinc):
    _, knobs = boinc
    with structlog.testing.capture_logs() as logs:
        async with Pool(tmp_path, **(knobs | {"BOINC_Executable": "/no/such"})) as pool:
            await eventually(lambda: sum(one["event"] == "backfill_client_failed" for one in logs) == 2)
            await eventually(lambda: pool.conditions() == {"slot1@node1": "Backfill/Idle"})
    assert sum(one["event"] == "backfill_client_failed" for one in logs) == 2
