"""STARTD_AD_REEVAL_EXPR: NEG-38."""

import pytest

from services.negotiator.ad_intake import Reevaluation
from shared.classad import ClassAd, parse_expr
from tests.spec import spec

NOW = 1_000.0


def ad(**attributes):
    return ClassAd({"Name": "s"} | attributes)


def never_asked():
    raise AssertionError("without the knob nobody needs the ad in use")


@spec("NEG-38")
def test_without_the_knob_every_new_ad_is_used():
    assert Reevaluation().replaces("s", never_asked, ad(), NOW)


@spec("NEG-38")
def test_the_first_ad_of_a_slot_is_used():
    assert Reevaluation(parse_expr("false")).replaces("s", lambda: None, ad(), NOW)


@spec("NEG-38")
@pytest.mark.parametrize(
    ("text", "replaces"),
    [
        ("TARGET.N > MY.N", True),
        ("TARGET.N < MY.N", False),
        ("1", True),
        ("0", False),
        ("TARGET.Nothing > MY.N", True),
        ('"x"', True),
        ("time() > 999", True),
        ("time() > 1001", False),
    ],
)
def test_the_expression_sees_the_ad_in_use_and_the_new_one(text, replaces):
    assert Reevaluation(parse_expr(text)).replaces("s", lambda: ad(N=1), ad(N=2), NOW) is replaces


@spec("NEG-38")
def test_what_is_kept_back_is_asked_about_again():
    stash = Reevaluation(parse_expr("time() >= 1005"))
    for name in ("b", "a", "c"):
        assert not stash.replaces(name, ad, ad(), NOW)
    assert stash.kept_back() == ["a", "b", "c"]
    stash.forget("c")
    assert stash.replaces("a", ad, ad(), NOW + 5)
    assert stash.kept_back() == ["b"]
