"""Ads that can not be read keep nobody from those of others, whoever asks for what."""

import ast
from pathlib import Path

import msgpack

from services.gateway.readable import checked, of_each
from services.gateway.serialization import _piece
from shared.classad import ClassAd

GATEWAY = Path(__file__).parents[3] / "services/gateway"
GOOD = [ClassAd({"Name": name, "Cpus": 1}).pack() for name in ("a", "b")]
BAD = [
    b"",
    msgpack.packb({"Name": msgpack.ExtType(3, b"x")}),
    msgpack.packb({"Name": "c", "Cpus": msgpack.ExtType(1, b"((((")}),
    msgpack.packb({"Name": [1]}),
]


def test_what_can_not_be_read_is_left_out():
    ads = [GOOD[0], *BAD, GOOD[1]]
    assert [ad.eval("Name") for ad in of_each(ads, checked)] == ["a", "c", "b"]  # an expression that is none is ERROR
    assert list(of_each(ads, lambda ad: ad.find("cpus"))) == [1, 1]
    assert list(of_each([BAD[2]], lambda ad: ad.eval("Name"))) == ["c"]  # read as far as it is asked for


def test_a_listing_leaves_them_out_too():
    assert _piece(iter([*BAD, *GOOD]), b"[\n").decode().count("Name") == 2
    assert _piece(iter(BAD), b"[\n") == b""


def test_ads_of_others_are_read_in_this_one_way():
    calls = [
        f"{path.relative_to(GATEWAY)}:{node.lineno}"
        for path in sorted(GATEWAY.rglob("*.py"))
        if path != GATEWAY / "readable.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "unpack" and ast.unparse(node.value) == "ClassAd"
    ]
    assert calls == []
