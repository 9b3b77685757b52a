"""The columnar gear means what the evaluator means, row by row. Its traps have a test of their own each."""

import gc
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.classad import ClassAd, PackedError, evaluate, is_true, parse_ad, parse_expr, rank, symmetric_match
from shared.classad.columnar import OTHER_SIDE, ROW_SIDE, Matching, Table, compile_columnar
from shared.classad.columnar.column import Codes, Column
from tests.unit.classad.samples import SEEDS, VALUES, expression, flat_ad

NOW = 5.0


def number(value):
    result = float(value) if isinstance(value, bool | int | float) else 0.0
    return 0.0 if math.isnan(result) else result


def table_of(ads):
    table = Table()
    for key, ad in ads.items():
        table.put(key, ad)
    table.flush()
    return table


def compare(ads, text, job=None, matching=None):
    """Compare an expression on both sides with the evaluator; the mask of the rows' side, by key."""
    expr = parse_expr(text)
    matching = matching or Matching(table_of(ads), NOW)
    job = job or ClassAd()
    for side in (OTHER_SIDE, ROW_SIDE):
        matching.values(expr, job, side)  # the first question may put the table in another order
        values, mask = matching.values(expr, job, side), matching.mask(expr, job, side)
        for key, value, true in zip(matching.table.keys, values, mask, strict=True):
            pair = (ads[key], job) if side == ROW_SIDE else (job, ads[key])
            expected = evaluate(expr, *pair, NOW)
            assert (bool(true), value) == (is_true(expected), number(expected)), (text, side, str(ads[key]), str(job))
    return dict(zip(matching.table.keys, mask.tolist(), strict=True))


def compare_conjuncts(matching, ads, job):
    """All conjuncts together are the match, with and without `apart`; those of a job mean what the evaluator means."""
    for apart in (False, True):
        matching.conjuncts(job, apart)  # a first question may put the table in another order
        everything = np.ones(len(matching.table), bool)
        for conjunct in matching.conjuncts(job, apart):
            assert conjunct.mask.shape == (conjunct.stop - conjunct.start,)
            assert "\0" not in conjunct.text
            everything[conjunct.start : conjunct.stop] &= conjunct.mask
            if conjunct.side == OTHER_SIDE and apart and job.lookup("Requirements") is not None:
                expr = parse_expr(conjunct.text)
                keys = matching.table.keys[conjunct.start : conjunct.stop]
                for key, true in zip(keys, conjunct.mask, strict=True):
                    assert bool(true) is is_true(evaluate(expr, job, ads[key], NOW)), conjunct.text
        assert everything.tolist() == matching.match(job).tolist()


def compare_matches(matching, ads, job):
    for ask in (matching.match, matching.job_rank, matching.row_rank):
        ask(job)  # a first question may put the table in another order
    rows = zip(matching.match(job), matching.job_rank(job), matching.row_rank(job), strict=True)
    for key, (mask, mine, theirs) in zip(matching.table.keys, rows, strict=True):
        assert bool(mask) is symmetric_match(job, ads[key], NOW)
        assert mine == number(rank(job, ads[key], now=NOW))
        assert number(float(theirs)) == number(rank(ads[key], job, now=NOW))
        value = ads[key].eval("Rank", job, NOW)
        assert math.isnan(theirs) is not (isinstance(value, bool | int | float) and not math.isnan(value))


def play(rng, rounds=2):
    """A random table with random changes, compared as a whole."""
    if rng.random() < 0.3:
        owners = "ab"
        policies = [f'a > {n} && TARGET.s == "{owners[n % 2]}" || b + {n}.5 > TARGET.x' for n in range(20)]
    else:
        policies = [expression(rng, rng.choice((1, 2, 3))) for _ in range(rng.choice((1, 2, 4)))]
    ads = {str(n): flat_ad(rng, policies) for n in range(rng.choice((3, 20)))}
    matching = Matching(table_of(ads), NOW)
    for number_of_round in range(rounds):
        for _ in range(2):
            job = flat_ad(rng, policies)
            compare_matches(matching, ads, job)
            compare_conjuncts(matching, ads, job)
            compare(ads, expression(rng, rng.choice((1, 2, 3, 4))), job, matching)
        for key in rng.sample(sorted(ads), 2):
            if rng.random() < 0.3:
                del ads[key]
                matching.table.remove(key)
            else:
                ads[key] = flat_ad(rng, policies)
                matching.table.put(key, ads[key])
        ads[f"new {number_of_round}"] = flat_ad(rng, policies)
        matching.table.put(f"new {number_of_round}", ads[f"new {number_of_round}"])
        matching.table.flush()


@given(st.integers(0, 2**32))
@settings(max_examples=15)
def test_any_table_has_the_evaluators_answers(seed):
    play(random.Random(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_seeded_tables_have_the_evaluators_answers(seed):
    rng = random.Random(seed)
    for _ in range(2):
        play(rng)


MIXED = {str(n): parse_ad(f"[ x = {value} ]") for n, value in enumerate(VALUES)} | {"none": ClassAd()}


# The traps


@pytest.mark.parametrize(
    "text", ["false && x", "x && false", "undefined || x", "x || undefined", "error && x", "x || true"]
)
def test_error_depends_on_the_order_of_operands(text):
    compare(MIXED, text)


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
def test_a_nan_is_a_number_that_is_only_unequal(op):
    for constant in ("1", "1.5", 'real("nan")', "true"):
        compare(MIXED, f"x {op} {constant}")
        compare(MIXED, f"!(x {op} {constant})")


def test_what_is_not_true_need_not_be_false():
    for text in ("!(x > 1)", "(x > 1) || true", "!(x && true)", "(x > 1) =?= false"):
        compare(MIXED, text)


def test_a_string_is_an_error_as_a_boolean_and_a_value_in_a_comparison():
    for text in ("x && true", 'x == "a"', '(x == "a") || (x && true)', "x ? 1 : 2", "!x"):
        compare(MIXED, text)


def test_error_wins_then_undefined_then_a_mix_of_types():
    for text in ('undefined + "a"', 'x + "a"', "x + undefined", "x + error", 'x < "a"', "x == undefined"):
        compare(MIXED, text)


def test_one_and_one_point_zero_and_true_are_kept_apart_in_the_cache():
    ads = {str(n): parse_ad(f"[ x = {value} ]") for n, value in enumerate(("0", "0.0", "false", "-0.0", "1", "true"))}
    matching = Matching(table_of(ads), NOW)
    for value in ("0", "0.0", "false", "-0.0", "1", "1.0", "true"):
        job = parse_ad(f"[ y = {value} ]")
        compare(ads, "MY.x =?= TARGET.y", job, matching)
        compare(ads, "1 / TARGET.y > 0", job, matching)
        compare(ads, f"MY.x =?= {value}", job, matching)


def test_true_and_x_is_the_boolean_of_x():
    for text in ("(true && x) =?= x", "(true && x) + 1", "(false || x) =?= true"):
        compare(MIXED, text)


def test_booleans_keep_their_type():
    for text in ("x =?= 1", "x =?= true", "x == true", "-x", "x + 1", "+x", "~x", "(x == 1) + 1"):
        compare(MIXED, text)


def test_case_is_folded_in_ascii_only():
    assert [key for key, true in compare(MIXED, 'x == "é"').items() if true] == [str(VALUES.index('"é"'))]
    compare(MIXED, 'x == "a"')
    compare(MIXED, 'x =?= "a"')
    compare(MIXED, 'x =!= "a"')


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
def test_integers_wrap_and_divide_as_integers(op):
    for constant in ("1", "2", "-3", "0", "0.0", "2.5", "9223372036854775807", "true"):
        compare(MIXED, f"x {op} {constant}")
        compare(MIXED, f"({constant} {op} x) > 0")


def test_large_integers_are_compared_exactly_and_reals_as_reals():
    for constant in ("9007199254740993", "9007199254740992", "9007199254740992.0", "9223372036854775807"):
        for op in ("==", "<", ">=", "=?=", "!="):
            compare(MIXED, f"x {op} {constant}")
            compare(MIXED, f"(x {op} {constant}) ? x : 0")


def test_plus_infinity_is_an_error_and_minus_infinity_is_not():
    ads = {str(n): parse_ad(f"[ x = {value} ]") for n, value in enumerate(("1e308", "-1e308", "0.0", "-0.0", "1.0"))}
    for text in ("x * 10 > 0", "x * 10 < 0", "(x * 10) =?= error", "1 / x", "x / 0.0", "(x / 0.0) ? 1 : 2"):
        compare(ads, text)


def test_a_rank_that_is_no_number_counts_zero():
    compare(MIXED, "x")
    assert not Matching(table_of(MIXED), NOW).job_rank(parse_ad("[ Rank = undefined ]")).any()


def test_elvis_binds_tighter_than_not():
    compare(MIXED, "!x ?: true")
    compare(MIXED, "(!x) ?: true")


def test_an_unscoped_name_falls_through_row_by_row():
    ads = {"has": parse_ad("[ Limit = 1 ]"), "has not": ClassAd(), "undefined": parse_ad("[ Limit = undefined ]")}
    matching = Matching(table_of(ads), NOW)
    for job in (
        parse_ad("[ Limit = 5 ]"),
        parse_ad('[ Limit = "x" ]'),
        ClassAd(),
        parse_ad("[ Limit = MY.b + 1; b = 2 ]"),
    ):
        compare(ads, "Limit > 3", job, matching)
        compare(ads, "Limit =?= undefined", job, matching)


def test_random_numbers_are_never_cached():
    matching = Matching(table_of({str(n): ClassAd() for n in range(20)}), NOW)
    expr = parse_expr("random()")
    assert not np.array_equal(matching.values(expr), matching.values(expr))
    assert len(set(matching.values(expr).tolist())) > 1


def test_the_clock_drops_what_was_cached():
    matching = Matching(table_of({"a": parse_ad("[ since = 3 ]")}), NOW)
    expr = parse_expr("time() - since")
    assert matching.values(expr).tolist() == [2.0]
    matching.now = 10.0
    assert matching.values(expr).tolist() == [7.0]


# Policies


def test_requirements_that_name_themselves():
    ads = {
        "a": parse_ad("[ Requirements = Requirements =?= undefined ]"),
        "b": parse_ad("[ Requirements = MY.p; p = p ]"),
    }
    compare_matches(Matching(table_of(ads), NOW), ads, parse_ad("[ Requirements = true ]"))


def test_a_row_without_requirements_does_not_borrow_the_jobs():
    ads = {
        "none": ClassAd({"x": 1}),
        "true": parse_ad("[ Requirements = true ]"),
        "one": parse_ad("[ Requirements = 1 ]"),
    }
    compare_matches(Matching(table_of(ads), NOW), ads, parse_ad("[ Requirements = true ]"))


def test_policies_that_differ_in_constants_are_one_shape():
    ads = {
        f"slot{n}": parse_ad(f'[ n = {n}; START = TARGET.Owner == "u{n}" && n >= {n}; Requirements = START && n < 90 ]')
        for n in range(100)
    }
    table = table_of(ads)
    matching = Matching(table, NOW)
    for owner in ("u7", "U8", "u95", "nobody"):
        compare_matches(matching, ads, parse_ad(f'[ Owner = "{owner}"; Requirements = true; Rank = n ]'))
    assert len(table.stretches(["start", "requirements"])) == 1


def test_what_has_no_rule_is_left_to_the_evaluator():
    ads = {str(n): parse_ad(f"[ l = {{ {n}, 2 }}; n = [ v = {n} ]; x = {n} ]") for n in range(4)}
    for text in ("member(2, l)", "n.v > 1", "l[0] == x", 'eval("x + 1") > 2', "size(l) == 2", "TARGET.l[0] == 3"):
        compare(ads, text, parse_ad("[ l = { 3 } ]"))


def test_an_ad_that_defines_target_is_seen():
    ads = {"odd": parse_ad("[ TARGET = [ x = 1 ]; Requirements = TARGET.x == 1 ]"), "plain": parse_ad("[ x = 1 ]")}
    compare_matches(Matching(table_of(ads), NOW), ads, parse_ad("[ x = 2; Requirements = true ]"))


def test_questions_asked_together_have_one_order_of_rows():
    ads = {str(n): parse_ad(f"[ x = {n}; p = x {'<>'[n % 2]} TARGET.y; Requirements = true ]") for n in range(20)}
    matching = Matching(table_of(ads), NOW)
    job = parse_ad("[ y = 7; Requirements = true; Rank = TARGET.p ? TARGET.x : 0 ]")
    x = parse_expr("x")
    values, ranks = matching.together(lambda: (matching.values(x, job), matching.job_rank(job)))
    assert [float(ads[key]["x"]) for key in matching.table.keys] == values.tolist()
    assert [rank(job, ads[key], now=NOW) for key in matching.table.keys] == ranks.tolist()


# The table


def test_changes_are_seen_after_a_flush():
    table = table_of({"a": parse_ad("[ x = 1 ]"), "b": parse_ad("[ x = 2 ]")})
    column = compile_columnar(parse_expr("x > 1"), table, NOW)
    assert column.mask().tolist() == [False, True]
    table.put("a", parse_ad("[ x = 3 ]"))
    table.remove("b")
    assert column.mask().tolist() == [False, True]
    assert table.flush() == 2
    assert column.mask().tolist() == [True]
    assert "b" not in table
    assert table.ad(table.row("a"))["x"] == 3


def test_an_ad_that_can_not_be_read_is_dropped_alone():
    table = Table()
    table.put("good", parse_ad("[ x = 1 ]"))
    table.put("bad", b"\xc1")
    with pytest.raises(PackedError, match="bad"):
        table.flush()
    assert table.flush() == 1
    assert list(table.keys) == ["good"]


def test_those_that_can_not_be_read_leave_nothing_for_collections_of_garbage():
    table = Table()
    for n in range(20):
        table.put(f"bad{n}", b"\xc1")
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(PackedError, match=r"^20 of the ads can not be read, the first is bad0: not a packed ad"):
            table.flush()
        assert gc.collect() < 20
    finally:
        gc.enable()


def test_an_empty_table_has_empty_answers():
    matching = Matching(Table(), NOW)
    assert matching.match(parse_ad("[ Requirements = TARGET.x > 1 ]")).shape == (0,)
    assert matching.values(parse_expr("x")).shape == (0,)


def test_a_full_cache_forgets_the_oldest():
    ads = {str(n): parse_ad(f"[ x = {n} ]") for n in range(50)}
    matching = Matching(table_of(ads), NOW, cache_bytes=200)
    for limit in (1, 2, 3, 40, 1):
        compare(ads, "x > TARGET.limit", ClassAd({"limit": limit}), matching)


def test_an_ad_is_kept_packed():
    ad = parse_ad("[ x = 1; Requirements = x > TARGET.y ]")
    table = table_of({"a": ad})
    Matching(table, NOW).match(parse_ad("[ y = 0; Requirements = true ]"))
    assert table.ad(0).pack() == ad.pack()


def test_conjuncts_tell_what_stops_whom():
    owners = [f"user{n}" for n in range(20)]
    slot = '[ Memory = {memory}; Start = TARGET.Owner == "{owner}" && TARGET.Nice; Requirements = Start && Memory > 1 ]'
    ads = {o: parse_ad(slot.format(owner=o, memory=2 * n)) for n, o in enumerate(owners)}
    job = parse_ad(
        '[ Owner = "user7"; Nice = true; Requirements = TARGET.Memory >= 20 && (true && regexp("^u", "u")) ]'
    )
    matching = Matching(table_of(ads), NOW)
    found = matching.together(lambda: matching.conjuncts(job))
    # the owners' names differ from row to row
    assert [(c.side, c.text, int(c.mask.sum())) for c in found] == [
        (OTHER_SIDE, "TARGET.Memory >= 20", 10),
        (OTHER_SIDE, "true", 20),
        (OTHER_SIDE, 'regexp("^u","u")', 20),
        (ROW_SIDE, "TARGET.Owner == ...", 1),
        (ROW_SIDE, "TARGET.Nice", 20),
        (ROW_SIDE, "Memory > 1", 19),
    ]


def test_conjuncts_that_need_the_evaluator_are_asked_where_all_else_holds():
    ads = {str(n): parse_ad(f"[ Memory = {n}; Parts = {{ {n}, 7 }}; Requirements = true ]") for n in range(6)}
    job = parse_ad("[ Requirements = TARGET.Parts[0] > 3 && TARGET.Memory < 5 ]")
    matching = Matching(table_of(ads), NOW)
    plain = [
        (c.text, c.mask.tolist()) for c in matching.together(lambda: matching.conjuncts(job)) if c.side == OTHER_SIDE
    ]
    assert np.logical_and.reduce([mask for _, mask in plain]).tolist() == [False] * 4 + [True, False]
    apart = matching.together(lambda: matching.conjuncts(job, apart=True))
    assert [(c.text, int(c.mask.sum())) for c in apart if c.side == OTHER_SIDE] == [
        ("TARGET.Parts[0] > 3", 2),
        ("TARGET.Memory < 5", 5),
    ]


def test_a_job_without_requirements_fails_at_its_requirements():
    matching = Matching(table_of({"a": parse_ad("[ Requirements = true ]")}), NOW)
    mine, theirs = matching.conjuncts(ClassAd())
    assert (mine.side, mine.text, mine.mask.tolist()) == (OTHER_SIDE, "Requirements", [False])
    assert (theirs.side, theirs.text, theirs.mask.tolist()) == (ROW_SIDE, "Requirements", [True])


@pytest.mark.parametrize("text", ["TARGET.Parts[Number] > 3", 'strcat(TARGET.Name, Number) == "77"'])
def test_patience_ends_a_question_and_nothing_else(text):
    ads = {str(n): parse_ad(f'[ Parts = {{ {n}, 7 }}; Name = "{n}"; Requirements = true ]') for n in range(20)}
    matching = Matching(table_of(ads), NOW)
    job = ClassAd({"Requirements": parse_expr(text), "Number": 0})
    left = 5

    def patience():
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError

    matching.patience = patience
    with pytest.raises(TimeoutError):
        matching.match(job)
    matching.patience = None
    fresh = Matching(matching.table, NOW)
    assert matching.match(job).tolist() == fresh.match(job).tolist()


_CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(),
    st.sampled_from(["a", "A", "\u00e9", "", "b"]),
    st.sampled_from([parse_expr("x + 1"), parse_expr("undefined"), parse_expr("error")]),
)
_ONE_KIND = st.sampled_from(
    [
        st.integers(-3, 2**54),
        st.floats(),
        st.booleans(),
        st.text(max_size=2),
        st.none(),
        st.sampled_from([None, "a", "B"]),
    ]
)


@settings(max_examples=300)
@given(cells=st.one_of(st.lists(_CELLS, max_size=12), _ONE_KIND.flatmap(lambda kind: st.lists(kind, max_size=12))))
def test_columns_of_one_kind_are_made_as_all_others_are(cells):
    """The quick way for what is all numbers or all texts, and the one by one."""
    codes, others = Codes(), Codes()
    quick, slow = Column.of(cells, codes), Column._one_by_one(cells, others)
    assert codes.texts == others.texts
    assert codes.folded == others.folded
    assert quick.tags == slow.tags
    for name in ("tag", "number", "code", "folded", "exact"):
        one, other = getattr(quick, name), getattr(slow, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
            assert np.signbit(one).tolist() == np.signbit(other).tolist() if name == "number" else True


# What is kept from one moment to another


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_kept_is_mended_where_rows_change(seed):
    """One Matching through many changes, with the same jobs read anew, against the evaluator."""
    rng = random.Random(seed)
    policies = [expression(rng, rng.choice((1, 2, 3))) for _ in range(3)] + ["a > time() - 4", 'TARGET.s == "b" && x']
    ads = {str(n): flat_ad(rng, policies) for n in range(40)}
    matching = Matching(table_of(ads), NOW)
    jobs = [flat_ad(rng, policies).pack() for _ in range(4)]
    for _ in range(6):
        matching.now = NOW
        for packed in jobs:
            job = ClassAd.unpack(packed)
            matching.hold(job)
            compare_matches(matching, ads, job)
        for key in rng.sample(sorted(ads), rng.choice((0, 1, 3, 20))):
            ads[key] = flat_ad(rng, policies)
            matching.table.put(key, ads[key])
        matching.table.flush()


def test_a_rank_with_the_text_of_the_requirements_is_another_thing():
    job = parse_ad("[ Requirements = TARGET.a; Rank = TARGET.a ]")
    ads = {"1": parse_ad("[ a = 3; Requirements = true ]"), "2": parse_ad("[ a = 0; Requirements = true ]")}
    matching = Matching(table_of(ads), NOW)
    for _ in range(3):
        compare_matches(matching, ads, job)


def test_a_kept_result_takes_the_type_of_a_changed_cell_into_account():
    job = parse_ad("[ Requirements = TARGET.a =?= 1; Rank = TARGET.a ]")
    matching = Matching(table_of({str(n): parse_ad("[ a = 1; Requirements = true ]") for n in range(9)}), NOW)
    for value in ("1.0", "true", "1", '"1"', "undefined", "error"):
        ad = parse_ad(f"[ a = {value}; Requirements = true ]")
        matching.match(job)
        matching.table.put("4", ad)
        matching.table.flush()
        assert dict(zip(matching.table.keys, matching.match(job).tolist(), strict=True))["4"] is (value == "1")
        ranks = dict(zip(matching.table.keys, matching.job_rank(job).tolist(), strict=True))
        assert ranks["4"] == (1.0 if value in ("1.0", "true", "1") else 0.0)


def test_an_ad_that_is_written_to_after_it_was_held_is_another_one():
    job = ClassAd.unpack(parse_ad("[ b = 5; Requirements = TARGET.a > MY.b ]").pack())
    matching = Matching(table_of({"1": parse_ad("[ a = 7; Requirements = true ]")}), NOW)
    matching.hold(job)
    assert matching.match(job).tolist() == [True]
    job["b"] = 9
    matching.now = NOW + 1
    assert matching.match(job).tolist() == [False]
    again = ClassAd.unpack(parse_ad("[ b = 5; Requirements = TARGET.a > MY.b ]").pack())
    matching.hold(again)
    assert matching.match(again).tolist() == [True]


def test_what_nobody_asks_for_any_more_is_forgotten():
    matching = Matching(table_of({str(n): parse_ad(f"[ a = {n}; Requirements = true ]") for n in range(1000)}), NOW)
    sizes = []
    for moment in range(400):
        matching.now = NOW + moment
        job = parse_ad(f"[ b = {moment}; Requirements = TARGET.a > MY.b; Rank = {moment}.5 ]")
        matching.hold(job)
        matching.match(job)
        matching.job_rank(job)
        sizes.append(matching.cached_bytes)
    assert max(sizes[200:]) <= max(sizes[:200])


def test_a_table_tells_which_rows_changed():
    table = table_of({str(n): parse_ad(f"[ a = {n}; b = 1; Requirements = a ]") for n in range(5)})
    table.want(["a", "b"])
    first = table.version
    table.put("3", parse_ad("[ a = 3; b = 2; Requirements = a ]"))
    table.flush()
    row = table.row("3")
    assert table.changed_rows(["a"], first).tolist() == []
    assert table.changed_rows(["a", "b"], first).tolist() == [row]
    assert table.changed_rows(["b"], table.version).tolist() == []
    table.put("new", parse_ad("[ a = 1 ]"))
    table.flush()
    assert table.changed_rows(["b"], first) is None
