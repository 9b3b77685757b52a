"""What daemons count of themselves."""

import asyncio
import sys
import threading
import time

import pytest
import uvloop
from prometheus_client import CollectorRegistry, generate_latest

from services.gateway.metrics import Metrics as GatewayMetrics
from services.gateway.metrics import RequestCounts
from services.negotiator.metrics import MOST_SUBMITTERS, most_demanding
from shared.bus.api import Exchange, Reject
from shared.bus.memory import MemoryBus, MemoryHub
from shared.counters import CountsBy, Durations, DurationsBy
from shared.daemon.lag import (
    BETWEEN,
    ENDLESS_S,
    EVERY_S,
    LONG_S,
    TELL_EVERY_S,
    UNSEEN,
    WATCH_EVERY_S,
    LoopLag,
    stack_of,
)
from shared.daemon.metrics import MetricSource, histogram
from shared.messages.base import Ack
from shared.messages.negotiation import Reschedule
from shared.transfer.counts import TransferCounts
from tests.contract.bus_pool import ANYBODY
from tests.waiting import eventually


def shown(source):
    registry = CollectorRegistry()
    registry.register(source)
    return generate_latest(registry).decode()


def test_durations_are_shown_as_prometheus_counts_them():
    durations = Durations((1.0, 5.0))
    for seconds in (-3.0, 1.0, 1.5, 5.0, 7.0):
        durations.add(seconds)

    class Own(MetricSource):
        def collect(self):
            yield histogram("roost_test_seconds", "A test", durations)

    lines = shown(Own()).splitlines()
    assert 'roost_test_seconds_bucket{le="1.0"} 2.0' in lines  # a bound belongs to what is at most it
    assert 'roost_test_seconds_bucket{le="5.0"} 4.0' in lines
    assert 'roost_test_seconds_bucket{le="+Inf"} 5.0' in lines
    assert "roost_test_seconds_count 5.0" in lines
    assert "roost_test_seconds_sum 14.5" in lines


def test_names_are_bounded_and_nothing_is_lost():
    counts, durations = CountsBy(most=3), DurationsBy(most=3)
    for number in range(10):
        counts.add(f"n{number}", "x")
        counts.add("n0", "x")
        durations.add(f"n{number}", 1.0)
    assert set(counts.by_name) == {("n0", "x"), ("n1", "x"), ("n2", "x"), ("other", "other")}
    assert sum(counts.by_name.values()) == 20
    assert counts.by_name["n0", "x"] == 11
    assert set(durations.by_name) == {"n0", "n1", "n2", "other"}
    assert durations.by_name["other"].count == 7


def test_only_so_many_submitters_have_a_name():
    use = {f"u{number}@pool": float(number) for number in range(1, MOST_SUBMITTERS + 11)}
    found = most_demanding(use)
    assert len(found) == MOST_SUBMITTERS + 1
    assert ("u1@pool",) not in found
    assert found["other",] == sum(range(1, 11))
    assert sum(found.values()) == pytest.approx(sum(use.values()))
    assert most_demanding({"a@pool": 1.0}) == {("a@pool",): 1.0}


def test_requests_are_counted_by_door_and_never_by_what_was_asked_for():
    counts = RequestCounts()
    counts.add("GET", "/v1/jobs/{job}", 200, 0.2)
    counts.add("GET", "/v1/jobs/{job}", 200, 0.2)
    counts.add("BREW", "", 404, 0.001)
    counts.add("GET", "", 429, 0.001)
    counts.add("GET", "/v1/events", 200, 3600.0)
    text = shown(GatewayMetrics(counts, lambda: 4))
    assert 'roost_gateway_requests_total{door="/v1/jobs/{job}",method="GET",status="200"} 2.0' in text
    assert 'roost_gateway_requests_total{door="none",method="other",status="404"} 1.0' in text
    assert "roost_gateway_rate_limited_total 1.0" in text
    assert "roost_gateway_streams 4.0" in text
    assert 'roost_gateway_request_duration_seconds_count{door="/v1/jobs/{job}"} 2.0' in text
    assert 'duration_seconds_count{door="/v1/events"}' not in text


async def test_work_of_50_ms_is_always_seen_and_a_busy_machine_is_not_taken_for_work():
    lag = LoopLag(lambda held, more: None)
    lag.start()
    try:
        for number in range(1, 6):
            work(LONG_S + EVERY_S)
            await eventually(lambda number=number: lag.long >= number, 30)
        assert lag.last.processor_s >= LONG_S
        long, looks = lag.long, lag.held.count
        time.sleep(0.2)  # noqa: ASYNC251 late, but nothing was done
        await eventually(lambda: lag.held.count > looks, 30)
        assert lag.late.sum_s >= 0.2
        assert lag.long == long
    finally:
        lag.stop()


def work(seconds):
    """Work of so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_who_holds_the_loop_is_named_once_in_a_while_and_counted():
    """A look may come too late on a machine that is busy: then nobody is named, so this goes on until somebody is."""
    told, named, began = [], [], time.perf_counter()
    lag = LoopLag(lambda held, more: told.append((held, more)))
    lag.start()
    try:
        while not named or lag.long < 3:
            long = lag.long
            work(LONG_S + WATCH_EVERY_S + EVERY_S)
            await eventually(lambda long=long: lag.long > long, 30)
            named += [lag.last.by] if lag.last.by.function == "tests.unit.test_counters.work" else []
            assert time.perf_counter() < began + 60
    finally:
        lag.stop()
    assert named[0].calls.startswith("tests/unit/test_counters.py:")
    assert " < tests/unit/test_counters.py:" in named[0].calls  # and who called it
    assert sum(lag.long_by.by_name.values()) == lag.long
    assert lag.long_by.by_name["tests.unit.test_counters.work",] == len(named)
    assert 1 <= len(told) <= 1 + (time.perf_counter() - began) / TELL_EVERY_S
    assert told[0][1] == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "loop-watch"]


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_a_library_that_holds_the_loop_is_named_too(new_loop):
    """What reads frames of RabbitMQ is called by the loop itself, and by nothing of ours."""
    names = {"found": [], "look": lambda: names["found"].append(stack_of(sys._getframe(1)))}
    code = "def reads():\n    look()\ndef inner():\n    reads()\nasync def task():\n    inner()\n"
    exec(compile(code, "/somewhere/site-packages/aiormq/connection.py", "exec"), names)

    async def whole():
        loop = asyncio.get_running_loop()
        loop.call_soon(names["inner"])
        await asyncio.gather(loop.create_task(names["task"]()), asyncio.sleep(0))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(whole())
    assert [stack.function for stack in names["found"]] == ["aiormq.connection.inner", "aiormq.connection.task"]
    assert names["found"][0].calls.startswith("aiormq/connection.py:2 reads < aiormq/connection.py:4 inner")


def test_a_loop_that_is_between_two_pieces_of_work_is_told_from_one_that_was_not_looked_at():
    assert stack_of(None) is BETWEEN
    assert BETWEEN.function != UNSEEN.function


async def test_work_without_an_end_is_told_of_while_it_goes_on():
    told = []
    lag = LoopLag(lambda held, more: told.append((threading.current_thread().name, held)))
    lag.start()
    try:
        end = time.thread_time() + 60
        while not told and time.thread_time() < end:
            work(0.01)
        (thread, held) = told[0]
        assert thread == "loop-watch"
        assert held.processor_s > ENDLESS_S
        assert held.by.function.startswith("tests.unit.test_counters.")
    finally:
        lag.stop()


async def test_what_keeps_the_loop_is_seen_by_its_lag():
    lag = LoopLag(lambda held, more: None)
    lag.start()
    try:
        await eventually(lambda: lag.late.count, 30)
        before = lag.late.sum_s
        time.sleep(2 * EVERY_S)  # noqa: ASYNC251 not asyncio's: nothing else gets its turn meanwhile
        await eventually(lambda: lag.late.count > 1, 30)
        assert lag.late.sum_s - before >= EVERY_S
    finally:
        lag.stop()
    count = lag.late.count
    await asyncio.sleep(0)
    assert lag.late.count == count


def test_transfers_are_counted_however_they_end():
    counts = TransferCounts()
    with counts.measured("input"):
        assert counts.under_way == 1
    with pytest.raises(OSError, match="gone"), counts.measured("input"):
        raise OSError("gone")
    counts.bytes.add("input", count=1000)
    registry = CollectorRegistry()

    class Own(MetricSource):
        def collect(self):
            yield from counts.metrics("test")

    registry.register(Own())
    assert counts.under_way == 0
    for name, value in (
        ("transfer_duration_seconds_count", 2),
        ("transfer_failures_total", 1),
        ("transfer_bytes_total", 1000),
    ):
        assert registry.get_sample_value(f"roost_test_{name}", {"what": "input"}) == value


async def test_handlers_are_measured_by_type_of_message_however_they_end():
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="schedd.one", rows=ANYBODY)
    await bus.start()
    try:

        async def answers(envelope):
            return Ack()

        async def refuses(envelope):
            raise Reject("not this one")

        await bus.serve("schedd.one", answers)
        await bus.listen(Exchange.EVENTS, ["#"], refuses)
        await bus.call("schedd.one", Reschedule(by="test"))
        await bus.publish(Exchange.EVENTS, "negotiation.reschedule", Reschedule(by="test"))
        await eventually(lambda: bus.health.handled.by_name[Reschedule(by="").type].count == 2)
        assert set(bus.health.handled.by_name) == {Reschedule(by="").type}
    finally:
        await bus.stop()
