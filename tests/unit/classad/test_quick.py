"""Ads read quickly: the same as tables say, and nothing that can not be read gets in."""

from __future__ import annotations

import msgpack
import pytest

from shared.classad import ClassAd, PackedError, parse_ad
from shared.classad.quick import QuickAd, picks
from shared.classad.values import UNDEFINED


def test_gives_what_the_ad_gives_whatever_the_spelling() -> None:
    for text in (
        '[ Cpus = 4; MEMORY = 2.5; Name = "é"; Up = true; SlotWeight = Cpus * 2 ]',
        '[ cpus = 8; Memory = 1; name = "x"; slotweight = 3 ]',
        "[ Other = undefined ]",
    ):
        ad = ClassAd.unpack(parse_ad(text).pack())
        quick = QuickAd(ad.pack())
        keys = ("cpus", "memory", "name", "up", "slotweight", "other", "nothing")
        assert [str(cell) for cell in quick.cells(keys)] == [str(ad.find(key)) for key in keys]
        assert [str(quick.get(key)) for key in keys] == [str(ad.find(key)) for key in keys]
        for name in ("CPUS", "Memory", "SlotWeight", "Nothing"):
            assert quick.eval(name) == ad.eval(name)
        assert quick.eval_string("Name") == ad.eval_string("Name")
    assert QuickAd(ClassAd().pack()).eval("x") is UNDEFINED


def test_two_spellings_of_one_name_in_one_ad_are_one_attribute() -> None:
    packed = msgpack.packb({"Twice": 1, "TWICE": 2})
    assert QuickAd(packed).get("twice") == ClassAd.unpack(packed).find("twice") == 2
    assert QuickAd(packed).cells(("twice",)) == [2]


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xff\xff",
        msgpack.packb([1, 2]),
        msgpack.packb({1: 2}),
        msgpack.packb({"a": None}),
        msgpack.packb({"a": b"bytes"}),
        msgpack.packb({"a": {"b": 1}}),
        msgpack.packb({"a": msgpack.ExtType(7, b"1 + 1")}),
        msgpack.packb({"a": msgpack.ExtType(1, b"1 +")}),
    ],
)
def test_what_is_no_ad_is_refused_at_once(packed: bytes) -> None:
    with pytest.raises(PackedError):
        QuickAd(packed)


def test_picks_are_the_cells_of_the_ad() -> None:
    keys = ("cpus", "memory", "name", "up", "slotweight", "other", "nothing", "twice")
    for number, text in enumerate(
        (
            '[ Cpus = 4; Memory = 2.5; Name = "é"; Up = true; SlotWeight = Cpus * 2 ]',
            '[ Cpus = 8; Memory = -1; Name = ""; SlotWeight = 3; Large = 9007199254740993 ]',
            "[ Other = undefined; Up = {1, 2} ]",
            f"[ New{id(keys)} = 1; Cpus = 1 ]",
            f'[ CPUS = 2; Twice = "other spelling"; TWICE{id(keys)} = 1 ]',
            '[ TWICE = "x" ]',
        )
    ):
        packed = parse_ad(text).pack()
        for _ in range(2):  # the second time all names are known
            cells, special = picks(packed, keys, frozenset(("my", "target")))
            assert [str(cell) for cell in cells] == [str(ClassAd.unpack(packed).find(key)) for key in keys], number
            assert not special
    cells, special = picks(msgpack.packb({"Cpus": 1, "Target": 2}), ("cpus",), frozenset(("my", "target")))
    assert (cells, special) == ([1], True)
    assert picks(msgpack.packb({"Twice": 1, "TWICE": 2}), ("twice",), frozenset())[0] == [2]


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xff\xff",
        msgpack.packb([1, 2]),
        msgpack.packb({1: 2}),
        msgpack.packb({"a": None}),
        msgpack.packb({"a": b"bytes"}),
        msgpack.packb({"a": {"b": 1}}),
        msgpack.packb({"a": msgpack.ExtType(7, b"1 + 1")}),
        msgpack.packb({"a": msgpack.ExtType(1, b"1 +")}),
    ],
)
def test_nothing_is_picked_of_what_is_no_ad(packed: bytes) -> None:
    QuickAd(msgpack.packb({"a": 1}))
    for _ in range(2):
        with pytest.raises(PackedError):
            picks(packed, ("a",), frozenset())
