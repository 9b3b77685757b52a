"""Expressions, scopes, parsing and printing, compared with the reference implementation."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.classad import parse_ad, rank, symmetric_match
from tests.unit.classad import grammar
from tests.unit.classad.compare import Theirs, known_deviation, ours

pytestmark = pytest.mark.reference

MY = '[a=1;b=2.5;c="x";d=undefined;n=[a=5;z=b];l={1,[a=2],"s"};i=1;x=true;y=a+1]'
TARGET = '[a=3;b="t";x=y*2;y=a;n=[a=a;z=TARGET.a];l={4,[a=TARGET.b]}]'


@pytest.fixture
def theirs(reference):
    return Theirs(reference.classad)


def differences(theirs, cases):
    found = []
    for case in cases:
        answer, expected = ours(*case), theirs(*case)
        if expected is not None and answer != expected and not known_deviation(case[0], answer, expected):
            found.append((case, "reference", expected, "ours", answer))
    return found[:5]


@pytest.mark.parametrize("left", grammar.VALUES)
def test_every_operator_with_every_pair_of_values(theirs, left):
    cases = [(f"{op}{left}",) for op in grammar.UNARY]
    cases += [(f"({left}).a",), (f"({left})",)]
    for right in grammar.VALUES:
        for op in grammar.BINARY:
            if op in "/%" and (left, right) == ("-9223372036854775808", "-1"):
                continue  # the reference dies of it
            cases.append((f"{left} {op} {right}",))
        cases.append((f"{left} ?: {right}",))
        cases.append((f"{left} ? {right} : 5",))
        if right != "-9223372036854775808":  # the reference cuts a subscript to 32 bits
            cases.append((f"({left})[{right}]",))
    assert differences(theirs, cases) == []


@pytest.mark.parametrize("seed", range(3))  # bin/fidelity draws the many
def test_random_expressions_over_two_fixed_ads(theirs, seed):
    rng = random.Random(f"expressions {seed}")
    cases = [(grammar.expression(rng, rng.choice([2, 3, 4])), MY, TARGET) for _ in range(400)]
    assert differences(theirs, cases) == []


@pytest.mark.parametrize("seed", range(3))  # bin/fidelity draws the many
def test_random_ads_that_refer_to_each_other(theirs, seed):
    rng = random.Random(f"scopes {seed}")
    cases = []
    for _ in range(120):
        my, target = grammar.ad(rng), grammar.ad(rng) if rng.random() < 0.7 else None
        cases += [(grammar.expression(rng, rng.choice([0, 0, 1, 2])), my, target) for _ in range(4)]
    assert differences(theirs, cases) == []


@pytest.mark.parametrize("seed", range(2))
def test_random_texts_are_taken_or_refused_alike(theirs, seed):
    rng = random.Random(f"texts {seed}")
    cases = [(make(rng),) for _ in range(500) for make in (grammar.damaged, grammar.soup)]
    assert differences(theirs, cases) == []


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0]"), max_size=30))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_string_prints_and_reads_as_in_the_reference(theirs, text):
    literal = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert differences(theirs, [(literal,)]) == []
    assert ours(literal)[0] == ("str", repr(text))


@given(st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1)))
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_prints_and_reads_as_in_the_reference(theirs, number):
    literal = f"{number!r}"
    if literal in ("inf", "-inf", "nan"):
        literal = f'real("{literal}")'
    assert differences(theirs, [(literal,)]) == []


@pytest.mark.parametrize("seed", range(2))
def test_matches_and_ranks_agree(reference, seed):
    rng = random.Random(f"matches {seed}")
    matched = 0
    for _ in range(400):
        pair = []
        for _ in range(2):
            requirements = " && ".join(
                rng.choice(
                    [
                        "TARGET.Memory >= MY.Memory",
                        "Disk > 10",
                        'TARGET.Arch == "x86_64"',
                        'Arch =!= "ARM"',
                        "(TARGET.Cpus ?: 1) >= 1",
                        "START",
                        "HasDocker",
                        "TARGET.HasDocker =?= true",
                        "2",
                        "isUndefined(TARGET.Owner) || Owner != TARGET.Owner",
                        "!(TARGET.Cpus < Cpus)",
                    ]
                )
                for _ in range(rng.randrange(3))
            )
            attributes = {
                "Memory": ["512", "1024", "undefined"],
                "Disk": ["5", "50", "Memory"],
                "Arch": ['"X86_64"', '"arm"', "7"],
                "Cpus": ["1", "2.0", "true"],
                "START": ["true", "TARGET.Memory > 100", "1/0", '"yes"'],
                "HasDocker": ["true", "false", "1"],
                "Owner": ['"alice"', '"BOB"'],
                "Rank": ["Memory", "TARGET.Memory", '"x"', "true", "-1.5", "1/0"],
            }
            lines = [f"{name} = {rng.choice(texts)}" for name, texts in attributes.items() if rng.random() < 0.7]
            if requirements:
                lines.append(f"Requirements = {requirements}")
            pair.append("[" + "; ".join(lines) + "]")
        a, b = (parse_ad(text) for text in pair)
        ref_a, ref_b = (reference.classad.ClassAd(text) for text in pair)
        answer = symmetric_match(a, b)
        matched += answer
        assert answer == ref_a.symmetricMatch(ref_b), pair
        value = reference.classad.ExprTree("Rank").eval(ref_a, ref_b) if "Rank" in a else 0.0
        expected = float(value) if isinstance(value, bool | int | float) and not hasattr(value, "name") else 0.0
        assert rank(a, b) == expected or "Rank" not in a, pair
    assert matched > 20
