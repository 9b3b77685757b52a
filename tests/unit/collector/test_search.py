"""Questions answered from columns say what looking at each ad says (COL-05), page by page, whatever changes."""

import asyncio
import random

import pytest

from services.collector.core import columns
from services.collector.core.columns import LEAST_ADS, Columns
from services.collector.core.queries import GroupOrder, read
from services.collector.search import Search
from shared.classad import ClassAd, parse_expr
from shared.daemon.ad_rows import BadAd, pack, unpack
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdDelta, AdInvalidate, AdUpdate
from tests.spec import spec
from tests.unit.collector.pages import answer

NOW = 5000.0
QUESTIONS = [
    "Memory > 2000",
    'State == "Claimed" && Cpus >= 4',
    'state =?= "CLAIMED"',
    "Big",  # an expression in the ads
    "Requirements",
    "Memory",  # a number that is not zero counts as true
    "Nothing =?= undefined",
    "Nothing > 3",
    "ifThenElse(Cpus > 2, Memory > 500, State == \"Idle\")",
    'regexp("^n1[0-9]$", Machine) || Memory % 7 == 3',
    "time() > 100 && TARGET.x =?= undefined",
    'member(State, {"Idle", "Owner"})',
    "LastHeardFrom > 4010",  # what the collector adds: of each daemon once
    "Cpus > 2 && (State == \"Owner\" && LastHeardFrom <= time() - 990) && -UpdatesLost < 1",
    "UpdatesLost == 0 && MyType == \"machine\"",
    "Cpus && LastHeardFrom",
    "Late",  # by a detour: not in the columns
    "LastHeardFrom > 4010 || Cpus > 4",
    "my.LastHeardFrom > 4010 && Cpus > 4",
    "LastHeardFrom > ifThenElse(eval(\"Cpus > 2\"), 4010, 0)",  # a function looks at more than it names
    "UpdatesSequenced =?= undefined && Cpus > 4",
    "false",
    "true",
    "Memory / 0 > 1",
    "false && error",
]  # fmt: skip


def slot(dice, number):
    ad = {
        "Name": f"slot{number}@n{number % 40}",
        "Machine": f"n{number % 40}",
        "Memory": dice.choice([0, 512, 1024, 2048, 4096, 2048.5, "much"]),
        "Cpus": dice.choice([1, 2, 4, 8]),
        "State": dice.choice(["Idle", "Claimed", "CLAIMED", "Owner"]),
        "Big": parse_expr(dice.choice(["Memory > 1000", "Cpus >= 4", "undefined", "Memory > Huge"])),
        "Requirements": parse_expr(dice.choice(["true", "TARGET.Owner == \"x\"", "Cpus > 1 && START"])),
        "START": dice.choice([True, False]),
        "Late": parse_expr("LastHeardFrom > 100"),
    }  # fmt: skip
    if dice.random() < 0.2:
        del ad["Memory"]
    return ClassAd(ad).pack()


def pool(seed=1, ads=400, daemons=20):
    dice, table = random.Random(seed), AdTable()
    for daemon in range(daemons):
        names = [f"slot{number}@n{daemon}" for number in range(ads // daemons)]
        packed = [slot(dice, daemon * 100 + number) for number in range(len(names))]
        table.apply(
            AdUpdate(my_type="Machine", daemon=f"startd@n{daemon}", start_time=7, sequence=1, names=names, ads=packed),
            4000.0 + daemon,
        )
    return table


class Clock(SystemClock):
    def now(self):
        return NOW


def searching(table):
    order = GroupOrder(table)
    return Search(table, order, {}, Clock()), order


async def pages(search, **question):
    """(all ads, number of pages)."""
    ads, after, count = [], "", 0
    while True:
        page = await search.answer(read(["Machine"], after=after, **question))
        ads += page.ads
        count += 1
        if not page.next:
            return ads, count
        after = page.next


def plain(table, order, **question):
    ads, after = [], ""
    while True:
        page = answer(read(["Machine"], after=after, **question), order, {}, NOW)
        ads += page.ads
        if not page.next:
            return ads
        after = page.next


def asking(constraint, projection=(), limit=0):
    return {"constraint": constraint, "projection": projection, "limit": limit, "absent": False}


@spec("COL-05")
@pytest.mark.parametrize("seed", range(3))
async def test_columns_answer_as_the_ads_do(seed):
    table = pool(seed)
    search, order = searching(table)
    for question in QUESTIONS:
        found, _ = await pages(search, **asking(question))
        assert found == plain(table, order, **asking(question)), question
    assert search.from_columns >= len(QUESTIONS) - 5


@spec("COL-05", "COL-10")
async def test_projection_limit_and_pages():
    """MyType and LastHeardFrom are in every answer."""
    table = pool()
    search, order = searching(table)
    question = asking("Cpus > 1", ("Name", "Cpus"), 7)
    found, count = await pages(search, **question)
    assert [*map(unpack, found)] == [*map(unpack, plain(table, order, **question))]
    assert count == -(-len(found) // 7)
    assert set(ClassAd.unpack(found[0])) == {"Name", "Cpus", "MyType", "LastHeardFrom"}


@pytest.mark.parametrize("seed", range(3))
async def test_what_changes_between_questions_is_seen(seed):
    dice, table = random.Random(seed), pool(seed)
    search, order = searching(table)
    sequence = dict.fromkeys(range(20), 1)
    for _ in range(60):
        daemon = dice.randrange(20)
        key = f"startd@n{daemon}"
        group = table.group("Machine", key)
        if group is None:
            continue
        content, sequence[daemon] = group.content, sequence[daemon] + 1
        same = {"my_type": "Machine", "daemon": key, "start_time": 7, "sequence": sequence[daemon]}
        match dice.choice(["delta", "delta", "new", "whole", "gone", "lost"]):
            case "delta" if group.rows:
                name = dice.choice(list(group.rows))
                changed = pack({"State": dice.choice(["Idle", "Claimed"]), "Memory": dice.choice([1, 9999])})
                message = AdDelta(**same, base=content, names=[name], changes=[changed], removed_attrs=[["Cpus"]])
            case "new":
                name = f"new{dice.randrange(10)}@n{daemon}"
                message = AdDelta(**same, base=content, names=[name], changes=[slot(dice, 7)], removed_attrs=[[]])
            case "gone":
                names = [name for name in group.rows if dice.random() < 0.2] or ["nobody"]
                message = AdInvalidate(**same, names=names)
            case "lost" if group.rows:
                names = [dice.choice(list(group.rows))]
                table.remove("Machine", key, names)
                search.note("Machine", key, names)
                continue
            case _:
                names = [f"slot{number}@n{daemon}" for number in range(dice.randrange(30))]
                message = AdUpdate(**same, names=names, ads=[slot(dice, 3) for _ in names])
        search.changed(table.apply(message, 4000.0))
        if dice.random() < 0.4:
            question = asking(dice.choice(QUESTIONS[:9]))
            found, _ = await pages(search, **question)
            assert found == plain(table, order, **question)


async def test_questions_and_changes_at_the_same_time():
    """Nobody waits for another, and every ad in an answer is whole."""
    table = pool(ads=2000, daemons=40)
    search, _ = searching(table)

    async def change():
        dice = random.Random(5)
        for sequence in range(2, 60):
            for daemon in range(0, 40, 7):
                key = f"startd@n{daemon}"
                message = AdDelta(
                    my_type="Machine", daemon=key, start_time=7, base=table.group("Machine", key).content,
                    sequence=sequence, names=[f"slot1@n{daemon}"],
                    changes=[pack({"Memory": dice.randrange(9000)})], removed_attrs=[[]],
                )  # fmt: skip
                search.changed(table.apply(message, 4000.0))
            await asyncio.sleep(0)

    questions = [pages(search, **asking(question)) for question in QUESTIONS[:8]]
    *answers, _ = await asyncio.gather(*questions, change())
    for found, _ in answers:
        assert all(ClassAd.unpack(ad).check() for ad in found)


async def test_few_ads_are_looked_at_one_by_one():
    table = pool(ads=LEAST_ADS - 20)
    search, order = searching(table)
    found, _ = await pages(search, **asking("Cpus > 1"))
    assert found == plain(table, order, **asking("Cpus > 1"))
    assert search.from_columns == 0


async def test_ad_that_is_none_is_left_out_and_told():
    table = pool()
    broken = AdUpdate(
        my_type="Machine", daemon="startd@x", start_time=7, sequence=1, names=["x"], ads=[b"\x81\xa1a\xc7\x03\x01(("]
    )
    try:
        table.apply(broken, 4000.0)
    except BadAd:
        pytest.skip("such an ad is refused on arrival")
    search, _ = searching(table)
    page = await search.answer(read(["Machine"], "Cpus > 0", [], 0, "", absent=False))
    assert page.unreadable == 1
    assert len(page.ads) == 400


async def test_of_few_in_order_one_that_is_none_is_left_out_and_told():
    table = pool(ads=40)
    packed = b"\x82\xa4Name\xa1x\xa1a\x91\x01"  # a list, which no ad has
    table.apply(
        AdUpdate(my_type="Machine", daemon="startd@x", start_time=7, sequence=1, names=["x"], ads=[packed]), 4000.0
    )
    search, _ = searching(table)
    page = await search.answer(read(["Machine"], "", ["Name"], 0, "", absent=False, order="Name"))
    assert (len(page.ads), page.unreadable, page.fits) == (40, 1, 40)


@pytest.mark.parametrize("ads", [400, 40])
@pytest.mark.parametrize("constraint", ["", "Cpus > 2", "LastHeardFrom > 10 && Cpus == 4", "false"])
async def test_totals_are_those_of_the_ads(constraint, ads):
    """From columns, and of few ads or with what columns lack one by one."""
    table = pool(ads=ads)
    search, order = searching(table)
    totals = await search.totals(read(["Machine"], constraint, [], 0, "", absent=False), ["State", "Cpus", "Nothing"])
    counted = {}
    for packed in plain(table, order, **asking(constraint)):
        ad = ClassAd.unpack(packed)
        key = (ad["State"], ad["Cpus"], None)
        counted[key] = counted.get(key, 0) + 1
    assert totals == counted
    assert (await search.totals(read(["Machine"], constraint, [], 0, "", absent=False), [])).get((), 0) == sum(
        counted.values()
    )


def test_slices_are_small(monkeypatch):
    """The event loop gets its turn between them."""
    monkeypatch.setattr(columns, "SLICE", 50)
    made = Columns(pool(), "Machine")
    assert made.behind == 400
    assert list(made.take()) == [50] * 8
    assert made.behind == 0
