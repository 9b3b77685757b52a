"""What cron jobs print (CRN-01, CRN-02, CRN-05, CRN-08)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.classad import unparse_old
from shared.cron import output
from shared.cron.output import OutputReader
from tests.spec import spec


def read(text, prefix="", cut=None):
    """The ads of a program that prints this, and the problems of what was no ad."""
    ads = []
    reader = OutputReader(ads.append, prefix)
    data = text.encode("utf-8", "surrogateescape")
    for start in range(0, len(data), cut or max(1, len(data))):
        reader.feed(data[start : start + (cut or len(data))])
    return ads, reader.close()


def plain(ad):
    return ad.name, dict(ad.attributes.items()), dict(ad.selectors.items()), ad.update


MANUAL = "Value=1\nSlotId=1\n-s1\nValue=2\nSlotId=2\n-s2\nValue=10\n- update:true\n"


@spec("CRN-01", "CRN-02", "CRN-05")
@pytest.mark.parametrize("cut", [1, 2, 7, 1000])
def test_the_example_of_the_manual(cut):
    """In whatever pieces it comes."""
    ads, problems = read(MANUAL, cut=cut)
    assert [plain(ad) for ad in ads] == [
        ("s1", {"Value": 1}, {"SlotId": 1}, None),
        ("s2", {"Value": 2}, {"SlotId": 2}, None),
        ("", {"Value": 10}, {}, True),
    ]
    assert problems == ()


@spec("CRN-02")
@pytest.mark.parametrize(
    ("line", "name", "update"),
    [
        ("-", "", None),
        ("- ", "", None),
        ("-----", "----", None),
        ("-name", "name", None),
        ("- name", "name", None),
        ("- name update:false", "name", False),
        ("- update:TRUE", "", True),
        ("- update:0", "", False),
        ("- name Update", "name", True),
        ("- update", "update", None),
    ],
)
def test_what_stands_behind_the_dash(line, name, update):
    ((ad,), _) = read(f"A = 1\n{line}\n")
    assert (ad.name, ad.update, ad.problems) == (name, update, ())


def test_wrong_words_behind_the_dash_are_told():
    (ad,), _ = read("A = 1\n- name update:perhaps more\n")
    assert (ad.name, ad.update) == ("name", None)
    assert len(ad.problems) == 2
    assert "update:true or update:false" in ad.problems[0]


@spec("CRN-01")
def test_output_without_a_dash_is_an_ad_when_the_program_ends():
    ads, problems = read("A = 1\nB = A + 1")
    assert [plain(ad)[0] for ad in ads] == [""]
    assert ads[0].attributes.eval("B") == 2
    assert problems == ()


def test_nothing_between_dashes_is_no_ad():
    assert read("-\n- s1\n\n# comment\n-\n")[0] == []


@spec("CRN-02")
def test_selectors_alone_are_an_ad_that_takes_away():
    """It replaces the ad of its name."""
    ((ad,), _) = read("SlotId = 1\n- s1\n")
    assert plain(ad) == ("s1", {}, {"SlotId": 1}, None)


@spec("CRN-08")
def test_prefix():
    """What chooses slots needs none, Name is data then."""
    ((ad,), _) = read('Size = 3\nSlotId = 2\nName = "x"\n-\n', prefix="Disk_")
    assert plain(ad) == ("", {"Disk_Size": 3, "Disk_Name": "x"}, {"SlotId": 2}, None)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("no definition", "is not Attribute = value"),
        ("1x = 2", "is not Attribute = value"),
        ("a b = 2", "is not Attribute = value"),
        ("A = ", "can not be read"),
        ("A = 1 +", "can not be read"),
        ("A = " + "(" * 10_000, "can not be read"),
        ('A = "x', "can not be read"),
        ('ClaimId = "secret"', "not for programs"),
        ('MyType = "Job"', "not for programs"),
        ("A = \udcff\udcfe", "not UTF-8"),
        ("A = " + "1" * output.MAX_LINE, "bytes"),
    ],
)
def test_a_bad_line_is_told_and_the_others_count(line, told):
    ((ad,), _) = read(f"Good = 1\n{line}\nBetter = 2\n-\n")
    assert dict(ad.attributes.items()) == {"Good": 1, "Better": 2}
    (problem,) = ad.problems
    assert problem.startswith("line 2: ")
    assert told in problem


def test_bad_lines_alone_are_told_at_the_end():
    ads, problems = read("rubbish\n")
    assert (ads, len(problems)) == ([], 1)


def test_a_line_that_never_ends_is_not_kept():
    ads = []
    reader = OutputReader(ads.append)
    for _ in range(200):
        reader.feed(b"x" * 10_000)
        assert len(reader._buffer) <= output.MAX_LINE + 10_000
    reader.feed(b"\nA = 1\n-\n")
    assert dict(ads[0].attributes.items()) == {"A": 1}
    assert "bytes" in ads[0].problems[0]


def test_an_ad_that_never_ends_is_bounded():
    ((ad,), _) = read("".join(f"A{n} = {n}\n" for n in range(output.MAX_ATTRIBUTES + 500)))
    assert len(ad.attributes) == output.MAX_ATTRIBUTES
    assert len(ad.problems) == output.MAX_PROBLEMS + 1
    assert ad.problems[-1] == "and more"
    wide = "".join(f'A{n} = "{"x" * 30_000}"\n' for n in range(20))
    ((ad,), _) = read(wide)
    assert len(unparse_old(ad.attributes)) < output.MAX_AD + 1000


@spec("CRN-10")
def test_leftovers_are_what_no_dash_has_followed():
    reader = OutputReader(lambda ad: None)
    reader.feed(b"A = 1\n-\nwhat is wrong\nhalf a li")
    assert reader.leftovers() == "what is wrong\nhalf a li"


@settings(max_examples=150)
@given(st.binary(max_size=400), st.integers(1, 50), st.sampled_from(["", "P_"]))
def test_whatever_is_printed_the_reader_lives_and_pieces_do_not_matter(data, size, prefix):
    whole, pieces = [], []
    one, many = OutputReader(whole.append, prefix), OutputReader(pieces.append, prefix)
    one.feed(data)
    for start in range(0, len(data), size):
        many.feed(data[start : start + size])
    assert one.close() == many.close()
    assert [(ad.name, unparse_old(ad.attributes), ad.problems) for ad in whole] == [
        (ad.name, unparse_old(ad.attributes), ad.problems) for ad in pieces
    ]
