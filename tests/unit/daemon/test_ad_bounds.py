"""What the ads of one daemon may come to, and what taking them in costs: counted, not timed."""

import msgpack
import pytest

from shared.classad import ClassAd
from shared.classad.cells import MOST_ATTRIBUTES, PackedError
from shared.classad.quick import QuickAd, picks
from shared.daemon import ad_bounds
from shared.daemon.ad_plan import MOST_IN_PART, Published, in_parts, plan
from shared.daemon.ad_rows import MOST_AD_ATTRIBUTES, BadAd, StoredAd, may_name, pack, unpack, with_attributes
from shared.daemon.ad_table import AdTable
from shared.messages.ads import MOST_ADS, MOST_REMOVED, AdDelta, AdInvalidate, AdUpdate
from shared.messages.base import BadMessage, Envelope

HEAD = {"my_type": "Machine", "daemon": "startd@n1", "start_time": 1}
SMALL = pack({"A": 1})


def whole(names, sequence=1, *, complete=True, ad=SMALL):
    return AdUpdate(**HEAD, sequence=sequence, names=list(names), ads=[ad] * len(names), complete=complete)


def delta(names, base, changes=None):
    changes = changes if changes is not None else [SMALL] * len(names)
    return AdDelta(
        **HEAD, base=base, sequence=base + 1, names=list(names), changes=changes, removed_attrs=[[]] * len(names)
    )


MANY = b"\xdd" + (1_000_000).to_bytes(4, "big")
HOSTILE = {
    "a million empty maps": b"\x81\xa1a" + MANY + b"\x80" * 1_000_000,
    "a million nothings": b"\x81\xa1a" + MANY + b"\xc0" * 1_000_000,
    "maps in a map": pack({"a": {f"{n}": {} for n in range(9_000)}}),
    "one map in a map": pack({"a": {"b": 1}}),
    "too many attributes": pack({f"{n}": n for n in range(MOST_ATTRIBUTES + 1)}),
    "more attributes than bytes": b"\xdf\x7f\xff\xff\xff\xa1a\x01",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_ad_is_refused_before_there_is_an_object_for_each_value(what):
    with pytest.raises(BadAd, match="not a packed ad"):
        unpack(HOSTILE[what])
    for read in (lambda ad: ClassAd.unpack(ad).check(), QuickAd, lambda ad: picks(ad, ("a",), frozenset())):
        with pytest.raises(PackedError, match=r"not a packed ad: (\d+ exceeds|a map in a map)"):
            read(HOSTILE[what])


def test_what_an_ad_holds_is_read_as_before():
    ad = {"A": msgpack.ExtType(1, b"{1, [a = 2]}"), "B": 1.5, "C": "text", "D": True, "\udcff": -1}
    assert unpack(pack(ad)) == ad
    assert ClassAd.unpack(pack(ad)).check().text("A") == "{ 1,[ a = 2 ] }"


def test_an_ad_of_too_many_attributes_is_refused_also_where_it_grows():
    table, wide = AdTable(), {f"A{n}": n for n in range(MOST_AD_ATTRIBUTES - 1)}
    with pytest.raises(BadAd, match=rf"'s' has {MOST_AD_ATTRIBUTES + 1} attributes; at most {MOST_AD_ATTRIBUTES} are"):
        table.apply(whole("s", ad=pack(wide | {"B": 1, "C": 1})), 0)
    table.apply(whole("s", ad=pack(wide)), 0)
    for sequence in range(1, 40):  # the same one again and again makes it no larger
        table.apply(delta("s", sequence, [pack({"A1": sequence})]), 0)
    table.apply(delta("s", 40, [pack({"B": 1})]), 0)
    with pytest.raises(BadAd, match=f"'s' has {MOST_AD_ATTRIBUTES + 1} attributes"):
        table.apply(delta("s", 41, [pack({"C": 1})]), 0)
    row = table.row("Machine", "startd@n1", "s")
    assert len(row.attributes()) == MOST_AD_ATTRIBUTES
    unpack(with_attributes(row.packed(), {"LastHeardFrom": 1}))  # there is room for what a collector adds


def test_one_message_tells_of_so_many_ads_and_a_daemon_says_more_in_parts():
    with pytest.raises(BadMessage, match=f"names has {MOST_ADS + 1} entries; at most {MOST_ADS} are taken: send it in"):
        Envelope.unpack(Envelope(whole([f"s{n}" for n in range(MOST_ADS + 1)])).pack())
    ads = {f"s{n}": SMALL for n in range(2 * MOST_ADS + 1)}
    said, message = plan(Published("Machine", "startd@n1", 1, 0), ads)
    parts = in_parts(message)
    assert max(len(part.names) for part in parts) == MOST_IN_PART
    table = AdTable()
    for part in parts:
        table.apply(Envelope.unpack(Envelope(part).pack()).body, 0)
    assert len(table) == len(ads)
    said = Published("Machine", "startd@n1", 1, parts[-1].sequence, parts[-1].sequence, said.ads)
    _, few = plan(said, ads | dict.fromkeys(list(ads)[:MOST_IN_PART], pack({"A": 2})))
    assert isinstance(few, AdDelta)
    _, changed = plan(said, dict.fromkeys(ads, pack({"A": 2, "B": "x" * 50})))
    assert isinstance(changed, AdUpdate)
    _, fewer = plan(said, dict(list(ads.items())[:1]))
    assert isinstance(fewer, AdUpdate)  # too many would have to be named as gone
    _, none = plan(said, {})
    table.apply(Envelope.unpack(Envelope(none).pack()).body, 0)
    assert len(table) == 0


@pytest.mark.parametrize(("gone", "said"), [(MOST_REMOVED // MOST_IN_PART, AdDelta), (60, AdUpdate)])
def test_a_change_that_takes_many_attributes_away_is_told_as_a_whole(gone, said):
    rest = {f"B{n}": n for n in range(100)}
    wide, narrow = pack(rest | {f"A{n}": n for n in range(gone)}), pack(rest)
    names = [f"s{n}" for n in range(MOST_IN_PART)]
    last = Published("Machine", "startd@n1", 1, 1, 1, dict.fromkeys(names, wide))
    _, message = plan(last, dict.fromkeys(names, narrow))
    assert isinstance(message, said)
    for part in in_parts(message) if isinstance(message, AdUpdate) else [message]:
        Envelope.unpack(Envelope(part).pack())


def test_a_daemon_has_so_many_ads_of_a_type_however_it_tells_of_them(monkeypatch):
    monkeypatch.setattr(ad_bounds, "MOST_OF_DAEMON", 6)
    table = AdTable()
    table.apply(whole("abcd"), 0)
    table.apply(whole("ef", 2, complete=False), 0)
    for message in (whole("gh", 3, complete=False), delta("fg", 2), whole("abcdefg", 3)):
        with pytest.raises(BadAd, match=r"[78] ads of type Machine; at most 6 of one daemon are taken"):
            table.apply(message, 0)
    table.apply(delta("abcdef", 2), 0)  # those that it has may change
    assert len(table) == 6


class Name(str):
    """A name that counts with how many others it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)


def test_taking_ads_back_looks_at_each_name_a_few_times():
    names = [Name(f"s{number}") for number in range(1000)]
    table = AdTable()
    table.apply(whole(names).model_copy(update={"names": names}), 0)
    Name.compared = 0
    taken = AdInvalidate(**HEAD, sequence=2).model_copy(update={"names": [Name(name) for name in names[:500]]})
    table.apply(taken, 0)
    assert len(table) == 500
    assert Name.compared < 20 * len(names)


def test_a_stored_ad_that_was_compressed_is_measured_when_it_grows():
    row = StoredAd(SMALL)
    row.most_bytes = row.most_attributes = 0
    assert row.grown_by(5, 2) == (len(SMALL) + 5, 3)


class Bytes(bytes):
    """Counts the looks at single names."""

    looks = 0

    def __getitem__(self, key):
        self.looks += 1
        return bytes(self)[key]


@pytest.mark.parametrize("name", ["ClassAdLifetime", "Offline"])
def test_looking_for_a_name_takes_few_looks_in_whatever_ad(name):
    mark = bytes([0xA0 | len(name)])
    full = Bytes(pack({"X": mark * 100_000}))
    assert not may_name(full, name)
    assert full.looks <= 1_000
    for spelt in (name, name.upper(), name.lower()):
        assert may_name(pack({spelt: 1}), name)
        assert may_name(pack({"X": mark * 100_000, spelt: 1}), name)
    assert not may_name(pack({"A": 1, "x" * len(name): 2}), name)
