"""Going to sleep and getting up: what becomes of slots (the manager), and in which order things happen (the part), with
stand-ins for the switch of the machine, for the bus and for what the slots' ads say (PWR-01, PWR-02, PWR-07)."""

import asyncio
from types import SimpleNamespace

import pytest
import structlog

from services.startd.components import hibernation
from services.startd.components.hibernation import Hibernation
from services.startd.core.machine.power_states import HibernationSettings, Level, Means
from services.startd.core.slots.model import VacateReason
from services.startd.core.slots.requests import Refused
from services.startd.machine.power_switch import StayedAwake
from shared.bus.api import CallTimeout
from shared.classad import ClassAd, parse_expr
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdCounts
from tests.spec import spec
from tests.unit.startd.states import ONE, PARTS, TWO, Slots
from tests.waiting import eventually

# -- the book


@spec("PWR-02")
def test_a_machine_that_lies_down_lends_nothing_and_ends_what_runs():
    slots = Slots(more=(TWO, PARTS))
    claim = slots.run(ONE)
    idle = slots.claim(TWO)
    slots.slot_manager.sleep(slots.now)
    slots.look()
    assert (slots.stops, claim.vacate_code) == ([(claim.run, "kill")], VacateReason.HIBERNATE)
    assert VacateReason.HIBERNATE == 1016  # HTCondor's VacateReasonCode
    assert idle.claim_id not in slots.slot_manager.claims
    for slot in (TWO, PARTS):
        answer = slots.ask(slot)
        assert isinstance(answer, Refused)
        assert answer.reason == "the machine goes to sleep"
    assert slots.slot_manager.in_use
    slots.gone(claim)
    assert not slots.slot_manager.in_use
    assert "goes to sleep" in slots.slot_manager.matched(ONE, slots.slot_manager.slots[ONE].offer, 1, "", slots.now)


def test_idle_slots_begin_their_state_anew_when_it_wakes():
    """Else the time that they were idle would at once send it to sleep again."""
    slots = Slots(more=(PARTS,))
    before = slots.slot_manager.slots[ONE].state_since
    slots.now += 5000
    slots.slot_manager.sleep(slots.now)
    slots.now += 60_000
    slots.slot_manager.wake(slots.now)
    slots.look()
    assert (
        before
        < slots.slot_manager.slots[ONE].state_since
        == slots.slot_manager.slots[PARTS].activity_since
        == slots.now
    )
    assert slots.claim(ONE).slot == ONE


# -- the part


class Inside:
    """A startd as the part sees it. `steps` has what was done, in order."""

    def __init__(self, *, kept=1, **rules):
        self.steps, self.kept = [], kept
        self.clock = SystemClock()
        found = HibernationSettings(**{"interval_s": 1, "hibernate": parse_expr('"RAM"'), "override_wol": True} | rules)
        self.settings = SimpleNamespace(power=found)
        self.name, self.detected = "node1", SimpleNamespace(interface=None)
        self.context = SimpleNamespace(clock=self.clock, log=structlog.get_logger(), bus=self)
        self.ad = ClassAd({"State": "Unclaimed"})
        self.ads = SimpleNamespace(
            add_source=lambda name, of: setattr(self, "shown", of), refresh=lambda: None, ad_of=lambda slot: self.ad
        )
        self.slot_manager = SimpleNamespace(slots={"slot1@node1": None}, in_use=False, sleep=self.sleep, wake=self.wake)
        self.runs = SimpleNamespace(by_key={})
        self.publisher = self.effects = self

    def now(self):
        return self.clock.now()

    def attributes_changed(self, slots=None, *, urgent=False):
        pass

    def look(self):
        pass

    def carry_out(self, effects):
        pass

    def sleep(self, now):
        self.steps.append("lie down")

    def wake(self, now):
        self.steps.append("rise")

    async def tell_all(self):
        self.steps.append("told offline" if "Offline" in self.shown(None) else "told awake")

    async def call(self, inbox, question):
        self.steps.append("asked")
        assert inbox == "collector"
        assert question.constraint == 'Machine == "node1" && Offline =?= true'
        if isinstance(self.kept, Exception):
            raise self.kept
        return AdCounts(values=[[]], counts=[self.kept])


class Switch:
    wish, plugin = "", ()

    def __init__(self, inside, *, fails=False):
        self.inside, self.fails = inside, fails
        self.levels, self.hold = frozenset({Level.S3, Level.S5}), None

    async def means(self):
        return Means("/sys", self.levels)

    async def enter(self, means, level):
        self.inside.steps.append(level.name)
        assert self.inside.shown(None)["HibernationLevel"] == level
        if self.fails:
            raise StayedAwake("no power")
        if self.hold is not None:
            await self.hold.wait()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(Hibernation, "settle_s", 0.0)
    monkeypatch.setattr(hibernation, "LOOK_S", 0.001)


def part_of(inside, **more):
    part = Hibernation(inside)
    part.switch = Switch(inside, **more)
    return part


SLEPT = ["lie down", "told offline", "asked", "S3", "rise", "told awake"]


async def checked(part):
    await part._look_around()
    await part._check()


@spec("PWR-07")
async def test_a_machine_sleeps_when_a_collector_has_its_ads():
    """Told and confirmed before, taken back after."""
    inside = Inside()
    part = part_of(inside)
    await checked(part)
    assert inside.steps == SLEPT
    shown = inside.shown(None)
    assert (shown["CanHibernate"], shown["HibernationState"], "Offline" in shown) == (True, "NONE", False)


async def test_what_fails_leaves_it_awake(monkeypatch):
    monkeypatch.setattr(hibernation, "KNOWN_S", 0.05)
    monkeypatch.setattr(hibernation, "EMPTY_S", 0.05)
    inside = Inside()
    await checked(part_of(inside, fails=True))
    assert inside.steps == SLEPT
    for trouble in (CallTimeout("collector"), 0):
        inside = Inside(kept=trouble)
        await checked(part_of(inside))
        assert "S3" not in inside.steps
        assert inside.steps[-2:] == ["rise", "told awake"]
    inside = Inside()
    inside.runs.by_key["1.0/1"] = "a run that does not end"
    await checked(part_of(inside))
    assert inside.steps == ["lie down", "rise", "told awake"]


@spec("PWR-02")
@pytest.mark.parametrize(
    "rules",
    [
        {"hibernate": None},
        {"hibernate": parse_expr('"NONE"')},
        {"hibernate": parse_expr("Nothing")},
        {"hibernate": parse_expr('"S4"')},  # which this machine does not know
        {"override_wol": False},
    ],
)
async def test_what_does_not_agree_or_can_not_changes_nothing(rules):
    inside = Inside(**rules)
    await checked(part_of(inside))
    assert inside.steps == []


@spec("PWR-01")
async def test_it_looks_at_its_interval_and_not_at_all_by_default():
    assert HibernationSettings().interval_s == 0
    off = Inside(interval_s=0)
    part = part_of(off)
    task = asyncio.create_task(part._watch())
    await eventually(lambda: not part._reread.is_set())
    assert off.shown(None) == {}
    # Switched on by a reconfigure.
    off.settings = Inside(interval_s=1).settings
    part.reread()
    await eventually(lambda: off.steps[:6] == SLEPT)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@spec("PWR-07")
async def test_a_daemon_that_is_stopped_with_its_machine_stays_offline():
    """What is switched off is woken by the ads that it leaves."""
    inside = Inside(hibernate=parse_expr('"OFF"'))
    part = part_of(inside)
    part.switch.hold = asyncio.Event()
    task = asyncio.create_task(checked(part))
    await eventually(lambda: "S5" in inside.steps)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert inside.steps == ["lie down", "told offline", "asked", "S5"]
    assert part.asleep is Level.S5


async def test_one_that_was_switched_off_and_is_still_there_gets_up(monkeypatch):
    monkeypatch.setattr(Hibernation, "off_s", 0.01)
    inside = Inside(hibernate=parse_expr('"OFF"'))
    await checked(part_of(inside))
    assert inside.steps == ["lie down", "told offline", "asked", "S5", "rise", "told awake"]
