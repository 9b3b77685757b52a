"""The past of a machine: curves of what a collector has written down, and what is said where there is nothing."""

import pytest

from services.gateway.core.machine_past import curves
from services.gateway.machine_past import NOBODY, OLDER, MachinePast
from services.gateway.pool_client import PoolClient
from shared.bus.memory import MemoryBus, MemoryHub
from shared.daemon.clock import SystemClock
from shared.messages.base import Failure
from shared.messages.pool_history import INBOX, AskPoolHistory, PastOfPool

COLUMNS = ["LoadAvg", "Cpus", "ClaimedCpus", "Memory", "ClaimedMemory"]


def test_curves_are_parts_of_the_machine_with_gaps_where_nobody_looked():
    told = curves(COLUMNS, [[60.0, 4.0, 8, 2, 8192, 1024], [120.0, 9.0, 8, 8, 0, 0], [600.0, 1.0, 4, 4, 100, 50]], 60.0)
    assert told == {
        "times": [60.0, 120.0, 180.0, 600.0],
        "series": {
            "Load per cpu": [0.5, 1.125, None, 0.25],
            "Cpus claimed": [0.25, 1.0, None, 1.0],
            "Memory claimed": [0.125, None, None, 0.5],
        },
    }


def test_columns_that_are_not_told_are_not_known():
    assert curves(["LoadAvg"], [[60.0, 4.0]], 60.0)["series"]["Load per cpu"] == [None]


@pytest.fixture
async def past():
    """past(answer): MachinePast of a pool whose collector answers so, and what it was asked; None: there is none."""
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="gateway.test")
    collector = MemoryBus(hub, sender="collector.test")
    await bus.start()
    await collector.start()
    asked: list[AskPoolHistory] = []

    async def make(answer):
        async def reply(envelope):
            asked.append(envelope.body)
            return answer

        if answer is not None:
            await collector.serve(INBOX, reply)
        return MachinePast(PoolClient(bus, SystemClock()), SystemClock()), asked

    yield make
    await collector.stop()
    await bus.stop()


async def test_a_machine_is_asked_for_by_its_name(past):
    told, asked = await past(PastOfPool(columns=COLUMNS, every=60.0, points=[[60.0, 2.0, 4, 1, 100, 25]]))
    found = (await told.told("node7", 0.0, 100.0))["found"]
    assert found["series"] == {"Load per cpu": [0.5], "Cpus claimed": [0.25], "Memory claimed": [0.25]}
    assert [(one.kind, one.name, one.start, one.end) for one in asked] == [("machines", "node7", 0.0, 100.0)]


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (None, NOBODY),
        (Failure(code="unavailable", reason="POOL_HISTORY_DIR: no room"), "POOL_HISTORY_DIR: no room"),
        (Failure(code="bad-message", reason="kind"), OLDER),
    ],
)
async def test_where_there_is_nothing_the_answer_says_why(past, answer, missing):
    told, _ = await past(answer)
    assert await told.told("node7", 0.0, 100.0) == {"missing": missing}


async def test_a_collector_that_does_not_know_machines_is_left_in_peace(past):
    told, asked = await past(Failure(code="bad-message", reason="kind"))
    for end in (100.0, 200.0, 300.0):
        assert await told.told("node7", 0.0, end) == {"missing": OLDER}
    assert len(asked) == 1
