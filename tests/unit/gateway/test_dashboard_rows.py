"""What the dashboard shows, as decisions: forecasts (ACC-02, ACC-08), loans between groups (GRP-13 to GRP-29), waits,
rows."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fairshare.priorities import Record, effective, settle
from services.gateway.core import dashboard_rows
from services.gateway.core.dashboard_rows import WINDOW_S, WaitTimes, quantile
from services.gateway.core.fair_share import (
    LONGEST,
    ROOT,
    UNASSIGNED,
    GroupUse,
    QuotaLoan,
    Standing,
    effective_after,
    loans,
    parity,
)
from shared.classad import ClassAd, evaluate, is_true, parse_expr
from shared.natural_sort import natural_key
from tests.spec import spec

HALF = 86_400.0
standings = st.builds(
    Standing,
    name=st.just("a"),
    priority=st.floats(0.5, 5000),
    factor=st.sampled_from([1.0, 100.0, 1000.0, 1e7]),
    in_use=st.one_of(st.just(0.0), st.floats(0, 5000)),
)


@spec("ACC-02", "ACC-05")
@given(standings, st.floats(0, 20 * HALF))
def test_a_forecast_is_what_the_accountant_does(who, seconds):
    """The same decay as the negotiator's own books."""
    record = Record(priority=who.priority, factor=who.factor, in_use=who.in_use, updated=1000.0)
    settled = settle(record, 1000.0 + seconds, HALF)
    assert effective_after(who, seconds, HALF) == pytest.approx(effective(settled), rel=1e-9)


@settings(max_examples=200)
@given(standings, standings)
def test_parity_is_where_both_are_equal_and_not_before(first, second):
    found = parity(first, Standing("b", second.priority, second.factor, second.in_use), HALF)

    def gap(t):
        return effective_after(first, t, HALF) - effective_after(second, t, HALF)

    if found.in_s is None:
        signs = {math.copysign(1, gap(t)) for t in (0.0, HALF, 5 * HALF, 0.99 * LONGEST * HALF) if abs(gap(t)) > 1e-6}
        assert len(signs) <= 1
        return
    one = effective_after(first, found.in_s, HALF)
    assert one == pytest.approx(effective_after(second, found.in_s, HALF), rel=1e-6)
    if found.in_s > 1.0 and abs(gap(0.0)) > 1e-6:
        assert gap(0.0) * gap(found.in_s * 0.5) >= -1e-9
        assert found.ahead == ("a" if gap(0.0) < 0 else "b")


def test_parity_by_hand():
    """One uses 10 and begins at 0.5, the other has used 10 and stops: they meet when both are between."""
    rising, falling = Standing("rising", 0.5, 1.0, 10.0), Standing("falling", 10.0, 1.0, 0.0)
    found = parity(rising, falling, HALF)
    assert found.ahead == "rising"
    assert found.in_s == pytest.approx(HALF * math.log2(19.5 / 10.0))
    assert found.points[0] == (0.0, 0.5, 10.0)
    same = parity(rising, Standing("other", 0.5, 1.0, 10.0), HALF)
    assert (same.in_s, same.ahead) == (0.0, "")
    never = parity(rising, Standing("worse", 100.0, 1000.0, 10.0), HALF)
    assert (never.in_s, never.ahead) == (None, "rising")


def test_parity_on_the_floor_and_without_a_half_life():
    """Both fall to the least there is: then their factors alone tell."""
    one, two = Standing("one", 4.0, 1.0, 0.0), Standing("two", 2.0, 2.0, 0.0)
    assert parity(one, two, HALF).in_s == 0.0
    one, two = Standing("one", 8.0, 1.0, 0.0), Standing("two", 1.0, 4.0, 0.0)
    found = parity(one, two, HALF)  # 8x meets max(2, 4x) at x = 1/4
    assert found.in_s == pytest.approx(2 * HALF)
    assert parity(one, two, 0.0).in_s is None


def tree(**stands):
    """name=(parent, quota, used), with _ for a dot."""
    return [GroupUse(name.replace("_", "."), parent, quota, used) for name, (parent, quota, used) in stands.items()]


def test_siblings_lend_first():
    found = loans(
        [
            GroupUse(ROOT, ROOT, 10.0, 0.0),
            *tree(a=(ROOT, 0, 0), a_x=("a", 10, 4), a_y=("a", 10, 14), b=(ROOT, 20, 5), c=(ROOT, 10, 10)),
        ]
    )
    assert found == [QuotaLoan("a.x", "a.y", 4.0)]


def test_what_is_left_goes_up_in_proportion():
    found = loans(tree(a=(ROOT, 10, 16), b=(ROOT, 10, 7), c=(ROOT, 10, 4)))
    assert found == [QuotaLoan("c", "a", 4.0), QuotaLoan("b", "a", 2.0)]
    found = loans(tree(a=(ROOT, 1, 16), b=(ROOT, 10, 7)))
    assert found == [QuotaLoan(UNASSIGNED, "a", 12.0), QuotaLoan("b", "a", 3.0)]


def test_a_group_that_is_its_own_forefather_stops_nobody():
    assert loans(tree(a=("b", 1, 1), b=("a", 1, 9), c=("c", 1, 2))) == [QuotaLoan(UNASSIGNED, "c", 1.0)]


@st.composite
def forests(draw):
    names = [f"g{number}" for number in range(draw(st.integers(1, 12)))]
    found = []
    for number, name in enumerate(names):
        parent = draw(st.sampled_from([ROOT, *names[:number]]))
        found.append(GroupUse(name, parent, draw(st.integers(0, 50)), draw(st.integers(0, 50))))
    return found


@given(forests())
def test_loans_add_up(groups):
    """What a group borrows is what it uses above its quota; nobody lends more than it leaves."""
    found = loans(groups)
    for group in groups:
        borrowed = sum(loan.amount for loan in found if loan.borrower == group.name)
        lent = sum(loan.amount for loan in found if loan.lender == group.name)
        assert borrowed == pytest.approx(max(0.0, group.used - group.quota), abs=1e-4)
        assert lent <= max(0.0, group.quota - group.used) + 1e-4
    assert all(loan.amount > 0 for loan in found)


def test_waits_of_the_last_hour():
    waits = WaitTimes()
    assert waits.told(0.0) == {"count": 0, "window_s": WINDOW_S, "p50": None, "p90": None, "p99": None}
    waits.started(1000.0, 500.0)
    for number in range(1, 101):
        waits.started(5000.0 + number, float(number))
    assert waits.told(5000.0) == {"count": 100, "window_s": WINDOW_S, "p50": 50.0, "p90": 90.0, "p99": 99.0}
    assert waits.told(1e6)["count"] == 0


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_has_its_part_below_it(values, part):
    found = quantile(sorted(values), part)
    assert sum(value <= found for value in values) >= part * len(values) - 1e-9


def test_slots_are_summed_by_state():
    values = [
        ("Claimed", "Busy", 4, 1, False),
        ("Unclaimed", "Idle", 2, None, False),
        ("Unclaimed", "Idle", 0, 0, True),  # a partitionable slot with nothing left
        ("Unclaimed", "Idle", 8, 0, True),
        (None, None, None, None, None),
    ]
    found = dashboard_rows.by_state(values, [10, 5, 7, 1, 2])
    assert found["states"]["Claimed"] == {"slots": 10, "cpus": 40.0, "gpus": 10.0}
    assert found["states"]["Unclaimed"] == {"slots": 6, "cpus": 18.0, "gpus": 0.0}
    assert (found["slots"], found["cpus"], found["used_cpus"]) == (18, 58.0, 40.0)
    assert found["utilisation"] == pytest.approx(40 / 58)
    assert dashboard_rows.by_state([], [])["utilisation"] == 0.0


@pytest.mark.parametrize("text", ["a.b", "(.*[", 'say "x"', "\\d+", "ä+", "slot1@n", "$^", "${X}"])
def test_what_is_searched_for_is_no_pattern(text):
    """The search box is for people: its text is found as it stands, whatever its case, and is no expression. (ClassAd's
    regexp knows the case of ASCII letters only.)"""
    condition = parse_expr(dashboard_rows.looked_for(text, ("Name", "Other")))
    assert is_true(evaluate(condition, ClassAd({"Name": f"before{text.upper() if text.isascii() else text}after"})))
    assert not is_true(evaluate(condition, ClassAd({"Name": "something else"})))
    assert not is_true(evaluate(condition, ClassAd({})))
    assert dashboard_rows.looked_for("  ", ("Name",)) == ""


def test_slots_are_found_by_machine_user_and_name():
    ad = ClassAd({"Name": "slot1_2@node7.org", "Machine": "node7.org", "RemoteOwner": "ann@org"})
    for text, fits in (
        ("NODE7", True),
        ("slot1_2", True),
        ("2@node", True),
        ("ann@o", True),
        ("1_2", False),
        ("x", False),
    ):
        assert is_true(evaluate(parse_expr(dashboard_rows.slots_with(text)), ad)) == fits


def test_names_of_jobs_in_the_search_box():
    assert dashboard_rows.job_named("12") == "ClusterId == 12"
    assert dashboard_rows.job_named(" 12.3 ") == "ClusterId == 12 && ProcId == 3"
    for text in ("", "12.", ".3", "1.2.3", "x", "-1", "1" * 12, "١"):
        assert dashboard_rows.job_named(text) == ""


def test_jobs_of_a_user_in_any_spelling():
    group = ClassAd({"AccountingGroup": "physics.ann", "User": "root@pool", "Owner": "root"})
    plain = ClassAd({"User": "ann@pool", "Owner": "ann"})
    for name, ad, fits in (
        ("physics.ann@pool", group, True),
        ("physics.ann", group, True),
        ("ann@pool", plain, True),
        ("ann", plain, True),
        ("root", group, False),
        ('x" || true || "', plain, False),
    ):
        assert is_true(evaluate(parse_expr(dashboard_rows.of_user(name)), ad)) == fits


def test_jobs_of_a_machine():
    there = ClassAd({"RemoteHost": "slot1_2@node7.org", "LastRemoteHost": "slot1@node8.org"})
    before = ClassAd({"LastRemoteHost": "slot1@gpu@node7.org"})
    for name, ad, fits in (
        ("node7.org", there, True),
        ("NODE7.org", before, True),
        ("node8.org", there, False),
        ("node7xorg", there, False),
        ("7.org", before, False),
        ("node7.org", ClassAd({}), False),
        ('") || true || ("', there, False),
    ):
        assert is_true(evaluate(parse_expr(dashboard_rows.of_machine(name)), ad)) == fits


def test_slots_in_the_order_of_their_numbers():
    assert sorted(["slot10@n", "slot2@n", "slot1_10@n", "slot1_9@n"], key=natural_key) == [
        "slot1_9@n", "slot1_10@n", "slot2@n", "slot10@n",
    ]  # fmt: skip


def test_odd_ads_make_lines_all_the_same():
    odd = ClassAd({"Name": "x", "RunningJobs": "many", "Priority": parse_expr("1/0"), "PriorityFactor": 0})
    rows = [dashboard_rows.plain(ad, dashboard_rows.SUBMITTER_FIELDS) for ad in (odd, ClassAd({}))]
    assert dashboard_rows.submitters(rows) == [{"name": "x", "running": 0, "idle": 0, "held": 0}]
    rows = [dashboard_rows.plain(ad, dashboard_rows.ACCOUNT_FIELDS) for ad in (odd, ClassAd({"Name": 3}))]
    groups, people = dashboard_rows.accounts(rows)
    assert groups == []
    assert people[0]["RealPriority"] == 0.0
    assert dashboard_rows.job(ClassAd({"JobStatus": 99}), "s")["Status"] == "Unknown"
    assert dashboard_rows.cycles(ClassAd({"LastNegotiationCycleTime0": 5})) == [{"at": 5}]
    assert dashboard_rows.queue([ClassAd({"TotalIdleJobs": 3}), ClassAd({"TotalIdleJobs": 4})])["idle"] == 7


def test_a_job_that_failed_says_so() -> None:
    ad = ClassAd({"ClusterId": 1, "ProcId": 0, "JobStatus": 4, "ExitCode": 3, "ExitBySignal": False})
    row = dashboard_rows.job(ad, "ap")
    assert (row["Status"], row["Failure"]) == ("Completed", "exit code 3")
    ad["ExitCode"] = 0
    assert "Failure" not in dashboard_rows.job(ad, "ap")


def test_a_command_is_shown_as_a_shell_takes_it() -> None:
    def line(**ad: str) -> str:
        return dashboard_rows.command_line({"Cmd": "/usr/bin/python3", **ad})

    assert line() == "python3"
    assert line(Args="a  'b $(c)") == "python3 a  'b $(c)"
    assert line(Arguments="-c import' 'time;' 'time.sleep(9) '' $x") == "python3 -c 'import time; time.sleep(9)' '' $x"
    assert line(Arguments="it''s 'open") == "python3 it''s 'open"


def test_ends_of_the_last_hour_are_counted() -> None:
    ends = dashboard_rows.Ends()
    for at, failed in ((0.0, True), (5000.0, True), (5001.0, False)):
        ends.ended(at, failed=failed)
    assert ends.told(5002.0) == {"count": 2, "failed": 1, "window_s": 3600.0}


def test_jobs_that_are_alike_wait_for_the_same() -> None:
    """The first of them remembers it."""
    rows = [
        {"Status": "Idle", "AutoClusterId": 3},
        {"Status": "Idle", "AutoClusterId": 3, "LastRejMatchReason": "its own"},
        {"Status": "Running", "AutoClusterId": 3},
        {"Status": "Idle", "AutoClusterId": 4},
        {"Status": "Idle"},
    ]
    dashboard_rows.fill_reasons(rows, {"3": "now"})
    assert [row.get("LastRejMatchReason") for row in rows] == ["now", "its own", None, None, None]


def test_texts_of_megabytes_are_cut_in_rows():
    ad = ClassAd(
        {"Name": "n" * (1 << 20), "Activity": "Busy", "Arguments": "'" + "a b" * 100_000 + "'", "ClusterId": 1}
    )
    row = dashboard_rows.slot(ad)
    assert row["Name"] == "n" * dashboard_rows.LONGEST_SHOWN + "..."
    assert row["Activity"] == "Busy"
    assert sum(len(str(value)) for value in dashboard_rows.job(ad, "ap").values()) < 4 * dashboard_rows.LONGEST_SHOWN
