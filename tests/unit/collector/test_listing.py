"""Listings made from columns say what the ads themselves say (COL-05, COL-10)."""

import asyncio
import random

import msgpack
import pytest

from services.collector import search
from services.collector.core import columns
from services.collector.core.queries import GroupOrder, chosen, read
from services.collector.search import Search
from shared.classad import ClassAd, parse_expr
from shared.classad.quick import QuickAd
from shared.compression import AdCompressor, train_dictionary
from shared.daemon.ad_rows import pack, unpack
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdDelta, AdInvalidate, AdUpdate
from tests.spec import spec
from tests.unit.collector.pages import answer

NOW = 5000.0
LISTINGS = [
    ["Name"],
    ["Name", "State", "Memory", "Load"],
    ["name", "STATE", "Odd", "Flag"],
    ["Name", "Start"],  # an expression in some ads: these are read whole
    ["Name", "Nothing"],
    ["Name", "Twice"],  # spelled in two ways
    ["Name", "MyType", "LastHeardFrom"],
    ["Name", "UpdatesTotal"],  # what the collector adds
    ["Name", "Start", "DaemonStartTime", "UpdatesLost"],  # the same, beside expressions
    ["updatesequencenumber"],
    ["Large", "Nested", "Undefined"],
    [f"Many{n}" for n in range(20)],
]


class Clock(SystemClock):
    def now(self):
        return NOW


def slot(dice, number):
    ad = {
        "Name": f"slot{number}@n{number % 40}",
        "State": dice.choice(["Idle", "Claimed", "CLAIMED", "grüße", "Owner", ""]),
        "Memory": dice.choice([0, -1, 512, 2048.5, "much", True]),
        "Load": dice.choice([0.0, -0.0, 1.5, float("inf"), float("nan")]),
        "Flag": dice.choice([True, False]),
        "Odd": dice.choice([1, 1.0, True, "1"]),
        "Large": dice.choice([2**53 + 1, -(2**63), 5]),
        "Nested": parse_expr(dice.choice(["{1, 2}", "[a = 1]", "undefined", "error", "3"])),
        "Start": parse_expr(dice.choice(["Memory   > 3", "true", "TARGET.x"])),
        dice.choice(["Twice", "TWICE"]): 1,
        **{f"Many{n}": n for n in range(20)},
    }
    for name in ("Memory", "Flag", "Load"):
        if dice.random() < 0.2:
            del ad[name]
    return ClassAd(ad).pack()


def pool(compressor=None, daemons=20):
    dice, table = random.Random(3), AdTable(compressor=compressor)
    for daemon in range(daemons):
        names = [f"slot{number}@n{daemon}" for number in range(25)]
        ads = [slot(dice, daemon * 100 + number) for number in range(len(names))]
        ads = [pack({**msgpack.unpackb(ad), "Name": name}) for name, ad in zip(names, ads, strict=True)]
        message = AdUpdate(
            my_type="Machine", daemon=f"startd@n{daemon}", start_time=7, sequence=1, names=names, ads=ads
        )
        table.apply(message, 4000.0 + daemon)
    return table


class Asked:
    def __init__(self, table):
        self.table, self.order = table, GroupOrder(table)
        self.search = Search(table, self.order, {}, Clock())
        self.sheets = 0

    async def by_columns(self, **question):
        return await self._all(question, self.search.answer)

    async def by_ads(self, **question):
        async def one(query):
            return answer(query, self.order, {}, NOW)

        return await self._all(question, one)

    async def by_sheets(self, **question):
        return await self._all({**question, "columns": True}, self.search.answer)

    async def _all(self, question, ask):
        found, after = [], ""
        while True:
            query = read(
                ["Machine"],
                question.get("constraint", ""),
                question.get("projection", []),
                question.get("limit", 0),
                after,
                absent=False,
                columns=question.get("columns", False),
            )
            page = await ask(query)
            found += [texts(packed) for packed in page.ads]
            self.sheets += bool(page.columns)
            found += rows(page)
            if not page.next:
                return found
            after = page.next


def rows(page):
    """What the ads of a page in columns say."""
    if not page.columns:
        return []
    body = msgpack.unpackb(page.columns)
    assert body["rows"] == page.rows == len(body["columns"][0])
    cells = zip(*body["columns"], strict=True)
    return [
        sorted((name, repr(cell)) for name, cell in zip(body["names"], row, strict=True) if cell is not None)
        for row in cells
    ]


def texts(packed):
    """What an ad says, type by type, whatever the order of its attributes."""
    return sorted((name, repr(value)) for name, value in msgpack.unpackb(packed).items())


def folded(ads):
    """The same with names in lower case, as columns have one spelling for all ads."""
    return [sorted((name.lower(), value) for name, value in ad) for ad in ads]


@pytest.mark.parametrize("compressed", [False, True])
async def test_listings_say_what_the_ads_say(compressed):
    compressor = AdCompressor() if compressed else None
    table = pool(compressor)
    if compressor is not None:
        samples = [row.packed() for _, _, row in table.rows()]
        compressor.add(70000, train_dictionary(samples, 70000), 1.0)
        for _, _, row in table.rows():
            row.stored()
    asked = Asked(table)
    for projection in LISTINGS:
        for constraint, limit in (("", 0), ("", 7), ("Memory > 0", 0), ("Flag", 9), ('State == "claimed"', 0)):
            question = {"projection": projection, "constraint": constraint, "limit": limit}
            expected = await asked.by_ads(**question)
            assert await asked.by_columns(**question) == expected, question
            assert folded(await asked.by_sheets(**question)) == folded(expected), question
    assert asked.search.from_columns > 30
    assert asked.sheets > 30


async def test_a_page_in_columns_has_its_limit_of_bytes(monkeypatch):
    asked = Asked(pool())
    wish = {"projection": ["Name", "State", "Load", "Start"]}
    expected = await asked.by_ads(**wish)
    monkeypatch.setattr(search, "PAGE_BYTES", 3000)
    assert folded(await asked.by_sheets(**wish)) == folded(expected)
    assert asked.sheets >= 5


async def test_an_odd_spelling_is_no_reason_to_give_no_columns():
    """Columns have one name for all ads: what one ad of any type calls STATE must not slow everybody's listing down."""
    QuickAd(pack({"NAME": "x", "STATE": "x", "oDD": 1, "state": 1}))
    asked = Asked(pool())
    wish = {"projection": ["Name", "State", "Odd"]}
    expected = await asked.by_ads(**wish)
    found = await asked.by_sheets(**wish)
    assert asked.sheets == 1
    assert folded(found) == folded(expected)
    assert {name for ad in found for name, _ in ad} >= {"Name", "State", "MyType", "LastHeardFrom"}
    assert await asked.by_columns(**wish) == expected


async def test_what_the_collector_adds_has_columns_too():
    asked = Asked(pool())
    found = await asked.by_sheets(projection=["Name", "DaemonStartTime"])
    assert asked.sheets == 1
    assert {value for ad in found for name, value in ad if name == "DaemonStartTime"} == {"7"}


async def test_columns_lack_what_went_meanwhile():
    """Ads that go between the look at the columns and the making of the page."""
    asked = Asked(pool())
    whole = await asked.by_ads(projection=["Name", "Start"])
    find, group = columns.Columns.find, asked.table.group

    def then_gone(self, *words, **more):
        found = find(self, *words, **more)
        asked.table.group = lambda my_type, daemon: None if daemon == "startd@n5" else group(my_type, daemon)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns.Columns, "find", then_gone)
        left = await asked.by_sheets(projection=["Name", "Start"])
    here = [ad for ad in whole if not any("@n5'" in value for name, value in ad if name == "Name")]
    assert folded(left) == folded(here)
    assert len(left) == len(whole) - 25


async def test_listings_follow_the_ads():
    asked = Asked(pool())
    wish = {"projection": ["Name", "State", "Load"]}
    await asked.by_columns(**wish)
    delta = AdDelta(
        my_type="Machine",
        daemon="startd@n3",
        start_time=7,
        base=1,
        sequence=2,
        names=["slot4@n3"],
        changes=[pack({"State": "Drained"})],
        removed_attrs=[["Load"]],
    )
    gone = AdInvalidate(my_type="Machine", daemon="startd@n5", start_time=7, sequence=2)
    for message in (delta, gone):
        asked.search.changed(asked.table.apply(message, 4500.0))
    found = await asked.by_columns(**wish)
    assert found == await asked.by_ads(**wish)
    assert len(found) == 475
    assert [("LastHeardFrom", "4500"), ("MyType", "'Machine'"), ("Name", "'slot4@n3'"), ("State", "'Drained'")] in found


async def test_few_ads_are_read_rather_than_a_column_of_all():
    asked = Asked(pool())
    few = {"projection": ["Name", "Large"], "constraint": 'Name == "slot1@n1" || Name == "slot2@n2"'}
    assert len(await asked.by_columns(**few)) == 2
    assert "large" not in asked.search._kinds["Machine"].columns.attributes
    await asked.by_columns(projection=["Name", "Large"])
    assert "large" in asked.search._kinds["Machine"].columns.attributes


async def test_there_is_an_end_to_what_is_kept_for_listings(monkeypatch):
    monkeypatch.setattr(columns, "MOST_COLUMNS", 30)
    asked = Asked(pool())
    wish = {"projection": [f"Many{n}" for n in range(20)]}
    assert await asked.by_columns(**wish) == await asked.by_ads(**wish)
    assert not any(name.startswith("many") for name in asked.search._kinds["Machine"].columns.attributes)


async def test_an_ad_that_is_none_is_left_out():
    table = pool()
    message = AdUpdate(
        my_type="Machine", daemon="startd@bad", start_time=1, sequence=1, names=["bad"], ads=[b"\x93\x01\x02\x03"]
    )
    table.apply(message, 4000.0)
    asked = Asked(table)
    assert len(await asked.by_columns(projection=["Name"])) == 500
    assert len(await asked.by_ads(projection=["Name"])) == 500


async def test_many_may_ask_at_once():
    asked = Asked(pool())
    wish = {"projection": ["Name", "State"], "limit": 50}
    first, *others = await asyncio.gather(*(asked.by_columns(**wish) for _ in range(5)))
    assert len(first) == 500
    assert all(other == first for other in others)


@spec("COL-05")
async def test_what_an_expression_names_comes_along():
    """An attribute has the same value in a smaller ad, however many others that takes."""
    whole = {"Name": "a", "A": parse_expr("MY.b + TARGET.D"), "B": parse_expr("C * 2"), "C": 4, "D": 1, "E": 2}
    text = parse_expr("nothing + E")
    found = chosen(frozenset(("name", "a")), unpack(ClassAd(whole).pack()))
    assert sorted(found) == ["A", "B", "C", "Name"]
    assert ClassAd.unpack(pack(chosen(frozenset(("b",)), unpack(ClassAd(whole).pack())))).eval("B") == 8
    looped = ClassAd({"A": parse_expr("B"), "B": parse_expr("A"), "Text": text, "E": 1}).pack()
    assert sorted(chosen(frozenset(("a",)), unpack(looped))) == ["A", "B"]
    assert sorted(chosen(frozenset(("text",)), unpack(looped))) == ["E", "Text"]


@pytest.mark.parametrize("odd", [[1], {"a": 1}, None, msgpack.ExtType(7, b"x"), msgpack.ExtType(1, b"(("), b"x"])
def test_what_is_no_attribute_names_nothing(odd):
    assert chosen(frozenset(("a",)), {"A": odd, "B": 1}) == {"A": odd}


async def test_attributes_of_too_many_names_are_in_no_columns(monkeypatch):
    """As GPUs are, each an attribute of its own name that a list has: a column for each would be mostly empty."""
    table = AdTable()
    ads = [
        ClassAd({"Name": f"s{n}", "Available": parse_expr(f"{{ GPU_{n} }}"), f"GPU_{n}": parse_expr("[ Id = 7 ]")})
        for n in range(400)
    ]
    names = [f"s{n}" for n in range(400)]
    packed = [ad.pack() for ad in ads]
    update = AdUpdate(my_type="Machine", daemon="startd@n", start_time=7, sequence=1, names=names, ads=packed)
    table.apply(update, 4000.0)
    asked = Asked(table)
    wish = {"projection": ["Name", "Available"]}
    found = await asked.by_sheets(**wish)
    assert folded(found) == folded(await asked.by_ads(**wish))
    assert len(found) == 400
    assert asked.sheets == 0
    assert all(any(name.startswith("GPU_") for name, _ in ad) for ad in found)
    monkeypatch.setattr(search, "MOST_COLUMNS", 1000)
    assert folded(await asked.by_sheets(**wish)) == folded(found)
    assert asked.sheets == 1


async def test_lists_of_partitionable_slots_are_read_from_their_ads():
    """`roost status -compact`: no column of them is made, which would read all ads and remember every list for ever."""
    table = AdTable()
    odd = [parse_expr(text) for text in ("true", "false", "SlotID == 1", "undefined")]
    ads = []
    for n in range(400):
        ad = {"Name": f"s{n}", "SlotID": n % 3}
        if n % 4 == 0:
            ad |= {
                "PartitionableSlot": odd[n // 4 % 4] if n % 5 == 0 else True,
                "ChildMemory": parse_expr(f"{{ {n} }}"),
            }
        if n % 7 == 0:
            ad["PartitionableSlot"] = ad.get("PartitionableSlot", False)
        if ad.get("PartitionableSlot") is odd[1]:  # of these only partitionable slots tell
            del ad["ChildMemory"]
        ads.append(ClassAd(ad))
    update = AdUpdate(
        my_type="Machine", daemon="startd@n", start_time=7, sequence=1,
        names=[f"s{n}" for n in range(400)], ads=[ad.pack() for ad in ads],
    )  # fmt: skip
    table.apply(update, 4000.0)
    asked = Asked(table)
    for projection in (["Name", "ChildMemory"], ["ChildMemory", "ChildState", "SlotID"], ["ChildMemory"]):
        expected = await asked.by_ads(projection=projection)
        assert folded(await asked.by_sheets(projection=projection)) == folded(expected)
        assert await asked.by_columns(projection=projection) == expected
    assert any(name == "ChildMemory" for ad in expected for name, _ in ad)
    assert asked.sheets == 3
    assert not any(name.startswith("child") for name in asked.search._kinds["Machine"].columns.attributes)
