"""What one question may cost: whatever somebody sends, no daemon's loop is silent for more than 50 ms, and others get
their answers meanwhile."""

import asyncio
import secrets

import pytest
from hypothesis import settings

from services.collector.core.queries import BadQuery, GroupOrder, read
from services.collector.search import Search
from shared.classad import ERROR, ClassAd, ParseError, evaluate, parse_expr
from shared.classad.budget import Budget, TooExpensive, policies
from shared.classad.question import Question
from shared.cooperative import reading
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdUpdate
from tests.loop_meter import measured
from tests.security.hostile import CORPUS, some_generated
from tests.security.processor_time import SILENCE_S, cost

#: Of generated expressions: always the same, but for bin/fuzz.
SEEDS = range(10) if settings().derandomize else [secrets.randbelow(1 << 40) for _ in range(100)]
MACHINE = ClassAd({"Name": "slot1@a", "Memory": 4096, "Cpus": 8, "State": "Idle"})


def expression(text):
    try:
        return parse_expr(text)
    except ParseError:
        return None


@pytest.mark.parametrize("name", CORPUS)
def test_no_evaluation_takes_longer_than_a_loop_may_be_silent(name):
    expr = expression(CORPUS[name])
    if expr is not None:
        assert cost(lambda: evaluate(expr, MACHINE)) < SILENCE_S


@pytest.mark.hypothesis  # so that bin/fuzz runs it
@pytest.mark.parametrize("seed", SEEDS)
def test_nor_does_one_that_a_machine_thought_of(seed):
    for text in some_generated(seed, 60):
        expr = expression(text)
        if expr is not None:
            assert cost(lambda expr=expr: evaluate(expr, MACHINE)) < SILENCE_S, text[:2000]


def often(expr, times=1000):
    for _ in range(times):
        evaluate(expr, MACHINE)


@pytest.mark.parametrize(
    ("expr", "limits", "said"),
    [
        (CORPUS["strcat"], {"seconds": 0.2}, "processor time for one question is met; ask about fewer ads"),
        ("Cpus + 1", {"steps": 1000}, "steps of evaluation"),
        (f'size(strcat("{"x" * 1000}", Name))', {"made": 100_000}, "text and lists"),
    ],
)
def test_a_budget_is_shared_by_all_evaluations_and_says_what_was_met(expr, limits, said):
    with Budget("this query", **limits).open(), pytest.raises(TooExpensive, match=said):
        often(parse_expr(expr))
    assert evaluate(parse_expr("Cpus + 1"), MACHINE) == 9  # outside nothing is charged


def test_a_soft_budget_makes_errors_and_raises_nothing():
    with policies("the job's policies").open():
        values = [evaluate(parse_expr(CORPUS["strcat"]), MACHINE) for _ in range(3)]
        assert values == [ERROR] * 3
        assert evaluate(parse_expr("Cpus + 1"), MACHINE) is ERROR
    assert evaluate(parse_expr("Cpus + 1"), MACHINE) == 9


def test_ordinary_constraints_over_many_ads_fit():
    ordinary = parse_expr('regexp("^slot", Name) && Memory >= 1024 && member(State, {"Idle", "Owner"})')
    with Budget("this query").open() as budget:
        for _ in range(2000):
            assert evaluate(ordinary, MACHINE) is True
    assert budget.steps > 0.95 * Budget("").steps


def pool(ads):
    table = AdTable()
    packed = [ClassAd({"Name": f"slot{n}@a", "Memory": n, "Cpus": 8, "State": "Idle"}).pack() for n in range(ads)]
    names = [f"slot{n}@a" for n in range(ads)]
    update = AdUpdate(my_type="Machine", daemon="startd@a", start_time=7, sequence=1, names=names, ads=packed)
    table.apply(update, 4000.0)
    return Search(table, GroupOrder(table), {}, SystemClock())


async def ask(search, **question):
    known = {"constraint": "", "projection": [], "limit": 0, "after": "", "absent": False, **question}
    query = await reading(len(known["constraint"]), read, ["Machine"], **known)
    return await search.answer(query)


@pytest.mark.parametrize("ads", [63, 400])
async def test_hostile_constraints_do_not_silence_a_collector(ads):
    """From the ads themselves and from columns, two at once; an honest question is answered meanwhile."""
    search = pool(ads)
    honest = await ask(search, constraint="Memory < 10", projection=["Name"])
    with measured() as held:
        for name in ("strcat", "lists") if ads == 63 else ("strcat",):
            hostile = [asyncio.create_task(ask(search, constraint=CORPUS[name])) for _ in range(2)]
            answers = 0
            while not all(task.done() for task in hostile):
                if ads == 63:
                    assert (await ask(search, constraint="Memory < 10", projection=["Name"])).ads == honest.ads
                    answers += 1
                await asyncio.sleep(0)
            for found in await asyncio.gather(*hostile, return_exceptions=True):
                assert isinstance(found, TooExpensive) or found.ads == []
            assert answers or ads != 63
    assert held.longest_s < SILENCE_S, held.worst


async def asking_for_ever():
    async with Question(Budget("this query", seconds=0.1)) as question:
        while True:
            evaluate(parse_expr(CORPUS["strcat"]), MACHINE)
            await question.yield_if_due()


async def test_a_question_stops_where_its_budget_is_spent():
    with measured() as held, pytest.raises(TooExpensive):
        await asking_for_ever()
    assert held.longest_s < SILENCE_S, held.worst


async def test_every_constraint_of_the_corpus_is_answered_in_time():
    search, refused = pool(5), 0
    with measured() as held:
        for text in CORPUS.values():
            try:
                await ask(search, constraint=text)
            except (TooExpensive, BadQuery):
                refused += 1
    assert refused >= 2  # those that are no expressions
    assert held.longest_s < SILENCE_S, held.worst
