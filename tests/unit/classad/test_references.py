"""What expressions depend on, and what they come to when half is known."""

import random

import pytest

from shared.classad import (
    evaluate,
    flatten,
    other_references,
    parse_ad,
    parse_expr,
    references,
    significant_attributes,
    unparse,
)
from tests.unit.classad import grammar
from tests.unit.classad.compare import plain


@pytest.mark.parametrize(
    ("my", "text", "internal", "external"),
    [
        ("[a=1;b=a+c]", "a + b + c + MY.a + MY.q + TARGET.x", "a b", "c q TARGET.x"),
        ("[a=1;b=a+c]", "B", "a B", "c"),
        ("[a=[x=1];b=a.x]", "b + a.y", "a b", ""),
        ("[a=1]", "{a, b, [c = a; d = e; f = c]}", "a", "b e"),
        ("[a=1]", "a ? strcat(b) : x[c]", "a", "b c x"),
        ("[a=b;b=a]", "a", "a b", ""),
        ("[a=TARGET.b + c]", "a", "a", "c TARGET.b"),
        ("[a=1]", "q.z", "", "q q.z"),
        ("[target=[z=1]]", "target.z", "target", ""),
        ("[a=1]", "root.a + .b", "a", "b"),
    ],
)
def test_references(my, text, internal, external):
    found = references(parse_expr(text), my=parse_ad(my))
    assert sorted(found.internal, key=str.lower) == internal.split()
    assert found.external == external.split()


def test_what_machines_ask_of_jobs_is_significant():
    machine = parse_ad(
        """[Requirements = START && TARGET.RequestMemory <= Memory; START = Owner == "x" && KeyboardIdle > 10;
            KeyboardIdle = 4; Memory = 3; Rank = TARGET.JobPrio + MY.Weight]"""
    )
    assert other_references(machine, ["Requirements"]) == {"RequestMemory", "Owner"}
    significant = significant_attributes([machine, machine.copy()], [parse_expr("MY.x + TARGET.NiceUser")])
    assert significant == {"RequestMemory", "Owner", "JobPrio", "NiceUser"}


@pytest.mark.parametrize(
    ("text", "flat"),
    [
        ("a + 1", "2"),
        ("x + a + 1", "x + 1 + 1"),  # not reordered: x may be a real
        ("true && x", "true && x"),  # not x: x may be 2
        ("a > 0 && x > a", "x > 1"),
        ("false && x", "false"),
        ("x && false", "x && false"),
        ("MY.a + TARGET.a", "1 + TARGET.a"),
        ("f * 2", "(x + 1) * 2"),
        ("c ? x : y", "y"),
        ("d ?: x", "x"),
        ("ifThenElse(c, x, y)", "y"),
        ('strcat(s, "c")', '"bc"'),
        ("time()", "time()"),
        ("round", "round"),
        ("{a, x}", "{ 1,x }"),
        ("n.z", "n.z"),
    ],
)
def test_flatten(text, flat):
    my = parse_ad('[a = 1; f = x + 1; s = "b"; c = false; d = undefined; n = [z = a]; round = round + 1]')
    assert unparse(flatten(parse_expr(text), my)) == flat


@pytest.mark.parametrize("seed", range(6))
def test_flattening_changes_no_value(seed):
    rng = random.Random(f"flatten {seed}")
    for _ in range(150):
        my, target = grammar.ad(rng), parse_ad(grammar.ad(rng))
        ad = parse_ad(my)
        expr = parse_expr(grammar.expression(rng, 3))
        flat = flatten(expr, ad)
        value, again = (evaluate(each, ad, target, 0.0) for each in (expr, flat))
        if isinstance(value, list) or "error" in unparse(expr):
            value, again = unparse(value), unparse(again)
            continue
        assert plain(again) == plain(value), (unparse(expr), unparse(flat), my, unparse(target))
