"""NEGOTIATOR_MATCH_EXPRS: NEG-32, worked example W-06."""

import pytest

from engine.policy import MatchExprs, match_exprs, match_exprs_of
from shared.classad import ClassAd, parse_ad
from shared.config import load_config
from shared.config.knobs import NegotiatorSettings
from tests.spec import spec


def read(text, tmp_path):
    path = tmp_path / "condor_config"
    path.write_text(text)
    config = load_config([path], subsystem="NEGOTIATOR", env={})
    return match_exprs_of(NegotiatorSettings.from_config(config), config)


@spec("NEG-32", "W-06")
def test_a_macro_becomes_an_attribute_of_the_matched_slot(tmp_path):
    told = read('NegotiatorName = "My Negotiator"\nNEGOTIATOR_MATCH_EXPRS = NegotiatorName\n', tmp_path)
    ad = ClassAd.unpack(told.into(ClassAd({"Name": "slot1"}).pack()))
    assert dict(ad) == {"Name": "slot1", "NegotiatorMatchExprNegotiatorName": "My Negotiator"}


@spec("NEG-32")
@pytest.mark.parametrize("name", ["NegotiatorMatchExprSite", "negotiatormatchexprSite"])
def test_a_name_with_the_prefix_gets_no_second_one(name):
    assert list(match_exprs([name], lambda _: "1").exprs) == [name]


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ('"x y"', "x y"), ("1 + 2", 3), ("a b", "a b"), ("SlotID * 2", 14), ("true", True)]
)
def test_values_are_expressions_and_other_texts_are_strings(text, value):
    told = match_exprs(["X"], lambda _: text)
    assert ClassAd.unpack(told.into(ClassAd({"SlotID": 7}).pack())).eval("NegotiatorMatchExprX") == value


def test_macros_that_are_not_there_are_left_out_and_told(tmp_path):
    told = read("NEGOTIATOR_MATCH_EXPRS = Nothing, Empty, Site\nEmpty =\nSite = 5\n", tmp_path)
    assert list(told.exprs) == ["NegotiatorMatchExprSite"]
    assert [problem.split(",")[0] for problem in told.problems] == [
        "NEGOTIATOR_MATCH_EXPRS names Nothing",
        "NEGOTIATOR_MATCH_EXPRS names Empty",
    ]


def test_a_name_that_no_attribute_can_have_is_told():
    told = match_exprs(["LARGE.x", "_ok_1"], lambda _: "1")
    assert list(told.exprs) == ["NegotiatorMatchExpr_ok_1"]
    assert "LARGE.x" in told.problems[0]


@pytest.mark.parametrize("packed", [b"", b"\x93\x01\x02\x03", b"\xde\x01"])
def test_what_is_no_ad_is_refused(packed):
    with pytest.raises(ValueError, match="packed ad"):
        match_exprs(["X"], lambda _: "1").into(packed)


def test_without_macros_ads_stay_as_they_are():
    packed = ClassAd({"A": 1}).pack()
    assert MatchExprs().into(packed) is packed


@pytest.mark.parametrize("size", [0, 1, 13, 14, 15, 16, 200, 4_950])
@pytest.mark.parametrize("count", [1, 2, 17])
def test_the_attributes_come_besides_those_of_the_ad(size, count):
    told = match_exprs([f"M{number}" for number in range(count)], lambda name: f'"{name}"')
    merged = ClassAd.unpack(told.into(ClassAd({f"A{number}": 1 for number in range(size)}).pack())).check()
    assert len(merged) == size + count
    assert merged[f"NegotiatorMatchExprM{count - 1}"] == f"M{count - 1}"
    assert size == 0 or merged[f"A{size - 1}"] == 1


def test_the_negotiators_word_wins_over_the_slots():
    told = match_exprs(["X"], lambda _: "1")
    ad = parse_ad("[NegotiatorMatchExprX = 9]")
    assert ClassAd.unpack(told.into(ad.pack()))["NegotiatorMatchExprX"] == 1
