"""Who runs when (CRN-06, CRN-08, CRN-09)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.cron.jobs import SLACK, CronJob, Mode
from shared.cron.schedule import Schedule, Start, Stop
from tests.spec import spec


def job(name="j", mode=Mode.PERIODIC, period_s=10.0, **fields):
    return CronJob(name, "/bin/x", mode, period_s, **fields)


def started(orders):
    return [order.job.name for order in orders if isinstance(order, Start)]


def stopped(orders):
    return [order.job.name for order in orders if isinstance(order, Stop)]


@spec("CRN-06")
def test_periodic_runs_at_once_and_keeps_its_rhythm():
    plan = Schedule([job()], 1.0, 100.0)
    assert started(plan.due(100.0)) == ["j"]
    plan.ended("j", 102.0)
    assert (plan.due(109.0), plan.next_look(109.0)) == ([], 110.0)
    assert started(plan.due(110.3)) == ["j"]
    plan.ended("j", 111.0)
    assert plan.next_look(111.0) == 120.0  # not 120.3


@spec("CRN-06")
def test_a_periodic_job_that_still_runs_leaves_turns_out():
    plan = Schedule([job()], 1.0, 0.0)
    plan.due(0.0)
    assert plan.due(10.0) == []
    assert plan.next_look(10.0) == 20.0
    plan.ended("j", 13.0)
    assert plan.due(13.0) == []
    assert started(plan.due(20.0)) == ["j"]


@spec("CRN-08")
def test_kill_ends_an_overdue_run_and_starts_the_next_when_it_is_gone():
    plan = Schedule([job(kill=True)], 1.0, 0.0)
    plan.due(0.0)
    assert stopped(plan.due(10.0)) == ["j"]
    assert plan.due(10.5) == []  # told once
    assert plan.next_look(10.5) is None
    plan.ended("j", 11.0)
    assert started(plan.due(11.0)) == ["j"]
    assert plan.next_look(11.0) == 20.0


@spec("CRN-06")
def test_wait_for_exit_counts_from_the_end():
    plan = Schedule([job(mode=Mode.WAIT_FOR_EXIT, kill=True)], 1.0, 0.0)
    assert started(plan.due(0.0)) == ["j"]
    assert (plan.due(500.0), plan.next_look(500.0)) == ([], None)
    plan.ended("j", 500.0)
    assert (plan.due(509.0), plan.next_look(509.0)) == ([], 510.0)
    assert started(plan.due(510.0)) == ["j"]


def test_a_program_that_ends_at_once_is_not_run_without_a_pause():
    plan = Schedule([job(mode=Mode.WAIT_FOR_EXIT, period_s=0)], 1.0, 0.0)
    plan.due(0.0)
    plan.ended("j", 0.0)
    assert plan.next_look(0.0) == 1.0


@spec("CRN-06", "CRN-08")
def test_one_shot_runs_once_and_again_at_a_reconfiguration_if_it_says_so():
    once, again = job("a", Mode.ONE_SHOT), job("b", Mode.ONE_SHOT, reconfig_rerun=True)
    plan = Schedule([once, again], 1.0, 0.0)
    assert started(plan.due(0.0)) == ["a", "b"]
    plan.ended("a", 1.0)
    plan.ended("b", 1.0)
    assert (plan.due(1e9), plan.next_look(1e9)) == ([], None)
    plan.reconfigure([once, again], 1.0, 1e9)
    assert started(plan.due(1e9)) == ["b"]


def test_a_rerun_waits_for_the_run_that_goes_on():
    plan = Schedule([job("b", Mode.ONE_SHOT, reconfig_rerun=True)], 1.0, 0.0)
    plan.due(0.0)
    plan.reconfigure([job("b", Mode.ONE_SHOT, reconfig_rerun=True)], 1.0, 5.0)
    assert (plan.due(5.0), plan.next_look(5.0)) == ([], None)
    plan.ended("b", 6.0)
    assert started(plan.due(6.0)) == ["b"]


@spec("CRN-06")
def test_on_demand_runs_when_asked():
    plan = Schedule([job("a", Mode.ON_DEMAND), job("b", Mode.ON_DEMAND)], 1.0, 0.0)
    assert (plan.due(0.0), plan.next_look(0.0)) == ([], None)
    plan.demand(3.0, ["A"])
    assert started(plan.due(3.0)) == ["a"]
    plan.demand(4.0)
    assert started(plan.due(4.0)) == ["b"]  # a still runs
    plan.ended("a", 5.0)
    plan.ended("b", 5.0)
    assert plan.due(1e9) == []


@spec("CRN-09", "W-66")
def test_loads_add_up_to_the_maximum_at_most():
    """With loads 0.01, 0.01, 0.2 and the sample's 0.2 the third waits until it fits."""
    jobs = [job("a", load=0.01), job("b", load=0.01), job("c", load=0.2)]
    plan = Schedule(jobs, 0.2, 0.0)
    assert started(plan.due(0.0)) == ["a", "b"]
    plan.ended("a", 1.0)
    assert started(plan.due(1.0)) == []
    plan.ended("b", 2.0)
    assert started(plan.due(2.0)) == ["c"]
    assert plan.load == 0.2


def test_who_waits_longest_is_first():
    jobs = [job("a", load=0.1), job("b", load=0.1, period_s=30), job("c", load=0.1, period_s=20)]
    plan = Schedule(jobs, 0.1, 0.0)
    order = []
    for now in range(0, 9, 3):
        order += started(plan.due(float(now)))
        plan.ended(order[-1], now + 1.0)
    assert order == ["a", "b", "c"]


@spec("CRN-08")
def test_reconfiguration_adds_removes_and_keeps():
    keep, gone = job("keep"), job("gone", mode=Mode.WAIT_FOR_EXIT)
    plan = Schedule([keep, gone], 1.0, 0.0)
    plan.due(0.0)
    plan.ended("keep", 1.0)
    plan.reconfigure([keep, job("new")], 1.0, 4.0)
    orders = plan.due(4.0)
    assert (started(orders), stopped(orders)) == (["new"], ["gone"])
    plan.ended("gone", 5.0)
    assert plan.running == ["new"]
    assert plan.next_look(5.0) == 10.0
    plan.reconfigure([job("keep", period_s=2.0), job("new")], 1.0, 5.0)
    assert plan.next_look(5.0) == 7.0


JOBS = st.builds(
    job,
    st.sampled_from("abcdef"),
    st.sampled_from(list(Mode)),
    st.integers(1, 20).map(float),
    kill=st.booleans(),
    reconfig_rerun=st.booleans(),
    load=st.sampled_from([0.01, 0.05, 0.1]),
)


@spec("CRN-09")
@settings(max_examples=75)
@given(st.lists(JOBS, max_size=6), st.data())
def test_any_history_keeps_the_rules(jobs, data):
    """Nobody runs twice at a time, and time never goes by without an answer changing."""
    plan = Schedule(jobs, 0.1, 0.0)
    now, running = 0.0, {}
    for _ in range(30):
        for order in plan.due(now):
            if isinstance(order, Start):
                assert order.job.name not in running
                running[order.job.name] = order.job
            else:
                assert order.job.name in running
        assert sum(one.load for one in running.values()) <= 0.1 + SLACK
        assert plan.due(now) == []
        look = plan.next_look(now)
        assert look is None or look > now
        step = data.draw(st.sampled_from(["wait", "end", "demand", "reconfigure"]))
        if step == "wait":
            now = look if look is not None else now + 1
        elif step == "end" and running:
            name = data.draw(st.sampled_from(sorted(running)))
            del running[name]
            plan.ended(name, now)
        elif step == "demand":
            plan.demand(now)
        elif step == "reconfigure":
            plan.reconfigure(data.draw(st.lists(JOBS, max_size=6)), 0.1, now)
