"""Ads in columns: what is read of them is what was packed, and the tables made of them are HTCondor's (TLS-01)."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.cli import custom_columns, output, q, slot_order, status
from roost.cli.main import main
from roost.cli.options import parse
from services.collector.core.columns import LISTS, USUAL
from services.collector.core.overlay import OVERLAID
from services.collector.core.queries import chosen
from shared.classad import ClassAd, parse_expr
from shared.classad.cells import PackedError
from shared.classad.column_page import Sheet, page, reader
from shared.classad.references import references
from shared.daemon.ad_rows import pack, unpack
from tests.spec import spec

DATA = Path(__file__).parent / "data"
CASES = [json.loads(line) for line in (DATA / "recordings.jsonl").read_text().splitlines()]
RECORDED = [case for case in CASES if case["command"][0] == "status"]
QUEUES = [case for case in CASES if case["command"][0] == "q"]
ADS = [
    ClassAd({"Name": "a", "Memory": 5, "Start": parse_expr("Memory > 3")}),
    ClassAd({"Name": "b", "Load": -0.0, "Flag": True}),
    ClassAd({"NAME": "c", "Start": parse_expr("undefined"), "Text": "gr\udcfc\u00fc"}),
]


def in_columns(ads):
    """The ads as a page in columns, as a collector gives it."""
    cells = [{name.lower(): (name, cell) for name, cell in unpack(ad.pack()).items()} for ad in ads]
    names = {key: name for each in cells for key, (name, _) in each.items()}
    columns = [(name, [each.get(key, (name, None))[1] for each in cells]) for key, name in names.items()]
    return page(len(ads), columns)


def sheet_of(*pages):
    """What a client reads of these pages, which come in small pieces."""
    sheet, found = Sheet(), reader()
    data = b"".join(pages)
    for start in range(0, len(data), 4096):
        found.feed(data[start : start + 4096])
        for one in found:
            sheet.add(one)
    return sheet


def packed(ads):
    import msgpack

    return msgpack.packb([ad.pack() for ad in ads])


@pytest.mark.parametrize("pages", [(in_columns,), (packed,), (in_columns, packed), (packed, in_columns)])
def test_ads_come_out_as_they_went_in(pages):
    sheet = sheet_of(*(each(ADS) for each in pages))
    assert len(sheet) == 3 * len(pages)
    assert list(sheet) == ADS * len(pages)
    assert sheet[-1] == ADS[-1]
    assert sheet[0].eval("Start") is True
    assert sheet[:2] == ADS[:2]
    assert sheet.cells("name") == ["a", "b", "c"] * len(pages)
    assert sheet.cells("nothing") == [None] * len(sheet)
    assert str(sheet.cells("load")[1]) == "-0.0"
    turned = sheet.taken([2, 0])
    assert [ad["Name"] for ad in turned] == ["c", "a"]
    turned.put("Load", [1.5, None])
    assert turned[0]["Load"] == 1.5
    assert "Load" not in turned[1]


@pytest.mark.parametrize(
    "what",
    [
        7,
        None,
        {"rows": 1},
        {"rows": 1, "names": ["A"], "columns": []},
        {"rows": 2, "names": ["A"], "columns": [[1]]},
        {"rows": 1, "names": [3], "columns": [[1]]},
        {"rows": 1, "names": ["A"], "columns": [5]},
        [b"\xc1"],
    ],
)
def test_what_is_no_page_is_refused(what):
    sheet = sheet_of(in_columns(ADS))
    with pytest.raises(PackedError):
        sheet.add(what)
    assert list(sheet) == ADS


def prints_what_was_recorded(case, capsys, monkeypatch):
    monkeypatch.setattr(output, "terminal_width", lambda: case.get("terminal", 0))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.chdir(DATA)
    assert main(case["command"]) == 0
    assert capsys.readouterr().out == case["output"]


@pytest.mark.parametrize("form", [in_columns, packed])
@pytest.mark.parametrize("case", RECORDED, ids=lambda case: " ".join(case["command"])[:100].replace("\\", "/"))
def test_tables_of_columns_are_htcondors(case, form, capsys, monkeypatch):
    """As if the ads of the file came from a pool."""
    read = status._Table._from_file

    def from_pool(table):
        ads = read(table)
        return sheet_of(form(ads[:7]), form(ads[7:]))

    monkeypatch.setattr(status._Table, "_from_file", from_pool)
    prints_what_was_recorded(case, capsys, monkeypatch)


_WORDS = st.text(alphabet="01289az_.@-Z~\t\n\u00fc", max_size=6)
_HOSTS = st.lists(_WORDS, min_size=1, max_size=5)


@spec("TLS-01")
@settings(max_examples=200)
@given(hosts=_HOSTS, slots=_HOSTS, picks=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_the_order_of_columns_is_that_of_ads(hosts, slots, picks):
    """Machine and name sort as one text does, numbers in them as numbers."""
    named = [(hosts[host % len(hosts)], slots[slot % len(slots)]) for host, slot in picks]
    ads = [ClassAd({"Machine": host, "Name": f"{slot}@{host}"}) for host, slot in named]
    sheet = sheet_of(in_columns(ads))
    assert slot_order.ordered(sheet) == slot_order.ordered(ads)
    key = [parse_expr("Name")]
    assert slot_order.ordered(sheet, key) == slot_order.ordered(ads, key)


def test_names_of_many_slots_are_compared_once():
    hosts = ["node10", "node9", "node9.a", "Node9"]
    ads = [ClassAd({"Machine": host, "Name": f"slot{n}@{host}"}) for host in hosts for n in (10, 9, "1_2", 1)]
    sheet = sheet_of(in_columns(ads))
    assert slot_order._ranks(sheet.cells("machine"), sheet.cells("name")) is not None
    assert slot_order.ordered(sheet) == slot_order.ordered(ads)


def test_what_is_alike_is_told_by_type_and_digits():
    """Cells that Python calls equal and ClassAds do not, and expressions whose value depends on the ad."""
    texts = ["1", "1.0", "true", '"1"', "0.0", "-0.0", "{1, 2}", "{1, 2}", "{A}", "{A}", "1", "undefined"]
    ads = [ClassAd({"N": n, "A": parse_expr(text)}) for n, text in enumerate([*texts, "2"])]
    sheet = sheet_of(in_columns(ads))
    assert sheet.alike(["a"]) == [0, 1, 2, 3, 4, 5, 6, 6, 8, 9, 0, 11, 12]
    assert sheet.alike([]) == [0] * 13
    assert sheet.alike(["nothing"]) == [0] * 13
    assert sheet.alike(["a", "n"]) == list(range(13))
    assert Sheet().alike(["a"]) == []


@spec("COL-05")
@pytest.mark.parametrize(
    "words",
    [["-" + word for word in text.split()] for text in (
        "", "total", "avail", "claimed", "slots run", "server", "state",
        "compact", "compact total", "compact avail", "compact claimed", "compact server", "compact state",
    )],
    ids=" ".join,
)  # fmt: skip
def test_the_first_table_is_as_fast_as_the_second(words):
    """What `roost status` asks of slots is among the collector's usual columns, or among the lists that are
    read from the ads of partitionable slots."""
    parsed = parse(words, status.OPTIONS)
    table = status._Table(parsed, status._read(parsed), custom_columns.columns(parsed, status=True))
    found = references(parse_expr(table._condition() or "true"))
    asked = {name.lower() for name in {*table._projection(), *found.missing, *found.unscoped}}
    assert asked <= {name.lower() for name in USUAL} | OVERLAID | (LISTS if "-compact" in words else set())


class _Few:
    """A gateway's client: of the ads of a file what is asked for, as a collector gives it."""

    def __init__(self, ads, asked):
        self.all, self.asked = ads, asked

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ads(self, *_, projection, **__):
        self.asked.append(projection)
        wanted = frozenset(map(str.lower, projection))
        return [
            ClassAd.unpack(pack(chosen(wanted, unpack(ad.pack())) if wanted else unpack(ad.pack()))) for ad in self.all
        ]

    def sheet(self, *_, projection, **__):
        return sheet_of(in_columns(self.ads(projection=projection)))


@spec("TLS-01", "COL-05")
@pytest.mark.parametrize("case", RECORDED, ids=lambda case: " ".join(case["command"])[:100].replace("\\", "/"))
def test_what_a_table_asks_for_is_all_that_it_needs(case, capsys, monkeypatch):
    """Whole ads are for -long and its like, and for -cod, whose claims have names of their own."""
    read, asked = status._Table._from_file, []

    def from_pool(table):
        ads = read(table)
        monkeypatch.setattr(status, "Client", lambda _: _Few(ads, asked))
        return table._from_pool()

    monkeypatch.setattr(status._Table, "_from_file", from_pool)
    monkeypatch.setattr(status, "_with_loads", lambda _: None)
    monkeypatch.setattr(status, "number_of", lambda *_: parse_expr("undefined"))  # of ours only: HTCondor has no such
    prints_what_was_recorded(case, capsys, monkeypatch)
    words = set(case["command"])
    assert all(asked) or words & {"-cod", "-long", "-l", "-xml", "-json", "-long:new", "-license"}, asked


@spec("TLS-05")
@pytest.mark.parametrize("projected", [False, True], ids=["whole", "projected"])
@pytest.mark.parametrize("case", QUEUES, ids=lambda case: " ".join(case["command"])[:100].replace("\\", "/"))
def test_queues_of_columns_are_htcondors(case, projected, capsys, monkeypatch):
    """As if the jobs of the file came from a pool, whole or only what the table asks for."""
    shown = q._Queue._print

    def from_pool(queue, found, source, everybody=None):
        if not queue._asked.form:
            wanted = frozenset(map(str.lower, queue._projection()))
            if projected:
                found = [ClassAd.unpack(pack(chosen(wanted, unpack(ad.pack())))) for ad in found]
            found = sheet_of(in_columns(found[:7]), in_columns(found[7:]))
        shown(queue, found, source, everybody)

    monkeypatch.setattr(q._Queue, "_print", from_pool)
    prints_what_was_recorded(case, capsys, monkeypatch)


@pytest.fixture(autouse=True)
def _time_zone(monkeypatch):
    yield
    monkeypatch.undo()
    time.tzset()
