"""Our slots go where HTCondor's went, in histories recorded from its startd (tests/data/reference_states)."""

import json
from pathlib import Path

import pytest

from services.startd.core.slots.drain import Completion, DrainMode, OffMode
from services.startd.core.slots.transitions import Activity
from tests.unit.startd.states import ONE, PARTS, TWO, Slots
from tests.unit.startd.test_claims import job

HISTORIES = json.loads((Path(__file__).parents[2] / "data" / "reference_states" / "states.json").read_text())
#: A look in this many seconds; HTCondor's looks were one a second, and it was busy with other things then and when.
LOOK_S = 0.5
EARLY_S, LATE_S = 3.0, 1.5
#: What lasted less is passed through. There we may go another way:
#: HTCondor lets a suspended job retire for a moment when the machine is drained or vacated, and suspends it again; we
#: leave it as it is (STM-16, STM-17). Who leaves for a better match, or because its claim is given back, is Retiring
#: with us for no time where it has no retirement (STM-13); who ends while it retires is Claimed/Idle for no time. What
#: was emptied goes from Owner to Drained with us, there over Unclaimed (STM-36, STM-37).
PASSING_S = 0.3
PASSED = {
    "suspended_drain",
    "suspended_drain_no_retirement",
    "suspended_vacate",
    "shrinking_retirement_while_suspended",
    "drain_fast",
    "off_peaceful",
    "rank_preempt",
    "rank_preempt_want_vacate_false",
    "start_false_while_busy",
    "start_meta",
}
#: Off ends HTCondor's startd; ours is Drained then. What a released claim does to a running job is told differently.
AFTERWARDS = ("Owner/Idle", "Unclaimed/Idle", "Drained/Retiring", "Drained/Idle")


class Replay:
    def __init__(self, history):
        self.history = history
        self.names = {"slot1": PARTS, "slot1_1": "slot3_1@node1", "slot1_2": "slot3_2@node1"}
        partitionable = "slot1_1" in history["conditions"]
        if not partitionable:
            self.names = {"slot1": ONE, "slot2": TWO}
        more = (PARTS,) if partitionable else (TWO,) if "slot2" in history["conditions"] else ()
        self.start = 10_000.0
        self.slots = Slots(more=more, now=self.start - 5, **history["rules"])
        self.slots.flip |= {"Flip": 0, "Short": 0}
        self.jobs = iter([*history.get("jobs", ()), *[{}] * 9])
        self.claims, self.waits = {}, None
        self.seen = {}

    def job(self):
        return job(User="nobody@ref", **next(self.jobs))

    def tell(self, at, what, *args):
        slots = self.slots
        slots.now = self.start + at
        if what == "claim":
            where = PARTS if "_" in args[0] else self.names[args[0]]
            ad = self.job()
            self.claims[args[0]] = slots.claim(where, ad), ad
        elif what == "start":
            slots.start(*self.claims[args[0]])
        elif what in ("flip", "short"):
            slots.flip[what.capitalize()] = args[0]
        elif what == "drain":
            slots.drain(how=DrainMode(args[0]), completion=Completion(args[1]))
        elif what == "cancel":
            slots.slot_manager.cancel_drain("", slots.now)
        elif what == "vacate":
            slots.slot_manager.vacate_slot("", graceful=args[0] == "graceful", now=slots.now)
        elif what == "off":
            slots.slot_manager.off(OffMode(args[0]), slots.now)
        elif what == "wait":
            self.waits = slots.wait(ad=job(Liked=5))
        elif what == "release":
            slots.release(self.claims["slot1"][0])
        elif what == "forsake":
            slots.release(self.waits)
        else:
            assert what == "gone"
            (claim, _) = self.claims["slot1"]
            slots.gone(claim)

    def run(self):
        """Conditions by HTCondor's names of slots, each with its time."""
        end = self.start + self.history["until"]
        facts = [tuple(fact) for fact in self.history["facts"]]
        while facts or self.slots.now < end:
            if facts and self.start + facts[0][0] <= self.slots.now + LOOK_S:
                self.tell(*facts.pop(0))
            else:
                self.slots.after(LOOK_S)
            self.note()
        return self.seen

    def note(self):
        names = {ours: theirs for theirs, ours in self.names.items()}
        for name, _, _, after in self.slots.steps:
            if name in names:
                self.seen.setdefault(names[name], []).append([self.slots.now - self.start, after])
        self.slots.steps.clear()


def lasting(steps, until):
    """Without what was passed through at once."""
    ends = [*(at for at, _ in steps[1:]), until + 100]
    kept = [step for step, end in zip(steps, ends, strict=True) if end - step[0] >= PASSING_S]
    return [step for before, step in zip([None, *kept], kept, strict=False) if before is None or before[1] != step[1]]


def compared(history, name):
    """Our steps of a slot and HTCondor's, both without what is not compared."""
    mine, theirs, until = Replay(history).run()[name], history["conditions"][name], history["until"]
    if history["name"] in PASSED:
        mine, theirs = lasting(mine, until), lasting(theirs, until)
    mine = [step for step in mine if step[0] >= -4]
    if history["name"].startswith("off_"):
        mine = [step for step in mine if step[1] not in AFTERWARDS or step[0] < 0]
        theirs = [step for step in theirs if step[1] not in AFTERWARDS or step[0] < 0]
    mine, theirs = claimed(mine), claimed(theirs)
    if theirs[-1:] and theirs[-1][1] == "Preempting/Vacating" and mine[-1][1] == "Preempting/Killing":
        mine.pop()  # time to leave is over: HTCondor's starter kills the job by itself (STM-21 has it as we do)
    return mine, theirs


@pytest.mark.parametrize("history", HISTORIES, ids=[one["name"] for one in HISTORIES])
def test_slots_go_where_the_reference_went(history):
    for name in history["conditions"]:
        mine, theirs = compared(history, name)
        assert [what for _, what in mine] == [what for _, what in theirs], (mine, theirs)
        for (at, what), (then, _) in zip(mine, theirs, strict=True):
            assert then - EARLY_S <= at <= then + LATE_S, (what, at, then)


def claimed(steps):
    """From the first claim on, or everything where there is none."""
    first = next((n for n, (_, what) in enumerate(steps) if what == "Claimed/Idle"), None)
    if first is None:
        return [step for step in steps if step[0] >= 0]
    return steps[first:]


def test_the_histories_suspend_retire_vacate_kill_and_drain():
    seen = {what.split("/")[1] for one in HISTORIES for steps in one["conditions"].values() for _, what in steps}
    assert seen >= {Activity.BUSY, Activity.SUSPENDED, Activity.RETIRING, Activity.VACATING, Activity.KILLING}
    assert len(HISTORIES) >= 40
