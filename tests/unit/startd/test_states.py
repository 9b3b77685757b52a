"""Every way of a slot from one State and Activity to another, by the rows of the table: what takes it, and what not."""

import pytest

from services.startd.ads.drain_ads import drain_attributes
from services.startd.ads.slot_ads import times_in_conditions
from services.startd.core.journal_records import pack_claim, unpack_claim
from services.startd.core.slots import diagram
from services.startd.core.slots.drain import Completion, DrainMode, MachineOrders, OffMode, expected_drain
from services.startd.core.slots.guards import GUARDS
from services.startd.core.slots.model import Urgency, VacateReason
from services.startd.core.slots.requests import Granted, Refused
from services.startd.core.slots.transitions import TABLE, Activity, Cause, State, step
from shared.classad import unparse
from tests.spec import spec
from tests.unit.startd.states import LIKED, ONE, PARTS, TWO, Slots
from tests.unit.startd.test_claims import job, policy, request

STANDS = {"want_suspend": "true", "suspend": "Flip == 1", "continue_": "Flip == 0"}


# ---------------------------------------------------------------- Owner, Unclaimed, Matched


@spec("STM-40", "STM-01", "STM-A")
def test_a_slot_begins_in_owner_and_is_unclaimed_at_the_first_look():
    slots = Slots()
    assert slots.steps == [(ONE, "Owner/Idle", Cause.AVAILABLE, "Unclaimed/Idle")]


@spec("STM-01", "STM-02", "STM-A", "STM-B")
def test_is_owner_moves_an_idle_slot_to_and_fro():
    slots = Slots(is_owner="Flip == 1")
    slots.after(1, Flip=1)
    assert slots.at() == "Owner/Idle"
    slots.after(1, Flip=0)
    assert slots.at() == "Unclaimed/Idle"


@spec("W-50")
@pytest.mark.parametrize(
    ("start", "state"),
    [('Flip > 900 && TARGET.Owner == "coltrane"', "Owner"), ('Flip > 900 || TARGET.Owner == "coltrane"', "Unclaimed")],
)
def test_start_under_desktop(start, state):
    slots = Slots(start=start, is_owner="START =?= false")
    slots.after(0, Flip=34)
    assert slots.at() == f"{state}/Idle"


@spec("STM-41")
def test_times_of_entry_are_set_with_every_change():
    slots = Slots()
    slot = slots.slot_manager.slots[ONE]
    slots.now += 10
    claim = slots.claim()
    assert (slot.state_since, slot.activity_since) == (1010, 1010)
    slots.now += 10
    slots.start(claim)
    assert (slot.state_since, slot.activity_since) == (1010, 1020)


@spec("STM-03", "STM-04")
def test_benchmarks_are_done_one_slot_at_a_time():
    slots = Slots(more=(TWO,), run_benchmarks="Flip == 1")
    slots.after(1, Flip=1)
    assert (slots.at(ONE), slots.at(TWO)) == ("Unclaimed/Benchmarking", "Unclaimed/Idle")
    slots.slot_manager.benchmarked(ONE, slots.now)
    slots.flip["Flip"] = 0
    assert slots.at(ONE) == "Unclaimed/Idle"


@spec("STM-58")
def test_owner_is_spared_benchmarks():
    slots = Slots(run_benchmarks="true", is_owner="true")
    assert slots.at() == "Owner/Idle"


@spec("STM-05")
def test_who_claims_a_slot_does_not_wait_for_its_benchmarks():
    slots = Slots(run_benchmarks="Flip == 1")
    slots.after(1, Flip=1)
    slots.run()
    assert slots.at() == "Claimed/Busy"
    slots.slot_manager.benchmarked(ONE, slots.now)
    assert slots.at() == "Claimed/Busy"


@spec("STM-05", "STM-D")
def test_an_unclaimed_slot_is_claimed_at_once():
    slots = Slots()
    slots.claim()
    assert slots.way() == ["Unclaimed/Idle", "Claimed/Idle"]


@spec("STM-06", "STM-09", "STM-C", "STM-G")
def test_a_match_notice_before_the_claim():
    slots = Slots()
    slots.slot_manager.matched(ONE, slots.slot_manager.slots[ONE].offer, 1, "", slots.now)
    slots.claim()
    assert slots.way() == ["Unclaimed/Idle", "Matched/Idle", "Claimed/Idle"]


def matched(**rules):
    slots = Slots(**rules)
    assert slots.slot_manager.matched(ONE, slots.slot_manager.slots[ONE].offer, 1, "", slots.now) == ""
    slots.way()
    return slots


@spec("STM-08", "STM-F")
def test_a_match_expires():
    slots = matched()
    slots.after(119)
    assert slots.at() == "Matched/Idle"
    slots.after(1)
    assert slots.way() == ["Owner/Idle", "Unclaimed/Idle"]


@spec("STM-08", "STM-F")
def test_a_match_ends_by_a_wrong_claim_a_command_or_a_drain():
    slots = matched(start="TARGET.Good =?= true")
    assert isinstance(slots.ask(), Refused)
    assert slots.way() == ["Owner/Idle", "Unclaimed/Idle"]
    slots = matched()
    slots.slot_manager.vacate_slot(ONE, graceful=True, now=slots.now)
    assert slots.way() == ["Owner/Idle", "Unclaimed/Idle"]
    slots = matched()
    slots.drain()
    assert slots.way() == ["Owner/Idle", "Drained/Retiring", "Drained/Idle"]


@spec("STM-08")
def test_only_a_match_that_came_to_nothing_costs_the_claim_id():
    """While nobody was promised the slot, a negotiator's match of the next moment may still open it."""
    slots = Slots(is_owner="Flip == 1")
    offer = slots.slot_manager.slots[ONE].offer
    slots.after(1, Flip=1)
    slots.after(1, Flip=0)
    assert slots.way()[-2:] == ["Owner/Idle", "Unclaimed/Idle"]
    assert slots.slot_manager.slots[ONE].offer == offer
    slots = matched()
    offer = slots.slot_manager.slots[ONE].offer
    slots.after(120)
    assert slots.at() == "Unclaimed/Idle"
    assert slots.slot_manager.slots[ONE].offer not in ("", offer)


@spec("STM-08")
def test_requirements_are_not_looked_at_again_in_matched():
    slots = matched(start="Flip == 0", is_owner="Flip == 1")
    slots.after(1, Flip=1)
    assert slots.at() == "Matched/Idle"


# ---------------------------------------------------------------- Claimed


@spec("STM-11", "STM-12")
def test_a_claim_starts_one_job_after_the_other():
    slots = Slots()
    claim = slots.run()
    slots.gone(claim)
    assert not isinstance(slots.start(claim), Refused)
    assert slots.way()[1:] == ["Claimed/Idle", "Claimed/Busy", "Claimed/Idle", "Claimed/Busy"]


@spec("STM-10", "STM-H", "STM-23")
@pytest.mark.parametrize("why", ["release", "vacate", "start", "worklife", "drain", "better"])
def test_an_idle_claim_ends(why):
    slots = Slots(start="Flip == 0 || TARGET.Liked =?= 3", claim_worklife="100")
    claim = slots.run()
    slots.gone(claim)
    slots.way()
    owner = ["Preempting/Vacating", "Owner/Idle"]
    if why == "release":
        slots.release(claim)
    elif why == "vacate":
        slots.slot_manager.vacate_slot(ONE, graceful=True, now=slots.now)
    elif why == "start":
        slots.after(1, Flip=1)
    elif why == "worklife":
        slots.after(101)
    elif why == "drain":
        slots.drain()
        assert slots.way() == [*owner, "Drained/Retiring", "Drained/Idle"]
        return
    else:
        answer = slots.ask(ad=job(Liked=3), submitter="bob")
        assert isinstance(answer, Granted)
        assert slots.way() == ["Preempting/Vacating", "Claimed/Idle"]  # STM-23
        return
    assert slots.way() == [*owner, "Unclaimed/Idle"]


@spec("STM-10")
@pytest.mark.parametrize(("start", "ends"), [("Flip == 0", True), ("Nothing", False), ("TARGET.Owner =!= 7", False)])
def test_a_claim_between_jobs_ends_where_start_is_false_for_its_last_one(start, ends):
    """What is undefined is not false: a job that says more may come."""
    slots = Slots(start="true")
    claim = slots.run()
    slots.gone(claim)
    slots.rules[0] = policy(rank=LIKED, start=start)
    slots.after(1, Flip=1)
    assert slots.at() == ("Unclaimed/Idle" if ends else "Claimed/Idle")
    assert not ends or isinstance(slots.start(claim), Refused)


@spec("STM-01")
def test_slots_tell_how_long_they_were_in_each_condition():
    """What they are in now goes on growing by itself, in the same words."""
    slots = Slots(want_suspend="true", suspend="Flip == 1", continue_="Flip == 0")
    slots.after(10)
    claim = slots.run()
    slots.after(20)
    slots.after(0, Flip=1)
    slots.after(5)
    slots.after(0, Flip=0)
    slots.after(7)
    told = times_in_conditions(slots.slot_manager.slots[ONE])
    assert told.eval("TotalTimeUnclaimedIdle") == 10
    assert told.eval("TotalTimeClaimedSuspended") == 5
    assert told.eval_string("TotalTimeClaimedIdle") == ""
    assert unparse(told.lookup("TotalTimeClaimedBusy")) == f"20 + (time() - {int(slots.now) - 7})"
    assert "TotalTimeDrainedIdle" not in told
    slots.gone(claim)
    slots.after(3)
    assert times_in_conditions(slots.slot_manager.slots[ONE]).eval("TotalTimeClaimedBusy") == 27


@spec("STM-13", "STM-18", "STM-22", "STM-J", "STM-50", "STM-57")
def test_preempt_makes_a_job_retire_then_leave():
    slots = Slots(preempt="Flip == 1", max_job_retirement_time="60", machine_max_vacate_time="10")
    claim = slots.run()
    slots.way()
    slots.after(5, Flip=1)
    slots.after(44)
    assert slots.way() == ["Claimed/Retiring"]
    slots.after(1)  # 10 s before the end of its retirement (STM-50)
    slots.gone(claim)
    assert slots.way() == ["Preempting/Vacating", "Owner/Idle", "Unclaimed/Idle"]
    assert slots.stops == [(slots.ended[0].claim.run or "2.0/1", "ask")]
    assert slots.ended[0].broken  # STM-57


@spec("STM-44")
@pytest.mark.parametrize("value", ["undefined", "NoSuchThing", '"true"', "error", "false"])
def test_want_suspend_must_be_exactly_true(value):
    slots = Slots(want_suspend=value, suspend="true", preempt="Flip == 1")
    slots.run()
    assert slots.at() == "Claimed/Busy"
    slots.after(1, Flip=1)
    assert slots.at() == "Preempting/Vacating"


@spec("STM-44")
def test_preempt_waits_behind_want_suspend():
    slots = Slots(want_suspend="true", suspend="false", preempt="true")
    slots.run()
    slots.after(10)
    assert slots.at() == "Claimed/Busy"


@spec("STM-14", "STM-15")
def test_a_job_is_suspended_and_goes_on():
    slots = Slots(**STANDS)
    claim = slots.run()
    slots.after(10, Flip=1)
    assert (slots.at(), slots.suspensions) == ("Claimed/Suspended", [True])
    slots.after(30, Flip=0)
    assert (slots.at(), slots.suspensions) == ("Claimed/Busy", [True, False])
    assert (claim.suspended_s, claim.suspensions, claim.run_time(slots.now)) == (30, 1, 10)


def test_what_suspends_and_continues_at_once_does_so_once_a_look():
    slots = Slots(want_suspend="true", suspend="true", continue_="true")
    slots.run()
    assert slots.suspensions == [True]
    slots.after(1)
    assert slots.suspensions == [True, False]


def user_suspends(slots, claim, suspended):
    refused = slots.slot_manager.suspend(claim.claim_id, claim.run, suspended=suspended, now=slots.now)
    slots.look()
    return refused


@spec("STM-59")
def test_what_its_user_suspends_goes_on_when_the_user_says_so():
    slots = Slots(continue_="true", max_job_retirement_time="100")
    claim = slots.run()
    assert not user_suspends(slots, claim, True)
    assert (slots.at(), slots.suspensions) == ("Claimed/Suspended", [True])
    slots.after(1000)
    assert slots.at() == "Claimed/Suspended"
    kept, _ = unpack_claim(pack_claim(claim, slots.slot_manager.slots[ONE]))
    assert kept.by_user
    assert not user_suspends(slots, claim, True)  # told again
    assert not user_suspends(slots, claim, False)
    assert (slots.at(), slots.suspensions) == ("Claimed/Busy", [True, False])
    assert not user_suspends(slots, claim, False)
    assert (slots.at(), claim.suspensions, claim.run_time(slots.now)) == ("Claimed/Busy", 1, 0.0)


@spec("STM-59")
def test_a_user_has_no_say_over_what_the_machine_suspended():
    slots = Slots(**STANDS)
    claim = slots.run()
    slots.after(1, Flip=1)
    assert not user_suspends(slots, claim, False)
    assert slots.at() == "Claimed/Suspended"
    assert not user_suspends(slots, claim, True)  # from now on both want it
    slots.after(1, Flip=0)
    assert slots.at() == "Claimed/Suspended"
    assert not user_suspends(slots, claim, False)
    assert slots.at() == "Claimed/Busy"


@spec("STM-59")
def test_a_run_that_its_user_suspended_leaves_and_ends_as_any_other():
    slots = Slots(continue_="true", preempt="Flip == 2", max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    user_suspends(slots, claim, True)
    slots.wait(ad=job(Liked=3))
    slots.after(1)
    assert slots.at() == "Claimed/Suspended"  # a better claim waits until it goes on
    user_suspends(slots, claim, False)
    assert slots.at() == "Claimed/Retiring"
    assert not user_suspends(slots, claim, True)
    assert slots.at() == "Claimed/Suspended"
    slots.after(1, Flip=2)
    assert (slots.at(), claim.by_user) == ("Claimed/Retiring", False)
    slots.after(200)
    assert slots.at() == "Preempting/Vacating"
    assert user_suspends(slots, claim, True).code == "leaving"
    slots.gone(claim)
    assert user_suspends(slots, claim, True).code == "unknown-run"


@spec("STM-12")
def test_a_suspended_job_may_end():
    slots = Slots(**STANDS)
    claim = slots.run()
    slots.after(1, Flip=1)
    slots.gone(claim)
    assert (slots.at(), claim.suspended_at, slots.suspensions) == ("Claimed/Idle", 0.0, [True])


@spec("STM-16", "STM-52")
def test_preempt_ends_a_suspension_for_good():
    slots = Slots(**STANDS, preempt="Flip == 2", max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    slots.after(10, Flip=1)
    slots.after(10, Flip=2)
    assert (slots.at(), slots.suspensions) == ("Claimed/Retiring", [True, False])
    slots.after(10, Flip=0)
    assert slots.at() == "Claimed/Retiring"
    assert slots.slot_manager.next_look(slots.now) == 1000 + 10 + 100 - 10  # what was suspended does not count
    slots.after(69)
    assert slots.at() == "Claimed/Retiring"
    slots.after(1)
    assert (slots.at(), claim.vacate_code) == ("Preempting/Vacating", VacateReason.PREEMPT)


@spec("STM-16")
def test_a_suspended_job_that_is_preempted_by_a_match_goes_on_to_retire():
    slots = Slots(**STANDS, max_job_retirement_time="100", machine_max_vacate_time="10")
    slots.run()
    slots.after(1, Flip=1)
    slots.wait(ad=job(Liked=3))
    assert slots.at() == "Claimed/Suspended"
    slots.after(1, Flip=0)
    assert slots.at() == "Claimed/Retiring"


@spec("STM-17")
def test_retirement_that_ends_while_suspended():
    rules = {"max_job_retirement_time": "ifThenElse(Short =?= 1, 0, 100)", "machine_max_vacate_time": "10"}
    slots = Slots(**STANDS, **rules)
    slots.run()
    slots.after(1, Flip=1)
    slots.wait(ad=job(Liked=3))
    slots.after(1000)
    assert slots.at() == "Claimed/Suspended"
    slots.after(1, Short=1)
    assert (slots.at(), slots.suspensions) == ("Preempting/Vacating", [True, False])
    assert slots.stops[-1][1] == "ask"


@spec("STM-18")
def test_a_job_that_ends_in_its_retirement_leaves_the_slot_at_once():
    slots = Slots(max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    slots.wait(ad=job(Liked=3))
    slots.way()
    slots.gone(claim)
    assert slots.way() == ["Claimed/Idle", "Preempting/Vacating", "Claimed/Idle"]


@spec("STM-19")
def test_who_retires_for_a_match_stays_when_that_goes():
    slots = Slots(max_job_retirement_time="100", machine_max_vacate_time="10")
    slots.run()
    better = slots.wait(ad=job(Liked=3))
    assert slots.at() == "Claimed/Retiring"
    slots.release(better)
    assert slots.at() == "Claimed/Busy"


@spec("STM-52")
@pytest.mark.parametrize("order", ["preempt", "off"])
def test_who_retires_for_his_owner_or_a_shutdown_does_not_stay(order):
    slots = Slots(preempt="Flip == 1", max_job_retirement_time="100", machine_max_vacate_time="10")
    slots.run()
    if order == "preempt":
        slots.after(1, Flip=1)
        slots.after(1, Flip=0)
    else:
        slots.slot_manager.off(OffMode.GRACEFUL, slots.now)
        slots.slot_manager.on(slots.now)
        slots.after(1)
    assert slots.at() == "Claimed/Retiring"


@spec("STM-20", "STM-16")
def test_a_retiring_job_is_suspended_too():
    slots = Slots(**STANDS, max_job_retirement_time="100", machine_max_vacate_time="10")
    slots.run()
    slots.drain()
    slots.after(1, Flip=1)
    assert slots.at() == "Claimed/Suspended"
    slots.after(500, Flip=0)
    assert slots.at() == "Claimed/Retiring"


@spec("STM-45")
def test_the_forms_for_vanilla_jobs():
    plain = policy(rank="0")
    rules = {0: plain.__class__(**{**fields(plain), "vanilla": policy(preempt="Flip == 1", rank="0")})}
    for universe, state in ((5, "Preempting/Vacating"), (7, "Claimed/Busy")):
        slots = Slots(policies=rules)
        slots.run(ad=job(JobUniverse=universe))
        slots.after(1, Flip=1)
        assert slots.at() == state


def fields(rules):
    return {name: getattr(rules, name) for name in rules.__dataclass_fields__}


# ---------------------------------------------------------------- Preempting


@spec("STM-46")
@pytest.mark.parametrize("want", ["false", "undefined"])
def test_want_vacate_false_kills(want):
    slots = Slots(preempt="Flip == 1", want_vacate=want)
    slots.run()
    slots.after(1, Flip=1)
    assert (slots.at(), slots.stops[-1][1]) == ("Preempting/Killing", "kill")


@spec("STM-21", "STM-25")
def test_kill_or_time_end_the_vacating():
    for flip, seconds in ((2, 1), (1, 20)):
        slots = Slots(preempt="Flip == 1", kill="Flip == 2", machine_max_vacate_time="20")
        claim = slots.run()
        slots.after(1, Flip=1)
        assert slots.at() == "Preempting/Vacating"
        slots.after(seconds, Flip=flip)
        assert slots.at() == "Preempting/Killing"
        slots.way()
        slots.gone(claim)
        assert slots.way() == ["Owner/Idle", "Unclaimed/Idle"]


@spec("STM-47")
def test_who_resists_is_killed_every_KILLING_TIMEOUT():
    slots = Slots(preempt="Flip == 1", want_vacate="false")
    slots.run()
    slots.after(1, Flip=1)
    slots.after(30)
    slots.after(30)
    assert [how for _, how in slots.stops] == ["kill"] * 3


@spec("STM-23", "STM-24", "STM-I")
@pytest.mark.parametrize(("kill", "row"), [("false", "STM-23"), ("true", "STM-24")])
def test_a_better_match_gets_the_slot(kill, row):
    slots = Slots(kill=kill)
    old = slots.run()
    new = slots.wait(ad=job(Liked=3))
    slots.way()
    slots.gone(old)
    assert (slots.way(), slots.ready) == (["Claimed/Idle"], [new])


@spec("STM-J")
def test_start_false_gives_the_slot_to_its_owner_not_to_the_match():
    slots = Slots(start="Flip == 0")
    old = slots.run()
    slots.wait(ad=job(Liked=3))
    slots.flip["Flip"] = 1
    slots.way()
    slots.gone(old)
    assert slots.way() == ["Owner/Idle", "Unclaimed/Idle"]


@spec("STM-55", "STM-43")
def test_no_second_match_is_taken_while_preempting():
    slots = Slots()
    slots.run()
    slots.wait(ad=job(Liked=3))
    assert (slots.at(), slots.slot_manager.slots[ONE].offer) == ("Preempting/Vacating", "")
    assert isinstance(slots.ask(ad=job(Liked=9), submitter="carol"), Refused)


@spec("STM-57")
def test_the_access_point_hears_of_a_broken_claim_first():
    slots = Slots(preempt="Flip == 1")
    claim = slots.run()
    slots.after(1, Flip=1)
    assert slots.ended == []
    slots.gone(claim)
    assert [(one.claim, one.broken) for one in slots.ended] == [(claim, True)]


@spec("STM-53")
def test_an_old_claim_takes_no_job_but_keeps_the_one_that_runs():
    slots = Slots(claim_worklife="100")
    claim = slots.run()
    slots.after(500)
    assert slots.at() == "Claimed/Busy"
    slots.gone(claim)
    assert slots.start(claim).code == "unknown-claim"


@spec("STM-54")
def test_an_owner_does_not_end_a_running_job():
    slots = Slots(is_owner="Flip == 1")
    claim = slots.run()
    slots.after(1, Flip=1)
    assert slots.at() == "Claimed/Busy"
    slots.gone(claim)
    slots.after(1)
    assert slots.at() == "Claimed/Idle"
    slots.release(claim)
    assert slots.at() == "Owner/Idle"


@spec("STM-56")
def test_a_dynamic_slot_goes_when_it_is_released():
    slots = Slots(more=(PARTS,))
    parent = slots.slot_manager.slots[PARTS]
    claim = slots.run(PARTS)
    assert parent.free["Cpus"] == 3
    slots.release(claim)
    slots.gone(claim)
    assert (claim.slot in slots.slot_manager.slots, parent.free == parent.total) == (False, True)


# ---------------------------------------------------------------- holding


def test_want_hold_holds_who_is_preempted():
    rules = {"want_hold": "Flip == 1", "want_hold_reason": '"too much"', "want_hold_subcode": "102"}
    slots = Slots(preempt="Flip == 1", **rules)
    claim = slots.run()
    slots.slot_manager.review(slots.now)
    slots.flip["Flip"] = 1
    slots.slot_manager.review(slots.now)
    (stop,) = slots.slot_manager.take_effects().stops
    assert (stop.hold, stop.reason) == (("too much", 102), "too much")
    kept, _ = unpack_claim(pack_claim(claim, slots.slot_manager.slots[ONE]))
    assert kept.hold == ("too much", 102)


@pytest.mark.parametrize(("reason", "subcode"), [("undefined", "undefined"), ("1", '"x"'), ('""', "true")])
def test_a_hold_without_words_has_some(reason, subcode):
    slots = Slots(preempt="true", want_hold="true", want_hold_reason=reason, want_hold_subcode=subcode)
    claim = slots.run()
    assert claim.hold[1] == 0
    assert "WANT_HOLD" in claim.hold[0]


# ---------------------------------------------------------------- Backfill

FILLED = {"start_backfill": "Flip != 1", "evict_backfill": "Flip == 1"}


def filled(**rules):
    slots = Slots(**FILLED | rules)
    assert slots.at() == "Backfill/Idle"  # STM-07, STM-E
    assert slots.slot_manager.backfilled(ONE, slots.now)
    assert slots.at() == "Backfill/Busy"  # STM-26
    slots.way()
    return slots


def end_backfill(slots):
    slots.slot_manager.backfill_gone(ONE, slots.now)
    slots.look()


@spec("STM-07", "STM-26", "STM-27", "STM-E")
def test_backfill_starts_and_starts_again():
    slots = filled()
    end_backfill(slots)
    assert slots.at() == "Backfill/Idle"
    assert slots.slot_manager.backfilled(ONE, slots.now)
    assert slots.at() == "Backfill/Busy"


@spec("STM-28", "STM-29", "STM-30", "STM-K")
def test_evict_backfill_gives_the_slot_to_its_owner():
    slots = filled()
    slots.after(1, Flip=1)
    assert slots.at() == "Backfill/Killing"
    assert not slots.slot_manager.backfilled(ONE, slots.now)
    slots.flip["Flip"] = 2  # EVICT_BACKFILL is false again by now
    end_backfill(slots)
    assert slots.way()[:3] == ["Backfill/Killing", "Backfill/Idle", "Owner/Idle"]


@spec("STM-28", "STM-31", "STM-M")
def test_a_claim_gets_the_slot_when_its_client_is_gone():
    slots = filled()
    claim = slots.wait()
    assert slots.at() == "Backfill/Killing"
    end_backfill(slots)
    assert slots.way() == ["Backfill/Killing", "Backfill/Idle", "Claimed/Idle"]
    assert slots.ready == [claim]
    assert not isinstance(slots.start(claim), Refused)


@spec("STM-42")
def test_backfill_is_watched_as_closely_as_claims():
    slots = Slots(**FILLED)
    assert slots.slot_manager.in_use
    slots.after(1, Flip=1)
    assert not slots.slot_manager.in_use
    slots.claim()
    assert slots.slot_manager.in_use


@spec("STM-31")
def test_a_claim_gets_a_slot_that_is_about_to_be_filled_at_once():
    slots = Slots(**FILLED)
    slots.claim()
    assert slots.at() == "Claimed/Idle"


@spec("STM-28", "STM-32", "STM-L")
def test_a_match_gets_the_slot_when_its_client_is_gone():
    slots = filled()
    assert slots.slot_manager.matched(ONE, slots.slot_manager.slots[ONE].offer, 1, "", slots.now) == ""
    end_backfill(slots)
    assert slots.way() == ["Backfill/Killing", "Backfill/Idle", "Matched/Idle"]
    slots.claim()


@spec("STM-28", "STM-30", "STM-K")
@pytest.mark.parametrize("why", ["vacate", "drain", "off"])
def test_commands_end_backfill(why):
    slots = filled()
    if why == "vacate":
        slots.slot_manager.vacate_slot(ONE, graceful=False, now=slots.now)
    elif why == "drain":
        slots.drain()
    else:
        slots.slot_manager.off(OffMode.FAST, slots.now)
    assert slots.at() == "Backfill/Killing"
    end_backfill(slots)
    assert slots.way()[:3] == ["Backfill/Killing", "Backfill/Idle", "Owner/Idle"]
    assert slots.at() == ("Backfill/Idle" if why == "vacate" else "Drained/Idle")


def test_what_is_carved_is_not_filled():
    slots = Slots(more=(PARTS,), start_backfill='Name == "slot3@node1"')
    slots.slot_manager.backfilled(PARTS, slots.now)
    slots.run(PARTS)
    assert slots.at(PARTS) == "Backfill/Killing"
    slots.slot_manager.backfill_gone(PARTS, slots.now)
    assert slots.at(PARTS) == "Unclaimed/Idle"


def test_a_claim_whose_start_turned_false_does_not_get_the_slot_that_it_waits_for():
    slots = filled(start="Flip != 1")
    slots.wait()
    slots.flip["Flip"] = 1
    end_backfill(slots)
    assert (slots.at(), [one.broken for one in slots.ended]) == ("Unclaimed/Idle", [True])
    assert not slots.slot_manager.waiting


# ---------------------------------------------------------------- Drained


@spec("STM-33", "STM-36", "STM-37", "STM-N", "STM-P")
def test_an_idle_machine_is_drained_at_once():
    slots = Slots(more=(TWO,), is_owner='Name == "slot2@node1"', run_benchmarks='Name == "slot1@node1"')
    assert (slots.at(ONE), slots.at(TWO)) == ("Unclaimed/Benchmarking", "Owner/Idle")
    slots.steps.clear()
    slots.drain()
    assert slots.way(ONE) == slots.way(TWO) == ["Drained/Retiring", "Drained/Idle"]


@spec("STM-33")
def test_drained_slots_wait_for_the_last_one():
    slots = Slots(more=(TWO, PARTS), max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run(TWO)
    part = slots.run(PARTS)
    slots.drain()
    assert [slots.at(s) for s in (ONE, TWO, PARTS)] == ["Drained/Retiring", "Claimed/Retiring", "Drained/Retiring"]
    slots.after(90)
    slots.gone(claim)
    assert [slots.at(s) for s in (ONE, TWO, PARTS)] == ["Drained/Retiring"] * 3
    slots.gone(part)
    assert [slots.at(s) for s in (ONE, TWO, PARTS)] == ["Drained/Idle"] * 3
    assert {one.claim.vacate_code for one in slots.ended} == {VacateReason.DRAINING}


@spec("STM-34", "STM-35", "STM-O")
def test_a_cancelled_drain_lets_stay_who_did_not_begin_to_leave():
    slots = Slots(more=(TWO,), max_job_retirement_time="100", machine_max_vacate_time="10")
    slots.run(TWO)
    slots.drain()
    assert slots.slot_manager.cancel_drain("d1", slots.now) is None
    assert (slots.way(ONE)[-2:], slots.at(TWO)) == (["Owner/Idle", "Unclaimed/Idle"], "Claimed/Busy")
    slots = Slots()
    slots.drain()
    slots.slot_manager.cancel_drain("", slots.now)
    assert slots.way()[-3:] == ["Drained/Idle", "Owner/Idle", "Unclaimed/Idle"]
    assert isinstance(slots.ask(), Granted)


@spec("STM-O")
@pytest.mark.parametrize(
    ("completion", "state", "told"),
    [
        (Completion.NOTHING, "Drained/Idle", []),
        (Completion.RESUME, "Unclaimed/Idle", []),
        (Completion.EXIT, "Drained/Idle", [Completion.EXIT]),
        (Completion.RESTART, "Drained/Idle", [Completion.RESTART]),
    ],
)
def test_what_follows_a_drain(completion, state, told):
    slots = Slots()
    claim = slots.run()
    slots.drain(completion=completion)
    slots.gone(claim)
    assert (slots.at(), slots.completed) == (state, told)
    assert slots.slot_manager.machine_orders.last_stop == (slots.now if completion is Completion.RESUME else 0)
    slots.after(100)
    assert slots.completed == told  # once


@spec("TLS-07")
@pytest.mark.parametrize("start", ["", "true"])
@pytest.mark.parametrize(
    ("how", "state", "asked"),
    [
        (DrainMode.GRACEFUL, "Claimed/Retiring", []),
        (DrainMode.QUICK, "Preempting/Vacating", ["ask"]),
        (DrainMode.FAST, "Preempting/Killing", ["kill"]),
    ],
)
def test_how_a_drain_makes_jobs_leave(how, state, asked, start):
    """An expression for jobs that may start meanwhile keeps nobody in a drain that waits for none."""
    slots = Slots(max_job_retirement_time="100", machine_max_vacate_time="10")
    slots.run()
    slots.drain(how=how, start=start)
    assert (slots.at(), [word for _, word in slots.stops]) == (state, asked)


@spec("TLS-07")
def test_drains_that_are_refused_change_nothing():
    slots = Slots(more=(TWO,))
    assert slots.drain(check='Name == "slot1@node1"').code == "check"
    assert slots.drain(check="1 +").code == "expression"
    assert slots.drain(start="((").code == "expression"
    assert slots.at() == "Unclaimed/Idle"
    assert slots.drain(check="State =!= undefined") is None
    assert slots.drain() is None  # the same again: its answer was lost
    assert slots.drain("d2").code == "draining"
    assert slots.slot_manager.cancel_drain("d2", slots.now).code == "unknown-request"
    assert slots.slot_manager.cancel_drain("d1", slots.now) is None
    assert slots.slot_manager.cancel_drain("", slots.now) is None
    assert slots.slot_manager.cancel_drain("d1", slots.now).code == "unknown-request"


@spec("DFR-07", "DFR-10")
def test_no_job_starts_on_a_machine_that_is_drained():
    slots = Slots(more=(PARTS,), max_job_retirement_time="100", machine_max_vacate_time="10")
    slots.run()
    slots.wait(ad=job(Liked=1))
    slots.drain()
    assert not slots.slot_manager.waiting
    for slot, fields in ((PARTS, {}), (ONE, {"submitter": "bob"})):
        answer = slots.ask(slot, job(Liked=5), **fields)
        assert answer.code == "draining", answer


@spec("DFR-07", "DFR-08", "DFR-09", "DFR-10", "W-34")
def test_jobs_taken_while_draining_leave_with_the_last_of_the_others():
    """W-34. Aligned are those for which the drain's START is true."""
    slots = Slots(more=(TWO, PARTS), max_job_retirement_time="TARGET.Stay ?: 0", machine_max_vacate_time="10")
    short = slots.run(ONE, job(Stay=60))
    like = slots.run(PARTS, job(Stay=60, Late=True))
    long = slots.run(PARTS, job(Stay=600))
    slots.drain(start="TARGET.Late =?= true")
    late = slots.run(TWO, job(Stay=1000, Late=True))
    assert (slots.at(TWO), late.while_draining) == ("Claimed/Busy", True)
    assert slots.ask(PARTS, job()).code == "requirements"
    slots.after(50)
    where = [slots.at(one.slot) for one in (short, like, long, late)]
    assert where == ["Preempting/Vacating", "Claimed/Retiring", "Claimed/Retiring", "Claimed/Busy"]
    slots.gone(short)
    slots.after(539)
    assert [slots.at(one.slot) for one in (like, long)] == ["Claimed/Retiring"] * 2
    slots.after(1)
    assert [slots.at(one.slot) for one in (like, long)] == ["Preempting/Vacating"] * 2
    slots.gone(like)
    assert slots.at(TWO) == "Claimed/Busy"
    slots.gone(long)
    assert slots.at(TWO) == "Preempting/Vacating"
    assert late.vacate_s == 10
    assert slots.ask(PARTS, job(Late=True)).code == "draining"
    slots.gone(late)
    assert slots.at(ONE) == "Drained/Idle"


@spec("DFR-08", "W-34")
@pytest.mark.parametrize("start", ["", "TARGET.Late =?= true"])
def test_where_drains_are_aligned_no_job_leaves_before_the_one_that_may_stay_longest_must(start):
    """W-34 as the manual has it: each in time to be gone when that one's retirement is over."""
    slots = Slots(more=(TWO, PARTS), max_job_retirement_time="TARGET.Stay ?: 0", machine_max_vacate_time="10")
    none = slots.run(ONE)
    short = slots.run(TWO, job(Stay=60, JobMaxVacateTime=4))
    long = slots.run(PARTS, job(Stay=600))
    slots.drain(aligned=True, start=start)
    slots.after(589)
    assert [slots.at(one.slot) for one in (none, short, long)] == ["Claimed/Retiring"] * 3
    assert slots.slot_manager.next_look(slots.now) == slots.now + 1
    slots.after(1)
    assert [slots.at(one.slot) for one in (none, short, long)] == [
        "Preempting/Vacating",
        "Claimed/Retiring",
        "Preempting/Vacating",
    ]
    slots.after(6)
    assert (slots.at(TWO), short.vacate_s) == ("Preempting/Vacating", 4)


@spec("DFR-08")
def test_jobs_of_an_aligned_drain_have_their_own_retirement_when_the_longest_is_gone():
    slots = Slots(more=(TWO,), max_job_retirement_time="TARGET.Stay ?: 0", machine_max_vacate_time="10")
    short, long = slots.run(ONE, job(Stay=60)), slots.run(TWO, job(Stay=600))
    slots.drain(aligned=True)
    slots.after(30)
    slots.gone(long)
    assert slots.at(ONE) == "Claimed/Retiring"
    slots.after(19)
    assert slots.at(ONE) == "Claimed/Retiring"
    slots.after(1)
    assert slots.at(ONE) == "Preempting/Vacating"
    slots.gone(short)
    assert slots.at(ONE) == "Drained/Idle"


@spec("DFR-08")
def test_a_job_of_an_aligned_drain_that_must_leave_for_another_reason_does_so_at_its_own_time():
    slots = Slots(more=(TWO,), max_job_retirement_time="TARGET.Stay ?: 0", machine_max_vacate_time="10")
    slots.run(ONE, job(Stay=60))
    slots.run(TWO, job(Stay=600))
    slots.drain(aligned=True)
    slots.slot_manager.vacate_slot(ONE, graceful=True, now=slots.now)
    slots.after(49)
    assert slots.at(ONE) == "Claimed/Retiring"
    slots.after(1)
    assert (slots.at(ONE), slots.at(TWO)) == ("Preempting/Vacating", "Claimed/Retiring")


@spec("DFR-08")
@pytest.mark.parametrize("how", [DrainMode.QUICK, DrainMode.FAST])
def test_only_graceful_drains_are_aligned(how):
    slots = Slots(more=(TWO,), max_job_retirement_time="TARGET.Stay ?: 0", machine_max_vacate_time="10")
    short, long = slots.run(ONE, job(Stay=60)), slots.run(TWO, job(Stay=600))
    slots.drain(aligned=True, how=how)
    where = "Preempting/Vacating" if how is DrainMode.QUICK else "Preempting/Killing"
    assert [slots.at(one.slot) for one in (short, long)] == [where] * 2


@spec("DFR-08", "DFR-11")
def test_what_an_aligned_drain_would_come_to():
    slots = Slots(more=(TWO,), max_job_retirement_time="TARGET.Stay ?: 0", machine_max_vacate_time="10")
    slots.run(ONE, job(Stay=60))
    slots.run(TWO, job(Stay=600))
    table = slots.slot_manager.slots.values()
    apart, together = expected_drain(table, slots.now), expected_drain(table, slots.now, aligned=True)
    assert apart.graceful_completion == together.graceful_completion == slots.now + 600
    assert (apart.graceful_badput, together.graceful_badput) == (2 * 60 + 2 * 600, 2 * 600 + 2 * 600)
    assert (apart.quick_completion, apart.quick_badput) == (together.quick_completion, together.quick_badput)


@spec("DFR-11")
def test_what_a_drain_costs():
    slots = Slots(more=(TWO,), max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    expected = slots.slot_manager.expected(slots.now + 40)
    assert (expected.graceful_completion, expected.quick_completion) == (1040 + 60, 1040 + 10)
    assert (expected.graceful_badput, expected.quick_badput) == (2 * 100, 2 * 50)
    slots.drain()
    slots.after(90)
    slots.gone(claim)
    slots.after(10)
    slots.slot_manager.cancel_drain("", slots.now)
    machine_orders = slots.slot_manager.machine_orders
    assert (machine_orders.badput, machine_orders.unclaimed) == (2 * 90, 2 * 90 + 4 * 10)
    assert (machine_orders.last_start, machine_orders.last_stop) == (1000, 1100)


@spec("DFR-06")
def test_a_drained_job_keeps_its_retirement_and_is_then_asked_to_leave():
    """As defrag drains: graceful, to take jobs again at once; no further drain while it lasts, and none by mistake."""
    slots = Slots(max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    slots.after(20)
    slots.drain(completion=Completion.RESUME)
    slots.after(69)
    assert (slots.at(), slots.stops) == ("Claimed/Retiring", [])
    slots.after(1)  # ten seconds of the retirement are left, in which it may leave by itself
    assert (slots.at(), [word for _, word in slots.stops]) == ("Preempting/Vacating", ["ask"])
    slots.gone(claim)
    assert slots.at() == "Unclaimed/Idle"
    assert slots.slot_manager.machine_orders.drain is None


@spec("DFR-11")
def test_what_draining_costs_is_counted_from_the_first_start_on():
    slots = Slots()
    slots.slot_manager.resume(1000.0)
    machine_orders = MachineOrders.unpack(slots.slot_manager.machine_orders.pack())
    assert machine_orders.since == 1000.0
    again = Slots(now=5000.0)
    again.slot_manager.restore_machine_orders(machine_orders)
    again.slot_manager.resume(5000.0)
    assert again.slot_manager.machine_orders.since == 1000.0
    older = {name: value for name, value in machine_orders.pack().items() if name != "since"}  # of an earlier release
    assert MachineOrders.unpack(older).since == 0.0
    told = drain_attributes(
        again.slot_manager.machine_orders, again.slot_manager.expected(5000.0), again.slot_manager.slots[ONE]
    )
    assert told["RoostDrainingCountedSince"] == 1000
    assert not {"TotalMachineDrainingBadput", "TotalMachineDrainingUnclaimedTime"} & told.keys()


# ---------------------------------------------------------------- off, vacate


@spec("STM-51")
@pytest.mark.parametrize(
    ("how", "states"),
    [
        (OffMode.PEACEFUL, ["Claimed/Retiring"] * 2),
        (OffMode.GRACEFUL, ["Claimed/Retiring", "Preempting/Vacating"]),
        (OffMode.FAST, ["Preempting/Killing"] * 2),
    ],
)
def test_how_a_machine_is_switched_off(how, states):
    slots = Slots(max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    slots.slot_manager.off(how, slots.now)
    seen = [slots.at()]
    slots.after(95)
    assert [*seen, slots.at()] == states
    slots.gone(claim)
    assert slots.at() == "Drained/Idle"
    assert slots.ask().code == "draining"
    slots.slot_manager.on(slots.now)
    assert isinstance(slots.ask(), Granted)


@spec("STM-51")
def test_a_negative_retirement_is_at_once_even_when_peaceful():
    slots = Slots(max_job_retirement_time="-1")
    slots.run()
    slots.slot_manager.off(OffMode.PEACEFUL, slots.now)
    assert slots.at() == "Preempting/Vacating"


@spec("STM-51")
def test_switching_off_again_may_only_hurry():
    slots = Slots(max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    slots.slot_manager.off(OffMode.PEACEFUL, slots.now)
    slots.after(1000)
    slots.slot_manager.off(OffMode.GRACEFUL, slots.now)
    slots.look()
    assert slots.at() == "Preempting/Vacating"
    slots.slot_manager.off(OffMode.PEACEFUL, slots.now)
    assert slots.slot_manager.machine_orders.off is OffMode.GRACEFUL
    slots.slot_manager.off(OffMode.FAST, slots.now)
    slots.look()
    assert (slots.at(), slots.stops[-1]) == ("Preempting/Killing", (claim.run, "kill"))


@spec("STM-51")
def test_a_job_that_was_to_run_to_its_end_does_so_after_the_machine_is_on_again():
    slots = Slots()
    claim = slots.run()
    slots.slot_manager.off(OffMode.PEACEFUL, slots.now)
    slots.slot_manager.on(slots.now)
    slots.after(10_000)
    assert slots.at() == "Claimed/Retiring"
    slots.gone(claim)
    assert slots.at() == "Unclaimed/Idle"


@spec("TLS-06", "STM-H")
@pytest.mark.parametrize(("graceful", "state"), [(True, "Claimed/Retiring"), (False, "Preempting/Killing")])
def test_vacating_gracefully_keeps_the_retirement(graceful, state):
    slots = Slots(more=(TWO, PARTS), max_job_retirement_time="100", machine_max_vacate_time="10")
    one, two, part = slots.run(ONE), slots.run(TWO), slots.run(PARTS)
    assert slots.slot_manager.vacate_slot("slot9@node1", graceful=True, now=slots.now).code == "unknown-slot"
    slots.slot_manager.vacate_slot(PARTS, graceful=graceful, now=slots.now)
    assert [slots.at(claim.slot) for claim in (one, two, part)] == ["Claimed/Busy", "Claimed/Busy", state]
    slots.slot_manager.vacate_slot("", graceful=graceful, now=slots.now)
    slots.look()
    assert [slots.at(claim.slot) for claim in (one, two)] == [state, state]
    slots.after(90)
    assert slots.at() == ("Preempting/Vacating" if graceful else state)
    slots.gone(one)
    assert (slots.at(), slots.ended[0].claim.vacate_code) == ("Unclaimed/Idle", VacateReason.COMMAND)


def test_vacating_a_slot_that_somebody_waits_for_gives_it_to_nobody():
    slots = Slots(max_job_retirement_time="100")
    old = slots.run()
    slots.wait(ad=job(Liked=4))
    slots.slot_manager.vacate_slot(ONE, graceful=True, now=slots.now)
    slots.gone(old)
    assert slots.at() == "Unclaimed/Idle"
    assert not slots.slot_manager.waiting


# ---------------------------------------------------------------- restarts


def test_orders_outlive_a_restart():
    slots = Slots(max_job_retirement_time="100", machine_max_vacate_time="10")
    claim = slots.run()
    slots.drain(reason="new kernel", start="TARGET.Late =?= true", completion=Completion.RESUME)
    other = Slots(now=slots.now + 5, max_job_retirement_time="100", machine_max_vacate_time="10")
    other.slot_manager.restore_machine_orders(MachineOrders.unpack(slots.slot_manager.machine_orders.pack()))
    kept, slot = unpack_claim(pack_claim(claim, slots.slot_manager.slots[ONE]))
    assert other.slot_manager.restore(kept, slot, other.now) == ""
    other.slot_manager.resume(other.now)
    assert (other.at(), other.slot_manager.machine_orders.drain) == (
        "Claimed/Retiring",
        slots.slot_manager.machine_orders.drain,
    )
    other.gone(kept)
    assert other.at() == "Unclaimed/Idle"


def test_a_drain_that_ended_the_daemon_is_over_in_its_next_life():
    slots = Slots()
    slots.drain(completion=Completion.EXIT)
    assert slots.completed == [Completion.EXIT]
    other = Slots()
    other.slot_manager.restore_machine_orders(MachineOrders.unpack(slots.slot_manager.machine_orders.pack()))
    other.slot_manager.resume(other.now)
    assert other.at() == "Unclaimed/Idle"


def test_a_suspended_claim_is_suspended_in_the_next_life_too():
    slots = Slots(**STANDS)
    claim = slots.run()
    slots.after(10, Flip=1)
    kept, slot = unpack_claim(pack_claim(claim, slots.slot_manager.slots[ONE]))
    other = Slots(now=slots.now + 50, **STANDS)
    assert other.slot_manager.restore(kept, slot, other.now) == ""
    other.flip["Flip"] = 1
    other.slot_manager.resume(other.now)
    assert other.at() == "Claimed/Suspended"
    other.after(0, Flip=0)
    assert (other.suspensions, kept.suspended_s) == ([False], 50)


# ---------------------------------------------------------------- the table and its page


def test_every_guard_has_a_meaning_and_every_meaning_a_place():
    assert {row.guard for row in TABLE if row.guard} == set(GUARDS)


def test_the_table_has_every_numbered_row_of_the_manual():
    rows = {row.row for row in TABLE}
    assert rows == {f"STM-{n:02}" for n in range(1, 38)} | {"STM-51"}


def test_no_condition_is_without_a_way_out_and_none_is_out_of_reach():
    seen, todo = set(), [row.before for row in TABLE if str(row.before) == "Owner/Idle"][:1]
    while todo:
        here = todo.pop()
        if here not in seen:
            seen.add(here)
            todo += [row.after for row in TABLE if row.before == here]
    assert seen == {row.before for row in TABLE} == {row.after for row in TABLE}
    assert all(step(row.before, row.cause) == row.after for row in TABLE)


def test_the_page_has_the_diagram_of_the_table():
    page = diagram.PAGE.read_text()
    assert diagram.fresh(page) == page


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="lacks"):
        diagram.fresh("# Some page")


def test_states_and_activities_are_those_of_the_manual():
    pairs = {(row.before.state, row.before.activity) for row in TABLE}
    idle = {State.OWNER, State.UNCLAIMED, State.MATCHED, State.CLAIMED, State.BACKFILL, State.DRAINED}
    assert {state for state, activity in pairs if activity is Activity.IDLE} == idle
    assert len(pairs) == 15
    assert Urgency.STAY < Urgency.RETIRE < Urgency.VACATE < Urgency.KILL


def test_a_request_that_comes_again_while_its_slot_is_backfilled_is_answered_alike():
    slots = filled()
    ask = request(slots.slot_manager, ONE, 77, submitter="bob")
    first = slots.slot_manager.request(ask, job(), slots.now)
    assert slots.slot_manager.request(ask, job(), slots.now).waiting is first.waiting


@spec("ACC-18", "STM-49")
@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_set_makes_nothing_older_or_younger(seconds):
    """Nobody must leave earlier, or may stay longer; and what is told of the claim says how long it was."""
    slots = Slots(preempt="Flip == 1", max_job_retirement_time="60", machine_max_vacate_time="10", claim_worklife="500")
    claim = slots.run()
    known_by = claim.made_at
    slots.after(20)
    slots.now += seconds
    slots.slot_manager.clock_set(seconds)
    slots.after(9, Flip=1)
    assert slots.at() == "Claimed/Retiring"
    assert claim.run_time(slots.now) == 29
    slots.after(22)  # 10 s before the end of its retirement (STM-50)
    assert slots.at() == "Preempting/Vacating"
    slots.after(9)
    assert slots.stops == [(claim.run, "ask")]
    slots.after(1)
    assert slots.at() == "Preempting/Killing"
    assert (claim.made_at, claim.age(slots.now)) == (known_by, 61)
    slots.gone(claim)
    (past,) = slots.slot_manager.slots[ONE].past
    assert (past.began, past.ended - past.began, past.clock_set) == (known_by, 61, seconds)
    slots.now -= seconds
    changes = slots.slot_manager.clock_set(-seconds)
    assert [one.clock_set for one in slots.slot_manager.slots[ONE].past] == [0]
    assert changes.clock_set
    assert ONE in changes.slots
    assert slots.slot_manager.slots[ONE].state_since == slots.now


@spec("ACC-18")
def test_a_drain_is_as_old_as_it_was_by_a_clock_that_is_set():
    slots = Slots()
    slots.run()
    slots.drain(reason="")
    orders = slots.slot_manager.machine_orders
    before = orders.drain.since, orders.last_start
    slots.slot_manager.clock_set(3600.0)
    assert (orders.drain.since, orders.last_start, orders.last_stop) == (before[0] + 3600, before[1] + 3600, 0)
