"""Explanations of random pools against the evaluator, slot by slot."""

from __future__ import annotations

import random

import pytest

from engine.analyze import explain_job
from shared.classad import ClassAd, half_match, parse_expr, symmetric_match
from tests.unit.analyze.pools import NOW, job, pool, slot

STARTS = (
    "true",
    'TARGET.Owner != "alice"',
    "KeyboardIdle > 100",
    "TARGET.RequestMemory < 5000",
    "TARGET.Nice =?= true",
)
TERMS = (
    "TARGET.Memory >= RequestMemory",
    "TARGET.Cpus >= RequestCpus",
    'TARGET.Arch == "X86_64"',
    'TARGET.Arch != "X86_64"',
    "TARGET.KeyboardIdle > 150",
    "TARGET.Memory >= 6000",
    "(TARGET.HasDocker || TARGET.Cpus > 6)",
    "TARGET.Parts[0] > 1",
    "TARGET.Cpus < 3",
    "true",
)


def random_slot(rng: random.Random, number: int) -> ClassAd:
    return slot(
        f"slot1@n{number}",
        Memory=rng.choice((512, 4096, 8192, 65536)),
        Cpus=rng.choice((1, 4, 8)),
        Arch=rng.choice(("X86_64", "aarch64")),
        KeyboardIdle=rng.choice((50, 200)),
        HasDocker=rng.random() < 0.5,
        Start="=" + rng.choice(STARTS),
        Parts=f"={{ {rng.randrange(4)} }}",
        State=rng.choice(("Unclaimed", "Claimed", "Owner")),
        RemoteUser="bob@pool",
    )


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_the_evaluators_and_suggestions_keep_their_word(seed):
    rng = random.Random(seed)
    ads = [random_slot(rng, n) for n in range(rng.choice((3, 30)))]
    terms = rng.sample(TERMS, rng.choice((1, 2, 4, 6)))
    wanted = job(
        " && ".join(terms),
        RequestMemory=rng.choice((1024, 10_000, 999_999)),
        RequestCpus=rng.choice((1, 6, 100)),
    )
    found = explain_job(pool(*ads), wanted)

    def suiting(one: ClassAd) -> int:
        return sum(symmetric_match(one, ad, NOW) for ad in ads)

    assert sum(found.outcomes.values()) == len(ads)
    assert found.outcomes.get("job-requirements", 0) == sum(not half_match(wanted, ad, now=NOW) for ad in ads)
    assert found.capacity == suiting(wanted) == found.outcomes.get("free", 0) + found.outcomes.get("claimed", 0)
    for position, term in enumerate(found.terms):
        alone, together = wanted.copy(), wanted.copy()
        alone["Requirements"] = parse_expr(term.text)
        together["Requirements"] = parse_expr(" && ".join(f"({t.text})" for t in found.terms[: position + 1]))
        assert term.alone == sum(half_match(alone, ad, now=NOW) for ad in ads)
        assert term.together == sum(half_match(together, ad, now=NOW) for ad in ads)
    for suggestion in found.suggestions:
        assert suiting(applied(wanted, suggestion, [t.text for t in found.terms])) - suiting(wanted) == suggestion.gains
        assert suggestion.gains > 0
    if not found.suggestions:
        texts = [t.text for t in found.terms]
        for text in texts:
            if "Request" not in text:
                kept = wanted.copy()
                kept["Requirements"] = parse_expr(" && ".join(f"({t})" for t in texts if t != text) or "true")
                assert suiting(kept) <= suiting(wanted), text


def applied(wanted: ClassAd, suggestion, texts: list[str]) -> ClassAd:
    """The job as its owner would change it by hand."""
    other = wanted.copy()
    for change in suggestion.changes:
        if change.action == "set":
            other[change.what] = parse_expr(change.to)
        else:
            texts = [change.to if text == change.what else text for text in texts]
    other["Requirements"] = parse_expr(" && ".join(f"({text})" for text in texts if text) or "true")
    return other
