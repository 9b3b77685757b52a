"""STARTD_AD_REEVAL_EXPR: spec row NEG-38."""

import pytest

from services.negotiator.reeval import Reevaluation
from shared.classad import ClassAd, parse_expr

NOW = 1_000.0


def ad(**attributes):
    return ClassAd({"Name": "s"} | attributes)


def never_asked():
    raise AssertionError("without the knob nobody needs the ad in use")


def test_without_the_knob_every_new_ad_is_used_NEG_38():
    assert Reevaluation().replaces("s", never_asked, ad(), NOW)


def test_the_first_ad_of_a_slot_is_used_NEG_38():
    assert Reevaluation(parse_expr("false")).replaces("s", lambda: None, ad(), NOW)


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
def test_the_expression_sees_the_ad_in_use_and_the_new_one_NEG_38(text, replaces):
    assert Reevaluation(parse_expr(text)).replaces("s", lambda: ad(N=1), ad(N=2), NOW) is replaces


def test_what_is_kept_back_is_asked_about_again_NEG_38():
    stash = Reevaluation(parse_expr("time() >= 1005"))
    for name in ("b", "a", "c"):
        assert not stash.replaces(name, ad, ad(), NOW)
    assert stash.kept_back() == ["a", "b", "c"]
    stash.forget("c")
    assert stash.replaces("a", ad, ad(), NOW + 5)
    assert stash.kept_back() == ["b"]
