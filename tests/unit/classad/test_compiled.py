"""The compiled scalar gear means what the evaluator means."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.classad import ERROR, UNDEFINED, ClassAd, evaluate, parse_ad, parse_expr, rank, symmetric_match
from shared.classad.compiled import compile_expr, compile_match
from tests.unit.classad.samples import SEEDS, pair_of_ads, plain, random_expression


def both(text, my=None, target=None, now=5.0):
    """The value by the compiled gear, after it was compared with the evaluator's."""
    expr = parse_expr(text)
    value = compile_expr(expr).evaluate(my, target, now)
    assert plain(value) == plain(evaluate(expr, my, target, now))
    return value


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=300)
def test_expressions_have_the_evaluators_value(seed, depth):
    rng = random.Random(seed)
    expr = random_expression(rng, depth)
    compiled = compile_expr(expr)
    for _ in range(3):
        my, target = pair_of_ads(rng)
        for left, right in ((my, target), (my, None), (None, target), (target, my)):
            assert plain(compiled.evaluate(left, right, 5.0)) == plain(evaluate(expr, left, right, 5.0))


@pytest.mark.parametrize("seed", SEEDS)
def test_matches_and_ranks_are_the_evaluators(seed):
    rng = random.Random(seed)
    for _ in range(40):
        mine, _ = pair_of_ads(rng)
        for name in ("Requirements", "Rank"):
            mine[name] = random_expression(rng, 3)
        matcher = compile_match(mine)
        for _ in range(6):
            other, _ = pair_of_ads(rng)
            other["Requirements"] = random_expression(rng, 2)
            assert matcher.matches(other, 5.0) is symmetric_match(mine, other, 5.0)
            assert repr(matcher.rank(other, 5.0)) == repr(rank(mine, other, now=5.0))


def test_a_matcher_keeps_the_ad_as_it_was():
    job = parse_ad("[ Need = 1; Requirements = TARGET.Have >= Need ]")
    matcher = compile_match(job)
    slot = parse_ad("[ Have = 1; Requirements = true ]")
    assert matcher.matches(slot)
    job["Need"] = 2
    assert matcher.matches(slot)
    assert not compile_match(job).matches(slot)


def test_an_ad_that_turns_into_an_expression_is_seen():
    compiled = compile_expr(parse_expr("TARGET.START && TARGET.Limit > 3"))
    plain_ad, policy = parse_ad("[ START = true; Limit = 4 ]"), parse_ad("[ START = Limit > 9; Limit = 1 + 9 ]")
    my = ClassAd()
    for _ in range(2):
        for ad in (plain_ad, policy, parse_ad("[ Limit = 4 ]")):
            assert compiled.evaluate(my, ad) is evaluate(compiled.expr, my, ad)
    policy["Limit"] = 5
    assert compiled.evaluate(my, policy) is False


def test_an_unscoped_name_falls_through_ad_by_ad():
    matcher = compile_match(parse_ad("[ Limit = 5; Requirements = true ]"))
    assert matcher.matches(parse_ad("[ Requirements = Limit == 5 ]"))
    assert not matcher.matches(parse_ad("[ Limit = 6; Requirements = Limit == 5 ]"))
    assert matcher.matches(parse_ad("[ Requirements = Limit == 5 ]"))


def test_an_expression_of_the_other_ad_is_seen_from_its_side():
    my = parse_ad("[ x = 1; y = TARGET.z ]")
    target = parse_ad("[ x = 2; z = x + TARGET.x ]")
    assert both("y", my, target) == 3
    assert both("TARGET.z", my, target) == 3


@pytest.mark.parametrize("text", ["a", "b", "a ?: 7", "c", "TARGET.d"])
def test_circles_close_where_the_evaluators_do(text):
    my = parse_ad("[ a = a + 1; b = c || true; c = b && d; d = TARGET.d ]")
    both(text, my, parse_ad("[ d = TARGET.d; x = 1 ]"))


def test_requirements_that_name_themselves():
    mine = parse_ad("[ Requirements = Requirements =?= undefined ]")
    other = parse_ad("[ Requirements = true ]")
    assert compile_match(mine).matches(other) is symmetric_match(mine, other)


@pytest.mark.parametrize("depth", [50, 250, 399, 400, 450])
def test_the_depth_bound_is_the_evaluators(depth):
    chain = ClassAd({f"a{n}": parse_expr(f"a{n + 1} + 0") for n in range(depth)})
    chain[f"a{depth}"] = 1
    both("a0", chain)
    both("!" * (depth // 4) + "true", chain)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + 1", -(2**63)),
        ("x * x", 1),
        ("-(-x - 1)", -(2**63)),
        ("x == 9223372036854775807.0", True),
        ("x =?= 9223372036854775807", True),
        ("x =?= 9.223372036854775807e18", False),
    ],
)
def test_integers_have_64_bits(text, expected):
    assert both(text, parse_ad("[ x = 9223372036854775807 ]")) == expected


@pytest.mark.parametrize("value", ["1", "1.0", "true", '"1"', '"A"', "undefined", "error", "0", "0.0", "-0.0"])
@pytest.mark.parametrize("op", ["=?=", "=!=", "==", "!=", "<", ">=", "&&", "||", "+", "-", "*", "/", "%"])
def test_types_are_kept_apart(value, op):
    for constant in ("1", "1.0", "true", '"a"', "undefined", "error", "0", "false"):
        for text in (
            f"x {op} {constant}",
            f"{constant} {op} x",
            f"!(x {op} {constant})",
            f"(x {op} {constant}) ? 1 : 2",
        ):
            both(text, parse_ad(f"[ x = {value} ]"))


def test_branches_that_are_not_needed_are_not_evaluated():
    my = parse_ad('[ zero = 0; s = "x" ]')
    assert both("false && s", my) is False
    assert both("s && false", my) is ERROR
    assert both("undefined || s", my) is ERROR
    assert both("zero == 0 ? 1 : 1 / zero", my) == 1


def test_the_clock_is_the_callers():
    assert both("time() - since", parse_ad("[ since = 3 ]"), now=10.5) == 7


def test_nothing_around_means_no_names():
    assert both("x") is UNDEFINED
    assert both("TARGET.x", None, parse_ad("[ x = 1 ]")) is UNDEFINED


def test_an_ad_that_meets_itself_is_one_ad():
    ad = parse_ad("[ a = TARGET.a; Requirements = (TARGET.a =?= undefined) ]")
    assert compile_match(ad).matches(ad) is symmetric_match(ad, ad)


def test_chained_and_nested_ads_are_for_the_evaluator():
    parent, child = parse_ad("[ x = 1; Requirements = TARGET.y == x ]"), ClassAd({"z": 1})
    child.chain(parent)
    other = parse_ad("[ y = 1; Requirements = TARGET.x == 1 ]")
    assert compile_match(child).matches(other)
    assert compile_match(other).matches(child)


def test_more_shapes_than_variants():
    compiled = compile_expr(parse_expr("TARGET.p"))
    for number in range(100):
        assert compiled.evaluate(ClassAd(), parse_ad(f"[ p = 1 + {number} ]")) == number + 1
