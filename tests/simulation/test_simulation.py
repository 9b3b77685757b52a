"""Seeded histories of whole pools: nothing acknowledged is lost, nothing runs twice, everything heals."""

import pytest

from tests.simulation.run import play

#: Seeds once found a bug, and what it was.
REGRESSIONS: dict[int, str] = {
    55: "matches of a cycle whose commit was refused were charged, and kept from everybody, for ten seconds",
}
SEEDS = 60


@pytest.mark.parametrize("first", range(1, SEEDS + 1, 5))
def test_pools_heal_from_whatever_happens(first):
    for seed in range(first, first + 5):
        story = play(seed)
        assert not story.wrong, str(story)


@pytest.mark.parametrize("seed", sorted(REGRESSIONS))
def test_a_history_that_once_went_wrong_goes_well(seed):
    story = play(seed)
    assert not story.wrong, f"{REGRESSIONS[seed]}\n{story}"


def test_one_seed_tells_one_history():
    first, second = play(7), play(7)
    assert (first.lasted_s, first.jobs, first.runs, first.faults) == (
        second.lasted_s,
        second.jobs,
        second.runs,
        second.faults,
    )
