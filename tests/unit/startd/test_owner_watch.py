"""Whose the machine's load is, when somebody last typed, and since when an expression has its value (SLT-29)."""

import os

import pytest

from services.startd.components.owner_watch import idle
from services.startd.core.machine.detected import Sample
from services.startd.core.machine.owner_activity import FADE_S, JobLoad, JobLoads, Latches, share_load
from services.startd.machine.detection import Console
from shared.classad import UNDEFINED, ClassAd, parse_expr
from tests.unit.startd.states import ONE, PARTS, TWO, Slots
from tests.unit.startd.test_claims import job


def test_load_that_jobs_do_not_make_goes_to_idle_slots_first_and_one_to_each():
    slots = Slots(more=(TWO, PARTS))
    slots.run(ONE)
    shares, jobs = share_load(slots.slot_manager.slots.values(), 2.5, {})
    assert {name: one.load for name, one in shares.items()} == {TWO: 1.0, PARTS: 1.0, ONE: 0.5}
    assert jobs == 0
    shares, _ = share_load(slots.slot_manager.slots.values(), 20.0, {})
    assert [one.load for one in shares.values()] == [1.0] * 3


def test_a_jobs_load_is_its_slots():
    slots = Slots(more=(TWO,))
    claim = slots.run(ONE, job(2))
    loads = JobLoads()
    for second in range(0, 1200, 5):
        loads.measured(claim.run, 2.0 * second, float(second))
    shares, jobs = share_load(slots.slot_manager.slots.values(), 2.5, loads.of)
    assert (shares[ONE].job, shares[ONE].load, shares[TWO].load) == (2.0, 2.0, 0.5)
    assert jobs == 2.0
    loads.over(claim.run)
    assert share_load(slots.slot_manager.slots.values(), 0.0, loads.of)[1] == 0


def test_a_jobs_load_fades_in_and_out_like_the_kernels():
    load = JobLoad()
    load.measured(100.0, 0.0)
    assert load.load == 0.0
    load.measured(100.0 + FADE_S, FADE_S)
    assert load.load == pytest.approx(1 - 1 / 2.718281828)
    load.measured(100.0 + FADE_S, 2 * FADE_S)
    assert load.load == pytest.approx((1 - 1 / 2.718281828) / 2.718281828)
    load.measured(0.0, 2 * FADE_S + 1)  # another container under the same name
    assert load.load >= 0


class Knobs:
    slots_at_console, slots_at_keyboard, idle_boost = 2, 1, 1200


@pytest.mark.parametrize(("slot", "seen"), [(1, (7, 90)), (2, (90, 90)), (3, (1210, 1210))])
def test_who_sees_the_keyboard_and_the_console(slot, seen):
    assert idle(slot, Sample(keyboard_idle_s=7, console_idle_s=90), Knobs, 10.0) == seen


def test_the_console_is_its_devices_and_the_keyboards_interrupts(tmp_path):
    (tmp_path / "mouse").write_text("")
    os.utime(tmp_path / "mouse", (5000, 5000))
    interrupts = tmp_path / "interrupts"
    lines = "  CPU0 CPU1\n  1: {0} 7 IO-APIC 1-edge i8042\n 24: 99 99 PCI nvme\n 12: 3 3 IO-APIC i8042\n"
    interrupts.write_text(lines.format(1))
    console = Console(("mouse", "nothing"), tmp_path, interrupts, boot=1000.0)
    assert console.idle(5060.0) == (60, 60)
    interrupts.write_text(lines.format(2))
    assert console.idle(5100.0) == (0, 0)
    assert console.idle(5130.0) == (30, 30)
    interrupts.unlink()
    assert console.idle(5200.0) == (200, 200)


def test_a_machine_that_nobody_uses_is_idle_since_it_was_booted(tmp_path):
    assert Console((), tmp_path, tmp_path / "none", boot=1000.0).idle(1500.0) == (500, 500)


def test_a_latch_tells_since_when():
    latches, names = Latches(), {"CpuBusy": parse_expr("LoadAvg >= 0.5"), "Name": parse_expr("Nothing")}

    def seen(load, now):
        found = latches.look("slot1", ClassAd({"LoadAvg": load}), names, now)
        return found["CpuBusyValue"], found["CpuBusyTime"], found["NameValue"], found["NameTime"]

    assert seen(0.1, 100.5) == (0, 100, UNDEFINED, 100)
    assert seen(0.2, 200) == (0, 100, UNDEFINED, 100)
    assert seen(0.7, 300) == (1, 300, UNDEFINED, 100)
    latches.keep(("slot2",))
    assert seen(0.7, 400) == (1, 400, UNDEFINED, 400)
