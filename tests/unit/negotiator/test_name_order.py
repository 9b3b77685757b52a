"""Names keep their natural order as some come and go."""

import random

import pytest

from engine.match import name_order
from engine.match.name_order import NameOrder
from shared.natural_sort import natural_key


def order(names):
    return sorted(names, key=lambda name: (natural_key(name), name))


@pytest.mark.parametrize("gap", [name_order.GAP, 2], ids=["wide", "narrow"])
@pytest.mark.parametrize("seed", range(3))
def test_numbers_are_in_the_order_of_names_whatever_came_and_went(monkeypatch, seed, gap):
    monkeypatch.setattr(name_order, "GAP", gap)
    dice, made, there = random.Random(seed), NameOrder(), set()
    for step in range(120):
        many = 300 if step % 40 == 0 else 3
        fresh = {f"slot{dice.randrange(30)}_{dice.randrange(30)}@n{dice.randrange(12)}" for _ in range(many)}
        gone = set(dice.sample(sorted(there), min(len(there), dice.randrange(4)))) - fresh
        made.update(fresh, gone | {"slot1@nobody"})
        there = (there - gone) | fresh
        names = order(there)
        numbers = made.numbers(names).tolist()
        assert numbers == sorted(set(numbers))
    with pytest.raises(KeyError):
        made.numbers(["slot1@nobody"])


def test_others_keep_their_numbers():
    made = NameOrder()
    names = [f"slot{number}@n" for number in range(100)]
    made.update(names, ())
    before = made.numbers(names)
    made.update(["slot9_1@n", "slot0_5@n", "slot200@n", "a"], ["slot4@n"])
    left = [number for number, name in enumerate(names) if name != "slot4@n"]
    assert made.numbers([names[number] for number in left]).tolist() == before[left].tolist()
