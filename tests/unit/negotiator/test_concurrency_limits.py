"""Concurrency limits: LIM-01 to LIM-14, worked examples W-27 to W-32."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.match.concurrency_limits import (
    LimitConfig,
    LimitCounters,
    WantedBySlot,
    counts_in,
    counts_of,
    explain,
    held_by,
)
from engine.policy import limit_config
from shared.classad import ClassAd, parse_ad
from shared.classad.columnar import Table
from shared.config import load_config
from shared.config.knobs import NegotiatorSettings
from shared.job_limits import MAX_NAMES, MAX_UNITS, TOO_MANY, depends_on_slot, parse, text_of, wanted
from tests.spec import spec

NOW = 1_000_000.0
SLOT = ClassAd({"Name": "slot1@a"})


def config_of(text, tmp_path):
    path = tmp_path / "condor_config"
    path.write_text(text)
    config = load_config([path], subsystem="NEGOTIATOR", env={})
    return limit_config(NegotiatorSettings.from_config(config))


def job(text):
    return parse_ad(f"[{text}]")


def start(counters, jobs, slots):
    """Give each job the first slot that its limits let it have. Returns the slots given, None for none."""
    free, given_to = list(slots), []
    for ad in jobs:
        for slot in free:
            wants = wanted(ad, slot, NOW)
            if not counters.blocking(wants):
                counters.take(wants)
                free.remove(slot)
                given_to.append(slot)
                break
        else:
            given_to.append(None)
    return given_to


def running(counters, jobs, slots):
    return sum(slot is not None for slot in start(counters, jobs, slots))


def slots(count, text=""):
    return [parse_ad(f'[Name = "slot{n}@a"; {text}]') for n in range(count)]


# What may run


@spec("LIM-01", "W-27")
def test_named_limit_caps_running_jobs_and_lets_the_next_start_when_one_ends(tmp_path):
    config = config_of("XSW_LIMIT = 3\n", tmp_path)
    counters, jobs = LimitCounters(config), [job('ConcurrencyLimits = "xsw"')] * 5
    assert running(counters, jobs, slots(10)) == 3
    counters.give_back(parse("xsw"))
    assert running(counters, jobs[:2], slots(10)) == 1


@spec("LIM-04", "W-28")
@pytest.mark.parametrize(("text", "runs"), [("CONCURRENCY_LIMIT_DEFAULT = 1\n", 1), ("", 5)])
def test_default_limit_and_none(tmp_path, text, runs):
    jobs = [job('ConcurrencyLimits = "whatever"')] * 5
    assert running(LimitCounters(config_of(text, tmp_path)), jobs, slots(5)) == runs


@spec("LIM-06", "W-29")
def test_units(tmp_path):
    wants = parse("XSW, DATABASE, FILESERVER:3")
    assert wants == (("xsw", 1.0), ("database", 1.0), ("fileserver", 3.0))
    counters = LimitCounters(config_of("FILESERVER_LIMIT = 7\n", tmp_path))
    assert counters.room(wants) == 2
    assert running(counters, [job('ConcurrencyLimits = "xsw,database,fileserver:3"')] * 4, slots(4)) == 2
    assert counters.in_use == {"xsw": 2.0, "database": 2.0, "fileserver": 6.0}


@spec("LIM-06")
@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("a", 1.0),
        ("a:1", 1.0),
        ("a:2.5", 2.5),
        ("a:.5", 0.5),
        ("a:0", 1.0),
        ("a:-3", 1.0),
        ("a:", 1.0),
        ("a:x", 1.0),
        ("a:3x", 3.0),
        ("a:1e2", 100.0),
        ("a:nan", 1.0),
        ("a:inf", 1.0),
        ("a:1e999", MAX_UNITS),
        ("a a", 2.0),
        ("a:2 A:3", 5.0),
    ],
)
def test_units_that_are_no_number_above_zero_count_as_one(text, units):
    assert parse(text) == (("a", units),)


@spec("LIM-05", "W-30")
def test_sets_have_a_counter_for_each_name(tmp_path):
    config = config_of(
        "CONCURRENCY_LIMIT_DEFAULT = 5\nCONCURRENCY_LIMIT_DEFAULT_LARGE = 100\nCONCURRENCY_LIMIT_DEFAULT_SMALL = 25\n"
        "LARGE.OWN_LIMIT = 7\n",
        tmp_path,
    )
    names = ("large.swlicense", "large.dbsession", "small.x", "other.license", "large", "large.own")
    assert [config.capacity(name) for name in names] == [100, 100, 25, 5, 5, 7]
    counters = LimitCounters(config)
    counters.take(parse("LARGE.SWLICENSE"), 100)
    assert counters.blocking(parse("large.swlicense")) == "large.swlicense"
    assert counters.blocking(parse("large.dbsession")) == ""


NETWORKS = [*slots(15, 'Network = "NETWORK_A"'), *slots(15, 'Network = "NETWORK_B"')]


@spec("LIM-08", "W-31")
def test_expression_is_evaluated_for_each_slot_and_skips_only_full_ones(tmp_path):
    config = config_of("NETWORK_A_LIMIT = 10\nNETWORK_B_LIMIT = 10\n", tmp_path)
    got = start(LimitCounters(config), [job("ConcurrencyLimits = TARGET.Network")] * 30, NETWORKS)
    networks = [slot["Network"] for slot in got if slot is not None]
    assert (networks.count("NETWORK_A"), networks.count("NETWORK_B")) == (10, 10)


@spec("LIM-09", "W-31")
def test_expression_with_two_limits(tmp_path):
    config = config_of("NETWORK_A_LIMIT = 10\nNETWORK_B_LIMIT = 10\nSWX_LIMIT = 15\n", tmp_path)
    jobs = [job('ConcurrencyLimits = strcat("SWX:2 ", TARGET.Network)')] * 30
    counters = LimitCounters(config)
    assert running(counters, jobs, NETWORKS) == 7
    assert counters.in_use["swx"] == 14


@spec("LIM-09")
@pytest.mark.parametrize("text", ["a,b", "a b", "a, b", " a ,,b\t", "a\nb"])
def test_blanks_and_commas_part_names(text):
    assert parse(text) == (("a", 1.0), ("b", 1.0))


@spec("LIM-03", "LIM-13", "W-32")
@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("9abc", False),
        ("a.b.c", False),
        ("a-b", False),
        ("a.", False),
        (".b", False),
        ("a.9", False),
        ("ä", False),
        ("", False),
        ("A_1.b", True),
        ("_x", True),
    ],
)
def test_names(name, good):
    assert bool(parse(name)) is good


@spec("LIM-03", "W-32")
def test_names_do_not_tell_cases_apart():
    assert parse("XSW") == parse("xsw")


@spec("LIM-13")
def test_malformed_names_are_left_out_and_the_default_does_not_hit_them(tmp_path):
    config = config_of("CONCURRENCY_LIMIT_DEFAULT = 0\n", tmp_path)
    assert LimitCounters(config).blocking(parse("9abc:4 a.b.c")) == ""
    assert parse("9abc xsw:2 a-b") == (("xsw", 2.0),)


@spec("LIM-07")
def test_room_is_needed_in_every_limit():
    config = LimitConfig({"a": 1.0, "b": 2.0})
    counters = LimitCounters(config, {"a": 1.0})
    assert counters.blocking(parse("b a")) == "a"
    assert counters.blocking(parse("b")) == ""
    assert counters.room(parse("b a")) == 0
    assert counters.room(parse("b")) == 2
    assert counters.room(parse("free")) == math.inf
    assert counters.room(()) == math.inf


@spec("LIM-02")
@pytest.mark.parametrize("universe", [7, 9, 12])
def test_scheduler_grid_and_local_jobs_take_nothing(universe):
    assert wanted(job(f'ConcurrencyLimits = "a"; JobUniverse = {universe}'), SLOT, NOW) == ()
    assert not depends_on_slot(job(f"ConcurrencyLimits = TARGET.x; JobUniverse = {universe}"))
    assert wanted(job('ConcurrencyLimits = "a"; JobUniverse = 5'), SLOT, NOW) == (("a", 1.0),)


@pytest.mark.parametrize("universe", ["{7}", "[a = 7]", '"7"', "1/0", "NoSuchThing"])
def test_a_universe_that_is_no_number_breaks_no_cycle(universe):
    odd = job(f'ConcurrencyLimits = "a"; JobUniverse = {universe}')
    assert wanted(odd, SLOT, NOW) == (("a", 1.0),)
    assert not depends_on_slot(odd)


def test_limits_and_units_are_floating_point():
    counters = LimitCounters(LimitConfig({"a": 2.5, "tenths": 1.0}))
    assert counters.room(parse("a")) == 2
    assert counters.room(parse("tenths:0.1")) == 10
    counters.take(parse("tenths:0.1"), 9)
    assert counters.blocking(parse("tenths:0.1")) == ""


@spec("LIM-11")
def test_a_limit_that_is_exceeded_only_keeps_further_jobs_out():
    counters = LimitCounters(LimitConfig({"a": 3.0}), {"a": 5.0})
    assert counters.blocking(parse("a")) == "a"
    assert counters.room(parse("a")) == 0
    assert counters.in_use == {"a": 5.0}
    assert "5 of 3" in explain(counters.config, "a", 5.0)


# What is in use


@spec("LIM-12")
def test_counts_come_from_claimed_and_preempting_slots_and_from_matches_under_way():
    ads = [
        parse_ad('[State = "Claimed"; ConcurrencyLimits = "xsw,net:2"]'),
        parse_ad('[State = "Claimed"; ConcurrencyLimits = "xsw"; PreemptingConcurrencyLimits = "XSW:3 db"]'),
        parse_ad('[State = "Unclaimed"]'),
        parse_ad("[ConcurrencyLimits = 7]"),
    ]
    assert held_by(ads[1]) == (("xsw", 4.0), ("db", 1.0))
    assert counts_of(ads, [(parse("db:2"), 3)]) == {"xsw": 5.0, "net": 2.0, "db": 7.0}


texts = st.sampled_from(['"xsw"', '"xsw:2 db"', '"9bad, db"', 'strcat("n", "et")', "undefined", "7", "Other", '"XSW"'])


@spec("LIM-12")
@given(st.lists(st.dictionaries(st.sampled_from(["ConcurrencyLimits", "PreemptingConcurrencyLimits"]), texts)))
def test_a_table_of_slots_is_counted_like_its_ads(slots):
    ads = [
        parse_ad('[Other = "db:3"; ' + "; ".join(f"{name} = {text}" for name, text in slot.items()) + "]")
        for slot in slots
    ]
    table = Table()
    for number, ad in enumerate(ads):
        table.put(f"slot{number}", ad)
    table.flush()
    assert counts_in(table, [(parse("xsw"), 2)]) == counts_of(ads, [(parse("xsw"), 2)])


def test_what_is_given_back_is_free_again_and_leaves_nothing_behind():
    counters = LimitCounters(LimitConfig({"a": 1.0}))
    for _ in range(100):
        counters.take(parse("a:0.1 b"))
    for _ in range(100):
        counters.give_back(parse("a:0.1 b"))
    assert counters.in_use == {}


names = st.sampled_from(["xsw", "net", "large.a", "large.b", "_1"])
units = st.one_of(st.integers(1, 9), st.floats(0.125, 8, width=16), st.floats(1e-3, 1e8))


@given(st.dictionaries(names, units))
def test_the_text_in_a_slots_ad_reads_back(found):
    wants = tuple((name, float(amount)) for name, amount in found.items())
    again = parse(text_of(wants))
    assert [name for name, _ in again] == [name for name, _ in wants]
    assert [amount for _, amount in again] == pytest.approx([amount for _, amount in wants], rel=1e-12)


@given(st.text(), st.lists(st.text("aA1.:, -e", max_size=8)).map(",".join))
def test_any_text_is_read(text, alike):
    for wants in (parse(text), parse(alike)):
        assert len({name for name, _ in wants}) == len(wants)
        assert all(0 < amount <= MAX_UNITS for _, amount in wants)


@given(st.lists(st.tuples(names, st.integers(1, 5)), max_size=30), st.dictionaries(names, st.integers(0, 12)))
def test_no_limit_is_ever_passed_and_room_tells_how_far_it_is(asked, capacities):
    counters = LimitCounters(LimitConfig({name: float(most) for name, most in capacities.items()}))
    for name, amount in asked:
        wants = ((name, float(amount)),)
        assert (counters.room(wants) >= 1) is (not counters.blocking(wants))
        if not counters.blocking(wants):
            counters.take(wants)
    for name, most in capacities.items():
        assert counters.in_use.get(name, 0) <= most


# The job's side


@spec("LIM-08")
@pytest.mark.parametrize(
    ("text", "depends"),
    [
        ('ConcurrencyLimits = "xsw"', False),
        ("", False),
        ('ConcurrencyLimits = strcat("a", ":", Units); Units = 2', False),
        ("ConcurrencyLimits = TARGET.Network", True),
        ("ConcurrencyLimits = Network", True),
        ('ConcurrencyLimits = Where; Where = ifThenElse(TARGET.x > 1, "a", "b")', True),
    ],
)
def test_whether_the_slot_makes_a_difference(text, depends):
    assert depends_on_slot(job(text)) is depends


@pytest.mark.parametrize("text", ["", "ConcurrencyLimits = 3", "ConcurrencyLimits = TARGET.none", 'X = "a"'])
def test_what_is_no_string_asks_for_nothing(text):
    assert wanted(job(text), SLOT, NOW) == ()


def test_a_job_with_endless_names_gets_nothing_instead_of_all_the_time(tmp_path):
    text = ",".join(f"n{number}" for number in range(MAX_NAMES + 1))
    assert parse(text) == ((TOO_MANY, 1.0),)
    counters = LimitCounters(config_of("", tmp_path))
    assert counters.blocking(parse(text)) == TOO_MANY
    assert str(MAX_NAMES) in explain(counters.config, TOO_MANY, 0)
    assert len(parse(text.rpartition(",")[0])) == MAX_NAMES


# The knobs


@spec("LIM-05")
def test_limits_are_numbers_or_expressions_and_names_know_no_case(tmp_path):
    config = config_of("XSW_limit = 2 * 5\nNEGOTIATOR.net_LIMIT = 2.5\nempty_LIMIT =\n", tmp_path)
    assert [config.capacity(name) for name in ("xsw", "net", "empty")] == [10, 2.5, math.inf]


def test_a_limit_that_is_no_number_hurts_only_those_who_ask_for_it(tmp_path):
    config = config_of("XSW_LIMIT = three\nMEMORY_LIMIT = TARGET.RequestMemory * 2\nNET_LIMIT = 1\n", tmp_path)
    counters = LimitCounters(config)
    assert counters.blocking(parse("net")) == ""
    assert counters.blocking(parse("xsw")) == "xsw"
    assert "XSW_LIMIT = three" in explain(config, "xsw", 0)


@given(
    st.lists(st.sampled_from((None, "", "a", "a:2", "b", "a, b:0.5", "c", "9bad")), max_size=12),
    st.fixed_dictionaries({}, optional={name: st.sampled_from((0.0, 1.0, 2.5, 4.0)) for name in "abc"}),
    st.fixed_dictionaries({}, optional={name: st.sampled_from((0.5, 1.0, 9.0)) for name in "abc"}),
)
def test_limits_of_many_slots_at_once_are_those_of_one_after_the_other(texts, limits, in_use):
    rows = np.arange(len(texts))[::-1] * 2
    counters, singly = (LimitCounters(LimitConfig(limits), in_use) for _ in range(2))
    takes = WantedBySlot.of(rows, texts, 2 * len(texts) + 1)
    assert [takes.on(row) for row in rows] == [parse(text or "") for text in texts]
    assert list(takes.texts(rows)) == [text_of(parse(text or "")) for text in texts]
    room, full = takes.with_room(counters, rows)
    blocking = [singly.blocking(takes.on(row)) for row in rows]
    assert room.tolist() == [not name for name in blocking]
    assert full == next(filter(None, blocking), "")
    together = 0
    for row in rows:
        if singly.blocking(takes.on(row)):
            break
        singly.take(takes.on(row))
        together += 1
    assert takes.together(counters, rows) == together
    takes.take(counters, rows[:together])
    assert counters.in_use == pytest.approx(singly.in_use)
