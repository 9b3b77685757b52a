"""What `bench.compare` says of two revisions, by made-up rounds."""

import pytest

from bench.compare import Costs, dearer, ratios


def costs(used: list[float], published: list[float]) -> Costs:
    return Costs(
        [{"schedd": ms / 2, "startd": ms / 2} for ms in used],
        [{"published": count, "delivered": count} for count in published],
    )


def test_a_round_is_held_to_the_one_beside_it() -> None:
    """The machine was slower in the second round of both."""
    found = ratios(costs([10, 40, 12], [6, 6, 6]), costs([9, 36, 12], [3, 3, 3]))
    assert found == {"processor time": pytest.approx(0.9), "messages published": pytest.approx(0.5)}


def test_what_is_dearer_than_the_limit_is_told() -> None:
    old = costs([10, 10, 10], [5, 5, 5])
    told = dearer({"burst": ratios(old, costs([10.9, 10.9, 10.9], [5.4, 5.4, 5.4]))}, 0.10)
    assert told == []
    told = dearer(
        {
            "burst": ratios(old, costs([11.2, 11.2, 11.2], [5, 5, 5])),
            "single": ratios(old, costs([2, 2, 2], [6, 6, 6])),
        },
        0.10,
    )
    assert told == ["burst: processor time 1.120 of old", "single: messages published 1.200 of old"]
