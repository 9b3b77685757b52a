"""Ads that can not be read keep nobody from those of others, whoever asks for what."""

import ast
import asyncio
import json
import time
from pathlib import Path

import msgpack
import pytest
from structlog.testing import capture_logs

from services.gateway.serialization import JsonAnswer, _piece
from shared.classad import ClassAd, PackedError, to_json
from shared.cooperative import SLICE_S
from shared.daemon.readable_ads import checked, of_each, readable

GATEWAY = Path(__file__).parents[3] / "services/gateway"
GOOD = [ClassAd({"Name": name, "Cpus": 1}).pack() for name in ("a", "b")]
BAD = [
    b"",
    msgpack.packb({"Name": msgpack.ExtType(3, b"x")}),
    msgpack.packb({"Name": "c", "Cpus": msgpack.ExtType(1, b"((((")}),
    msgpack.packb({"Name": [1]}),
]


async def test_what_can_not_be_read_is_left_out():
    ads = [GOOD[0], *BAD, GOOD[1]]
    # An expression that is none is ERROR.
    assert [ad.eval("Name") for ad in await of_each(ads, checked)] == ["a", "c", "b"]
    assert await of_each(ads, lambda ad: ad.find("cpus")) == [1, 1]
    assert await of_each([BAD[2]], lambda ad: ad.eval("Name")) == ["c"]  # read as far as it is asked for


async def test_however_many_can_not_be_read_one_line_says_so():
    with capture_logs() as lines:
        assert await of_each([b""] * 1000, checked) == []
    assert [(line["event"], line["ads"]) for line in lines] == [("ads_left_out", 1000)]


@pytest.mark.parametrize("reads", [True, False], ids=["readable", "not"])
async def test_others_have_their_turn_between_ads(reads):
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def slowly(ad):
        until = time.perf_counter() + 2 * SLICE_S
        while time.perf_counter() < until:
            pass
        if not reads:
            raise PackedError("no ad")

    beside = asyncio.create_task(others())
    await of_each(GOOD, slowly)
    beside.cancel()
    assert turns >= len(GOOD)


def pieces(ads, make=to_json, begin=b"[\n"):
    texts = readable(ads, make)
    return list(iter(lambda: _piece(texts, begin), None))


@pytest.mark.parametrize("reads", [True, False], ids=["readable", "not"])
def test_a_listing_gives_others_their_turn_after_each_ad(reads):
    def slowly(ad):
        until = time.perf_counter() + 2 * SLICE_S
        while time.perf_counter() < until:
            pass
        if not reads:
            raise PackedError("no ad")
        return "{}"

    assert pieces(GOOD, slowly) == ([b"[\n{}"] * 2 if reads else [b""] * 2)


def test_a_listing_leaves_them_out_too():
    assert b"".join(pieces([*BAD, *GOOD])).decode().count("Name") == 2
    assert b"".join(pieces(BAD)) == b""


def test_a_listing_tells_of_bytes_that_are_no_text():
    odd = ClassAd({"Name": "a\udc82\\\udc82"})
    assert json.loads(b"".join(pieces([odd.pack()], begin=b""))) == {"Name": odd["Name"]}
    assert json.loads(JsonAnswer([odd["Name"], "é"]).body) == [odd["Name"], "é"]


def test_ads_of_others_are_read_in_this_one_way():
    calls = [
        f"{path.relative_to(GATEWAY)}:{node.lineno}"
        for path in sorted(GATEWAY.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "unpack" and ast.unparse(node.value) == "ClassAd"
    ]
    assert calls == []
