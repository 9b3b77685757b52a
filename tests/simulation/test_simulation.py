"""Seeded histories of whole pools: nothing acknowledged is lost, nothing runs twice, everything heals."""

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from shared.messages.base import catalogue
from shared.messages.claims import Alive
from shared.messages.queue import JobPage, QueryJobs, SubmitJobs
from tests.simulation.life import EARLIER, as_before
from tests.simulation.run import Story
from tests.simulation.search import fewest, kept, main, tell
from tests.simulation.seeds import (
    EARLIER_FROM,
    FILES_FROM,
    GATEWAYS_FROM,
    KEPT_FROM,
    ORDERLY_FROM,
    PARALLEL_FROM,
    SLOW_FROM,
    WHOLE_FROM,
    WIDER_FROM,
)

#: Seeds that every run of the tests tells, besides what was found: one to three seconds of processor time each.
#: `bin/sim` tells thousands more.
SEEDS = [
    1,
    *(ORDERLY_FROM, SLOW_FROM, WIDER_FROM, WHOLE_FROM, FILES_FROM),
    GATEWAYS_FROM,
    PARALLEL_FROM,
    EARLIER_FROM + 6,  # one in which daemons are of an earlier version
    KEPT_FROM,
]
#: In parts that take a process a few seconds each.
CHUNK = 4
#: Some seconds a part; but others may have the machine. In one worker, which has one process that tells.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("simulation")]


@pytest.fixture(scope="session")
def teller():
    """A process whose sets have the order that bin/sim gives them, so that a seed tells the same history there."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:  # not for the tests of others, until the session ends
            patch.setenv("PYTHONHASHSEED", "0")
            pool.submit(int).result()  # begins the process
        yield pool


def _told(teller: ProcessPoolExecutor, seed: int, only: tuple[int, ...] | None = None) -> Story:
    return teller.submit(tell, seed, only).result()


@pytest.mark.parametrize("first", range(0, len(SEEDS), CHUNK), ids=lambda first: str(SEEDS[first]))
def test_pools_heal_from_whatever_happens(teller, first):
    wrong = [story for seed in SEEDS[first : first + CHUNK] if (story := _told(teller, seed)).wrong]
    assert not wrong, "\n\n".join(map(str, wrong))


@pytest.mark.parametrize("found", kept(), ids=lambda found: str(found.seed))
def test_a_history_that_once_went_wrong_goes_well(teller, found):
    story = _told(teller, found.seed, found.only)
    assert not story.wrong, f"{found.was}\n{story}"


def test_an_earlier_version_says_and_reads_what_there_was_then():
    alive = Alive(schedd="ap", sequence=1, claim_ids=["a"], only_asked=["b"])
    assert as_before(alive) == Alive(schedd="ap", sequence=1, claim_ids=["a"])
    gone = [kind for kind, names in EARLIER.items() if set(names) - set(catalogue()[kind, 1].model_fields)]
    assert gone == []  # messages are only extended, else no such version could be in a pool


def test_one_seed_tells_one_history(teller):
    first, second, other = (_told(teller, seed) for seed in (7, 7, 8))
    assert first.trace
    assert (first.trace, first.runs, first.lasted_s) == (second.trace, second.runs, second.lasted_s)
    assert first.trace != other.trace


def test_faults_that_make_no_difference_are_left_out():
    for many in range(9):
        for needed in itertools.chain(*(itertools.combinations(range(many), n) for n in range(1, 4))):
            asked = []

            def fails(faults, needed=needed, asked=asked):
                asked.append(tuple(faults))
                return set(needed) <= set(faults)

            assert fewest(range(many), fails) == list(needed)
            assert len(asked) <= 40
    assert fewest(range(5), lambda faults: True) == []


def _begin_with_an_empty_queue() -> None:
    """A mistake, for the search to find: a schedd that is started again has forgotten its jobs."""
    from services.schedd.io.submission import Submission
    from tests.simulation import run

    load = Submission.load

    def forget_and_load(submission, database, now):
        database.execute("DELETE FROM jobs")
        load(submission, database, now)

    Submission.load = forget_and_load
    run.HEALING_S = 60.0  # it never does


@pytest.mark.dear(held_by="tests/simulation/test_simulation.py::test_the_checks_notice_what_gateways_do_wrong")
def test_the_search_finds_a_mistake_and_leaves_out_what_has_no_part_in_it(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    found = tmp_path / "found" / "corpus.jsonl"
    arguments = ["--minutes", "60", "-j", "1", "--seed-from", "12", "--finds", "1", "--found", str(found)]
    assert main(arguments, prepare=_begin_with_an_empty_queue) == 1
    (history,) = kept(found)
    said = capfd.readouterr().out
    assert "1 seeds went wrong" in said
    assert f"bin/sim --seed {history.seed} --only {history.only[0]}\n" in said
    assert history.was in said
    # A schedd has to die; what happened besides is told no more.
    assert len(history.only) == 1
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert not _told(pool, history.seed, history.only).wrong


def _submit_anew_each_time() -> None:
    """A mistake in the gateway: who repeats a submit, as its answer was lost, submits for a second time."""
    from services.gateway.pool_client import PoolClient

    ask, numbers = PoolClient.ask, itertools.count()

    async def forgetful(client, inbox, question, *more, **named):
        if isinstance(question, SubmitJobs):
            question = question.model_copy(update={"submit_id": f"{question.submit_id}.{next(numbers)}"})
        return await ask(client, inbox, question, *more, **named)

    PoolClient.ask = forgetful


def _be_silent_at_first() -> None:
    """Another: a gateway takes it that there are no jobs until a schedd has answered it."""
    from services.gateway.pool_client import PoolClient

    ask, asked = PoolClient.ask, set()

    async def hasty(client, inbox, question, *more, **named):
        if isinstance(question, QueryJobs) and (id(client), question.history) not in asked:
            asked.add((id(client), question.history))
            return JobPage(ads=[])
        return await ask(client, inbox, question, *more, **named)

    PoolClient.ask = hasty


@pytest.mark.parametrize(
    ("plant", "faults", "seen"),  # fault 3: no answers for ten seconds
    [(_submit_anew_each_time, (3,), "schedd.ap2 has 2.0 1 times"), (_be_silent_at_first, (), "neither the queue nor")],
)
def test_the_checks_notice_what_gateways_do_wrong(monkeypatch, plant, faults, seen):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=plant) as pool:
        assert seen in "".join(_told(pool, 70142, faults).wrong)
