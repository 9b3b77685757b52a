"""What is wrong in a text is said with its place and what was expected."""

import pickle

import pytest

from shared.classad import ParseError, from_json, parse_ad, parse_ads, parse_expr
from tests.spec import spec


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("1 +", 1, 4, "an expression"),
        ("a &&\n(b", 2, 3, "')'"),
        ("a b", 1, 3, "an operator or the end of the expression"),
        ("{1,}", 1, 4, "an expression"),
        ("f(1 2)", 1, 5, "',' or ')'"),
        ("x.1", 1, 2, "an operator or the end of the expression"),
        ("a ? b", 1, 6, "':'"),
        ('"abc', 1, 1, "a string that ends with a double quote"),
        ("\n  010", 2, 3, "a number"),
        ('absTime("never")', 1, 17, "a time in absTime(...), not 'never'"),
        ("(" * 200 + "1" + ")" * 200, 1, 167, "fewer levels"),
    ],
)
def test_expression(text, line, column, expected):
    with pytest.raises(ParseError) as fault:
        parse_expr(text)
    assert (fault.value.line, fault.value.column, fault.value.expected) == (line, column, expected)
    assert f"line {line}, column {column}" in str(fault.value)


def test_an_expression_in_old_syntax_is_the_whole_text_but_a_line_of_an_ad_ends_where_it_can():
    assert str(parse_expr("a + 1 // why", "old")) == "a + 1"
    with pytest.raises(ParseError, match="column 7"):
        parse_expr("a + 1 b", "old")
    with pytest.raises(ParseError, match="column 3"):
        parse_expr("1 ;", "old")
    assert parse_ad("x = a + 1 b", "old").text("x") == "a + 1"


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        ("[a = 1; b 2]", 1, 11, "'='"),
        ("[a = 1\n b = 2]", 2, 2, "';' or ']'"),
        ("[1 = 2]", 1, 2, "an attribute name or ']'"),
        ("a = 1", 1, 1, "'['"),
        ("[a = 1", 1, 7, "';' or ']'"),
    ],
)
def test_ad(text, line, column, expected):
    with pytest.raises(ParseError) as fault:
        parse_ad(text)
    assert (fault.value.line, fault.value.column, fault.value.expected) == (line, column, expected)


@spec("CLA-22")
@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a = 1\nb = (2\nc = 3", 2, 7),
        ("a = 1\n\nb 2\n", 3, 1),
        ("# a note\na = 1\n = 2", 3, 1),
        ("a = 1\n\n\nb = 2\n-----\nc = 5.\n", 6, 5),
        ("\n\n\na = )", 4, 5),
    ],
)
def test_stream_of_old_syntax(text, line, column):
    for stream in (text, text.splitlines(keepends=True)):
        with pytest.raises(ParseError) as fault:
            list(parse_ads(stream))
        assert (fault.value.line, fault.value.column) == (line, column)


def test_the_ads_before_the_wrong_one_are_delivered():
    ads = parse_ads("a = 1\n\nb = 2\n\nc = )\n")
    assert [next(ads)["a"], next(ads)["b"]] == [1, 2]
    with pytest.raises(ParseError):
        next(ads)


@pytest.mark.parametrize(
    "text",
    ["", "[", "{", "[1]", '{"a": NaN}', '{"a": "\\/Expr(1 +)\\/"}', '{"a": x}', '{"": 1}', '{"a": "\\u0000"}', "3"],
)
def test_json(text):
    with pytest.raises(ParseError):
        from_json(text)


def test_errors_travel_between_processes():
    fault = ParseError("unexpected ')'", 3, 4, "an expression")
    copy = pickle.loads(pickle.dumps(fault))
    assert str(copy) == str(fault)
    assert (copy.line, copy.column, copy.expected) == (3, 4, "an expression")
