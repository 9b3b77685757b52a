"""Pages in the order of an attribute: columns and plain looking agree, no ad is missed or comes twice (COL-05)."""

import json
import random

import pytest

from services.collector.core.queries import BadQuery, GroupOrder, read
from services.collector.core.sorting import NEITHER, NUMBER, TEXT, BadOrder, Position, SortOrder, page, position_of
from services.collector.search import Search
from shared.classad import ClassAd
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdUpdate
from tests.spec import spec

VALUES = [0, 1, 2, 2.5, -3, True, 10**15, "b", "B", "a", "ä", "", [1], None, float("inf"), 2**70]


def table(seed, ads):
    dice, made, told = random.Random(seed), AdTable(), {}
    for number in range(ads):
        name, daemon = f"slot{number}@n{number}", f"startd@n{dice.randrange(40)}-{number}"
        ad = {"Name": name, "Cpus": dice.choice([1, 2, 4])}
        value = dice.choice(VALUES)
        if value is not None and value != 2**70:
            ad["Size"] = value
        told[name] = value
        packed = ClassAd(ad).pack()
        made.apply(
            AdUpdate(my_type="Machine", daemon=daemon, start_time=1, sequence=1, names=[name], ads=[packed]), 1.0
        )
    return made


async def walk(search, order, constraint="", limit=7, change=None):
    """Names on all pages, and what the first page says of how many there are."""
    names, after, fits = [], "", None
    for step in range(1000):
        found = await search.answer(read(["Machine"], constraint, ["Name", "Size"], limit, after, False, order))
        names += [ClassAd.unpack(ad).eval("Name") for ad in found.ads]
        fits = found.fits if fits is None else fits
        if not found.next:
            return names, fits
        after = found.next
        if change is not None:
            change(step)
    raise AssertionError("no end")


def searching(made):
    return Search(made, GroupOrder(made), {}, SystemClock())


@spec("COL-05")
@pytest.mark.parametrize("order", ["Size", "-Size", "size", "-Name", "Nothing"])
@pytest.mark.parametrize("constraint", ["", "Cpus > 1"])
async def test_columns_and_looking_agree(order, constraint, monkeypatch):
    """The same order from columns and by looking at each ad; every ad once."""
    made = table(3, 260)
    from_columns = await walk(searching(made), order, constraint)
    monkeypatch.setattr("services.collector.search.LEAST_ADS", 10_000)
    by_looking = await walk(searching(made), order, constraint)
    assert from_columns == by_looking
    names, fits = from_columns
    assert len(set(names)) == len(names) == fits
    if not constraint:
        assert fits == 260


async def test_numbers_then_texts_then_the_rest():
    made = table(4, 300)
    rows = {name: group.rows[name].packed() for group in made.groups("Machine") for name in group.rows}

    def kinds(names):
        return [position_of(ClassAd.unpack(rows[name]).eval("Size"), "").kind for name in names]

    up, _ = await walk(searching(made), "Size", limit=50)
    down, _ = await walk(searching(made), "-Size", limit=50)
    assert kinds(up) == kinds(down) == sorted(kinds(up))
    assert set(kinds(up)) == {NUMBER, TEXT, NEITHER}
    numbers = [ClassAd.unpack(rows[n]).eval("Size") for n in up[: kinds(up).count(NUMBER)]]
    assert numbers == sorted(numbers)
    assert numbers[-1] == float("inf")


async def test_ads_that_come_and_go_between_pages_shift_nothing():
    """A page begins after the last ad of the one before, also when that one has gone."""
    made = table(5, 300)
    search = searching(made)
    whole, _ = await walk(search, "-Size", limit=20)
    gone = set()

    def change(step):
        victim = whole[20 * (step + 1) - 1]  # the very ad that the cursor names
        for group in list(made.groups("Machine")):
            if victim in group.rows:
                del group.rows[victim]
                search.note("Machine", group.daemon, [victim])
                gone.add(victim)

    seen, _ = await walk(search, "-Size", limit=20, change=change)
    assert gone
    assert seen == whole


@pytest.mark.parametrize(
    ("types", "order", "after", "absent"),
    [
        (["Machine"], "a b", "", False),
        (["Machine"], "-", "", False),
        (["Machine"], "Cpus + 1", "", False),
        (["Machine", "HAD"], "Name", "", False),
        ([], "Name", "", False),
        (["Machine"], "Name", "", True),
        (["Machine"], "Name", "x\0y\0z", False),
        (["Machine"], "Name", "[0, true, 3]", False),
        (["Machine"], "Name", '[7, 1, "k"]', False),
        (["Machine"], "Name", "[" * 5000, False),
        (["Machine"], "Name", f'[0, {10**400}, "k"]', False),
    ],
)
def test_bad_orders_are_refused(types, order, after, absent):
    with pytest.raises(BadQuery, match=r"order: |after: "):
        read(types, "", [], 0, after, absent, order)


async def test_what_the_collector_adds_is_no_order():
    made = table(6, 300)
    with pytest.raises(BadQuery, match="LastHeardFrom"):
        await searching(made).answer(read(["Machine"], "", [], 5, "", False, "LastHeardFrom"))


def test_a_place_survives_its_cursor():
    for value in (1, -2.5, "ä\0", None, float("inf"), True):
        place = position_of(value, "d\0n")
        assert Position.of_cursor(place.cursor()) == place
    with pytest.raises(BadOrder):
        Position.of_cursor(json.dumps([0, None, "k"]))


def test_equal_values_come_by_key():
    places = [position_of(1, key) for key in "cab"]
    assert [one.key for one in page(places, SortOrder("x", True), None, 9)[0]] == ["a", "b", "c"]
    assert [one.key for one in page(places, SortOrder("x"), places[1], 1)[0]] == ["b"]
