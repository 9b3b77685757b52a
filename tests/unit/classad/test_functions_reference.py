"""The builtin functions, compared with the reference implementation (known differences: docs/classads.md)."""

import random

import pytest

from shared.classad.functions import FUNCTIONS
from tests.spec import spec
from tests.unit.classad.compare import Theirs, ours
from tests.unit.classad.functions_cases import FAMILIES, RANDOM, calls, stated_deviation

pytestmark = pytest.mark.reference


@pytest.fixture
def theirs(reference):
    return Theirs(reference.classad)


def differences(theirs, cases, my=None, target=None):
    found = []
    for case in cases:
        try:
            expected = theirs(case, my, target)
        except (ValueError, OverflowError):
            continue  # a time that Python's datetime can not hold, so that its bindings give up
        answer = ours(case, my, target)
        if expected is not None and answer[0] != expected[0]:
            found.append((case, "reference", expected[0], "ours", answer[0]))
    return found[:5]


@spec("CLA-12", "CLA-13", "CLA-14", "CLA-15")
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - RANDOM))
def test_every_type_and_number_of_arguments(theirs, name):
    cases = [case for case in calls(name, seed=1, pairs=75, more=30) if not stated_deviation(case)]
    assert differences(theirs, cases) == []


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_random_texts_and_numbers(theirs, family):
    rng = random.Random(f"functions {family}")
    assert differences(theirs, (FAMILIES[family](rng) for _ in range(100))) == []


@pytest.mark.parametrize(
    "time", ["relTime(7)", "relTime(-2.5)", "absTime(100,3600)", "absTime(100,0)", "relTime(7)*2", "relTime(5)/2"]
)
def test_times_are_told_apart_from_numbers(theirs, time):
    cases = [f"{{isRelTime({time}),isAbsTime({time}),isReal({time}),isInteger({time})}}"]
    for other in ("relTime(7)", "absTime(100,0)", "3", "1.5", "true", '"a"', "undefined"):
        for op in ("+", "-", "*", "<", "==", "!=", ">=", "=?=", "=!=", "&&", "||", "&"):
            cases += [f"{time} {op} {other}", f"{other} {op} {time}", f"isRelTime({time} {op} {other})"]
    assert differences(theirs, cases) == []


MY = '[a=1;b="x";c=a+q;e=a>0;n=[a=4;k=b];l={n,[a=7],undefined,5};ads={[a=1;b=2],[a=5],[c=1]};r=a+TARGET.t+MY.m+z]'
TARGET = "[a=9;t=3+u;w=a;ads={[a=2]}]"
LAZY = [
    "ifThenElse(e,a,error)", "ifThenElse(zz,a,b)", 'ifThenElse("a",a,b)', "ifThenElse(0.0,a,b)",
    'eval("a+1")', "eval(b)", 'eval("TARGET.t")', "eval(a)", 'eval("a+")', 'eval("a;")', "eval(zz)", "eval(1.5)",
    "unparse(a)", "unparse(c)", "unparse(n)", "unparse(l)", "unparse(zz)", 'unparse("a")', "unparse(MY.a)",
    "unparse(r)", "unparse(a+1)", "unparse(t)", "unresolved(c)", "unresolved(r)", "unresolved(a)", "unresolved(zz)",
    "unresolved(t)", 'unresolved(c,"Q")', 'unresolved(c,"^z")', 'unresolved(c,"(")', 'unresolved("c")',
    "evalInEachContext(a,ads)", "evalInEachContext(a+0,ads)", "evalInEachContext(c,ads)", "evalInEachContext(MY.c,ads)",
    "evalInEachContext(e,l)", "evalInEachContext(b,ads)", "evalInEachContext(k,{n})", "evalInEachContext(a,5)",
    "evalInEachContext(a,zz)", "evalInEachContext(a,error)", "evalInEachContext(zz,{[zz=1],[a=2]})",
    "countMatches(e,ads)", "countMatches(a>1,ads)", "countMatches(a>1,l)", "countMatches(a,zz)",
    "countMatches(a,error)", "countMatches(b,ads)", "countMatches(true,{})", "countMatches((e),ads)",
    "countMatches(e,{n,zz})",
]  # fmt: skip


@pytest.mark.parametrize("target", [None, TARGET])
def test_functions_that_look_at_expressions(theirs, target):
    assert differences(theirs, LAZY, MY, target) == []


def test_functions_in_a_nested_ad(theirs):
    cases = [f"[x=q+1;y={call};n=[z={call}];v={{y,n.z}}].v" for call in [*LAZY, "unparse(x)", "unresolved(x)"]]
    assert differences(theirs, cases) == []


MISSING = [
    ("y", "[x=a.b.c+TARGET.d.e+MY.f.g;y=unresolved(x)]", None),
    ("y", "[x=f(a,b)+{c,d}[e]+[g=h;i=g];y=unresolved(x)]", None),
    ("y", "[x=b+B+a;y=unresolved(x)]", None),
    ("y", "[x=a.b;a=[c=1];y=unresolved(x)]", None),
    ("y", '[x=a.b;y=unresolved(x,"b")]', None),
    ("y", '[x=.a+b[1]+c["d"];y=unresolved(x)]', None),
    ("y", "[x=q;q=r+s;r=5;y=unresolved(x)]", None),
    ("y", "[x={a,[b=c]};y=unresolved(x)]", None),
    ("y", "[x=time()+a;y=unresolved(x)]", None),
    (
        "y",
        '[r=OpSys=="LINUX" && TARGET.Arch=="ARM" && Cpus>=Request;Request=1;y=unresolved(r)]',
        None,
    ),
    (
        "y",
        '[r=OpSys=="LINUX" && TARGET.Arch=="ARM" && Cpus>=Request;Request=1;y=unresolved(r)]',
        "[Arch=1]",
    ),
    ("y", "[x=other.a+self.b+parent.c;y=unresolved(x)]", None),
    ("y", "[x=n.a+n.z;n=[a=1];y=unresolved(x)]", None),
    ("y", "[x=MY.q;y=unresolved(x)]", None),
    ("y", "[x=MY.n.q;n=[a=1];y=unresolved(x)]", None),
    ("y", "[x=n.a+n.z;n=[a=k];y=unresolved(x)]", None),
    ("y", "[x=TARGET;y=unresolved(x)]", None),
    ("y", "[x=target.a+TaRgEt.b;y=unresolved(x)]", None),
    ("y", "[x=TARGET.n.k;y=unresolved(x)]", "[n=[q=1]]"),
    ("y", "[x=TARGET.n.q;y=unresolved(x)]", "[n=[q=zz]]"),
    ("z", "[x=a;n=[a=1;y=unresolved(x)];z=n.y]", None),
    ("v", "[r=a+TARGET.t+MY.m+z;v=unresolved(r)]", "[t=q+1;z=w]"),
    ("v", "[r=a+TARGET.t+MY.m+z;v=TARGET.w]", "[w=unresolved(r);t=1]"),
    ("v", "[r=l[0].a+f(b).c;l={1};v=unresolved(r)]", "[w=unresolved(r);t=1]"),
]


@pytest.mark.parametrize(("text", "my", "target"), MISSING)
def test_names_that_are_nowhere(theirs, text, my, target):
    assert differences(theirs, [text], my, target) == []


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "America/Santiago"])
def test_the_zone_of_the_machine(theirs, zone, monkeypatch):
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        cases = []
        for moment in ("0", "1700000000", "1720000000", "-86400", "1.5", "absTime(1700000000,7200)", "absTime(0,0)"):
            cases += [f'formatTime({moment},"%c %Z %z %s")', f"splitTime({moment})", f"string(absTime({moment}))"]
            cases += [f"get{part}(absTime({moment}))" for part in ("Year", "Month", "Hours", "DayOfWeek")]
        cases += ["timezoneOffset()", 'string(absTime("2020-07-01T10:20:30"))', 'absTime("2020-01-01T10:20:30Z")']
        assert differences(theirs, cases) == []
    finally:
        monkeypatch.undo()
        time.tzset()
