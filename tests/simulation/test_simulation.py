"""Seeded histories of whole pools: nothing acknowledged is lost, nothing runs twice, everything heals."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.faults import ORDERLY_FROM, SLOW_FROM, WIDER_FROM
from tests.simulation.run import Story, play

#: Seeds once found a bug, and what it was.
REGRESSIONS: dict[int, str] = {
    4: "an end that the negotiator did not hear of was charged until the next one led",
    16: "a negotiator that was cut off believed itself informed, and charged for what was over",
    17: "use was charged twice by a cycle that waited for a schedd",
    48: "a claim whose end its startd forgot, as its disk was full, was charged twice",
    55: "matches of a cycle whose commit was refused were charged, and kept from everybody, for ten seconds",
    95: "a job that came again before its end was acknowledged kept its slot claimed for ever",
    119: "use was forgotten that began and ended between two writes of the books",
    275: "slots that were gone before their ads were loaded were charged on",
    482: "the books did not name claims: of two ends the wrong one was taken for the one that was missed",
    644: "a claim that seemed to end just after the books were written was charged for them twice",
    670: "the same, after the broker was away",
    1139: "what a startd knew of claims that were over went with its machine",
    1361: "the same, after every daemon was killed",
    1638: "a request that came again after its run had ended kept its slot claimed for ever",
    1786: "a job that was told to leave, and left while its startd was dead, counted as completed",
    3081: "nobody led with books that were restored, but that no replica confirmed in time",
    10057: "a startd that was stopped answered from closed books",
    20141: "ends that were told before a schedd knew its claims again were not known, and their jobs ran twice",
    20398: "an order to stop that was faster than the run it was for stopped nothing",
    20551: "a negotiator that was told to stop went on listening where the leader is asked",
}
#: In parts that take a process a few seconds each: a second of processor time a seed. `bin/sim` tells thousands more.
SEEDS, CHUNK = 120, 6
#: Three seconds a part; but others may have the machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def teller():
    """A process whose sets have the order that bin/sim gives them, so that a seed tells the same history there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            pool.submit(int).result()  # begins the process
            yield pool


def tell(teller: ProcessPoolExecutor, seed: int) -> Story:
    return teller.submit(play, seed).result()


@pytest.mark.parametrize("first", [*range(1, SEEDS + 1, CHUNK), ORDERLY_FROM, SLOW_FROM, WIDER_FROM])
def test_pools_heal_from_whatever_happens(teller, first):
    wrong = [story for seed in range(first, first + CHUNK) if (story := tell(teller, seed)).wrong]
    assert not wrong, "\n\n".join(f"{REGRESSIONS.get(story.seed, '')}\n{story}" for story in wrong)


@pytest.mark.parametrize("seed", sorted(seed for seed in REGRESSIONS if seed > SEEDS))
def test_a_history_that_once_went_wrong_goes_well(teller, seed):
    story = tell(teller, seed)
    assert not story.wrong, f"{REGRESSIONS[seed]}\n{story}"


def test_one_seed_tells_one_history(teller):
    first, second, other = (tell(teller, seed) for seed in (7, 7, 8))
    assert first.trace
    assert (first.trace, first.runs, first.lasted_s) == (second.trace, second.runs, second.lasted_s)
    assert first.trace != other.trace
