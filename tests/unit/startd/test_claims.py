"""The book of slots and claims, driven by random requests against its invariants."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from engine.fairshare.claim_charging import charged_to
from engine.slots.amounts import Amounts
from engine.slots.carving import Carving, PlannedSlot, SlotKind
from services.startd.ads.claim_ads import put_claim
from services.startd.core.slots.model import Claim
from services.startd.core.slots.policy import Policy
from services.startd.core.slots.requests import Accepted, ClaimRequest, Granted, Refused
from services.startd.core.slots.transitions import TABLE, Activity, Cause, InvalidTransition, State, step
from shared.classad import ClassAd, parse_expr
from tests.spec import spec
from tests.unit.startd.recording import RecordedSlots

MACHINE = Amounts({"Cpus": 6, "Memory": 4000, "Disk": 50_000})
STATIC = Amounts({"Cpus": 2, "Memory": 1000, "Disk": 10_000})


def policy(**texts):
    texts = {
        "start": "true",
        "rank": "0",
        "is_owner": "false",
        "slot_weight": "Cpus",
        "claim_worklife": "1200",
        "machine_max_vacate_time": "600",
        "max_job_retirement_time": "0",
        "want_suspend": "false",
        "preempt": "false",
        "want_vacate": "true",
        "kill": "false",
    } | texts
    return Policy(**{name: parse_expr(text) for name, text in texts.items()})


def make_book(rules=None, start_time=1):
    rules = rules or policy()
    count = iter(range(10**9))

    def ad_of(slot):
        return ClassAd(
            {
                "Name": slot.name,
                "State": str(slot.state),
                "Requirements": parse_expr("START && WithinResourceLimits"),
                "WithinResourceLimits": True,
                "START": rules.start,
                **(slot.free if slot.kind is SlotKind.PARTITIONABLE else slot.total),
            }
        )

    manager = RecordedSlots(
        startd="node1",
        start_time=start_time,
        ad_of=ad_of,
        policy_of=lambda _: rules,
        carving=Carving({}),
        new_secret=lambda: f"secret{next(count)}",
    )
    plans = [PlannedSlot(1, 0, SlotKind.PARTITIONABLE, MACHINE), PlannedSlot(2, 1, SlotKind.STATIC, STATIC)]
    manager.add_slots(plans, 0.0)
    return manager


def job(cpus=1, memory=100, **attributes):
    return ClassAd({"RequestCpus": cpus, "RequestMemory": memory, "RequestDisk": 100} | attributes)


def request(manager, slot, number, ad=None, **fields):
    """A request for a slot by the claim id that it is offered by. `preempts`: names of slots to be preempted."""
    named = fields.pop("preempts", ())
    values = {
        "request_id": f"r{number}",
        "claim_id": manager.slots[slot].offer,
        "slot": slot,
        "schedd": "schedd1",
        "submitter": "alice",
        "job_ad": (ad or job()).pack(),
        "lease_s": 60.0,
        "alive_interval_s": 300,
        "epoch": 1,
        "preempts": tuple((name, manager.slots[name].offer) for name in named),
    }
    return ClaimRequest(**(values | fields))


def conditions(manager):
    return {name: str(slot.condition) for name, slot in manager.slots.items()}


SLOTS = ("slot1@node1", "slot2@node1")
POLICIES = (
    {"rank": "TARGET.Liked ?: 0"},
    {"rank": "TARGET.Liked ?: 0", "max_job_retirement_time": "50", "machine_max_vacate_time": "20"},
    {"rank": "0", "want_vacate": "false", "claim_worklife": "30"},
)


def test_a_request_that_comes_again_after_its_claim_has_ended_gets_no_other():
    """What a broker delivers once more would run a job again that has ended."""
    manager, ad = make_book(policy(rank="0")), job()
    asked = request(manager, "slot1@node1", 1, ad)
    granted = manager.request(asked, ad, 1.0)
    manager.vacate(granted.claim.claim_id, "released by the schedd", graceful=True, now=2.0)
    before = conditions(manager)
    again = manager.request(asked, ad, 3.0)
    assert isinstance(again, Refused)
    assert (again.code, again.reason) == ("unknown-claim", "the claim of request r1 is over")
    assert conditions(manager) == before
    other = manager.request(replace(asked, request_id="r2"), ad, 4.0)
    assert not isinstance(other, Refused)  # the slot itself may be had
    manager.vacate(other.claim.claim_id, "released by the schedd", graceful=True, now=3604.0)  # a clock that was set
    third = manager.request(replace(asked, request_id="r3"), ad, 3605.0)
    manager.vacate(third.claim.claim_id, "released by the schedd", graceful=True, now=6.0)
    assert all(isinstance(manager.request(replace(asked, request_id=r), ad, 7.0), Refused) for r in ("r1", "r2", "r3"))


@pytest.mark.parametrize("slot", SLOTS)
def test_a_request_to_a_former_life_of_the_startd_gets_nothing(slot):
    """This life does not know whether that one answered it, and a job that has ended would run again."""
    former, ad = make_book(policy(rank="0")), job()
    asked = request(former, slot, 1, ad)
    granted = former.request(asked, ad, 1.0)
    former.vacate(granted.claim.claim_id, "released by the schedd", graceful=True, now=2.0)
    manager = make_book(policy(rank="0"), start_time=3)
    manager.restore_children("slot1@node1", former.slots["slot1@node1"].children)
    manager.resume(3.0)
    assert isinstance(manager.request(asked, ad, 4.0), Refused)
    anew = manager.request(request(manager, slot, 2, ad), ad, 5.0)
    assert isinstance(anew, Granted)
    if slot == "slot1@node1":
        assert anew.claim.slot == "slot1_2@node1"  # the name of the first is not used again


class Claims(RuleBasedStateMachine):
    """Whatever is asked in whatever order, resources add up, every slot has one claim and one run at most, and nobody
    waits for what will not come."""

    claims = Bundle("claims")

    @initialize(rules=st.sampled_from(POLICIES))
    def begin(self, rules):
        self.slot_manager = make_book(policy(**rules))
        self.now = 0.0
        self.number = 0
        self.told = set()  # runs that were told to stop

    def ask(self, slot, ad, **fields):
        self.number += 1
        self.now += 1
        asked = request(self.slot_manager, slot, self.number, ad, **fields)
        answer = self.slot_manager.request(asked, ad, self.now)
        if isinstance(answer, Refused):
            assert answer.code in ("resources", "requirements", "busy", "unknown-claim")
            return "none"
        again = self.slot_manager.request(asked, ad, self.now)
        assert again.again
        assert type(again) is type(answer)
        if isinstance(answer, Accepted):
            assert again.waiting is answer.waiting
            return answer.waiting.claim.claim_id
        assert again.claim is answer.claim
        return answer.claim.claim_id

    @rule(target=claims, slot=st.sampled_from(SLOTS), cpus=st.integers(1, 7), liked=st.integers(0, 3))
    def claim(self, slot, cpus, liked):
        return self.ask(slot, job(cpus, Liked=liked))

    @rule(target=claims, data=st.data(), liked=st.integers(0, 3), submitter=st.sampled_from(["alice", "bob"]))
    def preempt(self, data, liked, submitter):
        slot = data.draw(st.sampled_from(sorted(self.slot_manager.slots)))
        return self.ask(slot, job(1, Liked=liked), submitter=submitter)

    @rule(target=claims, data=st.data(), cpus=st.integers(1, 6), liked=st.integers(0, 3))
    def preempt_parts(self, data, cpus, liked):
        parts = [slot.name for slot in self.slot_manager.dynamic_slots(SLOTS[0])]
        chosen = data.draw(st.lists(st.sampled_from(parts), max_size=4)) if parts else []
        return self.ask(SLOTS[0], job(cpus, Liked=liked), submitter="carol", preempts=chosen)

    @rule(slot=st.sampled_from(SLOTS))
    def notice(self, slot):
        self.slot_manager.matched(slot, self.slot_manager.slots[slot].offer, 1, "", self.now)

    @rule(claim=claims, run=st.sampled_from(["1.0/1", "2.0/1", "3.0/1"]), cpus=st.integers(1, 3))
    def activate(self, claim, run, cpus):
        before = self.slot_manager.claims.get(claim)
        answer = self.slot_manager.activate(claim, run, job(cpus).pack(), job(cpus), self.now)
        if isinstance(answer, Refused):
            assert before is None or before.run != run
        else:
            assert answer.run == run
            assert self.slot_manager.activate(claim, run, b"", job(cpus), self.now) is answer

    @rule(claim=claims, run=st.sampled_from(["1.0/1", "2.0/1", "3.0/1"]))
    def run_gone(self, claim, run):
        self.slot_manager.run_gone(claim, run, self.now)

    @rule(claim=claims, graceful=st.booleans())
    def vacate(self, claim, graceful):
        waited = claim in self.slot_manager.waiting
        self.slot_manager.vacate(claim, "a reason", graceful=graceful, now=self.now)
        known = self.slot_manager.claims.get(claim)
        assert claim not in self.slot_manager.waiting
        assert known is None or (not waited and known.run and known.end_reason)

    @rule(claim=consumes(claims))
    def give_back(self, claim):
        known = self.slot_manager.claims.get(claim)
        self.slot_manager.vacate(claim, "a reason", graceful=False, now=self.now)
        if known is not None and known.run:
            self.slot_manager.run_gone(claim, known.run, self.now)
        assert claim not in self.slot_manager.claims

    @rule(seconds=st.sampled_from([1.0, 10.0, 40.0, 130.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.slot_manager.review(self.now)
        look = self.slot_manager.next_look(self.now)
        assert look is None or look > self.now, conditions(self.slot_manager)

    @invariant()
    def resources_add_up(self):
        parent = self.slot_manager.slots[SLOTS[0]]
        used = Amounts()
        for slot in self.slot_manager.dynamic_slots(parent.name):
            used = used.plus(slot.total)
        for waiting in self.slot_manager.waiting.values():
            used = used.plus(waiting.reserved)
        assert parent.free.plus(used) == MACHINE
        assert all(amount >= 0 for amount in parent.free.values())

    @invariant()
    def claims_and_slots_agree(self):
        assert {slot.claim.claim_id for slot in self.slot_manager.slots.values() if slot.claim} == set(
            self.slot_manager.claims
        )
        assert len({id(slot.claim) for slot in self.slot_manager.slots.values() if slot.claim}) == len(
            self.slot_manager.claims
        )
        for slot in self.slot_manager.slots.values():
            if slot.claim is None:
                assert slot.state in (State.UNCLAIMED, State.MATCHED)
                assert slot.kind is not SlotKind.DYNAMIC
                assert slot.offer
                assert not slot.waiting
            else:
                assert slot.kind is not SlotKind.PARTITIONABLE
                assert slot.state in (State.CLAIMED, State.PREEMPTING)
                assert bool(slot.offer) == (slot.state is State.CLAIMED)
                assert bool(slot.claim.run) == (slot.activity is not Activity.IDLE)
                assert slot.claim.rank >= 0
        offers = list(self.slot_manager.offers().values())
        ids = {*offers, *self.slot_manager.claims, *self.slot_manager.waiting}
        assert len(ids) == len(offers) + len(self.slot_manager.claims) + len(self.slot_manager.waiting)

    @invariant()
    def who_waits_waits_for_something(self):
        waits = {name: key for key, waiting in self.slot_manager.waiting.items() for name in waiting.victims}
        assert waits == {slot.name: slot.waiting for slot in self.slot_manager.slots.values() if slot.waiting}
        for waiting in self.slot_manager.waiting.values():
            assert waiting.victims
            assert all(self.slot_manager.slots[name].claim.run for name in waiting.victims)
            if waiting.wanted is None:
                assert waiting.victims == [waiting.claim.slot]
            else:
                assert not waiting.reserved.holds(waiting.wanted)

    @invariant()
    def who_must_leave_was_told(self):
        changes = self.slot_manager.take_effects()
        self.told |= {(stop.run, stop.fast) for stop in changes.stops}
        for slot in self.slot_manager.slots.values():
            if slot.state is State.PREEMPTING:
                assert (slot.claim.run, slot.activity is Activity.KILLING) in self.told
        for claim in changes.ready:
            assert self.slot_manager.slots[claim.slot].claim is claim or changes.claims[claim.claim_id] is None

    def teardown(self):
        for claim_id in [*self.slot_manager.waiting, *self.slot_manager.claims]:
            self.slot_manager.vacate(claim_id, "the end", graceful=False, now=self.now)
        for claim in list(self.slot_manager.claims.values()):
            self.slot_manager.run_gone(claim.claim_id, claim.run, self.now)
        self.slot_manager.review(self.now + 1000.0)
        assert conditions(self.slot_manager) == dict.fromkeys(SLOTS, "Unclaimed/Idle")
        assert self.slot_manager.slots[SLOTS[0]].free == MACHINE
        assert not self.slot_manager.waiting


Claims.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestClaims = Claims.TestCase


@spec("STM-10", "STM-53")
def test_a_claim_past_its_worklife_ends_with_its_job():
    manager = make_book(policy(claim_worklife="0"))
    claim = manager.request(request(manager, "slot1@node1", 1), job(), 0.0).claim
    assert not isinstance(manager.activate(claim.claim_id, "1.0/1", job().pack(), job(), 5.0), Refused)
    manager.run_gone(claim.claim_id, "1.0/1", 6.0)
    refused = manager.activate(claim.claim_id, "2.0/1", job().pack(), job(), 7.0)
    assert refused.code == "unknown-claim"


def test_the_owner_takes_idle_slots_only():
    manager = make_book(policy(is_owner='Name =?= "slot2@node1"'))
    assert str(manager.slots["slot2@node1"].condition) == "Owner/Idle"
    assert str(manager.slots["slot1@node1"].condition) == "Unclaimed/Idle"


@spec("STM-54", "STM-10", "STM-22")
def test_start_alone_decides_whether_a_slot_in_owner_takes_a_job():
    manager = make_book(policy(is_owner="true"))
    claim = manager.request(request(manager, "slot2@node1", 1), job(), 0.0).claim
    assert str(manager.slots["slot2@node1"].condition) == "Claimed/Idle"
    assert not isinstance(manager.activate(claim.claim_id, "1.0/1", job().pack(), job(), 5.0), Refused)
    manager.review(10.0)
    assert str(manager.slots["slot2@node1"].condition) == "Claimed/Busy"  # STM-54
    manager.run_gone(claim.claim_id, "1.0/1", 20.0)
    manager.review(25.0)
    assert str(manager.slots["slot2@node1"].condition) == "Claimed/Idle"  # STM-10: the owner gets it after the claim
    manager.vacate(claim.claim_id, "released", graceful=True, now=30.0)
    assert str(manager.slots["slot2@node1"].condition) == "Owner/Idle"  # STM-22


def test_a_slot_whose_start_is_false_is_not_lent():
    manager = make_book(policy(start="false"))
    assert manager.request(request(manager, "slot1@node1", 1), job(), 0.0).code == "requirements"


def test_older_epochs_and_wrong_claim_ids_open_nothing():
    manager = make_book()
    assert isinstance(manager.request(request(manager, "slot1@node1", 1, epoch=3), job(), 0.0), Granted)
    assert manager.request(request(manager, "slot1@node1", 2, epoch=2), job(), 0.0).code == "stale-epoch"
    assert (
        manager.request(request(manager, "slot1@node1", 3, epoch=3, claim_id="<x>"), job(), 0.0).code == "unknown-claim"
    )


def test_dynamic_slots_are_numbered_upwards():
    manager = make_book()
    names = [manager.request(request(manager, "slot1@node1", n), job(), 0.0).slot.name for n in range(3)]
    assert names == ["slot1_1@node1", "slot1_2@node1", "slot1_3@node1"]


def test_every_arrow_starts_and_ends_in_a_condition_with_a_way_out():
    starts = {row.before for row in TABLE}
    assert all(row.after in starts for row in TABLE)
    for row in TABLE:
        assert step(row.before, row.cause) == row.after
    assert len({(row.before, row.cause) for row in TABLE}) == len(TABLE)


def test_what_is_not_in_the_table_can_not_happen():
    arrows = {(row.before, row.cause) for row in TABLE}
    for row in TABLE:
        for cause in Cause:
            if (row.before, cause) not in arrows:
                with pytest.raises(InvalidTransition, match=str(row.before)):
                    step(row.before, cause)


@spec("ACC-04", "GRP-25")
@pytest.mark.parametrize(
    ("submitter", "job", "charged"),
    [
        ("ann@pool", {"User": "ann@pool"}, ""),
        ("physics.ann@pool", {"User": "ann@pool", "AccountingGroup": "physics.ann"}, "physics.ann@pool"),
        ("nice-user.ann@pool", {"User": "ann@pool", "NiceUser": True}, "nice-user.ann@pool"),
        ("ann@pool", {"User": "ann@pool", "AccountingGroup": "physics.ann"}, "physics.ann@pool"),  # fetched work
        ("ann@pool", {}, ""),
    ],
)
def test_a_slot_says_in_full_whom_it_is_charged_to(submitter, job, charged):
    """As the negotiator names the submitter, or use and shares would be of two users. RemoteUser is the job's."""
    claim = Claim("id", "slot1@ep", "ap", submitter, "r", 60, 20, b"", 0, 1)
    claim.describe(ClassAd(job), 0.0)
    claim.job_ad = ClassAd(job).pack()
    ad = ClassAd({"State": "Claimed"})
    put_claim(ad, claim, State.CLAIMED, ())
    assert ("AccountingGroup" in ad) is bool(charged)
    assert ad.eval("RemoteUser") == job.get("User", submitter)
    assert charged_to(ad) == (charged or submitter)
