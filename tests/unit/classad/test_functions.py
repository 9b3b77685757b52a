"""The builtin functions by themselves: bounds, time, user maps, and what a daemon can set."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from shared.classad import ERROR, UNDEFINED, ClassAd, evaluate, parse_ad, parse_expr, unparse
from shared.classad.expr import Call
from shared.classad.functions import FUNCTIONS, UserMap, UserMapError, pcre, set_debug_listener, set_user_maps
from shared.classad.functions.coerce import MAX_ITEMS, MAX_TEXT
from shared.classad.functions.pcre import MAX_PATTERN
from shared.classad.unparse import node_of
from tests.spec import spec
from tests.unit.classad.functions_cases import FAMILIES, VALUES


def value(text, my=None, now=None):
    return evaluate(parse_expr(text), my, now=now)


def call(name, *arguments):
    return FUNCTIONS[name.lower()].call(list(arguments))


def test_names_are_found_without_case():
    assert value('StrCat("a", 1)') == value('STRCAT("a", 1)') == "a1"


def test_each_function_is_either_strict_or_lazy():
    for key, function in FUNCTIONS.items():
        assert key == function.name.lower()
        assert (function.call is None) != (function.lazy is None)


def test_a_wrong_number_of_arguments_is_an_error():
    for function in FUNCTIONS.values():
        if function.min_args:
            assert value(f"{function.name}({','.join(['1'] * (function.min_args - 1))})") is ERROR
        if function.max_args is not None:
            assert value(f"{function.name}({','.join(['1'] * (function.max_args + 1))})") is ERROR


def test_no_argument_makes_a_function_raise():
    rng = random.Random("never raises")
    arguments = [value(text) for text in VALUES]
    for function in FUNCTIONS.values():
        for _ in range(60):
            count = rng.randint(function.min_args, 4 if function.max_args is None else function.max_args)
            chosen = [rng.choice(arguments) for _ in range(count)]
            if function.call is not None:
                function.call(chosen)
            else:
                evaluate(Call(function.name, tuple(map(node_of, chosen))))


# Bounds


def test_text_that_doubles_itself_ends_in_an_error():
    ad = parse_ad("[" + ";".join(f"x{n} = strcat(x{n + 1}, x{n + 1})" for n in range(40)) + '; x40 = "abcdefgh"]')
    assert ad.eval("x0") is ERROR
    assert len(ad.eval("x30")) == 8 << 10


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("strcat", ["x" * MAX_TEXT, "x"]),
        ("join", [",", ["x" * 1000] * (MAX_TEXT // 1000)]),
        ("replaceall", ["(.)", "x" * 16_000, "\\1" * 100]),
        ("split", ["x " * (MAX_ITEMS + 1)]),
        ("argsToList", ["x " * (MAX_ITEMS + 1)]),
        ("string", [["x" * 1000] * (MAX_TEXT // 1000)]),
    ],
)
def test_results_beyond_the_bounds_are_errors(name, arguments):
    assert call(name, *arguments) is ERROR


@pytest.mark.timeout(30)  # without a bound these run for hours
@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(?:a|b)*+[cd]", "(x+x+)+y", "(?:a{0,100}){0,100}b", "a.*a.*a.*b"]
)
@pytest.mark.parametrize("length", [40, 1_000, 16_384, 200_000])
def test_a_catastrophic_pattern_ends_soon_and_is_no_match(pattern, length):
    answer = call("regexp", pattern, "a" * length + "!")
    assert answer is ERROR or answer is False


@pytest.mark.timeout(30)
def test_many_slow_searches_share_one_clock():
    slow = ["a" * 10_000] * 200
    assert call("regexpMember", "(?:a|b)*+[cd]", slow) is ERROR
    assert call("stringList_regexpMember", "(?:a|b)*+[cd]", ",".join(slow)) is ERROR


def test_a_pattern_may_not_raise_its_limits():
    assert call("regexp", "(*LIMIT_MATCH=4000000000)(a+)+$", "a" * 40 + "!") is ERROR


def test_a_long_subject_is_searched_to_its_end(monkeypatch):
    """Where there is time for it: a busy machine needs more than the 20 ms of processor time that there are."""
    monkeypatch.setattr(pcre, "thread_time", lambda: 0.0)
    text = "a" * 30_000 + "needle" + "b" * 10
    assert call("regexp", "needle", text) is True
    assert call("regexp", "needle$", text) is False
    assert call("replace", "ne+dle", text, "-") == "a" * 30_000 + "-" + "b" * 10


def test_too_long_or_wrong_patterns_are_errors():
    assert call("regexp", "a" * (MAX_PATTERN + 1), "a") is ERROR
    for pattern in ("(", "[", "a**", "*a", "(?<=a+)b", "\\"):
        assert call("regexp", pattern, "a") is ERROR


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        (r"^.$", "é", False),  # bytes, not characters
        (r"(*UTF)^.$", "é", True),
        (r"a{,2}b", "aab", False),
        (r"a{,2}b", "a{,2}b", True),
        (r"a{ 1 }", "a{ 1 }", True),
        (r"[{,2}]", "{", True),
        (r"\Q{,2}\E", "{,2}", True),
        (r"\x{41}", "A", True),
        (r"\C\C", "é", True),
        (r"\u0041", "A", ERROR),
        (r"(?|(a)|(b))\1", "bb", True),
        (r"^(\((?:[^()]|(?1))*\))$", "(a(b)c)", True),
    ],
)
def test_patterns_mean_what_the_reference_takes_them_for(pattern, subject, expected):
    assert call("regexp", pattern, subject) is expected


# Text as bytes


def test_a_part_of_a_character_survives_until_it_is_whole_again():
    first, second = call("substr", "é", 0, 1), call("substr", "é", 1)
    assert call("size", first) == 1
    assert call("strcat", first, second) == "é"


# Time


@spec("CLA-17")
def test_time_is_the_moment_of_the_evaluation_all_through_it():
    assert value("{time(), time() + 1, int(currentTime())}", now=1_700_000_000.75) == [
        1_700_000_000,
        1_700_000_001,
        1_700_000_000,
    ]
    assert value("interval(time())", now=90_061) == "1+01:01:01"


def test_times_are_pythons_own():
    assert value("absTime(100, 0)") == datetime(1970, 1, 1, 0, 1, 40, tzinfo=UTC)
    assert value("absTime(100, 3600)").utcoffset() == timedelta(hours=1)
    assert value("relTime(90061.5)") == timedelta(days=1, hours=1, minutes=1, seconds=1.5)


def test_times_that_python_can_not_hold_are_errors():
    for text in ("relTime(1e300)", 'relTime(real("nan"))', "absTime(0, 86400)", "splitTime(9223372036854775807)"):
        assert value(text) is ERROR


def test_random_stays_below_its_limit():
    assert all(0 <= value("random(7)") < 7 for _ in range(200))
    assert all(0 <= value("random(2.5)") < 2.5 for _ in range(200))
    assert {type(value("random(7)")), type(value("random()"))} == {int, float}
    assert value("random(0)") is ERROR
    assert value("random(-1.5)") is ERROR


# What a daemon sets


@pytest.fixture
def maps():
    yield set_user_maps
    set_user_maps({})


GROUPS = """
# groups of the physicists
* alice  atlas,cms
* Bob    "lhcb , atlas"
* /^c(.*)$/   grp\\1
* /^d/i  "d d"
FOO eve nobody
* nothing ""
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('"g","alice"', "atlas,cms"),
        ('"G","alice"', "atlas,cms"),
        ('"g","Alice"', UNDEFINED),
        ('"g","alice","CMS"', "cms"),
        ('"g","alice","other"', "atlas"),
        ('"g","alice",undefined', "atlas"),
        ('"g","Bob"', "lhcb , atlas"),
        ('"g","Bob","atlas"', "atlas"),
        ('"g","carl"', "grparl"),
        ('"g","DORA"', "d d"),
        ('"g","eve"', UNDEFINED),
        ('"g","nothing"', UNDEFINED),
        ('"g","zoe","x"', UNDEFINED),
        ('"g","zoe","x","default"', "default"),
        ('"other","alice"', UNDEFINED),
        ('"g",undefined', UNDEFINED),
        ('"g",error', ERROR),
        ('"g",1,"x",2', 2),
    ],
)
def test_user_maps_answer_as_the_manual_says(maps, arguments, expected):
    maps({"g": UserMap.parse(GROUPS)})
    assert value(f"userMap({arguments})") == expected


def test_the_first_line_that_fits_decides(maps):
    maps({"g": UserMap.parse("* ada first\n* /^a/ pattern\n* ada again\n* abe late\n* /^ab/ never")})
    assert [value(f'userMap("g","{user}")') for user in ("ada", "abe", "amy", "bob")] == [
        "first",
        "pattern",
        "pattern",
        UNDEFINED,
    ]


def test_names_of_a_map_may_be_beginnings(maps):
    """The longest counts."""
    maps({"g": UserMap.parse("* /ad/ late\n* ad first\n* adam second", prefixes=True)})
    assert [value(f'userMap("g", "{name}")') for name in ("adam", "adamant", "a", "Ad")] == [
        *("late", "late", UNDEFINED, UNDEFINED),
    ]
    maps({"g": UserMap.parse("* ad first\n* adam second\n* /ad/ late", prefixes=True)})
    assert [value(f'userMap("g", "{name}")') for name in ("ad", "ada", "adamant", "bad", "a")] == [
        *("first", "first", "second", "late", UNDEFINED),
    ]


def test_without_maps_every_user_is_unknown():
    assert value('userMap("g","alice")') is UNDEFINED
    assert value('userMap("g","alice","a","b")') == "b"


@pytest.mark.parametrize("text", ["* alice", "# ok\n* /(/ group"])
def test_a_map_that_can_not_be_used_names_the_line(text):
    with pytest.raises(UserMapError, match=f"line {len(text.splitlines())}:"):
        UserMap.parse(text)


def test_debug_tells_the_listener_and_gives_its_value():
    told = []
    set_debug_listener(lambda expr, found: told.append((unparse(expr), found)))
    try:
        assert value("debug(1 + a) + 1", ClassAd({"a": 2})) == 4
    finally:
        set_debug_listener(None)
    assert told == [("1 + a", 3)]
    assert value("debug(1 + 1)") == 2


def test_the_home_of_a_user_is_the_machines():
    assert value('userHome("root")').startswith("/")
    assert value('userHome("no such user", "/tmp")') == "/tmp"
    assert value('userHome("no such user")') is UNDEFINED


# Laziness


@spec("CLA-11")
def test_only_the_branch_that_is_needed_is_evaluated():
    told = []
    set_debug_listener(lambda expr, found: told.append(unparse(expr)))
    try:
        assert value("ifThenElse(true, 1, debug(2))") == 1
        assert value("ifThenElse(false, debug(1), 2)") == 2
    finally:
        set_debug_listener(None)
    assert told == []


@spec("CLA-16")
def test_eval_that_calls_itself_ends():
    assert parse_ad('[a = eval("a")]').eval("a") is UNDEFINED
    assert value("eval(" * 160 + '"1"' + ")" * 160) == 1
    assert value("eval(x)", ClassAd({"x": "(" * 20_000})) is ERROR


def test_every_family_of_cases_gives_something_but_errors():
    for name, family in FAMILIES.items():
        rng = random.Random(name)
        texts = [family(rng) for _ in range(200)]
        literals = {"literal moments", "literal intervals"}
        if name not in literals:
            assert sum(value(text) is not ERROR for text in texts) > 20, name
