"""When the autoscaler of examples/ starts and stops workers."""

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

SPEC = importlib.util.spec_from_file_location(
    "decisions", Path(__file__).parents[3] / "examples" / "autoscaler" / "decisions.py"
)
decisions = importlib.util.module_from_spec(SPEC)
sys.modules["decisions"] = decisions
SPEC.loader.exec_module(decisions)
Decision, Memory, Policy, Size, Worker = (
    getattr(decisions, name) for name in ("Decision", "Memory", "Policy", "Size", "Worker")
)
POLICY = Policy(Size(0, 4, 8000), least=0, most=4, step=2, start_after_s=10, idle_after_s=60, starting_s=100)
SMALL = Size(0, 1, 1000)


@pytest.fixture
def autoscaler():
    spec = importlib.util.spec_from_file_location("autoscaler", Path(SPEC.origin).with_name("autoscaler.py"))
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_draining_is_known_again_and_ends_for_a_worker_that_is_started_anew(autoscaler):
    class Client:
        def __init__(self):
            self.orders = []

        def order(self, path, body):
            self.orders.append((path, body))

    class Workers:
        in_order, first = True, 0

        def names(self):
            return {"w-0": True, "w-1": True}

    client, scaler = Client(), autoscaler.Autoscaler(Workers(), POLICY, None)
    scaler._say = lambda _: None
    scaler._take_over(client, {"w-1", "somebody-elses"})
    assert (scaler.draining, client.orders) == ({"w-1"}, [])  # as this program was killed meanwhile
    scaler.draining, scaler.started = set(), {"w-1"}  # it was stopped, and is needed again
    scaler._take_over(client, {"w-1"})
    assert (scaler.draining, client.orders) == (set(), [("/v1/machines/cancel-drain", {"names": ["w-1"]})])


def test_processes_are_known_again_by_their_files(tmp_path, monkeypatch, autoscaler):
    """The autoscaler was stopped and is back: what it started lives on, and a number that is some other program's by
    now is none of its workers."""
    monkeypatch.delenv("ROOST_AMQP_URL", raising=False)
    with pytest.raises(autoscaler.ClientError, match="set ROOST_AMQP_URL: "):
        autoscaler.Processes(tmp_path, SMALL)
    monkeypatch.setenv("ROOST_AMQP_URL", "amqp://x")
    workers = autoscaler.Processes(tmp_path, SMALL)
    child = subprocess.Popen([sys.executable, "-c", "input()", "auto-1"], stdin=subprocess.PIPE)
    try:
        for name, pid in (("auto-1", child.pid), ("auto-2", child.pid), ("auto-3", 2**22 + 5)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "pid").write_text(str(pid))
        wait_until(lambda: workers.names()["auto-1"], 60)  # its command line is there when it has begun
        assert workers.names() == {"auto-1": True, "auto-2": False, "auto-3": False}
        workers.stop("auto-2")
        workers.stop("auto-3")
        assert child.poll() is None
        workers.stop("auto-1")
    finally:
        child.stdin.close()
        child.wait(60)
    assert workers.names() == {"auto-1": False}
    workers.stop("auto-1")
    assert workers.names() == {}


def run(*looks, policy=POLICY, memory=None):
    """Decisions of several looks: (now, jobs, free, workers)."""
    memory, made = memory or Memory(), []
    for now, jobs, free, workers in looks:
        decision, memory = decisions.decide(now, memory, jobs, free, workers, policy)
        made.append(decision)
    return made


def test_jobs_that_wait_get_as_many_workers_as_they_fill():
    early, due = run((0, {SMALL: 5}, [], []), (10, {SMALL: 5}, [], []))
    assert (early.start, early.unmet) == (0, 5)
    assert (due.start, due.why) == (2, "5 jobs wait for 10 s")
    assert run((0, {SMALL: 4}, [], []), (10, {SMALL: 4}, [], []))[1].start == 1
    assert run((0, {SMALL: 99}, [], []), (10, {SMALL: 99}, [], []))[1].start == POLICY.step


def test_waiting_begins_anew_when_nothing_waited_in_between():
    made = run((0, {SMALL: 1}, [], []), (9, {}, [], []), (10, {SMALL: 1}, [], []), (19, {SMALL: 1}, [], []))
    assert [one.start for one in made] == [0, 0, 0, 0]


def test_free_slots_and_workers_that_are_coming_take_their_part():
    coming = [Worker("w1", "starting", since=5)]
    assert run((0, {SMALL: 3}, [Size(0, 3, 9000)], []), (50, {SMALL: 3}, [Size(0, 3, 9000)], []))[1].unmet == 0
    assert run((0, {SMALL: 4}, [], coming), (50, {SMALL: 4}, [], coming))[1].start == 0
    assert run((0, {SMALL: 5}, [], coming), (50, {SMALL: 5}, [], coming))[1].start == 1
    # Memory counts as cores do.
    assert (
        run((0, {Size(0, 1, 8000): 2}, [Size(0, 8, 9000)], []), (50, {Size(0, 1, 8000): 2}, [Size(0, 8, 9000)], []))[
            1
        ].unmet
        == 1
    )


def test_jobs_that_no_worker_is_large_enough_for_start_none():
    huge = {Size(1, 1, 1): 3, Size(0, 64, 1): 1}
    assert run((0, huge, [], []), (99, huge, [], []))[1] == Decision(never=4)


def test_a_worker_that_does_not_come_is_stopped_and_replaced():
    made = run(
        (0, {SMALL: 1}, [], [Worker("w1", "starting", since=0)]),
        (101, {SMALL: 1}, [], [Worker("w1", "starting", since=0)]),
        (112, {SMALL: 1}, [], []),
    )
    assert [one.stop for one in made] == [(), ("w1",), ()]
    assert [one.start for one in made] == [0, 0, 1]
    assert run((0, {}, [], [Worker("w1", "dead")]))[0].stop == ("w1",)


def test_idle_workers_are_drained_and_then_stopped():
    idle = [Worker("w1", "running"), Worker("w2", "running", busy=True)]
    made = run((0, {}, [], idle), (59, {}, [], idle), (60, {}, [], idle))
    assert [one.drain for one in made] == [(), (), ("w1",)]
    assert run((0, {}, [], [Worker("w1", "draining", busy=True)]))[0] == Decision()
    assert run((0, {}, [], [Worker("w1", "draining")]))[0].stop == ("w1",)


def test_who_was_busy_in_between_is_idle_from_then_on():
    idle, busy = [Worker("w1", "running")], [Worker("w1", "running", busy=True)]
    made = run((0, {}, [], idle), (50, {}, [], busy), (60, {}, [], idle), (110, {}, [], idle), (120, {}, [], idle))
    assert [one.drain for one in made] == [(), (), (), (), ("w1",)]


def test_nothing_is_drained_while_something_waits_and_the_least_stay():
    idle = [Worker("w1", "running"), Worker("w2", "running")]
    assert run((0, {SMALL: 1}, [], idle), (60, {SMALL: 1}, [], idle))[1].drain == ()
    policy = Policy(POLICY.size, least=1, idle_after_s=60)
    assert run((0, {}, [], idle), (60, {}, [], idle), policy=policy)[1].drain == ("w1",)
    assert run((0, {}, [], []), policy=policy)[0].start == 1


@pytest.mark.parametrize("seed", range(30))
def test_bounds_hold_whatever_happens(seed):
    """Never more than `most`, never fewer than `least` by our doing, never a busy worker stopped, no flapping."""
    chance = random.Random(seed)
    policy = Policy(Size(0, 4, 8000), least=chance.randint(0, 2), most=4, start_after_s=10, idle_after_s=60)
    workers, memory, started, now = {}, Memory(), {}, 0.0
    for _ in range(300):
        now += chance.uniform(1, 15)
        jobs = {Size(0, chance.randint(1, 6), 1000): chance.randint(1, 9)} if chance.random() < 0.5 else {}
        for name, worker in list(workers.items()):
            state = "running" if worker.state == "starting" and chance.random() < 0.7 else worker.state
            busy = state != "starting" and chance.random() < (0.3 if state == "running" else 0.5)
            workers[name] = Worker(name, state, busy, worker.since)
        decision, memory = decisions.decide(now, memory, jobs, [], list(workers.values()), policy)
        for name in decision.drain:
            assert not workers[name].busy
            assert now - started[name] >= policy.idle_after_s
            workers[name] = Worker(name, "draining", False, now)
        for name in decision.stop:
            assert not workers[name].busy
            assert workers[name].state == "draining" or now - started[name] > policy.starting_s
            del workers[name]
        for _ in range(decision.start):
            name = f"w{len(started)}"
            workers[name], started[name] = Worker(name, "starting", since=now), now
        alive = [worker for worker in workers.values() if worker.state != "draining"]
        assert policy.least <= len(alive) <= policy.most
    assert started


IN_ORDER = Policy(Size(0, 4, 8000), least=1, most=4, step=2, start_after_s=10, idle_after_s=60, in_order=True)


def test_in_order_the_last_one_goes_first_and_none_before_it():
    idle, busy = (Worker(name, "running", busy=busy) for name, busy in (("w", False), ("w", True)))
    first, second, third = (Worker(f"w-{n}", one.state, one.busy) for n, one in enumerate((idle, busy, idle)))
    assert run((0, {}, [], [first, second, third]), (60, {}, [], [first, second, third]), policy=IN_ORDER)[1].drain == (
        "w-2",
    )
    # The one that is busy keeps those before it.
    made = run((0, {}, [], [first, third, second]), (60, {}, [], [first, third, second]), policy=IN_ORDER)
    assert made[1].drain == ()


def test_in_order_what_is_empty_waits_for_those_behind_it():
    draining = [Worker("w-0", "running"), Worker("w-1", "draining"), Worker("w-2", "draining", busy=True)]
    assert run((0, {}, [], draining), policy=IN_ORDER)[0].stop == ()
    both = [*draining[:2], Worker("w-2", "draining")]
    assert run((0, {}, [], both), policy=IN_ORDER)[0].stop == ("w-2", "w-1")


def test_in_order_as_many_stay_as_there_always_are():
    alike = [Worker(f"w-{n}", "running") for n in range(3)]
    assert run((0, {}, [], alike), (60, {}, [], alike), policy=IN_ORDER)[1].drain == ("w-2", "w-1")
