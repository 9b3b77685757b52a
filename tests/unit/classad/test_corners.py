"""Places where re-implementations of the language go wrong: CLA-01 to CLA-28, and HTCondor's own answers."""

import pytest

from shared.classad import ERROR, UNDEFINED, ParseError, evaluate, parse_ad, parse_expr, unparse
from tests.spec import spec

CORNERS = [
    # text, value, MY, TARGET
    ("only", 5, "[x = 1]", "[only = 5]"),
    ("MY.only", UNDEFINED, "[x = 1]", "[only = 5]"),
    ("TARGET.y", 20, "[x = 1; y = x + 1]", "[x = 2; y = x * 10; z = q; w = MY.x]"),
    ("TARGET.w", 2, "[x = 1; y = x + 1]", "[x = 2; y = x * 10; z = q; w = MY.x]"),
    ("TARGET.z", 7, "[q = 7]", "[z = q]"),
    ("MY.x", 1, "[x = 1]", None),
    ("TARGET.x", UNDEFINED, "[x = 1]", None),
    ("n.y", 3, "[n = [y = x]; x = 3]", None),
    ("{[a=1],[b=2],5}.a", [1, UNDEFINED, ERROR], None, None),
    ("a", UNDEFINED, "[a = a + 1]", None),
    ("a ?: 3", 3, "[a = a]", None),
    ("a", UNDEFINED, "[a = TARGET.a]", "[a = TARGET.a]"),
    ("l[0]", False, "[l = {l[0] is undefined}]", None),  # an item that needs itself is ERROR inside
    ("l[0]", ERROR, "[l = {1 + l[0]}]", None),
    ("error || true", ERROR, None, None),
    ("true || error", True, None, None),
    ("error && false", ERROR, None, None),
    ("undefined || true", True, None, None),
    ("undefined && error", ERROR, None, None),
    ("false && undefined", False, None, None),
    ("undefined && false", False, None, None),
    ("false || undefined", UNDEFINED, None, None),
    ("2 && 1.5", True, None, None),
    ("!0.0", True, None, None),
    ('true && "a"', ERROR, None, None),
    ('false && "a"', False, None, None),
    ('"true" ? 1 : 2', ERROR, None, None),
    ("undefined ? 1 : 2", UNDEFINED, None, None),
    ("true + true", 2, None, None),
    ("(3 > 2) * 10", 10, None, None),
    ("-true", ERROR, None, None),
    ("true & 1", ERROR, None, None),
    ("1 == true", True, None, None),
    ("2 == true", False, None, None),
    ("1 =?= true", False, None, None),
    ('"a" == "A"', True, None, None),
    ('"a" =?= "A"', False, None, None),
    ('"Z" < "a"', False, None, None),
    ('"é" == "É"', False, None, None),
    ('"1" == 1', ERROR, None, None),
    ('"1" =?= 1', False, None, None),
    ("1 =?= 1.0", False, None, None),
    ('"a" + undefined', UNDEFINED, None, None),
    ("undefined == error", ERROR, None, None),
    ("{1} =?= {1}", ERROR, None, None),
    ("{1} == {1}", ERROR, None, None),
    ("{1} =?= undefined", False, None, None),
    ("{1} =?= 1", False, None, None),
    ("1 + undefined ?: 2", 3, None, None),
    ("undefined + 1 ?: 2", UNDEFINED, None, None),
    ("!undefined ?: true", False, None, None),
    ("error ?: 5", ERROR, None, None),
    ("undefined ? : 5", 5, None, None),
    ("-7 / 2", -3, None, None),
    ("-7 % 3", -1, None, None),
    ("5.0 % 2", ERROR, None, None),
    ("1 / 0", ERROR, None, None),
    ("1 % 0", ERROR, None, None),
    ("1e308 * 10", ERROR, None, None),
    ("1.0 / 0.0", ERROR, None, None),
    ("-1 / 0.0", float("-inf"), None, None),
    ("1e400", float("inf"), None, None),
    ("9223372036854775807 + 1", -(2**63), None, None),
    ("9223372036854775808", 0, None, None),
    ("-9223372036854775808", -(2**63), None, None),
    ("-9223372036854775808 / -1", -(2**63), None, None),  # the reference dies of it
    ("-9223372036854775808 % -1", 0, None, None),
    ("9007199254740993 == 9007199254740992.0", True, None, None),
    ("5 & 3 == 1", ERROR, None, None),
    ("(5 & 3) == 1", True, None, None),
    ("1 << 2 + 1", 8, None, None),
    ("1 < 2 == true", True, None, None),
    ("3 > 2 > 1", False, None, None),
    ("2 == 2 == 1", True, None, None),
    ("{1,2}[2]", ERROR, None, None),
    ("{1,2}[-1]", ERROR, None, None),
    ("{1,2}[1.0]", ERROR, None, None),
    ("{1,2}[4294967296]", ERROR, None, None),
    ('[a=1]["b"]', UNDEFINED, None, None),
    ('[a=1]["A"]', 1, None, None),
    (r'"\101\q\x41"', "Aqx41", None, None),
    ('"a" "b"', "ab", None, None),
    ("007.5", 7.5, None, None),
    ("nosuch(1)", ERROR, None, None),
    ("false && nosuch()", False, None, None),
    ("WRONGGenomeDBName", UNDEFINED, "[x = FruitFlies]", None),
    ("x is Undefined", True, "[y = 1]", None),
    ("x isnt Undefined", False, "[y = 1]", None),
    ('(Owner=="a") + ((Owner=="b")*10)', 10, '[Owner = "B"]', None),
    ('Owner == "coltrane" * 10', ERROR, '[Owner = "coltrane"]', None),
    ("target.RequestCpus", 4, "[a = 1]", "[REQUESTCPUS = 4]"),
    ("3.4e+38", 3.4e38, None, None),
    ("GPUs.Capability", 8.6, "[GPUs = [Capability = 8.6]]", None),
    ("(Idle) == False", True, "[Idle = false]", None),
]


@spec(
    "CLA-01",
    "CLA-02",
    "CLA-03",
    "CLA-04",
    "CLA-05",
    "CLA-06",
    "CLA-07",
    "CLA-08",
    "CLA-09",
    "CLA-10",
    "CLA-18",
    "CLA-19",
    "CLA-20",
    "CLA-24",
    "CLA-26",
    "CLA-27",
    "CLA-28",
    "W-64",
)
@pytest.mark.parametrize(("text", "value", "my", "target"), CORNERS, ids=[f"{c[0]} {c[2] or ''}" for c in CORNERS])
def test_corner(text, value, my, target):
    answer = evaluate(parse_expr(text), *(None if ad is None else parse_ad(ad) for ad in (my, target)))
    assert answer == value
    assert type(answer) is type(value) or isinstance(value, list)


@pytest.mark.parametrize("text", ["-1 / -0.0", "0.0 / 0.0", "-1e400 - -1e400"])
def test_not_a_number_and_plus_infinity(text):
    answer = evaluate(parse_expr(text))
    assert answer is ERROR or answer != answer


def test_private_circles_through_nested_ads_end_in_undefined():
    assert parse_ad("[n = [y = n.y]]").eval("n.y") is UNDEFINED
    assert evaluate(parse_expr("n.y"), parse_ad("[n = [y = n.y]]")) is UNDEFINED
    assert evaluate(parse_expr("a.b.b.c"), parse_ad("[a = [b = a; c = 2]]")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "010",
        "0x10",
        "5.",
        "{1,}",
        "f(1,)",
        "1a",
        "a.5",
        "a..b",
        "1e",
        "1.5e+",
        "a=b",
        "a?b",
        "a:b",
        "[a]",
        "[a=]",
        "is",
        "a&&&b",
        "'a",
        "-010x",
        '"a',
        "'''",
        "()",
        "f(,1)",
        "1;2",
        "a]",
        '"\\0"',
        "1 // no newline",
        "/* open",
        "a b",
        "",
        " ",
        "x ?: !y",
        "(1",
        "'\x00'",
        "a\x00b",
        "é",
        "{1;2}",
    ],
)
def test_refused(text):
    with pytest.raises(ParseError):
        parse_expr(text)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("-a+!b*~c", " -a +  !b *  ~c"),
        ("1 -1", "1 - 1"),
        ("x=?=-1", "x is -1"),
        ("x isnt 1.5", "x isnt 1.500000000000000E+00"),
        ("strcat(1;2)", "strcat(1,2)"),
        ("{1,\n2}", "{ 1,2 }"),
        ("[zz=1;b=2;AAA=3]", "[ b = 2; zz = 1; AAA = 3 ]"),
        ("a ? b:c ?: d", "a ? b : c ?: d"),
        ("((a))", "((a))"),
        ("'odd name' + x.'is'", "'odd name' + x.'is'"),
        ("{}", "{  }"),
        ("a//comment\n+1/*x*/", "a + 1"),
        ('"é\t\\"\'"', '"\\303\\251\\t\\"\'"'),
        ('relTime("90")', 'relTime("01:30")'),
    ],
)
def test_printed(text, printed):
    assert unparse(parse_expr(text)) == printed
    assert unparse(parse_expr(printed)) == printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("x is 1.5", "x =?= 1.5"),
        ("100.0 + 1e20 + 0.1", "100.0 + 1E+20 + 0.1"),
        (r'"C:\\dir"', r'"C:\dir"'),
        (r'"say \"hi\""', r'"say \"hi\""'),
    ],
)
def test_printed_in_old_syntax(text, printed):
    assert unparse(parse_expr(text), "old") == printed
