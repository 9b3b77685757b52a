"""What is charged for claims that are heard of late, or not at all (ACC-16, ACC-18): once, for the time that it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.negotiator.accountant import Accountant
from services.negotiator.priorities import MINIMUM_PRIORITY, Factors, Record, advance, backdate, settle
from services.negotiator.tally import Clocks, Tally, Use
from shared.past_claims import Past, read_past
from shared.state.embedded import EmbeddedStore

DAY = 86_400.0
ALICE = "alice@pool"


def past(*claims: tuple[str, float, float], cpus: float = 1.0, user: str = ALICE) -> str:
    """RoostPastClaims, as a startd writes it."""
    return "\n".join(Past(slot, began, ended, cpus, user).text for slot, began, ended in claims)


class Books:
    """A tally, and what is charged by the clock from what it sees: what the daemon does with them."""

    def __init__(self) -> None:
        self.tally, self.now = Tally(), 1000.0
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
        self.tally.sees(
            slot, user=user if claimed_at else "", weight=1.0, claimed_at=claimed_at, past=told, now=self.now
        )
        self._late()

    def gone(self, slot: str) -> None:
        self.slots.pop(slot, None)
        self.tally.drops(slot, self.now)
        self._late()

    def _late(self) -> None:
        for use in self.tally.take_late():
            assert use.ended is not None
            self.charged[use.user] = self.charged.get(use.user, 0.0) + use.weight * (use.ended - use.began)

    def used(self) -> float:
        return self.charged.get(ALICE, 0.0)


@pytest.fixture
def books() -> Books:
    return Books()


def test_a_claim_that_is_heard_of_late_is_charged_from_its_begin_ACC_18(books: Books) -> None:
    books.at(1030.0)
    books.ad("slot1_1@ep", 1000.0)
    books.at(1040.0)
    assert books.used() == pytest.approx(40.0)


def test_an_end_that_is_heard_of_late_is_given_back_ACC_18(books: Books) -> None:
    books.ad("slot1_1@ep", 1000.0)
    books.at(1060.0)
    books.ad("slot1@ep", told=past(("slot1_1@ep", 1000.0, 1020.0)))
    books.gone("slot1_1@ep")
    assert books.used() == pytest.approx(20.0)


def test_a_claim_that_came_and_went_unheard_is_charged_once_ACC_18(books: Books) -> None:
    books.at(1060.0)
    told = past(("slot1_1@ep", 1010.0, 1020.0), ("slot1_2@ep", 1030.0, 1031.0))
    books.ad("slot1@ep", told=told)
    books.ad("slot1@ep", told=told + "\n" + past(("slot1_3@ep", 1059.0, 1060.0)))
    assert books.used() == pytest.approx(12.0)


def test_a_static_slot_that_goes_from_claim_to_claim_unheard_ACC_18(books: Books) -> None:
    books.ad("slot1@ep", 1000.0)
    books.at(1050.0)
    books.ad("slot1@ep", 1030.0, told=past(("slot1@ep", 1000.0, 1010.0), ("slot1@ep", 1015.0, 1020.0)))
    books.at(1060.0)
    assert books.used() == pytest.approx(10.0 + 5.0 + 30.0)


def test_an_ad_that_was_lost_for_a_while_costs_nothing_and_is_not_paid_twice_ACC_18(books: Books) -> None:
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


def test_a_suspended_slot_that_is_free_of_charge_is_not_made_good_ACC_14(books: Books) -> None:
    books.ad("slot1@ep", 1000.0)
    books.at(1010.0)
    books.slots.clear()
    books.tally.sees("slot1@ep", user="", weight=1.0, claimed_at=1000.0, past="", now=1010.0)
    books.at(1030.0)
    assert books.used() == pytest.approx(10.0)
    assert books.tally.take_late() == []


def test_what_was_free_of_charge_stays_so_ACC_14(books: Books) -> None:
    """Also when it is charged again, and when its end is told."""
    for slot in ("slot1@ep", "slot2@ep"):
        books.ad(slot, 1000.0)
    books.at(1010.0)
    for slot in ("slot1@ep", "slot2@ep"):
        books.slots.pop(slot)
        books.tally.sees(slot, user="", weight=1.0, claimed_at=1000.0, past="", now=1010.0)
    books.at(1030.0)
    books.ad("slot1@ep", 1000.0)
    books.ad("slot2@ep", told=past(("slot2@ep", 1000.0, 1030.0)))
    books.at(1035.0)
    books.ad("slot1@ep", told=past(("slot1@ep", 1000.0, 1035.0)))
    assert books.used() == pytest.approx(10.0 + 10.0 + 5.0)
    assert sum(use.weight * ((use.ended or books.now) - use.began) for use in books.tally.uses(1036.0)) == 25.0


@pytest.mark.parametrize("seen", [False, True])
def test_an_end_that_its_startd_forgot_and_tells_anew_counts_once_ACC_18(books: Books, seen: bool) -> None:
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
    assert sum(use.weight * ((use.ended or books.now) - use.began) for use in books.tally.uses(1033.0)) == 31.0


def test_an_end_that_is_told_again_by_a_startd_that_was_away_counts_once_ACC_18(books: Books) -> None:
    books.at(1060.0)
    told = past(("slot1_1@ep", 1010.0, 1020.0))
    books.ad("slot1@ep", told=told)
    books.gone("slot1@ep")
    books.ad("slot1@ep", told=told)
    assert books.used() == pytest.approx(10.0)


def test_nonsense_of_a_startd_is_left_out() -> None:
    text = "x\n1 2\n-1 5 1 slot1@ep a@p\n5 1 1 slot1@ep a@p\nnan nan nan s u\n1 2 inf s u\n1 2 1 slot1@ep a b@p"
    assert [(one.began, one.ended, one.user) for one in read_past(text)] == [(1.0, 2.0, "a b@p")]


@settings(max_examples=60)
@given(
    claims=st.lists(st.tuples(st.floats(0.1, 20.0), st.floats(0.1, 30.0)), min_size=1, max_size=8),
    heard=st.lists(st.booleans(), min_size=16, max_size=16),
)
def test_whatever_is_heard_each_claim_counts_once_ACC_18(claims: list[tuple[float, float]], heard: list[bool]) -> None:
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
    clocks = Clocks()
    assert clocks.heard("startd@a", 970.0, 1000.0, 50.0) == 30.0  # it is 30 s behind, or this was under way so long
    assert clocks.heard("startd@a", 1010.0, 1012.0, 62.0) == 2.0
    assert clocks.heard("startd@a", 1015.0, 1060.0, 110.0) == 2.0
    assert clocks.offset("startd@a") == 2.0
    assert clocks.heard("startd@a", 1005.0, 1070.0, 120.0) == 65.0  # it was set back
    assert clocks.heard("startd@a", 1020.0, 1500.0, 125.0) == 480.0  # ours was set
    assert clocks.offset("startd@b") == 0.0


@given(
    began=st.floats(0.0, 5 * DAY), length=st.floats(1.0, 2 * DAY), later=st.floats(0.0, DAY), use=st.floats(1.0, 500.0)
)
@settings(max_examples=60)
def test_use_that_is_made_good_comes_to_the_same_as_use_in_time_ACC_05(
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


async def test_books_of_some_time_ago_are_charged_with_what_was_in_use_since_ACC_16() -> None:
    store = EmbeddedStore()
    await store.start()
    before = Accountant(store, "cm1", Factors(), DAY)
    before.charge({ALICE: (2.0, 2)}, 1000.0)
    before.charge({ALICE: (2.0, 2)}, 1060.0)
    await before.commit(1)
    after = Accountant(store, "cm2", Factors(), DAY)
    await after.load(1)
    # Since then one of the two ended, another began, and a third came and went.
    after.take_over(
        [
            Use(ALICE, 1.0, 900.0, 1075.0),
            Use(ALICE, 1.0, 900.0, None),
            Use(ALICE, 1.0, 1080.0, None),
            Use(ALICE, 4.0, 1070.0, 1071.0),
            Use("bob@pool", 1.0, 1090.0, None),
        ],
        1100.0,
    )
    after.charge({ALICE: (2.0, 2), "bob@pool": (1.0, 1)}, 1100.0)
    assert after.record(ALICE, 1100.0).weighted_usage == pytest.approx(2 * 60 + 15 + 40 + 20 + 4)
    assert after.record("bob@pool", 1100.0).weighted_usage == pytest.approx(10.0)
    assert after.record(ALICE, 1110.0).weighted_usage == pytest.approx(2 * 60 + 15 + 40 + 20 + 4 + 20)
    await store.stop()


@pytest.fixture
async def later():
    """Books in which alice has 3.0 in use, as of 1060; whoever reads them."""
    store = EmbeddedStore()
    await store.start()
    before = Accountant(store, "cm1", Factors(), DAY)
    before.charge({ALICE: (3.0, 3)}, 1000.0)
    before.charge({ALICE: (3.0, 3), "bob@pool": (1.0, 1)}, 1060.0)
    await before.commit(1)
    after = Accountant(store, "cm2", Factors(), DAY)
    await after.load(1)
    yield after
    await store.stop()


def taken_over(accountant: Accountant, *uses: Use, late: tuple[Use, ...] = ()) -> float:
    accountant.take_over([Use("bob@pool", 1.0, 1060.0, None), *uses], 1100.0)
    still = [use.weight for use in uses if use.ended is None]
    accountant.charge({ALICE: (sum(still), len(still)), "bob@pool": (1.0, 1)}, 1100.0, late)
    return accountant.record(ALICE, 1100.0).weighted_usage


async def test_an_end_that_the_former_leader_missed_is_given_back_ACC_16(later) -> None:
    uses = [Use(ALICE, 1.0, 900.0, None), Use(ALICE, 1.0, 900.0, None), Use(ALICE, 1.0, 900.0, 1020.0)]
    assert taken_over(later, *uses, Use(ALICE, 1.0, 900.0, 1000.0)) == pytest.approx(3 * 60 - 40 + 2 * 40)


async def test_a_begin_that_the_former_leader_missed_is_charged_ACC_16(later) -> None:
    uses = [Use(ALICE, 1.0, 900.0, None) for _ in range(3)]
    assert taken_over(later, *uses, Use(ALICE, 2.0, 1050.0, None)) == pytest.approx(3 * 60 + 2 * 10 + 5 * 40)


async def test_an_end_that_seems_to_be_just_after_the_books_is_in_them_ACC_16(later) -> None:
    """Its startd's clock is known to some milliseconds only; the former leader had heard of it."""
    uses = [Use(ALICE, 1.0, 900.0, None) for _ in range(3)]
    assert taken_over(later, *uses, Use(ALICE, 1.0, 1020.0, 1060.01)) == pytest.approx(3 * 60 + 3 * 40 + 0.01)


async def test_what_is_heard_of_later_is_believed_to_be_in_the_books_where_they_had_more_ACC_16(later) -> None:
    uses = [Use(ALICE, 1.0, 900.0, None), Use(ALICE, 1.0, 900.0, None)]
    late = (Use(ALICE, 1.0, 950.0, 1100.0), Use(ALICE, 1.0, 1030.0, 1090.0), Use(ALICE, 1.0, 1000.0, 1050.0))
    # The first is the third that was in use; the second was missed; the third was over, and is whoever led's affair.
    assert taken_over(later, *uses, late=late) == pytest.approx(3 * 60 + 2 * 40 + 40 + 60)


async def test_books_say_until_when_all_the_rest_was_so_unless_the_bus_is_away_ACC_16() -> None:
    for informed, charged in ((True, 50.0), (False, 10.0)):
        store = EmbeddedStore()
        await store.start()
        before = Accountant(store, "cm1", Factors(), DAY)
        before.charge({ALICE: (1.0, 1)}, 1000.0)
        before.charge({ALICE: (1.0, 1), "bob@pool": (1.0, 1)}, 1010.0)
        before.charge({ALICE: (1.0, 1), "bob@pool": (1.0, 1)}, 1050.0)
        await before.commit(1, informed=informed)
        after = Accountant(store, "cm2", Factors(), DAY)
        await after.load(1)
        after.take_over([], 1100.0)  # nobody knows what became of it
        after.charge({}, 1100.0)
        assert after.record(ALICE, 1100.0).weighted_usage == pytest.approx(charged)
        await store.stop()
