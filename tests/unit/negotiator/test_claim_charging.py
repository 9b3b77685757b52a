"""What is charged for claims that are heard of late, or not at all (ACC-16, ACC-18): once, for the time that it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fairshare.claim_charging import LONGEST_S, REMEMBERED_S, ClaimCharges
from engine.fairshare.priorities import MINIMUM_PRIORITY, Record, advance, backdate, settle
from services.negotiator.clock_offsets import ClockOffsets
from shared.past_claims import Past, read_past
from tests.spec import spec

DAY = 86_400.0
ALICE = "alice@pool"


def past(*claims: tuple[str, float, float], cpus: float = 1.0, user: str = ALICE) -> str:
    """RoostPastClaims, as a startd writes it."""
    return "\n".join(Past(slot, began, ended, cpus, user).text for slot, began, ended in claims)


class Books:
    """A tally, and what is charged by the clock from what it sees: what the daemon does with them."""

    def __init__(self) -> None:
        self.claim_charges, self.now = ClaimCharges(), 1000.0
        self.slots: dict[str, tuple[str, float]] = {}
        self.charged: dict[str, float] = {}

    def at(self, now: float) -> None:
        for user, weight in self.slots.values():
            self.charged[user] = self.charged.get(user, 0.0) + weight * (now - self.now)
        self.now = now

    def ad(self, slot: str, claimed_at: float | None = None, *, told: str = "", user: str = ALICE) -> None:
        self.slots.pop(slot, None)
        if claimed_at is not None:
            self.slots[slot] = (user, 1.0)
        self.claim_charges.slot_seen(
            slot, user=user if claimed_at else "", weight=1.0, claimed_at=claimed_at, past=told, now=self.now
        )
        self._late()

    def gone(self, slot: str) -> None:
        self.slots.pop(slot, None)
        self.claim_charges.slot_dropped(slot, self.now)
        self._late()

    def _late(self) -> None:
        for use in self.claim_charges.take_late():
            self.charged[use.user] = self.charged.get(use.user, 0.0) + use.weight * (use.ended - use.began)

    def used(self) -> float:
        return self.charged.get(ALICE, 0.0)


@pytest.fixture
def books() -> Books:
    return Books()


@spec("ACC-18")
def test_a_claim_that_is_heard_of_late_is_charged_from_its_begin(books: Books) -> None:
    books.at(1030.0)
    books.ad("slot1_1@ep", 1000.0)
    books.at(1040.0)
    assert books.used() == pytest.approx(40.0)


@spec("ACC-18")
def test_an_end_that_is_heard_of_late_is_given_back(books: Books) -> None:
    books.ad("slot1_1@ep", 1000.0)
    books.at(1060.0)
    books.ad("slot1@ep", told=past(("slot1_1@ep", 1000.0, 1020.0)))
    books.gone("slot1_1@ep")
    assert books.used() == pytest.approx(20.0)


@spec("ACC-18")
def test_a_claim_that_came_and_went_unheard_is_charged_once(books: Books) -> None:
    books.at(1060.0)
    told = past(("slot1_1@ep", 1010.0, 1020.0), ("slot1_2@ep", 1030.0, 1031.0))
    books.ad("slot1@ep", told=told)
    books.ad("slot1@ep", told=told + "\n" + past(("slot1_3@ep", 1059.0, 1060.0)))
    assert books.used() == pytest.approx(12.0)


@spec("ACC-18")
def test_a_static_slot_that_goes_from_claim_to_claim_unheard(books: Books) -> None:
    books.ad("slot1@ep", 1000.0)
    books.at(1050.0)
    books.ad("slot1@ep", 1030.0, told=past(("slot1@ep", 1000.0, 1010.0), ("slot1@ep", 1015.0, 1020.0)))
    books.at(1060.0)
    assert books.used() == pytest.approx(10.0 + 5.0 + 30.0)


@spec("ACC-18")
def test_an_ad_that_was_lost_for_a_while_costs_nothing_and_is_not_paid_twice(books: Books) -> None:
    books.ad("slot1_1@ep", 1000.0)
    books.at(1010.0)
    books.gone("slot1_1@ep")
    books.at(1020.0)
    books.ad("slot1_1@ep", 1000.0)
    books.at(1030.0)
    assert books.used() == pytest.approx(30.0)
    books.gone("slot1_1@ep")
    books.at(1050.0)
    books.ad("slot1@ep", told=past(("slot1_1@ep", 1000.0, 1040.0)))
    assert books.used() == pytest.approx(40.0)


@spec("ACC-14")
def test_a_suspended_slot_that_is_free_of_charge_is_not_made_good(books: Books) -> None:
    books.ad("slot1@ep", 1000.0)
    books.at(1010.0)
    books.slots.clear()
    books.claim_charges.slot_seen("slot1@ep", user="", weight=1.0, claimed_at=1000.0, past="", now=1010.0)
    books.at(1030.0)
    assert books.used() == pytest.approx(10.0)
    assert books.claim_charges.take_late() == []


@spec("ACC-14")
def test_what_was_free_of_charge_stays_so(books: Books) -> None:
    """Also when it is charged again, and when its end is told."""
    for slot in ("slot1@ep", "slot2@ep"):
        books.ad(slot, 1000.0)
    books.at(1010.0)
    for slot in ("slot1@ep", "slot2@ep"):
        books.slots.pop(slot)
        books.claim_charges.slot_seen(slot, user="", weight=1.0, claimed_at=1000.0, past="", now=1010.0)
    books.at(1030.0)
    books.ad("slot1@ep", 1000.0)
    books.ad("slot2@ep", told=past(("slot2@ep", 1000.0, 1030.0)))
    books.at(1035.0)
    books.ad("slot1@ep", told=past(("slot1@ep", 1000.0, 1035.0)))
    assert books.used() == pytest.approx(10.0 + 10.0 + 5.0)


@spec("ACC-18")
@pytest.mark.parametrize("seen", [False, True])
def test_an_end_that_its_startd_forgot_and_tells_anew_counts_once(books: Books, seen: bool) -> None:
    """Its disk was full as the claim ended; started again it finds the claim."""
    books.ad("slot1_1@ep", 1000.0)
    books.at(1020.0)
    books.ad("slot1@ep", told=past(("slot1_1@ep", 1000.0, 1020.0)))
    books.gone("slot1_1@ep")
    books.at(1030.0)
    if seen:
        books.ad("slot1_1@ep", 1000.0)
    books.at(1032.0)
    books.ad("slot1@ep", told=past(("slot1_1@ep", 1000.0, 1031.0)))
    books.gone("slot1_1@ep")
    assert books.used() == pytest.approx(31.0)


@spec("ACC-18")
def test_an_end_that_is_told_again_by_a_startd_that_was_away_counts_once(books: Books) -> None:
    books.at(1060.0)
    told = past(("slot1_1@ep", 1010.0, 1020.0))
    books.ad("slot1@ep", told=told)
    books.gone("slot1@ep")
    books.ad("slot1@ep", told=told)
    assert books.used() == pytest.approx(10.0)


def test_nonsense_of_a_startd_is_left_out() -> None:
    text = "x\n1 2\n-1 5 1 slot1@ep a@p\nset9 8\nsetx 1 2 1 s u\nset-9 1 2 1 s u\n"
    text += "nan nan nan s u\n1 2 inf s u\n1 2 1 slot1@ep a b@p"
    assert [(one.began, one.ended, one.user) for one in read_past(text)] == [(1.0, 2.0, "a b@p")]


@spec("ACC-18")
@pytest.mark.parametrize("clock_set", [0.0, -3600.0, 3600.0, 0.1])
def test_a_claim_that_is_over_is_read_as_it_was_written(clock_set: float) -> None:
    one = Past("slot1_1@ep", 7000.1, 7020.3, 2.0, "a b@p", clock_set)
    assert read_past(one.text) == [one]


@spec("ACC-18")
@pytest.mark.parametrize("clock_set", [-3600.0, 3600.0])
def test_a_startds_clock_that_was_set_loses_no_claim_and_no_second_of_it(books: Books, clock_set: float) -> None:
    """Of claims that nobody heard of, one that is heard of late, one that was known, and one that was over by then. The
    startd's clock was right before, so what is to be added to it is what it was set by."""

    def ad(slot: str, claimed_at: float | None = None, told: str = "", at: float = clock_set) -> None:
        books.slots.pop(slot, None)
        if claimed_at is not None:
            books.slots[slot] = (ALICE, 1.0)
        books.claim_charges.slot_seen(
            slot,
            user=ALICE if claimed_at else "",
            weight=1.0,
            claimed_at=claimed_at,
            past=told,
            now=books.now,
            offset=-at,
            clock_set=at,
        )
        books._late()

    books.now = 10_000.0
    ad("slot1_3@ep", 10_000.0, at=0.0)
    ad("slot1@ep", told=past(("slot1_4@ep", 9990.0, 10_000.0)), at=0.0)
    books.at(10_030.0)
    ad("slot1_2@ep", 10_010.0)
    assert books.used() == pytest.approx(10.0 + 30.0 + 20.0)
    books.at(10_040.0)
    told = [
        Past(slot, began, ended, 1.0, ALICE, clock_set).text
        for slot, began, ended in (
            ("slot1_1@ep", 10_005.0, 10_025.0),
            ("slot1_2@ep", 10_010.0, 10_035.0),
            ("slot1_3@ep", 10_000.0, 10_035.0),
            ("slot1_4@ep", 9990.0, 10_000.0),
        )
    ]
    ad("slot1@ep", told="\n".join(told))
    books.gone("slot1_2@ep")
    books.gone("slot1_3@ep")
    assert books.used() == pytest.approx(20.0 + 25.0 + 35.0 + 10.0)


@spec("ACC-18")
def test_a_claim_that_ends_before_it_began_as_an_earlier_release_says_ends_all_the_same(books: Books) -> None:
    """During which the startd's clock was set an hour back; its next ads are by that clock."""
    books.now = 10_000.0
    books.ad("slot1@ep", 10_000.0)
    books.at(10_030.0)
    books.slots.pop("slot1@ep")
    told = past(("slot1@ep", 10_000.0, 6420.0))
    books.claim_charges.slot_seen(
        "slot1@ep", user="", weight=1.0, claimed_at=None, past=told, now=10_030.0, offset=3600.0
    )
    books._late()
    assert books.used() == pytest.approx(20.0)


@spec("ACC-18")
def test_no_more_is_given_back_than_was_charged(books: Books) -> None:
    """An earlier release whose clock was set forth as its claim was over: it ended long ago, by what is said now."""
    books.now = 10_000.0
    books.ad("slot1@ep", 10_000.0)
    books.at(10_030.0)
    books.slots.pop("slot1@ep")
    told = past(("slot1@ep", 10_000.0, 10_020.0))
    books.claim_charges.slot_seen(
        "slot1@ep", user="", weight=1.0, claimed_at=None, past=told, now=10_030.0, offset=-3600.0
    )
    books._late()
    assert books.used() == pytest.approx(0.0)


@spec("ACC-18")
@settings(max_examples=60)
@given(
    claims=st.lists(st.tuples(st.floats(0.1, 20.0), st.floats(0.1, 30.0)), min_size=1, max_size=8),
    heard=st.lists(st.booleans(), min_size=16, max_size=16),
)
def test_whatever_is_heard_each_claim_counts_once(claims: list[tuple[float, float]], heard: list[bool]) -> None:
    """One after the other on a slot; some ads get lost, and the last one comes through."""
    books, at, true, told, hears = Books(), 1000.0, 0.0, [], iter(heard)
    for gap, length in claims:
        at += gap
        books.at(at)
        began = at
        if next(hears):
            books.ad("slot1@ep", began, told=past(*told))
        at += length
        true += length
        books.at(at)
        told.append(("slot1@ep", began, at))
        if next(hears):
            books.ad("slot1@ep", told=past(*told))
    books.at(at + 5.0)
    books.ad("slot1@ep", told=past(*told))
    books.at(at + 10.0)
    assert books.used() == pytest.approx(true, abs=0.06 * 2 * len(claims))


def test_a_clock_that_is_wrong_is_told_from_a_slow_bus() -> None:
    clocks = ClockOffsets()
    assert clocks.heard("startd@a", 970.0, 1000.0) == 30.0  # it is 30 s behind, or this was under way so long
    assert clocks.heard("startd@a", 1010.0, 1012.0) == 2.0
    assert clocks.heard("startd@a", 1015.0, 1060.0) == 2.0
    assert clocks.offset("startd@a") == 2.0
    assert clocks.heard("startd@a", 1005.0, 1070.0) == 65.0  # it was set back
    clocks.clock_set(425.0)  # ours was set
    assert clocks.offset("startd@a") == 490.0
    assert clocks.heard("startd@a", 1020.0, 1500.0) == 480.0
    clocks.clock_set(-425.0)
    assert clocks.heard("startd@a", 1030.0, 1095.0) == 55.0
    assert clocks.offset("startd@b") == 0.0
    clocks.presumed_s = 3600.0
    assert clocks.offset("startd@b") == 3600.0
    clocks.clock_set(-3600.0)
    assert clocks.offset("startd@b") == 0.0


@spec("ACC-05")
@given(
    began=st.floats(0.0, 5 * DAY), length=st.floats(1.0, 2 * DAY), later=st.floats(0.0, DAY), use=st.floats(1.0, 500.0)
)
@settings(max_examples=60)
def test_use_that_is_made_good_comes_to_the_same_as_use_in_time(
    began: float, length: float, later: float, use: float
) -> None:
    start = Record(priority=20.0, factor=1.0, updated=1.0)
    ended, now = 10.0 + began + length, 10.0 + began + length + later
    in_time = settle(advance(advance(start, 10.0 + began, DAY, use, 3), ended, DAY, 0.0, 0), now, DAY)
    late = backdate(settle(start, now, DAY), use, 3, 10.0 + began, ended, DAY)
    assert late.weighted_usage == pytest.approx(in_time.weighted_usage)
    assert late.usage == pytest.approx(in_time.usage)
    # Where nothing stood at the least priority meanwhile.
    if 20.0 * 0.5 ** ((now - 1.0) / DAY) > MINIMUM_PRIORITY:
        assert late.priority == pytest.approx(in_time.priority)
    back = backdate(late, use, 3, ended, 10.0 + began, DAY)
    assert back.weighted_usage == pytest.approx(0.0, abs=1e-6 * late.weighted_usage)


@spec("ACC-22")
@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_of_ours_that_is_set_changes_nothing_of_what_is_known(books: Books, seconds: float) -> None:
    """Of a claim that goes on, one that is paused, one that is over, one that ends, one that was lost sight of."""
    told = past(("slot1_9@ep", 1000.0, 1005.0))
    books.at(1010.0)
    for slot in ("slot1@ep", "slot2@ep", "slot3@ep", "slot4@ep"):
        books.ad(slot, 1000.0)
    books.ad("slot5@ep", told=told)
    books.ad("slot4@ep", 1000.0, told=past(("slot3@ep", 1000.0, 1009.0)))
    books.claim_charges.slot_seen("slot2@ep", user="", weight=1.0, claimed_at=1000.0, past="", now=1010.0)
    books.slots.pop("slot2@ep")
    books.gone("slot4@ep")
    charged = books.used()
    books.claim_charges.clock_set(seconds)
    books.now += seconds
    books.claim_charges.tidy(books.now)
    assert all(claim is not None for claim in books.claim_charges.take_changed().values())

    def again(slot: str, claimed_at: float | None, told: str = "") -> None:
        """An ad, as a startd whose clock was right says it."""
        books.slots.pop(slot, None)
        if claimed_at is not None:
            books.slots[slot] = (ALICE, 1.0)
        user = ALICE if claimed_at else ""
        books.claim_charges.slot_seen(
            slot, user=user, weight=1.0, claimed_at=claimed_at, past=told, now=books.now, offset=seconds
        )
        books._late()

    books.at(books.now + 10.0)  # only the first and the third are charged by now, the third in vain
    again("slot5@ep", None, told)
    again("slot2@ep", 1000.0)
    again("slot4@ep", 1000.0)
    books.gone("slot3@ep")
    assert books.used() == pytest.approx(charged + 10.0 + 10.0 - 11.0 + 10.0)


def test_what_is_remembered_of_claims_is_bounded(books: Books) -> None:
    told = past(*((f"slot1_{n}@ep", 1000.0 + n, 1001.0 + n) for n in range(3)))
    books.at(1010.0)
    books.ad("slot1@ep", told=told)
    books.ad("slot2@ep", 1005.0)
    books.gone("slot2@ep")
    assert len(books.claim_charges.take_changed()) == 4
    books.claim_charges.tidy(1010.0 + REMEMBERED_S)
    assert [key[0] for key, claim in books.claim_charges.take_changed().items() if claim is None] == [
        f"slot1_{n}@ep" for n in range(3)
    ]
    # What ended that long ago may have been charged and forgotten.
    books.at(1010.0 + REMEMBERED_S)
    before = books.used()
    books.gone("slot1@ep")
    books.ad("slot1@ep", told=told)
    assert books.used() == before
    # A claim that was lost sight of comes back after hours.
    books.at(5000.0)
    books.ad("slot2@ep", 1005.0)
    books.at(5010.0)
    assert books.used() == pytest.approx(before + 4000.0)
    books.gone("slot2@ep")
    books.claim_charges.tidy(5010.0 + LONGEST_S)
    assert list(books.claim_charges.take_changed().values()) == [None]


def test_only_so_many_claims_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.fairshare.claim_charging.MOST_REMEMBERED", 100)
    tally = ClaimCharges()
    for number in range(105):
        tally.slot_seen(f"slot{number}@ep", user=ALICE, weight=1.0, claimed_at=1000.0, past="", now=1001.0)
        tally.slot_dropped(f"slot{number}@ep", 1002.0)
    tally.take_changed()
    tally.tidy(1003.0)
    assert list(tally.take_changed()) == [(f"slot{number}@ep", 1000.0) for number in range(5)]
