"""Ads in every form, compared with the reference implementation."""

import random

import pytest

from shared.classad import ClassAd, ParseError, from_json, parse_ad, parse_ads, to_json, unparse, unparse_old
from tests.unit.classad import grammar

pytestmark = pytest.mark.reference

ODD = r"""[a={1,2,[b={};c=[]]};e=error;u=undefined;l={};n=[];z={{},{1,{2}}};s="a\"b\\c\n\t\001é/\177";
    t=absTime("2020-01-01T00:00:00+00:00");i=1e400;x=-1e400;q=1e20;v=-0.0;r=relTime("1+02:03:04.5");
    'odd name'=1;'true'=2;w=x.y['a' + 'b'];f=f(1;2);k=(1).b ?: c]"""


def ads(seed, count):
    rng = random.Random(seed)
    return [ODD, *(grammar.ad(rng) for _ in range(count))]


def test_ads_print_alike_in_new_syntax_old_syntax_and_json(reference):
    for text in ads("printing", 400):
        ad, expected = parse_ad(text), reference.classad.ClassAd(text)
        assert unparse(ad) == repr(expected)
        assert to_json(ad) == expected.printJson()
        if ad:
            assert unparse_old(ad) == expected.printOld()


def test_what_is_printed_reads_back_the_same():
    for text in ads("reading", 400):
        ad = parse_ad(text)
        once = parse_ad(unparse(ad))
        assert parse_ad(unparse(once)) == once
        assert ClassAd.unpack(once.pack()) == once
        if "relTime" not in text:  # JSON has no relative times: they become reals
            assert from_json(to_json(once)) == once


@pytest.mark.parametrize("seed", range(3))
def test_lines_of_old_syntax_are_read_alike(reference, seed):
    rng = random.Random(f"lines {seed}")
    differing = []
    for _ in range(700):
        make = rng.choice([grammar.damaged, grammar.soup, lambda r: grammar.expression(r, 2)])
        text = make(rng).replace("\n", " ")
        line = rng.choice(["a", "Abc", "a b", " a ", "a.b", "1x", "true", ""]) + rng.choice(["=", " = "]) + text
        line += rng.choice(["", "", "\n", " ", "\r\n"])
        if "\0" in text or ".." in text or "0x" in text.lower() or "/*" in text or ".'" in text or "[;" in text:
            continue
        expected = reference.classad.parseOne(line, reference.classad.ParserType.Old)
        try:
            printed = expected.printOld() if len(expected) else None
        except UnicodeDecodeError:
            continue
        try:
            answer = unparse_old(parse_ad(line, "old"))
        except ParseError:
            answer = None
        if answer != printed:
            differing.append((line, "reference", printed, "ours", answer))
    assert differing == []


def test_streams_of_old_syntax_part_alike(reference):
    rng = random.Random("streams")
    compared = 0
    for _ in range(200):
        lines = []
        for _ in range(rng.randrange(12)):
            lines.append(
                rng.choice(
                    ["a = 1", 'B = "x"', "b = a + 1", "A = 2.5", "", "", "# note", "  # note = 2", " c = 3", " "]
                )
            )
        text = rng.choice(["\n", "\r\n"]).join(lines) + rng.choice(["", "\n", "\n\n"])
        try:
            expected = [repr(ad) for ad in reference.classad.parseAds(text, reference.classad.ParserType.Old)]
        except ValueError:  # a stream of nothing but comments
            continue
        compared += len(expected)
        assert [unparse(ad) for ad in parse_ads(text)] == expected, text
        assert [unparse(ad) for ad in parse_ads(text.splitlines(keepends=True))] == expected, text
    assert compared > 100
