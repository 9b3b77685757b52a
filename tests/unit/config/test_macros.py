"""The macro table: definitions, lazy expansion, functions, and what must not run away."""

import contextlib
import json
import random
from pathlib import Path

import pytest

from shared.config.errors import ConfigError, Source
from shared.config.macros import MacroTable, references
from tests.cases import each

DATA = json.loads((Path(__file__).parent / "data" / "expansions.json").read_text(encoding="utf-8"))
HERE = Source("pool.conf", 7)
ENVIRONMENT = {"HOME2": "/home/x", "EMPTYV": "", "REFN": "<$(N)>"}


def table(*definitions: str, **options) -> MacroTable:
    made = MacroTable(**options)
    for number, line in enumerate(definitions, 1):
        name, _, text = line.partition("=")
        made.set(name.strip(), text.strip(), Source("pool.conf", number))
    return made


@pytest.fixture(scope="module")
def probed() -> MacroTable:
    made = MacroTable(environment=ENVIRONMENT)
    for name, text in DATA["macros"]:
        made.set(name, text, HERE)
    return made


def test_expansion_is_that_of_the_reference(probed):
    """Answers of HTCondor 23.9.6; null where it refuses the text."""

    def check(case):
        text, expected = case
        if expected is None:
            with pytest.raises(ConfigError):
                probed.expand(f"[{text}]", source=HERE)
        else:
            assert probed.expand(f"[{text}]", source=HERE) == expected

    each(DATA["expansions"], check, lambda case: str(case[0]))


def test_later_definition_changes_earlier_users():
    assert table("A = $(B)", "B = 1", "B = 2").value("a") == "2"


def test_name_can_be_put_together_from_others():
    made = table("A = $(B)", "B = $($(WHICH))", "WHICH = C", "C = x", "Px = found", "R = $(P$(A))")
    assert made.value("R") == "found"


def test_self_reference_takes_the_old_value_once():
    assert table("L = x", "L = $(L) y", "L = $(l) $(L)").value("L") == "x y x y"


def test_self_reference_takes_the_default_in():
    assert table("DAEMONS = $(DAEMONS) SCHEDD", defaults={"daemons": "MASTER"}).value("DAEMONS") == "MASTER SCHEDD"
    assert table("NAME = $(NAME:dflt) x").value("NAME") == "dflt x"


def test_self_reference_stays_lazy_in_what_it_takes_in():
    assert table("A = $(B)", "A = $(A) 2", "B = later").value("A") == "later 2"


def test_function_of_its_own_macro_works_on_the_old_value():
    assert table("A = 7/2", "A = $INT(A)").value("A") == "3"
    assert table("P = /x/y.z", "P = $Fn(P)").value("P") == "y"


@pytest.mark.parametrize(
    "cycle", [("A = $(B)", "B = $(A)"), ("A = $(B)", "B = $(C)", "C = x$(A)"), ("A = $INT(B)", "B = $(A)")]
)
def test_loop_is_an_error_that_names_the_place(cycle):
    with pytest.raises(ConfigError) as caught:
        table(*cycle).value("A")
    assert "refers to itself" in str(caught.value)
    assert "pool.conf, line" in str(caught.value)


def test_a_default_that_names_its_macro_again_is_no_loop():
    made = table("Y = $(X:text)", "Z = $(X:$(Y))", "W = $(X:$(W2))", "W2 = $(X:$(W))")
    assert made.value("Z") == "text"
    with pytest.raises(ConfigError, match="refers to itself"):
        made.value("W")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<$(NOPE:max({1, 2}))>", "<max({1, 2})>"),
        ('<$(NOPE:(A && "x" == b))>', '<(A && "x" == b)>'),
        ("<$(NOPE:(1+2)*3)>", "<$(NOPE:(1+2)*3)>"),
        ("<$(NOPE:a(b)>", "<$(NOPE:a(b)>"),
        ("<$(NOPE:(a(b)>", "<$(NOPE:(a(b)>"),
        ("<$(NOPE:f($(NOPE2:x)))>", "<f(x)>"),
        ("<$(NOPE:f($(NOPE2:x+y)))>", "<f($(NOPE2:x+y))>"),
        ("<$(A:f(g(x)))> <$(A:$(B:$(C:x)))>", "<1> <1>"),
    ],
)
def test_parentheses_in_a_default(text, expected):
    assert table("A = 1").expand(text) == expected


def test_a_default_of_many_parentheses_is_done_with_in_time():
    text = "$(A:(" * 3000 + ")(" * 3000 + ")" * 3000
    with contextlib.suppress(ConfigError):
        table().expand(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$STRING(CALL)", "ab"),
        ("$STRING(CALL,%4s|)", "  ab|"),
        ("$STRING(NUM)", "7/2"),
        ("$STRING(WORDS)", "a b"),
        ("$STRING(NOPE)", "NOPE"),
        ("$Fu(WIN)", "a/b/c.d"),
        ("$Fup(WIN)", "a/b/"),
        ("$Fuw(WIN)", "a\\b\\c.d"),
        ("$Fwuq(WIN)", '"a/b/c.d"'),
    ],
)
def test_strings_are_evaluated_and_paths_get_slashes(text, expected):
    made = table('CALL = strcat("a", "b")', "NUM = 7/2", "WORDS = a b", "WIN = a\\b\\c.d")
    assert made.expand(text) == expected


def test_loop_in_one_macro_does_not_hurt_others():
    made = table("A = $(B)", "B = $(A)", "C = 3")
    assert made.value("C") == "3"


def test_doubling_macros_are_bounded():
    lines = ["M0 = xxxxxxxxxx"] + [f"M{n} = $(M{n - 1})$(M{n - 1})" for n in range(1, 60)]
    with pytest.raises(ConfigError, match="without bound"):
        table(*lines).value("M59")


def test_deep_chain_of_functions_is_bounded():
    lines = ["M0 = 1"] + [f"M{n} = $INT(M{n - 1})" for n in range(1, 5000)]
    with pytest.raises(ConfigError, match="nest deeper"):
        table(*lines).value("M4999")


def test_long_chain_of_plain_macros_expands():
    lines = ["M0 = end"] + [f"M{n} = $(M{n - 1})" for n in range(1, 3000)]
    assert table(*lines).value("M2999") == "end"


def test_scopes_are_tried_before_the_plain_name():
    made = table("X = plain", "SCHEDD.X = sub", "LOC.X = local", prefixes=("LOC", "SCHEDD"))
    assert made.value("X") == "local"
    assert table("X = plain", "SCHEDD.X = sub", prefixes=("LOC", "SCHEDD")).value("x") == "sub"
    assert table("X = plain", "STARTD.X = other", prefixes=("SCHEDD",)).value("X") == "plain"


def test_empty_scoped_value_hides_the_plain_one():
    assert table("X = plain", "LOC.X =", prefixes=("LOC",)).value("X") is None


def test_empty_value_hides_the_default_but_not_that_of_the_reference():
    made = table("X =", defaults={"x": "dflt"})
    assert made.value("X") is None
    assert made.expand("$(X:other)") == "other"


def test_live_rows_win_and_can_change():
    made = table("Process = file", "A = job $(Process)")
    made.live["process"] = "1"
    assert made.value("A") == "job 1"
    made.live["process"] = "2"
    assert made.value("A") == "job 2"


def test_boolean_equal_to_the_default_is_spelt_like_it():
    assert table("START = TRUE", defaults={"start": "True"}).value("START") == "True"


def test_random_functions_draw_from_the_given_chance():
    drawn = {table("L = a, b, c", chance=random.Random(seed)).expand("$RANDOM_CHOICE(L)") for seed in range(40)}
    assert drawn == {"a", "b", "c"}
    numbers = {int(table(chance=random.Random(s)).expand("$RANDOM_INTEGER(2,9,3)")) for s in range(40)}
    assert numbers == {2, 5, 8}


def test_hostile_width_is_refused():
    with pytest.raises(ConfigError, match="width"):
        table().expand("$INT(1,%999999999d)")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "$(A" * 20_000,
        "$(A$(B)" * 5000,
        "$(A:" * 20_000,
        "$(A:" * 5000 + ")" * 5000,
        "$INT(" * 20_000,
        "$(DOLLAR)" * 20_000,
    ],
    ids=("unclosed", "tangled", "defaults", "nested", "functions", "dollars"),
)
def test_hostile_text_is_done_with_in_time(text):
    with contextlib.suppress(ConfigError):
        assert len(table().expand(text)) <= len(text)


def test_scoped_name_takes_in_itself_or_the_plain_one():
    made = table("B = 1", "LOC.B = $(LOC.B)x", "LOC.C = $(B)y", prefixes=("LOC",))
    assert made.value("LOC.B") == "x"
    assert table("B = 1", "LOC.B = $(B)x", prefixes=("LOC",)).value("B") == "1x"


def test_references_are_found_inside_defaults_too():
    names = [found.name for found in references("$(A:$(B)) $INT(C) $$(D) $( E )")]
    assert names == ["A", "B", "C"]


def test_origin_tells_file_and_line():
    assert table("A = 1", "B = 2").origin("b") == Source("pool.conf", 2)
