"""What queries answer, a page at a time."""

import msgpack
import pytest

from services.collector.core.acceptance import AbsentAd
from services.collector.core.queries import PAGE_LOOKS, BadQuery, GroupOrder, pinned_name, read
from shared.classad import ClassAd, parse_expr
from shared.daemon.ad_rows import pack, unpack
from shared.daemon.ad_table import AdTable
from shared.messages.ads import AdDelta, AdUpdate
from tests.spec import spec
from tests.unit.collector.pages import answer

NOW = 5000.0


def table(groups):
    """{(my_type, daemon): {name: attributes}}"""
    made = AdTable()
    for (my_type, daemon), ads in groups.items():
        packed = [ClassAd(attributes | {"Name": name}).pack() for name, attributes in ads.items()]
        made.apply(
            AdUpdate(my_type=my_type, daemon=daemon, start_time=7, sequence=3, names=list(ads), ads=packed), 4000.0
        )
    return made


def ask(made, *, types=(), constraint="", projection=(), limit=0, after="", absent=False, absentees=None, order=None):
    query = read(types, constraint, projection, limit, after, absent)
    return answer(query, order or GroupOrder(made), absentees or {}, NOW)


def everything(made, **question):
    """All pages: (names, number of pages)."""
    names, pages, after, order = [], 0, "", GroupOrder(made)
    while True:
        page = ask(made, after=after, order=order, **question)
        names += [ClassAd.unpack(ad)["Name"] for ad in page.ads]
        pages += 1
        if not page.next:
            return names, pages
        after = page.next


@pytest.fixture
def pool():
    return table(
        {
            ("Machine", "startd@b"): {"slot1@b": {"Memory": 10, "State": "Idle"}, "slot2@b": {"Memory": 20}},
            ("Machine", "startd@a"): {"slot1@a": {"Memory": 30}},
            ("Scheduler", "schedd@a"): {"a": {"TotalIdleJobs": 4}},
        }
    )


def names(page):
    return [ClassAd.unpack(ad)["Name"] for ad in page.ads]


def test_all_types_in_order(pool):
    assert names(ask(pool)) == ["slot1@a", "slot1@b", "slot2@b", "a"]


@spec("COL-05")
def test_one_type(pool):
    assert names(ask(pool, types=["Scheduler"])) == ["a"]
    assert names(ask(pool, types=["Nothing"])) == []


def test_constraint_keeps_what_is_true_only(pool):
    assert names(ask(pool, constraint="Memory >= 20")) == ["slot1@a", "slot2@b"]
    assert names(ask(pool, constraint='State == "idle"')) == ["slot1@b"]


def test_constraint_sees_what_the_collector_adds(pool):
    assert names(ask(pool, constraint="LastHeardFrom == 4000 && UpdateSequenceNumber == 3", types=["Scheduler"])) == [
        "a"
    ]
    assert names(ask(pool, constraint="time() - LastHeardFrom == 1000", types=["Scheduler"])) == ["a"]


@spec("COL-10")
def test_every_ad_has_type_and_time_it_was_heard(pool):
    for question in ({}, {"projection": ["Memory"]}, {"constraint": "true"}):
        for ad in ask(pool, **question).ads:
            assert {"MyType", "LastHeardFrom"} <= unpack(ad).keys()


def test_projection_ignores_case(pool):
    (ad,) = ask(pool, constraint='Name == "slot1@a"', projection=["memory", "Nope"]).ads
    assert unpack(ad) == {"Memory": 30, "MyType": "Machine", "LastHeardFrom": 4000}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_pages_together_are_everything(pool, limit):
    assert everything(pool, limit=limit)[0] == ["slot1@a", "slot1@b", "slot2@b", "a"]


def test_page_is_bounded_however_much_is_looked_at():
    many = table({("Machine", f"startd@{i:04}"): {f"s{j}@{i}": {"A": j} for j in range(10)} for i in range(300)})
    found, pages = everything(many, constraint="A == 100")
    assert found == []
    assert pages >= 3000 / PAGE_LOOKS
    assert len(everything(many, constraint="A == 5")[0]) == 300


def test_pages_go_on_while_daemons_come_and_go(pool):
    order = GroupOrder(pool)
    first = ask(pool, limit=1, order=order)
    pool.remove("Machine", "startd@a")
    order.changed("Machine")
    assert names(ask(pool, after=first.next, order=order)) == ["slot1@b", "slot2@b", "a"]


@pytest.mark.parametrize(
    ("constraint", "name"),
    [
        ('Name == "x"', "x"),
        ('"x" == MY.Name && State == "Idle"', "x"),
        ('(Memory > 3) && (name == "x")', "x"),
        ('Name == "x" || true', ""),
        ('Name =?= "x"', ""),
        ('Name != "x"', ""),
        ('TARGET.Name == "x"', ""),
        ("Name == Other", ""),
    ],
)
def test_name_that_a_constraint_asks_for_is_found(constraint, name):
    assert pinned_name(parse_expr(constraint)) == name


def test_one_ad_by_name_ignores_case_and_looks_at_no_other():
    many = table({("Machine", f"startd@{i}"): {f"slot1@{i}": {}} for i in range(PAGE_LOOKS + 100)})
    page = ask(many, constraint=f'Name == "SLOT1@{PAGE_LOOKS + 99}"')
    assert names(page) == [f"slot1@{PAGE_LOOKS + 99}"]
    assert page.next == ""


def absentee(name="slot1@gone"):
    return AbsentAd(name, "startd@gone", pack({"Name": name, "Absent": True, "Memory": 1}), 100.0, 9e9)


@spec("ABS-02")
def test_absent_ads_appear_only_when_asked_for(pool):
    gone = {a.name: a for a in (absentee(), absentee("slot2@gone"))}
    assert len(names(ask(pool, absentees=gone))) == 4
    assert names(ask(pool, absentees=gone, absent=True))[-2:] == ["slot1@gone", "slot2@gone"]
    assert names(ask(pool, absentees=gone, constraint="Absent =?= true")) == ["slot1@gone", "slot2@gone"]
    assert len(names(ask(pool, absentees=gone, constraint="Absent =!= true"))) == 4
    assert everything(pool, absentees=gone, absent=True, limit=1)[0][-2:] == ["slot1@gone", "slot2@gone"]
    assert names(ask(pool, absentees=gone, absent=True, types=["Scheduler"])) == ["a"]


def test_bytes_that_are_no_ad_are_left_out_and_counted(pool):
    pool.apply(
        AdUpdate(my_type="Machine", daemon="startd@z", start_time=1, sequence=1, names=["bad"], ads=[b"\xde\x00"]), 1
    )
    for question in ({"constraint": "true"}, {"projection": ["Name"]}, {}):
        page = ask(pool, **question)
        assert (len(page.ads), page.unreadable) == (4, 1)


ODD = {"list": [0] * 100, "map": {"a": {}}, "bytes": b"bytes", "extension": msgpack.ExtType(77, b"x")}


@pytest.mark.parametrize("projection", [[], ["Much"]], ids=["whole", "projected"])
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_an_ad_that_nobody_else_could_read_is_left_out_too(pool, value, projection):
    packed = msgpack.packb({"Name": "bad", "Much": value})
    pool.apply(AdUpdate(my_type="Machine", daemon="startd@z", start_time=1, sequence=1, names=["bad"], ads=[packed]), 1)
    with pytest.raises(ValueError):
        ClassAd.unpack(packed).table()
    page = ask(pool, projection=projection)
    assert (len(page.ads), page.unreadable) == (4, 1)


def test_changes_of_an_ad_that_can_not_be_read_spoil_no_others(pool):
    """The changes can not be put into it: there is nothing to put them into."""
    packed = msgpack.packb({"Name": "bad", "Much": [0] * 100})
    start = {"my_type": "Machine", "daemon": "startd@z", "start_time": 1}
    pool.apply(AdUpdate(**start, sequence=1, names=["bad"], ads=[packed]), 1)
    changes = [msgpack.packb({"State": "Idle"})]
    pool.apply(AdDelta(**start, sequence=2, base=1, names=["bad"], changes=changes, removed_attrs=[[]]), 2)
    for question in ({"constraint": "true"}, {"projection": ["Name"]}, {}):
        page = ask(pool, **question)
        assert (len(page.ads), page.unreadable) == (4, 1)


@pytest.mark.parametrize(
    "question", [{"constraint": "Memory >"}, {"constraint": "x" * 200_000}, {"limit": -1}, {"after": "half\0a place"}]
)
def test_bad_question_is_refused(pool, question):
    with pytest.raises(BadQuery):
        ask(pool, **question)
