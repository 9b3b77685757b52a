"""Benchmarks of a startd, its own and others (CRN-12 to CRN-14, STM-03, STM-04, STM-58)."""

import subprocess
import sys

import pytest
import structlog

from services.startd.components.benchmarks import BUILT_IN
from shared.classad import parse_ad
from tests.spec import spec
from tests.startd_pool import Machine, Pool
from tests.waiting import eventually


def script(path, name, text):
    program = path / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def value(pool, name, slot="slot1@node1"):
    startd = pool.startd
    return startd.shared.ads.ad_of(startd.shared.slot_manager.slots[slot]).eval(name)


@pytest.fixture
def quick(tmp_path):
    """Benchmarks that are over at once, and count their runs."""
    (tmp_path / "runs").mkdir()
    macros = {}
    for name, attribute in (("mips", "Mips"), ("kflops", "KFlops")):
        count = f"n=$(ls {tmp_path}/runs | grep -c {name}); touch {tmp_path}/runs/{name}$n"
        text = f'{count}; echo "{attribute} = $((1000 + 400 * n))"'
        macros[f"BENCHMARKS_{name.upper()}_EXECUTABLE"] = script(tmp_path, name, text)
    return macros | {"RUNBENCHMARKS": "LastBenchmark == 0"}


@spec("CRN-12")
@pytest.mark.parametrize(("name", "attribute", "least"), [("mips", "Mips", 100), ("kflops", "KFlops", 10_000)])
def test_our_own_programs_measure_on_htcondors_scale(name, attribute, least):
    """What any machine of this century makes, and no Python counts would be."""
    command = BUILT_IN[name]
    assert command[0] == sys.executable
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    found = parse_ad(done.stdout, "old").eval(attribute)
    assert least < found < 1e9
    assert subprocess.run([*command[:-1], "x"], capture_output=True, timeout=100).returncode


@spec("CRN-14", "STM-03", "STM-04", "W-62")
async def test_benchmarks_run_once_by_themselves(tmp_path, quick):
    """One slot is Benchmarking, all show what was measured."""
    seen = []
    macros = quick | {"NUM_SLOTS_TYPE_1": 2, "SLOT_TYPE_1": "auto"}
    async with Pool(tmp_path, Machine(cpus=2), **macros) as pool:
        startd = pool.startd
        before = startd.shared.slot_manager.benchmarked

        def noted(name, now):
            seen.append(pool.conditions())
            return before(name, now)

        startd.shared.slot_manager.benchmarked = noted
        await eventually(lambda: value(pool, "LastBenchmark") > 0)
        assert [value(pool, name, "slot2@node1") for name in ("Mips", "KFlops")] == [1000, 1000]
        assert sorted(seen[0].values()) == ["Unclaimed/Benchmarking", "Unclaimed/Idle"]
        await eventually(lambda: set(pool.conditions().values()) == {"Unclaimed/Idle"})
        startd.shared.review()
        assert set(pool.conditions().values()) == {"Unclaimed/Idle"}
        assert len(list((tmp_path / "runs").iterdir())) == 2


@spec("CRN-13", "W-62")
async def test_benchmarks_run_again_when_the_expression_says_so(tmp_path, quick):
    """The manual's example, with a second instead of four hours; averages."""
    macros = quick | {"RUNBENCHMARKS": "(time() - LastBenchmark) >= 1"}
    async with Pool(tmp_path, **macros) as pool:
        await eventually(lambda: value(pool, "LastBenchmark") > 0)

        async def again():
            pool.startd.shared.review()
            return value(pool, "Mips") > 1000

        await eventually(again)
        assert value(pool, "Mips") == 1100


@spec("CRN-13")
async def test_false_disables_them_also_at_the_start(tmp_path, quick):
    async with Pool(tmp_path, **(quick | {"RUNBENCHMARKS": "FALSE"})) as pool:
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})
        pool.startd.shared.review()
        assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}
        assert value(pool, "LastBenchmark") == 0
        assert not list((tmp_path / "runs").iterdir())


@spec("CRN-13")
async def test_any_other_expression_runs_them_at_the_start(tmp_path, quick):
    """It is not true now, and need not be."""
    async with Pool(tmp_path, **(quick | {"RUNBENCHMARKS": "KeyboardIdle < -5"})) as pool:
        await eventually(lambda: value(pool, "LastBenchmark") > 0)
        assert (value(pool, "Mips"), value(pool, "KFlops")) == (1000, 1000)


@spec("STM-58")
async def test_there_are_none_in_owner(tmp_path, quick):
    async with Pool(tmp_path, **quick, IS_OWNER="true") as pool:
        pool.startd.shared.review()
        assert pool.conditions() == {"slot1@node1": "Owner/Idle"}
        assert not list((tmp_path / "runs").iterdir())


async def test_a_claim_ends_them(tmp_path, quick):
    """Who claims the slot has it for himself; they are tried again when it is free."""
    pid = tmp_path / "pid"
    slow = script(tmp_path, "slow", f"echo $$ > {pid}; sleep 1000")
    macros = quick | {"BENCHMARKS_MIPS_EXECUTABLE": slow, "NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "100%"}
    async with Pool(tmp_path, **macros) as pool:
        await eventually(lambda: pid.exists() and pid.read_text().strip())
        first = pid.read_text()
        assert pool.conditions() == {"slot1@node1": "Unclaimed/Benchmarking"}
        activation, _ = await pool.run("/bin/true")
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.exit_code == 0
        await eventually(lambda: not alive(first))
        await eventually(lambda: value(pool, "LastBenchmark") == 0)


def alive(pid):
    try:
        with open(f"/proc/{pid.strip()}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_one_that_fails_is_not_tried_without_end(tmp_path, quick):
    with structlog.testing.capture_logs() as logs:
        async with Pool(tmp_path, **(quick | {"BENCHMARKS_MIPS_EXECUTABLE": "/no/such"})) as pool:
            await eventually(lambda: value(pool, "LastBenchmark") > 0)
            await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})
            assert value(pool, "KFlops") == 1000
    assert any("/no/such can not be run" in one.get("reason", "") for one in logs)


async def test_without_any_the_slot_does_not_stay_benchmarking(tmp_path, quick):
    async with Pool(tmp_path, **(quick | {"BENCHMARKS_JOBLIST": "none"})) as pool:
        await eventually(lambda: value(pool, "LastBenchmark") > 0)
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})
