"""Texts of ads that follow each other are those that each would have alone."""

import random

import pytest

from shared.classad import ClassAd, OldTexts, parse_ad, unparse_old
from tests.unit.classad.samples import SEEDS, flat_ad, random_expression


@pytest.mark.parametrize("seed", SEEDS)
def test_each_is_written_as_if_it_were_alone(seed):
    rng, texts = random.Random(seed), OldTexts()
    policies = [str(random_expression(rng, 2)) for _ in range(4)]
    ads = [flat_ad(rng, policies) for _ in range(40)]
    for _ in range(400):
        ad = rng.choice(ads)
        if rng.random() < 0.3:
            ad = ClassAd.unpack(ad.pack())
        assert texts.of(ad) == unparse_old(ad)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "true"), ("1", "1.0"), ("0.0", "-0.0"), ('"true"', "true"), ("2.5", "2.5"), ("a", "b"), ('"a"', '"A"')],
)
def test_values_that_are_equal_are_not_taken_for_the_same(one, other):
    texts = OldTexts()
    for text in (one, other, one):
        ad = parse_ad(f"[ x = {text} ]")
        assert texts.of(ad) == unparse_old(ad)


def test_names_in_another_spelling_or_order_are_written_as_they_are():
    texts = OldTexts()
    for ad in (ClassAd({"Bb": 1, "a": 2}), ClassAd({"a": 2, "bb": 1}), ClassAd({"a": 2, "bB": 1, "c": "x\ny"})):
        assert texts.of(ad) == unparse_old(ad)
