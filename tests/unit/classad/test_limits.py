"""Hostile input ends in a ParseError or in ERROR: no recursion error, no stall, no crash, in whatever thread."""

import contextlib
import importlib
import itertools
import sys
import threading

import pytest

from shared.classad import (
    ERROR,
    ClassAd,
    ParseError,
    ads_to_json,
    evaluate,
    flatten,
    from_json,
    parse_ad,
    parse_ads,
    parse_expr,
    references,
    to_json,
    to_xml,
    unparse,
)
from shared.classad.compiled.plan import MAX_CALLS, Planner, Unplannable


def value(text, my=None):
    return evaluate(parse_expr(text), my)


def chain(length, link="a{}"):
    """a0 refers to a1, that to a2, and so on to a constant."""
    lines = [f"a{n} = {link.format(n + 1)}" for n in range(length)]
    return parse_ad("\n".join([*lines, f"a{length} = 1"]), "old")


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda n: "(" * n + "1" + ")" * n, 165),
        (lambda n: "{" * n + "1" + "}" * n, 165),
        (lambda n: "[a=" * n + "1" + "]" * n, 165),
        (lambda n: "f(" * n + "1" + ")" * n, 165),
        (lambda n: "a[" * n + "1" + "]" * n, 165),
        (lambda n: "!" * n + "a", 497),
        (lambda n: "a?b:" * n + "c", 497),
        (lambda n: "a?:" * n + "c", 497),
        (lambda n: "!(" * n + "1" + ")" * n, 124),
    ],
)
def test_nesting_is_bounded_as_in_the_reference(make, limit):
    text = make(limit)
    assert unparse(parse_expr(unparse(parse_expr(text)))) == unparse(parse_expr(text))
    for beyond in (limit + 1, 100_000):
        with pytest.raises(ParseError, match="nested deeper"):
            parse_expr(make(beyond))


@pytest.mark.parametrize(
    ("link", "limit"),
    [("a{}", 399), ("(a{})", 199), ("0 + a{}", 199), ("- -a{}", 133), ("MY.a{}", 398), ("true && a{}", 199)],
)
def test_chains_of_references_are_bounded_as_in_the_reference(link, limit):
    assert evaluate(parse_expr("a0"), chain(limit, link)) in (1, True)
    for beyond in (limit + 1, 3000):
        assert evaluate(parse_expr("a0"), chain(beyond, link)) is ERROR
        assert evaluate(parse_expr("false && a0"), chain(beyond, link)) is False


#: So long that what grows with its square takes a minute and more, of which each test has one: a tenth of a second is
#: usual.
LENGTH = 30_000


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "+".join(["1"] * LENGTH),
        "&&".join(["true"] * LENGTH),
        "a" + ".b" * LENGTH,
        "a" + "[0]" * LENGTH,
        "{" + "1," * LENGTH + "1}",
        "f(" + "1," * LENGTH + "1)",
        '"' + "x" * 10 * LENGTH + '"',
        "'" + "\\\\" * 3 * LENGTH + "'",
        "[" + "a = 1;" * LENGTH + "]",
        "/*" + "*" * 3 * LENGTH + "*/ 1",
    ],
)
def test_what_is_long_and_not_deep_is_handled_in_linear_time(text):
    expr = parse_expr(text)
    assert len(unparse(expr)) > 0
    evaluate(expr)
    references(expr)
    flatten(expr)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1_000_000,
        "/*" * 500_000,
        '"' * 999_999,
        "'" * 999_999,
        "-" * 1_000_000,
        "?:" * 500_000,
        "\\" * 1_000_000,
        "1e" * 500_000,
    ],
)
def test_a_megabyte_of_junk_is_refused(text):
    with pytest.raises(ParseError):
        parse_expr(text)
    with contextlib.suppress(ParseError):  # where an expression ends, old syntax ignores the rest
        parse_ad("a = " + text, "old")


@pytest.mark.parametrize("name", ["absTime", "relTime"])
@pytest.mark.parametrize(
    "text", [" " * 50_000 + "x", "1 " * 30_000, "z" + " " * 50_000 + "x", "1" * 300_000 + "x", "1:" * 50_000]
)
def test_a_long_text_that_is_no_time_is_refused_at_once(name, text):
    with pytest.raises(ParseError):
        parse_expr(f'{name}("{text}")')
    value(f'{name}(strcat("{text}"))')


DOUBLING = {
    "operators": "\n".join(f"a{n} = a{n + 1} + a{n + 1}" for n in range(60)) + "\na60 = 1",
    "lists": "\n".join(f"a{n} = {{a{n + 1}, a{n + 1}}}" for n in range(60)) + "\na60 = 1",
    "ads": "\n".join(f"a{n} = [x = a{n + 1}.x + a{n + 1}.x]" for n in range(60)) + "\na60 = [x = 1]",
    "conditions": "\n".join(f"a{n} = a{n + 1} ? a{n + 1} : a{n + 1}" for n in range(60)) + "\na60 = true",
}


@pytest.mark.parametrize("kind", DOUBLING)
def test_exponential_work_is_cut_off(kind):
    ad = parse_ad(DOUBLING[kind], "old")
    answer = evaluate(parse_expr("a0.x" if kind == "ads" else "a0"), ad)
    assert answer is ERROR or isinstance(answer, list)
    unparse(flatten(parse_expr("a0"), ad))
    references(parse_expr("a0"), my=ad)


@pytest.mark.parametrize(
    "text",
    [
        "{a[0]}",
        "a[0]",
        "{a}",
        "{a}[0][0]",
        "{a[0].b}.b",
        "[b = a.b].b",
        "{a[0]}.x",
        "a.a",
        "TARGET.a",
        "{{a}, a}",
        "a[a]",
        "a ?: a",
    ],
)
def test_what_goes_round_in_circles_ends(text):
    ad, other = parse_ad(f"[a = {text}]"), parse_ad(f"[a = {text}]")
    for target in (None, other, ad):
        evaluate(parse_expr("a"), ad, target)
        evaluate(parse_expr("a[0].a"), ad, target)


def run_in_a_thread(work):
    raised = []

    def target():
        try:
            work()
        except BaseException as fault:  # handed to the test below
            raised.append(fault)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert raised == []


def test_the_deepest_of_everything_works_in_a_thread_and_near_the_recursion_limit():
    limit = sys.getrecursionlimit()

    def deepest():
        for text in ("(" * 165 + "1" + ")" * 165, "{" * 165 + "1" + "}" * 165, "[a=" * 165 + "1" + "]" * 165):
            expr = parse_expr(text)
            evaluate(expr)
            flatten(expr)
            ad = ClassAd({"x": expr})
            assert from_json(to_json(ad)).text("x") is not None
            to_xml(ad)
            ads_to_json([ad])
        evaluate(parse_expr("a0"), chain(2000, "{{a{}}}[0]".replace("{{", "{{{{").replace("}}[", "}}}}[").format("{}")))

    def below(frames):
        return below(frames - 1) if frames else deepest()

    deepest()
    run_in_a_thread(deepest)
    below(limit - len_of_stack() - 120)
    assert sys.getrecursionlimit() == limit


def len_of_stack():
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def test_deep_json_is_refused():
    for text in ('{"a":' * 100_000, '{"a":' + "[" * 100_000):
        with pytest.raises(ParseError):
            from_json(text)


def test_many_different_lines_names_and_texts_do_not_fill_the_memory(monkeypatch):
    from shared.classad import cells, expr, old
    from shared.classad import unparse as printer  # noqa: F401  (the module is read below)

    monkeypatch.setattr(old, "_CACHE_LIMIT", 2000)
    monkeypatch.setattr(cells, "_TEXTS_LIMIT", 2000)
    monkeypatch.setattr(expr, "_CACHE_LIMIT", len(expr.FOLDED) + 1000)  # what is in it stays
    for ad in parse_ads("\n\n".join(f"Name{n} = Other{n} + {n}" for n in range(5000))):
        ClassAd.unpack(ad.pack()).check()
    assert len(old._lines) <= old._CACHE_LIMIT
    assert len(expr.FOLDED) <= expr._CACHE_LIMIT
    assert len(cells._TEXTS) <= cells._TEXTS_LIMIT


EVALUATE = importlib.import_module("shared.classad.evaluate")
LONG = "x" * (EVALUATE.LONG_TEXT + 1)


@pytest.fixture
def slow_calls(monkeypatch):
    """A processor that needs a second for whatever is timed."""
    monkeypatch.setattr(EVALUATE, "thread_time", itertools.count().__next__)


@pytest.mark.usefixtures("slow_calls")
@pytest.mark.parametrize(
    "text",
    [
        'regexp("a", "b")',
        'replaceall("a", "b", "c")',
        'stringList_regexpMember("a", "b")',
        'eval("1")',
        "unparse(list)",
        "unresolved(list)",
        "countMatches(true, list)",
        "evalInEachContext(true, list)",
        "formatTime(1)",
        'userMap("nobody", "a")',
        "size(split(long))",
        "stringListSize(long)",
        "toUpper(long)",
        "sum({1, 2})",
        "member(1, {1, 2})",
        "string([a = 1])",
        'long == "a" || long == other',
        "long < other",
        "long =?= other",
    ],
)
def test_what_one_step_can_be_slow_in_costs_its_processor_time(text):
    ad = ClassAd({"long": LONG, "other": LONG + "y", "list": [1, 2]})
    assert value(f"({text}) is 77 || 1 + 1 == 2", ad) is ERROR


@pytest.mark.usefixtures("slow_calls")
@pytest.mark.parametrize("text", ['strcat("a", "b")', "floor(1.5)", '"a" == "b"', "1 + 1", "2 ?: 3", "member"])
def test_the_clock_is_not_asked_for_what_is_quick(text):
    assert value(f"({text}) is 77 || 1 + 1 == 2", ClassAd()) is True


def test_time_inside_a_timed_call_is_not_counted_twice(monkeypatch):
    """Each eval() takes 60 % of the budget, of which the one inside takes all."""
    monkeypatch.setattr(EVALUATE, "thread_time", iter((0.0, 0.0, 0.03, 0.03)).__next__)
    assert value('eval("eval(\\"1\\")") + 1') == 2


def test_items_of_nested_lists_cost_steps():
    """Each level has twice the items of the one below it, in two steps."""
    levels = 9
    ad = parse_ad("\n".join(f"a{n} = {{a{n + 1}, a{n + 1}}}" for n in range(levels)), "old")
    for count in (2, 1000):
        ad.set_text(f"a{levels}", "{" + ", ".join(["1"] * count) + "}")
        assert (evaluate(parse_expr("a0"), ad) is ERROR) == (count == 1000)


@pytest.mark.parametrize(("calls", "fits"), [(MAX_CALLS, True), (MAX_CALLS + 1, False)])
def test_a_plan_has_so_many_calls_and_no_more(calls, fits):
    expr = parse_expr("&&".join(f"floor({n}.5) != {n + 1}" for n in range(calls)))
    with contextlib.nullcontext() if fits else pytest.raises(Unplannable, match="many calls"):
        Planner(None, None).plan(expr)
