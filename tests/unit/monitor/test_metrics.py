"""Definitions applied to ads (MON-02 to MON-13, MON-16)."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.monitor.core.definitions import read
from services.monitor.core.metrics import MOST_PROBLEMS, Default, MetricIdentity, Problem, measure, typed
from shared.classad import ClassAd
from shared.classad.column_page import Sheet
from tests.spec import spec

SCHEDD = {"MyType": "Scheduler", "Name": "ap1", "Machine": "ap1.example.org", "TotalIdleJobs": 7, "Big": 1 << 40}


def sheets(ads):
    found = {}
    for ad in ads:
        found.setdefault(ad["MyType"], []).append(ClassAd(ad).pack())
    made = {}
    for my_type, packed in found.items():
        made[my_type] = Sheet()
        made[my_type].add(packed)
    return made


def run(text, *ads, **owners):
    found = read([("x", text)])
    assert found.problems == []
    return measure(
        found.definitions, sheets(ads), MetricIdentity(**{"collector": "cm.example.org"} | owners), 86400, 1000.0
    )


def one(text, *ads, **owners):
    result = run(text, *ads, **owners)
    assert result.problems == []
    (metric,) = result.metrics
    return metric


def slot(number, machine="ep1", **more):
    return {
        "MyType": "Machine", "Name": f"slot{number}@{machine}", "Machine": machine, "SlotID": number,
        "State": "Unclaimed", "Cpus": number,
    } | more  # fmt: skip


@spec("MON-02")
def test_value_and_title_have_defaults():
    metric = one('[ Name = "TotalIdleJobs"; TargetType = "Scheduler" ]', SCHEDD)
    assert (metric.value, metric.title, metric.name) == (7, "TotalIdleJobs", "TotalIdleJobs")
    metric = one('[ Name = "X"; Title = "Waiting"; Value = TotalIdleJobs + 1; TargetType = "Scheduler" ]', SCHEDD)
    assert (metric.value, metric.title) == (8, "Waiting")
    assert one('[ Name = strcat("Total", "IdleJobs"); TargetType = "Scheduler" ]', SCHEDD).value == 7


def test_an_ad_without_the_attribute_has_no_metric():
    result = run('[ Name = "Missing"; TargetType = "Scheduler" ]', SCHEDD)
    assert (result.metrics, result.problems) == ([], [])


@spec("MON-04")
def test_target_types():
    """A list of MyType; Machine_slot1 is slot 1, and nothing carved of it; ANY is all."""
    ads = (
        SCHEDD | {"Cpus": 100},
        slot(1),
        slot(2),
        slot(1, Name="slot1_1@ep1", DynamicSlot=True, Cpus=50),
        slot(1, "ep2", Cpus=3),
    )

    def total(target):
        return one(f'[ Name = "C"; Value = Cpus; Aggregate = "sum"; TargetType = "{target}" ]', *ads).value

    assert total("Machine") == 1 + 2 + 50 + 3
    assert total("Machine_slot1") == 1 + 3
    assert total("machine_slot1, Scheduler") == 104
    assert total("ANY") == total("Scheduler, Machine") == 156


@spec("MON-05")
def test_requirements():
    """True where there are none; UNDEFINED and errors are not true."""
    ads = slot(1, State="Claimed"), slot(2), slot(3, State=5)

    def counted(requirements):
        text = f'[ Name = "N"; Value = 1; Aggregate = "sum"; TargetType = "Machine"; {requirements} ]'
        return sum(metric.value for metric in run(text, *ads).metrics)

    assert counted("") == 3
    assert counted('Requirements = State == "Claimed"') == 1
    assert counted("Requirements = Nothing") == 0
    assert counted("Requirements = 1") == 0


@spec("MON-06", "W-77")
@pytest.mark.parametrize(
    ("value", "scale", "expected"), [("0.25", "100", 25.0), ("3", "1024", 3072), ("3", "1024.0", 3072.0)]
)
def test_scale(value, scale, expected):
    metric = one(f'[ Name = "S"; Value = {value}; Scale = {scale}; TargetType = "Scheduler" ]', SCHEDD)
    assert metric.value == expected
    assert type(metric.value) is type(expected)


@spec("MON-07")
@pytest.mark.parametrize(
    ("value", "asked", "expected", "kind"),
    [
        ("a", "", "a", "string"),
        (5, "", 5, "int32"),
        (2.5, "", 2.5, "float"),
        (True, "", 1, "int8"),
        (5, "float", 5.0, "float"),
        (1 << 40, "double", float(1 << 40), "double"),
        (1 << 40, "", float(1 << 40), "double"),
        (2.6, "uint16", 3, "uint16"),
        (5, "string", "5", "string"),
        (-128, "int8", -128, "int8"),
    ],
)
def test_types(value, asked, expected, kind):
    found = typed(value, asked)
    assert found == (expected, kind)
    assert type(found[0]) is type(expected)


@spec("MON-07")
@pytest.mark.parametrize(
    ("value", "asked"), [("a", "int32"), (300, "uint8"), (-1, "uint32"), (math.inf, "int32"), (None, ""), (1, "int64")]
)
def test_values_that_the_type_can_not_hold_are_refused(value, asked):
    with pytest.raises(Problem):
        typed(value, asked)


def test_what_can_not_be_published_is_told_once_with_its_place():
    text = '\n[ Name = "Big"; Type = "int32"; TargetType = "Scheduler" ]\n[ Name = "E"; Value = 1 + "a" ]'
    result = run(text, SCHEDD, SCHEDD | {"Name": "ap2", "Machine": "ap2"})
    assert result.metrics == []
    assert result.problems == [
        "x, line 2: Value is 1099511627776, which int32 can not hold; set Type to float or double",
        "x, line 3: Value is an error, and want a number or a string",
    ]


@spec("MON-08")
def test_regex_makes_a_metric_of_each_attribute():
    """Named after it, or with what its groups matched; Value has it as Regex."""
    ad = {"MyType": "Negotiator", "Name": "n", "Machine": "cm", "UserPrio_ann": 5, "UserPrio_bob": 7, "Other": 1}
    text = '[ Regex = "^userprio_(.*)"; TargetType = "Negotiator" ]'
    assert {(m.name, m.value) for m in run(text, ad).metrics} == {("UserPrio_ann", 5), ("UserPrio_bob", 7)}
    text = r"""[ Regex = "^UserPrio_(.)(.*)"; Name = "Prio of \\1-\\2"; Desc = "of \\1\\2\\7"; Value = Regex * 10;
                 TargetType = "Negotiator" ]"""
    found = {(m.name, m.desc, m.value) for m in run(text, ad).metrics}
    assert found == {("Prio of a-nn", "of ann", 50), ("Prio of b-ob", "of bob", 70)}


@spec("MON-08", "MON-09")
def test_regex_with_an_aggregate_sums_by_what_it_matched():
    ads = [
        {"MyType": "Scheduler", "Name": name, "Machine": name, "Jobs_ann": 1, "Jobs_bob": 10, "Jobs_cy": cy}
        for name, cy in (("ap1", 3), ("ap2", 4))
    ]
    text = r'[ Regex = "^Jobs_(.*)"; Name = "Jobs \\1"; Aggregate = "sum"; TargetType = "Scheduler" ]'
    found = {m.name: m.value for m in run(text, *ads).metrics}
    assert found == {"Jobs ann": 2, "Jobs bob": 20, "Jobs cy": 7}


@spec("MON-09", "W-77")
@pytest.mark.parametrize(("how", "expected"), [("SUM", 6), ("avg", 2.0), ("Max", 3), ("min", 1)])
def test_aggregates(how, expected):
    metric = one(
        f'[ Name = "C"; Value = Cpus; Aggregate = "{how}"; TargetType = "Machine" ]', slot(1), slot(2), slot(3)
    )
    assert metric.value == expected
    assert metric.type == ("float" if how == "avg" else "int32")


@spec("MON-09")
def test_aggregate_groups():
    """One result for each group; the default group is the metric's name."""
    ads = slot(1), slot(2), slot(3, "ep2")
    text = '[ Name = strcat("Cpus", Machine); Value = Cpus; Aggregate = "sum"; TargetType = "Machine" ]'
    assert {m.name: m.value for m in run(text, *ads).metrics} == {"Cpusep1": 3, "Cpusep2": 3}
    text = """[ Name = "InUse"; Value = Cpus; Aggregate = "sum"; AggregateGroup = Machine; Machine = Machine;
                TargetType = "Machine" ]"""
    assert {(m.name, m.machine): m.value for m in run(text, *ads).metrics} == {("InUse", "ep1"): 3, ("InUse", "ep2"): 3}


@spec("MON-09")
def test_what_no_group_can_be_made_of_is_told():
    """Lists and ads are like no other ones."""
    text = '[ Name = "N"; Value = 1; Aggregate = "SUM"; TargetType = "Machine"; AggregateGroup = {} ]'
    for group, said in (("{ State }", "["), ("[ a = 1 ]", "[ a = 1 ]"), ("1 / 0", "an error")):
        result = run(text.replace("{}", group), slot(1), slot(2))
        assert result.metrics == []
        (problem,) = result.problems
        assert problem.startswith(f"x, line 1: AggregateGroup is {said}")
        assert problem.endswith("want a string, a number or a boolean")


def test_every_ad_may_have_a_name_or_a_problem_of_its_own():
    """And a pass takes no longer for that: each name is looked up in the ad that has it."""
    count = 1500
    ads = [slot(1, f"ep{number}", **{f"Of{number}": number}) for number in range(count)]
    named = '[ Name = strcat("Of", split(Machine, "p")[1]); TargetType = "Machine" ]'
    result = run(named, *ads)
    assert result.problems == []
    assert [metric.value for metric in result.metrics] == list(range(count))
    result = run('[ Name = "N"; Value = Machine; Type = "double"; TargetType = "Machine" ]', *ads)
    assert len(result.problems) == MOST_PROBLEMS


@spec("MON-10")
def test_aggregates_belong_to_the_collector():
    text = '[ Name = "C"; Value = Cpus; Aggregate = "sum"; TargetType = "Machine"{} ]'
    assert one(text.format(""), slot(1)).machine == "cm.example.org"
    assert one(text.format('; Machine = "pool"'), slot(1)).machine == "pool"


@spec("MON-11")
@pytest.mark.parametrize(
    ("ad", "machine"),
    [
        (SCHEDD, "ap1.example.org"),
        (SCHEDD | {"Name": "second@ap1.example.org"}, "second@ap1.example.org"),
        (slot(1, "ep1"), "ep1"),
        (slot(1, "ep1", Name="slot1@second@ep1"), "second@ep1"),
    ],
)
def test_machine(ad, machine):
    """A daemon called name@host is one of several there."""
    assert one('[ Name = "N"; Value = 1 ]', ad).machine == machine


@spec("MON-11", "MON-12")
def test_machine_and_ip_can_be_configured():
    """GANGLIAD_DEFAULT_MACHINE, _IP and _CLUSTER are expressions of the ad, or texts."""
    metric = one(
        '[ Name = "N"; Value = 1 ]',
        SCHEDD,
        default_machine=Default.of('strcat("x-", Name)'),
        default_ip=Default.of("10.0.0.1"),
        default_cluster=Default.of("my-pool"),
    )
    assert (metric.machine, metric.ip, metric.cluster) == ("x-ap1", "10.0.0.1", "my-pool")


@spec("MON-12")
@pytest.mark.parametrize(
    ("more", "ip"),
    [
        ({"MyAddress": "<10.1.2.3:9618?addrs=10.1.2.3-9618>"}, "10.1.2.3"),
        ({"MyAddress": "<[fd00::1]:9618>"}, "fd00::1"),
        ({"MyAddress": "schedd.ap1"}, ""),
        ({"MyAddress": "<10.1.2.3:9618>", "Name": "second@ap1"}, "second@ap1"),
    ],
)
def test_ip(more, ip):
    """Of MyAddress, or the machine where it is one daemon of several there."""
    assert one('[ Name = "N"; Value = 1 ]', SCHEDD | more).ip == ip
    assert one('[ Name = "N"; Value = 1; IP = "1.1.1.1" ]', SCHEDD | more).ip == "1.1.1.1"


@spec("MON-13")
def test_lifetime():
    """As worked out from the interval, unless the metric names one."""
    assert one('[ Name = "N"; Value = 1 ]', SCHEDD).lifetime == 86400
    assert one('[ Name = "N"; Value = 1; Lifetime = 60 * 2 ]', SCHEDD).lifetime == 120
    assert "want a positive number" in run('[ Name = "N"; Value = 1; Lifetime = 0 ]', SCHEDD).problems[0]


@spec("MON-16")
def test_names_are_unique_on_a_machine():
    """The first counts, and the others are told of once."""
    result = run('[ Name = "Cpus"; TargetType = "Machine" ]', slot(1), slot(2), slot(3), slot(4, "ep2"))
    assert [(m.machine, m.value) for m in result.metrics] == [("ep1", 1), ("ep2", 4)]
    (problem,) = result.problems
    assert problem.startswith("x, line 1: there is a metric Cpus of that machine already")


@spec("MON-16")
def test_names_are_unique_across_groups():
    result = run('[ Name = "N"; Value = 1; TargetType = "Machine, Scheduler" ]', slot(1), SCHEDD)
    assert [m.group for m in result.metrics] == ["HTCondor Startd"]
    (problem,) = result.problems
    assert "N is in group 'HTCondor Startd' already" in problem


SLOTS = st.lists(
    st.builds(
        slot,
        st.integers(1, 4),
        st.sampled_from(["a", "b"]),
        State=st.sampled_from(["Claimed", "Unclaimed", 3]),
        Load=st.one_of(st.floats(0, 10), st.integers(-5, 5), st.booleans()),
        Cpus=st.integers(0, 9),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(SLOTS)
def test_columns_give_what_ad_by_ad_gives(ads):
    """What is worked out once for all that are alike is what each ad says by itself."""
    ads = [ad | {"Name": f"slot{place}@m{place}", "Machine": f"m{place}"} for place, ad in enumerate(ads)]
    text = """[ Name = "V"; Value = Load * 2 + Cpus; Requirements = State == "Claimed" || Cpus > 4; Type = "double";
                TargetType = "Machine" ]
              [ Name = "S"; Value = ifThenElse(State == "Claimed", Cpus, Load); Aggregate = "sum"; Type = "double";
                AggregateGroup = State; Machine = string(State); TargetType = "Machine" ]"""
    together = {(m.name, m.machine): m.value for m in run(text, *ads).metrics if m.name == "V"}
    alone = {(m.name, m.machine): m.value for ad in ads for m in run(text, ad).metrics if m.name == "V"}
    assert together == alone
    sums = {m.machine: m.value for m in run(text, *ads).metrics if m.name == "S"}
    by_hand = {}
    for ad in ads:
        by_hand.setdefault(str(ad["State"]), []).append(ad["Cpus"] if ad["State"] == "Claimed" else ad["Load"])
    # Where State is no string the comparison is an error, which is no number.
    by_hand.pop("3", None)
    assert sums.keys() == by_hand.keys()
    for state, values in by_hand.items():
        assert sums[state] == pytest.approx(sum(values))
