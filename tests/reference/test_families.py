"""Made-up cases, the same in every run, answered by Roost and by the reference; `bin/fidelity` makes new ones."""

import gzip
import json
import random
from pathlib import Path

import pytest

from tests.reference.__main__ import FAMILIES, compare, replay, take
from tests.reference.family import REFUSED, Family, Tally
from tests.reference.negotiation import matches_of, ours, recorded_pools

DATA = Path(__file__).resolve().parents[1] / "data"

#: Cases of each family, so many as a second or two has room for.
COUNTS = {"classads": 300, "classad2": 60, "configuration": 60, "event-logs": 150, "queries": 200}


@pytest.mark.reference
@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.usefixtures("reference")
def test_a_family_agrees(name):
    tally = compare(FAMILIES[name], COUNTS[name], seed=20261127)
    assert {cause: found[0] for cause, found in tally.differences.items()} == {}
    assert tally.cases > COUNTS[name] * 0.9
    assert tally.agreed > tally.cases


def test_recorded_submit_files_give_the_references_ads():
    """Its library is not among what the tests need: bin/fidelity --record wrote down what it said."""
    tally = replay(FAMILIES["submit"], DATA / "reference_submit" / "drawn.jsonl.gz")
    assert {cause: found[0] for cause, found in tally.differences.items()} == {}
    assert tally.cases == 400
    assert tally.agreed > 20_000


def test_a_recorded_answer_that_is_another_one_is_told(tmp_path):
    with gzip.open(DATA / "reference_submit" / "drawn.jsonl.gz", "rt") as lines:
        row = next(row for row in map(json.loads, lines) if row["theirs"].get("0 jobuniverse") == "5")
    row["theirs"]["0 jobuniverse"] = "7"
    changed = tmp_path / "changed.jsonl.gz"
    changed.write_bytes(gzip.compress(json.dumps(row).encode()))
    tally = replay(FAMILIES["submit"], changed)
    assert list(tally.differences) == ["jobuniverse"]
    assert tally.questions - tally.agreed == 1


def test_a_case_that_one_side_refuses_is_one_difference():
    family = Family("made up", lambda rng: {}, lambda case: {"a": 1, "b": 2})
    tally = Tally()
    take(tally, family, {}, {REFUSED: "no"})
    assert (tally.questions, tally.agreed, list(tally.differences)) == (1, 0, [REFUSED])


@pytest.mark.parametrize(("name", "answers"), [("layouts", 50), ("slots", 100), ("states", 8), ("negotiation", 50)])
def test_a_recorded_family_agrees(name, answers):
    """Some of each: other tests have them all."""
    tally = compare(FAMILIES[name], 8, 0, recorded=True)
    assert {cause: found[0] for cause, found in tally.differences.items()} == {}
    assert tally.cases == 8
    assert tally.agreed >= answers


def test_drawn_histories_of_slots_go_where_the_references_went():
    """Sixteen machines, as bin/fidelity drew them once: thirteen go the same way, the others otherwise on purpose."""
    path = DATA / "reference_states" / "drawn.jsonl.gz"
    tally = replay(FAMILIES["states"], path)
    assert tally.differences == {}
    assert (tally.agreed, sum(tally.known.values())) == (13, 3)
    with gzip.open(path, "rt") as lines:
        row = json.loads(next(lines))
    name, way = next((name, way) for name, way in row["theirs"].items() if len(way) > 2)
    take(tally, FAMILIES["states"], row["case"], {**row["theirs"], name: way[:-1]})
    assert len(tally.differences) == 1


def test_only_what_htcondors_later_spins_make_is_on_purpose():
    later = [row for row, _ in recorded_pools() if row.get("until", {}).get("because") == "later spins"]
    rows = [{name: value for name, value in row.items() if name != "until"} for row in later[::4]]
    why = [why for row in rows if differs(row) and (why := row.get("because"))]
    assert len(why) >= 5
    for row in rows:
        if "because" in row:  # one match less, and nothing explains it
            other = {**row, "matches": row["matches"][1:]}
            del other["because"]
            assert differs(other)
            assert "because" not in other


def differs(row):
    theirs = matches_of(row)
    return ours(row) != theirs


def test_a_recorded_pool_that_was_decided_otherwise_is_told():
    negotiation = FAMILIES["negotiation"]
    row, theirs = next((row, told) for row, told in negotiation.recorded() if len(told) > 2 and "until" not in row)
    tally = Tally()
    take(tally, negotiation, row, theirs)
    assert tally.differences == {}
    take(tally, negotiation, row, {**theirs, "who gets how many": {}})
    assert list(tally.differences) == ["who gets how many"]


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
