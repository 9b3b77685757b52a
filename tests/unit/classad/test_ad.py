"""The ad as a mapping, and what is done with whole ads."""

import json
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.classad import (
    ERROR,
    UNDEFINED,
    ClassAd,
    Expr,
    PackedError,
    ParseError,
    ads_from_json,
    ads_to_json,
    ads_to_xml,
    best_match,
    evaluate,
    from_json,
    half_match,
    parse_ad,
    parse_ads,
    parse_expr,
    rank,
    symmetric_match,
    unparse,
)
from tests.spec import spec


@spec("CLA-09")
def test_names_ignore_case_keep_the_first_spelling_and_the_last_value():
    ad = ClassAd({"Memory": 1})
    ad["MEMORY"] = 2
    assert ad["memory"] == 2
    assert list(ad) == ["Memory"]
    assert "mEmOrY" in ad
    assert unparse(parse_ad("[Aa = 1; aA = 2]")) == "[ Aa = 2 ]"
    assert unparse(parse_ad("Aa = 1\naA = 2", "old")) == "[ Aa = 2 ]"
    assert next(iter(parse_ads("Aa = 1\naA = 2"))) == ad_of(Aa=2)


def ad_of(**attributes):
    return ClassAd(attributes)


def test_only_ascii_letters_are_folded():
    ad = ClassAd()
    ad["É"] = 1
    assert "é" not in ad
    assert "É" in ad


def test_constants_come_back_as_python_values_and_the_rest_as_expressions():
    ad = parse_ad(
        '[i = 1; r = 1.5; s = "x"; b = true; u = undefined; e = error; l = {1, {"a"}}; n = [x = y]; x = a + 1]'
    )
    assert [ad[name] for name in "irsbl"] == [1, 1.5, "x", True, [1, ["a"]]]
    assert ad["u"] is UNDEFINED
    assert ad["e"] is ERROR
    assert isinstance(ad["n"], ClassAd)
    assert isinstance(ad["x"], Expr)
    assert str(ad["x"]) == "a + 1"
    assert ad.text("s") == '"x"'
    assert ad.text("none") is None
    assert ad.lookup("none") is None
    assert ad.eval("none") is UNDEFINED


def test_anything_python_has_can_be_assigned():
    moment = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    ad = ClassAd(
        {
            "n": None,
            "i": 1,
            "b": False,
            "r": 0.5,
            "s": 'q"',
            "l": [1, "a", [None]],
            "d": {"x": 1},
            "t": moment,
            "v": timedelta(seconds=90),
            "e": parse_expr("i + 1"),
        }
    )
    assert ad.eval("n") is UNDEFINED
    assert ad.eval("t") == moment
    assert ad.eval("v") == 90.0
    assert ad.eval("l") == [1, "a", [UNDEFINED]]
    assert ad.eval("e") == 2
    assert parse_ad(unparse(ad)) == ad
    with pytest.raises(TypeError, match="cannot hold a object"):
        ad["x"] = object()
    with pytest.raises(OverflowError):
        ad["x"] = 2**63
    for text in ("a\0b", "half \ud83d"):
        with pytest.raises(ValueError, match="no ClassAd string"):
            ad["x"] = text
        with pytest.raises(ValueError, match="can not have the name"):
            ad[text] = 1
        with pytest.raises(ParseError):
            parse_ad(f'x = "{text}"', "old")
        with pytest.raises(ParseError):
            from_json(json.dumps({"x": text}))
        with pytest.raises(ParseError):
            parse_expr(f'"{text}"')
    assert "x" not in ad


def test_deleting_and_updating():
    ad = parse_ad("[a = 1; b = 2]")
    del ad["A"]
    with pytest.raises(KeyError):
        del ad["a"]
    ad.update(parse_ad("[B = 3; c = b]"))
    ad.update({"d": 4}, e=5)
    assert unparse(ad) == "[ b = 3; c = b; d = 4; e = 5 ]"
    assert ad.pop("d") == 4
    ad.clear()
    assert len(ad) == 0
    assert not ad


def test_copies_are_independent_both_ways():
    ad = parse_ad("[a = 1; n = [x = 1]]")
    copy = ad.copy()
    copy["a"] = 2
    ad["b"] = 3
    assert ad["a"] == 1
    assert "b" not in copy
    nested = ad["n"]
    nested["x"] = 9
    assert unparse(ad["n"]) == "[ x = 1 ]"


def test_assigning_to_an_ad_does_not_touch_the_expression_it_came_from():
    expr = parse_expr("[a = 1]")
    evaluate(expr)["a"] = 2
    assert unparse(expr) == "[ a = 1 ]"


def test_a_chained_parent_is_seen_by_lookups_and_evaluation_only():
    cluster = parse_ad('[Owner = "a"; Cmd = strcat(Owner, "x"); Requirements = Memory > ProcMemory]')
    proc = parse_ad('[ProcMemory = 5; owner = "b"]')
    proc.chain(cluster)
    assert proc["Owner"] == "b"
    assert "Requirements" in proc
    assert half_match(proc, parse_ad("[Memory = 6]"))
    assert list(proc) == ["ProcMemory", "owner"]
    assert len(proc) == 2
    with pytest.raises(ValueError, match="chained to itself"):
        cluster.chain(proc)
    proc.chain(None)
    assert "Requirements" not in proc


def test_secrets_do_not_leave_in_a_public_copy():
    ad = ClassAd(
        dict.fromkeys(
            [
                "ClaimId",
                "CAPABILITY",
                "ClaimIds",
                "PairedClaimId",
                "TransferKey",
                "ChildClaimIds",
                "_condor_privKey",
                "_CONDOR_PRIV",
                "Name",
            ],
            "secret",
        )
    )
    assert list(ad.public()) == ["Name"]
    assert len(ad) == 9


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.dictionaries(NAMES, st.one_of(st.booleans(), INTEGERS, st.floats(allow_nan=False), TEXTS)))
def test_packing_loses_nothing(attributes):
    ad = ClassAd(attributes)
    again = ClassAd.unpack(ad.pack())
    assert again == ad
    assert list(again) == list(ad)
    assert {name: type(again[name]) for name in again} == {name: type(ad[name]) for name in ad}
    assert pickle.loads(pickle.dumps(ad)) == ad


@given(st.dictionaries(NAMES, st.one_of(st.booleans(), INTEGERS, st.floats(width=32), TEXTS)))
def test_json_loses_no_constant(attributes):
    ad = ClassAd(attributes)
    (again,) = ads_from_json(ads_to_json([ad]))
    assert {name: again.text(name) for name in again} == {name: ad.text(name) for name in ad}


@given(st.floats(allow_nan=False))
def test_a_real_inside_an_expression_is_packed_in_full(number):
    ad = ClassAd({"x": parse_expr(f"y * {number!r}" if abs(number) < float("inf") else "y * 1e400")})
    again = ClassAd.unpack(ad.pack())
    assert again["x"].right.value == ad["x"].right.value


def test_expressions_are_packed_as_text_and_read_when_asked_for():
    packed = parse_ad('[r = TARGET.x > 1; s = "text"; bad = 1]').pack()
    ad = ClassAd.unpack(packed)
    assert ad.pack() is packed
    assert ad.text("r") == "TARGET.x > 1"
    broken = ClassAd.unpack(packed.replace(b"TARGET.x > 1", b"TARGET.x >> )"[:12]))
    assert broken["s"] == "text"
    with pytest.raises(PackedError, match="expected"):
        broken.check()
    assert broken.eval("s") == "text"
    assert broken.eval("r") is ERROR
    assert evaluate(parse_expr("r"), broken) is ERROR


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x81\xa1a\xc0", b"\x81\x01\x02", b"\x81\xa1a\xc7\x01\x07x", b"\x81\xa1a\x90", b"junk"]
)
def test_bytes_that_are_no_ad_are_refused(data):
    with pytest.raises(PackedError, match="not a packed ad"):
        ClassAd.unpack(data).check()


def test_a_stored_ad_costs_no_more_than_twice_its_bytes():
    import sys

    packed = parse_ad("\n".join(f"Attribute{n} = {n * 7919}" for n in range(134)), "old").pack()
    ad = ClassAd.unpack(packed)
    assert sys.getsizeof(ad) + sys.getsizeof(packed) < 2 * len(packed)


@spec("CLA-23")
def test_a_match_needs_both_sides():
    job = parse_ad("[Requirements = TARGET.Memory >= RequestMemory; RequestMemory = 10; Rank = TARGET.Memory]")
    big, small = (parse_ad(f"[Memory = {memory}; Requirements = true]") for memory in (20, 5))
    shy = parse_ad("[Memory = 30]")
    assert symmetric_match(job, big)
    assert not symmetric_match(job, small)
    assert half_match(job, shy)
    assert not symmetric_match(job, shy)
    assert best_match(job, [small, big, shy]) is big
    assert best_match(job, [small]) is None
    assert rank(job, big) == 20.0


@spec("CLA-23")
@pytest.mark.parametrize(
    ("requirements", "matches"),
    [
        ("true", True),
        ("1", True),
        ("2.5", True),
        ("0", False),
        ("undefined", False),
        ("error", False),
        ('"yes"', False),
        ("x", False),
    ],
)
def test_what_satisfies(requirements, matches):
    assert half_match(parse_ad(f"[Requirements = {requirements}]"), ClassAd()) is matches


@spec("CLA-25")
@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("true", 1.0), ('"x"', 0.0), ("undefined", 0.0), ("1/0", 0.0)])
def test_rank_is_a_real(text, value):
    assert rank(parse_ad(f"[Rank = {text}]"), ClassAd()) == value


def test_xml_has_an_element_for_every_type():
    text = ads_to_xml(
        [parse_ad('[a = 1; b = 1.5; c = "<&\\n>"; d = true; e = undefined; f = error; g = {1, x}; h = [i = a + 1]]')]
    )
    assert text == (
        '<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n<c>\n'
        '    <a n="a"><i>1</i></a>\n'
        '    <a n="b"><r>1.500000000000000E+00</r></a>\n'
        '    <a n="c"><s>&lt;&amp;\\n&gt;</s></a>\n'
        '    <a n="d"><b v="t"/></a>\n'
        '    <a n="e"><un/></a>\n'
        '    <a n="f"><er/></a>\n'
        '    <a n="g"><l><i>1</i><e>x</e></l></a>\n'
        '    <a n="h"><c>\n        <a n="i"><e>a + 1</e></a>\n    </c></a>\n'
        "</c>\n</classads>\n"
    )


@spec("CLA-21")
def test_streams_of_new_syntax():
    assert [unparse(ad) for ad in parse_ads("[a=1] [b=2],\n[c=3];", "new")] == ["[ a = 1 ]", "[ b = 2 ]", "[ c = 3 ]"]
