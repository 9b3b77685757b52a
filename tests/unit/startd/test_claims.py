"""The book of slots and claims, driven by random requests against its invariants."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from services.startd.amounts import Amounts
from services.startd.claims import Book, ClaimRequest, Granted, Refused
from services.startd.partition import Carving, PlannedSlot, SlotKind
from services.startd.policy import Policy
from services.startd.transitions import TABLE, Activity, Cause, InvalidTransition, State, allowed, step
from shared.classad import ClassAd, parse_expr

MACHINE = Amounts({"Cpus": 6, "Memory": 4000, "Disk": 50_000})
STATIC = Amounts({"Cpus": 2, "Memory": 1000, "Disk": 10_000})


def policy(start="true", owner="false", worklife="1200"):
    texts = {
        "start": start,
        "rank": "0",
        "is_owner": owner,
        "slot_weight": "Cpus",
        "claim_worklife": worklife,
        "machine_max_vacate_time": "600",
    }
    return Policy(**{name: parse_expr(text) for name, text in texts.items()})


def make_book(rules=None):
    rules = rules or policy()
    count = iter(range(10**9))

    def ad_of(slot):
        return ClassAd(
            {
                "Name": slot.name,
                "Requirements": parse_expr("START"),
                "START": rules.start,
                **(slot.free if slot.kind is SlotKind.PARTITIONABLE else slot.total),
            }
        )

    book = Book(
        "node1",
        1,
        ad_of=ad_of,
        policy_of=lambda _: rules,
        carving=Carving({}),
        new_secret=lambda: f"secret{next(count)}",
    )
    plans = [PlannedSlot(1, 0, SlotKind.PARTITIONABLE, MACHINE), PlannedSlot(2, 1, SlotKind.STATIC, STATIC)]
    book.add_slots(plans, 0.0)
    return book


def job(cpus=1, memory=100):
    return ClassAd({"RequestCpus": cpus, "RequestMemory": memory, "RequestDisk": 100})


def request(book, slot, number, epoch=1, claim_id=None):
    offer = book.slots[slot].offer if claim_id is None else claim_id
    return ClaimRequest(f"r{number}", offer, slot, "schedd1", "alice", b"", 60.0, 300, epoch)


class Claims(RuleBasedStateMachine):
    """Whatever is asked in whatever order, resources add up and every slot has one claim and one run at most."""

    claims = Bundle("claims")

    def __init__(self):
        super().__init__()
        self.book = make_book()
        self.now = 0.0
        self.number = 0

    @rule(target=claims, slot=st.sampled_from(["slot1@node1", "slot2@node1"]), cpus=st.integers(1, 7))
    def claim(self, slot, cpus):
        self.number += 1
        self.now += 1
        asked = request(self.book, slot, self.number)
        answer = self.book.request(asked, job(cpus), self.now)
        if isinstance(answer, Granted):
            again = self.book.request(asked, job(cpus), self.now)
            assert again.again
            assert again.claim is answer.claim
            return answer.claim.claim_id
        assert answer.code in ("resources", "requirements", "busy", "unknown-claim")
        return "none"

    @rule(claim=claims, run=st.sampled_from(["1.0/1", "2.0/1"]), cpus=st.integers(1, 3))
    def activate(self, claim, run, cpus):
        before = self.book.claims.get(claim)
        answer = self.book.activate(claim, run, b"", job(cpus), self.now)
        if isinstance(answer, Refused):
            assert before is None or before.run != run
        else:
            assert answer.run == run
            assert self.book.activate(claim, run, b"", job(cpus), self.now) is answer

    @rule(claim=claims, run=st.sampled_from(["1.0/1", "2.0/1"]))
    def run_gone(self, claim, run):
        self.book.run_gone(claim, run, self.now)

    @rule(claim=claims, graceful=st.booleans())
    def vacate(self, claim, graceful):
        self.book.vacate(claim, "a reason", graceful=graceful, now=self.now)
        known = self.book.claims.get(claim)
        assert known is None or (known.run and known.ending)

    @rule(claim=consumes(claims))
    def give_back(self, claim):
        known = self.book.claims.get(claim)
        self.book.vacate(claim, "a reason", graceful=False, now=self.now)
        if known is not None and known.run:
            self.book.run_gone(claim, known.run, self.now)
        assert claim not in self.book.claims

    @invariant()
    def resources_add_up(self):
        parent = self.book.slots["slot1@node1"]
        used = Amounts()
        for slot in self.book.dynamic_slots(parent.name):
            used = used.plus(slot.total)
        assert parent.free.plus(used) == MACHINE
        assert all(amount >= 0 for amount in parent.free.values())

    @invariant()
    def claims_and_slots_agree(self):
        assert {slot.claim.claim_id for slot in self.book.slots.values() if slot.claim} == set(self.book.claims)
        assert len({id(slot.claim) for slot in self.book.slots.values() if slot.claim}) == len(self.book.claims)
        for slot in self.book.slots.values():
            if slot.claim is None:
                assert slot.state is State.UNCLAIMED
                assert slot.kind is not SlotKind.DYNAMIC
                assert slot.offer
            else:
                assert slot.kind is not SlotKind.PARTITIONABLE
                assert not slot.offer
                assert slot.state in (State.CLAIMED, State.PREEMPTING)
                assert bool(slot.claim.run) == (slot.activity is not Activity.IDLE)
        offers = list(self.book.offers().values())
        assert len(set(offers) | set(self.book.claims)) == len(offers) + len(self.book.claims)

    def teardown(self):
        for claim in list(self.book.claims.values()):
            self.book.vacate(claim.claim_id, "the end", graceful=False, now=self.now)
            self.book.run_gone(claim.claim_id, claim.run, self.now)
        assert {name: str(slot.condition) for name, slot in self.book.slots.items()} == {
            "slot1@node1": "Unclaimed/Idle",
            "slot2@node1": "Unclaimed/Idle",
        }
        assert self.book.slots["slot1@node1"].free == MACHINE


Claims.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestClaims = Claims.TestCase


def test_a_claim_past_its_worklife_takes_no_further_job():
    book = make_book(policy(worklife="0"))
    claim = book.request(request(book, "slot1@node1", 1), job(), 0.0).claim
    assert not isinstance(book.activate(claim.claim_id, "1.0/1", b"", job(), 5.0), Refused)
    book.run_gone(claim.claim_id, "1.0/1", 6.0)
    refused = book.activate(claim.claim_id, "2.0/1", b"", job(), 7.0)
    assert refused.code == "worklife"


def test_the_owner_takes_idle_slots_only():
    book = make_book(policy(owner='Name =?= "slot2@node1"'))
    assert str(book.slots["slot2@node1"].condition) == "Owner/Idle"
    assert book.slots["slot2@node1"].offer == ""
    assert str(book.slots["slot1@node1"].condition) == "Unclaimed/Idle"


def test_a_slot_whose_start_is_false_is_not_lent():
    book = make_book(policy(start="false"))
    assert book.request(request(book, "slot1@node1", 1), job(), 0.0).code == "requirements"


def test_older_epochs_and_wrong_claim_ids_open_nothing():
    book = make_book()
    assert isinstance(book.request(request(book, "slot1@node1", 1, epoch=3), job(), 0.0), Granted)
    assert book.request(request(book, "slot1@node1", 2, epoch=2), job(), 0.0).code == "stale-epoch"
    assert book.request(request(book, "slot1@node1", 3, epoch=3, claim_id="<x>"), job(), 0.0).code == "unknown-claim"


def test_dynamic_slots_are_numbered_upwards():
    book = make_book()
    names = [book.request(request(book, "slot1@node1", n), job(), 0.0).slot.name for n in range(3)]
    assert names == ["slot1_1@node1", "slot1_2@node1", "slot1_3@node1"]


def test_every_arrow_starts_and_ends_in_a_condition_with_a_way_out():
    starts = {row.before for row in TABLE}
    assert all(row.after in starts for row in TABLE)
    for row in TABLE:
        assert step(row.before, row.cause) == row.after
    assert len({(row.before, row.cause) for row in TABLE}) == len(TABLE)


def test_what_is_not_in_the_table_can_not_happen():
    for row in TABLE:
        for cause in Cause:
            if not allowed(row.before, cause):
                with pytest.raises(InvalidTransition, match=str(row.before)):
                    step(row.before, cause)
