"""Who leads next charges on from exactly where the accounting records end, whatever either of them heard (ACC-16,
ACC-18)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fairshare.claim_charging import (
    BELIEVED_S,
    LONGEST_S,
    Claim,
    ClaimCharges,
    between,
    carry_on,
)
from engine.fairshare.claim_rows import claim_field, decode_claims, encode_claim
from engine.fairshare.priorities import Factors
from services.negotiator.stored_accountant import BATCH
from shared.past_claims import Past
from shared.state import keys
from shared.state.accounting import read_records, write_records
from shared.state.api import StoreUnavailable
from tests.spec import spec
from tests.unit.negotiator.told_time import TimedAccountant, TimedStore

DAY = 86_400.0
ALICE = "alice@pool"
BOB = "bob@pool"


def strict(find) -> None:
    assert find() == []


class Negotiator:
    """What the daemon does with a tally and the accounting records."""

    def __init__(self, store: TimedStore) -> None:
        self.claim_charges, self.accountant = (
            ClaimCharges(),
            TimedAccountant(store, "cm", Factors(), DAY, check=strict),
        )
        self.slots: dict[str, tuple[str, float]] = {}
        self.leads = False

    async def lead(self, now: float) -> None:
        await self.accountant.load(0)
        self.accountant.take_over(self.claim_charges, now)
        self.leads = True
        self.charge(now)

    def ad(self, slot: str, claimed_at: float | None, now: float, *, told: str = "", user: str = ALICE) -> None:
        """user "": the slot is free of charge."""
        self.slots.pop(slot, None)
        if claimed_at is not None and user:
            self.slots[slot] = (user, 2.0)
        charged = user if claimed_at is not None else ""
        self.claim_charges.slot_seen(slot, user=charged, weight=2.0, claimed_at=claimed_at, past=told, now=now)
        self.charge(now)

    def gone(self, slot: str, now: float) -> None:
        self.slots.pop(slot, None)
        self.claim_charges.slot_dropped(slot, now)
        self.charge(now)

    def charge(self, now: float) -> None:
        late, changed = self.claim_charges.take_late(), self.claim_charges.take_changed()
        if not self.leads:
            return
        use: dict[str, tuple[float, int]] = {}
        for user, weight in self.slots.values():
            known = use.get(user, (0.0, 0))
            use[user] = (known[0] + weight, known[1] + 1)
        self.accountant.charge(use, now, late, changed)

    def used(self, now: float, user: str = ALICE) -> float:
        """Slot-seconds, and the same by weight, which is two."""
        record = self.accountant.record(user, now)
        assert record.weighted_usage == pytest.approx(2.0 * record.usage)
        return record.usage


def told(*claims: tuple[str, float, float], user: str = ALICE) -> str:
    return "\n".join(Past(slot, began, ended, 2.0, user).text for slot, began, ended in claims)


@pytest.fixture
async def store():
    made = TimedStore()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def pair(store):
    """The first led until 1060, with a claim on each of three slots since 1000; the second heard the same."""
    first, second = Negotiator(store), Negotiator(store)
    await first.lead(1000.0)
    for negotiator in (first, second):
        for slot in ("slot1@ep", "slot2@ep", "slot3@ep"):
            negotiator.ad(slot, 1000.0, 1000.0)
    first.charge(1060.0)
    await first.accountant.commit(0)
    return first, second


@spec("ACC-16")
async def test_claims_that_go_on_are_charged_on_at_once(pair):
    _, second = pair
    await second.lead(1100.0)
    assert second.used(1100.0) == pytest.approx(300.0)
    assert second.used(1110.0) == pytest.approx(330.0)


@spec("ACC-16")
async def test_the_end_that_the_former_leader_missed_is_given_back_whichever_else_there_are(pair):
    """Another one ended after, whose end it had heard."""
    first, second = pair
    for negotiator in (first, second):
        negotiator.ad("slot1@ep", None, 1070.0, told=told(("slot1@ep", 1000.0, 1070.0)))
    second.ad("slot2@ep", None, 1040.0, told=told(("slot2@ep", 1000.0, 1040.0)))
    first.charge(1080.0)
    await first.accountant.commit(0)
    await second.lead(1100.0)
    assert second.used(1100.0) == pytest.approx(70 + 40 + 100)


@spec("ACC-16")
async def test_what_the_former_leader_never_heard_of_is_charged_whole(pair):
    _, second = pair
    second.ad("slot4@ep", 1010.0, 1090.0)
    second.ad("slot5@ep", None, 1090.0, told=told(("slot5@ep", 1020.0, 1050.0), ("slot5@ep", 1060.0, 1061.0)))
    await second.lead(1100.0)
    assert second.used(1100.0) == pytest.approx(300 + 90 + 31)


@spec("ACC-16")
async def test_what_is_heard_only_later_counts_from_where_the_books_end(store, pair):
    """A negotiator that has just begun knows of no claim at first."""
    fresh = Negotiator(store)
    await fresh.lead(1100.0)
    assert fresh.used(1100.0) == pytest.approx(180.0)
    fresh.ad("slot1@ep", 1000.0, 1105.0)
    fresh.ad("slot2@ep", None, 1105.0, told=told(("slot2@ep", 1000.0, 1050.0), ("slot2@ep", 1052.0, 1055.0)))
    fresh.ad("slot3@ep", None, 1105.0, told=told(("slot3@ep", 1000.0, 1080.0)))
    assert fresh.used(1110.0) == pytest.approx(110 + 50 + 3 + 80)


@spec("ACC-16")
async def test_what_was_charged_to_its_end_is_known_to_the_next_one(store, pair):
    first, _ = pair
    first.ad("slot1@ep", None, 1070.0, told=told(("slot1@ep", 1000.0, 1070.0)))
    first.gone("slot2@ep", 1075.0)  # how it ended nobody tells
    await first.accountant.commit(0)
    fresh = Negotiator(store)
    await fresh.lead(1100.0)
    fresh.ad("slot3@ep", 1000.0, 1100.0)
    fresh.ad("slot1@ep", None, 1101.0, told=told(("slot1@ep", 1000.0, 1070.0)))
    assert fresh.used(1101.0) == pytest.approx(70 + 75 + 101)
    fresh.ad("slot2@ep", None, 1102.0, told=told(("slot2@ep", 1000.0, 1090.0)))
    assert fresh.used(1102.0) == pytest.approx(70 + 90 + 102)


@spec("ACC-14")
async def test_what_is_free_of_charge_stays_so_for_the_next_leader(store, pair):
    first, second = pair
    for negotiator in (first, second):
        negotiator.ad("slot1@ep", 1000.0, 1020.0, user="")
        negotiator.ad("slot2@ep", 1000.0, 1060.0, user="")
    first.accountant.change(ALICE, "reset", None, 1060.0)
    await first.accountant.commit(0)
    second.ad("slot2@ep", 1000.0, 1080.0)
    second.ad("slot3@ep", 1000.0, 1065.0, user="")
    second.ad("slot3@ep", 1000.0, 1075.0)
    await second.lead(1100.0)
    assert second.used(1100.0) == pytest.approx(0 + 20 + 5 + 25)
    fresh = Negotiator(store)
    await fresh.lead(1100.0)
    fresh.ad("slot1@ep", None, 1100.0, told=told(("slot1@ep", 1000.0, 1095.0)))
    fresh.ad("slot2@ep", 1000.0, 1100.0)  # nobody can tell since when it is charged again
    assert fresh.used(1100.0) == pytest.approx(0.0)


@spec("ACC-16")
async def test_an_end_in_the_books_is_believed_where_somebody_did_not_hear_it(pair):
    first, second = pair
    first.ad("slot1@ep", None, 1060.0, told=told(("slot1@ep", 1000.0, 1050.0)))
    await first.accountant.commit(0)
    await second.lead(1100.0)  # and thinks that it goes on
    second.gone("slot1@ep", 1110.0)
    assert second.used(1110.0) == pytest.approx(50 + 110 + 110)


@spec("ACC-16")
async def test_books_that_lost_their_last_writes_lost_claims_and_charges_together(store, pair):
    """A replica that lagged took over."""
    first, second = pair
    before = {name: await store.hgetall(name) for name in (keys.accountant(""), keys.accountant_claims(""))}
    version = await store.get(keys.accountant_version(""))
    first.ad("slot1@ep", None, 1070.0, told=told(("slot1@ep", 1000.0, 1070.0)))
    first.ad("slot4@ep", 1065.0, 1070.0)
    await first.accountant.commit(0)
    for name, rows in before.items():
        await store.delete(name)
        await store.hset(name, {field.decode(): row for field, row in rows.items()})
    await store.set(keys.accountant_version(""), version)
    second.ad("slot1@ep", None, 1090.0, told=told(("slot1@ep", 1000.0, 1070.0)))
    second.ad("slot4@ep", 1065.0, 1090.0)
    await second.lead(1100.0)
    assert second.used(1100.0) == pytest.approx(70 + 2 * 100 + 35)
    # And who had more gives Redis what it lost.
    await store.delete(keys.accountant_version(""), keys.accountant(""), keys.accountant_claims(""))
    assert await first.accountant.load(0)
    first.ad("slot4@ep", 1065.0, 1070.0)
    first.accountant.take_over(first.claim_charges, 1100.0)
    first.charge(1100.0)
    assert first.used(1100.0) == pytest.approx(70 + 2 * 100 + 35)


@spec("ACC-16")
async def test_books_of_a_version_that_named_no_claims_are_believed(store, pair):
    """Also where such a negotiator wrote after one that names them."""
    first, second = pair
    await store.delete(keys.accountant_claims(""))
    await store.hset(keys.accountant_claims(""), {"": "0 0 1050.0", "1 slot9@ep": b"?"})
    second.ad("slot1@ep", None, 1090.0, told=told(("slot1@ep", 1000.0, 1080.0)))
    second.ad("slot5@ep", None, 1090.0, told=told(("slot5@ep", 1020.0, 1050.0), ("slot5@ep", 1060.0, 1061.0)))
    second.ad("slot4@ep", 1085.0, 1090.0)
    await second.lead(1100.0)
    second.ad("slot6@ep", None, 1100.0, told=told(("slot6@ep", 1040.0, 1066.0), ("slot6@ep", 1068.0, 1070.0)))
    assert second.used(1100.0) == pytest.approx(3 * 60 + 20 + 2 * 40 + 1 + 15 + 6 + 2)
    await second.accountant.commit(0)
    books = await read_records(store, "")
    assert books.until == 1100.0
    assert claim_field(("slot9@ep", 1.0)) not in books.claims
    assert len(books.claims) == 1 + 3 + 1 + 2 + 2
    third = Negotiator(store)
    await third.lead(1100.0)
    assert third.used(1100.0) == second.used(1100.0)
    del first


async def test_claims_that_nobody_can_read_are_lost_and_all_else_is_not(store, pair):
    await store.hset(keys.accountant_claims(""), {"x": b"?", "1 slot9@ep": b"\xc1", "2 slot9@ep": b"\x01"})
    _, second = pair
    await second.lead(1100.0)
    assert second.used(1100.0) == pytest.approx(300.0)
    await second.accountant.commit(0)
    assert len((await read_records(store, "")).claims) == 4


@spec("ACC-16")
async def test_slots_that_do_not_say_since_when_they_are_claimed(store):
    first, second, fresh = (Negotiator(store) for _ in range(3))
    await first.lead(1000.0)
    for negotiator in (first, second):
        negotiator.claim_charges.slot_seen("slot1@ep", user=ALICE, weight=2.0, claimed_at=None, past="", now=1000.0)
        negotiator.slots["slot1@ep"] = (ALICE, 2.0)
        negotiator.charge(1000.0)
    first.charge(1060.0)
    await first.accountant.commit(0)
    await second.lead(1100.0)
    assert second.used(1100.0) == pytest.approx(100.0)
    await fresh.lead(1100.0)  # it knows of no such slot
    assert fresh.used(1110.0) == pytest.approx(60.0)
    await fresh.accountant.commit(0)
    assert list((await read_records(store, "")).claims) == [b""]


async def test_a_write_is_one_step_and_holds_what_changed(store, monkeypatch):
    """Those who use nothing go in parts before: nothing depends on when."""
    runs: list[int] = []
    fails = False

    async def counted(*where, submitters, groups, claims, **options):
        if fails:
            raise StoreUnavailable("away")
        runs.append(len(submitters) + len(groups) + len(claims))
        return await write_records(*where, submitters=submitters, groups=groups, claims=claims, **options)

    monkeypatch.setattr("services.negotiator.stored_accountant.write_records", counted)
    one = Negotiator(store)
    await one.lead(1000.0)
    one.accountant.charge({f"u{n}@p": (1.0, 1) for n in range(BATCH + 10)}, 1000.0)
    for slot in range(50):
        one.ad(f"slot{slot}@ep", 1000.0, 1000.0)
    await one.accountant.commit(0)
    assert runs == [BATCH, 10, 1 + 50 + 1]  # submitters; then alice, her claims, and the root group
    runs.clear()
    one.ad("slot1@ep", None, 1010.0, told=told(("slot1@ep", 1000.0, 1010.0)))
    fails = True
    with pytest.raises(StoreUnavailable):
        await one.accountant.commit(0)
    fails = False
    one.ad("slot2@ep", 1000.0, 1020.0, user="")
    await one.accountant.commit(0)
    assert runs == [1 + 1 + 2]
    runs.clear()
    one.charge(1021.0)
    await one.accountant.commit(0)
    assert runs == [0]  # that nothing else was so until now
    found, others = decode_claims({name: row for name, row in (await read_records(store, "")).claims.items() if name})
    assert not others
    assert found == one.accountant.records.claims
    assert sum(claim.until is None for claim in found.values()) == 48
    assert (await read_records(store, "")).until == 1021.0


async def test_very_many_claims_are_put_aside_before_and_are_in_force_with_the_charges_at_once(store, monkeypatch):
    monkeypatch.setattr("services.negotiator.stored_accountant.MANY_CLAIMS", 20)
    one = Negotiator(store)
    await one.lead(1000.0)
    for slot in range(30):
        one.ad(f"slot{slot}@ep", 1000.0, 1000.0)
    run = store.run

    async def meanwhile(script, names, args, *, confirm=False):
        if script == "books_stage" and fails:
            one.ad("slot7@ep", None, 1005.0, told=told(("slot7@ep", 1000.0, 1003.0)))
        elif fails:
            raise StoreUnavailable("away")
        return await run(script, names, args, confirm=confirm)

    monkeypatch.setattr(store, "run", meanwhile)
    fails = True
    with pytest.raises(StoreUnavailable):
        await one.accountant.commit(0)
    assert (await read_records(store, "")).claims == {}
    one.charge(1010.0)
    for slot in range(10, 30):  # what is to be written is less than many now, and Redis may have what was staged
        one.gone(f"slot{slot}@ep", 1010.0)
    one.claim_charges.tidy(1010.0 + LONGEST_S)
    one.charge(1010.0 + LONGEST_S)
    fails = False
    await one.accountant.commit(0)
    found, _ = decode_claims({name: row for name, row in (await read_records(store, "")).claims.items() if name})
    assert found == one.accountant.records.claims
    assert len(found) == 9
    assert one.used(1010.0 + LONGEST_S) == pytest.approx(3 + 20 * 10 + 9 * (10 + LONGEST_S))


def test_rows_of_later_versions_are_read():
    claim = Claim(ALICE, 2.0, 1000.0, 1001.5, False, 999.25)
    rows = {claim_field(("slot1 of@ep", 999.125)): encode_claim(claim)}
    assert decode_claims(rows) == ({("slot1 of@ep", 999.125): claim}, [])
    longer = {b"999.125 slot1 of@ep": b"\x97" + encode_claim(claim)[1:] + b"\x01"}
    assert decode_claims(longer) == decode_claims(rows)


def test_times_without_their_gaps():
    assert between(10.0, 20.0) == [(10.0, 20.0)]
    assert between(10.0, 20.0, [(5.0, 7.0), (9.0, 11.0), (12.0, 13.0), (19.0, 25.0), (30.0, 31.0)]) == [
        (11.0, 12.0),
        (13.0, 19.0),
    ]
    assert between(10.0, 20.0, [(5.0, 25.0)]) == []
    assert between(20.0, 10.0, [(5.0, 25.0)]) == [(20.0, 10.0)]
    assert between(float("-inf"), 10.0) == between(10.0, 10.0) == []


def test_what_ended_long_before_the_books_is_theirs():
    over = Claim(ALICE, 1.0, 10.0, 20.0, theirs=20.0)
    assert carry_on(over, None, (), 21.0, 30.0) == (over, [(10.0, 20.0)])
    assert carry_on(over, None, (), 20.0 + BELIEVED_S, 30.0 + BELIEVED_S) == (over, [])


# --- any history


@dataclass
class Slot:
    claimed_at: float | None = None
    past: list[tuple[str, float, float]] = field(default_factory=list)
    user: str = ALICE


BOOKS = (keys.accountant(""), keys.accountant_groups(""), keys.accountant_claims(""))
STEP = st.tuples(
    st.integers(0, 2),  # slot
    st.sampled_from(["claim", "end", "say", "say", "lead", "commit", "vanish", "restart", "fail over"]),
    st.sets(st.integers(0, 2)),  # who hears of it
    st.sampled_from([0.5, 1.0, 5.0, 30.0]),
)


@spec("ACC-16", "ACC-18")
@settings(max_examples=120)
@given(steps=st.lists(STEP, min_size=5, max_size=60))
async def test_whoever_leads_and_whatever_is_heard_each_second_is_charged_once(steps):
    """Three negotiators that hear this and that, and lead in turns, from what was written last; one of them forgets
    all, and the store its last writes. In the end somebody hears everything."""
    store = TimedStore()
    await store.start()
    negotiators = [Negotiator(store) for _ in range(3)]
    slots = [Slot(user=user) for user in (ALICE, ALICE, BOB)]
    used = {ALICE: 0.0, BOB: 0.0}
    leader, now = 0, 1000.0
    await negotiators[0].lead(now)
    replica: dict[str, dict[bytes, bytes]] = {name: {} for name in BOOKS}
    version = b""

    def say(number: int, who: int) -> None:
        slot = slots[number]
        name = f"slot{number}@ep"
        negotiators[who].ad(name, slot.claimed_at, now, told=told(*slot.past, user=slot.user), user=slot.user)

    for number, what, hearers, later in steps:
        now += later
        slot = slots[number]
        negotiators[leader].charge(now)
        if what == "claim" and slot.claimed_at is None:
            slot.claimed_at = now
        elif what == "end" and slot.claimed_at is not None:
            slot.past.append((f"slot{number}@ep", slot.claimed_at, now))
            used[slot.user] += now - slot.claimed_at
            slot.claimed_at = None
        elif what == "commit":
            if number:  # else the replica lags
                replica = {name: await store.hgetall(name) for name in BOOKS}
                version = await store.get(keys.accountant_version("")) or b""
            await negotiators[leader].accountant.commit(0)
        elif what == "fail over":
            await store.delete(keys.accountant_version(""), *BOOKS)
            for name, rows in replica.items():
                await store.hset(name, {field.decode(): row for field, row in rows.items()})
            await store.set(keys.accountant_version(""), version)
            negotiators[leader].leads = False
            leader = min(hearers, default=0)
            await negotiators[leader].lead(now)
        elif what == "lead":
            negotiators[leader].leads = False
            leader = min(hearers, default=0)
            await negotiators[leader].lead(now)
        elif what == "restart":
            negotiators[2] = Negotiator(store)
            if leader == 2:
                await negotiators[2].lead(now)
        for who in sorted(hearers):
            if what == "vanish":
                negotiators[who].gone(f"slot{number}@ep", now)
            else:
                say(number, who)
    now += 1.0
    for number, slot in enumerate(slots):
        if slot.claimed_at is not None:
            slot.past.append((f"slot{number}@ep", slot.claimed_at, now))
            used[slot.user] += now - slot.claimed_at
            slot.claimed_at = None
        say(number, leader)
    for user, length in used.items():
        assert negotiators[leader].used(now, user) == pytest.approx(length, abs=0.01)
    await store.stop()
