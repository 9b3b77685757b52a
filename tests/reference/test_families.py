"""Made-up cases, the same in every run, answered by Roost and by the reference; `bin/fidelity` makes new ones."""

import random

import pytest

from tests.reference.__main__ import FAMILIES, compare, take
from tests.reference.family import Family, Tally

#: Cases of each family, so many as a second or two has room for.
COUNTS = {"classads": 300, "configuration": 60, "event-logs": 150}


@pytest.mark.reference
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.usefixtures("reference")
def test_a_family_agrees(name):
    tally = compare(FAMILIES[name], COUNTS[name], seed=20261127)
    assert {cause: found[0] for cause, found in tally.differences.items()} == {}
    assert tally.cases > COUNTS[name] * 0.9
    assert tally.agreed > tally.cases


def test_a_difference_is_counted_and_one_on_purpose_apart():
    family = Family(
        "made up",
        lambda rng: {"n": rng.random()},
        lambda case: {"same": 1, "odd": 2, "ours": 3},
        lambda case, question, ours, theirs: "why" if question == "odd" else "",
    )
    tally = Tally()
    case = family.make(random.Random(1))
    take(tally, family, case, {"same": 1, "odd": 5, "theirs": 4})
    assert (tally.questions, tally.agreed, tally.agreed_cases, tally.known) == (3, 1, 0, {"why": 1})
    assert {cause: (found[0].ours, found[0].theirs) for cause, found in tally.differences.items()} == {
        "theirs": (None, 4),
        "ours": (3, None),
    }
    take(tally, family, case, None)
    assert tally.unanswered == 1
    assert tally.counts()["percent"] == 33.333
