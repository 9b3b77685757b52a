"""Preemption in the startd's manager: who may take a claimed slot, when what runs there leaves, who gets the slot
then."""

import pytest

from services.startd.core.journal_records import pack_claim, pack_waiting, unpack_claim, unpack_waiting
from services.startd.core.slots import retirement
from services.startd.core.slots.guards import GUARDS
from services.startd.core.slots.model import Urgency, VacateReason
from services.startd.core.slots.requests import Accepted, Granted, Refused
from services.startd.core.slots.transitions import TABLE, Activity, State
from shared.classad import ClassAd
from tests.spec import spec
from tests.unit.startd.test_claims import MACHINE, conditions, job, make_book, policy, request

STATIC, PARENT = "slot2@node1", "slot1@node1"
LIKED = "TARGET.Liked ?: 0"


class Point:
    """A manager, its clock, and what it told the shell to do."""

    def __init__(self, **rules):
        self.slot_manager = make_book(policy(**{"rank": LIKED} | rules))
        self.now = 1000.0
        self.numbers = iter(range(1, 10**6))
        self.stops, self.ended, self.ready = [], [], []

    def claim(self, slot, ad=None, *, run=None, **fields):
        """Ask for a slot; where it is granted, start a run on it."""
        ad = ad or job()
        answer = self.slot_manager.request(
            request(self.slot_manager, slot, next(self.numbers), ad, **fields), ad, self.now
        )
        if run is not None:
            assert isinstance(answer, Granted), answer
            assert not isinstance(self.start(answer.claim, run, ad), Refused)
        self.look()
        return answer

    def start(self, claim, run, ad=None):
        ad = ad or job()
        return self.slot_manager.activate(claim.claim_id, run, ad.pack(), ad, self.now)

    def gone(self, claim):
        self.slot_manager.run_gone(claim.claim_id, claim.run, self.now)
        self.look()

    def after(self, seconds):
        self.now += seconds
        self.slot_manager.review(self.now)
        self.look()

    def look(self):
        changes = self.slot_manager.take_effects()
        self.stops += [(stop.run, "kill" if stop.fast else "ask") for stop in changes.stops]
        self.ended += changes.ended
        self.ready += [claim.claim_id for claim in changes.ready]

    def at(self, slot=STATIC):
        return str(self.slot_manager.slots[slot].condition)


def test_every_guard_of_the_table_has_a_meaning_and_every_meaning_a_place():
    assert {row.guard for row in TABLE if row.guard} == set(GUARDS)


# Who may


@spec("PRE-01", "PRE-02", "PRE-05", "SLT-30")
@pytest.mark.parametrize(
    ("rank", "submitter", "outcome"),
    [
        (2, "bob", VacateReason.RANK),
        (2, "alice", VacateReason.RANK),  # as in HTCondor, also between two jobs of one user
        (1, "bob", VacateReason.PRIORITY),
        (1, "alice", None),
        (0, "bob", None),
    ],
)
def test_rank_and_user_decide_who_preempts(rank, submitter, outcome):
    """Bigger is better."""
    point = Point()
    held = point.claim(STATIC, job(Liked=1), run="1.0/1").claim
    answer = point.claim(STATIC, job(Liked=rank), submitter=submitter)
    if outcome is None:
        assert (answer.code, point.at()) == ("requirements", "Claimed/Busy")
        assert not point.stops
        return
    assert isinstance(answer, Accepted)
    assert answer.waiting.code == outcome
    assert (held.vacate_code, point.stops) == (outcome, [("1.0/1", "ask")])


@spec("W-51")
def test_the_group_of_four_on_bass():
    """Members count 1, jones 1, garrison 10, outsiders 0."""
    bass = '(TARGET.Owner == "coltrane") * 1 + (TARGET.Owner == "jones") * 1 + (TARGET.Owner == "garrison") * 10'

    def preempts(newcomer, holder):
        point = Point(rank=bass)
        point.claim(STATIC, job(Owner=holder), run="1.0/1", submitter=holder)
        # The negotiator offers it by RANK alone, where PREEMPTION_REQUIREMENTS is false: equals are never sent.
        answer = point.claim(STATIC, job(Owner=newcomer), submitter=newcomer)
        return isinstance(answer, Accepted) and answer.waiting.code == VacateReason.RANK

    assert preempts("jones", "outsider")
    assert preempts("garrison", "jones")
    assert not preempts("jones", "garrison")
    assert not preempts("outsider", "jones")


@spec("W-51")
@pytest.mark.parametrize("rank", ["undefined", "error", '"high"', 'real("NaN")', '(TARGET.Owner == "a" * 1e12) + 5'])
def test_a_rank_that_is_no_number_counts_0(rank):
    point = Point(rank=rank)
    assert point.claim(STATIC, job(Owner="a")).claim.rank == 0.0


def test_a_claimed_slot_is_offered_by_an_id_of_its_own():
    point = Point()
    first = point.slot_manager.slots[STATIC].offer
    claim = point.claim(STATIC, run="1.0/1").claim
    offer = point.slot_manager.slots[STATIC].offer
    assert len({first, offer, claim.claim_id}) == 2  # the claim has the id by which the slot was offered
    for stale in (first, claim.claim_id, "<guess>"):
        assert point.claim(STATIC, submitter="bob", claim_id=stale).code == "busy"
    assert point.at() == "Claimed/Busy"


# Retiring, vacating, killing


@spec("PRE-10", "STM-13", "STM-18", "STM-21", "STM-24")
def test_the_way_of_a_preempted_job():
    point = Point(max_job_retirement_time="100", machine_max_vacate_time="20")
    old = point.claim(STATIC, run="1.0/1").claim
    point.after(50)
    accepted = point.claim(STATIC, submitter="bob")
    new = accepted.waiting.claim
    assert point.at() == "Claimed/Retiring"
    assert point.slot_manager.empty_within_s(accepted.waiting, point.now) == 50
    assert point.slot_manager.next_look(point.now) == 1080  # 20 s before the end of its retirement
    assert not point.stops
    point.after(29)
    assert point.at() == "Claimed/Retiring"
    point.after(1)
    assert (point.at(), point.stops) == ("Preempting/Vacating", [("1.0/1", "ask")])
    assert point.slot_manager.next_look(point.now) == 1100
    point.after(20)
    assert (point.at(), point.stops[1:]) == ("Preempting/Killing", [("1.0/1", "kill")])
    point.gone(old)
    slot = point.slot_manager.slots[STATIC]
    assert (point.at(), slot.claim, slot.waiting) == ("Claimed/Idle", new, "")
    assert point.ready == [new.claim_id]
    assert [(one.claim, one.broken) for one in point.ended] == [(old, True)]
    assert slot.state_since == point.now
    assert not isinstance(point.start(new, "2.0/1"), Refused)


@spec("STM-18")
def test_a_job_that_ends_in_its_retirement_makes_room_at_once():
    point = Point(max_job_retirement_time="1000")
    old = point.claim(STATIC, run="1.0/1").claim
    new = point.claim(STATIC, submitter="bob").waiting.claim
    point.gone(old)
    assert (point.at(), point.slot_manager.slots[STATIC].claim) == ("Claimed/Idle", new)
    assert not point.stops


def test_an_idle_claim_is_taken_over_within_the_request():
    point = Point()
    old = point.claim(STATIC).claim
    answer = point.claim(STATIC, submitter="bob")
    assert isinstance(answer, Granted)
    assert point.slot_manager.slots[STATIC].claim is answer.claim
    assert not point.ready  # the answer says it
    assert point.start(old, "1.0/1").code == "unknown-claim"


@spec("STM-19")
def test_a_withdrawn_preemptor_lets_the_job_go_on():
    point = Point(max_job_retirement_time="1000")
    point.claim(STATIC, run="1.0/1")
    new = point.claim(STATIC, submitter="bob").waiting.claim
    assert point.slot_manager.vacate(new.claim_id, "released", graceful=True, now=point.now)
    point.look()
    assert (point.at(), point.stops) == ("Claimed/Busy", [])
    assert [(one.claim, one.broken) for one in point.ended] == [(new, False)]


@spec("STM-55")
def test_there_is_no_way_back_from_preempting_and_no_second_preemptor_there():
    point = Point()
    point.claim(STATIC, run="1.0/1")
    new = point.claim(STATIC, submitter="bob").waiting.claim
    assert point.slot_manager.slots[STATIC].offer == ""
    assert point.claim(STATIC, submitter="carol", claim_id="").code == "busy"
    point.slot_manager.vacate(new.claim_id, "released", graceful=True, now=point.now)
    assert point.at() == "Preempting/Vacating"


@spec("PRE-06")
def test_a_better_preemptor_takes_the_place_of_the_one_that_waits():
    point = Point(max_job_retirement_time="1000")
    point.claim(STATIC, run="1.0/1")
    first = point.claim(STATIC, job(Liked=3), submitter="bob").waiting.claim
    assert point.claim(STATIC, job(Liked=2), submitter="carol").code == "requirements"
    assert point.claim(STATIC, job(Liked=3), submitter="bob").code == "requirements"
    second = point.claim(STATIC, job(Liked=4), submitter="carol").waiting.claim
    assert list(point.slot_manager.waiting) == [second.claim_id]
    assert [(one.claim, one.broken) for one in point.ended] == [(first, True)]
    assert point.at() == "Claimed/Retiring"


def test_requests_for_a_slot_that_empties_are_answered_alike():
    point = Point(max_job_retirement_time="1000")
    old = point.claim(STATIC, run="1.0/1").claim
    ask = request(point.slot_manager, STATIC, 77, submitter="bob")
    first = point.slot_manager.request(ask, job(), point.now)
    again = point.slot_manager.request(ask, job(), point.now)
    assert (again.waiting, again.again) == (first.waiting, True)
    point.gone(old)
    granted = point.slot_manager.request(ask, job(), point.now)
    assert (granted.claim, granted.again) == (first.waiting.claim, True)


@spec("STM-13", "STM-22", "STM-52")
def test_preempt_makes_a_job_leave_and_the_slot_the_owners():
    point = Point(preempt="MY.Name == TARGET.Unwanted", max_job_retirement_time="100", machine_max_vacate_time="10")
    old = point.claim(STATIC, job(Unwanted=STATIC), run="1.0/1").claim
    assert (point.at(), point.slot_manager.slots[STATIC].offer) == ("Claimed/Retiring", "")
    assert point.claim(STATIC, submitter="bob", claim_id="").code == "busy"
    point.after(90)
    assert (point.at(), old.vacate_code) == ("Preempting/Vacating", VacateReason.PREEMPT)
    point.gone(old)
    assert (point.at(), point.ended[0].broken) == ("Unclaimed/Idle", True)  # over Owner


@spec("STM-J")
def test_preempt_comes_before_a_better_claim():
    """The owner's wish ends the retirement that a better match began, and the better match gets nothing."""
    point = Point(preempt="TARGET.Old =?= true", max_job_retirement_time="100", machine_max_vacate_time="10")
    old = point.claim(STATIC, run="1.0/1").claim
    new = point.claim(STATIC, submitter="bob").waiting.claim
    old.job_ad = job(Old=True).pack()
    point.after(1)
    point.gone(old)
    assert point.at() == "Unclaimed/Idle"
    assert [one.claim for one in point.ended] == [old, new]
    assert point.ended[1].broken


@spec("STM-52")
def test_a_slot_that_its_owner_wants_back_is_not_offered_by_the_next_life():
    rules = {"preempt": "MY.Name == TARGET.Unwanted", "max_job_retirement_time": "100", "machine_max_vacate_time": "10"}
    point = Point(**rules)
    point.claim(STATIC, job(Unwanted=STATIC), run="1.0/1")
    other = restarted(point, **rules)
    assert (other.at(), other.slot_manager.slots[STATIC].offer) == ("Claimed/Retiring", "")


def test_an_owner_who_asks_for_the_state_that_he_decides_stops_nothing():
    point = Point(is_owner='MY.State == "Unclaimed"')
    point.after(1)
    assert point.at() in ("Owner/Idle", "Unclaimed/Idle")
    assert isinstance(point.claim(PARENT), Granted | Refused)


@spec("STM-44")
def test_preempt_is_not_looked_at_while_suspension_comes_first():
    point = Point(preempt="true", want_suspend="true")
    point.claim(STATIC, run="1.0/1")
    assert point.at() == "Claimed/Busy"


@spec("STM-46")
def test_want_vacate_false_kills_at_once_where_preempt_makes_a_job_leave():
    point = Point(want_vacate="false", preempt="TARGET.Unwanted =?= true")
    point.claim(STATIC, job(Unwanted=True), run="1.0/1")
    assert (point.at(), point.stops) == ("Preempting/Killing", [("1.0/1", "kill")])


@spec("STM-46")
def test_want_vacate_says_nothing_where_a_better_match_makes_a_job_leave():
    point = Point(want_vacate="false")
    point.claim(STATIC, run="1.0/1")
    point.claim(STATIC, submitter="bob")
    assert (point.at(), point.stops) == ("Preempting/Vacating", [("1.0/1", "ask")])


@spec("STM-21")
def test_kill_ends_the_time_to_vacate():
    point = Point(kill="TARGET.Hurry =?= true")
    old = point.claim(STATIC, run="1.0/1").claim
    point.claim(STATIC, submitter="bob")
    assert point.at() == "Preempting/Vacating"
    old.job_ad = job(Hurry=True).pack()
    point.after(5)
    assert point.at() == "Preempting/Killing"


@spec("STM-21")
def test_kill_that_is_true_already_leaves_a_job_until_the_next_look():
    point = Point(preempt="TARGET.Unwanted =?= true", kill="true")
    point.claim(STATIC, job(Unwanted=True), run="1.0/1")
    assert (point.at(), point.stops) == ("Preempting/Vacating", [("1.0/1", "ask")])
    point.after(1)
    assert (point.at(), point.stops) == ("Preempting/Killing", [("1.0/1", "ask"), ("1.0/1", "kill")])


@spec("STM-47")
def test_who_resists_is_killed_again_after_KILLING_TIMEOUT():
    point = Point(want_vacate="false", preempt="TARGET.Unwanted =?= true")
    point.claim(STATIC, job(Unwanted=True), run="1.0/1")
    point.after(29)
    assert point.stops == [("1.0/1", "kill")]
    assert point.slot_manager.next_look(point.now) == point.now + 1
    point.after(1)
    assert point.stops == [("1.0/1", "kill")] * 2


def test_a_release_knows_no_retirement():
    point = Point(max_job_retirement_time="1000", want_vacate="false")
    claim = point.claim(STATIC, run="1.0/1").claim
    point.slot_manager.vacate(claim.claim_id, "released", graceful=True, now=point.now)
    assert (point.at(), claim.urgency, claim.vacate_code) == (
        "Preempting/Vacating",
        Urgency.VACATE,
        VacateReason.RELEASED,
    )
    point.gone(claim)
    assert [(one.reason, one.broken) for one in point.ended] == [("released", False)]


@spec("STM-48", "W-59")
@pytest.mark.parametrize(
    ("wanted", "left", "granted"),
    [(100, 0, 100), (1200, 300, 600), (1200, 900, 900), (1200, 2000, 1200), (None, 0, 600)],
)
def test_vacate_time(wanted, left, granted):
    ad = job() if wanted is None else job(JobMaxVacateTime=wanted)
    assert retirement.vacate_time_s(policy(), ClassAd(), ad, left) == granted


@spec("STM-49", "W-59")
@pytest.mark.parametrize(
    ("own", "promised"),
    [
        ({}, 3600),
        ({"MaxJobRetirementTime": 100}, 100),
        ({"MaxJobRetirementTime": 7200}, 3600),
        ({"MaxJobRetirementTime": "long"}, 3600),
        ({"NiceUser": True}, 0),
        ({"NiceUser": True, "MaxJobRetirementTime": 50}, 50),
    ],
)
def test_retirement(own, promised):
    assert retirement.retirement_s(policy(max_job_retirement_time="3600"), ClassAd(), job(**own)) == promised


@spec("STM-50", "W-59")
def test_preempting_begins_so_much_before_the_end_as_vacating_may_take():
    point = Point(max_job_retirement_time="3600")
    point.claim(STATIC, run="1.0/1")
    point.claim(STATIC, submitter="bob")
    point.after(2999)
    assert point.at() == "Claimed/Retiring"
    point.after(1)
    assert point.at() == "Preempting/Vacating"


@spec("STM-48", "W-59")
def test_a_job_gets_its_retirement_as_time_to_vacate():
    point = Point(max_job_retirement_time="3600")
    ad = job(JobMaxVacateTime=1200)
    claim = point.claim(STATIC, ad, run="1.0/1").claim
    point.claim(STATIC, submitter="bob")
    point.after(2400)
    assert (point.at(), claim.vacate_s) == ("Preempting/Vacating", 1200)


@spec("W-59")
def test_time_in_suspension_is_no_run_time():
    point = Point(max_job_retirement_time="3600", machine_max_vacate_time="0")
    claim = point.claim(STATIC, run="1.0/1").claim
    claim.suspended_s = 500.0
    point.claim(STATIC, submitter="bob")
    point.after(3700)
    assert (claim.run_time(point.now), point.at()) == (3200, "Claimed/Retiring")
    point.after(400)
    assert point.at() == "Preempting/Killing"  # no time to vacate


# Claims grow old


@spec("STM-10", "STM-53")
def test_an_old_claim_ends_with_its_job_or_while_it_is_idle():
    point = Point(claim_worklife="100")
    claim = point.claim(STATIC, run="1.0/1").claim
    point.after(150)
    assert point.at() == "Claimed/Busy"
    point.gone(claim)
    assert (point.at(), point.ended[0].broken) == ("Unclaimed/Idle", True)
    young = point.claim(STATIC, run="2.0/1").claim
    point.gone(young)
    assert point.at() == "Claimed/Idle"
    point.after(100)
    assert point.at() == "Unclaimed/Idle"


def test_a_claim_that_has_had_no_job_is_not_too_old_for_the_first():
    point = Point(claim_worklife="0")
    claim = point.claim(STATIC).claim
    point.after(5)
    assert point.at() == "Claimed/Idle"
    assert not isinstance(point.start(claim, "1.0/1"), Refused)


@spec("STM-53")
@pytest.mark.parametrize("worklife", ["-1", "undefined"])
def test_no_worklife_is_for_ever(worklife):
    point = Point(claim_worklife=worklife)
    claim = point.claim(STATIC, run="1.0/1").claim
    point.after(1e6)
    point.gone(claim)
    assert point.at() == "Claimed/Idle"


# Matches that the negotiator tells of


@spec("NEG-39", "STM-06", "STM-08", "STM-F")
def test_a_matched_slot_waits_for_its_claim_and_no_longer_than_MATCH_TIMEOUT():
    point = Point()
    offer = point.slot_manager.slots[STATIC].offer
    assert point.slot_manager.matched(STATIC, offer, 1, "", point.now) == ""
    assert (point.at(), point.slot_manager.next_look(point.now)) == ("Matched/Idle", point.now + 120)
    point.after(119)
    assert point.at() == "Matched/Idle"
    point.after(1)
    assert point.at() == "Unclaimed/Idle"  # over Owner, at once (STM-F)
    assert point.claim(STATIC, claim_id=offer).code == "unknown-claim"
    assert isinstance(point.claim(STATIC), Granted)


@spec("STM-09")
def test_a_matched_slot_is_claimed():
    point = Point()
    point.slot_manager.matched(STATIC, point.slot_manager.slots[STATIC].offer, 1, "", point.now)
    assert isinstance(point.claim(STATIC), Granted)
    assert point.at() == "Claimed/Idle"


@spec("STM-08")
def test_a_match_that_comes_to_nothing_is_over_at_once():
    point = Point(start="TARGET.Liked > 0")
    offer = point.slot_manager.slots[STATIC].offer
    point.slot_manager.matched(STATIC, offer, 1, "", point.now)
    assert isinstance(point.claim(STATIC), Refused)
    assert point.at() == "Unclaimed/Idle"
    assert point.slot_manager.slots[STATIC].offer not in ("", offer)


@spec("SLT-21")
def test_notices_that_are_stale_wrong_or_of_no_use_change_nothing():
    point = Point()
    slot, parent = point.slot_manager.slots[STATIC], point.slot_manager.slots[PARENT]
    assert "does not open" in point.slot_manager.matched(STATIC, "<guess>", 1, "", point.now)
    assert "does not open" in point.slot_manager.matched("slot9@node1", slot.offer, 1, "", point.now)
    assert "Unclaimed" in point.slot_manager.matched(PARENT, parent.offer, 3, "", point.now)  # SLT-21
    assert "epoch" in point.slot_manager.matched(STATIC, slot.offer, 2, "", point.now)
    point.claim(STATIC, run="1.0/1", epoch=3)
    assert "Claimed" in point.slot_manager.matched(STATIC, slot.offer, 3, "", point.now)
    assert conditions(point.slot_manager) == {PARENT: "Unclaimed/Idle", STATIC: "Claimed/Busy"}


# Partitionable slots


def carved(point, ranks, cpus=2, **fields):
    """Dynamic slots with a run each."""
    claims = []
    for number, rank in enumerate(ranks, 1):
        ad = job(cpus, Liked=rank)
        claims.append(point.claim(PARENT, ad, run=f"{number}.0/1", submitter=f"user{number}", **fields).claim)
    return claims


@spec("PRE-17", "W-47")
def test_dynamic_slots_make_room_for_a_larger_job():
    """6 cpus in three dynamic slots, liked 3, 1 and 0; one of 4 cpus, liked 5, takes the two that are liked least."""
    point = Point()
    a, b, c = carved(point, [3, 1, 0])
    accepted = point.claim(PARENT, job(4, Liked=5), submitter="bob", preempts=[c.slot, b.slot])
    assert isinstance(accepted, Accepted)
    assert accepted.waiting.code == VacateReason.RANK
    assert [point.at(x.slot) for x in (a, b, c)] == ["Claimed/Busy", "Preempting/Vacating", "Preempting/Vacating"]
    point.gone(c)
    assert point.slot_manager.slots[PARENT].free["Cpus"] == 0  # it is kept for the claim that waits
    assert isinstance(point.claim(PARENT, submitter="eve"), Refused)
    point.gone(b)
    claim = accepted.waiting.claim
    slot = point.slot_manager.slots[claim.slot]
    assert (slot.name, slot.total["Cpus"], point.at(slot.name)) == ("slot1_4@node1", 4, "Claimed/Idle")
    assert set(point.slot_manager.slots) == {PARENT, STATIC, a.slot, slot.name}
    assert point.ready == [claim.claim_id]
    assert (
        point.slot_manager.slots[PARENT].free.plus(slot.total).plus(point.slot_manager.slots[a.slot].total) == MACHINE
    )


@spec("PRE-12")
def test_no_more_is_preempted_than_the_job_needs():
    point = Point()
    claims = carved(point, [0, 0, 0])
    accepted = point.claim(PARENT, job(2), submitter="bob", preempts=[c.slot for c in claims])
    assert accepted.waiting.victims == [claims[0].slot]
    assert [point.at(c.slot) for c in claims[1:]] == ["Claimed/Busy"] * 2


def test_what_is_free_already_needs_no_preemption():
    point = Point()
    (a,) = carved(point, [0])
    granted = point.claim(PARENT, job(3), submitter="bob", preempts=[a.slot])
    assert isinstance(granted, Granted)
    assert point.at(a.slot) == "Claimed/Busy"


@pytest.mark.parametrize(
    ("rank", "submitter", "rules", "why"),
    [
        (1, "bob", {}, "RANK is 1"),
        (2, "user1", {}, "likes as well"),
        (5, "bob", {"max_job_retirement_time": "100"}, "retirement time left"),
    ],
    ids=["PRE-12", "PRE-16", "PRE-14"],
)
def test_dynamic_slots_that_must_not_be_preempted_are_spared(rank, submitter, rules, why):
    point = Point(**rules)
    (a,) = carved(point, [2], cpus=6)
    answer = point.claim(PARENT, job(4, Liked=rank), submitter=submitter, preempts=[a.slot])
    assert (answer.code, point.at(a.slot)) == ("resources", "Claimed/Busy")
    assert why in answer.reason


@spec("PRE-17")
def test_a_dynamic_slot_that_went_meanwhile_leaves_room_or_does_not():
    point = Point()
    a, b, _ = carved(point, [0, 0, 0])
    ask = request(point.slot_manager, PARENT, 99, job(4), submitter="bob", preempts=[a.slot, b.slot])
    point.slot_manager.vacate(a.claim_id, "released", graceful=True, now=point.now)
    point.gone(a)
    answer = point.slot_manager.request(ask, job(4), point.now)
    assert answer.waiting.victims == [b.slot]  # what a had is free, and b is still there
    other = Point()
    a, b, _ = carved(other, [0, 0, 0])
    wrong = request(other.slot_manager, PARENT, 99, job(4), submitter="bob", preempts=[a.slot])
    stolen = ((a.slot, "<guess>"), (b.slot, a.claim_id), (STATIC, other.slot_manager.slots[STATIC].offer))
    refused = other.slot_manager.request(
        wrong.__class__(**{**{f: getattr(wrong, f) for f in wrong.__slots__}, "preempts": stolen}), job(4), other.now
    )
    assert refused.code == "resources"
    assert [other.at(c.slot) for c in (a, b)] == ["Claimed/Busy"] * 2


def test_who_was_accepted_first_is_not_left_without_by_those_who_follow():
    """Each gets what was emptied for it, in whatever order the slots empty."""
    point = Point()
    a, b, c = carved(point, [0, 0, 0])
    first = point.claim(PARENT, job(4), submitter="bob", preempts=[a.slot, b.slot]).waiting
    second = point.claim(PARENT, job(2), submitter="carol", preempts=[c.slot]).waiting
    point.gone(c)
    assert point.ready == [second.claim.claim_id]
    point.gone(a)
    point.gone(b)
    assert point.ready == [second.claim.claim_id, first.claim.claim_id]


def test_a_slot_that_nobody_waits_for_any_more_shows_it():
    """Room came from elsewhere while it empties."""
    point = Point()
    a, b, c = carved(point, [0, 0, 0])
    point.claim(PARENT, job(4), submitter="bob", preempts=[a.slot, b.slot])
    point.slot_manager.vacate(c.claim_id, "released", graceful=True, now=point.now)
    point.gone(c)
    point.slot_manager.run_gone(a.claim_id, a.run, point.now)
    assert b.slot in point.slot_manager.take_effects().slots
    assert point.slot_manager.slots[b.slot].waiting == ""


def test_a_claim_that_gives_up_waiting_gives_back_what_was_kept_for_it():
    point = Point()
    a, b, _ = carved(point, [0, 0, 0])
    waiting = point.claim(PARENT, job(4), submitter="bob", preempts=[a.slot, b.slot]).waiting
    point.gone(a)
    point.slot_manager.vacate(waiting.claim.claim_id, "released", graceful=True, now=point.now)
    point.gone(b)
    assert point.slot_manager.slots[PARENT].free["Cpus"] == 4
    assert not point.slot_manager.waiting


# A startd that was killed in the middle


def restarted(point, **rules):
    """Another life of the same startd, from what the journal keeps."""
    other = Point(**rules)
    other.now = point.now
    for claim in point.slot_manager.claims.values():
        kept, slot = unpack_claim(pack_claim(claim, point.slot_manager.slots[claim.slot]))
        assert other.slot_manager.restore(kept, slot, other.now) == ""
    for waiting in point.slot_manager.waiting.values():
        assert other.slot_manager.restore_waiting(unpack_waiting(pack_waiting(waiting)), other.now) == ""
    other.slot_manager.resume(other.now)
    other.look()
    return other


def test_a_restarted_startd_goes_on_preempting_where_it_was():
    point = Point(machine_max_vacate_time="20")
    old = point.claim(STATIC, run="1.0/1").claim
    new = point.claim(STATIC, submitter="bob").waiting.claim
    point.after(5)
    other = restarted(point)
    assert (other.at(), other.stops) == ("Preempting/Vacating", [("1.0/1", "ask")])
    assert other.slot_manager.claims[old.claim_id].vacate_s == 20
    other.after(15)
    assert other.at() == "Preempting/Killing"
    other.gone(other.slot_manager.claims[old.claim_id])
    assert (other.at(), other.ready) == ("Claimed/Idle", [new.claim_id])


def test_a_restarted_startd_keeps_back_what_a_claim_waits_for():
    point = Point()
    a, b, _ = carved(point, [0, 0, 0])
    waiting = point.claim(PARENT, job(4), submitter="bob", preempts=[a.slot, b.slot]).waiting
    point.gone(a)
    other = restarted(point)
    assert other.slot_manager.slots[PARENT].free["Cpus"] == 0
    other.gone(other.slot_manager.claims[b.claim_id])
    assert other.ready == [waiting.claim.claim_id]
    assert other.slot_manager.slots[other.slot_manager.claims[waiting.claim.claim_id].slot].total["Cpus"] == 4


def test_a_claim_whose_slot_emptied_while_the_startd_was_away_is_told_so():
    point = Point()
    old = point.claim(STATIC, run="1.0/1").claim
    waiting = point.claim(STATIC, submitter="bob").waiting
    other = Point()
    assert STATIC in other.slot_manager.restore_waiting(unpack_waiting(pack_waiting(waiting)), other.now)
    assert old.run
    assert not other.slot_manager.waiting
    assert (other.slot_manager.slots[STATIC].state, other.slot_manager.slots[STATIC].activity) == (
        State.UNCLAIMED,
        Activity.IDLE,
    )
