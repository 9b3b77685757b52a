"""Ads in columns: what is read of them is what was packed, and the tables made of them are HTCondor's (TLS-01)."""

import json
import time
from pathlib import Path

import pytest

from roost.cli import output, status
from roost.cli.main import main
from shared.classad import ClassAd, parse_expr
from shared.classad.cells import PackedError
from shared.classad.sheet import Sheet, page, reader
from shared.daemon.ad_rows import unpack

DATA = Path(__file__).parent / "data"
RECORDED = [
    case
    for line in (DATA / "recordings.jsonl").read_text().splitlines()
    if (case := json.loads(line))["command"][0] == "status"
]
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


@pytest.mark.parametrize("form", [in_columns, packed])
@pytest.mark.parametrize("case", RECORDED, ids=lambda case: " ".join(case["command"])[:100].replace("\\", "/"))
def test_tables_of_columns_are_htcondors(case, form, capsys, monkeypatch):
    """As if the ads of the file came from a pool."""
    read = status._Table._from_file

    def from_pool(table):
        ads = read(table)
        return ads if table._asked.compact else sheet_of(form(ads[:7]), form(ads[7:]))

    monkeypatch.setattr(status._Table, "_from_file", from_pool)
    monkeypatch.setattr(output, "terminal_width", lambda: case.get("terminal", 0))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.chdir(DATA)
    assert main(case["command"]) == 0
    assert capsys.readouterr().out == case["output"]


@pytest.fixture(autouse=True)
def _time_zone(monkeypatch):
    yield
    monkeypatch.undo()
    time.tzset()
