"""Ads of thousands of attributes or expressions that nobody has read before: counted is what is done of them in a turn
of the loop, and what they leave behind for collections of garbage."""

import asyncio
import gc
from itertools import pairwise

import msgpack
import pytest
import structlog

from engine.match.slot_table import SlotTable
from shared.bus.api import BusHealth, Exchange
from shared.bus.handling import TAKEN, RetryPolicy, handle_message
from shared.bus.senders import TABLE, Arrival, Senders
from shared.classad import ClassAd, quick
from shared.classad.cells import MOST_SIGNS, PackedError
from shared.classad.columnar import table as columnar
from shared.classad.quick import PORTION, PORTION_BYTES, QuickAd, picks
from shared.cooperative import at_once
from shared.daemon.ad_table import AdTable, Outcome
from shared.messages.ads import AdDelta, AdInvalidate, AdUpdate
from shared.messages.base import Envelope
from tests.unit.negotiator.test_ad_intake import Desk, total

HEAD = {"my_type": "Machine", "daemon": "startd@evil", "start_time": 1}


def expressions(count, mark):
    """A packed ad of so many expressions, which differ from those of any other mark."""
    return msgpack.packb({f"a{number}": msgpack.ExtType(1, b"%s + %d" % (mark, number)) for number in range(count)})


def numbers(count, mark):
    return msgpack.packb({f"{mark}{number}": number for number in range(count)})


def update(sequence, ads):
    return AdUpdate(**HEAD, sequence=sequence, names=list(ads), ads=list(ads.values()))


@pytest.fixture
def parsed(monkeypatch):
    """Bytes of expressions that were read."""
    found, plain = [], quick.parse_text

    def noted(text):
        found.append(len(text))
        return plain(text)

    monkeypatch.setattr(quick, "parse_text", noted)
    return found


def test_a_large_ad_is_read_in_portions(parsed):
    packed = expressions(3_000, b"portions")
    done = [0, *(sum(parsed) for _ in QuickAd.portions(packed))]
    assert len(parsed) >= 3_000
    assert str(QuickAd(packed).get("a2999")) == "portions + 2999"
    assert max(after - before for before, after in pairwise(done)) <= PORTION_BYTES + 100
    assert len(done) > 3_000 * 15 / PORTION_BYTES
    assert list(QuickAd.portions(ClassAd({"Cpus": 1}).pack())) == []  # an ordinary one is read at once


def test_names_of_large_ads_are_not_learnt_and_those_of_others_up_to_a_number(monkeypatch):
    before = len(quick._names)
    ad = QuickAd(numbers(PORTION + 1, "Large"))
    assert len(quick._names) == before
    assert ad.cells(("large0", "large1000", "other")) == [0, PORTION, None]
    assert ad.has_any(frozenset(("large7",)))
    assert not ad.has_any(frozenset(("my",)))
    monkeypatch.setattr(quick, "_MOST_NAMES", before + 10)
    for mark in ("Few", "More"):
        ad = QuickAd(numbers(50, mark))
        assert [ad.get(f"{mark.lower()}{number}") for number in range(50)] == list(range(50))
        assert picks(ad.packed, (f"{mark.lower()}49", "x"), frozenset()) == ([49, None], False)
    assert len(quick._names) == before + 10


def test_many_spellings_of_one_name_are_not_kept(monkeypatch):
    before = len(quick._spellings.get("spelling", ()))
    for number in range(100):
        name = "".join(one.upper() if number >> place & 1 else one for place, one in enumerate("spelling"))
        assert QuickAd(msgpack.packb({name: number})).get("spelling") == number
    assert before < len(quick._spellings["spelling"]) <= quick._MOST_SPELLINGS


def test_what_is_read_by_folded_name_is_the_same(monkeypatch):
    packed = msgpack.packb({"Twice": 1, "TWICE": 2, "A": msgpack.ExtType(1, b"B + 1"), "B": 3, "T": "text"})
    keys = ("twice", "a", "b", "t", "none")
    plain = QuickAd(packed)
    monkeypatch.setattr(quick, "_MOST_SEVERAL", -1)
    folded = QuickAd(packed)
    assert folded._folded
    assert [str(cell) for cell in folded.cells(keys)] == [str(cell) for cell in plain.cells(keys)]
    assert [folded.eval(key) for key in ("A", "twice", "T")] == [4, 2, "text"]
    for no_name in (1, b"bytes"):
        with pytest.raises(PackedError):
            QuickAd(msgpack.packb({no_name: 1}))


def test_an_expression_of_too_many_operators_is_refused():
    ad = ClassAd.unpack(msgpack.packb({"A": msgpack.ExtType(1, b"1" + b"+1" * (MOST_SIGNS + 1))}))
    with pytest.raises(PackedError, match=f"{MOST_SIGNS + 1} operators, brackets and commas.*at most {MOST_SIGNS}"):
        ad.find("a")
    names = ",".join(f'"slot1_{number}@host.example.org"' for number in range(1_000))
    assert ClassAd.unpack(msgpack.packb({"A": msgpack.ExtType(1, f"{{{names}}}".encode())})).find("a") is not None


def test_ads_of_a_message_are_taken_one_by_one_and_show_all_at_once():
    table, ads = AdTable(), {f"s{number}": numbers(20, "x") for number in range(50)}
    steps = table.steps(update(1, ads), 0.0)
    for _ in range(50):
        next(steps)
        assert len(table) == 0
    assert at_once(steps).outcome is Outcome.APPLIED
    assert len(table) == 50
    change = AdDelta(**HEAD, base=1, sequence=2, names=list(ads), changes=[numbers(1, "y")] * 50,
                     removed_attrs=[["x0"]] * 50, gone=[])  # fmt: skip
    steps, before = table.steps(change, 0.0), table.row("Machine", "startd@evil", "s0").packed()
    for _ in range(50):
        next(steps)
        assert table.row("Machine", "startd@evil", "s0").packed() == before
    table.remove("Machine", "startd@evil", ["s7"])  # meanwhile
    assert at_once(steps).updated["s7"] is None
    assert ClassAd.unpack(table.row("Machine", "startd@evil", "s0").packed()).eval("y0") == 0


def test_a_message_that_was_overtaken_while_it_was_looked_at_changes_nothing():
    table, ads = AdTable(), {"s": numbers(3, "x")}
    steps = table.steps(update(1, ads), 0.0)
    next(steps)
    table.apply(AdInvalidate(**HEAD, sequence=2), 0.0)
    assert at_once(steps).outcome is Outcome.OLDER
    assert len(table) == 0


def test_changes_wait_packed_and_leave_nothing_to_collections_of_garbage():
    """Each expression that is an object of its own is looked at by them."""
    table = AdTable()
    table.apply(update(1, {"s": numbers(10, "x")}), 0.0)
    gc.collect()
    before = len(gc.get_objects())
    for sequence in range(2, 12):
        ad = expressions(800, b"waits%d" % sequence)
        table.apply(
            AdDelta(**HEAD, base=sequence - 1, sequence=sequence, names=["s"], changes=[ad], removed_attrs=[[]],
                    gone=[]), 0.0
        )  # fmt: skip
    assert len(gc.get_objects()) - before < 400
    assert len(ClassAd.unpack(table.row("Machine", "startd@evil", "s").packed())) == 810


def test_a_negotiator_takes_large_ads_in_portions_and_leaves_one_that_changed_meanwhile(parsed):
    desk = Desk()
    ads = {name: expressions(2_000, name.encode()) for name in ("s1", "s2")}
    desk.ads.apply(update(1, ads), 0.0)
    steps = desk.ad_intake.steps("startd@evil", dict.fromkeys(ads), ())
    done = [0]
    for _ in range(10):
        assert next(steps).slots == 0
        done.append(sum(parsed))
    assert max(after - before for before, after in pairwise(done)) <= PORTION_BYTES + 100
    desk.ads.apply(update(2, ads | {"s1": numbers(3, "x")}), 0.0)
    assert total(steps).slots == 1
    assert list(desk.table.ads) == ["s2"]


def test_submitters_with_large_ads_are_read_in_portions(parsed):
    desk = Desk()
    desk.ads.apply(
        AdUpdate(my_type="Submitter", daemon="schedd@ap", start_time=1, sequence=1, names=["u"],
                 ads=[expressions(2_000, b"submitter")]), 0.0
    )  # fmt: skip
    assert len(list(desk.ad_intake.each_submitter())) > 2_000 * 15 / PORTION_BYTES


def test_what_policies_refer_to_is_looked_for_in_some_attributes_only(monkeypatch):
    """Of all ads that are new together: the columns that they need are made in one go."""
    found, plain = [], columnar.read_packed

    def noted(packed):
        found.append(packed)
        return plain(packed)

    monkeypatch.setattr(columnar, "read_packed", noted)
    monkeypatch.setattr(columnar, "PREVIEW_ATTRIBUTES", 5_000)
    table = SlotTable()
    for number in range(20):
        table.put(f"s{number}", numbers(1_500, f"p{number}_"), "startd@evil")
    table.flush()
    assert len(found) <= 4
    names = " + ".join(f"named{number}" for number in range(1_000))
    table.put("names", ClassAd({"Name": "names", "Requirements": f"={names}"}).pack(), "startd@evil")
    table.flush()
    assert sum(name.startswith("named") for name in table.table.columns) == 0


async def test_a_large_message_is_handled_in_a_turn_after_the_one_in_which_it_was_read():
    handled = []

    async def handler(envelope):
        handled.append(turn)

    data = Envelope(update(1, {f"s{number}": numbers(300, "x") for number in range(60)}), sender="startd.evil").pack()
    turn, unpacked, plain = 0, [], Envelope.unpack

    def noted(packed):
        unpacked.append(turn)
        return plain(packed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Envelope, "unpack", noted)
        senders = Senders(BusHealth(), structlog.get_logger(), TABLE)
        arrival = Arrival(Exchange.ADS, "startd.evil")
        work = asyncio.ensure_future(
            handle_message(data, 0, handler, RetryPolicy(), structlog.get_logger(), arrival, senders)
        )
        while not work.done():
            await asyncio.sleep(0)
            turn += 1
    assert work.result() is TAKEN
    assert handled[0] > unpacked[0]
